/* stage_dump.c - the stage function of verl-dump. See stage_dump.h. */
#include "libverl/run/stage_dump.h"

#include "libverl/batch/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/dp.h"
#include "formats/json.h"
#include "libverl/base/args.h"
#include "libverl/base/jq.h"
#include "libverl/base/publish.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/view.h"
#include "libverl/run/dump_tokens.h"
#include "libverl/text/tok.h"

#define FLUSH ((size_t)1 << 18) /* bytes of text gathered before a write */

/* ---- tokenizer ---- */

struct text {
    struct vl_tok *tok;
    int special;
    struct vl_view_text view;
};

static void decode(void *arg, const int64_t *ids, size_t n, struct vl_buf *out)
{
    const struct text *t = arg;
    int32_t *id = vl_alloc(n * sizeof *id);

    for (size_t i = 0; i < n; i++)
        id[i] = ids[i] < 0 || ids[i] > INT32_MAX ? -1 : (int32_t)ids[i];
    vl_tok_decode(t->tok, id, n, !t->special, out);
    free(id);
}

static void pieces(void *arg, const int64_t *ids, size_t n, struct vl_buf *json)
{
    vl_dump_pieces(json, ((const struct text *)arg)->tok, ids, n);
}

/* Opens -m, else the tokenizer of meta_info, checked by its hash. Text is an addition: without a
 * tokenizer the rows are printed all the same, and -v says why. */
static int text_open(struct text *t, const struct vl_dump_opts *o, struct vl_ctx *x,
                     const struct vl_batch *b, struct vl_err *e)
{
    char *path = vl_meta_str(b, "tokenizer_path"), *hash = vl_meta_str(b, "tokenizer_hash");
    const char *from = x->common->model ? x->common->model : path;
    struct vl_err why = { 0 };

    *t = (struct text){ .special = o->special, .view = { decode, pieces, t } };
    if (o->text && from && vl_tok_open(&t->tok, from, &why)) {
        if (x->common->model)
            *e = why;
        else
            vl_detail(&x->log, "no text: %s", why.msg);
    } else if (t->tok && hash && strcmp(hash, vl_tok_hash(t->tok)) != 0) {
        if (x->common->model)
            vl_warn(&x->log, "%s is not the tokenizer of this batch (hash %s, batch %s)", from,
                    vl_tok_hash(t->tok), hash);
        else {
            vl_warn(&x->log, "no text: %s is not the tokenizer of this batch any more; give -m",
                    from);
            vl_tok_free(t->tok);
            t->tok = NULL;
        }
    }
    free(path);
    free(hash);
    return e->code;
}

/* ---- rows ---- */

struct rows {
    struct vl_publish out;
    struct vl_buf text;
    struct vl_jq *jq;
};

static int flush(struct rows *r, size_t limit, struct vl_err *e)
{
    if (r->text.n <= limit)
        return 0;
    if (vl_publish_write(&r->out, r->text.s, r->text.n, e))
        return e->code;
    vl_buf_reset(&r->text);
    return 0;
}

static int put_row(struct rows *r, const struct vl_batch *b, int64_t i, const char *const *columns,
                   const struct text *t, const struct vl_dump_opts *o, struct vl_err *e)
{
    const struct vl_view_text *text = t->tok ? &t->view : NULL;
    struct vl_buf one = { 0 };
    int64_t n;
    int rc;

    if (o->tokens)
        return vl_dump_tokens(&r->text, b, i, columns, t->tok, e);
    if (o->rendered)
        return vl_dump_rendered(&r->text, b, i, t->tok, e);
    if (!r->jq) {
        rc = vl_view_row(&r->text, b, i, columns, text, e);
        if (!rc)
            vl_buf_ch(&r->text, '\n');
        return rc;
    }
    rc = vl_view_row(&one, b, i, columns, text, e);
    if (!rc && vl_jq_run(r->jq, one.s, one.n, o->raw, &r->text, &n, e))
        rc = vl_err_prefix(e, "row %" PRId64, i);
    vl_buf_free(&one);
    return rc;
}

