/* test_optim.c - the optimizers against their formulas in double, on every backend. */
#include "tests/unit/kernels.h"

enum { N = 37, STEPS = 5 };

struct config {
    const char *name;
    int sgd, amsgrad, nesterov;
    double beta1, beta2, eps, wd, l2, momentum, dampening;
};

static const struct config configs[] = {
    { .name = "AdamW", .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .wd = 0.1 },
    { .name = "AdamW, eps", .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-2 },
    { .name = "AdamW, amsgrad", .amsgrad = 1, .beta1 = 0.9, .beta2 = 0.5, .eps = 1e-8, .wd = 0.1 },
    { .name = "Adam", .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .l2 = 0.3 },
    { .name = "Adam, amsgrad", .amsgrad = 1, .beta1 = 0.9, .beta2 = 0.5, .eps = 1e-8, .l2 = 0.3 },
    { .name = "SGD", .sgd = 1, .l2 = 0.2 },
    { .name = "SGD, momentum", .sgd = 1, .momentum = 0.9, .l2 = 0.2 },
    { .name = "SGD, dampening", .sgd = 1, .momentum = 0.9, .dampening = 0.4 },
    { .name = "SGD, Nesterov", .sgd = 1, .momentum = 0.9, .nesterov = 1, .l2 = 0.2 },
};

#define LR    0.05
#define SCALE 0.5

/* One weight as torch.optim's documentation has it. s: exp_avg or the buffer, exp_avg_sq, its max. */
static double reference(const struct config *c, double p, double g, double s[3], int t)
{
    g = g * SCALE + c->l2 * p;
    if (c->sgd) {
        if (c->momentum != 0) {
            s[0] = t == 1 ? g : c->momentum * s[0] + (1 - c->dampening) * g;
            g = c->nesterov ? g + c->momentum * s[0] : s[0];
        }
        return p - LR * g;
    }
    p *= 1 - LR * c->wd;
    s[0] = c->beta1 * s[0] + (1 - c->beta1) * g;
    s[1] = c->beta2 * s[1] + (1 - c->beta2) * g * g;
    s[2] = s[1] > s[2] ? s[1] : s[2];
    double v = (c->amsgrad ? s[2] : s[1]) / (1 - pow(c->beta2, t));
    return p - LR * s[0] / (1 - pow(c->beta1, t)) / (sqrt(v) + c->eps);
}

static void step(struct vl_backend *be, const struct config *c, float *p, float *s[3],
                 const float *g, int64_t n, int t, struct vl_weight *w, int64_t *changed)
{
    if (c->sgd) {
        struct vl_sgd o = { .lr = (float)LR,
                            .momentum = (float)c->momentum,
                            .dampening = (float)c->dampening,
                            .l2 = (float)c->l2,
                            .nesterov = c->nesterov,
                            .t = t,
                            .grad_scale = (float)SCALE };
        be->sgd(be->ctx, p, c->momentum != 0 ? s[0] : NULL, g, n, &o, w, 0, changed);
    } else {
        struct vl_adamw o = { .lr = (float)LR,
                              .beta1 = (float)c->beta1,
                              .beta2 = (float)c->beta2,
                              .eps = (float)c->eps,
                              .weight_decay = (float)c->wd,
                              .l2 = (float)c->l2,
                              .t = t,
                              .grad_scale = (float)SCALE };
        be->adamw(be->ctx, p, s[0], s[1], c->amsgrad ? s[2] : NULL, g, n, &o, w, 0, changed);
    }
}

static void test_formulas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const struct config *c = &configs[i];
        float first[N];

        for (int k = 0; k < kset.n; k++) {
            float *p = krand(N, 1, 1), *s[3] = { kzero(N), kzero(N), kzero(N) };
            double want[N], m[N][3] = { { 0 } };

            for (int j = 0; j < N; j++)
                want[j] = p[j];
            for (int t = 1; t <= STEPS; t++) {
                float *g = krand(N, 2, (uint64_t)(10 + t));
                int64_t changed = 0;

                step(kset.be[k], c, p, s, g, N, t, NULL, &changed);
                assert_int_equal(changed, N);
                for (int j = 0; j < N; j++) {
                    want[j] = reference(c, want[j], g[j], m[j], t);
                    if (!(fabs(p[j] - want[j]) <= 2e-6 * (1 + fabs(want[j]))))
                        fail_msg("%s, step %d, weight %d: %.9g, wanted %.9g", c->name, t, j, p[j],
                                 want[j]);
                }
                free(g);
            }
            if (k == 0)
                memcpy(first, p, sizeof first);
            assert_memory_equal(first, p, sizeof first);
            free(p), free(s[0]), free(s[1]), free(s[2]);
        }
    }
}

/* A matrix steps as its elements do, and is packed as from outside, into what was packed before. */
static void packed_case(struct vl_backend *be, const struct config *c, int64_t O, int64_t I,
                        enum vl_compute ct)
{
    int64_t n = O * I, changed[2] = { 0 };
    float *p[2] = { krand(n, 1, 1), krand(n, 1, 1) }, *g = krand(n, 2, 2), *s[2][3];
    float *dx[2] = { kzero(I * O), kzero(I * O) }, *y[2] = { kzero(I * O), kzero(I * O) };
    float *unit = kzero(I * I), *down = kzero(O * O);
    struct vl_weight *w[2] = { kweight(be, p[0], O, I, ct) };
    void *x, *dy;

    for (int64_t i = 0; i < I; i++)
        unit[i * I + i] = 1;
    for (int64_t i = 0; i < O; i++)
        down[i * O + i] = 1;
    x = koperand(be, unit, I, I, ct), dy = koperand(be, down, O, O, ct);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++)
            s[i][k] = kzero(n);
        step(be, c, p[i], s[i], g, n, 1, i ? NULL : w[0], &changed[i]);
    }
    w[1] = kweight(be, p[1], O, I, ct);
    for (int i = 0; i < 2; i++) { /* y: W's columns as rows; dx: W itself */
        be->linear(be->ctx, y[i], x, w[i], NULL, NULL, I);
        be->linear_dx(be->ctx, dx[i], dy, w[i], O);
    }
    assert_int_equal(changed[0], changed[1]);
    assert_memory_equal(p[0], p[1], (size_t)n * 4);
    assert_memory_equal(s[0][0], s[1][0], (size_t)n * 4);
    assert_memory_equal(y[0], y[1], (size_t)n * 4);
    assert_memory_equal(dx[0], dx[1], (size_t)n * 4);
    for (int64_t i = 0; i < n && ct == VL_COMPUTE_F32; i++)
        assert_true(y[0][i % I * O + i / I] == p[0][i] && dx[0][i] == p[0][i]);
    for (int i = 0; i < 2; i++) {
        be->weight_free(be->ctx, w[i]);
        free(p[i]), free(y[i]), free(dx[i]);
        for (int k = 0; k < 3; k++)
            free(s[i][k]);
    }
    free(g), free(unit), free(down), free(x), free(dy);
}

static void test_packed(void **state)
{
    static const int64_t shapes[][2] = { { 1, 5 }, { 33, 70 }, { 64, 128 }, { 150, 31 } };

    (void)state;
    for (int k = 0; k < kset.n; k++)
        for (int i = 0; i < 4; i++)
            for (int ct = 0; ct < VL_COMPUTES; ct++)
                packed_case(kset.be[k], &configs[i % 2 ? 6 : 1], shapes[i][0], shapes[i][1],
                            (enum vl_compute)ct);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_formulas),
                                        cmocka_unit_test(test_packed) };
    return cmocka_run_group_tests(tests, kset_open, kset_close);
}
