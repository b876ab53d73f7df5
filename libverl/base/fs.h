/* fs.h - whole files, directories made aside and published, links that move in one step.
 *
 * The order that survives a crash is always: files fsync, directory fsync, rename, parent fsync,
 * then the link by symlink and rename, parent fsync again. These are its steps;
 * single files: publish.h. */
#ifndef VL_FS_H
#define VL_FS_H

#include "libverl/base/mem.h"

/* Appends the whole file to *out. More than `max` bytes is VL_E_DATA, a missing file VL_E_NOINPUT,
 * else VL_E_IO; lines name the path. */
int vl_fs_read(const char *path, size_t max, struct vl_buf *out, struct vl_err *e) VL_MUST_CHECK;
/* Creates `path` (which must not exist) with these n bytes and fsyncs it. */
int vl_fs_write(const char *path, const void *p, size_t n, struct vl_err *e) VL_MUST_CHECK;
/* Copies a regular file to a new one with the same mode and fsyncs it. */
int vl_fs_copy(const char *from, const char *to, struct vl_err *e) VL_MUST_CHECK;
/* Hard-links from to `to`, or copies it where linking is impossible (other file system): then
 * *copied = 1. */
int vl_fs_link_or_copy(const char *from, const char *to, int *copied,
                       struct vl_err *e) VL_MUST_CHECK;
/* Makes a directory and its missing parents; an existing one is fine. */
int vl_fs_mkdirs(const char *path, struct vl_err *e) VL_MUST_CHECK;
/* Points the symbolic link dir/name at `target` (relative to dir) in one step and fsyncs dir. */
int vl_fs_point(const char *dir, const char *name, const char *target,
                struct vl_err *e) VL_MUST_CHECK;
/* Removes a directory and what it holds, links not followed; a missing one is fine. */
int vl_fs_remove(const char *path, struct vl_err *e) VL_MUST_CHECK;
int vl_fs_exists(const char *dir, const char *name); /* name NULL: dir itself; follows links */

#endif
