/* gguf.h - a GGUF file (versions 2 and 3, little-endian): metadata and tensors, checked and mapped.
 *
 * Layout: "GGUF", u32 version, u64 tensors, u64 keys; the keys (name, type, value), the tensors' infos
 * (name, dimensions innermost first, type, offset), padding to general.alignment (32), the tensors'
 * bytes. As llama.cpp's reader demands, each tensor begins where the padding of the one before it ends;
 * unlike it, nothing may follow the last. Files are outside bytes: every length is checked against what
 * is left before it is used, and an error line has the byte, what was found and what was expected. */
#ifndef VL_GGUF_H
#define VL_GGUF_H

#include "formats/ggml.h"
#include "libverl/base/mem.h"

enum vl_gguf_type {
    VL_GGUF_U8,
    VL_GGUF_I8,
    VL_GGUF_U16,
    VL_GGUF_I16,
    VL_GGUF_U32,
    VL_GGUF_I32,
    VL_GGUF_F32,
    VL_GGUF_BOOL,
    VL_GGUF_STRING,
    VL_GGUF_ARRAY,
    VL_GGUF_U64,
    VL_GGUF_I64,
    VL_GGUF_F64,
};

int vl_gguf_type_size(enum vl_gguf_type type); /* 0: a string or array */

struct vl_gguf_key {
    char *name;
    enum vl_gguf_type type; /* of an array, its elements' (never an array of arrays) */
    int is_array;
    uint64_t n;  /* elements; 1 where it is no array */
    uint64_t at; /* byte of the (first) value */
};

struct vl_gguf_tensor {
    char *name;
    const struct vl_ggml_type *type;
    int ndim;         /* 1 to 4 */
    int64_t shape[4]; /* outermost first, as safetensors has it: (rows, cols) */
    int64_t n;        /* elements */
    uint64_t at, bytes;
};

struct vl_gguf {
    char *name;          /* starts error lines */
    const uint8_t *data; /* the whole file */
    size_t size;
    uint32_t version;
    struct vl_gguf_key *key; /* in file order */
    size_t nkey;
    struct vl_gguf_tensor *tensor; /* in file order */
    size_t ntensor;
    const void **by_name; /* pointers to the keys, then to the tensors, each sorted by name */
    int mapped;           /* data is a mapping of vl_gguf_open */
};

/* data is borrowed and must outlive *g. VL_E_DATA when it is not such a file. Free with
 * vl_gguf_close, also after an error. */
int vl_gguf_parse(struct vl_gguf *g, const void *data, size_t size, const char *name,
                  struct vl_err *e) VL_MUST_CHECK;
/* The same with a mapped file; VL_E_NOINPUT when it cannot be opened. */
int vl_gguf_open(struct vl_gguf *g, const char *path, struct vl_err *e) VL_MUST_CHECK;
void vl_gguf_close(struct vl_gguf *g);

const struct vl_gguf_key *vl_gguf_find(const struct vl_gguf *g, const char *name); /* NULL: none */
const struct vl_gguf_tensor *vl_gguf_tensor(const struct vl_gguf *g, const char *name);

/* Values by key. An absent key leaves *out as it is; another type is VL_E_DATA naming both. i64 takes
 * every integer type, f64 both float types and integers. A string is borrowed from the file, *n bytes
 * without a NUL at its end. */
int vl_gguf_i64(const struct vl_gguf *g, const char *name, int64_t *out,
                struct vl_err *e) VL_MUST_CHECK;
int vl_gguf_f64(const struct vl_gguf *g, const char *name, double *out,
                struct vl_err *e) VL_MUST_CHECK;
int vl_gguf_bool(const struct vl_gguf *g, const char *name, int *out,
                 struct vl_err *e) VL_MUST_CHECK;
int vl_gguf_str(const struct vl_gguf *g, const char *name, const char **out, size_t *n,
                struct vl_err *e) VL_MUST_CHECK;
/* The array of that element type, or *out = NULL when the key is absent. */
int vl_gguf_array(const struct vl_gguf *g, const char *name, enum vl_gguf_type type,
                  const struct vl_gguf_key **out, struct vl_err *e) VL_MUST_CHECK;
/* The string at byte `at` (an array's k->at at first); returns the byte of the next one. */
uint64_t vl_gguf_str_at(const struct vl_gguf *g, uint64_t at, const char **s, size_t *n);

#endif
