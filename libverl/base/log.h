/* log.h - messages, progress and the closing summary, all on stderr; stdout carries data only. */
#ifndef VL_LOG_H
#define VL_LOG_H

#include "libverl/base/err.h"

struct vl_log {
    const char *program;
    int level;                   /* 0 = -q, 1 = normal, 2 = -v */
    int rank;                    /* only rank 0 speaks, warnings and errors apart */
    int tty;                     /* progress is drawn in place */
    double t0, last;             /* seconds, monotonic */
    int64_t bytes_in, bytes_out; /* of files, added up by who reads and writes them */
    int drawn;                   /* a progress line stands on the terminal */
};

void vl_log_init(struct vl_log *l, const char *program, int level, int rank);
void vl_info(struct vl_log *l, const char *fmt, ...) VL_PRINTF(2, 3);   /* not with -q */
void vl_detail(struct vl_log *l, const char *fmt, ...) VL_PRINTF(2, 3); /* only with -v */
void vl_warn(struct vl_log *l, const char *fmt, ...) VL_PRINTF(2, 3);   /* also with -q */
void vl_answer(struct vl_log *l, const char *fmt, ...) VL_PRINTF(2, 3); /* rank 0, also with -q */
/* "what 12/64 (note)": at most every 0.2 s on a terminal, every 10 s elsewhere, and at done = total. */
void vl_progress(struct vl_log *l, const char *what, int64_t done, int64_t total, const char *note);
/* "64 rows, 8192 tokens in 1.23 s (52.0 rows/s, 6660 tokens/s), 1.2 MB in, 0.3 MB out, peak 312 MB";
 * tokens < 0: left out. */
void vl_log_done(struct vl_log *l, int64_t rows, int64_t tokens);
double vl_now(void);        /* monotonic seconds */
double vl_peak_bytes(void); /* largest resident size so far */

#endif
