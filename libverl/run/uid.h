/* uid.h - groups of a batch's rows: those that share a uid, wherever they lie. */
#ifndef VL_UID_H
#define VL_UID_H

#include "libverl/algo/advantage.h"
#include "libverl/batch/batch.h"

/* Groups by the column uid, in order of appearance. Without one: VL_E_DATA, whose line `what` starts.
 * Free with vl_groups_free. */
int vl_uid_groups(struct vl_groups *g, const struct vl_batch *b, const char *what,
                  struct vl_err *e) VL_MUST_CHECK;

#endif
