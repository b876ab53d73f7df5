/* model_info.c - verl-model info and diff: what a model directory holds. See model_tool.h. */
#include "libverl/run/model_tool.h"

#include "formats/json.h"
#include "libverl/model/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stats {
    double max, rms; /* of absolute values */
};

static struct stats stats_of(const float *x, int64_t n)
{
    struct stats s = { 0, 0 };
    double sq = 0;

    for (int64_t i = 0; i < n; i++) {
        double a = fabs((double)x[i]);

        s.max = a > s.max ? a : s.max;
        sq += a * a;
    }
    s.rms = n ? sqrt(sq / (double)n) : 0;
    return s;
}

static void put(struct vl_buf *b, const char *key, const char *text)
{
    vl_buf_printf(b, "%s\"%s\":", b->n > 1 ? "," : "", key);
    if (text)
        vl_json_put_str(b, text, strlen(text));
    else
        vl_buf_str(b, "null");
}

static void put_whole(struct vl_buf *b, const char *key, int64_t v)
{
    vl_buf_printf(b, ",\"%s\":%" PRId64, key, v);
}

static void put_real(struct vl_buf *b, const char *key, double v)
{
    vl_buf_printf(b, ",\"%s\":", key);
    vl_json_put_f64(b, v);
}

static void put_shape(struct vl_buf *b, const struct vl_piece *p, const char *between)
{
    vl_buf_printf(b, "[%" PRId64, p->shape[0]);
    if (p->ndim == 2)
        vl_buf_printf(b, "%s%" PRId64, between, p->shape[1]);
    vl_buf_ch(b, ']');
}

static void json_tensors(struct vl_buf *b, const struct vl_model *m)
{
    int64_t n;
    struct vl_piece *p = vl_model_pieces(m, &n);

    vl_buf_str(b, ",\"tensors\":[");
    for (int64_t i = 0; i < n; i++) {
        struct stats s = stats_of(m->slab + p[i].at, p[i].n);

        vl_buf_str(b, i ? ",{\"name\":" : "{\"name\":");
        vl_json_put_str(b, p[i].name, strlen(p[i].name));
        vl_buf_str(b, ",\"shape\":");
        put_shape(b, &p[i], ",");
        put_real(b, "rms", s.rms);
        put_real(b, "max", s.max);
        vl_buf_ch(b, '}');
    }
    vl_buf_ch(b, ']');
    free(p);
}

static const char *rope_name(const struct vl_config *c)
{
    static const char *const name[] = { [VL_ROPE_NONE] = "none",
                                        [VL_ROPE_LINEAR] = "linear",
                                        [VL_ROPE_LLAMA3] = "llama3",
                                        [VL_ROPE_YARN] = "yarn" };

    return name[c->rope.type];
}

static void print_json(const struct vl_model *m, int tensors)
{
    const struct vl_config *c = &m->cfg;
    struct vl_buf b = { 0 };

    vl_buf_ch(&b, '{');
    put(&b, "architecture", vl_config_class(c));
    put(&b, "version", m->version);
    put(&b, "hash", m->hash);
    put(&b, "source_hash", m->source_hash);
    put(&b, "dtype", m->stored_dtype);
    put(&b, "head",
        c->head == VL_HEAD_VALUE ? (c->sequence ? "reward" : "value")
        : c->tied                ? "tied"
                                 : "untied");
    put_whole(&b, "parameters", vl_model_parameters(m));
    put_whole(&b, "layers", c->L);
    put_whole(&b, "hidden", c->C);
    put_whole(&b, "heads", c->H);
    put_whole(&b, "kv_heads", c->K);
    put_whole(&b, "head_dim", c->D);
    put_whole(&b, "ffn", c->F);
    put_whole(&b, "vocab", c->V);
    put_whole(&b, "positions", c->max_positions);
    put_whole(&b, "window", c->window);
    put_real(&b, "rope_theta", c->rope_theta);
    put(&b, "rope_scaling", rope_name(c));
    vl_buf_str(&b, ",\"stop_ids\":[");
    for (int64_t i = 0; i < m->nstop; i++)
        vl_buf_printf(&b, "%s%" PRId32, i ? "," : "", m->stop_ids[i]);
    vl_buf_ch(&b, ']');
    if (tensors)
        json_tensors(&b, m);
    vl_buf_str(&b, "}\n");
    fwrite(b.s, 1, b.n, stdout);
    vl_buf_free(&b);
}

static void print_tensors(const struct vl_model *m)
{
    int64_t n;
    struct vl_piece *p = vl_model_pieces(m, &n);

    printf("%-56s %-18s %10s %10s\n", "tensor", "shape", "rms", "max");
    for (int64_t i = 0; i < n; i++) {
        struct stats s = stats_of(m->slab + p[i].at, p[i].n);
        struct vl_buf b = { 0 };

        put_shape(&b, &p[i], ", ");
        printf("%-56s %-18s %10.4g %10.4g\n", p[i].name, b.s, s.rms, s.max);
        vl_buf_free(&b);
    }
    free(p);
}

