/* verl-rollout - n responses for each prompt, sampled here or made elsewhere. */
#include "libverl/run/stage_rollout.h"

#define ROLLOUT "actor_rollout_ref.rollout."
#define VAL     ROLLOUT "val_kwargs."

/* Rows of the options table: name, key, field of o, ..., flags, help. */
#define WHOLE(name, key, f, arg, lo, hi, flags, help)                                              \
    {                                                                                              \
        VL_T_I64, 0, name, key, NULL, &o.f, arg, help, lo, hi, NULL, flags                         \
    }
#define REAL(name, key, f, arg, lo, hi, flags, help)                                               \
    {                                                                                              \
        VL_T_F64, 0, name, key, NULL, &o.f, arg, help, lo, hi, NULL, flags                         \
    }
#define WORD(name, key, f, arg, choices, flags, help)                                              \
    {                                                                                              \
        VL_T_STR, 0, name, key, NULL, &o.f, arg, help, 0, 0, choices, flags                        \
    }
#define LIST(name, key, f, arg, help)                                                              \
    {                                                                                              \
        VL_T_LIST, 0, name, key, NULL, &o.f, arg, help, 0, 0, NULL, VL_F_PROV                      \
    }
#define FLAG(name, key, f, flags, help)                                                            \
    {                                                                                              \
        VL_T_BOOL, 0, name, key, NULL, &o.f, NULL, help, 0, 0, NULL, flags                         \
    }

