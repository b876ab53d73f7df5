/* frames.c - reading zstd frames, hash frame, seek table, end frame. See frames.h.
 *
 * No length from a file is believed before it is checked: a zstd block of at least 4 bytes holds at
 * most 128 KiB, so what a frame of known size may promise is bounded, and with it every
 * allocation here. */
#include "formats/frames.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "formats/safetensors.h"

void vl_put_le32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

void vl_put_le64(uint8_t *p, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

uint32_t vl_get_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t vl_get_le64(const uint8_t *p)
{
    return vl_get_le32(p) | (uint64_t)vl_get_le32(p + 4) << 32;
}

/* The most bytes that n compressed ones can hold. */
static uint64_t content_limit(uint64_t n)
{
    return (n / 4 + 1) << 17;
}

int vl_is_document(const uint8_t *p)
{
    uint32_t magic = vl_get_le32(p);

    return magic == VL_MAGIC_ZSTD || (magic & 0xFFFFFFF0u) == VL_MAGIC_HASH;
}

enum vl_bytes_kind vl_bytes_kind(const uint8_t *p, size_t n)
{
    if (n < 4)
        return VL_BYTES_RAW;
    if (n >= VL_END_FRAME && vl_get_le32(p + n - VL_END_FRAME) == VL_MAGIC_END &&
        vl_get_le32(p + n - VL_END_FRAME + 4) == VL_END_FRAME - 8)
        return VL_BYTES_STREAM;
    if (!vl_is_document(p))
        return VL_BYTES_RAW;
    if (n > VL_TABLE_FOOTER && vl_get_le32(p + n - 4) == VL_MAGIC_SEEKABLE)
        return VL_BYTES_DOCUMENT;
    return VL_BYTES_ZSTD;
}

/* ---- seek table and hash frame ---- */

/* Length of the seek table frame at the end of p, or 0 when it makes no sense. */
static uint64_t table_length(const uint8_t *p, size_t n, uint32_t *entries)
{
    uint64_t len;

    if (n < 8 + VL_TABLE_FOOTER || p[n - 5] != 0x80) /* checksums, nothing else */
        return 0;
    *entries = vl_get_le32(p + n - VL_TABLE_FOOTER);
    len = 8 + (uint64_t)*entries * VL_TABLE_ENTRY + VL_TABLE_FOOTER;
    if (len > n || vl_get_le32(p + n - len) != VL_MAGIC_TABLE ||
        vl_get_le32(p + n - len + 4) != len - 8)
        return 0;
    return len;
}

static int check_hashes(const struct vl_source *s, uint64_t table_at, int whole, struct vl_err *e)
{
    uint64_t hash_at = table_at - VL_HASH_FRAME;
    const uint8_t *h = s->p + hash_at;
    XXH64_state_t *x;
    uint64_t got;

    if (vl_get_le32(h) != VL_MAGIC_HASH || vl_get_le32(h + 4) != VL_HASH_FRAME - 8 ||
        memcmp(h + 8, "VLDP", 4) != 0)
        return vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": no hash frame before the seek table",
                       s->name, hash_at);
    x = XXH64_createState();
    XXH64_reset(x, 0);
    XXH64_update(x, h, 16);
    XXH64_update(x, s->p + table_at, s->n - table_at);
    got = XXH64_digest(x);
    XXH64_freeState(x);
    if (got != vl_get_le64(h + 24))
        return vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": the seek table is damaged (hash)",
                       s->name, table_at);
    if (h[12] != 1)
        return vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": container version %d, this reads 1",
                       s->name, hash_at + 12, h[12]);
    if ((h[13] & 0xF0) || h[14] || h[15])
        return vl_fail(e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": reserved bits are set: made by a newer program",
                       s->name, hash_at + 13);
    if (whole && XXH64(s->p, hash_at, 0) != vl_get_le64(h + 16))
        return vl_fail(e, VL_E_DATA, "%s: bytes 0 to %" PRIu64 " are damaged (hash does not match)",
                       s->name, hash_at);
    return 0;
}

