/* kern_avx2.c - the inner loops in AVX2 and FMA. */
#if defined(__x86_64__)
#    include "kernels/cpu/kern.h"

#    define VL_SIMD 8
#    include "kernels/cpu/simd.h"
#    include "kernels/cpu/body_tile.h"
#    include "kernels/cpu/body_mul.h"
#    include "kernels/cpu/body_mulr.h"
#    include "kernels/cpu/body_mul16.h"
#    include "kernels/cpu/body_amx.h"
#    include "kernels/cpu/body_bf16.h"
#    include "kernels/cpu/body_attn.h"
#    include "kernels/cpu/body_act.h"
#    include "kernels/cpu/body_int8.h"
#    include "kernels/cpu/body_digits.h"
#    include "kernels/cpu/body_row.h"
#    include "kernels/cpu/body_table.h"

const struct vl_kern vl_kern_avx2 = VL_KERN_TABLE("avx2");
#endif
