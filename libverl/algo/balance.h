/* balance.h - dividing rows by work: verl's largest differencing method, data-parallel order and
 * micro-batches by token budget. Orders are verl's, ties included. */
#ifndef VL_BALANCE_H
#define VL_BALANCE_H

#include "libverl/algo/metrics.h"

/* Work of a row of n tokens, in verl's units: 24576 n + n^2. */
int64_t vl_row_work(int64_t n);

/* Parts of 0..n-1: part p is item[first[p]] .. item[first[p + 1] - 1], ascending. */
struct vl_parts {
    int64_t k;
    int64_t *first; /* (k + 1) */
    int64_t *item;  /* (n) */
};
void vl_parts_free(struct vl_parts *p);

/* Karmarkar-Karp: k parts of near equal work[]. equal: every part has n / k items; VL_E_USAGE when
 * that does not divide. An empty part is VL_E_USAGE too (more parts than items). */
int vl_partition(struct vl_parts *p, const int64_t *work, int64_t n, int64_t k, int equal,
                 struct vl_err *e) VL_MUST_CHECK;

/* order (n): rows for dp workers of n / dp rows each, balanced by work of their lengths; adds
 * global_seqlen/{min,max,minmax_diff,balanced_min,balanced_max,mean} when m is not NULL. */
int vl_balance_order(int64_t *order, const int64_t *len, int64_t n, int64_t dp,
                     struct vl_metrics *m, struct vl_err *e) VL_MUST_CHECK;
/* The metrics for given parts: k contiguous slices before, the parts after. */
void vl_balance_metrics(struct vl_metrics *m, const int64_t *len, int64_t n,
                        const struct vl_parts *p);

/* Micro-batches under a budget of max_tokens: min(n, ceil(sum / budget)) parts, in verl's order (the
 * heaviest in the middle). The budget is a target: a part may exceed it. A row longer than the
 * budget is VL_E_USAGE. */
int vl_dynamic_batches(struct vl_parts *p, const int64_t *len, int64_t n, int64_t max_tokens,
                       struct vl_err *e) VL_MUST_CHECK;

#endif
