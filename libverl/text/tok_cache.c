/* tok_cache.c - the tables of a large tokenizer kept in a file, ready to be mapped.
 *
 * Reading 30 MB of JSON and filling hash tables takes up to 0.4 s, mapping them 10 ms. Only the
 * tables are kept as they are; everything else of tokenizer.json is kept as JSON, so it is read,
 * checked and refused by the same code.
 *
 * A file is used when its header names this format, this release and the hash and length of the
 * tokenizer.json at hand, its checksum is right and every index in it is in bounds; else the tokenizer
 * is read as if there were none and the file is written anew (cache.h).
 *
 * Layout: struct head, then the parts at multiples of 64 bytes; integers as this machine has them. */
#include "libverl/text/tok_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "libverl/base/cache.h"

#define MAGIC  "verl tok"
#define FORMAT 1 /* raise it when a table or its hash function changes */

enum part {
    REST, /* tokenizer.json without the vocabulary and the merges */
    POOL,
    OFF,
    LEN,
    SLOT,
    ONE,
    BYTE,
    MERGE,
    SCORE,
    NODE,
    PARTS,
};

struct head {
    char magic[8];
    uint64_t check; /* XXH3-64 of all that follows */
    uint32_t format, order;
    char release[24];
    uint64_t source[2], source_n, file_n;
    uint32_t model, by_word;
    uint8_t joins[256];
    int64_t vocab_size;
    uint64_t vocab_mask, merge_mask, node_mask;
    double unk_score;
    struct {
        uint64_t at, n;
    } part[PARTS];
};

char *vl_tok_cache_path(const struct vl_tok *t, size_t source_n)
{
    char name[64];

    snprintf(name, sizeof name, "tokenizer-%s", t->hash);
    return source_n >= VL_TOK_CACHE_MIN ? vl_cache_path(name) : NULL;
}

/* ---- using one ---- */

static int power_of_two(uint64_t n)
{
    return n && !(n & (n - 1));
}

/* Lengths of the parts, as the sizes in the header want them. */
static int parts_fit(const struct head *h, size_t n)
{
    uint64_t size = (uint64_t)h->vocab_size, merges = 0, scores = 0, nodes = 0;

    if (h->vocab_size < 0 || h->vocab_size > VL_TOK_MAX_ID || h->model > VL_MODEL_WORDS ||
        h->vocab_mask >= n || h->merge_mask >= n || h->node_mask >= n)
        return 0;
    if (h->model == VL_MODEL_BPE)
        merges = (h->merge_mask + 1) * sizeof(struct vl_merge);
    if (h->model == VL_MODEL_UNIGRAM)
        scores = size * sizeof(double), nodes = (h->node_mask + 1) * 8;
    for (int i = 0; i < PARTS; i++)
        if (h->part[i].at % 64 || h->part[i].at > n || h->part[i].n > n - h->part[i].at)
            return 0;
    return power_of_two(h->vocab_mask + 1) && power_of_two(h->merge_mask + 1) &&
           power_of_two(h->node_mask + 1) && h->part[OFF].n == 4 * size &&
           h->part[LEN].n == 4 * size && h->part[SLOT].n == 8 * (h->vocab_mask + 1) &&
           h->part[ONE].n == sizeof(((struct vl_vocab *)0)->one) &&
           h->part[BYTE].n == sizeof(((struct vl_vocab *)0)->byte) && h->part[MERGE].n == merges &&
           h->part[SCORE].n == scores && h->part[NODE].n == nodes;
}

static const void *part_of(const void *map, enum part i)
{
    return (const char *)map + ((const struct head *)map)->part[i].at;
}

static int ids_fit(const int32_t *id, size_t n, int64_t size)
{
    int64_t bad = 0;

    for (size_t i = 0; i < n; i++)
        bad |= id[i] < -1 || id[i] >= size;
    return !bad;
}

