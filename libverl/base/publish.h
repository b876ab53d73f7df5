/* publish.h - writing a file whole or not at all.
 *
 * A regular file is written aside in the same directory, synced, renamed over the name, and the
 * directory synced: a reader sees the old file or the whole new one, and a killed program leaves
 * nothing under the final name. Symbolic links are followed first, so the link stays a link. What
 * exists and is not a regular file (a FIFO, /dev/full, /dev/fd/4) is written in place. */
#ifndef VL_PUBLISH_H
#define VL_PUBLISH_H

#include "libverl/base/mem.h"

struct vl_publish {
    char *name;  /* for messages: as given, or "standard output" */
    char *final; /* links resolved; NULL when written in place */
    char *aside; /* the file being written; NULL when written in place */
    int fd;
    int is_stdout, is_text; /* text on a pipe that nobody reads any more: ended by SIGPIPE */
};

/* path "-" is standard output, refused (VL_E_USAGE) when `binary` and it is a terminal. VL_E_CREATE
 * when the directory or name cannot be made. After success end with _commit or _abort. */
int vl_publish_open(struct vl_publish *p, const char *path, int binary,
                    struct vl_err *e) VL_MUST_CHECK;
/* Whether _open could make a file of that name, as far as can be told without making one: for the
 * start of a program whose output comes hours later. */
int vl_publish_check(const char *path, struct vl_err *e) VL_MUST_CHECK;
/* VL_E_IO with the errno text on a short or failed write. */
int vl_publish_write(struct vl_publish *p, const void *data, size_t n,
                     struct vl_err *e) VL_MUST_CHECK;
/* Makes the file appear; on failure nothing is left and the error is kept. Standard output stays
 * open: vl_main closes and checks it when the program ends. */
int vl_publish_commit(struct vl_publish *p, struct vl_err *e) VL_MUST_CHECK;
void vl_publish_abort(struct vl_publish *p); /* removes what was written aside */

/* All in one: n bytes under path. */
int vl_publish_file(const char *path, const void *data, size_t n, int binary,
                    struct vl_err *e) VL_MUST_CHECK;

/* fsync of a directory, so that a rename in it survives a crash. */
int vl_sync_dir(const char *dir, struct vl_err *e) VL_MUST_CHECK;

/* VL_STOP_AT=point in the environment: SIGSTOP here, so that kill tests are exact. Points of this
 * file: before-fsync, before-rename, after-rename. */
void vl_stop_at(const char *point);

#endif
