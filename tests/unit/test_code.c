/* test_code.c - code from responses, test cases, comparison, and whole rows in boxes. */
#include "libverl/reward/rules.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void code_is(const char *text, struct vl_code_args a, int remote, const char *want)
{
    const char *code;
    size_t n;
    int is = vl_code_extract(text, strlen(text), &a, remote, &code, &n);

    if (!want ? is : !is || n != strlen(want) || memcmp(code, want, n))
        fail_msg("'%s' (remote %d): '%.*s', wanted '%s'", text, remote, is ? (int)n : 4,
                 is ? code : "none", want ? want : "none");
}

static void extraction(void **state)
{
    const struct vl_code_args verl = VL_CODE_ARGS;
    struct vl_code_args a = VL_CODE_ARGS;

    (void)state;
    code_is("a\n```python\nx = 1\n```\nb", verl, 0, "\nx = 1\n");
    code_is("```python\n1\n```\n```python\n2\n```", verl, 0, "\n2\n");
    code_is("```python\n1\n```\n```\n2\n```", verl, 0, "\n1\n");
    code_is("```python\nopen", verl, 0, "\nopen");
    code_is("```python3\n1\n```", verl, 0, "3\n1\n");
    code_is("print(1)", verl, 0, "print(1)");
    code_is("text ```\n1\n```", verl, 0, "text ");
    code_is("", verl, 0, "");
    code_is("a ```\n1\n``` ```py\n2\n```", verl, 1, "\n1\n");
    code_is("a ```py\n1\n```", verl, 1, "1\n");
    code_is("a ``` py \n1\n```", verl, 1, "1\n");
    code_is("a ```py3\n1\n```", verl, 1, "py3\n1\n");
    code_is("a ```x = 1```", verl, 1, "x = 1");
    code_is("print(1)", verl, 1, NULL);
    code_is("```py\n0\n``` ```python\n1\n```", verl, 1, "\n1\n");
    a.any_fence = 1;
    code_is("```python\n1\n``` and ```py\n2\n``` done", a, 0, "2\n");
    code_is("```\n1\n``` then ```", a, 0, "1\n");
    code_is("```\n1\n``` then ```py\n2", a, 0, "1\n");
    code_is("``` py\n2", a, 0, " py\n2");
    code_is("no code", a, 0, NULL);
    a = (struct vl_code_args)VL_CODE_ARGS;
    a.language = VL_CODE_C;
    code_is("```c\nint x;\n``` ```cpp\nint y;\n```", a, 0, "int x;\n");
    a.language = VL_CODE_CXX;
    code_is("```c\nint x;\n``` ```c++\nint y;\n```", a, 0, "int y;\n");
    code_is("```c\nint x;\n```", a, 0, NULL);
    a.language = VL_CODE_SHELL;
    code_is("```bash\necho\n``` ```Shell\nls\n```", a, 1, "ls\n");
}

static void cases_are(const char *truth, const char *want)
{
    struct vl_code_cases c;
    struct vl_err e = { 0 };
    struct vl_buf got = { 0 };

    if (vl_code_cases_open(&c, truth, strlen(truth), &e)) {
        vl_buf_str(&got, e.msg);
    } else {
        vl_buf_printf(&got, "%s", c.fn ? c.fn : "");
        for (int64_t k = 0; k < c.n && !e.code; k++) {
            vl_buf_ch(&got, '(');
            if (c.fn) {
                if (vl_code_case_args(&c, k, &got, &e))
                    vl_buf_str(&got, e.msg);
                vl_buf_ch(&got, '|');
                vl_code_case_value(&c, k, &got);
            } else {
                vl_code_case_text(&c, c.in[k], &got);
                vl_buf_ch(&got, '|');
                vl_code_case_text(&c, c.want[k], &got);
                vl_buf_ch(&got, '|');
                vl_code_case_text(&c, c.check[k], &got);
            }
            vl_buf_ch(&got, ')');
        }
    }
    if (!strstr(got.s, want))
        fail_msg("%s: '%s', wanted '%s'", truth, got.s, want);
    vl_code_cases_free(&c);
    vl_buf_free(&got);
}

