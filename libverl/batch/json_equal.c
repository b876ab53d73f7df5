/* json_equal.c - whether two JSON values are equal, as Python would say. See ops.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/batch/ops.h"

static int is_integer(const struct vl_json *j, uint32_t i)
{
    for (size_t k = 0; k < j->node[i].len; k++)
        if (strchr(".eE", j->text[j->node[i].at + k]))
            return 0;
    return 1;
}

static int same_number(const struct vl_json *a, uint32_t i, const struct vl_json *b, uint32_t k)
{
    const struct vl_json_node *x = &a->node[i], *y = &b->node[k];
    double u, v;

    if (x->len == y->len && memcmp(a->text + x->at, b->text + y->at, x->len) == 0)
        return 1;
    if (!vl_json_f64(a, i, &u) || !vl_json_f64(b, k, &v) || u != v)
        return 0;
    /* different texts of one double: two long integers may still differ */
    return !(is_integer(a, i) && is_integer(b, k)) || fabs(u) < 9007199254740992.0;
}

static int same_string(const struct vl_json *a, uint32_t i, const struct vl_json *b, uint32_t k)
{
    struct vl_buf x = { 0 }, y = { 0 };
    int same;

    if (!a->node[i].escaped && !b->node[k].escaped)
        return a->node[i].len == b->node[k].len &&
               memcmp(a->text + a->node[i].at, b->text + b->node[k].at, a->node[i].len) == 0;
    vl_json_str(a, i, &x);
    vl_json_str(b, k, &y);
    same = x.n == y.n && (x.n == 0 || memcmp(x.s, y.s, x.n) == 0);
    vl_buf_free(&x);
    vl_buf_free(&y);
    return same;
}

static int same(const struct vl_json *a, uint32_t i, const struct vl_json *b, uint32_t k);

/* The counts agree; a key that is there twice could still hide one that only b has. */
static int same_object(const struct vl_json *a, uint32_t i, const struct vl_json *b, uint32_t k)
{
    uint32_t m = i + 1;

    for (uint32_t c = 0; c < a->node[i].count; c++) {
        uint32_t v = a->node[m].next;
        int64_t w = vl_json_get_as(b, k, a, m);

        if (w < 0 || !same(a, v, b, (uint32_t)w))
            return 0;
        m = a->node[v].next;
    }
    m = k + 1;
    for (uint32_t c = 0; c < b->node[k].count; c++) {
        if (vl_json_get_as(a, i, b, m) < 0)
            return 0;
        m = b->node[b->node[m].next].next;
    }
    return 1;
}

/* Depth is limited by the scanner. */
static int same(const struct vl_json *a, uint32_t i, const struct vl_json *b, uint32_t k)
{
    uint32_t m = i + 1, w = k + 1;

    if (a->node[i].type != b->node[k].type)
        return 0;
    switch ((enum vl_json_type)a->node[i].type) {
    case VL_JSON_NUMBER:
        return same_number(a, i, b, k);
    case VL_JSON_STRING:
        return same_string(a, i, b, k);
    case VL_JSON_ARRAY:
        if (a->node[i].count != b->node[k].count)
            return 0;
        for (uint32_t c = 0; c < a->node[i].count; c++) {
            if (!same(a, m, b, w))
                return 0;
            m = a->node[m].next;
            w = b->node[w].next;
        }
        return 1;
    case VL_JSON_OBJECT:
        return a->node[i].count == b->node[k].count && same_object(a, i, b, k);
    default:
        return 1;
    }
}

int vl_json_equal(const char *a, size_t na, const char *b, size_t nb, int strict)
{
    struct vl_json x = { 0 }, y = { 0 };
    struct vl_err e = { 0 };
    int eq;

    if (na == nb && (na == 0 || memcmp(a, b, na) == 0))
        return 1;
    eq = vl_json_parse(&x, a, na, "", &e) == 0 && vl_json_parse(&y, b, nb, "", &e) == 0 &&
         same(&x, 0, &y, 0);
    if (eq && strict && vl_json_is(&x, 0, VL_JSON_NUMBER))
        eq = is_integer(&x, 0) == is_integer(&y, 0);
    vl_json_free(&x);
    vl_json_free(&y);
    return eq;
}
