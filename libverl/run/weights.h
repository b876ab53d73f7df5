/* weights.h - which weights and which compute type made a column, kept in meta_info.
 *
 * meta_info.COLUMN_weights = {"version":"v000012"|null,"hash":"32 hex digits","source_hash":...}
 * for COLUMN in rollout_log_probs, old_log_probs, ref_log_prob, values, rm_scores. The hash is the
 * identity: the same weights read from a train state, a published version or a plain directory have
 * one hash. source_hash is there where a published version was rounded from a train state, or weights
 * were quantized ("quantization":"int8") when they were loaded. One flat key per column, so that files
 * made side by side unite. */
#ifndef VL_WEIGHTS_H
#define VL_WEIGHTS_H

#include "libverl/batch/batch.h"
#include "libverl/engine/backend.h"
#include "libverl/model/model.h"

struct vl_weights_id {
    char version[32]; /* "" when the directory had none */
    char hash[33];
    char source_hash[33]; /* "" when the weights are not a rounded copy */
    char quantization[8]; /* "int8", or "" */
};

/* quantization: how m's weights were quantized when they were loaded, "int8"; NULL: not at all. */
void vl_weights_set(struct vl_batch *b, const char *column, const struct vl_model *m,
                    const char *quantization);
int vl_weights_get(const struct vl_batch *b, const char *column,
                   struct vl_weights_id *id); /* 1 = there */

#endif