static void test_cases(void **state)
{
    (void)state;
    cases_are("{\"inputs\":[\"1 2\\n\",[\"a\",\"b\"],5],\"outputs\":[\"3\",[\"x\",7],null]}",
              "(1 2\n|3|)(a\nb|x\n7|)(5|null|)");
    cases_are(
        "{\"fn_name\":\"f\",\"inputs\":[\"1\\n[2]\",[3,\"x\"]],\"outputs\":[\"[1]\",\"word\"]}",
        "f([1,[2]]|[1])([3,\"x\"]|\"word\")");
    cases_are("{\"fn_name\":null,\"inputs\":[\"1\"],\"outputs\":[\"2\"]}", "(1|2|)");
    cases_are("{\"assert_case\":[\"assert f() == 1\",\"assert True\"]}",
              "(||assert f() == 1)(||assert True)");
    cases_are("{\"inputs\":[],\"outputs\":[]}", "no test cases");
    cases_are("{\"inputs\":[\"1\"]}", "outputs is missing");
    cases_are("{\"outputs\":[\"1\"]}", "inputs is missing");
    cases_are("{\"inputs\":[\"1\",\"2\"],\"outputs\":[\"1\"]}", "2 inputs and 1 outputs");
    cases_are("{\"inputs\":\"1\",\"outputs\":[\"1\"]}", "inputs is missing");
    cases_are("[1]", "the ground truth is [1]");
    cases_are("72", "the ground truth is 72");
    cases_are("{\"inputs\":", "the ground truth");
    cases_are("{\"fn_name\":3,\"inputs\":[\"1\"],\"outputs\":[\"1\"]}", "not a name");
    cases_are("{\"fn_name\":\"f\",\"inputs\":[\"1\\nx\"],\"outputs\":[\"1\"]}",
              "the line 'x', not JSON");
    cases_are("{\"fn_name\":\"f\",\"inputs\":[\"\"],\"outputs\":[\"1\"]}", "the line '', not JSON");
    cases_are("{\"fn_name\":\"f\",\"inputs\":[7],\"outputs\":[\"1\"]}", "neither a list");
}

static void text_is(const char *out, const char *want, int exact, int is)
{
    if (vl_code_same_text(out, strlen(out), want, strlen(want), exact) != is)
        fail_msg("'%s' and '%s' (exact %d): %d", out, want, exact, !is);
}

static void texts(void **state)
{
    (void)state;
    text_is("1\n", "1", 0, 1);
    text_is("  1  \n\n", "1\n", 0, 1);
    text_is("1 \n2 \n", "1\n2", 0, 1); /* every line stripped */
    text_is("1\r\n2\r\n", "1\n2\n", 0, 1);
    text_is("1\n\n2", "1\n2", 0, 1); /* empty lines left out */
    text_is("1\n2", "1\n\n2\n", 0, 1);
    text_is("1\n2", " 1\n2 ", 0, 1);
    text_is("1\n2", "1 \n 2", 0, 1); /* the expected lines are stripped */
    text_is("", "", 0, 1);
    text_is("\n", "", 0, 1);
    text_is("", "1", 0, 0);
    text_is("1 2", "1\n2", 0, 0);
    text_is("2 1", "1 2", 0, 0); /* sets are not compared */
    text_is("0.333333", "0.333334", 0, 1);
    text_is("0.3333", "0.3334", 0, 0);
    text_is("1.0\n2.0", "1\n2", 0, 1);
    text_is("1.0 2.0", "1 2", 0, 0);   /* a line is one number */
    text_is("100000", "100001", 0, 0); /* digits are equal as they are */
    text_is("100000.0", "100001", 0, 1);
    text_is("-3", "-3.0", 0, 1);
    text_is("inf", "Infinity", 0, 1);
    text_is("nan", "nan2", 0, 0);
    text_is("0x10", "16", 0, 0);
    text_is("1_0.0", "10", 0, 1);
    text_is("1__0.0", "10", 0, 0);
    text_is("Yes", "YES", 0, 0);
    text_is("\xff\xfe", "\xff\xfe", 0, 1);
    text_is("a\n\n", "a", 1, 1);
    text_is("a ", "a", 1, 0);
    text_is("a\n", "a\n\n", 1, 1);
    text_is("1.0", "1", 1, 0);
}

static void value_is(const char *out, const char *want, int is)
{
    if (vl_code_same_value(out, strlen(out), want, strlen(want)) != is)
        fail_msg("'%s' and '%s': %d", out, want, !is);
}

