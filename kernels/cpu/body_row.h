/* body_row.h - operations on rows: norms, rope, activations, softmax, log-softmax parts, AdamW.
 *
 * Sums use 16 lanes, lane j taking elements j, j + 16, ..., missing ones as zero, then the tree
 * of v_sum. */

static void k_math(enum vl_math f, float *y, const float *x, int64_t n)
{
    VL_EACH (n) {
        vf v = v_load_n(x + i, n - i);

        v = f == VL_MATH_EXP       ? v_exp(v)
            : f == VL_MATH_LOG     ? v_log(v)
            : f == VL_MATH_TANH    ? v_tanh(v)
            : f == VL_MATH_SIGMOID ? v_sigmoid(v)
                                   : v_silu(v);
        v_store_n(y + i, v, n - i);
    }
}

static float k_dot(const float *a, const float *b, int64_t n)
{
    vf s = v_set1(0);

    VL_EACH (n)
        s = v_fma(v_load_n(a + i, n - i), v_load_n(b + i, n - i), s);
    return v_sum(s);
}

static void k_add(float *y, const float *x, int64_t n)
{
    VL_EACH (n)
        v_store_n(y + i, v_add(v_load_n(y + i, n - i), v_load_n(x + i, n - i)), n - i);
}

static void k_scale(float *x, float a, int64_t n)
{
    VL_EACH (n)
        v_store_n(x + i, v_mul(v_load_n(x + i, n - i), v_set1(a)), n - i);
}

static void k_divide(float *y, const float *x, float a, int64_t n)
{
    VL_EACH (n)
        v_store_n(y + i, v_div(v_load_n(x + i, n - i), v_set1(a)), n - i);
}

static void k_scaled(float *y, const float *x, float a, int64_t n)
{
    VL_EACH (n)
        v_store_n(y + i, v_add(v_mul(v_load_n(x + i, n - i), v_set1(a)), v_set1(0)), n - i);
}

static void k_norm(float *y, const float *x, const float *w, float r, int64_t n)
{
    VL_EACH (n) {
        vf v = v_mul(v_mul(v_load_n(x + i, n - i), v_set1(r)), v_load_n(w + i, n - i));

        v_store_n(y + i, v, n - i);
    }
}

/* g = dy w: dx = rstd g - x rstd^3 mean(g x) */
static void k_rmsnorm_dx(float *dx, const float *dy, const float *x, const float *w, float rstd,
                         int64_t C, int add)
{
    vf s = v_set1(0), r = v_set1(rstd), c;

    VL_EACH (C) {
        vf g = v_mul(v_load_n(dy + i, C - i), v_load_n(w + i, C - i));

        s = v_fma(g, v_load_n(x + i, C - i), s);
    }
    c = v_set1(-(v_sum(s) * rstd * rstd * rstd / (float)C));
    VL_EACH (C) {
        vf g = v_mul(v_load_n(dy + i, C - i), v_load_n(w + i, C - i));
        vf d = v_fma(v_load_n(x + i, C - i), c, v_mul(g, r));

        v_store_n(dx + i, add ? v_add(v_load_n(dx + i, C - i), d) : d, C - i);
    }
}

/* vectors <= 4 vectors of columns side by side: rows are far apart, each is read as long as possible. */
VL_INL void norm_dw(float *dw, const float *dy, const float *x, const float *rstd, int64_t N,
                    int64_t C, int64_t n, int vectors)
{
    vf s[4];

    VL_UNROLLED (j, 4)
        s[j] = j < vectors ? v_load_n(dw + j * VL_LANES, n - j * VL_LANES) : v_set1(0);
    for (int64_t t = 0; t < N; t++)
        VL_UNROLLED (j, 4)
            if (j < vectors) {
                int64_t at = t * C + j * VL_LANES, left = n - j * VL_LANES;

                s[j] = v_fma(v_load_n(dy + at, left),
                             v_mul(v_load_n(x + at, left), v_set1(rstd[t])), s[j]);
            }
    VL_UNROLLED (j, 4)
        if (j < vectors)
            v_store_n(dw + j * VL_LANES, s[j], n - j * VL_LANES);
}

