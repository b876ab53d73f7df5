/* test_http.c - many requests against a server that misbehaves (tests/httpd.c). */
#include "libverl/base/http.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 64 };

static int port, in = -1;
static pid_t pid;

struct scene {
    const char *path[MANY]; /* NULL: nothing to ask */
    const char *body;
    char url[MANY][256], *got[MANY], why[MANY][400];
    int status[MANY], tries[MANY], calls[MANY], stop_on_failure;
};

static int ask(void *arg, int64_t k, struct vl_http_req *q)
{
    struct scene *s = arg;

    if (!s->path[k])
        return 1;
    snprintf(s->url[k], sizeof s->url[k], "http://127.0.0.1:%d/%d%s", port, (int)k, s->path[k]);
    *q = (struct vl_http_req){ s->url[k], s->body, s->body ? strlen(s->body) : 0 };
    return 0;
}

static int answer(void *arg, int64_t k, const struct vl_http_answer *a)
{
    struct scene *s = arg;

    s->calls[k]++;
    s->status[k] = a->status;
    s->tries[k] = a->tries;
    s->got[k] = vl_strndup(a->body, a->n);
    snprintf(s->why[k], sizeof s->why[k], "%s", a->why ? a->why : "");
    return s->stop_on_failure && a->why;
}

static int run(struct scene *s, const struct vl_http_opts *o, int64_t n, struct vl_http_stats *st)
{
    const struct vl_http_io io = { s, ask, answer };
    struct vl_err e = { 0 };
    int rc = vl_http_run(o, n, &io, st, &e);

    if (rc)
        print_message("# %s\n", e.msg);
    return rc;
}

static void clear(struct scene *s)
{
    for (int k = 0; k < MANY; k++)
        free(s->got[k]);
    *s = (struct scene){ 0 };
}

static struct vl_http_opts quick(void)
{
    struct vl_http_opts o = VL_HTTP_DEFAULTS;

    o.backoff = 0.01;
    o.timeout = 5;
    o.total = 20;
    return o;
}

static int start_server(void **state)
{
    int up[2], down[2];
    char exe[3000], text[16] = "";
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 10);

    (void)state;
    setenv("no_proxy", "127.0.0.1", 1);
    assert_true(n > 0 && !pipe(up) && !pipe(down));
    exe[n] = 0;
    strcpy(strrchr(exe, '/'), "/httpd");
    pid = fork();
    if (!pid) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        close(down[1]);
        execl(exe, "httpd", (char *)NULL);
        _exit(127);
    }
    close(up[1]);
    close(down[0]);
    in = down[1];
    assert_true(read(up[0], text, sizeof text - 1) > 0);
    close(up[0]);
    port = atoi(text);
    return port ? 0 : -1;
}

static int stop_server(void **state)
{
    (void)state;
    close(in);
    waitpid(pid, NULL, 0);
    return 0;
}

static void echoes_many(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{\"x\":1}" };

    (void)state;
    o.concurrent = 5;
    for (int k = 0; k < MANY; k++)
        s.path[k] = k == 7 ? NULL : "/echo";
    assert_int_equal(run(&s, &o, MANY, &st), 0);
    assert_int_equal(st.answered, MANY - 1);
    assert_int_equal(st.failed + st.again, 0);
    for (int k = 0; k < MANY; k++) {
        assert_int_equal(s.calls[k], k != 7);
        if (k != 7)
            assert_string_equal(s.got[k], "{\"x\":1}");
    }
    clear(&s);
}

static void holds_the_limit(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}" };
    int peak = 0;

    (void)state;
    o.concurrent = 6; /* more than in the test before */
    for (int k = 0; k < 12; k++)
        s.path[k] = "/limit/sleep";
    assert_int_equal(run(&s, &o, 12, &st), 0);
    assert_int_equal(st.answered, 12);
    clear(&s);
    s.path[0] = "/../stats"; /* libcurl removes the dots: /stats */
    assert_int_equal(run(&s, &o, 1, &st), 0);
    assert_non_null(strstr(s.got[0], "\"peak\":"));
    peak = atoi(strstr(s.got[0], "\"peak\":") + 7);
    assert_int_equal(peak, 6);
    clear(&s);
}

