/* cache.h - files that save a program time and change nothing it makes.
 *
 * Nothing here is an error: a file that cannot be read, is another user's or is not a regular file is
 * as good as none, and one that cannot be written is not. What a file holds is checked by whom it
 * belongs to: its own checksum, format and release. */
#ifndef VL_CACHE_H
#define VL_CACHE_H

#include "libverl/base/mem.h"

/* NAME in $VERL_CACHE, $XDG_CACHE_HOME/verl or ~/.cache/verl; NULL: no cache is to be used. Caller
 * frees. */
char *vl_cache_path(const char *name);
/* A descriptor of the file and its size, or -1. Caller closes. NULL: none. */
int vl_cache_open(const char *path, size_t *size);
/* Writes what `fill` appends, aside and renamed. fill is not called where another process is writing
 * the same file, or nothing can be written. */
void vl_cache_write(const char *path, void (*fill)(void *arg, struct vl_buf *out), void *arg);

#endif