static int print_rows(struct vl_ctx *x, const struct vl_dump_opts *o, const struct vl_batch *b,
                      const char *const *columns, struct vl_err *e)
{
    struct rows r = { 0 };
    struct text t;
    int rc = text_open(&t, o, x, b, e);

    if (!rc && o->rendered && !t.tok)
        rc = vl_fail(e, VL_E_DATA, "--rendered needs the batch's tokenizer: give it with -m DIR");
    if (!rc && o->filter)
        rc = vl_jq_open(&r.jq, o->filter, NULL, e);
    if (!rc && (rc = vl_publish_open(&r.out, x->common->output, 0, e)) == 0) {
        for (int64_t i = 0; i < b->rows && !rc; i++) {
            rc = put_row(&r, b, i, columns, &t, o, e);
            if (!rc)
                rc = flush(&r, FLUSH, e);
        }
        if (!rc)
            rc = flush(&r, 0, e);
        if (rc)
            vl_publish_abort(&r.out);
        else
            rc = vl_publish_commit(&r.out, e);
    }
    if (r.jq && vl_jq_inexact(r.jq))
        vl_warn(&x->log,
                "%" PRId64 " numbers that jq cannot hold exactly were given to it as strings",
                vl_jq_inexact(r.jq));
    vl_jq_free(r.jq);
    vl_tok_free(t.tok);
    vl_buf_free(&r.text);
    return rc;
}

/* ---- the other views ---- */

static int print_text(struct vl_ctx *x, struct vl_buf *t, struct vl_err *e)
{
    int rc;

    vl_buf_ch(t, '\n');
    rc = vl_publish_file(x->common->output, t->s, t->n, 0, e);
    vl_buf_free(t);
    return rc;
}

static int print_check(struct vl_ctx *x, const struct vl_batch *b, struct vl_err *e)
{
    const char *name = x->common->input.s[0];
    struct vl_buf t = { 0 };
    struct vl_err twice = { 0 };
    uint64_t bytes = 0;

    if (vl_batch_verify(b, e))
        return vl_err_prefix(e, "%s", name);
    for (size_t i = 0; i < b->ncol; i++)
        bytes += b->col[i]->bytes;
    vl_buf_printf(&t, "%s: ok, %" PRId64 " rows, %zu columns, %" PRIu64 " bytes of data, hash %s",
                  name, b->rows, b->ncol, bytes, b->nparent ? b->parent[0] : "none");
    if (vl_batch_unique(b, &twice)) /* padded or repeated: legal, but no input of a stage */
        vl_buf_printf(&t, " (%s)", twice.msg);
    return print_text(x, &t, e);
}

/* diff --tokens: each side with its own tokenizer. */
static size_t diff_tokens(struct vl_ctx *x, const struct vl_dump_opts *o, const char *const name[2],
                          const struct vl_batch *const b[2], struct vl_buf *out, struct vl_err *e)
{
    struct text t[2] = { 0 };
    struct vl_dump_side side[2];
    int64_t n = 0;

    for (int k = 0; k < 2 && !e->code; k++) {
        (void)!text_open(&t[k], o, x, b[k], e);
        side[k] = (struct vl_dump_side){ b[k], t[k].tok, name[k] };
    }
    if (!e->code)
        (void)!vl_dump_token_diff(out, &side[0], &side[1], o->head < 0 ? 10 : o->head, &n, e);
    vl_tok_free(t[0].tok);
    vl_tok_free(t[1].tok);
    return (size_t)n;
}

static int diff(struct vl_ctx *x, const struct vl_dump_opts *o, const char *a, const char *b,
                struct vl_err *e)
{
    const char *const name[] = { a, b };
    struct vl_batch p = { 0 }, q = { 0 };
    const struct vl_batch *const both[] = { &p, &q };
    struct vl_buf t = { 0 };
    size_t n = 0;
    int rc = vl_dp_read(&p, a, NULL, e) || vl_dp_read(&q, b, NULL, e);

