/* kernels.h - every available CPU backend, and comparison of what they compute, for test_k*.c. */
#ifndef TEST_KERNELS_H
#define TEST_KERNELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/mem.h"
#include "libverl/engine/backend.h"

#define KMAX 16

/* Backends to compare: first each instruction set with one thread, plain first (slow: it calls
 * fmaf), then the wide ones with three threads. */
struct kset {
    struct vl_backend *be[KMAX];
    int n, isas;
};

static struct kset kset;

static int kset_open(void **state)
{
    static const char *const isa[] = { "plain", "scalar", "avx2", "avx512", "avx512bf16", "amx" };

    (void)state;
    for (int i = 0; i < 10; i++) {
        const char *name = isa[i < 6 ? i : i - 4];
        struct vl_err e = { 0 };
        int rc = vl_backend_cpu(&kset.be[kset.n], name, i < 6 ? 1 : 3, 1, &e);

        if (rc == VL_E_UNAVAIL && i < 6)
            print_message("# %s not compared: this processor lacks it\n", name);
        else if (rc && rc != VL_E_UNAVAIL)
            return rc;
        kset.n += rc == 0;
        kset.isas = i < 6 ? kset.n : kset.isas;
    }
    return 0;
}

static int kset_close(void **state)
{
    (void)state;
    for (int i = 0; i < kset.n; i++)
        kset.be[i]->close(kset.be[i]);
    return 0;
}

/* The fastest, for tests that need only one. */
static inline struct vl_backend *kbest(void)
{
    return kset.be[kset.n - 1];
}

/* Values in [-a, a); the same for the same seed. */
static inline void kfill(float *x, int64_t n, float a, uint64_t seed)
{
    uint64_t s = seed * 0x9E3779B97F4A7C15u + 1;

    for (int64_t i = 0; i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        x[i] = a * ((float)(s >> 40) * 0x1p-23f - 1);
    }
}

static inline float *krand(int64_t n, float a, uint64_t seed)
{
    float *x = vl_alloc((size_t)(n > 0 ? n : 1) * sizeof *x);

    kfill(x, n, a, seed);
    return x;
}

static inline float *kzero(int64_t n)
{
    return vl_alloc((size_t)(n > 0 ? n : 1) * sizeof(float));
}

static inline struct vl_weight *kweight_form(struct vl_backend *be, const float *W, int64_t O,
                                             int64_t I, enum vl_compute ct, enum vl_form form)
{
    struct vl_err e = { 0 };
    struct vl_weight *w;

    assert_int_equal(be->weight_new(be->ctx, &w, O, I, ct, form, &e), 0);
    be->weight_set(be->ctx, w, W);
    return w;
}

static inline struct vl_weight *kweight(struct vl_backend *be, const float *W, int64_t O, int64_t I,
                                        enum vl_compute ct)
{
    return kweight_form(be, W, O, I, ct, VL_FORM_TRAIN);
}

/* x (N, I) as an operand; the caller frees it. */
static inline void *koperand(struct vl_backend *be, const float *x, int64_t N, int64_t I,
                             enum vl_compute ct)
{
    size_t bytes = (size_t)N * be->operand_bytes(be->ctx, I, ct);
    void *o = vl_alloc(bytes);
    const void *p = be->operand(be->ctx, o, x, N, I, ct);

    if (p != o)
        memcpy(o, p, bytes);
    return o;
}

/* Words of an operand of N rows. */
static inline int64_t koperand_words(struct vl_backend *be, int64_t N, int64_t I,
                                     enum vl_compute ct)
{
    return N * (int64_t)(be->operand_bytes(be->ctx, I, ct) / 4);
}

static inline void kput(struct vl_buf *out, const void *p, int64_t n)
{
    vl_buf_add(out, p, (size_t)n * 4);
}

/* Where two blobs of floats differ first, or -1. */
static inline int64_t kdiffer(const struct vl_buf *a, const struct vl_buf *b)
{
    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i += 4)
        if (memcmp(a->s + i, b->s + i, 4))
            return (int64_t)(i / 4);
    return -1;
}

/* run appends its results to out; they must be the same bits for every backend. */
static inline void ksame(const char *what, void (*run)(struct vl_backend *, struct vl_buf *))
{
    struct vl_buf want = { 0 };

    for (int i = 0; i < kset.n; i++) {
        struct vl_buf got = { 0 };
        int64_t at;

        run(kset.be[i], i ? &got : &want);
        at = i ? kdiffer(&want, &got) : -1;
        if (at >= 0)
            fail_msg("%s: %s differs from %s at float %lld: %a, %a", what, kset.be[i]->name,
                     kset.be[0]->name, (long long)at, (double)((float *)(void *)got.s)[at],
                     (double)((float *)(void *)want.s)[at]);
        vl_buf_free(&got);
    }
    vl_buf_free(&want);
}

#endif
