/* update.h - optimizer steps on a batch: what verl-update's roles share.
 *
 * An update is a list of optimizer steps, each over some rows (struct vl_plan). One step divides its
 * rows over the ranks, each rank its own into micro-batches that only accumulate: every denominator
 * is fixed for the whole step beforehand, so neither cut shows (algorithms 11, path b; pitfall 81).
 *
 *   actor   policy loss (+ KL loss, - entropy) on advantages; mini-batches of prompts x n rows
 *   critic  clipped value loss on returns; mini-batches as the actor
 *   sft     -log p of the response, token mean; train_batch_size rows a step, many epochs at once
 *   dpo     preference.h on pairs of rows; mini-batches of pairs, which no cut divides */
#ifndef VL_UPDATE_H
#define VL_UPDATE_H

#include "libverl/algo/distill.h"
#include "libverl/algo/preference.h"
#include "libverl/algo/rollout_corr.h"
#include "libverl/algo/schedule.h"
#include "libverl/model/state.h"
#include "libverl/run/infer.h"

#include <stdio.h>

enum vl_role { VL_ROLE_ACTOR, VL_ROLE_CRITIC, VL_ROLE_SFT, VL_ROLE_DPO };

struct vl_update_opts {
    enum vl_role role;
    /* train state */
    const char *from; /* "v12", "12" or NULL: `current` */
    int keep_current; /* with from: the link stays where another version is current */
    int64_t keep;
    const char *log; /* file of a JSON line a step, or NULL */
    int stale_ok;
    const char *path; /* model.path: what an empty state is filled from when there is no -m */
    /* optimizer */
    double lr, weight_decay, clip_grad, lr_warmup_ratio, min_lr_ratio, num_cycles, stable_ratio;
    int64_t lr_warmup_steps, total_steps; /* -1: ratio; -1: not known */
    const char *schedule;
    struct vl_strs betas;
    const char *optimizer, *impl, *decay; /* "AdamW"; "torch.optim"; "all" or "matrices" */
    double eps, momentum, dampening;      /* override_optimizer_config, as the next two */
    int amsgrad, nesterov;
    int64_t max_skips; /* non-finite gradients in a row before giving up */
    /* mini-batches, micro-batches */
    int64_t mini_batch; /* prompts; sft: rows; dpo: pairs */
    int64_t n;          /* samples a prompt */
    int64_t epochs;     /* passes over the batch */
    int shuffle;
    int64_t data_seed; /* VL_NULL_I64: --seed */
    struct vl_cut cut;
    int64_t micro_batch; /* --micro-batch: rows, before cut */
    int share_prompts;   /* rows that follow each other compute an equal prompt once */
    const char *compute;
    int recompute;
    int offload; /* the optimizer's moments stay in a file beside the state */
    /* losses */
    double temperature;
    struct vl_pg_opts pg;
    const char *loss_mode, *agg, *kl_loss_type;
    double loss_scale_factor, entropy_coeff, kl_loss_coef, cliprange_value;
    int use_kl_loss, calculate_entropy, use_rollout_log_probs;
    const char *statistics; /* "micro-batch" or "mini-batch" */
    int bypass;             /* algorithm.rollout_correction.*, from here on */
    const char *bypass_loss, *is, *rs, *rs_threshold;
    double is_threshold;
    int is_normalize;
    int distill; /* distillation.enabled; its settings: */
    struct vl_distill_opts distillation;
    const char *distill_mode, *distill_pg;
    /* dpo */
    struct vl_pref_opts pref;
    const char *dpo_loss_type;
    /* sft */
    int64_t sft_steps; /* trainer.total_training_steps; VL_NULL_I64: epochs decide */
    /* sft, dpo */
    int64_t save_freq; /* publish after so many steps; <= 0: only at the end */
};

const char *vl_role_name(enum vl_role r);
/* sft and dpo go over a data set in one call: the schedule advances with each step, and versions may
 * be published on the way. */
int vl_role_is_long(enum vl_role r);
/* Defaults of a role, as verl's YAML has them. */
void vl_update_defaults(struct vl_update_opts *o, enum vl_role role);

/* ---- Which rows a step takes ---- */

struct vl_plan {
    int64_t B;     /* rows of the batch, or pairs */
    int64_t per;   /* rows, or pairs, a step */
    int64_t epoch; /* steps in one pass */
    int64_t steps; /* steps in all */
    int shuffle;
    uint64_t seed;
    uint32_t epoch0; /* number of the first pass, for the shuffle */
    int64_t *perm;   /* (B) order of the pass perm_epoch */
    int64_t perm_epoch;
    const int64_t *pair; /* (2 B) borrowed: rows of each pair; NULL: rows are taken one by one */
    int64_t *rows;       /* (2 per) then: rows of the step */
};
/* drop_last: rows that do not fill a step are left out of each pass (sft); else they make a smaller
 * last step. */