static void print_text(const struct vl_model *m, int tensors)
{
    const struct vl_config *c = &m->cfg;
    int64_t n = vl_model_parameters(m);

    printf("directory     %s\n", m->dir);
    printf("architecture  %s\n", vl_config_class(c));
    if (m->version)
        printf("version       %s\n", m->version);
    printf("hash          %s\n", m->hash);
    if (m->source_hash)
        printf("rounded from  %s\n", m->source_hash);
    printf("parameters    %" PRId64 " (%.1f MB as fp32, stored as %s)\n", n, (double)n * 4e-6,
           m->stored_dtype);
    printf("layers        %" PRId64 ", width %" PRId64 ", mlp %" PRId64 "\n", c->L, c->C, c->F);
    printf("attention     %" PRId64 " heads of %" PRId64 ", %" PRId64 " key/value heads%s%s\n",
           c->H, c->D, c->K, c->qkv_bias ? ", biases" : "", c->qk_norm ? ", q/k norm" : "");
    if (c->window)
        printf("window        %" PRId64 " from layer %" PRId64 "\n", c->window, c->window_from);
    printf("positions     %" PRId64 ", rope theta %g, scaling %s\n", c->max_positions,
           c->rope_theta, rope_name(c));
    printf("vocabulary    %" PRId64 ", head %s\n", c->V,
           c->head == VL_HEAD_VALUE ? (c->sequence ? "reward (scalar)" : "value (scalar)")
           : c->tied                ? "tied to the embedding"
                                    : "of its own");
    printf("stop ids     ");
    for (int64_t i = 0; i < m->nstop; i++)
        printf(" %" PRId32, m->stop_ids[i]);
    printf("%s\n", m->nstop ? "" : " none");
    if (tensors) {
        printf("\n");
        print_tensors(m);
    }
}

int vl_model_tool_info(struct vl_ctx *x, const struct vl_model_opts *o, const char *path,
                       struct vl_err *e)
{
    struct vl_model *m;

    (void)x;
    if (vl_model_open(&m, path, VL_HEAD_AUTO, 1, e))
        return e->code;
    if (o->json)
        print_json(m, o->tensors);
    else
        print_text(m, o->tensors);
    vl_model_free(m);
    return 0;
}

struct gap {
    double max;
    int64_t n, changed;
};

static void add_gap(struct gap *g, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        g->max = d > g->max ? d : g->max;
        g->changed += memcmp(&a[i], &b[i], sizeof *a) != 0;
    }
    g->n += n;
}

static void print_gap(const char *name, const struct gap *g, int json)
{
    struct vl_buf b = { 0 };

    if (!json) {
        printf("%-56s %10.4g %9.3f%%\n", name, g->max, 100.0 * (double)g->changed / (double)g->n);
        return;
    }
    vl_buf_ch(&b, '{');
    put(&b, "tensor", name);
    put_real(&b, "max_abs_diff", g->max);
    put_real(&b, "changed", (double)g->changed / (double)g->n);
    vl_buf_str(&b, "}\n");
    fwrite(b.s, 1, b.n, stdout);
    vl_buf_free(&b);
}

static int same_layout(const struct vl_model *a, const struct vl_model *b)
{
    int same = a->nparam == b->nparam && a->count == b->count;

    for (int64_t i = 0; same && i < a->nparam; i++)
        same = !strcmp(a->param[i].name, b->param[i].name) &&
               a->param[i].rows == b->param[i].rows && a->param[i].cols == b->param[i].cols;
    return same;
}

int vl_model_tool_diff(struct vl_ctx *x, const struct vl_model_opts *o, const char *pa,
                       const char *pb, struct vl_err *e)
{
    struct vl_model *a = NULL, *b = NULL;
    struct gap all = { 0 };
    struct vl_piece *p = NULL;
    int64_t n;

    (void)x;
    if (vl_model_open(&a, pa, VL_HEAD_AUTO, 1, e) || vl_model_open(&b, pb, VL_HEAD_AUTO, 1, e))
        goto out;
    if (!same_layout(a, b)) {
        vl_fail(e, 1,
                "%s and %s have other tensors or shapes: %s of %" PRId64
                " parameters, %s of %" PRId64,
                pa, pb, vl_config_class(&a->cfg), vl_model_parameters(a), vl_config_class(&b->cfg),
                vl_model_parameters(b));
        goto out;
    }
    p = vl_model_pieces(a, &n);
    if (!o->json)
        printf("%-56s %10s %10s\n", "tensor", "max |a-b|", "changed");
    for (int64_t i = 0; i < n; i++) {
        struct gap g = { 0 };

        add_gap(&g, a->slab + p[i].at, b->slab + p[i].at, p[i].n);
        if (g.changed)
            print_gap(p[i].name, &g, o->json);
        all.max = g.max > all.max ? g.max : all.max;
        all.n += g.n, all.changed += g.changed;
    }
    print_gap(o->json ? "*" : "all tensors", &all, o->json);
    if (all.changed)
        vl_fail(e, 1, "%s and %s differ: %.3f %% of the weights, at most by %.4g", pa, pb,
                100.0 * (double)all.changed / (double)all.n, all.max);
out:
    free(p);
    vl_model_free(a);
    vl_model_free(b);
    return e->code;
}
