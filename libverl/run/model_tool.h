/* model_tool.h - verl-model: making, listing, converting and comparing model directories. */
#ifndef VL_MODEL_TOOL_H
#define VL_MODEL_TOOL_H

#include "libverl/model/model.h"
#include "libverl/run/stage.h"

struct vl_model_opts {
    /* init */
    const char *arch;                                                         /* "llama" ... */
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions; /* 0: by rule */
    int64_t bos, eos, pad;           /* -1: the tokenizer's or none */
    double rope_theta, rms_eps, std; /* std NAN: the config's initializer_range */
    int tied, scale_residual;
    const char *head; /* "lm" "value" "reward"; NULL: as the config or directory says */
    int value_head;   /* --value-head: --head value */
    /* convert, init */
    const char *tokenizer;
    const char *dtype;  /* "f32" "bf16" "f16"; NULL: as stored */
    int64_t shard_size; /* bytes; 0: 5 GB */
    /* info, diff */
    int json, tensors;
    /* checkpoint, restore */
    int64_t step;
};

/* Operand 0 is the command: init info convert diff hash checkpoint restore. opts: vl_model_opts. */
int vl_stage_model(struct vl_ctx *x, const void *opts, struct vl_err *e) VL_MUST_CHECK;

/* The commands of other files. */
int vl_model_tool_convert(struct vl_ctx *x, const struct vl_model_opts *o, const char *path,
                          struct vl_err *e) VL_MUST_CHECK;
int vl_model_tool_info(struct vl_ctx *x, const struct vl_model_opts *o, const char *path,
                       struct vl_err *e) VL_MUST_CHECK;
/* Status 1 with a message when they differ. */
int vl_model_tool_diff(struct vl_ctx *x, const struct vl_model_opts *o, const char *a,
                       const char *b, struct vl_err *e) VL_MUST_CHECK;

/* Writes m as the directory -o names, in the dtype asked for, else in `stored`. Its tokenizer files are
 * copied from `like`, or `tok` has the texts of tokenizer.json and tokenizer_config.json; with neither
 * there are none. */
int vl_model_tool_write(struct vl_ctx *x, const struct vl_model_opts *o, const struct vl_model *m,
                        const char *stored, const char *like, const struct vl_buf tok[2],
                        struct vl_err *e) VL_MUST_CHECK;
enum vl_head vl_model_tool_head(const struct vl_model_opts *o); /* --head, --value-head */

/* Makes `dir` whole: a directory aside is opened for writing, and on success synced and renamed. It
 * must not exist or be empty. */
int vl_dir_begin(const char *dir, char **aside, struct vl_err *e) VL_MUST_CHECK;
int vl_dir_commit(const char *dir, char *aside, struct vl_err *e) VL_MUST_CHECK; /* frees aside */

#endif
