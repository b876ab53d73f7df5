/* mkgguf.c - a model directory as a GGUF file: for llama.cpp to be measured with, and for tests of what
 * reads such files.
 *
 *   mkgguf MODEL f32|f16|bf16|q8_0 FILE.gguf [PRE]
 *
 * As llama.cpp's own converter lays them out: the rows of q and k of a Llama or Mistral are put into
 * the order in which neighbours are rotated, and llama3's rope scaling becomes a tensor of divisors.
 * With PRE the vocabulary of MODEL/tokenizer.json is in the file: "llama" for a SentencePiece BPE (whose
 * scores follow from its ids), else the name of a byte-level BPE's pre-tokenizer. Without PRE there is
 * none, as llama.cpp's measurements need none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/base/half.h"
#include "libverl/engine/internal.h"
#include "libverl/model/model.h"
#include "libverl/text/tok.h"

enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { ALIGN = 32, QBLOCK = 32 };
static const struct {
    const char *name;
    int id;
} types[] = { { "f32", 0 }, { "f16", 1 }, { "q8_0", 8 }, { "bf16", 30 } };

struct tensor {
    char name[64];
    const float *x;
    int64_t rows, cols, heads; /* heads: rows in llama.cpp's order, 0: as they are */
    int type, vector;
    uint64_t offset;
};

struct file {
    struct vl_buf head;
    uint64_t keys;
    struct tensor *t;
    uint64_t n, bytes;
    float *divisors;
};

static void put_u32(struct vl_buf *b, uint32_t x)
{
    vl_buf_add(b, &x, sizeof x);
}
static void put_u64(struct vl_buf *b, uint64_t x)
{
    vl_buf_add(b, &x, sizeof x);
}
static void put_text(struct vl_buf *b, const char *s, size_t n)
{
    put_u64(b, n);
    vl_buf_add(b, s, n);
}

/* ---- keys ---- */

static void key(struct file *f, const char *arch, const char *name, uint32_t type)
{
    char full[96];

    snprintf(full, sizeof full, "%s%s%s", arch, *arch ? "." : "", name);
    put_text(&f->head, full, strlen(full));
    put_u32(&f->head, type);
    f->keys++;
}

static void key_text(struct file *f, const char *name, const char *value)
{
    key(f, "", name, GGUF_STRING);
    put_text(&f->head, value, strlen(value));
}

static void key_u32(struct file *f, const char *arch, const char *name, int64_t n)
{
    key(f, arch, name, GGUF_U32);
    put_u32(&f->head, (uint32_t)n);
}

static void key_f32(struct file *f, const char *arch, const char *name, double x)
{
    float y = (float)x;

    key(f, arch, name, GGUF_F32);
    vl_buf_add(&f->head, &y, sizeof y);
}

static void key_bool(struct file *f, const char *name, int x)
{
    key(f, "", name, GGUF_BOOL);
    vl_buf_ch(&f->head, (char)x);
}

static void key_array(struct file *f, const char *name, uint32_t type, uint64_t n)
{
    key(f, "", name, GGUF_ARRAY);
    put_u32(&f->head, type);
    put_u64(&f->head, n);
}

static const char *arch_of(const struct vl_config *c)
{
    return c->arch == VL_ARCH_MISTRAL ? "llama" : vl_arch_name(c->arch);
}

static void keys(struct file *f, const struct vl_config *c)
{
    const char *arch = arch_of(c);

    key_text(f, "general.architecture", arch);
    key_text(f, "general.name", "made by mkgguf");
    key_u32(f, arch, "context_length", c->max_positions);
    key_u32(f, arch, "embedding_length", c->C);
    key_u32(f, arch, "block_count", c->L);
    key_u32(f, arch, "feed_forward_length", c->F);
    key_u32(f, arch, "attention.head_count", c->H);
    key_u32(f, arch, "attention.head_count_kv", c->K);
    key_u32(f, arch, "attention.key_length", c->D);
    key_u32(f, arch, "attention.value_length", c->D);
    key_u32(f, arch, "rope.dimension_count", c->D);
    key_u32(f, arch, "vocab_size", c->V);
    key_f32(f, arch, "attention.layer_norm_rms_epsilon", c->rms_eps);
    key_f32(f, arch, "rope.freq_base", c->rope_theta);
    if (c->window)
        key_u32(f, arch, "attention.sliding_window", c->window);
    if (c->rope.type == VL_ROPE_LINEAR || c->rope.type == VL_ROPE_YARN) {
        key(f, arch, "rope.scaling.type", GGUF_STRING);
        put_text(&f->head, c->rope.type == VL_ROPE_YARN ? "yarn" : "linear",
                 c->rope.type == VL_ROPE_YARN ? 4 : 6);
        key_f32(f, arch, "rope.scaling.factor", c->rope.factor);
        key_u32(f, arch, "rope.scaling.original_context_length", c->rope.original_max);
    }
}