/* Turns the table's entries into frames and checks that they fill the document. */
static int read_table(struct vl_source *s, uint64_t table_at, uint32_t entries, struct vl_err *e)
{
    const uint8_t *t = s->p + table_at + 8;
    uint64_t at = 0, out = 0;

    s->frame = vl_alloc(entries * sizeof *s->frame);
    for (uint32_t i = 0; i < entries; i++, t += VL_TABLE_ENTRY) {
        struct vl_frame *f = &s->frame[s->nframe];

        *f = (struct vl_frame){ at, out, vl_get_le32(t), vl_get_le32(t + 4), vl_get_le32(t + 8) };
        if (f->len > content_limit(f->size))
            return vl_fail(e, VL_E_DATA,
                           "%s: byte %" PRIu64 ": frame %u of %u bytes cannot hold %u", s->name, at,
                           i, f->size, f->len);
        at += f->size;
        out += f->len;
        if (i + 1 < entries)
            s->nframe++;
    }
    if (at != table_at || s->frame[entries - 1].size != VL_HASH_FRAME ||
        s->frame[entries - 1].len != 0)
        return vl_fail(e, VL_E_DATA,
                       "%s: the seek table describes %" PRIu64 " bytes, but %" PRIu64
                       " precede it: bytes were cut out or added",
                       s->name, at, table_at);
    s->total = out;
    return 0;
}

int vl_source_document(struct vl_source *s, const char *name, const uint8_t *p, size_t n, int whole,
                       struct vl_err *e)
{
    uint32_t entries = 0;
    uint64_t len = table_length(p, n, &entries);

    *s = (struct vl_source){ .name = name, .p = p, .n = n };
    if (!len || entries < 2 || n - len < VL_HASH_FRAME)
        return vl_fail(e, VL_E_DATA, "%s: byte %zu: the seek table at the end is damaged", name,
                       n - VL_TABLE_FOOTER);
    if (check_hashes(s, n - len, whole, e) || read_table(s, n - len, entries, e))
        vl_source_close(s);
    return e->code;
}

void vl_source_close(struct vl_source *s)
{
    free(s->frame);
    free(s->inflated);
    *s = (struct vl_source){ 0 };
}

/* ---- plain and foreign files ---- */

int vl_source_raw(struct vl_source *s, const char *name, const uint8_t *p, size_t n,
                  struct vl_err *e)
{
    *s = (struct vl_source){ .name = name, .p = p, .n = n, .total = n };
    if (n == 0)
        return vl_fail(e, VL_E_DATA, "%s: empty, not a batch file", name);
    if (n < 10 || p[8] != '{')
        return vl_fail(e, VL_E_DATA,
                       "%s: byte 0: neither zstd nor safetensors: not a batch file, or cut short",
                       name);
    return 0;
}

struct inflate {
    const char *name;
    ZSTD_DCtx *z;
    ZSTD_inBuffer in;
    size_t last; /* 0 = between frames */
};

/* Exactly n bytes to dst, or VL_E_DATA. */
static int inflate_exact(struct inflate *f, uint8_t *dst, size_t n, struct vl_err *e)
{
    ZSTD_outBuffer out = { dst, n, 0 };

    while (out.pos < n) {
        size_t in0 = f->in.pos, out0 = out.pos;

        f->last = ZSTD_decompressStream(f->z, &out, &f->in);
        if (ZSTD_isError(f->last))
            return vl_fail(e, VL_E_DATA, "%s: byte %zu: zstd: %s", f->name, f->in.pos,
                           ZSTD_getErrorName(f->last));
        if (f->in.pos == in0 && out.pos == out0)
            return vl_fail(e, VL_E_DATA, "%s: byte %zu: cut short: the zstd frames end early",
                           f->name, f->in.pos);
    }
    return 0;
}

