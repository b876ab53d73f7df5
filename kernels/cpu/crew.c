/* crew.c - see crew.h.
 *
 * A job is published by writing `claim` = job number and the next free task. A worker reads the
 * job's function, then takes a task by compare-and-swap on claim: that succeeds only while this very job
 * still has tasks, and then the job cannot end before the task is done, so what was read is valid.
 * A late worker finds nothing to take and delays nobody. */
#include "kernels/cpu/crew.h"

#include "libverl/base/mem.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN      1000 /* pauses before sleeping: 10 to 50 microseconds */
#define TASK_BITS 32   /* the other half numbers jobs: a worker would have to sleep through 2^32 */
#define TASK_MASK (((uint64_t)1 << TASK_BITS) - 1)

struct worker {
    struct vl_crew *crew;
    pthread_t thread;
    int index;
};

struct vl_crew {
    int threads, started; /* started: threads that run, the caller included */
    struct worker *worker;
    _Alignas(64) _Atomic uint64_t claim; /* job number << TASK_BITS | next task */
    _Atomic(vl_task_fn) fn;
    _Atomic(void *) arg;
    _Atomic int64_t tasks;
    _Alignas(64) _Atomic uint32_t job; /* futex of the workers: low bits of the job number */
    _Atomic int sleepers, stop;
    _Alignas(64) _Atomic uint32_t left; /* futex of the caller: tasks not yet done */
    _Atomic int waiting;
};

static void nap(_Atomic uint32_t *word, uint32_t while_is)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_is, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Takes and does tasks of the job that is current; returns when there is none to take. */
static void work(struct vl_crew *p, int thread)
{
    uint64_t c = atomic_load(&p->claim);

    for (;;) {
        vl_task_fn fn = atomic_load(&p->fn);
        void *arg = atomic_load(&p->arg);
        int64_t t = (int64_t)(c & TASK_MASK);

        if (t >= atomic_load(&p->tasks)) {
            uint64_t again = atomic_load(&p->claim);

            if (again == c)
                return;
            c = again; /* another job has begun meanwhile */
            continue;
        }
        if (!atomic_compare_exchange_weak(&p->claim, &c, c + 1))
            continue;
        fn(arg, t, thread);
        if (atomic_fetch_sub(&p->left, 1) == 1 && atomic_load(&p->waiting))
            wake(&p->left);
        c = atomic_load(&p->claim);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct vl_crew *p = w->crew;
    uint32_t seen = 0;

    for (;;) {
        uint32_t job = atomic_load(&p->job);

        for (int i = 0; i < SPIN && job == seen; i++) {
            relax();
            job = atomic_load(&p->job);
        }
        if (job == seen) {
            atomic_fetch_add(&p->sleepers, 1);
            nap(&p->job, seen);
            atomic_fetch_sub(&p->sleepers, 1);
            continue;
        }
        if (atomic_load(&p->stop))
            return NULL;
        seen = job;
        work(p, w->index);
    }
}

struct vl_crew *vl_crew_new(int threads)
{
    struct vl_crew *p;
    struct vl_err e = { 0 };

    if (vl_try_alloc(&p, 1, sizeof *p, "threads", &e)) /* aligned to its lines */
        vl_oom(sizeof *p);
    p->threads = threads;
    p->started = 1;
    p->worker = vl_alloc((size_t)threads * sizeof *p->worker);
    return p;
}

int vl_crew_threads(const struct vl_crew *p)
{
    return p->threads;
}

/* Starts the missing threads; with fewer than asked for the work is done all the same. */
static void start(struct vl_crew *p)
{
    while (p->started < p->threads) {
        struct worker *w = p->worker + p->started;

        *w = (struct worker){ .crew = p, .index = p->started };
        if (pthread_create(&w->thread, NULL, worker_main, w))
            break;
        p->started++;
    }
    p->threads = p->started;
}

void vl_crew_free(struct vl_crew *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, 1);
    atomic_fetch_add(&p->job, 1);
    wake(&p->job);
    for (int i = 1; i < p->started; i++)
        pthread_join(p->worker[i].thread, NULL);
    free(p->worker);
    free(p);
}

static void wait_all(struct vl_crew *p)
{
    for (int i = 0; i < SPIN && atomic_load(&p->left); i++)
        relax();
    atomic_store(&p->waiting, 1);
    for (uint32_t n; (n = atomic_load(&p->left));)
        nap(&p->left, n);
    atomic_store(&p->waiting, 0);
}

void vl_crew_run(struct vl_crew *p, int parallel, int64_t tasks, vl_task_fn fn, void *arg)
{
    uint64_t number;

    if (tasks <= 0)
        return;
    if (parallel && p->started < p->threads)
        start(p);
    if (!parallel || p->threads == 1 || tasks == 1) {
        for (int64_t t = 0; t < tasks; t++)
            fn(arg, t, 0);
        return;
    }
    number = (atomic_load(&p->claim) >> TASK_BITS) + 1;
    /* no task can be taken while the fields change */
    atomic_store(&p->claim, number << TASK_BITS | TASK_MASK);
    atomic_store(&p->fn, fn);
    atomic_store(&p->arg, arg);
    atomic_store(&p->tasks, tasks);
    atomic_store(&p->left, (uint32_t)tasks);
    atomic_store(&p->claim, number << TASK_BITS);
    atomic_fetch_add(&p->job, 1);
    if (atomic_load(&p->sleepers))
        wake(&p->job);
    work(p, 0);
    wait_all(p);
}
