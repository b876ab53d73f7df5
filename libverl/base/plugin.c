/* plugin.c - see plugin.h.
 *
 * Programs do not link MPI or CUDA: loading libmpich and what it brings took 16 of the 21 ms a
 * program needs to start, and its signal handlers stayed in programs that never spoke MPI. */
#include "libverl/base/plugin.h"

#include "libverl/base/mem.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *vl_plugin_path(const char *file)
{
    static const char *const place[] = { "", "../lib/", "../lib/verl/", "../../lib/" };
    char exe[3000];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *slash;

    exe[n > 0 ? n : 0] = 0;
    slash = strrchr(exe, '/');
    if (!slash)
        return NULL;
    slash[1] = 0;
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        char *path = vl_asprintf("%s%s%s", exe, place[i], file);

        if (access(path, F_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

int vl_plugin_symbol(void *fn_out, const char *file, const char *symbol, struct vl_err *e)
{
    char *path = vl_plugin_path(file);
    void *h = dlopen(path ? path : file, RTLD_NOW | RTLD_LOCAL), *s;

    free(path);
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
