/* test_judge.c - chat completions, requests and the default score. */
#include "libverl/reward/judge.h"
#include "libverl/base/jq.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reads(const char *json, const char *text, const char *why)
{
    struct vl_judge_answer a;

    vl_judge_read(&a, json, strlen(json));
    if (text) {
        assert_null(a.why);
        assert_string_equal(a.text.s, text);
    } else {
        assert_non_null(a.why);
        assert_string_equal(a.why, why);
    }
    vl_judge_answer_free(&a);
}

static void completions(void **state)
{
    (void)state;
    reads("{\"choices\":[{\"message\":{\"content\":\"a\\nb\"}}]}", "a\nb", NULL);
    reads("{\"choices\":[{\"message\":{\"content\":[{\"text\":\"a\"},{\"text\":\"b\"}]}}]}", "ab",
          NULL);
    reads("{\"error\":null,\"choices\":[{\"message\":{\"content\":\"x\",\"refusal\":\"\"}}]}", "x",
          NULL);
    reads("{\"error\":{\"message\":\"too\\nbusy\"}}", NULL, "the judge's server says: too busy");
    reads("{\"error\":\"x\",\"choices\":[{\"message\":{\"content\":\"y\"}}]}", NULL,
          "the judge's server says: x");
    reads("{\"choices\":[{\"message\":{\"content\":null,\"refusal\":\"no\"}}]}", NULL,
          "the judge refused: no");
    reads("{\"choices\":[{\"message\":{\"content\":\"\"},\"finish_reason\":\"length\"}]}", NULL,
          "the judge wrote nothing; finish_reason: length");
    reads("{\"choices\":[]}", NULL, "the judge's answer has no choices: {\"choices\":[]}");
    reads("", NULL, "the judge's answer is not JSON");
    reads("<html>", NULL, "the judge's answer is not JSON: <html>");
}

/* One filter over one JSON text; "error" when it fails. */
static char *through(const char *filter, const char *json)
{
    struct vl_buf out = { 0 };
    struct vl_err e = { 0 };
    struct vl_jq *q = NULL;
    int64_t n = 0;

    assert_int_equal(vl_jq_open(&q, filter, NULL, &e), 0);
    if (vl_jq_run(q, json, strlen(json), 0, &out, &n, &e)) {
        vl_buf_reset(&out);
        vl_buf_str(&out, "error\n");
    }
    vl_jq_free(q);
    return vl_buf_detach(&out);
}

static void default_score(void **state)
{
    static const char *const c[][2] = {
        { "Score: 1", "1" },
        { "x\\nScore: 0.75\\n", "0.75" },
        { "Score: 0.2, no.\\nScore: 0.25.", "0.25" },
        { "**Score:** 0.5", "0.5" },
        { "**score**: **0**", "0" },
        { "SCORE = 1.0", "1.0" },
        { "Score: 8/10", "error" },
        { "Score: 1/10", "error" },
        { "Score: 10/10", "error" },
        { "Score: 1 / 5", "error" },
        { "Score: 80%", "error" },
        { "Score: 1%", "error" },
        { "Score: -0.5", "error" },
        { "Score: 2", "error" },
        { "Score: high", "error" },
        { "1", "error" },
        { "", "error" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof c / sizeof *c; k++) {
        char *json = vl_asprintf("{\"judge_text\":\"%s\"}", c[k][0]);
        char *got = through(vl_judge_default_filter, json);

        got[strcspn(got, "\n")] = 0;
        if (strcmp(got, "error") ? atof(got) != atof(c[k][1]) || !strcmp(c[k][1], "error")
                                 : strcmp(c[k][1], "error"))
            fail_msg("%s gave %s, not %s", c[k][0], got, c[k][1]);
        free(got);
        free(json);
    }
}

static void requests(void **state)
{
    static const char row[] =
        "{\"id\":0,\"solution_str\":\"s\",\"ground_truth\":null,\"prompt\":\"p\"}";
    char *program = vl_judge_program(".solution_str # a comment", "m\"odel", "{\"seed\": 5}");
    char *got = through(program, row);

    (void)state;
    assert_string_equal(got, "{\"request\":{\"model\":\"m\\\"odel\",\"seed\":5,\"messages\":"
                             "[{\"role\":\"user\",\"content\":\"s\"}]}}\n");
    free(got);
    free(program);
    program = vl_judge_program(vl_judge_default_request, "m", "{}");
    got = through(program, row);
    assert_non_null(strstr(got, "# Task\\np\\n\\n# Answer to grade\\ns\"}]}}"));
    free(got);
    free(program);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(completions),
        cmocka_unit_test(default_score),
        cmocka_unit_test(requests),
    };

    return cmocka_run_group_tests(t, NULL, NULL);
}
