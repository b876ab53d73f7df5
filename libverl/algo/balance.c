/* balance.c - see balance.h. */
#include "libverl/algo/balance.h"

#include <stdlib.h>
#include <string.h>

int64_t vl_row_work(int64_t n)
{
    return 24576 * n + n * n;
}

void vl_parts_free(struct vl_parts *p)
{
    free(p->first);
    free(p->item);
    *p = (struct vl_parts){ 0 };
}

/* ---- Largest differencing ---- */

/* A set of items: a list through next[], with its work. A state is k of them, largest first. */
struct set {
    int64_t sum, n, head, tail; /* head = -1: empty */
};

struct kk {
    int64_t k;
    int64_t *next;     /* (n) item after this one in its set, -1 at the end */
    struct set *set;   /* (states, k) */
    struct set **heap; /* states, the largest spread first */
    int64_t nheap;
};

struct keyed {
    int64_t work, index;
};

static int keyed_cmp(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->work != y->work)
        return x->work < y->work ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int i64_cmp(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* By sum, then number of items, then the item lists. */
static int set_cmp(const struct set *a, const struct set *b, const int64_t *next)
{
    if (a->sum != b->sum)
        return a->sum < b->sum ? -1 : 1;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (int64_t i = a->head, j = b->head; i >= 0; i = next[i], j = next[j])
        if (i != j)
            return i < j ? -1 : 1;
    return 0;
}

static int set_desc(const void *a, const void *b, void *next)
{
    return set_cmp(b, a, next);
}

/* Whether state a leaves the heap before b: larger spread, then larger first set. */
static int before(const struct kk *q, const struct set *a, const struct set *b)
{
    int64_t sa = a[0].sum - a[q->k - 1].sum, sb = b[0].sum - b[q->k - 1].sum;
    return sa != sb ? sa > sb : set_cmp(a, b, q->next) > 0;
}

static void heap_push(struct kk *q, struct set *s)
{
    int64_t i = q->nheap++;

    for (; i > 0 && before(q, s, q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = s;
}

static struct set *heap_pop(struct kk *q)
{
    struct set *top = q->heap[0], *last = q->heap[--q->nheap];
    int64_t i = 0, c;

    while ((c = 2 * i + 1) < q->nheap) {
        if (c + 1 < q->nheap && before(q, q->heap[c + 1], q->heap[c]))
            c++;
        if (!before(q, q->heap[c], last))
            break;
        q->heap[i] = q->heap[c];
        i = c;
    }
    q->heap[i] = last;
    return top;
}

static void set_add(struct kk *q, struct set *s, int64_t item, int64_t work)
{
    if (s->head < 0)
        s->head = item;
    else
        q->next[s->tail] = item;
    s->tail = item;
    s->sum += work;
    s->n++;
}

static void set_merge(struct kk *q, struct set *to, const struct set *from)
{
    if (from->head < 0)
        return;
    if (to->head < 0)
        to->head = from->head;
    else
        q->next[to->tail] = from->head;
    to->tail = from->tail;
    to->sum += from->sum;
    to->n += from->n;
}

static void sort_sets(struct kk *q, struct set *s)
{
    qsort_r(s, (size_t)q->k, sizeof(*s), set_desc, q->next);
}

/* The initial states in order of work: `per` items in each. */
static void start(struct kk *q, const struct keyed *sorted, int64_t n, int64_t per)
{
    for (int64_t i = 0; i < n; i++)
        q->next[i] = -1;
    for (int64_t i = 0; i < n; i += per) {
        struct set *s = q->set + i / per * q->k;
        for (int64_t p = 0; p < q->k; p++)
            s[p] = (struct set){ .head = -1 };
        for (int64_t p = 0; p < per; p++)
            set_add(q, &s[p], sorted[i + p].index, sorted[i + p].work);
        sort_sets(q, s);
        heap_push(q, s);
    }
}

static void read_parts(struct vl_parts *p, const struct kk *q, const struct set *s)
{
    int64_t at = 0;

    for (int64_t a = 0; a < q->k; a++) {
        p->first[a] = at;
        for (int64_t i = s[a].head; i >= 0; i = q->next[i])
            p->item[at++] = i;
        qsort(p->item + p->first[a], (size_t)(at - p->first[a]), sizeof(*p->item), i64_cmp);
    }
    p->first[q->k] = at;
}

int vl_partition(struct vl_parts *p, const int64_t *work, int64_t n, int64_t k, int equal,
                 struct vl_err *e)
{
    struct kk q = { .k = k };
    struct keyed *sorted = NULL;

    *p = (struct vl_parts){ .k = k };
    if (k < 1 || n < k)
        return vl_fail(e, VL_E_USAGE,
                       "%lld rows cannot be divided into %lld parts: one would be "
                       "empty",
                       (long long)n, (long long)k);
    if (equal && n % k)
        return vl_fail(e, VL_E_USAGE, "%lld rows do not divide into %lld parts of equal size",
                       (long long)n, (long long)k);
    int64_t states = equal ? n / k : n;
    if (vl_try_alloc(&sorted, (size_t)n, sizeof(*sorted), "partition", e) ||
        vl_try_alloc(&q.next, (size_t)n, sizeof(*q.next), "partition", e) ||
        vl_try_alloc(&q.set, (size_t)(states * k), sizeof(*q.set), "partition", e) ||
        vl_try_alloc(&q.heap, (size_t)states, sizeof(*q.heap), "partition", e) ||
        vl_try_alloc(&p->first, (size_t)(k + 1), sizeof(*p->first), "partition", e) ||
        vl_try_alloc(&p->item, (size_t)n, sizeof(*p->item), "partition", e))
        goto done;
    for (int64_t i = 0; i < n; i++)
        sorted[i] = (struct keyed){ work[i], i };
    qsort(sorted, (size_t)n, sizeof(*sorted), keyed_cmp);
    start(&q, sorted, n, equal ? k : 1);
    while (q.nheap > 1) {
        struct set *a = heap_pop(&q), *b = heap_pop(&q);
        for (int64_t i = 0; i < k; i++)
            set_merge(&q, &a[i], &b[k - 1 - i]);
        sort_sets(&q, a);
        heap_push(&q, a);
    }
    read_parts(p, &q, q.heap[0]);
done:
    free(sorted);
    free(q.next);
    free(q.set);
    free(q.heap);
    if (e->code)
        vl_parts_free(p);
    return e->code;
}

/* ---- Data-parallel order ---- */

void vl_balance_metrics(struct vl_metrics *m, const int64_t *len, int64_t n,
                        const struct vl_parts *p)
{
    int64_t total = 0, range[2][2] = { { INT64_MAX, 0 }, { INT64_MAX, 0 } };

    for (int64_t i = 0; i < n; i++)
        total += len[i];
    for (int64_t a = 0; a < p->k; a++) {
        int64_t sum[2] = { 0, 0 }, each = n / p->k;
        for (int64_t i = a * each; i < (a + 1) * each; i++)
            sum[0] += len[i];
        for (int64_t i = p->first[a]; i < p->first[a + 1]; i++)
            sum[1] += len[p->item[i]];
        for (int w = 0; w < 2; w++) {
            range[w][0] = sum[w] < range[w][0] ? sum[w] : range[w][0];
            range[w][1] = sum[w] > range[w][1] ? sum[w] : range[w][1];
        }
    }
    vl_metrics_set_i(m, "global_seqlen/min", range[0][0]);
    vl_metrics_set_i(m, "global_seqlen/max", range[0][1]);
    vl_metrics_set_i(m, "global_seqlen/minmax_diff", range[0][1] - range[0][0]);
    vl_metrics_set_i(m, "global_seqlen/balanced_min", range[1][0]);
    vl_metrics_set_i(m, "global_seqlen/balanced_max", range[1][1]);
    vl_metrics_set(m, "global_seqlen/mean", (double)total / (double)p->k);
}

int vl_balance_order(int64_t *order, const int64_t *len, int64_t n, int64_t dp,
                     struct vl_metrics *m, struct vl_err *e)
{
    struct vl_parts p = { 0 };
    int64_t *work = NULL, at = 0;
    struct keyed *part = NULL;

    if (vl_try_alloc(&work, (size_t)n, sizeof(*work), "balance", e) ||
        vl_try_alloc(&part, (size_t)n, sizeof(*part), "balance", e))
        goto done;
    for (int64_t i = 0; i < n; i++)
        work[i] = vl_row_work(len[i]);
    if (vl_partition(&p, work, n, dp, 1, e))
        goto done;
    for (int64_t a = 0; a < dp; a++) {
        int64_t k = p.first[a + 1] - p.first[a];
        for (int64_t i = 0; i < k; i++) {
            int64_t row = p.item[p.first[a] + i];
            part[i] = (struct keyed){ work[row], row };
        }
        qsort(part, (size_t)k, sizeof(*part), keyed_cmp);
        for (int64_t i = 0; i < k; i += 2)
            order[at++] = part[i].index;
        for (int64_t i = k - 1 - k % 2; i > 0; i -= 2)
            order[at++] = part[i].index;
    }
    if (m)
        vl_balance_metrics(m, len, n, &p);
done:
    vl_parts_free(&p);
    free(work);
    free(part);
    return e->code;
}

/* ---- Micro-batches ---- */

/* Puts the parts into verl's order: by (work, first row) descending, then the even positions
 * backwards and the odd ones. */
static int middle_heavy(struct vl_parts *p, const int64_t *work, int64_t n, struct vl_err *e)
{
    struct keyed *key = NULL;
    struct vl_parts q = { .k = p->k };

    if (vl_try_alloc(&key, (size_t)(2 * p->k), sizeof(*key), "micro-batches", e) ||
        vl_try_alloc(&q.first, (size_t)(p->k + 1), sizeof(*q.first), "micro-batches", e) ||
        vl_try_alloc(&q.item, (size_t)n, sizeof(*q.item), "micro-batches", e)) {
        free(key);
        vl_parts_free(&q);
        return e->code;
    }
    /* key[2a] = (work, first row), key[2a + 1] carries the part's number along */
    for (int64_t a = 0; a < p->k; a++) {
        key[2 * a] = (struct keyed){ 0, p->item[p->first[a]] };
        for (int64_t i = p->first[a]; i < p->first[a + 1]; i++)
            key[2 * a].work += work[p->item[i]];
        key[2 * a + 1].index = a;
    }
    qsort(key, (size_t)p->k, 2 * sizeof(*key), keyed_cmp);
    int64_t at = 0, slot = 0;
    for (int pass = 0; pass < 2; pass++) {
        int64_t last = pass ? 1 : (p->k - 1) / 2 * 2, step = pass ? 2 : -2;
        for (int64_t d = last; d >= 0 && d < p->k; d += step) { /* d: position, descending work */
            int64_t a = key[2 * (p->k - 1 - d) + 1].index, len = p->first[a + 1] - p->first[a];
            q.first[slot++] = at;
            memcpy(q.item + at, p->item + p->first[a], (size_t)len * sizeof(*q.item));
            at += len;
        }
    }
    q.first[q.k] = at;
    free(key);
    vl_parts_free(p);
    *p = q;
    return 0;
}

int vl_dynamic_batches(struct vl_parts *p, const int64_t *len, int64_t n, int64_t max_tokens,
                       struct vl_err *e)
{
    int64_t *work = NULL, total = 0;

    *p = (struct vl_parts){ 0 };
    for (int64_t i = 0; i < n; i++) {
        total += len[i];
        if (len[i] > max_tokens)
            return vl_fail(e, VL_E_USAGE,
                           "row %lld has %lld tokens, above the budget of %lld a micro-batch",
                           (long long)i, (long long)len[i], (long long)max_tokens);
    }
    if (vl_try_alloc(&work, (size_t)n, sizeof(*work), "micro-batches", e))
        return e->code;
    for (int64_t i = 0; i < n; i++)
        work[i] = vl_row_work(len[i]);
    int64_t m = (total + max_tokens - 1) / max_tokens;
    m = m > n ? n : m > 0 ? m : 1;
    if (vl_partition(p, work, n, m, 0, e) == 0)
        middle_heavy(p, work, n, e);
    free(work);
    return e->code;
}
