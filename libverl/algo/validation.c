/* validation.c - see validation.h. */
#include "libverl/algo/validation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/algo/advantage.h"

/* ---- NumPy's legacy generator ---- */

void vl_mt_seed(struct vl_mt *g, uint32_t seed)
{
    for (uint32_t i = 0; i < 624; i++) {
        g->s[i] = seed;
        seed = 1812433253u * (seed ^ (seed >> 30)) + i + 1;
    }
    g->at = 624;
}

static void mt_refill(struct vl_mt *g)
{
    for (int i = 0; i < 624; i++) {
        uint32_t y = (g->s[i] & 0x80000000u) | (g->s[(i + 1) % 624] & 0x7fffffffu);
        g->s[i] = g->s[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    g->at = 0;
}

uint32_t vl_mt_u32(struct vl_mt *g)
{
    if (g->at == 624)
        mt_refill(g);
    uint32_t y = g->s[g->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

int64_t vl_mt_below(struct vl_mt *g, int64_t n)
{
    uint32_t top = (uint32_t)(n - 1), mask = top, x;

    if (n <= 1)
        return 0;
    for (int s = 1; s < 32; s *= 2)
        mask |= mask >> s;
    do
        x = vl_mt_u32(g) & mask;
    while (x > top);
    return x;
}

void vl_bootstrap_indices(int64_t *idx, int64_t n, int64_t k, int64_t resamples, uint32_t seed)
{
    struct vl_mt g;

    vl_mt_seed(&g, seed);
    for (int64_t i = 0; i < resamples * k; i++)
        idx[i] = vl_mt_below(&g, n);
}

/* ---- One prompt ---- */

/* Indices for the (n, k) used last: all prompts with as many samples share them. */
struct draws {
    int64_t n, k;
    int64_t *idx;
};

static const int64_t *draw(struct draws *d, int64_t n, int64_t k)
{
    if (d->n != n || d->k != k) {
        d->idx = vl_realloc(d->idx, (size_t)(VL_BOOTSTRAP_RESAMPLES * k) * sizeof(*d->idx));
        d->n = n;
        d->k = k;
        vl_bootstrap_indices(d->idx, n, k, VL_BOOTSTRAP_RESAMPLES, VL_BOOTSTRAP_SEED);
    }
    return d->idx;
}

struct prompt {
    int64_t n;
    double *x;      /* (n) the variable's values */
    int64_t *cls;   /* (n) or NULL: the first sample with the same prediction */
    int64_t *count; /* (n) zeros between uses */
};

enum stat { BEST, WORST, MAJ };

/* Value of the most frequent prediction of the resample, at its first occurrence; ties go to the
 * prediction seen first. */
static double majority(const struct prompt *p, const int64_t *idx, int64_t k)
{
    int64_t best = 0, most = 0;

    for (int64_t a = 0; a < k; a++)
        p->count[p->cls[idx[a]]]++;
    for (int64_t a = 0; a < k; a++) {
        if (p->count[p->cls[idx[a]]] > most) {
            most = p->count[p->cls[idx[a]]];
            best = a;
        }
    }
    for (int64_t a = 0; a < k; a++)
        p->count[p->cls[idx[a]]] = 0;
    return p->x[idx[best]];
}

static double resample(const struct prompt *p, const int64_t *idx, int64_t k, enum stat what)
{
    double y = p->x[idx[0]];

    if (what == MAJ)
        return majority(p, idx, k);
    for (int64_t a = 1; a < k; a++) {
        double x = p->x[idx[a]];
        if (what == BEST ? x > y : x < y)
            y = x;
    }
    return y;
}

static void mean_std(const double *x, int64_t n, double *mean, double *std)
{
    double m = 0, v = 0;

    for (int64_t i = 0; i < n; i++)
        m += x[i];
    m /= (double)n;
    for (int64_t i = 0; i < n; i++)
        v += (x[i] - m) * (x[i] - m);
    *mean = m;
    *std = sqrt(v / (double)n);
}

/* Mean of the largest of k of the n values drawn without replacement: of the j-th smallest,
 * C(j - 1, k - 1) / C(n, k) of the draws have it on top. Values are sorted in x. */
static double best_of(const double *x, int64_t n, int64_t k)
{
    double w = (double)k / (double)n, sum = 0;

    for (int64_t j = n; j >= k; j--) {
        sum += w * x[j - 1];
        w *= j > 1 ? (double)(j - k) / (double)(j - 1) : 0;
    }
    return sum;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sums over prompts, of squares, and their number, keyed by "METRIC". */
struct tally {
    struct vl_metrics sum, square, count;
};

static void add_to(struct vl_metrics *m, const char *name, double x)
{
    const struct vl_named *have = vl_metrics_get(m, name);
    vl_metrics_set(m, name, (have ? have->value : 0) + x);
}

static void tally_add(struct tally *t, double x, const char *name)
{
    add_to(&t->sum, name, x);
    add_to(&t->square, name, x * x);
    add_to(&t->count, name, 1);
}

static void tally_free(struct tally *t)
{
    vl_metrics_free(&t->sum);
    vl_metrics_free(&t->square);
    vl_metrics_free(&t->count);
}

static void tally_k(struct tally *t, const struct prompt *p, int64_t k, struct draws *d)
{
    static const char *const names[] = { "best", "worst", "maj" };
    const int64_t *idx = draw(d, p->n, k);
    double y[VL_BOOTSTRAP_RESAMPLES], mean, std;
    char name[64];

    for (int what = BEST; what <= (p->cls ? MAJ : WORST); what++) {
        for (int64_t r = 0; r < VL_BOOTSTRAP_RESAMPLES; r++)
            y[r] = resample(p, idx + r * k, k, (enum stat)what);
        mean_std(y, VL_BOOTSTRAP_RESAMPLES, &mean, &std);
        snprintf(name, sizeof(name), "%s@%lld/mean", names[what], (long long)k);
        tally_add(t, mean, name);
        snprintf(name, sizeof(name), "%s@%lld/std", names[what], (long long)k);
        tally_add(t, std, name);
    }
}

/* pass@1, 2, 4, ... below n, and n. */
static void tally_pass(struct tally *t, const struct prompt *p)
{
    double *x = vl_alloc((size_t)p->n * sizeof(*x));
    char name[64];

    memcpy(x, p->x, (size_t)p->n * sizeof(*x));
    qsort(x, (size_t)p->n, sizeof(*x), ascending);
    for (int64_t k = 1;; k = k * 2 < p->n ? k * 2 : p->n) {
        snprintf(name, sizeof(name), "pass@%lld", (long long)k);
        tally_add(t, best_of(x, p->n, k), name);
        if (k == p->n)
            break;
    }
    free(x);
}

static void tally_prompt(struct tally *t, const struct prompt *p, int pass, struct draws *d)
{
    double mean, std;
    char name[64];

    if (pass)
        tally_pass(t, p);

    mean_std(p->x, p->n, &mean, &std);
    snprintf(name, sizeof(name), "mean@%lld", (long long)p->n);
    tally_add(t, mean, name);
    if (p->n == 1)
        return;
    snprintf(name, sizeof(name), "std@%lld", (long long)p->n);
    tally_add(t, std, name);
    for (int64_t k = 2; k < p->n; k *= 2)
        tally_k(t, p, k, d);
    tally_k(t, p, p->n, d);
}

/* ---- All prompts ---- */

static int64_t at_n(const char *metric)
{
    const char *p = strrchr(metric, '@');
    return p ? strtoll(p + 1, NULL, 10) : 0;
}

static int starts(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

/* With stderror also NAME/stderr of means and pass@k: deviation over the prompts (n - 1) by the root of
 * their number; a prompt's samples belong together. */
static void log_tally(struct vl_metrics *m, const struct tally *t, const char *source,
                      const char *var, int core_var, int stderror)
{
    int64_t n_max = 0;

    for (size_t i = 0; i < t->sum.n; i++)
        n_max = at_n(t->sum.m[i].name) > n_max ? at_n(t->sum.m[i].name) : n_max;
    for (size_t i = 0; i < t->sum.n; i++) {
        const char *name = t->sum.m[i].name;
        int core = core_var && at_n(name) == n_max &&
                   (starts(name, "mean") || starts(name, "maj") || starts(name, "best"));
        char *full = vl_asprintf("val-%s/%s/%s/%s", core ? "core" : "aux", source, var, name);
        double c = t->count.m[i].value, mean = t->sum.m[i].value / c;
        vl_metrics_set(m, full, mean);
        free(full);
        if (stderror && c > 1 && (starts(name, "mean") || starts(name, "pass"))) {
            double var_c = (t->square.m[i].value - c * mean * mean) / (c - 1) / c;
            full = vl_asprintf("val-aux/%s/%s/%s/stderr", source, var, name);
            vl_metrics_set(m, full, sqrt(var_c > 0 ? var_c : 0));
            free(full);
        }
    }
}

/* Groups of (source, uid) pairs, and of sources. */
static int make_groups(const struct vl_val_in *in, struct vl_groups *sources,
                       struct vl_groups *prompts, struct vl_err *e)
{
    size_t N = (size_t)in->N;
    char **pair = vl_alloc(N * sizeof(*pair));
    size_t *len = vl_alloc(N * sizeof(*len)), *slen = vl_alloc(N * sizeof(*slen));

    for (size_t i = 0; i < N; i++) {
        slen[i] = strlen(in->source[i]);
        len[i] = slen[i] + 1 + strlen(in->uid[i]);
        pair[i] = vl_alloc(len[i] + 1);
        memcpy(pair[i], in->source[i], slen[i]);
        memcpy(pair[i] + slen[i] + 1, in->uid[i], len[i] - slen[i] - 1);
    }
    int rc = vl_groups_make(sources, in->source, slen, in->N, e) ||
             vl_groups_make(prompts, (const char *const *)pair, len, in->N, e);
    for (size_t i = 0; i < N; i++)
        free(pair[i]);
    free(pair);
    free(len);
    free(slen);
    return rc ? e->code : 0;
}

/* Adds the prompts of one source, in order of first appearance, each sample in row order. rows:
 * samples sorted by prompt; from[g] .. from[g + 1] are prompt g's. */
static void tally_source(struct tally *t, const struct vl_val_in *in, const double *x,
                         const struct vl_groups *sources, int64_t source, const int64_t *rows,
                         const int64_t *from, int64_t prompts, struct draws *d)
{
    struct prompt p;

    p.x = vl_alloc((size_t)in->N * sizeof(*p.x));
    p.cls = in->pred ? vl_alloc((size_t)in->N * sizeof(*p.cls)) : NULL;
    p.count = vl_alloc((size_t)in->N * sizeof(*p.count));
    for (int64_t g = 0; g < prompts; g++) {
        if (sources->of[rows[from[g]]] != source)
            continue;
        p.n = from[g + 1] - from[g];
        for (int64_t a = 0; a < p.n; a++)
            p.x[a] = x[rows[from[g] + a]];
        for (int64_t a = 0; p.cls && a < p.n; a++) {
            int64_t b = 0;
            while (strcmp(in->pred[rows[from[g] + b]], in->pred[rows[from[g] + a]]))
                b++;
            p.cls[a] = b;
        }
        tally_prompt(t, &p, in->pass, d);
    }
    free(p.x);
    free(p.cls);
    free(p.count);
}

int vl_val_metrics(struct vl_metrics *m, const struct vl_val_in *in, struct vl_err *e)
{
    struct vl_groups sources = { 0 }, prompts = { 0 };
    struct draws d = { 0 };
    int has_acc = 0;

    for (size_t v = 0; v < in->nvar; v++)
        has_acc |= !strcmp(in->var[v].name, "acc");
    if (make_groups(in, &sources, &prompts, e))
        goto done;
    int64_t *rows = vl_alloc((size_t)in->N * sizeof(*rows));
    int64_t *from = vl_alloc((size_t)(prompts.n + 2) * sizeof(*from));
    for (int64_t g = 0; g < prompts.n; g++)
        from[g + 2] = from[g + 1] + prompts.size[g];
    for (int64_t i = 0; i < in->N; i++) /* from[g + 1] runs from group g's start to its end */
        rows[from[prompts.of[i] + 1]++] = i;
    for (int64_t s = 0; s < sources.n; s++) {
        int64_t first = 0;
        while (sources.of[first] != s)
            first++;
        for (size_t v = 0; v < in->nvar; v++) {
            struct tally t = { 0 };
            tally_source(&t, in, in->var[v].x, &sources, s, rows, from, prompts.n, &d);
            log_tally(m, &t, in->source[first], in->var[v].name,
                      !strcmp(in->var[v].name, has_acc ? "acc" : "reward"), in->stderror);
            tally_free(&t);
        }
    }
    free(rows);
    free(from);
    free(d.idx);
done:
    vl_groups_free(&sources);
    vl_groups_free(&prompts);
    return e->code;
}
