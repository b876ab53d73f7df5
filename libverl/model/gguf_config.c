/* gguf_config.c - config.json and generation_config.json from a GGUF file's keys. See gguf_model.h.
 *
 * A key that changes what the model computes and has no member in config.json is refused by name; keys
 * that only describe (names, licences, file types) are passed over. */
#include "libverl/model/gguf_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/base/dmath.h"
#include "libverl/text/gguf_tok.h"

#define PI 3.14159265358979323846

struct reader {
    const struct vl_gguf *g;
    const char *arch;
    char key[128]; /* the last one asked for, in full */
    struct vl_err *e;
    struct vl_buf *out;
};

static const char *full(struct reader *r, const char *key)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, key);
    return r->key;
}

/* A whole number in 1..max; absent takes def, and def 0 means it must be there. */
static int64_t whole(struct reader *r, const char *key, int64_t def, int64_t max)
{
    const struct vl_gguf_key *k = vl_gguf_find(r->g, full(r, key));
    int64_t v = def;

    if (vl_gguf_i64(r->g, r->key, &v, r->e))
        return 1;
    if (!k && !def)
        vl_fail(r->e, VL_E_DATA, "%s: key %s is missing; a %s file has it", r->g->name, r->key,
                r->arch);
    else if (k && (v < 1 || v > max))
        vl_fail(r->e, VL_E_DATA, "%s: byte %" PRIu64 ": %s is %" PRId64 "; expected 1 to %" PRId64,
                r->g->name, k->at, r->key, v, max);
    return r->e->code ? 1 : v;
}

/* A positive number, or def when absent. */
static double real(struct reader *r, const char *key, double def)
{
    const struct vl_gguf_key *k = vl_gguf_find(r->g, full(r, key));
    double v = def;

    if (!vl_gguf_f64(r->g, r->key, &v, r->e) && k && !(v > 0 && v < 1e30))
        vl_fail(r->e, VL_E_DATA, "%s: byte %" PRIu64 ": %s is %g; expected a positive number",
                r->g->name, k->at, r->key, v);
    return v;
}

/* Refuses a key unless it is absent or has the value at which it changes nothing. */
static void only(struct reader *r, const char *key, double neutral)
{
    const struct vl_gguf_key *k = vl_gguf_find(r->g, full(r, key));
    double v = neutral;

    if (!vl_gguf_f64(r->g, r->key, &v, r->e) && v != neutral)
        vl_fail(r->e, VL_E_DATA,
                "%s: byte %" PRIu64 ": %s is %g; other than %g is not supported here", r->g->name,
                k->at, r->key, v, neutral);
}

/* The shortest decimal that reads back as the same float: 1e-05 and not 9.99999975e-06. */
static void put_real(struct vl_buf *b, double x)
{
    char s[40];

    for (int digits = 6; digits < 10 && (double)(float)x == x; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, x);
        if ((double)strtof(s, NULL) == x) {
            vl_buf_printf(b, "%s%s", s, strpbrk(s, ".e") ? "" : ".0");
            return;
        }
    }
    vl_json_put_f64(b, x);
}

static void put_whole(struct reader *r, const char *member, int64_t v)
{
    vl_buf_printf(r->out, ",\n  \"%s\": %" PRId64, member, v);
}

static void put_flag(struct reader *r, const char *member, int v)
{
    vl_buf_printf(r->out, ",\n  \"%s\": %s", member, v ? "true" : "false");
}

static void put_number(struct reader *r, const char *member, double v)
{
    vl_buf_printf(r->out, ",\n  \"%s\": ", member);
    put_real(r->out, v);
}

static void put_id(struct vl_buf *b, const char *before, const char *member, int64_t id)
{
    vl_buf_printf(b, "%s\"%s\": ", before, member);
    if (id < 0)
        vl_buf_str(b, "null");
    else
        vl_json_put_i64(b, id);
}

static int has_tensor(const struct reader *r, const char *name)
{
    return vl_gguf_tensor(r->g, name) != NULL;
}

/* ---- sizes ---- */

struct dims {
    int64_t C, L, H, D, V, context;
};

