/* words.c - WordPiece (the longest piece first, from the left; a word that cannot be finished is
 * unknown as a whole) and WordLevel (a pre-token is a token or unknown). */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

static int unknown(const struct vl_words *w, struct vl_ids *out, struct vl_err *e)
{
    if (w->unk < 0)
        return vl_fail(e, VL_E_DATA, "the unknown token %s is not in the vocabulary", w->unk_text);
    vl_ids_add(out, w->unk);
    return 0;
}

/* The longest piece at s, after the first one with the prefix in front: its id, *k its bytes. */
static int32_t longest(const struct vl_words *w, const char *s, size_t n, int first, size_t *k,
                       struct vl_buf *key)
{
    size_t head = 0;

    vl_buf_reset(key);
    if (!first)
        vl_buf_str(key, w->prefix);
    head = key->n;
    vl_buf_add(key, s, n);
    for (size_t end = n; end; end = vl_uc_back(s, end)) {
        int32_t id = vl_vocab_get(w->vocab, key->s, head + end);

        if (id >= 0) {
            *k = end;
            return id;
        }
    }
    return -1;
}

int vl_words_encode(const struct vl_words *w, const char *s, size_t n, struct vl_ids *out,
                    struct vl_err *e)
{
    size_t start = out->n, k = 0;
    struct vl_buf key = { 0 };
    int32_t id = -1;

    if (w->whole) {
        id = vl_vocab_get(w->vocab, s, n);
        if (id < 0)
            return unknown(w, out, e);
        vl_ids_add(out, id);
        return 0;
    }
    if (vl_utf8_count(s, n) > w->max_chars)
        return unknown(w, out, e);
    for (size_t at = 0; at < n; at += k) {
        id = longest(w, s + at, n - at, at == 0, &k, &key);
        if (id < 0)
            break;
        vl_ids_add(out, id);
    }
    vl_buf_free(&key);
    if (id >= 0 || !n)
        return 0;
    out->n = start;
    return unknown(w, out, e);
}
