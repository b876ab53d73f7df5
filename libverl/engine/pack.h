/* pack.h - padded batch columns to packed rows and back, and the cut into micro-batches.
 *
 * A batch row is a left- or right-padded prompt (P columns) and a right-padded response (R columns).
 * The model sees only its valid tokens, end to end, so padding cannot change a bit. The shift by one
 * is done here and nowhere else: the output for response token t of a row with p prompt tokens is
 * the model's output at its packed position p + t - 1, which predicts the token at p + t.
 *
 *     columns   - - a b | x y z -      P = 4, R = 4
 *     packed    a b x y                outputs at b x y -> response cells 0 1 2, predicting x y z
 *
 * The last token predicts nothing and is left out, as is a row without a response. Rows that follow
 * each other and have the same prompt can share it: all of it but its last token is computed once.
 *
 *     a b | x y z     packed    a | b x y | b u      outputs at all but a
 *     a b | u v                 sequence 0, which 1 and 2 continue from position 1 */
#ifndef VL_PACK_H
#define VL_PACK_H

#include "libverl/batch/batch.h"
#include "libverl/engine/engine.h"

/* The valid tokens of a batch's rows, prompt then response. */
struct vl_rows {
    int64_t B, P, R;      /* rows, prompt width, response width */
    int64_t *start;       /* (B + 1) first token of each row in ids */
    int32_t *ids;         /* (start[B]) */
    int32_t *plen, *rlen; /* (B) valid prompt and response tokens */
    int at_end;           /* one output a row, cell (row, 0), at its last token: a sequence's score.
                             R and rlen are 1, rlen 0 in an empty row */
};

/* Reads prompts, responses and attention_mask, or input_ids, attention_mask and the width of
 * `responses` or `response_mask`; where both forms are there they must agree. Prompts may be padded
 * on either side; holes in a prompt's or response's mask are VL_E_DATA, as is an id outside [0, V)
 * (the line names row, uid and position) and a response without a prompt token before it: nothing
 * predicts its first token. vl_rows_free also after an error. */
int vl_rows_read(struct vl_rows *r, const struct vl_batch *b, int64_t V,
                 struct vl_err *e) VL_MUST_CHECK;
/* Prompts alone, before a rollout: R = 0. An empty prompt is a row of no tokens. */
int vl_rows_read_prompts(struct vl_rows *r, const struct vl_batch *b, int64_t V,
                         struct vl_err *e) VL_MUST_CHECK;
void vl_rows_free(struct vl_rows *r);
static inline int64_t vl_rows_tokens(const struct vl_rows *r, int64_t row)
{
    return r->start[row + 1] - r->start[row];
}

/* How rows become micro-batches. */
struct vl_micro_rule {
    int64_t max_rows, max_tokens; /* 0 = any */
    int64_t unit; /* 0 and 1: none; so many rows that follow each other stay together */
    int share;    /* rows with the same prompt share it */
    int whole; /* all rows that could share a prompt stay together: no cut then shows in a gradient */
};

/* Cuts the n rows rows[0..n) (NULL: base .. base+n-1) into micro-batches in that order; n is a
 * multiple of rule->unit. What stays together does so even where it is more than the limits.
 * Micro-batch k is the rows first[k] .. first[k+1]-1 of the n (first needs n + 1 entries); returns how
 * many there are. */
int64_t vl_micro_cut(const struct vl_rows *r, const int64_t *rows, int64_t base, int64_t n,
                     const struct vl_micro_rule *rule, int64_t *first);

/* A packed micro-batch and where its outputs belong. */
struct vl_pack {
    struct vl_packed p;
    int64_t *cell; /* (M) index into the batch's (B, R) columns */
    int32_t *ids, *pos, *target;
    struct vl_seq *seq;
    int64_t *out;
};

/* Packs rows[0..n) (NULL: base .. base+n-1). Free with vl_pack_free. */
void vl_pack_rows(struct vl_pack *k, const struct vl_rows *r, const int64_t *rows, int64_t base,
                  int64_t n, int share);
/* What that comes to, without packing; the larger of both in each respect. */
void vl_pack_extent(const struct vl_rows *r, const int64_t *rows, int64_t base, int64_t n,
                    int share, struct vl_extent *x);
void vl_extent_widen(struct vl_extent *x, const struct vl_extent *y);
void vl_pack_free(struct vl_pack *k);
/* dst (B, R) [cell j] = src (M); other cells stay as they are (zero them once). */
void vl_pack_scatter(float *dst, const struct vl_pack *k, const float *src);
/* dst (M) = src (B, R) at the pack's cells. */
void vl_pack_gather(float *dst, const struct vl_pack *k, const float *src);

#endif
