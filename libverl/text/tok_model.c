/* tok_model.c - the model of tokenizer.json: BPE, Unigram, WordPiece or WordLevel. */
#include "libverl/text/tok_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Text of string node i: the source bytes when nothing is escaped, else resolved into scratch. */
static const char *text_of(struct vl_load *l, uint32_t i, size_t *n)
{
    const struct vl_json_node *d = &l->j.node[i];

    if (!d->escaped) {
        *n = d->len;
        return l->j.text + d->at;
    }
    vl_buf_reset(&l->key);
    vl_json_str(&l->j, i, &l->key);
    *n = l->key.n;
    return l->key.s;
}

static int vocab(struct vl_load *l, int64_t obj)
{
    const struct vl_json_node *d = l->j.node;
    struct vl_vocab *v = &l->t->vocab;
    int64_t max = -1, id;
    size_t bytes = 0, n;
    uint32_t k, c;

    for (k = 0, c = (uint32_t)obj + 1; k < d[obj].count; k++, c = d[c + 1].next) {
        if (!vl_json_i64(&l->j, c + 1, &id) || id < 0 || id >= VL_TOK_MAX_ID)
            return vl_fail(l->e, VL_E_DATA,
                           "%s: byte %zu: a vocabulary id is not an integer from 0 to %d", l->path,
                           d[c + 1].at, VL_TOK_MAX_ID - 1);
        max = id > max ? id : max;
        bytes += d[c].len;
    }
    vl_vocab_init(v, max + 1, d[obj].count, bytes);
    for (k = 0, c = (uint32_t)obj + 1; k < d[obj].count; k++, c = d[c + 1].next) {
        const char *s = text_of(l, c, &n);

        (void)!vl_json_i64(&l->j, c + 1, &id);
        vl_vocab_add(v, s, n, (int32_t)id);
    }
    return 0;
}

/* The two sides of a merge, "a b" or ["a", "b"]. Borrowed until the next call. */
static int merge_sides(struct vl_load *l, uint32_t c, const char **a, size_t *na, const char **b,
                       size_t *nb)
{
    const struct vl_json_node *d = &l->j.node[c];
    const char *space;

    if (d->type == VL_JSON_STRING) {
        *a = text_of(l, c, na);
        space = memchr(*a, ' ', *na);
        if (!space)
            return 0;
        *b = space + 1;
        *nb = *na - (size_t)(space + 1 - *a);
        *na = (size_t)(space - *a);
        return !memchr(*b, ' ', *nb);
    }
    if (d->type != VL_JSON_ARRAY || d->count != 2 || d[1].type != VL_JSON_STRING ||
        d[2].type != VL_JSON_STRING)
        return 0;
    vl_buf_reset(&l->key);
    vl_json_str(&l->j, c + 1, &l->key);
    *na = l->key.n;
    vl_json_str(&l->j, c + 2, &l->key);
    *a = l->key.s;
    *b = *a + *na;
    *nb = l->key.n - *na;
    return 1;
}

/* The id of a + b without b's continuing prefix. Merges mostly make ids in order, so the one after
 * the last is tried first: no hash of it, no jump through the table. */
static int32_t merged_id(const struct vl_bpe *m, const char *a, size_t na, const char *b, size_t nb,
                         int32_t last, struct vl_buf *scratch)
{
    const struct vl_vocab *v = m->vocab;
    size_t skip = m->prefix ? strlen(m->prefix) : 0;
    int32_t next = last + 1;

    b += skip < nb ? skip : nb;
    nb -= skip < nb ? skip : nb;
    if (next < v->size && v->len[next] == na + nb && memcmp(v->pool + v->off[next], a, na) == 0 &&
        memcmp(v->pool + v->off[next] + na, b, nb) == 0)
        return next;
    vl_buf_reset(scratch);
    vl_buf_add(scratch, a, na);
    vl_buf_add(scratch, b, nb);
    return vl_vocab_get(v, scratch->s, scratch->n);
}

