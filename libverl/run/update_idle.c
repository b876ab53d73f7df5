/* update_idle.c - options of verl-update that cannot act with the others given: told, naming both.
 *
 * Only values that are set and differ from verl's defaults are looked at: a YAML with every key of
 * verl in it is no reason for a page of warnings. */
#include "libverl/run/update.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct check {
    const struct vl_update *u;
    struct vl_update_opts def;
};

/* Whether the option at `field` (inside u->o) was set to something else than its default. */
static int set(const struct check *c, const void *field, size_t size)
{
    size_t at = (size_t)((const char *)field - (const char *)c->u->o);

    return vl_parsed_given(c->u->x->parsed, field) &&
           memcmp(field, (const char *)&c->def + at, size) != 0;
}

static int set_text(const struct check *c, const char *const *field, const char *def)
{
    return vl_parsed_given(c->u->x->parsed, field) && *field && strcmp(*field, def) != 0;
}

#define SET_TEXT(C, F) set_text(C, &(C)->u->o->F, (C)->def.F)
#define SET(C, F)      set(C, &(C)->u->o->F, sizeof(C)->u->o->F)

__attribute__((format(printf, 3, 4))) static void idle(const struct check *c, const char *key,
                                                       const char *format, ...)
{
    char why[200];
    va_list ap;

    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    vl_warn(&c->u->x->log, "%s has no effect %s", key, why);
}

static int one_of(const char *name, const char *list)
{
    const char *at = strstr(list, name);
    size_t n = strlen(name);

    return at && (at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n]);
}

/* The clip ratio: verl's low and high have defaults of their own, so that clip_ratio alone is idle. */
static void check_clip(const struct check *c)
{
    const struct vl_update_opts *o = c->u->o;
    int low = !isnan(o->pg.clip_ratio_low), high = !isnan(o->pg.clip_ratio_high);

    if (one_of(o->loss_mode, "gpg sapo kl_cov reinforce sppo")) {
        if (SET(c, pg.clip_ratio) || SET(c, pg.clip_ratio_low) || SET(c, pg.clip_ratio_high))
            idle(c, "clip_ratio", "with policy_loss.loss_mode=%s, which does not clip",
                 o->loss_mode);
    } else if (SET(c, pg.clip_ratio) && low && high) {
        idle(c, "clip_ratio",
             "beside clip_ratio_low=%g and clip_ratio_high=%g: set these, or make them null",
             o->pg.clip_ratio_low, o->pg.clip_ratio_high);
    }
    if (SET(c, pg.clip_ratio_c) && strcmp(o->loss_mode, "vanilla"))
        idle(c, "clip_ratio_c", "with policy_loss.loss_mode=%s; vanilla has a dual clip",
             o->loss_mode);
}

static void check_actor(const struct check *c)
{
    const struct vl_update_opts *o = c->u->o;
    const char *m = o->loss_mode;

    if (SET_TEXT(c, statistics) && !c->u->ahead && !strcmp(o->statistics, "mini-batch"))
        idle(c, "--statistics", "with policy_loss.loss_mode=%s, which takes none of all rows", m);
    if (o->distill && !o->distillation.with_policy &&
        (o->use_kl_loss || o->entropy_coeff != 0 || SET_TEXT(c, loss_mode)))
        idle(c, "use_kl_loss, entropy_coeff or policy_loss.loss_mode",
             "with distillation_loss.use_task_rewards=false, the distillation loss alone");
    if (o->bypass) {
        if (SET_TEXT(c, loss_mode))
            idle(c, "policy_loss.loss_mode",
                 "with bypass_mode=true, whose loss is rollout_correction.loss_type=%s",
                 o->bypass_loss);
        if (o->is && strcmp(o->bypass_loss, "reinforce"))
            idle(c, "rollout_correction.rollout_is",
                 "on the loss with loss_type=ppo_clip, as in verl: it gives metrics; reinforce "
                 "weighs by it");
        return;
    }
    if (SET_TEXT(c, bypass_loss))
        idle(c, "rollout_correction.loss_type", "without bypass_mode=true");
    check_clip(c);
    if ((SET(c, pg.tau_pos) || SET(c, pg.tau_neg)) && strcmp(m, "sapo"))
        idle(c, "tau_pos or tau_neg", "with policy_loss.loss_mode=%s; sapo reads it", m);
    if ((SET(c, pg.clip_cov_ratio) || SET(c, pg.clip_cov_lb) || SET(c, pg.clip_cov_ub)) &&
        strcmp(m, "clip_cov"))
        idle(c, "policy_loss.clip_cov_*", "with policy_loss.loss_mode=%s; clip_cov reads it", m);
    if ((SET(c, pg.kl_cov_ratio) || SET(c, pg.ppo_kl_coef)) && strcmp(m, "kl_cov"))
        idle(c, "policy_loss.kl_cov_ratio or ppo_kl_coef",
             "with policy_loss.loss_mode=%s; kl_cov reads it", m);
    if (SET(c, pg.sppo_eta) && strcmp(m, "sppo"))
        idle(c, "sppo_eta", "with policy_loss.loss_mode=%s; sppo reads it", m);
    if ((SET(c, kl_loss_coef) || set_text(c, &o->kl_loss_type, c->def.kl_loss_type)) &&
        !o->use_kl_loss)
        idle(c, "kl_loss_coef or kl_loss_type", "without use_kl_loss=true");
    if (set_text(c, &o->agg, c->def.agg) && one_of(m, "gspo sapo geo_mean sppo"))
        idle(c, "loss_agg_mode",
             "on the policy loss %s, which is always a mean over sequences; it acts on entropy and "
             "KL only",
             m);
}

