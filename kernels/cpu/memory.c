/* memory.c - the CPU's memory: blocks of fresh pages, and weights cut from them.
 *
 * A large block comes from the system and holds zeros without being written: its pages are cleared
 * when they are first touched, by the threads that fill it, and as huge pages, which costs a third
 * (540 MB: 0.07 s of CPU time instead of 0.23). It goes back as soon as it is freed. */
#include "kernels/cpu/cpu.h"

#include "libverl/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE      ((size_t)4096)
#define LINE      ((size_t)64)
#define CHUNK_MIN ((size_t)256 << 10) /* of what weights are cut from: a quarter of all before */
#define CHUNK_MAX ((size_t)64 << 20)

/* In the line before what is handed out. */
struct before {
    void *map; /* a mapping of `bytes`, or NULL: of the heap, from here on */
    size_t bytes;
    struct chunk *chunk; /* of a piece */
};

static struct before *before(void *p)
{
    return (struct before *)(void *)((char *)p - LINE);
}

/* A mapping whose byte PAGE lies on a huge page: what is before and behind is given back. */
static void *map_pages(size_t bytes)
{
    size_t ask, head;
    char *raw, *p;

    bytes = (bytes + PAGE - 1) & ~(PAGE - 1);
    ask = PAGE + bytes + HUGE_PAGE;
    raw = mmap(NULL, ask, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    p = raw + ((HUGE_PAGE - (size_t)(raw + PAGE) % HUGE_PAGE) % HUGE_PAGE);
    head = (size_t)(p - raw);
    if (head)
        munmap(raw, head);
    if (HUGE_PAGE - head)
        munmap(p + PAGE + bytes, HUGE_PAGE - head);
    p += PAGE;
    madvise(p, bytes, MADV_HUGEPAGE); /* only a hint */
    *before(p) = (struct before){ .map = p - PAGE, .bytes = PAGE + bytes };
    return p;
}

void *vl_cpu_alloc(size_t bytes)
{
    char *p;

    if (bytes > SIZE_MAX / 2)
        return NULL;
    if (bytes >= 2 * HUGE_PAGE)
        return map_pages(bytes);
    p = aligned_alloc(LINE, LINE + (bytes + LINE - 1) / LINE * LINE);
    if (!p)
        return NULL;
    memset(p, 0, LINE + bytes);
    return p + LINE;
}

void vl_cpu_free(void *p)
{
    if (!p)
        return;
    if (before(p)->map)
        munmap(before(p)->map, before(p)->bytes);
    else
        free(before(p));
}

/* ---- weights: many, of all sizes; side by side they fill huge pages ---- */

struct chunk {
    size_t size, used;
    int64_t pieces; /* not yet freed */
};

/* A chunk with room for `need` bytes; what is larger than a chunk has one of its own. */
static struct chunk *chunk_for(struct vl_cpu *c, size_t need)
{
    struct chunk *k = c->chunk;
    size_t size = c->chunks / 4;
    int own;

    if (k && k->size - k->used >= need)
        return k;
    size = size < CHUNK_MIN ? CHUNK_MIN : size > CHUNK_MAX ? CHUNK_MAX : size;
    own = LINE + need > size;
    size = own ? LINE + need : size;
    k = vl_cpu_alloc(size);
    if (!k)
        return NULL;
    k->size = size, k->used = LINE;
    c->chunks += size;
    if (!own || !c->chunk)
        c->chunk = k;
    return k;
}

void *vl_cpu_piece(struct vl_cpu *c, size_t bytes)
{
    size_t need = LINE + (bytes + LINE - 1) / LINE * LINE;
    struct chunk *k = bytes > SIZE_MAX / 2 ? NULL : chunk_for(c, need);
    char *p;

    if (!k)
        return NULL;
    p = (char *)k + k->used + LINE;
    before(p)->chunk = k;
    k->used += need;
    k->pieces++;
    return p;
}

void vl_cpu_piece_free(struct vl_cpu *c, void *p)
{
    struct chunk *k;

    if (!p)
        return;
    k = before(p)->chunk;
    if (--k->pieces)
        return;
    if (c->chunk == k)
        c->chunk = NULL;
    vl_cpu_free(k);
}
