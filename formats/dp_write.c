/* dp_write.c - writing batch files, and the content hash. See dp.h, dataproto.md.
 *
 * Every frame is compressed on its own with a fresh context, so that the bytes depend on the data
 * and the level alone: not on threads, nor on what a context compressed before. */
#include "formats/dp.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>
#include <zstd.h>

#include "formats/frames.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "libverl/base/publish.h"

/* ---- content hash ---- */

static void hash_hex(XXH128_hash_t h, char hex[33])
{
    XXH128_canonical_t c;

    XXH128_canonicalFromHash(&c, h);
    for (int i = 0; i < 16; i++) {
        hex[2 * i] = "0123456789abcdef"[c.digest[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[c.digest[i] & 15];
    }
    hex[32] = 0;
}

static void put_i64(struct vl_buf *t, int64_t x)
{
    uint8_t p[8];

    vl_put_le64(p, (uint64_t)x);
    vl_buf_add(t, p, 8);
}

static void put_hash(struct vl_buf *t, const void *p, size_t n)
{
    XXH128_canonical_t c;

    XXH128_canonicalFromHash(&c, XXH3_128bits(p, n));
    vl_buf_add(t, c.digest, sizeof c.digest);
}

static void put_string(struct vl_buf *t, const char *s)
{
    vl_buf_add(t, s, strlen(s) + 1);
}

int vl_dp_hash(const struct vl_batch *b, char hex[33], struct vl_err *e)
{
    struct vl_buf t = { 0 };

    if (vl_batch_check(b, e))
        return e->code;
    put_string(&t, "dataproto 1");
    put_i64(&t, b->has_batch ? b->rows : -1);
    for (size_t i = 0; i < b->ncol; i++) {
        const struct vl_col *c = b->col[i];

        put_string(&t, c->name);
        put_string(&t, c->kind == VL_COL_JSON     ? "json"
                       : c->kind == VL_COL_RAGGED ? "ragged"
                                                  : "tensor");
        put_string(&t, vl_dtype_name(c->dtype));
        put_i64(&t, c->ndim);
        for (int d = 0; d < c->ndim; d++)
            put_i64(&t, c->shape[d]);
        put_hash(&t, c->data, c->bytes);
        if (c->offsets)
            put_hash(&t, c->offsets, ((size_t)b->rows + 1) * 8);
    }
    for (size_t i = 0; i < b->nmeta; i++) {
        put_string(&t, b->meta[i].key);
        put_string(&t, b->meta[i].json);
    }
    hash_hex(XXH3_128bits(t.s, t.n), hex);
    vl_buf_free(&t);
    return 0;
}

/* ---- layout ---- */

struct piece { /* content of one frame */
    const uint8_t *p;
    size_t len;
};

struct tensor {
    const uint8_t *p;
    size_t width;           /* bytes of an element of `offsets`, or of a row */
    int64_t rows;           /* rows, or elements of an offsets tensor */
    const int64_t *offsets; /* rows end at offsets[i + 1] * width; NULL: rows of equal width */
};

struct layout {
    struct vl_st_tensor *st; /* in data order */
    struct tensor *t;
    size_t n;
    struct piece *piece; /* [0] is the header */
    size_t npiece, cap;
    struct vl_buf header;
};

static void layout_free(struct layout *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->st[i].name);
    free(l->st);
    free(l->t);
    free(l->piece);
    vl_buf_free(&l->header);
}

static void add_tensor(struct layout *l, char *name, const struct vl_col *c, int64_t rows)
{
    struct vl_st_tensor *s = &l->st[l->n];

    *s = (struct vl_st_tensor){ .name = name, .dtype = c->dtype, .ndim = c->ndim };
    memcpy(s->shape, c->shape, sizeof s->shape);
    l->t[l->n++] = (struct tensor){ c->data, vl_col_row_bytes(c), rows, c->offsets };
}

static void add_offsets(struct layout *l, char *name, const struct vl_col *c, int64_t rows)
{
    struct vl_st_tensor *s = &l->st[l->n];

    *s = (struct vl_st_tensor){ .name = name, .dtype = VL_I64, .ndim = 1, .shape = { rows + 1 } };
    l->t[l->n++] = (struct tensor){ (const uint8_t *)c->offsets, 8, rows + 1, NULL };
}

/* Tensors of all columns, widest elements first, else in column order. */
static int layout_tensors(struct layout *l, const struct vl_batch *b, struct vl_err *e)
{
    l->st = vl_alloc(2 * b->ncol * sizeof *l->st);
    l->t = vl_alloc(2 * b->ncol * sizeof *l->t);
    for (size_t width = 8; width; width /= 2)
        for (size_t i = 0; i < b->ncol; i++) {
            const struct vl_col *c = b->col[i];
            int json = c->kind == VL_COL_JSON;

            if (!vl_col_name_ok(c->name))
                return vl_fail(e, VL_E_DATA, "a column cannot be called '%.100s'", c->name);
            if (c->offsets && width == 8)
                add_offsets(
                    l,
                    vl_asprintf("%s/%s", json ? "non_tensor_offsets" : "ragged_offsets", c->name),
                    c, b->rows);
            if (vl_dtype_size(c->dtype) == width)
                add_tensor(l, vl_asprintf("%s%s", json ? "non_tensor_batch/" : "", c->name), c,
                           b->rows);
        }
    return 0;
}

static void add_piece(struct layout *l, const uint8_t *p, size_t len)
{
    if (l->npiece == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->piece = vl_realloc(l->piece, l->cap * sizeof *l->piece);
    }
    l->piece[l->npiece++] = (struct piece){ p, len };
}

static size_t row_end(const struct tensor *t, int64_t row)
{
    return (t->offsets ? (size_t)t->offsets[row + 1] : (size_t)row + 1) * t->width;
}

/* Cuts a tensor at row boundaries into pieces of at most VL_FRAME_TARGET bytes; a longer row is a
 * piece of its own, and above VL_FRAME_MAX_ROW is cut inside. */
static void cut(struct layout *l, const struct tensor *t)
{
    size_t begin = 0, end = 0;

    for (int64_t i = 0; i < t->rows; i++) {
        size_t next = row_end(t, i);

        if (next - begin > VL_FRAME_TARGET && end > begin) {
            add_piece(l, t->p + begin, end - begin);
            begin = end;
        }
        for (; next - begin > VL_FRAME_MAX_ROW; begin += VL_FRAME_TARGET)
            add_piece(l, t->p + begin, VL_FRAME_TARGET);
        end = next;
    }
    if (end > begin)
        add_piece(l, t->p + begin, end - begin);
}

static void put_columns(struct vl_buf *t, const struct vl_batch *b)
{
    vl_buf_ch(t, '[');
    for (size_t i = 0; i < b->ncol; i++) {
        if (i)
            vl_buf_ch(t, ',');
        vl_json_put_str(t, b->col[i]->name, strlen(b->col[i]->name));
    }
    vl_buf_ch(t, ']');
}

static void put_meta(struct vl_buf *t, const struct vl_batch *b)
{
    vl_buf_ch(t, '{');
    for (size_t i = 0; i < b->nmeta; i++) {
        if (i)
            vl_buf_ch(t, ',');
        vl_json_put_str(t, b->meta[i].key, strlen(b->meta[i].key));
        vl_buf_ch(t, ':');
        vl_buf_str(t, b->meta[i].json);
    }
    vl_buf_ch(t, '}');
}

enum form { FORM_FILE, FORM_STREAM, FORM_PLAIN };

static int layout_header(struct layout *l, const struct vl_batch *b, const char *hash,
                         enum form form, struct vl_err *e)
{
    struct vl_st_meta m[8];
    struct vl_buf columns = { 0 }, meta = { 0 };
    char rows[24], frames[24];
    size_t n = 0;

    put_columns(&columns, b);
    put_meta(&meta, b);
    snprintf(rows, sizeof rows, "%" PRId64, b->rows);
    snprintf(frames, sizeof frames, "%zu", l->npiece);
    m[n++] = (struct vl_st_meta){ "dataproto", "1" };
    if (b->has_batch)
        m[n++] = (struct vl_st_meta){ "batch_size", rows };
    m[n++] = (struct vl_st_meta){ "columns", columns.s };
    m[n++] = (struct vl_st_meta){ "meta_info", meta.s };
    if (b->provenance)
        m[n++] = (struct vl_st_meta){ "provenance", b->provenance };
    m[n++] = (struct vl_st_meta){ "hash", (char *)hash };
    if (form != FORM_PLAIN)
        m[n++] = (struct vl_st_meta){ "frames", frames };
    if (form == FORM_STREAM)
        m[n++] = (struct vl_st_meta){ "stream", "1" };
    if (vl_st_header_put(&l->header, l->st, l->n, m, n, e) == 0)
        l->piece[0] = (struct piece){ (const uint8_t *)l->header.s, l->header.n };
    vl_buf_free(&columns);
    vl_buf_free(&meta);
    return e->code;
}

static int layout(struct layout *l, const struct vl_batch *b, enum form form, struct vl_err *e)
{
    char hash[33];

    if (vl_dp_hash(b, hash, e) || layout_tensors(l, b, e))
        return e->code;
    add_piece(l, NULL, 0);
    for (size_t i = 0; i < l->n; i++)
        cut(l, &l->t[i]);
    return layout_header(l, b, hash, form, e);
}

/* ---- frames ---- */

struct slot { /* a compressed frame waiting to be written */
    uint8_t *p;
    size_t cap, n;
};

/* Compresses one piece; returns 0, or zstd's code. */
static size_t compress(struct slot *s, const struct piece *in, int level)
{
    ZSTD_CCtx *z = ZSTD_createCCtx();
    size_t need = ZSTD_compressBound(in->len), rc;

    if (!z)
        vl_oom(need);
    if (s->cap < need) {
        s->p = vl_realloc(s->p, need);
        s->cap = need;
    }
    ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1);
    rc = ZSTD_compress2(z, s->p, s->cap, in->p, in->len);
    ZSTD_freeCCtx(z);
    s->n = ZSTD_isError(rc) ? 0 : rc;
    return ZSTD_isError(rc) ? rc : 0;
}

