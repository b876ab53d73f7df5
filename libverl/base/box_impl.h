/* box_impl.h - shared by box*.c: what the parent tells the processes inside, and hears from them. */
#ifndef VL_BOX_IMPL_H
#define VL_BOX_IMPL_H

#include "libverl/base/box.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Descriptors of the inside, in this order from 0 on; all others are closed there. */
enum { BOX_IN, BOX_OUT, BOX_ERR, BOX_GO, BOX_STATUS, BOX_FDS };

enum { BOX_UID = 1000 }; /* uid and gid inside a user namespace */

/* One message on BOX_STATUS; shorter than PIPE_BUF, so never torn. */
struct box_word {
    enum { BOX_NO_SETUP, BOX_NO_PROGRAM, BOX_DONE } kind;
    int error;     /* errno */
    int status;    /* BOX_DONE: wait status */
    double cpu;    /* BOX_DONE: seconds */
    char step[64]; /* BOX_NO_SETUP: what failed */
};

struct box_plan {
    const struct vl_box_opts *o;
    const struct vl_box_job *job;
    const char *folder; /* weak: the private folder made by the parent; else NULL */
    int userns;         /* a user namespace holds the others */
    int root;           /* we are root: drop to another uid */
    int max_tasks;      /* RLIMIT_NPROC */
};

/* What the parent sends on BOX_GO when the maps are written. */
struct box_go {
    uid_t uid; /* without user namespace: the uid to drop to */
};

/* What fork() does, but without locks that another thread may hold. */
static inline pid_t box_clone(unsigned long namespaces)
{
    return (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL);
}

/* Runs in the cloned process, whose descriptors are BOX_FDS; calls only what may follow a fork of a
 * threaded process (no malloc). Never returns. */
_Noreturn void box_inside(const struct box_plan *p);

/* What a box shows: paths, and names in /dev; both end with NULL. */
extern const char *const box_shown[], *const box_devices[];

/* Confines this process, in a weak box, to what is shown and its folder, where the kernel can. 0 or
 * -1 with errno. */
int box_landlock(const struct box_plan *p);

/* Makes this process unable to use system calls that a box does not need. 0 or -1 with errno. */
int box_filter(int weak);

/* Processes below (and without) pid. */
struct box_use {
    int64_t resident; /* bytes, anonymous and shared, shared pages once where it matters */
    int tasks;
};
void box_use(pid_t pid, int64_t limit, struct box_use *u);
/* Kills the children of pid, itself not. */
void box_kill_children(pid_t pid);
/* Tasks (threads) of all processes of this uid. */
int box_tasks_of(uid_t uid);

#endif
