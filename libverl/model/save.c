/* save.c - writing a model directory that transformers and vLLM load as it is. See model.h. */
#include "libverl/model/read.h"

#include "formats/json.h"
#include "formats/safetensors.h"
#include "libverl/base/fs.h"
#include "libverl/base/half.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK ((int64_t)1 << 20) /* elements converted and written at a time */

static size_t dtype_size(const char *dtype)
{
    return !strcmp(dtype, "F32") ? 4 : 2;
}

static int put(int fd, const void *data, size_t n, const char *path, struct vl_err *e)
{
    const char *p = data;

    while (n) {
        ssize_t done = write(fd, p, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return vl_fail_errno(e, VL_E_IO, "%s: cannot write", path);
        p += done, n -= (size_t)done;
    }
    return 0;
}

static int put_floats(int fd, const float *x, int64_t n, const char *dtype, uint16_t *block,
                      const char *path, struct vl_err *e)
{
    int bf = !strcmp(dtype, "BF16");

    if (dtype_size(dtype) == 4)
        return put(fd, x, (size_t)n * 4, path, e);
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = n - at < BLOCK ? n - at : BLOCK;

        for (int64_t i = 0; i < m; i++)
            block[i] = bf ? vl_f32_to_bf16(x[at + i]) : vl_f32_to_f16(x[at + i]);
        if (put(fd, block, (size_t)m * 2, path, e))
            return e->code;
    }
    return 0;
}

static int header(struct vl_buf *out, const struct vl_piece *p, int64_t np, const char *dtype,
                  struct vl_err *e)
{
    /* transformers refuses a file whose metadata does not name a framework */
    struct vl_st_meta meta = { .key = "format", .value = "pt" };
    struct vl_st_tensor *t = vl_alloc(sizeof *t * (size_t)np);
    enum vl_dtype dt = VL_F32;

    (void)vl_dtype_parse(dtype, strlen(dtype), &dt);
    for (int64_t i = 0; i < np; i++) {
        t[i].name = (char *)p[i].name;
        t[i].dtype = dt;
        t[i].ndim = p[i].ndim;
        memcpy(t[i].shape, p[i].shape, sizeof p[i].shape);
    }
    if (vl_st_header_put(out, t, (size_t)np, &meta, 1, e))
        vl_err_prefix(e, "writing weights");
    free(t);
    return e->code;
}

/* A new file that has its header; -1. */
static int create(const struct vl_piece *p, int64_t np, const char *path, const char *dtype,
                  struct vl_err *e)
{
    struct vl_buf head = { 0 };
    int fd = -1;

    if (!header(&head, p, np, dtype, e)) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0)
            vl_fail_errno(e, VL_E_CREATE, "%s: cannot create", path);
        else
            (void)!put(fd, head.s, head.n, path, e);
    }
    vl_buf_free(&head);
    return fd;
}

static int finish(int fd, const char *path, struct vl_err *e)
{
    if (fd >= 0 && !e->code && fsync(fd))
        vl_fail_errno(e, VL_E_IO, "%s: cannot fsync", path);
    if (fd >= 0 && close(fd) && !e->code)
        vl_fail_errno(e, VL_E_IO, "%s: cannot close", path);
    return e->code;
}

int vl_tensors_write(const struct vl_piece *p, int64_t np, const float *slab, const char *path,
                     const char *dtype, struct vl_err *e)
{
    uint16_t *block = vl_alloc(sizeof *block * (size_t)BLOCK);
    int fd = create(p, np, path, dtype, e);

    for (int64_t i = 0; i < np && !e->code; i++)
        (void)!put_floats(fd, slab + p[i].at, p[i].n, dtype, block, path, e);
    free(block);
    return finish(fd, path, e);
}

/* A parameter's pieces lie end to end in the slab and in the file. */
static int stream_param(const struct vl_param *p, const struct vl_origin *x, const char *what,
                        int fd, const char *path, float *room, XXH3_state_t *h, struct vl_err *e)
{
    int64_t all = p->rows * p->cols;

    vl_hash_param(h, p);
    for (int64_t at = 0, n, bad; at < all; at += n) {
        const float *f;

        n = all - at < BLOCK ? all - at : BLOCK;
        f = x->get(x->arg, p->offset + at, n, room, e);
        if (!f)
            return e->code;
        bad = vl_not_finite(f, n);
        if (bad >= 0)
            return vl_fail(e, VL_E_DATA,
                           "%s of %s is %f at element %" PRId64
                           " after the update; such a state is not saved (try a lower optim.lr)",
                           what, p->name, (double)f[bad], at + bad);
        XXH3_128bits_update(h, f, (size_t)n * sizeof *f);
        if (put(fd, f, (size_t)n * sizeof *f, path, e))
            return e->code;
    }
    return 0;
}

