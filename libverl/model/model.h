/* model.h - a model directory in Hugging Face's layout: config.json, safetensors, generation config.
 *
 * Parameters live in one contiguous fp32 slab in a fixed order (vl_param list), so that gradients,
 * Adam moments and checkpoints share offsets; q, k, v and gate, up are adjacent rows of one fused
 * matrix, and are split again under their Hugging Face names when saved. */
#ifndef VL_MODEL_H
#define VL_MODEL_H

#include "libverl/base/mem.h"

enum vl_arch { VL_ARCH_LLAMA, VL_ARCH_QWEN2, VL_ARCH_QWEN3, VL_ARCH_MISTRAL };
enum vl_head {
    VL_HEAD_LM,
    VL_HEAD_VALUE,  /* one number a token: a critic, a reward model */
    VL_HEAD_AUTO,   /* for vl_model_open: what the directory holds */
    VL_HEAD_REWARD, /* for vl_model_open: a value head that the directory must hold */
};

struct vl_rope_scaling {
    enum { VL_ROPE_NONE, VL_ROPE_LINEAR, VL_ROPE_LLAMA3, VL_ROPE_YARN } type;
    double factor, low_freq_factor, high_freq_factor;
    double beta_fast, beta_slow, attention_factor; /* yarn */
    int64_t original_max;
};

struct vl_config {
    enum vl_arch arch;
    enum vl_head head;
    int64_t C, L, H, K, D, F, V; /* width, layers, heads, kv heads, head width, mlp width, vocab */
    int64_t max_positions;
    double rms_eps, rope_theta;
    struct vl_rope_scaling rope;
    int64_t window;      /* sliding window or 0 */
    int64_t window_from; /* first layer that uses the window (qwen's max_window_layers) */
    int qkv_bias, o_bias, mlp_bias, qk_norm, tied;
    char *json;      /* config.json's text, kept so that unknown members survive a save */
    int sequence;    /* the value head scores whole sequences (...ForSequenceClassification) */
    int value_bias;  /* the value head has a bias (only when the file has one) */
    double init_std; /* initializer_range */
};

/* One tensor of the slab. */
struct vl_param {
    char name[96];      /* "layers.3.qkv"; see vl_model_layout in model.c for the list and order */
    int64_t offset;     /* floats from the start of the slab, a multiple of 16 */
    int64_t rows, cols; /* a vector has rows = 1 */
    int decay;          /* a matrix, no norm or bias: what optim.decay=matrices decays */
};

enum vl_added {
    VL_ADDED_NONE,
    VL_ADDED_TO_LM,    /* the directory holds a language model */
    VL_ADDED_TO_VALUE, /* it is a critic's without the head's weights */
};

struct vl_weight_files {
    char **path;
    size_t n;
};

struct vl_model {
    struct vl_config cfg;
    struct vl_param *param;
    int64_t nparam;
    int64_t count;                /* floats in the slab, padding included */
    float *slab;                  /* host, 64-byte aligned; NULL: opened without weights */
    char *dir;                    /* where it came from, links resolved */
    struct vl_weight_files files; /* its weights; none when it was not opened */
    char hash
        [33]; /* XXH3-128 over names, shapes and fp32 bytes: the weight version's identity. Before
                      the weights are read: as a published version's record has it, or "" */
    char *version;     /* "v000012" of a published version or train state, or NULL */
    int32_t *stop_ids; /* generation_config.json's and config.json's eos ids */
    int64_t nstop;
    int64_t bos_id, pad_id;   /* -1: none */
    const char *stored_dtype; /* "F32", "BF16" or "F16": of most bytes on disk */
    char *generation_json;    /* generation_config.json's text or NULL */
    enum vl_added added;      /* a value head that the files do not hold */
    char *source_hash;        /* a published version: hash of the train state's weights it came from
                                 (differs from `hash` when the dtype rounded them), or NULL */
};

/* Parses config.json's text; `name` starts error lines. An architecture, activation or rope scaling
 * that is not implemented is VL_E_DATA naming it and what is. c->head follows `architectures`
 * (...ForTokenClassification, ...ForSequenceClassification: VALUE). Release with vl_config_free. */