static void asks_again(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}",
                       .path = { "/a/500,503,echo", "/a/close,echo", "/a/early,200=whole",
                                 "/a/429,429,429,200=late", "/a/400=no%20such%20model,echo",
                                 "/a/500=sorry" } };

    (void)state;
    assert_int_equal(run(&s, &o, 6, &st), 0);
    for (int k = 0; k < 4; k++)
        assert_string_equal(s.why[k], "");
    assert_int_equal(s.tries[0], 3);
    assert_int_equal(s.tries[1], 2);
    assert_string_equal(s.got[2], "whole");
    assert_int_equal(s.tries[3], 4);
    assert_int_equal(s.tries[4], 1); /* a bad request stays one */
    assert_int_equal(s.status[4], 400);
    assert_string_equal(s.why[4], "HTTP status 400: no such model");
    assert_string_equal(s.why[5], "HTTP status 500: sorry (4 tries)");
    assert_int_equal(st.answered, 4);
    assert_int_equal(st.failed, 2);
    assert_int_equal(st.again, 2 + 1 + 1 + 3 + 3);
    clear(&s);
}

static void asks_again_only_what_it_is_told(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}",
                       .path = { "/o/504,echo", "/o/500,echo", "/o/429,echo", "/o/close,echo" } };

    (void)state;
    o.retry_on = VL_HTTP_ON_504;
    assert_int_equal(run(&s, &o, 4, &st), 0);
    assert_string_equal(s.why[0], "");
    assert_string_equal(s.why[1], "HTTP status 500: {}");
    assert_string_equal(s.why[2], "HTTP status 429: {}");
    assert_true(s.why[3][0] != 0);
    assert_int_equal(st.again, 1);
    clear(&s);
}

static void honours_retry_after(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}", .path = { "/r/429:1,echo", "/r/503:3000,echo" } };
    struct timespec a, b;

    (void)state;
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(run(&s, &o, 2, &st), 0);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_string_equal(s.why[0], "");
    assert_true((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9 > 0.99);
    assert_string_equal(s.why[1], "HTTP status 503: {} (try 1; the next after 3e+03 s would pass "
                                  "the limit of 20 s in all)");
    clear(&s);
}

static void ends_in_time(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}", .path = { "/t/hang", "/t/drip", "/t/hang,echo" } };

    (void)state;
    o.timeout = 0.3;
    o.tries = 2;
    assert_int_equal(run(&s, &o, 3, &st), 0);
    assert_string_equal(s.why[0], "no whole answer within 0.3 s (2 tries)");
    assert_string_equal(s.why[1], "no whole answer within 0.3 s, only a part of it (2 tries)");
    assert_int_equal(s.status[0], 0);
    assert_string_equal(s.why[2], "");
    clear(&s);
}

static void refuses_what_is_no_answer(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}", .path = { "/g/garbage", "/g/huge", "/g/huge" } };

    (void)state;
    o.max_body = 1 << 20;
    assert_int_equal(run(&s, &o, 2, &st), 0);
    assert_true(s.why[0][0] != 0);
    assert_string_equal(s.why[1], "the answer is longer than 1048576 bytes");
    assert_int_equal(s.tries[1], 1);
    clear(&s);
    s.body = NULL;
    s.path[0] = "/g/huge";
    o.max_body = 4 << 20;
    assert_int_equal(run(&s, &o, 1, &st), 0);
    assert_string_equal(s.why[0], "");
    assert_int_equal(strlen(s.got[0]), 4 << 20);
    clear(&s);
}

static void stops_at_the_first_failure(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}", .stop_on_failure = 1 };
    int later = 0;

    (void)state;
    for (int k = 0; k < MANY; k++)
        s.path[k] = k == 9 || k == 11 ? "/s/400" : k < 9 ? "/s/sleep" : "/s/echo";
    o.concurrent = 12;
    assert_int_equal(run(&s, &o, MANY, &st), 0);
    for (int k = 0; k <= 9; k++)
        assert_int_equal(s.calls[k], 1);
    assert_string_equal(s.why[9], "HTTP status 400: {}");
    for (int k = 20; k < MANY; k++)
        later += s.calls[k];
    assert_true(later < MANY - 20);
    clear(&s);
}