/* Merges are read in blocks: a table of 500 k entries does not fit a cache, so the lines a block will
 * touch are all asked for before the first is used (a quarter to a third off the time of opening). */
#define BLOCK 64

struct merge_text {
    const char *a, *b;
    size_t na, nb;
    uint64_t ha, hb;
    char *copy; /* of a text with escapes; else the spans point into the source */
    uint32_t node;
    int32_t left, right, id;
};

static int read_merge(struct vl_load *l, uint32_t rank, uint32_t c, struct merge_text *m)
{
    const struct vl_vocab *v = &l->t->vocab;

    *m = (struct merge_text){ .node = c };
    if (!merge_sides(l, c, &m->a, &m->na, &m->b, &m->nb))
        return vl_fail(l->e, VL_E_DATA,
                       "%s: merge %u (byte %zu) is not \"a b\" or a pair of strings", l->path, rank,
                       l->j.node[c].at);
    if (l->key.s && m->a >= l->key.s && m->a <= l->key.s + l->key.n) {
        size_t all = (size_t)(m->b + m->nb - m->a), gap = (size_t)(m->b - m->a);

        m->copy = vl_strndup(m->a, all);
        m->a = m->copy;
        m->b = m->copy + gap;
    }
    m->ha = vl_vocab_hash(v, m->a, m->na);
    m->hb = vl_vocab_hash(v, m->b, m->nb);
    return 0;
}

/* A merge that joins something to a U+2581 after it; what a byte token ends in is not in its text. */
static void note_join(struct vl_bpe *b, const struct merge_text *m)
{
    if (m->nb < 3 || memcmp(m->b, VL_LOWER_BLOCK, 3) != 0 || !m->na ||
        (m->na >= 3 && memcmp(m->a + m->na - 3, VL_LOWER_BLOCK, 3) == 0))
        return;
    if (m->na >= 6 && memcmp(m->a + m->na - 6, "<0x", 3) == 0)
        b->by_word = 0;
    b->joins[(unsigned char)m->a[m->na - 1]] = 1;
}

static int find_merge(struct vl_load *l, uint32_t rank, struct merge_text *m, int32_t last,
                      struct vl_buf *scratch)
{
    struct vl_bpe *b = &l->t->bpe;

    m->left = vl_vocab_get_hashed(b->vocab, m->a, m->na, m->ha);
    m->right = vl_vocab_get_hashed(b->vocab, m->b, m->nb, m->hb);
    m->id = merged_id(b, m->a, m->na, m->b, m->nb, last, scratch);
    if (m->left < 0 || m->right < 0 || m->id < 0)
        return vl_fail(l->e, VL_E_DATA,
                       "%s: merge %u (byte %zu) makes or uses a token that is not in the "
                       "vocabulary: \"%.*s\" + \"%.*s\"",
                       l->path, rank, l->j.node[m->node].at, (int)(m->na < 80 ? m->na : 80), m->a,
                       (int)(m->nb < 80 ? m->nb : 80), m->b);
    note_join(b, m);
    vl_bpe_want_merge(b, m->left, m->right);
    return 0;
}

static int merges(struct vl_load *l, int64_t arr)
{
    struct vl_bpe *b = &l->t->bpe;
    uint32_t count = l->j.node[arr].count, done = 0, c = (uint32_t)arr + 1;
    struct vl_buf scratch = { 0 };
    uint64_t slots = 16;
    int32_t last = -1;

    while (slots < 2 * (uint64_t)count)
        slots *= 2;
    b->mask = slots - 1;
    b->merge = vl_alloc(slots * sizeof *b->merge);
    memset(b->merge, 0xFF, slots * sizeof *b->merge);
    while (done < count && !l->e->code) {
        uint32_t n = count - done < BLOCK ? count - done : BLOCK, have = 0;
        struct merge_text m[BLOCK];

        for (; have < n && read_merge(l, done + have, c, &m[have]) == 0; have++)
            c = l->j.node[c].next;
        for (uint32_t i = 0; i < have && !l->e->code; i++)
            if (find_merge(l, done + i, &m[i], last, &scratch) == 0)
                last = m[i].id;
        for (uint32_t i = 0; i < have; i++) {
            if (!l->e->code)
                vl_bpe_add_merge(b, m[i].left, m[i].right, done + i, m[i].id);
            free(m[i].copy);
        }
        done += n;
    }
    vl_buf_free(&scratch);
    return l->e->code;
}