static int vocab_fits(const void *map)
{
    const struct head *h = map;
    const uint32_t *off = part_of(map, OFF), *len = part_of(map, LEN);
    const uint64_t *slot = part_of(map, SLOT);
    uint64_t bad = 0, empty = 0, size = (uint64_t)h->vocab_size, pool = h->part[POOL].n;

    for (uint64_t i = 0; i < size; i++)
        bad |= len[i] != UINT32_MAX && (uint64_t)off[i] + len[i] > pool;
    for (uint64_t i = 0; i <= h->vocab_mask && !bad; i++) {
        uint32_t id = (uint32_t)slot[i];

        empty |= slot[i] == 0;
        bad |= slot[i] && (!id || id > size || len[id - 1] == UINT32_MAX);
    }
    return !bad && empty && ids_fit(part_of(map, ONE), h->part[ONE].n / 4, h->vocab_size) &&
           ids_fit(part_of(map, BYTE), h->part[BYTE].n / 4, h->vocab_size);
}

/* Each table needs an empty place, where a search ends. */
static int tables_fit(const void *map)
{
    const struct head *h = map;
    const struct vl_merge *merge = part_of(map, MERGE);
    const uint64_t *node = part_of(map, NODE);
    uint64_t bad = 0, empty = 0, size = (uint64_t)h->vocab_size;

    if (h->model == VL_MODEL_WORDS)
        return 1;
    for (uint64_t i = 0; h->model == VL_MODEL_BPE && i <= h->merge_mask; i++) {
        empty |= merge[i].pair == UINT64_MAX;
        bad |= merge[i].pair != UINT64_MAX && (uint32_t)merge[i].id >= size;
    }
    for (uint64_t i = 0; h->model == VL_MODEL_UNIGRAM && i <= h->node_mask; i++) {
        empty |= i && node[i] == 0; /* slot 0 is not used */
        bad |= (node[i] & VL_UNIGRAM_ID_MASK) > size;
    }
    return !bad && empty;
}

static void fill_head(struct head *h, const struct vl_tok *t, size_t source_n)
{
    *h = (struct head){ .magic = MAGIC, .format = FORMAT, .order = 0x01020304 };
    snprintf(h->release, sizeof h->release, "%s", VL_VERSION);
    memcpy(h->source, t->hash_bytes, sizeof h->source);
    h->source_n = source_n;
}

/* Whether the mapped file is whole and made from this source. */
static int is_good(const void *map, size_t n, const struct vl_tok *t, size_t source_n)
{
    const struct head *h = map;
    const size_t from = offsetof(struct head, format);
    struct head want;

    if (n < sizeof *h)
        return 0;
    fill_head(&want, t, source_n);
    return memcmp(h->magic, want.magic, sizeof h->magic) == 0 &&
           memcmp(&h->format, &want.format, offsetof(struct head, file_n) - from) == 0 &&
           h->file_n == n && h->check == XXH3_64bits((const char *)map + from, n - from) &&
           parts_fit(h, n) && vocab_fits(map) && tables_fit(map);
}

static void use(struct vl_tok *t, void *map, size_t n)
{
    const struct head *h = map;
    struct vl_vocab *v = &t->vocab;
    char *base = map;

    t->map = map, t->map_n = n;
    t->model = (enum vl_model_type)h->model;
    v->size = h->vocab_size;
    v->mask = h->vocab_mask;
    v->pool = base + h->part[POOL].at;
    v->pool_n = h->part[POOL].n;
    v->off = (uint32_t *)(void *)(base + h->part[OFF].at);
    v->len = (uint32_t *)(void *)(base + h->part[LEN].at);
    v->slot = (uint64_t *)(void *)(base + h->part[SLOT].at);
    memcpy(v->one, base + h->part[ONE].at, sizeof v->one);
    memcpy(v->byte, base + h->part[BYTE].at, sizeof v->byte);
    t->bpe.merge = (struct vl_merge *)(void *)(base + h->part[MERGE].at);
    t->bpe.mask = h->merge_mask;
    t->bpe.by_word = (int)h->by_word;
    memcpy(t->bpe.joins, h->joins, sizeof h->joins);
    t->unigram.score = (double *)(void *)(base + h->part[SCORE].at);
    t->unigram.node = (uint64_t *)(void *)(base + h->part[NODE].at);
    t->unigram.mask = h->node_mask;
    t->unigram.unk_score = h->unk_score;
}

int vl_tok_cache_use(struct vl_tok *t, const char *path, size_t source_n, const char **rest,
                     size_t *n)
{
    void *map = MAP_FAILED;
    size_t size = 0;
    int fd = vl_cache_open(path, &size);

    if (fd < 0)
        return 0;
    map = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return 0;
    if (!is_good(map, size, t, source_n)) {
        munmap(map, size);
        return 0;
    }
    use(t, map, size);
    *rest = part_of(map, REST);
    *n = ((const struct head *)map)->part[REST].n;
    return 1;
}

