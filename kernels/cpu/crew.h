/* crew.h - the CPU backend's threads: numbered tasks, taken one by one by whoever is free.
 *
 * Not OpenMP's team: libgomp lets a waiting thread spin for milliseconds and makes every region wait
 * for all its threads, so that two processes on two cores ran ten times slower than one after the
 * other (1387 ms against 117 ms for a training step). Here a thread spins for some microseconds and
 * then sleeps, and a job waits for its tasks only, not for threads that the system did not run. */
#ifndef VL_CPU_CREW_H
#define VL_CPU_CREW_H

#include <stdint.h>

struct vl_crew;

/* One task; thread is 0 .. threads-1, for scratch. */
typedef void (*vl_task_fn)(void *arg, int64_t task, int thread);

struct vl_crew *vl_crew_new(int threads); /* threads start with the first run that needs them */
void vl_crew_free(struct vl_crew *p);
int vl_crew_threads(const struct vl_crew *p);
/* fn(arg, t, thread) once for each t in 0 .. tasks-1, in any order, the caller helping; returns when
 * all are done. parallel = 0: all by the caller, in order. One run at a time. */
void vl_crew_run(struct vl_crew *p, int parallel, int64_t tasks, vl_task_fn fn, void *arg);

#endif
