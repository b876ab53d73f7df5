/* fuzz_reward.c - what scorers answer, and every rule over any response and ground truth: the two
 * are the parts before and after the first line feed. A score is finite, or there is a reason. */
#include "libverl/reward/pattern.h"
#include "libverl/reward/rules.h"
#include "libverl/reward/schema.h"

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
    static struct vl_pattern *pattern;
    static struct vl_schema *schema;
    struct vl_rule_args args;
    struct vl_err e = { 0 };
    struct vl_score s = { 0 };

    in.truth = in.truth_json = cut ? cut + 1 : "";
    in.truth_n = in.truth_json_n = cut ? size - in.n - 1 : 0;
    in.args = &args;
    in.tokens = (int64_t)size;
    vl_rule_args_init(&args);
    if (!pattern && (vl_pattern_new(&pattern, "^(a|b)*c", 8, &e) ||
                     vl_schema_new(&schema, "{\"items\":{\"type\":\"number\"}}", 27, "s", &e)))
        abort();
    args.pattern = pattern;
    args.schema = schema;
    vl_score_parse(&s, text, size);
    check(&s);
    for (const struct vl_rule *r = vl_rules(); r->name; r++)
        for (int k = 0; k < 3; k++) {
            args.method = k;
            args.strict_box = args.partial = args.all = k == 1;
            args.max = k * 10;
            r->score(&in, &s);
            check(&s);
        }
    return 0;
}
