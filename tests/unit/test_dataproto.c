/* test_dataproto.c - verl's DataProto cases, one test each, numbered as in its protocol tests' list.
 *
 * mk(n) is the tensor a = 0..n-1 and the JSON column s = "a", "b", ... Where a case says "differs",
 * verl is known to lose something there and we refuse or keep it: formats/dataproto.md, section 5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/view.h"

static struct vl_err e;

static void must(int rc)
{
    if (rc)
        fail_msg("status %d: %s", rc, e.msg);
}

/* The call failed with `code` and a line that has `part` in it. */
static void fails(int rc, int code, const char *part)
{
    assert_int_equal(rc, code);
    assert_int_equal(e.code, code);
    if (!strstr(e.msg, part))
        fail_msg("'%s' does not say '%s'", e.msg, part);
    e = (struct vl_err){ 0 };
}

/* JSON column from a list text: one row an element. */
static void add_json(struct vl_batch *b, const char *name, const char *list)
{
    struct vl_json j = { 0 };
    struct vl_buf t = { 0 };
    int64_t *off;
    uint32_t k = 1;

    must(vl_json_parse(&j, list, strlen(list), name, &e));
    off = vl_alloc((j.node[0].count + 1) * sizeof *off);
    for (uint32_t i = 0; i < j.node[0].count; i++, k = j.node[k].next) {
        vl_json_raw(&j, k, &t);
        off[i + 1] = (int64_t)t.n;
    }
    if (!b->ncol && !b->has_batch)
        b->rows = j.node[0].count;
    vl_json_free(&j);
    vl_batch_add_json(b, name, vl_buf_detach(&t), off);
}

static void add_i64(struct vl_batch *b, const char *name, int64_t n, const int64_t *x)
{
    struct vl_col *c;

    b->rows = n;
    must(vl_batch_add_tensor(b, name, VL_I64, 0, NULL, &c, &e));
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)c->data)[i] = x[i];
}

static void add_f32(struct vl_batch *b, const char *name, int64_t n, const float *x)
{
    struct vl_col *c;

    b->rows = n;
    must(vl_batch_add_tensor(b, name, VL_F32, 0, NULL, &c, &e));
    memcpy(c->data, x, (size_t)n * sizeof *x);
}

