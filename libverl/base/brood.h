/* brood.h - no process is left behind: ending what children have started.
 *
 * Killing a process group misses those that moved to a session of their own. Between _begin and
 * _end this process is a child subreaper: descendants whose parents die come to it, wherever they
 * moved, and _end ends them. A process that is killed itself cannot do that: for this case a guard
 * waits beside it, which finds them by a variable in their environment. */
#ifndef VL_BROOD_H
#define VL_BROOD_H

#include <stddef.h>
#include <sys/types.h>

struct vl_brood {
    int was_subreaper;
    pid_t *before; /* children that were there first */
    size_t n;
    int alive; /* descriptor whose end tells the guard that this process is dead; -1: no guard */
    char mark[64]; /* "VL_BROOD=...": belongs into the environment of what is started */
};
void vl_brood_begin(struct vl_brood *b);
/* Starts the guard: when this process ends without vl_brood_end, however it is killed, the guard
 * kills every process with the mark. Without it (fork fails) only _end works. */
void vl_brood_guard(struct vl_brood *b);
/* Waits for dead children that were not there at _begin and are none of keep[0..n): orphans that came
 * here and have ended. One that is stops it; called often enough, none stay. */
void vl_brood_reap(const struct vl_brood *b, const pid_t *keep, size_t n);
void vl_brood_end(struct vl_brood *b); /* ends every child that was not there at _begin */

#endif
