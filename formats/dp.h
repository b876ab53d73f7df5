/* dp.h - reading and writing batch files (.dp): zstd-seekable safetensors. See dataproto.md. */
#ifndef VL_DP_H
#define VL_DP_H

#include "libverl/batch/batch.h"

struct vl_dp_read {
    const char *const *columns; /* names wanted, NULL-terminated; NULL = all. Unwanted ones are not
                                   decompressed (named files) */
    int64_t row0, nrows;        /* row range; nrows = -1: to the end */
    int header_only;            /* names, dtypes, shapes, meta; no data */
};

/* Reads one batch (a stream is read as the concatenation of its documents). path "-" is standard
 * input. opt may be NULL. Cut, flipped or trailing bytes are VL_E_DATA naming file and byte. */
int vl_dp_read(struct vl_batch *b, const char *path, const struct vl_dp_read *opt,
               struct vl_err *e) VL_MUST_CHECK;

struct vl_dp_write {
    int level;  /* zstd level; 0 = default (1) */
    int stream; /* mark the document as part of a stream */
};

/* Writes one batch whole or not at all: aside, fsync, rename; non-regular files in place; "-" is
 * standard output, refused when it is a terminal. opt may be NULL. */
int vl_dp_write(const struct vl_batch *b, const char *path, const struct vl_dp_write *opt,
                struct vl_err *e) VL_MUST_CHECK;

/* XXH3-128 content hash as 32 hex digits + NUL: column order, dtypes, shapes, data, meta_info. */
int vl_dp_hash(const struct vl_batch *b, char hex[33], struct vl_err *e) VL_MUST_CHECK;

#endif
