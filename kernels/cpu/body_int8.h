/* body_int8.h - weights of eight bits: how they are made, and made into operands. */

static float k_largest(const float *x, int64_t n)
{
    vf m = v_set1(0);
    float lane[VL_LANES], r = 0;

    for (int64_t i = 0; i < n; i += VL_LANES) {
        vf a = v_load_n(x + i, n - i);

        m = v_max(m, v_max(a, v_sub(v_set1(0), a)));
    }
    v_store(lane, m);
    for (int i = 0; i < VL_LANES; i++)
        r = lane[i] > r ? lane[i] : r;
    return r;
}

static void k_to_int8(int8_t *q, int64_t ldq, const float *x, const float *s, int64_t n)
{
    vf unit = v_load(s);

    for (int64_t k = 0; k < n; k++)
        v_store_i8(q + k * ldq, v_max(v_div(v_load(x + k * VL_LANES), unit), v_set1(-127)));
}

static void k_widen16(uint32_t *h, const int8_t *q, int64_t n, int64_t pairs, const int8_t *ahead)
{
    for (int64_t k = 0; k < pairs; k++, q += 2 * n, ahead += 2 * n) {
        for (int64_t j = 0; j < 2 * n; j += 64)
            __builtin_prefetch(ahead + j, 0, 2);
        for (int64_t j = 0; j < n; j += VL_LANES, h += VL_LANES)
            v_store_pairs(h, v_load_i8(q + j), v_load_i8(q + n + j));
    }
}

static void k_widen(float *y, const int8_t *q, int64_t n, const int8_t *ahead)
{
    for (int64_t i = 0; i < n; i += VL_LANES) {
        if (i % 64 == 0)
            __builtin_prefetch(ahead + i, 0, 2);
        v_store(y + i, v_load_i8(q + i));
    }
}

static void k_times(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL_LANES)
        v_store_n(y + i, v_mul(v_load_n(a + i, n - i), v_load_n(b + i, n - i)), n - i);
}
