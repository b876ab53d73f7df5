/* load.c - which tensor of which file each part of the slab is. See tensors.h.
 *
 * Every tensor the layout has must be there once with its shape, and nothing else may be there:
 * a tensor silently left out or ignored is a model that is wrong without looking so. Left aside
 * are rotary inv_freq buffers (old Llama files hold them; they are recomputed), lm_head where there
 * is no place for it (tied and equal, or a value head), and a value head's other names. */
#include "libverl/model/read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces by name: open addressing over their indices. */
struct finder {
    const struct vl_piece *piece;
    int64_t n, *slot;
    uint64_t mask;
};

static uint64_t name_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;

    while (*s)
        h = (h ^ (uint8_t)*s++) * 0x100000001b3u;
    return h ^ h >> 29;
}

static void finder_init(struct finder *f, const struct vl_piece *piece, int64_t n)
{
    uint64_t cap = 64;

    while (cap < (uint64_t)n * 2)
        cap *= 2;
    *f = (struct finder){ .piece = piece, .n = n, .mask = cap - 1 };
    f->slot = vl_alloc(sizeof *f->slot * cap);
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = name_hash(piece[i].name) & f->mask;

        while (f->slot[at])
            at = (at + 1) & f->mask;
        f->slot[at] = i + 1;
    }
}

static int64_t find(const struct finder *f, const char *name)
{
    for (uint64_t at = name_hash(name) & f->mask; f->slot[at]; at = (at + 1) & f->mask)
        if (!strcmp(f->piece[f->slot[at] - 1].name, name))
            return f->slot[at] - 1;
    return -1;
}

/* Index of the piece that a file's tensor is, under its own name, without the "model." of a bare
 * base model, or a trl value head's name; -1 when it is none. */
static int64_t piece_of(const struct finder *f, const char *name)
{
    int64_t i = find(f, name);
    char full[160];

    if (i >= 0)
        return i;
    if (!strcmp(name, "v_head.summary.weight"))
        return find(f, "score.weight");
    if (!strcmp(name, "v_head.summary.bias"))
        return find(f, "score.bias");
    if (strlen(name) > 140)
        return -1;
    snprintf(full, sizeof full, "model.%s", name);
    return find(f, full);
}

