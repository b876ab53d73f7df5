/* dump.h - what verl-dump does: look into a batch, check it, compare two. */
#ifndef VL_DUMP_H
#define VL_DUMP_H

#include "libverl/batch/batch.h"
#include "libverl/run/stage.h"

struct vl_dump_opts {
    const char *columns; /* "a,b,c" or NULL = all */
    const char *range;   /* "A:B", "A:", ":B", or NULL */
    int64_t head;        /* first rows only; -1 = all */
    const char *filter;  /* jq filter over each row or NULL */
    int raw;             /* strings a filter gives are printed without quotes */
    int text;            /* add prompt_text and response_text when there is a tokenizer */
    int special;         /* special tokens are shown in them */
    int schema, meta, provenance, check;
};

/* The stage function of verl-dump; opts is a struct vl_dump_opts. Operands: [FILE...],
 * head N [FILE...], diff A B. `diff` of unequal batches is status 1. */
int vl_stage_dump(struct vl_ctx *x, const void *opts, struct vl_err *e);

/* Everything a reader can verify beyond what vl_dp_read does: content hash, JSON texts, offsets,
 * BOOL values, equal widths of token columns. VL_E_DATA names the first fault. */
int vl_batch_verify(const struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;

/* Appends one line per difference between a and b (bit for bit), each ended by a newline; returns
 * how many there are. Provenance is not compared. */
size_t vl_batch_diff(struct vl_buf *out, const struct vl_batch *a, const struct vl_batch *b);

#endif