static struct vl_batch mk(int64_t n)
{
    static const int64_t count[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    struct vl_batch b = { 0 };
    struct vl_buf t = { 0 };

    add_i64(&b, "a", n, count);
    vl_buf_ch(&t, '[');
    for (int64_t i = 0; i < n; i++)
        vl_buf_printf(&t, "%s\"%c\"", i ? "," : "", 'a' + (int)i);
    vl_buf_ch(&t, ']');
    add_json(&b, "s", t.s);
    vl_buf_free(&t);
    return b;
}

/* Columns as text: "name=[v,v] name=[...]", then " meta k=v". */
static char *text_of(const struct vl_batch *b)
{
    struct vl_buf t = { 0 };

    for (size_t i = 0; i < b->ncol; i++) {
        vl_buf_printf(&t, "%s%s=[", i ? " " : "", b->col[i]->name);
        for (int64_t r = 0; r < b->rows; r++) {
            vl_buf_str(&t, r ? "," : "");
            must(vl_view_value(&t, b->col[i], r, NULL, &e));
        }
        vl_buf_ch(&t, ']');
    }
    for (size_t i = 0; i < b->nmeta; i++)
        vl_buf_printf(&t, " meta %s=%s", b->meta[i].key, b->meta[i].json);
    return vl_buf_detach(&t);
}

/* The batch is exactly this text; frees it. */
static void is(struct vl_batch *b, const char *text)
{
    char *t = text_of(b);

    assert_string_equal(t, text);
    must(vl_batch_check(b, &e));
    free(t);
    vl_batch_free(b);
}

#define OP(call)                                                                                   \
    do {                                                                                           \
        struct vl_batch out = { 0 };                                                               \
        must(call);                                                                                \
        vl_batch_free(&in);                                                                        \
        in = out;                                                                                  \
    } while (0)

#define CASE(n) static void case_##n(void **state __attribute__((unused)))

/* ---- construction ---- */

CASE(01)
{
    struct vl_batch b = { 0 };

    add_i64(&b, "a", 2, (const int64_t[]){ 1, 2 });
    add_json(&b, "s", "[\"x\",\"y\"]");
    assert_int_equal(b.nmeta, 0);
    is(&b, "a=[1,2] s=[\"x\",\"y\"]");
}

CASE(02) /* a list that is neither tensor nor array: here a list of rows is a JSON column */
{
    struct vl_batch b = { 0 };

    add_json(&b, "a", "[1,2]");
    assert_int_equal(b.has_batch, 0);
    is(&b, "a=[1,2]");
}

CASE(03)
{
    struct vl_batch b = { 0 };

    vl_meta_set(&b, "m", "1");
    assert_int_equal(b.has_batch, 0);
    assert_int_equal(b.rows, 0);
    is(&b, " meta m=1");
}

CASE(04)
{
    struct vl_batch b = { 0 };

    add_i64(&b, "a", 2, (const int64_t[]){ 1, 2 });
    add_i64(&b, "b", 3, (const int64_t[]){ 1, 2, 3 });
    fails(vl_batch_check(&b, &e), VL_E_DATA, "column a: leading dimension is 2");
    vl_batch_free(&b);
}

CASE(05)
{
    struct vl_batch b = { 0 };
    int64_t *off = vl_alloc(3 * sizeof *off);

    add_i64(&b, "a", 2, (const int64_t[]){ 1, 2 });
    off[1] = off[2] = 1;
    vl_batch_add_json(&b, "s", vl_strdup("1"), off);
    off[1] = 2; /* a column of one row has one offset too few: its rows do not end in order */
    fails(vl_batch_check(&b, &e), VL_E_DATA, "column s");
    vl_batch_free(&b);
}

CASE(
    06) /* differs: lengths of JSON columns are compared without tensors too (test_dp.c, reading) */
{
    struct vl_batch b = { 0 };

    add_json(&b, "s", "[1,2]");
    assert_int_equal(b.rows, 2);
    vl_batch_free(&b);
}

CASE(07)
{
    struct vl_batch b = mk(2);

    assert_int_equal(vl_batch_auto_padding(&b), 0);
    vl_meta_set(&b, "_verl_auto_padding", "true");
    assert_int_equal(vl_batch_auto_padding(&b), 1);
    vl_batch_free(&b);
}

/* ---- indexing ---- */

static void take(int64_t rows, const int64_t *idx, int64_t n, const char *want)
{
    struct vl_batch in = mk(rows);

    OP(vl_batch_take(&out, &in, idx, n, &e));
    is(&in, want);
}

static void slice(int64_t rows, int64_t a, int64_t b, int64_t c, const char *want)
{
    struct vl_batch in = mk(rows);

    OP(vl_batch_slice(&out, &in, a, b, c, &e));
    is(&in, want);
}

#define NONE VL_SLICE_NONE

CASE(08)
{
    take(4, (const int64_t[]){ -1 }, 1, "a=[3] s=[\"d\"]");
}

CASE(09)
{
    slice(4, 1, 3, NONE, "a=[1,2] s=[\"b\",\"c\"]");
}

CASE(10)
{
    slice(4, NONE, NONE, 2, "a=[0,2] s=[\"a\",\"c\"]");
    slice(4, NONE, NONE, -1, "a=[3,2,1,0] s=[\"d\",\"c\",\"b\",\"a\"]");
    slice(4, -1, NONE, -2, "a=[3,1] s=[\"d\",\"b\"]");
    slice(4, 2, -10, -1, "a=[2,1,0] s=[\"c\",\"b\",\"a\"]");
    slice(4, NONE, NONE, INT64_MIN + 1, "a=[3] s=[\"d\"]");
    slice(4, NONE, NONE, INT64_MAX, "a=[0] s=[\"a\"]");
}

CASE(11)
{
    slice(4, 3, 10, NONE, "a=[3] s=[\"d\"]");
    slice(4, 10, 20, NONE, "a=[] s=[]");
    slice(4, -2, NONE, NONE, "a=[2,3] s=[\"c\",\"d\"]");
}

CASE(12)
{
    take(4, (const int64_t[]){ 3, 0, 3 }, 3, "a=[3,0,3] s=[\"d\",\"a\",\"d\"]");
}

CASE(13)
{
    struct vl_batch in = mk(4);

    OP(vl_batch_mask(&out, &in, (const uint8_t[]){ 1, 0, 1, 0 }, &e));
    is(&in, "a=[0,2] s=[\"a\",\"c\"]");
}

CASE(14)
{
    take(4, (const int64_t[]){ -1, 0 }, 2, "a=[3,0] s=[\"d\",\"a\"]");
}

CASE(15)
{
    take(4, NULL, 0, "a=[] s=[]");
}

CASE(16) /* no tuples here; what is outside is refused */
{
    struct vl_batch b = mk(4), out = { 0 };

    fails(vl_batch_take(&out, &b, (const int64_t[]){ 4 }, 1, &e), VL_E_USAGE, "row 4 is outside");
    fails(vl_batch_take(&out, &b, (const int64_t[]){ -5 }, 1, &e), VL_E_USAGE, "row -5 is outside");
    fails(vl_batch_slice(&out, &b, 0, 1, 0, &e), VL_E_USAGE, "step");
    vl_batch_free(&b);
}

/* ---- union ---- */

/* union of x and y gives `want`, or an error with it in the line, and then x is unchanged */
static void unite(struct vl_batch x, struct vl_batch y, int code, const char *want)
{
    char *before = text_of(&x), *after;
    int rc = vl_batch_union(&x, &y, &e);

    vl_batch_free(&y);
    if (!code) {
        must(rc);
        free(before);
        is(&x, want);
        return;
    }
    fails(rc, code, want);
    after = text_of(&x);
    assert_string_equal(before, after);
    free(before);
    free(after);
    vl_batch_free(&x);
}

static struct vl_batch with_meta(struct vl_batch b, const char *key, const char *json)
{
    vl_meta_set(&b, key, json);
    return b;
}

static struct vl_batch tensor_and(const char *name, const char *list)
{
    struct vl_batch b = { 0 };