static int bpe(struct vl_load *l, int64_t obj)
{
    struct vl_bpe *b = &l->t->bpe;
    int64_t vocab_at = vl_json_get(&l->j, obj, "vocab"),
            merges_at = vl_json_get(&l->j, obj, "merges"),
            drop = vl_json_get(&l->j, obj, "dropout");
    char *unk;
    size_t n;
    double p = 0;

    if (!l->have_tables && (!vl_json_is(&l->j, vocab_at, VL_JSON_OBJECT) ||
                            !vl_json_is(&l->j, merges_at, VL_JSON_ARRAY)))
        return vl_load_bad(l, "the model has no vocab and merges: not a BPE tokenizer", NULL);
    if (vl_json_f64(&l->j, drop, &p) && p != 0)
        return vl_load_bad(l, "a BPE with dropout encodes at random", NULL);
    b->vocab = &l->t->vocab;
    b->byte_fallback = vl_load_bool(l, obj, "byte_fallback", 0);
    b->fuse_unk = vl_load_bool(l, obj, "fuse_unk", 0);
    b->ignore_merges = vl_load_bool(l, obj, "ignore_merges", 0);
    b->prefix = vl_load_str(l, obj, "continuing_subword_prefix", &n);
    b->suffix = vl_load_str(l, obj, "end_of_word_suffix", &n);
    if (b->prefix && !*b->prefix)
        free(b->prefix), b->prefix = NULL;
    if (b->suffix && !*b->suffix)
        free(b->suffix), b->suffix = NULL;
    if (!l->have_tables) {
        b->by_word = !b->prefix && !b->suffix;
        if (vocab(l, vocab_at) || merges(l, merges_at))
            return l->e->code;
        b->by_word &= vl_vocab_get(b->vocab, VL_LOWER_BLOCK, 3) >= 0;
    }
    unk = vl_load_str(l, obj, "unk_token", &n);
    b->unk = unk ? vl_vocab_get(b->vocab, unk, n) : -1;
    if (b->unk < 0)
        b->unk_missing = unk;
    else
        free(unk);
    return 0;
}

/* ---- Unigram: vocab is a list of [token, score], the place is the id ---- */

static int scored_vocab(struct vl_load *l, int64_t arr)
{
    const struct vl_json_node *d = l->j.node;
    struct vl_unigram *u = &l->t->unigram;
    uint32_t count = d[arr].count, k, c;
    double lowest = HUGE_VAL;
    size_t n;

    if (!count || count >= VL_TOK_MAX_ID)
        return vl_load_bad(l, "an empty or too large Unigram vocabulary", NULL);
    vl_vocab_init(&l->t->vocab, count, count, 16 * (size_t)count);
    u->score = vl_alloc(count * sizeof *u->score);
    for (k = 0, c = (uint32_t)arr + 1; k < count; k++, c = d[c].next) {
        const char *s;

        if (d[c].type != VL_JSON_ARRAY || d[c].count != 2 || d[c + 1].type != VL_JSON_STRING ||
            !vl_json_f64(&l->j, c + 2, &u->score[k]))
            return vl_fail(l->e, VL_E_DATA, "%s: byte %zu: token %u is not [text, score]", l->path,
                           d[c].at, k);
        s = text_of(l, c + 1, &n);
        vl_vocab_add(&l->t->vocab, s, n, (int32_t)k);
        lowest = u->score[k] < lowest ? u->score[k] : lowest;
    }
    u->unk_score = lowest - 10; /* SentencePiece's penalty */
    return 0;
}

