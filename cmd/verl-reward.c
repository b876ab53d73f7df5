/* verl-reward - scores of responses by rule, Python function, jq filter or command. */
#include "libverl/run/stage_reward.h"

#include "libverl/reward/rules.h"

#include <stdio.h>

#define RM     "reward_model."
#define FUSION RM "sandbox_fusion."
#define CUSTOM "custom_reward_function."
#define KWARGS RM "reward_kwargs."
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
        VL_OPT_GROUP("Scorer (default: the rule for each row's data_source)"),
        VL_OPT_WORD("scorer", NULL, &o.scorer, "NAME", rule_names(names, sizeof names),
                    VL_F_PROV | VL_F_NULLABLE, "one rule for all rows"),
        VL_OPT_LIST(
            "rule", NULL, &o.rules, "NAME[:WEIGHT][,MEMBER=VALUE]...", VL_F_PROV,
            "a rule with a column score_NAME; the score is the weighted sum of all (source: "
            "the rule for the data_source; judge, jq, ...: what that option gives; help lists "
            "them)"),
        VL_OPT_TEXT(NULL, "reward.scorers", &o.scorers, "LIST",
                    VL_F_PROV | VL_F_NULLABLE | VL_F_JSON,
                    "the same as a list: [{name: math, weight: 1}, {name: tags, weight: 0.2}]"),
        VL_OPT_TEXT(NULL, "reward.dispatch", &o.dispatch, "MAP",
                    VL_F_PROV | VL_F_NULLABLE | VL_F_JSON,
                    "rules of further data sources: {my_source: gsm8k, \"my_math*\": math}"),
        VL_OPT_TEXT("jq", NULL, &o.filter, "FILTER", VL_F_PROV | VL_F_NULLABLE,
                    "a jq filter: a row in; a number, true, false or an object with score out"),
        VL_OPT_TEXT("command", NULL, &o.command, "PROGRAM", VL_F_PROV | VL_F_NULLABLE,
                    "a program that reads a row a line and answers each with a line"),
        VL_OPT_TEXT("exec", NULL, &o.exec, "PROGRAM", VL_F_PROV | VL_F_NULLABLE,
                    "a program started for each row: reads it as JSON, prints one answer, ends"),
        VL_OPT_TEXT(
            "args", NULL, &o.args, "JSON", VL_F_PROV | VL_F_NULLABLE,
            "an object: the rule's arguments, the filter's $variables, or args of each row"),
        VL_OPT_FLAG("keep-special", NULL, &o.keep_special, VL_F_PROV,
                    "leave special tokens in the text that is scored"),
        VL_OPT_TEXT(NULL, "data.reward_fn_key", &o.source_key, "NAME", VL_F_PROV,
                    "the column that selects the rule"),
        VL_OPT_GROUP("verl's own kind of Python file"),
        VL_OPT_TEXT(
            NULL, CUSTOM "path", &o.custom_path, "FILE", VL_F_PROV | VL_F_NULLABLE,
            "a file with compute_score(data_source, solution_str, ground_truth, extra_info)"),
        VL_OPT_TEXT(NULL, CUSTOM "name", &o.custom_name, "NAME", VL_F_PROV, "the function in it"),
        VL_OPT_TEXT(NULL, CUSTOM "reward_kwargs", &o.custom_kwargs, "MAP",
                    VL_F_PROV | VL_F_NULLABLE | VL_F_JSON, "further arguments of the function"),
        VL_OPT_GROUP("Filters, commands, functions"),
        VL_OPT_INT("workers", NULL, &o.workers, "N", 0, 4096, 0,
                   "processes that score at the same time, 0 for one per cpu", .letter = 'j'),
        VL_OPT_REAL("row-timeout", NULL, &o.timeout, "SECONDS", 0.01, 86400, 0,
                    "time a row may take"),
        VL_OPT_INT("memory", NULL, &o.memory, "MB", 0, 1 << 24, VL_F_NULLABLE,
                   "memory a process may map, 0 for no limit; null is 1024 for --jq, "
                   "memory_limit_mb for programs, else 0"),
        VL_OPT_FLAG("stream", NULL, &o.stream, 0,
                    "score the documents of a stream (verl-rollout --stream) as they come"),
        VL_OPT_WORD("on-error", NULL, &o.on_error, "POLICY", "fail|invalid|value", VL_F_PROV,
                    "a row whose scorer fails: stop, mark it as without a score, or --error-value"),
        VL_OPT_REAL("error-value", NULL, &o.error_value, "X", -1e30, 1e30, VL_F_PROV,
                    "the score of such rows with --on-error value"),
        VL_OPT_GROUP("Programs in responses (rule code, verl-sandbox(7))"),
        VL_OPT_WORD("sandbox", NULL, &o.code.sandbox, "KIND", "strong|weak", VL_F_PROV,
                    "strong: in namespaces of its own; weak: without them, with less protection"),
        VL_OPT_LIST("sandbox-show", NULL, &o.code.show, "PATH", 0,
                    "a further folder that programs may read, such as /opt/conda"),
        VL_OPT_REAL("case-timeout", NULL, &o.code.timeout, "SECONDS", 0.01, 86400, VL_F_PROV,
                    "time for one test case; --row-timeout, when given, for all of a row"),
        VL_OPT_TEXT("code-command", NULL, &o.code.command, "COMMAND", VL_F_PROV | VL_F_NULLABLE,
                    "what runs a program, beside its file; null: by the language"),
        VL_OPT_TEXT("code-file", NULL, &o.code.file, "NAME", VL_F_PROV | VL_F_NULLABLE,
                    "the name of that file; null: by the language"),
        VL_OPT_TEXT(NULL, FUSION "url", &o.code.url, "URL", VL_F_NULLABLE,
                    "the run_code address of a sandbox fusion service that runs them instead"),
        VL_OPT_INT(NULL, FUSION "max_concurrent", &o.code.concurrent, "N", 1, 4096, 0,
                   "its requests at a time, over all ranks"),
        VL_OPT_INT(NULL, FUSION "memory_limit_mb", &o.code.memory_mb, "MB", 1, 1 << 24, VL_F_PROV,
                   "memory of a program, here too"),
        VL_OPT_GROUP("Reward model"),
        VL_OPT_TEXT("reward-model", NULL, &o.rm.dir, "DIR", VL_F_NULLABLE,
                    "score by this model: a ...ForSequenceClassification directory with one label",
                    .letter = 'R'),
        VL_OPT_FLAG(NULL, RM "enable", &o.rm.enable, 0, "score by the model of the next key"),
        VL_OPT_TEXT(NULL, RM "model.path", &o.rm.path, "DIR", VL_F_NULLABLE,
                    "the reward model where --reward-model is not given"),
        VL_OPT_TEXT(NULL, RM "model.input_tokenizer", &o.rm.input, "DIR", VL_F_PROV | VL_F_NULLABLE,
                    "null gives the model the policy's ids as they are; anything else makes its "
                    "input anew by its own template"),
        VL_OPT_TEXT("rm-template", NULL, &o.rm.tmpl, "FILE", VL_F_PROV | VL_F_NULLABLE,
                    "a Jinja chat template in place of its tokenizer's"),
        VL_OPT_FLAG("rm-plain-special", NULL, &o.rm.plain_special, VL_F_PROV,
                    "a response that spells its special tokens spells ordinary text"),
        VL_OPT_INT(NULL, RM "max_length", &o.rm.max_length, "TOKENS", 1, 1 << 30,
                   VL_F_PROV | VL_F_NULLABLE, "longest input of its template; null: its context"),
        VL_OPT_WORD("rm-truncate", NULL, &o.rm.truncate, "SIDE", "none|left|right", VL_F_PROV,
                    "cut longer inputs at this side; none: such a row has no score (--on-error)"),
        VL_OPT_COMPUTE(&o.rm.compute),
        VL_OPT_MICRO_BATCH(&o.rm.micro_batch),
        VL_OPT_CUT(&o.rm.cut, "forward pass", "", RM "micro_batch_size_per_gpu",
                   RM "micro_batch_size", RM "use_dynamic_bsz", "critic.use_dynamic_bsz",
                   RM "forward_max_token_len_per_gpu", "critic.forward_max_token_len_per_gpu"),
        VL_OPT_GROUP("Judge: a generative model behind an OpenAI-compatible URL"),
        VL_OPT_TEXT("judge", NULL, &o.judge.url, "URL", VL_F_NULLABLE,
                    "score by what it answers, e.g. http://127.0.0.1:8000/v1"),
        VL_OPT_TEXT("judge-model", NULL, &o.judge.model, "NAME", VL_F_PROV | VL_F_NULLABLE,
                    "the model's name at that server"),
        VL_OPT_TEXT("judge-endpoint", NULL, &o.judge.path, "PATH", VL_F_PROV,
                    "where requests go under the URL"),
        VL_OPT_TEXT(
            "judge-request", NULL, &o.judge.request, "FILTER", VL_F_PROV | VL_F_NULLABLE,
            "a jq filter: a row in; a message, a list of messages or members of the request "
            "out; null asks for a line 'Score: X' from 0 to 1"),
        VL_OPT_TEXT("judge-filter", NULL, &o.judge.filter, "FILTER", VL_F_PROV | VL_F_NULLABLE,
                    "a jq filter: the row with judge_text and judge in; what --jq gives out; null "
                    "takes the last 'Score: X'"),
        VL_OPT_TEXT("judge-params", NULL, &o.judge.params, "JSON", VL_F_PROV | VL_F_NULLABLE,
                    "further members of each request; null is {\"temperature\": 0} for a chat"),
        VL_OPT_TEXT("judge-key-env", NULL, &o.judge.key_env, "VARIABLE", VL_F_NULLABLE,
                    "the environment variable whose value is sent as the bearer token"),
        VL_OPT_REAL("judge-try-timeout", NULL, &o.judge.try_timeout, "SECONDS", 0.01, 86400, 0,
                    "time one try may take"),
        VL_OPT_REAL("judge-timeout", RM "timeout", &o.judge.timeout, "SECONDS", 0.01, 864000, 0,
                    "time a row may take, all tries and waits together"),
        VL_OPT_INT("judge-retries", NULL, &o.judge.retries, "N", 0, 1000, 0,
                   "tries after the first, where the server is busy, fails or is not reached"),
        VL_OPT_INT("judge-concurrency", RM "max_concurrent", &o.judge.concurrent, "N", 1, 4096, 0,
                   "requests at one time"),
        VL_OPT_REAL(NULL, RM "max_rpm", &o.judge.rpm, "N", 1e-3, 1e9, VL_F_NULLABLE,
                    "requests a minute, null for any"),
        VL_OPT_REAL(NULL, RM "max_tpm", &o.judge.tpm, "N", 1e-3, 1e12, VL_F_NULLABLE,
                    "tokens a minute, as the next key counts them; null for any"),
        VL_OPT_INT(NULL, RM "estimated_tokens_per_request", &o.judge.estimated, "N", 1, 1 << 30, 0,
                   "tokens that a request is taken for"),
        VL_OPT_GROUP("Manager"),
        VL_OPT_TEXT(NULL, "reward_manager.name", &o.manager, "NAME", VL_F_PROV,
                    "naive, batch, dapo or prime; the overlong penalty works with each",
                    .fallback = RM "reward_manager"),
        VL_OPT_FLAG(NULL, BUFFER "enable", &o.overlong, VL_F_PROV,
                    "lower the reward of responses near the length limit"),
        VL_OPT_INT(NULL, KWARGS "max_resp_len", &o.shape.max_resp_len, "N", 0, 0,
                   VL_F_PROV | VL_F_NULLABLE, "the length limit in tokens"),
        VL_OPT_INT(NULL, BUFFER "len", &o.shape.len, "N", 0, 0, VL_F_PROV | VL_F_NULLABLE,
                   "tokens before the limit in which the penalty grows"),
        VL_OPT_REAL(NULL, BUFFER "penalty_factor", &o.shape.penalty_factor, "X", 0, 0, VL_F_PROV,
                    "penalty at the limit"),
        VL_OPT_FLAG(NULL, BUFFER "log", &o.overlong_log, VL_F_PROV,
                    "columns overlong_reward and overlong"),
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-reward",
        .summary = "scores of responses by rule, Python function, jq filter, command or model",
        .usage = "[OPTION...] [key=value...]",
        .subtree = "reward_model",
        .details =
            "Reads responses, attention_mask, reward_model, data_source, extra_info; adds\n"
            "token_level_scores, score, acc, reward_error and a column per further member\n"
            "of what the scorers answer. A reward model adds rm_scores; these are the scores\n"
            "unless another scorer is given, whose rows then have rm_score.\n"
            "  verl-reward -i gen.dp -o reward.dp\n"
            "  verl-reward --rule source --rule tags:0.2 -i gen.dp -o reward.dp\n"
            "  verl-reward custom_reward_function.path=my_reward.py -i gen.dp -o reward.dp\n"
            "  verl-reward --jq '(.solution_str|split(\"#### \")|last) == .ground_truth' "
            "-i gen.dp -o reward.dp\n"
            "  verl-reward --command 'python3 score.py' -j 8 -i gen.dp -o reward.dp\n",
        .opts = opts,
        .omit = VL_NO_STATE | VL_NO_SEED,
    };

    return vl_main(&program, &common, argc, argv, vl_stage_reward, &o);
}
