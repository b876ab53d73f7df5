/* safetensors.h - the header of a safetensors file, checked, and its tensors' bytes.
 *
 * Layout: u64 little-endian header length N, N bytes of JSON, then the tensors' bytes. Offsets in
 * the header count from byte 8 + N. As the format's own reader demands, tensors fill the data area
 * without holes or overlaps; their order in the header and in the data may differ.
 *
 * Files are read, not mapped: a file that shrinks under a mapping ends the process by SIGBUS, and
 * what is read in pieces that stay in the cache costs no more than a mapping does (540 MB: 0.08 s
 * of CPU time either way). */
#ifndef VL_SAFETENSORS_H
#define VL_SAFETENSORS_H

#include "libverl/batch/batch.h"

#define VL_ST_MAX_HEADER ((uint64_t)64 << 20)

struct vl_st_tensor {
    char *name;
    enum vl_dtype dtype;
    int ndim; /* 0 for a scalar */
    int64_t shape[VL_MAX_DIMS];
    uint64_t begin, end; /* bytes, from the start of the data area */
};

struct vl_st_meta { /* one string of "__metadata__" */
    char *key, *value;
};

struct vl_st {
    struct vl_st_tensor *tensor; /* in header order */
    size_t n;
    struct vl_st_meta *meta; /* empty when "__metadata__" is absent or null */
    size_t nmeta;
    int has_meta;
    uint64_t data_at;    /* file offset of the data area: 8 + N */
    uint64_t data_bytes; /* its length as the header has it */
    /* of vl_st_open only: */
    char *path;
    int fd;
};

/* The header length from a file's first 8 bytes, or VL_E_DATA when above 64 MB or zero. */
int vl_st_header_len(const uint8_t first[8], const char *name, uint64_t *n,
                     struct vl_err *e) VL_MUST_CHECK;
/* Parses the N bytes of header text. `name` starts error lines. VL_E_DATA: malformed JSON, unknown
 * dtype, a name twice, more than 8 dimensions, sizes that overflow or do not fit shape x dtype,
 * holes, overlaps. Free with vl_st_close. */
int vl_st_parse(struct vl_st *s, const char *text, size_t n, const char *name,
                struct vl_err *e) VL_MUST_CHECK;
/* Opens a file and parses its header; the data area must reach exactly to the end of the file.
 * VL_E_NOINPUT when it cannot be opened. */
int vl_st_open(struct vl_st *s, const char *path, struct vl_err *e) VL_MUST_CHECK;
void vl_st_close(struct vl_st *s);

const struct vl_st_tensor *vl_st_find(const struct vl_st *s, const char *name); /* NULL if none */
const char *vl_st_meta_get(const struct vl_st *s, const char *key);             /* NULL if none */
/* n bytes of the tensor from its byte `at` (vl_st_open). May be called by several threads at once.
 * VL_E_DATA when the file has become shorter, VL_E_IO when it cannot be read. */
int vl_st_read(const struct vl_st *s, const struct vl_st_tensor *t, uint64_t at, void *to, size_t n,
               struct vl_err *e) VL_MUST_CHECK;

/* Appends the 8 length bytes and the header for tensors in data order (begin and end are filled in
 * here, one after the other), padded with spaces so that the data area starts at a multiple of 8.
 * meta may be NULL. VL_E_DATA when it passes 64 MB. */
int vl_st_header_put(struct vl_buf *out, struct vl_st_tensor *tensor, size_t n,
                     const struct vl_st_meta *meta, size_t nmeta, struct vl_err *e) VL_MUST_CHECK;

#endif