void vl_plan_init(struct vl_plan *p, int64_t B, int64_t per, int64_t epochs, int drop_last);
/* Rows of step s (0-based); *n of them; borrowed until the next call. */
const int64_t *vl_plan_rows(struct vl_plan *p, int64_t s, int64_t *n);
void vl_plan_free(struct vl_plan *p);

/* ---- The columns a role reads ---- */

struct vl_update_data {
    struct vl_rows rows;
    int64_t *mask;         /* (B, R) owned: response_mask */
    int64_t *valid;        /* (B) owned: tokens with mask 1 */
    int64_t unscored;      /* rows whose mask was cleared because they have no score */
    const float *old_logp; /* (B, R) old_log_probs, or rollout_log_probs in their place */
    const float *adv, *ref_logp, *is_weights;
    const float *values, *returns;
    const float *teacher, *topk_logp; /* (B, R); (B, R, K) */
    const int64_t *topk_id;           /* (B, R, K) */
    int64_t K;
    double *draw; /* (B, R) owned: clip_cov's numbers or NULL */
    /* (B, R) owned, or NULL. What update_stats.c needs and finds for the rows of a step: */
    float *new_logp; /* under the weights of the step's start */
    uint8_t *pick;   /* clip_cov, kl_cov: tokens treated apart */
    int64_t *keep;   /* bypass: mask after rejection */
    float *bypass_w; /* bypass: importance weights */
    int64_t *pair;   /* (2 pairs) owned: dpo's rows, chosen before rejected */
    int64_t pairs;
    float inv_temp;
};

/* ---- Running ---- */

/* Result of one step. */
struct vl_step_result {
    struct vl_loss_sums sums;
    double grad_norm; /* before clipping */
    double lr;
    int64_t rows, tokens, changed; /* of all ranks */
    struct vl_metrics corr;        /* bypass: rollout_corr/...; free it */
    int empty;                     /* no valid token: nothing was done */
    int skipped;                   /* the gradient was not finite: nothing was changed */
    char where[160];               /* then: first tensor and rank */
};

/* The optimizer and what it remembers: kind[i] (VL_EXP_AVG ...) is the engine's moment i. */
struct vl_optim {
    enum { VL_ADAMW, VL_ADAM, VL_SGD } name;
    double beta[2];
    int kind[VL_MAX_MOMENTS], moments;
};

struct vl_update {
    struct vl_ctx *x;
    const struct vl_update_opts *o;
    struct vl_infer f; /* model (of the state, slab released), device, engine */
    struct vl_update_data data;
    struct vl_actor_opts actor;
    struct vl_distill_opts distill;
    struct vl_corr corr;
    int recompute; /* activations are computed again in the backward pass */
    int ahead;     /* statistics over the mini-batch: one more forward pass before each step */
    struct vl_loss_norm ahead_norm; /* then, with bypass: denominators of the tokens kept */
    struct vl_pref_opts pref;
    enum vl_agg agg;
    struct vl_optim optim;
    int64_t seed; /* given, or the batch's */
    int64_t from; /* -1 = not given */
    int64_t t;    /* the optimizer's step count so far */
    int64_t lag; /* versions between the weights that made a column and those updated; -1 unknown */
    FILE *log;   /* of --log; NULL: none, or not rank 0 */
};

/* Checks the options that need no data. */
int vl_update_check(struct vl_update *u, struct vl_err *e) VL_MUST_CHECK;
/* ---- The optimizer (update_optim.c) ---- */

int vl_optim_parse(struct vl_optim *m, const struct vl_update_opts *o,
                   struct vl_err *e) VL_MUST_CHECK;
const char *vl_optim_name(const struct vl_optim *m);
/* Refuses a state whose moments are another optimizer's, once it has stepped. */
int vl_optim_fits(const struct vl_optim *m, const struct vl_state *s,
                  struct vl_err *e) VL_MUST_CHECK;
/* One step on all weights: rate, clip coefficient. VL_E_IO of moments in a file. */
int vl_optim_step(struct vl_update *u, double lr, double scale, int64_t *changed,
                  struct vl_err *e) VL_MUST_CHECK;

