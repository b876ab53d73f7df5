/* publish.c - atomic files. See publish.h. */
#include "libverl/base/publish.h"

#include "libverl/base/aside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void vl_stop_at(const char *point)
{
    const char *at = getenv("VL_STOP_AT");

    if (at && strcmp(at, point) == 0)
        raise(SIGSTOP);
}

/* "dir/" of path, "./" when it has none. Caller frees. */
static char *dir_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? vl_strndup(path, (size_t)(slash - path) + 1) : vl_strdup("./");
}

/* Follows symbolic links by hand, since the last one may point to a name that is not there yet. */
static int resolve(char **out, const char *path, struct vl_err *e)
{
    char *at = vl_strdup(path);
    char to[PATH_MAX];

    for (int hop = 0; hop < 40; hop++) {
        ssize_t n = readlink(at, to, sizeof to - 1);
        char *next;

        if (n < 0) {
            *out = at;
            return 0;
        }
        to[n] = 0;
        if (to[0] == '/') {
            next = vl_strdup(to);
        } else {
            char *dir = dir_of(at);

            next = vl_asprintf("%s%s", dir, to);
            free(dir);
        }
        free(at);
        at = next;
    }
    free(at);
    return vl_fail(e, VL_E_CREATE, "%s: too many symbolic links", path);
}

static int open_stdout(struct vl_publish *p, int binary, struct vl_err *e)
{
    if (binary && isatty(STDOUT_FILENO))
        return vl_fail(e, VL_E_USAGE,
                       "refusing to write binary data to a terminal; "
                       "use -o FILE or a pipe, or look with verl-dump");
    fflush(stdout); /* what was printed before comes first */
    p->name = vl_strdup("standard output");
    p->fd = STDOUT_FILENO;
    p->is_stdout = 1;
    p->is_text = !binary;
    return 0;
}

static int open_aside(struct vl_publish *p, struct vl_err *e)
{
    char *dir = dir_of(p->final);

    for (int k = 0; k < 1000; k++) {
        p->aside = vl_asprintf("%s.verl-%ld-%d.tmp", dir, (long)getpid(), k);
        p->fd = open(p->aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (p->fd >= 0)
            vl_aside_add(p->aside);
        if (p->fd >= 0 || errno != EEXIST)
            break;
        free(p->aside);
        p->aside = NULL;
    }
    free(dir);
    if (p->fd < 0) {
        vl_fail_errno(e, VL_E_CREATE, "%s: cannot create a file in its directory", p->name);
        free(p->aside);
        p->aside = NULL;
        vl_publish_abort(p);
    }
    return e->code;
}

int vl_publish_check(const char *path, struct vl_err *e)
{
    char *final = NULL, *dir;
    struct stat st;
    int there = stat(path, &st) == 0;

    if (strcmp(path, "-") == 0)
        return 0;
    if (there && S_ISDIR(st.st_mode))
        return vl_fail(e, VL_E_CREATE, "%s: is a directory, give a file name in it", path);
    if ((there && !S_ISREG(st.st_mode)) || resolve(&final, path, e))
        return e->code;
    dir = dir_of(final);
    if (access(dir, W_OK | X_OK))
        vl_fail_errno(e, VL_E_CREATE, "%s: cannot create a file in its directory", path);
    free(dir);
    free(final);
    return e->code;
}

int vl_publish_open(struct vl_publish *p, const char *path, int binary, struct vl_err *e)
{
    struct stat st;

    *p = (struct vl_publish){ .fd = -1 };
    if (strcmp(path, "-") == 0)
        return open_stdout(p, binary, e);
    if (vl_publish_check(path, e))
        return e->code;
    p->name = vl_strdup(path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        p->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (p->fd < 0) {
            vl_fail_errno(e, VL_E_CREATE, "%s: cannot open for writing", path);
            vl_publish_abort(p);
        } else if (binary && isatty(p->fd)) {
            vl_fail(e, VL_E_USAGE, "%s: refusing to write binary data to a terminal", path);
            vl_publish_abort(p);
        }
        return e->code;
    }
    if (resolve(&p->final, path, e)) {
        vl_publish_abort(p);
        return e->code;
    }
    if (open_aside(p, e))
        return e->code;
    if (stat(p->final, &st) == 0) /* a replaced file keeps its permissions */
        fchmod(p->fd, st.st_mode & 0777);
    return 0;
}

int vl_publish_write(struct vl_publish *p, const void *data, size_t n, struct vl_err *e)
{
    const char *at = data;

    while (n) {
        ssize_t w = write(p->fd, at, n > 1 << 30 ? 1 << 30 : n);

        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0 && errno == EPIPE && p->is_stdout && p->is_text) {
            signal(SIGPIPE, SIG_DFL); /* `| head` has enough lines: no more to say than cat has */
            raise(SIGPIPE);
        }
        if (w <= 0)
            return vl_fail_errno(e, VL_E_IO, "%s: write failed", p->name);
        at += w;
        n -= (size_t)w;
    }
    return 0;
}

int vl_sync_dir(const char *dir, struct vl_err *e)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || (fsync(fd) && errno != EINVAL && errno != ENOTSUP);

    if (bad)
        vl_fail_errno(e, VL_E_IO, "%s: cannot sync the directory", dir);
    if (fd >= 0)
        close(fd);
    return e->code;
}

int vl_publish_commit(struct vl_publish *p, struct vl_err *e)
{
    char *dir = NULL;
    int fd = p->fd;

    if (p->is_stdout) {
        p->fd = -1;
        vl_publish_abort(p);
        return 0;
    }
    if (p->aside) {
        vl_stop_at("before-fsync");
        if (fsync(fd)) {
            vl_fail_errno(e, VL_E_IO, "%s: fsync failed", p->name);
            vl_publish_abort(p);
            return e->code;
        }
    }
    p->fd = -1;
    if (close(fd)) {
        vl_fail_errno(e, VL_E_IO, "%s: close failed", p->name);
        vl_publish_abort(p);
        return e->code;
    }
    if (p->aside) {
        vl_stop_at("before-rename");
        if (rename(p->aside, p->final)) {
            vl_fail_errno(e, VL_E_CREATE, "%s: cannot rename the finished file", p->name);
        } else {
            vl_stop_at("after-rename");
            vl_aside_drop(p->aside);
            free(p->aside);
            p->aside = NULL;
            dir = dir_of(p->final);
            if (vl_sync_dir(dir, e))
                vl_err_prefix(e, "%s", p->name);
        }
    }
    free(dir);
    vl_publish_abort(p);
    return e->code;
}

void vl_publish_abort(struct vl_publish *p)
{
    if (p->fd >= 0 && !p->is_stdout)
        close(p->fd);
    if (p->aside) {
        unlink(p->aside);
        vl_aside_drop(p->aside);
    }
    free(p->name);
    free(p->final);
    free(p->aside);
    *p = (struct vl_publish){ .fd = -1 };
}

int vl_publish_file(const char *path, const void *data, size_t n, int binary, struct vl_err *e)
{
    struct vl_publish p;

    if (vl_publish_open(&p, path, binary, e))
        return e->code;
    if (vl_publish_write(&p, data, n, e)) {
        vl_publish_abort(&p);
        return e->code;
    }
    return vl_publish_commit(&p, e);
}
