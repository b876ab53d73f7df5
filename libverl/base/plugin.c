/* plugin.c - see plugin.h.
 *
 * Programs do not link MPI or CUDA: loading libmpich and what it brings took 16 of the 21 ms a
 * program needs to start, and its signal handlers stayed in programs that never spoke MPI. */
#include "libverl/base/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *open_beside(const char *file, int *broken)
{
    static const char *const place[] = { "", "../lib/", "../lib/verl/", "../../lib/" };
    char exe[3000], path[3200];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *slash;

    exe[n > 0 ? n : 0] = 0;
    slash = strrchr(exe, '/');
    if (!slash)
        return NULL;
    slash[1] = 0;
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        snprintf(path, sizeof path, "%s%s%s", exe, place[i], file);
        if (access(path, F_OK) == 0) {
            void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);

            *broken = !h; /* it is there and does not load: dlerror says why */
            return h;
        }
    }
    return NULL;
}

int vl_plugin_symbol(void *fn_out, const char *file, const char *symbol, struct vl_err *e)
{
    int broken = 0;
    void *h = open_beside(file, &broken), *s;

    if (!h && !broken)
        h = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return vl_fail(e, VL_E_UNAVAIL, "%s", dlerror());
    s = dlsym(h, symbol);
    if (!s) {
        dlclose(h);
        return vl_fail(e, VL_E_UNAVAIL, "%s has no symbol %s", file, symbol);
    }
    *(void **)fn_out = s;
    return 0;
}
