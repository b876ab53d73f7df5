/* dp_feed.c - streams: documents one by one out of bytes that arrive piece by piece. See dp.h.
 *
 * A document is handed out when its last byte is there, verified like any other; that the stream is
 * whole shows only at its end frame, so whoever uses documents early must be ready to throw away
 * what was made of them. Whether the bytes are a stream at all is known when the first document is
 * complete: until then, and if they are none, everything is kept for vl_dp_read_bytes. */
#include "formats/dp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dp_impl.h"
#include "formats/frames.h"
#include "libverl/batch/provenance.h"

enum form { UNKNOWN, STREAM, WHOLE };

struct vl_dp_feed {
    const char *name;
    const uint8_t *p; /* bytes from the next document on */
    size_t n, scanned;
    struct vl_buf own; /* where they are, unless they were given in one piece; `used` of it taken */
    size_t used;
    uint64_t taken; /* bytes of documents handed out */
    uint64_t documents, rows;
    enum form form;
    int ended; /* the end frame was seen */
};

struct vl_dp_feed *vl_dp_feed_open(const char *name)
{
    struct vl_dp_feed *f = vl_alloc(sizeof *f);

    f->name = name;
    return f;
}

void vl_dp_feed_close(struct vl_dp_feed *f)
{
    if (f)
        vl_buf_free(&f->own);
    free(f);
}

void vl_dp_feed_add(struct vl_dp_feed *f, const void *p, size_t n)
{
    if (f->used > f->own.n / 2) {
        memmove(f->own.s, f->own.s + f->used, f->own.n - f->used);
        f->own.n -= f->used;
        f->used = 0;
    }
    vl_buf_add(&f->own, p, n);
    f->p = (const uint8_t *)f->own.s + f->used;
    f->n = f->own.n - f->used;
}

static void take(struct vl_dp_feed *f, size_t n)
{
    f->p += n;
    f->n -= n;
    f->used += n;
    f->taken += n;
    f->scanned = 0;
}

static int take_end(struct vl_dp_feed *f, struct vl_err *e)
{
    uint64_t documents, rows;

    if (vl_end_frame_get(f->name, f->p, &documents, &rows, e))
        return e->code;
    take(f, VL_END_FRAME);
    f->ended = 1;
    if (documents != f->documents || rows != f->rows)
        return vl_fail(e, VL_E_DATA,
                       "%s: holds %" PRIu64 " documents, %" PRIu64
                       " rows, but its end frame promises %" PRIu64 " and %" PRIu64,
                       f->name, f->documents, f->rows, documents, rows);
    return 0;
}

static int take_document(struct vl_dp_feed *f, size_t len, struct vl_batch *doc, int *got,
                         struct vl_err *e)
{
    int marked = 0;

    if (vl_dp_document(doc, f->name, f->p, len, &marked, e))
        return e->code;
    if (!marked && f->form == UNKNOWN) {
        f->form = WHOLE;
        vl_batch_free(doc);
        return 0;
    }
    if (!marked) {
        vl_batch_free(doc);
        return vl_fail(e, VL_E_DATA,
                       "%s: document %" PRIu64 " of the stream is not marked as part of one",
                       f->name, f->documents);
    }
    f->form = STREAM;
    f->documents++;
    f->rows += (uint64_t)doc->rows;
    take(f, len);
    *got = 1;
    return 0;
}

static int past_end(const struct vl_dp_feed *f, struct vl_err *e)
{
    return vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": bytes after the end of the stream", f->name,
                   f->taken);
}

static int next(struct vl_dp_feed *f, struct vl_batch *doc, int *got, struct vl_err *e)
{
    enum vl_next what = VL_NEXT_MORE;
    size_t len;

    if (f->ended && f->n)
        return past_end(f, e);
    if (vl_document_next(f->name, f->p, f->n, &f->scanned, &what, &len, e))
        return e->code;
    if (what == VL_NEXT_END) {
        f->form = STREAM;
        return take_end(f, e);
    }
    return what == VL_NEXT_DOCUMENT ? take_document(f, len, doc, got, e) : 0;
}

int vl_dp_feed_next(struct vl_dp_feed *f, struct vl_batch *doc, int *got, struct vl_err *e)
{
    *got = 0;
    *doc = (struct vl_batch){ 0 };
    if (f->form == UNKNOWN && f->n >= 4 && !vl_is_document(f->p))
        f->form = WHOLE;
    if (f->form == WHOLE || (f->n < 4 && !f->ended))
        return 0;
    if (next(f, doc, got, e) && f->form == UNKNOWN && e->code == VL_E_DATA) {
        f->form = WHOLE; /* not ours, or damaged: told when all of it is there */
        *e = (struct vl_err){ 0 };
    }
    return e->code;
}

int vl_dp_feed_end(struct vl_dp_feed *f, struct vl_batch *whole, int *is_stream, struct vl_err *e)
{
    *is_stream = f->form == STREAM;
    if (!*is_stream)
        return vl_dp_read_bytes(whole, f->name, f->p ? f->p : (const uint8_t *)"", f->n, NULL, e);
    *whole = (struct vl_batch){ 0 };
    if (!f->ended)
        return vl_fail(e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": a stream without its end frame: its writer stopped "
                       "early",
                       f->name, f->taken + f->n);
    return f->n ? past_end(f, e) : 0;
}

/* The same with all bytes there at once: documents end to end, joined by rows. */
int vl_dp_read_stream(struct vl_batch *b, const char *name, const uint8_t *p, size_t n,
                      struct vl_err *e)
{
    struct vl_dp_feed f = { .name = name, .p = p, .n = n, .form = STREAM };
    struct vl_batch *doc = NULL;
    size_t docs = 0;
    int got = 1, rc;

    while (!e->code && (got || (f.n && f.ended))) {
        doc = vl_realloc(doc, (docs + 1) * sizeof *doc);
        if (vl_dp_feed_next(&f, &doc[docs], &got, e) == 0)
            docs += (size_t)got;
    }
    if (!e->code && !f.ended)
        vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": a document without its end: cut short", name,
                f.taken + f.n);
    rc = e->code ? e->code : vl_prov_join_stream(b, doc, docs, e);
    for (size_t i = 0; i < docs; i++)
        vl_batch_free(&doc[i]);
    free(doc);
    return rc;
}
