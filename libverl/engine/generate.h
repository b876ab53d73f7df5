/* generate.h - sampling with a paged KV cache and continuous batching.
 *
 * A sampled id is a function of (seed, uid, sample, position, step) and the weights alone: which
 * prompts run beside it, in what order and on how many threads never shows. */
#ifndef VL_GENERATE_H
#define VL_GENERATE_H

#include "libverl/base/philox.h"
#include "libverl/engine/engine.h"
#include "libverl/engine/steer.h"

enum vl_finish { VL_FINISH_STOP, VL_FINISH_LENGTH, VL_FINISH_ABORT };

struct vl_gen_prompt {
    const int32_t *ids; /* (len) borrowed; len >= 1 */
    int64_t len;
    struct vl_philox_key key; /* vl_philox_key(uid, seed) */
    int64_t row;              /* of the input batch, for messages */
};

/* One sample's result. The arrays are freed by vl_gen_free. */
struct vl_gen {
    int32_t *ids; /* (len) the stop id included */
    float *logp;  /* (len) full-vocabulary log-prob at the sampling temperature */
    int32_t len;
    enum vl_finish finish;
    int32_t *top_id; /* (len, topk) likeliest ids at each position, whatever was drawn, in order; */
    float *top_logp; /* (len, topk) their log-probs. NULL without topk */
};

/* What a rollout did. A step that computes tokens of prompts is prefill, whatever else it computes and
 * draws; the others are decoding. */
struct vl_gen_stats {
    int64_t put_off; /* how often a row gave its pages back and was computed again */
    double prefill_s, decode_s;
    int64_t prefill, decode; /* tokens of prompts computed; tokens drawn while decoding */
};

struct vl_gen_opts {
    int64_t n;       /* samples per prompt */
    int64_t max_new; /* response length limit, >= 1 */
    int64_t max_len; /* prompt + response limit, or 0 */
    int64_t topk;    /* also record the topk likeliest ids of each position; <= V */
    struct vl_sampling sampling;
    struct vl_rules rules; /* what changes the draws of a row; borrowed */
    const int32_t *stop;   /* (nstop) ids that end a response; none: only length ends one */
    int64_t nstop;
    /* Told each token of gen[sample] in turn; nonzero: the response ends with it, or, before
     * rules.min_new tokens, does not. Or NULL. */
    int (*stop_text)(void *arg, int64_t sample, int32_t id);
    uint32_t step;              /* meta_info.global_steps */
    int64_t max_seqs;           /* rows running at once */
    int64_t max_tokens;         /* tokens in one forward pass; longer prompts go in pieces */
    size_t kv_bytes;            /* memory the cache may take; see vl_gen_kv */
    struct vl_gen_stats *stats; /* out; or NULL */
    double deadline; /* on vl_now()'s clock: rows then end as they are (ABORT); 0 = none */
    int (*finished)(void *arg, int64_t prompt, struct vl_err *e); /* all n samples done; or NULL */
    void (*progress)(void *arg, int64_t rows, int64_t tokens);    /* or NULL */
    void *arg;
};

/* Bytes of cache to run max_seqs rows at once (*want) and to run at all (*least), in type ct. */
void vl_gen_kv(const struct vl_config *c, enum vl_compute ct, const struct vl_backend *be,
               const struct vl_gen_prompt *p, int64_t prompts, const struct vl_gen_opts *o,
               size_t *want, size_t *least);

/* What its passes come to at most: M rows at once, and N tokens. */
struct vl_extent vl_gen_extent(const struct vl_gen_prompt *p, int64_t prompts,
                               const struct vl_gen_opts *o);

/* Samples o->n responses for each prompt: gen[i*n + s], zeroed by the caller, freed with
 * vl_gen_free also after an error. A prompt is computed once per group; without stops the longest
 * responses begin first. VL_E_DATA with row and
 * position when a logit is not finite; VL_E_OS when kv_bytes cannot hold the longest row. */
int vl_generate(struct vl_engine *g, const struct vl_gen_prompt *p, int64_t prompts,
                const struct vl_gen_opts *o, struct vl_gen *gen, struct vl_err *e) VL_MUST_CHECK;
void vl_gen_free(struct vl_gen *gen, int64_t n);

/* 1/temperature as the head uses it in every stage; temperature 0 is greedy and records log-probs at
 * temperature 1. */
float vl_inv_temperature(double temperature);

#endif
