/* jinja_filter.h - filters over lists, for the table in jinja_filter.c. */
#ifndef VL_JINJA_FILTER_H
#define VL_JINJA_FILTER_H

#include "libverl/text/jinja_impl.h"

typedef struct vl_jv vl_jfilter_fn(struct vl_jin *in, struct vl_jv v, const struct vl_jargs *a);

vl_jfilter_fn vl_jf_dictsort, vl_jf_groupby, vl_jf_join, vl_jf_map, vl_jf_max, vl_jf_min,
    vl_jf_reject, vl_jf_rejectattr, vl_jf_select, vl_jf_selectattr, vl_jf_sort, vl_jf_sum,
    vl_jf_unique;

vl_jfilter_fn vl_jf_batch, vl_jf_slice;

#endif