    add_i64(&b, "a", 1, (const int64_t[]){ 0 });
    add_json(&b, name, list);
    return b;
}

CASE(17)
{
    struct vl_batch y = { 0 };

    add_i64(&y, "b", 2, (const int64_t[]){ 7, 8 });
    vl_meta_set(&y, "t", "1.0");
    unite(mk(2), y, 0, "a=[0,1] s=[\"a\",\"b\"] b=[7,8] meta t=1.0");
}

CASE(18)
{
    unite(mk(2), mk(2), 0, "a=[0,1] s=[\"a\",\"b\"]");
}

CASE(19) /* and atomic: the new column b of the second must not stay */
{
    struct vl_batch y = { 0 };

    add_i64(&y, "b", 2, (const int64_t[]){ 5, 5 });
    add_i64(&y, "a", 2, (const int64_t[]){ 0, 9 });
    unite(mk(2), y, VL_E_DATA, "column a differs at row 1");
}

CASE(20)
{
    struct vl_batch x = { 0 }, y = { 0 };

    add_f32(&x, "f", 1, (const float[]){ NAN });
    add_f32(&y, "f", 1, (const float[]){ NAN });
    unite(x, y, VL_E_DATA, "column f differs at row 0");
    x = y = (struct vl_batch){ 0 };
    add_f32(&x, "f", 1, (const float[]){ 0.0f });
    add_f32(&y, "f", 1, (const float[]){ -0.0f });
    unite(x, y, 0, "f=[-0]");
    x = y = (struct vl_batch){ 0 };
    add_f32(&x, "f", 1, (const float[]){ 1 }); /* a strict dtype: verl took int 1 for float 1 */
    add_i64(&y, "f", 1, (const int64_t[]){ 1 });
    unite(x, y, VL_E_DATA, "column f: dense F32");
}

CASE(21)
{
    unite(tensor_and("n", "[\"NaN\"]"), tensor_and("n", "[\"NaN\"]"), 0, "a=[0] n=[\"NaN\"]");
}

CASE(22)
{
    unite(tensor_and("n", "[[1,\"NaN\"]]"), tensor_and("n", "[[1,\"NaN\"]]"), 0,
          "a=[0] n=[[1,\"NaN\"]]");
}

CASE(23)
{
    unite(tensor_and("n", "[1]"), tensor_and("n", "[1.0]"), VL_E_DATA, "column n differs at row 0");
    unite(tensor_and("n", "[{\"x\":1,\"x\":1}]"), tensor_and("n", "[{\"x\":1,\"y\":2}]"), VL_E_DATA,
          "column n differs at row 0");
    unite(tensor_and("n", "[{\"x\\u0000y\":1}]"), tensor_and("n", "[{\"x\":1}]"), VL_E_DATA,
          "column n differs at row 0");
    unite(tensor_and("n", "[{\"x\":1,\"y\":2}]"), tensor_and("n", "[{\"y\":2,\"x\":1}]"), 0,
          "a=[0] n=[{\"y\":2,\"x\":1}]");
}

CASE(24)
{
    unite(with_meta(mk(1), "k", "1"), with_meta(mk(1), "k", "1.0"), 0,
          "a=[0] s=[\"a\"] meta k=1.0");
}

CASE(25)
{
    unite(with_meta(mk(1), "k", "1"), with_meta(mk(1), "k", "2"), VL_E_DATA, "meta_info key k");
}

CASE(26)
{
    unite(mk(2), mk(3), VL_E_DATA, "2 rows in the first, 3");
}

CASE(27)
{
    struct vl_batch y = { 0 };

    unite(mk(2), y, VL_E_DATA, "absent");
}

/* ---- repeating ---- */

CASE(28)
{
    struct vl_batch in = mk(2);

    OP(vl_batch_repeat(&out, &in, 2, 1, &e));
    is(&in, "a=[0,0,1,1] s=[\"a\",\"a\",\"b\",\"b\"]");
    in = mk(2);
    OP(vl_batch_repeat(&out, &in, 0, 1, &e));
    is(&in, "a=[] s=[]");
}

CASE(29)
{
    struct vl_batch in = mk(2);

    OP(vl_batch_repeat(&out, &in, 2, 0, &e));
    is(&in, "a=[0,1,0,1] s=[\"a\",\"b\",\"a\",\"b\"]");
}

CASE(30)
{
    struct vl_batch in = { 0 };

    add_json(&in, "o", "[[1,2],[3,4]]");
    OP(vl_batch_repeat(&out, &in, 2, 0, &e));
    is(&in, "o=[[1,2],[3,4],[1,2],[3,4]]");
}

CASE(31)
{
    struct vl_batch in = mk(3);

    OP(vl_batch_repeat_counts(&out, &in, (const int64_t[]){ 2, 0, 1 }, 3, &e));
    is(&in, "a=[0,0,2] s=[\"a\",\"a\",\"c\"]");
}

CASE(32)
{
    struct vl_batch b = mk(3), out = { 0 };

    fails(vl_batch_repeat_counts(&out, &b, (const int64_t[]){ 2, 1 }, 2, &e), VL_E_USAGE,
          "2 repeat counts for 3 rows");
    vl_batch_free(&b);
}

/* ---- chunk and split ---- */

/* sizes of the n pieces of b as text; frees b */
static void chunks(struct vl_batch b, int64_t n, int automatic, const char *want)
{
    int64_t first[20];
    struct vl_buf t = { 0 };

    must(vl_batch_chunk(&b, n, automatic, first, &e));
    for (int64_t k = 0; k < n; k++)
        vl_buf_printf(&t, "%s%lld", k ? "," : "", (long long)(first[k + 1] - first[k]));
    assert_string_equal(t.s, want);
    assert_int_equal(first[n], b.rows);
    vl_buf_free(&t);
    vl_batch_free(&b);
}

static void chunk_fails(struct vl_batch b, int64_t n, int automatic, const char *part)
{
    int64_t first[20];

    fails(vl_batch_chunk(&b, n, automatic, first, &e), VL_E_USAGE, part);
    vl_batch_free(&b);
}

CASE(33)
{
    struct vl_batch in = mk(4);

    chunks(mk(4), 2, 0, "2,2");
    OP(vl_batch_rows(&out, &in, 2, 2, &e));
    is(&in, "a=[2,3] s=[\"c\",\"d\"]");
}

CASE(34)
{
    chunk_fails(mk(5), 2, 0, "do not divide");
}

CASE(35)
{
    chunks(mk(5), 2, 1, "3,2");
    chunks(mk(5), 3, 1, "2,2,1");
}

CASE(36)
{
    chunks(mk(10), 4, 1, "3,3,3,1");
}

CASE(37)
{
    chunk_fails(mk(5), 4, 1, "fewer than 4");
}

CASE(38)
{
    struct vl_batch b = { 0 };

    add_json(&b, "o", "[1,2,3,4,5]");
    chunks(b, 2, 1, "3,2");
}

CASE(39) /* split is slices; verl-batch split is tested in t1040 */
{
    slice(5, 4, 6, NONE, "a=[4] s=[\"e\"]");
}

/* ---- concat ---- */

static void concat(struct vl_batch x, struct vl_batch y, int code, const char *want)
{
    const struct vl_batch *part[] = { &x, &y };
    struct vl_batch out = { 0 };
    int rc = vl_batch_concat(&out, part, 2, &e);

    if (code)
        fails(rc, code, want);
    else
        must(rc);
    vl_batch_free(&x);
    vl_batch_free(&y);
    if (!code)
        is(&out, want);
}

CASE(40)
{
    concat(with_meta(mk(2), "k", "1"), with_meta(with_meta(mk(1), "k", "1"), "j", "2"), 0,
           "a=[0,1,0] s=[\"a\",\"b\",\"a\"] meta k=1 meta j=2");
}

CASE(41)
{
    concat(with_meta(mk(1), "k", "1"), with_meta(mk(1), "k", "2"), VL_E_DATA,
           "conflicting values for meta_info key k");
}

static void metrics(const char *x, const char *y, const char *z, const char *want)
{
    struct vl_batch b[3] = { mk(1), mk(1), mk(1) }, out = { 0 };
    const struct vl_batch *part[] = { &b[0], &b[1], &b[2] };
    const char *text[] = { x, y, z };

    for (int i = 0; i < 3; i++)
        if (text[i])
            vl_meta_set(&b[i], "metrics", text[i]);
    must(vl_batch_concat(&out, part, 3, &e));
    if (want)
        assert_string_equal(vl_meta_get(&out, "metrics"), want);
    else
        assert_null(vl_meta_get(&out, "metrics"));
    for (int i = 0; i < 3; i++)
        vl_batch_free(&b[i]);
    vl_batch_free(&out);
}

CASE(42)
{
    metrics("{\"l\":0.1}", "{\"l\":0.3}", NULL, "{\"l\":[0.1,0.3]}");
}

CASE(43)
{
    metrics("[{\"l\":1},{\"l\":2}]", "[{\"l\":3}]", NULL, "{\"l\":[1,2,3]}");
}

CASE(44)
{
    metrics("null", NULL, "{\"l\":5}", "{\"l\":[5]}");
    metrics(NULL, NULL, NULL, NULL);
}

CASE(45)
{
    metrics("{\"l\":[1,2]}", "{\"l\":[3]}", NULL, "{\"l\":[[1,2],[3]]}");
}

CASE(46) /* differs: the union of names, where verl fails or drops */
{
    metrics("{\"l\":1}", "{\"l\":2,\"z\":1}", NULL, "{\"l\":[1,2],\"z\":[1]}");
    metrics("{\"l\":2,\"z\":1}", "{\"l\":1}", NULL, "{\"l\":[2,1],\"z\":[1]}");
}

CASE(47)
{
    struct vl_batch y = { 0 };

    add_i64(&y, "a", 1, (const int64_t[]){ 4 });
    concat(mk(1), y, VL_E_DATA, "column s of part 0 is not in part 1");
}

CASE(48)
{
    struct vl_batch y = mk(1);

    add_json(&y, "extra", "[1]");
    concat(mk(1), y, VL_E_DATA, "column extra of part 1 is not in part 0");
}

CASE(49)
{
    struct vl_batch out = { 0 };

    fails(vl_batch_concat(&out, NULL, 0, &e), VL_E_USAGE, "nothing to join");
}

/* ---- columns ---- */

CASE(50)
{
    take(3, (const int64_t[]){ 2, 0, 1 }, 3, "a=[2,0,1] s=[\"c\",\"a\",\"b\"]");
}

CASE(51)
{
    struct vl_batch b = mk(2);

    must(vl_batch_rename(&b, (const char *const[]){ "a" }, (const char *const[]){ "z" }, 1, &e));
    is(&b, "z=[0,1] s=[\"a\",\"b\"]");
}

CASE(52) /* pairs cannot differ in number here; a name used twice can */
{
    struct vl_batch b = mk(1);
    const char *const from[] = { "a", "s" };

    fails(vl_batch_rename(&b, from, (const char *const[]){ "x", "x" }, 2, &e), VL_E_USAGE, "twice");
    fails(vl_batch_rename(&b, from, (const char *const[]){ "s" }, 1, &e), VL_E_USAGE, "already");
    must(vl_batch_rename(&b, from, (const char *const[]){ "s", "a" }, 2, &e)); /* a swap */
    is(&b, "s=[0] a=[\"a\"]");
}

CASE(53)
{
    struct vl_batch in = with_meta(with_meta(mk(2), "k", "1"), "j", "2"), out = { 0 };

    must(vl_batch_select(&out, &in, (const char *const[]){ "s", NULL },
                         (const char *const[]){ "k", NULL }, &e));
    assert_int_equal(out.has_batch, 1); /* empty, but there */
    assert_int_equal(out.rows, 2);
    vl_batch_free(&in);
    is(&out, "s=[\"a\",\"b\"] meta k=1");
}

CASE(54) /* differs: every missing name is an error */
{
    struct vl_batch b = mk(2), out = { 0 };

    fails(vl_batch_select(&out, &b, (const char *const[]){ "nope", NULL }, NULL, &e), VL_E_DATA,
          "no column nope (there are: a, s)");
    fails(vl_batch_select(&out, &b, NULL, (const char *const[]){ "nope", NULL }, &e), VL_E_DATA,
          "no meta_info key nope");
    vl_batch_free(&b);
}

CASE(55)
{
    struct vl_batch b = with_meta(mk(2), "k", "1"), out = { 0 };

    must(vl_batch_pop(&out, &b, (const char *const[]){ "a", "s", NULL },
                      (const char *const[]){ "k", NULL }, &e));
    assert_int_equal(b.rows, 2);
    assert_int_equal(b.has_batch, 1);
    is(&b, "");
    is(&out, "a=[0,1] s=[\"a\",\"b\"] meta k=1");
}

CASE(56)
{
    struct vl_batch b = mk(2), out = { 0 };

    must(vl_batch_pop(&out, &b, NULL, NULL, &e));
    assert_int_equal(out.has_batch, 0);
    is(&out, "");
    is(&b, "a=[0,1] s=[\"a\",\"b\"]");
}

CASE(57)
{
    struct vl_batch b = mk(2), out = { 0 };

    fails(vl_batch_pop(&out, &b, (const char *const[]){ "a", "zz", NULL }, NULL, &e), VL_E_DATA,
          "no column zz");
    is(&b, "a=[0,1] s=[\"a\",\"b\"]"); /* nothing was taken */
}

/* ---- padding ---- */

static void pad(int64_t rows, int64_t m, int64_t want_pad, const char *want)
{
    struct vl_batch in = mk(rows), back = { 0 };
    char *before = text_of(&in), *after;
    int64_t n = -1;

    OP(vl_batch_pad_divisor(&out, &in, m, &n, &e));
    assert_int_equal(n, want_pad);
    must(vl_batch_unpad(&back, &in, n, &e));
    after = text_of(&back);
    assert_string_equal(before, after);
    free(before);
    free(after);
    vl_batch_free(&back);
    is(&in, want);
}

CASE(58)
{
    pad(5, 4, 3, "a=[0,1,2,3,4,0,1,2] s=[\"a\",\"b\",\"c\",\"d\",\"e\",\"a\",\"b\",\"c\"]");
}

CASE(59)
{
    pad(2, 5, 3, "a=[0,1,0,1,0] s=[\"a\",\"b\",\"a\",\"b\",\"a\"]");
}

CASE(60)
{
    pad(4, 4, 0, "a=[0,1,2,3] s=[\"a\",\"b\",\"c\",\"d\"]");
    pad(1, 4, 3, "a=[0,0,0,0] s=[\"a\",\"a\",\"a\",\"a\"]");
    pad(0, 4, 0, "a=[] s=[]");
}

CASE(61)
{
    struct vl_batch in = mk(3);

    OP(vl_batch_pad(&out, &in, 2, 1, &e));
    is(&in, "a=[0,1,2,0,0] s=[\"a\",\"b\",\"c\",\"a\",\"a\"]");
    in = mk(3);
    OP(vl_batch_pad(&out, &in, 2, 0, &e));
    is(&in, "a=[0,1,2,2,2] s=[\"a\",\"b\",\"c\",\"c\",\"c\"]");
}

/* ---- unfold and fold ---- */

static struct vl_batch wide(void)
{
    struct vl_batch b = { .rows = 2 };
    struct vl_col *c;