static void shape_text(char *s, size_t n, const int64_t *shape, int ndim)
{
    size_t at = (size_t)snprintf(s, n, "[");

    for (int d = 0; d < ndim && at < n; d++)
        at += (size_t)snprintf(s + at, n - at, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (at < n)
        snprintf(s + at, n - at, "]");
}

static int check_tensor(const struct vl_piece *p, const struct vl_st *st,
                        const struct vl_st_tensor *t, struct vl_err *e)
{
    char found[200], want[80];

    if (t->ndim != p->ndim || memcmp(t->shape, p->shape, sizeof *p->shape * (size_t)p->ndim)) {
        shape_text(found, sizeof found, t->shape, t->ndim);
        shape_text(want, sizeof want, p->shape, p->ndim);
        return vl_fail(e, VL_E_DATA, "%s: tensor %s has shape %s; config.json makes it %s",
                       st->path, t->name, found, want);
    }
    if (t->dtype != VL_F32 && t->dtype != VL_BF16 && t->dtype != VL_F16)
        return vl_fail(e, VL_E_DATA, "%s: tensor %s is %s; expected F32, BF16 or F16", st->path,
                       t->name, vl_dtype_name(t->dtype));
    return 0;
}

/* What is found while the files are gone through. */
struct found {
    const struct vl_model *m;
    struct vl_piece *piece;
    int64_t n;
    struct vl_source *source, head; /* (n); lm_head where the layout has none */
    uint64_t bytes[VL_NDTYPE];
};

/* lm_head where the layout has none: with tied embeddings it must equal them. */
static int stray_head(struct found *f, const struct vl_st *st, const struct vl_st_tensor *t,
                      struct vl_err *e)
{
    const struct vl_config *c = &f->m->cfg;
    struct vl_piece p = { .ndim = 2, .shape = { c->V, c->C } };

    if (c->head == VL_HEAD_VALUE)
        return 0;
    f->head = (struct vl_source){ st, t };
    return check_tensor(&p, st, t, e);
}

static int match_file(struct found *f, const struct finder *by, const struct vl_st *st,
                      struct vl_err *e)
{
    for (size_t k = 0; k < st->n; k++) {
        const struct vl_st_tensor *t = &st->tensor[k];
        const char *tail = strstr(t->name, "rotary_emb.inv_freq");
        int64_t i = piece_of(by, t->name);

        if (i >= 0 && f->source[i].t) {
            return vl_fail(e, VL_E_DATA,
                           "%s: tensor %s was already in another file or under another name",
                           st->path, t->name);
        } else if (i >= 0) {
            f->source[i] = (struct vl_source){ st, t };
            f->bytes[t->dtype] += t->end - t->begin;
            if (check_tensor(&f->piece[i], st, t, e))
                return e->code;
        } else if (!strcmp(t->name, "lm_head.weight")) {
            if (stray_head(f, st, t, e))
                return e->code;
        } else if (!tail || tail[19]) {
            return vl_fail(e, VL_E_DATA,
                           "%s: tensor %s has no place in a %s model of %" PRId64
                           " layers as config.json describes it",
                           st->path, t->name, vl_config_class(&f->m->cfg), f->m->cfg.L);
        }
    }
    return 0;
}

static int check_complete(const struct found *f, const struct vl_weight_files *files,
                          struct vl_err *e)
{
    char want[80];

    for (int64_t i = 0; i < f->n; i++) {
        const struct vl_piece *p = &f->piece[i];

        if (f->source[i].t || !strcmp(p->name, "score.weight"))
            continue;
        shape_text(want, sizeof want, p->shape, p->ndim);
        return vl_fail(e, VL_E_DATA,
                       "%s: tensor %s is missing%s; config.json asks for it with "
                       "shape %s",
                       files->path[0], p->name, files->n > 1 ? " (in all shards)" : "", want);
    }
    return 0;
}

static int check_head(const struct found *f, const struct vl_weight_files *files, struct vl_err *e)
{
    int64_t i = 0, at;
    float x[2];

    while (strcmp(f->piece[i].name, "model.embed_tokens.weight"))
        i++;
    if (vl_source_differ(&f->head, &f->source[i], f->piece[i].n, &at, x, e) || at < 0)
        return e->code;
    return vl_fail(e, VL_E_DATA,
                   "%s: tensor lm_head.weight differs from model.embed_tokens.weight "
                   "at element %" PRId64 " (%.9g, %.9g), but config.json says "
                   "tie_word_embeddings true; set it to false or remove the tensor",
                   files->path[0], at, (double)x[0], (double)x[1]);
}

int vl_tensors_read(const struct vl_model *m, const struct vl_weight_files *files,
                    const struct vl_sink *to, char hash[33], const char **dtype, struct vl_err *e)
{
    struct vl_st *st = vl_alloc(files->n * sizeof *st);
    struct found f = { .m = m };
    struct finder by;
    int rc = 0;

    f.piece = vl_model_pieces(m, &f.n);
    f.source = vl_alloc((size_t)f.n * sizeof *f.source);
    finder_init(&by, f.piece, f.n);
    for (size_t i = 0; i < files->n && !rc; i++)
        rc = vl_st_open(&st[i], files->path[i], e) || match_file(&f, &by, &st[i], e);
    if (!rc && !check_complete(&f, files, e) && !(f.head.t && check_head(&f, files, e)) &&
        !vl_read_pieces(m, f.piece, f.source, to, hash, e) && dtype)
        *dtype = f.bytes[VL_BF16] > f.bytes[VL_F32]  ? "BF16"
                 : f.bytes[VL_F16] > f.bytes[VL_F32] ? "F16"
                                                     : "F32";
    for (size_t i = 0; i < files->n; i++)
        vl_st_close(&st[i]);
    free(st);
    free(by.slot);
    free(f.source);
    free(f.piece);
    return e->code;
}

int vl_slab_put(void *arg, int64_t i, int64_t row, int64_t n, const float *x, struct vl_err *e)
{
    const struct vl_slab *s = arg;
    const struct vl_param *p = &s->m->param[i];

    (void)e;
    memcpy(s->x + p->offset + row * p->cols, x, (size_t)(n * p->cols) * sizeof *x);
    return 0;
}
