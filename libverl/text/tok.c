/* tok.c - encoding a text, and the small questions about a tokenizer. See tok.h. */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

void vl_ids_add(struct vl_ids *x, int32_t id)
{
    if (x->n == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 64;
        x->id = vl_realloc(x->id, x->cap * sizeof *x->id);
    }
    x->id[x->n++] = id;
}

void vl_ids_free(struct vl_ids *x)
{
    free(x->id);
    *x = (struct vl_ids){ 0 };
}

/* One call of vl_tok_encode on its way through the parts. */
struct encoding {
    const struct vl_tok *t;
    unsigned flags;
    struct vl_pieces pieces;
    struct vl_buf norm;
    struct vl_ids *out;
    int first; /* nothing came before this part */
    int64_t special;
};

static int encode_piece(const struct vl_tok *t, const char *s, size_t n, struct vl_ids *out,
                        struct vl_err *e)
{
    switch (t->model) {
    case VL_MODEL_BPE:
        return vl_bpe_encode(&t->bpe, s, n, out, e);
    case VL_MODEL_UNIGRAM:
        return vl_unigram_encode(&t->unigram, s, n, out, e);
    case VL_MODEL_WORDS:
        return vl_words_encode(&t->words, s, n, out, e);
    }
    return 0;
}

static int plain(struct encoding *x, const char *s, size_t n, struct vl_err *e)
{
    vl_buf_reset(&x->pieces.text);
    vl_buf_add(&x->pieces.text, s, n);
    if (vl_pretokenize(x->t->pre, x->t->npre, &x->pieces, x->first, e))
        return e->code;
    for (size_t i = 0; i < x->pieces.nspan; i++)
        if (encode_piece(x->t, x->pieces.text.s + x->pieces.span[i].at, x->pieces.span[i].n, x->out,
                         e))
            return e->code;
    return 0;
}

static int normalized_part(void *arg, const char *s, size_t n, int32_t id, struct vl_err *e)
{
    struct encoding *x = arg;

    if (id >= 0)
        vl_ids_add(x->out, id);
    else if (plain(x, s, n, e))
        return e->code;
    x->first = 0;
    return 0;
}

static int raw_part(void *arg, const char *s, size_t n, int32_t id, struct vl_err *e)
{
    struct encoding *x = arg;
    struct vl_cut cut = { .part = normalized_part, .arg = x };
    int lost = 0;

    if (id >= 0) {
        vl_ids_add(x->out, id);
        x->first = 0;
        return 0;
    }
    vl_buf_reset(&x->norm);
    vl_buf_add(&x->norm, s, n);
    if (vl_normalize(x->t->norm, x->t->nnorm, &x->norm, x->pieces.m, &lost, e))
        return e->code;
    x->first &= !lost;
    return vl_added_cut(x->t, &x->t->normalized, x->norm.s, x->norm.n, x->flags, &cut, e);
}

/* Takes the marks out of the text; *at gets where, in what is left, the characters before them
 * start: there no special token is meant. */
static void unmark(const char *text, size_t n, struct vl_buf *out, size_t **at, size_t *nat)
{
    size_t cap = 0;

    for (size_t i = 0; i < n; i++) {
        if (n - i < 3 || memcmp(text + i, VL_TOK_MARK, 3) != 0 || !out->n) {
            vl_buf_ch(out, text[i]);
            continue;
        }
        if (*nat == cap) {
            cap = cap ? 2 * cap : 16;
            *at = vl_realloc(*at, cap * sizeof **at);
        }
        (*at)[(*nat)++] = vl_uc_back(out->s, out->n);
        i += 2;
    }
}

int vl_tok_encode(const struct vl_tok *t, const char *text, size_t n, unsigned flags,
                  struct vl_ids *out, struct vl_err *e)
{
    struct encoding x = { .t = t, .flags = flags, .out = out, .first = 1 };
    struct vl_cut cut = { .part = raw_part, .arg = &x };
    struct vl_buf good = { 0 }, plain_text = { 0 };
    size_t *not_at = NULL;

    if (!vl_utf8_valid(text, n)) {
        vl_utf8_lossy(&good, text, n);
        text = good.s, n = good.n;
    }
    if (flags & VL_TOK_MARKED) {
        unmark(text, n, &plain_text, &not_at, &cut.nnot);
        text = plain_text.s ? plain_text.s : "", n = plain_text.n;
        cut.not_at = not_at;
    }
    x.pieces.m = vl_regex_match_new();
    if (flags & VL_TOK_SPECIAL)
        for (size_t i = 0; i < t->post.before.n; i++)
            vl_ids_add(out, t->post.before.id[i]);
    if (vl_added_cut(t, &t->raw, text, n, flags, &cut, e) == 0 && (flags & VL_TOK_SPECIAL))
        for (size_t i = 0; i < t->post.after.n; i++)
            vl_ids_add(out, t->post.after.id[i]);
    free(not_at);
    vl_buf_free(&good);
    vl_buf_free(&plain_text);
    vl_buf_free(&x.norm);
    vl_pieces_free(&x.pieces);
    return e->code;
}

