/* log.c - messages on stderr. See log.h.
 *
 * Each message is one write(), so that lines of several ranks do not mix. */
#include "libverl/base/log.h"

#include "libverl/base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

double vl_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double vl_peak_bytes(void)
{
    struct rusage u;

    return getrusage(RUSAGE_SELF, &u) ? 0 : 1024.0 * (double)u.ru_maxrss;
}

void vl_log_init(struct vl_log *l, const char *program, int level, int rank)
{
    const char *term = getenv("TERM");
    double now = vl_now();

    *l = (struct vl_log){
        .program = program,
        .level = level,
        .rank = rank,
        .tty = isatty(STDERR_FILENO) && term && *term,
        .t0 = now,
        .last = now,
    };
}

/* A reader of stderr that died must not stop the run: errors are ignored. */
static void put(const struct vl_buf *b)
{
    size_t at = 0;

    while (at < b->n) {
        ssize_t k = write(STDERR_FILENO, b->s + at, b->n - at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return;
        at += (size_t)k;
    }
}

static void say(struct vl_log *l, const char *mark, const char *fmt, va_list ap)
{
    struct vl_buf b = { 0 };
    char *text = NULL;

    if (vasprintf(&text, fmt, ap) < 0)
        return;
    if (l->drawn)
        vl_buf_str(&b, "\r\033[K");
    l->drawn = 0;
    if (l->rank > 0)
        vl_buf_printf(&b, "%s[rank %d]: %s%s\n", l->program, l->rank, mark, text);
    else
        vl_buf_printf(&b, "%s: %s%s\n", l->program, mark, text);
    put(&b);
    vl_buf_free(&b);
    free(text);
}

void vl_info(struct vl_log *l, const char *fmt, ...)
{
    va_list ap;

    if (l->level < 1 || l->rank > 0)
        return;
    va_start(ap, fmt);
    say(l, "", fmt, ap);
    va_end(ap);
}

void vl_detail(struct vl_log *l, const char *fmt, ...)
{
    va_list ap;

    if (l->level < 2 || l->rank > 0)
        return;
    va_start(ap, fmt);
    say(l, "", fmt, ap);
    va_end(ap);
}

void vl_warn(struct vl_log *l, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(l, "warning: ", fmt, ap);
    va_end(ap);
}

void vl_answer(struct vl_log *l, const char *fmt, ...)
{
    va_list ap;

    if (l->rank > 0)
        return;
    va_start(ap, fmt);
    say(l, "", fmt, ap);
    va_end(ap);
}

void vl_progress(struct vl_log *l, const char *what, int64_t done, int64_t total, const char *note)
{
    double now = vl_now();
    struct vl_buf b = { 0 };
    int open = note && *note;

    if (l->level < 1 || l->rank > 0)
        return;
    if (done < total && now - l->last < (l->tty ? 0.2 : 10))
        return;
    if (done >= total && !l->drawn && now - l->last < (l->tty ? 0.2 : 10))
        return; /* too short to have shown anything: the summary says it */
    l->last = now;
    vl_buf_printf(&b, "%s%s: %s %" PRId64 "/%" PRId64 "%s%s%s%s", l->tty ? "\r\033[K" : "",
                  l->program, what, done, total, open ? " (" : "", open ? note : "",
                  open ? ")" : "", l->tty && done < total ? "" : "\n");
    l->drawn = l->tty && done < total;
    put(&b);
    vl_buf_free(&b);
}

static void put_bytes(struct vl_buf *b, double n, const char *what)
{
    if (n < 1e6)
        vl_buf_printf(b, ", %.1f kB %s", n / 1e3, what);
    else if (n < 1e9)
        vl_buf_printf(b, ", %.1f MB %s", n / 1e6, what);
    else
        vl_buf_printf(b, ", %.2f GB %s", n / 1e9, what);
}

void vl_log_done(struct vl_log *l, int64_t rows, int64_t tokens)
{
    double s = vl_now() - l->t0, per = s > 1e-9 ? s : 1e-9;
    struct vl_buf b = { 0 };

    vl_buf_printf(&b, "%" PRId64 " rows", rows);
    if (tokens >= 0)
        vl_buf_printf(&b, ", %" PRId64 " tokens", tokens);
    vl_buf_printf(&b, " in %.2f s (%.4g rows/s", s, (double)rows / per);
    if (tokens >= 0)
        vl_buf_printf(&b, ", %.4g tokens/s", (double)tokens / per);
    vl_buf_ch(&b, ')');
    if (l->bytes_in)
        put_bytes(&b, (double)l->bytes_in, "in");
    if (l->bytes_out)
        put_bytes(&b, (double)l->bytes_out, "out");
    vl_buf_printf(&b, ", peak %.0f MB", vl_peak_bytes() / 1e6);
    vl_info(l, "%s", b.s);
    vl_buf_free(&b);
}
