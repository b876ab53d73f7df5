/* fuzz_gguf.c - GGUF files: any bytes are refused with one line, or every key and tensor lies inside
 * them; then config.json, tokenizer files and weights are made of what was read, or refused likewise. */
#include "formats/gguf.h"
#include "formats/json.h"
#include "libverl/model/gguf_model.h"
#include "libverl/text/gguf_tok.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

static void one_line(struct vl_err *e, int rc)
{
    assert(rc == e->code && (!rc || rc == VL_E_DATA));
    assert(!rc || (e->msg[0] && !strchr(e->msg, '\n')));
}

static void check_places(const struct vl_gguf *g)
{
    for (size_t i = 0; i < g->nkey; i++) {
        const struct vl_gguf_key *k = &g->key[i];
        uint64_t at = k->at;
        const char *s;
        size_t n;

        assert(vl_gguf_find(g, k->name) == k);
        if (k->type == VL_GGUF_STRING)
            for (uint64_t j = 0; j < k->n; j++)
                at = vl_gguf_str_at(g, at, &s, &n);
        else
            at += k->n * (uint64_t)vl_gguf_type_size(k->type);
        assert(at <= g->size);
    }
    for (size_t i = 0; i < g->ntensor; i++) {
        const struct vl_gguf_tensor *t = &g->tensor[i];
        uint64_t elems = (uint64_t)t->type->elems;
        float *x;

        assert(vl_gguf_tensor(g, t->name) == t);
        assert(t->at <= g->size && t->bytes <= g->size - t->at);
        assert(t->n > 0 && (uint64_t)t->n / elems * (uint64_t)t->type->bytes == t->bytes);
        if (!t->type->block)
            continue;
        x = vl_alloc((size_t)t->n * sizeof *x);
        vl_ggml_to_f32(t->type, x, g->data + t->at, t->n);
        free(x);
    }
}

static void check_json(const struct vl_buf *b, const char *name)
{
    struct vl_json j;
    struct vl_err e = { 0 };

    assert(vl_json_parse(&j, b->s, b->n, name, &e) == 0);
    vl_json_free(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vl_buf a = { 0 }, b = { 0 };
    struct vl_model *m = NULL;
    struct vl_gguf g;
    struct vl_err e = { 0 };
    int rc = vl_gguf_parse(&g, data, size, "fuzz", &e);

    one_line(&e, rc);
    if (!rc) {
        check_places(&g);
        (void)vl_gguf_has_tokenizer(&g);
        rc = vl_gguf_tokenizer(&g, &a, &b, &e);
        one_line(&e, rc);
        if (!rc) {
            check_json(&a, "tokenizer.json");
            check_json(&b, "tokenizer_config.json");
        }
        e = (struct vl_err){ 0 };
        vl_buf_reset(&a);
        vl_buf_reset(&b);
        rc = vl_gguf_config(&g, &a, &b, &e);
        one_line(&e, rc);
        if (!rc) {
            check_json(&a, "config.json");
            check_json(&b, "generation_config.json");
        }
        e = (struct vl_err){ 0 };
        rc = vl_gguf_model(&m, &g, VL_HEAD_AUTO, &e);
        one_line(&e, rc);
        assert(!rc == !!m);
        vl_model_free(m);
    }
    vl_buf_free(&a);
    vl_buf_free(&b);
    vl_gguf_close(&g);
    return 0;
}
