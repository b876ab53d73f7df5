/* body_attn.h - attention with keys and values in bf16: products over blocks of 16 keys, softmax.
 *
 * The bf16 products are mul16's block by block; those in the order of tiles are in body_amx.h. */

static void k_keys16(float *s, int64_t lds, const uint32_t *q, int64_t ldq,
                     const uint32_t *const *k, int64_t blocks, int64_t M, int64_t K2)
{
    for (int64_t i = 0; i < blocks; i++)
        k_mul16(s + i * 16, lds, q, ldq, k[i], 16, M, 16, K2, 0, NULL);
}

static void k_values16(float *o, int64_t ldo, const uint32_t *p, int64_t ldp,
                       const uint32_t *const *v, int64_t ldv, int64_t blocks, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < blocks; i++)
        k_mul16(o, ldo, p + i * 8, ldp, v[i], ldv, M, N, 8, 1, NULL);
}

static int k_finite16(const uint32_t *x, int64_t n)
{
    uint32_t bad[16] = { 0 }, any = 0;

    for (int64_t i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++) /* an exponent of ones carries into the sign */
            bad[j] |= (x[i + j] & 0x7f807f80u) + 0x00800080u;
    for (int j = 0; j < 16; j++)
        any |= bad[j];
    return !(any & 0x80008000u);
}

VL_INL void half_zero(uint16_t *p, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i += VL_LANES)
        half_store(p + i, v_set1(0));
}

static void k_softmax16(uint16_t *p, const float *s, int64_t n, int64_t lo, int64_t hi, float *max,
                        float *sum)
{
    int64_t a = lo & ~(int64_t)15, end = (hi - 1) & ~(int64_t)15; /* of the first and last lanes */
    vf first = v_load(s + a), last = v_load(s + end), t;
    vf m = v_max(v_inside(first, a, lo, hi, -INFINITY), v_inside(last, end, lo, hi, -INFINITY));

    for (int64_t i = a + VL_LANES; i < end; i += VL_LANES)
        m = v_max(m, v_load(s + i));
    m = v_set1(*max = v_hmax(m));
    half_zero(p, 0, a);
    half_zero(p, end + VL_LANES, n);
    t = v_exp_inside(v_sub(first, m), a, lo, hi);
    half_store(p + a, t);
    for (int64_t i = a + VL_LANES; i < end; i += VL_LANES) {
        vf e = v_exp(v_sub(v_load(s + i), m));

        t = v_add(t, e);
        half_store(p + i, e);
    }
    if (end > a) {
        last = v_exp_inside(v_sub(last, m), end, lo, hi);
        t = v_add(t, last);
        half_store(p + end, last);
    }
    *sum = v_sum(t);
}

static void k_scaled16(uint16_t *y, const float *x, float a, int64_t n)
{
    int64_t i = 0;

    for (; i + VL_LANES <= n; i += VL_LANES)
        half_store(y + i, v_mul(v_load(x + i), v_set1(a)));
    for (; i < n; i++)
        y[i] = bf16_of(x[i] * a);
    if (n & 1)
        y[n] = 0;
}

static void k_softmax_bwd16(uint16_t *p, uint16_t *ds16, float *ds, const float *s, int64_t n,
                            int64_t lo, int64_t hi, const float *lse, const float *delta)
{
    for (int64_t i = 0; i < n; i += VL_LANES) {
        vf e = v_set1(0), d = e;

        if (i + VL_LANES > lo && i < hi) {
            e = v_exp_inside(v_sub(v_load(s + i), v_load(lse + i)), i, lo, hi);
            d = v_mul(e, v_inside(v_sub(v_load(ds + i), v_load(delta + i)), i, lo, hi, 0));
        }
        v_store(ds + i, d);
        half_store(p + i, e);
        half_store(ds16 + i, d);
    }
}
