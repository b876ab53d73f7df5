/* init.c - random initial weights. See model.h.
 *
 * Every element is a pure function of (seed, tensor's Hugging Face name, index), so the same model
 * comes out on any machine and thread count, and a tensor's values do not move when another is
 * added. Normal deviates are made by the inverse of the distribution function: one uniform each. */
#include "libverl/model/tensors.h"

#include "libverl/base/dmath.h"
#include "libverl/base/philox.h"

#include <stdlib.h>
#include <string.h>

static double poly(const double *c, int n, double x)
{
    double y = c[n - 1];

    for (int i = n - 2; i >= 0; i--)
        y = y * x + c[i];
    return y;
}

/* Wichura's algorithm AS 241 (PPND16), relative error about 1e-16. */
double vl_normal_quantile(double p)
{
    static const double a[] = { 3.3871328727963666080e0,  1.3314166789178437745e+2,
                                1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                3.3430575583588128105e+4, 2.5090809287301226727e+3 };
    static const double b[] = { 1.0,
                                4.2313330701600911252e+1,
                                6.8718700749205790830e+2,
                                5.3941960214247511077e+3,
                                2.1213794301586595867e+4,
                                3.9307895800092710610e+4,
                                2.8729085735721942674e+4,
                                5.2264952788528545610e+3 };
    static const double c[] = { 1.42343711074968357734e0,  4.63033784615654529590e0,
                                5.76949722146069140550e0,  3.64784832476320460504e0,
                                1.27045825245236838258e0,  2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4 };
    static const double d[] = { 1.0,
                                2.05319162663775882187e0,
                                1.67638483018380384940e0,
                                6.89767334985100004550e-1,
                                1.48103976427480074590e-1,
                                1.51986665636164571966e-2,
                                5.47593808499534494600e-4,
                                1.05075007164441684324e-9 };
    static const double f[] = { 6.65790464350110377720e0,  5.46378491116411436990e0,
                                1.78482653991729133580e0,  2.96560571828504891230e-1,
                                2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7 };
    static const double g[] = { 1.0,
                                5.99832206555887937690e-1,
                                1.36929880922735805310e-1,
                                1.48753612908506148525e-2,
                                7.86869131145613259100e-4,
                                1.84631831751005468180e-5,
                                1.42151175831644588870e-7,
                                2.04426310338993978564e-15 };
    double q = p - 0.5, r, x;

    if (fabs(q) <= 0.425) {
        r = 0.180625 - q * q;
        return q * poly(a, 8, r) / poly(b, 8, r);
    }
    r = sqrt(-vl_dlog(q < 0 ? p : 1 - p));
    x = r <= 5 ? poly(c, 8, r - 1.6) / poly(d, 8, r - 1.6) : poly(f, 8, r - 5) / poly(g, 8, r - 5);
    return q < 0 ? -x : x;
}

static void fill_normal(float *x, int64_t n, struct vl_philox_key key, double std)
{
#pragma omp parallel for schedule(static) if (n > 1 << 14)
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(std * vl_normal_quantile(vl_uniform(key, (uint32_t)i, (uint32_t)(i >> 32), 0,
                                                           VL_RNG_INIT)));
}

static int ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);

    return n >= m && !strcmp(s + n - m, tail);
}

void vl_model_init(struct vl_model *m, uint64_t seed, double std, int scale_residual)
{
    int64_t n;
    struct vl_piece *p = vl_model_pieces(m, &n);
    double small = scale_residual ? std / sqrt(2.0 * (double)m->cfg.L) : std;

    memset(m->slab, 0, sizeof(float) * (size_t)m->count);
    for (int64_t i = 0; i < n; i++) {
        float *x = m->slab + p[i].at;
        int residual =
            ends_with(p[i].name, "o_proj.weight") || ends_with(p[i].name, "down_proj.weight");

        if (p[i].ndim == 2)
            fill_normal(x, p[i].n, vl_philox_key(p[i].name, strlen(p[i].name), seed),
                        residual ? small : std);
        else if (ends_with(p[i].name, "norm.weight"))
            for (int64_t k = 0; k < p[i].n; k++)
                x[k] = 1;
    }
    free(p);
    vl_model_hash(m);
}
