/* http_curl.c - the requests themselves, by libcurl's multi interface. See http.h. Built into
 * libverl_http.so, which http.c opens.
 *
 * One thread drives all transfers. A slot is one request from its first try to its answer: while it
 * waits to be asked again it keeps its slot, so a server that says "busy" is left alone by as many
 * requests as it turned down. */
#include "libverl/base/http.h"

#include <curl/curl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The one symbol of the plugin. */
__attribute__((visibility("default"))) int vl_http_curl(const struct vl_http_opts *o, int64_t n,
                                                        const struct vl_http_io *io,
                                                        struct vl_http_stats *stats,
                                                        struct vl_err *e);

struct slot {
    CURL *h;
    int busy, sent;    /* holds a request; it is with libcurl now */
    int64_t k;         /* its number */
    int tries;         /* made so far */
    double start, due; /* of the request; of the next try while !sent */
    double after;      /* Retry-After of the last try */
    double limit;      /* seconds of this try */
    struct vl_http_req req;
    struct vl_buf body;
    int too_big;
    size_t max_body;
    char text[CURL_ERROR_SIZE]; /* libcurl's words */
};

struct run {
    const struct vl_http_opts *o;
    const struct vl_http_io *io;
    struct vl_http_stats *stats;
    CURLM *multi;
    struct curl_slist *headers;
    struct slot *slot;
    int slots, used;
    int64_t next, limit; /* request to start next; requests from here on are not made */
    double free_at;      /* when the rate allows the next start */
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t receive(char *p, size_t size, size_t count, void *arg)
{
    struct slot *s = arg;
    size_t n = size * count;

    if (n > s->max_body - s->body.n) {
        s->too_big = 1;
        return 0;
    }
    vl_buf_add(&s->body, p, n);
    return n;
}

/* ---- headers ---- */

static int add_header(struct run *r, const char *line, struct vl_err *e)
{
    struct curl_slist *l = curl_slist_append(r->headers, line);

    if (!l)
        return vl_fail(e, VL_E_OS, "out of memory for HTTP headers");
    r->headers = l;
    return 0;
}

static int has_control(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7F)
            return 1;
    return 0;
}

static int add_key(struct run *r, const char *name, struct vl_err *e)
{
    const char *key = getenv(name);
    char *line;

    if (!key || !*key)
        return vl_fail(e, VL_E_USAGE,
                       "the environment variable %s, which is to hold the key, is %s", name,
                       key ? "empty" : "not set");
    if (has_control(key))
        return vl_fail(e, VL_E_USAGE,
                       "the environment variable %s holds a line feed or another control "
                       "character: a key is one line",
                       name);
    line = vl_asprintf("Authorization: Bearer %s", key);
    (void)!add_header(r, line, e);
    free(line);
    return e->code;
}

static int add_headers(struct run *r, struct vl_err *e)
{
    const char *const *h = r->o->headers;

    if (add_header(r, "Content-Type: application/json", e) || add_header(r, "Expect:", e) ||
        (r->o->key_env && add_key(r, r->o->key_env, e)))
        return e->code;
    for (; h && *h; h++) {
        size_t name = strcspn(*h, ":");

        if (!name || !(*h)[name] || memchr(*h, ' ', name) || has_control(*h))
            return vl_fail(e, VL_E_USAGE, "a header must be one line 'Name: value'");
        if (add_header(r, *h, e))
            return e->code;
    }
    return 0;
}

/* ---- one try ---- */

static int prepare(struct run *r, struct slot *s)
{
    double left = s->start + r->o->total - now();
    double limit = r->o->timeout < left ? r->o->timeout : left;
    long ms = limit > 0.001 ? (long)(limit * 1000) : 1;
    const char *roots = getenv("SSL_CERT_FILE");
    CURL *h = s->h;
    int bad = 0;

    s->limit = limit;
    curl_easy_reset(h); /* keeps the connection */
    bad |= curl_easy_setopt(h, CURLOPT_URL, s->req.url);
#if LIBCURL_VERSION_NUM >= 0x075500
    bad |= curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    bad |= curl_easy_setopt(h, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    bad |= curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    bad |= curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, ms);
    bad |= curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, ms < 30000 ? ms : 30000);
    bad |= curl_easy_setopt(h, CURLOPT_USERAGENT, "verl/" VL_VERSION);
    bad |= curl_easy_setopt(h, CURLOPT_HTTPHEADER, r->headers);
    bad |= curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, receive);
    bad |= curl_easy_setopt(h, CURLOPT_WRITEDATA, s);
    bad |= curl_easy_setopt(h, CURLOPT_PRIVATE, s);
    bad |= curl_easy_setopt(h, CURLOPT_ERRORBUFFER, s->text);
    if (roots && *roots)
        bad |= curl_easy_setopt(h, CURLOPT_CAINFO, roots);
    if (s->req.body) {
        bad |= curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)s->req.n);
        bad |= curl_easy_setopt(h, CURLOPT_POSTFIELDS, s->req.body);
    }
    return bad != 0;
}

