/* exact.c - the response without white space around it is the ground truth: for tasks whose
 * prompts make the answer the whole response. */
#include "libverl/reward/rules.h"

#include <string.h>

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

void vl_score_exact(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *s = in->text;
    size_t n = in->n;

    while (n && is_space(*s))
        s++, n--;
    while (n && is_space(s[n - 1]))
        n--;
    vl_score_set(out, n == in->truth_n && !memcmp(s, in->truth, n) ? in->args->score
                                                                   : vl_score_format(in, 0));
}
