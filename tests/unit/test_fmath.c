/* fmath.h against libm in higher precision, and its vector twins against the scalar functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "kernels/cpu/kern.h"
#include "libverl/base/fmath.h"

typedef float (*fn32)(float);

/* |got - want| in units of the last place of want as a float */
static double ulps(float got, double want)
{
    float w = (float)want;

    if (isnan(want) || isnan(got))
        return isnan(want) == isnan(got) ? 0 : 1e9;
    if (isinf(w) || isinf(got))
        return w == got ? 0 : 1e9;
    return fabs(got - want) / (double)fmaxf(nextafterf(fabsf(w), INFINITY) - fabsf(w), 0x1p-149f);
}

static double ulps64(double got, long double want)
{
    double w = (double)want;

    if (isinf(w) || isinf(got) || isnan(w) || isnan(got))
        return w == got || (isnan(w) && isnan(got)) ? 0 : 1e9;
    return (double)(fabsl((long double)got - want) / (nextafter(fabs(w), INFINITY) - fabs(w)));
}

static double want_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double want_silu(double x)
{
    return x / (1 + exp(-x));
}

static float fn(enum vl_math f, float x)
{
    static const fn32 table[] = { vl_expf, vl_logf, vl_tanhf, vl_sigmoidf, vl_siluf };

    return table[f](x);
}

static void test_fp32(void **state)
{
    static double (*const want[])(double) = { exp, log, tanh, want_sigmoid, want_silu };
    static const double limit[] = { 1.1, 1.0, 2.0, 3.0, 3.0 };
    double worst[5] = { 0 };

    (void)state;
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u += 8191) {
        float x = vl_bits_float((int32_t)(uint32_t)u);

        for (int f = VL_MATH_EXP; f <= VL_MATH_SILU; f++) {
            double d;

            if (f >= VL_MATH_SIGMOID && !(fabsf(x) < 87)) /* stated: 0 below -88.7 */
                continue;
            d = ulps(fn((enum vl_math)f, x), want[f](x));
            worst[f] = d > worst[f] ? d : worst[f];
        }
    }
    for (int f = 0; f < 5; f++) {
        print_message("# fp32 function %d: %.3f ulp\n", f, worst[f]);
        assert_true(worst[f] <= limit[f]);
    }
}

static void test_fp32_edges(void **state)
{
    (void)state;
    assert_true(vl_expf(0) == 1 && vl_expf(-INFINITY) == 0 && vl_expf(INFINITY) == INFINITY);
    assert_true(vl_expf(-1000) == 0 && vl_expf(89) == INFINITY && isnan(vl_expf(NAN)));
    assert_true(vl_expf(88.72f) < INFINITY);
    assert_true(vl_expf(-103.0f) > 0 && vl_expf(-104.5f) == 0);
    assert_true(vl_logf(1) == 0 && vl_logf(0) == -INFINITY && vl_logf(-0.0f) == -INFINITY);
    assert_true(isnan(vl_logf(-1)) && isnan(vl_logf(NAN)) && vl_logf(INFINITY) == INFINITY);
    assert_true(isnan(vl_logf(-INFINITY)));
    assert_true(vl_tanhf(INFINITY) == 1 && vl_tanhf(-INFINITY) == -1 && vl_tanhf(0) == 0);
    assert_true(isnan(vl_tanhf(NAN)) && isnan(vl_sigmoidf(NAN)) && isnan(vl_siluf(NAN)));
    assert_true(vl_sigmoidf(0) == 0.5f && vl_sigmoidf(100) == 1 && vl_sigmoidf(-100) == 0);
    assert_true(vl_siluf(-100) == 0 && vl_siluf(100) == 100);
}