static void nobody_there(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}", .path = { "/x" } };
    int right = port;

    (void)state;
    port = 1;
    o.tries = 2;
    assert_int_equal(run(&s, &o, 1, &st), 0);
    port = right;
    assert_non_null(strstr(s.why[0], "(2 tries)"));
    assert_int_equal(s.status[0], 0);
    clear(&s);
}

static void keys_and_headers(void **state)
{
    static const char *const good[] = { "X-One: 1", NULL }, *const bad[] = { "X: 1\r\nY: 2", NULL };
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}", .path = { "/auth" } };
    const struct vl_http_io io = { &s, ask, answer };
    struct vl_err e = { 0 };

    (void)state;
    o.headers = good;
    o.key_env = "VL_TEST_KEY";
    unsetenv("VL_TEST_KEY");
    assert_int_equal(vl_http_run(&o, 0, &io, &st, &e), VL_E_USAGE);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_http_run(&o, 1, &io, &st, &e), VL_E_USAGE);
    assert_non_null(strstr(e.msg, "VL_TEST_KEY"));
    setenv("VL_TEST_KEY", "sk-secret\nX: 1", 1);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_http_run(&o, 1, &io, &st, &e), VL_E_USAGE);
    assert_null(strstr(e.msg, "sk-secret"));
    setenv("VL_TEST_KEY", "sk-secret", 1);
    assert_int_equal(run(&s, &o, 1, &st), 0);
    assert_string_equal(s.got[0], "Bearer sk-secret");
    clear(&s);
    e = (struct vl_err){ 0 };
    o.headers = bad;
    assert_int_equal(vl_http_run(&o, 1, &io, &st, &e), VL_E_USAGE);
}

static void keeps_the_rate(void **state)
{
    struct vl_http_opts o = quick();
    struct vl_http_stats st;
    struct scene s = { .body = "{}" };
    struct timespec a, b;

    (void)state;
    o.per_second = 10; /* ten at once, the other five at one each 0.1 s */
    for (int k = 0; k < 15; k++)
        s.path[k] = "/echo";
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(run(&s, &o, 15, &st), 0);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9 > 0.39);
    assert_int_equal(st.answered, 15);
    clear(&s);
}

static void urls(void **state)
{
    static const char *const bad[] = { "",          "x",          "ftp://x/",
                                       "http://",   "http:///v1", "http://u:p@h/v1",
                                       "http://h /" };
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_http_check_url("http://h:1/v1", "--judge", &e), 0);
    assert_int_equal(vl_http_check_url("https://h/a@b", "--judge", &e), 0);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        e = (struct vl_err){ 0 };
        assert_int_equal(vl_http_check_url(bad[k], "--judge", &e), VL_E_USAGE);
        assert_null(strstr(e.msg, "u:p"));
    }
}

/* Whether this build has libcurl's part. */
static int there(void)
{
    struct vl_http_opts o = VL_HTTP_DEFAULTS;
    struct vl_http_stats st;
    const struct vl_http_io io = { 0 };
    struct vl_err e = { 0 };

    return vl_http_run(&o, 0, &io, &st, &e) == 0;
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(echoes_many),
        cmocka_unit_test(holds_the_limit),
        cmocka_unit_test(asks_again),
        cmocka_unit_test(asks_again_only_what_it_is_told),
        cmocka_unit_test(honours_retry_after),
        cmocka_unit_test(ends_in_time),
        cmocka_unit_test(refuses_what_is_no_answer),
        cmocka_unit_test(stops_at_the_first_failure),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(keys_and_headers),
        cmocka_unit_test(keeps_the_rate),
        cmocka_unit_test(urls),
    };

    if (!there()) {
        puts("1..0 # SKIP built without libcurl");
        return 0;
    }
    return cmocka_run_group_tests(t, start_server, stop_server);
}