/* Nothing but the ends of frames, empty and skippable frames may follow. */
static int inflate_end(struct inflate *f, struct vl_err *e)
{
    uint8_t spare[16];
    ZSTD_outBuffer out = { spare, sizeof spare, 0 };

    while (f->in.pos < f->in.size || f->last) {
        size_t in0 = f->in.pos;

        f->last = ZSTD_decompressStream(f->z, &out, &f->in);
        if (ZSTD_isError(f->last))
            return vl_fail(e, VL_E_DATA, "%s: byte %zu: zstd: %s", f->name, f->in.pos,
                           ZSTD_getErrorName(f->last));
        if (out.pos)
            return vl_fail(e, VL_E_DATA, "%s: byte %zu: more data than the header promises",
                           f->name, f->in.pos);
        if (f->last && f->in.pos == in0)
            return vl_fail(e, VL_E_DATA, "%s: byte %zu: cut short: the last zstd frame has no end",
                           f->name, f->in.pos);
    }
    return 0;
}

static int inflate_all(struct vl_source *s, struct inflate *f, struct vl_err *e)
{
    uint8_t first[8];
    uint64_t n;
    struct vl_st st = { 0 };
    char *text = NULL;

    if (inflate_exact(f, first, 8, e) || vl_st_header_len(first, s->name, &n, e))
        return e->code;
    if (n > content_limit(f->in.size))
        return vl_fail(e, VL_E_DATA, "%s: %zu bytes cannot hold a header of %" PRIu64, s->name,
                       f->in.size, n);
    if (vl_try_alloc(&text, n, 1, s->name, e))
        return e->code;
    if (inflate_exact(f, (uint8_t *)text, n, e) || vl_st_parse(&st, text, n, s->name, e))
        goto out;
    s->total = 8 + n + st.data_bytes;
    if (vl_st_meta_get(&st, "frames"))
        vl_fail(
            e, VL_E_DATA,
            "%s: byte %zu: no seek table at the end: the file was cut short, or bytes were added",
            s->name, f->in.size);
    else if (st.data_bytes > content_limit(f->in.size))
        vl_fail(e, VL_E_DATA,
                "%s: %zu bytes cannot hold the %" PRIu64 " bytes of data its header promises",
                s->name, f->in.size, st.data_bytes);
    if (e->code || vl_try_alloc(&s->inflated, s->total, 1, s->name, e))
        goto out;
    memcpy(s->inflated, first, 8);
    memcpy(s->inflated + 8, text, n);
    if (inflate_exact(f, s->inflated + 8 + n, st.data_bytes, e) == 0 && inflate_end(f, e) == 0) {
        s->p = s->inflated;
        s->n = s->total;
    }
out:
    vl_st_close(&st);
    free(text);
    return e->code;
}

int vl_source_zstd(struct vl_source *s, const char *name, const uint8_t *p, size_t n,
                   struct vl_err *e)
{
    struct inflate f = { .name = name, .in = { p, n, 0 } };

    *s = (struct vl_source){ .name = name };
    f.z = ZSTD_createDCtx();
    if (!f.z)
        return vl_fail(e, VL_E_OS, "%s: no memory for zstd", name);
    if (inflate_all(s, &f, e))
        vl_source_close(s);
    ZSTD_freeDCtx(f.z);
    return e->code;
}

/* ---- fetching ---- */