#if defined(__x86_64__)
static const struct vl_kern *vector_kern(int i)
{
    if (i == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &vl_kern_avx2
                                                                               : NULL;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? &vl_kern_avx512
               : NULL;
}
#else
static const struct vl_kern *vector_kern(int i)
{
    (void)i;
    return NULL;
}
#endif

/* Bits of the vector functions over a sweep of all floats; NaNs only need to be NaN. */
static void test_twins(void **state)
{
    float x[64], y[64];

    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct vl_kern *v = vector_kern(k);

        for (uint64_t u = 0; v && u < (uint64_t)1 << 32; u += 64 * 40961) {
            for (uint64_t i = 0; i < 64; i++)
                x[i] = vl_bits_float((int32_t)(uint32_t)(u + i * 40961));
            for (int f = VL_MATH_EXP; f <= VL_MATH_SILU; f++) {
                v->math((enum vl_math)f, y, x, 64);
                for (int i = 0; i < 64; i++) {
                    float s = fn((enum vl_math)f, x[i]);

                    if (isnan(s) ? !isnan(y[i]) : vl_float_bits(s) != vl_float_bits(y[i]))
                        fail_msg("%s function %d at %a: %a, scalar %a", v->name, f, (double)x[i],
                                 (double)y[i], (double)s);
                }
            }
        }
    }
}

static double uniform(uint64_t *s)
{
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return (double)(*s >> 11) * 0x1p-53;
}

static void worse(double *w, double got)
{
    *w = got > *w ? got : *w;
}

static void test_double(void **state)
{
    double w[5] = { 0 };
    uint64_t s = 12345;

    (void)state;
    for (int i = 0; i < 40000; i++) {
        double u = uniform(&s), v = uniform(&s), x = u * 1400 - 700, y;

        worse(&w[0], ulps64(vl_exp(x), expl(x)));
        worse(&w[0], ulps64(vl_exp(4 * v - 2), expl(4 * v - 2)));
        worse(&w[1], ulps64(vl_log(exp(x)), logl(exp(x))));
        worse(&w[1], ulps64(vl_log(0.5 + v), logl(0.5 + v)));
        x = 10 * v, y = 60 * u - 30;
        if (fabs(y * log(x)) < 700)
            worse(&w[2], ulps64(vl_pow(x, y), powl(x, y)));
        x = (u - 0.5) * (i % 2 ? 10 : 2e6);
        worse(&w[3], ulps64(vl_sin(x), sinl(x)));
        worse(&w[4], ulps64(vl_cos(x), cosl(x)));
    }
    print_message("# double exp log pow sin cos: %.3f %.3f %.3f %.3f %.3f ulp\n", w[0], w[1], w[2],
                  w[3], w[4]);
    for (int i = 0; i < 5; i++)
        assert_true(w[i] < 1.5);
}

static void test_double_edges(void **state)
{
    (void)state;
    assert_true(vl_exp(0) == 1 && vl_exp(-INFINITY) == 0 && vl_exp(INFINITY) == INFINITY);
    assert_true(vl_exp(710) == INFINITY && vl_exp(-746) == 0 && isnan(vl_exp(NAN)));
    assert_true(fabs(vl_exp(-740) / 4.2e-322 - 1) < 0.02); /* denormal result */
    assert_true(vl_log(1) == 0 && vl_log(0) == -INFINITY && isnan(vl_log(-1)));
    assert_true(fabs(vl_log(0x1p-1074) + 744.4400719213812) < 1e-9);
    assert_true(vl_pow(0.9, 1) == 0.9 && vl_pow(2, 10) == 1024 && vl_pow(-2, 3) == -8);
    assert_true(vl_pow(0, 2) == 0 && vl_pow(5, 0) == 1 && isnan(vl_pow(-2, 0.5)));
    assert_true(vl_sin(0) == 0 && vl_cos(0) == 1 && isnan(vl_sin(1e300)) && isnan(vl_cos(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32),         cmocka_unit_test(test_fp32_edges),
        cmocka_unit_test(test_twins),        cmocka_unit_test(test_double),
        cmocka_unit_test(test_double_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
