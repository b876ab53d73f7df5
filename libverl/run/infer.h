/* infer.h - what the stages that run a model forward share: opening it, packed passes over rows,
 * agreement with what the batch's meta_info says. */
#ifndef VL_INFER_H
#define VL_INFER_H

#include "libverl/engine/engine.h"
#include "libverl/engine/pack.h"
#include "libverl/run/memory.h"
#include "libverl/run/stage.h"

struct vl_infer {
    struct vl_model *model;
    struct vl_backend *be;
    struct vl_engine *eng;
    enum vl_compute compute;
    const char *quantization; /* "int8": so are the matrices loaded; NULL: as they are */
    struct vl_memory mem;     /* what else is taken, and the options that lower it */
};

/* Rows of a forward pass: `rows` rows (<= 0 or VL_NULL_I64: any) and, with dynamic or when rows is
 * not set, at most max_tokens tokens. */
struct vl_cut {
    int64_t rows;
    int dynamic;
    int64_t max_tokens;
};

/* Rows of the options table that programs with a model share: its operands; the rows of a pass; the
 * keys of *CUT (each with the one it falls back to, or NULL), which ends their help with OF. */
#define VL_BEST_COMPUTE "amx with AMX tiles, bf16 on AMD with AVX512-BF16, elsewhere fp32"
#define VL_OPT_COMPUTE(DST)                                                                        \
    VL_OPT_WORD("compute", NULL, DST, "TYPE", "auto|fp32|bf16|amx", VL_F_PROV,                     \
                "operands of matrix products; auto: as the batch says, else " VL_BEST_COMPUTE)
#define VL_OPT_QUANTIZATION(KEY, DST, ...)                                                         \
    VL_OPT_WORD("quantization", KEY, DST, "TYPE", "int8", VL_F_PROV | VL_F_NULLABLE, __VA_ARGS__)
#define VL_OPT_MICRO_BATCH(DST)                                                                    \
    VL_OPT_INT("micro-batch", NULL, DST, "ROWS", 0, 1 << 30, 0,                                    \
               "rows in one forward pass, before the keys below; 0: not set")
#define VL_OPT_CUT(CUT, PASS, OF, ROWS, ROWS_ELSE, DYNAMIC, DYNAMIC_ELSE, TOKENS, TOKENS_ELSE)     \
    VL_OPT_INT(NULL, ROWS, &(CUT)->rows, "ROWS", 1, 1 << 30, VL_F_NULLABLE,                        \
               "rows in one " PASS OF, .fallback = ROWS_ELSE),                                     \
        VL_OPT_FLAG(NULL, DYNAMIC, &(CUT)->dynamic, 0, "cut by tokens even where rows are set" OF, \
                    .fallback = DYNAMIC_ELSE),                                                     \
        VL_OPT_INT(NULL, TOKENS, &(CUT)->max_tokens, "TOKENS", 1, 1 << 30, 0,                      \
                   "tokens in one " PASS OF, .fallback = TOKENS_ELSE)

/* Tokens of one pass (train: one that backward follows): max_tokens, on a CPU never more than what is
 * fastest there. */
int64_t vl_infer_token_budget(const struct vl_infer *f, int64_t max_tokens, int train);

/* Opens configuration and device: f->model without weights, f->be, f->compute. path NULL or "" is
 * VL_E_USAGE that names -m and `key`. compute "auto": what meta_info.compute says, else the
 * device's default; a given one that differs from meta_info warns. Weights are not quantized unless
 * the caller sets f->quantization before they are loaded. Collective (agrees). Close with
 * vl_infer_close also after an error. */
int vl_infer_open(struct vl_ctx *x, struct vl_infer *f, const struct vl_batch *b, const char *path,
                  const char *key, enum vl_head head, const char *compute,
                  struct vl_err *e) VL_MUST_CHECK;
/* Sets in f->mem how the user makes passes smaller, and the compute type another: the options' variables. */
void vl_infer_options(struct vl_ctx *x, struct vl_infer *f, const struct vl_cut *cut,
                      const int64_t *micro_batch, const char *const *compute);
/* Says what will be needed (passes up to `pass`, f->mem.cache besides), refuses with
 * VL_E_OS when that is not there, and loads the weights. Collective. */
int vl_infer_load(struct vl_ctx *x, struct vl_infer *f, const struct vl_extent *pass,
                  struct vl_err *e) VL_MUST_CHECK;
void vl_infer_close(struct vl_infer *f);

/* Result columns (B, R) on rank 0, zero outside valid response tokens; NULL = not wanted. Other
 * ranks leave them alone. Caller frees. */
enum { VL_INFER_LOGP, VL_INFER_ENTROPY, VL_INFER_SUM_PI2, VL_INFER_VALUE, VL_INFER_COLUMNS };
struct vl_infer_out {
    int want[VL_INFER_COLUMNS];
    float *column[VL_INFER_COLUMNS];
    int64_t topk; /* K > 0: also the K likeliest ids of each position and their log-probs */
    const int64_t
        *also; /* (B, R, nalso) borrowed, or NULL: ids that join them where they are others */
    int64_t nalso;
    int32_t *topk_id; /* (B, R, topk + nalso); -1: none */
    float *topk_logp;
};
void vl_infer_out_free(struct vl_infer_out *out);

/* Warns of rows longer than the model's context: positions it was not made for. */
void vl_infer_check_context(struct vl_ctx *x, const struct vl_infer *f, const struct vl_rows *r);

/* Loads the weights and runs all rows, divided over the ranks by token count. Collective. */
int vl_infer_rows(struct vl_ctx *x, struct vl_infer *f, const struct vl_rows *r,
                  const struct vl_cut *cut, float inv_temp, struct vl_infer_out *out,
                  struct vl_err *e) VL_MUST_CHECK;

/* The sampling temperature by the rule of vl_stage_f64, and 1 for preference data that was not sampled;
 * negative or not a number is VL_E_DATA. */
int vl_infer_temperature(struct vl_ctx *x, const struct vl_batch *b, const double *opt, double *out,
                         struct vl_err *e) VL_MUST_CHECK;

/* The batch's response_mask (B, R), 0 or 1 and 1 only at the response's tokens, or one made from the
 * response lengths. Caller frees. */
int vl_infer_mask(const struct vl_batch *b, const struct vl_rows *r, int64_t **mask,
                  struct vl_err *e) VL_MUST_CHECK;

/* VL_E_DATA naming row and position when a value under the mask is not finite: such numbers never
 * reach a file. */
int vl_infer_finite(const char *name, const float *x, const int64_t *mask, const struct vl_batch *b,
                    int64_t R, struct vl_err *e) VL_MUST_CHECK;

/* Adds a (B, R) F32 column and takes the data in. */
int vl_infer_add(struct vl_batch *b, const char *name, int64_t R, const float *data,
                 struct vl_err *e) VL_MUST_CHECK;

#endif
