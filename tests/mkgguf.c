/* bench_gguf.c - a model directory as the GGUF file that llama.cpp's tools measure.
 *
 *   bench_gguf MODEL f32|bf16|q8_0 FILE.gguf
 *
 * Llama and Qwen2 with tied embeddings. The file is for timing: it has no vocabulary, and the rows of
 * q and k stay in their order, where llama.cpp's Llama rotates neighbouring elements and not halves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/half.h"
#include "libverl/model/model.h"

enum { GGUF_U32 = 4, GGUF_F32 = 6, GGUF_STRING = 8 };
enum { TYPE_F32 = 0, TYPE_Q8_0 = 8, TYPE_BF16 = 30 };
enum { ALIGN = 32, QBLOCK = 32 };

struct tensor {
    char name[64];
    const float *x;
    int64_t rows, cols;
    int type;
    uint64_t offset;
};

struct file {
    struct vl_buf head;
    uint64_t keys;
    struct tensor *t;
    uint64_t n, bytes;
};

static void put_u32(struct vl_buf *b, uint32_t x)
{
    vl_buf_add(b, &x, sizeof x);
}
static void put_u64(struct vl_buf *b, uint64_t x)
{
    vl_buf_add(b, &x, sizeof x);
}
static void put_text(struct vl_buf *b, const char *s)
{
    put_u64(b, strlen(s));
    vl_buf_str(b, s);
}

static void key(struct file *f, const char *arch, const char *name, uint32_t type)
{
    char full[96];

    snprintf(full, sizeof full, "%s%s%s", arch, *arch ? "." : "", name);
    put_text(&f->head, full);
    put_u32(&f->head, type);
    f->keys++;
}

static void key_text(struct file *f, const char *name, const char *value)
{
    key(f, "", name, GGUF_STRING);
    put_text(&f->head, value);
}

static void keys(struct file *f, const struct vl_config *c)
{
    const char *arch = vl_arch_name(c->arch);
    struct {
        const char *name;
        int64_t n;
    } whole[] = { { "context_length", 1 << 17 },    { "embedding_length", c->C },
                  { "block_count", c->L },          { "feed_forward_length", c->F },
                  { "attention.head_count", c->H }, { "attention.head_count_kv", c->K },
                  { "attention.key_length", c->D }, { "attention.value_length", c->D },
                  { "rope.dimension_count", c->D }, { "vocab_size", c->V } };
    float eps = (float)c->rms_eps, theta = (float)c->rope_theta;

    key_text(f, "general.architecture", arch);
    key_text(f, "general.name", "random weights");
    key_text(f, "tokenizer.ggml.model", "no_vocab");
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        key(f, arch, whole[i].name, GGUF_U32);
        put_u32(&f->head, (uint32_t)whole[i].n);
    }
    key(f, arch, "attention.layer_norm_rms_epsilon", GGUF_F32);
    vl_buf_add(&f->head, &eps, sizeof eps);
    key(f, arch, "rope.freq_base", GGUF_F32);
    vl_buf_add(&f->head, &theta, sizeof theta);
}

/* ---- tensors ---- */

static size_t stored(const struct tensor *t)
{
    size_t n = (size_t)(t->rows * t->cols);

    return t->type == TYPE_F32 ? 4 * n : t->type == TYPE_BF16 ? 2 * n : n / QBLOCK * (QBLOCK + 2);
}

static void add(struct file *f, const float *x, int64_t rows, int64_t cols, int type,
                const char *layer, const char *name)
{
    struct tensor *t;

    f->t = vl_realloc(f->t, (size_t)(f->n + 1) * sizeof *f->t);
    t = &f->t[f->n++];
    *t = (struct tensor){ .x = x, .rows = rows, .cols = cols, .offset = f->bytes };
    t->type = rows == 1 ? TYPE_F32 : type; /* vectors are fp32, as in llama.cpp's own files */
    snprintf(t->name, sizeof t->name, "%s%s", layer, name);
    f->bytes += (stored(t) + ALIGN - 1) / ALIGN * ALIGN;
}

static const float *param(const struct vl_model *m, const char *layer, const char *name)
{
    char full[96];
    const struct vl_param *p;

    snprintf(full, sizeof full, "%s%s", layer, name);
    p = vl_model_param(m, full);
    return p ? m->slab + p->offset : NULL;
}

static void add_layer(struct file *f, const struct vl_model *m, int64_t l, int type)
{
    const struct vl_config *c = &m->cfg;
    int64_t HD = c->H * c->D, KD = c->K * c->D;
    char from[32], to[32];
    const float *x, *bias;

    snprintf(from, sizeof from, "layers.%lld.", (long long)l);
    snprintf(to, sizeof to, "blk.%lld.", (long long)l);
    add(f, param(m, from, "attn_norm"), 1, c->C, type, to, "attn_norm.weight");
    x = param(m, from, "qkv");
    add(f, x, HD, c->C, type, to, "attn_q.weight");
    add(f, x + HD * c->C, KD, c->C, type, to, "attn_k.weight");
    add(f, x + (HD + KD) * c->C, KD, c->C, type, to, "attn_v.weight");
    if ((bias = param(m, from, "qkv_bias"))) {
        add(f, bias, 1, HD, type, to, "attn_q.bias");
        add(f, bias + HD, 1, KD, type, to, "attn_k.bias");
        add(f, bias + HD + KD, 1, KD, type, to, "attn_v.bias");
    }
    add(f, param(m, from, "o"), c->C, HD, type, to, "attn_output.weight");
    add(f, param(m, from, "mlp_norm"), 1, c->C, type, to, "ffn_norm.weight");
    x = param(m, from, "gate_up");
    add(f, x, c->F, c->C, type, to, "ffn_gate.weight");
    add(f, x + c->F * c->C, c->F, c->C, type, to, "ffn_up.weight");
    add(f, param(m, from, "down"), c->C, c->F, type, to, "ffn_down.weight");
}

