/* test_load.c - weights on their way in: every form of the files gives the same bits and the same hash,
 * in a slab and packed, by any number of threads; files that change meanwhile. */
#include "libverl/base/fs.h"
#include "libverl/engine/engine.h"
#include "libverl/model/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include <cmocka.h>

/* More floats than one thread is given, rows that no panel or block divides, 3 pieces in a block. */
#define CONFIG                                                                                     \
    "{\"model_type\": \"%s\", \"hidden_size\": 200, \"num_hidden_layers\": 2, "                    \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 40, "                   \
    "\"intermediate_size\": 130, \"vocab_size\": 5003, \"max_position_embeddings\": 64, "          \
    "\"tie_word_embeddings\": %s}"

static struct vl_model *make(const char *type, const char *tied, enum vl_head head)
{
    char *text = vl_asprintf(CONFIG, type, tied);
    struct vl_err e = { 0 };
    struct vl_model *m = NULL;

    if (vl_model_new(&m, text, "config.json", head, &e))
        fail_msg("%s", e.msg);
    free(text);
    vl_model_init(m, 5, 0.05, 1);
    assert_true(m->count > 1 << 20);
    for (int64_t i = 0; i < m->count; i += 7) { /* all of bf16's and f16's digits, small ones too */
        uint32_t u;

        memcpy(&u, m->slab + i, 4);
        u &= 0xffff0000u;
        memcpy(m->slab + i, &u, 4);
    }
    m->slab[3] = 0x1p-20f, m->slab[4] = -0.0f;
    vl_model_hash(m);
    return m;
}

static char *save(const struct vl_model *m, const char *dtype, int64_t shard)
{
    char *dir = vl_strdup("/tmp/verl-load.XXXXXX");
    struct vl_err e = { 0 };

    assert_non_null(mkdtemp(dir));
    if (vl_model_save(m, dir, dtype, shard, NULL, &e))
        fail_msg("%s", e.msg);
    return dir;
}

static void discard(char *dir)
{
    struct vl_err e = { 0 };

    assert_int_equal(vl_fs_remove(dir, &e), 0);
    free(dir);
}

static struct vl_model *open_model(const char *dir, enum vl_head head, int weights)
{
    struct vl_err e = { 0 };
    struct vl_model *m;

    if (vl_model_open(&m, dir, head, weights, &e))
        fail_msg("%s", e.msg);
    return m;
}

/* A sink that keeps a slab and does something to the file when its first rows come. */
struct taken {
    struct vl_model *m;
    float *slab;
    int64_t *rows; /* (m->nparam) that came */
    const char *path;
    void (*first)(const char *path);
    int came;
    int refuse; /* the second parameter */
};

static int take(void *arg, int64_t i, int64_t row, int64_t n, const float *x, struct vl_err *e)
{
    struct taken *t = arg;
    const struct vl_param *p = &t->m->param[i];

    if (t->first && !__atomic_exchange_n(&t->came, 1, __ATOMIC_SEQ_CST))
        t->first(t->path);
    if (row % VL_BLOCK_ROWS || (n % VL_BLOCK_ROWS && row + n != p->rows))
        abort();
    memcpy(t->slab + p->offset + row * p->cols, x, (size_t)(n * p->cols) * sizeof *x);
    if (t->refuse && i == 1)
        return vl_fail(e, VL_E_IO, "refused");
    __atomic_fetch_add(&t->rows[i], n, __ATOMIC_SEQ_CST);
    return 0;
}

static int read_model(struct taken *t, int threads, struct vl_err *e)
{
    struct vl_sink to = { .put = take, .arg = t, .threads = threads };

    t->slab = vl_alloc((size_t)t->m->count * sizeof *t->slab);
    t->rows = vl_alloc((size_t)t->m->nparam * sizeof *t->rows);
    return vl_model_read(t->m, &to, e);
}

static void free_taken(struct taken *t)
{
    vl_model_free(t->m);
    free(t->slab);
    free(t->rows);
}

static void check_paths(const struct vl_model *m, const char *dtype, int64_t shard)
{
    char *dir = save(m, dtype, shard), hash[33];
    struct vl_model *slab = open_model(dir, VL_HEAD_AUTO, 1);

    assert_string_equal(slab->stored_dtype, dtype);
    vl_tensors_hash(slab, slab->slab, hash);
    assert_string_equal(slab->hash, hash);
    if (!strcmp(dtype, "F32")) {
        assert_string_equal(m->hash, hash);
        assert_memory_equal(slab->slab, m->slab, (size_t)m->count * sizeof(float));
    }
    for (int threads = 0; threads < 6; threads += threads ? 2 : 1) { /* 0, 1, 3, 5 */
        struct taken t = { .m = open_model(dir, VL_HEAD_AUTO, 0) };
        struct vl_err e = { 0 };

        if (read_model(&t, threads, &e))
            fail_msg("%s", e.msg);
        assert_string_equal(t.m->hash, hash);
        assert_memory_equal(t.slab, slab->slab, (size_t)m->count * sizeof(float));
        for (int64_t i = 0; i < t.m->nparam; i++)
            assert_int_equal(t.rows[i], t.m->param[i].rows);
        assert_int_equal(vl_model_read(t.m, NULL, &e), 0); /* hashed only */
        assert_string_equal(t.m->hash, hash);
        free_taken(&t);
    }
    vl_model_free(slab);
    discard(dir);
}

