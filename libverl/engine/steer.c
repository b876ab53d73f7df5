/* steer.c - see steer.h. A row's seen ids are kept sorted, so that a draw merges two sorted lists
 * instead of sorting a prompt's worth of ids each time. */
#include "libverl/engine/steer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/mem.h"

static double repetition(const struct vl_rules *r)
{
    return r->repetition > 0 ? r->repetition : 1;
}

static int penalties(const struct vl_rules *r)
{
    return repetition(r) != 1 || r->presence != 0 || r->frequency != 0;
}

int vl_rules_any(const struct vl_rules *r)
{
    return penalties(r) || r->min_new > 0 || r->nbias || r->nwords;
}

/* ---- what a row has seen ---- */

static struct vl_seen_id *find(struct vl_seen *s, int32_t id)
{
    int64_t lo = 0, hi = s->n;

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;

        if (s->a[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return s->a + lo;
}

static void saw(struct vl_seen *s, int32_t id, int32_t count)
{
    struct vl_seen_id *at;

    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->a = vl_realloc(s->a, (size_t)s->cap * sizeof *s->a);
    }
    at = find(s, id);
    if (at == s->a + s->n || at->id != id) {
        memmove(at + 1, at, (size_t)(s->a + s->n - at) * sizeof *at);
        *at = (struct vl_seen_id){ .id = id };
        s->n++;
    }
    at->count += count;
}

static int by_seen(const void *a, const void *b)
{
    int32_t x = ((const struct vl_seen_id *)a)->id, y = ((const struct vl_seen_id *)b)->id;

    return (x > y) - (x < y);
}

void vl_seen_start(struct vl_seen *s, const struct vl_rules *r, const int32_t *prompt, int64_t n)
{
    int64_t k = 0;

    s->n = 0;
    if (repetition(r) == 1 || !n) /* only repetition looks at the prompt */
        return;
    s->cap = n > s->cap ? n : s->cap;
    s->a = vl_realloc(s->a, (size_t)s->cap * sizeof *s->a);
    for (int64_t i = 0; i < n; i++)
        s->a[i] = (struct vl_seen_id){ .id = prompt[i] };
    qsort(s->a, (size_t)n, sizeof *s->a, by_seen);
    for (int64_t i = 1; i < n; i++)
        if (s->a[i].id != s->a[k].id)
            s->a[++k] = s->a[i];
    s->n = k + 1;
}

void vl_seen_add(struct vl_seen *s, const struct vl_rules *r, int32_t id)
{
    if (penalties(r))
        saw(s, id, 1);
}

void vl_seen_free(struct vl_seen *s)
{
    free(s->a);
    *s = (struct vl_seen){ 0 };
}

/* ---- edits ---- */

static struct vl_edit *put(struct vl_edits *out, int32_t id)
{
    if (out->n == out->cap) {
        out->cap = out->cap ? 2 * out->cap : 256;
        out->a = vl_realloc(out->a, (size_t)out->cap * sizeof *out->a);
    }
    out->a[out->n] = (struct vl_edit){ .id = id, .rep = 1 };
    return &out->a[out->n++];
}

static int by_edit(const void *a, const void *b)
{
    int32_t x = ((const struct vl_edit *)a)->id, y = ((const struct vl_edit *)b)->id;

    return (x > y) - (x < y);
}

static void put_words(struct vl_edits *out, const struct vl_rules *r, const int32_t *ids,
                      int64_t len)
{
    for (int64_t i = 0; i < r->nwords; i++) {
        const int32_t *w = r->word + r->words[i];
        int64_t before = r->words[i + 1] - r->words[i] - 1;

        if (before <= len && !memcmp(w, ids + len - before, (size_t)before * sizeof *w))
            put(out, w[before])->add = -INFINITY;
    }
}

/* Sorts out->a[from ..] and makes one edit of all those of an id: biases add up. */
static void unite(struct vl_edits *out, int64_t from)
{
    int64_t k = from;

    if (out->n == from)
        return;
    qsort(out->a + from, (size_t)(out->n - from), sizeof *out->a, by_edit);
    for (int64_t i = from + 1; i < out->n; i++) {
        if (out->a[i].id != out->a[k].id)
            out->a[++k] = out->a[i];
        else
            out->a[k].add += out->a[i].add;
    }
    out->n = k + 1;
}

/* Puts the penalties of seen ids between the sorted edits out->a[from ..], from the back. */
static void put_penalties(struct vl_edits *out, int64_t from, const struct vl_rules *r,
                          const struct vl_seen *s)
{
    int64_t i = out->n - 1, j = s->n - 1, k, gap;

    if (!s->n)
        return;
    for (int64_t x = 0; x < s->n; x++)
        put(out, 0);
    for (k = out->n - 1; j >= 0; k--) {
        if (i >= from && out->a[i].id > s->a[j].id) {
            out->a[k] = out->a[i--];
            continue;
        }
        out->a[k] = i >= from && out->a[i].id == s->a[j].id ? out->a[i--]
                                                            : (struct vl_edit){ .id = s->a[j].id };
        out->a[k].rep = (float)repetition(r);
        out->a[k].sub = (float)(r->frequency * s->a[j].count + (s->a[j].count ? r->presence : 0));
        j--;
    }
    gap = k - i; /* ids that had both */
    memmove(out->a + i + 1, out->a + k + 1, (size_t)(out->n - k - 1) * sizeof *out->a);
    out->n -= gap;
}

void vl_steer(struct vl_edits *out, const struct vl_rules *r, const struct vl_seen *s,
              const int32_t *ids, int64_t len, const int32_t *stop, int64_t nstop)
{
    int64_t from = out->n;

    for (int64_t i = 0; i < r->nbias; i++)
        put(out, r->bias[i].id)->add = r->bias[i].add;
    for (int64_t i = 0; len < r->min_new && i < nstop; i++)
        put(out, stop[i])->add = -INFINITY;
    put_words(out, r, ids, len);
    unite(out, from);
    put_penalties(out, from, r, s);
}
