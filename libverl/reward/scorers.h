/* scorers.h - outside scorers: processes that read one JSON line a row and write one back.
 *
 * Many rows are scored at a time, yet what a row gets does not depend on order or on the number of
 * workers: a row is blamed for a crash only when it also crashes a fresh process, and rows of a
 * process that wrote more lines than it was asked for are asked again, each of its own process.
 * With `once` every row has a process of its own anyway.
 * Protocol: verl-reward-protocol(7). */
#ifndef VL_SCORERS_H
#define VL_SCORERS_H

#include "libverl/base/mem.h"

struct vl_scorers_opts {
    const char *const *argv; /* a program and its arguments, NULL-terminated; or */
    const char *filter;      /* a jq filter, run in forked workers with an empty environment */
    const char *args;        /* JSON object text: the filter's $variables; NULL: none */
    int once;                /* argv is started for each row: it reads the row, prints one answer
                                and ends with status 0 */
    int workers;             /* at least 1 */
    double timeout;          /* seconds a row may take */
    double start;   /* seconds a process may take to say {"ready":true}; 0: that time is part
                                of its first row's */
    int64_t memory; /* bytes a worker may allocate, 0: no limit */
};

struct vl_scorers_io {
    void *arg;
    /* Appends row's line: a JSON object that starts with {"id":ROW, and ends with a line feed. For
     * filters it is also called in the workers, which are forks: rows there were then cross no
     * pipe. */
    void (*line)(void *arg, int64_t row, struct vl_buf *out);
    /* One answer (JSON text) or, with json NULL, the reason why there is none. Called once a row in
     * any order, and again when it turns out later that the row has no valid answer. Returns 1 to
     * stop: rows before this one are still scored. */
    int (*answer)(void *arg, int64_t row, const char *json, size_t n, const char *why);
    /* Rows that come while others are scored, NULL: none. Called when `fd` is readable or at its
     * end; sets *rows to the number of rows there are now. Returns 1 when no more come. */
    int (*arrived)(void *arg, int64_t *rows, struct vl_err *e);
    int fd;
};

struct vl_scorers_stats {
    int64_t started, crashed, timed_out, asked_again;
};

/* Scores rows 0..rows-1. Errors are those of the pool (VL_E_USAGE for a filter that does not
 * compile, VL_E_NOINPUT for a program that cannot be run, VL_E_OS, what a scorer says is fatal), not
 * of rows. When it returns, no process that it started is left. Not to be called by two threads at
 * a time. */
int vl_scorers_run(const struct vl_scorers_opts *o, int64_t rows, const struct vl_scorers_io *io,
                   struct vl_scorers_stats *stats, struct vl_err *e) VL_MUST_CHECK;

#endif
