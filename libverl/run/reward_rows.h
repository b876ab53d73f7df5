/* reward_rows.h - the rows of a batch as a scorer sees them: response text, ids, ground truth. */
#ifndef VL_REWARD_ROWS_H
#define VL_REWARD_ROWS_H

#include "libverl/batch/batch.h"
#include "libverl/reward/rules.h"
#include "libverl/run/stage.h"
#include "libverl/text/tok.h"

struct vl_reward_rows {
    const struct vl_batch *b;
    const struct vl_tok *tok;
    int64_t first; /* number of the first row, where b is a document of a stream */
    int keep_special;
    int brief;        /* lines without prompt, ids and args: see vl_reward_brief */
    const char *args; /* JSON object text for outside commands, or NULL */
    int64_t P, R;
    const int64_t *prompts, *responses, *valid, *prompt_valid; /* valid: (rows, R) by `stride` */
    int64_t stride;
    const struct vl_col *uid, *source, *reward_model, *extra_info, *finish, *raw_prompt;
    const struct vl_col *num_turns, *reward_scores;
    const int64_t *sample;
    const float *rm_scores; /* (rows, R): rm_score of a row's line; NULL: none */
};

/* Looks the columns up: responses and attention_mask or response_mask are needed, the others are
 * used where they are there. source_key names the data_source column. The batch and the tokenizer
 * (set by the caller) are borrowed. */
int vl_reward_rows_open(struct vl_reward_rows *r, const struct vl_batch *b, const char *source_key,
                        struct vl_err *e) VL_MUST_CHECK;

/* Valid response ids of row i into ids (R entries). Returns their number. */
int64_t vl_reward_ids(const struct vl_reward_rows *r, int64_t i, int32_t *ids);
/* That number; *last = position of the last one, -1 when there is none (NULL: not wanted). */
int64_t vl_reward_length(const struct vl_reward_rows *r, int64_t i, int64_t *last);
/* Appends the response's text: valid ids, without special tokens unless kept. ids: room for R.
 * Returns the number of valid tokens. */
int64_t vl_reward_text(const struct vl_reward_rows *r, int64_t i, int32_t *ids, struct vl_buf *out);
/* Appends the row's line for an outside scorer (verl-reward-protocol(7)), `id` as given. */
void vl_reward_line(const struct vl_reward_rows *r, int64_t i, int64_t id, struct vl_buf *out);
/* Appends the row's data_source; "" when there is none or it is no string. */
void vl_reward_source(const struct vl_reward_rows *r, int64_t i, struct vl_buf *out);
/* Appends the ground truth's JSON text and its text (a string's own, else the JSON text). 1 when
 * reward_model has one. */
int vl_reward_truth(const struct vl_reward_rows *r, int64_t i, struct vl_buf *json,
                    struct vl_buf *text);
/* The reward model's score of row i, NULL when the batch has none or the row no valid token. */
const float *vl_reward_rm_score(const struct vl_reward_rows *r, int64_t i);
/* "row 3 (uid "0-17", sample 2)" for messages. */
const char *vl_reward_row_name(const struct vl_reward_rows *r, int64_t i, char *buf, size_t size);
/* VL_E_DATA for a row whose scorer failed, with what else --on-error could do about it. */
int vl_reward_row_failed(const struct vl_reward_rows *r, int64_t i, const char *why,
                         struct vl_err *e);
/* -m, else the tokenizer the batch names, which must be the one it was made with. */
int vl_reward_tokenizer(struct vl_ctx *x, const struct vl_batch *b, struct vl_tok **t,
                        struct vl_err *e) VL_MUST_CHECK;
/* Whether finish_reason is "length". */
int vl_reward_truncated(const struct vl_reward_rows *r, int64_t i);

#endif