static void values(void **state)
{
    (void)state;
    value_is("1", "1", 1);
    value_is("1", "1.0", 1);
    value_is("true", "1", 1);
    value_is("1", "\"1\"", 0);
    value_is("[1, 2]", "[1,2]", 1);
    value_is("[1, 2]", "[2,1]", 0);
    value_is("[1, 2]", "[[1,2]]", 1); /* in a list of one */
    value_is("1", "[1,9]", 1);
    value_is("[1]", "[1,2]", 0);
    value_is("{\"a\": 1, \"b\": [2]}", "{\"b\":[2.0],\"a\":1}", 1);
    value_is("{\"1\": 2}", "{\"1\":2}", 1);
    value_is("{\"a\": 1}", "{\"a\":1,\"b\":2}", 0);
    value_is("{\"a\": 1, \"c\": 2}", "{\"a\":1,\"b\":2}", 0);
    value_is("\"\\u00e9\"", "\"\xc3\xa9\"", 1);
    value_is("null", "null", 1);
    value_is("null", "0", 0);
    value_is("\"\"", "[]", 0);
    value_is("123456789012345678901234567890", "123456789012345678901234567890", 1);
    value_is("123456789012345678901234567890", "123456789012345678901234567891", 0);
    value_is("9007199254740993", "9007199254740992", 0);
    value_is("NaN", "NaN", 0);
    value_is("", "1", 0);
}

/* ---- rows ---- */

static struct vl_code_opts opts = { .box = VL_BOX_DEFAULTS };

/* The score of a response and, as JSON members, why. */
static void row_is(const char *response, const char *truth, struct vl_code_args a, double score,
                   const char *part)
{
    struct vl_rule_args args = { .code = a };
    struct vl_rule_in in = { .text = response,
                             .n = strlen(response),
                             .truth = truth,
                             .truth_n = strlen(truth),
                             .args = &args,
                             .code_opts = &opts };
    struct vl_score s = { 0 };

    vl_score_code(&in, &s);
    if (s.why ? !isnan(score) || !strstr(s.why, part)
              : isnan(score) || !(fabs(s.score - score) <= 1e-12) || !strstr(s.extra, part))
        fail_msg("%s\n%s: score %g (%s) %s, wanted %g %s", response, truth, s.score,
                 s.why ? s.why : "", s.extra ? s.extra : "", score, part);
    vl_score_free(&s);
}

static int have(const char *program)
{
    struct vl_err e = { 0 };

    if (!vl_box_check(&opts.box, program, &e))
        return 1;
    print_message("# without %s: %s\n", program, e.msg);
    return 0;
}

#define SUM                                                                                        \
    "{\"inputs\":[\"1 2\",\"3 4\",\"5 6\",\"-1 1\"],\"outputs\":[\"3\\n\",\"7\",\"11\",\"0\"]}"
#define PY(s) "Here:\n```python\n" s "\n```\nThat is it."
#define READ  "a, b = map(int, input().split())\n"

