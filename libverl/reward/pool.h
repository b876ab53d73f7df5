/* pool.h - inside the scorer pool (scorers.c, pool_lines.c, pool_once.c): workers and their rows. */
#ifndef VL_POOL_H
#define VL_POOL_H

#include "libverl/reward/worker.h"

enum {
    VL_POOL_WINDOW = 32,         /* rows on their way to a command that repeats ids */
    VL_POOL_FILTER_WINDOW = 256, /* and to a filter, which is sent numbers */
    VL_POOL_ANSWER_MAX = 1 << 24 /* bytes of an answer */
};

struct vl_pool_rows { /* a list of row numbers */
    int64_t *row;
    size_t n, cap;
};

struct vl_pool_worker {
    struct vl_worker p; /* pid 0: not running */
    struct vl_buf send; /* bytes not yet written, from `sent` on */
    size_t sent;
    struct vl_buf got; /* bytes not yet a line, `scanned` of them searched */
    size_t scanned;
    int64_t flight[VL_POOL_FILTER_WINDOW]; /* rows sent, in order */
    int nflight, window;
    int64_t known;             /* rows there were when it was started: a filter has them */
    double deadline;           /* of flight[0]; of its end when it has no more input or output */
    int64_t last;              /* row answered last, -1: none yet */
    struct vl_pool_rows plain; /* rows answered without id */
    int ready;                 /* it said so, or has answered */
    int single;                /* one row only, then end of input */
    int closed;                /* its output has ended, its process not yet */
};

struct vl_pool {
    const struct vl_scorers_opts *o;
    const struct vl_scorers_io *io;
    struct vl_scorers_stats *stats;
    struct vl_err *e;
    int64_t rows, next;          /* next row never sent */
    int64_t limit;               /* rows from here on are not started: one before failed for good */
    int open;                    /* rows may still arrive */
    struct vl_pool_rows fresh;   /* rows to ask again, each as the first row of a worker */
    struct vl_pool_rows again;   /* rows to ask again, of any worker */
    struct vl_pool_rows doubt;   /* rows to ask again one by one */
    struct vl_pool_rows suspect; /* blamed, but if lines were shifted, for another row */
    int surplus;                 /* a row printed more than one line */
    struct vl_brood brood;
    struct vl_pool_worker *w;
    int singles;  /* second pass: over `doubt` */
    int answered; /* any worker has ever answered */
};

/* scorers.c */
void vl_pool_add(struct vl_pool_rows *r, int64_t row);
void vl_pool_settle(struct vl_pool *p, int64_t row, const char *json, size_t n, const char *why);
void vl_pool_blame(struct vl_pool *p, int64_t row, const char *fmt, ...) VL_PRINTF(3, 4);
/* The worker is gone: closes its files and clears what was known of it. */
void vl_pool_forget(struct vl_pool_worker *w);
/* "was killed by signal 9 (Killed)", from a wait status; -1: "closed its output". */
void vl_pool_how_it_ended(int status, char *text, size_t n);
/* Seconds it may take until its next answer. */
double vl_pool_limit(const struct vl_pool *p, const struct vl_pool_worker *w);
/* Sets p->e when the first process of all ended with 126 or 127: it cannot be run. 1: it did. */
int vl_pool_cannot_run(struct vl_pool *p, int status);

/* pool_lines.c: long-running workers. */
/* Takes the whole lines in w->got. */
void vl_pool_lines(struct vl_pool *p, struct vl_pool_worker *w);
void vl_pool_lines_ended(struct vl_pool *p, struct vl_pool_worker *w, int status);
void vl_pool_lines_late(struct vl_pool *p, struct vl_pool_worker *w);

/* pool_once.c: a process for each row. */
void vl_pool_once_ended(struct vl_pool *p, struct vl_pool_worker *w, int status);
void vl_pool_once_late(struct vl_pool *p, struct vl_pool_worker *w);

#endif
