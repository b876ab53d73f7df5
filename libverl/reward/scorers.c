/* scorers.c - the loop that feeds scorer processes. See scorers.h.
 *
 * One thread, one poll(): the workers' ends of pipes, a pidfd each (a worker's death shows there
 * even while a child of its holds its output open) and the descriptor that further rows come by.
 * What an answer means is in pool_lines.c for workers that go on, in pool_once.c for a process a
 * row. */
#include "libverl/reward/pool.h"

#include "libverl/base/jq.h"
#include "libverl/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE 0.2 /* seconds to end after closing its output, so that the reason can be told */

enum { SEND_BYTES = 1 << 16 }; /* rows are made lines when fewer bytes than this wait */

void vl_pool_add(struct vl_pool_rows *r, int64_t row)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->row = vl_realloc(r->row, r->cap * sizeof *r->row);
    }
    r->row[r->n++] = row;
}

void vl_pool_settle(struct vl_pool *p, int64_t row, const char *json, size_t n, const char *why)
{
    if (p->io->answer(p->io->arg, row, json, n, why) && row < p->limit)
        p->limit = row;
}

void vl_pool_blame(struct vl_pool *p, int64_t row, const char *fmt, ...)
{
    char why[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    vl_pool_settle(p, row, NULL, 0, why);
}

void vl_pool_how_it_ended(int status, char *text, size_t n)
{
    if (status < 0)
        snprintf(text, n, "closed its output");
    else if (WIFSIGNALED(status))
        snprintf(text, n, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, n, "ended with status %d", WEXITSTATUS(status));
}

int vl_pool_cannot_run(struct vl_pool *p, int status)
{
    const char *const *a = p->o->argv;
    int code = status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;

    if (p->answered || !a || (code != 126 && code != 127))
        return 0;
    vl_fail(p->e, VL_E_NOINPUT, "scorer '%.200s' cannot be run (status %d); %s",
            a[1] && !strcmp(a[1], "-c") && a[2] ? a[2] : a[0], code,
            code == 126 ? "is the file executable (chmod +x), and its first line a program that is "
                          "there?"
                        : "give a program and its arguments as for sh -c");
    return 1;
}

/* ---- one worker ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void vl_pool_forget(struct vl_pool_worker *w)
{
    close_fd(&w->p.in);
    close_fd(&w->p.out);
    close_fd(&w->p.pidfd);
    vl_buf_reset(&w->send);
    vl_buf_reset(&w->got);
    w->sent = w->scanned = 0;
    w->p.pid = 0;
    w->nflight = w->closed = 0;
    w->last = -1;
    w->plain.n = 0;
}

static int start(struct vl_pool *p, struct vl_pool_worker *w)
{
    if (vl_worker_start(p->o, p->io, &p->brood, &w->p, p->e))
        return p->e->code;
    w->window = 1;
    w->last = -1;
    w->single = p->singles;
    w->known = p->rows;
    w->ready = 0;
    p->stats->started++;
    return 0;
}

static void ended(struct vl_pool *p, struct vl_pool_worker *w, int status)
{
    if (p->o->once)
        vl_pool_once_ended(p, w, status);
    else
        vl_pool_lines_ended(p, w, status);
}

static void late(struct vl_pool *p, struct vl_pool_worker *w)
{
    if (p->o->once)
        vl_pool_once_late(p, w);
    else
        vl_pool_lines_late(p, w);
}

/* Bytes came, or the end of output. 1 when there may be more. */
static int receive(struct vl_pool *p, struct vl_pool_worker *w)
{
    ssize_t k;

    vl_buf_reserve(&w->got, 65536);
    k = read(w->p.out, w->got.s + w->got.n, 65536);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (k <= 0) {
        close_fd(&w->p.out);
        w->closed = 1;
        if (!p->o->once)
            w->deadline = vl_now() + GRACE;
        return 0;
    }
    w->got.n += (size_t)k;
    if (!p->o->once) {
        vl_pool_lines(p, w);
    } else if (w->got.n > VL_POOL_ANSWER_MAX) {
        vl_worker_end(w->p.pid);
        vl_pool_blame(p, w->flight[0], "the scorer printed more than %d bytes", VL_POOL_ANSWER_MAX);
        vl_pool_forget(w);
    }
    return w->p.pid != 0;
}

/* The process has ended: what it wrote before is in the pipe, whoever else still holds that. */
static void died(struct vl_pool *p, struct vl_pool_worker *w)
{
    while (w->p.out >= 0 && !p->e->code && receive(p, w))
        ;
    if (w->p.pid && !p->e->code)
        ended(p, w, vl_worker_end(w->p.pid));
}

static void transmit(struct vl_pool *p, struct vl_pool_worker *w)
{
    ssize_t k = write(w->p.in, w->send.s + w->sent, w->send.n - w->sent);

    w->sent += k > 0 ? (size_t)k : 0;
    if (k < 0 && errno != EAGAIN && errno != EINTR)
        w->sent = w->send.n; /* it reads no more; the end of its output will tell */
    if (w->sent < w->send.n)
        return;
    vl_buf_reset(&w->send);
    w->sent = 0;
    if (p->o->once)
        close_fd(&w->p.in);
}

/* ---- all workers ---- */

static int64_t pop(struct vl_pool *p, struct vl_pool_rows *r)
{
    while (r->n) {
        int64_t row = r->row[--r->n];

        if (row < p->limit)
            return row;
    }
    return -1;
}

/* The next row for a worker that is running (fresh = 0) or would be started for it, or -1. */
static int64_t next_row(struct vl_pool *p, int fresh)
{
    int64_t row = fresh ? pop(p, &p->fresh) : -1;

    if (row < 0)
        row = pop(p, &p->again);
    return row < 0 && p->next < p->rows && p->next < p->limit ? p->next++ : row;
}

double vl_pool_limit(const struct vl_pool *p, const struct vl_pool_worker *w)
{
    return !w->ready && p->o->start > p->o->timeout ? p->o->start : p->o->timeout;
}

/* Gives the worker rows, starting it first. */
static int feed(struct vl_pool *p, struct vl_pool_worker *w)
{
    int64_t row;

    while (w->nflight < w->window && w->send.n < SEND_BYTES) {
        if (w->p.pid && (p->o->once || (w->single && w->last >= 0)))
            break;
        row = next_row(p, !w->p.pid);
        if (row < 0)
            break;
        if (!w->p.pid && start(p, w))
            return p->e->code;
        if (!w->nflight)
            w->deadline = vl_now() + vl_pool_limit(p, w);
        w->flight[w->nflight++] = row;
        if (p->o->filter && row < w->known)
            vl_buf_printf(&w->send, "%" PRId64 "\n", row); /* it has the rows itself */
        else
            p->io->line(p->io->arg, row, &w->send);
    }
    return 0;
}

/* End of input for a worker that is idle; what it still writes is read by the main loop. */
static void no_more(struct vl_pool *p, struct vl_pool_worker *w)
{
    if (w->p.in < 0)
        return;
    close_fd(&w->p.in);
    w->deadline = vl_now() + (p->o->timeout < 1 ? p->o->timeout : 1);
}

/* Feeds the workers and says what to wait for, until when. Returns how many are running. */
static int prepare(struct vl_pool *p, struct pollfd *fd, double *until)
{
    int running = 0;

    for (int i = 0; i < p->o->workers && !p->e->code; i++, fd += 3) {
        struct vl_pool_worker *w = &p->w[i];

        if ((w->p.in >= 0 && !w->closed) || !w->p.pid)
            feed(p, w);
        if (w->p.pid && !w->nflight && (!p->open || w->single))
            no_more(p, w);
        fd[0] = (struct pollfd){ w->p.out, POLLIN, 0 };
        fd[1] = (struct pollfd){ w->send.n ? w->p.in : -1, POLLOUT, 0 };
        fd[2] = (struct pollfd){ w->p.pidfd, POLLIN, 0 };
        running += w->p.pid != 0;
        if (w->p.pid && (w->nflight || w->p.in < 0 || w->closed) && w->deadline < *until)
            *until = w->deadline;
    }
    *fd = (struct pollfd){ p->open ? p->io->fd : -1, POLLIN, 0 };
    return running;
}

/* Further rows, or their end. */
static void arrive(struct vl_pool *p)
{
    int64_t before = p->rows;

    p->open = !p->io->arrived(p->io->arg, &p->rows, p->e);
    if (p->limit == before)
        p->limit = p->rows;
}

/* What killed scorers have left comes to this process when it ends, for thousands of rows. */
static void reap(const struct vl_pool *p)
{
    pid_t *keep = vl_alloc((size_t)p->o->workers * sizeof *keep);

    for (int i = 0; i < p->o->workers; i++)
        keep[i] = p->w[i].p.pid;
    vl_brood_reap(&p->brood, keep, (size_t)p->o->workers);
    free(keep);
}

/* One round: feeds, waits, moves bytes. 0 when there is nothing more to do or on an error. */
static int turn(struct vl_pool *p, struct pollfd *fd)
{
    double now = vl_now(), until = now + 3600;
    int running, n = p->o->workers;

    if (p->limit < p->rows)
        p->open = 0; /* a row has failed for good: those to come are not scored */
    running = prepare(p, fd, &until);
    if ((!running && !p->open) || p->e->code)
        return 0;
    now = until > now ? (until - now) * 1e3 + 1 : 0;
    if (poll(fd, 3 * (nfds_t)n + 1, (int)now) < 0 && errno != EINTR)
        return vl_fail_errno(p->e, VL_E_OS, "scorer: poll"), 0;
    for (int i = 0; i < n && !p->e->code; i++) {
        struct vl_pool_worker *w = &p->w[i];

        if (fd[3 * i + 1].revents)
            transmit(p, w);
        if (fd[3 * i].revents)
            receive(p, w);
        if (w->p.pid && fd[3 * i + 2].revents && !p->e->code) {
            died(p, w);
            reap(p);
        }
        if (w->p.pid && (w->nflight || w->p.in < 0 || w->closed) && w->deadline < vl_now())
            late(p, w);
    }
    if (fd[3 * n].revents && p->open && !p->e->code)
        arrive(p);
    return 1;
}

static void pass(struct vl_pool *p)
{
    struct pollfd *fd = vl_alloc((3 * (size_t)p->o->workers + 1) * sizeof *fd);

    while (turn(p, fd))
        ;
    free(fd);
}

/* Every row has been sent (next == rows or limit): these once more, each of a process of its own. */
static void one_by_one(struct vl_pool *p, struct vl_pool_rows *r)
{
    if (!r->n || p->e->code)
        return;
    p->singles = 1;
    p->stats->asked_again += (int64_t)r->n;
    while (r->n)
        vl_pool_add(&p->again, r->row[--r->n]);
    pass(p);
}

static void run(struct vl_pool *p)
{
    pass(p);
    one_by_one(p, &p->doubt);
    if (p->surplus)
        one_by_one(p, &p->suspect);
}

static void free_all(struct vl_pool *p)
{
    for (int i = 0; i < p->o->workers; i++) {
        if (p->w[i].p.pid)
            vl_worker_end(p->w[i].p.pid);
        vl_pool_forget(&p->w[i]);
        vl_buf_free(&p->w[i].send);
        vl_buf_free(&p->w[i].got);
        free(p->w[i].plain.row);
    }
    free(p->fresh.row);
    free(p->again.row);
    free(p->doubt.row);
    free(p->suspect.row);
    free(p->w);
}

int vl_scorers_run(const struct vl_scorers_opts *o, int64_t rows, const struct vl_scorers_io *io,
                   struct vl_scorers_stats *stats, struct vl_err *e)
{
    struct vl_pool p = { .o = o, .io = io, .stats = stats, .e = e, .rows = rows, .limit = rows };
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    struct vl_jq *q;

    *stats = (struct vl_scorers_stats){ 0 };
    if (o->filter) {
        if (vl_jq_open(&q, o->filter, o->args, e))
            return e->code;
        vl_jq_free(q);
    }
    p.open = io->arrived != NULL;
    p.w = vl_alloc((size_t)o->workers * sizeof *p.w);
    for (int i = 0; i < o->workers; i++)
        p.w[i] = (struct vl_pool_worker){ .p = { 0, -1, -1, -1 }, .last = -1, .window = 1 };
    sigaction(SIGPIPE, &ignore, &before);
    vl_brood_begin(&p.brood);
    if (o->argv)
        vl_brood_guard(&p.brood);
    run(&p);
    free_all(&p);
    vl_brood_end(&p.brood);
    sigaction(SIGPIPE, &before, NULL);
    return e->code;
}
