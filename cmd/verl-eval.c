/* verl-eval - metrics of scored samples, and of a training step. */
#include "libverl/run/stage_eval.h"

#include <math.h>

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_eval_opts o = { .pred = "pred", .devices = 1, .agg = "token-mean", .factor = NAN };
    const struct vl_opt opts[] = {
        { .type = VL_T_GROUP, .help = "Scored samples" },
        { .type = VL_T_LIST,
          .name = "var",
          .dst = &o.vars,
          .arg = "COLUMN",
          .help = "take this variable instead of all numbers per row; repeatable" },
        { .type = VL_T_STR,
          .name = "pred",
          .dst = &o.pred,
          .arg = "COLUMN",
          .help = "the prediction whose majority maj@k takes" },
        { .type = VL_T_BOOL,
          .name = "pass",
          .dst = &o.pass,
          .help = "pass@k, too: the best of k of the n samples, without replacement" },
        { .type = VL_T_BOOL,
          .name = "stderr",
          .dst = &o.stderror,
          .help = "standard errors over the prompts of mean@n and pass@k" },
        { .type = VL_T_BOOL,
          .name = "skip-unscored",
          .dst = &o.skip_unscored,
          .help = "leave rows without a score out; without it they count as 0" },
        { .type = VL_T_GROUP, .help = "A training step" },
        { .type = VL_T_LIST,
          .name = "timing",
          .dst = &o.timing,
          .arg = "NAME=SECONDS",
          .help = "time of a stage under verl's name (gen, update_actor, step); repeatable" },
        { .type = VL_T_I64,
          .name = "devices",
          .dst = &o.devices,
          .arg = "N",
          .lo = 1,
          .hi = 1 << 30,
          .help = "perf/throughput is per device; global_seqlen is of so many slices" },
        { .type = VL_T_STR,
          .key = "actor_rollout_ref.actor.loss_agg_mode",
          .dst = &o.agg,
          .arg = "MODE",
          .choices = "token-mean|seq-mean-token-sum|seq-mean-token-mean|seq-mean-token-sum-norm",
          .help = "how actor/entropy is reduced" },
        { .type = VL_T_F64,
          .key = "actor_rollout_ref.actor.loss_scale_factor",
          .dst = &o.factor,
          .arg = "X",
          .lo = 1e-12,
          .hi = 1e12,
          .flags = VL_F_NULLABLE,
          .help = "divisor of seq-mean-token-sum-norm; null: the response width" },
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