static void table_add(uint8_t *entry, size_t size, size_t len, const uint8_t *sum)
{
    vl_put_le32(entry, (uint32_t)size);
    vl_put_le32(entry + 4, (uint32_t)len);
    memcpy(entry + 8, sum, 4);
}

/* Compresses the pieces a window at a time on all threads and writes them in order. */
static int write_frames(const struct layout *l, int level, struct vl_publish *out,
                        XXH64_state_t *sum, uint8_t *table, struct vl_err *e)
{
    size_t nslot = 4 * (size_t)omp_get_max_threads();
    struct slot *slot = vl_alloc(nslot * sizeof *slot);

    for (size_t at = 0; at < l->npiece && !e->code; at += nslot) {
        size_t n = l->npiece - at < nslot ? l->npiece - at : nslot, bad = 0;

#pragma omp parallel for schedule(dynamic) if (l->npiece > 8)
        for (size_t i = 0; i < n; i++) {
            size_t rc = compress(&slot[i], &l->piece[at + i], level);

            if (rc) {
#pragma omp atomic write
                bad = rc;
            }
        }
        if (bad)
            vl_fail(e, VL_E_OS, "%s: zstd: %s", out->name, ZSTD_getErrorName(bad));
        for (size_t i = 0; i < n && !e->code; i++) {
            const struct slot *s = &slot[i];

            XXH64_update(sum, s->p, s->n);
            /* a frame ends with the low half of its content's XXH64 */
            table_add(table + (at + i) * VL_TABLE_ENTRY, s->n, l->piece[at + i].len,
                      s->p + s->n - 4);
            if (vl_publish_write(out, s->p, s->n, e))
                break;
        }
    }
    for (size_t i = 0; i < nslot; i++)
        free(slot[i].p);
    free(slot);
    return e->code;
}

