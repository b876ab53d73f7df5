/* http.h - many HTTP requests at a time, with limits, retries and time-outs.
 *
 * libcurl costs a program 30 ms before main() when it is linked, more than all of its other
 * libraries together, so it is opened (libverl_http.so, base/plugin.h) when the first request is
 * made. */
#ifndef VL_HTTP_H
#define VL_HTTP_H

#include "libverl/base/mem.h"

/* What is asked again, apart from answers that are final. */
enum {
    VL_HTTP_ON_CONNECT = 1, /* no or half an answer: not resolved, refused, closed, timed out */
    VL_HTTP_ON_429 = 2,     /* too many requests */
    VL_HTTP_ON_504 = 4,     /* gateway time-out */
    VL_HTTP_ON_5XX = 8,     /* 500 to 599 */
    VL_HTTP_ON_ALL = 15,
};

struct vl_http_opts {
    int concurrent;      /* requests on their way or waiting to be asked again; at least 1 */
    double per_second;   /* requests started per second at most, retries not counted; 0: no limit */
    double timeout;      /* seconds one try may take, connecting included; > 0 */
    double total;        /* seconds a request may take, tries and waits together; > 0 */
    int tries;           /* at least 1 */
    unsigned retry_on;   /* VL_HTTP_ON_* */
    double backoff;      /* seconds before the second try, doubled before each further one ... */
    double backoff_max;  /* ... up to this; shortened by up to a half, unlike for each request.
                            A longer Retry-After is honoured instead. */
    size_t max_body;     /* bytes of an answer; more is a failure */
    const char *key_env; /* variable whose value is sent as "Authorization: Bearer VALUE", or NULL.
                            Its value gets into no message. */
    const char *const *headers; /* further "Name: value" lines, NULL-terminated, or NULL */
};
#define VL_HTTP_DEFAULTS                                                                           \
    {                                                                                              \
        .concurrent = 16, .timeout = 60, .total = 600, .tries = 4, .retry_on = VL_HTTP_ON_ALL,     \
        .backoff = 1, .backoff_max = 30, .max_body = (size_t)16 << 20                              \
    }

struct vl_http_req {
    const char *url;  /* http:// or https:// */
    const char *body; /* POST with Content-Type: application/json; NULL: GET */
    size_t n;
};

struct vl_http_answer {
    int status;       /* 0: there was no answer */
    const char *body; /* NUL-terminated; of the last try, also when the status is an error */
    size_t n;
    int tries;
    double seconds;  /* from the first try on */
    const char *why; /* NULL: a status of 200 to 299 and the whole body. Else one line that says
                        what went wrong in the last try, without the URL */
};

struct vl_http_io {
    void *arg;
    /* Fills *q when request k's turn comes; what it points to must last until k is answered. 0, or 1:
     * there is nothing to ask for k, and no answer comes. */
    int (*request)(void *arg, int64_t k, struct vl_http_req *q);
    /* Called once a request, in any order. 1: stop; requests before k are still made, those after
     * it are given up. */
    int (*answer)(void *arg, int64_t k, const struct vl_http_answer *a);
};

struct vl_http_stats {
    int64_t answered, failed, again; /* with success; for good; tries after the first */
};

/* Makes requests 0 .. n-1 from the calling thread, starting them in order. Errors are those of the
 * run, not of requests: VL_E_USAGE for a variable that is not set or a header that is none,
 * VL_E_UNAVAIL when this build or machine has no libcurl; with n = 0 it makes sure of these. Redirects are not followed. The proxy
 * variables (http_proxy, no_proxy ...) hold as for curl; SSL_CERT_FILE names other root
 * certificates. May be called again. */
int vl_http_run(const struct vl_http_opts *o, int64_t n, const struct vl_http_io *io,
                struct vl_http_stats *stats, struct vl_err *e) VL_MUST_CHECK;

/* VL_E_USAGE, naming `option`, unless s is an http:// or https:// URL with a host and without user
 * and password in it, which would get into files and messages. */
int vl_http_check_url(const char *s, const char *option, struct vl_err *e) VL_MUST_CHECK;

#endif
