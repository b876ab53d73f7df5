/* body_table.h - the table over the functions of the other body files; last to be included. */

#define VL_KERN_TABLE(isa)                                                                         \
    {                                                                                              \
        .name = isa, .nr = VL_NR, .mul = k_mul, .mulr = k_mulr, .mul16 = k_mul16,                  \
        .mul_amx = k_mul_amx, .keys16 = k_keys16, .keys_amx = k_keys_amx, .values16 = k_values16,  \
        .values_amx = k_values_amx, .finite16 = k_finite16, .to_bf16 = k_to_bf16, .pair = k_pair,  \
        .pair_t = k_pair_t, .pair16 = k_pair16, .pair16_t = k_pair16_t, .pair_w = k_pair_w,        \
        .turn = k_turn, .largest = k_largest, .to_int8 = k_to_int8, .widen = k_widen,              \
        .widen16 = k_widen16, .digits = k_digits, .mul_digits = k_mul_digits, .times = k_times,    \
        .math = k_math, .dot = k_dot, .add = k_add, .scale = k_scale, .divide = k_divide,          \
        .norm = k_norm, .norm16 = k_norm16, .rmsnorm_dx = k_rmsnorm_dx,                            \
        .rmsnorm_dw = k_rmsnorm_dw, .rope = k_rope, .swiglu = k_swiglu, .swiglu16 = k_swiglu16,    \
        .swiglu_bwd = k_swiglu_bwd, .swiglu_bwd16 = k_swiglu_bwd16, .softmax = k_softmax,          \
        .softmax_bwd = k_softmax_bwd, .softmax16 = k_softmax16, .scaled = k_scaled,                \
        .scaled16 = k_scaled16, .softmax_bwd16 = k_softmax_bwd16, .part = k_part,                  \
        .finite = k_finite, .head_dz = k_head_dz, .exp_sub = k_exp_sub, .adamw = k_adamw,          \
        .sgd = k_sgd, .sumsq = k_sumsq,                                                            \
    }
