/* jq_worker.c - the process that runs a jq filter as a scorer.
 *
 * libjq cannot be interrupted and aborts when memory ends, so it gets a process of its own, which
 * scorers.c may kill; it speaks the same lines as an outside command. A write for each row cost as
 * much as the filter, so answers are gathered while further rows wait: never for longer than a few
 * milliseconds, by a timer, and written out before the process dies, so that the row that is blamed
 * is the one it died of. */
#include "libverl/reward/worker.h"

#include "libverl/base/jq.h"
#include "formats/json.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { GATHER = 2048, GATHER_US = 5000 }; /* bytes, microseconds that answers wait */

/* Answers between `written` and `ready` wait. The handlers only read `ready` and move `written`. */
static struct {
    char text[1 << 16];
    volatile size_t written, ready;
    int fd;
} out;

static void write_all(const char *s, size_t n)
{
    while (n) {
        ssize_t k = write(out.fd, s, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            _exit(VL_E_IO);
        s += k;
        n -= (size_t)k;
    }
}

static void write_ready(void)
{
    size_t to = out.ready;

    write_all(out.text + out.written, to - out.written);
    out.written = to;
}

static void on_timer(int sig)
{
    int saved = errno;

    (void)sig;
    write_ready();
    errno = saved;
}

static void on_death(int sig)
{
    write_ready();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void set_timer(long us)
{
    const struct itimerval t = { { 0, us }, { 0, us } };

    setitimer(ITIMER_REAL, &t, NULL);
}

/* Everything out, the buffer empty again. */
static void flush(void)
{
    sigset_t alarm, before;

    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, &before);
    write_ready();
    out.written = out.ready = 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void give(const char *s, size_t n)
{
    if (n > sizeof out.text - out.ready)
        flush();
    if (n > sizeof out.text) {
        write_all(s, n);
        return;
    }
    memcpy(out.text + out.ready, s, n);
    out.ready += n;
    if (out.ready - out.written >= GATHER)
        flush();
}

static void set_signals(void)
{
    static const int deadly[] = { SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL };
    static char stack[1 << 16]; /* a filter that recurses too deep has none left */
    const stack_t alt = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction a = { .sa_handler = on_death, .sa_flags = SA_ONSTACK };

    sigaltstack(&alt, NULL);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        sigaction(deadly[i], &a, NULL);
    a = (struct sigaction){ .sa_handler = on_timer, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &a, NULL);
}

/* exit() must not run what the parent registered (MPI's, a test's); vl_oom() calls it. */
static void leave(void)
{
    write_ready();
    _exit(VL_E_OS);
}

static void put_id(struct vl_buf *b, int64_t id)
{
    vl_buf_str(b, "{\"id\":");
    vl_json_put_i64(b, id);
}

static void put_error(struct vl_buf *b, int64_t id, const char *fmt, const char *what, size_t n)
{
    struct vl_buf text = { 0 };

    vl_buf_printf(&text, fmt, (int)(n < 200 ? n : 200), what);
    put_id(b, id);
    vl_buf_str(b, ",\"error\":");
    vl_json_put_str(b, text.s, text.n);
    vl_buf_str(b, "}\n");
    vl_buf_free(&text);
}

/* The answer for one result line: a number or boolean as {"id","score"}, an object with id. */
static void put_answer(struct vl_buf *b, int64_t id, const char *s, size_t n)
{
    if (*s == '{' && n > 2) {
        put_id(b, id);
        vl_buf_ch(b, ',');
        vl_buf_add(b, s + 1, n - 1);
        vl_buf_ch(b, '\n');
    } else if (*s == 't' || *s == 'f' || *s == '-' || (*s >= '0' && *s <= '9')) {
        put_id(b, id);
        vl_buf_str(b, ",\"score\":");
        vl_buf_add(b, s, n);
        vl_buf_str(b, "}\n");
    } else {
        put_error(b, id, "the filter gave %.*s, not a number, true, false or an object with score",
                  s, n);
    }
}

static void score_line(struct vl_jq *q, const char *line, size_t n, struct vl_buf *res,
                       struct vl_buf *answer)
{
    struct vl_err e = { 0 };
    int64_t id = strtoll(line + strlen("{\"id\":"), NULL, 10), results = 0;

    vl_buf_reset(res);
    if (vl_jq_run(q, line, n, 0, res, &results, &e))
        put_error(answer, id, "%.*s", e.msg, strlen(e.msg));
    else if (results == 1)
        put_answer(answer, id, res->s, res->n - 1);
    else
        put_error(answer, id,
                  results ? "the filter gave several results: %.*s"
                          : "the filter gave no result%.*s",
                  results ? res->s : "", results ? res->n : 0);
}

/* A row's line, or its number. */
static void score_row(struct vl_jq *q, const struct vl_scorers_io *io, const char *s, size_t n)
{
    static struct vl_buf line, res, answer;

    vl_buf_reset(&answer);
    if (*s == '{') {
        score_line(q, s, n, &res, &answer);
    } else {
        vl_buf_reset(&line);
        io->line(io->arg, strtoll(s, NULL, 10), &line);
        score_line(q, line.s, line.n - 1, &res, &answer);
    }
    give(answer.s, answer.n);
}

/* The whole lines in text; what follows the last stays. */
static void score_rows(struct vl_jq *q, const struct vl_scorers_io *io, struct vl_buf *text)
{
    char *s = text->s, *end;

    set_timer(GATHER_US);
    while ((end = memchr(s, '\n', text->n - (size_t)(s - text->s)))) {
        *end = 0;
        score_row(q, io, s, (size_t)(end - s));
        s = end + 1;
    }
    set_timer(0);
    flush();
    text->n -= (size_t)(s - text->s);
    memmove(text->s, s, text->n);
}

_Noreturn void vl_jq_worker(const struct vl_scorers_opts *o, const struct vl_scorers_io *io, int in,
                            int out_fd)
{
    struct vl_buf text = { 0 };
    struct vl_err e = { 0 };
    struct vl_jq *q;

    out.fd = out_fd;
    out.written = out.ready = 0;
    set_signals();
    atexit(leave);
    if (vl_jq_open(&q, o->filter, o->args, &e))
        _exit(e.code); /* the parent has compiled it before */
    vl_jq_most(q, 8);  /* one is wanted, some are shown */
    for (;;) {
        ssize_t k;

        vl_buf_reserve(&text, 65536);
        k = read(in, text.s + text.n, 65536);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            _exit(0);
        text.n += (size_t)k;
        score_rows(q, io, &text);
    }
}