static void check_dpo(const struct check *c)
{
    const struct vl_update_opts *o = c->u->o;
    const char *m = o->dpo_loss_type;

    if (SET(c, pref.label_smoothing) && strcmp(m, "sigmoid"))
        idle(c, "algorithm.dpo_label_smoothing", "with algorithm.dpo_loss_type=%s", m);
    if (SET(c, pref.gamma) && one_of(m, "ipo sppo"))
        idle(c, "algorithm.dpo_gamma", "with algorithm.dpo_loss_type=%s", m);
    if (SET(c, pref.eta) && strcmp(m, "sppo"))
        idle(c, "sppo_eta", "with algorithm.dpo_loss_type=%s; sppo reads it", m);
}

void vl_update_warn_idle(const struct vl_update *u)
{
    const struct vl_update_opts *o = u->o;
    struct check c = { .u = u };
    int by_rows = o->cut.rows != VL_NULL_I64 && !o->cut.dynamic;

    vl_update_defaults(&c.def, o->role);
    if (o->role == VL_ROLE_ACTOR)
        check_actor(&c);
    if (o->role == VL_ROLE_DPO)
        check_dpo(&c);
    if (SET(&c, loss_scale_factor) && !isnan(o->loss_scale_factor) &&
        u->agg != VL_AGG_SEQ_MEAN_TOKEN_SUM_NORM)
        idle(&c, "loss_scale_factor", "with loss_agg_mode=%s; seq-mean-token-sum-norm reads it",
             o->agg);
    if ((SET(&c, min_lr_ratio) || SET(&c, num_cycles)) && !strcmp(o->schedule, "constant"))
        idle(&c, "optim.min_lr_ratio or num_cycles", "with optim.lr_scheduler_type=constant");
    if (SET(&c, stable_ratio) && strcmp(o->schedule, "wsd"))
        idle(&c, "optim.stable_ratio", "with optim.lr_scheduler_type=%s", o->schedule);
    if (!strcmp(o->optimizer, "SGD") && (SET(&c, amsgrad) || SET(&c, eps) || o->betas.n))
        idle(&c, "optim.betas, eps or amsgrad", "with optim.optimizer=SGD");
    if (strcmp(o->optimizer, "SGD") &&
        (SET(&c, momentum) || SET(&c, dampening) || SET(&c, nesterov)))
        idle(&c, "optim.override_optimizer_config.momentum, dampening or nesterov",
             "with optim.optimizer=%s; SGD reads it", o->optimizer);
    if (SET(&c, lr_warmup_ratio) && o->lr_warmup_steps >= 0)
        idle(&c, "optim.lr_warmup_steps_ratio", "beside optim.lr_warmup_steps=%lld",
             (long long)o->lr_warmup_steps);
    if (o->micro_batch > 0 &&
        (SET(&c, cut.rows) || SET(&c, cut.dynamic) || SET(&c, cut.max_tokens)))
        idle(&c, "a micro-batch size of the config", "beside --micro-batch %lld",
             (long long)o->micro_batch);
    else if (SET(&c, cut.rows) && o->cut.dynamic)
        idle(&c, "the micro-batch size in rows", "with use_dynamic_bsz=true, which cuts by tokens");
    else if (SET(&c, cut.max_tokens) && by_rows)
        idle(&c, "the micro-batch size in tokens",
             "beside one in rows; use_dynamic_bsz=true cuts by tokens");
}
