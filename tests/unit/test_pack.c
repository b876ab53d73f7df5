/* test_pack.c - padded columns to packed rows and back: the shift by one, by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libverl/engine/pack.h"

static void add(struct vl_batch *b, const char *name, int64_t width, const int64_t *x)
{
    struct vl_err e = { 0 };
    struct vl_col *c;

    assert_int_equal(vl_batch_add_tensor(b, name, VL_I64, 1, &width, &c, &e), 0);
    memcpy(c->data, x, (size_t)(b->rows * width) * sizeof *x);
}

/* Row 0: prompt 7 8, response 1 2 (of 3). Row 1: prompt 9 (padded on the right), response 3 0 4. */
static void make(struct vl_batch *b)
{
    static const int64_t prompts[] = { 0, 7, 8, 9, 0, 0 }, responses[] = { 1, 2, 0, 3, 0, 4 };
    static const int64_t mask[] = { 0, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1 };

    *b = (struct vl_batch){ .has_batch = 1, .rows = 2 };
    add(b, "prompts", 3, prompts);
    add(b, "responses", 3, responses);
    add(b, "attention_mask", 6, mask);
}

static void shift_by_hand(void **state)
{
    static const int32_t ids[] = { 7, 8, 1, 9, 3, 0 }, pos[] = { 0, 1, 2, 0, 1, 2 };
    static const int32_t target[] = { 1, 2, 3, 0, 4 };
    static const int64_t out[] = { 1, 2, 3, 4, 5 };
    static const float value[] = { 10, 11, 12, 13, 14 };
    static const float want[] = { 10, 11, -1, 12, 13, 14 };
    float dst[6] = { -1, -1, -1, -1, -1, -1 }, back[5];
    struct vl_batch b;
    struct vl_rows r;
    struct vl_pack k;
    struct vl_err e = { 0 };

    (void)state;
    make(&b);
    assert_int_equal(vl_rows_read(&r, &b, 10, &e), 0);
    assert_int_equal(r.P, 3);
    assert_int_equal(r.R, 3);
    vl_pack_rows(&k, &r, NULL, 0, 2, 0);
    assert_int_equal(k.p.N, 6);
    assert_int_equal(k.p.nseq, 2);
    assert_int_equal(k.p.M, 5);
    assert_memory_equal(k.p.ids, ids, sizeof ids);
    assert_memory_equal(k.p.pos, pos, sizeof pos);
    assert_memory_equal(k.p.out, out, sizeof out);
    assert_memory_equal(k.p.target, target, sizeof target);
    assert_int_equal(k.p.seq[1].row, 3);
    vl_pack_scatter(dst, &k, value);
    assert_memory_equal(dst, want, sizeof want);
    vl_pack_gather(back, &k, dst);
    assert_memory_equal(back, value, sizeof value);
    vl_pack_free(&k);
    vl_rows_free(&r);
    vl_batch_free(&b);
}

static void input_ids_alone(void **state)
{
    static const int64_t ids[] = { 0, 7, 8, 1, 2, 0, 9, 0, 0, 3, 0, 4 };
    static const int64_t rows[] = { 1, 0 };
    struct vl_batch b;
    struct vl_rows r;
    struct vl_pack k;
    struct vl_err e = { 0 };

    (void)state;
    make(&b);
    add(&b, "input_ids", 6, ids);
    vl_batch_drop(&b, "prompts");
    assert_int_equal(vl_rows_read(&r, &b, 10, &e), 0);
    assert_int_equal(r.P, 3);
    vl_pack_rows(&k, &r, rows, 0, 2, 1); /* cells are the batch's, whatever the order */
    assert_int_equal(k.cell[0], 3);
    assert_int_equal(k.cell[3], 0);
    assert_int_equal(k.ids[0], 9);
    vl_pack_free(&k);
    vl_rows_free(&r);
    vl_batch_free(&b);
}

static int read_code(struct vl_batch *b, int64_t V, const char *words)
{
    struct vl_err e = { 0 };
    struct vl_rows r;
    int rc = vl_rows_read(&r, b, V, &e);

    vl_rows_free(&r);
    if (rc && !strstr(e.msg, words))
        fail_msg("\"%s\" does not say \"%s\"", e.msg, words);
    return rc;
}

