/* test_rules.c - the rules without recorded scores: what each takes for right; schemas; sets of rules. */
#include "libverl/reward/math_equal.h"
#include "libverl/reward/rule_set.h"
#include "libverl/reward/schema.h"
#include "libverl/run/reward_extra.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- one rule ---- */

static void run(const char *rule, const char *args, const char *text, size_t n, const char *truth,
                int64_t tokens, struct vl_score *out)
{
    struct vl_rule_args a;
    struct vl_err e = { 0 };
    struct vl_rule_in in = { .text = text, .n = n, .args = &a, .tokens = tokens };

    in.truth = in.truth_json = truth;
    in.truth_n = in.truth_json_n = strlen(truth);
    if (vl_rule_args_parse(&a, vl_rule_named(rule), args, "--args", &e))
        fail_msg("%s", e.msg);
    vl_rule_named(rule)->score(&in, out);
    vl_rule_args_free(&a);
}

static double score(const char *rule, const char *args, const char *text, const char *truth)
{
    struct vl_score s = { 0 };
    double x;

    run(rule, args, text, strlen(text), truth, (int64_t)strlen(text), &s);
    x = s.why ? NAN : s.score;
    vl_score_free(&s);
    return x;
}

#define SCORE(x, rule, args, text, truth)                                                          \
    do {                                                                                           \
        double got = score(rule, args, text, truth);                                               \
        if (!(fabs(got - (x)) <= 1e-12))                                                           \
            fail_msg("%s scores '%s' for '%s' with %g", rule, text, truth, got);                   \
    } while (0)

/* ---- math_verify ---- */