/* n values, a multiple of QBLOCK, to out; returns the bytes. */
static size_t q8(unsigned char *out, const float *x, int64_t n)
{
    unsigned char *at = out;

    for (int64_t i = 0; i < n; i += QBLOCK, at += QBLOCK + 2) {
        float top = 0;
        uint16_t d;

        for (int j = 0; j < QBLOCK; j++)
            top = fmaxf(top, fabsf(x[i + j]));
        top /= 127;
        d = vl_f32_to_f16(top);
        memcpy(at, &d, 2);
        for (int j = 0; j < QBLOCK; j++)
            at[2 + j] = (unsigned char)(signed char)(top > 0 ? rintf(x[i + j] / top) : 0);
    }
    return (size_t)(at - out);
}

static int write_tensor(FILE *out, const struct tensor *t)
{
    size_t n = (size_t)(t->rows * t->cols), bytes = stored(t);
    unsigned char *data = vl_alloc(bytes + ALIGN);
    int rc;

    if (t->type == TYPE_F32)
        memcpy(data, t->x, bytes);
    else if (t->type == TYPE_Q8_0)
        q8(data, t->x, (int64_t)n);
    else
        for (size_t i = 0; i < n; i++) {
            uint16_t h = vl_f32_to_bf16(t->x[i]);

            memcpy(data + 2 * i, &h, 2);
        }
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    rc = fwrite(data, 1, bytes, out) != bytes;
    free(data);
    return rc;
}

static int write_file(struct file *f, const char *path, struct vl_err *e)
{
    struct vl_buf b = { 0 };
    FILE *out = fopen(path, "wb");
    int bad;

    vl_buf_str(&b, "GGUF");
    put_u32(&b, 3);
    put_u64(&b, f->n);
    put_u64(&b, f->keys);
    vl_buf_add(&b, f->head.s, f->head.n);
    for (uint64_t i = 0; i < f->n; i++) {
        const struct tensor *t = &f->t[i];

        put_text(&b, t->name);
        put_u32(&b, t->rows == 1 ? 1 : 2);
        put_u64(&b, (uint64_t)t->cols);
        if (t->rows > 1)
            put_u64(&b, (uint64_t)t->rows);
        put_u32(&b, (uint32_t)t->type);
        put_u64(&b, t->offset);
    }
    while (b.n % ALIGN)
        vl_buf_ch(&b, 0);
    bad = !out || fwrite(b.s, 1, b.n, out) != b.n;
    for (uint64_t i = 0; !bad && i < f->n; i++)
        bad = write_tensor(out, &f->t[i]);
    if (out && fclose(out))
        bad = 1;
    if (bad)
        vl_fail_errno(e, VL_E_CREATE, "%s", path);
    vl_buf_free(&b);
    return e->code;
}

static int convert(const char *dir, int type, const char *path, struct vl_err *e)
{
    struct vl_model *m = NULL;
    struct file f = { 0 };

    if (vl_model_open(&m, dir, VL_HEAD_LM, 1, e))
        return e->code;
    if ((m->cfg.arch != VL_ARCH_LLAMA && m->cfg.arch != VL_ARCH_QWEN2) || !m->cfg.tied ||
        m->cfg.C % QBLOCK || m->cfg.F % QBLOCK) {
        vl_model_free(m);
        return vl_fail(e, VL_E_DATA,
                       "%s: only Llama and Qwen2 with tied embeddings and widths that are "
                       "multiples of %d can be written",
                       dir, QBLOCK);
    }
    keys(&f, &m->cfg);
    add(&f, param(m, "", "embed"), m->cfg.V, m->cfg.C, type, "", "token_embd.weight");
    add(&f, param(m, "", "norm"), 1, m->cfg.C, type, "", "output_norm.weight");
    for (int64_t l = 0; l < m->cfg.L; l++)
        add_layer(&f, m, l, type);
    (void)!write_file(&f, path, e);
    vl_buf_free(&f.head);
    free(f.t);
    vl_model_free(m);
    return e->code;
}

int main(int argc, char **argv)
{
    static const char *const name[] = { "f32", "bf16", "q8_0" };
    static const int type[] = { TYPE_F32, TYPE_BF16, TYPE_Q8_0 };
    struct vl_err e = { 0 };

    for (int i = 0; argc == 4 && i < 3; i++)
        if (!strcmp(argv[2], name[i])) {
            if (convert(argv[1], type[i], argv[3], &e))
                fprintf(stderr, "bench_gguf: %s\n", e.msg);
            return e.code;
        }
    fprintf(stderr, "usage: bench_gguf MODEL f32|bf16|q8_0 FILE.gguf\n");
    return VL_E_USAGE;
}
