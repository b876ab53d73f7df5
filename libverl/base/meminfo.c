/* meminfo.c - available memory, from /proc/meminfo, control groups and ulimit -v. */
#include "libverl/base/meminfo.h"

#include "libverl/base/cgroup.h"

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

static unsigned long long number_of(const char *dir, const char *name, const char *key)
{
    char path[8300];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return number_in(path, key);
}

/* What a control group's limit leaves; names of version 2, else those of version 1. */
static void see_left(void *arg, const char *dir)
{
    unsigned long long limit = number_of(dir, "memory.max", "");
    unsigned long long used = number_of(dir, "memory.current", "");
    unsigned long long cache = number_of(dir, "memory.stat", "total_inactive_file ");
    size_t *least = arg, left;

    limit = limit ? limit : number_of(dir, "memory.limit_in_bytes", "");
    used = used ? used : number_of(dir, "memory.usage_in_bytes", "");
    cache = cache ? cache : number_of(dir, "memory.stat", "inactive_file ");
    if (!limit || limit > (1ULL << 60))
        return;
    used = used > cache ? used - cache : 0;
    left = limit > used ? (size_t)(limit - used) : 0;
    if (left < *least)
        *least = left;
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
    size_t group = SIZE_MAX, own = left_by_ulimit();

    vl_cgroup_each("memory", see_left, &group);
    group = group < own ? group : own;
    return host < group ? host : group;
}
