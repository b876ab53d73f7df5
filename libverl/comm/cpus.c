/* cpus.c - how many cpus a rank may use: affinity mask and cgroup quota. Ranks that a launcher
 * pinned to cpus of their own keep all of them; ranks that share a mask divide it. */
#include "libverl/comm/comm_impl.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

int vl_cpus_mask(void *cpu_set, size_t bytes)
{
    CPU_ZERO_S(bytes, (cpu_set_t *)cpu_set);
    if (sched_getaffinity(0, bytes, cpu_set) != 0)
        CPU_SET_S(0, bytes, (cpu_set_t *)cpu_set); /* more cpus than the set holds */
    return CPU_COUNT_S(bytes, (cpu_set_t *)cpu_set);
}

/* quota / period rounded up, or 0 when the file is absent or says "max". */
static int quota_of(const char *path, const char *period_path)
{
    long long quota = 0, period = 0;
    FILE *f = fopen(path, "re");

    if (!f)
        return 0;
    if (fscanf(f, "%lld %lld", &quota, &period) < 1)
        quota = 0;
    fclose(f);
    if (period_path && (f = fopen(period_path, "re"))) {
        if (fscanf(f, "%lld", &period) != 1)
            period = 0;
        fclose(f);
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int vl_cpus_limit(void)
{
    int n = quota_of("/sys/fs/cgroup/cpu.max", NULL);

    if (!n)
        n = quota_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    return n ? n : INT_MAX;
}
