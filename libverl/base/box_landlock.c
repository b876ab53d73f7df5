/* box_landlock.c - a weak box's file system: what a strong one shows, by Landlock.
 *
 * Landlock (Linux 5.13) needs no privilege and works where namespaces are forbidden, so that also a
 * weak box reads nothing but the system's folders and writes nothing but its own. Where a kernel
 * lacks it there is no such limit, and verl-reward says so. */
#include "libverl/base/box_impl.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <sys/stat.h>

/* Rights by the version that brought them: 13 in the first, then moving (refer), truncate, ioctl. */
static uint64_t all_rights(int version)
{
    return ((uint64_t)1 << (version < 2 ? 13 : version < 3 ? 14 : version < 5 ? 15 : 16)) - 1;
}
enum {
    READ = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR
};
enum {
    OF_FILES =
        LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE
}; /* that are no folders */

static int version(void)
{
    long v = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    return v < 0 ? 0 : (int)v;
}

int vl_box_weak_has_landlock(void)
{
    return version() > 0;
}

/* A path that is not there is left out. */
static int allow(int set, const char *path, uint64_t rights)
{
    struct landlock_path_beneath_attr a = { .allowed_access = rights };
    struct stat st;
    long rc = 0;

    a.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (a.parent_fd < 0)
        return 0;
    if (!fstat(a.parent_fd, &st)) {
        if (!S_ISDIR(st.st_mode))
            a.allowed_access &= OF_FILES;
        rc = syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &a, 0);
    }
    close(a.parent_fd);
    return (int)rc;
}

int box_landlock(const struct box_plan *p)
{
    const int v = version();
    const struct landlock_ruleset_attr attr = { .handled_access_fs = all_rights(v) };
    char path[32];
    int set, rc = 0;

    if (!v)
        return 0;
    set = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr.handled_access_fs, 0);
    if (set < 0)
        return -1;
    for (const char *const *s = box_shown; *s; s++)
        rc |= allow(set, *s, READ);
    for (const char *const *b = p->o->binds; b && *b; b++)
        rc |= allow(set, *b, READ);
    for (const char *const *d = box_devices; *d; d++) {
        snprintf(path, sizeof path, "/dev/%s", *d);
        rc |= allow(set, path, READ | LANDLOCK_ACCESS_FS_WRITE_FILE);
    }
    rc |= allow(set, p->folder, attr.handled_access_fs);
    if (!rc)
        rc = (int)syscall(SYS_landlock_restrict_self, set, 0);
    close(set);
    return rc;
}
