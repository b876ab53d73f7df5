/* cpus.c - see cpus.h. */
#include "libverl/base/cpus.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "libverl/base/cgroup.h"

int vl_cpus_mask(void *cpu_set, size_t bytes)
{
    CPU_ZERO_S(bytes, (cpu_set_t *)cpu_set);
    if (sched_getaffinity(0, bytes, cpu_set) != 0)
        CPU_SET_S(0, bytes, (cpu_set_t *)cpu_set); /* more cpus than the set holds */
    return CPU_COUNT_S(bytes, (cpu_set_t *)cpu_set);
}

/* The numbers at the start of dir/name, up to two: how many. "max" is none. */
static int numbers_in(const char *dir, const char *name, long long x[2])
{
    char path[8300];
    FILE *f;
    int n;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fscanf(f, "%lld %lld", &x[0], &x[1]);
    fclose(f);
    return n > 0 ? n : 0;
}

static void see_quota(void *arg, const char *dir)
{
    long long x[2], period[2], n;
    int *least = arg;

    if (numbers_in(dir, "cpu.max", x) != 2) { /* version 1 has two files */
        if (!numbers_in(dir, "cpu.cfs_quota_us", x) ||
            !numbers_in(dir, "cpu.cfs_period_us", period))
            return;
        x[1] = period[0];
    }
    if (x[0] <= 0 || x[1] <= 0)
        return;
    n = (x[0] + x[1] - 1) / x[1];
    if (n < *least)
        *least = (int)n;
}

int vl_cpus_limit(void)
{
    int least = INT_MAX;

    vl_cgroup_each("cpu", see_quota, &least);
    return least;
}