int main(int argc, char **argv)
{
    struct vl_common common = { 0 };
    struct vl_rollout_opts o = { .compute = "auto",
                                 .dtype = "bfloat16",
                                 .train = { 1, -1, 1.0, 1.0 },
                                 .val = { 1, -1, 0.0, 1.0 },
                                 .response_length = 512,
                                 .rules = { .repetition = 1 },
                                 .log_probs = 1,
                                 .max_seqs = 256,
                                 .max_tokens = 8192,
                                 .max_model_len = VL_NULL_I64,
                                 .memory = 0.5,
                                 .global_steps = VL_NULL_I64 };
    const struct vl_opt opts[] = {
        { .type = VL_T_GROUP, .help = "Sampling" },
        WHOLE("n", ROLLOUT "n", train.n, "N", 1, 1 << 20, VL_F_PROV, "responses for each prompt"),
        REAL("temperature", ROLLOUT "temperature", train.temperature, "T", 0, 1e6, VL_F_PROV,
             "0 is greedy, with log-probs at temperature 1"),
        WHOLE("top-k", ROLLOUT "top_k", train.top_k, "K", -1, 1 << 30, VL_F_PROV,
              "sample among the K likeliest ids; 0 or -1: all"),
        REAL("top-p", ROLLOUT "top_p", train.top_p, "P", 1e-12, 1, VL_F_PROV,
             "sample from the smallest set of ids whose mass reaches P"),
        { VL_T_I64, 0, NULL, ROLLOUT "response_length", "data.max_response_length",
          &o.response_length, "TOKENS", "longest response, and the width of its columns", 1,
          1 << 24, NULL, VL_F_PROV },
        REAL("min-p", ROLLOUT "min_p", rules.min_p, "P", 0, 1, VL_F_PROV,
             "drop ids below P times the likeliest one's probability"),
        LIST("stop-id", ROLLOUT "stop_token_ids", stop_ids, "ID",
             "end a response at this id instead of the model's own end ids; repeatable"),
        LIST("stop", ROLLOUT "stop", stop, "TEXT",
             "end a response where it says TEXT, too; repeatable"),
        WHOLE("min-tokens", ROLLOUT "min_tokens", rules.min_tokens, "N", 0, 1 << 24, VL_F_PROV,
              "nothing ends a response before it has N tokens"),
        FLAG("ignore-eos", ROLLOUT "ignore_eos", ignore_eos, VL_F_PROV,
             "only the length limit ends a response"),
        REAL("repetition-penalty", ROLLOUT "repetition_penalty", rules.repetition, "R", 1e-3, 1e3,
             VL_F_PROV, "divide (positive) or multiply (negative) logits of ids already there"),
        REAL("presence-penalty", ROLLOUT "presence_penalty", rules.presence, "P", -1e4, 1e4,
             VL_F_PROV, "take P from the logits of ids the response has"),
        REAL("frequency-penalty", ROLLOUT "frequency_penalty", rules.frequency, "F", -1e4, 1e4,
             VL_F_PROV, "take F from them for each time the response has them"),
        LIST("logit-bias", ROLLOUT "logit_bias", rules.bias, "ID=X",
             "add X to the logit of ID; -inf: never draw it; repeatable"),
        LIST("bad-word", ROLLOUT "bad_words", rules.bad_words, "TEXT",
             "never write this word; repeatable"),
        REAL("time-limit", NULL, time_limit, "SECONDS", 0, 1e9, VL_F_PROV,
             "then rows end as they are, as aborted; 0: no limit"),
        FLAG(NULL, ROLLOUT "calculate_log_probs", log_probs, VL_F_PROV, "write rollout_log_probs"),
        WHOLE("logprobs", ROLLOUT "logprobs", topk, "K", 0, 1 << 20, VL_F_PROV,
              "also record the K likeliest ids of each position and their log-probs"),
        WHOLE("global-steps", NULL, global_steps, "N", 0, UINT32_MAX, VL_F_PROV,
              "training step, part of every draw; taken from the batch"),
        { .type = VL_T_GROUP, .help = "Validation" },
        FLAG("validate", NULL, validate, VL_F_PROV, "use the four keys below instead"),
        WHOLE(NULL, VAL "n", val.n, "N", 1, 1 << 20, VL_F_PROV, "responses for each prompt"),
        REAL(NULL, VAL "temperature", val.temperature, "T", 0, 1e6, VL_F_PROV, "temperature"),
        WHOLE(NULL, VAL "top_k", val.top_k, "K", -1, 1 << 30, VL_F_PROV, "top-k"),
        REAL(NULL, VAL "top_p", val.top_p, "P", 1e-12, 1, VL_F_PROV, "top-p"),
        { .type = VL_T_GROUP, .help = "Model and memory" },
        WORD(NULL, "actor_rollout_ref.model.path", policy_path, "DIR", NULL, VL_F_NULLABLE,
             "the policy, where -m is not given"),
        WORD("compute", NULL, compute, "TYPE", "auto|fp32|bf16", VL_F_PROV,
             "operands of matrix products; auto: bf16 where the device has it"),
        WORD(NULL, ROLLOUT "dtype", dtype, "TYPE", "bfloat16|float32", VL_F_PROV,
             "the same under verl's name, heeded when it is set"),
        WHOLE(NULL, ROLLOUT "max_num_seqs", max_seqs, "ROWS", 1, 1 << 20, 0,
              "rows running at once"),
        WHOLE(NULL, ROLLOUT "max_num_batched_tokens", max_tokens, "TOKENS", 1, 1 << 24, 0,
              "tokens in one forward pass"),
        WHOLE(NULL, ROLLOUT "max_model_len", max_model_len, "TOKENS", 2, 1 << 30,
              VL_F_NULLABLE | VL_F_PROV,
              "end rows at this length of prompt and response; null: refuse what does not fit"),
        REAL(NULL, ROLLOUT "gpu_memory_utilization", memory, "X", 0.01, 1, 0,
             "share of free memory that the KV cache may take"),
        { .type = VL_T_GROUP, .help = "Input and output" },
        WORD("from-json", NULL, from_json, "FILE", NULL, 0,
             "take the responses from JSON lines {uid, response_ids, ...} made elsewhere"),
        FLAG("stream", NULL, stream, 0,
             "write each prompt's rows to a pipe as soon as they are done"),
        { .type = VL_T_END },
    };
    const struct vl_program program = {
        .name = "verl-rollout",
        .summary = "sample n responses for each prompt of a batch",
        .usage = "[OPTION...] [key=value...]",
        .subtree = "actor_rollout_ref.rollout",
        .details =
            "Reads prompts (or input_ids), attention_mask, uid; writes prompts, responses,\n"
            "input_ids, attention_mask, position_ids, response_mask, rollout_log_probs, sample,\n"
            "finish_reason, and with --logprobs rollout_topk_ids, rollout_topk_log_probs.\n"
            "  verl-rollout -m MODEL -i prompts.dp -o gen.dp rollout.n=8\n"
            "  verl-rollout --from-json gen.jsonl -m MODEL -i prompts.dp -o gen.dp\n",
        .opts = opts,
        .omit = VL_NO_STATE,
    };

    return vl_main(&program, &common, argc, argv, vl_stage_rollout, &o);
}
