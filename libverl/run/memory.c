/* memory.c - whether a run fits in memory; if not, the options under which it does. See memory.h.
 *
 * Each remedy is tried on the estimate before it is named, so that following the advice works. Those
 * that do not change results come first. */
#include "libverl/run/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/meminfo.h"

/* A run as it would be under other options. */
struct trial {
    const struct vl_model *model;
    const struct vl_backend *be;
    const struct vl_memory *m;
    size_t mine; /* available to each rank */
    struct vl_engine_opts o;
    struct vl_extent pass;
    size_t cache;
};

static size_t need(const struct trial *t)
{
    return vl_engine_bytes(&t->model->cfg, &t->o, t->be, &t->pass) + t->cache;
}

static int fits(const struct trial *t)
{
    return need(t) <= t->mine;
}

size_t vl_memory_need(const struct vl_model *model, const struct vl_backend *be,
                      const struct vl_engine_opts *o, const struct vl_extent *pass,
                      const struct vl_memory *m)
{
    return need(
        &(struct trial){ .model = model, .be = be, .o = *o, .pass = *pass, .cache = m->cache });
}

/* "--name VALUE", or "key=VALUE" where the option has no name. */
static void put_option(struct vl_buf *b, const char *how, const char *value)
{
    int named = how[0] == '-';
    const char * or = strstr(how, " or ");

    vl_buf_printf(b, "%.*s%s%s", or ? (int)(or -how) : (int)strlen(how), how,
                  named && *value ? " " : "", value);
}

/* ---- remedies: each changes the trial and says how, or returns 0 where there is nothing to gain ---- */

static int by_tokens(struct trial *t, struct vl_buf *b)
{
    const struct vl_memory *m = t->m;
    int64_t N = t->pass.N, T = 1, rows;
    int64_t least = m->least > 0 ? m->least : t->pass.longest;
    const char *how = m->rows ? m->rows : m->tokens;
    char value[24];

    if (!how || N <= least)
        return 0;
    while (2 * T < N)
        T *= 2;
    for (;; T /= 2) {
        T = T > least ? T : least;
        t->pass.N = T;
        t->pass.M = t->pass.M < T ? t->pass.M : T;
        t->pass.nseq = t->pass.nseq < T ? t->pass.nseq : T;
        if (T == least || fits(t))
            break;
    }
    rows = T > t->pass.longest ? T / t->pass.longest : 1;
    snprintf(value, sizeof value, "%" PRId64, m->rows ? rows : T);
    put_option(b, how, value);
    return 1;
}

static int by_recompute(struct trial *t, struct vl_buf *b)
{
    if (!t->m->recompute || t->o.recompute || !t->pass.N)
        return 0;
    t->o.recompute = 1;
    put_option(b, t->m->recompute, "");
    return 1;
}

static int by_offload(struct trial *t, struct vl_buf *b)
{
    if (!t->m->offload || t->o.offload)
        return 0;
    t->o.offload = "";
    put_option(b, t->m->offload, "");
    return 1;
}

static int by_cache(struct trial *t, struct vl_buf *b)
{
    size_t rest = need(t) - t->cache;
    double share;
    char value[24];

    if (!t->m->share || !t->cache || rest >= t->mine)
        return 0;
    share = (double)(int)(100.0 * (double)(t->mine - rest) / (double)t->mine) / 100.0;
    t->cache = (size_t)(share * (double)t->mine);
    if (t->cache < t->m->cache_least || t->cache >= t->m->cache)
        return 0;
    snprintf(value, sizeof value, "%g", share);
    put_option(b, t->m->share, value);
    return 1;
}

static int by_compute(struct trial *t, struct vl_buf *b)
{
    if (!t->m->compute || t->o.compute != VL_COMPUTE_F32)
        return 0;
    t->o.compute = vl_compute_half(t->be);
    put_option(b, t->m->compute, vl_compute_name(t->o.compute));
    return 1;
}

static int by_int8(struct trial *t, struct vl_buf *b)
{
    if (!t->m->quantization || t->o.int8)
        return 0;
    t->o.int8 = 1;
    put_option(b, t->m->quantization, "int8");
    return 1;
}

