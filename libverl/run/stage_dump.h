/* stage_dump.h - what verl-dump does: look into a batch, check it, compare two. */
#ifndef VL_STAGE_DUMP_H
#define VL_STAGE_DUMP_H

#include "libverl/run/stage.h"

struct vl_dump_opts {
    const char *columns;  /* "a,b,c" or NULL = all */
    const char *range;    /* "A:B", "A:", ":B", or NULL */
    int64_t head;         /* first rows only; -1 = all */
    const char *filter;   /* jq filter over each row or NULL */
    int raw;              /* strings a filter gives are printed without quotes */
    int text;             /* add prompt_text and response_text when there is a tokenizer */
    int special;          /* special tokens are shown in them */
    int tokens, rendered; /* rows token by token; as text */
    int schema, meta, provenance, check;
};

/* The stage function of verl-dump; opts is a struct vl_dump_opts. Operands: [FILE...],
 * head N [FILE...], diff A B. `diff` of unequal batches, or of unequal tokens, is status 1. */
int vl_stage_dump(struct vl_ctx *x, const void *opts, struct vl_err *e);

#endif