/* Decompresses frame i into dst (its len bytes) and verifies it. Returns NULL or what is wrong. */
static const char *frame_get(const struct vl_source *s, uint32_t i, ZSTD_DCtx *z, uint8_t *dst)
{
    const struct vl_frame *f = &s->frame[i];
    const uint8_t *p = s->p + f->at;
    size_t got;

    if (f->size < 9 || vl_get_le32(p) != VL_MAGIC_ZSTD)
        return "not a zstd frame";
    if (ZSTD_getFrameContentSize(p, f->size) != f->len)
        return "its content size is not that of the seek table";
    if (!(p[4] & 4))
        return "it has no checksum";
    if (vl_get_le32(p + f->size - 4) != f->sum)
        return "its checksum is not that of the seek table";
    got = ZSTD_decompressDCtx(z, dst, f->len, p, f->size);
    if (ZSTD_isError(got))
        return ZSTD_getErrorName(got);
    return got == f->len ? NULL : "it is too short";
}

/* Frame i to every wanted range it touches; w[k] is the first that ends after its start. */
static const char *frame_spread(const struct vl_source *s, uint32_t i, const struct vl_want *w,
                                size_t nw, size_t k, ZSTD_DCtx *z)
{
    const struct vl_frame *f = &s->frame[i];
    uint64_t end = f->out + f->len;
    const char *bad;
    uint8_t *tmp;

    if (w[k].begin <= f->out && w[k].end >= end)
        return frame_get(s, i, z, w[k].dst + (f->out - w[k].begin));
    tmp = malloc(f->len ? f->len : 1);
    if (!tmp)
        return "no memory to decompress it";
    bad = frame_get(s, i, z, tmp);
    for (; !bad && k < nw && w[k].begin < end; k++) {
        uint64_t a = w[k].begin > f->out ? w[k].begin : f->out;
        uint64_t b = w[k].end < end ? w[k].end : end;

        if (a < b)
            memcpy(w[k].dst + (a - w[k].begin), tmp + (a - f->out), b - a);
    }
    free(tmp);
    return bad;
}

/* First of the wants that ends after byte `at`. */
static size_t first_want(const struct vl_want *w, size_t nw, uint64_t at)
{
    size_t lo = 0, hi = nw;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (w[mid].end <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Numbers of the frames that hold something wanted; returns how many. */
static uint32_t touched(const struct vl_source *s, const struct vl_want *w, size_t nw,
                        uint32_t *list)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->nframe; i++) {
        const struct vl_frame *f = &s->frame[i];
        size_t k = first_want(w, nw, f->out);

        if (k < nw && w[k].begin < f->out + f->len)
            list[n++] = i;
    }
    return n;
}

static int fetch_frames(const struct vl_source *s, const struct vl_want *w, size_t nw,
                        struct vl_err *e)
{
    uint32_t *list = vl_alloc(s->nframe * sizeof *list), n = touched(s, w, nw, list);
    int64_t worst = INT64_MAX;
    const char *why = NULL;

#pragma omp parallel if (n > 8) /* a few frames are done sooner than a team starts */
    {
        ZSTD_DCtx *z = ZSTD_createDCtx();

#pragma omp for schedule(dynamic)
        for (uint32_t k = 0; k < n; k++) {
            size_t first = first_want(w, nw, s->frame[list[k]].out);
            const char *bad = z ? frame_spread(s, list[k], w, nw, first, z) : "no memory for zstd";

            if (bad) {
#pragma omp critical(vl_fetch)
                if (list[k] < worst) {
                    worst = list[k];
                    why = bad;
                }
            }
        }
        ZSTD_freeDCtx(z);
    }
    free(list);
    if (why)
        return vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": frame %" PRId64 " is damaged: %s",
                       s->name, s->frame[worst].at, worst, why);
    return 0;
}

int vl_source_fetch(const struct vl_source *s, const struct vl_want *w, size_t nw, struct vl_err *e)
{
    if (!nw)
        return 0;
    if (s->frame)
        return fetch_frames(s, w, nw, e);
    for (size_t k = 0; k < nw; k++)
        memcpy(w[k].dst, s->p + w[k].begin, w[k].end - w[k].begin);
    return 0;
}

