/* moments.c - the optimizer's moments: slabs of the device, or a file.
 *
 * They are touched once in a step, so that memory is not where they need to be: in a file they take a
 * window's room each, and a step reads and writes every float of it once, window by window. Its room
 * is reserved at the start, so that a full disk is found before the first pass; it has no name, so that
 * nothing stays behind, however the program ends (where a file system wants one, it has it for a
 * moment, and one that is swept with other unfinished work). */
#include "libverl/engine/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libverl/base/err.h"

#define WINDOW ((int64_t)512 << 10) /* floats: a moment's take 2 MB, a second-level cache */

/* At least a block of rows of the widest matrix. */
static int64_t window(const struct vl_config *c)
{
    int64_t widest = c->C > c->F ? c->C : c->F, least;

    widest = widest > c->H * c->D ? widest : c->H * c->D;
    least = VL_BLOCK_ROWS * widest;
    return least > WINDOW ? least : WINDOW;
}

size_t vl_moments_bytes(const struct vl_config *c, const struct vl_engine_opts *o, int64_t count)
{
    return (size_t)(o->offload ? window(c) : count) * sizeof(float) * (size_t)o->moments;
}

/* A file without a name; -1 and errno. */
static int nameless(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char *path;

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    path = vl_asprintf("%s/.aside-moments-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    free(path);
    return fd;
}

static int open_file(struct vl_engine *g, struct vl_err *e)
{
    size_t bytes = (size_t)g->count * sizeof(float) * (size_t)g->opt.moments;

    g->moments.fd = nameless(g->opt.offload);
    if (g->moments.fd < 0)
        return vl_fail_errno(e, VL_E_CREATE, "%s: cannot make a file for the optimizer's moments",
                             g->opt.offload);
    do
        errno = posix_fallocate(g->moments.fd, 0, (off_t)bytes);
    while (errno == EINTR);
    if (errno)
        return vl_fail_errno(e, VL_E_IO, "%s: no room for the optimizer's moments, %.1f MB",
                             g->opt.offload, (double)bytes * 1e-6);
    return 0;
}

int vl_moments_new(struct vl_engine *g, struct vl_err *e)
{
    struct vl_moments *m = &g->moments;
    struct vl_backend *be = g->be;
    int64_t n = g->count;

    if (g->opt.offload && g->opt.moments) {
        n = m->window = window(&g->cfg);
        if (open_file(g, e))
            return e->code;
    }
    for (int i = 0; i < g->opt.moments; i++)
        if (be->alloc(be->ctx, (void **)&m->dev[i], (size_t)n * sizeof(float), e))
            return e->code;
    if (m->window && !be->host(be->ctx, m->dev[0]))
        m->room = vl_alloc((size_t)m->window * sizeof *m->room);
    return 0;
}

void vl_moments_free(struct vl_engine *g)
{
    struct vl_moments *m = &g->moments;

    for (int i = 0; i < VL_MAX_MOMENTS; i++)
        if (m->dev[i])
            g->be->free(g->be->ctx, m->dev[i]);
    if (m->window && m->fd >= 0)
        close(m->fd);
    free(m->room);
}

static off_t place(const struct vl_engine *g, int i, int64_t at)
{
    return (off_t)(((int64_t)i * g->count + at) * (int64_t)sizeof(float));
}

static int failed(const struct vl_engine *g, const char *what, ssize_t k, struct vl_err *e)
{
    if (!k)
        errno = EIO;
    return vl_fail_errno(e, VL_E_IO, "%s: cannot %s the optimizer's moments there", g->opt.offload,
                         what);
}

/* Floats [at, at + n) of moment i of the file; several threads may call it at once. */
static int file_get(const struct vl_engine *g, int i, int64_t at, int64_t n, float *x,
                    struct vl_err *e)
{
    char *p = (char *)x;
    off_t pos = place(g, i, at), end = place(g, i, at + n);

    for (ssize_t k; pos < end; p += k, pos += k) {
        do
            k = pread(g->moments.fd, p, (size_t)(end - pos), pos);
        while (k < 0 && errno == EINTR);
        if (k <= 0)
            return failed(g, "read", k, e);
    }
    return 0;
}

static int file_put(const struct vl_engine *g, int i, int64_t at, int64_t n, const float *x,
                    struct vl_err *e)
{
    const char *p = (const char *)x;
    off_t pos = place(g, i, at), end = place(g, i, at + n);

    for (ssize_t k; pos < end; p += k, pos += k) {
        do
            k = pwrite(g->moments.fd, p, (size_t)(end - pos), pos);
        while (k < 0 && errno == EINTR);
        if (k <= 0)
            return failed(g, "write", k, e);
    }
    return 0;
}

int vl_moments_read(struct vl_engine *g, int64_t at, int64_t n, struct vl_err *e)
{
    struct vl_moments *m = &g->moments;
    struct vl_backend *be = g->be;

    for (int i = 0; i < g->opt.moments; i++) {
        float *x = m->room ? m->room : be->host(be->ctx, m->dev[i]);

        if (file_get(g, i, at, n, x, e))
            return e->code;
        if (m->room)
            be->upload(be->ctx, m->dev[i], x, (size_t)n * sizeof *x);
    }
    return 0;
}

int vl_moments_write(struct vl_engine *g, int64_t at, int64_t n, struct vl_err *e)
{
    struct vl_moments *m = &g->moments;
    struct vl_backend *be = g->be;

    for (int i = 0; i < g->opt.moments; i++) {
        float *x = m->room ? m->room : be->host(be->ctx, m->dev[i]);

        if (m->room)
            be->download(be->ctx, x, m->dev[i], (size_t)n * sizeof *x);
        if (file_put(g, i, at, n, x, e))
            return e->code;
    }
    return 0;
}

/* ---- one slab, as files of weights have it ---- */

static int in_file(const struct vl_engine_slab *s)
{
    return s->which != VL_WEIGHTS && s->g->moments.window;
}

static float *slab(const struct vl_engine_slab *s)
{
    return s->which == VL_WEIGHTS ? s->g->params : s->g->moments.dev[s->which];
}

int vl_engine_slab_put(void *arg, int64_t i, int64_t row, int64_t n, const float *x,
                       struct vl_err *e)
{
    const struct vl_engine_slab *s = arg;
    const struct vl_param *p = &s->m->param[i];
    struct vl_backend *be = s->g->be;
    int64_t at = p->offset + row * p->cols;

    n *= p->cols;
    if (in_file(s))
        return file_put(s->g, s->which, at, n, x, e);
    be->upload(be->ctx, slab(s) + at, x, (size_t)n * sizeof *x);
    return 0;
}

const float *vl_engine_slab_get(void *arg, int64_t at, int64_t n, float *room, struct vl_err *e)
{
    const struct vl_engine_slab *s = arg;
    struct vl_backend *be = s->g->be;
    const float *host;

    if (in_file(s))
        return file_get(s->g, s->which, at, n, room, e) ? NULL : room;
    host = be->host(be->ctx, slab(s));
    if (host)
        return host + at;
    be->download(be->ctx, room, slab(s) + at, (size_t)n * sizeof *room);
    return room;
}
