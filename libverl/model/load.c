/* load.c - reading weights files into the slab. See tensors.h.
 *
 * Every tensor the layout has must be there once with its shape, and nothing else may be there:
 * a tensor silently left out or ignored is a model that is wrong without looking so. Left aside
 * are rotary inv_freq buffers (old Llama files hold them; they are recomputed), lm_head where there
 * is no place for it (tied and equal, or a value head), and a value head's other names. */
#include "libverl/model/tensors.h"

#include "formats/json.h"
#include "formats/safetensors.h"
#include "libverl/base/fs.h"
#include "libverl/base/half.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INDEX ((size_t)64 << 20)
#define MAX_FILES 100000

static void add_file(struct vl_weight_files *f, const char *dir, const char *name)
{
    f->path = vl_realloc(f->path, sizeof *f->path * (f->n + 1));
    f->path[f->n++] = vl_asprintf("%s/%s", dir, name);
}

/* The distinct files of weight_map, in order of first mention. */
static int read_index(struct vl_weight_files *f, const char *dir, const char *index,
                      struct vl_err *e)
{
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    int64_t map, at;
    char *last = NULL;

    if (vl_fs_read(index, MAX_INDEX, &text, e) || vl_json_parse(&j, text.s, text.n, index, e))
        goto out;
    map = vl_json_get(&j, 0, "weight_map");
    if (map < 0 || !vl_json_is(&j, map, VL_JSON_OBJECT) || !j.node[map].count) {
        vl_fail(e, VL_E_DATA, "%s: expected an object weight_map of tensor names to files", index);
        goto out;
    }
    at = map + 1;
    for (uint32_t k = 0; k < j.node[map].count && !e->code; k++, at = j.node[at + 1].next) {
        char *name = vl_json_strdup(&j, at + 1), *path;
        size_t i = 0;

        if (!name || !*name || strchr(name, '/') || name[0] == '.' || f->n == MAX_FILES) {
            vl_fail(e, VL_E_DATA, "%s: weight_map entry %" PRIu32 " should be a file name in %s",
                    index, k, dir);
        } else if (!last || strcmp(last, name)) {
            path = vl_asprintf("%s/%s", dir, name);
            while (i < f->n && strcmp(f->path[i], path))
                i++;
            if (i == f->n)
                add_file(f, dir, name);
            free(path);
        }
        free(last);
        last = name;
    }
out:
    free(last);
    vl_json_free(&j);
    vl_buf_free(&text);
    return e->code;
}

int vl_weight_files(struct vl_weight_files *f, const char *dir, const char *single,
                    struct vl_err *e)
{
    char *index = vl_asprintf("%s/model.safetensors.index.json", dir);
    int rc = 0;

    *f = (struct vl_weight_files){ 0 };
    if (single)
        add_file(f, dir, single);
    else if (vl_fs_exists(dir, "model.safetensors"))
        add_file(f, dir, "model.safetensors");
    else if (vl_fs_exists(index, NULL))
        rc = read_index(f, dir, index, e);
    else if (vl_fs_exists(dir, "pytorch_model.bin"))
        rc = vl_fail(e, VL_E_DATA,
                     "%s: has pytorch_model.bin only, which is Python pickle; save it as "
                     "model.safetensors with save_pretrained(..., safe_serialization=True)",
                     dir);
    else
        rc = vl_fail(
            e, VL_E_NOINPUT,
            "%s: no weights here: expected model.safetensors or model.safetensors.index.json", dir);
    free(index);
    return rc;
}

void vl_weight_files_free(struct vl_weight_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->path[i]);
    free(f->path);
    *f = (struct vl_weight_files){ 0 };
}

int vl_tensors_probe(const struct vl_weight_files *f, int *value_head, int *value_bias,
                     struct vl_err *e)
{
    *value_head = *value_bias = 0;
    for (size_t i = 0; i < f->n; i++) {
        struct vl_st st;

        if (!vl_st_open(&st, f->path[i], e)) {
            *value_head |=
                vl_st_find(&st, "score.weight") || vl_st_find(&st, "v_head.summary.weight");
            *value_bias |= vl_st_find(&st, "score.bias") || vl_st_find(&st, "v_head.summary.bias");
        }
        vl_st_close(&st);
        if (e->code)
            break;
    }
    return e->code;
}

/* Pieces by name: open addressing over their indices. */
struct finder {
    const struct vl_piece *piece;
    int64_t n, *slot;
    uint64_t mask;
    char *seen;
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
    f->seen = vl_alloc((size_t)n);
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

/* n stored elements to floats. Returns the index of the first that is not finite, or -1. */
static int64_t convert(float *to, const uint8_t *from, enum vl_dtype t, int64_t n)
{
    int64_t bad = -1;

    if (t == VL_F32) {
        memcpy(to, from, (size_t)n * 4);
    } else {
#pragma omp parallel for schedule(static) if (n > 1 << 20)
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;

            memcpy(&h, from + 2 * i, 2);
            to[i] = t == VL_BF16 ? vl_bf16_to_f32(h) : vl_f16_to_f32(h);
        }
    }
#pragma omp parallel for schedule(static) reduction(max : bad) if (n > 1 << 20)
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;

        memcpy(&u, to + i, 4);
        if ((u & 0x7f800000) == 0x7f800000)
            bad = i > bad ? i : bad;
    }
    return bad;
}

