/* scorers.c - the loop that feeds scorer processes. See scorers.h.
 *
 * A row is sent to a worker only when the one before was answered, unless the worker repeats the
 * row's id in its answers: then up to WINDOW rows are on their way, and no line can be taken for
 * another row's. Without ids, a line too many would shift every later answer by one; it shows when
 * the worker is ended, and all rows it answered are asked again, one process each. */
#include "libverl/reward/worker.h"

#include "libverl/base/jq.h"
#include "libverl/base/log.h"
#include "formats/json.h"

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

enum { WINDOW = 32, WINDOW_BYTES = 1 << 16, LINE_MAX_BYTES = 1 << 24 };

struct rows { /* a list of row numbers */
    int64_t *row;
    size_t n, cap;
};

struct worker {
    struct vl_worker p; /* pid 0: not running */
    struct vl_buf send; /* lines not yet written, from `sent` on */
    size_t sent;
    struct vl_buf got; /* bytes not yet a line, `scanned` of them searched */
    size_t scanned;
    int64_t flight[WINDOW]; /* rows sent, in order */
    int nflight, window;
    double deadline;   /* of flight[0] */
    int64_t last;      /* row answered last, -1: none yet */
    struct rows plain; /* rows answered without id */
    int single;        /* one row only, then end of input */
    int closed;        /* its output has ended, its process not yet: GRACE seconds are left */
};

struct pool {
    const struct vl_scorers_opts *o;
    const struct vl_scorers_io *io;
    struct vl_scorers_stats *stats;
    struct vl_err *e;
    int64_t rows, next; /* next row never sent */
    int64_t limit;      /* rows from here on are not started: one before failed for good */
    struct rows fresh;  /* rows to ask again, each as the first row of a worker */
    struct rows again;  /* rows to ask again, of any worker */
    struct rows doubt;  /* rows to ask again one by one */
    struct worker *w;
    int singles;  /* second pass: over `doubt` */
    int answered; /* any worker has ever answered */
};

static void rows_add(struct rows *r, int64_t row)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->row = vl_realloc(r->row, r->cap * sizeof *r->row);
    }
    r->row[r->n++] = row;
}

static void settle(struct pool *p, int64_t row, const char *json, size_t n, const char *why)
{
    if (p->io->answer(p->io->arg, row, json, n, why) && row < p->limit)
        p->limit = row;
}