static int try_once(struct run *r, struct slot *s, struct vl_err *e)
{
    s->max_body = r->o->max_body;
    s->text[0] = 0;
    s->too_big = 0;
    vl_buf_reset(&s->body);
    if (prepare(r, s) || curl_multi_add_handle(r->multi, s->h))
        return vl_fail(e, VL_E_OS, "libcurl does not take a request: %s",
                       s->text[0] ? s->text : "out of memory");
    s->sent = 1;
    s->tries++;
    r->stats->again += s->tries > 1;
    return 0;
}

/* ---- answers ---- */

static void let_go(struct run *r, struct slot *s)
{
    if (s->sent)
        curl_multi_remove_handle(r->multi, s->h);
    s->sent = s->busy = 0;
    r->used--;
}

/* Requests after the one that ended the run are given up. */
static void give_up(struct run *r)
{
    for (int i = 0; i < r->slots; i++)
        if (r->slot[i].busy && r->slot[i].k > r->limit)
            let_go(r, &r->slot[i]);
}

static void settle(struct run *r, struct slot *s, int status, const char *why)
{
    struct vl_http_answer a = { .status = status,
                                .body = s->body.s ? s->body.s : "",
                                .n = s->body.n,
                                .tries = s->tries,
                                .seconds = now() - s->start,
                                .why = why };
    int64_t k = s->k;

    if (why)
        r->stats->failed++;
    else
        r->stats->answered++;
    if (r->io->answer(r->io->arg, k, &a) && k < r->limit) {
        r->limit = k;
        let_go(r, s);
        give_up(r);
    } else {
        let_go(r, s);
    }
}

static int is_connection_error(CURLcode c)
{
    switch (c) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
        return 1;
    default:
        return 0;
    }
}

static int is_asked_again(const struct run *r, const struct slot *s, CURLcode c, long status)
{
    unsigned on = r->o->retry_on;

    if (s->too_big)
        return 0;
    if (c)
        return (on & VL_HTTP_ON_CONNECT) && is_connection_error(c);
    return (status == 429 && (on & VL_HTTP_ON_429)) || (status == 504 && (on & VL_HTTP_ON_504)) ||
           (status >= 500 && status <= 599 && (on & VL_HTTP_ON_5XX));
}

