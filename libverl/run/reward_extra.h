/* reward_extra.h - the further members of scored rows, as columns in the making. */
#ifndef VL_REWARD_EXTRA_H
#define VL_REWARD_EXTRA_H

#include "libverl/reward/score.h"

struct vl_reward_extra {
    char *name;
    struct vl_buf text; /* the rows' JSON texts end to end, null where a row has none */
    int64_t *offsets;   /* rows + 1 */
    double *number;     /* rows; NaN: none. NULL when a value is neither number, boolean nor null */
    int64_t done;       /* rows that are in text */
};

struct vl_reward_extras {
    struct vl_reward_extra *e; /* in the order the members first appear */
    size_t n;
};

/* Reads every row's members once. VL_E_DATA when there are more than 256 names. */
int vl_reward_extras_read(struct vl_reward_extras *x, const struct vl_score *s, int64_t rows,
                          struct vl_err *e) VL_MUST_CHECK;
void vl_reward_extras_free(struct vl_reward_extras *x);

#endif
