/* dump_tokens.h - token by token: a row as the model sees it, and where two rows' tokens part. */
#ifndef VL_DUMP_TOKENS_H
#define VL_DUMP_TOKENS_H

#include "libverl/batch/batch.h"
#include "libverl/text/tok.h"

/* Appends row i, one token a line: place (p0.. prompt, r0.. response), response_mask, id, the values
 * of the per-token columns (all F32 (rows, R), or those named), and the token's text. tok may be
 * NULL: then without text. Padding is left out, by attention_mask. VL_E_DATA when the batch has no
 * token ids, or a named column is no per-token column. */
int vl_dump_tokens(struct vl_buf *out, const struct vl_batch *b, int64_t row,
                   const char *const *columns, const struct vl_tok *tok,
                   struct vl_err *e) VL_MUST_CHECK;
/* Appends the text of row i under headings, special tokens in their places. */
int vl_dump_rendered(struct vl_buf *out, const struct vl_batch *b, int64_t row,
                     const struct vl_tok *tok, struct vl_err *e) VL_MUST_CHECK;
/* Appends a list of strings, one for each id: the text it adds to those before it. */
void vl_dump_pieces(struct vl_buf *out, const struct vl_tok *tok, const int64_t *ids, size_t n);

/* One of two batches whose tokens are compared; tok may be NULL. */
struct vl_dump_side {
    const struct vl_batch *b;
    const struct vl_tok *tok;
    const char *name;
};
/* Compares the tokens of both batches' rows by position and appends, for the first `most` rows that
 * differ, where they part with what stands around. *ndiff: how many differ; unequal numbers of rows
 * count as rows that differ. */
int vl_dump_token_diff(struct vl_buf *out, const struct vl_dump_side *a,
                       const struct vl_dump_side *b, int64_t most, int64_t *ndiff,
                       struct vl_err *e) VL_MUST_CHECK;

#endif