static void k_rmsnorm_dw(float *dw, const float *dy, const float *x, const float *rstd, int64_t N,
                         int64_t C, int64_t n)
{
    int64_t i = 0;

    for (; i + 4 * VL_LANES <= n; i += 4 * VL_LANES)
        norm_dw(dw + i, dy + i, x + i, rstd, N, C, 4 * VL_LANES, 4);
    for (; i < n; i += VL_LANES)
        norm_dw(dw + i, dy + i, x + i, rstd, N, C, n - i, 1);
}

static void k_rope(float *x0, float *x1, const float *cs, const float *sn, int64_t n)
{
    VL_EACH (n) {
        vf a = v_load_n(x0 + i, n - i), b = v_load_n(x1 + i, n - i);
        vf c = v_load_n(cs + i, n - i), s = v_load_n(sn + i, n - i);

        v_store_n(x0 + i, v_sub(v_mul(a, c), v_mul(b, s)), n - i);
        v_store_n(x1 + i, v_fma(a, s, v_mul(b, c)), n - i);
    }
}

static void k_swiglu(float *h, const float *g, const float *u, int64_t F)
{
    VL_EACH (F)
        v_store_n(h + i, v_mul(v_silu(v_load_n(g + i, F - i)), v_load_n(u + i, F - i)), F - i);
}

static void k_swiglu_bwd(float *dg, float *du, float *h, const float *dh, const float *g,
                         const float *u, int64_t F)
{
    VL_EACH (F) {
        struct swiglu_grad r =
            swiglu_grad(v_load_n(dh + i, F - i), v_load_n(g + i, F - i), v_load_n(u + i, F - i));

        v_store_n(dg + i, r.dg, F - i);
        v_store_n(du + i, r.du, F - i);
        v_store_n(h + i, r.h, F - i);
    }
}

static void k_softmax(float *s, int64_t lo, int64_t hi, float *max, float *sum)
{
    int64_t a = lo & ~(int64_t)15, end = (hi - 1) & ~(int64_t)15; /* of the first and last lanes */
    vf m = v_set1(-INFINITY), t = v_set1(0);

    for (int64_t i = a; i <= end; i += VL_LANES)
        m = v_max(m, v_inside(v_load(s + i), i, lo, hi, -INFINITY));
    *max = v_hmax(m);
    m = v_set1(*max);
    for (int64_t i = a; i <= end; i += VL_LANES) {
        vf p = v_exp_inside(v_sub(v_load(s + i), m), i, lo, hi);

        t = v_add(t, p);
        v_store(s + i, p);
    }
    *sum = v_sum(t);
}

static void k_softmax_bwd(float *p, float *ds, int64_t c0, int64_t c1, int64_t lo, int64_t hi,
                          float lse, float delta)
{
    vf l = v_set1(lse), d = v_set1(delta);

    for (int64_t i = c0; i < c1; i += VL_LANES) {
        vf e = v_set1(0), x = e;

        if (i + VL_LANES > lo && i < hi) {
            e = v_exp_inside(v_sub(v_load(p + i), l), i, lo, hi);
            x = v_mul(e, v_inside(v_sub(v_load(ds + i), d), i, lo, hi, 0));
        }
        v_store(p + i, e);
        v_store(ds + i, x);
    }
}

static void k_part(struct vl_part *o, const float *z, int64_t n)
{
    vf m = v_set1(-INFINITY), s = v_set1(0), e = s, q = s, floor = v_set1(-1000);

    VL_EACH (n)
        m = v_max(m, n - i >= VL_LANES ? v_load(z + i)
                                       : v_keep(v_load_n(z + i, n - i), (int)(n - i), -INFINITY));
    o->m = v_hmax(m);
    m = v_set1(o->m);
    VL_EACH (n) {
        vf d = v_max(floor, v_sub(v_load_n(z + i, n - i), m)), p;

        d = v_keep(d, (int)(n - i), 0);
        p = v_keep(v_exp(d), (int)(n - i), 0);
        s = v_add(s, p);
        e = v_fma(p, d, e);
        q = v_fma(p, p, q);
    }
    o->s = v_sum(s);
    o->e = v_sum(e);
    o->q = v_sum(q);
}

