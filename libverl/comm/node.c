/* node.c - collectives of ranks on one host. See node.h.
 *
 * Layout of the shared bytes: one cache line per rank with the number of barriers it has entered,
 * then two slots per rank. Operations alternate between the slots: a slot is written again two
 * chunks later, after a barrier that every reader of its old contents has passed, so one barrier a
 * chunk is enough (two for a sum that the ranks share). */
#include "libverl/comm/node.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum {
    LINE = 64,
    SPIN = 200,          /* polls before yielding: longer costs when ranks outnumber cores */
    YIELDS = 20000,      /* then sleep between polls: somebody reads a file or waits for a scorer */
    MAX_CHUNK = 1 << 19, /* 512 kB: two slots of two ranks fit a second-level cache */
    MAX_TOTAL = 1 << 25, /* all slots: containers often have 64 MB of shared memory */
    SMALL = 4096,        /* below: every rank sums everything itself, one barrier */
};

static size_t chunk_for(int size)
{
    size_t c = MAX_TOTAL / (2 * (size_t)size) & ~(size_t)4095;

    return c > MAX_CHUNK ? MAX_CHUNK : c < SMALL ? SMALL : c;
}

static size_t header_bytes(int size)
{
    return ((size_t)size * LINE + 4095) & ~(size_t)4095;
}

size_t vl_node_bytes(int size)
{
    return header_bytes(size) + 2 * (size_t)size * chunk_for(size);
}

void vl_node_attach(struct vl_node *n, void *base, int rank, int size)
{
    *n = (struct vl_node){ .rank = rank, .size = size, .base = base, .chunk = chunk_for(size) };
}

static _Atomic uint64_t *flag(const struct vl_node *n, int rank)
{
    return (_Atomic uint64_t *)(void *)(n->base + (size_t)rank * LINE);
}

static char *slot(const struct vl_node *n, int rank)
{
    return n->base + header_bytes(n->size) + (2 * (size_t)rank + (size_t)n->flip) * n->chunk;
}

static void wait_for(_Atomic uint64_t *f, uint64_t epoch)
{
    const struct timespec nap = { .tv_nsec = 50000 };
    int polls = 0;

    while (atomic_load_explicit(f, memory_order_acquire) < epoch) {
        if (++polls <= SPIN)
            continue;
        if (polls <= YIELDS) {
            sched_yield();
        } else {
            polls = YIELDS;
            nanosleep(&nap, NULL);
        }
    }
}

void vl_node_barrier(struct vl_node *n)
{
    n->epoch++;
    atomic_store_explicit(flag(n, n->rank), n->epoch, memory_order_release);
    for (int r = 0; r < n->size; r++)
        wait_for(flag(n, r), n->epoch);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void vl_node_bcast(struct vl_node *n, void *p, size_t bytes, int root)
{
    char *c = p;

    for (size_t at = 0; at < bytes; at += n->chunk) {
        size_t len = least(n->chunk, bytes - at);

        if (n->rank == root)
            memcpy(slot(n, root), c + at, len);
        vl_node_barrier(n);
        if (n->rank != root)
            memcpy(c + at, slot(n, root), len);
        n->flip ^= 1;
    }
}

void vl_node_allgather(struct vl_node *n, const void *mine, size_t bytes, void *all)
{
    memcpy(slot(n, n->rank), mine, bytes);
    vl_node_barrier(n);
    for (int r = 0; r < n->size; r++)
        memcpy((char *)all + (size_t)r * bytes, slot(n, r), bytes);
    n->flip ^= 1;
}

void vl_node_gather(struct vl_node *n, const void *mine, const size_t *sizes, void *all)
{
    size_t longest = 0;

    for (int r = 0; r < n->size; r++)
        longest = sizes[r] > longest ? sizes[r] : longest;
    for (size_t at = 0; at < longest; at += n->chunk) {
        if (at < sizes[n->rank])
            memcpy(slot(n, n->rank), (const char *)mine + at, least(n->chunk, sizes[n->rank] - at));
        vl_node_barrier(n);
        for (size_t r = 0, start = 0; !n->rank && r < (size_t)n->size; start += sizes[r++])
            if (at < sizes[r])
                memcpy((char *)all + start + at, slot(n, (int)r), least(n->chunk, sizes[r] - at));
        n->flip ^= 1;
    }
}

/* One routine for the three element types; op adds src to dst element by element, so that dst is
 * always ((x0 + x1) + x2) + ... in rank order. */
typedef void fold_fn(void *dst, const void *src, size_t count);

static void fold_f32(void *dst, const void *src, size_t count)
{
    float *restrict d = dst;
    const float *restrict s = src;

    for (size_t i = 0; i < count; i++)
        d[i] += s[i];
}

static void fold_f64(void *dst, const void *src, size_t count)
{
    double *restrict d = dst;
    const double *restrict s = src;

    for (size_t i = 0; i < count; i++)
        d[i] += s[i];
}

static void fold_max(void *dst, const void *src, size_t count)
{
    int64_t *restrict d = dst;
    const int64_t *restrict s = src;

    for (size_t i = 0; i < count; i++)
        d[i] = s[i] > d[i] ? s[i] : d[i];
}

/* A long chunk is split among the ranks: each folds its range of all slots into rank 0's slot. */
static void fold_chunk(struct vl_node *n, char *x, size_t bytes, size_t width, fold_fn *fold)
{
    size_t count = bytes / width, lo, hi;

    memcpy(slot(n, n->rank), x, bytes);
    vl_node_barrier(n);
    if (bytes <= SMALL) {
        memcpy(x, slot(n, 0), bytes);
        for (int r = 1; r < n->size; r++)
            fold(x, slot(n, r), count);
    } else {
        lo = count * (size_t)n->rank / (size_t)n->size;
        hi = count * (size_t)(n->rank + 1) / (size_t)n->size;
        for (int r = 1; r < n->size; r++)
            fold(slot(n, 0) + lo * width, slot(n, r) + lo * width, hi - lo);
        vl_node_barrier(n);
        memcpy(x, slot(n, 0), bytes);
    }
    n->flip ^= 1;
}

static void fold_all(struct vl_node *n, void *x, size_t count, size_t width, fold_fn *fold)
{
    size_t bytes = count * width;

    for (size_t at = 0; at < bytes; at += n->chunk)
        fold_chunk(n, (char *)x + at, least(n->chunk, bytes - at), width, fold);
}

void vl_node_sum_f32(struct vl_node *n, float *x, size_t count)
{
    fold_all(n, x, count, sizeof *x, fold_f32);
}

void vl_node_sum_f64(struct vl_node *n, double *x, size_t count)
{
    fold_all(n, x, count, sizeof *x, fold_f64);
}

void vl_node_max_i64(struct vl_node *n, int64_t *x, size_t count)
{
    fold_all(n, x, count, sizeof *x, fold_max);
}
