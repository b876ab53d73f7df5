/* meminfo.c - available memory, from /proc/meminfo, the cgroup's files (v2, then v1) and ulimit -v. */
#include "libverl/base/meminfo.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number after `key` (and white space) in a file of "key number" lines; key "" = the file's
 * first word. 0 when absent or not a number ("max"). */
static unsigned long long number_in(const char *path, const char *key)
{
    unsigned long long x = 0;
    char line[256];
    size_t n = strlen(key);
    FILE *f = fopen(path, "re");

    if (!f)
        return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0) {
            if (sscanf(line + n, "%llu", &x) != 1)
                x = 0;
            break;
        }
    fclose(f);
    return x;
}

static size_t left(const char *limit_path, const char *used_path, const char *stat_path,
                   const char *cache_key)
{
    unsigned long long limit = number_in(limit_path, ""), used = number_in(used_path, "");
    unsigned long long cache = number_in(stat_path, cache_key);

    if (!limit || limit > (1ULL << 60))
        return SIZE_MAX;
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

/* What ulimit -v leaves of the address space. */
static size_t left_by_ulimit(void)
{
    unsigned long long used = number_in("/proc/self/statm", "");
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    used *= (unsigned long long)sysconf(_SC_PAGESIZE);
    return limit.rlim_cur > used ? (size_t)(limit.rlim_cur - used) : 0;
}

size_t vl_mem_available(void)
{
    unsigned long long kb = number_in("/proc/meminfo", "MemAvailable:");
    size_t host = kb ? (size_t)kb * 1024 : SIZE_MAX;
    size_t v2 = left("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                     "/sys/fs/cgroup/memory.stat", "inactive_file ");
    size_t v1 = left("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                     "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                     "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file ");
    size_t group = v2 < v1 ? v2 : v1, own = left_by_ulimit();

    group = group < own ? group : own;
    return host < group ? host : group;
}