static void python_stdin(void **state)
{
    const struct vl_code_args fraction = VL_CODE_ARGS;
    struct vl_code_args all = VL_CODE_ARGS, two = VL_CODE_ARGS;

    (void)state;
    if (!have("python3"))
        return; /* told above; skip() would be "not ok" in TAP */
    all.pass_fraction = 0;
    two.cases = 2;
    row_is(PY(READ "print(a + b)"), SUM, fraction, 1, "\"code_failure\":null");
    row_is(PY(READ "print(a + b)"), SUM, all, 1, "\"code_passed\":4,\"code_cases\":4");
    row_is(PY(READ "print(3 if a == 1 else 7)"), SUM, fraction, 0.5,
           "\"code_failure\":\"wrong answer\",\"code_detail\":\"case 2: printed '7\\n', expected "
           "'11'\"");
    row_is(PY(READ "print(3 if a == 1 else 7)"), SUM, all, 0, "\"code_passed\":2,\"code_cases\":4");
    row_is(PY(READ "print(3 if a == 1 else 7)"), SUM, two, 1, "\"code_cases\":2");
    row_is(PY(READ "print(a + b); exit(3)"), SUM, fraction, 1, "null"); /* SystemExit is no error */
    row_is(PY("if __name__ == '__main__':\n    import sys\n    print(sum(map(int, "
              "sys.stdin.read().split())))"),
           SUM, fraction, 1, "null");
    row_is(PY("print(sum(int(x) for x in stdin.readline().split()))"), SUM, fraction, 1, "null");
    row_is(PY("print(reduce(add, map(int, open(0).read().split())), file=sys.stdout)"), SUM,
           fraction, 1, "null");
    row_is(PY(READ "print(1 // (a - 1) + a + b)"), SUM, fraction, 0.5,
           "\"runtime error\",\"code_detail\":\"case 0: ZeroDivisionError");
    row_is(PY("print(a +"), SUM, fraction, 0,
           "\"compile error\",\"code_detail\":\"case 0: SyntaxError");
    row_is("I do not know.", SUM, fraction, 0, "compile error");
    row_is(
        PY("from collections import *\nprint(sum(Counter(map(int, input().split())).elements()))"),
        SUM, fraction, 1, "null");
    row_is(PY(READ "print(eval('gcd(a, b) * 0 + ceil(a + b)'))"), SUM, fraction, 1, "null");
    row_is(PY(READ "print((lambda x, *, y=1: [z for z in [x + y]][0])(a, y=b))"), SUM, fraction, 1,
           "null");
    row_is(PY(READ "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    print(a + b if e else 0)"),
           SUM, fraction, 1, "null");
    row_is(PY("import os; os.kill(os.getpid(), 11)"), SUM, two, 0, "killed by signal 11");
    row_is(PY("x = bytearray(4 << 30)"), SUM, two, 0, "\"code_failure\":\"memory\"");
    row_is(PY("open('/etc/passwd')"), SUM, two, 0, "FileNotFoundError");
    row_is(PY("import socket; socket.create_connection(('127.0.0.1', 9))"), SUM, two, 0,
           "\"runtime error\"");
    row_is(PY("def f(n):\n    return n and 1 + f(n - 1)\nprint(f(20000) - 19997)"),
           "{\"inputs\":[\"\"],\"outputs\":[\"3\"]}", two, 1, "null");
    row_is(PY("print('\\u00e9\\u4e2d')"), "{\"inputs\":[\"\"],\"outputs\":[\"\\u00e9\\u4e2d\"]}",
           two, 1, "null");
}

static void python_limits(void **state)
{
    struct vl_code_opts before = opts;
    struct vl_code_args a = VL_CODE_ARGS;

    (void)state;
    if (!have("python3"))
        return; /* told above; skip() would be "not ok" in TAP */
    opts.box.seconds = 0.5;
    opts.box.output = 100000;
    row_is(PY("while True: pass"), "{\"inputs\":[\"\"],\"outputs\":[\"3\"]}", a, 0,
           "\"code_failure\":\"timeout\"");
    opts.box.seconds = 10;
    row_is(PY("while True: print('spam')"), "{\"inputs\":[\"\"],\"outputs\":[\"3\"]}", a, 0,
           "\"code_failure\":\"output limit\"");
    opts.row_seconds = 0.8;
    row_is(PY("import time; time.sleep(0.5); print(3)"),
           "{\"inputs\":[\"\",\"\",\"\"],\"outputs\":[\"3\",\"3\",\"3\"]}", a, 1. / 3,
           "\"code_failure\":\"timeout\"");
    opts = before;
}

