/* verl-reward - scores of responses by rule, Python function, jq filter or command. */
#include "libverl/run/stage_reward.h"

#include "libverl/reward/rules.h"

#include <stdio.h>

#define KWARGS "reward_model.reward_kwargs."
#define BUFFER KWARGS "overlong_buffer_cfg."

/* "exact|gsm8k|..." from the table of rules. */
static const char *rule_names(char *buf, size_t size)
{
    size_t at = 0;

    for (const struct vl_rule *r = vl_rules(); r->name && at < size; r++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? "|" : "", r->name);
    return buf;
}

int main(int argc, char **argv)
{
    char names[512];
    struct vl_common common = { 0 };
    struct vl_reward_opts o = VL_REWARD_DEFAULTS;
    const struct vl_opt opts[] = {
        { .type = VL_T_GROUP, .help = "Scorer (default: the rule for each row's data_source)" },
        { .type = VL_T_STR,
          .name = "scorer",
          .dst = &o.scorer,
          .arg = "NAME",
          .choices = rule_names(names, sizeof names),
          .flags = VL_F_PROV | VL_F_NULLABLE,
          .help = "one rule for all rows" },
        { .type = VL_T_STR,
          .name = "jq",
          .dst = &o.filter,
          .arg = "FILTER",
          .flags = VL_F_PROV | VL_F_NULLABLE,
          .help = "a jq filter: a row in; a number, true, false or an object with score out" },
        { .type = VL_T_STR,
          .name = "command",
          .dst = &o.command,
          .arg = "PROGRAM",
          .flags = VL_F_PROV | VL_F_NULLABLE,
          .help = "a program that reads a row a line and answers each with a line" },
        { .type = VL_T_STR,
          .name = "args",
          .dst = &o.args,
          .arg = "JSON",
          .flags = VL_F_PROV | VL_F_NULLABLE,
          .help = "an object: the rule's arguments, the filter's $variables, or args of each row" },
        { .type = VL_T_BOOL,
          .name = "keep-special",
          .dst = &o.keep_special,
          .flags = VL_F_PROV,
          .help = "leave special tokens in the text that is scored" },
        { .type = VL_T_STR,
          .key = "data.reward_fn_key",
          .dst = &o.source_key,
          .arg = "NAME",
          .flags = VL_F_PROV,
          .help = "the column that selects the rule" },
        { .type = VL_T_GROUP, .help = "verl's own kind of Python file" },
        { .type = VL_T_STR,
          .key = "custom_reward_function.path",
          .dst = &o.custom_path,
          .arg = "FILE",
          .flags = VL_F_PROV | VL_F_NULLABLE,
          .help =
              "a file with compute_score(data_source, solution_str, ground_truth, extra_info)" },
        { .type = VL_T_STR,
          .key = "custom_reward_function.name",
          .dst = &o.custom_name,
          .arg = "NAME",
          .flags = VL_F_PROV,
          .help = "the function in it" },
        { .type = VL_T_STR,
          .key = "custom_reward_function.reward_kwargs",
          .dst = &o.custom_kwargs,
          .arg = "MAP",
          .flags = VL_F_PROV | VL_F_NULLABLE | VL_F_JSON,
          .help = "further arguments of the function" },
        { .type = VL_T_GROUP, .help = "Filters, commands, functions" },
        { .type = VL_T_I64,
          .letter = 'j',
          .name = "workers",
          .dst = &o.workers,
          .arg = "N",
          .lo = 0,
          .hi = 4096,
          .help = "processes that score at the same time, 0 for one per cpu" },
        { .type = VL_T_F64,
          .name = "row-timeout",
          .dst = &o.timeout,
          .arg = "SECONDS",
          .lo = 0.01,
          .hi = 86400,
          .help = "time a row may take" },
        { .type = VL_T_I64,
          .name = "memory",
          .dst = &o.memory,
          .arg = "MB",
          .lo = 0,
          .hi = 1 << 24,
          .flags = VL_F_NULLABLE,
          .help = "memory a process may map, 0 for no limit; null is 1024 for --jq, 0 for "
                  "--command" },
        { .type = VL_T_STR,
          .name = "on-error",
          .dst = &o.on_error,
          .arg = "POLICY",
          .choices = "fail|invalid|value",
          .flags = VL_F_PROV,
          .help = "a row whose scorer fails: stop, mark it as without a score, or --error-value" },
        { .type = VL_T_F64,
          .name = "error-value",
          .dst = &o.error_value,
          .arg = "X",
          .lo = -1e30,
          .hi = 1e30,
          .flags = VL_F_PROV,
          .help = "the score of such rows with --on-error value" },
        { .type = VL_T_GROUP, .help = "Manager" },
        { .type = VL_T_STR,
          .key = "reward_manager.name",
          .fallback = "reward_model.reward_manager",
          .dst = &o.manager,
          .arg = "NAME",
          .flags = VL_F_PROV,
          .help = "naive, batch or dapo; the overlong penalty works with each" },
        { .type = VL_T_BOOL,
          .key = BUFFER "enable",
          .dst = &o.overlong,
          .flags = VL_F_PROV,
          .help = "lower the reward of responses near the length limit" },
        { .type = VL_T_I64,
          .key = KWARGS "max_resp_len",
          .dst = &o.shape.max_resp_len,
          .arg = "N",
          .flags = VL_F_PROV | VL_F_NULLABLE,
          .help = "the length limit in tokens" },
        { .type = VL_T_I64,
          .key = BUFFER "len",
          .dst = &o.shape.len,
          .arg = "N",
          .flags = VL_F_PROV | VL_F_NULLABLE,
          .help = "tokens before the limit in which the penalty grows" },
        { .type = VL_T_F64,
          .key = BUFFER "penalty_factor",
          .dst = &o.shape.penalty_factor,
          .arg = "X",
          .flags = VL_F_PROV,
          .help = "penalty at the limit" },
        { .type = VL_T_BOOL,
          .key = BUFFER "log",
          .dst = &o.overlong_log,
          .flags = VL_F_PROV,
          .help = "columns overlong_reward and overlong" },
        { .type = VL_T_BOOL,
          .key = "reward_model.enable",
          .dst = &o.rm_enable,
          .help = "refused: give rm_scores" },
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-reward",
        .summary = "scores of responses by rule, Python function, jq filter or command",
        .usage = "[OPTION...] [key=value...]",
        .subtree = "reward_model",
        .details = "Reads responses, attention_mask, reward_model, data_source, extra_info; adds\n"
                   "token_level_scores, score, acc, reward_error and a column per further member\n"
                   "of what the scorers answer.\n"
                   "  verl-reward -i gen.dp -o reward.dp\n"
                   "  verl-reward custom_reward_function.path=my_reward.py -i gen.dp -o reward.dp\n"
                   "  verl-reward --jq '(.solution_str|split(\"#### \")|last) == .ground_truth' "
                   "-i gen.dp -o reward.dp\n"
                   "  verl-reward --command 'python3 score.py' -j 8 -i gen.dp -o reward.dp\n",
        .opts = opts,
        .omit = VL_NO_STATE | VL_NO_DEVICE | VL_NO_SEED | VL_NO_THREADS,
    };

    return vl_main(&program, &common, argc, argv, vl_stage_reward, &o);
}
