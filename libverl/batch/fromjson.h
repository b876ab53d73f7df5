/* fromjson.h - rows as JSON lines become a batch again. Rules: formats/dataproto.md 4. */
#ifndef VL_FROMJSON_H
#define VL_FROMJSON_H

#include "libverl/batch/batch.h"

struct vl_fromjson {
    const struct vl_batch *like; /* gives dtypes, widths, order of columns, meta_info, parents; or
                                    NULL */
    const char *const *dtype; /* "NAME=F32" or "NAME=json", ndtype of them: before anything else */
    size_t ndtype;
};

/* text: n bytes of JSON objects, one a line (lines end at byte 0x0A; blank ones are skipped). All
 * rows must have the same members. A column's type comes from opt->dtype, else like, else the field
 * dictionary, else its values: text, objects, mixtures are a JSON column, numbers with a fraction
 * F32; all integers are refused, since jq prints 1.0 as 1. Token columns of the dictionary may be
 * shorter than their width and are padded, prompts on the left, responses on the right; a
 * row's other lists over the response must then be as short. *views (may
 * be NULL) = members left out because they are text views. VL_E_DATA names `name`, line and
 * member. */
int vl_batch_from_json(struct vl_batch *b, const char *text, size_t n, const char *name,
                       const struct vl_fromjson *opt, int64_t *views,
                       struct vl_err *e) VL_MUST_CHECK;

#endif
