/* unigram.c - the model SentencePiece calls Unigram: the cut of a pre-token into pieces of the
 * vocabulary whose scores (log-probabilities) add up to most, by Viterbi over its bytes.
 *
 * Sums are in double in text order and a later path wins only if it is better, as the reference
 * does it: equal sums are common, and the other choice would give other ids. */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

/* ---- the trie ---- */

#define ID_BITS 23 /* id + 1 of a VL_TOK_MAX_ID vocabulary */
#define ID_MASK VL_UNIGRAM_ID_MASK

/* A word: node before << 32 | (byte + 1) << ID_BITS | id + 1. The root is node 0, which is no slot. */
static uint64_t edge(uint64_t from, unsigned char byte)
{
    return from << 32 | ((uint64_t)byte + 1) << ID_BITS;
}

/* The slot of that edge, or the empty one where it belongs. */
static uint64_t find(const struct vl_unigram *u, uint64_t e)
{
    uint64_t h = e * 0x9E3779B97F4A7C15u, i = (h ^ h >> 32) & u->mask;

    for (;; i = (i + 1) & u->mask)
        if (i && (!u->node[i] || (u->node[i] & ~ID_MASK) == e))
            return i;
}

/* All tokens into a table of that many slots; 0 when it gets too full. */
static int fill(struct vl_unigram *u, uint64_t slots)
{
    const struct vl_vocab *v = u->vocab;
    uint64_t used = 0;

    u->mask = slots - 1;
    u->node = vl_alloc(slots * sizeof *u->node);
    for (int64_t id = 0; id < v->size; id++) {
        uint64_t at = 0;

        for (uint32_t i = 0; v->len[id] != UINT32_MAX && i < v->len[id]; i++) {
            uint64_t e = edge(at, (unsigned char)v->pool[v->off[id] + i]);

            at = find(u, e);
            if (!u->node[at]) {
                u->node[at] = e;
                if (2 * ++used > slots)
                    return 0;
            }
        }
        if (at) /* of equal tokens the last, as in the vocabulary */
            u->node[at] = (u->node[at] & ~ID_MASK) | (uint64_t)(id + 1);
    }
    return 1;
}

void vl_unigram_build(struct vl_unigram *u)
{
    uint64_t slots = 1024;

    while (slots < 4 * (uint64_t)u->vocab->size)
        slots *= 2;
    for (; !fill(u, slots); slots *= 2)
        free(u->node);
}

/* ---- the best path ---- */

struct end { /* of the best path to a byte */
    double score;
    size_t from; /* where its last piece starts; SIZE_MAX: no path yet */
    size_t to;   /* of the path chosen in the end: where the piece that starts here ends */
    int32_t id;
};

static int missing(const char *s, size_t k, struct vl_err *e)
{
    return vl_fail(e, VL_E_DATA,
                   "the character \"%.*s\" is not in the vocabulary and there is no unknown token",
                   (int)k, s);
}

static void offer(struct end *x, double score, size_t from, int32_t id)
{
    if (x->from == SIZE_MAX || score > x->score)
        x->score = score, x->from = from, x->id = id;
}

static int forward(const struct vl_unigram *u, const char *s, size_t n, struct end *end,
                   struct vl_err *e)
{
    size_t k;

    for (size_t i = 0; i <= n; i++)
        end[i].from = SIZE_MAX;
    end[0].score = 0;
    for (size_t at = 0; at < n; at += k) {
        double here = end[at].score, unk = u->unk_score + here;
        uint64_t node = 0;
        int single = 0;
        uint32_t cp;

        k = vl_uc_next(s + at, n - at, &cp);
        for (size_t i = at; i < n; i++) {
            int32_t id;

            node = find(u, edge(node, (unsigned char)s[i]));
            if (!u->node[node])
                break;
            id = (int32_t)(u->node[node] & ID_MASK) - 1;
            if (id < 0)
                continue;
            offer(&end[i + 1], u->score[id] + here, at, id);
            single |= i + 1 == at + k;
        }
        if (single)
            continue;
        if (u->unk < 0 && (end[at + k].from == SIZE_MAX || unk > end[at + k].score))
            return missing(s + at, k, e);
        offer(&end[at + k], unk, at, u->unk);
    }
    return 0;
}

/* Pieces in order. Neighbours that are unknown are looked up together, as one. */
static int collect(const struct vl_unigram *u, const char *s, size_t n, struct end *end,
                   struct vl_ids *out, struct vl_err *e)
{
    for (size_t at = n; at; at = end[at].from)
        end[end[at].from].to = at;
    for (size_t at = 0, to; at < n; at = to) {
        int32_t id;

        to = end[at].to;
        id = end[to].id;
        if (id == u->unk) {
            while (to < n && end[end[to].to].id == u->unk)
                to = end[to].to;
            id = vl_vocab_get(u->vocab, s + at, to - at);
            if (id < 0 && u->byte_fallback && vl_vocab_put_bytes(u->vocab, s + at, to - at, out))
                continue;
            id = id < 0 ? u->unk : id;
        }
        if (id < 0)
            return missing(s + at, to - at, e);
        vl_ids_add(out, id);
    }
    return 0;
}

#define SHORT 64 /* bytes for which the stack has room */

int vl_unigram_encode(const struct vl_unigram *u, const char *s, size_t n, struct vl_ids *out,
                      struct vl_err *e)
{
    struct end few[SHORT + 1], *end = few;

    if (n > SHORT)
        end = vl_alloc((n + 1) * sizeof *end);
    if (forward(u, s, n, end, e) == 0)
        (void)!collect(u, s, n, end, out, e);
    if (end != few)
        free(end);
    return e->code;
}
