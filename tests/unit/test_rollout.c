/* test_rollout.c - generations to the batch's columns, and generations made elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libverl/run/rollout_batch.h"
#include "libverl/run/weights.h"

static void add_json(struct vl_batch *b, const char *name, const char *const *text)
{
    int64_t *at = vl_alloc((size_t)(b->rows + 1) * sizeof *at);
    struct vl_buf all = { 0 };

    for (int64_t i = 0; i < b->rows; i++) {
        vl_buf_str(&all, text[i]);
        at[i + 1] = (int64_t)all.n;
    }
    vl_batch_add_json(b, name, vl_buf_detach(&all), at);
}

static const char *const uids[] = { "\"a\"", "\"b\\u0041\"" };
static const int32_t ids[] = { 7, 8, 9 };
static const struct vl_gen_prompt prompts[] = { { ids, 2, { { 0, 0 } }, 0 },
                                                { ids + 2, 1, { { 0, 0 } }, 1 } };

static void prompt_batch(struct vl_batch *b)
{
    *b = (struct vl_batch){ .has_batch = 1, .rows = 2 };
    add_json(b, "uid", uids);
    vl_meta_set_i64(b, "global_steps", 3);
}

static void check_i64(const struct vl_batch *b, const char *name, const int64_t *want, size_t n)
{
    const struct vl_col *c = vl_batch_col(b, name);

    assert_non_null(c);
    assert_int_equal(c->bytes, n * sizeof *want);
    for (size_t i = 0; i < n; i++)
        if (((int64_t *)c->data)[i] != want[i])
            fail_msg("%s[%zu] is %lld, expected %lld", name, i, (long long)((int64_t *)c->data)[i],
                     (long long)want[i]);
}

/* Two prompts of 2 and 1 tokens, P = 3; two samples each, R = 2; pad id 0. */
static void columns_by_hand(void **state)
{
    static int32_t r0[] = { 1, 2 }, r1[] = { 0 }, r2[] = { 3, 4 };
    static float p0[] = { -1, -2 }, p1[] = { -3 }, p2[] = { -4, -5 };
    struct vl_gen gen[] = { { r0, p0, 2, VL_FINISH_LENGTH, NULL, NULL },
                            { r1, p1, 1, VL_FINISH_STOP, NULL, NULL },
                            { r2, p2, 2, VL_FINISH_STOP, NULL, NULL },
                            { NULL, NULL, 0, VL_FINISH_ABORT, NULL, NULL } };
    struct vl_rollout_set set = {
        .prompts = 2, .n = 2, .P = 3, .R = 2, .p = prompts, .gen = gen, .have_logp = 1, .pad = 0
    };
    static const int64_t want_ids[] = {
        0, 7, 8, 1, 2, 0, 7, 8, 0, 0, 0, 0, 9, 3, 4, 0, 0, 9, 0, 0
    };
    static const int64_t mask[] = { 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0 };
    static const int64_t pos[] = { 0, 0, 1, 2, 3, 0, 0, 1, 2, 2, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0 };
    static const int64_t rmask[] = { 1, 1, 1, 0, 1, 1, 0, 0 }, sample[] = { 0, 1, 0, 1 };
    static const int64_t responses[] = { 1, 2, 0, 0, 3, 4, 0, 0 };
    static const float logp[] = { -1, -2, -3, 0, -4, -5, 0, 0 };
    struct vl_batch in, out = { 0 };
    struct vl_err e = { 0 };
    size_t n;

    (void)state;
    prompt_batch(&in);
    assert_int_equal(vl_rollout_batch(&out, &in, &set, &e), 0);
    assert_int_equal(out.rows, 4);
    check_i64(&out, "input_ids", want_ids, 20);
    check_i64(&out, "attention_mask", mask, 20);
    check_i64(&out, "position_ids", pos, 20);
    check_i64(&out, "response_mask", rmask, 8);
    check_i64(&out, "responses", responses, 8);
    check_i64(&out, "sample", sample, 4);
    assert_memory_equal(vl_batch_col(&out, "rollout_log_probs")->data, logp, sizeof logp);
    assert_memory_equal(vl_col_json(vl_batch_col(&out, "uid"), 1, &n), "\"a\"", 3);
    assert_memory_equal(vl_col_json(vl_batch_col(&out, "finish_reason"), 3, &n), "\"abort\"", 7);
    vl_batch_free(&in);
    vl_batch_free(&out);
}

/* Runs the lines; returns the status, with the error's text in msg (1200 bytes). */
static int outside(const char *lines, int64_t n, struct vl_rollout_set *set, char *msg)
{
    static const int32_t stop[] = { 2 };
    char path[] = "/tmp/verl-test-XXXXXX";
    struct vl_outside o = { .path = path, .V = 10, .stop = stop, .nstop = 1, .n = n };
    struct vl_batch in;
    struct vl_err e = { 0 };
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, lines, strlen(lines)), (ssize_t)strlen(lines));
    close(fd);
    prompt_batch(&in);
    *set = (struct vl_rollout_set){ .prompts = 2, .R = 3, .p = prompts };
    (void)!vl_rollout_outside(set, &in, &o, &e);
    memcpy(msg, e.msg, sizeof e.msg);
    unlink(path);
    vl_batch_free(&in);
    return e.code;
}

