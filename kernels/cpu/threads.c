/* threads.c - how many threads this process should use: affinity mask, cgroup quota, local ranks.
 *
 * OMP_NUM_THREADS is honoured, because users and batch systems set it to keep programs apart. */
#include "kernels/cpu/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int affinity_count(void)
{
    for (size_t n = 1024; n <= 1 << 20; n *= 2) {
        cpu_set_t *s = CPU_ALLOC(n);
        size_t bytes = CPU_ALLOC_SIZE(n);
        int count = 0;

        if (!s)
            return 1;
        if (sched_getaffinity(0, bytes, s) == 0)
            count = CPU_COUNT_S(bytes, s);
        CPU_FREE(s);
        if (count > 0)
            return count;
    }
    return 1;
}

/* Reads "QUOTA PERIOD" (cgroup 2) or two files (cgroup 1); 0 = no limit. */
static int quota_of(const char *dir)
{
    char path[4200], word[32] = "";
    long long quota = -1, period = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/cpu.max", dir);
    f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%31s %lld", word, &period) == 2 && strcmp(word, "max") != 0)
            quota = atoll(word);
        fclose(f);
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
        if ((f = fopen(path, "r"))) {
            if (fscanf(f, "%lld", &quota) != 1)
                quota = -1;
            fclose(f);
        }
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
        if ((f = fopen(path, "r"))) {
            if (fscanf(f, "%lld", &period) != 1)
                period = 0;
            fclose(f);
        }
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

/* The smallest quota on the way from our cgroup to the root; 0 = none. */
static int cgroup_count(void)
{
    char line[4096], dir[4160];
    int best = quota_of("/sys/fs/cgroup");
    int v1 = quota_of("/sys/fs/cgroup/cpu");
    FILE *f = fopen("/proc/self/cgroup", "r");

    if (v1 && (!best || v1 < best))
        best = v1;
    while (f && fgets(line, sizeof line, f)) {
        char *path = strncmp(line, "0::", 3) == 0 ? line + 3 : NULL;

        if (!path)
            continue;
        path[strcspn(path, "\n")] = 0;
        for (char *end; *path == '/' && path[1]; *end = 0) {
            int q;

            snprintf(dir, sizeof dir, "/sys/fs/cgroup%s", path);
            q = quota_of(dir);
            if (q && (!best || q < best))
                best = q;
            end = strrchr(path, '/');
        }
    }
    if (f)
        fclose(f);
    return best;
}

int vl_cpu_count(int local_ranks)
{
    const char *omp = getenv("OMP_NUM_THREADS");
    int n = affinity_count(), q = cgroup_count();

    if (omp && atoi(omp) > 0)
        return atoi(omp) < 4096 ? atoi(omp) : 4096;
    if (q && q < n)
        n = q;
    if (local_ranks > 1)
        n /= local_ranks;
    return n > 0 ? n : 1;
}

/* A thread that waits at the end of a parallel region spins before it sleeps: by default 3 ms, and
 * then two programs side by side take turns in spinning (40 training steps beside other work: 64 s
 * against 7). This runs before the OpenMP library reads its environment; what the user set stays. */
__attribute__((constructor(101))) static void spin_briefly(void)
{
    if (getenv("OMP_WAIT_POLICY"))
        return;
    setenv("GOMP_SPINCOUNT", "2000", 0);
    setenv("KMP_BLOCKTIME", "0", 0);
}