static int k_finite(const float *z, int64_t n)
{
    vf s = v_set1(0);

    VL_EACH (n)
        s = v_fma(v_load_n(z + i, n - i), v_set1(0), s);
    return v_sum(s) == 0;
}

static void k_head_dz(float *z, int64_t n, float lse, float H, float dlogp, float dent,
                      float inv_temp)
{
    vf l = v_set1(lse), h = v_set1(H), a = v_set1(dlogp), b = v_set1(dent), t = v_set1(-inv_temp);

    VL_EACH (n) {
        vf lp = v_max(v_set1(-1000), v_sub(v_load_n(z + i, n - i), l));
        vf w = v_fma(b, v_add(lp, h), a);

        v_store_n(z + i, v_mul(v_mul(v_exp(lp), w), t), n - i);
    }
}

static void k_exp_sub(float *p, const float *z, float m, int64_t n)
{
    VL_EACH (n)
        v_store_n(p + i, v_exp(v_sub(v_load_n(z + i, n - i), v_set1(m))), n - i);
}

static int64_t k_adamw(float *p, float *m, float *v, float *vmax, const float *g, int64_t n,
                       const struct vl_adamw_step *o)
{
    int64_t changed = 0;

    VL_EACH (n) {
        int64_t left = n - i;
        vf gi = v_mul(v_load_n(g + i, left), v_set1(o->grad_scale)), p0 = v_load_n(p + i, left);
        vf mi, vi, top, d, p1;

        if (o->l2 != 0)
            gi = v_fma(v_set1(o->l2), p0, gi);
        mi = v_fma(v_set1(o->beta1), v_load_n(m + i, left), v_mul(v_set1(o->rest1), gi));
        vi = v_fma(v_set1(o->beta2), v_load_n(v + i, left), v_mul(v_set1(o->rest2), v_mul(gi, gi)));
        top = vi;
        if (vmax) {
            top = v_max(v_load_n(vmax + i, left), vi);
            v_store_n(vmax + i, top, left);
        }
        d = v_fma(v_sqrt(top), v_set1(o->inv_sqrt2), v_set1(o->eps));
        p1 = v_sub(v_mul(p0, v_set1(o->decay)), v_mul(v_set1(o->step), v_div(mi, d)));
        if (left < VL_LANES) {
            p0 = v_keep(p0, (int)left, 0);
            p1 = v_keep(p1, (int)left, 0);
        }
        changed += v_differ(p0, p1);
        v_store_n(m + i, mi, left);
        v_store_n(v + i, vi, left);
        v_store_n(p + i, p1, left);
    }
    return changed;
}

static int64_t k_sgd(float *p, float *b, const float *g, int64_t n, const struct vl_sgd_step *o)
{
    int64_t changed = 0;

    VL_EACH (n) {
        int64_t left = n - i;
        vf gi = v_mul(v_load_n(g + i, left), v_set1(o->grad_scale)), p0 = v_load_n(p + i, left), p1;

        if (o->l2 != 0)
            gi = v_fma(v_set1(o->l2), p0, gi);
        if (b) {
            vf bi = o->first ? gi
                             : v_fma(v_set1(o->momentum), v_load_n(b + i, left),
                                     v_mul(v_set1(o->rest), gi));

            v_store_n(b + i, bi, left);
            gi = o->nesterov ? v_fma(v_set1(o->momentum), bi, gi) : bi;
        }
        p1 = v_sub(p0, v_mul(v_set1(o->lr), gi));
        if (left < VL_LANES) {
            p0 = v_keep(p0, (int)left, 0);
            p1 = v_keep(p1, (int)left, 0);
        }
        changed += v_differ(p0, p1);
        v_store_n(p + i, p1, left);
    }
    return changed;
}

static double k_sumsq(const float *x, int64_t n)
{
    vd s = vd_zero();

    VL_EACH (n)
        s = vd_add_sq(s, v_load_n(x + i, n - i));
    return vd_sum(s);
}