/* Hash frame and seek table behind the frames. `table` has room for its header and footer. */
static int write_tail(size_t frames, XXH64_state_t *sum, uint8_t *table, struct vl_publish *out,
                      struct vl_err *e)
{
    uint8_t hash[VL_HASH_FRAME], *foot = table + 8 + (frames + 1) * VL_TABLE_ENTRY, empty[8];
    size_t len = 8 + (frames + 1) * VL_TABLE_ENTRY + VL_TABLE_FOOTER;

    vl_put_le64(empty, XXH64(NULL, 0, 0));
    table_add(foot - VL_TABLE_ENTRY, VL_HASH_FRAME, 0, empty);
    vl_put_le32(table, VL_MAGIC_TABLE);
    vl_put_le32(table + 4, (uint32_t)(len - 8));
    vl_put_le32(foot, (uint32_t)frames + 1);
    foot[4] = 0x80;
    vl_put_le32(foot + 5, VL_MAGIC_SEEKABLE);

    vl_put_le32(hash, VL_MAGIC_HASH);
    vl_put_le32(hash + 4, VL_HASH_FRAME - 8);
    memcpy(hash + 8, "VLDP\1\0\0\0", 8);
    vl_put_le64(hash + 16, XXH64_digest(sum));
    XXH64_reset(sum, 0);
    XXH64_update(sum, hash, 16);
    XXH64_update(sum, table, len);
    vl_put_le64(hash + 24, XXH64_digest(sum));
    if (vl_publish_write(out, hash, sizeof hash, e) || vl_publish_write(out, table, len, e))
        return e->code;
    return 0;
}

