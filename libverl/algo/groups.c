/* groups.c - rows that share a uid. Sorting keeps it O(B log B) without a hash table to size. */
#include "libverl/algo/advantage.h"

#include <stdlib.h>
#include <string.h>

struct key {
    const char *s;
    size_t n;
    int64_t row;
};

static int same_text(const struct key *a, const struct key *b)
{
    return a->n == b->n && (a->n == 0 || !memcmp(a->s, b->s, a->n));
}

static int key_cmp(const void *pa, const void *pb)
{
    const struct key *a = pa, *b = pb;
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->s, b->s, n) : 0;

    if (c)
        return c;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

int vl_groups_make(struct vl_groups *g, const char *const *text, const size_t *len, int64_t B,
                   struct vl_err *e)
{
    struct key *k = NULL;
    int64_t *leader = NULL;

    *g = (struct vl_groups){ 0 };
    if (vl_try_alloc(&k, (size_t)B, sizeof(*k), "groups", e) ||
        vl_try_alloc(&leader, (size_t)B, sizeof(*leader), "groups", e) ||
        vl_try_alloc(&g->of, (size_t)B, sizeof(*g->of), "groups", e) ||
        vl_try_alloc(&g->size, (size_t)B, sizeof(*g->size), "groups", e))
        goto done;
    for (int64_t i = 0; i < B; i++)
        k[i] = (struct key){ text[i], len[i], i };
    if (B)
        qsort(k, (size_t)B, sizeof(*k), key_cmp);
    for (int64_t i = 0; i < B; i++) /* equal keys lie together, lowest row first */
        leader[k[i].row] = i > 0 && same_text(&k[i], &k[i - 1]) ? leader[k[i - 1].row] : k[i].row;
    for (int64_t i = 0; i < B; i++) {
        g->of[i] = leader[i] == i ? g->n++ : g->of[leader[i]];
        g->size[g->of[i]]++;
    }
done:
    free(k);
    free(leader);
    if (e->code)
        vl_groups_free(g);
    return e->code;
}

void vl_groups_free(struct vl_groups *g)
{
    free(g->of);
    free(g->size);
    *g = (struct vl_groups){ 0 };
}
