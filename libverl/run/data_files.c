/* data_files.c - from names to texts: patterns, and files that another program must open.
 *
 * We link no Parquet library: verl's data sets are read by the one the user has, through the script
 * parquet2jsonl; compressed lines by the programs that wrote them. */
#include "libverl/run/data_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libverl/base/fs.h"
#include "libverl/base/plugin.h"
#include "libverl/comm/comm.h"

#define MAX_BYTES ((size_t)1 << 38)

/* ---- names ---- */

static void add(struct vl_strs *out, const char *path)
{
    out->s = vl_realloc(out->s, (out->n + 1) * sizeof *out->s);
    out->s[out->n++] = vl_strdup(path);
}

static int is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int add_file(struct vl_strs *out, const char *path, struct vl_err *e)
{
    size_t n = strlen(path);

    if (is_directory(path)) {
        while (n > 1 && path[n - 1] == '/')
            n--;
        return vl_fail(e, VL_E_NOINPUT,
                       "%s: a directory; name its files, for example '%.*s/*.jsonl'", path, (int)n,
                       path);
    }
    add(out, path);
    return 0;
}

static int expand(const char *name, struct vl_strs *out, struct vl_err *e)
{
    int flags = GLOB_BRACE | GLOB_TILDE, rc; /* sorted by bytes: no locale is set */
    glob_t g = { 0 };
    struct stat st;

    if (strcmp(name, "-") == 0 || stat(name, &st) == 0)
        return add_file(out, name, e);
    rc = glob(name, flags, NULL, &g);
    for (size_t i = 0; rc == 0 && i < g.gl_pathc && !e->code; i++)
        (void)!add_file(out, g.gl_pathv[i], e);
    globfree(&g);
    if (rc == GLOB_NOSPACE)
        return vl_fail(e, VL_E_OS, "%s: out of memory", name);
    if (rc)
        return vl_fail(e, VL_E_NOINPUT,
                       strpbrk(name, "*?[{") ? "%s: no file has such a name" : "%s: no such file",
                       name);
    return e->code;
}

int vl_files_expand(const struct vl_strs *names, struct vl_strs *out, struct vl_err *e)
{
    for (size_t i = 0; i < names->n && !e->code; i++)
        (void)!expand(names->s[i], out, e);
    return e->code;
}

void vl_files_free(struct vl_strs *out)
{
    for (size_t i = 0; i < out->n; i++)
        free((char *)out->s[i]);
    free(out->s);
    *out = (struct vl_strs){ 0 };
}

/* ---- files of other kinds ---- */

static const struct kind {
    const char *magic;
    size_t n;
    const char *what;
    const char *reader, *arg; /* reader [arg] FILE writes the lines */
} kinds[] = {
    { "PAR1", 4, "Parquet", "parquet2jsonl", NULL },
    { "\x28\xB5\x2F\xFD", 4, "zstd-compressed", "zstd", "-dcq" },
    { "\x1F\x8B", 2, "gzip-compressed", "gzip", "-dc" },
    { "\xFD"
      "7zXZ",
      5, "xz-compressed", "xz", "-dc" },
};

static const struct kind *kind_of(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n >= kinds[i].n && memcmp(s, kinds[i].magic, kinds[i].n) == 0)
            return &kinds[i];
    return NULL;
}

/* Starts it with its standard output in our hands; returns the descriptor or -1. */
static int start(const char *program, char *const argv[], pid_t *pid, struct vl_err *e)
{
    posix_spawn_file_actions_t a;
    posix_spawnattr_t attr;
    sigset_t broken;
    int fd[2], rc;
    char **env;

    if (pipe2(fd, O_CLOEXEC) < 0) {
        vl_fail_errno(e, VL_E_OS, "%s: pipe", program);
        return -1;
    }
    env = vl_comm_clean_env();
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addopen(&a, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&a, fd[1], 1);
    posix_spawnattr_init(&attr);
    sigemptyset(&broken); /* main() ignores these */
    sigaddset(&broken, SIGPIPE);
    sigaddset(&broken, SIGXFSZ);
    posix_spawnattr_setsigdefault(&attr, &broken);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawnp(pid, program, &a, &attr, argv, env);
    posix_spawn_file_actions_destroy(&a);
    posix_spawnattr_destroy(&attr);
    free(env);
    close(fd[1]);
    if (rc == 0)
        return fd[0];
    close(fd[0]);
    vl_fail(e, VL_E_UNAVAIL, "%s: %s", program, strerror(rc));
    return -1;
}

static void gather(int fd, struct vl_buf *out)
{
    char piece[1 << 16];
    ssize_t n;

    while ((n = read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0)
            vl_buf_add(out, piece, (size_t)n);
    close(fd);
}

/* Beside the program once installed, in the source tree's scripts before; else on PATH. */
static char *find_script(const char *name)
{
    char *near = vl_asprintf("../../scripts/%s", name), *path = vl_plugin_path(name);

    if (!path)
        path = vl_plugin_path(near);
    free(near);
    return path ? path : vl_strdup(name);
}

static int read_through(const struct kind *k, const char *path, struct vl_buf *out,
                        struct vl_err *e)
{
    char *program = k->arg ? vl_strdup(k->reader) : find_script(k->reader);
    char *const with[] = { program, (char *)k->arg, "--", (char *)path, NULL };
    char *const without[] = { program, "--", (char *)path, NULL };
    int status = 0, fd;
    pid_t pid;

    fd = start(program, k->arg ? with : without, &pid, e);
    if (fd < 0) {
        vl_err_prefix(e, "%s: a %s file, and what reads it is missing", path, k->what);
    } else {
        gather(fd, out);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFEXITED(status) && WEXITSTATUS(status) == VL_E_UNAVAIL)
            vl_fail(e, VL_E_UNAVAIL,
                    "%s: a %s file, and nothing here reads it: install duckdb or python3 with "
                    "pyarrow, or turn it into lines elsewhere (parquet2jsonl FILE > rows.jsonl)",
                    path, k->what);
        else if (status)
            vl_fail(e, VL_E_DATA, "%s: a %s file, and %s failed (%s %d)", path, k->what, k->reader,
                    WIFEXITED(status) ? "status" : "signal",
                    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
    free(program);
    return e->code;
}

/* The first bytes of a regular file; 0 where there are none to look at. A named pipe is not opened:
 * who writes into it would lose its reader when we close it again. */
static size_t peek(const char *path, char *s, size_t n)
{
    struct stat st;
    int fd = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t got = fd < 0 ? 0 : read(fd, s, n);

    if (fd >= 0)
        close(fd);
    return got > 0 ? (size_t)got : 0;
}

int vl_files_read(const char *path, struct vl_buf *out, struct vl_err *e)
{
    int standard = strcmp(path, "-") == 0;
    const struct kind *k;
    char head[8];

    if (!standard && (k = kind_of(head, peek(path, head, sizeof head))))
        return read_through(k, path, out, e);
    if (vl_fs_read(standard ? "/dev/stdin" : path, MAX_BYTES, out, e))
        return e->code;
    if ((k = kind_of(out->s, out->n)))
        return vl_fail(e, VL_E_DATA, "%s: a %s file; %s", standard ? "standard input" : path,
                       k->what,
                       k->arg ? "decompress it before the pipe"
                              : "its table is at the end: give its name, not a pipe");
    return 0;
}
