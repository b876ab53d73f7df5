/* charsmap.c - the normalizer Precompiled: SentencePiece's table of replacements, a double-array
 * trie of what is replaced and a pool of NUL-ended strings that replace it.
 *
 * The trie is asked about each grapheme cluster below six bytes, then about its characters; where
 * some beginning of what is asked about is in the trie, the whole of it gets replaced. Odd, and what
 * the reference does: models were trained on it. */
#include "libverl/text/tok_impl.h"

#include <string.h>
#include <utf8proc.h>

#include "libverl/base/base64.h"
#include "libverl/text/unicode.h"

/* A unit: bits 0-7 label, 8 "a value follows", 9 scale of the offset, 10-30 offset; a value has bit 31
 * set. */
static uint32_t unit_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

int vl_charsmap_read(struct vl_norm *s, const char *base64, size_t n)
{
    struct vl_buf b = { 0 };
    uint32_t bytes = 0;
    int ok = vl_base64_get(&b, base64, n) && b.n >= 4;

    if (ok) {
        memcpy(&bytes, b.s, 4); /* little endian, as this machine */
        ok = bytes <= b.n - 4 && bytes % 4 == 0 && bytes > 0 &&
             vl_utf8_valid(b.s + 4 + bytes, b.n - 4 - bytes);
    }
    if (ok) {
        s->ntrie = bytes / 4;
        s->trie = vl_alloc(bytes);
        memcpy(s->trie, b.s + 4, bytes);
        s->n = b.n - 4 - bytes;
        s->text = vl_strndup(b.s + 4 + bytes, s->n);
    }
    vl_buf_free(&b);
    return !ok;
}

/* Appends what replaces the shortest beginning of s that is in the trie: 1, or 0 if none is. */
static int replace(const struct vl_norm *m, const char *s, size_t n, struct vl_buf *out)
{
    uint32_t at = unit_offset(m->trie[0]), index;

    for (size_t i = 0; i < n && s[i]; i++) {
        uint32_t unit;

        at ^= (unsigned char)s[i];
        if (at >= m->ntrie)
            return 0;
        unit = m->trie[at];
        if ((unit & (1u << 31 | 0xFF)) != (unsigned char)s[i])
            return 0;
        at ^= unit_offset(unit);
        if (unit & 1u << 8) {
            if (at >= m->ntrie)
                return 0;
            index = m->trie[at] & ~(1u << 31);
            if (index > m->n || (index < m->n && (m->text[index] & 0xC0) == 0x80))
                return 0;
            vl_buf_str(out, m->text + index);
            return 1;
        }
    }
    return 0;
}

static void cluster(const struct vl_norm *m, const char *s, size_t n, struct vl_buf *out)
{
    size_t k;

    if (n < 6 && replace(m, s, n, out))
        return;
    for (size_t i = 0; i < n; i += k) {
        uint32_t cp;

        k = vl_uc_next(s + i, n - i, &cp);
        if (!replace(m, s + i, k, out))
            vl_buf_add(out, s + i, k);
    }
}

int vl_charsmap_apply(const struct vl_norm *m, const struct vl_buf *b, struct vl_buf *out)
{
    utf8proc_int32_t state = 0;
    size_t start = 0, k;
    uint32_t last = 0;
    int lost = 0;

    for (size_t i = 0; i < b->n; i += k) {
        uint32_t cp;

        k = vl_uc_next(b->s + i, b->n - i, &cp);
        if (i && utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)cp,
                                                  &state)) {
            cluster(m, b->s + start, i - start, out);
            lost |= start == 0 && !out->n;
            start = i;
        }
        last = cp;
    }
    cluster(m, b->s + start, b->n - start, out);
    return lost;
}
