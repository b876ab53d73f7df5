/* fields.c - the field dictionary. See fields.h.
 *
 * input_ids, attention_mask and position_ids are nobody's `from`: they are rewritten together with
 * the responses, and rewriting them must not drop what the same stage has just made. */
#include "formats/fields.h"

#include <string.h>

#define JSON(name, writer, ...)                                                                    \
    {                                                                                              \
        name, 1, VL_U8, "", VL_PAD_ZERO, writer,                                                   \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define TENSOR(name, dtype, shape, pad, writer, ...)                                               \
    {                                                                                              \
        name, 0, dtype, shape, pad, writer,                                                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct vl_field field[] = {
    JSON("uid", "verl-data", NULL),
    TENSOR("sample", VL_I64, "", VL_PAD_ZERO, "verl-data", NULL),
    JSON("raw_prompt", "verl-data", NULL),
    JSON("data_source", "verl-data", NULL),
    JSON("ability", "verl-data", NULL),
    JSON("reward_model", "verl-data", NULL),
    JSON("extra_info", "verl-data", NULL),
    JSON("index", "verl-data", NULL),
    JSON("tools_kwargs", "verl-data", NULL),
    JSON("interaction_kwargs", "verl-data", NULL),
    JSON("agent_name", "verl-data", NULL),
    TENSOR("prompts", VL_I64, "P", VL_PAD_ID, "verl-data", NULL),
    TENSOR("preference", VL_I64, "", VL_PAD_ZERO, "verl-data", NULL),
    TENSOR("dummy_tensor", VL_U8, "1", VL_PAD_ZERO, "verl-data", NULL),

    TENSOR("responses", VL_I64, "R", VL_PAD_ID, "verl-rollout", "prompts"),
    TENSOR("response_mask", VL_I64, "R", VL_PAD_ZERO, "verl-rollout", "responses"),
    TENSOR("rollout_log_probs", VL_F32, "R", VL_PAD_ZERO, "verl-rollout", "responses"),
    TENSOR("rollout_topk_ids", VL_I64, "RK", VL_PAD_ZERO, "verl-rollout", "responses"),
    TENSOR("rollout_topk_log_probs", VL_F32, "RK", VL_PAD_ZERO, "verl-rollout", "responses"),
    JSON("finish_reason", "verl-rollout", "responses"),
    JSON("__num_turns__", "verl-rollout", "responses"),
    TENSOR("input_ids", VL_I64, "S", VL_PAD_ID, "verl-rollout", "responses"),
    TENSOR("attention_mask", VL_I64, "S", VL_PAD_ZERO, "verl-rollout", "responses"),
    TENSOR("position_ids", VL_I64, "S", VL_PAD_ZERO, "verl-rollout", "responses"),

    TENSOR("rm_scores", VL_F32, "R", VL_PAD_ZERO, "verl-reward", "responses"),
    TENSOR("token_level_scores", VL_F32, "R", VL_PAD_ZERO, "verl-reward", "responses", "rm_scores"),
    TENSOR("score", VL_F32, "", VL_PAD_ZERO, "verl-reward", "responses"),
    TENSOR("acc", VL_F32, "", VL_PAD_ZERO, "verl-reward", "responses"),
    JSON("reward_error", "verl-reward", "responses"),

    TENSOR("old_log_probs", VL_F32, "R", VL_PAD_ZERO, "verl-logprob", "responses"),
    TENSOR("entropys", VL_F32, "R", VL_PAD_ZERO, "verl-logprob", "responses"),
    TENSOR("old_topk_ids", VL_I64, "RK", VL_PAD_ZERO, "verl-logprob", "responses"),
    TENSOR("old_topk_log_probs", VL_F32, "RK", VL_PAD_ZERO, "verl-logprob", "responses"),
    TENSOR("sum_pi_squared", VL_F32, "R", VL_PAD_ZERO, "verl-logprob", "responses"),
    TENSOR("ref_log_prob", VL_F32, "R", VL_PAD_ZERO, "verl-logprob", "responses"),
    TENSOR("teacher_log_probs", VL_F32, "R", VL_PAD_ZERO, "verl-logprob", "responses"),
    TENSOR("teacher_topk_ids", VL_I64, "RK", VL_PAD_ZERO, "verl-logprob", "responses",
           "old_topk_ids"),
    TENSOR("teacher_topk_log_probs", VL_F32, "RK", VL_PAD_ZERO, "verl-logprob", "responses",
           "old_topk_ids"),
    TENSOR("values", VL_F32, "R", VL_PAD_ZERO, "verl-value", "responses"),

    TENSOR("reward_baselines", VL_F32, "", VL_PAD_ZERO, "verl-advantage", NULL),
    TENSOR("rollout_is_weights", VL_F32, "R", VL_PAD_ZERO, "verl-advantage", "old_log_probs",
           "rollout_log_probs", "response_mask"),
    TENSOR("token_level_rewards", VL_F32, "R", VL_PAD_ZERO, "verl-advantage", "token_level_scores",
           "old_log_probs", "ref_log_prob", "response_mask"),
    TENSOR("advantages", VL_F32, "R", VL_PAD_ZERO, "verl-advantage", "token_level_rewards",
           "values", "response_mask", "reward_baselines", "rollout_is_weights", "sum_pi_squared"),
    TENSOR("returns", VL_F32, "R", VL_PAD_ZERO, "verl-advantage", "token_level_rewards", "values",
           "response_mask", "reward_baselines"),
};

const struct vl_field *vl_field_at(size_t k)
{
    return k < sizeof field / sizeof *field ? &field[k] : NULL;
}

const struct vl_field *vl_field_find(const char *name)
{
    for (size_t k = 0; k < sizeof field / sizeof *field; k++)
        if (strcmp(field[k].name, name) == 0)
            return &field[k];
    return NULL;
}

/* The table has no cycles (a test looks), so this ends. */
int vl_field_depends(const char *column, const char *from)
{
    const struct vl_field *f = vl_field_find(column);

    for (size_t i = 0; f && f->from[i]; i++)
        if (strcmp(f->from[i], from) == 0 || vl_field_depends(f->from[i], from))
            return 1;
    return 0;
}
