/* test_reward.c - recorded scores of the rule scorers, dispatch, their arguments, answers. */
#include "libverl/reward/rules.h"
#include "formats/json.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *tests_dir(void)
{
    const char *d = getenv("VERL_TESTS");

    return d ? d : "tests";
}

static void read_golden(const char *name, struct vl_buf *text, struct vl_json *j)
{
    char path[300];
    struct vl_err e = { 0 };
    FILE *f;
    int c;

    snprintf(path, sizeof path, "%s/golden/rewards/%s.json", tests_dir(), name);
    f = fopen(path, "r");
    if (!f)
        fail_msg("%s: run from the repository root or set VERL_TESTS", path);
    while (f && (c = getc(f)) != EOF)
        vl_buf_ch(text, (char)c);
    fclose(f);
    assert_int_equal(vl_json_parse(j, text->s, text->n, path, &e), 0);
}

/* The rule's input for one case; bufs own the text. */
static void case_input(const struct vl_json *j, int64_t c, struct vl_rule_in *in,
                       struct vl_buf *text, struct vl_buf *truth, struct vl_buf *json)
{
    int64_t t = vl_json_get(j, c, "ground_truth");

    vl_buf_reset(text);
    vl_buf_reset(truth);
    vl_buf_reset(json);
    vl_json_str(j, vl_json_get(j, c, "solution_str"), text);
    vl_json_raw(j, t, json);
    if (!vl_json_str(j, t, truth))
        vl_json_raw(j, t, truth);
    in->text = text->n ? text->s : "";
    in->n = text->n;
    in->truth = truth->n ? truth->s : "";
    in->truth_n = truth->n;
    in->truth_json = json->s;
    in->truth_json_n = json->n;
}

static double number(const struct vl_json *j, int64_t i)
{
    double x = NAN;
    int b;

    if (vl_json_bool(j, i, &b))
        return b;
    assert_true(vl_json_f64(j, i, &x));
    return x;
}

/* Whether the recorded pred is the one kept in the score's further members. */
static int pred_differs(const struct vl_json *j, int64_t want, const struct vl_score *got)
{
    struct vl_buf a = { 0 }, b = { 0 };
    struct vl_json x = { 0 };
    struct vl_err e = { 0 };
    int64_t p = vl_json_get(j, want, "pred"), q;
    int differs;

    if (p < 0)
        p = vl_json_get(j, want, "extracted");
    if (p < 0)
        return 0;
    assert_int_equal(vl_json_parse(&x, got->extra, strlen(got->extra), "extra", &e), 0);
    q = vl_json_get(&x, 0, "pred");
    vl_json_str(j, p, &a);
    vl_json_str(&x, q, &b);
    p = vl_json_get(j, want, "format_correctness");
    if (p >= 0 && number(j, p) != number(&x, vl_json_get(&x, 0, "format")))
        vl_buf_str(&b, "(format)");
    p = p < 0 ? vl_json_get(j, want, "pred") : vl_json_get(j, want, "extracted");
    differs = vl_json_is(j, p, VL_JSON_NULL) != vl_json_is(&x, q, VL_JSON_NULL) || a.n != b.n ||
              (a.n && memcmp(a.s, b.s, a.n));
    vl_json_free(&x);
    vl_buf_free(&a);
    vl_buf_free(&b);
    return differs;
}

/* Compares one case; 1 when it differs. `score` is a number or an object with score, acc, pred. */
static int case_differs(const struct vl_json *j, int64_t c, const struct vl_score *got)
{
    int64_t want = vl_json_get(j, c, "score");
    double score =
        number(j, vl_json_is(j, want, VL_JSON_OBJECT) ? vl_json_get(j, want, "score") : want);
    double acc = vl_json_get(j, want, "acc") >= 0 ? number(j, vl_json_get(j, want, "acc")) : score;

    return got->why || !(fabs(got->score - score) <= 1e-9) || !(fabs(got->acc - acc) <= 1e-9) ||
           pred_differs(j, want, got);
}