/* Warns of options that cannot act with the others given. */
void vl_update_warn_idle(const struct vl_update *u);
/* Reads the columns of the role; base = identity of the weights that are updated. */
int vl_update_columns(struct vl_update *u, const struct vl_batch *b,
                      const struct vl_state_record *base, struct vl_err *e) VL_MUST_CHECK;
/* Fills data.pair from the columns preference and uid: rows of one uid, one of them 1 (chosen) and one
 * 0 (rejected); rows with -1 stand outside. A pair with an empty response is left out, and told. */
int vl_update_pairs(struct vl_update *u, const struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;
void vl_update_data_free(struct vl_update_data *d);
/* What a micro-batch comes to at most, for the memory estimate; least: cut as small as they can be. */
void vl_update_extent(const struct vl_update *u, int least, struct vl_extent *x);

/* (update_memory.c) Options of the engine that trains. */
struct vl_engine_opts vl_update_engine_opts(const struct vl_update *u);
/* Says what passes up to `pass` will need and refuses (VL_E_OS) what is not there. Unless told,
 * activations are kept where there is room for them: the bits are the same. */
void vl_update_check_memory(struct vl_update *u, const struct vl_extent *pass, struct vl_err *e);
/* Where the state is still empty: refuses a model whose weights, gradients and moments alone do not
 * fit. Collective. */
int vl_update_check_empty(struct vl_update *u, const struct vl_batch *b, const char *model,
                          enum vl_head head, struct vl_err *e) VL_MUST_CHECK;

/* One optimizer step over rows[0..n); dpo: chosen, rejected, chosen, ... Collective. */
int vl_update_step(struct vl_update *u, const int64_t *rows, int64_t n, double lr,
                   struct vl_step_result *r, struct vl_err *e) VL_MUST_CHECK;

/* ---- update_step.c, for update_stats.c ---- */

/* This rank's rows of a step; caller frees. */
int64_t *vl_update_my_rows(const struct vl_update *u, const int64_t *rows, int64_t n,
                           int64_t *count);
/* Their cut into micro-batches; first needs n + 1 entries. */
int64_t vl_update_cut(const struct vl_update *u, const int64_t *rows, int64_t n, int64_t *first);

/* ---- Statistics over a whole step (update_stats.c). Collective. ---- */

/* A forward pass over the rows, then data.pick, or data.keep, data.bypass_w, ahead_norm, r->corr. */
int vl_update_look_ahead(struct vl_update *u, const int64_t *rows, int64_t n,
                         struct vl_step_result *r, struct vl_err *e) VL_MUST_CHECK;
/* bypass without look-ahead: r->corr and whether rejection left a token (r->empty), from the
 * log-probs that the step's own passes left in data.new_logp. */
int vl_update_look_back(struct vl_update *u, const int64_t *rows, int64_t n,
                        struct vl_step_result *r, struct vl_err *e) VL_MUST_CHECK;

/* ---- What happened over all steps of a call (update_totals.c) ---- */

struct vl_update_totals {
    struct vl_loss_sums sums;
    struct vl_step_result last;
    struct vl_metrics corr; /* gathered over the steps taken */
    double grad_norm;       /* sum over the steps taken */
    int64_t steps, skipped, empty, rows, tokens, changed, in_row;
};

/* Takes in a step that was made. */
void vl_totals_add(struct vl_update_totals *t, const struct vl_step_result *r);
/* The record of an unfinished run, as JSON: its counts and sums make the final metrics those of an
 * unbroken run. done of `of` steps are made. Caller frees. */
char *vl_totals_text(const struct vl_update_totals *t, int64_t done, int64_t of);
/* Steps of a long run that a version of it has done, and what was counted on the way; 0 when it is
 * complete (no progress member). */
int64_t vl_totals_read(struct vl_update_totals *t, const struct vl_state_record *r);
/* Metrics under verl's names into b. */
void vl_totals_metrics(struct vl_update_totals *t, const struct vl_update *u, struct vl_batch *b);

/* verl-update. opts: struct vl_update_opts. */
int vl_stage_update(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

/* (update_log.c) Opens --log, if it is given, keeping the lines of the first `start` steps; appends
 * the line of one step. VL_E_CREATE, VL_E_IO. Rank 0 works, the others do nothing. */
int vl_update_log_open(struct vl_update *u, int64_t start, struct vl_err *e) VL_MUST_CHECK;
int vl_update_log_step(struct vl_update *u, int64_t global_step, int64_t step, double lr,
                       const struct vl_step_result *r, struct vl_err *e) VL_MUST_CHECK;
void vl_update_log_close(struct vl_update *u);

#endif
