/* gguf_value.c - values of a parsed GGUF file by key. See gguf.h. */
#include "formats/gguf.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    int size; /* 0: not fixed */
} types[] = {
    [VL_GGUF_U8] = { "U8", 1 },         [VL_GGUF_I8] = { "I8", 1 },
    [VL_GGUF_U16] = { "U16", 2 },       [VL_GGUF_I16] = { "I16", 2 },
    [VL_GGUF_U32] = { "U32", 4 },       [VL_GGUF_I32] = { "I32", 4 },
    [VL_GGUF_F32] = { "F32", 4 },       [VL_GGUF_BOOL] = { "BOOL", 1 },
    [VL_GGUF_STRING] = { "STRING", 0 }, [VL_GGUF_ARRAY] = { "ARRAY", 0 },
    [VL_GGUF_U64] = { "U64", 8 },       [VL_GGUF_I64] = { "I64", 8 },
    [VL_GGUF_F64] = { "F64", 8 },
};

int vl_gguf_type_size(enum vl_gguf_type type)
{
    return types[type].size;
}

static int wrong(const struct vl_gguf *g, const struct vl_gguf_key *k, const char *want,
                 struct vl_err *e)
{
    return vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": %.200s is %s%s; expected %s", g->name,
                   k->at, k->name, k->is_array ? "an array of " : "", types[k->type].name, want);
}

/* An integer value; 0 when it is none or does not fit. */
static int integer(const struct vl_gguf *g, const struct vl_gguf_key *k, int64_t *out)
{
    int size = types[k->type].size;
    int is_signed = k->type == VL_GGUF_I8 || k->type == VL_GGUF_I16 || k->type == VL_GGUF_I32 ||
                    k->type == VL_GGUF_I64;
    uint64_t u = 0;

    if (k->is_array || k->type == VL_GGUF_STRING || k->type == VL_GGUF_BOOL ||
        k->type == VL_GGUF_F32 || k->type == VL_GGUF_F64)
        return 0;
    memcpy(&u, g->data + k->at, (size_t)size);
    if (is_signed && size < 8 && u >> (8 * size - 1))
        u |= UINT64_MAX << 8 * size;
    if (!is_signed && u > INT64_MAX)
        return 0;
    *out = (int64_t)u;
    return 1;
}

int vl_gguf_i64(const struct vl_gguf *g, const char *name, int64_t *out, struct vl_err *e)
{
    const struct vl_gguf_key *k = vl_gguf_find(g, name);

    return !k || integer(g, k, out) ? 0 : wrong(g, k, "an integer", e);
}

int vl_gguf_f64(const struct vl_gguf *g, const char *name, double *out, struct vl_err *e)
{
    const struct vl_gguf_key *k = vl_gguf_find(g, name);
    int64_t i;
    float f;

    if (!k)
        return 0;
    if (!k->is_array && k->type == VL_GGUF_F32) {
        memcpy(&f, g->data + k->at, sizeof f);
        *out = (double)f;
    } else if (!k->is_array && k->type == VL_GGUF_F64) {
        memcpy(out, g->data + k->at, sizeof *out);
    } else if (integer(g, k, &i)) {
        *out = (double)i;
    } else {
        return wrong(g, k, "a number", e);
    }
    return 0;
}

int vl_gguf_bool(const struct vl_gguf *g, const char *name, int *out, struct vl_err *e)
{
    const struct vl_gguf_key *k = vl_gguf_find(g, name);

    if (!k)
        return 0;
    if (k->is_array || k->type != VL_GGUF_BOOL)
        return wrong(g, k, "BOOL", e);
    if (g->data[k->at] > 1)
        return vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": %.200s is %d; expected 0 or 1", g->name,
                       k->at, name, g->data[k->at]);
    *out = g->data[k->at];
    return 0;
}

uint64_t vl_gguf_str_at(const struct vl_gguf *g, uint64_t at, const char **s, size_t *n)
{
    uint64_t len;

    memcpy(&len, g->data + at, sizeof len);
    *s = (const char *)g->data + at + 8;
    *n = (size_t)len;
    return at + 8 + len;
}

int vl_gguf_str(const struct vl_gguf *g, const char *name, const char **out, size_t *n,
                struct vl_err *e)
{
    const struct vl_gguf_key *k = vl_gguf_find(g, name);

    if (!k)
        return 0;
    if (k->is_array || k->type != VL_GGUF_STRING)
        return wrong(g, k, "STRING", e);
    (void)vl_gguf_str_at(g, k->at, out, n);
    return 0;
}

int vl_gguf_array(const struct vl_gguf *g, const char *name, enum vl_gguf_type type,
                  const struct vl_gguf_key **out, struct vl_err *e)
{
    const struct vl_gguf_key *k = vl_gguf_find(g, name);
    char want[32] = "an array of ";

    *out = NULL;
    if (k && (!k->is_array || k->type != type))
        return wrong(g, k, strcat(want, types[type].name), e);
    *out = k;
    return 0;
}
