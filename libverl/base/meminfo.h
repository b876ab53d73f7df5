/* meminfo.h - how much memory this process may still take. */
#ifndef VL_MEMINFO_H
#define VL_MEMINFO_H

#include <stddef.h>

/* Bytes: the host's MemAvailable or what is left under the cgroup's limit, whichever is less.
 * SIZE_MAX when neither can be read. Page cache counts as available. */
size_t vl_mem_available(void);

#endif
