/* memory.h - whether a model and its passes fit in memory, and which options make them fit. */
#ifndef VL_MEMORY_H
#define VL_MEMORY_H

#include "libverl/engine/engine.h"
#include "libverl/run/stage.h"

/* What can be made smaller, and how: texts of vl_parsed_how, NULL where a program has no such option. */
struct vl_memory {
    const char *tokens; /* of a pass */
    const char *rows; /* of a pass; not NULL: passes are cut by rows, and `tokens` is not heeded */
    int64_t least;    /* tokens of the smallest pass; 0: of the longest row */
    const char *compute, *quantization, *recompute, *offload;
    const char *hint;          /* said where nothing else helps, or NULL */
    size_t cache, cache_least; /* bytes of the KV cache: wanted, and without which nothing runs */
    const char *share;         /* of free memory that the cache may take */
};

/* Bytes of the weights (with train: gradients and moments too), passes up to `pass`, and m->cache. */
size_t vl_memory_need(const struct vl_model *model, const struct vl_backend *be,
                      const struct vl_engine_opts *o, const struct vl_extent *pass,
                      const struct vl_memory *m);

/* Refuses (VL_E_OS) what each rank of this host would need and is not there, in one line: how much
 * of it is what, and the options under which it fits. pass NULL: the weights alone are looked at. */
int vl_memory_check(struct vl_ctx *x, const struct vl_model *model, const struct vl_backend *be,
                    const struct vl_engine_opts *o, const struct vl_extent *pass,
                    const struct vl_memory *m, struct vl_err *e) VL_MUST_CHECK;

#endif
