/* pool_lines.c - long-running workers: which line answers which row. See scorers.h.
 *
 * A row is sent to a worker only when the one before was answered, unless the worker repeats the
 * row's id in its answers: then a window of rows is on its way, and no line can be taken for
 * another row's. Without ids, a line too many would shift every later answer by one; it shows when
 * the worker is ended, and all rows it answered are asked again, one process each. */
#include "libverl/reward/pool.h"

#include "formats/json.h"
#include "libverl/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rows this worker answered without id cannot be trusted one by one. */
static void doubt(struct vl_pool *p, struct vl_pool_worker *w)
{
    for (size_t i = 0; i < w->plain.n; i++)
        vl_pool_add(&p->doubt, w->plain.row[i]);
    w->plain.n = 0;
}

/* A worker that ends before its input does has answered its rows in step, or a line too many has
 * shifted them: nothing tells which, once there are two. */
static void doubt_if_cut(struct vl_pool *p, struct vl_pool_worker *w)
{
    if (w->plain.n > 1)
        doubt(p, w);
}

/* The row that is not answered is to blame; but for the case that the worker was at another one. */
VL_PRINTF(3, 4)
static void blame_current(struct vl_pool *p, struct vl_pool_worker *w, const char *fmt, ...)
{
    char why[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    vl_pool_blame(p, w->flight[0], "%s", why);
    if (w->plain.n > 1)
        vl_pool_add(&p->suspect, w->flight[0]);
}

/* Rows in flight from k on are asked again. */
static void send_again(struct vl_pool *p, struct vl_pool_worker *w, int k)
{
    for (int i = w->nflight - 1; i >= k; i--)
        vl_pool_add(&p->again, w->flight[i]);
    p->stats->asked_again += w->nflight > k ? w->nflight - k : 0;
    w->nflight = k;
}

/* The worker has ended (status: how; -1: it closed its output and was killed). The row it was at is
 * blamed when it was the worker's first; else the worker may have been in a bad state already, and
 * a fresh one is asked. */
void vl_pool_lines_ended(struct vl_pool *p, struct vl_pool_worker *w, int status)
{
    int first = w->last < 0;
    char how[80];

    vl_pool_how_it_ended(status, how, sizeof how);
    if (w->nflight && !vl_pool_cannot_run(p, status)) {
        p->stats->crashed += status != 0;
        if (first)
            vl_pool_blame(p, w->flight[0], "the scorer %s before it answered%s", how,
                          w->got.n ? " with a whole line" : "");
        else
            vl_pool_add(&p->fresh, w->flight[0]);
        send_again(p, w, 1);
        doubt_if_cut(p, w);
    } else if (!w->nflight && w->got.n) { /* part of a line nobody asked for */
        doubt(p, w);
    } else if (!w->nflight && w->p.in >= 0) {
        doubt_if_cut(p, w);
    }
    vl_pool_forget(w);
}

void vl_pool_lines_late(struct vl_pool *p, struct vl_pool_worker *w)
{
    vl_worker_end(w->p.pid);
    if (w->closed) {
        vl_pool_lines_ended(p, w, -1);
        return;
    }
    if (w->nflight) {
        p->stats->timed_out++;
        blame_current(p, w, "no answer within %g s (a scorer must write each answer out at once)",
                      vl_pool_limit(p, w));
        send_again(p, w, 1);
        doubt_if_cut(p, w);
    } /* else: a single that answered and does not end */
    vl_pool_forget(w);
}

/* Takes rows flight[0..k-1], which were passed over, out as unanswered. */
static void passed_over(struct vl_pool *p, struct vl_pool_worker *w, int k)
{
    for (int i = 0; i < k; i++)
        vl_pool_blame(p, w->flight[i], "the scorer answered the next row instead");
    memmove(w->flight, w->flight + k, (size_t)(w->nflight - k) * sizeof *w->flight);
    w->nflight -= k;
}

/* {"fatal": TEXT, "status": N}: the scorer cannot score any row. N is one of ours, else 69. */
static void fatal(struct vl_pool *p, const struct vl_json *j, int64_t text)
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

/* The id an answer repeats, or -1. p->e is set when the answer is a fatal one; *ready when it is none
 * but says that the worker is ready. */
static int64_t answer_id(struct vl_pool *p, const char *s, size_t n, int *ready)
{
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    int64_t id = -1, text;

    if (n > 1 && *s == '{' && vl_json_parse(&j, s, n, "answer", &e) == 0) {
        vl_json_i64(&j, vl_json_get(&j, 0, "id"), &id);
        text = id < 0 ? vl_json_get(&j, 0, "fatal") : -1;
        if (text >= 0 && vl_json_get(&j, 0, "score") < 0)
            fatal(p, &j, text);
        *ready = id < 0 && vl_json_bool(&j, vl_json_get(&j, 0, "ready"), ready) && *ready &&
                 j.node[0].count == 1;
    }
    vl_json_free(&j);
    return id;
}

/* A line while nothing was asked, or for a row that is answered: one line too many. 1 when the
 * worker was ended. */
static int too_many(struct vl_pool *p, struct vl_pool_worker *w, int64_t id)
{
    if (w->last >= 0 && (id == w->last || !w->plain.n || w->single)) {
        vl_pool_blame(p, w->last, "more than one line for one row");
        p->surplus = 1;
        if (id == w->last)
            return 0; /* still in step */
    } else {
        doubt(p, w);
    }
    vl_worker_end(w->p.pid);
    send_again(p, w, 0);
    vl_pool_forget(w);
    return 1;
}

/* One line. 1 when the worker was ended, or the pool is to be. */
static int take_line(struct vl_pool *p, struct vl_pool_worker *w, const char *s, size_t n)
{
    int k = 0, ready = 0;
    int64_t id = answer_id(p, s, n, &ready), row;

    if (p->e->code)
        return 1;
    if (ready && !w->ready) {
        w->ready = 1;
        w->deadline = vl_now() + p->o->timeout;
        return 0;
    }
    w->ready = 1;
    if (!w->nflight || (id >= 0 && id == w->last))
        return too_many(p, w, id);
    while (k < w->nflight && id >= 0 && w->flight[k] != id)
        k++;
    if (id >= 0 && k < w->nflight) {
        passed_over(p, w, k);
        w->window = w->single ? 1 : p->o->filter ? VL_POOL_FILTER_WINDOW : VL_POOL_WINDOW;
    } else {
        vl_pool_add(&w->plain, w->flight[0]);
    }
    row = w->flight[0];
    memmove(w->flight, w->flight + 1, (size_t)(--w->nflight) * sizeof *w->flight);
    w->last = row;
    w->deadline = vl_now() + p->o->timeout;
    p->answered = 1;
    if (id >= 0 && id != row)
        vl_pool_blame(p, row, "answered with id %" PRId64 ", which was not asked", id);
    else
        vl_pool_settle(p, row, n ? s : NULL, n, n ? NULL : "answered an empty line");
    return 0;
}

void vl_pool_lines(struct vl_pool *p, struct vl_pool_worker *w)
{
    size_t at = 0;
    char *end;

    while ((end = memchr(w->got.s + w->scanned, '\n', w->got.n - w->scanned))) {
        size_t n = (size_t)(end - w->got.s) - at;

        *end = 0;
        w->scanned = at + n + 1;
        if (take_line(p, w, w->got.s + at, n && end[-1] == '\r' ? n - 1 : n))
            return;
        at += n + 1;
    }
    memmove(w->got.s, w->got.s + at, w->got.n - at);
    w->got.n -= at;
    w->scanned = w->got.n;
    if (w->got.n && !w->nflight && w->window == 1) { /* a second line has begun */
        too_many(p, w, -1);
    } else if (w->got.n > VL_POOL_ANSWER_MAX) {
        vl_worker_end(w->p.pid);
        if (w->nflight)
            blame_current(p, w, "more than %d bytes without the end of a line", VL_POOL_ANSWER_MAX);
        send_again(p, w, w->nflight > 0);
        doubt_if_cut(p, w);
        vl_pool_forget(w);
    }
}
