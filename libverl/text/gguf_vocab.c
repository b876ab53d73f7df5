/* gguf_vocab.c - the vocabulary of a GGUF file: texts, types, scores, special ids. */
#include "libverl/text/gguf_tok_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/utf8.h"
#include "libverl/text/tok_impl.h"

#define MAX_BYTES ((size_t)1 << 30) /* of all tokens */

/* ---- special ids ---- */

static int get_id(const struct vl_gguf *g, const char *key, int64_t def, int64_t tokens,
                  int64_t *id, struct vl_err *e)
{
    const struct vl_gguf_key *k = vl_gguf_find(g, key);

    *id = def < tokens ? def : -1;
    if (vl_gguf_i64(g, key, id, e))
        return e->code;
    if (k && (*id < 0 || *id >= tokens))
        return vl_fail(e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": %s is %" PRId64 "; expected one of %" PRId64
                       " tokens",
                       g->name, k->at, key, *id, tokens);
    return 0;
}

int vl_gguf_ids(const struct vl_gguf *g, struct vl_gguf_ids *out, struct vl_err *e)
{
    const struct vl_gguf_key *tokens;
    const char *model = NULL;
    size_t len = 0;
    int64_t n;
    int spm;

    if (vl_gguf_str(g, "tokenizer.ggml.model", &model, &len, e) ||
        vl_gguf_array(g, "tokenizer.ggml.tokens", VL_GGUF_STRING, &tokens, e))
        return e->code;
    spm = gguf_is(model, len, "llama");
    n = tokens ? (int64_t)tokens->n : INT32_MAX;
    (void)!(get_id(g, "tokenizer.ggml.bos_token_id", spm ? 1 : -1, n, &out->bos, e) ||
            get_id(g, "tokenizer.ggml.eos_token_id", spm ? 2 : -1, n, &out->eos, e) ||
            get_id(g, "tokenizer.ggml.eot_token_id", -1, n, &out->eot, e) ||
            get_id(g, "tokenizer.ggml.eom_token_id", -1, n, &out->eom, e) ||
            get_id(g, "tokenizer.ggml.unknown_token_id", spm ? 0 : -1, n, &out->unk, e) ||
            get_id(g, "tokenizer.ggml.padding_token_id", -1, n, &out->pad, e));
    return e->code;
}

/* ---- the vocabulary ---- */

/* Values of an array that must have one for each token, or NULL when it is absent. */
static int per_token(const struct gguf_vocab *v, const char *key, enum vl_gguf_type type,
                     void **out, struct vl_err *e)
{
    const struct vl_gguf_key *k;

    *out = NULL;
    if (vl_gguf_array(v->g, key, type, &k, e) || !k)
        return e->code;
    if ((int64_t)k->n != v->n)
        return vl_fail(e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": %s has %" PRIu64 " values; expected one for each of "
                       "%" PRId64 " tokens",
                       v->g->name, k->at, key, k->n, v->n);
    *out = vl_alloc((size_t)v->n * 4);
    memcpy(*out, v->g->data + k->at, (size_t)v->n * 4);
    return 0;
}

static int check_token(const struct gguf_vocab *v, int64_t i, struct vl_err *e)
{
    if (!v->len[i] || !vl_utf8_valid(v->s[i], v->len[i]))
        return vl_fail(e, VL_E_DATA, "%s: byte %zu: token %" PRId64 " is %s; expected UTF-8 text",
                       v->g->name, (size_t)((const uint8_t *)v->s[i] - v->g->data), i,
                       v->len[i] ? "not UTF-8" : "empty");
    if (v->type[i] < GGUF_NORMAL || v->type[i] > GGUF_BYTE)
        return vl_fail(e, VL_E_DATA,
                       "%s: token %" PRId64 " has type %" PRId32
                       "; expected 1 (normal), 2 (unknown), 3 (control), 4 (user-defined), 5 "
                       "(unused) or 6 (byte)",
                       v->g->name, i, v->type[i]);
    if (v->score && !isfinite(v->score[i]))
        return vl_fail(e, VL_E_DATA, "%s: token %" PRId64 " has score %f; expected a number",
                       v->g->name, i, (double)v->score[i]);
    return 0;
}

