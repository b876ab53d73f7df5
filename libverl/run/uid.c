/* uid.c - see uid.h. */
#include "libverl/run/uid.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/algo/masked.h"
#include "libverl/batch/view.h"

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

static int row_value(double *value, const struct vl_batch *b, const struct vl_col *c, int64_t row,
                     struct vl_err *e)
{
    struct vl_buf t = { 0 };
    struct vl_json v = { 0 };
    int rc = vl_view_value(&t, c, row, NULL, e) || vl_json_parse(&v, t.s, t.n, c->name, e);
    int list = !rc && vl_json_is(&v, 0, VL_JSON_ARRAY), truth;
    uint32_t k = list ? 1 : 0, n = list ? v.node[0].count : 1;
    char who[128];

    *value = 0;
    for (; !rc && n; n--, k = v.node[k].next) {
        double x = 0;

        if (vl_json_bool(&v, k, &truth))
            x = truth;
        else if (!vl_json_f64(&v, k, &x) || !isfinite(x))
            rc = vl_fail(e, VL_E_DATA, "%s: %s is no finite number",
                         vl_batch_row_name(b, row, who, sizeof who), c->name);
        *value += x;
    }
    vl_json_free(&v);
    vl_buf_free(&t);
    return rc;
}

int vl_row_values(double *value, const struct vl_batch *b, const char *column, const uint8_t *skip,
                  const char *what, struct vl_err *e)
{
    const struct vl_col *c = vl_batch_col(b, column);

    if (!c)
        return vl_batch_missing(b, what, column, e);
    for (int64_t i = 0; i < b->rows; i++) {
        value[i] = 0;
        if (!(skip && skip[i]) && row_value(&value[i], b, c, i, e))
            return e->code;
    }
    return 0;
}

int vl_row_unscored(const struct vl_batch *b, int64_t row)
{
    const struct vl_col *c = vl_batch_col(b, "reward_error");
    size_t n;
    const char *s;

    if (!c || c->kind != VL_COL_JSON)
        return 0;
    s = vl_col_json(c, row, &n);
    return n != 4 || memcmp(s, "null", 4) != 0;
}

int vl_rows_left_out(uint8_t *skip, const struct vl_batch *b, struct vl_err *e)
{
    int64_t inner[1] = { -1 };
    const int64_t *mask = NULL;

    if (vl_batch_col(b, "response_mask") && vl_batch_need_mask(b, "response_mask", inner, &mask, e))
        return e->code;
    for (int64_t i = 0; i < b->rows; i++)
        skip[i] =
            vl_row_unscored(b, i) || (mask && !vl_masked_count(mask + i * inner[0], inner[0]));
    return 0;
}
