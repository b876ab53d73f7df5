/* read.c - weights from their files to where they are used, in one pass. See tensors.h.
 *
 * Threads take blocks of rows in the slab's order. A block is read into a buffer that stays in the
 * cache, made fp32, checked, handed on (packed, or copied to a slab) and, when all blocks before it
 * have been, hashed: the hash runs over the slab's bytes in order (XXH3 takes 27 ms for 540 MB in
 * the cache), everything else runs beside it. So what is hashed is what is used, whatever happens
 * to the file meanwhile. */
#include "libverl/model/read.h"

#include "libverl/base/fmath.h"
#include "libverl/base/half.h"
#include "libverl/engine/backend.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK ((int64_t)128 << 10) /* floats that a block aims at: a quarter of a 2 MB cache */
#define TEAM  ((int64_t)1 << 20)   /* fewer floats are read sooner than a team starts */
#define LINE  ((size_t)64)
#define RUN   64 /* loops of constant length become vector code */

/* ---- numbers ---- */

static void widen_bf16(float *x, const uint16_t *h, int64_t n)
{
    int64_t i = 0;

    for (; i + RUN <= n; i += RUN)
        for (int k = 0; k < RUN; k++)
            x[i + k] = vl_bf16_to_f32(h[i + k]);
    for (; i < n; i++)
        x[i] = vl_bf16_to_f32(h[i]);
}

static void widen_f16(float *x, const uint16_t *h, int64_t n)
{
    int64_t i = 0;

    for (; i + RUN <= n; i += RUN)
        for (int k = 0; k < RUN; k++)
            x[i + k] = vl_f16_to_f32(h[i + k]);
    for (; i < n; i++)
        x[i] = vl_f16_to_f32(h[i]);
}

static uint32_t bits(float x)
{
    return (uint32_t)vl_float_bits(x);
}

/* An exponent of all ones carries into the sign. */
int64_t vl_not_finite(const float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + RUN <= n; i += RUN) {
        uint32_t any = 0;

        for (int k = 0; k < RUN; k++)
            any |= (bits(x[i + k]) & 0x7fffffff) + 0x00800000;
        if (any >> 31)
            break;
    }
    for (; i < n; i++)
        if ((bits(x[i]) & 0x7f800000) == 0x7f800000)
            return i;
    return -1;
}

/* Elements first .. first + n of a tensor; raw: room for as many 16-bit ones. */
static int read_floats(const struct vl_source *s, int64_t first, int64_t n, float *x, uint16_t *raw,
                       struct vl_err *e)
{
    const struct vl_st_tensor *t = s->t;
    size_t size = t && t->dtype == VL_F32 ? 4 : 2;
    int64_t bad;

    if (!t) {
        memset(x, 0, (size_t)n * sizeof *x);
        return 0;
    }
    if (vl_st_read(s->st, t, (uint64_t)first * size, size == 4 ? (void *)x : raw, (size_t)n * size,
                   e))
        return e->code;
    if (t->dtype == VL_BF16)
        widen_bf16(x, raw, n);
    else if (t->dtype == VL_F16)
        widen_f16(x, raw, n);
    bad = vl_not_finite(x, n);
    if (bad >= 0)
        return vl_fail(e, VL_E_DATA,
                       "%s: tensor %s: element %" PRId64 " is %f; weights must be "
                       "finite",
                       s->st->path, t->name, first + bad, (double)x[bad]);
    return 0;
}

/* ---- blocks ---- */

struct block {
    int64_t param, row, n, piece; /* rows row .. row + n; the first piece that holds some of them */
};

struct pass {
    const struct vl_model *m;
    const struct vl_piece *piece;
    const struct vl_source *source;
    const struct vl_sink *to;
    struct block *block;
    int64_t blocks, floats; /* floats: of the largest block */
};

static int64_t block_rows(const struct vl_param *p)
{
    int64_t n = BLOCK / p->cols / VL_BLOCK_ROWS * VL_BLOCK_ROWS;

    return n ? n : VL_BLOCK_ROWS;
}

static void cut(struct pass *s)
{
    int64_t piece = 0, at = 0;

    for (int64_t i = 0; i < s->m->nparam; i++)
        s->blocks +=
            (s->m->param[i].rows + block_rows(&s->m->param[i]) - 1) / block_rows(&s->m->param[i]);
    s->block = vl_alloc((size_t)s->blocks * sizeof *s->block);
    for (int64_t i = 0; i < s->m->nparam; i++) {
        const struct vl_param *p = &s->m->param[i];
        int64_t step = block_rows(p);

        for (int64_t row = 0; row < p->rows; row += step) {
            int64_t n = p->rows - row < step ? p->rows - row : step;

            while (s->piece[piece].at + s->piece[piece].n <= p->offset + row * p->cols)
                piece++;
            s->block[at++] = (struct block){ i, row, n, piece };
            s->floats = n * p->cols > s->floats ? n * p->cols : s->floats;
        }
    }
}