int vl_gguf_is_added(const struct gguf_vocab *v, int64_t i)
{
    return v->type[i] == GGUF_CONTROL || v->type[i] == GGUF_USER_DEFINED ||
           v->type[i] == GGUF_UNKNOWN;
}

/* No two tokens may be one text: only the last would have an id. */
static int check_twice(const struct gguf_vocab *v, size_t bytes, struct vl_err *e)
{
    struct vl_vocab seen;

    vl_vocab_init(&seen, v->n, v->n, bytes);
    for (int64_t i = 0; i < v->n && !e->code; i++) {
        int32_t other = vl_vocab_get(&seen, v->s[i], v->len[i]);

        if (other >= 0)
            vl_fail(e, VL_E_DATA, "%s: tokens %" PRId32 " and %" PRId64 " are both \"%.*s\"",
                    v->g->name, other, i, v->len[i] < 80 ? (int)v->len[i] : 80, v->s[i]);
        else
            vl_vocab_add(&seen, v->s[i], v->len[i], (int32_t)i);
    }
    vl_vocab_free(&seen);
    return e->code;
}

int vl_gguf_vocab_read(struct gguf_vocab *v, const struct vl_gguf *g, struct vl_err *e)
{
    const struct vl_gguf_key *k;
    size_t bytes = 0;
    void *types, *scores;
    uint64_t at;

    *v = (struct gguf_vocab){ .g = g };
    if (vl_gguf_array(g, "tokenizer.ggml.tokens", VL_GGUF_STRING, &k, e))
        return e->code;
    if (!k || !k->n || k->n > VL_TOK_MAX_ID)
        return vl_fail(e, VL_E_DATA,
                       "%s: tokenizer.ggml.tokens has %" PRIu64 " tokens; expected 1 to %d",
                       g->name, k ? k->n : 0, VL_TOK_MAX_ID);
    v->n = (int64_t)k->n;
    v->s = vl_alloc(k->n * sizeof *v->s);
    v->len = vl_alloc(k->n * sizeof *v->len);
    at = k->at;
    for (int64_t i = 0; i < v->n; i++) {
        at = vl_gguf_str_at(g, at, &v->s[i], &v->len[i]);
        bytes += v->len[i];
    }
    if (bytes > MAX_BYTES)
        return vl_fail(e, VL_E_DATA, "%s: tokens of %zu bytes in all; expected at most %zu",
                       g->name, bytes, MAX_BYTES);
    if (per_token(v, "tokenizer.ggml.token_type", VL_GGUF_I32, &types, e))
        return e->code;
    v->type = types;
    if (!v->type)
        return vl_fail(e, VL_E_DATA,
                       "%s: key tokenizer.ggml.token_type is missing: which tokens are special "
                       "cannot be told; " VL_GGUF_ASK,
                       g->name);
    if (per_token(v, "tokenizer.ggml.scores", VL_GGUF_F32, &scores, e))
        return e->code;
    v->score = scores;
    for (int64_t i = 0; i < v->n; i++) {
        if (check_token(v, i, e))
            return e->code;
        if (v->type[i] != GGUF_UNUSED)
            v->end = i + 1;
    }
    /* ids without holes: whatever stands before the last ordinary token is in the model, too */
    for (int64_t i = 0; i < v->end; i++)
        if (!vl_gguf_is_added(v, i))
            v->own = i + 1;
    return check_twice(v, bytes, e);
}

void vl_gguf_vocab_free(struct gguf_vocab *v)
{
    free(v->s);
    free(v->len);
    free(v->type);
    free(v->score);
}
