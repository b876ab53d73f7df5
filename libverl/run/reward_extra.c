/* reward_extra.c - see reward_extra.h. Rows of one scorer have the same members in the same order, so
 * the place of the last row's member is tried first. */
#include "libverl/run/reward_extra.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"

enum { NAMES_MAX = 256 };

void vl_reward_extras_free(struct vl_reward_extras *x)
{
    for (size_t k = 0; k < x->n; k++) {
        free(x->e[k].name);
        vl_buf_free(&x->e[k].text);
        free(x->e[k].offsets);
        free(x->e[k].number);
    }
    free(x->e);
    *x = (struct vl_reward_extras){ 0 };
}

/* Rows before `row` that lack the member get null. */
static void fill(struct vl_reward_extra *x, int64_t row)
{
    for (; x->done < row; x->done++) {
        vl_buf_add(&x->text, "null", 4);
        x->offsets[x->done + 1] = (int64_t)x->text.n;
        if (x->number)
            x->number[x->done] = NAN;
    }
}

/* The extra of this member, made when it is new; NULL with *e when there are too many. */
static struct vl_reward_extra *find(struct vl_reward_extras *x, const struct vl_json *j, int64_t c,
                                    size_t guess, int64_t row, int64_t rows, struct vl_err *e)
{
    struct vl_reward_extra *found;
    char *name;

    if (guess < x->n && vl_json_streq(j, c, x->e[guess].name))
        return &x->e[guess];
    name = vl_json_name(j, c);
    for (size_t k = 0; k < x->n; k++)
        if (!strcmp(x->e[k].name, name)) {
            free(name);
            return &x->e[k];
        }
    if (x->n == NAMES_MAX) {
        free(name);
        vl_fail(e, VL_E_DATA,
                "row %" PRId64 ": the scorers' answers have more than %d different members; "
                "each becomes a column, so put lists of results into one member",
                row, NAMES_MAX);
        return NULL;
    }
    found = &x->e[x->n++];
    found->name = name;
    found->offsets = vl_alloc((size_t)(rows + 1) * sizeof *found->offsets);
    found->number = vl_alloc((size_t)rows * sizeof *found->number);
    return found;
}

static void put(struct vl_reward_extra *x, const struct vl_json *j, int64_t v, int64_t row)
{
    double number = NAN;
    int b;

    fill(x, row);
    if (x->done > row) /* the member is there twice: the last one holds */
        x->text.n = (size_t)x->offsets[x->done = row];
    vl_json_raw(j, v, &x->text);
    x->offsets[++x->done] = (int64_t)x->text.n;
    if (vl_json_bool(j, v, &b))
        number = b;
    else if (!vl_json_real(j, v, &number) && !vl_json_is(j, v, VL_JSON_NULL)) {
        free(x->number);
        x->number = NULL;
    }
    if (x->number)
        x->number[row] = number;
}

int vl_reward_extras_read(struct vl_reward_extras *x, const struct vl_score *s, int64_t rows,
                          struct vl_err *e)
{
    x->e = vl_alloc(NAMES_MAX * sizeof *x->e);
    for (int64_t i = 0; i < rows && !e->code; i++) {
        struct vl_json j = { 0 };
        int64_t c = 1;

        if (!s[i].extra || vl_json_parse(&j, s[i].extra, strlen(s[i].extra), "answer", e))
            continue;
        for (uint32_t k = 0; k < j.node[0].count && !e->code; k++, c = j.node[c + 1].next) {
            struct vl_reward_extra *to = find(x, &j, c, k, i, rows, e);

            if (to)
                put(to, &j, c + 1, i);
        }
        vl_json_free(&j);
    }
    for (size_t k = 0; k < x->n; k++)
        fill(&x->e[k], rows);
    return e->code;
}
