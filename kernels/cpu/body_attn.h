/* body_attn.h - attention with keys and values in bf16: products over blocks of 16 keys, softmax.
 *
 * The bf16 products are mul16's block by block; those in the order of tiles are in body_amx.h. */

static void k_keys16(float *s, int64_t lds, const uint32_t *q, int64_t ldq,
                     const uint32_t *const *k, int64_t blocks, int64_t M, int64_t K2)
{
    for (int64_t i = 0; i < blocks; i++)
        k_mul16(s + i * 16, lds, q, ldq, k[i], 16, M, 16, K2, 0);
}

static void k_values16(float *o, int64_t ldo, const uint32_t *p, int64_t ldp,
                       const uint32_t *const *v, int64_t ldv, int64_t blocks, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < blocks; i++)
        k_mul16(o, ldo, p + i * 8, ldp, v[i], ldv, M, N, 8, 1);
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

/* Element i of a row, or -inf outside [lo, hi). */
VL_INL vf visible(const float *s, int64_t i, int64_t lo, int64_t hi)
{
    vf v = v_load(s + i);

    if (i < lo)
        v = v_from(v, (int)(lo - i), -INFINITY);
    return i + VL_LANES > hi ? v_keep(v, (int)(hi - i), -INFINITY) : v;
}

static void k_softmax16(uint16_t *p, const float *s, int64_t n, int64_t lo, int64_t hi, float *max,
                        float *sum)
{
    int64_t a = lo & ~(int64_t)15, b = (hi + 15) & ~(int64_t)15;
    vf m = v_set1(-INFINITY), t = v_set1(0);

    for (int64_t i = a; i < b; i += VL_LANES)
        m = v_max(m, visible(s, i, lo, hi));
    *max = v_hmax(m);
    m = v_set1(*max);
    memset(p, 0, (size_t)a * sizeof *p);
    for (int64_t i = a; i < b; i += VL_LANES) {
        vf e = v_exp(v_sub(visible(s, i, lo, hi), m));

        t = v_add(t, e);
        half_store(p + i, e);
    }
    memset(p + b, 0, (size_t)(n - b) * sizeof *p);
    *sum = v_sum(t);
}

static void k_softmax_bwd16(uint16_t *p, uint16_t *ds16, float *ds, const float *s, int64_t n,
                            int64_t lo, int64_t hi, const float *lse, const float *delta)
{
    for (int64_t i = 0; i < n; i += VL_LANES) {
        vf e = v_set1(0), d = e;

        if (i + VL_LANES > lo && i < hi) {
            e = v_exp(v_sub(visible(s, i, lo, hi), v_load(lse + i)));
            d = v_sub(v_load(ds + i), v_load(delta + i));
            if (i < lo)
                d = v_from(d, (int)(lo - i), 0);
            if (i + VL_LANES > hi)
                d = v_keep(d, (int)(hi - i), 0);
            d = v_mul(e, d);
        }
        v_store(ds + i, d);
        half_store(p + i, e);
        half_store(ds16 + i, d);
    }
}
