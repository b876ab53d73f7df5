/* fields.h - the columns of one PPO or GRPO step: what they hold, who writes them, what they need.
 *
 * The table serves from-json (dtype, padding), the stages (which columns fall when one is replaced)
 * and the manual. Columns that are not in it are ordinary columns all the same. */
#ifndef VL_FIELDS_H
#define VL_FIELDS_H

#include "libverl/batch/batch.h"

enum vl_pad {
    VL_PAD_ZERO, /* 0 */
    VL_PAD_ID,   /* meta_info.pad_token_id, else 0 */
};

struct vl_field {
    const char *name;
    int json; /* a JSON column; dtype and shape are unused */
    enum vl_dtype dtype;
    const char *shape; /* inner dimensions by letter: "" scalar, "P" prompt width (padded on the
                            left), "R" response width (on the right), "S" = P + R, "K" ids of a list */
    enum vl_pad pad;
    const char *writer;  /* program */
    const char *from[8]; /* columns it is computed from, NULL-terminated */
};

/* Row of the table, or NULL. */
const struct vl_field *vl_field_find(const char *name);
/* Row k, or NULL past the end: to list them. */
const struct vl_field *vl_field_at(size_t k);
/* 1 when `column` is computed from `from`, directly or through others: replacing `from` makes it
 * stale. A column does not depend on itself; unknown columns depend on nothing. */
int vl_field_depends(const char *column, const char *from);

#endif
