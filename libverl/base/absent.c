/* absent.c - keys of verl that ask for what is not here. See opt_impl.h.
 *
 * Most keys without meaning here tune what another system does and are only counted. These change what
 * is trained: a run that passed over them would be another one than was asked for. */
#include "libverl/base/opt_impl.h"

#include <stdlib.h>
#include <string.h>

struct absent {
    const char *key;  /* of verl's table */
    const char *idle; /* values that ask for nothing: "|false|null|" */
    const char *what; /* is not there, and what is */
};

static const char off[] = "|false|null||", none[] = "|null||", zero[] = "|0|null||";

#define ROLLOUT "actor_rollout_ref.rollout."
#define NO_LORA "adapters are not trained here, all weights are"
#define NO_TURN "a rollout is one answer, without tools or further turns"
#define NO_CODE "no Python of yours is loaded there"

static const struct absent absent[] = {
    { ROLLOUT "multi_turn.enable", off, NO_TURN },
    { ROLLOUT "multi_turn.tool_config_path", none, NO_TURN },
    { ROLLOUT "multi_turn.interaction_config_path", none, NO_TURN },
    { ROLLOUT "agent.default_agent_loop", "|single_turn_agent|null||", NO_TURN },
    { ROLLOUT "agent.agent_loop_config_path", none, NO_TURN },
    { ROLLOUT "agent.agent_loop_manager_class", none, NO_TURN },
    { ROLLOUT "skip_rollout", off, "verl-rollout --from-json takes answers that are there" },
    { "actor_rollout_ref.model.lora_rank", zero, NO_LORA },
    { "actor_rollout_ref.model.lora_adapter_path", none, "verl-model merges no adapter, either" },
    { "actor_rollout_ref.model.external_lib", none, NO_CODE },
    { "critic.model.lora_rank", zero, NO_LORA },
    { "critic.model.external_lib", none, NO_CODE },
    { "model.lora_rank", zero, NO_LORA },
    { "reward_model.model.external_lib", none, NO_CODE },
    { "data.custom_cls.path", none, "--map FILTER makes rows of any shape" },
    { "data.sampler.class_path", none, "rows come in file order or shuffled by the seed" },
    { "data.datagen.path", none, "rows come from files" },
    { "trainer.val_only", off, "verl-rollout --validate and verl-eval do that" },
};

int vl_absent_check(const struct vl_conf *c, struct vl_err *e)
{
    for (size_t i = 0; i < sizeof absent / sizeof *absent && !e->code; i++) {
        const struct vl_conf_entry *at = vl_conf_get(c, absent[i].key);
        struct vl_buf value = { 0 }, word = { 0 };

        if (!at || at->used)
            continue;
        vl_yaml_put(&value, at->value);
        vl_buf_printf(&word, "|%s|", value.s ? value.s : "");
        for (size_t k = 0; k < word.n; k++)
            if (word.s[k] >= 'A' && word.s[k] <= 'Z')
                word.s[k] = (char)(word.s[k] - 'A' + 'a');
        if (!strstr(absent[i].idle, word.s))
            vl_fail(e, VL_E_USAGE, "%s: %s=%.80s asks for what is not there: %s", at->source,
                    absent[i].key, value.s ? value.s : "", absent[i].what);
        vl_buf_free(&value);
        vl_buf_free(&word);
    }
    return e->code;
}