int vl_config_parse(struct vl_config *c, const char *text, size_t n, const char *name,
                    struct vl_err *e) VL_MUST_CHECK;
void vl_config_free(struct vl_config *c);
/* config.json's text for a save: c->json's members as they came, with architectures, dtype and the
 * head's members brought up to date. Caller frees. */
char *vl_config_text(const struct vl_config *c, const char *dtype /* "F32" */);
const char *vl_arch_name(enum vl_arch a);               /* "llama": model_type */
const char *vl_config_class(const struct vl_config *c); /* "LlamaForCausalLM" */

/* Reads a Hugging Face directory, a published version, or a train state (= its `current`);
 * head VALUE adds a zero-initialised value head when the directory has none, and makes a critic of a
 * reward model; head REWARD refuses a directory without one. want_weights = 0:
 * config and layout only. VL_E_NOINPUT / VL_E_DATA lines name the file and tensor. */
int vl_model_open(struct vl_model **m, const char *path, enum vl_head head, int want_weights,
                  struct vl_err *e) VL_MUST_CHECK;

/* Where weights go while they are read: put gets rows [row, row + n) of m->param[i] as fp32, every
 * row of every parameter once, row a multiple of VL_BLOCK_ROWS (backend.h). x is put's until it
 * returns. Several threads call it at once. */
struct vl_sink {
    int (*put)(void *arg, int64_t i, int64_t row, int64_t n, const float *x, struct vl_err *e);
    void *arg;
    int threads; /* 0: OpenMP's number */
};

/* Where a slab comes from while it is written: get returns floats [at, at + n) of it, from where they
 * are or filled into room (n floats), until the next call; NULL and an error. */
struct vl_origin {
    const float *(*get)(void *arg, int64_t at, int64_t n, float *room, struct vl_err *e);
    void *arg;
};

/* Reads the weights of a model that was opened without them, each byte once, into `to` alone (NULL:
 * they are checked and hashed only); sets hash and stored_dtype. Weights that are not those of the
 * version's record are VL_E_DATA; `to` has then got them already. */
int vl_model_read(struct vl_model *m, const struct vl_sink *to, struct vl_err *e) VL_MUST_CHECK;
void vl_model_free(struct vl_model *m);
/* A model without a directory: config.json's text, its layout, a zeroed slab. head AUTO follows the
 * text, REWARD makes a ...ForSequenceClassification. Free with vl_model_free. */
int vl_model_new(struct vl_model **m, const char *config, const char *name, enum vl_head head,
                 struct vl_err *e) VL_MUST_CHECK;
/* The same without the slab, for what the config asks for to be checked first. */
int vl_model_plan(struct vl_model **m, const char *config, const char *name, enum vl_head head,
                  struct vl_err *e) VL_MUST_CHECK;
/* Random weights: matrices normal with deviation std (o and down projections std / sqrt(2 L) with
 * scale_residual), norms 1, biases 0; then the hash. A pure function of (seed, layout). */
void vl_model_init(struct vl_model *m, uint64_t seed, double std, int scale_residual);
/* x with P(N(0,1) < x) = p, 0 < p < 1; the same bits on every machine. */
double vl_normal_quantile(double p);
void vl_model_layout(struct vl_model *m);              /* fills param, nparam, count from cfg */
int64_t vl_model_parameters(const struct vl_model *m); /* their number, without padding */
const struct vl_param *vl_model_param(const struct vl_model *m,
                                      const char *name); /* NULL if none */

/* Writes config.json, model.safetensors (sharded above max_shard bytes; 0 = 5 GB), the generation
 * config and, copied from `like` when not NULL, the tokenizer files, into an existing directory. */
int vl_model_save(const struct vl_model *m, const char *dir, const char *dtype /* "F32" "BF16" */,
                  int64_t max_shard, const char *like, struct vl_err *e) VL_MUST_CHECK;
/* The part of vl_model_save without weights: config.json, generation config, tokenizer files. */
int vl_model_save_configs(const struct vl_model *m, const char *dir, const char *dtype,
                          const char *like, struct vl_err *e) VL_MUST_CHECK;
void vl_model_hash(struct vl_model *m); /* recomputes m->hash from the slab */

#endif