static void run_golden(const char *name, const char *rule_name, int64_t at_least)
{
    const struct vl_rule *rule = rule_name ? vl_rule_named(rule_name) : NULL;
    struct vl_buf text = { 0 }, s = { 0 }, truth = { 0 }, json = { 0 }, args = { 0 };
    struct vl_json j;
    int64_t bad = 0, c = 1;

    read_golden(name, &text, &j);
    assert_true((int64_t)j.node[0].count >= at_least);
    for (uint32_t k = 0; k < j.node[0].count; k++, c = j.node[c].next) {
        struct vl_rule_args a;
        struct vl_rule_in in = { .args = &a };
        struct vl_score got = { 0 };
        struct vl_err e = { 0 };

        vl_buf_reset(&args);
        vl_json_raw(&j, vl_json_get(&j, c, "kwargs"), &args);
        assert_int_equal(vl_rule_args_parse(&a, rule, args.n ? args.s : NULL, "--args", &e), 0);
        case_input(&j, c, &in, &s, &truth, &json);
        rule->score(&in, &got);
        if (case_differs(&j, c, &got)) {
            print_error("%s case %u: score %g acc %g (%s) for '%.100s', truth '%.60s'\n", name, k,
                        got.score, got.acc, got.why ? got.why : "-", in.text, in.truth);
            bad++;
        }
        vl_score_free(&got);
    }
    vl_json_free(&j);
    vl_buf_free(&text);
    vl_buf_free(&s);
    vl_buf_free(&truth);
    vl_buf_free(&json);
    vl_buf_free(&args);
    assert_int_equal(bad, 0);
}

static void gsm8k_scores_as_recorded(void **state)
{
    (void)state;
    run_golden("gsm8k_strict", "gsm8k", 176);
    run_golden("gsm8k_flexible", "gsm8k", 176);
}

static void math_scores_as_recorded(void **state)
{
    (void)state;
    run_golden("math_reward", "math", 170);
    run_golden("math_dapo", "math_dapo", 151);
    run_golden("math_dapo_strict_box", "math_dapo", 25);
}

static void prime_math_scores_as_recorded(void **state)
{
    (void)state;
    run_golden("prime_math", "prime_math", 154);
}

static void search_scores_as_recorded(void **state)
{
    (void)state;
    run_golden("search_r1_em", "search_r1", 134);
    run_golden("search_r1_subem", "search_r1_subem", 134);
}

