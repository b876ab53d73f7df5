/* view.c - the JSON view of a batch. See view.h. */
#include "libverl/batch/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/base/base64.h"
#include "libverl/base/half.h"

/* ---- numbers ---- */

static void put_element(struct vl_buf *out, enum vl_dtype t, const uint8_t *p)
{
    uint64_t u = 0;
    uint16_t h;
    double d;
    float f;

    switch (t) {
    case VL_F64:
        memcpy(&d, p, 8);
        vl_json_put_f64(out, d);
        return;
    case VL_F32:
        memcpy(&f, p, 4);
        vl_json_put_f32(out, f);
        return;
    case VL_F16:
    case VL_BF16:
        memcpy(&h, p, 2);
        vl_json_put_f32(out, t == VL_F16 ? vl_f16_to_f32(h) : vl_bf16_to_f32(h));
        return;
    case VL_BOOL:
        vl_buf_str(out, *p ? "true" : "false");
        return;
    default:
        memcpy(&u, p, vl_dtype_size(t));
    }
    switch (t) {
    case VL_I8:
        vl_json_put_i64(out, (int8_t)u);
        break;
    case VL_I16:
        vl_json_put_i64(out, (int16_t)u);
        break;
    case VL_I32:
        vl_json_put_i64(out, (int32_t)u);
        break;
    case VL_I64:
        vl_json_put_i64(out, (int64_t)u);
        break;
    default:
        vl_buf_printf(out, "%" PRIu64, u);
    }
}

/* Elements of shape dim[0..n) as nested lists; returns the bytes used. */
static size_t put_nested(struct vl_buf *out, enum vl_dtype t, int n, const int64_t *dim,
                         const uint8_t *p)
{
    size_t used = 0;

    if (n == 0) {
        put_element(out, t, p);
        return vl_dtype_size(t);
    }
    vl_buf_ch(out, '[');
    for (int64_t i = 0; i < dim[0]; i++) {
        if (i)
            vl_buf_ch(out, ',');
        used += put_nested(out, t, n - 1, dim + 1, p + used);
    }
    vl_buf_ch(out, ']');
    return used;
}

/* ---- JSON values ---- */

/* Whether \uXXXX at s[i] names a surrogate: its high or its low half. */
static int surrogate(const char *s, size_t n, size_t i, int low)
{
    return i + 5 < n && s[i] == '\\' && s[i + 1] == 'u' && strchr("dD", s[i + 2]) &&
           strchr(low ? "cdefCDEF" : "89abAB", s[i + 3]);
}

/* Copies valid JSON text with U+FFFD in place of surrogates that stand alone: jq 1.6 refuses such a
 * line. Returns how many there were. out may be NULL: only counts. */
static size_t replace_lone(struct vl_buf *out, const char *s, size_t n)
{
    size_t lone = 0, step;

    for (size_t i = 0; i < n; i += step) {
        const char *with = s + i;

        step = s[i] == '\\' ? 2 : 1;
        if (surrogate(s, n, i, 0) && surrogate(s, n, i + 6, 1)) {
            step = 12;
        } else if (surrogate(s, n, i, 0) || surrogate(s, n, i, 1)) {
            step = 6;
            with = "\\ufffd";
            lone++;
        }
        if (out)
            vl_buf_add(out, with, step);
    }
    return lone;
}

