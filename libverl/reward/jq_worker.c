/* jq_worker.c - the process that runs a jq filter as a scorer.
 *
 * libjq cannot be interrupted and aborts when memory ends, so it gets a process of its own, which
 * scorers.c may kill; it speaks the same lines as an outside command. */
#include "libverl/reward/worker.h"

#include "libverl/base/jq.h"
#include "formats/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* exit() must not run what the parent registered (MPI's, a test's); vl_oom() calls it. */
static void leave(void)
{
    _exit(VL_E_OS);
}

static void write_all(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t k = write(fd, s, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            _exit(VL_E_IO);
        s += k;
        n -= (size_t)k;
    }
}

static void put_error(struct vl_buf *out, int64_t id, const char *fmt, const char *what, size_t n)
{
    struct vl_buf b = { 0 };

    vl_buf_printf(&b, fmt, (int)(n < 200 ? n : 200), what);
    vl_buf_printf(out, "{\"id\":%" PRId64 ",\"error\":", id);
    vl_json_put_str(out, b.s, b.n);
    vl_buf_str(out, "}\n");
    vl_buf_free(&b);
}

/* The answer for one result line: a number or boolean as {"id","score"}, an object with id. */
static void put_answer(struct vl_buf *out, int64_t id, const char *s, size_t n)
{
    if (*s == '{' && n > 2)
        vl_buf_printf(out, "{\"id\":%" PRId64 ",%.*s\n", id, (int)(n - 1), s + 1);
    else if (*s == 't' || *s == 'f' || *s == '-' || (*s >= '0' && *s <= '9'))
        vl_buf_printf(out, "{\"id\":%" PRId64 ",\"score\":%.*s}\n", id, (int)n, s);
    else
        put_error(out, id,
                  "the filter gave %.*s, not a number, true, false or an object with score", s, n);
}

static void score_line(struct vl_jq *q, const char *line, size_t n, struct vl_buf *res,
                       struct vl_buf *out)
{
    struct vl_err e = { 0 };
    int64_t id = 0, results = 0;

    (void)!sscanf(line, "{\"id\":%" SCNd64, &id);
    vl_buf_reset(res);
    if (vl_jq_run(q, line, n, 0, res, &results, &e))
        put_error(out, id, "%.*s", e.msg, strlen(e.msg));
    else if (results == 1)
        put_answer(out, id, res->s, res->n - 1);
    else
        put_error(out, id,
                  results ? "the filter gave several results: %.*s"
                          : "the filter gave no result%.*s",
                  results ? res->s : "", results ? res->n : 0);
}

/* A row's line, or its number. */
static void score_row(struct vl_jq *q, const struct vl_scorers_io *io, const char *s, size_t n,
                      struct vl_buf *out)
{
    static struct vl_buf line, res;

    if (*s == '{') {
        score_line(q, s, n, &res, out);
        return;
    }
    vl_buf_reset(&line);
    io->line(io->arg, strtoll(s, NULL, 10), &line);
    score_line(q, line.s, line.n - 1, &res, out);
}

_Noreturn void vl_jq_worker(const struct vl_scorers_opts *o, const struct vl_scorers_io *io, int in,
                            int out)
{
    struct vl_buf text = { 0 }, line = { 0 };
    struct vl_err e = { 0 };
    struct vl_jq *q;
    size_t scanned = 0;

    atexit(leave);
    if (vl_jq_open(&q, o->filter, o->args, &e))
        _exit(e.code); /* the parent has compiled it before */
    for (;;) {
        char *end = text.n > scanned ? memchr(text.s + scanned, '\n', text.n - scanned) : NULL;
        ssize_t k;

        if (end) {
            size_t n = (size_t)(end - text.s);

            vl_buf_reset(&line);
            score_row(q, io, text.s, n, &line);
            write_all(out, line.s, line.n);
            memmove(text.s, end + 1, text.n - n - 1);
            text.n -= n + 1;
            scanned = 0;
            continue;
        }
        scanned = text.n;
        vl_buf_reserve(&text, 65536);
        k = read(in, text.s + text.n, 65536);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            _exit(0);
        text.n += (size_t)k;
    }
}
