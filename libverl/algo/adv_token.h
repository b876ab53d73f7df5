/* adv_token.h - estimators with one baseline per group and token position (table in advantage.c). */
#ifndef VL_ADV_TOKEN_H
#define VL_ADV_TOKEN_H

#include "libverl/algo/advantage.h"

int vl_adv_otb(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
               struct vl_err *e) VL_MUST_CHECK;
int vl_adv_tir_otb(const struct vl_adv_in *in, const struct vl_adv_opts *o, float *adv, float *ret,
                   struct vl_err *e) VL_MUST_CHECK;

#endif