/* ---- making one ---- */

/* Appends the members of obj but those named, in braces. */
static void put_without(struct vl_load *l, int64_t obj, const char *a, const char *b,
                        struct vl_buf *out,
                        int (*special)(struct vl_load *, uint32_t, struct vl_buf *))
{
    const struct vl_json_node *d = l->j.node;
    uint32_t k, c;
    int any = 0;

    vl_buf_ch(out, '{');
    for (k = 0, c = (uint32_t)obj + 1; k < d[obj].count; k++, c = d[c + 1].next) {
        if (vl_json_streq(&l->j, c, a) || vl_json_streq(&l->j, c, b))
            continue;
        if (any++)
            vl_buf_ch(out, ',');
        vl_json_raw(&l->j, c, out);
        vl_buf_ch(out, ':');
        if (!special || !special(l, c, out))
            vl_json_raw(&l->j, c + 1, out);
    }
    vl_buf_ch(out, '}');
}

static int put_model(struct vl_load *l, uint32_t key, struct vl_buf *out)
{
    if (!vl_json_streq(&l->j, key, "model"))
        return 0;
    put_without(l, key + 1, "vocab", "merges", out, NULL);
    return 1;
}

static void put_part(struct vl_buf *b, struct head *h, enum part i, const void *p, size_t n)
{
    static const char zero[64];

    vl_buf_add(b, zero, (64 - b->n % 64) % 64);
    h->part[i].at = b->n;
    h->part[i].n = n;
    if (n)
        vl_buf_add(b, p, n);
}

static void build(struct vl_load *l, size_t source_n, struct vl_buf *b)
{
    const struct vl_tok *t = l->t;
    const struct vl_vocab *v = &t->vocab;
    const size_t from = offsetof(struct head, format), size = (size_t)v->size;
    struct vl_buf rest = { 0 };
    struct head h;
    int bpe = t->model == VL_MODEL_BPE, uni = t->model == VL_MODEL_UNIGRAM;

    fill_head(&h, t, source_n);
    h.model = t->model;
    h.by_word = (uint32_t)t->bpe.by_word;
    memcpy(h.joins, t->bpe.joins, sizeof h.joins);
    h.vocab_size = v->size;
    h.vocab_mask = v->mask;
    h.merge_mask = t->bpe.mask;
    h.node_mask = t->unigram.mask;
    h.unk_score = t->unigram.unk_score;
    put_without(l, 0, "", "", &rest, put_model);
    vl_buf_add(b, &h, sizeof h);
    put_part(b, &h, REST, rest.s, rest.n);
    put_part(b, &h, POOL, v->pool, v->pool_n);
    put_part(b, &h, OFF, v->off, 4 * size);
    put_part(b, &h, LEN, v->len, 4 * size);
    put_part(b, &h, SLOT, v->slot, 8 * (size_t)(v->mask + 1));
    put_part(b, &h, ONE, v->one, sizeof v->one);
    put_part(b, &h, BYTE, v->byte, sizeof v->byte);
    put_part(b, &h, MERGE, t->bpe.merge,
             bpe ? (size_t)(t->bpe.mask + 1) * sizeof *t->bpe.merge : 0);
    put_part(b, &h, SCORE, t->unigram.score, uni ? size * sizeof(double) : 0);
    put_part(b, &h, NODE, t->unigram.node, uni ? 8 * (size_t)(t->unigram.mask + 1) : 0);
    h.file_n = b->n;
    memcpy(b->s, &h, sizeof h);
    h.check = XXH3_64bits(b->s + from, b->n - from);
    memcpy(b->s, &h, sizeof h);
    vl_buf_free(&rest);
}

struct making {
    struct vl_load *l;
    size_t source_n;
};

static void fill(void *arg, struct vl_buf *out)
{
    struct making *m = arg;

    build(m->l, m->source_n, out);
}

void vl_tok_cache_make(struct vl_load *l, const char *path, size_t source_n)
{
    struct making m = { l, source_n };

    vl_cache_write(path, fill, &m);
}
