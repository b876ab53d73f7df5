/* body_act.h - what lies between two products, in fp32 and with results in bf16: the rows of a norm
 * and SwiGLU. */

#define VL_EACH(n) for (int64_t i = 0; i < (n); i += VL_LANES)

VL_INL void half_store_n(uint16_t *y, vf x, int64_t n)
{
    uint16_t t[VL_LANES];

    if (n >= VL_LANES) {
        half_store(y, x);
        return;
    }
    half_store(t, x);
    memcpy(y, t, (size_t)n * sizeof *t);
}

struct swiglu_grad {
    vf dg, du, h;
};

/* s = sigmoid(g): du = dh g s; dg = dh u s (1 + g (1 - s)); h as in the forward pass */
VL_INL struct swiglu_grad swiglu_grad(vf dh, vf g, vf u)
{
    const vf one = v_set1(1);
    vf below = v_add(one, v_exp(v_sub(v_set1(0), g))), s = v_div(one, below);
    vf t = v_mul(s, v_fma(g, v_sub(one, s), one));

    return (struct swiglu_grad){ .dg = v_mul(v_mul(dh, u), t),
                                 .du = v_mul(dh, v_mul(g, s)),
                                 .h = v_mul(v_div(g, below), u) };
}

static void k_norm16(uint16_t *y, const float *x, const float *w, float r, int64_t n)
{
    VL_EACH (n) {
        vf v = v_mul(v_mul(v_load_n(x + i, n - i), v_set1(r)), v_load_n(w + i, n - i));

        half_store_n(y + i, v, n - i);
    }
}

static void k_swiglu16(uint16_t *h, const float *g, const float *u, int64_t F)
{
    VL_EACH (F) {
        vf v = v_mul(v_silu(v_load_n(g + i, F - i)), v_load_n(u + i, F - i));

        half_store_n(h + i, v, F - i);
    }
}

static void k_swiglu_bwd16(uint16_t *dg, uint16_t *du, uint16_t *h, const float *dh, const float *g,
                           const float *u, int64_t F)
{
    VL_EACH (F) {
        struct swiglu_grad r =
            swiglu_grad(v_load_n(dh + i, F - i), v_load_n(g + i, F - i), v_load_n(u + i, F - i));

        half_store_n(dg + i, r.dg, F - i);
        half_store_n(du + i, r.du, F - i);
        half_store_n(h + i, r.h, F - i);
    }
}
