/* test_golden_models.c - real model directories against float64 references: logits, log-probs,
 * entropies within 1e-4 and greedy continuations id by id. Reads shared data (the folder
 * VERL_SHARED, else ../shared); without it the test is skipped. */
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
#include "libverl/base/fs.h"
#include "libverl/engine/engine.h"
#include "libverl/engine/generate.h"

#define TOLERANCE 1e-4
#define MAX_IDS   600

static const char *shared;

struct model {
    struct vl_model *m;
    struct vl_backend *be;
    struct vl_engine *g;
};

static void open_model(struct model *x, const char *name)
{
    struct vl_engine_opts o = { .compute = VL_COMPUTE_F32 };
    struct vl_err e = { 0 };
    char *dir = vl_asprintf("%s/data/models/%s", shared, name);

    if (vl_model_open(&x->m, dir, VL_HEAD_LM, 1, &e) || vl_backend_cpu(&x->be, NULL, 1, 1, &e) ||
        vl_engine_new(&x->g, x->m, x->be, &o, &e))
        fail_msg("%s", e.msg);
    free(dir);
}

static void close_model(struct model *x)
{
    vl_engine_free(x->g);
    x->be->close(x->be);
    vl_model_free(x->m);
}

static int64_t read_ids(const struct vl_json *j, int64_t at, int32_t *ids)
{
    int64_t k = at + 1, x, n;

    assert_true(vl_json_is(j, at, VL_JSON_ARRAY));
    n = j->node[at].count;
    assert_true(n <= MAX_IDS);
    for (int64_t i = 0; i < n; i++, k = j->node[k].next) {
        assert_true(vl_json_i64(j, k, &x));
        ids[i] = (int32_t)x;
    }
    return n;
}

static void check_reals(const struct vl_json *j, int64_t at, const float *got, int64_t n,
                        const char *what)
{
    int64_t k = at + 1;
    double want;

    assert_true(vl_json_is(j, at, VL_JSON_ARRAY));
    assert_int_equal(j->node[at].count, n);
    for (int64_t i = 0; i < n; i++, k = j->node[k].next) {
        assert_true(vl_json_f64(j, k, &want));
        if (!(fabs((double)got[i] - want) < TOLERANCE))
            fail_msg("%s[%d]: %.7g, reference %.7g", what, (int)i, (double)got[i], want);
    }
}

/* Log-probs and entropies of ids[first..n) and the logits after the last id. */
static void forward(struct model *x, const int32_t *ids, int64_t n, int64_t first, float *logp,
                    float *entropy, float *logits)
{
    int32_t pos[MAX_IDS];
    int64_t out[MAX_IDS], last = n - 1;
    struct vl_seq seq = { .n = (int32_t)n };
    struct vl_packed p = { .N = n,
                           .nseq = 1,
                           .M = n - first,
                           .ids = ids,
                           .pos = pos,
                           .seq = &seq,
                           .out = out,
                           .target = ids + first };
    struct vl_err e = { 0 };

    for (int64_t i = 0; i < n; i++)
        pos[i] = (int32_t)i;
    for (int64_t j = first; j < n; j++)
        out[j - first] = j - 1;
    assert_int_equal(vl_engine_forward(x->g, &p, 1, 0, logp, entropy, NULL, NULL, &e), 0);
    if (!logits)
        return;
    p.M = 1, p.out = &last, p.target = NULL;
    assert_int_equal(vl_engine_logits(x->g, &p, logits, &e), 0);
}

