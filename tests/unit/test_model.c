/* test_model.c - config.json tables, the slab under Hugging Face's names, saving and loading. */
#include "libverl/base/dmath.h"
#include "libverl/base/fs.h"
#include "libverl/base/half.h"
#include "libverl/model/tensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZES                                                                                      \
    "\"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                  \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 24, \"vocab_size\": 11, "                  \
    "\"max_position_embeddings\": 64"

static int parse(struct vl_config *c, struct vl_err *e, const char *more)
{
    char *text = vl_asprintf("{%s%s}", SIZES, more);
    int rc;

    *e = (struct vl_err){ 0 };
    rc = vl_config_parse(c, text, strlen(text), "config.json", e);
    free(text);
    return rc;
}

static void test_config_values(void **state)
{
    struct vl_config c;
    struct vl_err e;

    (void)state;
    assert_int_equal(parse(&c, &e, ", \"model_type\": \"llama\""), 0);
    assert_int_equal(c.D, 4);
    assert_int_equal(c.tied || c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm, 0);
    assert_int_equal(c.window, 0);
    assert_true(c.rms_eps == 1e-6 && c.rope_theta == 10000);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e,
                           ", \"model_type\": \"llama\", \"attention_bias\": true, "
                           "\"mlp_bias\": true, \"head_dim\": 6, "
                           "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-5"),
                     0);
    assert_true(c.qkv_bias && c.o_bias && c.mlp_bias && c.tied && c.D == 6 && c.rms_eps == 1e-5);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e, ", \"architectures\": [\"Qwen2ForCausalLM\"]"), 0);
    assert_true(c.arch == VL_ARCH_QWEN2 && c.qkv_bias && !c.o_bias && c.window == 0);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e,
                           ", \"model_type\": \"qwen2\", \"use_sliding_window\": true, "
                           "\"sliding_window\": 8, \"max_window_layers\": 1"),
                     0);
    assert_true(c.window == 8 && c.window_from == 1);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e, ", \"model_type\": \"qwen3\""), 0);
    assert_true(c.qk_norm && !c.qkv_bias && c.D == 128);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e, ", \"model_type\": \"mistral\""), 0);
    assert_int_equal(c.window, 4096);
    vl_config_free(&c);
    assert_int_equal(parse(&c, &e, ", \"model_type\": \"mistral\", \"sliding_window\": null"), 0);
    assert_int_equal(c.window, 0);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e,
                           ", \"architectures\": [\"LlamaForTokenClassification\"], "
                           "\"model_type\": \"llama\""),
                     0);
    assert_int_equal(c.head, VL_HEAD_VALUE);
    assert_string_equal(vl_config_class(&c), "LlamaForTokenClassification");
    vl_config_free(&c);
    assert_int_equal(parse(&c, &e,
                           ", \"architectures\": [\"Qwen2ForSequenceClassification\"], "
                           "\"model_type\": \"qwen2\""),
                     0);
    assert_int_equal(c.head, VL_HEAD_VALUE);
    assert_string_equal(vl_config_class(&c), "Qwen2ForSequenceClassification");
    vl_config_free(&c);
}

static void test_config_rope(void **state)
{
    struct vl_config c;
    struct vl_err e;

    (void)state;
    assert_int_equal(parse(&c, &e,
                           ", \"model_type\": \"llama\", \"rope_theta\": 5e5, \"rope_scaling\": "
                           "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                           "\"high_freq_factor\": 4.0, "
                           "\"original_max_position_embeddings\": 32}"),
                     0);
    assert_true(c.rope.type == VL_ROPE_LLAMA3 && c.rope.factor == 8 && c.rope.original_max == 32);
    assert_true(c.rope_theta == 5e5);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e,
                           ", \"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": "
                           "\"linear\", \"factor\": 2, \"rope_theta\": 1e6}"),
                     0);
    assert_true(c.rope.type == VL_ROPE_LINEAR && c.rope.factor == 2 && c.rope_theta == 1e6);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e,
                           ", \"model_type\": \"qwen2\", \"rope_scaling\": {\"type\": \"yarn\", "
                           "\"factor\": 4.0, \"original_max_position_embeddings\": 16}"),
                     0);
    assert_true(c.rope.type == VL_ROPE_YARN && c.rope.beta_fast == 32 && c.rope.beta_slow == 1);
    assert_true(fabs(c.rope.attention_factor - (0.1 * log(4.0) + 1)) < 1e-15);
    vl_config_free(&c);

    assert_int_equal(parse(&c, &e,
                           ", \"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": "
                           "\"default\", \"rope_theta\": 123.0}"),
                     0);
    assert_true(c.rope.type == VL_ROPE_NONE && c.rope_theta == 123);
    vl_config_free(&c);
}

