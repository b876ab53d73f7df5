/* gguf_load.c - the tensors of a GGUF file into the slab. See gguf_model.h.
 *
 * All names and shapes are checked before the slab is allocated: its size comes from the file's keys,
 * and what it takes must be in the file. */
#include "libverl/model/gguf_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/model/tensors.h"

/* The end of Hugging Face's name of a layer's tensor, and of llama.cpp's. */
static const struct {
    const char *theirs, *gguf;
} layer_names[] = {
    { "input_layernorm.weight", "attn_norm.weight" },
    { "self_attn.q_proj.weight", "attn_q.weight" },
    { "self_attn.k_proj.weight", "attn_k.weight" },
    { "self_attn.v_proj.weight", "attn_v.weight" },
    { "self_attn.q_proj.bias", "attn_q.bias" },
    { "self_attn.k_proj.bias", "attn_k.bias" },
    { "self_attn.v_proj.bias", "attn_v.bias" },
    { "self_attn.q_norm.weight", "attn_q_norm.weight" },
    { "self_attn.k_norm.weight", "attn_k_norm.weight" },
    { "self_attn.o_proj.weight", "attn_output.weight" },
    { "self_attn.o_proj.bias", "attn_output.bias" },
    { "post_attention_layernorm.weight", "ffn_norm.weight" },
    { "mlp.gate_proj.weight", "ffn_gate.weight" },
    { "mlp.gate_proj.bias", "ffn_gate.bias" },
    { "mlp.up_proj.weight", "ffn_up.weight" },
    { "mlp.up_proj.bias", "ffn_up.bias" },
    { "mlp.down_proj.weight", "ffn_down.weight" },
    { "mlp.down_proj.bias", "ffn_down.bias" },
};

/* llama.cpp's name of a piece; "" for a value head, which no such file has. */
static void gguf_name(const char *name, char *out, size_t size)
{
    const char *layer = "model.layers.", *dot;
    size_t n = strlen(layer);

    snprintf(out, size, "%s",
             !strcmp(name, "model.embed_tokens.weight") ? "token_embd.weight"
             : !strcmp(name, "model.norm.weight")       ? "output_norm.weight"
             : !strcmp(name, "lm_head.weight")          ? "output.weight"
                                                        : "");
    if (strncmp(name, layer, n) != 0)
        return;
    dot = strchr(name + n, '.');
    for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++)
        if (!strcmp(dot + 1, layer_names[i].theirs))
            snprintf(out, size, "blk.%.*s.%s", (int)(dot - name - (int)n), name + n,
                     layer_names[i].gguf);
}

/* Which tensor each piece is, and that no other is there. */
struct match {
    const struct vl_gguf_tensor **of; /* by piece; NULL: the value head's */
    struct vl_piece *piece;
    int64_t n;
};

static int check_tensor(const struct vl_gguf *g, const struct vl_piece *p, const char *name,
                        const struct vl_gguf_tensor *t, struct vl_err *e)
{
    char want[64], found[112] = "";

    if (!t)
        return vl_fail(e, VL_E_DATA, "%s: tensor %s is missing", g->name, name);
    if (t->ndim != p->ndim || memcmp(t->shape, p->shape, sizeof *p->shape * (size_t)p->ndim)) {
        snprintf(want, sizeof want, p->ndim == 2 ? "%" PRId64 " x %" PRId64 : "%" PRId64,
                 p->shape[0], p->shape[1]);
        for (int d = 0; d < t->ndim; d++) {
            size_t at = strlen(found);

            snprintf(found + at, sizeof found - at, "%s%" PRId64, d ? " x " : "", t->shape[d]);
        }
        return vl_fail(e, VL_E_DATA, "%s: tensor %s is %s; the file's keys make it %s", g->name,
                       name, found, want);
    }
    if (!t->type->block)
        return vl_fail(e, VL_E_DATA,
                       "%s: tensor %s is %s, which is not supported; take a file of Q2_K to Q8_0, "
                       "IQ4, F16, BF16 or F32",
                       g->name, name, t->type->name);
    return 0;
}

/* Tensors that are no weights: the divisors of llama3's rope, read with the config; an output matrix
 * where a value head takes its place. */
static int passed_over(const struct vl_model *m, const char *name)
{
    return !strcmp(name, "rope_freqs.weight") ||
           (m->cfg.head == VL_HEAD_VALUE && !strcmp(name, "output.weight"));
}

static int match(struct match *x, const struct vl_gguf *g, const struct vl_model *m,
                 struct vl_err *e)
{
    char name[160];
    uint8_t *used = vl_alloc(g->ntensor);

