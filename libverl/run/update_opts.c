/* update_opts.c - verl-update's options: defaults by role, and what can be checked without data. */
#include "libverl/run/update.h"

#include "libverl/model/version.h"

#include <math.h>
#include <string.h>

const char *vl_role_name(enum vl_role r)
{
    static const char *const name[] = { "actor", "critic", "sft", "dpo" };

    return name[r];
}

int vl_role_is_long(enum vl_role r)
{
    return r == VL_ROLE_SFT || r == VL_ROLE_DPO;
}

void vl_update_defaults(struct vl_update_opts *o, enum vl_role role)
{
    static const struct vl_pg_opts pg = VL_PG_DEFAULTS;
    static const struct vl_pref_opts pref = VL_PREF_DEFAULTS;

    *o = (struct vl_update_opts){ .role = role,
                                  .keep = 2,
                                  .lr = role == VL_ROLE_ACTOR || role == VL_ROLE_DPO ? 1e-6 : 1e-5,
                                  .weight_decay = 0.01,
                                  .clip_grad = 1,
                                  .lr_warmup_ratio = role == VL_ROLE_SFT ? 0.1 : 0,
                                  .num_cycles = 0.5,
                                  .stable_ratio = 0.9,
                                  .optimizer = "AdamW",
                                  .impl = "torch.optim",
                                  .decay = "all",
                                  .eps = 1e-8,
                                  .lr_warmup_steps = -1,
                                  .total_steps = -1,
                                  .schedule = role == VL_ROLE_SFT ? "cosine" : "constant",
                                  .max_skips = 3,
                                  .mini_batch = 256,
                                  .n = 1,
                                  .epochs = role == VL_ROLE_SFT ? 4 : 1,
                                  .shuffle = role == VL_ROLE_SFT,
                                  .data_seed = role == VL_ROLE_SFT ? VL_NULL_I64 : 42,
                                  .cut = { .rows = VL_NULL_I64, .max_tokens = 16384 },
                                  .share_prompts = 1,
                                  .compute = "auto",
                                  .temperature = 1,
                                  .pg = pg,
                                  .loss_mode = "vanilla",
                                  .agg = "token-mean",
                                  .kl_loss_type = "low_var_kl",
                                  .loss_scale_factor = NAN,
                                  .kl_loss_coef = 0.001,
                                  .cliprange_value = 0.5,
                                  .distillation = { .coef = 1,
                                                    .beta = 0.5,
                                                    .loss_max = NAN,
                                                    .logp_min = NAN,
                                                    .with_policy = 1,
                                                    .clip_ratio = 0.2,
                                                    .clip_ratio_low = 0.2,
                                                    .clip_ratio_high = 0.2 },
                                  .distill_mode = "k3",
                                  .distill_pg = "vanilla",
                                  .statistics = "micro-batch",
                                  .bypass_loss = "ppo_clip",
                                  .is_threshold = 2,
                                  .pref = pref,
                                  .dpo_loss_type = "sigmoid",
                                  .sft_steps = VL_NULL_I64,
                                  .save_freq = -1 };
}

/* bypass_mode's losses are two of the others, on its own mask and weights. */
static const char *loss_name(const struct vl_update_opts *o)
{
    if (!o->bypass)
        return o->loss_mode;
    return strcmp(o->bypass_loss, "reinforce") ? "vanilla" : "reinforce";
}

int vl_update_check(struct vl_update *u, struct vl_err *e)
{
    const struct vl_update_opts *o = u->o;
    int weighs;

    if (!u->x->common->state)
        return vl_fail(e, VL_E_USAGE, "no train state: give -s DIR (with -m MODEL the first time)");
    u->from = o->from ? vl_version_parse(o->from) : -1;
    if (o->from && u->from < 0)
        return vl_fail(e, VL_E_USAGE, "--from %s: expected a version such as v12", o->from);
    if (o->keep_current && !o->from)
        return vl_fail(e, VL_E_USAGE, "--keep-current has no effect without --from");
    if (vl_optim_parse(&u->optim, o, e) || vl_agg_parse(&u->agg, o->agg, e))
        return e->code;
    if (o->loss_scale_factor == 0)
        return vl_fail(e, VL_E_USAGE,
                       "loss_scale_factor is 0; it must be > 0, or null for the response width");
    u->pref = o->pref;
    if (o->role == VL_ROLE_DPO)
        return vl_pref_parse(&u->pref, o->dpo_loss_type, e);
    if (o->role != VL_ROLE_ACTOR)
        return 0;
    if (o->bypass && (vl_corr_parse(&u->corr, o->is, o->is_threshold, o->is_normalize, o->rs,
                                    o->rs_threshold, e)))
        return e->code;
    u->distill = o->distillation;
    u->distill.pg = vl_pg_find(o->distill_pg, e);
    if (!u->distill.pg || vl_distill_parse(&u->distill, o->distill_mode, e))
        return e->code;
    u->actor = (struct vl_actor_opts){ .distill = o->distill ? &u->distill : NULL,
                                       .loss = vl_pg_find(loss_name(o), e),
                                       .bypass = o->bypass ? &u->corr : NULL,
                                       .bypass_loss = o->bypass_loss,
                                       .pg = o->pg,
                                       .entropy_coeff = o->entropy_coeff,
                                       .use_kl_loss = o->use_kl_loss,
                                       .kl_loss_coef = o->kl_loss_coef };
    u->actor.pg.agg = u->agg;
    if (!u->actor.loss || vl_pg_check(u->actor.loss, &u->actor.pg, e) ||
        vl_kl_parse(&u->actor.kl_loss_type, o->kl_loss_type, e))
        return e->code;
    weighs = !strcmp(o->bypass_loss, "reinforce") && u->corr.is;
    if (o->distill && !u->distill.with_policy && o->bypass)
        return vl_fail(e, VL_E_USAGE,
                       "bypass_mode corrects the policy loss, which distillation_loss."
                       "use_task_rewards=false leaves out: drop one of the two");
    u->ahead = !strcmp(o->statistics, "mini-batch") && !(o->distill && !u->distill.with_policy) &&
               (o->bypass || vl_pg_picks(u->actor.loss));
    if (!u->ahead &&
        (vl_pg_picks(u->actor.loss) || (o->bypass && weighs && u->corr.batch_normalize)))
        vl_info(&u->x->log,
                "%s takes statistics of each micro-batch, as verl: the result depends on "
                "micro-batch size and number of ranks (--statistics mini-batch: it does not)",
                o->bypass ? "rollout_is_batch_normalize" : o->loss_mode);
    return 0;
}
