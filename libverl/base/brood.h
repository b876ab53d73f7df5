/* brood.h - no process is left behind: ending what children have started.
 *
 * Killing a process group misses those that moved to a session of their own. Between _begin and
 * _end this process is a child subreaper: descendants whose parents die come to it, wherever they
 * moved, and _end ends them. */
#ifndef VL_BROOD_H
#define VL_BROOD_H

#include <stddef.h>
#include <sys/types.h>

struct vl_brood {
    int was_subreaper;
    pid_t *before; /* children that were there first */
    size_t n;
};
void vl_brood_begin(struct vl_brood *b);
void vl_brood_end(struct vl_brood *b); /* ends every child that was not there at _begin */

#endif
