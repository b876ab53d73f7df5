/* checkpoint.c - hard-linked copies of published versions. See checkpoint.h.
 *
 * Versions are never written to once published, so a link is as good as a copy and costs nothing;
 * pruning the run only removes names. */
#include "libverl/model/checkpoint.h"

#include "formats/json.h"
#include "libverl/base/aside.h"
#include "libverl/base/fs.h"
#include "libverl/base/publish.h"
#include "libverl/model/version.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRACKER "latest_checkpointed_iteration.txt"

static const char *const part_name[] = { "actor", "critic", "rollout", "kl" };
#define PARTS 4

/* Version that dir/current points to, or -1; any record will do (the KL controller's too). */
static int current_of(const char *dir, int64_t *number, struct vl_err *e)
{
    char *link = vl_asprintf("%s/current", dir), target[64] = "", *path;
    ssize_t n = readlink(link, target, sizeof target - 1);

    *number = -1;
    free(link);
    if (n < 0)
        return 0;
    *number = vl_version_number(target);
    path = vl_asprintf("%s/%s", dir, target);
    if (*number < 0 || !vl_fs_exists(path, NULL))
        vl_fail(e, VL_E_DATA, "%s/current points to %s, which is not there", dir, target);
    free(path);
    return e->code;
}

/* Links every file of directory `from` into the new directory `to`. */
static int link_files(const char *from, const char *to, int *copied, struct vl_err *e)
{
    DIR *d = opendir(from);

    if (!d)
        return vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open", from);
    if (vl_fs_mkdirs(to, e)) {
        closedir(d);
        return e->code;
    }
    for (struct dirent *f; !e->code && (f = readdir(d));) {
        char *a = vl_asprintf("%s/%s", from, f->d_name), *b = vl_asprintf("%s/%s", to, f->d_name);
        struct stat st;

        if (!lstat(a, &st) && S_ISREG(st.st_mode) && vl_fs_link_or_copy(a, b, copied, e))
            vl_err_prefix(e, "checkpoint");
        free(a);
        free(b);
    }
    closedir(d);
    return e->code ? e->code : vl_sync_dir(to, e);
}

static int same_bytes(const char *a, const char *b)
{
    struct vl_buf x = { 0 }, y = { 0 };
    struct vl_err e = { 0 };
    int same = !vl_fs_read(a, SIZE_MAX / 2, &x, &e) && !vl_fs_read(b, SIZE_MAX / 2, &y, &e) &&
               x.n == y.n && !memcmp(x.s, y.s, x.n);

    vl_buf_free(&x);
    vl_buf_free(&y);
    return same;
}

/* Whether two version directories hold the same: their small files byte for byte (the record has the
 * weights' hashes), the large ones by size. */
static int same_version(const char *a, const char *b)
{
    DIR *d = opendir(a);
    int same = d != NULL;

    for (struct dirent *f; same && (f = readdir(d));) {
        char *x = vl_asprintf("%s/%s", a, f->d_name), *y = vl_asprintf("%s/%s", b, f->d_name);
        struct stat s, t;

        if (!lstat(x, &s) && S_ISREG(s.st_mode)) {
            same = !stat(y, &t) && s.st_size == t.st_size;
            if (same && s.st_ino != t.st_ino && s.st_size < 1 << 20)
                same = same_bytes(x, y);
        }
        free(x);
        free(y);
    }
    if (d)
        closedir(d);
    return same;
}

static int64_t recorded_step(const char *version_dir)
{
    char *path = vl_asprintf("%s/state.json", version_dir);
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    int64_t step = -1;

    if (!vl_fs_read(path, (size_t)64 << 20, &text, &e) &&
        !vl_json_parse(&j, text.s, text.n, path, &e))
        vl_json_i64(&j, vl_json_get(&j, 0, "global_step"), &step);
    vl_json_free(&j);
    vl_buf_free(&text);
    free(path);
    return step;
}

