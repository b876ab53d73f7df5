/* verl-rollout - n responses for each prompt, sampled here or made elsewhere. */
#include "libverl/run/stage_rollout.h"

#define ROLLOUT "actor_rollout_ref.rollout."
#define VAL     ROLLOUT "val_kwargs."

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
        VL_OPT_GROUP("Sampling"),
        VL_OPT_INT("n", ROLLOUT "n", &o.train.n, "N", 1, 1 << 20, VL_F_PROV,
                   "responses for each prompt"),
        VL_OPT_REAL("temperature", ROLLOUT "temperature", &o.train.temperature, "T", 0, 1e6,
                    VL_F_PROV, "0 is greedy, with log-probs at temperature 1"),
        VL_OPT_INT("top-k", ROLLOUT "top_k", &o.train.top_k, "K", -1, 1 << 30, VL_F_PROV,
                   "sample among the K likeliest ids; 0 or -1: all"),
        VL_OPT_REAL("top-p", ROLLOUT "top_p", &o.train.top_p, "P", 1e-12, 1, VL_F_PROV,
                    "sample from the smallest set of ids whose mass reaches P"),
        VL_OPT_INT(NULL, ROLLOUT "response_length", &o.response_length, "TOKENS", 1, 1 << 24,
                   VL_F_PROV, "longest response, and the width of its columns",
                   .fallback = "data.max_response_length"),
        VL_OPT_REAL("min-p", ROLLOUT "min_p", &o.rules.min_p, "P", 0, 1, VL_F_PROV,
                    "drop ids below P times the likeliest one's probability"),
        VL_OPT_LIST("stop-id", ROLLOUT "stop_token_ids", &o.stop_ids, "ID", VL_F_PROV,
                    "end a response at this id instead of the model's own end ids; repeatable"),
        VL_OPT_LIST("stop", ROLLOUT "stop", &o.stop, "TEXT", VL_F_PROV,
                    "end a response where it says TEXT, too; repeatable"),
        VL_OPT_INT("min-tokens", ROLLOUT "min_tokens", &o.rules.min_tokens, "N", 0, 1 << 24,
                   VL_F_PROV, "nothing ends a response before it has N tokens"),
        VL_OPT_FLAG("ignore-eos", ROLLOUT "ignore_eos", &o.ignore_eos, VL_F_PROV,
                    "only the length limit ends a response"),
        VL_OPT_REAL("repetition-penalty", ROLLOUT "repetition_penalty", &o.rules.repetition, "R",
                    1e-3, 1e3, VL_F_PROV,
                    "divide (positive) or multiply (negative) logits of ids already there"),
        VL_OPT_REAL("presence-penalty", ROLLOUT "presence_penalty", &o.rules.presence, "P", -1e4,
                    1e4, VL_F_PROV, "take P from the logits of ids the response has"),
        VL_OPT_REAL("frequency-penalty", ROLLOUT "frequency_penalty", &o.rules.frequency, "F", -1e4,
                    1e4, VL_F_PROV, "take F from them for each time the response has them"),
        VL_OPT_LIST("logit-bias", ROLLOUT "logit_bias", &o.rules.bias, "ID=X", VL_F_PROV,
                    "add X to the logit of ID; -inf: never draw it; repeatable"),
        VL_OPT_LIST("bad-word", ROLLOUT "bad_words", &o.rules.bad_words, "TEXT", VL_F_PROV,
                    "never write this word; repeatable"),
        VL_OPT_REAL("time-limit", NULL, &o.time_limit, "SECONDS", 0, 1e9, VL_F_PROV,
                    "then rows end as they are, as aborted; 0: no limit"),
        VL_OPT_FLAG(NULL, ROLLOUT "calculate_log_probs", &o.log_probs, VL_F_PROV,
                    "write rollout_log_probs"),
        VL_OPT_INT("logprobs", ROLLOUT "logprobs", &o.topk, "K", 0, 1 << 20, VL_F_PROV,
                   "also record the K likeliest ids of each position and their log-probs"),
        VL_OPT_INT("global-steps", NULL, &o.global_steps, "N", 0, UINT32_MAX, VL_F_PROV,
                   "training step, part of every draw; taken from the batch"),
        VL_OPT_GROUP("Validation"),
        VL_OPT_FLAG("validate", NULL, &o.validate, VL_F_PROV, "use the four keys below instead"),
        VL_OPT_INT(NULL, VAL "n", &o.val.n, "N", 1, 1 << 20, VL_F_PROV,
                   "responses for each prompt"),
        VL_OPT_REAL(NULL, VAL "temperature", &o.val.temperature, "T", 0, 1e6, VL_F_PROV,
                    "temperature"),
        VL_OPT_INT(NULL, VAL "top_k", &o.val.top_k, "K", -1, 1 << 30, VL_F_PROV, "top-k"),
        VL_OPT_REAL(NULL, VAL "top_p", &o.val.top_p, "P", 1e-12, 1, VL_F_PROV, "top-p"),
        VL_OPT_GROUP("Model and memory"),
        VL_OPT_TEXT(NULL, "actor_rollout_ref.model.path", &o.policy_path, "DIR", VL_F_NULLABLE,
                    "the policy, where -m is not given"),
        VL_OPT_WORD(
            "compute", NULL, &o.compute, "TYPE", "auto|fp32|bf16|amx", VL_F_PROV,
            "operands of matrix products; auto: as rollout.dtype says, else " VL_BEST_COMPUTE),
        VL_OPT_WORD(NULL, ROLLOUT "dtype", &o.dtype, "TYPE", "bfloat16|float32", VL_F_PROV,
                    "the same under verl's name, heeded when it is set"),
        VL_OPT_QUANTIZATION(ROLLOUT "quantization", &o.quantization,
                            "weights of matrices in eight bits, for draws and their log-probs"),
        VL_OPT_INT(NULL, ROLLOUT "max_num_seqs", &o.max_seqs, "ROWS", 1, 1 << 20, 0,
                   "rows running at once"),
        VL_OPT_INT(NULL, ROLLOUT "max_num_batched_tokens", &o.max_tokens, "TOKENS", 1, 1 << 24, 0,
                   "tokens in one forward pass"),
        VL_OPT_INT(
            NULL, ROLLOUT "max_model_len", &o.max_model_len, "TOKENS", 2, 1 << 30,
            VL_F_PROV | VL_F_NULLABLE,
            "end rows at this length of prompt and response; null: refuse what does not fit"),
        VL_OPT_REAL(NULL, ROLLOUT "gpu_memory_utilization", &o.memory, "X", 0, 1, 0,
                    "share of free memory that the KV cache may take"),
        VL_OPT_GROUP("Input and output"),
        VL_OPT_TEXT("from-json", NULL, &o.from_json, "FILE", 0,
                    "take the responses from JSON lines {uid, response_ids, ...} made elsewhere"),
        VL_OPT_FLAG("stream", NULL, &o.stream, 0,
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
