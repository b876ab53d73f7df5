/* threads.c - how many threads this process should use: affinity mask, cgroup quota, local ranks.
 *
 * OMP_NUM_THREADS is honoured, because users and batch systems set it to keep programs apart. */
#include "kernels/cpu/cpu.h"

#include "libverl/base/cpus.h"

#include <stdlib.h>

int vl_cpu_count(int local_ranks)
{
    const char *omp = getenv("OMP_NUM_THREADS");
    char mask[1024];
    int n = vl_cpus_mask(mask, sizeof mask), limit = vl_cpus_limit();

    if (omp && atoi(omp) > 0)
        return atoi(omp) < 4096 ? atoi(omp) : 4096;
    if (limit < n)
        n = limit;
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
