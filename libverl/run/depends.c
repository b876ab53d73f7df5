/* depends.c - the static table of direct dependencies. See depends.h. */
#include "libverl/run/depends.h"

#include <string.h>

static const struct {
    const char *name, *from; /* from: names between blanks */
} table[] = {
    { "responses", " prompts " },
    { "response_mask", " responses " },
    { "finish_reason", " responses " },
    { "rollout_log_probs", " responses " },
    { "token_level_scores", " responses reward_model data_source extra_info " },
    { "score", " responses token_level_scores " },
    { "acc", " responses token_level_scores " },
    { "old_log_probs", " responses input_ids " },
    { "ref_log_prob", " responses input_ids " },
    { "entropys", " responses input_ids old_log_probs " },
    { "values", " responses input_ids " },
    { "token_level_rewards", " token_level_scores old_log_probs ref_log_prob response_mask " },
    { "advantages", " token_level_rewards values response_mask uid reward_baselines " },
    { "returns", " token_level_rewards values response_mask uid reward_baselines " },
    { "rollout_is_weights", " old_log_probs rollout_log_probs response_mask " },
};

int vl_field_depends(const char *name, const char *from)
{
    size_t n = strlen(from);

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *p = table[i].from;

        if (strcmp(table[i].name, name) != 0)
            continue;
        while ((p = strstr(p, from))) {
            if (p[-1] == ' ' && p[n] == ' ')
                return 1;
            p++;
        }
    }
    return 0;
}
