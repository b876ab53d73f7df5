/* data_check.h - what --check has seen, for its report. Of data_check.c and data_report.c. */
#ifndef VL_DATA_CHECK_H
#define VL_DATA_CHECK_H

#include "libverl/run/data_impl.h"

enum { VL_SHOWN = 10 }; /* rows named of each kind */

/* Rows that have something in common, and the first of them. */
struct vl_kind {
    char *name;
    int64_t n, shown[VL_SHOWN]; /* rows, by index */
    int64_t size[VL_SHOWN];     /* tokens, or how often */
};

struct vl_kinds {
    struct vl_kind *k;
    size_t n;
};

struct vl_lengths {
    int64_t *x, n, cap, sum;
};

struct vl_check {
    int64_t rows, usable, strings, lists, untrained, truncated, no_truth, special;
    struct vl_kinds bad, source;
    struct vl_kind over, spells, twice, uids; /* the last two: size is the earlier row */
    struct vl_lengths prompt, response;
    struct vl_seen {
        int64_t *slot, nslot, n; /* open hash: row index + 1 */
        uint64_t *hash;          /* by slot */
    } prompts, names;            /* of rows; uids that rows give */
};

/* Batches of an epoch, and the rows left over. */
int64_t vl_check_batches(const struct vl_check *c, const struct vl_data_opts *o, int64_t *left);
/* Appends "FILE:LINE" of a row. */
void vl_check_where(struct vl_buf *b, const struct vl_row_work *w, int64_t row);
/* (data_report.c) Append the report; the lengths are sorted. */
void vl_check_text(struct vl_buf *b, const struct vl_check *c, const struct vl_row_work *w);
void vl_check_json(struct vl_buf *b, const struct vl_check *c, const struct vl_row_work *w);

#endif
