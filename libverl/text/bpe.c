/* bpe.c - byte-pair encoding of one pre-token: repeatedly join the neighbours whose merge has the
 * lowest rank, leftmost first.
 *
 * Symbols are a linked list over an array. Short pre-tokens (nearly all words) look for the best
 * pair by scanning; long ones keep a heap, which makes the work n log n. Both give the reference's
 * order: by rank, then by position. Byte-fallback models see a whole text as one pre-token; where
 * no merge can cross the space in front of a word, it is merged word by word (twice the speed). */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

#define SHORT 40 /* symbols up to which scanning beats the heap */

struct symbol {
    int32_t id, prev, next; /* list by index, -1 = none; id -1: merged away */
};

struct pair {
    uint32_t rank;
    int32_t at; /* left symbol */
    int32_t left, right, id;
};

static uint64_t pair_hash(uint64_t pair)
{
    pair *= 0x9E3779B97F4A7C15u;
    return pair ^ pair >> 29;
}

void vl_bpe_want_merge(const struct vl_bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    __builtin_prefetch(&b->merge[pair_hash(pair) & b->mask], 1);
}

void vl_bpe_add_merge(struct vl_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, i = pair_hash(pair) & b->mask;

    while (b->merge[i].pair != UINT64_MAX && b->merge[i].pair != pair)
        i = (i + 1) & b->mask;
    b->merge[i] = (struct vl_merge){ pair, rank, id };
}

static const struct vl_merge *merge_of(const struct vl_bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, i = pair_hash(pair) & b->mask;

    for (;; i = (i + 1) & b->mask) {
        if (b->merge[i].pair == pair)
            return &b->merge[i];
        if (b->merge[i].pair == UINT64_MAX)
            return NULL;
    }
}

/* ---- characters to symbols ---- */

struct word {
    struct symbol *sym;
    size_t n;
    int unk_open; /* an unknown token waits to be added */
    int missing;  /* it was wanted, and the vocabulary has none */
};

static void add(struct word *w, int32_t id)
{
    w->sym[w->n++].id = id;
}

static void flush_unk(struct word *w, const struct vl_bpe *b)
{
    if (w->unk_open)
        add(w, b->unk);
    w->unk_open = 0;
}

static int32_t lookup(const struct vl_bpe *b, const char *s, size_t n, int first, int last)
{
    struct vl_buf key = { 0 };
    int32_t id;

    if ((first || !b->prefix) && (!last || !b->suffix))
        return vl_vocab_get(b->vocab, s, n);
    if (!first && b->prefix)
        vl_buf_str(&key, b->prefix);
    vl_buf_add(&key, s, n);
    if (last && b->suffix)
        vl_buf_str(&key, b->suffix);
    id = vl_vocab_get(b->vocab, key.s, key.n);
    vl_buf_free(&key);
    return id;
}

/* A character the vocabulary does not have: its bytes, else the unknown token, else nothing. */
static void add_unknown(struct word *w, const struct vl_bpe *b, const char *s, size_t n)
{
    int all = b->byte_fallback;

    for (size_t i = 0; all && i < n; i++)
        all = b->vocab->byte[(unsigned char)s[i]] >= 0;
    if (all) { /* an open unknown token stays open: so does the reference's */
        for (size_t i = 0; i < n; i++)
            add(w, b->vocab->byte[(unsigned char)s[i]]);
        return;
    }
    w->missing |= b->unk_missing != NULL;
    if (b->unk < 0)
        return;
    if (!b->fuse_unk)
        flush_unk(w, b);
    w->unk_open = 1;
}

static void split_chars(struct word *w, const struct vl_bpe *b, const char *s, size_t n)
{
    int plain = !b->prefix && !b->suffix;
    size_t k;

    for (size_t i = 0; i < n; i += k) {
        uint32_t cp;
        int32_t id;

        k = vl_uc_next(s + i, n - i, &cp);
        if (plain && cp < 0x800)
            id = b->vocab->one[cp];
        else
            id = lookup(b, s + i, k, i == 0, i + k == n);
        if (id < 0) {
            add_unknown(w, b, s + i, k);
            continue;
        }
        flush_unk(w, b);
        add(w, id);
    }
    flush_unk(w, b);
}

/* ---- merging ---- */

static void merge_short(const struct vl_bpe *b, struct word *w)
{
    const struct vl_merge *m[SHORT]; /* m[i]: of symbols i and i + 1 */
    size_t n = w->n;

    for (size_t i = 0; i + 1 < n; i++)
        m[i] = merge_of(b, w->sym[i].id, w->sym[i + 1].id);
    for (;;) {
        const struct vl_merge *best = NULL;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++)
            if (m[i] && (!best || m[i]->rank < best->rank))
                best = m[i], at = i;
        if (!best)
            break;
        w->sym[at].id = best->id;
        n--;
        memmove(&w->sym[at + 1], &w->sym[at + 2], (n - at - 1) * sizeof *w->sym);
        if (n > at + 1)
            memmove(&m[at], &m[at + 1], (n - at - 1) * sizeof(*m));
        if (at + 1 < n)
            m[at] = merge_of(b, w->sym[at].id, w->sym[at + 1].id);
        if (at > 0)
            m[at - 1] = merge_of(b, w->sym[at - 1].id, w->sym[at].id);
    }
    w->n = n;
}

