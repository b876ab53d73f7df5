/* fuzz_rule.c - what --rule, reward.scorers and reward.dispatch say: the input as each of them. */
#include "libverl/reward/rule_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = vl_strndup((const char *)data, size);

    for (int k = 0; k < 4; k++) {
        struct vl_rule_set s = { 0 };
        struct vl_err e = { 0 };
        struct vl_rule_in in = { .text = text, .n = strlen(text), .truth = text, .truth_n = 1 };
        struct vl_score score = { 0 };
        int rc = k == 0   ? vl_rule_set_add(&s, text, &e)
                 : k == 1 ? vl_rule_set_json(&s, text, &e)
                 : k == 2 ? vl_rule_set_dispatch(&s, text, &e)
                          : vl_rule_set_one(&s, "gsm8k", text, &e);

        assert(rc == e.code && (!rc || (e.msg[0] && !strchr(e.msg, '\n'))));
        in.truth_n = *text != 0;
        if (!rc && s.n && vl_rule_set_covers(&s, "openai/gsm8k", 12, &rc))
            vl_rule_set_score(&s, &in, "openai/gsm8k", 12, &score);
        vl_score_free(&score);
        vl_rule_set_free(&s);
    }
    free(text);
    return 0;
}