void vl_view_compact(struct vl_buf *out, const char *s, size_t n)
{
    int in_string = 0;

    vl_buf_reserve(out, n);
    for (size_t i = 0; i < n; i++) {
        if (in_string && s[i] == '\\') {
            vl_buf_ch(out, s[i++]);
        } else if (s[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && strchr(" \t\r\n", s[i])) {
            continue;
        }
        vl_buf_ch(out, s[i]);
    }
}

static void put_text(struct vl_buf *out, const char *p, size_t n, int *lossy)
{
    struct vl_buf compact = { 0 };

    if (!memchr(p, '\\', n) || !replace_lone(NULL, p, n)) {
        vl_view_compact(out, p, n);
        return;
    }
    vl_view_compact(&compact, p, n);
    replace_lone(out, compact.s, compact.n);
    vl_buf_free(&compact);
    if (lossy)
        *lossy = 1;
}

int vl_view_value(struct vl_buf *out, const struct vl_col *c, int64_t row, int *lossy,
                  struct vl_err *e)
{
    size_t n;
    const void *p = vl_col_row(c, row, &n);

    if (lossy)
        *lossy = 0;
    if (c->kind == VL_COL_JSON) {
        struct vl_json j = { 0 };
        int rc = vl_json_parse(&j, p, n, c->name, e);

        vl_json_free(&j);
        if (rc)
            return vl_err_prefix(e, "row %" PRId64, row);
        put_text(out, p, n, lossy);
    } else if (c->kind == VL_COL_RAGGED) {
        int64_t dim[VL_MAX_DIMS];

        memcpy(dim, c->shape, sizeof dim);
        dim[0] = c->offsets[row + 1] - c->offsets[row];
        put_nested(out, c->dtype, c->ndim, dim, p);
    } else {
        put_nested(out, c->dtype, c->ndim - 1, c->shape + 1, p);
    }
    return 0;
}

/* ---- text of token ids ---- */

/* Ids of one row that are not padding: by the mask column's part that lies over them. */
static size_t real_ids(const struct vl_batch *b, const struct vl_col *ids, int64_t row, int right,
                       int64_t *out)
{
    const struct vl_col *m = vl_batch_col(b, "attention_mask");
    int64_t W = ids->shape[1];
    const int64_t *id = (const int64_t *)ids->data + row * W, *mask = NULL;
    size_t n = 0;

    if (m && m->kind == VL_COL_TENSOR && m->dtype == VL_I64 && m->ndim == 2 && m->shape[1] >= W)
        mask = (const int64_t *)m->data + row * m->shape[1] + (right ? m->shape[1] - W : 0);
    for (int64_t k = 0; k < W; k++)
        if (!mask || mask[k])
            out[n++] = id[k];
    return n;
}

static const struct vl_col *ids_column(const struct vl_batch *b, const char *name)
{
    const struct vl_col *c = vl_batch_col(b, name);

    return c && c->kind == VL_COL_TENSOR && c->dtype == VL_I64 && c->ndim == 2 ? c : NULL;
}

static void put_name(struct vl_buf *out, const char *name, const char *suffix)
{
    struct vl_buf full = { 0 };

    vl_buf_printf(&full, "%s%s", name, suffix);
    vl_buf_str(out, out->n && out->s[out->n - 1] != '{' ? "," : "");
    vl_json_put_str(out, full.s, full.n);
    vl_buf_ch(out, ':');
    vl_buf_free(&full);
}

static void put_b64(struct vl_buf *out, const char *name, const void *p, size_t n)
{
    put_name(out, name, "_b64");
    vl_buf_ch(out, '"');
    vl_base64_put(out, p, n);
    vl_buf_ch(out, '"');
}

int vl_view_is_text(const char *name)
{
    return !strcmp(name, "prompt_text") || !strcmp(name, "response_text") ||
           !strcmp(name, "prompt_tokens") || !strcmp(name, "response_tokens");
}

/* Adds one of the views; nothing when the batch has no such ids. */
static void put_decoded(struct vl_buf *out, const struct vl_batch *b, int64_t row, const char *name,
                        const struct vl_view_text *text)
{
    int right = strncmp(name, "response", 8) == 0;
    const struct vl_col *c = ids_column(b, right ? "responses" : "prompts");
    struct vl_buf t = { 0 };
    int64_t *ids;
    size_t n;

    if (!c)
        return;
    ids = vl_alloc((size_t)c->shape[1] * sizeof *ids);
    n = real_ids(b, c, row, right, ids);
    put_name(out, name, "");
    if (strstr(name, "_tokens")) {
        text->pieces(text->arg, ids, n, out);
        free(ids);
        return;
    }
    text->decode(text->arg, ids, n, &t);
    if (vl_json_put_str(out, t.s ? t.s : "", t.n))
        put_b64(out, name, t.s, t.n);
    vl_buf_free(&t);
    free(ids);
}

/* ---- rows ---- */

static int put_column(struct vl_buf *out, const struct vl_batch *b, int64_t row,
                      const struct vl_col *c, struct vl_err *e)
{
    int lossy;

    (void)b;
    put_name(out, c->name, "");
    if (vl_view_value(out, c, row, &lossy, e))
        return e->code;
    if (lossy) {
        size_t n;
        const char *p = vl_col_json(c, row, &n);

        put_b64(out, c->name, p, n);
    }
    return 0;
}

int vl_view_row(struct vl_buf *out, const struct vl_batch *b, int64_t row,
                const char *const *columns, const struct vl_view_text *text, struct vl_err *e)
{
    size_t at = out->n;

    vl_buf_ch(out, '{');
    for (size_t i = 0; columns ? columns[i] != NULL : i < b->ncol; i++) {
        const struct vl_col *c = columns ? vl_batch_col(b, columns[i]) : b->col[i];
        int rc = 0;

        if (c)
            rc = put_column(out, b, row, c, e);
        else if (text && vl_view_is_text(columns[i]))
            put_decoded(out, b, row, columns[i], text);
        else
            rc = vl_batch_missing(b, "dump", columns[i], e);
        if (rc) {
            out->n = at;
            return rc;
        }
    }
    if (!columns && text) {
        if (!vl_batch_col(b, "prompt_text"))
            put_decoded(out, b, row, "prompt_text", text);
        if (!vl_batch_col(b, "response_text"))
            put_decoded(out, b, row, "response_text", text);
    }
    vl_buf_ch(out, '}');
    return 0;
}

/* ---- the whole ---- */

void vl_view_meta(struct vl_buf *out, const struct vl_batch *b)
{
    vl_buf_ch(out, '{');
    for (size_t i = 0; i < b->nmeta; i++) {
        put_name(out, b->meta[i].key, "");
        vl_view_compact(out, b->meta[i].json, strlen(b->meta[i].json));
    }
    vl_buf_ch(out, '}');
}

void vl_view_schema(struct vl_buf *out, const struct vl_batch *b)
{
    static const char *const kind[] = { "tensor", "ragged", "json" };

    vl_buf_printf(out, "{\"rows\":%" PRId64 ",\"batch_size\":", b->rows);
    if (b->has_batch)
        vl_buf_printf(out, "%" PRId64, b->rows);
    else
        vl_buf_str(out, "null");
    if (b->nparent == 1)
        vl_buf_printf(out, ",\"hash\":\"%s\"", b->parent[0]);
    vl_buf_str(out, ",\"columns\":[");
    for (size_t i = 0; i < b->ncol; i++) {
        const struct vl_col *c = b->col[i];
        uint64_t bytes = vl_dtype_size(c->dtype);

        vl_buf_str(out, i ? ",{\"name\":" : "{\"name\":");
        vl_json_put_str(out, c->name, strlen(c->name));
        vl_buf_printf(out, ",\"kind\":\"%s\",\"dtype\":\"%s\",\"shape\":[", kind[c->kind],
                      c->kind == VL_COL_JSON ? "json" : vl_dtype_name(c->dtype));
        for (int d = 0; d < c->ndim; d++) {
            bytes *= (uint64_t)c->shape[d];
            if (d == 0 && c->kind != VL_COL_TENSOR)
                vl_buf_printf(out, "%" PRId64, b->rows);
            else
                vl_buf_printf(out, "%s%" PRId64, d ? "," : "", c->shape[d]);
            if (d == 0 && c->kind == VL_COL_RAGGED)
                vl_buf_str(out, ",null");
        }
        vl_buf_printf(out, "],\"bytes\":%" PRIu64 "}", bytes);
    }
    vl_buf_str(out, "],\"meta_info\":");
    vl_view_meta(out, b);
    vl_buf_ch(out, '}');
}
