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
    static const int32_t ids[] = { 7, 8, 1, 2, 9, 3, 0, 4 }, pos[] = { 0, 1, 2, 3, 0, 1, 2, 3 };
    static const int32_t target[] = { 1, 2, 3, 0, 4 };
    static const int64_t out[] = { 1, 2, 4, 5, 6 };
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
    vl_pack_rows(&k, &r, NULL, 0, 2);
    assert_int_equal(k.p.N, 8);
    assert_int_equal(k.p.nseq, 2);
    assert_int_equal(k.p.M, 5);
    assert_memory_equal(k.p.ids, ids, sizeof ids);
    assert_memory_equal(k.p.pos, pos, sizeof pos);
    assert_memory_equal(k.p.out, out, sizeof out);
    assert_memory_equal(k.p.target, target, sizeof target);
    assert_int_equal(k.p.seq[1].row, 4);
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
    vl_pack_rows(&k, &r, rows, 0, 2); /* cells are the batch's, whatever the order */
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
    vl_pack_rows(&k, &r, NULL, 0, 2);
    assert_int_equal(k.p.N, 0);
    assert_int_equal(k.p.M, 0);
    assert_int_equal(k.p.nseq, 0);
    vl_pack_free(&k);
    vl_rows_free(&r);
    vl_batch_free(&b);
}

static void micro_batches(void **state)
{
    int64_t start[] = { 0, 4, 8, 18, 18, 20 }, first[6];
    static const int64_t order[] = { 4, 2, 0 };
    struct vl_rows r = { .B = 5, .start = start };

    (void)state;
    assert_int_equal(vl_micro_cut(&r, NULL, 0, 5, 1, 2, 0, first), 3);
    assert_int_equal(first[1], 2);
    assert_int_equal(first[3], 5);
    assert_int_equal(vl_micro_cut(&r, NULL, 0, 5, 1, 0, 8, first), 3); /* 4 4 | 10 | 0 2 */
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 3);
    assert_int_equal(vl_micro_cut(&r, order, 0, 3, 1, 0, 12, first), 2); /* 2 10 | 4 */
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 3);
    assert_int_equal(vl_micro_cut(&r, NULL, 1, 3, 1, 0, 0, first), 1);
    assert_int_equal(first[1], 3);
    assert_int_equal(vl_micro_cut(&r, NULL, 0, 0, 1, 0, 0, first), 0);
    assert_int_equal(vl_micro_cut(&r, NULL, 0, 4, 2, 1, 0, first), 2); /* pairs: 4 4 | 10 0 */
    assert_int_equal(first[1], 2);
    assert_int_equal(vl_micro_cut(&r, NULL, 0, 4, 2, 3, 0, first), 2);
    assert_int_equal(vl_micro_cut(&r, NULL, 0, 4, 2, 0, 17, first), 2);
    assert_int_equal(vl_micro_cut(&r, NULL, 0, 4, 2, 0, 18, first), 1);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(shift_by_hand), cmocka_unit_test(input_ids_alone),
        cmocka_unit_test(refusals),      cmocka_unit_test(empty_rows),
        cmocka_unit_test(micro_batches),
    };

    return cmocka_run_group_tests(t, NULL, NULL);
}
