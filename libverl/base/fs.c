/* fs.c - whole files and directories published in crash-safe steps. See fs.h. */
#include "libverl/base/fs.h"

#include "libverl/base/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int vl_fs_read(const char *path, size_t max, struct vl_buf *out, struct vl_err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    size_t start = out->n;
    struct stat st;
    ssize_t got;

    if (fd < 0)
        return vl_fail_errno(e, errno == ENOENT || errno == ENOTDIR ? VL_E_NOINPUT : VL_E_IO,
                             "%s: cannot open", path);
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= max)
        vl_buf_reserve(out, (size_t)st.st_size + 1);
    for (;;) {
        vl_buf_reserve(out, 1 << 16);
        got = read(fd, out->s + out->n, 1 << 16);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        out->n += (size_t)got;
        if (out->n - start > max) {
            rc = vl_fail(e, VL_E_DATA, "%s: longer than %zu bytes, the most such a file may have",
                         path, max);
            break;
        }
    }
    if (!rc && got < 0)
        rc = vl_fail_errno(e, VL_E_IO, "%s: cannot read", path);
    out->s[out->n] = 0;
    close(fd);
    return rc;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t put = write(fd, p, n);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        p += put, n -= (size_t)put;
    }
    return 0;
}

int vl_fs_write(const char *path, const void *p, size_t n, struct vl_err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return vl_fail_errno(e, VL_E_CREATE, "%s: cannot create", path);
    if (write_all(fd, p, n) || fsync(fd)) {
        vl_fail_errno(e, VL_E_IO, "%s: cannot write %zu bytes", path, n);
        close(fd);
        return e->code;
    }
    if (close(fd))
        return vl_fail_errno(e, VL_E_IO, "%s: cannot close", path);
    return 0;
}

int vl_fs_copy(const char *from, const char *to, struct vl_err *e)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = -1, rc = 0;
    struct stat st;
    char *block = vl_alloc(1 << 20);
    ssize_t got = 0;

    if (in < 0 || fstat(in, &st))
        rc = vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open", from);
    else if ((out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0)
        rc = vl_fail_errno(e, VL_E_CREATE, "%s: cannot create", to);
    while (!rc && (got = read(in, block, 1 << 20)) > 0)
        if (write_all(out, block, (size_t)got))
            rc = vl_fail_errno(e, VL_E_IO, "%s: cannot write", to);
    if (!rc && got < 0)
        rc = vl_fail_errno(e, VL_E_IO, "%s: cannot read", from);
    if (!rc && (fchmod(out, st.st_mode & 0777) || fsync(out)))
        rc = vl_fail_errno(e, VL_E_IO, "%s: cannot write", to);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    free(block);
    return rc;
}

int vl_fs_link_or_copy(const char *from, const char *to, int *copied, struct vl_err *e)
{
    if (!link(from, to))
        return 0;
    if (errno == EEXIST || errno == ENOENT)
        return vl_fail_errno(e, VL_E_CREATE, "%s: cannot link %s to it", to, from);
    *copied = 1;
    return vl_fs_copy(from, to, e);
}

int vl_fs_mkdirs(const char *path, struct vl_err *e)
{
    char *p = vl_strdup(path);
    struct stat st;

    for (char *s = p + 1; *p && *s; s++)
        if (*s == '/') {
            *s = 0;
            mkdir(p, 0777);
            *s = '/';
        }
    if (mkdir(p, 0777) && errno != EEXIST)
        vl_fail_errno(e, VL_E_CREATE, "%s: cannot make the directory", path);
    else if (stat(p, &st) || !S_ISDIR(st.st_mode))
        vl_fail(e, VL_E_CREATE, "%s: is there but is not a directory", path);
    free(p);
    return e->code;
}

int vl_fs_point(const char *dir, const char *name, const char *target, struct vl_err *e)
{
    char *tmp = vl_asprintf("%s/.%s.%d", dir, name, (int)getpid());
    char *path = vl_asprintf("%s/%s", dir, name);
    int rc = 0;

    unlink(tmp);
    if (symlink(target, tmp))
        rc = vl_fail_errno(e, VL_E_CREATE, "%s: cannot make a symbolic link", tmp);
    else if (rename(tmp, path)) {
        rc = vl_fail_errno(e, VL_E_CREATE, "%s: cannot point it at %s", path, target);
        unlink(tmp);
    } else {
        rc = vl_sync_dir(dir, e);
    }
    free(tmp);
    free(path);
    return rc;
}

static int remove_at(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), bad = 0;
    DIR *d;

    if (fd < 0)
        return errno == ENOENT ? 0 : unlinkat(at, name, 0) && errno != ENOTDIR;
    d = fdopendir(fd);
    if (!d) {
        close(fd);
        return -1;
    }
    for (struct dirent *f; (f = readdir(d));)
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
            bad |= remove_at(dirfd(d), f->d_name);
    closedir(d);
    return bad | unlinkat(at, name, AT_REMOVEDIR);
}

int vl_fs_remove(const char *path, struct vl_err *e)
{
    if (remove_at(AT_FDCWD, path))
        return vl_fail_errno(e, VL_E_IO, "%s: cannot remove", path);
    return 0;
}

int vl_fs_exists(const char *dir, const char *name)
{
    char *p = name ? vl_asprintf("%s/%s", dir, name) : vl_strdup(dir);
    int there = !access(p, F_OK);

    free(p);
    return there;
}