    if (!rc && o->tokens)
        n = diff_tokens(x, o, name, both, &t, e);
    else if (!rc)
        n = vl_batch_diff(&t, &p, &q);
    vl_batch_free(&p);
    vl_batch_free(&q);
    if (!e->code && n && vl_publish_file(x->common->output, t.s, t.n, 0, e) == 0)
        vl_fail(e, 1, "%s and %s differ (%zu %s%s)", a, b, n, o->tokens ? "row" : "difference",
                n == 1 ? "" : "s");
    vl_buf_free(&t);
    return e->code;
}

/* ---- arguments ---- */

/* "A:B" to a row range; negative numbers are refused: the count is not known before reading. */
static int parse_range(const char *s, struct vl_dp_read *r, struct vl_err *e)
{
    const char *colon = strchr(s, ':');
    int64_t a = 0, b = -1;

    if (!colon || (colon > s && !vl_arg_i64(s, (size_t)(colon - s), &a)) ||
        (colon[1] && !vl_arg_i64(colon + 1, strlen(colon + 1), &b)) || a < 0 || (colon[1] && b < a))
        return vl_fail(e, VL_E_USAGE, "--rows %s: not FIRST:END, such as 10:20 (END is left out)",
                       s);
    r->row0 = a;
    r->nrows = b < 0 ? -1 : b - a;
    return 0;
}

/* Takes `head N` and files from the operands. */
static int operands(struct vl_ctx *x, struct vl_dp_read *r, struct vl_strs *files, struct vl_err *e)
{
    const struct vl_strs *op = &x->common->operands;
    size_t i = 0;

    if (op->n && strcmp(op->s[0], "head") == 0) {
        if (op->n < 2 || !vl_arg_i64(op->s[1], strlen(op->s[1]), &r->nrows) || r->nrows < 0)
            return vl_fail(e, VL_E_USAGE,
                           "head: give a number of rows, as in: verl-dump head 3 x.dp");
        i = 2;
    }
    *files = x->common->input;
    if (i < op->n) {
        if (vl_parsed_given(x->parsed, &x->common->input))
            return vl_fail(e, VL_E_USAGE, "files are given both with -i and as operands (%s)",
                           op->s[i]);
        *files = (struct vl_strs){ op->s + i, op->n - i };
    }
    return 0;
}

/* The columns to read: those to print, and those the text views are made of. Caller frees. */
static const char **needed(const struct vl_dump_opts *o, const char *const *columns)
{
    static const char *const ids[] = { "attention_mask", "prompts",   "responses", "uid",
                                       "response_mask",  "input_ids", "sample" };
    size_t n = vl_arg_count(columns);
    const char **list = vl_alloc((n + 8) * sizeof *list);

    memcpy(list, columns, n * sizeof *list);
    for (size_t i = 0; columns[i]; i++)
        if (o->tokens || vl_view_is_text(columns[i])) {
            memcpy(list + n, ids, sizeof ids);
            break;
        }
    return list;
}

static int check_columns(const struct vl_batch *b, const char *const *columns, struct vl_err *e)
{
    for (; columns && *columns; columns++)
        if (!vl_batch_col(b, *columns) && !vl_view_is_text(*columns))
            return vl_batch_missing(b, "--columns", *columns, e);
    return 0;
}

/* One file: read in part where that is possible, after a look at its header. */
static int read_one(struct vl_batch *b, const char *path, const struct vl_dump_opts *o,
                    const struct vl_dp_read *want, const char *const *columns, struct vl_err *e)
{
    struct vl_dp_read part = *want;
    struct stat st;
    int rc;

    if (columns && strcmp(path, "-") && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        struct vl_dp_read head = { .header_only = 1, .nrows = -1 };
        struct vl_batch h = { 0 };
        const char **list;

        rc = vl_dp_read(&h, path, &head, e);
        if (!rc)
            rc = check_columns(&h, columns, e);
        vl_batch_free(&h);
        if (rc)
            return rc;
        list = needed(o, columns);
        part.columns = list;
        rc = vl_dp_read(b, path, &part, e);
        free(list);
        return rc;
    }
    rc = vl_dp_read(b, path, &part, e);
    return rc ? rc : check_columns(b, columns, e);
}

