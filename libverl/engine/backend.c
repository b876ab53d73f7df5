/* backend.c - chooses the device: the built-in CPU backend or a plugin (base/plugin.h).
 *
 * Programs link no device library. The plugin is libverl_cuda.so; it exports one symbol:
 *     int vl_backend_plugin(struct vl_backend **be, int device, int threads, struct vl_err *e);
 * and its table must carry our VL_BACKEND_VERSION. */
#include "libverl/engine/backend.h"

#include "libverl/base/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLUGIN "libverl_cuda.so"

static const char *const compute_name[VL_COMPUTES] = { "fp32", "bf16", "amx" };

const char *vl_compute_name(enum vl_compute c)
{
    return compute_name[c];
}

enum vl_compute vl_compute_named(const char *name)
{
    int c = 0;

    while (c < VL_COMPUTES && strcmp(name, compute_name[c]) != 0)
        c++;
    return (enum vl_compute)c;
}

typedef int (*plugin_fn)(struct vl_backend **be, int device, int threads, struct vl_err *e);

static int open_cuda(struct vl_backend **be, int device, int threads, struct vl_err *e)
{
    plugin_fn fn;

    if (vl_plugin_symbol(&fn, PLUGIN, "vl_backend_plugin", e))
        return vl_err_prefix(e, "device cuda");
    if (fn(be, device, threads, e) == 0 && (*be)->version != VL_BACKEND_VERSION) {
        unsigned v = (*be)->version;

        (*be)->close(*be);
        *be = NULL;
        vl_fail(e, VL_E_UNAVAIL,
                "device cuda: " PLUGIN " has interface version %u, this program needs %d: build "
                "both from one source tree",
                v, VL_BACKEND_VERSION);
    }
    return e->code;
}

/* "cuda" or "cuda:N" with N in 0..1023 */
static int cuda_number(const char *device, int *n)
{
    char *end;
    long v;

    *n = 0;
    if (strcmp(device, "cuda") == 0)
        return 1;
    if (strncmp(device, "cuda:", 5) != 0 || device[5] < '0' || device[5] > '9')
        return 0;
    v = strtol(device + 5, &end, 10);
    *n = (int)v;
    return *end == 0 && v < 1024;
}

int vl_backend_open(struct vl_backend **be, const char *device, int threads, int local_ranks,
                    void (*say)(void *arg, const char *line), void *arg, struct vl_err *e)
{
    static int said;
    struct vl_err why = { 0 };
    int n;

    *be = NULL;
    if (!device || strcmp(device, "auto") == 0) {
        if (open_cuda(be, 0, threads, &why) == 0)
            return 0;
        if (say && !said) {
            char line[sizeof why.msg + 40];

            snprintf(line, sizeof line, "running on the CPU (%s)", why.msg);
            say(arg, line);
            said = 1;
        }
        return vl_backend_cpu(be, NULL, threads, local_ranks, e);
    }
    if (strcmp(device, "cpu") == 0)
        return vl_backend_cpu(be, NULL, threads, local_ranks, e);
    if (cuda_number(device, &n))
        return open_cuda(be, n, threads, e);
    return vl_fail(e, VL_E_USAGE, "device '%s' is not one of auto, cpu, cuda, cuda:N", device);
}