/* ---- the vocabulary ---- */

/* Types by id, from what is special, what stands in added_tokens, and what bytes are called. */
static int32_t *types_of(const struct vl_tok *t, int64_t V, int spm, const struct vl_json *j)
{
    int64_t added = vl_json_get(j, 0, "added_tokens"), at = added + 1, id;
    int32_t *type = vl_alloc((size_t)V * sizeof *type);

    for (int64_t i = 0; i < V; i++) {
        size_t n = 0;
        const char *s = i < vl_tok_size(t) ? vl_tok_text(t, (int32_t)i, &n) : NULL;

        type[i] = !s ? UNUSED : spm && n == 6 && memcmp(s, "<0x", 3) == 0 ? BYTE : NORMAL;
    }
    for (uint32_t k = 0; added >= 0 && k < j->node[added].count; k++, at = j->node[at].next)
        if (vl_json_i64(j, vl_json_get(j, at, "id"), &id) && id >= 0 && id < V)
            type[id] = !vl_tok_is_special(t, (int32_t)id) ? USER_DEFINED
                       : spm && id == 0                   ? UNKNOWN
                                                          : CONTROL;
    return type;
}

/* "left right" */
static void merge_text(const struct vl_json *j, int64_t at, struct vl_buf *s)
{
    vl_buf_reset(s);
    if (vl_json_is(j, at, VL_JSON_ARRAY)) {
        vl_json_str(j, at + 1, s);
        vl_buf_ch(s, ' ');
        vl_json_str(j, at + 2, s);
    } else {
        vl_json_str(j, at, s);
    }
}

static void put_merges(struct vl_buf *b, const struct vl_json *j, int64_t merges)
{
    struct vl_buf s = { 0 };
    int64_t at = merges + 1;

    for (uint32_t k = 0; k < j->node[merges].count; k++, at = j->node[at].next) {
        merge_text(j, at, &s);
        put_text(b, s.s, s.n);
    }
    vl_buf_free(&s);
}

/* A piece's score falls with the rank of the first merge that makes it; runs of spaces stand below all
 * others and alike, as in Llama's own vocabulary. */
static void put_scores(struct vl_buf *b, const struct vl_tok *t, int64_t V, const struct vl_json *j,
                       int64_t merges)
{
    float *score = vl_alloc((size_t)V * sizeof *score);
    int64_t at = merges + 1;
    struct vl_buf s = { 0 };

    for (uint32_t k = 0; k < j->node[merges].count; k++, at = j->node[at].next) {
        size_t run = 0;
        char *space;
        int32_t id;

        merge_text(j, at, &s);
        space = memchr(s.s, ' ', s.n);
        memmove(space, space + 1, (size_t)(s.s + s.n - space - 1));
        s.n--;
        while (run + 3 <= s.n && memcmp(s.s + run, "\xE2\x96\x81", 3) == 0)
            run += 3;
        id = vl_tok_id(t, s.s, s.n);
        if (id >= 0 && id < V && score[id] == 0)
            score[id] = run == s.n ? -1e9f : -(float)(k + 1);
    }
    vl_buf_add(b, score, (size_t)V * sizeof *score);
    vl_buf_free(&s);
    free(score);
}

static void vocabulary(struct file *f, const struct vl_tok *t, const struct vl_json *j,
                       const char *pre, int64_t V)
{
    int64_t merges = vl_json_get(j, vl_json_get(j, 0, "model"), "merges");
    int spm = !strcmp(pre, "llama");
    int32_t *type = types_of(t, V, spm, j);
    struct vl_ids around = { 0 };
    struct vl_err e = { 0 };

    key_text(f, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    key_text(f, "tokenizer.ggml.pre", spm ? "default" : pre);
    key_array(f, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)V);
    for (int64_t i = 0; i < V; i++) {
        size_t n = 0;
        const char *s = i < vl_tok_size(t) ? vl_tok_text(t, (int32_t)i, &n) : NULL;
        char pad[32];

        snprintf(pad, sizeof pad, "[PAD%lld]", (long long)i);
        put_text(&f->head, s ? s : pad, s ? n : strlen(pad));
    }
    key_array(f, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)V);
    vl_buf_add(&f->head, type, (size_t)V * sizeof *type);
    free(type);
    if (spm) {
        key_array(f, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)V);
        put_scores(&f->head, t, V, j, merges);
    } else {
        key_array(f, "tokenizer.ggml.merges", GGUF_STRING, j->node[merges].count);
        put_merges(&f->head, j, merges);
    }
    if (vl_tok_bos(t) >= 0)
        key_u32(f, "", "tokenizer.ggml.bos_token_id", vl_tok_bos(t));
    if (vl_tok_eos(t) >= 0)
        key_u32(f, "", "tokenizer.ggml.eos_token_id", vl_tok_eos(t));
    if (vl_tok_encode(t, "", 0, VL_TOK_SPECIAL, &around, &e))
        fprintf(stderr, "mkgguf: %s\n", e.msg);
    key_bool(f, "tokenizer.ggml.add_bos_token", around.n && around.id[0] == vl_tok_bos(t));
    key_bool(f, "tokenizer.ggml.add_eos_token",
             around.n && around.id[around.n - 1] == vl_tok_eos(t));
    vl_ids_free(&around);
    if (vl_tok_template(t))
        key_text(f, "tokenizer.chat_template", vl_tok_template(t));
}