/* Several files are united, as stages do. */
static int read_several(struct vl_ctx *x, struct vl_batch *b, const struct vl_dp_read *want,
                        const char *const *columns, struct vl_err *e)
{
    struct vl_batch all = { 0 };
    int rc = vl_stage_read(x, &all, e);

    if (!rc)
        rc = check_columns(&all, columns, e);
    if (!rc)
        rc = vl_batch_rows(b, &all, want->row0, want->nrows < 0 ? INT64_MAX : want->nrows, e);
    vl_batch_free(&all);
    return rc;
}

static int show(struct vl_ctx *x, const struct vl_dump_opts *o, struct vl_batch *b,
                const char *const *columns, struct vl_err *e)
{
    struct vl_buf t = { 0 };

    if (o->check)
        return print_check(x, b, e);
    if (o->schema)
        vl_view_schema(&t, b);
    else if (o->meta)
        vl_view_meta(&t, b);
    else if (o->provenance)
        vl_buf_str(&t, b->provenance ? b->provenance : "{}");
    else
        return print_rows(x, o, b, columns, e);
    return print_text(x, &t, e);
}

static int check_options(const struct vl_dump_opts *o, struct vl_err *e)
{
    if (o->schema + o->meta + o->provenance + o->check > 1)
        return vl_fail(
            e, VL_E_USAGE,
            "--schema, --meta, --provenance and --check are different outputs; give one");
    if (o->range && o->head >= 0)
        return vl_fail(e, VL_E_USAGE, "--rows and -n both say which rows; give one");
    if (o->raw && !o->filter)
        return vl_fail(e, VL_E_USAGE, "--raw is about what a filter gives; add -f FILTER");
    if (o->tokens && o->rendered)
        return vl_fail(e, VL_E_USAGE, "--tokens and --rendered are different outputs; give one");
    if ((o->tokens || o->rendered) && o->filter)
        return vl_fail(
            e, VL_E_USAGE,
            "-f is for rows of JSON; prompt_tokens and response_tokens are columns there "
            "(-k uid,response_tokens)");
    if (o->rendered && o->columns)
        return vl_fail(e, VL_E_USAGE, "-k has no effect with --rendered");
    if ((o->schema || o->meta || o->provenance || o->check) &&
        (o->filter || o->columns || o->tokens || o->rendered))
        return vl_fail(e, VL_E_USAGE,
                       "-f, -k, --tokens and --rendered are about rows, but no rows are printed");
    return 0;
}

int vl_stage_dump(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_dump_opts *o = opts;
    const struct vl_strs *op = &x->common->operands;
    struct vl_dp_read want = { .nrows = o->head };
    const char **columns = o->columns ? vl_arg_list(o->columns) : NULL;
    struct vl_batch b = { 0 };
    struct vl_strs files;
    int rc;

    if (op->n && strcmp(op->s[0], "diff") == 0) {
        free(columns);
        if (op->n != 3)
            return vl_fail(e, VL_E_USAGE, "diff takes two files, as in: verl-dump diff a.dp b.dp");
        return diff(x, o, op->s[1], op->s[2], e);
    }
    rc = check_options(o, e) || (o->range && parse_range(o->range, &want, e)) ||
         operands(x, &want, &files, e);
    if (!rc) {
        want.header_only = o->schema || o->meta || o->provenance;
        x->common->input = files;
        if (files.n == 1)
            rc = read_one(&b, files.s[0], o, &want, columns, e);
        else
            rc = read_several(x, &b, &want, columns, e);
    }
    if (!rc)
        rc = show(x, o, &b, columns, e);
    vl_batch_free(&b);
    free(columns);
    return rc ? e->code : 0;
}
