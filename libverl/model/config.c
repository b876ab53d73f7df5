/* config.c - config.json: which transformer it is, and every number the engine needs.
 *
 * Defaults for absent members are those of transformers' configuration classes, per architecture: a
 * directory that loads there must mean the same model here. What is not implemented (another
 * architecture, activation, rope scaling) is refused by name, never approximated. */
#include "libverl/model/model.h"

#include "formats/json.h"
#include "libverl/base/dmath.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct arch_row {
    const char *type, *class; /* model_type; architectures[0] is class + suffix */
    int64_t kv_heads;         /* default num_key_value_heads; 0 = as many as heads */
    int64_t head_dim;         /* default head_dim; 0 = hidden_size / heads */
    int64_t window;           /* default sliding_window */
} arch_table[] = {
    [VL_ARCH_LLAMA] = { "llama", "Llama", 0, 0, 0 },
    [VL_ARCH_QWEN2] = { "qwen2", "Qwen2", 32, 0, 4096 },
    [VL_ARCH_QWEN3] = { "qwen3", "Qwen3", 32, 128, 4096 },
    [VL_ARCH_MISTRAL] = { "mistral", "Mistral", 8, 0, 4096 },
};
#define NARCH 4

const char *vl_arch_name(enum vl_arch a)
{
    return arch_table[a].type;
}

const char *vl_config_class(const struct vl_config *c)
{
#define CLASSES(x)                                                                                 \
    {                                                                                              \
        x "ForCausalLM", x "ForTokenClassification", x "ForSequenceClassification"                 \
    }
    static const char *const name[][3] = {
        [VL_ARCH_LLAMA] = CLASSES("Llama"),
        [VL_ARCH_QWEN2] = CLASSES("Qwen2"),
        [VL_ARCH_QWEN3] = CLASSES("Qwen3"),
        [VL_ARCH_MISTRAL] = CLASSES("Mistral"),
    };

    return name[c->arch][c->head != VL_HEAD_VALUE ? 0 : c->sequence ? 2 : 1];
}

/* One config.json being read. */
struct reader {
    struct vl_json j;
    const char *name; /* for messages */
    struct vl_config *c;
    struct vl_err *e;
};

/* Source text of a value, for messages; caller frees. */
static char *raw(const struct reader *r, int64_t at)
{
    struct vl_buf b = { 0 };

    vl_json_raw(&r->j, at, &b);
    return vl_buf_detach(&b);
}

static int bad_value(const struct reader *r, const char *key, int64_t at, const char *want)
{
    char *text = raw(r, at);

    vl_fail(r->e, VL_E_DATA, "%s: %s is %.80s; expected %s", r->name, key, text, want);
    free(text);
    return -1;
}

static int64_t member(const struct reader *r, int64_t obj, const char *key)
{
    int64_t at = vl_json_get(&r->j, obj, key);

    return at >= 0 && vl_json_is(&r->j, at, VL_JSON_NULL) ? -1 : at;
}

/* A whole number in 1..max; absent takes `def`, and 0 there means the member is required. */
static int64_t whole(const struct reader *r, const char *key, int64_t def, int64_t max)
{
    int64_t at = member(r, 0, key), v = def;
    char want[80];

    if (at < 0) {
        if (!def)
            vl_fail(r->e, VL_E_DATA, "%s: %s is missing; a %s config has it", r->name, key,
                    vl_arch_name(r->c->arch));
        return def;
    }
    if (!vl_json_i64(&r->j, at, &v) || v < 1 || v > max) {
        snprintf(want, sizeof want, "a whole number from 1 to %" PRId64, max);
        bad_value(r, key, at, want);
        return 1;
    }
    return v;
}

static double real(const struct reader *r, int64_t obj, const char *key, double def)
{
    int64_t at = member(r, obj, key);
    double v = def;

    if (at >= 0 && (!vl_json_f64(&r->j, at, &v) || !(v > 0) || !isfinite(v)))
        bad_value(r, key, at, "a positive number");
    return v;
}

static int flag(const struct reader *r, const char *key, int def)
{
    int64_t at = member(r, 0, key);
    int v = def;

    if (at >= 0 && !vl_json_bool(&r->j, at, &v))
        bad_value(r, key, at, "true or false");
    return v;
}

static int known_class(const char *s, size_t n, struct vl_config *c)
{
    static const char *const suffix[] = { "ForCausalLM", "ForTokenClassification",
                                          "ForSequenceClassification", "Model" };

    for (int a = 0; a < NARCH; a++)
        for (int k = 0; k < 4; k++) {
            size_t m = strlen(arch_table[a].class);

            if (n == m + strlen(suffix[k]) && !memcmp(s, arch_table[a].class, m) &&
                !memcmp(s + m, suffix[k], n - m)) {
                c->arch = (enum vl_arch)a;
                c->head = k == 1 || k == 2 ? VL_HEAD_VALUE : VL_HEAD_LM;
                c->sequence = k == 2;
                return 1;
            }
        }
    return 0;
}

