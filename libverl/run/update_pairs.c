/* update_pairs.c - dpo's pairs: which two rows of the batch each is made of. See update.h. */
#include "libverl/run/update.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/run/uid.h"

/* The chosen and the rejected row of each group, -1 until found. */
static int fill(int64_t *pair, const struct vl_batch *b, const int64_t *preference,
                const int64_t *of, struct vl_err *e)
{
    char who[128], other[128];

    for (int64_t i = 0; i < b->rows; i++) {
        int64_t p = preference[i], *at = &pair[2 * of[i] + (p == 0)];

        if (p == -1)
            continue;
        if (p != 0 && p != 1)
            return vl_fail(e, VL_E_DATA,
                           "%s: preference is %" PRId64
                           "; it must be 1 (chosen), 0 (rejected) or -1 (in no pair)",
                           vl_batch_row_name(b, i, who, sizeof who), p);
        if (*at >= 0)
            return vl_fail(e, VL_E_DATA,
                           "%s and %s: preference is %" PRId64
                           " in both; a uid has one chosen and one rejected row",
                           vl_batch_row_name(b, *at, other, sizeof other),
                           vl_batch_row_name(b, i, who, sizeof who), p);
        *at = i;
    }
    return 0;
}

/* Keeps the groups that are pairs with two responses, in the order of their first row. */
static int keep(struct vl_update *u, const struct vl_batch *b, int64_t groups, struct vl_err *e)
{
    struct vl_update_data *d = &u->data;
    int64_t empty = 0;
    char who[128];

    for (int64_t g = 0; g < groups; g++) {
        int64_t c = d->pair[2 * g], r = d->pair[2 * g + 1];

        if (c < 0 && r < 0)
            continue;
        if (c < 0 || r < 0)
            return vl_fail(e, VL_E_DATA,
                           "%s: preference is %d, but no row of its uid has %d: "
                           "a pair is one of each (-1 keeps a row out)",
                           vl_batch_row_name(b, c < 0 ? r : c, who, sizeof who), c >= 0, c < 0);
        if (!d->valid[c] || !d->valid[r]) {
            empty++;
            continue;
        }
        d->pair[2 * d->pairs] = c;
        d->pair[2 * d->pairs + 1] = r;
        d->pairs++;
    }
    if (empty)
        vl_warn(&u->x->log, "%" PRId64 " pairs left out: a response of theirs has no valid token",
                empty);
    if (!d->pairs)
        return vl_fail(e, VL_E_DATA, "no pair with two responses: there is nothing to learn from");
    return 0;
}

int vl_update_pairs(struct vl_update *u, const struct vl_batch *b, struct vl_err *e)
{
    struct vl_update_data *d = &u->data;
    const int64_t *preference;
    struct vl_groups g;

    if (!vl_batch_col(b, "preference"))
        return vl_fail(e, VL_E_DATA,
                       "column preference is missing: verl-data --preference or verl-batch pairs "
                       "adds it");
    if (vl_batch_need(b, "preference", VL_I64, 0, NULL, &preference, e) ||
        vl_uid_groups(&g, b, "pairs", e))
        return e->code;
    d->pair = vl_alloc(sizeof *d->pair * (size_t)(2 * g.n + 1));
    for (int64_t i = 0; i < 2 * g.n; i++)
        d->pair[i] = -1;
    if (!fill(d->pair, b, preference, g.of, e))
        (void)!keep(u, b, g.n, e);
    vl_groups_free(&g);
    return e->code;
}