int vl_tok_pretokens(const struct vl_tok *t, const char *text, size_t n,
                     void (*piece)(void *arg, const char *s, size_t n), void *arg, struct vl_err *e)
{
    struct vl_pieces p = { .m = vl_regex_match_new() };
    int lost = 0;

    vl_utf8_lossy(&p.text, text, n);
    if (vl_normalize(t->norm, t->nnorm, &p.text, p.m, &lost, e) == 0 &&
        vl_pretokenize(t->pre, t->npre, &p, !lost, e) == 0)
        for (size_t i = 0; i < p.nspan; i++)
            piece(arg, p.text.s + p.span[i].at, p.span[i].n);
    vl_pieces_free(&p);
    return e->code;
}

static int count_part(void *arg, const char *s, size_t n, int32_t id, struct vl_err *e)
{
    struct encoding *x = arg;

    (void)s, (void)n, (void)e;
    x->special += vl_tok_is_special(x->t, id);
    return 0;
}

int64_t vl_tok_count_special(const struct vl_tok *t, const char *text, size_t n)
{
    struct encoding x = { .t = t };
    struct vl_cut cut = { .part = count_part, .arg = &x };
    struct vl_err e = { 0 };

    if (vl_added_cut(t, &t->raw, text, n, 0, &cut, &e) ||
        vl_added_cut(t, &t->normalized, text, n, 0, &cut, &e))
        return 0;
    return x.special;
}

static int mark_part(void *arg, const char *s, size_t n, int32_t id, struct vl_err *e)
{
    struct encoding *x = arg;
    uint32_t cp;
    size_t k = 0;

    (void)e;
    if (n && vl_tok_is_special(x->t, id)) {
        k = vl_uc_next(s, n, &cp);
        vl_buf_add(&x->norm, s, k);
        vl_buf_str(&x->norm, VL_TOK_MARK);
    }
    vl_buf_add(&x->norm, s + k, n - k);
    return 0;
}

int vl_tok_mark(const struct vl_tok *t, const char *text, size_t n, struct vl_buf *out,
                struct vl_err *e)
{
    struct encoding x = { .t = t };
    struct vl_cut cut = { .part = mark_part, .arg = &x };

    if (memmem(text, n, VL_TOK_MARK, 3))
        return vl_fail(e, VL_E_DATA, "the text holds U+FDD0, which is no character");
    for (size_t i = 0; i < t->nadded; i++)
        if (t->added[i].special && t->added[i].normalized)
            return vl_fail(e, VL_E_DATA,
                           "the tokenizer looks for the special token %s in normalized text: "
                           "spelled ones cannot be told from real ones",
                           t->added[i].s);
    if (vl_added_cut(t, &t->raw, text, n, 0, &cut, e) == 0)
        vl_buf_add(out, x.norm.s, x.norm.n);
    vl_buf_free(&x.norm);
    return e->code;
}

const char *vl_tok_text(const struct vl_tok *t, int32_t id, size_t *n)
{
    const struct vl_vocab *v = &t->vocab;

    if (id < 0 || id >= t->size)
        return NULL;
    if (t->added_of[id] >= 0) {
        *n = t->added[t->added_of[id]].n;
        return t->added[t->added_of[id]].s;
    }
    if (id >= v->size || v->len[id] == UINT32_MAX)
        return NULL;
    *n = v->len[id];
    return v->pool + v->off[id];
}

int32_t vl_tok_id(const struct vl_tok *t, const char *token, size_t n)
{
    for (size_t i = 0; i < t->nadded; i++)
        if (t->added[i].n == n && memcmp(t->added[i].s, token, n) == 0)
            return t->added[i].id;
    return vl_vocab_get(&t->vocab, token, n);
}

int64_t vl_tok_size(const struct vl_tok *t)
{
    return t->size;
}

int32_t vl_tok_bos(const struct vl_tok *t)
{
    return t->bos;
}

int32_t vl_tok_eos(const struct vl_tok *t)
{
    return t->eos;
}

int32_t vl_tok_pad(const struct vl_tok *t)
{
    return t->pad >= 0 ? t->pad : t->eos;
}

const char *vl_tok_template(const struct vl_tok *t)
{
    return t->tmpl;
}

void vl_tok_texts(const struct vl_tok *t, struct vl_buf *out)
{
    if (t->config)
        vl_buf_add(out, t->config, t->config_n);
    vl_buf_printf(out, "\n%s\n%s\n", t->tmpl ? t->tmpl : "", t->tmpl_tools ? t->tmpl_tools : "");
}

const char *vl_tok_hash(const struct vl_tok *t)
{
    return t->hash;
}
