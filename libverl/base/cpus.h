/* cpus.h - how many processors this process may use. */
#ifndef VL_CPUS_H
#define VL_CPUS_H

#include <stddef.h>

/* Fills the affinity mask (a cpu_set_t of `bytes` bytes) and counts it, at least 1. */
int vl_cpus_mask(void *cpu_set, size_t bytes);
/* The smallest quota of the control groups it is in, rounded up; INT_MAX when there is none. All
 * processes of the group share it. */
int vl_cpus_limit(void);

#endif
