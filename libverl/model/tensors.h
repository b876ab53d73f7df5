/* tensors.h - the slab under Hugging Face's names: what a weights file holds, read and written.
 *
 * Used by model, train state and the programs that compare or list tensors. Moments of the optimizer
 * have the same names and shapes as the parameters, so the same functions read and write them. */
#ifndef VL_TENSORS_H
#define VL_TENSORS_H

#include "libverl/model/model.h"

/* One tensor of a file: a contiguous run of the slab. */
struct vl_piece {
    char name[120]; /* "model.layers.3.self_attn.k_proj.weight" */
    int64_t at, n;  /* floats: offset in the slab, count */
    int ndim;       /* 1 or 2 */
    int64_t shape[2];
};

/* The pieces of m in file order; *n of them; caller frees. */
struct vl_piece *vl_model_pieces(const struct vl_model *m, int64_t *n);

/* Files of a directory's weights: the one file `single` when not NULL, else model.safetensors or the
 * files of model.safetensors.index.json. */
int vl_weight_files(struct vl_weight_files *f, const char *dir, const char *single,
                    struct vl_err *e) VL_MUST_CHECK;
void vl_weight_files_free(struct vl_weight_files *f);

/* Looks only at the names: whether the files hold a value head and its bias. */
int vl_tensors_probe(const struct vl_weight_files *f, int *value_head, int *value_bias,
                     struct vl_err *e) VL_MUST_CHECK;

/* Reads m's parameters from the files into `to` (NULL: they are checked and hashed only): every
 * piece exactly once, nothing else, finite values. A missing value head is zeros. hash: as
 * vl_tensors_hash; *dtype (may be NULL) becomes the dtype of most bytes. */
int vl_tensors_read(const struct vl_model *m, const struct vl_weight_files *f,
                    const struct vl_sink *to, char hash[33], const char **dtype,
                    struct vl_err *e) VL_MUST_CHECK;
/* put of a sink whose arg is a slab of m->count floats; what lies between parameters is not touched. */
struct vl_slab {
    const struct vl_model *m;
    float *x;
};
int vl_slab_put(void *arg, int64_t i, int64_t row, int64_t n, const float *x, struct vl_err *e);

/* Writes pieces [p0, p0 + np) of slab as one new safetensors file, fsynced. dtype "F32", "BF16",
 * "F16" (rounded to nearest even). */
int vl_tensors_write(const struct vl_piece *p0, int64_t np, const float *slab, const char *path,
                     const char *dtype, struct vl_err *e) VL_MUST_CHECK;

/* Writes all of m's slab from x as one new F32 file, fsynced, and hashes it on the way, as
 * vl_tensors_hash. A value that is not finite is VL_E_DATA naming `what` ("weight") and tensor: the
 * file is then unfinished. */
int vl_tensors_stream(const struct vl_model *m, const struct vl_origin *x, const char *what,
                      const char *path, char hash[33], struct vl_err *e) VL_MUST_CHECK;

/* XXH3-128 of the names, shapes and fp32 bytes of slab as 32 hex digits. */
void vl_tensors_hash(const struct vl_model *m, const float *slab, char hex[33]);

#endif
