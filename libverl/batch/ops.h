/* ops.h - DataProto operations: rows, columns, merging.
 *
 * They follow verl's protocol.py (formats/dataproto.md lists the differences: verl's silent losses
 * are errors here) and are pure: dst is zeroed by the caller and becomes a new batch, src stays as it
 * is; what works in place says so and changes nothing when it fails. Row operations keep meta_info,
 * provenance and parents as they are; lists in meta_info that happen to have B entries are not cut.
 * Failures are VL_E_DATA (the batches) or VL_E_USAGE (the arguments). */
#ifndef VL_OPS_H
#define VL_OPS_H

#include "libverl/batch/batch.h"

/* ---- rows ---- */

/* Rows idx[0..n) in that order; duplicates and negative indices (from the end) are allowed, others
 * out of range are VL_E_USAGE. */
int vl_batch_take(struct vl_batch *dst, const struct vl_batch *src, const int64_t *idx, int64_t n,
                  struct vl_err *e) VL_MUST_CHECK;
/* Rows where mask (src->rows bytes) is not 0. */
int vl_batch_mask(struct vl_batch *dst, const struct vl_batch *src, const uint8_t *mask,
                  struct vl_err *e) VL_MUST_CHECK;
/* n rows from row0; both clipped to what is there, so a range past the end gives no rows. */
int vl_batch_rows(struct vl_batch *dst, const struct vl_batch *src, int64_t row0, int64_t n,
                  struct vl_err *e) VL_MUST_CHECK;
#define VL_SLICE_NONE INT64_MIN
/* Python's [start:stop:step]: clipped, negatives from the end, VL_SLICE_NONE = left out. */
int vl_batch_slice(struct vl_batch *dst, const struct vl_batch *src, int64_t start, int64_t stop,
                   int64_t step, struct vl_err *e) VL_MUST_CHECK;
/* Every row n times: adjacent (r0 r0 r1 r1) or tiled (r0 r1 r0 r1). */
int vl_batch_repeat(struct vl_batch *dst, const struct vl_batch *src, int64_t n, int interleave,
                    struct vl_err *e) VL_MUST_CHECK;
/* Row i counts[i] times, adjacent; ncounts must be src->rows. */
int vl_batch_repeat_counts(struct vl_batch *dst, const struct vl_batch *src, const int64_t *counts,
                           int64_t ncounts, struct vl_err *e) VL_MUST_CHECK;
/* Tensors in keys (NULL-terminated): (B, C, ...) -> (B n, C / n, ...), the pieces adjacent; every
 * other column is repeated n times, adjacent. keys = NULL: all are repeated. */
int vl_batch_unfold(struct vl_batch *dst, const struct vl_batch *src, int64_t n,
                    const char *const *keys, struct vl_err *e) VL_MUST_CHECK;
/* Pads to a multiple of m with rows from the front, again and again; *pad = how many. */
int vl_batch_pad_divisor(struct vl_batch *dst, const struct vl_batch *src, int64_t m, int64_t *pad,
                         struct vl_err *e) VL_MUST_CHECK;
/* Appends n copies of the first or the last row (what dispatch does). */
int vl_batch_pad(struct vl_batch *dst, const struct vl_batch *src, int64_t n, int first,
                 struct vl_err *e) VL_MUST_CHECK;
/* Drops the last n rows. */
int vl_batch_unpad(struct vl_batch *dst, const struct vl_batch *src, int64_t n,
                   struct vl_err *e) VL_MUST_CHECK;
/* Cuts rows into n pieces first[k]..first[k+1] (first: n + 1 entries). Off: rows must divide. Auto:
 * verl's ceil(rows / n) each, the last gets the rest; refused when fewer than n pieces come out. A
 * batch without tensors is cut evenly, the first pieces one longer. */
int vl_batch_chunk(const struct vl_batch *b, int64_t n, int auto_padding, int64_t *first,
                   struct vl_err *e) VL_MUST_CHECK;
/* Whether automatic padding is on: meta_info._verl_auto_padding, or VERL_AUTO_PADDING in the
 * environment (TRUE or 1, any case). */
int vl_batch_auto_padding(const struct vl_batch *b);
/* Row numbers of mini-batches: epochs times all rows, in order or, with shuffle, each epoch in an
 * order of its own that is a function of (seed, epoch) alone. order: epochs * rows entries. rows
 * must be a multiple of mini. */
int vl_batch_order(int64_t rows, int64_t mini, int64_t epochs, int shuffle, uint64_t seed,
                   int64_t *order, struct vl_err *e) VL_MUST_CHECK;
/* (B, ...) -> (m, B / m, ...), JSON rows become lists of B / m values; and back. */
int vl_batch_fold(struct vl_batch *dst, const struct vl_batch *src, int64_t m,
                  struct vl_err *e) VL_MUST_CHECK;
int vl_batch_unfold_dim(struct vl_batch *dst, const struct vl_batch *src,
                        struct vl_err *e) VL_MUST_CHECK;

/* ---- columns (lists are NULL-terminated) ---- */

/* Columns and meta keys in the order given; NULL = all of that kind. A missing name is VL_E_DATA.
 * An empty list of columns leaves the batch present with its rows. */
int vl_batch_select(struct vl_batch *dst, const struct vl_batch *src, const char *const *columns,
                    const char *const *meta, struct vl_err *e) VL_MUST_CHECK;
/* In place: moves columns and meta keys from src to dst; NULL = none. All must be there. dst has a
 * batch only when a tensor was moved; src keeps its rows. */
int vl_batch_pop(struct vl_batch *dst, struct vl_batch *src, const char *const *columns,
                 const char *const *meta, struct vl_err *e) VL_MUST_CHECK;
/* In place, pairwise and at once (so names may be swapped). */
int vl_batch_rename(struct vl_batch *b, const char *const *from, const char *const *to, size_t n,
                    struct vl_err *e) VL_MUST_CHECK;

/* ---- merging ---- */

/* In place and atomic: adds src's columns and meta to dst by position, by verl's rules: equal rows;
 * a shared tensor has the same dtype and shape and equal values (NaN differs from NaN); a shared
 * JSON column has equal values of the same type (1 is not 1.0); shared meta is equal (1 is 1.0) and
 * src's text wins. */
int vl_batch_union(struct vl_batch *dst, const struct vl_batch *src,
                   struct vl_err *e) VL_MUST_CHECK;
/* Rows of all parts, in order. The same columns, dtypes and inner shapes in each, else VL_E_DATA
 * naming column and part. meta_info: union, shared keys equal, but `metrics` and `timing` are
 * collected into lists per name, over the union of names. */
int vl_batch_concat(struct vl_batch *dst, const struct vl_batch *const *part, size_t n,
                    struct vl_err *e) VL_MUST_CHECK;
/* What stages do with several -i, in place and atomic: dst fixes rows and order; src is matched by
 * (uid, sample) when both have them, and must hold each row exactly once; else by position. A
 * column in both must be equal bit for bit (VL_E_DATA names column and row). meta_info objects are
 * merged member by member; equal values or VL_E_DATA, but in metrics and timing src wins. */
int vl_batch_unite(struct vl_batch *dst, const struct vl_batch *src,
                   struct vl_err *e) VL_MUST_CHECK;
/* VL_E_DATA naming both rows when a (uid, sample) is there twice. 0 without these columns. */
int vl_batch_unique(const struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;

/* Whether two JSON texts have equal values: objects in any order, numbers by value. strict: the
 * top-level values must also be of one type, where 1 and 1.0 are two. */
int vl_json_equal(const char *a, size_t na, const char *b, size_t nb, int strict);

#endif