/* Versions of a run that take part: number[k] = -1 where RUN has no such part. */
static int find_parts(const char *run, int64_t number[PARTS], int64_t *step, struct vl_err *e)
{
    int any = 0;

    for (int k = 0; k < PARTS; k++) {
        char name[VL_VERSION_NAME], *dir = vl_asprintf("%s/%s", run, part_name[k]), *v;
        int rc = current_of(dir, &number[k], e);

        if (!rc && number[k] >= 0) {
            any = 1;
            vl_version_name(name, number[k]);
            v = vl_asprintf("%s/%s", dir, name);
            if (*step < 0 && k < 2)
                *step = recorded_step(v);
            free(v);
        }
        free(dir);
        if (rc)
            return rc;
    }
    if (!any)
        return vl_fail(e, VL_E_NOINPUT,
                       "%s: nothing to save: no actor, critic, rollout or kl with a link `current`",
                       run);
    if (*step < 0)
        return vl_fail(e, VL_E_USAGE, "%s: no train state says which step this is: give --step N",
                       run);
    return 0;
}

static void report_part(struct vl_checkpoint_report *r, int k, int64_t number)
{
    vl_buf_printf(&r->parts, "%s%s v%06" PRId64, r->parts.n ? ", " : "", part_name[k], number);
}

/* Whether dir already is the checkpoint of these versions. */
static int is_saved(const char *dir, const char *run, const int64_t number[PARTS])
{
    int same = 1;

    for (int k = 0; k < PARTS && same; k++) {
        char *a, *b;

        if (number[k] < 0)
            continue;
        a = vl_asprintf("%s/%s/v%06" PRId64, run, part_name[k], number[k]);
        b = vl_asprintf("%s/%s/v%06" PRId64, dir, part_name[k], number[k]);
        same = same_version(a, b);
        free(a);
        free(b);
    }
    return same;
}

static int fill(const char *aside, const char *run, const int64_t number[PARTS],
                struct vl_checkpoint_report *r, struct vl_err *e)
{
    for (int k = 0; k < PARTS && !e->code; k++) {
        char *from, *to, *up;

        if (number[k] < 0)
            continue;
        from = vl_asprintf("%s/%s/v%06" PRId64, run, part_name[k], number[k]);
        up = vl_asprintf("%s/%s", aside, part_name[k]);
        to = vl_asprintf("%s/v%06" PRId64, up, number[k]);
        if (!link_files(from, to, &r->copied, e) && vl_sync_dir(up, e))
            vl_err_prefix(e, "checkpoint");
        free(from);
        free(to);
        free(up);
    }
    return e->code ? e->code : vl_sync_dir(aside, e);
}

static int write_tracker(const char *dir, int64_t step, struct vl_err *e)
{
    char *path = vl_asprintf("%s/" TRACKER, dir), text[24];
    int n = snprintf(text, sizeof text, "%" PRId64, step);
    int rc = vl_publish_file(path, text, (size_t)n, 0, e);

    free(path);
    return rc;
}

int vl_checkpoint_save(const char *run, const char *dir, int64_t step,
                       struct vl_checkpoint_report *r, struct vl_err *e)
{
    char *final = NULL, *aside = vl_asprintf("%s/.aside-%d", dir, (int)getpid());
    int64_t number[PARTS];
    int lock = -1;

    *r = (struct vl_checkpoint_report){ 0 };
    if (find_parts(run, number, &step, e) || vl_fs_mkdirs(dir, e) ||
        vl_version_lock(dir, &lock, e) || vl_version_sweep(dir, e))
        goto out;
    r->step = step;
    for (int k = 0; k < PARTS; k++)
        if (number[k] >= 0)
            report_part(r, k, number[k]);
    final = vl_asprintf("%s/global_step_%" PRId64, dir, step);
    if (vl_fs_exists(final, NULL)) {
        if (!is_saved(final, run, number))
            vl_fail(e, VL_E_CREATE,
                    "%s: is there with other versions than %s; remove it or give "
                    "another --step",
                    final, r->parts.s);
        else if (write_tracker(dir, step, e))
            vl_err_prefix(e, "checkpoint");
        goto out;
    }
    vl_aside_add(aside);
    if (vl_fs_mkdirs(aside, e) || fill(aside, run, number, r, e))
        goto out;
    vl_stop_at("checkpoint-written");
    if (rename(aside, final)) {
        vl_fail_errno(e, VL_E_CREATE, "%s: cannot rename %s to it", final, aside);
        goto out;
    }
    r->made = 1;
    if (vl_sync_dir(dir, e))
        goto out;
    vl_stop_at("checkpoint-renamed");
    if (write_tracker(dir, step, e))
        goto out;
out:
    if (e->code && !r->made) {
        struct vl_err ignored = { 0 };

        if (vl_fs_remove(aside, &ignored))
            vl_err_prefix(&ignored, "cleaning up");
    }
    vl_aside_drop(aside);
    vl_version_unlock(lock);
    free(final);
    free(aside);
    return e->code;
}

