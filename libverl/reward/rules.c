/* rules.c - the table of built-in scorers and of data sources. See rules.h.
 *
 * A new scorer is one file, one row in `rules` and its sources in `sources`. */
#include "libverl/reward/rules.h"

#include "formats/json.h"

#include <string.h>

static const struct vl_rule rules[] = {
    { "exact", "score|format_score", "the whole response equals the ground truth", vl_score_exact },
    { "gsm8k", "method|score|format_score",
      "the number after the last \"#### \" (method strict, flexible or number)", vl_score_gsm8k },
    { "math", "", "the last \\boxed{} or \\fbox{}, compared as Hendrycks' MATH", vl_score_math },
    { "math_dapo", "strict_box_verify", "the last \"Answer:\", compared as DAPO; 1 or -1",
      vl_score_math_dapo },
    { "prime_math", "",
      "the answer after the usual phrases or in the last box, by four comparisons",
      vl_score_prime_math },
    { "search_r1", "score|format_score", "the last <answer> is one of the targets",
      vl_score_search_r1 },
    { "search_r1_subem", "score|format_score", "the last <answer> contains one of the targets",
      vl_score_search_r1_part },
    { NULL, NULL, NULL, NULL },
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
    { "searchR1_nq", "search_r1" },
    { "searchR1_triviaqa", "search_r1" },
    { "searchR1_popqa", "search_r1" },
    { "searchR1_hotpotqa", "search_r1" },
    { "searchR1_2wikimultihopqa", "search_r1" },
    { "searchR1_musique", "search_r1" },
    { "searchR1_bamboogle", "search_r1" },
};

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

/* Whether name is one of the |-separated words. */
static int listed(const char *words, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = words; (p = strstr(p, name)); p += n)
        if ((p == words || p[-1] == '|') && (!p[n] || p[n] == '|'))
            return 1;
    return 0;
}

static int takes(const struct vl_rule *rule, const char *name)
{
    if (rule)
        return listed(rule->args, name);
    for (const struct vl_rule *r = rules; r->name; r++)
        if (listed(r->args, name))
            return 1;
    return 0;
}

static int set_method(struct vl_rule_args *a, const struct vl_json *j, int64_t v)
{
    static const char *const name[] = { "strict", "flexible", "number" };

    for (int i = 0; i < 3; i++)
        if (vl_json_streq(j, v, name[i])) {
            a->method = i;
            return 1;
        }
    return 0;
}

static int set(struct vl_rule_args *a, const char *name, const struct vl_json *j, int64_t v)
{
    if (!strcmp(name, "method"))
        return set_method(a, j, v);
    if (!strcmp(name, "score"))
        return vl_json_f64(j, v, &a->score);
    if (!strcmp(name, "format_score"))
        return vl_json_f64(j, v, &a->format_score);
    return vl_json_bool(j, v, &a->strict_box); /* strict_box_verify */
}

static int set_member(struct vl_rule_args *a, const struct vl_rule *rule, const struct vl_json *j,
                      int64_t c, struct vl_err *e)
{
    struct vl_buf name = { 0 }, value = { 0 };

    vl_json_str(j, c, &name);
    vl_json_raw(j, c + 1, &value);
    vl_buf_ch(&name, 0);
    vl_buf_ch(&value, 0);
    if (!takes(rule, name.s))
        vl_fail(e, VL_E_USAGE, "--args: scorer %s takes no '%s'; it takes %s",
                rule ? rule->name : "by rule", name.s,
                rule ? (*rule->args ? rule->args : "none")
                     : "method, score, format_score, strict_box_verify");
    else if (!set(a, name.s, j, c + 1))
        vl_fail(e, VL_E_USAGE,
                "--args: %s is %.80s; method is \"strict\", \"flexible\" or \"number\", scores are "
                "numbers, strict_box_verify is true or false",
                name.s, value.s);
    vl_buf_free(&name);
    vl_buf_free(&value);
    return e->code;
}

int vl_rule_args_parse(struct vl_rule_args *a, const struct vl_rule *rule, const char *json,
                       struct vl_err *e)
{
    struct vl_json j = { 0 };
    int64_t c = 1;

    *a = (struct vl_rule_args){ .score = 1 };
    if (!json)
        return 0;
    if (vl_json_parse(&j, json, strlen(json), "--args", e)) {
        e->code = VL_E_USAGE;
    } else if (!vl_json_is(&j, 0, VL_JSON_OBJECT)) {
        vl_fail(e, VL_E_USAGE, "--args is %.80s; give a JSON object such as {\"score\": 1}", json);
    } else {
        for (uint32_t k = 0; k < j.node[0].count && !e->code; k++, c = j.node[c + 1].next)
            set_member(a, rule, &j, c, e);
    }
    vl_json_free(&j);
    return e->code;
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
