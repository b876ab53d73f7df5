/* steer.h - what a rollout's rules do to the logits of each draw: penalties, biases, banned words.
 *
 * Rules change what is drawn, never the log-prob that is recorded: that one stays the model's own, so
 * that verl-logprob computes the same bits. They look at their own row alone. */
#ifndef VL_STEER_H
#define VL_STEER_H

#include "libverl/engine/backend.h"

struct vl_bias {
    int32_t id;
    float add; /* to the logit at temperature 1; -INFINITY: never drawn */
};

/* All zero: no rules. Ids are inside the vocabulary. Names and formulas as vLLM's. */
struct vl_rules {
    double repetition; /* ids of prompt and response: z > 0 ? z / r : z * r; 0 and 1 = off */
    double presence;   /* z - p for ids that the response has */
    double frequency;  /* z - f * how often the response has the id */
    int64_t min_new;   /* stop ids are not drawn before the response has so many tokens */
    const struct vl_bias *bias; /* (nbias) */
    int64_t nbias;
    const int32_t
        *word; /* banned word i: ids word[words[i]] .. word[words[i + 1] - 1], at least one; */
    const int64_t *words; /* its last id is banned where the response ends with the others */
    int64_t nwords;
};

int vl_rules_any(const struct vl_rules *r);

/* What one row has drawn so far; all zero before vl_seen_start. */
struct vl_seen {
    struct vl_seen_id {
        int32_t id, count; /* count: in the response */
    } * a;                 /* ascending ids */
    int64_t n, cap;
};

void vl_seen_start(struct vl_seen *s, const struct vl_rules *r, const int32_t *prompt, int64_t n);
void vl_seen_add(struct vl_seen *s, const struct vl_rules *r, int32_t id);
void vl_seen_free(struct vl_seen *s);

struct vl_edits {
    struct vl_edit *a;
    int64_t n, cap;
};

/* Appends the edits of the next draw of a row whose response is ids (len); stop: (nstop). */
void vl_steer(struct vl_edits *out, const struct vl_rules *r, const struct vl_seen *s,
              const int32_t *ids, int64_t len, const int32_t *stop, int64_t nstop);

#endif
