/* rollout_batch.h - from sampled or outside generations to the batch that all later stages read. */
#ifndef VL_ROLLOUT_BATCH_H
#define VL_ROLLOUT_BATCH_H

#include "libverl/batch/batch.h"
#include "libverl/engine/generate.h"

struct vl_rollout_set {
    int64_t prompts, n, P, R;      /* n samples of each prompt; widths of prompt and response */
    const struct vl_gen_prompt *p; /* (prompts); len 0 is allowed here */
    struct vl_gen *gen;            /* (prompts * n), sample s of prompt i at i * n + s */
    int have_logp;                 /* gen[].logp is there */
    int64_t topk;                  /* gen[].top_id and top_logp are, of so many; or 0 */
    int64_t pad;                   /* id written where the masks are 0 */
};

extern const char *const vl_rollout_columns[]; /* those that a rollout adds; ends with NULL */

/* out (zeroed by the caller) = the prompt batch in with every row n times, adjacent, its per-token
 * columns replaced by prompts, responses, input_ids, attention_mask, position_ids, response_mask
 * (I64), rollout_log_probs (F32, with have_logp), rollout_topk_ids (I64) and rollout_topk_log_probs
 * (F32; both (B, R, topk), with topk), sample (I64, 0..n-1) and finish_reason (JSON
 * "stop", "length" or "abort"). Masks are made from lengths, never from ids. */
int vl_rollout_batch(struct vl_batch *out, const struct vl_batch *in,
                     const struct vl_rollout_set *set, struct vl_err *e) VL_MUST_CHECK;

/* Outside generations: JSON lines {uid, sample?, response_ids | response, log_probs?,
 * finish_reason?} in any order; see verl-rollout(1). */
struct vl_outside {
    const char *path;      /* of the lines, for messages */
    const char *model_dir; /* tokenizer for text responses, or NULL */
    int64_t V;             /* ids must lie in [0, V); 0 = not known */
    const int32_t *stop;   /* (nstop) ids that end a response */
    int64_t nstop;
    int64_t n;   /* samples per prompt; 0 = what the lines hold */
    int64_t cut; /* out: responses longer than R, shortened */
};

/* Fills set->n, gen and have_logp (free gen with vl_gen_free and free) from the file. Every prompt of
 * `in` must have exactly n samples. VL_E_DATA lines name file and line. */
int vl_rollout_outside(struct vl_rollout_set *set, const struct vl_batch *in, struct vl_outside *o,
                       struct vl_err *e) VL_MUST_CHECK;

/* The results of `n` samples as bytes, to travel between ranks, and back into zeroed gen; returns how
 * many bytes were read. */
void vl_gen_put(struct vl_buf *b, const struct vl_gen *gen, int64_t n, int64_t topk);
size_t vl_gen_get(struct vl_gen *gen, int64_t n, int64_t topk, const char *b);

/* The uid of a row as bytes (a JSON string's text, any other value's source). Caller frees; *n
 * bytes. The column must be there. */
char *vl_uid_of(const struct vl_batch *b, int64_t row, size_t *n);

#endif