static void check_greedy(struct model *x, const struct vl_json *j, int64_t c, const int32_t *ids,
                         int64_t n)
{
    int32_t want[MAX_IDS], both[MAX_IDS];
    int64_t at = vl_json_get(j, c, "greedy_ids"), m = read_ids(j, at, want);
    int64_t lp = vl_json_get(j, c, "greedy_logprobs"), ent = vl_json_get(j, c, "greedy_entropy");
    struct vl_gen_prompt p = { ids, n, vl_philox_key("u", 1, 0), 0 };
    struct vl_gen_opts o = { .n = 1,
                             .max_new = m,
                             .sampling = { 0, 1, 0, 0 },
                             .max_seqs = 1,
                             .max_tokens = 64,
                             .kv_bytes = SIZE_MAX };
    float logp[MAX_IDS], entropy[MAX_IDS];
    struct vl_gen gen = { 0 };
    struct vl_err e = { 0 };

    if (vl_generate(x->g, &p, 1, &o, &gen, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(gen.len, m);
    assert_memory_equal(gen.ids, want, (size_t)m * sizeof *want);
    memcpy(both, ids, (size_t)n * sizeof *ids);
    memcpy(both + n, want, (size_t)m * sizeof *want);
    forward(x, both, n + m, n, logp, entropy, NULL);
    assert_memory_equal(logp, gen.logp, (size_t)m * sizeof *logp);
    if (lp >= 0)
        check_reals(j, lp, logp, m, "greedy_logprobs");
    if (ent >= 0)
        check_reals(j, ent, entropy, m, "greedy_entropy");
    vl_gen_free(&gen, 1);
}

static void check_case(struct model *x, const struct vl_json *j, int64_t c)
{
    int32_t ids[MAX_IDS];
    int64_t n = read_ids(j, vl_json_get(j, c, "ids"), ids), V = x->m->cfg.V;
    int64_t prompt = vl_json_get(j, c, "prompt_logprobs");
    float logp[MAX_IDS], entropy[MAX_IDS], *logits = vl_alloc((size_t)V * sizeof *logits);

    if (prompt < 0)
        prompt = vl_json_get(j, c, "next_token_logprobs");
    forward(x, ids, n, 1, logp, entropy, logits);
    check_reals(j, vl_json_get(j, c, "last_logits"), logits, V, "last_logits");
    check_reals(j, prompt, logp, n - 1, "prompt_logprobs");
    if (vl_json_get(j, c, "greedy_ids") >= 0)
        check_greedy(x, j, c, ids, n);
    free(logits);
}

static void check_file(const char *model, const char *file)
{
    char *path = vl_asprintf("%s/golden/models/%s", shared, file);
    struct vl_buf text = { 0 };
    struct vl_json j;
    struct vl_err e = { 0 };
    struct model x;
    int64_t cases, c;

    if (vl_fs_read(path, 1 << 24, &text, &e) || vl_json_parse(&j, text.s, text.n, file, &e))
        fail_msg("%s", e.msg);
    cases = vl_json_get(&j, 0, "cases");
    assert_true(vl_json_is(&j, cases, VL_JSON_ARRAY) && j.node[cases].count > 0);
    open_model(&x, model);
    c = cases + 1;
    for (uint32_t i = 0; i < j.node[cases].count; i++, c = j.node[c].next)
        check_case(&x, &j, c);
    close_model(&x);
    vl_json_free(&j);
    vl_buf_free(&text);
    free(path);
}

static void stories(void **state)
{
    (void)state;
    check_file("stories260k", "stories260k.json");
    check_file("stories260k", "stories260k.from_bos.json");
}

static void aidreams(void **state)
{
    (void)state;
    check_file("aidreams260k", "aidreams260k.json");
    check_file("aidreams260k", "aidreams260k.from_bos.json");
}

static void qwen3(void **state)
{
    (void)state;
    check_file("tiny_qwen3", "tiny_qwen3.json");
}

static void llama3(void **state)
{
    (void)state;
    check_file("tiny_llama3", "tiny_llama3.json");
}

static void mistral(void **state)
{
    (void)state;
    check_file("tiny_mistral", "tiny_mistral.json");
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(stories), cmocka_unit_test(aidreams), cmocka_unit_test(qwen3),
        cmocka_unit_test(llama3),  cmocka_unit_test(mistral),
    };

    shared = getenv("VERL_SHARED") ? getenv("VERL_SHARED") : "../shared";
    if (!vl_fs_exists(shared, "golden/models")) {
        printf("1..0 # SKIP no shared data (set VERL_SHARED to its folder)\n");
        return 0;
    }
    return cmocka_run_group_tests(t, NULL, NULL);
}