int vl_source_header(const struct vl_source *s, struct vl_buf *out, struct vl_err *e)
{
    uint8_t first[8];
    struct vl_want w = { 0, 8, first };
    uint64_t n;

    if (s->frame && (s->frame[0].len < 8 || s->frame[0].len > 8 + VL_ST_MAX_HEADER))
        return vl_fail(e, VL_E_DATA, "%s: byte 0: frame 0 of %u bytes is no safetensors header",
                       s->name, s->frame[0].len);
    if (vl_source_fetch(s, &w, 1, e) || vl_st_header_len(first, s->name, &n, e))
        return e->code;
    if (n > s->total - 8 || (s->frame && n + 8 != s->frame[0].len))
        return vl_fail(
            e, VL_E_DATA,
            "%s: a header of %" PRIu64 " bytes does not fit %s (%" PRIu64 " bytes): cut short",
            s->name, n, s->frame ? "frame 0" : "the file", s->frame ? s->frame[0].len : s->total);
    vl_buf_reserve(out, n);
    w = (struct vl_want){ 8, 8 + n, (uint8_t *)out->s + out->n };
    if (vl_source_fetch(s, &w, 1, e))
        return e->code;
    out->n += n;
    out->s[out->n] = 0;
    return 0;
}

/* ---- streams ---- */

/* Cut short and damaged look alike at the end of the bytes; they are not when more will come. */
int vl_document_next(const char *name, const uint8_t *p, size_t n, size_t *scanned,
                     enum vl_next *next, size_t *len, struct vl_err *e)
{
    size_t at = *scanned;

    *next = VL_NEXT_MORE;
    while (n - at >= 8) {
        uint32_t magic = vl_get_le32(p + at);
        size_t size;

        if (magic == VL_MAGIC_END && !at) {
            if (vl_get_le32(p + 4) != VL_END_FRAME - 8)
                return vl_fail(e, VL_E_DATA, "%s: the stream's end frame is damaged (length)",
                               name);
            *next = n >= VL_END_FRAME ? VL_NEXT_END : VL_NEXT_MORE;
            return 0;
        }
        size = ZSTD_findFrameCompressedSize(p + at, n - at);
        if (ZSTD_getErrorCode(size) == ZSTD_error_srcSize_wrong)
            break;
        if (ZSTD_isError(size) || magic == VL_MAGIC_END)
            return vl_fail(e, VL_E_DATA, "%s: byte %zu of a document: damaged: %s", name, at,
                           magic == VL_MAGIC_END ? "no seek table before the end frame"
                                                 : ZSTD_getErrorName(size));
        at += size;
        *scanned = at;
        if (magic == VL_MAGIC_TABLE) {
            *len = at;
            *next = VL_NEXT_DOCUMENT;
            return 0;
        }
    }
    return 0;
}

void vl_end_frame_put(uint8_t p[VL_END_FRAME], uint64_t documents, uint64_t rows)
{
    vl_put_le32(p, VL_MAGIC_END);
    vl_put_le32(p + 4, VL_END_FRAME - 8);
    memcpy(p + 8, "VLDE\1\0\0\0", 8);
    vl_put_le64(p + 16, documents);
    vl_put_le64(p + 24, rows);
    vl_put_le64(p + 32, XXH64(p, 32, 0));
}

int vl_end_frame_get(const char *name, const uint8_t *p, uint64_t *documents, uint64_t *rows,
                     struct vl_err *e)
{
    if (memcmp(p + 8, "VLDE", 4) != 0 || XXH64(p, 32, 0) != vl_get_le64(p + 32))
        return vl_fail(e, VL_E_DATA, "%s: the stream's end frame is damaged (hash)", name);
    if (p[12] != 1 || (p[13] & 0xF0) || p[14] || p[15])
        return vl_fail(e, VL_E_DATA,
                       "%s: the stream's end frame is of version %d or has reserved bits: made by "
                       "a newer program",
                       name, p[12]);
    *documents = vl_get_le64(p + 16);
    *rows = vl_get_le64(p + 24);
    return 0;
}