static int unigram(struct vl_load *l, int64_t obj)
{
    struct vl_unigram *u = &l->t->unigram;
    int64_t arr = vl_json_get(&l->j, obj, "vocab"), unk_at = vl_json_get(&l->j, obj, "unk_id"),
            unk = -1;

    if (!l->have_tables && !vl_json_is(&l->j, arr, VL_JSON_ARRAY))
        return vl_load_bad(l, "a Unigram model whose vocab is not a list", NULL);
    if (!l->have_tables && scored_vocab(l, arr))
        return l->e->code;
    if (!vl_load_null(l, unk_at) &&
        (!vl_json_i64(&l->j, unk_at, &unk) || unk < 0 || unk >= l->t->vocab.size))
        return vl_load_bad(l, "a Unigram model whose unk_id is outside its vocabulary", NULL);
    u->vocab = &l->t->vocab;
    u->unk = (int32_t)unk;
    u->byte_fallback = vl_load_bool(l, obj, "byte_fallback", 0);
    if (!l->have_tables)
        vl_unigram_build(u);
    return 0;
}

/* ---- WordPiece and WordLevel ---- */

static int words(struct vl_load *l, int64_t obj, int whole)
{
    struct vl_words *w = &l->t->words;
    int64_t vocab_at = vl_json_get(&l->j, obj, "vocab"), max = 100;
    size_t n;

    if (!l->have_tables && !vl_json_is(&l->j, vocab_at, VL_JSON_OBJECT))
        return vl_load_bad(l, "a model without a vocab", NULL);
    w->vocab = &l->t->vocab;
    w->whole = whole;
    w->prefix = vl_load_str(l, obj, "continuing_subword_prefix", &n);
    if (!w->prefix)
        w->prefix = vl_strdup("##");
    (void)!vl_json_i64(&l->j, vl_json_get(&l->j, obj, "max_input_chars_per_word"), &max);
    if (max < 0)
        return vl_load_bad(l, "a negative max_input_chars_per_word", NULL);
    w->max_chars = (size_t)max;
    w->unk_text = vl_load_str(l, obj, "unk_token", &n);
    if (!w->unk_text)
        w->unk_text = vl_strdup(whole ? "<unk>" : "[UNK]");
    if (!l->have_tables && vocab(l, vocab_at))
        return l->e->code;
    w->unk = vl_vocab_get(w->vocab, w->unk_text, strlen(w->unk_text));
    return 0;
}

/* Files of old leave the type out: what they have tells. */
static const char *model_type(struct vl_load *l, int64_t obj)
{
    if (vl_json_get(&l->j, obj, "type") >= 0)
        return vl_load_type(l, obj);
    if (vl_json_is(&l->j, vl_json_get(&l->j, obj, "vocab"), VL_JSON_ARRAY))
        return "Unigram";
    if (vl_json_get(&l->j, obj, "merges") >= 0)
        return "BPE";
    return vl_json_get(&l->j, obj, "continuing_subword_prefix") >= 0 ? "WordPiece" : "BPE";
}

int vl_load_model(struct vl_load *l, int64_t obj)
{
    static const char *const kept[] = { "BPE", "Unigram", "WordPiece" };
    const char *type = model_type(l, obj);
    int rc;

    if (l->have_tables &&
        vl_json_get(&l->j, obj, "type") < 0) /* told by what is in the tables now */
        type = kept[l->t->model];
    if (strcmp(type, "BPE") == 0) {
        l->t->model = VL_MODEL_BPE;
        rc = bpe(l, obj);
    } else if (strcmp(type, "Unigram") == 0) {
        l->t->model = VL_MODEL_UNIGRAM;
        rc = unigram(l, obj);
    } else if (strcmp(type, "WordPiece") == 0 || strcmp(type, "WordLevel") == 0) {
        l->t->model = VL_MODEL_WORDS;
        rc = words(l, obj, type[4] == 'L');
    } else {
        return vl_load_bad(l, "unsupported model (BPE, Unigram, WordPiece and WordLevel are)",
                           type);
    }
    if (rc == 0 && !l->have_tables)
        vl_vocab_find_bytes(&l->t->vocab);
    return rc;
}