/* What went wrong, one line; NULL: nothing. */
static char *reason(const struct run *r, const struct slot *s, CURLcode c, long status)
{
    struct vl_buf b = { 0 };

    if (s->too_big)
        vl_buf_printf(&b, "the answer is longer than %zu bytes", r->o->max_body);
    else if (c == CURLE_OPERATION_TIMEDOUT)
        vl_buf_printf(&b, "no whole answer within %.4g s%s", s->limit,
                      s->body.n || status ? ", only a part of it" : "");
    else if (c)
        vl_buf_str(&b, s->text[0] ? s->text : curl_easy_strerror(c));
    else if (status < 200 || status > 299)
        vl_buf_printf(&b, "HTTP status %ld%s%.*s", status, s->body.n ? ": " : "",
                      (int)(s->body.n < 200 ? s->body.n : 200), s->body.n ? s->body.s : "");
    else
        return NULL;
    for (char *p = b.s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            *p = ' ';
    return vl_buf_detach(&b);
}

/* Doubled each time; shortened by a part that differs between requests, or all that a server turned
 * down at once would be back at once. */
static double wait_of(const struct run *r, const struct slot *s)
{
    uint64_t mix = ((uint64_t)s->k + 1) * 0x9E3779B97F4A7C15u + (uint64_t)s->tries * 0xD1B54A32u;
    double part = (double)(mix >> 40) / (double)(1 << 24);
    double wait = ldexp(r->o->backoff, s->tries < 40 ? s->tries - 1 : 39);

    wait = (wait < r->o->backoff_max ? wait : r->o->backoff_max) * (1 - part / 2);
    return s->after > wait ? s->after : wait;
}

static void finished(struct run *r, struct slot *s, CURLcode c)
{
    long status = 0;
    curl_off_t after = 0;
    double wait, left;
    char *why;

    curl_easy_getinfo(s->h, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(s->h, CURLINFO_RETRY_AFTER, &after);
    s->after = (double)after;
    why = reason(r, s, c, status);
    if (why && is_asked_again(r, s, c, status)) {
        wait = wait_of(r, s);
        left = s->start + r->o->total - now();
        if (s->tries < r->o->tries && wait < left) {
            curl_multi_remove_handle(r->multi, s->h);
            s->sent = 0;
            s->due = now() + wait;
            free(why);
            return;
        }
        if (r->o->tries > 1) {
            char *more = s->tries < r->o->tries
                             ? vl_asprintf("%s (try %d; the next after %.3g s would pass the limit "
                                           "of %g s in all)",
                                           why, s->tries, wait, r->o->total)
                             : vl_asprintf("%s (%d tries)", why, s->tries);

            free(why);
            why = more;
        }
    }
    settle(r, s, c && !status ? 0 : (int)status, why);
    free(why);
}

/* ---- the loop ---- */

static int start_new(struct run *r, struct vl_err *e)
{
    for (int i = 0; i < r->slots && r->next < r->limit && now() >= r->free_at;) {
        struct slot *s = &r->slot[i];

        if (s->busy) {
            i++;
            continue;
        }
        s->req = (struct vl_http_req){ 0 };
        s->k = r->next++;
        if (r->io->request(r->io->arg, s->k, &s->req))
            continue;
        s->busy = 1, s->sent = 0, s->tries = 0, s->after = 0;
        r->used++;
        s->start = now();
        if (r->o->per_second > 0)
            r->free_at = /* at most a second's worth at once */
                fmax(r->free_at, s->start - 1) + 1 / r->o->per_second;
        if (try_once(r, s, e))
            return e->code;
    }
    return 0;
}

static int start_again(struct run *r, struct vl_err *e)
{
    for (int i = 0; i < r->slots; i++) {
        struct slot *s = &r->slot[i];

        if (s->busy && !s->sent && s->due <= now() && try_once(r, s, e))
            return e->code;
    }
    return 0;
}

/* Milliseconds until something is due. */
static int pause_of(const struct run *r)
{
    double t = 1;

    for (int i = 0; i < r->slots; i++)
        if (r->slot[i].busy && !r->slot[i].sent && r->slot[i].due - now() < t)
            t = r->slot[i].due - now();
    if (r->used < r->slots && r->next < r->limit && r->free_at - now() < t)
        t = r->free_at - now();
    return t > 0 ? (int)(t * 1000) + 1 : 0;
}

static int loop(struct run *r, struct vl_err *e)
{
    while (r->next < r->limit || r->used) {
        struct CURLMsg *m;
        int running, left;
        CURLMcode c;

        if (start_new(r, e) || start_again(r, e))
            return e->code;
        c = curl_multi_perform(r->multi, &running);
        while (!c && (m = curl_multi_info_read(r->multi, &left))) {
            struct slot *s;

            if (m->msg != CURLMSG_DONE)
                continue;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
            finished(r, s, m->data.result);
        }
        if (!c && (r->used || r->next < r->limit))
            c = curl_multi_poll(r->multi, NULL, 0, pause_of(r), NULL);
        if (c)
            return vl_fail(e, VL_E_OS, "libcurl: %s", curl_multi_strerror(c));
    }
    return 0;
}

static int open_slots(struct run *r, int64_t n, struct vl_err *e)
{
    r->slots = r->o->concurrent < n ? r->o->concurrent : (int)n;
    r->slot = vl_alloc((size_t)r->slots * sizeof *r->slot);
    r->multi = curl_multi_init();
    if (!r->multi || curl_multi_setopt(r->multi, CURLMOPT_MAXCONNECTS, (long)r->slots))
        return vl_fail(e, VL_E_OS, "libcurl does not start: out of memory");
    for (int i = 0; i < r->slots; i++)
        if (!(r->slot[i].h = curl_easy_init()))
            return vl_fail(e, VL_E_OS, "libcurl does not start: out of memory");
    return add_headers(r, e);
}

static void close_slots(struct run *r)
{
    for (int i = 0; i < r->slots; i++) {
        if (r->slot[i].sent)
            curl_multi_remove_handle(r->multi, r->slot[i].h);
        if (r->slot[i].h)
            curl_easy_cleanup(r->slot[i].h);
        vl_buf_free(&r->slot[i].body);
    }
    if (r->multi)
        curl_multi_cleanup(r->multi);
    curl_slist_free_all(r->headers);
    free(r->slot);
}

int vl_http_curl(const struct vl_http_opts *o, int64_t n, const struct vl_http_io *io,
                 struct vl_http_stats *stats, struct vl_err *e)
{
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    struct run r = { .o = o, .io = io, .stats = stats, .limit = n };
    struct sigaction before;

    *stats = (struct vl_http_stats){ 0 };
    if (o->concurrent < 1 || o->tries < 1 || !(o->timeout > 0) || !(o->total > 0))
        return vl_fail(e, VL_E_BUG, "vl_http_run: concurrent, tries, timeout, total must be set");
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return vl_fail(e, VL_E_OS, "libcurl does not start");
    sigaction(SIGPIPE, &ignore, &before);
    if (!open_slots(&r, n, e))
        (void)!loop(&r, e);
    close_slots(&r);
    sigaction(SIGPIPE, &before, NULL);
    curl_global_cleanup();
    return e->code;
}
