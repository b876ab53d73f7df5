/* worker.h - starting and ending the processes of scorers.c. */
#ifndef VL_WORKER_H
#define VL_WORKER_H

#include "libverl/base/brood.h"
#include "libverl/reward/scorers.h"

#include <sys/types.h>

struct vl_worker {
    pid_t pid;
    int in, out; /* our ends of its standard input and output: close-on-exec, not blocking */
    int pidfd;   /* readable when it has ended, also while a child of its holds its output open */
};

/* Starts one worker, marked as one of the brood. The caller closes what it got. */
int vl_worker_start(const struct vl_scorers_opts *o, const struct vl_scorers_io *io,
                    const struct vl_brood *brood, struct vl_worker *w,
                    struct vl_err *e) VL_MUST_CHECK;
/* Kills the worker's process group and waits for the worker. Returns its wait status. */
int vl_worker_end(pid_t pid);

/* What a filter worker does (jq_worker.c): rows from `in`, as lines or as numbers for io->line,
 * answers to `out`, never returns. */
_Noreturn void vl_jq_worker(const struct vl_scorers_opts *o, const struct vl_scorers_io *io, int in,
                            int out);

#endif
