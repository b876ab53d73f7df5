/* version.c - numbered versions, the link `current`, the lock, publishing. See version.h. */
#include "libverl/model/version.h"

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/base/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RECORD ((size_t)64 << 20)

int64_t vl_version_number(const char *name)
{
    size_t n = strlen(name);

    if (n < 7 || n > 18 || name[0] != 'v' || strspn(name + 1, "0123456789") != n - 1)
        return -1;
    return strtoll(name + 1, NULL, 10);
}

int64_t vl_version_parse(const char *text)
{
    const char *digits = *text == 'v' ? text + 1 : text;
    size_t n = strlen(digits);

    if (!n || n > 17 || strspn(digits, "0123456789") != n)
        return -1;
    return strtoll(digits, NULL, 10);
}

void vl_version_name(char name[VL_VERSION_NAME], int64_t number)
{
    snprintf(name, VL_VERSION_NAME, "v%06" PRId64, number);
}

/* Parses dir's record. 1 = read (free text and j), 0 = there is none, -1 = failed. */
static int record(const char *dir, struct vl_buf *text, struct vl_json *j, struct vl_err *e)
{
    const char *name = vl_fs_exists(dir, "state.json")     ? "state.json"
                       : vl_fs_exists(dir, "version.json") ? "version.json"
                                                           : NULL;
    char *path;
    int rc = -1;

    if (!name)
        return 0;
    path = vl_asprintf("%s/%s", dir, name);
    if (!vl_fs_read(path, MAX_RECORD, text, e) && !vl_json_parse(j, text->s, text->n, path, e))
        rc = 1;
    free(path);
    return rc;
}