    must(vl_batch_add_tensor(&b, "g", VL_I64, 1, (const int64_t[]){ 4 }, &c, &e));
    for (int i = 0; i < 8; i++)
        ((int64_t *)c->data)[i] = i + 1;
    add_i64(&b, "a", 2, (const int64_t[]){ 10, 20 });
    add_json(&b, "s", "[\"x\",\"y\"]");
    return b;
}

CASE(62)
{
    struct vl_batch in = wide();

    OP(vl_batch_unfold(&out, &in, 2, (const char *const[]){ "g", NULL }, &e));
    is(&in, "g=[[1,2],[3,4],[5,6],[7,8]] a=[10,10,20,20] s=[\"x\",\"x\",\"y\",\"y\"]");
}

CASE(63) /* differs: no keys repeats everything, with non-tensors too */
{
    struct vl_batch in = wide(), none = { 0 };

    fails(vl_batch_unfold(&none, &in, 3, (const char *const[]){ "g", NULL }, &e), VL_E_USAGE,
          "divides by 3");
    OP(vl_batch_unfold(&out, &in, 2, NULL, &e));
    is(&in, "g=[[1,2,3,4],[1,2,3,4],[5,6,7,8],[5,6,7,8]] a=[10,10,20,20] "
            "s=[\"x\",\"x\",\"y\",\"y\"]");
}

CASE(64)
{
    struct vl_batch in = mk(4);

    OP(vl_batch_fold(&out, &in, 2, &e));
    {
        struct vl_batch back = { 0 };

        must(vl_batch_unfold_dim(&back, &in, &e));
        is(&back, "a=[0,1,2,3] s=[\"a\",\"b\",\"c\",\"d\"]");
    }
    is(&in, "a=[[0,1],[2,3]] s=[[\"a\",\"b\"],[\"c\",\"d\"]]");
}

/* ---- iteration ---- */

CASE(65)
{
    int64_t order[8];

    must(vl_batch_order(4, 2, 2, 0, 0, order, &e));
    assert_memory_equal(order, ((int64_t[]){ 0, 1, 2, 3, 0, 1, 2, 3 }), sizeof order);
}

CASE(66)
{
    int64_t order[4];

    must(vl_batch_order(4, 2, 1, 0, 1, order, &e));
    assert_memory_equal(order, ((int64_t[]){ 0, 1, 2, 3 }), sizeof order);
}

CASE(
    67) /* differs: our own generator; the requirement is same seed, same order, fresh each epoch */
{
    int64_t x[12], y[12], z[12];
    int sum = 0;

    must(vl_batch_order(6, 2, 2, 1, 1, x, &e));
    must(vl_batch_order(6, 2, 2, 1, 1, y, &e));
    must(vl_batch_order(6, 2, 2, 1, 2, z, &e));
    assert_memory_equal(x, y, sizeof x);
    assert_memory_not_equal(x, z, sizeof x);
    assert_memory_not_equal(x, x + 6, sizeof x / 2);
    for (int i = 0; i < 12; i++)
        sum += 1 << (2 * x[i]);
    assert_int_equal(sum, 2 * 0x555); /* each row once an epoch */
}

CASE(68)
{
    int64_t order[5];

    fails(vl_batch_order(5, 2, 1, 0, 0, order, &e), VL_E_USAGE, "no multiple");
}

/* ---- flat form ---- */

CASE(69) /* the flat form is the file: test_dp.c goes through it and back */
{
    struct vl_batch b = with_meta(mk(2), "k", "1"), copy = { 0 };

    must(vl_batch_clone(&copy, &b, &e));
    vl_batch_free(&b);
    is(&copy, "a=[0,1] s=[\"a\",\"b\"] meta k=1");
}

CASE(70) /* a name is one column; test_dp.c reads a file that has it in both parts */
{
    struct vl_batch b = mk(2);

    add_json(&b, "a", "[\"x\",\"y\"]");
    is(&b, "a=[\"x\",\"y\"] s=[\"a\",\"b\"]");
}

CASE(71)
{
    struct vl_batch b = mk(2);
    static const uint8_t want[16] = { [8] = 1 };

    assert_string_equal(vl_dtype_name(b.col[0]->dtype), "I64");
    assert_int_equal(b.col[0]->bytes, 16);
    assert_memory_equal(b.col[0]->data, want, 16);
    vl_batch_free(&b);
}

CASE(72)
{
    struct vl_batch b = mk(5);

    setenv("VERL_AUTO_PADDING", "True", 1);
    assert_int_equal(vl_batch_auto_padding(&b), 1);
    chunks(mk(5), 2, vl_batch_auto_padding(&b), "3,2");
    unsetenv("VERL_AUTO_PADDING");
    assert_int_equal(vl_batch_auto_padding(&b), 0);
    vl_batch_free(&b);
}

/* ---- what stages do with several inputs ---- */

static struct vl_batch keyed(const char *uids, const int64_t *sample, int64_t n)
{
    struct vl_batch b = { 0 };

