/* golden.h - running the recorded cases of tests/golden/algorithms against libverl.
 *
 * A file holds cases {name, op, config, inputs, outputs, atol?}; a runner per op computes and
 * compares. A case whose outputs are {"error": ...} must make its runner return a status. A case of
 * an op without runner fails, and so does one whose runner compared no number. Included by
 * test_golden_*.c; each of them is its own program. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"

struct gcase {
    const struct vl_json *j;
    int64_t config, in, out; /* nodes */
    const char *name, *op;
    double rtol, atol;
    int bad;
    int64_t compared; /* numbers */
    struct vl_err e;
    void *pool[256]; /* freed after the case */
    int npool;
};

struct grunner {
    const char *op;
    int (*run)(struct gcase *c); /* 0 or the library's status */
};

static inline void *gkeep(struct gcase *c, void *p)
{
    assert_true(c->npool < 256);
    c->pool[c->npool++] = p;
    return p;
}

static inline void *gzero(struct gcase *c, int64_t n, size_t size)
{
    return gkeep(c, vl_alloc((size_t)(n > 0 ? n : 1) * size));
}

/* A number, a bool, or one of the strings for non-finite numbers. */
static inline double gvalue(const struct vl_json *j, int64_t i)
{
    double x = NAN;
    int b;

    if (vl_json_f64(j, i, &x))
        return x;
    if (vl_json_bool(j, i, &b))
        return b;
    if (vl_json_streq(j, i, "Infinity"))
        return INFINITY;
    if (vl_json_streq(j, i, "-Infinity"))
        return -INFINITY;
    assert_true(vl_json_streq(j, i, "NaN"));
    return NAN;
}

static inline int ghas(const struct gcase *c, int64_t obj, const char *key)
{
    int64_t i = vl_json_get(c->j, obj, key);
    return i >= 0 && !vl_json_is(c->j, i, VL_JSON_NULL);
}

static inline double gnum(const struct gcase *c, int64_t obj, const char *key, double otherwise)
{
    return ghas(c, obj, key) ? gvalue(c->j, vl_json_get(c->j, obj, key)) : otherwise;
}

static inline const char *gstr(struct gcase *c, int64_t obj, const char *key, const char *otherwise)
{
    if (!ghas(c, obj, key))
        return otherwise;
    char *s = vl_json_strdup(c->j, vl_json_get(c->j, obj, key));
    return s ? gkeep(c, s) : otherwise;
}

/* Leaves of a nested list in order; *cols = length of the innermost lists, *rows = leaves / cols. */
static inline int64_t gleaves(const struct vl_json *j, int64_t i, double *to, int64_t *cols)
{
    int64_t n = 0;

    if (!vl_json_is(j, i, VL_JSON_ARRAY)) {
        if (to)
            *to = gvalue(j, i);
        return 1;
    }
    *cols = j->node[i].count;
    int64_t k = i + 1, mine = *cols;
    for (uint32_t a = 0; a < j->node[i].count; a++) {
        int64_t inner = -1;
        n += gleaves(j, k, to ? to + n : NULL, &inner);
        if (inner >= 0)
            mine = inner;
        k = j->node[k].next;
    }
    *cols = mine;
    return n;
}

static inline double *gdoubles(struct gcase *c, int64_t node, int64_t *n, int64_t *cols)
{
    int64_t w = 1;

    *n = gleaves(c->j, node, NULL, &w);
    double *x = gzero(c, *n, sizeof(*x));
    gleaves(c->j, node, x, &w);
    if (cols)
        *cols = w;
    return x;
}

/* inputs.key as float32 or int64; NULL when absent or null. B, L may be NULL. */
static inline float *gf32(struct gcase *c, const char *key, int64_t *B, int64_t *L)
{
    int64_t n, cols;

    if (B)
        *B = 0;
    if (L)
        *L = 0;
    if (!ghas(c, c->in, key))
        return NULL;
    double *x = gdoubles(c, vl_json_get(c->j, c->in, key), &n, &cols);
    float *f = gzero(c, n, sizeof(*f));
    for (int64_t k = 0; k < n; k++)
        f[k] = (float)x[k];
    if (B)
        *B = cols ? n / cols : 0;
    if (L)
        *L = cols;
    return f;
}

static inline int64_t *gi64(struct gcase *c, const char *key, int64_t *B, int64_t *L)
{
    int64_t n, cols;

    if (B)
        *B = 0;
    if (L)
        *L = 0;
    if (!ghas(c, c->in, key))
        return NULL;
    double *x = gdoubles(c, vl_json_get(c->j, c->in, key), &n, &cols);
    int64_t *v = gzero(c, n, sizeof(*v));
    for (int64_t k = 0; k < n; k++)
        v[k] = (int64_t)x[k];
    if (B)
        *B = cols ? n / cols : 0;
    if (L)
        *L = cols;
    return v;
}