int vl_version_usable(const char *dir, int64_t number)
{
    char name[VL_VERSION_NAME], *path;
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    int ok;

    vl_version_name(name, number);
    path = vl_asprintf("%s/%s", dir, name);
    ok = record(path, &text, &j, &e) == 1 && !vl_digests_check(path, &e) &&
         (vl_fs_exists(path, "config.json") || vl_json_streq(&j, vl_json_get(&j, 0, "kind"), "kl"));
    vl_json_free(&j);
    vl_buf_free(&text);
    free(path);
    return ok;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int64_t *vl_version_list(const char *dir, int64_t *n)
{
    DIR *d = opendir(dir);
    int64_t *out = vl_alloc(sizeof *out), cap = 1;

    *n = 0;
    for (struct dirent *f; d && (f = readdir(d));) {
        int64_t v = vl_version_number(f->d_name);

        if (v < 0)
            continue;
        if (*n == cap)
            out = vl_realloc(out, sizeof *out * (size_t)(cap *= 2));
        out[(*n)++] = v;
    }
    if (d)
        closedir(d);
    qsort(out, (size_t)*n, sizeof *out, by_number);
    return out;
}

/* The line for a link that points to nothing usable. */
static int bad_link(const char *dir, const char *target, struct vl_err *e)
{
    int64_t n, *v = vl_version_list(dir, &n);
    char name[VL_VERSION_NAME], *path = vl_asprintf("%s/%s", dir, target), reason[700] = "";
    struct vl_err why = { 0 };

    if (vl_fs_exists(path, NULL) && vl_digests_check(path, &why))
        snprintf(reason, sizeof reason, " (%.600s)", why.msg);
    free(path);
    while (n && !vl_version_usable(dir, v[n - 1]))
        n--;
    if (n) {
        vl_version_name(name, v[n - 1]);
        vl_fail(e, VL_E_DATA,
                "%s/current points to %s, which is missing or damaged%s; the newest usable version "
                "is %s: use it with `ln -sfn %s %s/current`",
                dir, target, reason, name, name, dir);
    } else {
        vl_fail(
            e, VL_E_DATA,
            "%s/current points to %s, which is missing or damaged%s, and no other version in %s "
            "is usable",
            dir, target, reason, dir);
    }
    free(v);
    return e->code;
}

int vl_version_current(const char *dir, int64_t *number, struct vl_err *e)
{
    char *link = vl_asprintf("%s/current", dir), target[256];
    ssize_t n = readlink(link, target, sizeof target - 1);
    int err = errno;

    free(link);
    *number = -1;
    if (n < 0 && (err == ENOENT || err == ENOTDIR))
        return 0;
    if (n < 0)
        return vl_fail(e, VL_E_DATA, "%s/current: is no symbolic link to a version (%s)", dir,
                       strerror(err));
    target[n] = 0;
    while (n > 1 && target[n - 1] == '/')
        target[--n] = 0;
    *number = vl_version_number(target);
    if (*number < 0 || !vl_version_usable(dir, *number))
        return bad_link(dir, target, e);
    return 0;
}

/* path does not exist: when it names a version that others took the place of, says so. */
static int no_such_model(const char *path, struct vl_err *e)
{
    const int why = errno;
    const char *slash = strrchr(path, '/');
    char *parent = slash ? vl_asprintf("%.*s", (int)(slash - path), path) : vl_strdup(".");
    struct vl_err other = { 0 };
    int64_t current = -1;

    if (vl_version_number(slash ? slash + 1 : path) >= 0 &&
        vl_version_current(parent, &current, &other))
        current = -1;
    free(parent);
    if (current >= 0)
        return vl_fail(e, VL_E_NOINPUT,
                       "%s: this version is not there any more, current is v%06" PRId64
                       " (--keep N of verl-sync and verl-update: how many stay)",
                       path, current);
    errno = why;
    return vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open the model directory", path);
}

int vl_version_resolve(const char *path, char **dir, struct vl_err *e)
{
    char *real = realpath(path, NULL), name[VL_VERSION_NAME], *v;
    struct stat st;
    int64_t number;

    *dir = NULL;
    if (!real)
        return no_such_model(path, e);
    if (vl_fs_exists(real, "config.json")) {
        *dir = real;
        return 0;
    }
    if (vl_version_current(real, &number, e)) {
        free(real);
        return e->code;
    }
    if (number < 0) {
        if (!stat(real, &st) && S_ISREG(st.st_mode))
            vl_fail(e, VL_E_NOINPUT,
                    "%s: a file, where a model directory is expected (verl-model convert makes one "
                    "of a GGUF file)",
                    path);
        vl_fail(e, VL_E_NOINPUT,
                "%s: no model here: neither config.json nor a link `current` to a version", path);
        free(real);
        return e->code;
    }
    vl_version_name(name, number);
    v = vl_asprintf("%s/%s", real, name);
    free(real);
    *dir = realpath(v, NULL);
    if (!*dir)
        vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open", v);
    free(v);
    return e->code;
}

int vl_version_read(struct vl_model *m, struct vl_err *e)
{
    const char *base = strrchr(m->dir, '/');
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };

    if (!vl_digests_check(m->dir, e) && record(m->dir, &text, &j, e) == 1) {
        char *hash = vl_json_strdup(&j, vl_json_get(&j, 0, "hash"));

        if (hash && strlen(hash) == 32)
            memcpy(m->hash, hash, 33);
        else
            vl_fail(e, VL_E_DATA, "%s: the version's record has no hash of 32 hex digits", m->dir);
        free(hash);
        m->source_hash = vl_json_strdup(&j, vl_json_get(&j, 0, "source_hash"));
        m->version = vl_json_strdup(&j, vl_json_get(&j, 0, "version"));
        if (!m->version && base && vl_version_number(base + 1) >= 0)
            m->version = vl_strdup(base + 1);
    }
    vl_json_free(&j);
    vl_buf_free(&text);
    return e->code;
}

/* The process that holds the lock, as it wrote itself down right after taking it. */
static void read_holder(int f, char pid[32])
{
    for (int k = 0; k < 40; k++) {
        ssize_t n = pread(f, pid, 31, 0);

        pid[n > 0 ? n : 0] = 0;
        if (strchr(pid, '\n'))
            break;
        usleep(5000);
    }
    pid[strcspn(pid, "\n")] = 0;
}