static void put_sizes(struct reader *r, struct dims *d)
{
    const struct vl_gguf_tensor *embed = vl_gguf_tensor(r->g, "token_embd.weight");
    int64_t F, K, rope;

    if (!embed || embed->ndim != 2) {
        vl_fail(r->e, VL_E_DATA, "%s: tensor token_embd.weight is %s", r->g->name,
                embed ? "no matrix" : "missing");
        return;
    }
    d->V = embed->shape[0];
    d->C = whole(r, "embedding_length", 0, 1 << 20);
    d->L = whole(r, "block_count", 0, 10000);
    F = whole(r, "feed_forward_length", 0, 1 << 24);
    d->H = whole(r, "attention.head_count", 0, 1 << 16);
    K = whole(r, "attention.head_count_kv", d->H, 1 << 16);
    d->context = whole(r, "context_length", 0, INT32_MAX);
    d->D = d->C / d->H ? d->C / d->H : 1;
    d->D = whole(r, "attention.key_length", d->D, 1 << 16);
    only(r, "attention.value_length", (double)d->D);
    rope = whole(r, "rope.dimension_count", d->D, 1 << 16);
    if (!r->e->code && rope != d->D)
        vl_fail(r->e, VL_E_DATA,
                "%s: %s is %" PRId64 " where a head has %" PRId64
                " elements; heads that are rotated in part are not supported",
                r->g->name, r->key, rope, d->D);
    only(r, "expert_count", 0);
    only(r, "attention.clamp_kqv", 0);
    only(r, "logit_scale", 0);
    only(r, "residual_scale", 0);
    only(r, "embedding_scale", 0);
    only(r, "attention.scale", 0);
    put_whole(r, "hidden_size", d->C);
    put_whole(r, "intermediate_size", F);
    put_whole(r, "num_hidden_layers", d->L);
    put_whole(r, "num_attention_heads", d->H);
    put_whole(r, "num_key_value_heads", K);
    put_whole(r, "head_dim", d->D);
    put_whole(r, "vocab_size", d->V);
    put_whole(r, "max_position_embeddings", d->context);
}

/* ---- rope ---- */

struct llama3 {
    double factor, low, high, original;
};

/* What llama3's scaling divides the frequency of element i by. */
static double divisor(const struct llama3 *s, double theta, int64_t i, int64_t D)
{
    double inv = vl_dexp(-2.0 * (double)i / (double)D * vl_dlog(theta)), wave = 2 * PI / inv,
           smooth;

    if (wave < s->original / s->high)
        return 1;
    if (wave > s->original / s->low)
        return s->factor;
    smooth = (s->original / wave - s->low) / (s->high - s->low);
    return 1 / ((1 - smooth) / s->factor + smooth);
}

static int fits(const struct llama3 *s, double theta, const float *f, int64_t n)
{
    if (!(s->factor > 1 && s->high > s->low && s->original >= 1))
        return 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(divisor(s, theta, i, 2 * n) / (double)f[i] - 1) < 1e-4))
            return 0;
    return 1;
}

/* Takes what is near a whole number to it. */
static double rounded(double x)
{
    return fabs(x - rint(x)) < 1e-3 * fabs(x) ? rint(x) : x;
}

/* The files keep what the scaling comes to, one divisor for each frequency, and not its numbers. The
 * last is the factor. Between 1 and that, 1/divisor is linear in the frequency; two such points give
 * high and original for low = 1 (only their ratios matter). All divisors must come out again. */
static int llama3_of(struct llama3 *s, double theta, const float *f, int64_t n)
{
    double x[2], y[2], slope, cut;
    int64_t at[2] = { -1, -1 };

    *s = (struct llama3){
        .factor = rounded((double)f[n - 1]), .low = 1, .high = 4, .original = 8192
    };
    if (fits(s, theta, f, n))
        return 1;
    for (int64_t i = 0; i < n; i++)
        if ((double)f[i] > 1.0001 && (double)f[i] < 0.9999 * s->factor)
            at[at[0] >= 0] = i;
    if (at[1] < 0)
        return 0;
    for (int k = 0; k < 2; k++) {
        x[k] = vl_dexp(-2.0 * (double)at[k] / (double)(2 * n) * vl_dlog(theta)) / (2 * PI);
        y[k] = (1 / (double)f[at[k]] - 1 / s->factor) / (1 - 1 / s->factor);
    }
    slope = (y[1] - y[0]) / (x[1] - x[0]);
    cut = y[0] - slope * x[0];
    s->high = rounded(1 - 1 / cut);
    s->original = rounded(slope * (s->high - 1));
    return fits(s, theta, f, n);
}

