/* test_steer.c - rules of a rollout to edits of logits, against a table of all ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/engine/steer.h"

enum { V = 40 };

/* One edit per id, by the definition. */
static void by_hand(struct vl_edit *t, const struct vl_rules *r, const int32_t *prompt, int64_t P,
                    const int32_t *ids, int64_t len, const int32_t *stop, int64_t nstop)
{
    for (int32_t id = 0; id < V; id++) {
        int seen = 0;

        t[id] = (struct vl_edit){ .id = id, .rep = 1 };
        for (int64_t i = 0; i < P; i++)
            seen |= prompt[i] == id;
        for (int64_t i = 0, count = 0; i < len; i++)
            if (ids[i] == id) {
                seen = 1;
                t[id].sub = (float)(r->presence + r->frequency * (double)++count);
            }
        if (seen && r->repetition > 0)
            t[id].rep = (float)r->repetition;
    }
    for (int64_t i = 0; i < r->nbias; i++)
        t[r->bias[i].id].add += r->bias[i].add;
    for (int64_t i = 0; len < r->min_new && i < nstop; i++)
        t[stop[i]].add = -INFINITY;
    for (int64_t i = 0; i < r->nwords; i++) {
        const int32_t *w = r->word + r->words[i];
        int64_t n = r->words[i + 1] - r->words[i];

        if (n - 1 <= len && !memcmp(w, ids + len - (n - 1), (size_t)(n - 1) * sizeof *w))
            t[w[n - 1]].add = -INFINITY;
    }
}

static void check(const struct vl_rules *r)
{
    static const int32_t prompt[] = { 30, 2, 2, 17, 0, 39 }, stop[] = { 5, 2 };
    static const int32_t ids[] = { 7, 7, 9, 2, 39, 7, 8, 0, 11, 7, 8 };
    struct vl_seen s = { 0 };
    struct vl_edits out = { 0 };
    struct vl_edit want[V];

    vl_seen_start(&s, r, prompt, 6);
    for (int64_t len = 0; len <= 11; len++) {
        int64_t from = out.n, k = from;

        vl_steer(&out, r, &s, ids, len, stop, 2);
        by_hand(want, r, prompt, 6, ids, len, stop, 2);
        for (int32_t id = 0; id < V; id++) {
            int idle = want[id].add == 0 && want[id].rep == 1 && want[id].sub == 0;

            if (k < out.n && out.a[k].id == id) {
                assert_true(k == from || out.a[k - 1].id < id);
                assert_true(out.a[k].add == want[id].add && out.a[k].rep == want[id].rep &&
                            out.a[k].sub == want[id].sub);
                k++;
            } else {
                assert_true(idle);
            }
        }
        assert_int_equal(k, out.n);
        if (len < 11)
            vl_seen_add(&s, r, ids[len]);
    }
    free(out.a);
    vl_seen_free(&s);
}

static void each_and_all(void **state)
{
    static const struct vl_bias bias[] = { { 0, 1.5F }, { 2, -INFINITY }, { 7, 3 }, { 7, -1 } };
    static const int32_t word[] = { 8, 7, 8, 0, 7, 7 };
    static const int64_t words[] = { 0, 1, 4, 6 }; /* "8", "7 8 0", "7 7" */
    struct vl_rules r[] = {
        { .repetition = 1.5 },
        { .presence = 0.5 },
        { .frequency = 0.25 },
        { .min_new = 4 },
        { .bias = bias, .nbias = 4 },
        { .word = word, .words = words, .nwords = 3 },
        { .repetition = 0.5,
          .presence = -1,
          .frequency = 2,
          .min_new = 20,
          .bias = bias,
          .nbias = 4,
          .word = word,
          .words = words,
          .nwords = 3 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof r / sizeof *r; i++) {
        assert_true(vl_rules_any(&r[i]));
        check(&r[i]);
    }
}

static void no_rules(void **state)
{
    struct vl_rules r = { 0 };

    (void)state;
    assert_false(vl_rules_any(&r));
    r.repetition = 1;
    assert_false(vl_rules_any(&r));
    check(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_and_all),
        cmocka_unit_test(no_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
