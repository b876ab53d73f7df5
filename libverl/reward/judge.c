/* judge.c - chat completions, as a judge's answers. See judge.h. */
#include "libverl/reward/judge.h"

#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

/* A mark is a number from 0 to 1 on a line of its own kind, so that a number in the judge's
 * reasoning is never taken for it; 8/10 and 80% are not read as 8 and 80. */
const char vl_judge_default_request[] =
    "\"You grade an answer to a task. Say in a few sentences what is right and wrong in it. "
    "Then end with one line 'Score: X', where X is a number from 0 (worthless) to 1 (fully "
    "right).\\n\\n# Task\\n\" + "
    "(if .raw_prompt|type == \"array\" then "
    ".raw_prompt|map(\"[\\(.role)]\\n\\(.content)\")|join(\"\\n"
    "\") "
    "else .prompt end)"
    " + (if .ground_truth == null then \"\" else \"\\n\\n# Reference answer\\n\\(.ground_truth)\" "
    "end)"
    " + \"\\n\\n# Answer to grade\\n\" + .solution_str";

const char vl_judge_default_filter[] =
    "[.judge_text | scan(\"(?i)score\\\\W*?[:=][*\\\\s]*(-?[0-9]+(?:\\\\.[0-9]+)?)"
    "(?!\\\\s*[/%]|[0-9]|\\\\.[0-9])\")] | "
    "if length == 0 then error(\"the judge wrote no line 'Score: X'\") else last[0]|tonumber | "
    "if . < 0 or . > 1 then error(\"the judge's score \\(.) is not from 0 to 1\") else . end end";

void vl_judge_answer_free(struct vl_judge_answer *a)
{
    vl_buf_free(&a->text);
    free(a->why);
    *a = (struct vl_judge_answer){ 0 };
}

/* "WHAT: TEXT", TEXT cut and on one line. */
static void fail(struct vl_judge_answer *a, const char *what, const char *text, size_t n)
{
    size_t k = n < 200 ? n : 200;

    while (k < n && k && ((unsigned char)text[k] & 0xC0) == 0x80)
        k--; /* no half character */
    a->why = vl_asprintf("%s%s%.*s%s", what, n ? ": " : "", (int)k, text, k < n ? "..." : "");
    for (char *p = a->why; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = ' ';
}

static void fail_string(struct vl_judge_answer *a, const char *what, const struct vl_json *j,
                        int64_t i)
{
    struct vl_buf b = { 0 };

    if (!vl_json_str(j, i, &b))
        vl_json_raw(j, i, &b);
    fail(a, what, b.n ? b.s : "", b.n ? strlen(b.s) : 0);
    vl_buf_free(&b);
}

static void put_content(const struct vl_json *j, int64_t i, struct vl_buf *out)
{
    uint32_t c = (uint32_t)i + 1;

    if (!vl_json_is(j, i, VL_JSON_ARRAY)) {
        vl_json_str(j, i, out);
        return;
    }
    for (uint32_t k = 0; k < j->node[i].count; k++, c = j->node[c].next)
        vl_json_str(j, vl_json_get(j, c, "text"), out);
}

static void read_choice(struct vl_judge_answer *a, const struct vl_json *j, int64_t choice)
{
    int64_t message = vl_json_get(j, choice, "message");
    int64_t finish = vl_json_get(j, choice, "finish_reason");
    int64_t refusal = vl_json_get(j, message, "refusal");

    put_content(j, vl_json_get(j, message, "content"), &a->text);
    if (vl_json_is(j, refusal, VL_JSON_STRING) && !a->text.n)
        fail_string(a, "the judge refused", j, refusal);
    else if (message < 0)
        fail(a, "the judge's answer has no message", "", 0);
    else if (!a->text.n)
        fail_string(a, "the judge wrote nothing; finish_reason", j, finish);
}

/* Parses the body and takes what all endpoints share. j is to be freed in any case. */
static void read_shared(struct vl_judge_answer *a, struct vl_json *j, const char *json, size_t n)
{
    struct vl_err e = { 0 };
    int64_t error, message, usage;

    *a = (struct vl_judge_answer){ 0 };
    if (vl_json_parse(j, json, n, "answer", &e)) {
        fail(a, "the judge's answer is not JSON", json, strnlen(json, n));
        return;
    }
    error = vl_json_get(j, 0, "error");
    message = vl_json_get(j, error, "message");
    usage = vl_json_get(j, 0, "usage");
    vl_json_i64(j, vl_json_get(j, usage, "prompt_tokens"), &a->prompt_tokens);
    vl_json_i64(j, vl_json_get(j, usage, "completion_tokens"), &a->completion_tokens);
    if (error >= 0 && !vl_json_is(j, error, VL_JSON_NULL))
        fail_string(a, "the judge's server says", j, message >= 0 ? message : error);
}

void vl_judge_read(struct vl_judge_answer *a, const char *json, size_t n)
{
    struct vl_json j = { 0 };
    int64_t choice;

    read_shared(a, &j, json, n);
    if (!a->why) {
        choice = vl_json_at(&j, vl_json_get(&j, 0, "choices"), 0);
        if (choice < 0)
            fail(a, "the judge's answer has no choices", json, strnlen(json, n));
        else
            read_choice(a, &j, choice);
    }
    vl_json_free(&j);
}

void vl_judge_read_any(struct vl_judge_answer *a, const char *json, size_t n)
{
    struct vl_json j = { 0 };

    read_shared(a, &j, json, n);
    vl_json_free(&j);
}

char *vl_judge_program(const char *filter, const char *model, const char *params)
{
    struct vl_buf b = { 0 };

    vl_buf_printf(&b, "(%s\n) as $judge_request | {request: ({model: ", filter);
    vl_json_put_str(&b, model, strlen(model));
    vl_buf_printf(&b, "} + %s + ($judge_request|if type == \"object\" then . ", params);
    vl_buf_str(&b,
               "elif type == \"array\" then {messages: .} "
               "elif type == \"string\" then {messages: [{role: \"user\", content: .}]} "
               "else error(\"--judge-request gave \\(type), not a string, a list of messages or "
               "an object\") end))}");
    return vl_buf_detach(&b);
}
