/* meta_merge.h - joining meta_info of several batches. Used by ops_merge.c. */
#ifndef VL_META_MERGE_H
#define VL_META_MERGE_H

#include "libverl/batch/batch.h"

/* dst's meta becomes the union over all parts; a key found in several must be equal (VL_E_DATA
 * naming it), but `metrics` and `timing` become {name: [one value a part that has it]}. What differs
 * when a step took several generation batches is joined: `epoch` and `gen_batch` are the largest,
 * `data_counts` add up (those of one generation batch count once), `reward_extra_keys` are all that
 * any part names. As in verl a list of objects extends, an object appends, null is skipped, values
 * that are lists stay nested; unlike verl the names are the union over all parts, not those of the
 * first. */
int vl_meta_concat(struct vl_batch *dst, const struct vl_batch *const *part, size_t n,
                   struct vl_err *e) VL_MUST_CHECK;
/* out's meta becomes a's and b's: objects are merged member by member, other values must be equal
 * (VL_E_DATA naming the key), but inside metrics and timing b's wins. */
int vl_meta_unite(struct vl_batch *out, const struct vl_batch *a, const struct vl_batch *b,
                  struct vl_err *e) VL_MUST_CHECK;

#endif