VL_PRINTF(3, 4) static void blame(struct pool *p, int64_t row, const char *fmt, ...)
{
    char why[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    settle(p, row, NULL, 0, why);
}

/* ---- one worker ---- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void forget(struct worker *w)
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

static int start(struct pool *p, struct worker *w)
{
    if (vl_worker_start(p->o, &w->p, p->e))
        return p->e->code;
    w->window = 1;
    w->last = -1;
    w->single = p->singles;
    p->stats->started++;
    return 0;
}

/* The rows this worker answered without id cannot be trusted one by one. */
static void doubt(struct pool *p, struct worker *w)
{
    for (size_t i = 0; i < w->plain.n; i++)
        rows_add(&p->doubt, w->plain.row[i]);
    w->plain.n = 0;
}

/* Rows in flight from k on are asked again. */
static void send_again(struct pool *p, struct worker *w, int k)
{
    for (int i = w->nflight - 1; i >= k; i--)
        rows_add(&p->again, w->flight[i]);
    p->stats->asked_again += w->nflight > k ? w->nflight - k : 0;
    w->nflight = k;
}

/* What the user typed: the text behind sh -c, or the program. */
static const char *command_name(const struct vl_scorers_opts *o)
{
    return o->argv[1] && !strcmp(o->argv[1], "-c") && o->argv[2] ? o->argv[2] : o->argv[0];
}

static void how_it_ended(int status, char *text, size_t n)
{
    if (status < 0)
        snprintf(text, n, "closed its output");
    else if (WIFSIGNALED(status))
        snprintf(text, n, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, n, "ended with status %d", WEXITSTATUS(status));
}

/* The worker has ended (status: how; -1: it closed its output and was killed). The row it was at is
 * blamed when it was the worker's first; else the worker may have been in a bad state already, and
 * a fresh one is asked. */
static void ended(struct pool *p, struct worker *w, int status)
{
    int code = status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1, first = w->last < 0;
    char how[80];

    how_it_ended(status, how, sizeof how);
    if (w->nflight && !p->answered && p->o->argv && (code == 126 || code == 127)) {
        vl_fail(p->e, VL_E_NOINPUT,
                "scorer '%.200s' cannot be run (status %d); give a program and its arguments as "
                "for sh -c",
                command_name(p->o), code);
    } else if (w->nflight) {
        p->stats->crashed += code != 0;
        if (first)
            blame(p, w->flight[0], "the scorer %s before it answered%s", how,
                  w->got.n ? " with a whole line" : "");
        else
            rows_add(&p->fresh, w->flight[0]);
        send_again(p, w, 1);
    } else if (w->got.n) { /* part of a line nobody asked for */
        doubt(p, w);
    }
    forget(w);
}

static void late(struct pool *p, struct worker *w)
{
    vl_worker_end(w->p.pid);
    if (w->closed) {
        ended(p, w, -1);
        return;
    }
    if (w->nflight) {
        p->stats->timed_out++;
        blame(p, w->flight[0],
              "no answer within %g s (a scorer must write each answer out at once)", p->o->timeout);
        send_again(p, w, 1);
    } /* else: a single that answered and does not end */
    forget(w);
}

/* Takes rows flight[0..k-1], which were passed over, out as unanswered. */
static void passed_over(struct pool *p, struct worker *w, int k)
{
    for (int i = 0; i < k; i++)
        blame(p, w->flight[i], "the scorer answered the next row instead");
    memmove(w->flight, w->flight + k, (size_t)(w->nflight - k) * sizeof *w->flight);
    w->nflight -= k;
}

/* {"fatal": TEXT, "status": N}: the scorer cannot score any row. N is one of ours, else 69. */
static void fatal(struct pool *p, const struct vl_json *j, int64_t text)
{
    char *why = vl_json_is(j, text, VL_JSON_STRING) ? vl_json_strdup(j, text) : NULL;
    int64_t code = VL_E_UNAVAIL;

    vl_json_i64(j, vl_json_get(j, 0, "status"), &code);
    for (char *c = why; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = ' ';
    vl_fail(p->e, code >= VL_E_USAGE && code <= VL_E_RETRY ? (int)code : VL_E_UNAVAIL,
            "scorer: %.900s", why ? why : "says that it cannot score, and not why");
    free(why);
}

/* The id an answer repeats, or -1. p->e is set when the answer is a fatal one. */
static int64_t answer_id(struct pool *p, const char *s, size_t n)
{
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    int64_t id = -1, text;

    if (n > 1 && *s == '{' && vl_json_parse(&j, s, n, "answer", &e) == 0) {
        vl_json_i64(&j, vl_json_get(&j, 0, "id"), &id);
        text = id < 0 ? vl_json_get(&j, 0, "fatal") : -1;
        if (text >= 0 && vl_json_get(&j, 0, "score") < 0)
            fatal(p, &j, text);
    }
    vl_json_free(&j);
    return id;
}

/* A line while nothing was asked, or for a row that is answered: one line too many. 1 when the
 * worker was ended. */
static int too_many(struct pool *p, struct worker *w, int64_t id)
{
    if (w->last >= 0 && (id == w->last || !w->plain.n || w->single)) {
        blame(p, w->last, "more than one line for one row");
        if (id == w->last)
            return 0; /* still in step */
    } else {
        doubt(p, w);
    }
    vl_worker_end(w->p.pid);
    send_again(p, w, 0);
    forget(w);
    return 1;
}

/* One line. 1 when the worker was ended, or the pool is to be. */
static int take_line(struct pool *p, struct worker *w, const char *s, size_t n)
{
    int64_t id = answer_id(p, s, n), row;
    int k = 0;

    if (p->e->code)
        return 1;
    if (!w->nflight || (id >= 0 && id == w->last))
        return too_many(p, w, id);
    while (k < w->nflight && id >= 0 && w->flight[k] != id)
        k++;
    if (id >= 0 && k < w->nflight) {
        passed_over(p, w, k);
        w->window = w->single ? 1 : WINDOW;
    } else {
        rows_add(&w->plain, w->flight[0]);
    }
    row = w->flight[0];
    memmove(w->flight, w->flight + 1, (size_t)(--w->nflight) * sizeof *w->flight);
    w->last = row;
    w->deadline = vl_now() + p->o->timeout;
    p->answered = 1;
    if (id >= 0 && id != row)
        blame(p, row, "answered with id %" PRId64 ", which was not asked", id);
    else
        settle(p, row, n ? s : NULL, n, n ? NULL : "answered an empty line");
    return 0;
}

/* Bytes came, or the end of output. 1 when there may be more. */
static int receive(struct pool *p, struct worker *w)
{
    ssize_t k;

    vl_buf_reserve(&w->got, 65536);
    k = read(w->p.out, w->got.s + w->got.n, 65536);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (k <= 0) {
        close_fd(&w->p.out);
        w->closed = 1;
        w->deadline = vl_now() + GRACE;
        return 0;
    }
    w->got.n += (size_t)k;
    for (;;) {
        char *end = memchr(w->got.s + w->scanned, '\n', w->got.n - w->scanned);
        size_t n;

        if (!end)
            break;
        n = (size_t)(end - w->got.s);
        *end = 0;
        if (take_line(p, w, w->got.s, n && end[-1] == '\r' ? n - 1 : n))
            return 0;
        memmove(w->got.s, end + 1, w->got.n - n - 1);
        w->got.n -= n + 1;
        w->scanned = 0;
    }
    w->scanned = w->got.n;
    if (w->got.n && !w->nflight && w->window == 1) { /* a second line has begun */
        too_many(p, w, -1);
    } else if (w->got.n > LINE_MAX_BYTES) {
        vl_worker_end(w->p.pid);
        if (w->nflight)
            blame(p, w->flight[0], "more than %d bytes without the end of a line", LINE_MAX_BYTES);
        send_again(p, w, w->nflight > 0);
        forget(w);
    }
    return w->p.pid != 0;
}

/* The process has ended: what it wrote before is in the pipe, whoever else still holds that. */
static void died(struct pool *p, struct worker *w)
{
    while (w->p.out >= 0 && receive(p, w))
        ;
    if (w->p.pid && !p->e->code)
        ended(p, w, vl_worker_end(w->p.pid));
}

static void transmit(struct worker *w)
{
    ssize_t k = write(w->p.in, w->send.s + w->sent, w->send.n - w->sent);

    if (k < 0 && errno != EAGAIN && errno != EINTR) {
        vl_buf_reset(&w->send); /* it reads no more; the end of its output will tell */
        w->sent = 0;
        return;
    }
    w->sent += k > 0 ? (size_t)k : 0;
    if (w->sent == w->send.n) {
        vl_buf_reset(&w->send);
        w->sent = 0;
    }
}

/* ---- all workers ---- */

static int64_t pop(struct pool *p, struct rows *r)
{
    while (r->n) {
        int64_t row = r->row[--r->n];

        if (row < p->limit)
            return row;
    }
    return -1;
}

/* The next row for a worker that is running (fresh = 0) or would be started for it, or -1. */
static int64_t next_row(struct pool *p, int fresh)
{
    int64_t row = fresh ? pop(p, &p->fresh) : -1;

    if (row < 0)
        row = pop(p, &p->again);
    return row < 0 && p->next < p->rows && p->next < p->limit ? p->next++ : row;
}

/* Gives the worker rows, starting it first. */
static int feed(struct pool *p, struct worker *w)
{
    int64_t row;

    while (w->nflight < w->window && w->send.n < WINDOW_BYTES) {
        if (w->single && w->p.pid && w->last >= 0)
            break;
        row = next_row(p, !w->p.pid);
        if (row < 0)
            break;
        if (!w->p.pid && start(p, w))
            return p->e->code;
        if (!w->nflight)
            w->deadline = vl_now() + p->o->timeout;
        w->flight[w->nflight++] = row;
        p->io->line(p->io->arg, row, &w->send);
    }
    return 0;
}

/* End of input for a worker that is idle; what it still writes is read by the main loop. */
static void no_more(struct pool *p, struct worker *w)
{
    if (w->p.in < 0)
        return;
    close_fd(&w->p.in);
    w->deadline = vl_now() + (p->o->timeout < 1 ? p->o->timeout : 1);
}

/* One round: feeds, waits, moves bytes. 0 when nothing runs any more or on an error. */
static int turn(struct pool *p, struct pollfd *fd)
{
    double now = vl_now(), first = now + 3600;
    int running = 0;

    for (int i = 0; i < p->o->workers && !p->e->code; i++) {
        struct worker *w = &p->w[i];

        if ((w->p.in >= 0 && !w->closed) || !w->p.pid)
            feed(p, w);
        if (w->p.pid && !w->nflight)
            no_more(p, w);
        fd[3 * i] = (struct pollfd){ w->p.out, POLLIN, 0 };
        fd[3 * i + 1] = (struct pollfd){ w->send.n ? w->p.in : -1, POLLOUT, 0 };
        fd[3 * i + 2] = (struct pollfd){ w->p.pidfd, POLLIN, 0 };
        running += w->p.pid != 0;
        if (w->p.pid && w->deadline < first)
            first = w->deadline;
    }
    if (!running || p->e->code)
        return 0;
    now = first > now ? (first - now) * 1e3 + 1 : 0;
    if (poll(fd, 3 * (nfds_t)p->o->workers, (int)now) < 0 && errno != EINTR)
        return vl_fail_errno(p->e, VL_E_OS, "scorer: poll"), 0;
    for (int i = 0; i < p->o->workers && !p->e->code; i++) {
        struct worker *w = &p->w[i];

        if (fd[3 * i + 1].revents)
            transmit(w);
        if (fd[3 * i].revents)
            receive(p, w);
        if (w->p.pid && fd[3 * i + 2].revents)
            died(p, w);
        if (w->p.pid && w->deadline < vl_now())
            late(p, w);
    }
    return 1;
}

static void pass(struct pool *p)
{
    struct pollfd *fd = vl_alloc(3 * (size_t)p->o->workers * sizeof *fd);

    while (turn(p, fd))
        ;
    free(fd);
}

int vl_scorers_run(const struct vl_scorers_opts *o, int64_t rows, const struct vl_scorers_io *io,
                   struct vl_scorers_stats *stats, struct vl_err *e)
{
    struct pool p = { .o = o, .io = io, .stats = stats, .e = e, .rows = rows, .limit = rows };
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    struct vl_brood brood;
    struct vl_jq *q;

    *stats = (struct vl_scorers_stats){ 0 };
    if (o->filter) {
        if (vl_jq_open(&q, o->filter, o->args, e))
            return e->code;
        vl_jq_free(q);
    }
    p.w = vl_alloc((size_t)o->workers * sizeof *p.w);
    for (int i = 0; i < o->workers; i++)
        p.w[i] = (struct worker){ .p = { 0, -1, -1, -1 }, .last = -1, .window = 1 };
    sigaction(SIGPIPE, &ignore, &before);
    vl_brood_begin(&brood);
    pass(&p);
    if (p.doubt.n && !e->code) {
        p.singles = 1; /* every row has been sent: next == rows or limit */
        p.stats->asked_again += (int64_t)p.doubt.n;
        for (size_t i = p.doubt.n; i-- > 0;)
            rows_add(&p.again, p.doubt.row[i]);
        pass(&p);
    }
    for (int i = 0; i < o->workers; i++) {
        if (p.w[i].p.pid)
            vl_worker_end(p.w[i].p.pid);
        forget(&p.w[i]);
        vl_buf_free(&p.w[i].send);
        vl_buf_free(&p.w[i].got);
        free(p.w[i].plain.row);
    }
    vl_brood_end(&brood);
    sigaction(SIGPIPE, &before, NULL);
    free(p.fresh.row);
    free(p.again.row);
    free(p.doubt.row);
    free(p.w);
    return e->code;
}