static void answers_that_mean_the_same(void **state)
{
    static const struct {
        const char *a, *b;
        char verdict; /* = ! ? */
    } t[] = {
        { "1/2", "\\frac{1}{2}", '=' },
        { "0.5", "\\dfrac12", '=' },
        { "50\\%", "0.5", '=' },
        { "50%", "50", '=' },
        { "50%", "5", '!' },
        { "$1,234.50$", "1234.5", '=' },
        { "\\$5", "5", '=' },
        { "5\\text{ cm}", "5", '=' },
        { "12 square feet", "12", '=' },
        { "5 cm^2", "5", '=' },
        { "2xy", "2yx", '=' },
        { "7 3/4", "31/4", '=' },
        { "-7 3/4", "-31/4", '=' },
        { "x = 5", "5", '=' },
        { "x=1+1=2", "2", '=' },
        { "f(x)=x^2", "x^2", '=' },
        { "2x+3y=6", "2x+3y=6.", '=' },
        { "2x+3y=6", "-6y-4x=-12", '=' },
        { "y=2x+1", "y-2x=1", '=' },
        { "y=2x+1", "y-2x=2", '?' },
        { "|x|", "x", '!' },
        { "|x|", "\\sqrt{x^2}", '=' },
        { "3:2", "1.5", '=' },
        { "\\emptyset", "\\{ \\}", '=' },
        { "0.333333", "1/3", '=' },
        { "0.333", "1/3", '!' },
        { "3.14159265", "\\pi", '=' },
        { "90^\\circ", "90", '=' },
        { "\\sin(\\pi/6)", "1/2", '=' },
        { "\\log_2 8", "3", '=' },
        { "(1,2)", "( 1 , 2 )", '=' },
        { "(1,2)", "(2,1)", '!' },
        { "(1,2)", "[1,2]", '!' },
        { "[0,\\infty)", "[0, \\infty)", '=' },
        { "[\\frac12, 1)", "[0.5,1)", '=' },
        { "\\{1,2\\}", "\\{2,1\\}", '=' },
        { "1, 2", "2, 1", '=' },
        { "1,2", "\\{1,2\\}", '=' },
        { "1 \\text{ and } 2", "1,2", '=' },
        { "(-\\infty,1)\\cup(2,3)", "(2,3) \\cup (-\\infty, 1)", '=' },
        { "x<5", "(-\\infty,5)", '=' },
        { "x \\ge 2", "[2,\\infty)", '=' },
        { "1 < x \\le 3", "(1,3]", '=' },
        { "3 \\ge x > 1", "(1,3]", '=' },
        { "x \\in [1,2]", "[1,2]", '=' },
        { "\\pm 3", "3,-3", '=' },
        { "1\\pm\\sqrt2", "1-\\sqrt{2}, 1+\\sqrt{2}", '=' },
        { "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
          "\\begin{bmatrix} 1 & 2 \\\\ 3 & 4 \\end{bmatrix}", '=' },
        { "\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1&2\\end{pmatrix}", '!' },
        { "Yes", "\\text{yes}", '=' },
        { "cat", "act", '!' },
        { "\xE2\x88\x92"
          "5",
          "-5", '=' },
        { "2\xC3\x97"
          "3",
          "6", '=' },
        { "", "", '!' },
        { "5", "", '!' },
        { "2^{100}", "1267650600228229401496703205376", '=' },
        { "\\frac{x^2-1}{x-1}", "x+1", '=' },
        { "\\sqrt{x^2+1}", "\\sqrt{1+x^2}", '=' },
        { "10^{50}", "10^{51}", '?' },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        for (int turn = 0; turn < 2; turn++) {
            const char *a = turn ? t[i].b : t[i].a, *b = turn ? t[i].a : t[i].b;
            char got = "!=?"[vl_math_equal(a, strlen(a), b, strlen(b), 1e-6)];

            if (got != t[i].verdict)
                fail_msg("%s and %s: %c, not %c", a, b, got, t[i].verdict);
        }
}

static void where_the_answer_is(void **state)
{
    (void)state;
    SCORE(1, "math_verify", NULL, "so \\boxed{\\frac{1}{2}}", "0.5");
    SCORE(1, "math_verify", NULL, "\\boxed{1} then \\boxed{2", "1"); /* an open box is none */
    SCORE(1, "math_verify", NULL, "\\boxed{\\boxed{3}}", "3");
    SCORE(1, "math_verify", NULL, "The answer is $x = 4$.", "4");
    SCORE(1, "math_verify", NULL, "**Answer:** 7\nthanks", "7");
    SCORE(1, "math_verify", NULL, "we have \\(a\\) and \\(12\\)", "12");
    SCORE(1, "math_verify", NULL, "that makes 1,200 apples", "1200");
    SCORE(1, "math_verify", NULL, "it is $\\frac{1}{2}$ at $5 and $7", "0.5");
    SCORE(1, "math_verify", NULL, "he pays $5 and $7", "7");
    SCORE(1, "math_verify", NULL, "\\$5 and \\$7, so $$x=3$$", "3");
    SCORE(1, "math_verify", NULL, "\\boxed{5}", "\\boxed{5}");
    SCORE(0, "math_verify", NULL, "no answer at all", "5");
    SCORE(0.1, "math_verify", "{\"format_score\":0.1}", "\\boxed{6}", "5");
    SCORE(1, "math_verify", "{\"tolerance\":0.01}", "\\boxed{3.14}", "\\pi");
    SCORE(0, "math_verify", NULL, "\\boxed{3.14}", "\\pi");
}

static void geo3k_parts(void **state)
{
    (void)state;
    SCORE(1, "geo3k", NULL, "<think>a</think> \\boxed{5}", "5");
    SCORE(0.9, "geo3k", NULL, "\\boxed{5}", "5");
    SCORE(0.1, "geo3k", NULL, "<think>a</think> \\boxed{6}", "5");
    SCORE(0, "geo3k", NULL, "5", "5");
    SCORE(0.5, "geo3k", "{\"format_score\":0.5}", "\\boxed{5}", "5");
    SCORE(0, "geo3k", NULL, "\\boxed{5} \\boxed{6", "5"); /* the last one must be closed */
}

static void letters(void **state)
{
    (void)state;
    SCORE(1, "choice", NULL, "The answer is (B).", "B");
    SCORE(1, "choice", NULL, "The correct answer is B: Paris", "B");
    SCORE(1, "choice", NULL, "**Answer: C**", "C");
    SCORE(1, "choice", NULL, "\\boxed{\\text{D}}", "D");
    SCORE(1, "choice", NULL, "\\boxed{b}", "B");
    SCORE(1, "choice", NULL, "<answer>A</answer>", "A");
    SCORE(1, "choice", NULL, "answer is A ... no, the answer is B", "B. Paris");
    SCORE(1, "choice", NULL, " (A) ", "A");
    SCORE(0, "choice", NULL, "Because of that", "B");
    SCORE(0, "choice", NULL, "A good question", "A");
    SCORE(0.2, "choice", "{\"format_score\":0.2}", "answer: C", "B");
    SCORE(0, "choice", "{\"choices\":\"AB\"}", "answer: C", "B");
    assert_true(isnan(score("choice", NULL, "B", "Paris")));
}

static void countdown_equations(void **state)
{
    const char *t = "{\"target\": 98, \"numbers\": [44, 19, 35]}";

    (void)state;
    SCORE(1, "countdown", NULL, "<answer>44 + 19 + 35</answer>", t);
    SCORE(1, "countdown", NULL, "<answer>1</answer> no <answer>(35+19)+44</answer>", t);
    SCORE(1, "countdown", NULL, "<answer>\n44\t+\n (19 +\r\n35)\n</answer>", t);
    SCORE(0.1, "countdown", NULL, "<answer>44 + 19</answer>", t);
    SCORE(0.1, "countdown", NULL, "<answer>44 + 19 + 35 = 98</answer>", t);
    SCORE(0.1, "countdown", NULL, "<answer>98</answer>", t);
    SCORE(0.1, "countdown", NULL, "<answer>44+19+35+(</answer>", t);
    SCORE(0, "countdown", NULL, "44 + 19 + 35", t);
    SCORE(1, "countdown", "{\"all\":false}", "<answer>44*2/2</answer>",
          "{\"target\":44,\"numbers\":[44,2,2,7]}");
    SCORE(0.1, "countdown", "{\"all\":false}", "<answer>2*22</answer>",
          "{\"target\":44,\"numbers\":[44,2,2,7]}");
    assert_true(isnan(score("countdown", NULL, "<answer>1</answer>", "98")));
}

/* ---- form ---- */

static void tags(void **state)
{
    const char *partial = "{\"partial\":true}", *own = "{\"tags\":[\"plan\"]}";

    (void)state;
    SCORE(1, "tags", NULL, "<think>a</think>\n<answer>b</answer>\n", "");
    SCORE(0, "tags", NULL, "x <think>a</think><answer>b</answer>", "");
    SCORE(0, "tags", NULL, "<think>a</think><answer>b</answer> x", "");
    SCORE(0, "tags", NULL, "<answer>b</answer><think>a</think>", "");
    SCORE(0, "tags", NULL, "<think>a</think><think>a</think><answer>b</answer>", "");
    SCORE(0.4, "tags", partial, "<think>a</think>", "");
    SCORE(0.8, "tags", partial, "x<think>a</think><answer>b</answer>", "");
    SCORE(1, "tags", own, "<plan></plan>", "");
}

static void patterns(void **state)
{
    char *hard = vl_alloc(60001);

    (void)state;
    SCORE(1, "regex", "{\"pattern\":\"^(?s)<think>.*</think>\"}", "<think>\n</think> x", "");
    SCORE(0, "regex", "{\"pattern\":\"^x\"}", "ax", "");
    memset(hard, 'a', 60000);
    /* 2^60000 ways: the limit of steps makes it a failure, not a 0 */
    assert_true(isnan(score("regex", "{\"pattern\":\"^(a|aa)+$|b(a+)+c\"}",
                            memcpy(hard + 59999, "!", 1) ? hard : "", "")));
    free(hard);
}

static void lengths(void **state)
{
    static const struct {
        const char *args;
        int64_t tokens;
        double x;
    } t[] = {
        { "{\"max\":100}", 0, 1 },
        { "{\"max\":100}", 100, 1 },
        { "{\"max\":100}", 150, 0.5 },
        { "{\"max\":100}", 200, 0 },
        { "{\"max\":100}", 1000, 0 },
        { "{\"max\":100,\"width\":10}", 105, 0.5 },
        { "{\"min\":10}", 5, 0.5 },
        { "{\"min\":10,\"max\":20}", 15, 1 },
        { "{\"target\":50,\"width\":100}", 75, 0.75 },
        { "{\"target\":50,\"width\":0}", 51, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct vl_score s = { 0 };

        run("length", t[i].args, "", 0, "", t[i].tokens, &s);
        if (!(fabs(s.score - t[i].x) <= 1e-12))
            fail_msg("%s, %d tokens: %g", t[i].args, (int)t[i].tokens, s.score);
        vl_score_free(&s);
    }
}

static void json_texts(void **state)
{
    const char *a = "{\"schema\":{\"type\":\"object\",\"required\":[\"x\"]}}";

    (void)state;
    SCORE(1, "json", NULL, "{\"a\": [1, 2.5, null]}", "");
    SCORE(0, "json", NULL, "{\"a\": }", "");
    SCORE(1, "json", NULL, "Here:\n```json\n{\"a\": 1}\n```\nthanks", "");
    SCORE(1, "json", a, "{\"x\":1}", "");
    SCORE(0, "json", a, "{\"y\":1}", "");
}

static void schemas(void **state)
{
    static const struct {
        const char *schema, *yes, *no; /* texts, separated by blanks that JSON has not: ";" */
    } t[] = {
        { "true", "1;null", "" },
        { "false", "", "1;{}" },
        { "{}", "1;[]", "" },
        { "{\"type\":\"integer\"}", "1;-3;2.0", "2.5;\"1\";null;true" },
        { "{\"type\":[\"string\",\"null\"]}", "\"\";null", "0;[]" },
        { "{\"enum\":[1,\"a\",[2]]}", "1.0;\"a\";[2]", "2;\"b\";[];true" },
        { "{\"const\":{\"a\":1}}", "{\"a\":1}", "{};{\"a\":2}" },
        { "{\"properties\":{\"a\":{\"type\":\"number\"}},\"required\":[\"a\"]}",
          "{\"a\":1};{\"a\":1,\"b\":2};[]", "{};{\"a\":\"1\"}" },
        { "{\"properties\":{\"a\":true},\"additionalProperties\":false}", "{};{\"a\":1}",
          "{\"b\":1}" },
        { "{\"additionalProperties\":{\"type\":\"string\"}}", "{\"b\":\"\"}", "{\"b\":1}" },
        { "{\"minProperties\":1,\"maxProperties\":2}", "{\"a\":1};{\"a\":1,\"b\":1}",
          "{};{\"a\":1,\"b\":1,\"c\":1}" },
        { "{\"items\":{\"type\":\"number\"},\"minItems\":1,\"maxItems\":2}", "[1];[1,2]",
          "[];[1,2,3];[\"a\"]" },
        { "{\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":\"number\"}}",
          "[];[\"a\"];[\"a\",1]", "[1];[\"a\",\"b\"]" },
        { "{\"uniqueItems\":true}", "[1,2];[1,\"1\"];[true,1]", "[1,1.0];[{\"a\":1},{\"a\":1}]" },
        { "{\"minimum\":1,\"exclusiveMaximum\":3}", "1;2.9;\"x\"", "0.5;3" },
        { "{\"maximum\":1,\"exclusiveMinimum\":0}", "1;0.5", "0;2" },
        { "{\"multipleOf\":0.1}", "0.3;2", "0.25" },
        { "{\"minLength\":2,\"maxLength\":3}", "\"\xC3\xA9\xC3\xA9\";\"abc\"",
          "\"\xC3\xA9\";\"abcd\"" },
        { "{\"pattern\":\"^a+$\"}", "\"aa\";5", "\"ab\"" },
        { "{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5}]}", "\"a\";6", "4" },
        { "{\"oneOf\":[{\"minimum\":5},{\"multipleOf\":2}]}", "4;7", "6;3" },
        { "{\"allOf\":[{\"minimum\":5},{\"multipleOf\":2}]}", "6", "4;7" },
        { "{\"not\":{\"type\":\"null\"}}", "1", "null" },
        { "{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/"
          "t\"}}}},"
          "\"$ref\":\"#/$defs/t\"}",
          "{\"next\":{\"next\":{}}}", "{\"next\":{\"next\":1}}" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct vl_schema *s;
        struct vl_err e = { 0 };

        if (vl_schema_new(&s, t[i].schema, strlen(t[i].schema), "schema", &e))
            fail_msg("%s: %s", t[i].schema, e.msg);
        for (int yes = 0; yes < 2; yes++) {
            char *texts = vl_strdup(yes ? t[i].yes : t[i].no), *rest = texts, *text;

            while ((text = strsep(&rest, ";")) && *text) {
                struct vl_json j;
                struct vl_buf why = { 0 };
                int got;

                assert_int_equal(vl_json_parse(&j, text, strlen(text), "text", &e), 0);
                got = vl_schema_check(s, &j, 0, &why);
                if (got != yes || (!got && !why.n))
                    fail_msg("%s with %s: %d %s", text, t[i].schema, got, why.n ? why.s : "");
                vl_buf_free(&why);
                vl_json_free(&j);
            }
            free(texts);
        }
        vl_schema_free(s);
    }
}

static void schemas_that_are_refused(void **state)
{
    static const char *const t[][2] = {
        { "{\"typ\":\"object\"}", "the keyword 'typ'" },
        { "{\"properties\":{\"a\":{\"format\":\"date\"}}}", "the keyword 'format'" },
        { "{\"typ\\u0065\":\"object\"}", "the keyword 'type'" },
        { "{\"type\":\"text\"}", "type must be null, boolean" },
        { "{\"items\":[{}]}", "items must be a schema" },
        { "{\"anyOf\":[]}", "anyOf must be a list" },
        { "{\"minItems\":-1}", "minItems must be a whole number" },
        { "{\"multipleOf\":0}", "multipleOf must be a number above 0" },
        { "{\"pattern\":\"(\"}", "pattern (" },
        { "{\"$ref\":\"#/$defs/none\"}", "$ref must be" },
        { "[]", "is no schema" },
        { "{", "not JSON" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct vl_schema *s;
        struct vl_err e = { 0 };

        assert_int_equal(vl_schema_new(&s, t[i][0], strlen(t[i][0]), "schema", &e), VL_E_USAGE);
        if (!strstr(e.msg, t[i][1]))
            fail_msg("%s: %s", t[i][0], e.msg);
    }
}

/* A schema that only refers to itself, and one that branches at each level, end at a limit. */
static void schemas_that_do_not_end(void **state)
{
    static const char *const t[] = {
        "{\"$ref\":\"#\"}",
        "{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}",
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct vl_schema *s;
        struct vl_err e = { 0 };
        struct vl_json j;
        struct vl_buf why = { 0 };

        assert_int_equal(vl_schema_new(&s, t[i], strlen(t[i]), "schema", &e), 0);
        assert_int_equal(vl_json_parse(&j, "1", 1, "text", &e), 0);
        assert_int_equal(vl_schema_check(s, &j, 0, &why), -1);
        assert_true(why.n > 0);
        vl_buf_free(&why);
        vl_json_free(&j);
        vl_schema_free(s);
    }
}

/* ---- sets of rules ---- */

static void several_rules_with_weights(void **state)
{
    static const char *const spec[] = { "source", "tags:0.25,tags=[\"a\"]",
                                        "length:-1,max=4,as=long" };
    struct vl_rule_set set = { 0 };
    struct vl_rule_in in = { .text = "<a>#### 5</a>", .n = 13, .truth = "5", .truth_n = 1 };
    struct vl_score s = { 0 };
    struct vl_err e = { 0 };
    int truth;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(vl_rule_set_add(&set, spec[i], &e), 0);
    in.tokens = 6;
    vl_rule_set_score(&set, &in, "openai/gsm8k", 12, &s);
    assert_null(s.why);
    assert_true(s.score == 1 + 0.25 - 0.5);
    assert_true(s.acc == 1);
    assert_string_equal(s.extra, "{\"score_source\":1,\"score_tags\":1,\"score_long\":0.5}");
    assert_true(vl_rule_set_covers(&set, "openai/gsm8k", 12, &truth) && truth);
    assert_false(vl_rule_set_covers(&set, "other", 5, &truth));
    vl_score_free(&s);
    vl_rule_set_free(&set);

    /* members of several rules carry their names, those of one do not */
    assert_int_equal(vl_rule_set_json(&set,
                                      "[{\"name\":\"math_dapo\",\"weight\":2},"
                                      "\"choice:0,choices=AB,as=c\"]",
                                      &e),
                     0);
    in.text = "Answer: A";
    in.n = 9;
    in.truth = "A";
    vl_rule_set_score(&set, &in, "", 0, &s);
    assert_string_equal(
        s.extra, "{\"score_math_dapo\":1,\"math_dapo_pred\":\"A\",\"score_c\":1,\"c_pred\":\"A\"}");
    assert_true(s.score == 2);
    vl_score_free(&s);
    vl_rule_set_free(&set);
    assert_int_equal(vl_rule_set_add(&set, "choice", &e), 0);
    in.truth = "Z";
    vl_rule_set_score(&set, &in, "", 0, &s);
    assert_non_null(strstr(s.why, "choice: the ground truth 'Z'"));
    vl_score_free(&s);
    vl_rule_set_free(&set);
}

static void specs_that_are_refused(void **state)
{
    static const char *const t[][2] = {
        { "maths", "there is no scorer 'maths'; there are source" },
        { "", "there is no scorer ''" },
        { "math:heavy", "the weight heavy is no number" },
        { "math:\"1\"", "the weight of math is no number from" },
        { "math:1e7", "the weight of math is no number from" },
        { "gsm8k,score=1e31", "score is 1e31; give a number from" },
        { "gsm8k,method", "'method' is no member=value" },
        { "gsm8k,method=loose", "method is \"loose\"; give \"strict\"" },
        { "gsm8k,pattern=x", "takes no 'pattern'; it takes method|score|format_score" },
        { "length", "needs min, max or target" },
        { "length,min=5,max=3", "min 5 is above max 3" },
        { "regex", "needs pattern" },
        { "regex,pattern=(", "missing closing parenthesis" },
        { "tags,tags=[\"a b\"]", "give a list of names" },
        { "tags,tags=[\"a\"]x", "give a list of names" },
        { "tags,as=\"a\"x", "follows a value" },
        { "json,schema=none.json", "none.json" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct vl_rule_set set = { 0 };
        struct vl_err e = { 0 };

        assert_int_not_equal(vl_rule_set_add(&set, t[i][0], &e), 0);
        if (!strstr(e.msg, t[i][1]))
            fail_msg("%s: %s", t[i][0], e.msg);
        vl_rule_set_free(&set);
    }
}

static void sources_of_the_users(void **state)
{
    struct vl_rule_set set = { 0 };
    struct vl_err e = { 0 };
    struct vl_score s = { 0 };
    struct vl_rule_in in = { .text = "so 5", .n = 4, .truth = "5", .truth_n = 1 };
    struct vl_buf known = { 0 };
    const struct vl_rule *rule;

    (void)state;
    assert_int_equal(vl_rule_set_one(&set, NULL, NULL, &e), 0);
    assert_int_equal(
        vl_rule_set_dispatch(&set,
                             "{\"mine\":\"gsm8k\",\"hard/*\":\"lighteval/MATH\",\"openai/gsm8k\":"
                             "{\"name\":\"gsm8k\",\"method\":\"flexible\",\"score\":3}}",
                             &e),
        0);
    assert_non_null(vl_rule_set_find(&set, set.use, "mine", 4, &rule));
    assert_string_equal(rule->name, "gsm8k");
    assert_non_null(vl_rule_set_find(&set, set.use, "hard/7", 6, &rule));
    assert_string_equal(rule->name, "math");
    assert_non_null(vl_rule_set_find(&set, set.use, "aime99", 6, &rule));
    assert_null(vl_rule_set_find(&set, set.use, "min", 3, &rule));
    vl_rule_set_score(&set, &in, "openai/gsm8k", 12, &s);
    assert_true(s.score == 3);
    vl_rule_set_sources(&set, &known);
    assert_true(!strncmp(known.s, "mine, hard/*, openai/gsm8k, exact, ", 35));
    vl_score_free(&s);
    vl_buf_free(&known);
    vl_rule_set_free(&set);
    assert_int_equal(vl_rule_set_dispatch(&set, "{\"mine\":\"gsm9k\"}", &e), VL_E_USAGE);
    assert_non_null(strstr(e.msg, "no scorer 'gsm9k'"));
    vl_rule_set_free(&set);
}

/* ---- members to columns ---- */

static void members_become_columns(void **state)
{
    static char *const extra[] = { "{\"a\":1}", NULL, "{\"b\":\"x\",\"a\":true}",
                                   "{\"a\":2,\"c\":null,\"a\":3}" };
    struct vl_score s[4] = { { 0 } };
    struct vl_reward_extras x = { 0 };
    struct vl_err e = { 0 };
    struct vl_buf many = { 0 };

    (void)state;
    for (int i = 0; i < 4; i++)
        s[i].extra = extra[i];
    assert_int_equal(vl_reward_extras_read(&x, s, 4, &e), 0);
    assert_int_equal(x.n, 3);
    assert_string_equal(x.e[0].name, "a");
    assert_int_equal(x.e[0].text.n, strlen("1nulltrue3")); /* the last of two holds */
    assert_memory_equal(x.e[0].text.s, "1nulltrue3", x.e[0].text.n);
    assert_int_equal(x.e[0].offsets[2], 5);
    assert_true(x.e[0].number && x.e[0].number[2] == 1 && isnan(x.e[0].number[1]));
    assert_memory_equal(x.e[1].text.s, "nullnull\"x\"null", x.e[1].text.n);
    assert_null(x.e[1].number); /* no numbers: no mean */
    assert_non_null(x.e[2].number);
    vl_reward_extras_free(&x);
    for (int i = 0; i < 257; i++)
        vl_buf_printf(&many, "%c\"m%d\":1", i ? ',' : '{', i);
    vl_buf_ch(&many, '}');
    s[0].extra = many.s;
    assert_int_equal(vl_reward_extras_read(&x, s, 1, &e), VL_E_DATA);
    assert_non_null(strstr(e.msg, "row 0: the scorers' answers have more than 256"));
    vl_reward_extras_free(&x);
    vl_buf_free(&many);
}

/* ---- texts made to hurt ---- */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Every rule on parts repeated to `bytes`: each within the limit, and what it gives is a score or a
 * reason. */
static void hurt(size_t bytes, double limit)
{
    static const char *const part[] = {
        "{",          "}",         "\\boxed{", "\\boxed{}", "\\boxed ", "\\fbox{1}", "\\frac{",
        "#### 1",     "####",      "$",        "$1$",       "\\(",      "answer",    "Answer: ",
        "answer is ", "option ",   "<answer>", "</answer>", "<think>",  "</think>",  "1,234,",
        "1 ",         " ",         "\n",       "-",         ",",        "[",         "\"",
        "\\",         "\\text{",   "\\sqrt",   "is ",       ". ",       "\\pi",      "```\n",
        "\xFF\xC3",   "\xCE\xA3'", "_",        "^",         "million",  "^\\circ",   "degrees ",
        "= ",         "\\left(",   "=",        "abc",       "or ",      "the ",
    };
    struct vl_buf b = { 0 };

    for (size_t k = 0; k <= sizeof part / sizeof *part; k++) {
        size_t n = k < sizeof part / sizeof *part ? strlen(part[k]) : 1; /* the last one is NUL */

        vl_buf_reset(&b);
        while (b.n < bytes)
            vl_buf_add(&b, k < sizeof part / sizeof *part ? part[k] : "", n);
        for (const struct vl_rule *r = vl_rules(); r->name; r++) {
            static const char *const args[] = { "length", "{\"max\":5}", "regex",
                                                "{\"pattern\":\"(?s)<think>.*</think>\"}" };
            double from = seconds(), took;
            struct vl_score s = { 0 };
            const char *a = NULL;

            for (size_t m = 0; m < 4; m += 2)
                if (!strcmp(r->name, args[m]))
                    a = args[m + 1];
            run(r->name, a, b.s, b.n, "{\"target\":5,\"numbers\":[5]}", 9, &s);
            took = seconds() - from;
            if (took > limit)
                fail_msg("%s takes %.2f s of %zu bytes of '%s'", r->name, took, b.n,
                         k < sizeof part / sizeof *part ? part[k] : "NUL");
            assert_true(s.why || isfinite(s.score));
            vl_score_free(&s);
        }
    }
    vl_buf_free(&b);
}

static void rules_take_linear_time(void **state)
{
    (void)state;
    hurt(200000, 0.5); /* what is quadratic takes minutes */
}

static void a_response_of_10_mb(void **state)
{
    struct vl_buf b = { 0 };

    (void)state;
    while (b.n < 10000000)
        vl_buf_str(&b, "so {we} get \\frac{1}{2} and $x = 3$, answer: 7 or #### 8. ");
    vl_buf_str(&b, "\\boxed{5} #### 5");
    for (const struct vl_rule *r = vl_rules(); r->name; r++) {
        double from = seconds();
        struct vl_score s = { 0 };

        run(r->name, strcmp(r->name, "length") ? NULL : "{\"max\":5}", b.s, b.n, "5", 9, &s);
        if (seconds() - from > 3)
            fail_msg("%s takes %.1f s", r->name, seconds() - from);
        if (!strcmp(r->name, "math") || !strcmp(r->name, "math_verify") ||
            !strcmp(r->name, "gsm8k"))
            assert_true(s.score == 1);
        vl_score_free(&s);
    }
    vl_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_that_mean_the_same),
        cmocka_unit_test(where_the_answer_is),
        cmocka_unit_test(geo3k_parts),
        cmocka_unit_test(letters),
        cmocka_unit_test(countdown_equations),
        cmocka_unit_test(tags),
        cmocka_unit_test(patterns),
        cmocka_unit_test(lengths),
        cmocka_unit_test(json_texts),
        cmocka_unit_test(schemas),
        cmocka_unit_test(schemas_that_are_refused),
        cmocka_unit_test(schemas_that_do_not_end),
        cmocka_unit_test(several_rules_with_weights),
        cmocka_unit_test(specs_that_are_refused),
        cmocka_unit_test(sources_of_the_users),
        cmocka_unit_test(members_become_columns),
        cmocka_unit_test(rules_take_linear_time),
        cmocka_unit_test(a_response_of_10_mb),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