static int tokenizer(struct file *f, const char *dir, const char *pre, int64_t V, struct vl_err *e)
{
    char *path = vl_asprintf("%s/tokenizer.json", dir);
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    struct vl_tok *t = NULL;

    if (!vl_tok_open(&t, dir, e) && !vl_fs_read(path, (size_t)1 << 30, &text, e) &&
        !vl_json_parse(&j, text.s, text.n, path, e))
        vocabulary(f, t, &j, pre, V);
    vl_tok_free(t);
    vl_json_free(&j);
    vl_buf_free(&text);
    free(path);
    return e->code;
}

/* ---- tensors ---- */

static size_t stored(const struct tensor *t)
{
    size_t n = (size_t)(t->rows * t->cols);

    return t->type == 0 ? 4 * n : t->type == 8 ? n / QBLOCK * (QBLOCK + 2) : 2 * n;
}

/* Nothing when x is NULL. A vector has rows 0. */
static struct tensor *add(struct file *f, const float *x, int64_t rows, int64_t cols, int type,
                          const char *layer, const char *name)
{
    struct tensor *t;

    f->t = vl_realloc(f->t, (size_t)(f->n + 1) * sizeof *f->t);
    t = &f->t[f->n];
    *t = (struct tensor){ .x = x, .rows = rows ? rows : 1, .cols = cols, .offset = f->bytes };
    t->vector = !rows;
    t->type = rows ? type : 0; /* vectors are fp32, as in llama.cpp's own files */
    snprintf(t->name, sizeof t->name, "%s%s", layer, name);
    if (!x)
        return t;
    f->n++;
    f->bytes += (stored(t) + ALIGN - 1) / ALIGN * ALIGN;
    return t;
}

static const float *param(const struct vl_model *m, const char *layer, const char *name)
{
    char full[96];
    const struct vl_param *p;

    snprintf(full, sizeof full, "%s%s", layer, name);
    p = vl_model_param(m, full);
    return p ? m->slab + p->offset : NULL;
}

static void add_qkv(struct file *f, const struct vl_model *m, const float *x, int64_t cols,
                    int type, const char *to, const char *end)
{
    static const char *const name[] = { "attn_q", "attn_k", "attn_v" };
    const struct vl_config *c = &m->cfg;
    int64_t heads[] = { c->H, c->K, c->K };
    int rotates = !strcmp(arch_of(c), "llama");

    for (int i = 0; x && i < 3; i++) {
        int64_t n = heads[i] * c->D;
        char full[32];
        struct tensor *t;

        snprintf(full, sizeof full, "%s.%s", name[i], end);
        t = cols ? add(f, x, n, cols, type, to, full) : add(f, x, 0, n, type, to, full);
        t->heads = rotates && i < 2 ? heads[i] : 0;
        x += n * (cols ? cols : 1);
    }
}

static void add_layer(struct file *f, const struct vl_model *m, int64_t l, int type)
{
    const struct vl_config *c = &m->cfg;
    char from[32], to[32];
    const float *x;

    snprintf(from, sizeof from, "layers.%lld.", (long long)l);
    snprintf(to, sizeof to, "blk.%lld.", (long long)l);
    add(f, param(m, from, "attn_norm"), 0, c->C, type, to, "attn_norm.weight");
    add_qkv(f, m, param(m, from, "qkv"), c->C, type, to, "weight");
    add_qkv(f, m, param(m, from, "qkv_bias"), 0, type, to, "bias");
    add(f, param(m, from, "q_norm"), 0, c->D, type, to, "attn_q_norm.weight");
    add(f, param(m, from, "k_norm"), 0, c->D, type, to, "attn_k_norm.weight");
    add(f, param(m, from, "o"), c->C, c->H * c->D, type, to, "attn_output.weight");
    add(f, param(m, from, "o_bias"), 0, c->C, type, to, "attn_output.bias");
    add(f, param(m, from, "mlp_norm"), 0, c->C, type, to, "ffn_norm.weight");
    x = param(m, from, "gate_up");
    add(f, x, c->F, c->C, type, to, "ffn_gate.weight");
    add(f, x + c->F * c->C, c->F, c->C, type, to, "ffn_up.weight");
    x = param(m, from, "gate_up_bias");
    add(f, x, 0, c->F, type, to, "ffn_gate.bias");
    add(f, x ? x + c->F : NULL, 0, c->F, type, to, "ffn_up.bias");
    add(f, param(m, from, "down"), c->C, c->F, type, to, "ffn_down.weight");
    add(f, param(m, from, "down_bias"), 0, c->C, type, to, "ffn_down.bias");
}