/* architectures names class and head; model_type alone is enough for a language model. */
static void read_arch(struct reader *r)
{
    int64_t at = vl_json_at(&r->j, member(r, 0, "architectures"), 0);
    int64_t type = member(r, 0, "model_type");
    char *s = at >= 0 ? vl_json_strdup(&r->j, at) : NULL, *t = NULL;
    int found = 0;

    if (at >= 0 && !s)
        bad_value(r, "architectures", at, "class names such as \"LlamaForCausalLM\"");
    else if (s && !known_class(s, strlen(s), r->c))
        vl_fail(r->e, VL_E_DATA,
                "%s: architecture %s is not supported; supported are LlamaForCausalLM, "
                "Qwen2ForCausalLM, Qwen3ForCausalLM, MistralForCausalLM and their "
                "...ForTokenClassification forms",
                r->name, s);
    else if (!s && type < 0)
        vl_fail(r->e, VL_E_DATA,
                "%s: neither architectures nor model_type is there; expected "
                "for example \"model_type\": \"llama\"",
                r->name);
    if (!r->e->code && type >= 0) {
        t = vl_json_strdup(&r->j, type);
        for (int a = 0; t && a < NARCH; a++)
            if (!strcmp(t, arch_table[a].type)) {
                if (s && r->c->arch != (enum vl_arch)a)
                    vl_fail(r->e, VL_E_DATA, "%s: model_type %s contradicts architecture %s",
                            r->name, t, s);
                r->c->arch = (enum vl_arch)a;
                found = 1;
            }
        if (!found)
            bad_value(r, "model_type", type,
                      "one of llama, qwen2, qwen3, mistral (no other is supported)");
    }
    free(s);
    free(t);
}

/* yarn's attention factor when the config gives none: 0.1 ln(factor) + 1, or the ratio of the two
 * mscale forms (DeepSeek's way of writing it). */
static double yarn_attention(const struct reader *r, int64_t obj, double factor)
{
    double m = real(r, obj, "mscale", 0), all = real(r, obj, "mscale_all_dim", 0);
    double ln = factor > 1 ? vl_dlog(factor) : 0;

    if (m > 0 && all > 0)
        return (0.1 * m * ln + 1) / (0.1 * all * ln + 1);
    return 0.1 * ln + 1;
}

static void read_rope_type(struct reader *r, int64_t obj, const char *key)
{
    static const char want[] = "one of default, linear, llama3, yarn (no other is supported)";
    struct vl_rope_scaling *s = &r->c->rope;
    int64_t at = member(r, obj, "rope_type");
    int64_t orig = member(r, obj, "original_max_position_embeddings");

    if (at < 0)
        at = member(r, obj, "type");
    if (at < 0 || vl_json_streq(&r->j, at, "default"))
        return;
    s->type = vl_json_streq(&r->j, at, "linear")   ? VL_ROPE_LINEAR
              : vl_json_streq(&r->j, at, "llama3") ? VL_ROPE_LLAMA3
              : vl_json_streq(&r->j, at, "yarn")   ? VL_ROPE_YARN
                                                   : VL_ROPE_NONE;
    if (s->type == VL_ROPE_NONE) {
        bad_value(r, "rope_type", at, want);
        return;
    }
    s->factor = real(r, obj, "factor", 0);
    if (!(s->factor > 0)) {
        vl_fail(r->e, VL_E_DATA, "%s: %s has no factor; expected for example \"factor\": 4.0",
                r->name, key);
        return;
    }
    s->original_max = r->c->max_positions;
    if (orig >= 0 && (!vl_json_i64(&r->j, orig, &s->original_max) || s->original_max < 1))
        bad_value(r, "original_max_position_embeddings", orig, "a whole number from 1");
    if (s->type == VL_ROPE_LLAMA3) {
        s->low_freq_factor = real(r, obj, "low_freq_factor", 0);
        s->high_freq_factor = real(r, obj, "high_freq_factor", 0);
        if (!(s->low_freq_factor > 0) || !(s->high_freq_factor > s->low_freq_factor) || orig < 0)
            vl_fail(r->e, VL_E_DATA,
                    "%s: %s of type llama3 needs low_freq_factor < "
                    "high_freq_factor and original_max_position_embeddings; for example 1.0, 4.0 "
                    "and 8192",
                    r->name, key);
    } else if (s->type == VL_ROPE_YARN) {
        s->beta_fast = real(r, obj, "beta_fast", 32);
        s->beta_slow = real(r, obj, "beta_slow", 1);
        s->attention_factor = real(r, obj, "attention_factor", 0);
        if (!(s->attention_factor > 0))
            s->attention_factor = yarn_attention(r, obj, s->factor);
    }
}

