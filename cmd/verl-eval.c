/* verl-eval - metrics of scored samples, and of a training step. */
#include "libverl/run/stage_eval.h"

#include <math.h>

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_eval_opts o = { .pred = "pred", .devices = 1, .agg = "token-mean", .factor = NAN };
    const struct vl_opt opts[] = {
        VL_OPT_GROUP("Scored samples"),
        VL_OPT_LIST("var", NULL, &o.vars, "COLUMN", 0,
                    "take this variable instead of all numbers per row; repeatable"),
        VL_OPT_TEXT("pred", NULL, &o.pred, "COLUMN", 0,
                    "the prediction whose majority maj@k takes"),
        VL_OPT_FLAG("pass", NULL, &o.pass, 0,
                    "pass@k, too: the best of k of the n samples, without replacement"),
        VL_OPT_FLAG("stderr", NULL, &o.stderror, 0,
                    "standard errors over the prompts of mean@n and pass@k"),
        VL_OPT_FLAG("skip-unscored", NULL, &o.skip_unscored, 0,
                    "leave rows without a score out; without it they count as 0"),
        VL_OPT_GROUP("A training step"),
        VL_OPT_LIST("timing", NULL, &o.timing, "NAME=SECONDS", 0,
                    "time of a stage under verl's name (gen, update_actor, step); repeatable"),
        VL_OPT_INT("devices", NULL, &o.devices, "N", 1, 1 << 30, 0,
                   "perf/throughput is per device; global_seqlen is of so many slices"),
        VL_OPT_WORD(NULL, "actor_rollout_ref.actor.loss_agg_mode", &o.agg, "MODE", VL_AGG_NAMES, 0,
                    "how actor/entropy is reduced"),
        VL_OPT_REAL(NULL, "actor_rollout_ref.actor.loss_scale_factor", &o.factor, "X", 1e-12, 1e12,
                    VL_F_NULLABLE, "divisor of seq-mean-token-sum-norm; null: the response width"),
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-eval",
        .summary = "metrics of scored samples (mean@n, best@n, maj@n) or of a training step",
        .usage = "[OPTION...] [-i FILE...]\n       verl-eval [OPTION...] metrics STEP_DIR",
        .subtree = "actor_rollout_ref.actor",
        .details = "Prints one JSON object on one line, under verl's names.\n"
                   "  verl-eval -i val.dp\n"
                   "  verl-eval metrics run/step_000012 >> run/metrics.jsonl\n",
        .opts = opts,
        .takes_operands = 1,
        .omit = VL_NO_MODEL | VL_NO_STATE | VL_NO_DELTA | VL_NO_DEVICE | VL_NO_SEED |
                VL_NO_THREADS | VL_NO_LEVEL,
    };

    return vl_main(&program, &common, argc, argv, vl_stage_eval, &o);
}
