/* meminfo.h - how much memory this process may still take. */
#ifndef VL_MEMINFO_H
#define VL_MEMINFO_H

#include <stddef.h>

/* Bytes: the least of the host's MemAvailable and what is left under the control groups' limits and under
 * ulimit -v. SIZE_MAX when none can be read. Page cache counts as available. */
size_t vl_mem_available(void);

#endif