    x->piece = vl_model_pieces(m, &x->n);
    x->of = vl_alloc((size_t)x->n * sizeof *x->of);
    for (int64_t i = 0; i < x->n && !e->code; i++) {
        gguf_name(x->piece[i].name, name, sizeof name);
        if (!*name)
            continue;
        x->of[i] = vl_gguf_tensor(g, name);
        if (!check_tensor(g, &x->piece[i], name, x->of[i], e))
            used[x->of[i] - g->tensor] = 1;
    }
    for (size_t i = 0; i < g->ntensor && !e->code; i++)
        if (!used[i] && !passed_over(m, g->tensor[i].name))
            vl_fail(e, VL_E_DATA,
                    "%s: tensor %s has no place in a %s model of %" PRId64
                    " layers as the file's keys describe it",
                    g->name, g->tensor[i].name, vl_config_class(&m->cfg), m->cfg.L);
    free(used);
    return e->code;
}

/* Rows 2i and 2i + 1 of a head are its rows i and D/2 + i: rotated as neighbours there, as halves here.
 * x has heads * D rows of cols. */
static void halves(float *x, int64_t heads, int64_t D, int64_t cols)
{
    size_t row = (size_t)cols * sizeof *x;
    float *head = vl_alloc((size_t)D * row);

    for (int64_t h = 0; h < heads; h++, x += D * cols) {
        memcpy(head, x, (size_t)D * row);
        for (int64_t i = 0; i < D; i++)
            memcpy(x + (i % 2 * (D / 2) + i / 2) * cols, head + i * cols, row);
    }
    free(head);
}

static int check_finite(const struct vl_gguf *g, const struct vl_gguf_tensor *t, const float *x,
                        struct vl_err *e)
{
    for (int64_t i = 0; i < t->n; i++) {
        uint32_t u;

        memcpy(&u, x + i, 4);
        if ((u & 0x7f800000) == 0x7f800000)
            return vl_fail(e, VL_E_DATA,
                           "%s: byte %" PRIu64 ": tensor %s: element %" PRId64
                           " is %f; weights must be finite",
                           g->name, t->at + (uint64_t)(i / t->type->elems * t->type->bytes),
                           t->name, i, (double)x[i]);
    }
    return 0;
}

static int load(struct vl_model *m, const struct vl_gguf *g, const struct match *x,
                struct vl_err *e)
{
    const struct vl_config *c = &m->cfg;
    int rotates = c->arch == VL_ARCH_LLAMA || c->arch == VL_ARCH_MISTRAL;
    uint64_t bytes[3] = { 0 }; /* of BF16, of F16, of what else there is */

    for (int64_t i = 0; i < x->n; i++) {
        const struct vl_gguf_tensor *t = x->of[i];
        const struct vl_piece *p = &x->piece[i];
        float *to = m->slab + p->at;
        int64_t cols = p->ndim == 2 ? p->shape[1] : 1;

        if (!t)
            continue;
        bytes[t->type->id == 30 ? 0 : t->type->id == 1 ? 1 : 2] += t->bytes;
        vl_ggml_to_f32(t->type, to, g->data + t->at, t->n);
        if (check_finite(g, t, to, e))
            return e->code;
        if (rotates && strstr(p->name, ".q_proj."))
            halves(to, c->H, c->D, cols);
        if (rotates && strstr(p->name, ".k_proj."))
            halves(to, c->K, c->D, cols);
    }
    m->stored_dtype = bytes[0] > bytes[1] + bytes[2]   ? "BF16"
                      : bytes[1] > bytes[0] + bytes[2] ? "F16"
                                                       : "F32";
    return 0;
}

int vl_gguf_model(struct vl_model **out, const struct vl_gguf *g, enum vl_head head,
                  struct vl_err *e)
{
    struct vl_buf config = { 0 }, generation = { 0 };
    struct match x = { 0 };
    struct vl_model *m = NULL;

    *out = NULL;
    if (!vl_gguf_config(g, &config, &generation, e) &&
        !vl_model_plan(&m, config.s, g->name, head, e) && !match(&x, g, m, e) &&
        !vl_try_alloc(&m->slab, (size_t)m->count, sizeof(float), g->name, e) &&
        !load(m, g, &x, e)) {
        m->generation_json = vl_buf_detach(&generation);
        vl_model_hash(m);
        *out = m;
    } else {
        vl_model_free(m);
    }
    free(x.piece);
    free(x.of);
    vl_buf_free(&config);
    vl_buf_free(&generation);
    return e->code;
}
