/* batch.h - DataProto in memory: columns of rows, meta_info, provenance.
 *
 * The model is verl's: tensors with one leading batch dimension, non-tensor columns with one JSON
 * value a row, and meta_info without a batch axis. An absent batch (has_batch = 0) is kept apart
 * from a batch with zero tensors, as verl does. Files of it: formats/dp.h, formats/dataproto.md. */
#ifndef VL_BATCH_H
#define VL_BATCH_H

#include "libverl/base/mem.h"

enum vl_dtype {
    VL_U8,
    VL_BOOL,
    VL_I8,
    VL_I16,
    VL_U16,
    VL_F16,
    VL_BF16,
    VL_I32,
    VL_U32,
    VL_F32,
    VL_I64,
    VL_U64,
    VL_F64,
    VL_NDTYPE
};
const char *vl_dtype_name(enum vl_dtype t); /* safetensors' name: "F32" */
size_t vl_dtype_size(enum vl_dtype t);
int vl_dtype_parse(const char *name, size_t n, enum vl_dtype *out); /* 1 if known */

#define VL_MAX_DIMS 8

enum vl_col_kind {
    VL_COL_TENSOR, /* data: shape[0] rows, dense, row-major, little-endian */
    VL_COL_RAGGED, /* data: offsets[rows] elements of inner shape shape[1..]; shape[0] = total */
    VL_COL_JSON,   /* data: the rows' JSON texts end to end; offsets are bytes */
};

struct vl_col {
    char *name;
    enum vl_col_kind kind;
    enum vl_dtype dtype;
    int ndim; /* including the leading dimension */
    int64_t shape[VL_MAX_DIMS];
    void *data;       /* owned, 64-byte aligned */
    size_t bytes;     /* of data */
    int64_t *offsets; /* owned; rows + 1, from 0; NULL for dense tensors */
};

struct vl_meta_entry {
    char *key;
    char *json; /* the value's JSON text, number bytes as they came */
};

struct vl_batch {
    int has_batch; /* 0 = verl's absent batch */
    int64_t rows;
    struct vl_col **col; /* each allocated: a column stays where it is until it is dropped */
    size_t ncol;
    struct vl_meta_entry *meta; /* meta_info in insertion order */
    size_t nmeta;
    char *provenance;   /* JSON text of the provenance graph or NULL; see formats/dataproto.md */
    char (*parent)[33]; /* content hashes of the files it came from: the parents of what is made of
                           it (provenance.h) */
    size_t nparent;
};

void vl_batch_free(struct vl_batch *b); /* releases contents and zeroes *b */
/* dst (zeroed by the caller) becomes an independent copy of src, provenance and parents included. */
int vl_batch_clone(struct vl_batch *dst, const struct vl_batch *src,
                   struct vl_err *e) VL_MUST_CHECK;
/* Sets src's meta_info, provenance and parents on dst (which keeps meta keys src lacks). */
void vl_batch_take_info(struct vl_batch *dst, const struct vl_batch *src);
/* Every column agrees with rows: leading dimensions, sizes, offsets from 0 that never fall. Batches
 * from files are checked; VL_E_DATA names the column. */
int vl_batch_check(const struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;
/* Adds a parent hash unless it is there already or empty. */
void vl_batch_add_parent(struct vl_batch *b, const char *hash);

/* 1 when a column may be called so: not empty, UTF-8, at most 4096 bytes, none of the names and
 * prefixes that files reserve. Checked where names come in and where files are written. */
int vl_col_name_ok(const char *name);

/* Columns. A pointer stays valid until that very column is dropped or replaced. */
struct vl_col *vl_batch_col(const struct vl_batch *b, const char *name); /* NULL if absent */
/* Adds or replaces (in place) a zeroed dense tensor column of shape (rows, dims...); b->rows is set
 * before the first one. The batch is present from then on. */
int vl_batch_add_tensor(struct vl_batch *b, const char *name, enum vl_dtype t, int ndim_inner,
                        const int64_t *inner, struct vl_col **out, struct vl_err *e) VL_MUST_CHECK;
/* Adds or replaces a JSON column from the rows' texts end to end; takes data and offsets (rows+1). */
void vl_batch_add_json(struct vl_batch *b, const char *name, char *data, int64_t *offsets);
/* Moves *c (whose memory the batch then owns; *c is zeroed) in under c->name: replaces a column of
 * that name in place, else appends. */
void vl_batch_put(struct vl_batch *b, struct vl_col *c);
void vl_batch_drop(struct vl_batch *b, const char *name); /* no-op when absent */
void vl_col_free(struct vl_col *c);                       /* releases contents, zeroes *c */
int vl_col_clone(struct vl_col *dst, const struct vl_col *src, int64_t rows,
                 struct vl_err *e) VL_MUST_CHECK;
/* JSON text of row i: pointer into the column, *n bytes. */
const char *vl_col_json(const struct vl_col *c, int64_t row, size_t *n);
size_t vl_col_row_bytes(const struct vl_col *c); /* dense: bytes of a row; ragged: of an element */
/* The bytes of row i, whatever the kind: pointer into the column, *n bytes. */
const void *vl_col_row(const struct vl_col *c, int64_t row, size_t *n);

/* Typed access with a complete error line (file/stage is added by the caller): the column must
 * exist as a dense tensor of that dtype with exactly these inner dims (-1 = any, returned through
 * dims). Data borrowed. */
int vl_batch_need(const struct vl_batch *b, const char *name, enum vl_dtype t, int ndim_inner,
                  int64_t *inner, void *data_out, struct vl_err *e) VL_MUST_CHECK;

/* A mask: vl_batch_need for I64 (rows, *width), whose values must be 0 or 1. */
int vl_batch_need_mask(const struct vl_batch *b, const char *name, int64_t *width,
                       const int64_t **mask, struct vl_err *e) VL_MUST_CHECK;
/* `row 3 (uid "0-17")` for messages, or `row 3` without a uid; into buf, which is returned. 128
 * bytes are enough. */
const char *vl_batch_row_name(const struct vl_batch *b, int64_t row, char *buf, size_t size);

/* The error "what: no column NAME (there are ...)"; returns VL_E_DATA. */
int vl_batch_missing(const struct vl_batch *b, const char *what, const char *name,
                     struct vl_err *e);

/* meta_info. Values are JSON texts. */
const char *vl_meta_get(const struct vl_batch *b, const char *key); /* NULL if absent */
void vl_meta_set(struct vl_batch *b, const char *key, const char *json);
void vl_meta_del(struct vl_batch *b, const char *key);
int vl_meta_f64(const struct vl_batch *b, const char *key, double *out); /* 1 if there, a number */
int vl_meta_i64(const struct vl_batch *b, const char *key, int64_t *out);
char *vl_meta_str(const struct vl_batch *b, const char *key); /* caller frees; NULL unless string */
void vl_meta_set_f64(struct vl_batch *b, const char *key, double x);
void vl_meta_set_i64(struct vl_batch *b, const char *key, int64_t x);
void vl_meta_set_str(struct vl_batch *b, const char *key, const char *s);
/* Sets meta_info.metrics[name] = x (merging into the object that is there). */
void vl_meta_metric(struct vl_batch *b, const char *name, double x);

#endif
