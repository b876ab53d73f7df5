/* vocab.c - token strings to ids and back: one pool of bytes, one open-addressing table. */
#include "libverl/text/tok_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "libverl/text/unicode.h"

void vl_vocab_init(struct vl_vocab *v, int64_t size, int64_t entries, size_t bytes)
{
    uint64_t slots = 16;

    while (slots < 2 * (uint64_t)entries)
        slots *= 2;
    *v = (struct vl_vocab){ .size = size, .mask = slots - 1, .pool_cap = bytes };
    v->pool = vl_alloc(bytes);
    v->off = vl_alloc((size_t)size * sizeof *v->off);
    v->len = vl_alloc((size_t)size * sizeof *v->len);
    v->slot = vl_alloc(slots * sizeof *v->slot);
    memset(v->len, 0xFF, (size_t)size * sizeof *v->len);
    memset(v->one, 0xFF, sizeof v->one);
}

void vl_vocab_free(struct vl_vocab *v)
{
    free(v->pool);
    free(v->off);
    free(v->len);
    free(v->slot);
}

/* The slot of the string, or the empty one where it belongs. */
static uint64_t *find(const struct vl_vocab *v, const char *s, size_t n, uint64_t h)
{
    for (uint64_t i = h & v->mask;; i = (i + 1) & v->mask) {
        uint64_t w = v->slot[i];
        uint32_t id;

        if (!w)
            return &v->slot[i];
        if ((w ^ h) >> 32)
            continue;
        id = (uint32_t)w - 1;
        if (v->len[id] == n && memcmp(v->pool + v->off[id], s, n) == 0)
            return &v->slot[i];
    }
}

void vl_vocab_add(struct vl_vocab *v, const char *s, size_t n, int32_t id)
{
    uint64_t h = XXH3_64bits(s, n), *slot;
    uint32_t cp;

    if (v->pool_n + n > v->pool_cap) {
        v->pool_cap = 2 * v->pool_cap + n;
        v->pool = vl_realloc(v->pool, v->pool_cap);
    }
    slot = find(v, s, n, h);
    v->off[id] = (uint32_t)v->pool_n;
    v->len[id] = (uint32_t)n;
    memcpy(v->pool + v->pool_n, s, n);
    v->pool_n += n;
    *slot = (h & 0xFFFFFFFF00000000u) | (uint32_t)(id + 1);
    if (n && vl_uc_next(s, n, &cp) == n && cp < 0x800)
        v->one[cp] = id;
}

uint64_t vl_vocab_hash(const struct vl_vocab *v, const char *s, size_t n)
{
    uint64_t h = XXH3_64bits(s, n);

    __builtin_prefetch(&v->slot[h & v->mask]);
    return h;
}

int32_t vl_vocab_get_hashed(const struct vl_vocab *v, const char *s, size_t n, uint64_t h)
{
    return (int32_t)(uint32_t)*find(v, s, n, h) - 1;
}

int32_t vl_vocab_get(const struct vl_vocab *v, const char *s, size_t n)
{
    return vl_vocab_get_hashed(v, s, n, XXH3_64bits(s, n));
}

void vl_vocab_find_bytes(struct vl_vocab *v)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        int n = snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);

        v->byte[i] = vl_vocab_get(v, name, (size_t)n);
    }
}

int vl_vocab_put_bytes(const struct vl_vocab *v, const char *s, size_t n, struct vl_ids *out)
{
    for (size_t i = 0; i < n; i++)
        if (v->byte[(unsigned char)s[i]] < 0)
            return 0;
    for (size_t i = 0; i < n; i++)
        vl_ids_add(out, v->byte[(unsigned char)s[i]]);
    return 1;
}
