/* rules.c - the table of built-in scorers and of data sources. See rules.h.
 *
 * A new scorer is one file, one row in `rules` and its sources in `sources`. */
#include "libverl/reward/rules.h"

#include <math.h>
#include <string.h>

static const struct vl_rule rules[] = {
    { "exact", "score|format_score", "the whole response equals the ground truth", 0,
      vl_score_exact },
    { "gsm8k", "method|score|format_score",
      "the number after the last \"#### \" (method strict, flexible or number)", 0,
      vl_score_gsm8k },
    { "math", "", "the last \\boxed{} or \\fbox{}, compared as Hendrycks' MATH", 0, vl_score_math },
    { "math_dapo", "strict_box_verify", "the last \"Answer:\", compared as DAPO; 1 or -1", 0,
      vl_score_math_dapo },
    { "prime_math", "",
      "the answer after the usual phrases or in the last box, by four comparisons", 0,
      vl_score_prime_math },
    { "math_verify", "score|format_score|tolerance",
      "the last box, formula or number, compared as mathematics", 0, vl_score_math_verify },
    { "geo3k", "score|format_score", "a think block and the last \\boxed{}: 0.1 for the form", 0,
      vl_score_geo3k },
    { "search_r1", "score|format_score", "the last <answer> is one of the targets", 0,
      vl_score_search_r1 },
    { "search_r1_subem", "score|format_score", "the last <answer> contains one of the targets", 0,
      vl_score_search_r1_part },
    { "choice", "score|format_score|choices", "the letter of a multiple choice", 0,
      vl_score_choice },
    { "countdown", "score|format_score|all", "the last <answer> makes the target of the numbers", 0,
      vl_score_countdown },
    { "tags", "score|tags|partial", "the response is these tags in order, each once", 1,
      vl_score_tags },
    { "regex", "score|pattern", "the pattern matches somewhere in the response", 1,
      vl_score_regex },
    { "json", "score|schema", "the response is JSON, of the schema if there is one", 1,
      vl_score_json },
    { "length", "score|min|max|target|width", "1 for a length in range, falling to 0 outside", 1,
      vl_score_length },
    { "code", "language|continuous|cases|exact|any_fence",
      "the program in the response, run in a sandbox against test cases", 0, vl_score_code },
    { "rm", "", "the reward model's score, by --reward-model or the column rm_scores", 1,
      vl_score_rm },
    { "judge", "", "what --judge gives", 1, vl_score_judge },
    { "jq", "", "what --jq gives", 1, vl_score_process },
    { "command", "", "what --command gives", 1, vl_score_process },
    { "exec", "", "what --exec gives", 1, vl_score_process },
    { "custom", "", "what custom_reward_function.path gives", 1, vl_score_process },
    { NULL, NULL, NULL, 0, NULL },
};

/* verl's dispatch by data_source; `*` at the end matches any rest. */
static const struct {
    const char *source, *rule;
} sources[] = {
    { "exact", "exact" },
    { "openai/gsm8k", "gsm8k" },
    { "lighteval/MATH", "math" },
    { "DigitalLearningGmbH/MATH-lighteval", "math" },
    { "HuggingFaceH4/MATH-500", "math" },
    { "math_dapo", "math_dapo" },
    { "math", "math_dapo" },
    { "math_dapo_reasoning", "math_dapo" },
    { "aime*", "math_dapo" },
    { "numina_aops_forum", "prime_math" },
    { "numina_synthetic_math", "prime_math" },
    { "numina_amc_aime", "prime_math" },
    { "numina_synthetic_amc", "prime_math" },
    { "numina_cn_k12", "prime_math" },
    { "numina_olympiads", "prime_math" },
    { "hiyouga/geometry3k", "geo3k" },
    { "apps", "code" },
    { "codecontests", "code" },
    { "codeforces", "code" },
    { "taco", "code" },
    { "searchR1_nq", "search_r1" },
    { "searchR1_triviaqa", "search_r1" },
    { "searchR1_popqa", "search_r1" },
    { "searchR1_hotpotqa", "search_r1" },
    { "searchR1_2wikimultihopqa", "search_r1" },
    { "searchR1_musique", "search_r1" },
    { "searchR1_bamboogle", "search_r1" },
};

void vl_score_rm(const struct vl_rule_in *in, struct vl_score *out)
{
    if (!in->rm_score)
        vl_score_fail(out, "rm needs a reward model: give --reward-model DIR, or a batch with "
                           "rm_scores");
    else if (!isfinite(*in->rm_score))
        vl_score_fail(out, "the reward model gave no score");
    else
        vl_score_set(out, (double)*in->rm_score);
}

static void take_over(const struct vl_score *from, struct vl_score *out)
{
    if (!from)
        vl_score_fail(out, "nobody was asked for a score");
    else if (from->why)
        vl_score_fail(out, "%s", from->why);
    else
        vl_score_set(out, from->score);
    if (!from || from->why)
        return;
    out->acc = from->acc;
    out->extra = from->extra ? vl_strdup(from->extra) : NULL;
}

void vl_score_judge(const struct vl_rule_in *in, struct vl_score *out)
{
    take_over(in->judge, out);
}

void vl_score_process(const struct vl_rule_in *in, struct vl_score *out)
{
    take_over(in->process, out);
}

const struct vl_rule *vl_rules(void)
{
    return rules;
}

const struct vl_rule *vl_rule_named(const char *name)
{
    for (const struct vl_rule *r = rules; r->name; r++)
        if (!strcmp(r->name, name))
            return r;
    return NULL;
}

const struct vl_rule *vl_rule_for_source(const char *data_source, size_t n)
{
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        size_t len = strlen(sources[i].source);
        int prefix = sources[i].source[len - 1] == '*';

        len -= (size_t)prefix;
        if ((prefix ? n >= len : n == len) && !memcmp(sources[i].source, data_source, len))
            return vl_rule_named(sources[i].rule);
    }
    return NULL;
}

void vl_rule_sources(struct vl_buf *out)
{
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        vl_buf_printf(out, "%s%s", i ? ", " : "", sources[i].source);
}

void vl_rules_help(struct vl_buf *out)
{
    for (const struct vl_rule *r = rules; r->name; r++) {
        int n = 0;

        vl_buf_printf(out, "%-16s %s\n", r->name, r->help);
        if (*r->args) {
            vl_buf_printf(out, "%-16s members: ", "");
            for (const char *p = r->args; *p; p++)
                if (*p == '|')
                    vl_buf_str(out, ", ");
                else
                    vl_buf_ch(out, *p);
            vl_buf_ch(out, '\n');
        }
        for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
            if (!strcmp(sources[i].rule, r->name)) {
                vl_buf_printf(out, "%*s%s%s", n ? 0 : 17, "", n ? ", " : "for ", sources[i].source);
                n++;
            }
        if (n)
            vl_buf_ch(out, '\n');
    }
}

void vl_score_set(struct vl_score *out, double score)
{
    vl_score_free(out);
    out->score = out->acc = score;
}

const char *vl_last_chars(const char *s, size_t n, size_t count)
{
    const char *p = s + n;

    while (p > s && count) {
        p--;
        count -= ((unsigned char)*p & 0xC0) != 0x80;
    }
    return p;
}

double vl_score_format(const struct vl_rule_in *in, double otherwise)
{
    return isnan(in->args->format_score) ? otherwise : in->args->format_score;
}