int vl_version_lock(const char *dir, int *fd, struct vl_err *e)
{
    char *path, pid[32] = "";
    int f;

    *fd = -1;
    if (vl_fs_exists(dir, "config.json"))
        return vl_fail(e, VL_E_CREATE,
                       "%s: is a model directory (it has a config.json), not a directory of "
                       "versions: give another one, and this one with -m",
                       dir);
    path = vl_asprintf("%s/.lock", dir);
    f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f < 0) {
        vl_fail_errno(e, VL_E_CREATE, "%s: cannot create the lock file", path);
    } else if (flock(f, LOCK_EX | LOCK_NB)) {
        if (errno == EWOULDBLOCK) {
            read_holder(f, pid);
            vl_fail(e, VL_E_RETRY, "%s: process %s is writing here; wait for it to finish", dir,
                    pid[0] ? pid : "(unknown)");
        } else {
            vl_fail_errno(e, VL_E_OS, "%s: cannot lock", path);
        }
        close(f);
    } else {
        snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
        if (ftruncate(f, 0) || pwrite(f, pid, strlen(pid), 0) < 0)
            vl_fail_errno(e, VL_E_IO, "%s: cannot write", path);
        *fd = f;
    }
    free(path);
    return e->code;
}

void vl_version_unlock(int fd)
{
    if (fd < 0)
        return;
    if (ftruncate(fd, 0)) {
        /* an old number stays: the next holder writes its own */
    }
    close(fd);
}

/* Files of a published version are read-only: a program that writes into one by mistake fails. */
static int seal(const char *aside, struct vl_err *e)
{
    DIR *d = opendir(aside);

    if (!d)
        return vl_fail_errno(e, VL_E_IO, "%s: cannot open the directory", aside);
    for (struct dirent *f; (f = readdir(d));) {
        struct stat st;

        if (!fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
            fchmodat(dirfd(d), f->d_name, 0444, 0))
            vl_fail_errno(e, VL_E_IO, "%s/%s: cannot make it read-only", aside, f->d_name);
    }
    closedir(d);
    return e->code;
}

static void stop(const char *stage, const char *point)
{
    char name[64];

    snprintf(name, sizeof name, "%s-%s", stage, point);
    vl_stop_at(name);
}

int vl_version_publish(const char *dir, const char *aside, int64_t number, int link,
                       const char *stage, struct vl_err *e)
{
    char name[VL_VERSION_NAME], *path;

    vl_version_name(name, number);
    path = vl_asprintf("%s/%s", dir, name);
    if (vl_digests_write(aside, e) || seal(aside, e) || vl_sync_dir(aside, e))
        goto out;
    stop(stage, "written");
    if (rename(aside, path)) {
        vl_fail_errno(e, VL_E_CREATE, "%s: cannot rename %s to it", path, aside);
        goto out;
    }
    if (vl_sync_dir(dir, e))
        goto out;
    stop(stage, "renamed");
    if (link && vl_fs_point(dir, "current", name, e))
        goto out;
    stop(stage, "linked");
out:
    free(path);
    return e->code;
}

/* Whether any symbolic link in dir points to version `name`. */
static int linked(const char *dir, const char *name)
{
    DIR *d = opendir(dir);
    int found = 0;

    for (struct dirent *f; d && !found && (f = readdir(d));) {
        char target[256];
        ssize_t n = readlinkat(dirfd(d), f->d_name, target, sizeof target - 1);

        found = n > 0 && (size_t)n == strlen(name) && !memcmp(target, name, (size_t)n);
    }
    if (d)
        closedir(d);
    return found;
}

int vl_version_sweep(const char *dir, struct vl_err *e)
{
    DIR *d = opendir(dir);

    for (struct dirent *f; d && !e->code && (f = readdir(d));)
        if (!strncmp(f->d_name, ".aside-", 7)) {
            char *path = vl_asprintf("%s/%s", dir, f->d_name);

            if (vl_fs_remove(path, e))
                vl_err_prefix(e, "removing what an interrupted writer left");
            free(path);
        }
    if (d)
        closedir(d);
    return e->code;
}

int vl_version_prune(const char *dir, int64_t keep, int64_t spare, struct vl_err *e)
{
    int64_t n, *v = vl_version_list(dir, &n);

    for (int64_t i = 0; i < n - keep && !e->code; i++) {
        char name[VL_VERSION_NAME], *path;

        vl_version_name(name, v[i]);
        if (v[i] == spare || linked(dir, name))
            continue;
        path = vl_asprintf("%s/%s", dir, name);
        if (vl_fs_remove(path, e))
            vl_err_prefix(e, "removing an old version (--keep %" PRId64 ")", keep);
        free(path);
    }
    free(v);
    return e->code ? e->code : vl_version_sweep(dir, e);
}