static void test_paths(void **state)
{
    struct vl_model *m[] = { make("qwen2", "true", VL_HEAD_LM), make("qwen3", "false", VL_HEAD_LM),
                             make("llama", "true", VL_HEAD_VALUE) };

    (void)state;
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        check_paths(m[i], "F32", 0);
        check_paths(m[i], "BF16", 0);
        check_paths(m[i], "F16", 0);
        check_paths(m[i], "F32", 300000);
        check_paths(m[i], "BF16", 300000);
        vl_model_free(m[i]);
    }
}

/* Log-probs of a few tokens by the engine made from m. */
static void forward(float *logp, struct vl_engine *g)
{
    int32_t ids[] = { 1, 5002, 64, 63, 4999, 7, 8, 9 }, pos[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    int32_t target[] = { 5002, 64, 63, 4999, 7, 8, 9, 0 };
    int64_t out[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    struct vl_seq seq = { .n = 8 };
    struct vl_packed p = {
        .N = 8, .nseq = 1, .M = 8, .ids = ids, .pos = pos, .seq = &seq, .out = out, .target = target
    };
    struct vl_err e = { 0 };

    if (vl_engine_forward(g, &p, 1, 0, logp, NULL, NULL, NULL, &e))
        fail_msg("%s", e.msg);
}

/* Packed from a slab and straight from the files: the same engine, on every instruction set. */
static void test_packed(void **state)
{
    static const char *const isa[] = { "scalar", "avx2", "avx512", "avx512bf16", "amx" };
    struct vl_model *m = make("qwen2", "true", VL_HEAD_LM);
    char *dir[] = { save(m, "F32", 0), save(m, "BF16", 300000) };

    (void)state;
    vl_model_free(m);
    for (size_t d = 0; d < 2; d++) {
        m = open_model(dir[d], VL_HEAD_LM, 1);
        for (size_t i = 0; i < sizeof isa / sizeof *isa; i++)
            for (enum vl_compute ct = 0; ct < VL_COMPUTES; ct++) {
                struct vl_engine_opts o = { .compute = ct };
                struct vl_model *file = open_model(dir[d], VL_HEAD_LM, 0);
                struct vl_engine *slab = NULL, *load = NULL;
                struct vl_backend *be;
                struct vl_err e = { 0 };
                float want[8], got[8];

                if (vl_backend_cpu(&be, isa[i], 2, 1, &e)) { /* this processor lacks it */
                    vl_model_free(file);
                    continue;
                }
                if (vl_engine_new(&slab, m, be, &o, &e) ||
                    vl_engine_load(&load, file, be, &o, 3, &e))
                    fail_msg("%s", e.msg);
                forward(want, slab);
                forward(got, load);
                assert_true(want[0] < 0 && want[7] < 0);
                assert_memory_equal(want, got, sizeof want);
                vl_engine_free(slab);
                vl_engine_free(load);
                vl_model_free(file);
                be->close(be);
            }
        vl_model_free(m);
        discard(dir[d]);
    }
}

static void shrink(const char *path)
{
    if (truncate(path, 3000000))
        abort();
}

/* Another number near the end, which is not yet read. */
static void change(const char *path)
{
    int fd = open(path, O_WRONLY);
    float x = 42;

    if (fd < 0 || pwrite(fd, &x, sizeof x, lseek(fd, 0, SEEK_END) - 400) != sizeof x || close(fd))
        abort();
}

static void test_shrinks(void **state)
{
    struct vl_model *m = make("llama", "true", VL_HEAD_LM);

    (void)state;
    for (int threads = 1; threads < 4; threads += 2) {
        char *dir = save(m, "F32", 0), *path = vl_asprintf("%s/model.safetensors", dir);
        struct taken t = { .m = open_model(dir, VL_HEAD_LM, 0), .path = path, .first = shrink };
        struct vl_err e = { 0 };

        assert_int_equal(read_model(&t, threads, &e), VL_E_DATA);
        if (!strstr(e.msg, "model.safetensors: ends at byte 3000000, inside ") ||
            !strstr(e.msg, "it was cut short while it was read") || strchr(e.msg, '\n'))
            fail_msg("%s", e.msg);
        free_taken(&t);
        discard(dir);
        free(path);
    }
    vl_model_free(m);
}

static void test_refused(void **state)
{
    struct vl_model *m = make("llama", "true", VL_HEAD_LM);

    (void)state;
    for (int threads = 1; threads < 4; threads += 2) {
        char *dir = save(m, "F32", 0);
        struct taken t = { .m = open_model(dir, VL_HEAD_LM, 0), .refuse = 1 };
        struct vl_err e = { 0 };

        assert_int_equal(read_model(&t, threads, &e), VL_E_IO);
        assert_string_equal(e.msg, "refused");
        assert_string_equal(t.m->hash, "");
        free_taken(&t);
        discard(dir);
    }
    vl_model_free(m);
}

static void test_changes(void **state)
{
    struct vl_model *m = make("llama", "true", VL_HEAD_LM);
    char *dir = save(m, "F32", 0), *path = vl_asprintf("%s/model.safetensors", dir), hash[33];
    struct taken t = { .m = open_model(dir, VL_HEAD_LM, 0), .path = path, .first = change };
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(read_model(&t, 1, &e), 0);
    assert_string_not_equal(t.m->hash, m->hash);
    vl_tensors_hash(t.m, t.slab, hash);
    assert_string_equal(t.m->hash, hash); /* what is hashed is what is used */
    free_taken(&t);
    vl_model_free(m);
    discard(dir);
    free(path);
}

/* The first number in the slab's order that is not finite is named, by any number of threads. */
static void test_not_finite(void **state)
{
    static const char *const dtype[] = { "F32", "BF16", "F16" };
    struct vl_model *m = make("llama", "true", VL_HEAD_LM);
    const struct vl_param *up = vl_model_param(m, "layers.0.gate_up");

    (void)state;
    m->slab[up->offset + (130 + 70) * 200 + 3] = NAN; /* up_proj, row 70 */
    m->slab[vl_model_param(m, "norm")->offset] = INFINITY;
    for (int i = 0; i < 3; i++) {
        char *dir = save(m, dtype[i], 0);

        for (int threads = 1; threads < 4; threads++) {
            struct taken t = { .m = open_model(dir, VL_HEAD_LM, 0) };
            struct vl_err e = { 0 };

            assert_int_equal(read_model(&t, threads, &e), VL_E_DATA);
            if (!strstr(e.msg, "tensor model.layers.0.mlp.up_proj.weight: element 14003 is "))
                fail_msg("%s", e.msg);
            free_taken(&t);
        }
        discard(dir);
    }
    vl_model_free(m);
}

/* An lm_head beside tied embeddings: another dtype of the same values is the same. */
static void test_stray_head(void **state)
{
    struct vl_model *tied = make("llama", "true", VL_HEAD_LM), *lm;
    char *dir = save(tied, "BF16", 0), *index = vl_asprintf("%s/model.safetensors.index.json", dir);
    char *from = vl_asprintf("%s/model.safetensors", dir), *head = vl_asprintf("%s/h", dir), *map;
    char *to = vl_asprintf("%s/a", dir);
    int64_t n, at = 0;
    struct vl_piece *p;
    struct vl_err e = { 0 };

    (void)state;
    lm = open_model(dir, VL_HEAD_LM, 1);
    p = vl_model_pieces(lm, &n);
    while (strcmp(p[at].name, "model.embed_tokens.weight"))
        at++;
    strcpy(p[at].name, "lm_head.weight");
    assert_int_equal(rename(from, to), 0);
    map = "{\"weight_map\": {\"a\": \"a\", \"lm_head.weight\": \"h\"}}";
    assert_int_equal(vl_fs_write(index, map, strlen(map), &e), 0);
    for (int differs = 0; differs < 2; differs++) {
        struct taken t = { 0 };

        lm->slab[p[at].at + 700001] += (float)differs;
        assert_int_equal(vl_tensors_write(&p[at], 1, lm->slab, head, "F32", &e), 0);
        t.m = open_model(dir, VL_HEAD_LM, 0);
        assert_int_equal(read_model(&t, 2, &e), differs ? VL_E_DATA : 0);
        assert_string_equal(t.m->hash, differs ? "" : lm->hash);
        free_taken(&t);
        unlink(head);
    }
    assert_non_null(strstr(e.msg, "differs from model.embed_tokens.weight at element 700001 ("));
    vl_model_free(lm);
    vl_model_free(tied);
    discard(dir);
    free(p);
    free(index);
    free(from);
    free(head);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),      cmocka_unit_test(test_packed),
        cmocka_unit_test(test_shrinks),    cmocka_unit_test(test_changes),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_stray_head),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
