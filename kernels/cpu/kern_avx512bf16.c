/* kern_avx512bf16.c - the bf16 product with vdpbf16ps. */
#if defined(__x86_64__)
#    include "kernels/cpu/kern.h"

#    define VL_SIMD   16
#    define VL_DPBF16 1
#    include "kernels/cpu/simd.h"
#    include "kernels/cpu/body_tile.h"
#    include "kernels/cpu/body_mul16.h"
#    include "kernels/cpu/body_bf16.h"
#    include "kernels/cpu/body_attn.h"
#    include "kernels/cpu/body_act.h"

void vl_kern_use_avx512bf16(struct vl_kern *k)
{
    k->name = "avx512bf16";
    k->mul16 = k_mul16;
    k->to_bf16 = k_to_bf16;
    k->pair = k_pair;
    k->pair_t = k_pair_t;
    k->pair16 = k_pair16;
    k->pair16_t = k_pair16_t;
    k->pair_w = k_pair_w;
    k->turn = k_turn;
    k->keys16 = k_keys16;
    k->values16 = k_values16;
    k->finite16 = k_finite16;
    k->norm16 = k_norm16;
    k->swiglu16 = k_swiglu16;
    k->swiglu_bwd16 = k_swiglu_bwd16;
    k->softmax16 = k_softmax16;
    k->scaled16 = k_scaled16;
    k->softmax_bwd16 = k_softmax_bwd16;
}
#endif
