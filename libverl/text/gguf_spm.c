/* gguf_spm.c - the merges of a SentencePiece BPE, from its pieces' scores. See gguf_tok_impl.h.
 *
 * SentencePiece joins the two neighbours whose text is the piece with the highest score; tokenizer.json
 * wants pairs in order. So every cut of every piece into two pieces is a merge, sorted by the piece's
 * score, and among cuts of one score by the length of the left side, then of the right, the longest
 * first: the order in which transformers converts these. Control, unknown and byte pieces are no text
 * to SentencePiece and take no part. */
#include "libverl/text/gguf_tok_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/text/unicode.h"
#include "libverl/text/tok_impl.h"

#define MAX_PIECE 512 /* bytes: the work grows with the square */

struct cut {
    float score;
    int32_t id, left, right; /* of the whole, its ends' */
    uint32_t nleft, nright;  /* characters */
};

struct cuts {
    struct cut *c;
    size_t n, cap;
};

static int by_rank(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->nleft != y->nleft)
        return x->nleft > y->nleft ? -1 : 1;
    if (x->nright != y->nright)
        return x->nright > y->nright ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id ? 1 : 0;
}

static int is_text(const struct gguf_vocab *v, int64_t id)
{
    return v->type[id] == GGUF_NORMAL || v->type[id] == GGUF_USER_DEFINED;
}

static void add_cuts(struct cuts *out, const struct gguf_vocab *v, const struct vl_vocab *text,
                     int32_t id)
{
    const char *s = v->s[id];
    size_t n = v->len[id];

    for (size_t at = 1; at < n; at++) {
        int32_t left, right;

        if (((unsigned char)s[at] & 0xC0) == 0x80)
            continue; /* inside a character */
        left = vl_vocab_get(text, s, at);
        right = left < 0 ? -1 : vl_vocab_get(text, s + at, n - at);
        if (right < 0)
            continue;
        if (out->n == out->cap) {
            out->cap = out->cap ? 2 * out->cap : 4096;
            out->c = vl_realloc(out->c, out->cap * sizeof *out->c);
        }
        out->c[out->n++] = (struct cut){ v->score[id],
                                         id,
                                         left,
                                         right,
                                         (uint32_t)vl_utf8_count(s, at),
                                         (uint32_t)vl_utf8_count(s + at, n - at) };
    }
}

int vl_gguf_put_spm_merges(struct vl_buf *b, const struct gguf_vocab *v, struct vl_err *e)
{
    struct vl_vocab text;
    struct cuts all = { 0 };
    size_t bytes = 0;

    for (int64_t i = 0; i < v->n; i++) {
        bytes += v->len[i];
        if (is_text(v, i) && v->len[i] > MAX_PIECE)
            return vl_fail(e, VL_E_DATA,
                           "%s: token %" PRId64 " has %zu bytes; expected pieces of at most %d",
                           v->g->name, i, v->len[i], MAX_PIECE);
    }
    vl_vocab_init(&text, v->n, v->n, bytes);
    for (int64_t i = 0; i < v->n; i++)
        if (is_text(v, i))
            vl_vocab_add(&text, v->s[i], v->len[i], (int32_t)i);
    for (int64_t i = 0; i < v->n; i++)
        if (is_text(v, i))
            add_cuts(&all, v, &text, (int32_t)i);
    if (all.n)
        qsort(all.c, all.n, sizeof *all.c, by_rank);
    vl_buf_ch(b, '[');
    for (size_t i = 0; i < all.n; i++) {
        vl_buf_str(b, i ? ",\n  [" : "\n  [");
        (void)vl_json_put_str(b, v->s[all.c[i].left], v->len[all.c[i].left]);
        vl_buf_str(b, ", ");
        (void)vl_json_put_str(b, v->s[all.c[i].right], v->len[all.c[i].right]);
        vl_buf_ch(b, ']');
    }
    vl_buf_str(b, "]");
    free(all.c);
    vl_vocab_free(&text);
    return 0;
}
