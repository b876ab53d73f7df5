/* worker.h - starting and ending the processes of scorers.c. */
#ifndef VL_WORKER_H
#define VL_WORKER_H

#include "libverl/base/brood.h"
#include "libverl/reward/scorers.h"

#include <sys/types.h>

/* Starts one worker; *in and *out are our ends (close-on-exec, not blocking). */
int vl_worker_start(const struct vl_scorers_opts *o, pid_t *pid, int *in, int *out,
                    struct vl_err *e);
/* Kills the worker's process group and waits for the worker. Returns its wait status. */
int vl_worker_end(pid_t pid);
/* The worker's wait status when it ends by itself within `seconds`; else kills it: -1. */
int vl_worker_wait(pid_t pid, double seconds);

/* What a filter worker does (jq_worker.c): rows from `in`, answers to `out`, never returns. */
_Noreturn void vl_jq_worker(const struct vl_scorers_opts *o, int in, int out);

#endif