static void put_llama3(struct reader *r, double theta, const struct dims *d)
{
    const struct vl_gguf_tensor *t = vl_gguf_tensor(r->g, "rope_freqs.weight");
    struct llama3 s;
    float *f;
    int one = 1;

    if (t->ndim != 1 || t->n * 2 != d->D || t->type->id != 0) {
        vl_fail(r->e, VL_E_DATA,
                "%s: tensor rope_freqs.weight is %s with %" PRId64
                " elements; expected F32 with %" PRId64 ", half a head",
                r->g->name, t->type->name, t->n, d->D / 2);
        return;
    }
    f = vl_alloc((size_t)t->n * sizeof *f);
    vl_ggml_to_f32(t->type, f, r->g->data + t->at, t->n);
    for (int64_t i = 0; i < t->n; i++)
        one &= f[i] == 1;
    if (!one && !llama3_of(&s, theta, f, t->n)) {
        vl_fail(
            r->e, VL_E_DATA,
            "%s: tensor rope_freqs.weight is not what rope scaling of type llama3 gives (no other "
            "is supported)",
            r->g->name);
    } else if (!one) {
        vl_buf_str(r->out, ",\n  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": ");
        put_real(r->out, s.factor);
        vl_buf_str(r->out, ", \"low_freq_factor\": ");
        put_real(r->out, s.low);
        vl_buf_str(r->out, ", \"high_freq_factor\": ");
        put_real(r->out, s.high);
        vl_buf_printf(r->out, ", \"original_max_position_embeddings\": %" PRId64 "}",
                      (int64_t)rint(s.original));
    }
    free(f);
}

static void put_yarn(struct reader *r, double factor, const struct dims *d)
{
    int64_t original = whole(r, "rope.scaling.original_context_length", d->context, INT32_MAX);

    only(r, "rope.scaling.attn_factor", 1);
    only(r, "rope.scaling.yarn_attn_factor", 1);
    only(r, "rope.scaling.yarn_ext_factor", 1);
    only(r, "rope.scaling.yarn_log_multiplier", 0);
    vl_buf_str(r->out,
               ",\n  \"rope_scaling\": {\"rope_type\": \"yarn\", \"type\": \"yarn\", \"factor\": ");
    put_real(r->out, factor);
    vl_buf_printf(r->out,
                  ", \"original_max_position_embeddings\": %" PRId64 ", \"beta_fast\": ", original);
    put_real(r->out, real(r, "rope.scaling.yarn_beta_fast", 32));
    vl_buf_str(r->out, ", \"beta_slow\": ");
    put_real(r->out, real(r, "rope.scaling.yarn_beta_slow", 1));
    vl_buf_ch(r->out, '}');
}

/* Text equal to s, which is not NUL-terminated. */
static int is(const char *s, size_t n, const char *want)
{
    return n == strlen(want) && memcmp(s, want, n) == 0;
}

static void put_rope(struct reader *r, const struct dims *d)
{
    double theta = real(r, "rope.freq_base", 10000), factor = real(r, "rope.scale_linear", 1);
    const char *type = "linear"; /* what a factor without a type means */
    size_t n = 6;

    factor = real(r, "rope.scaling.factor", factor);
    if (vl_gguf_str(r->g, full(r, "rope.scaling.type"), &type, &n, r->e))
        return;
    put_number(r, "rope_theta", theta);
    if (has_tensor(r, "rope_freqs.weight")) {
        if (!is(type, n, "none") && factor != 1)
            vl_fail(r->e, VL_E_DATA,
                    "%s: has a tensor rope_freqs.weight and a rope scaling by %g; expected one of "
                    "them",
                    r->g->name, factor);
        else
            put_llama3(r, theta, d);
    } else if (is(type, n, "yarn")) {
        put_yarn(r, factor, d);
    } else if (is(type, n, "linear")) {
        if (factor != 1) {
            vl_buf_str(r->out, ",\n  \"rope_scaling\": {\"rope_type\": \"linear\", \"type\": "
                               "\"linear\", \"factor\": ");
            put_real(r->out, factor);
            vl_buf_ch(r->out, '}');
        }
    } else if (!is(type, n, "none")) {
        vl_fail(r->e, VL_E_DATA,
                "%s: byte %" PRIu64 ": %s is \"%.*s\"; expected none, linear or yarn (no other is "
                "supported)",
                r->g->name, vl_gguf_find(r->g, r->key)->at, r->key, n < 60 ? (int)n : 60, type);
    }
}

/* ---- the rest ---- */

/* Llama files with a sliding window are Mistral; llama.cpp makes no difference. */
static const char *model_type(struct reader *r, int64_t *window)
{
    *window = 0;
    if (vl_gguf_i64(r->g, full(r, "attention.sliding_window"), window, r->e) || !*window)
        return r->arch;
    if (*window < 0 || *window > INT32_MAX || strcmp(r->arch, "llama"))
        vl_fail(r->e, VL_E_DATA, "%s: %s is %" PRId64 "; a window is supported in llama files only",
                r->g->name, r->key, *window);
    return "mistral";
}

static void put_arch(struct reader *r)
{
    int64_t window;
    const char *type = model_type(r, &window);

    vl_buf_printf(r->out, "{\n  \"model_type\": \"%s\",\n  \"hidden_act\": \"silu\"", type);
    if (!strcmp(type, "mistral"))
        put_whole(r, "sliding_window", window);
    if (!strcmp(type, "llama")) {
        put_flag(r, "attention_bias", has_tensor(r, "blk.0.attn_q.bias"));
        put_flag(r, "mlp_bias", has_tensor(r, "blk.0.ffn_gate.bias"));
    }
    if (!strcmp(type, "qwen3"))
        put_flag(r, "attention_bias", has_tensor(r, "blk.0.attn_q.bias"));
    if (!strncmp(type, "qwen", 4)) {
        put_flag(r, "use_sliding_window", 0);
        vl_buf_str(r->out, ",\n  \"sliding_window\": null");
    }
}

static void put_generation(struct vl_buf *b, const struct vl_gguf_ids *ids)
{
    int64_t given[3] = { ids->eos, ids->eot, ids->eom }, stop[3];
    int n = 0;

    for (int i = 0; i < 3; i++) {
        int seen = given[i] < 0;

        for (int k = 0; k < n; k++)
            seen |= stop[k] == given[i];
        if (!seen)
            stop[n++] = given[i];
    }
    put_id(b, "{\n  ", "bos_token_id", ids->bos);
    if (n < 2) {
        put_id(b, ",\n  ", "eos_token_id", n ? stop[0] : -1);
    } else {
        vl_buf_str(b, ",\n  \"eos_token_id\": ");
        for (int i = 0; i < n; i++)
            vl_buf_printf(b, "%s%" PRId64, i ? ", " : "[", stop[i]);
        vl_buf_ch(b, ']');
    }
    put_id(b, ",\n  ", "pad_token_id", ids->pad);
    vl_buf_str(b, "\n}\n");
}

static int read_arch(const struct vl_gguf *g, char arch[16], struct vl_err *e)
{
    const char *s = NULL;
    int64_t parts = 1;
    size_t n = 0;

    if (vl_gguf_i64(g, "split.count", &parts, e) ||
        vl_gguf_str(g, "general.architecture", &s, &n, e))
        return e->code;
    if (parts > 1)
        return vl_fail(e, VL_E_DATA,
                       "%s: one of %" PRId64 " parts of a model; join them first: "
                       "llama-gguf-split --merge",
                       g->name, parts);
    if (!s)
        return vl_fail(e, VL_E_DATA, "%s: key general.architecture is missing", g->name);
    if (!is(s, n, "llama") && !is(s, n, "qwen2") && !is(s, n, "qwen3"))
        return vl_fail(e, VL_E_DATA,
                       "%s: architecture %.*s is not supported; supported are llama (Mistral and "
                       "SmolLM are llama, too), qwen2 and qwen3",
                       g->name, n < 60 ? (int)n : 60, s);
    memcpy(arch, s, n);
    arch[n] = 0;
    return 0;
}

int vl_gguf_config(const struct vl_gguf *g, struct vl_buf *config, struct vl_buf *generation,
                   struct vl_err *e)
{
    char arch[16];
    struct reader r = { .g = g, .arch = arch, .e = e, .out = config };
    struct vl_gguf_ids ids;
    struct dims d = { 0 };

    if (read_arch(g, arch, e) || vl_gguf_ids(g, &ids, e))
        return e->code;
    put_arch(&r);
    if (!e->code)
        put_sizes(&r, &d);
    if (!e->code)
        put_rope(&r, &d);
    if (!e->code)
        put_number(&r, "rms_norm_eps", real(&r, "attention.layer_norm_rms_epsilon", 0));
    if (!e->code && !vl_gguf_find(g, r.key))
        vl_fail(e, VL_E_DATA, "%s: key %s is missing; a %s file has it", g->name, r.key, arch);
    if (e->code)
        return e->code;
    put_flag(&r, "tie_word_embeddings", !has_tensor(&r, "output.weight"));
    vl_buf_str(config, ",\n  \"initializer_range\": 0.02");
    put_id(config, ",\n  ", "bos_token_id", ids.bos);
    put_id(config, ",\n  ", "eos_token_id", ids.eos);
    put_id(config, ",\n  ", "pad_token_id", ids.pad);
    vl_buf_str(config, "\n}\n");
    put_generation(generation, &ids);
    return 0;
}
