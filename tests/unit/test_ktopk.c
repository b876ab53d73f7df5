/* test_ktopk.c - the head's likeliest ids, and log-probs and gradients of ids beside the target. */
#include "tests/unit/kernels.h"

enum { M = 37, V = 1030, C = 9, K = 5 };

/* Weights of which some rows are equal, so that logits tie across chunks. */
static float *tied_weights(void)
{
    float *W = krand((int64_t)V * C, 1, 3);

    for (int k = 0; k < 6; k++)
        memcpy(W + (200 * k + 17) * C, W + 900 * C, C * sizeof *W);
    return W;
}

static int before(const float *z, int a, int b)
{
    return z[a] > z[b] || (z[a] == z[b] && a < b);
}

/* The ids by brute force from the logits, ties to the lower id; head_logp's bits; any cut. */
static void test_topk(void **state)
{
    float *W = tied_weights(), *x = krand((int64_t)M * C, 2, 1), *z = kzero((int64_t)M * V);
    float lp[M * K], one[K], want, sampled[M], want_y[M];
    int32_t id[M * K], id1[K], y[M];

    (void)state;
    for (int k = 0; k < kset.n; k++) {
        struct vl_backend *be = kset.be[k];
        for (int ct = 0; ct < VL_COMPUTES; ct++) {
            struct vl_weight *w = kweight(be, W, V, C, (enum vl_compute)ct);

            be->head_logits(be->ctx, z, x, w, 0.7f, M);
            for (int m = 0; m < M; m++)
                y[m] = (m * 311) % V;
            be->head_topk(be->ctx, id, lp, sampled, x, w, y, 0.7f, K, M);
            be->head_logp(be->ctx, want_y, NULL, NULL, NULL, x, w, y, NULL, 0.7f, M);
            assert_memory_equal(sampled, want_y, sizeof sampled);
            for (int m = 0; m < M; m++) {
                int above = 0;

                for (int i = 0; i < K; i++) {
                    for (int v = 0, n = 0; v < V; v++) {
                        n += before(z + (int64_t)m * V, v, id[m * K + i]);
                        above = v == V - 1 ? n : above;
                    }
                    assert_int_equal(above, i);
                    be->head_logp(be->ctx, &want, NULL, NULL, NULL, x + m * C, w, &id[m * K + i],
                                  NULL, 0.7f, 1);
                    assert_memory_equal(&want, &lp[m * K + i], sizeof want);
                }
                be->head_topk(be->ctx, id1, one, NULL, x + m * C, w, NULL, 0.7f, K, 1);
                assert_memory_equal(id1, id + m * K, sizeof id1);
                assert_memory_equal(one, lp + m * K, sizeof one);
            }
            be->weight_free(be->ctx, w);
        }
    }
    free(W), free(x), free(z);
}

/* As many ids as there are: a permutation of them. */
static void test_all(void **state)
{
    float W[7 * 2], x[2] = { 1, 0 }, lp[7];
    int32_t id[7];
    double sum = 0;

    (void)state;
    for (int i = 0; i < 14; i++)
        W[i] = i % 2 ? 0 : (float)(i / 2 % 3);
    for (int k = 0; k < kset.n; k++) {
        static const int32_t want[7] = { 2, 5, 1, 4, 0, 3, 6 };
        struct vl_weight *w = kweight(kset.be[k], W, 7, 2, VL_COMPUTE_F32);

        kset.be[k]->head_topk(kset.be[k]->ctx, id, lp, NULL, x, w, NULL, 1, 7, 1);
        assert_memory_equal(id, want, sizeof id);
        for (int i = 0; i < 7; i++)
            sum += exp((double)lp[i]) / kset.n;
        kset.be[k]->weight_free(kset.be[k]->ctx, w);
    }
    assert_true(fabs(sum - 1) < 1e-6);
}

/* Log-probs of more ids have head_logp's bits; their gradients are those of the same ids as targets. */
static void test_more(void **state)
{
    float *W = tied_weights(), *x = krand((int64_t)M * C, 2, 1), *d = krand(M * (K + 1), 1, 5);
    float *dx = kzero((int64_t)M * C), *dw = kzero((int64_t)V * C);
    float *ex = kzero((int64_t)M * C), *part = kzero((int64_t)M * C), *ew = kzero((int64_t)V * C);
    float lp[M], lse[M], at[M * K], want[M];
    int32_t y[M], id[M * K], col[M];

    (void)state;
    for (int m = 0; m < M; m++) {
        y[m] = (m * 131) % V;
        for (int i = 0; i < K; i++)
            id[m * K + i] = i == 3 && m % 4 == 0 ? -1 : (m * 57 + i * 311 + (i == 2 ? m : 0)) % V;
    }
    for (int k = 0; k < kset.n; k++) {
        struct vl_backend *be = kset.be[k];
        struct vl_weight *w = kweight(be, W, V, C, VL_COMPUTE_F32);
        struct vl_more more = { .K = K, .id = id, .logp = at, .dlogp = d + M };

        be->head_logp(be->ctx, lp, NULL, lse, NULL, x, w, y, &more, 1.25f, M);
        memset(dw, 0, sizeof(float) * V * C);
        memset(ew, 0, sizeof(float) * V * C);
        be->head_bwd(be->ctx, dx, dw, x, w, y, lse, NULL, d, NULL, &more, NULL, 1.25f, M, 1);
        be->head_bwd(be->ctx, ex, ew, x, w, y, lse, NULL, d, NULL, NULL, NULL, 1.25f, M, 1);
        for (int i = 0; i < K; i++) {
            float di[M];

            for (int m = 0; m < M; m++)
                col[m] = id[m * K + i] < 0 ? 0 : id[m * K + i],
                di[m] = id[m * K + i] < 0 ? 0 : d[M + m * K + i];
            be->head_logp(be->ctx, want, NULL, NULL, NULL, x, w, col, NULL, 1.25f, M);
            for (int m = 0; m < M; m++)
                if (id[m * K + i] >= 0)
                    assert_memory_equal(&want[m], &at[m * K + i], sizeof *want);
            be->head_bwd(be->ctx, part, ew, x, w, col, lse, NULL, di, NULL, NULL, NULL, 1.25f, M,
                         1);
            for (int j = 0; j < M * C; j++)
                ex[j] += part[j];
        }
        for (int j = 0; j < M * C; j++)
            assert_true(fabsf(dx[j] - ex[j]) < 1e-4f);
        for (int j = 0; j < V * C; j++)
            assert_true(fabsf(dw[j] - ew[j]) < 1e-4f);
        be->weight_free(be->ctx, w);
    }
    free(W), free(x), free(d), free(dx), free(dw), free(ex), free(part), free(ew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topk),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_more),
    };
    return cmocka_run_group_tests(tests, kset_open, kset_close);
}
