/* fuzz_reward.c - what scorers answer, and every rule over any response and ground truth: the two
 * are the parts before and after the first line feed. A score is finite, or there is a reason. */
#include "libverl/reward/rules.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

static void check(struct vl_score *s)
{
    if (s->why)
        assert(s->why[0] && !strchr(s->why, '\n'));
    else
        assert(isfinite((float)s->score) && isfinite((float)s->acc));
    vl_score_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *cut = size ? memchr(text, '\n', size) : NULL;
    struct vl_rule_in in = { .text = text, .n = cut ? (size_t)(cut - text) : size };
    struct vl_rule_args args = { .score = 1 };
    struct vl_score s = { 0 };

    in.truth = in.truth_json = cut ? cut + 1 : "";
    in.truth_n = in.truth_json_n = cut ? size - in.n - 1 : 0;
    in.args = &args;
    vl_score_parse(&s, text, size);
    check(&s);
    for (const struct vl_rule *r = vl_rules(); r->name; r++)
        for (int k = 0; k < 3; k++) {
            args.method = k;
            args.strict_box = k == 1;
            r->score(&in, &s);
            check(&s);
        }
    return 0;
}