/* Newest global_step_N in dir, or -1. */
static int64_t newest(const char *dir)
{
    DIR *d = opendir(dir);
    int64_t best = -1;

    for (struct dirent *f; d && (f = readdir(d));) {
        char *end;
        long long v;

        if (strncmp(f->d_name, "global_step_", 12))
            continue;
        v = strtoll(f->d_name + 12, &end, 10);
        if (end != f->d_name + 12 && !*end && v > best)
            best = v;
    }
    if (d)
        closedir(d);
    return best;
}

static int read_tracker(const char *dir, int64_t *step, struct vl_err *e)
{
    char *path = vl_asprintf("%s/" TRACKER, dir), *end;
    struct vl_buf b = { 0 };

    if (!vl_fs_read(path, 64, &b, e)) {
        *step = strtoll(b.s, &end, 10);
        if (end == b.s || *step < 0 || strspn(end, " \n") != strlen(end))
            vl_fail(e, VL_E_DATA, "%s: holds '%.40s'; expected a step number such as 12", path,
                    b.s);
    }
    vl_buf_free(&b);
    free(path);
    return e->code;
}

/* One part of a checkpoint back into its place. */
static int restore_part(const char *from_dir, const char *to_dir, const char *name, int *copied,
                        struct vl_err *e)
{
    char *from = vl_asprintf("%s/%s", from_dir, name), *to = vl_asprintf("%s/%s", to_dir, name);
    char *aside = vl_asprintf("%s/.aside-%d", to_dir, (int)getpid());
    int lock = -1;

    if (vl_fs_mkdirs(to_dir, e) || vl_version_lock(to_dir, &lock, e))
        goto out;
    if (vl_fs_exists(to, NULL)) {
        if (!same_version(from, to))
            vl_fail(e, VL_E_CREATE,
                    "%s: is there with other contents than the checkpoint's; "
                    "restore into another run directory",
                    to);
        else if (vl_fs_point(to_dir, "current", name, e))
            vl_err_prefix(e, "restore");
        goto out;
    }
    vl_aside_add(aside);
    if (vl_fs_remove(aside, e) || link_files(from, aside, copied, e) ||
        vl_version_publish(to_dir, aside, vl_version_number(name), 1, "restore", e))
        goto out;
out:
    if (e->code) {
        struct vl_err ignored = { 0 };

        if (vl_fs_remove(aside, &ignored))
            vl_err_prefix(&ignored, "cleaning up");
    }
    vl_aside_drop(aside);
    vl_version_unlock(lock);
    free(from);
    free(to);
    free(aside);
    return e->code;
}

int vl_checkpoint_restore(const char *dir, const char *run, int64_t step,
                          struct vl_checkpoint_report *r, struct vl_err *e)
{
    char *from;

    *r = (struct vl_checkpoint_report){ .made = 1 };
    if (step < 0 && read_tracker(dir, &step, e))
        return e->code;
    r->step = step;
    from = vl_asprintf("%s/global_step_%" PRId64, dir, step);
    if (!vl_fs_exists(from, NULL)) {
        int64_t best = newest(dir);

        if (best >= 0)
            vl_fail(e, VL_E_DATA,
                    "%s: is not there; the newest checkpoint is global_step_%" PRId64
                    ": give --step %" PRId64,
                    from, best, best);
        else
            vl_fail(e, VL_E_NOINPUT, "%s: is not there, nor any other checkpoint", from);
    }
    for (int k = 0; k < PARTS && !e->code; k++) {
        char *a = vl_asprintf("%s/%s", from, part_name[k]), name[VL_VERSION_NAME];
        char *b = vl_asprintf("%s/%s", run, part_name[k]);
        int64_t n, *v = vl_version_list(a, &n);

        if (n) {
            vl_version_name(name, v[n - 1]);
            if (!restore_part(a, b, name, &r->copied, e))
                report_part(r, k, v[n - 1]);
        }
        free(v);
        free(a);
        free(b);
    }
    free(from);
    return e->code;
}
