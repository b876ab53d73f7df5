/* body_widen.h - weights of eight bits as operands: integers up to 127 are exact in bf16 and fp32. */

/* h[k*n + j] = the pair q[2k*qs + j], q[(2k+1)*qs + j] in bf16; from ahead on as many bytes are
 * fetched into the second-level cache. */
VL_INL void widen_pairs(uint32_t *h, const int8_t *q, int64_t qs, int64_t n, int64_t pairs,
                        const int8_t *ahead)
{
    for (int64_t k = 0; k < pairs; k++, q += 2 * qs, ahead += 2 * n) {
        for (int64_t j = 0; j < 2 * n; j += 64)
            __builtin_prefetch(ahead + j, 0, 2);
        for (int64_t j = 0; j < n; j += VL_LANES, h += VL_LANES)
            v_store_pairs(h, v_load_i8(q + j), v_load_i8(q + qs + j));
    }
}