static void outside_good(void **state)
{
    struct vl_rollout_set set;
    char msg[1200];

    (void)state;
    assert_int_equal(
        outside(
            "{\"uid\":\"bA\",\"response_ids\":[1,2],\"log_probs\":[-1,-0.5]}\n\n"
            "{\"uid\":\"a\",\"sample\":1,\"response_ids\":[],\"log_probs\":[]}\n"
            "{\"uid\":\"a\",\"sample\":0,\"response_ids\":[3,4,5,6],\"log_probs\":[0,0,0,0]}\n"
            "{\"uid\":\"bA\",\"response_ids\":[5],\"log_probs\":[-2],\"finish_reason\":\"abort\"}",
            0, &set, msg),
        0);
    assert_int_equal(set.n, 2);
    assert_true(set.have_logp);
    assert_int_equal(set.gen[0].len, 3); /* cut to R */
    assert_int_equal(set.gen[0].finish, VL_FINISH_LENGTH);
    assert_int_equal(set.gen[1].len, 0);
    assert_int_equal(set.gen[2].finish, VL_FINISH_STOP); /* ends with a stop id */
    assert_true(set.gen[2].logp[1] == -0.5f);
    assert_int_equal(set.gen[3].finish, VL_FINISH_ABORT);
    vl_gen_free(set.gen, 4);
    free(set.gen);
}

static void outside_bad(void **state)
{
#define A "{\"uid\":\"a\",\"response_ids\":[1]}\n"
#define B "{\"uid\":\"bA\",\"response_ids\":[1]}\n"
    static const struct {
        const char *lines, *words;
        int64_t n;
    } t[] = {
        { A, "uid bA has no sample 0", 0 },
        { A A B, "uid bA has no sample 1", 0 },
        { A B B, ":3: sample 1, where each prompt has 1", 1 },
        { A "{\"uid\":\"c\",\"response_ids\":[1]}\n", ":2: uid c is not in the prompt batch", 0 },
        { A "{\"response_ids\":[1]}\n", ":2: no member uid", 0 },
        { A "{\"uid\":\"bA\"}\n", ":2: expected response_ids", 0 },
        { A "{\"uid\":\"bA\",\"response_ids\":[1,10]}\n", ":2: response_ids[1] is 10", 0 },
        { A "{\"uid\":\"bA\",\"response_ids\":[1.0]}\n", ":2: response_ids[0] is 1.0", 0 },
        { A "{\"uid\":\"bA\",\"response\":\"x\"}\n", ":2: a response as text needs a tokenizer",
          0 },
        { A "{\"uid\":\"bA\",\"response_ids\":[1],\"log_probs\":[-1]}\n",
          "1 of 2 lines have log_probs", 0 },
        { A "{\"uid\":\"bA\",\"response_ids\":[1],\"log_probs\":[]}\n",
          ":2: log_probs: expected one", 0 },
        { A "{\"uid\":\"bA\",\"response_ids\":[1],\"log_probs\":[\"NaN\"]}\n",
          ":2: log_probs: expected finite", 0 },
        { A "{\"uid\":\"bA\",\"sample\":-1,\"response_ids\":[1]}\n", ":2: sample: expected", 0 },
        { A "{\"uid\":\"a\",\"sample\":0,\"response_ids\":[1]}\n" B B,
          ":2: this uid and sample were there before", 0 },
        { A "{\"uid\":\"bA\",\"response_ids\":[1],\"finish_reason\":\"eos\"}\n",
          ":2: finish_reason", 0 },
        { A "[1]\n", ":2: expected an object", 0 },
        { A "{\"uid\":\n", ":2", 0 },
        { "", "has no sample 0", 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct vl_rollout_set set;
        char msg[1200];
        int rc = outside(t[i].lines, t[i].n, &set, msg);

        if (rc != VL_E_DATA || !strstr(msg, t[i].words))
            fail_msg("case %zu: status %d, \"%s\" does not say \"%s\"", i, rc, msg, t[i].words);
        if (set.gen)
            vl_gen_free(set.gen, set.prompts * set.n);
        free(set.gen);
    }
}

static void weights_in_meta(void **state)
{
    struct vl_batch b = { 0 };
    struct vl_model m = { .version = (char *)"v000012",
                          .hash = "0123456789abcdef0123456789abcdef" };
    struct vl_weights_id id;

    (void)state;
    assert_int_equal(vl_weights_get(&b, "values", &id), 0);
    vl_weights_set(&b, "values", &m, NULL);
    assert_int_equal(vl_weights_get(&b, "values", &id), 1);
    assert_string_equal(id.version, "v000012");
    assert_string_equal(id.hash, m.hash);
    assert_string_equal(id.source_hash, "");
    m.version = NULL, m.source_hash = (char *)"fedcba9876543210fedcba9876543210";
    vl_weights_set(&b, "values", &m, NULL);
    assert_int_equal(vl_weights_get(&b, "values", &id), 1);
    assert_string_equal(id.version, "");
    assert_string_equal(id.source_hash, m.source_hash);
    vl_batch_free(&b);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(columns_by_hand),
        cmocka_unit_test(outside_good),
        cmocka_unit_test(outside_bad),
        cmocka_unit_test(weights_in_meta),
    };

    return cmocka_run_group_tests(t, NULL, NULL);
}
