/* dp.h - reading and writing batch files (.dp): zstd-seekable safetensors. See dataproto.md. */
#ifndef VL_DP_H
#define VL_DP_H

#include "libverl/batch/batch.h"

struct vl_dp_read {
    const char *const *columns; /* names wanted, NULL-terminated; NULL = all. Unwanted ones are not
                                   decompressed (named files); names that are not there are left
                                   out, see vl_batch_need */
    int64_t row0, nrows;        /* row range, clipped to what is there; nrows = -1: to the end */
    int header_only; /* names, dtypes, shapes, meta; data and offsets are NULL, bytes 0 */
};

/* Reads one batch (a stream is read as the concatenation of its documents). path "-" is standard
 * input. opt may be NULL. Cut, flipped or trailing bytes are VL_E_DATA naming file and byte. */
int vl_dp_read(struct vl_batch *b, const char *path, const struct vl_dp_read *opt,
               struct vl_err *e) VL_MUST_CHECK;

/* The same for bytes in memory; `name` is for messages. They are read as a pipe would be: whole. */
int vl_dp_read_bytes(struct vl_batch *b, const char *name, const void *p, size_t n,
                     const struct vl_dp_read *opt, struct vl_err *e) VL_MUST_CHECK;

struct vl_dp_write {
    int level;  /* zstd level; 0 = default (1) */
    int stream; /* mark the document as part of a stream; vl_dp_stream_put does this itself */
};

/* Writes one batch whole or not at all: aside, fsync, rename; non-regular files in place; "-" is
 * standard output, refused when it is a terminal. opt may be NULL. */
int vl_dp_write(const struct vl_batch *b, const char *path, const struct vl_dp_write *opt,
                struct vl_err *e) VL_MUST_CHECK;

/* The same as an uncompressed safetensors file, which vl_dp_read takes as well. */
int vl_dp_write_plain(const struct vl_batch *b, const char *path, struct vl_err *e) VL_MUST_CHECK;

/* Several complete documents back to back, closed by an end frame with their count: for pipes, so
 * that the reader can start before the writer is done. A reader refuses a stream without its end. */
struct vl_dp_stream {
    struct vl_publish *out;
    struct vl_dp_write opt;
    uint64_t documents, rows;
};
/* path: "-" or something that exists and is no regular file (VL_E_USAGE otherwise). */
int vl_dp_stream_open(struct vl_dp_stream *s, const char *path, const struct vl_dp_write *opt,
                      struct vl_err *e) VL_MUST_CHECK;
int vl_dp_stream_put(struct vl_dp_stream *s, const struct vl_batch *b,
                     struct vl_err *e) VL_MUST_CHECK;
/* whole = 0 leaves the end frame out (after an error), so that the reader fails as well. */
int vl_dp_stream_close(struct vl_dp_stream *s, int whole, struct vl_err *e) VL_MUST_CHECK;

/* The other side, for who can use documents before the writer is done: bytes go in as they come,
 * documents come out as they are complete, each verified. Any kind of batch may come in: one that is
 * no stream comes out whole at the end. */
struct vl_dp_feed *vl_dp_feed_open(const char *name); /* name: borrowed, for messages */
void vl_dp_feed_close(struct vl_dp_feed *f);
void vl_dp_feed_add(struct vl_dp_feed *f, const void *p, size_t n);
/* The next complete document, the caller's to free, with *got = 1; else *got = 0 and more bytes are
 * needed. VL_E_DATA as soon as what began as a stream cannot go on. */
int vl_dp_feed_next(struct vl_dp_feed *f, struct vl_batch *doc, int *got,
                    struct vl_err *e) VL_MUST_CHECK;
/* After the last byte: *is_stream = 1 and the stream was whole (VL_E_DATA when its end frame is
 * missing: nothing that came out may be used), or 0 and *whole is the batch. */
int vl_dp_feed_end(struct vl_dp_feed *f, struct vl_batch *whole, int *is_stream,
                   struct vl_err *e) VL_MUST_CHECK;

/* XXH3-128 content hash as 32 hex digits + NUL: column order, dtypes, shapes, data, meta_info. */
int vl_dp_hash(const struct vl_batch *b, char hex[33], struct vl_err *e) VL_MUST_CHECK;

#endif