static void refusals(void **state)
{
    struct vl_batch b;
    int64_t *mask, *prompts;
    static const int64_t ids[] = { 0, 7, 8, 1, 2, 0, 9, 0, 0, 3, 5, 4 };

    (void)state;
    make(&b);
    mask = vl_batch_col(&b, "attention_mask")->data;
    prompts = vl_batch_col(&b, "prompts")->data;
    assert_int_equal(read_code(&b, 9, "row 1, position 0 of input_ids: id 9"), VL_E_DATA);
    prompts[0] = -5; /* padding may hold anything */
    assert_int_equal(read_code(&b, 10, ""), 0);
    mask[9] = 0; /* response of row 1: 0 1 1 */
    assert_int_equal(read_code(&b, 10, "row 1: attention_mask must be"), VL_E_DATA);
    mask[9] = 1, mask[8] = 1; /* prompt of row 1: 1 0 1 */
    assert_int_equal(read_code(&b, 10, "row 1: attention_mask must be"), VL_E_DATA);
    mask[8] = 0, mask[6] = 0;
    assert_int_equal(read_code(&b, 10, "row 1 has a response and no prompt token"), VL_E_DATA);
    mask[6] = 1, mask[0] = 2;
    assert_int_equal(read_code(&b, 10, "row 0: attention_mask must be"), VL_E_DATA);
    mask[0] = 0;
    prompts[0] = 0;
    add(&b, "input_ids", 6, ids);
    assert_int_equal(read_code(&b, 10, "input_ids has 5, responses has 0"), VL_E_DATA);
    vl_batch_drop(&b, "attention_mask");
    assert_int_equal(read_code(&b, 10, "attention_mask"), VL_E_DATA);
    vl_batch_free(&b);
}

static void empty_rows(void **state)
{
    static const int64_t zeros[12] = { 0 };
    struct vl_batch b;
    struct vl_rows r;
    struct vl_pack k;
    struct vl_err e = { 0 };

    (void)state;
    make(&b);
    add(&b, "attention_mask", 6, zeros);
    assert_int_equal(vl_rows_read(&r, &b, 10, &e), 0);
    vl_pack_rows(&k, &r, NULL, 0, 2, 1);
    assert_int_equal(k.p.N, 0);
    assert_int_equal(k.p.M, 0);
    assert_int_equal(k.p.nseq, 0);
    vl_pack_free(&k);
    vl_rows_free(&r);
    vl_batch_free(&b);
}

/* Rows of prompt P and response R over ids 1 2 3 ..: start, plen and rlen from lengths. */
static void rows_of(struct vl_rows *r, int64_t B, const int32_t *prompt, const int32_t *plen,
                    const int32_t *rlen)
{
    *r = (struct vl_rows){ .B = B, .R = 9 };
    r->start = vl_alloc((size_t)(B + 1) * sizeof *r->start);
    r->ids = vl_alloc(256 * sizeof *r->ids);
    r->plen = vl_alloc((size_t)B * sizeof *r->plen);
    r->rlen = vl_alloc((size_t)B * sizeof *r->rlen);
    for (int64_t i = 0; i < B; i++) {
        int32_t *to = r->ids + r->start[i];

        r->plen[i] = plen[i], r->rlen[i] = rlen[i];
        for (int32_t t = 0; t < plen[i] + rlen[i]; t++)
            to[t] = t < plen[i] ? prompt[i] + t : (int32_t)(50 + 10 * i + t - plen[i]);
        r->start[i + 1] = r->start[i] + plen[i] + rlen[i];
    }
}

/* Four rows of prompt 5 6 7, the second without a response, then one of prompt 5 6, one of 5. */
static void shared_by_hand(void **state)
{
    static const int32_t prompt[] = { 5, 5, 5, 5, 5, 5 }, plen[] = { 3, 3, 3, 3, 2, 1 };
    static const int32_t rlen[] = { 2, 0, 1, 3, 2, 1 };
    static const int32_t ids[] = { 5, 6, 7, 50, 7, 7, 80, 81, 5, 6, 90, 5 };
    static const int32_t pos[] = { 0, 1, 2, 3, 2, 2, 3, 4, 0, 1, 2, 0 };
    static const int32_t target[] = { 50, 51, 70, 80, 81, 82, 90, 91, 100 };
    static const int64_t out[] = { 2, 3, 4, 5, 6, 7, 9, 10, 11 };
    static const int64_t cell[] = { 0, 1, 18, 27, 28, 29, 36, 37, 45 };
    static const int64_t seq[][3] = { { 0, 2, 0 }, { 2, 2, 2 }, { 4, 1, 2 },
                                      { 5, 3, 2 }, { 8, 3, 0 }, { 11, 1, 0 } }; /* row, n, pos */
    struct vl_rows r;
    struct vl_pack k;
    struct vl_extent x;

    (void)state;
    rows_of(&r, 6, prompt, plen, rlen);
    vl_pack_rows(&k, &r, NULL, 0, 6, 1);
    vl_pack_extent(&r, NULL, 0, 6, 1, &x);
    assert_int_equal(k.p.N, 12);
    assert_int_equal(k.p.M, 9);
    assert_int_equal(x.N, 12);
    assert_int_equal(x.M, 9);
    assert_int_equal(x.nseq, 6);
    assert_int_equal(x.shared, 3 * 2);
    assert_int_equal(x.longest, 6);
    assert_int_equal(k.p.nseq, 6);
    assert_memory_equal(k.p.ids, ids, sizeof ids);
    assert_memory_equal(k.p.pos, pos, sizeof pos);
    assert_memory_equal(k.p.out, out, sizeof out);
    assert_memory_equal(k.p.target, target, sizeof target);
    assert_memory_equal(k.cell, cell, sizeof cell);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(k.p.seq[i].row, seq[i][0]);
        assert_int_equal(k.p.seq[i].n, seq[i][1]);
        assert_int_equal(k.p.seq[i].pos, seq[i][2]);
        assert_int_equal(k.p.seq[i].prefix, 0);
    }
    vl_pack_free(&k);
    vl_pack_extent(&r, NULL, 0, 6, 0, &x);
    assert_int_equal(x.N, 4 + 3 + 5 + 3 + 1);
    vl_rows_free(&r);
}