/* A block's floats, from as many pieces as it lies in. */
static int fill(const struct pass *s, const struct block *b, float *x, uint16_t *raw,
                struct vl_err *e)
{
    const struct vl_param *p = &s->m->param[b->param];
    int64_t at = p->offset + b->row * p->cols, end = at + b->n * p->cols;

    for (int64_t i = b->piece; at < end; i++) {
        const struct vl_piece *q = &s->piece[i];
        int64_t n = q->at + q->n < end ? q->at + q->n - at : end - at;

        if (read_floats(&s->source[i], at - q->at, n, x, raw, e))
            return e->code;
        at += n, x += n;
    }
    return 0;
}

static void add_to_hash(XXH3_state_t *h, const struct vl_param *p, const struct block *b,
                        const float *x)
{
    if (!b->row)
        vl_hash_param(h, p);
    XXH3_128bits_update(h, x, (size_t)(b->n * p->cols) * sizeof *x);
}

/* Of the system and back to it: what malloc keeps would stand beside the passes that come later, and
 * in threads it sets aside an address space for each. */
static char *map_room(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        vl_oom(bytes);
    return p;
}

/* The first failure in the slab's order is the one that is told, whichever thread meets it. */
static void run(const struct pass *s, int threads, XXH3_state_t *h, struct vl_err *e)
{
    int stop = 0, team = s->m->count < TEAM ? 1 : threads;
    size_t each = (size_t)s->floats * (sizeof(float) + sizeof(uint16_t)) + LINE;
    char *room = map_room(each * (size_t)team);

#pragma omp parallel num_threads(team)
    {
        float *x = (float *)(void *)(room + each / LINE * LINE * (size_t)omp_get_thread_num());
        uint16_t *raw = (uint16_t *)(x + s->floats);

#pragma omp for ordered schedule(dynamic, 1)
        for (int64_t k = 0; k < s->blocks; k++) {
            const struct block *b = &s->block[k];
            struct vl_err own = { 0 };
            int skip;

#pragma omp atomic read
            skip = stop;
            if (!skip && !fill(s, b, x, raw, &own) && s->to)
                (void)!s->to->put(s->to->arg, b->param, b->row, b->n, x, &own);
#pragma omp ordered
            {
                if (own.code && !e->code) {
                    *e = own;
#pragma omp atomic write
                    stop = 1;
                } else if (!skip && !e->code) {
                    add_to_hash(h, &s->m->param[b->param], b, x);
                }
            }
        }
    }
    munmap(room, each * (size_t)team);
}

int vl_read_pieces(const struct vl_model *m, const struct vl_piece *piece,
                   const struct vl_source *source, const struct vl_sink *to, char hash[33],
                   struct vl_err *e)
{
    struct pass s = { .m = m, .piece = piece, .source = source, .to = to };
    XXH3_state_t *h = vl_hash_new();
    char sum[33];

    cut(&s);
    run(&s, to && to->threads ? to->threads : omp_get_max_threads(), h, e);
    vl_hash_end(h, sum);
    if (!e->code)
        memcpy(hash, sum, sizeof sum);
    free(s.block);
    return e->code;
}

int vl_source_differ(const struct vl_source *a, const struct vl_source *b, int64_t n, int64_t *at,
                     float x[2], struct vl_err *e)
{
    float *xa = vl_alloc((size_t)BLOCK * sizeof *xa), *xb = vl_alloc((size_t)BLOCK * sizeof *xb);
    uint16_t *raw = vl_alloc((size_t)BLOCK * sizeof *raw);

    *at = -1;
    for (int64_t i = 0; i < n && *at < 0; i += BLOCK) {
        int64_t k = 0, len = n - i < BLOCK ? n - i : BLOCK;

        if (read_floats(a, i, len, xa, raw, e) || read_floats(b, i, len, xb, raw, e))
            break;
        while (k < len && xa[k] == xb[k])
            k++;
        if (k < len)
            *at = i + k, x[0] = xa[k], x[1] = xb[k];
    }
    free(raw);
    free(xa);
    free(xb);
    return e->code;
}