static void add_tensors(struct file *f, const struct vl_model *m, int type)
{
    const struct vl_config *c = &m->cfg;

    add(f, param(m, "", "embed"), c->V, c->C, type, "", "token_embd.weight");
    add(f, param(m, "", "norm"), 0, c->C, type, "", "output_norm.weight");
    add(f, param(m, "", "head"), c->V, c->C, type, "", "output.weight");
    if (c->rope.type == VL_ROPE_LLAMA3) {
        f->divisors = vl_alloc((size_t)c->D / 2 * sizeof(float));
        for (int64_t i = 0; i < c->D / 2; i++)
            f->divisors[i] = (float)(pow(c->rope_theta, -2.0 * (double)i / (double)c->D) /
                                     vl_rope_inv_freq(c, i));
        add(f, f->divisors, 0, c->D / 2, type, "", "rope_freqs.weight");
    }
    for (int64_t l = 0; l < c->L; l++)
        add_layer(f, m, l, type);
}

/* n values, a multiple of QBLOCK. */
static void q8(unsigned char *at, const float *x, int64_t n)
{
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
}

/* The rows in the order they are stored in: of a head, its first half's and its second half's in turn. */
static float *in_order(const struct tensor *t)
{
    int64_t cols = t->vector ? 1 : t->cols, rows = t->rows * t->cols / cols, D;
    float *x = vl_alloc((size_t)(rows * cols) * sizeof *x);

    memcpy(x, t->x, (size_t)(rows * cols) * sizeof *x);
    if (!t->heads)
        return x;
    D = rows / t->heads;
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = r % D, from = r - i + (i % 2 ? D / 2 : 0) + i / 2;

        memcpy(x + r * cols, t->x + from * cols, (size_t)cols * sizeof *x);
    }
    return x;
}

static int write_tensor(FILE *out, const struct tensor *t)
{
    size_t n = (size_t)(t->rows * t->cols), bytes = stored(t);
    unsigned char *data = vl_alloc(bytes + ALIGN);
    float *x = in_order(t);
    int rc;

    if (t->type == 0)
        memcpy(data, x, bytes);
    else if (t->type == 8)
        q8(data, x, (int64_t)n);
    else
        for (size_t i = 0; i < n; i++) {
            uint16_t h = t->type == 1 ? vl_f32_to_f16(x[i]) : vl_f32_to_bf16(x[i]);

            memcpy(data + 2 * i, &h, 2);
        }
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    rc = fwrite(data, 1, bytes, out) != bytes;
    free(data);
    free(x);
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

        put_text(&b, t->name, strlen(t->name));
        put_u32(&b, t->vector ? 1 : 2);
        put_u64(&b, (uint64_t)t->cols);
        if (!t->vector)
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

static int convert(const char *dir, int type, const char *path, const char *pre, struct vl_err *e)
{
    struct vl_model *m = NULL;
    struct file f = { 0 };

    if (vl_model_open(&m, dir, VL_HEAD_LM, 1, e))
        return e->code;
    if (type == 8 && (m->cfg.C % QBLOCK || m->cfg.F % QBLOCK)) {
        vl_fail(e, VL_E_DATA, "%s: widths that are no multiples of %d cannot be q8_0", dir, QBLOCK);
    } else {
        keys(&f, &m->cfg);
        if (!pre)
            key_text(&f, "tokenizer.ggml.model", "no_vocab");
        if (!pre || !tokenizer(&f, dir, pre, m->cfg.V, e)) {
            add_tensors(&f, m, type);
            (void)!write_file(&f, path, e);
        }
    }
    vl_buf_free(&f.head);
    free(f.t);
    free(f.divisors);
    vl_model_free(m);
    return e->code;
}

int main(int argc, char **argv)
{
    struct vl_err e = { 0 };

    for (size_t i = 0; (argc == 4 || argc == 5) && i < sizeof types / sizeof *types; i++)
        if (!strcmp(argv[2], types[i].name)) {
            if (convert(argv[1], types[i].id, argv[3], argv[4], &e))
                fprintf(stderr, "mkgguf: %s\n", e.msg);
            return e.code;
        }
    fprintf(stderr, "usage: mkgguf MODEL f32|f16|bf16|q8_0 FILE.gguf [PRE]\n");
    return VL_E_USAGE;
}
