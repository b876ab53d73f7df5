/* cache.c - see cache.h. A checksum is no signature, so the user's own files only; a named pipe must
 * not hold us, either. */
#include "libverl/base/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libverl/base/fs.h"

#define STALE_SECONDS 60 /* a file being written for that long was left behind */

char *vl_cache_path(const char *name)
{
    const char *own = getenv("VERL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (own)
        return strcmp(own, "off") == 0 || !*own ? NULL : vl_asprintf("%s/%s", own, name);
    if (xdg && *xdg == '/')
        return vl_asprintf("%s/verl/%s", xdg, name);
    return home && *home == '/' ? vl_asprintf("%s/.cache/verl/%s", home, name) : NULL;
}

int vl_cache_open(const char *path, size_t *size)
{
    int fd = path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size > 0) {
        *size = (size_t)st.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

static int write_all(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t k = write(fd, s, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return 0;
        s += k, n -= (size_t)k;
    }
    return 1;
}

/* One process writes at a time: many ranks start at once, and a home directory may be far away. */
static int open_aside(const char *aside)
{
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat st;

    if (fd < 0 && errno == EEXIST && stat(aside, &st) == 0 &&
        time(NULL) - st.st_mtime > STALE_SECONDS)
        unlink(aside); /* the next one who comes will write */
    return fd;
}

void vl_cache_write(const char *path, void (*fill)(void *arg, struct vl_buf *out), void *arg)
{
    char *aside = vl_asprintf("%s.new", path), *dir = vl_strdup(path);
    struct vl_buf b = { 0 };
    struct vl_err e = { 0 };
    int fd = -1, ok;

    *strrchr(dir, '/') = '\0';
    if (vl_fs_mkdirs(dir, &e) == 0)
        fd = open_aside(aside);
    if (fd >= 0) {
        fill(arg, &b);
        ok = write_all(fd, b.s, b.n);
        if (close(fd) || !ok || rename(aside, path))
            unlink(aside);
    }
    vl_buf_free(&b);
    free(aside);
    free(dir);
}
