/* kern_fma.c - the plain C loops of kern_scalar.c where fmaf is one instruction instead of a call.
 *
 * Same source, same bits, about ten times the speed: what "scalar" runs on every x86 since 2013. */
#if defined(__x86_64__)
#    include "kernels/cpu/kern.h"

#    define VL_SIMD 0
#    include "kernels/cpu/simd.h"
#    include "kernels/cpu/body_plain.h"
#    include "kernels/cpu/body_amx.h"
#    include "kernels/cpu/body_bf16.h"
#    include "kernels/cpu/body_attn.h"
#    include "kernels/cpu/body_act.h"
#    include "kernels/cpu/body_int8.h"
#    include "kernels/cpu/body_digits.h"
#    include "kernels/cpu/body_row.h"
#    include "kernels/cpu/body_table.h"

const struct vl_kern vl_kern_fma = VL_KERN_TABLE("scalar");
#endif