static void python_functions(void **state)
{
    static const char truth[] =
        "{\"fn_name\":\"plus\",\"inputs\":[\"1\\n2\",\"[1]\\n[2]\",[\"a\",\"b\"]],"
        "\"outputs\":[\"3\",\"[1,2]\",[\"ab\"]]}";
    const struct vl_code_args a = VL_CODE_ARGS;

    (void)state;
    if (!have("python3"))
        return; /* told above; skip() would be "not ok" in TAP */
    row_is(PY("def plus(a, b):\n    print('noise')\n    return a + b"), truth, a, 1, "null");
    row_is(PY("class Solution:\n    def plus(self, a: List[int], b) -> Optional[int]:\n        "
              "return a + b"),
           truth, a, 1, "null");
    row_is(PY("def plus(a, b):\n    return [x for x in (a, b)][0] if a == 1 else a + b"), truth, a,
           2. / 3, "wrong answer");
    row_is(PY("def sub(a, b):\n    return a - b"), truth, a, 0,
           "NameError: no function plus is defined");
    row_is(PY("def plus(a, b):\n    import os\n    os.write(1, b'3')\n    os._exit(0)"), truth, a,
           0, "printed ''");
    row_is(PY("def plus(a, b):\n    return {a + b}"), truth, a, 0, "TypeError");
    row_is(PY("def f(d):\n    return d[1], d[2]"),
           "{\"fn_name\":\"f\",\"inputs\":[\"{\\\"1\\\":5,\\\"2\\\":[6]}\"],\"outputs\":[\"[5,[6]]"
           "\"]}",
           a, 1, "null");
    /* the expected value is nowhere in the box */
    row_is(PY("def f():\n    return any('471' + '1' in open(p, errors='ignore').read() for p in\n"
              "               ['/proc/self/environ', '/proc/self/cmdline', 'main.py'])"),
           "{\"fn_name\":\"f\",\"inputs\":[[]],\"outputs\":[4711]}", a, 0, "printed 'false'");
    row_is(PY("def f():\n    return 1"),
           "{\"fn_name\":\"f\",\"inputs\":[\"x\"],\"outputs\":[\"1\"]}", a, NAN, "not JSON");
}

static void assertions(void **state)
{
    static const char truth[] =
        "{\"assert_case\":[\"assert add(1, 2) == 3\",\"assert add(2, 2) == 5\"]}";
    const struct vl_code_args a = VL_CODE_ARGS;

    (void)state;
    if (have("python3"))
        row_is(PY("def add(a, b):\n    return a + b"), truth, a, 0.5, "case 1: AssertionError");
}

static void other_languages(void **state)
{
    struct vl_code_args a = VL_CODE_ARGS;
    struct vl_code_opts before = opts;

    (void)state;
    a.language = VL_CODE_SHELL;
    row_is("```sh\nread a b; echo $((a + b))\n```", SUM, a, 1, "null");
    row_is("```sh\nread a b; [ $a != 3 ] && echo $((a + b))\n```", SUM, a, 0.75,
           "\"runtime error\",\"code_detail\":\"case 1: status 1\"");
    row_is("nothing", SUM, a, 0, "\"no code\"");
    row_is("```sh\necho\n```", "{\"fn_name\":\"f\",\"inputs\":[\"1\"],\"outputs\":[\"1\"]}", a, NAN,
           "Python only");
    opts.command = "exec awk -f sum.awk";
    opts.file = "sum.awk";
    a.language = VL_CODE_OTHER;
    row_is("```awk\n{ print $1 + $2 }\n```", SUM, a, 1, "null");
    opts = before;
    a = (struct vl_code_args)VL_CODE_ARGS;
    a.language = VL_CODE_C;
    a.cases = 2;
    if (!have("cc"))
        return;
    row_is("```c\n#include <stdio.h>\nint main(void) { int a, b; scanf(\"%d%d\", &a, &b); "
           "printf(\"%d\\n\", a + b); return 0; }\n```",
           SUM, a, 1, "null");
    row_is("```c\nint main(void) { return x; }\n```", SUM, a, 0, "compile error");
}

static void broken_sandbox(void **state)
{
    static const char *const nowhere[] = { "/no/such/folder", NULL };
    const struct vl_code_args a = VL_CODE_ARGS;
    struct vl_code_opts before = opts;

    (void)state;
    row_is("```python\n1\n```", "{\"inputs\":[1]}", a, NAN, "outputs is missing");
    if (!opts.box.weak) {
        opts.box.binds = nowhere;
        row_is(PY("1"), SUM, a, NAN, "/no/such/folder");
        opts = before;
    }
}

/* Strong boxes where they can be made, else weak ones. */
static int set_up(void **state)
{
    struct vl_err e = { 0 };

    (void)state;
    if (vl_box_check(&opts.box, "sh", &e)) {
        print_message("# in weak boxes: %s\n", e.msg);
        opts.box.weak = 1;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extraction),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(texts),
        cmocka_unit_test(values),
        cmocka_unit_test(python_stdin),
        cmocka_unit_test(python_limits),
        cmocka_unit_test(python_functions),
        cmocka_unit_test(assertions),
        cmocka_unit_test(other_languages),
        cmocka_unit_test(broken_sandbox),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