static int take(float *to, const struct vl_piece *p, const struct vl_st *st,
                const struct vl_st_tensor *t, struct vl_err *e)
{
    char found[200], want[80];
    int64_t bad;

    if (t->ndim != p->ndim || memcmp(t->shape, p->shape, sizeof *p->shape * (size_t)p->ndim)) {
        shape_text(found, sizeof found, t->shape, t->ndim);
        shape_text(want, sizeof want, p->shape, p->ndim);
        return vl_fail(e, VL_E_DATA, "%s: tensor %s has shape %s; config.json makes it %s",
                       st->path, t->name, found, want);
    }
    if (t->dtype != VL_F32 && t->dtype != VL_BF16 && t->dtype != VL_F16)
        return vl_fail(e, VL_E_DATA, "%s: tensor %s is %s; expected F32, BF16 or F16", st->path,
                       t->name, vl_dtype_name(t->dtype));
    bad = convert(to, vl_st_data(st, t), t->dtype, p->n);
    if (bad >= 0)
        return vl_fail(e, VL_E_DATA,
                       "%s: tensor %s: element %" PRId64 " is %f; weights must be "
                       "finite",
                       st->path, t->name, bad, (double)to[bad]);
    return 0;
}

/* lm_head where the layout has none: with tied embeddings it must equal them. Checked once all
 * files are read, so its values are kept. */
static int stray_head(const struct vl_model *m, float **head, const struct vl_st *st,
                      const struct vl_st_tensor *t, struct vl_err *e)
{
    struct vl_piece p = { .n = m->cfg.V * m->cfg.C, .ndim = 2, .shape = { m->cfg.V, m->cfg.C } };

    if (m->cfg.head == VL_HEAD_VALUE)
        return 0;
    free(*head);
    if (vl_try_alloc(head, (size_t)p.n, sizeof(float), t->name, e))
        return e->code;
    return take(*head, &p, st, t, e);
}

struct tally {
    uint64_t bytes[VL_NDTYPE];
};

static int load_file(const struct vl_model *m, float *slab, struct finder *f, const char *path,
                     float **head, struct tally *tally, struct vl_err *e)
{
    struct vl_st st;
    int rc = vl_st_open(&st, path, e);

    for (size_t k = 0; !rc && k < st.n; k++) {
        const struct vl_st_tensor *t = &st.tensor[k];
        const char *tail = strstr(t->name, "rotary_emb.inv_freq");
        int64_t i = piece_of(f, t->name);

        if (i >= 0 && f->seen[i]) {
            rc = vl_fail(e, VL_E_DATA,
                         "%s: tensor %s was already in another file or under another name", path,
                         t->name);
        } else if (i >= 0) {
            f->seen[i] = 1;
            tally->bytes[t->dtype] += t->end - t->begin;
            rc = take(slab + f->piece[i].at, &f->piece[i], &st, t, e);
        } else if (!strcmp(t->name, "lm_head.weight")) {
            rc = stray_head(m, head, &st, t, e);
        } else if (!tail || tail[19]) {
            rc = vl_fail(e, VL_E_DATA,
                         "%s: tensor %s has no place in a %s model of %" PRId64
                         " layers as config.json describes it",
                         path, t->name, vl_config_class(&m->cfg), m->cfg.L);
        }
    }
    vl_st_close(&st);
    return rc;
}

static int check_complete(const struct vl_model *m, const float *slab, const struct finder *f,
                          const struct vl_weight_files *files, const float *head, struct vl_err *e)
{
    char want[80];

    for (int64_t i = 0; i < f->n; i++) {
        if (f->seen[i] || !strcmp(f->piece[i].name, "score.weight"))
            continue;
        shape_text(want, sizeof want, f->piece[i].shape, f->piece[i].ndim);
        return vl_fail(e, VL_E_DATA,
                       "%s: tensor %s is missing%s; config.json asks for it with "
                       "shape %s",
                       files->path[0], f->piece[i].name, files->n > 1 ? " (in all shards)" : "",
                       want);
    }
    if (head)
        for (int64_t i = 0; i < m->cfg.V * m->cfg.C; i++)
            if (head[i] != slab[i])
                return vl_fail(e, VL_E_DATA,
                               "%s: tensor lm_head.weight differs from model.embed_tokens.weight "
                               "at element %" PRId64 " (%.9g, %.9g), but config.json says "
                               "tie_word_embeddings true; set it to false or remove the tensor",
                               files->path[0], i, (double)head[i], (double)slab[i]);
    return 0;
}

int vl_tensors_load(const struct vl_model *m, float *slab, const struct vl_weight_files *files,
                    const char **dtype, struct vl_err *e)
{
    struct tally tally = { { 0 } };
    struct vl_piece *piece;
    struct finder f;
    float *head = NULL;
    int64_t n;
    int rc = 0;

    piece = vl_model_pieces(m, &n);
    finder_init(&f, piece, n);
    for (size_t i = 0; i < files->n && !rc; i++)
        rc = load_file(m, slab, &f, files->path[i], &head, &tally, e);
    if (!rc && !check_complete(m, slab, &f, files, head, e) && dtype)
        *dtype = tally.bytes[VL_BF16] > tally.bytes[VL_F32]  ? "BF16"
                 : tally.bytes[VL_F16] > tally.bytes[VL_F32] ? "F16"
                                                             : "F32";
    free(head);
    free(f.slot);
    free(f.seen);
    free(piece);
    return e->code;
}