static void test_config_refused(void **state)
{
    static const char *const bad[][2] = {
        { ", \"model_type\": \"gemma2\"", "gemma2" },
        { ", \"architectures\": [\"MixtralForCausalLM\"]", "MixtralForCausalLM" },
        { "", "model_type" },
        { ", \"model_type\": \"qwen2\", \"architectures\": [\"LlamaForCausalLM\"]", "contradicts" },
        { ", \"model_type\": \"llama\", \"hidden_act\": \"gelu\"", "gelu" },
        { ", \"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}",
          "dynamic" },
        { ", \"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\"}", "factor" },
        { ", \"model_type\": \"llama\", \"num_attention_heads\": 3", "multiple" },
        { ", \"model_type\": \"llama\", \"head_dim\": 5", "head_dim" },
        { ", \"model_type\": \"llama\", \"vocab_size\": 0", "vocab_size is 0" },
        { ", \"model_type\": \"llama\", \"vocab_size\": \"11\"", "vocab_size" },
        { ", \"model_type\": \"llama\", \"quantization_config\": {}", "quantiz" },
        { ", \"model_type\": \"llama\", \"partial_rotary_factor\": 1, \"rope_parameters\": "
          "{\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}",
          "partial_rotary_factor" },
        { ", \"model_type\": \"qwen3\", \"use_sliding_window\": true, \"sliding_window\": 8, "
          "\"layer_types\": [\"sliding_attention\", \"full_attention\"]",
          "layer_types" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct vl_config c;
        struct vl_err e;

        assert_int_equal(parse(&c, &e, bad[i][0]), VL_E_DATA);
        if (!strstr(e.msg, bad[i][1]))
            fail_msg("case %zu: %s", i, e.msg);
    }
}

static void test_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = vl_f16_to_f32((uint16_t)h), b = vl_bf16_to_f32((uint16_t)h);
        int exp = h >> 10 & 31, man = h & 0x3ff;
        double value = exp == 31 ? (man ? NAN : INFINITY)
                       : exp     ? ldexp(1024 + man, exp - 25)
                                 : ldexp(man, -24);

        assert_true(isnan(value) ? isnan(f) : f == (float)(h & 0x8000 ? -value : value));
        assert_int_equal(!signbit(f), !(h & 0x8000));
        if (f == f)
            assert_int_equal(vl_f32_to_f16(f), h);
        if (b == b)
            assert_int_equal(vl_f32_to_bf16(b), h);
    }
    assert_int_equal(vl_f32_to_bf16(1.00390625f), 0x3f80); /* tie to even, down */
    assert_int_equal(vl_f32_to_bf16(1.01171875f), 0x3f82); /* tie to even, up */
    assert_int_equal(vl_f32_to_f16(65520.0f), 0x7c00);     /* past the largest */
    assert_int_equal(vl_f32_to_f16(0x1p-25f), 0);          /* half the smallest: to even */
    assert_int_equal(vl_f32_to_f16(0x1.8p-25f), 1);
}

static void test_normal(void **state)
{
    (void)state;
    assert_true(vl_normal_quantile(0.5) == 0);
    assert_true(fabs(vl_normal_quantile(0.975) - 1.959963984540054) < 1e-14);
    assert_true(fabs(vl_normal_quantile(1e-10) + 6.361340902404056) < 1e-12);
    assert_true(fabs(vl_dlog(10) - 2.302585092994046) < 1e-15 && vl_dlog(1) == 0);
    assert_true(vl_dcospi(0) == 1 && vl_dcospi(0.5) == 0 && vl_dcospi(1) == -1);
    assert_true(fabs(vl_dcospi(1.0 / 3) - 0.5) < 1e-15);
}

static char *scratch(void)
{
    char *t = vl_strdup("/tmp/verl-model.XXXXXX");

    assert_non_null(mkdtemp(t));
    return t;
}