static inline int gclose(const struct gcase *c, double got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    return got == want || fabs(got - want) <= c->atol + c->rtol * fabs(want);
}

static inline void gmiss(struct gcase *c, const char *what, int64_t k, double got, double want)
{
    if (c->bad++ < 5)
        print_message("# %s: %s[%lld] is %.9g, wanted %.9g\n", c->name, what, (long long)k, got,
                      want);
}

/* outputs.key (or any node) against n numbers. */
static inline void gwant_node(struct gcase *c, const char *what, int64_t node, const double *got,
                              int64_t n)
{
    int64_t m;

    assert_true(node >= 0);
    double *want = gdoubles(c, node, &m, NULL);
    if (m != n) {
        gmiss(c, what, -1, (double)n, (double)m);
        return;
    }
    c->compared += n;
    for (int64_t k = 0; k < n; k++)
        if (!gclose(c, got[k], want[k]))
            gmiss(c, what, k, got[k], want[k]);
}

static inline void gwant_f32(struct gcase *c, const char *key, const float *got, int64_t n)
{
    double *x = gzero(c, n, sizeof(*x));
    for (int64_t k = 0; k < n; k++)
        x[k] = got[k];
    gwant_node(c, key, vl_json_get(c->j, c->out, key), x, n);
}

static inline void gwant_i64(struct gcase *c, const char *key, const int64_t *got, int64_t n)
{
    double *x = gzero(c, n, sizeof(*x));
    for (int64_t k = 0; k < n; k++)
        x[k] = (double)got[k];
    gwant_node(c, key, vl_json_get(c->j, c->out, key), x, n);
}

static inline void gwant(struct gcase *c, const char *key, double got)
{
    gwant_node(c, key, vl_json_get(c->j, c->out, key), &got, 1);
}

static inline int grun_case(struct gcase *c, const struct grunner *runners, int *known)
{
    *known = 0;
    for (const struct grunner *r = runners; r->op; r++) {
        if (strcmp(r->op, c->op))
            continue;
        *known = 1;
        int rc = r->run(c), want_error = ghas(c, c->out, "error");
        if (want_error ? rc == 0 : rc != 0) {
            print_message("# %s: status %d (%s), wanted %s\n", c->name, rc, c->e.msg,
                          want_error ? "an error" : "0");
            c->bad++;
        }
        if (!want_error && !c->compared) {
            print_message("# %s: nothing was compared\n", c->name);
            c->bad++;
        }
        if (rc && !c->e.msg[0]) {
            print_message("# %s: status %d without a line\n", c->name, rc);
            c->bad++;
        }
    }
    return c->bad;
}

/* Runs every case of tests/golden/algorithms/FAMILY.json. */
static inline void grun_file(const char *family, const struct grunner *runners, double rtol)
{
    char *path = vl_asprintf("tests/golden/algorithms/%s.json", family);
    struct vl_buf text = { 0 };
    struct vl_json j;
    struct vl_err e = { 0 };
    int ran = 0, errors = 0, bad = 0;
    int64_t compared = 0;
    char part[4096];
    size_t n;
    FILE *f = fopen(path, "r");

    if (!f)
        fail_msg("%s: cannot open (run from the repository's root)", path);
    while ((n = fread(part, 1, sizeof(part), f)) > 0)
        vl_buf_add(&text, part, n);
    fclose(f);
    assert_int_equal(vl_json_parse(&j, text.s, text.n, path, &e), 0);
    int64_t cases = vl_json_get(&j, 0, "cases"), i = cases + 1;
    assert_true(cases >= 0);
    for (uint32_t k = 0; k < j.node[cases].count; k++, i = j.node[i].next) {
        struct gcase c = { .j = &j, .rtol = rtol, .atol = rtol < 1e-6 ? 0 : 1e-5 };
        int known;
        c.config = vl_json_get(&j, i, "config");
        c.in = vl_json_get(&j, i, "inputs");
        c.out = vl_json_get(&j, i, "outputs");
        c.name = gkeep(&c, vl_json_strdup(&j, vl_json_get(&j, i, "name")));
        c.op = gkeep(&c, vl_json_strdup(&j, vl_json_get(&j, i, "op")));
        c.atol = gnum(&c, i, "atol", c.atol);
        bad += grun_case(&c, runners, &known) > 0;
        ran += known;
        errors += known && ghas(&c, c.out, "error");
        compared += c.compared;
        if (!known) {
            print_message("# %s: no runner for op %s\n", c.name, c.op);
            bad++;
        }
        for (int p = 0; p < c.npool; p++)
            free(c.pool[p]);
    }
    print_message("# %s: %d cases ran (%d of them errors), %lld numbers compared, %d bad\n", family,
                  ran, errors, (long long)compared, bad);
    vl_json_free(&j);
    vl_buf_free(&text);
    free(path);
    assert_true(ran > errors);
    assert_int_equal(bad, 0);
}

#endif