/* rope_theta and rope_scaling, or both in rope_parameters (transformers 5). */
static void read_rope(struct reader *r)
{
    int64_t p = member(r, 0, "rope_parameters");
    const char *key = p >= 0 ? "rope_parameters" : "rope_scaling";

    r->c->rope_theta = real(r, 0, "rope_theta", 10000);
    if (p < 0)
        p = member(r, 0, "rope_scaling");
    if (p < 0)
        return;
    if (!vl_json_is(&r->j, p, VL_JSON_OBJECT)) {
        bad_value(r, key, p, "an object or null");
        return;
    }
    if (vl_json_get(&r->j, p, "full_attention") >= 0) {
        bad_value(r, key, p, "one set for all layers (sets per layer type are not supported)");
        return;
    }
    r->c->rope_theta = real(r, p, "rope_theta", r->c->rope_theta);
    if (real(r, p, "partial_rotary_factor", 1) != 1)
        vl_fail(r->e, VL_E_DATA, "%s: partial_rotary_factor other than 1 is not supported",
                r->name);
    read_rope_type(r, p, key);
}

/* layer_types (transformers 4.53 and later) must be full layers, then windowed ones. */
static void read_layer_types(struct reader *r)
{
    int64_t p = member(r, 0, "layer_types"), at;
    struct vl_config *c = r->c;
    int64_t i = 0, from = c->L;

    if (p < 0 || r->e->code)
        return;
    if (!vl_json_is(&r->j, p, VL_JSON_ARRAY) || r->j.node[p].count != c->L) {
        vl_fail(r->e, VL_E_DATA,
                "%s: layer_types should be an array of %" PRId64 " entries, one for each layer",
                r->name, c->L);
        return;
    }
    for (at = p + 1; i < c->L; at = r->j.node[at].next, i++) {
        int slide = vl_json_streq(&r->j, at, "sliding_attention");

        if (slide && from == c->L)
            from = i;
        if ((!slide && !vl_json_streq(&r->j, at, "full_attention")) || (!slide && from < c->L)) {
            bad_value(r, "layer_types", at,
                      "\"full_attention\" layers first, then \"sliding_attention\" ones (no other "
                      "pattern is supported)");
            return;
        }
    }
    c->window_from = from;
    if (from == c->L)
        c->window = 0;
}

static void read_window(struct reader *r)
{
    struct vl_config *c = r->c;
    int qwen = c->arch == VL_ARCH_QWEN2 || c->arch == VL_ARCH_QWEN3;
    int64_t at = vl_json_get(&r->j, 0, "sliding_window");

    c->window = 0;
    c->window_from = 0;
    if (c->arch == VL_ARCH_LLAMA || (qwen && !flag(r, "use_sliding_window", 0)))
        return;
    if (at >= 0 && vl_json_is(&r->j, at, VL_JSON_NULL))
        return; /* said to be none, which is not the same as left out */
    c->window = whole(r, "sliding_window", arch_table[c->arch].window, INT32_MAX);
    if (qwen) {
        at = member(r, 0, "max_window_layers");
        c->window_from = 28;
        if (at >= 0 && (!vl_json_i64(&r->j, at, &c->window_from) || c->window_from < 0))
            bad_value(r, "max_window_layers", at, "a whole number from 0");
    }
    read_layer_types(r);
    if (c->window_from >= c->L)
        c->window = 0;
}

static void read_sizes(struct reader *r)
{
    struct vl_config *c = r->c;
    const struct arch_row *a = &arch_table[c->arch];

    c->C = whole(r, "hidden_size", 0, 1 << 20);
    c->L = whole(r, "num_hidden_layers", 0, 10000);
    c->H = whole(r, "num_attention_heads", 0, 1 << 16);
    c->K = whole(r, "num_key_value_heads", a->kv_heads ? a->kv_heads : c->H, 1 << 16);
    c->F = whole(r, "intermediate_size", 0, 1 << 24);
    c->V = whole(r, "vocab_size", 0, 1 << 28);
    c->max_positions = whole(r, "max_position_embeddings", 0, INT32_MAX);
    if (r->e->code)
        return;
    c->D = whole(r, "head_dim", a->head_dim ? a->head_dim : c->C / c->H ? c->C / c->H : 1, 1 << 16);
    if (r->e->code)
        return;
    if (member(r, 0, "head_dim") < 0 && !a->head_dim && c->C % c->H)
        vl_fail(r->e, VL_E_DATA,
                "%s: hidden_size %" PRId64 " is not a multiple of "
                "num_attention_heads %" PRId64 " and there is no head_dim",
                r->name, c->C, c->H);
    else if (c->H % c->K)
        vl_fail(r->e, VL_E_DATA,
                "%s: num_attention_heads %" PRId64 " is not a multiple of "
                "num_key_value_heads %" PRId64,
                r->name, c->H, c->K);
    else if (c->D % 2)
        vl_fail(r->e, VL_E_DATA, "%s: head_dim is %" PRId64 "; rotary embeddings need an even one",
                r->name, c->D);
}