static int before(const struct pair *a, const struct pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void sift_up(struct pair *heap, size_t i)
{
    while (i && before(&heap[i], &heap[(i - 1) / 2])) {
        struct pair t = heap[i];

        heap[i] = heap[(i - 1) / 2];
        heap[(i - 1) / 2] = t;
        i = (i - 1) / 2;
    }
}

static void sift_down(struct pair *heap, size_t n)
{
    for (size_t i = 0, c; (c = 2 * i + 1) < n; i = c) {
        struct pair t = heap[i];

        if (c + 1 < n && before(&heap[c + 1], &heap[c]))
            c++;
        if (!before(&heap[c], &t))
            break;
        heap[i] = heap[c];
        heap[c] = t;
    }
}

static void push(const struct vl_bpe *b, const struct symbol *sym, struct pair *heap, size_t *n,
                 int32_t left)
{
    int32_t right = left < 0 ? -1 : sym[left].next;
    const struct vl_merge *m;

    if (right < 0 || !(m = merge_of(b, sym[left].id, sym[right].id)))
        return;
    heap[*n] = (struct pair){ m->rank, left, sym[left].id, sym[right].id, m->id };
    sift_up(heap, (*n)++);
}

/* At most n - 1 pairs at first, and each of at most n - 1 merges adds two and removes one. */
static void merge_long(const struct vl_bpe *b, struct word *w)
{
    struct pair *heap = vl_alloc(2 * w->n * sizeof *heap);
    size_t nheap = 0, n = 0;

    for (size_t i = 0; i < w->n; i++)
        w->sym[i].prev = (int32_t)i - 1, w->sym[i].next = i + 1 < w->n ? (int32_t)i + 1 : -1;
    for (size_t i = 0; i + 1 < w->n; i++)
        push(b, w->sym, heap, &nheap, (int32_t)i);
    while (nheap) {
        struct pair p = heap[0];
        struct symbol *l = &w->sym[p.at], *r;

        heap[0] = heap[--nheap];
        sift_down(heap, nheap);
        if (l->id != p.left || l->next < 0 || w->sym[l->next].id != p.right)
            continue; /* one of the two was merged since */
        r = &w->sym[l->next];
        l->id = p.id;
        l->next = r->next;
        r->id = -1;
        if (l->next >= 0)
            w->sym[l->next].prev = p.at;
        push(b, w->sym, heap, &nheap, p.at);
        push(b, w->sym, heap, &nheap, l->prev);
    }
    for (size_t i = 0; i < w->n; i++)
        if (w->sym[i].id >= 0)
            w->sym[n++].id = w->sym[i].id;
    w->n = n;
    free(heap);
}

static int encode_word(const struct vl_bpe *b, const char *s, size_t n, struct vl_ids *out)
{
    struct symbol few[SHORT];
    struct word w = { .sym = few };

    /* a character is at least a byte and becomes at most one symbol a byte, plus one unknown */
    if (n + 1 > SHORT)
        w.sym = vl_alloc((n + 1) * sizeof *w.sym);
    split_chars(&w, b, s, n);
    if (w.n > SHORT)
        merge_long(b, &w);
    else if (w.n > 1)
        merge_short(b, &w);
    for (size_t i = 0; i < w.n; i++)
        vl_ids_add(out, w.sym[i].id);
    if (w.sym != few)
        free(w.sym);
    return w.missing;
}

/* Bytes up to the next U+2581 that follows something else which no merge joins to it. */
static size_t word_length(const struct vl_bpe *b, const char *s, size_t n)
{
    size_t at = 0;
    const char *next;

    while (n - at >= 3 && memcmp(s + at, VL_LOWER_BLOCK, 3) == 0)
        at += 3;
    while ((next = memmem(s + at, n - at, VL_LOWER_BLOCK, 3))) {
        at = (size_t)(next - s);
        if (at && !b->joins[(unsigned char)s[at - 1]])
            return at;
        while (n - at >= 3 && memcmp(s + at, VL_LOWER_BLOCK, 3) == 0)
            at += 3;
    }
    return n;
}

int vl_bpe_encode(const struct vl_bpe *b, const char *s, size_t n, struct vl_ids *out,
                  struct vl_err *e)
{
    int32_t id;

    if (b->ignore_merges && (id = vl_vocab_get(b->vocab, s, n)) >= 0) {
        vl_ids_add(out, id);
        return 0;
    }
    while (n) {
        size_t k = b->by_word ? word_length(b, s, n) : n;

        if (encode_word(b, s, k, out))
            return vl_fail(e, VL_E_DATA, "the unknown token %s is not in the vocabulary",
                           b->unk_missing);
        s += k, n -= k;
    }
    return 0;
}
