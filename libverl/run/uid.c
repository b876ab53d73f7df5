/* uid.c - see uid.h. */
#include "libverl/run/uid.h"

#include <stdlib.h>

int vl_uid_groups(struct vl_groups *g, const struct vl_batch *b, const char *what, struct vl_err *e)
{
    const struct vl_col *uid = vl_batch_col(b, "uid");
    const char **text;
    size_t *len;

    *g = (struct vl_groups){ 0 };
    if (!uid || uid->kind != VL_COL_JSON)
        return vl_batch_missing(b, what, "uid", e);
    text = vl_alloc((size_t)(b->rows + 1) * sizeof *text);
    len = vl_alloc((size_t)(b->rows + 1) * sizeof *len);
    for (int64_t i = 0; i < b->rows; i++)
        text[i] = vl_col_json(uid, i, &len[i]);
    (void)!vl_groups_make(g, text, len, b->rows, e);
    free(text);
    free(len);
    return e->code;
}
