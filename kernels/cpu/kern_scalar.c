/* kern_scalar.c - the inner loops in plain C. */
#include "kernels/cpu/kern.h"

#define VL_SIMD 0
#include "kernels/cpu/simd.h"
#include "kernels/cpu/body_plain.h"
#include "kernels/cpu/body_amx.h"
#include "kernels/cpu/body_bf16.h"
#include "kernels/cpu/body_attn.h"
#include "kernels/cpu/body_act.h"
#include "kernels/cpu/body_int8.h"
#include "kernels/cpu/body_digits.h"
#include "kernels/cpu/body_row.h"
#include "kernels/cpu/body_table.h"

const struct vl_kern vl_kern_scalar = VL_KERN_TABLE("scalar");
