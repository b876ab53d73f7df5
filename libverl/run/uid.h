/* uid.h - one number a row, and the groups of rows that share a uid, wherever they lie. */
#ifndef VL_UID_H
#define VL_UID_H

#include "libverl/algo/advantage.h"
#include "libverl/batch/batch.h"

/* Groups by the column uid, in order of appearance. Without one: VL_E_DATA, whose line `what` starts.
 * Free with vl_groups_free. */
int vl_uid_groups(struct vl_groups *g, const struct vl_batch *b, const char *what,
                  struct vl_err *e) VL_MUST_CHECK;

/* value[i] = row i's number in a column of numbers or booleans, tensor or JSON; the sum where a row
 * has several. skip (B) or NULL: rows that get 0 unread. VL_E_DATA: no such column (`what` starts the
 * line), or a row that is no finite number. */
int vl_row_values(double *value, const struct vl_batch *b, const char *column, const uint8_t *skip,
                  const char *what, struct vl_err *e) VL_MUST_CHECK;

/* Whether verl-reward could not score the row: its column reward_error says why. */
int vl_row_unscored(const struct vl_batch *b, int64_t row);

/* skip[i] = row i is in no group: it has no score, or response_mask (if it is there) leaves it no valid
 * token. skip: (rows). VL_E_DATA: response_mask is no mask. */
int vl_rows_left_out(uint8_t *skip, const struct vl_batch *b, struct vl_err *e) VL_MUST_CHECK;

#endif