/* Python's lower(): a capital sigma at a word's end is final, and an apostrophe does not end it. */
static void search_lower_case_is_pythons(void **state)
{
    static const struct {
        const char *text, *target;
        int hit;
    } t[] = {
        { "<answer>\xCE\x91\xCE\xA3</answer>", "\xCE\xB1\xCF\x82", 1 },
        { "<answer>\xCE\x91\xCE\xA3</answer>", "\xCE\xB1\xCF\x83", 0 },
        { "<answer>\xCE\x91\xCE\xA3'\xCE\x91</answer>", "\xCE\xB1\xCF\x83\xCE\xB1", 1 },
        { "<answer>The U.S.A</answer>", "usa", 1 },
        { "<answer>a-b</answer>", "ab", 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct vl_rule_args a = { .score = 1 };
        char *json = vl_asprintf("{\"target\":[\"%s\"]}", t[i].target);
        struct vl_rule_in in = { .text = t[i].text, .n = strlen(t[i].text), .args = &a };
        struct vl_score got = { 0 };

        in.truth_json = json;
        in.truth_json_n = strlen(json);
        vl_score_search_r1(&in, &got);
        assert_true(got.score == t[i].hit);
        vl_score_free(&got);
        free(json);
    }
}

/* Every source of verl that has a rule here, and none that verl does not know. */
static void dispatch_as_recorded(void **state)
{
    struct vl_buf text = { 0 }, s = { 0 }, truth = { 0 }, json = { 0 }, source = { 0 };
    struct vl_rule_args a = { .score = 1 };
    struct vl_json j;
    int64_t c = 1, ruled = 0;

    (void)state;
    read_golden("default_dispatch", &text, &j);
    for (uint32_t k = 0; k < j.node[0].count; k++, c = j.node[c].next) {
        const struct vl_rule *rule;
        struct vl_rule_in in = { .args = &a };
        struct vl_score got = { 0 };
        int known = vl_json_get(&j, vl_json_get(&j, c, "score"), "error") < 0;

        vl_buf_reset(&source);
        vl_json_str(&j, vl_json_get(&j, c, "data_source"), &source);
        rule = vl_rule_for_source(source.s, source.n);
        assert_true(known == (rule != NULL));
        if (!rule)
            continue;
        ruled++;
        case_input(&j, c, &in, &s, &truth, &json);
        rule->score(&in, &got);
        assert_false(case_differs(&j, c, &got));
        vl_score_free(&got);
    }
    assert_int_equal(ruled, 24);
    assert_null(vl_rule_for_source("", 0));
    assert_null(vl_rule_for_source("openai/gsm8k ", 13));
    vl_json_free(&j);
    vl_buf_free(&text);
    vl_buf_free(&s);
    vl_buf_free(&truth);
    vl_buf_free(&json);
    vl_buf_free(&source);
}

static double score_of(const char *rule, const char *args, const char *text, const char *truth)
{
    struct vl_rule_args a;
    struct vl_err e = { 0 };
    struct vl_rule_in in = {
        .text = text, .n = strlen(text), .truth = truth, .truth_n = strlen(truth), .args = &a
    };
    struct vl_score got = { 0 };

    assert_int_equal(vl_rule_args_parse(&a, vl_rule_named(rule), args, "--args", &e), 0);
    vl_rule_named(rule)->score(&in, &got);
    assert_null(got.why);
    assert_true(got.acc == got.score);
    return got.score;
}

static void exact_ignores_space_around(void **state)
{
    (void)state;
    assert_true(score_of("exact", NULL, " 580\n", "580") == 1);
    assert_true(score_of("exact", NULL, "5 80", "580") == 0);
    assert_true(score_of("exact", NULL, "", "") == 1);
    assert_true(score_of("exact", NULL, "580", "58") == 0);
    assert_true(score_of("exact", "{\"score\":2,\"format_score\":-1}", "58", "580") == -1);
}

static void gsm8k_number_is_lenient(void **state)
{
    const char *m = "{\"method\":\"number\",\"format_score\":0.1}";

    (void)state;
    assert_true(score_of("gsm8k", m, "#### 72.", "72") == 1);
    assert_true(score_of("gsm8k", m, "#### 1,000.0", "1000") == 1);
    assert_true(score_of("gsm8k", m, "####$5", "5") == 1);
    assert_true(score_of("gsm8k", m, "so -0.50, done.", "-.5") == 1);
    assert_true(score_of("gsm8k", m, "#### 007", "7") == 1);
    assert_true(score_of("gsm8k", m, "it is 0.0", "0") == 1);
    assert_true(score_of("gsm8k", m, "it is 10", "1") == 0.1);
    assert_true(score_of("gsm8k", m, "a... b, c.", "1") == 0);
    assert_true(score_of("gsm8k", m, "#### none", "1") == 0);
    assert_true(score_of("gsm8k", m, "", "1") == 0);
}

/* What models put around a number after the marker. */
static void gsm8k_number_finds_it_on_its_line(void **state)
{
    static const char *const text[] = {
        "#### **72**",   "#### \\$72",         "#### = 72",           "#### x = 72 apples",
        "#### (72)",     "#### +72",           "#### \xC2\xA3 72.00", "####\n\n 72",
        "#### 72 of 80", "#### 72\nStep 9: 8", "#### . 72",           "9 #### a72",
    };
    const char *m = "{\"method\":\"number\",\"format_score\":0.1}";

    (void)state;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        assert_true(score_of("gsm8k", m, text[i], "72") == 1);
    assert_true(score_of("gsm8k", m,
                         "#### \xE2\x88\x92"
                         "72",
                         "-72") == 1);
    assert_true(score_of("gsm8k", m,
                         "#### \xE2\x88\x92"
                         "72",
                         "72") == 0.1);
    assert_true(score_of("gsm8k", m,
                         "it is \xE2\x88\x92"
                         ".5",
                         "-0.5") == 1);
    assert_true(score_of("gsm8k", m,
                         "#### \xE2\x88\x92"
                         "0",
                         "0") == 1);
    assert_true(score_of("gsm8k", m, "\xE2\x88\x92#### 72", "72") == 1);
    assert_true(score_of("gsm8k", m, "#### none\n72", "72") == 0);
}

static void arguments_are_checked(void **state)
{
    struct vl_rule_args a;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(
        vl_rule_args_parse(&a, vl_rule_named("exact"), "{\"method\":\"strict\"}", "--args", &e),
        VL_E_USAGE);
    assert_non_null(strstr(e.msg, "takes no 'method'; it takes score|format_score"));
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_rule_args_parse(&a, NULL, "{\"method\":\"loose\"}", "--args", &e),
                     VL_E_USAGE);
    assert_non_null(strstr(e.msg, "method is \"loose\""));
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_rule_args_parse(&a, NULL, "{\"score\":", "--args", &e), VL_E_USAGE);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_rule_args_parse(&a, NULL, "3", "--args", &e), VL_E_USAGE);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_rule_args_parse(&a, NULL, "{\"scor\":1}", "--args", &e), VL_E_USAGE);
}

