/* custom.c - finding what a Python reward function needs. See custom.h.
 *
 * The interpreter is the user's: the first python3 on PATH, so that an active environment with the
 * packages of the file is the one that runs it. */
#include "libverl/reward/custom.h"

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/base/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define WRAPPER "custom_reward.py"

static int is_module(const char *path)
{
    return !strncmp(path, "pkg://", 6);
}

static const char *file_of(const char *path)
{
    return strncmp(path, "file://", 7) ? path : path + 7;
}

/* Whether a program is on PATH. */
static int on_path(const char *program)
{
    const char *p = getenv("PATH");
    int found = 0;

    while (p && *p && !found) {
        size_t n = strcspn(p, ":");
        char *full = vl_asprintf("%.*s/%s", (int)n, n ? p : ".", program);

        found = access(full, X_OK) == 0;
        free(full);
        p += n + (p[n] == ':');
    }
    return found;
}

int vl_custom_command(const struct vl_custom *c, char ***argv, struct vl_err *e)
{
    const char *file = file_of(c->path);
    char *wrapper, **a;
    struct stat st;

    *argv = NULL;
    if (!is_module(c->path) && access(file, R_OK) != 0)
        return vl_fail_errno(e, VL_E_NOINPUT, "custom_reward_function.path=%s", c->path);
    if (!is_module(c->path) && !stat(file, &st) && S_ISDIR(st.st_mode))
        return vl_fail(e, VL_E_NOINPUT, "custom_reward_function.path=%s is a directory, not a file",
                       c->path);
    if (!on_path("python3"))
        return vl_fail(
            e, VL_E_UNAVAIL,
            "custom_reward_function.path=%s needs python3, which is not on PATH; install "
            "it, or score with --jq or --command",
            c->path);
    wrapper = vl_plugin_path(WRAPPER);
    if (!wrapper)
        return vl_fail(e, VL_E_UNAVAIL,
                       WRAPPER " is not beside this program nor in ../lib/verl: run make install");
    a = vl_alloc(7 * sizeof *a);
    a[0] = vl_strdup("python3");
    a[1] = wrapper;
    a[2] = vl_strdup(file);
    a[3] = vl_strdup(c->name);
    a[4] = vl_strdup(c->batch ? "batch" : "rows");
    a[5] = vl_strdup(c->kwargs ? c->kwargs : "{}");
    *argv = a;
    return 0;
}

void vl_custom_free(char **argv)
{
    for (char **a = argv; a && *a; a++)
        free(*a);
    free(argv);
}

char *vl_custom_identity(const struct vl_custom *c)
{
    struct vl_buf text = { 0 }, json = { 0 };
    struct vl_err ignored = { 0 };

    if (is_module(c->path) || vl_fs_read(file_of(c->path), 1 << 24, &text, &ignored))
        vl_json_put_str(&json, c->path, strlen(c->path));
    else
        vl_buf_printf(&json, "\"xxh3:%016llx\"",
                      (unsigned long long)XXH3_64bits(text.s ? text.s : "", text.n));
    vl_buf_free(&text);
    return vl_buf_detach(&json);
}