static int write_document(const struct vl_batch *b, const struct vl_dp_write *opt, enum form form,
                          struct vl_publish *out, struct vl_err *e)
{
    int level = opt && opt->level ? opt->level : 1;
    struct layout l = { 0 };
    XXH64_state_t *sum = XXH64_createState();
    uint8_t *table = NULL;
    int rc;

    XXH64_reset(sum, 0);
    rc = layout(&l, b, form, e);
    if (rc)
        vl_err_prefix(e, "%s", out->name);
    else
        rc = vl_try_alloc(&table, l.npiece + 3, VL_TABLE_ENTRY, out->name, e) ||
             write_frames(&l, level, out, sum, table + 8, e) ||
             write_tail(l.npiece, sum, table, out, e);
    free(table);
    XXH64_freeState(sum);
    layout_free(&l);
    return rc ? e->code : 0;
}

int vl_dp_write(const struct vl_batch *b, const char *path, const struct vl_dp_write *opt,
                struct vl_err *e)
{
    struct vl_publish out;

    if (vl_publish_open(&out, path, 1, e))
        return e->code;
    if (write_document(b, opt, opt && opt->stream ? FORM_STREAM : FORM_FILE, &out, e)) {
        vl_publish_abort(&out);
        return e->code;
    }
    return vl_publish_commit(&out, e);
}

int vl_dp_write_plain(const struct vl_batch *b, const char *path, struct vl_err *e)
{
    struct vl_publish out;
    struct layout l = { 0 };
    int rc = vl_publish_open(&out, path, 1, e);

    if (rc)
        return rc;
    rc = layout(&l, b, FORM_PLAIN, e);
    for (size_t i = 0; i < l.npiece && !rc; i++)
        rc = vl_publish_write(&out, l.piece[i].p, l.piece[i].len, e);
    layout_free(&l);
    if (rc) {
        vl_publish_abort(&out);
        return rc;
    }
    return vl_publish_commit(&out, e);
}

/* ---- streams ---- */

int vl_dp_stream_open(struct vl_dp_stream *s, const char *path, const struct vl_dp_write *opt,
                      struct vl_err *e)
{
    struct stat st;

    *s = (struct vl_dp_stream){ .opt = opt ? *opt : (struct vl_dp_write){ 0 } };
    if (strcmp(path, "-") && (stat(path, &st) || S_ISREG(st.st_mode)))
        return vl_fail(e, VL_E_USAGE,
                       "%s: a stream goes to a pipe, a file holds one document: leave out --stream",
                       path);
    s->out = vl_alloc(sizeof *s->out);
    if (vl_publish_open(s->out, path, 1, e)) {
        free(s->out);
        s->out = NULL;
    }
    return e->code;
}

int vl_dp_stream_put(struct vl_dp_stream *s, const struct vl_batch *b, struct vl_err *e)
{
    if (write_document(b, &s->opt, FORM_STREAM, s->out, e))
        return e->code;
    s->documents++;
    s->rows += (uint64_t)b->rows;
    return 0;
}

int vl_dp_stream_close(struct vl_dp_stream *s, int whole, struct vl_err *e)
{
    uint8_t end[VL_END_FRAME];
    int rc = 0;

    if (!s->out)
        return e->code;
    vl_end_frame_put(end, s->documents, s->rows);
    if (whole && vl_publish_write(s->out, end, sizeof end, e) == 0)
        rc = vl_publish_commit(s->out, e);
    else
        vl_publish_abort(s->out);
    free(s->out);
    s->out = NULL;
    return rc ? rc : e->code;
}