typedef int remedy(struct trial *t, struct vl_buf *b);
static remedy *const all[] = { by_tokens, by_recompute, by_offload, by_cache, by_compute, by_int8 };
static remedy *const strong[] = {
    by_recompute, by_offload, by_compute, by_int8, by_tokens, by_cache
};
#define REMEDIES (sizeof all / sizeof *all)

/* Every remedy that is enough by itself. */
static int one_of(const struct trial *now, struct vl_buf *b)
{
    int found = 0;

    for (size_t i = 0; i < REMEDIES; i++) {
        struct trial t = *now;
        struct vl_buf how = { 0 };

        if (all[i](&t, &how) && fits(&t))
            vl_buf_printf(b, "%s%s (%.1f MB)", found++ ? " or " : "give ", how.s,
                          (double)need(&t) * 1e-6);
        vl_buf_free(&how);
    }
    return found;
}

/* Several of them. */
static void together(const struct trial *now, struct vl_buf *b)
{
    struct trial t = *now;
    struct vl_buf how = { 0 };

    for (size_t i = 0; i < REMEDIES && !fits(&t); i++) {
        struct trial next = t;
        struct vl_buf one = { 0 };

        if (strong[i](&next, &one)) {
            vl_buf_printf(&how, "%s%s", how.n ? " and " : "", one.s);
            t = next;
        }
        vl_buf_free(&one);
    }
    if (!how.n)
        vl_buf_str(b, t.m->hint ? "" : "no option makes it less");
    else if (fits(&t))
        vl_buf_printf(b, "give %s (%.1f MB)", how.s, (double)need(&t) * 1e-6);
    else
        vl_buf_printf(b, "%s would still need %.1f MB", how.s, (double)need(&t) * 1e-6);
    if (t.m->hint && !fits(&t))
        vl_buf_printf(b, "%s%s", how.n ? "; " : "", t.m->hint);
    vl_buf_free(&how);
}

/* "(weights 641.2 MB, KV cache 12.0 MB, a pass of 296 tokens 27.5 MB)" */
static void put_parts(struct vl_buf *b, const struct trial *t)
{
    struct trial w = *t;
    double weights, pass;

    w.pass = (struct vl_extent){ 0 };
    w.cache = 0;
    weights = (double)need(&w) * 1e-6;
    pass = (double)(need(t) - t->cache) * 1e-6 - weights;
    vl_buf_printf(b, "(weights%s %.1f MB",
                  !t->o.train    ? ""
                  : t->o.offload ? " and gradients"
                                 : ", gradients and moments",
                  weights);
    if (t->cache)
        vl_buf_printf(b, ", KV cache %.1f MB", (double)t->cache * 1e-6);
    if (t->pass.N)
        vl_buf_printf(b, ", a pass of %" PRId64 " tokens %.1f MB", t->pass.N, pass);
    vl_buf_ch(b, ')');
}

int vl_memory_check(struct vl_ctx *x, const struct vl_model *model, const struct vl_backend *be,
                    const struct vl_engine_opts *o, const struct vl_extent *pass,
                    const struct vl_memory *m, struct vl_err *e)
{
    size_t have = vl_mem_available(), ranks = (size_t)x->comm.local_size, most;
    struct trial t = { model, be, m, have / ranks, *o, { 0 }, m->cache };
    struct vl_buf parts = { 0 }, help = { 0 };
    char each[64] = "";
    int found;

    if (pass)
        t.pass = *pass;
    if (have == SIZE_MAX || fits(&t))
        return 0;
    put_parts(&parts, &t);
    found = one_of(&t, &help);
    most = have / need(&t);
    if (ranks > 1 && most) {
        vl_buf_printf(&help, "%s %zu rank%s on it", found ? " or use" : "use", most,
                      most == 1 ? "" : "s");
        found = 1;
    }
    if (!found)
        together(&t, &help);
    if (ranks > 1)
        snprintf(each, sizeof each, " for each of %zu ranks", ranks);
    vl_fail(e, VL_E_OS, "%s needs %.1f MB %s%s on this host, where %.1f MB are available: %s",
            model->dir, (double)need(&t) * 1e-6, parts.s, each, (double)have * 1e-6, help.s);
    vl_buf_free(&parts);
    vl_buf_free(&help);
    return e->code;
}
