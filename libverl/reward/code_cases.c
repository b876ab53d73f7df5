/* code_cases.c - test cases from a ground truth. See code.h.
 *
 * Cases are JSON inside JSON: a data set's ground truth is a text whose value is the object, and a
 * function case's arguments are texts inside that. Malformed ones are the data's fault, not the
 * response's, so they are errors and never a score. */
#include "libverl/reward/code.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void vl_code_cases_free(struct vl_code_cases *c)
{
    vl_json_free(&c->j);
    free(c->text);
    free(c->in);
    free(c->want);
    free(c->check);
    free(c->fn);
    *c = (struct vl_code_cases){ 0 };
}

/* The elements of member `name`; a list of n nodes, NULL when there is no such list. */
static int64_t *elements(const struct vl_code_cases *c, const char *name, int64_t *n)
{
    int64_t list = vl_json_get(&c->j, 0, name), at = list + 1, *node;

    *n = -1;
    if (list < 0 || !vl_json_is(&c->j, list, VL_JSON_ARRAY))
        return NULL;
    *n = c->j.node[list].count;
    node = vl_alloc((size_t)*n * sizeof *node);
    for (int64_t k = 0; k < *n; k++, at = c->j.node[at].next)
        node[k] = at;
    return node;
}

static int64_t *nothing(int64_t n)
{
    int64_t *node = vl_alloc((size_t)n * sizeof *node);

    for (int64_t k = 0; k < n; k++)
        node[k] = -1;
    return node;
}

static int check(struct vl_code_cases *c, int64_t in, int64_t want, struct vl_err *e)
{
    int64_t fn = vl_json_get(&c->j, 0, "fn_name");

    if (in < 0 || want < 0)
        return vl_fail(e, VL_E_DATA,
                       "the ground truth has no test cases: a list of %s is missing; give "
                       "{\"inputs\": [...], \"outputs\": [...]} or \"assert_case\": [...]",
                       in < 0 ? "inputs" : "outputs");
    if (in != want)
        return vl_fail(e, VL_E_DATA,
                       "the ground truth has %" PRId64 " inputs and %" PRId64 " outputs", in, want);
    if (!in)
        return vl_fail(e, VL_E_DATA, "the ground truth has no test cases: its lists are empty");
    if (fn < 0 || vl_json_is(&c->j, fn, VL_JSON_NULL))
        return 0;
    c->fn = vl_json_strdup(&c->j, fn);
    if (!c->fn || !*c->fn)
        return vl_fail(e, VL_E_DATA, "the ground truth's fn_name is not a name");
    return 0;
}

int vl_code_cases_open(struct vl_code_cases *c, const char *truth, size_t n, struct vl_err *e)
{
    int64_t in, want, checks;

    *c = (struct vl_code_cases){ 0 };
    c->text = vl_strndup(truth, n);
    if (vl_json_parse(&c->j, c->text, n, "the ground truth", e))
        return e->code;
    if (!vl_json_is(&c->j, 0, VL_JSON_OBJECT))
        return vl_fail(e, VL_E_DATA,
                       "the ground truth is %.60s; give {\"inputs\": [...], \"outputs\": [...]}",
                       c->text);
    c->in = elements(c, "inputs", &in);
    c->want = elements(c, "outputs", &want);
    c->check = elements(c, "assert_case", &checks);
    if (checks >= 0) {
        if (in < 0)
            c->in = nothing(in = checks);
        if (want < 0)
            c->want = nothing(want = checks);
        if (checks != in)
            return vl_fail(e, VL_E_DATA,
                           "the ground truth has %" PRId64 " assert_case and %" PRId64 " inputs",
                           checks, in);
    } else if (in >= 0) {
        c->check = nothing(in);
    }
    c->n = in;
    return check(c, in, want, e);
}

void vl_code_case_text(const struct vl_code_cases *c, int64_t node, struct vl_buf *out)
{
    int64_t at = node + 1;

    if (node < 0)
        return;
    if (vl_json_is(&c->j, node, VL_JSON_ARRAY)) {
        for (uint32_t k = 0; k < c->j.node[node].count; k++, at = c->j.node[at].next) {
            if (k)
                vl_buf_ch(out, '\n');
            if (!vl_json_str(&c->j, at, out))
                vl_json_raw(&c->j, at, out);
        }
    } else if (!vl_json_str(&c->j, node, out)) {
        vl_json_raw(&c->j, node, out);
    }
}

static int is_json(const char *s, size_t n)
{
    struct vl_json j = { 0 };
    struct vl_err ignored = { 0 };
    int fine = vl_json_parse(&j, s, n, "value", &ignored) == 0;

    vl_json_free(&j);
    return fine;
}

int vl_code_case_args(const struct vl_code_cases *c, int64_t k, struct vl_buf *out,
                      struct vl_err *e)
{
    struct vl_buf lines = { 0 };
    const char *s, *end;

    if (!vl_json_str(&c->j, c->in[k], &lines)) {
        if (vl_json_is(&c->j, c->in[k], VL_JSON_ARRAY))
            vl_json_raw(&c->j, c->in[k], out);
        else
            vl_fail(e, VL_E_DATA,
                    "input %" PRId64 " of the ground truth is neither a list of arguments nor "
                    "lines with one each",
                    k);
        return e->code;
    }
    vl_buf_ch(&lines, '\n');
    vl_buf_ch(out, '[');
    for (s = lines.s; !e->code && s < lines.s + lines.n; s = end + 1) {
        end = memchr(s, '\n', (size_t)(lines.s + lines.n - s));
        if (s != lines.s)
            vl_buf_ch(out, ',');
        vl_buf_add(out, s, (size_t)(end - s));
        if (!is_json(s, (size_t)(end - s)))
            vl_fail(e, VL_E_DATA,
                    "input %" PRId64 " of the ground truth has the line '%.*s', not JSON", k,
                    (int)(end - s < 60 ? end - s : 60), s);
    }
    vl_buf_ch(out, ']');
    vl_buf_free(&lines);
    return e->code;
}

void vl_code_case_value(const struct vl_code_cases *c, int64_t k, struct vl_buf *out)
{
    struct vl_buf text = { 0 };

    if (vl_json_str(&c->j, c->want[k], &text) && is_json(text.n ? text.s : "", text.n))
        vl_buf_add(out, text.s, text.n);
    else if (c->want[k] >= 0)
        vl_json_raw(&c->j, c->want[k], out);
    vl_buf_free(&text);
}