static int64_t cuts(const struct vl_rows *r, const int64_t *rows, int64_t base, int64_t n,
                    struct vl_micro_rule rule, int64_t *first)
{
    return vl_micro_cut(r, rows, base, n, &rule, first);
}

static void micro_batches(void **state)
{
    static const int32_t prompt[] = { 1, 2, 3, 4, 5 }, plen[] = { 1, 1, 1, 1, 1 };
    static const int32_t rlen[] = { 4, 4, 10, 0, 2 };
    static const int64_t order[] = { 4, 2, 0 };
    struct vl_rows r;
    int64_t first[6];

    (void)state;
    rows_of(&r, 5, prompt, plen, rlen); /* 4, 4, 10, 0 and 2 tokens */
    assert_int_equal(cuts(&r, NULL, 0, 5, (struct vl_micro_rule){ .max_rows = 2 }, first), 3);
    assert_int_equal(first[1], 2);
    assert_int_equal(first[3], 5);
    assert_int_equal(cuts(&r, NULL, 0, 5, (struct vl_micro_rule){ .max_tokens = 8 }, first), 3);
    assert_int_equal(first[1], 2); /* 4 4 | 10 | 0 2 */
    assert_int_equal(first[2], 3);
    assert_int_equal(cuts(&r, order, 0, 3, (struct vl_micro_rule){ .max_tokens = 12 }, first), 2);
    assert_int_equal(first[1], 2); /* 2 10 | 4 */
    assert_int_equal(first[2], 3);
    assert_int_equal(cuts(&r, NULL, 1, 3, (struct vl_micro_rule){ 0 }, first), 1);
    assert_int_equal(first[1], 3);
    assert_int_equal(cuts(&r, NULL, 0, 0, (struct vl_micro_rule){ 0 }, first), 0);
    for (int64_t rows = 1; rows <= 3; rows += 2) { /* pairs: 4 4 | 10 0 */
        assert_int_equal(
            cuts(&r, NULL, 0, 4, (struct vl_micro_rule){ .max_rows = rows, .unit = 2 }, first), 2);
        assert_int_equal(first[1], 2);
    }
    assert_int_equal(
        cuts(&r, NULL, 0, 4, (struct vl_micro_rule){ .max_tokens = 17, .unit = 2 }, first), 2);
    assert_int_equal(
        cuts(&r, NULL, 0, 4, (struct vl_micro_rule){ .max_tokens = 18, .unit = 2 }, first), 1);
    vl_rows_free(&r);
}

/* Rows 0 to 2 and 3 to 4 have one prompt each, of 4 tokens; each response has 2. */
static void micro_batches_shared(void **state)
{
    static const int32_t prompt[] = { 1, 1, 1, 9, 9, 5 }, plen[] = { 4, 4, 4, 4, 4, 4 };
    static const int32_t rlen[] = { 2, 2, 2, 2, 2, 2 };
    struct vl_rows r;
    int64_t first[7];

    (void)state;
    rows_of(&r, 6, prompt, plen, rlen);
    /* 5 2 | 5 | 5 2 | 5: a prompt is counted anew where a cut parts its rows */
    assert_int_equal(
        cuts(&r, NULL, 0, 6, (struct vl_micro_rule){ .max_tokens = 8, .share = 1 }, first), 4);
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 3);
    assert_int_equal(first[3], 5);
    for (int64_t rows = 1; rows <= 2; rows++) {
        struct vl_micro_rule rule = { .max_rows = rows, .share = 1, .whole = 1 };

        assert_int_equal(cuts(&r, NULL, 0, 6, rule, first), 3); /* 5 2 2 | 5 2 | 5 */
        assert_int_equal(first[1], 3);
        assert_int_equal(first[2], 5);
    }
    assert_int_equal(cuts(&r, NULL, 0, 6,
                          (struct vl_micro_rule){ .max_tokens = 16, .share = 1, .whole = 1 },
                          first),
                     2);
    assert_int_equal(first[1], 5);
    vl_rows_free(&r);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(shift_by_hand),
        cmocka_unit_test(input_ids_alone),
        cmocka_unit_test(refusals),
        cmocka_unit_test(empty_rows),
        cmocka_unit_test(micro_batches),
        cmocka_unit_test(shared_by_hand),
        cmocka_unit_test(micro_batches_shared),
    };

    return cmocka_run_group_tests(t, NULL, NULL);
}