static void read_rest(struct reader *r)
{
    struct vl_config *c = r->c;
    int64_t act = member(r, 0, "hidden_act");
    int bias = c->arch == VL_ARCH_QWEN2 || flag(r, "attention_bias", 0);

    if (act >= 0 && !vl_json_streq(&r->j, act, "silu"))
        bad_value(r, "hidden_act", act, "\"silu\" (no other activation is supported)");
    if (c->arch == VL_ARCH_MISTRAL)
        bias = 0;
    c->qkv_bias = bias;
    c->o_bias = bias && c->arch != VL_ARCH_QWEN2;
    c->mlp_bias = c->arch == VL_ARCH_LLAMA && flag(r, "mlp_bias", 0);
    c->qk_norm = c->arch == VL_ARCH_QWEN3;
    c->tied = flag(r, "tie_word_embeddings", 0);
    c->rms_eps = real(r, 0, "rms_norm_eps", 1e-6);
    c->init_std = real(r, 0, "initializer_range", 0.02);
    if (member(r, 0, "quantization_config") >= 0)
        vl_fail(r->e, VL_E_DATA,
                "%s: quantization_config is there; quantized weights are not "
                "supported, convert the model to BF16 first",
                r->name);
}

int vl_config_parse(struct vl_config *c, const char *text, size_t n, const char *name,
                    struct vl_err *e)
{
    struct reader r = { .name = name, .c = c, .e = e };

    *c = (struct vl_config){ 0 };
    if (vl_json_parse(&r.j, text, n, name, e)) {
        vl_json_free(&r.j);
        return e->code;
    }
    if (!vl_json_is(&r.j, 0, VL_JSON_OBJECT))
        vl_fail(e, VL_E_DATA, "%s: expected a JSON object", name);
    if (!e->code)
        read_arch(&r);
    if (!e->code)
        read_sizes(&r);
    if (!e->code)
        read_rope(&r);
    if (!e->code)
        read_window(&r);
    if (!e->code)
        read_rest(&r);
    vl_json_free(&r.j);
    if (!e->code)
        c->json = vl_strndup(text, n);
    return e->code;
}

void vl_config_free(struct vl_config *c)
{
    free(c->json);
    *c = (struct vl_config){ 0 };
}

/* Members that vl_config_text writes itself. */
static int rewritten(const struct vl_json *j, int64_t key)
{
    static const char *const own[] = { "architectures", "torch_dtype", "dtype", "num_labels",
                                       "id2label",      "label2id",    NULL };

    for (int i = 0; own[i]; i++)
        if (vl_json_streq(j, key, own[i]))
            return 1;
    return 0;
}

char *vl_config_text(const struct vl_config *c, const char *dtype)
{
    struct vl_json j;
    struct vl_err e = { 0 };
    struct vl_buf b = { 0 };
    int64_t at = 1;

    vl_buf_printf(&b, "{\n  \"architectures\": [\n    \"%s\"\n  ]", vl_config_class(c));
    if (c->json && !vl_json_parse(&j, c->json, strlen(c->json), "config.json", &e)) {
        for (uint32_t k = 0; k < j.node[0].count; k++, at = j.node[at + 1].next) {
            if (rewritten(&j, at))
                continue;
            vl_buf_str(&b, ",\n  ");
            vl_json_raw(&j, at, &b);
            vl_buf_str(&b, ": ");
            vl_json_raw(&j, at + 1, &b);
        }
        vl_json_free(&j);
    }
    if (c->head == VL_HEAD_VALUE) /* one label is how transformers says scalar head */
        vl_buf_str(&b,
                   ",\n  \"id2label\": {\"0\": \"LABEL_0\"},\n  \"label2id\": {\"LABEL_0\": 0}");
    vl_buf_printf(&b, ",\n  \"torch_dtype\": \"%s\"\n}\n",
                  !strcmp(dtype, "F32")    ? "float32"
                  : !strcmp(dtype, "BF16") ? "bfloat16"
                                           : "float16");
    return vl_buf_detach(&b);
}