static struct vl_model *make(const char *more, enum vl_head head)
{
    char *text = vl_asprintf("{%s%s, \"made_by\": \"x y\"}", SIZES, more);
    struct vl_err e = { 0 };
    struct vl_model *m = NULL;

    if (vl_model_new(&m, text, "config.json", head, &e))
        fail_msg("%s", e.msg);
    free(text);
    vl_model_init(m, 7, 0.02, 1);
    return m;
}

static void test_layout(void **state)
{
    struct vl_model *m = make(", \"model_type\": \"qwen2\"", VL_HEAD_LM);
    const struct vl_param *qkv = vl_model_param(m, "layers.1.qkv");
    struct vl_piece *p;
    int64_t n, floats = 0, next = 0;

    (void)state;
    assert_non_null(qkv);
    assert_int_equal(qkv->rows, (4 + 2 * 2) * 4);
    assert_int_equal(qkv->cols, 16);
    assert_non_null(vl_model_param(m, "head"));
    assert_null(vl_model_param(m, "layers.1.o_bias"));
    assert_null(vl_model_param(m, "layers.2.qkv"));
    for (int64_t i = 0; i < m->nparam; i++) {
        assert_int_equal(m->param[i].offset, next);
        assert_int_equal(m->param[i].offset % 16, 0);
        next += (m->param[i].rows * m->param[i].cols + 15) / 16 * 16;
        floats += m->param[i].rows * m->param[i].cols;
    }
    assert_int_equal(next, m->count);
    p = vl_model_pieces(m, &n);
    assert_int_equal(n, 1 + 2 * 12 + 2);
    for (int64_t i = 0; i < n; i++) {
        if (!strcmp(p[i].name, "model.layers.1.self_attn.v_proj.weight"))
            assert_int_equal(p[i].at, qkv->offset + (16 + 8) * 16);
        floats -= p[i].n;
    }
    assert_int_equal(floats, 0);
    free(p);
    vl_model_free(m);
}