static void answers_are_scores_or_reasons(void **state)
{
    static const struct {
        const char *json;
        double score, acc;
        const char *extra, *why; /* why NULL: scored */
    } t[] = {
        { "1.5", 1.5, 1.5, NULL, NULL },
        { " true ", 1, 1, NULL, NULL },
        { "false", 0, 0, NULL, NULL },
        { "[0.5, \"x\"]", 0.5, 0.5, NULL, NULL },
        { "{\"score\":-1,\"acc\":true,\"pred\":\"a\\u0000b\",\"id\":4}", -1, 1,
          "{\"pred\":\"a\\u0000b\"}", NULL },
        { "{\"score\":0,\"acc\":null}", 0, 0, NULL, NULL },
        { "{\"error\":\"no\\ntests\"}", 0, 0, NULL, "no tests" },
        { "{\"score\":1,\"error\":\"x\"}", 1, 1, "{\"error\":\"x\"}", NULL },
        { "", 0, 0, NULL, "answered nothing" },
        { "hello", 0, 0, NULL, "answered hello" },
        { "1 2", 0, 0, NULL, "answered 1 2" },
        { "NaN", 0, 0, NULL, "answered NaN" },
        { "\"NaN\"", 0, 0, NULL, "its score is NaN" },
        { "{\"score\":\"Infinity\"}", 0, 0, NULL, "not a finite" },
        { "1e400", 0, 0, NULL, "not a finite" },
        { "1e39", 0, 0, NULL, "not a finite" },
        { "{\"score\":1,\"acc\":\"yes\"}", 0, 0, NULL, "its acc is not" },
        { "{\"score\":\"1\"}", 0, 0, NULL, "answered {" },
        { "\"1\"", 0, 0, NULL, "answered \"1\"" },
        { "null", 0, 0, NULL, "answered null" },
        { "[]", 0, 0, NULL, "answered []" },
        { "{}", 0, 0, NULL, "answered {}" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct vl_score s = { 0 };

        vl_score_parse(&s, t[i].json, strlen(t[i].json));
        if (!t[i].why != !s.why || (s.why && !strstr(s.why, t[i].why)))
            fail_msg("%s: %s", t[i].json, s.why ? s.why : "scored");
        if (!s.why) {
            assert_true(s.score == t[i].score && s.acc == t[i].acc);
            assert_int_equal(!s.extra, !t[i].extra);
            if (s.extra)
                assert_string_equal(s.extra, t[i].extra);
        }
        vl_score_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gsm8k_scores_as_recorded),
        cmocka_unit_test(math_scores_as_recorded),
        cmocka_unit_test(prime_math_scores_as_recorded),
        cmocka_unit_test(search_scores_as_recorded),
        cmocka_unit_test(search_lower_case_is_pythons),
        cmocka_unit_test(dispatch_as_recorded),
        cmocka_unit_test(exact_ignores_space_around),
        cmocka_unit_test(gsm8k_number_is_lenient),
        cmocka_unit_test(gsm8k_number_finds_it_on_its_line),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(answers_are_scores_or_reasons),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