    add_i64(&b, "sample", n, sample);
    add_json(&b, "uid", uids);
    return b;
}

static void unite_by_key(void **state)
{
    struct vl_batch x = keyed("[\"p\",\"p\",\"q\"]", (const int64_t[]){ 0, 1, 0 }, 3);
    struct vl_batch y = keyed("[\"q\",\"p\",\"p\"]", (const int64_t[]){ 0, 0, 1 }, 3);
    struct vl_batch z = keyed("[\"q\",\"p\",\"p\"]", (const int64_t[]){ 0, 0, 0 }, 3);
    struct vl_batch w = keyed("[\"q\",\"p\",\"r\"]", (const int64_t[]){ 0, 0, 0 }, 3);
    struct vl_batch v = { 0 };

    (void)state;
    add_i64(&y, "r", 3, (const int64_t[]){ 30, 10, 20 });
    vl_meta_set(&x, "metrics", "{\"m\":1}");
    vl_meta_set(&y, "metrics", "{\"m\":2,\"n\":3}");
    vl_meta_set(&x, "w", "{\"old\":\"v1\"}");
    vl_meta_set(&y, "w", "{\"ref\":\"v2\"}");
    fails(vl_batch_unite(&x, &z, &e), VL_E_DATA, "rows 1 and 2 are both (uid \"p\", sample 0)");
    fails(vl_batch_unite(&x, &w, &e), VL_E_DATA, "row 1 (uid \"p\", sample 1) is not there");
    must(vl_batch_unite(&x, &y, &e));
    add_i64(&v, "r", 3, (const int64_t[]){ 10, 20, 31 }); /* no keys: by position */
    fails(vl_batch_unite(&x, &v, &e), VL_E_DATA,
          "column r differs from the first input's at row 2");
    vl_meta_set(&y, "w", "{\"ref\":\"v3\"}");
    fails(vl_batch_unite(&x, &y, &e), VL_E_DATA, "meta_info key w.ref");
    fails(vl_batch_unique(&z, &e), VL_E_DATA, "rows 1 and 2");
    vl_batch_free(&y);
    vl_batch_free(&z);
    vl_batch_free(&w);
    vl_batch_free(&v);
    is(&x, "sample=[0,1,0] uid=[\"p\",\"p\",\"q\"] r=[10,20,30] meta metrics={\"m\":2,\"n\":3} "
           "meta w={\"old\":\"v1\",\"ref\":\"v2\"}");
}

#define T(n) cmocka_unit_test(case_##n)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(01),
        T(02),
        T(03),
        T(04),
        T(05),
        T(06),
        T(07),
        T(08),
        T(09),
        T(10),
        T(11),
        T(12),
        T(13),
        T(14),
        T(15),
        T(16),
        T(17),
        T(18),
        T(19),
        T(20),
        T(21),
        T(22),
        T(23),
        T(24),
        T(25),
        T(26),
        T(27),
        T(28),
        T(29),
        T(30),
        T(31),
        T(32),
        T(33),
        T(34),
        T(35),
        T(36),
        T(37),
        T(38),
        T(39),
        T(40),
        T(41),
        T(42),
        T(43),
        T(44),
        T(45),
        T(46),
        T(47),
        T(48),
        T(49),
        T(50),
        T(51),
        T(52),
        T(53),
        T(54),
        T(55),
        T(56),
        T(57),
        T(58),
        T(59),
        T(60),
        T(61),
        T(62),
        T(63),
        T(64),
        T(65),
        T(66),
        T(67),
        T(68),
        T(69),
        T(70),
        T(71),
        T(72),
        cmocka_unit_test(unite_by_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