static void save_and_compare(const struct vl_model *m, const char *dtype, int64_t shard, int exact)
{
    char *dir = scratch();
    struct vl_err e = { 0 };
    struct vl_model *r = NULL;

    if (vl_model_save(m, dir, dtype, shard, NULL, &e) ||
        vl_model_open(&r, dir, VL_HEAD_AUTO, 1, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(vl_fs_exists(dir, "model.safetensors.index.json"), shard != 0);
    assert_int_equal(r->count, m->count);
    assert_int_equal(r->cfg.head, m->cfg.head);
    assert_non_null(strstr(r->cfg.json, "\"made_by\": \"x y\""));
    assert_string_equal(r->stored_dtype, dtype);
    assert_int_equal(!strcmp(r->hash, m->hash), exact);
    assert_int_equal(!memcmp(r->slab, m->slab, sizeof(float) * (size_t)m->count), exact);
    for (int64_t i = 0; i < m->count; i++)
        assert_true(fabsf(r->slab[i] - m->slab[i]) <= fabsf(m->slab[i]) / 256 + 1e-7f);
    vl_model_free(r);
    assert_int_equal(vl_fs_remove(dir, &e), 0);
    free(dir);
}

static void test_round_trip(void **state)
{
    static const char *const type[] = {
        ", \"model_type\": \"llama\", \"mlp_bias\": true, \"attention_bias\": true",
        ", \"model_type\": \"qwen2\", \"tie_word_embeddings\": true",
        ", \"model_type\": \"qwen3\", \"head_dim\": 8",
        ", \"model_type\": \"mistral\"",
    };

    (void)state;
    for (int i = 0; i < 4; i++)
        for (int head = 0; head < 2; head++) {
            struct vl_model *m = make(type[i], (enum vl_head)head);

            save_and_compare(m, "F32", 0, 1);
            save_and_compare(m, "F32", 3000, 1);
            save_and_compare(m, "BF16", 0, 0);
            save_and_compare(m, "F16", 2000, 0);
            vl_model_free(m);
        }
}

/* Saves `from` into a fresh directory whose config.json is `config`'s, then opens it. */
static void expect_refused(const struct vl_model *from, const struct vl_model *config,
                           enum vl_head head, const char *words)
{
    char *dir = scratch(), *path = vl_asprintf("%s/config.json", dir);
    char *text = vl_config_text(&config->cfg, "F32");
    struct vl_err e = { 0 };
    struct vl_model *r = NULL;

    assert_int_equal(vl_model_save(from, dir, "F32", 0, NULL, &e), 0);
    unlink(path);
    assert_int_equal(vl_fs_write(path, text, strlen(text), &e), 0);
    assert_int_equal(vl_model_open(&r, dir, head, 1, &e), VL_E_DATA);
    assert_null(r);
    if (!strstr(e.msg, words))
        fail_msg("%s", e.msg);
    e = (struct vl_err){ 0 };
    assert_int_equal(vl_fs_remove(dir, &e), 0);
    free(text);
    free(path);
    free(dir);
}

static void test_refused(void **state)
{
    struct vl_model *tied = make(", \"model_type\": \"llama\", \"tie_word_embeddings\": true", 0);
    struct vl_model *plain = make(", \"model_type\": \"llama\"", 0);
    struct vl_model *bias = make(", \"model_type\": \"qwen2\"", 0);
    struct vl_model *wide = make(", \"model_type\": \"llama\", \"head_dim\": 8", 0);
    struct vl_model *value = make(", \"model_type\": \"llama\"", VL_HEAD_VALUE);

    (void)state;
    expect_refused(tied, plain, VL_HEAD_LM, "lm_head.weight is missing");
    expect_refused(plain, tied, VL_HEAD_LM, "differs from model.embed_tokens.weight");
    expect_refused(bias, plain, VL_HEAD_LM, "has no place");
    expect_refused(plain, bias, VL_HEAD_LM, "self_attn.q_proj.bias is missing");
    expect_refused(plain, wide, VL_HEAD_LM, "has shape [16, 16]; config.json makes it [32, 16]");
    expect_refused(value, value, VL_HEAD_LM, "holds a value head");
    plain->slab[3] = INFINITY;
    expect_refused(plain, plain, VL_HEAD_LM, "element 3");
    vl_model_free(tied);
    vl_model_free(plain);
    vl_model_free(bias);
    vl_model_free(wide);
    vl_model_free(value);
}

/* A critic made from a language model: the head is zero, the rest is the model's. */
static void test_value_from_lm(void **state)
{
    struct vl_model *m = make(", \"model_type\": \"llama\"", VL_HEAD_LM), *r;
    char *dir = scratch();
    struct vl_err e = { 0 };
    const struct vl_param *h;

    (void)state;
    assert_int_equal(vl_model_save(m, dir, "F32", 0, NULL, &e), 0);
    assert_int_equal(vl_model_open(&r, dir, VL_HEAD_VALUE, 1, &e), 0);
    h = vl_model_param(r, "value_head");
    assert_non_null(h);
    assert_null(vl_model_param(r, "head"));
    for (int64_t i = 0; i < 16; i++)
        assert_true(r->slab[h->offset + i] == 0);
    assert_memory_equal(r->slab, m->slab, sizeof(float) * (size_t)h->offset);
    vl_model_free(r);
    vl_model_free(m);
    assert_int_equal(vl_fs_remove(dir, &e), 0);
    free(dir);
}

static void test_init(void **state)
{
    struct vl_model *a = make(", \"model_type\": \"llama\"", VL_HEAD_LM);
    struct vl_model *b = make(", \"model_type\": \"llama\"", VL_HEAD_LM);
    const struct vl_param *p = vl_model_param(a, "embed");
    double sum = 0, sq = 0;
    int64_t n = p->rows * p->cols;

    (void)state;
    assert_string_equal(a->hash, b->hash);
    vl_model_init(b, 8, 0.02, 1);
    assert_string_not_equal(a->hash, b->hash);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a->slab[i];
        sq += (double)a->slab[i] * (double)a->slab[i];
    }
    assert_true(fabs(sum / (double)n) < 0.006 && fabs(sqrt(sq / (double)n) - 0.02) < 0.004);
    assert_true(a->slab[vl_model_param(a, "norm")->offset] == 1);
    vl_model_free(a);
    vl_model_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_values),  cmocka_unit_test(test_config_rope),
        cmocka_unit_test(test_config_refused), cmocka_unit_test(test_half),
        cmocka_unit_test(test_normal),         cmocka_unit_test(test_layout),
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_value_from_lm),  cmocka_unit_test(test_init),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