int vl_tensors_stream(const struct vl_model *m, const struct vl_origin *x, const char *what,
                      const char *path, char hash[33], struct vl_err *e)
{
    int64_t np;
    struct vl_piece *p = vl_model_pieces(m, &np);
    float *room = vl_alloc((size_t)BLOCK * sizeof *room);
    XXH3_state_t *h = vl_hash_new();
    int fd = create(p, np, path, "F32", e);

    for (int64_t i = 0; i < m->nparam && !e->code; i++)
        (void)!stream_param(&m->param[i], x, what, fd, path, room, h, e);
    vl_hash_end(h, hash);
    free(room);
    free(p);
    return finish(fd, path, e);
}

/* End of the shard that starts at piece `first`: as many pieces as fit, one at least. */
static int64_t shard_end(const struct vl_piece *p, int64_t n, int64_t first, int64_t max,
                         size_t size)
{
    int64_t bytes = 0, i = first;

    while (i < n && (i == first || bytes + p[i].n * (int64_t)size <= max))
        bytes += p[i++].n * (int64_t)size;
    return i;
}

static int write_shards(const struct vl_model *m, const struct vl_piece *p, int64_t n, int64_t max,
                        int64_t shards, const char *dir, const char *dtype, struct vl_err *e)
{
    size_t size = dtype_size(dtype);
    struct vl_buf map = { 0 };
    int64_t first = 0, total = 0;
    char *path = NULL;
    int rc = 0;

    for (int64_t i = 0; i < n; i++)
        total += p[i].n * (int64_t)size;
    vl_buf_printf(&map,
                  "{\n  \"metadata\": {\n    \"total_size\": %" PRId64 "\n  },\n"
                  "  \"weight_map\": {",
                  total);
    for (int64_t s = 1; first < n && !rc; s++) {
        int64_t end = shard_end(p, n, first, max, size);

        path = vl_asprintf("%s/model-%05" PRId64 "-of-%05" PRId64 ".safetensors", dir, s, shards);
        for (int64_t i = first; i < end; i++)
            vl_buf_printf(&map, "%s\n    \"%s\": \"%s\"", i ? "," : "", p[i].name,
                          strrchr(path, '/') + 1);
        rc = vl_tensors_write(p + first, end - first, m->slab, path, dtype, e);
        free(path);
        first = end;
    }
    vl_buf_str(&map, "\n  }\n}\n");
    path = vl_asprintf("%s/model.safetensors.index.json", dir);
    if (!rc)
        rc = vl_fs_write(path, map.s, map.n, e);
    free(path);
    vl_buf_free(&map);
    return rc;
}

static int write_text(const char *dir, const char *name, const char *text, struct vl_err *e)
{
    char *path = vl_asprintf("%s/%s", dir, name);
    int rc = vl_fs_write(path, text, strlen(text), e);

    free(path);
    return rc;
}

int vl_model_save_configs(const struct vl_model *m, const char *dir, const char *dtype,
                          const char *like, struct vl_err *e)
{
    static const char *const copied[] = {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "chat_template.jinja",
        "chat_template.json",
        "additional_chat_templates/tool_use.jinja",
    };
    char *text = vl_config_text(&m->cfg, dtype);
    int rc;

    rc = write_text(dir, "config.json", text, e);
    if (!rc && m->generation_json)
        rc = write_text(dir, "generation_config.json", m->generation_json, e);
    free(text);
    for (size_t i = 0; like && i < sizeof copied / sizeof *copied && !rc; i++) {
        char *from = vl_asprintf("%s/%s", like, copied[i]);
        char *to = vl_asprintf("%s/%s", dir, copied[i]);
        const char *slash = strchr(copied[i], '/');
        char *in = vl_asprintf("%s/%.*s", dir, slash ? (int)(slash - copied[i]) : 0, copied[i]);

        if (vl_fs_exists(from, NULL))
            rc = (slash && vl_fs_mkdirs(in, e)) || vl_fs_copy(from, to, e) ? e->code : 0;
        free(in);
        free(from);
        free(to);
    }
    return rc;
}

int vl_model_save(const struct vl_model *m, const char *dir, const char *dtype, int64_t max_shard,
                  const char *like, struct vl_err *e)
{
    int64_t n, shards = 0, max = max_shard > 0 ? max_shard : (int64_t)5000000000;
    struct vl_piece *p = vl_model_pieces(m, &n);
    char *path = vl_asprintf("%s/model.safetensors", dir);
    int rc;

    for (int64_t i = 0; i < n; shards++)
        i = shard_end(p, n, i, max, dtype_size(dtype));
    rc = shards == 1 ? vl_tensors_write(p, n, m->slab, path, dtype, e)
                     : write_shards(m, p, n, max, shards, dir, dtype, e);
    if (!rc)
        rc = vl_model_save_configs(m, dir, dtype, like, e);
    free(path);
    free(p);
    return rc;
}
