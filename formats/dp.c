/* dp.c - reading batch files: bytes -> one document or a stream -> columns. See dp.h, dataproto.md.
 *
 * Regular files are mapped, anything else is read to its end first: both are then the same bytes in
 * memory, read by the same code. Only a regular file may be read in part without looking at the
 * rest. */
#include "formats/dp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/dp_impl.h"
#include "formats/frames.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "libverl/base/utf8.h"
#include "libverl/batch/ops.h"

/* ---- the bytes ---- */

struct bytes {
    const uint8_t *p;
    size_t n;
    int mapped; /* a regular file */
};

static void bytes_free(struct bytes *b)
{
    if (b->mapped)
        munmap((void *)b->p, b->n);
    else
        free((void *)b->p);
}

static int slurp(struct bytes *b, int fd, const char *name, struct vl_err *e)
{
    struct vl_buf t = { 0 };

    for (;;) {
        ssize_t n;

        vl_buf_reserve(&t, (size_t)1 << 18);
        n = read(fd, t.s + t.n, t.cap - t.n - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            vl_fail_errno(e, VL_E_IO, "%s: read failed", name);
            vl_buf_free(&t);
            return e->code;
        }
        if (n == 0)
            break;
        t.n += (size_t)n;
    }
    *b = (struct bytes){ .n = t.n };
    b->p = (uint8_t *)vl_buf_detach(&t);
    return 0;
}

static int bytes_open(struct bytes *b, const char *path, const char *name, struct vl_err *e)
{
    int is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    int rc = 0;
    void *p;

    if (fd < 0)
        return vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open", name);
    if (fstat(fd, &st)) {
        vl_fail_errno(e, VL_E_IO, "%s: cannot stat", name);
    } else if (S_ISDIR(st.st_mode)) {
        vl_fail(e, VL_E_NOINPUT, "%s: is a directory, not a batch file", name);
    } else if (is_stdin && isatty(fd)) {
        vl_fail(e, VL_E_USAGE, "standard input is a terminal; give -i FILE or a pipe");
    } else if (!is_stdin && S_ISREG(st.st_mode) && st.st_size > 0) {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            vl_fail_errno(e, VL_E_IO, "%s: cannot map", name);
        else
            *b = (struct bytes){ p, (size_t)st.st_size, 1 };
    } else {
        rc = slurp(b, fd, name, e);
    }
    if (!is_stdin)
        close(fd);
    return rc ? rc : e->code;
}

/* ---- one document ---- */

/* A column as the header describes it. */
struct plan {
    struct vl_col col; /* name, kind, dtype, shape; data comes later */
    const struct vl_st_tensor *data, *offsets;
};

struct reader {
    const char *name;
    struct vl_source src;
    struct vl_st st;
    struct plan *plan;
    size_t nplan;
    int64_t row0, rows; /* the range asked for, clipped */
};

static const char *after(const char *s, const char *prefix)
{
    size_t n = strlen(prefix);

    return strncmp(s, prefix, n) == 0 ? s + n : NULL;
}

static const struct vl_st_tensor *find_pair(const struct vl_st *st, const char *prefix,
                                            const char *name)
{
    char *full = vl_asprintf("%s%s", prefix, name);
    const struct vl_st_tensor *t = vl_st_find(st, full);

    free(full);
    return t;
}

static int offsets_fit(const struct reader *r, const struct vl_st_tensor *t, struct vl_err *e)
{
    if (t->dtype != VL_I64 || t->ndim != 1 || t->shape[0] < 1)
        return vl_fail(e, VL_E_DATA, "%s: %s is not I64 of rows + 1 numbers", r->name, t->name);
    return 0;
}

/* Adds the column tensor t belongs to, unless t is an offsets tensor. */
static int plan_tensor(struct reader *r, const struct vl_st_tensor *t, struct vl_err *e)
{
    struct plan *p = &r->plan[r->nplan];
    const char *json = after(t->name, "non_tensor_batch/");
    const char *off = after(t->name, "non_tensor_offsets/");
    const char *rag = after(t->name, "ragged_offsets/");
    const char *name = json ? json : t->name;

    if (off || rag) {
        if (off ? find_pair(&r->st, "non_tensor_batch/", off) == NULL
                : vl_st_find(&r->st, rag) == NULL)
            return vl_fail(e, VL_E_DATA, "%s: %s has no column", r->name, t->name);
        return offsets_fit(r, t, e);
    }
    if (!vl_col_name_ok(name))
        return vl_fail(e, VL_E_DATA, "%s: a column cannot be called '%.100s'", r->name, name);
    for (size_t i = 0; i < r->nplan; i++)
        if (strcmp(r->plan[i].col.name, name) == 0)
            return vl_fail(e, VL_E_DATA,
                           "%s: column %s is there as a tensor and as a non-tensor; rename one",
                           r->name, name);
    p->data = t;
    p->offsets = find_pair(&r->st, json ? "non_tensor_offsets/" : "ragged_offsets/", name);
    p->col.kind = json ? VL_COL_JSON : p->offsets ? VL_COL_RAGGED : VL_COL_TENSOR;
    p->col.dtype = t->dtype;
    p->col.ndim = t->ndim;
    memcpy(p->col.shape, t->shape, sizeof t->shape);
    if (t->ndim < 1)
        return vl_fail(e, VL_E_DATA, "%s: tensor %s has no leading dimension (rows)", r->name,
                       name);
    if (json && (t->dtype != VL_U8 || t->ndim != 1 || !p->offsets))
        return vl_fail(e, VL_E_DATA, "%s: %s is not U8 of one dimension with offsets", r->name,
                       t->name);
    p->col.name = vl_strdup(name);
    r->nplan++;
    return 0;
}

static int64_t plan_rows(const struct plan *p)
{
    return p->offsets ? p->offsets->shape[0] - 1 : p->data->shape[0];
}

/* Puts the plan into the order of the `columns` entry, which must name each column once. */
static int plan_order(struct reader *r, const char *text, struct vl_err *e)
{
    struct vl_json j = { 0 };
    uint32_t k = 1;

    if (vl_json_parse(&j, text, strlen(text), "columns", e) || !vl_json_is(&j, 0, VL_JSON_ARRAY) ||
        j.node[0].count != r->nplan) {
        *e = (struct vl_err){ 0 };
        vl_fail(e, VL_E_DATA, "%s: __metadata__.columns is not a list of the %zu columns", r->name,
                r->nplan);
    }
    for (size_t at = 0; !e->code && at < r->nplan; at++, k = j.node[k].next) {
        size_t i = at;

        while (i < r->nplan && !vl_json_streq(&j, k, r->plan[i].col.name))
            i++;
        if (i == r->nplan) {
            vl_fail(e, VL_E_DATA, "%s: __metadata__.columns: entry %zu is no column, or one twice",
                    r->name, at);
        } else {
            struct plan p = r->plan[i];

            memmove(&r->plan[at + 1], &r->plan[at], (i - at) * sizeof p);
            r->plan[at] = p;
        }
    }
    vl_json_free(&j);
    return e->code;
}

static int get_count(const char *s, uint64_t *out)
{
    *out = 0;
    if (!s || !*s || strlen(s) > 18)
        return 0;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return 0;
        *out = *out * 10 + (uint64_t)(*s - '0');
    }
    return 1;
}

/* Rows of the batch, from batch_size or, in files without it, from the first column. */
static int plan_batch(struct reader *r, struct vl_batch *b, struct vl_err *e)
{
    const char *version = vl_st_meta_get(&r->st, "dataproto");
    const char *size = vl_st_meta_get(&r->st, "batch_size");
    const char *columns = vl_st_meta_get(&r->st, "columns");
    uint64_t n = 0;

    if (version && strcmp(version, "1") != 0)
        return vl_fail(e, VL_E_DATA, "%s: dataproto version %.40s, this program reads version 1",
                       r->name, version);
    r->plan = vl_alloc((r->st.n + 1) * sizeof *r->plan);
    for (size_t i = 0; i < r->st.n; i++)
        if (plan_tensor(r, &r->st.tensor[i], e))
            return e->code;
    if (columns && plan_order(r, columns, e))
        return e->code;
    if (size && !get_count(size, &n))
        return vl_fail(e, VL_E_DATA, "%s: batch_size %.40s is not a count", r->name, size);
    b->has_batch = size != NULL;
    b->rows = size ? (int64_t)n : r->nplan ? plan_rows(&r->plan[0]) : 0;
    for (size_t i = 0; i < r->nplan; i++) {
        const struct plan *p = &r->plan[i];

        if (plan_rows(p) != b->rows)
            return vl_fail(e, VL_E_DATA,
                           "%s: column %s has %" PRId64 " rows, but the batch has %" PRId64,
                           r->name, p->col.name, plan_rows(p), b->rows);
        if (p->col.kind != VL_COL_JSON && version && !size)
            return vl_fail(e, VL_E_DATA, "%s: column %s is a tensor, but there is no batch_size",
                           r->name, p->col.name);
        b->has_batch |= p->col.kind != VL_COL_JSON;
    }
    return 0;
}

static int read_meta(const struct reader *r, struct vl_batch *b, struct vl_err *e)
{
    const char *text = vl_st_meta_get(&r->st, "meta_info");
    const char *graph = vl_st_meta_get(&r->st, "provenance");
    struct vl_json j = { 0 };
    uint32_t k = 1;

    if (graph)
        b->provenance = vl_strdup(graph);
    vl_batch_add_parent(b, vl_st_meta_get(&r->st, "hash"));
    if (!text)
        return 0;
    if (vl_json_parse(&j, text, strlen(text), "meta_info", e) == 0 &&
        !vl_json_is(&j, 0, VL_JSON_OBJECT))
        vl_fail(e, VL_E_DATA, "meta_info is not an object");
    for (uint32_t i = 0; !e->code && i < j.node[0].count; i++) {
        uint32_t v = j.node[k].next;
        char *key = vl_json_name(&j, k);
        char *json = vl_strndup(j.text + j.node[v].at, j.node[v].len);

        if (vl_json_is(&j, v, VL_JSON_STRING)) {
            struct vl_buf raw = { 0 };

            vl_json_raw(&j, v, &raw);
            free(json);
            json = vl_buf_detach(&raw);
        }
        if (!vl_utf8_valid(key, strlen(key)))
            vl_fail(e, VL_E_DATA, "meta_info has a key with a NUL or half a surrogate pair");
        else
            vl_meta_set(b, key, json);
        free(key);
        free(json);
        k = j.node[v].next;
    }
    vl_json_free(&j);
    return e->code ? vl_err_prefix(e, "%s", r->name) : 0;
}

static int wanted(const struct vl_dp_read *opt, const char *name)
{
    if (!opt || !opt->columns)
        return 1;
    for (const char *const *c = opt->columns; *c; c++)
        if (strcmp(*c, name) == 0)
            return 1;
    return 0;
}

static void drop_unwanted(struct reader *r, const struct vl_dp_read *opt)
{
    size_t n = 0;

    for (size_t i = 0; i < r->nplan; i++)
        if (wanted(opt, r->plan[i].col.name))
            r->plan[n++] = r->plan[i];
        else
            vl_col_free(&r->plan[i].col);
    r->nplan = n;
}

static int want_order(const void *a, const void *b)
{
    const struct vl_want *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int fetch(struct reader *r, struct vl_want *w, size_t nw, struct vl_err *e)
{
    qsort(w, nw, sizeof *w, want_order);
    return vl_source_fetch(&r->src, w, nw, e);
}

/* Offsets of the range's rows, from 0; *begin is what row0's was. */
static int rebase(const struct reader *r, struct vl_col *c, const struct plan *p, int64_t *begin,
                  struct vl_err *e)
{
    int64_t n = r->rows, end = p->data->shape[0];
    int last = r->row0 + n == p->offsets->shape[0] - 1;

    *begin = c->offsets[0];
    if (*begin < 0 || (r->row0 == 0 && *begin) || c->offsets[n] > end ||
        (last && c->offsets[n] != end))
        return vl_fail(e, VL_E_DATA, "%s: column %s: offsets do not run from 0 to %" PRId64,
                       r->name, c->name, end);
    for (int64_t i = 0; i < n; i++)
        if (c->offsets[i + 1] < c->offsets[i])
            return vl_fail(e, VL_E_DATA, "%s: column %s: row %" PRId64 " ends before it starts",
                           r->name, c->name, r->row0 + i);
    for (int64_t i = 0; i <= n; i++)
        c->offsets[i] -= *begin;
    return 0;
}

static int read_offsets(struct reader *r, struct vl_err *e)
{
    struct vl_want *w = vl_alloc(r->nplan * sizeof *w);
    size_t nw = 0;
    int rc;

    for (size_t i = 0; i < r->nplan && !e->code; i++) {
        struct plan *p = &r->plan[i];
        uint64_t at = r->src.total - r->st.data_bytes;

        if (!p->offsets || vl_try_alloc(&p->col.offsets, (size_t)r->rows + 1, 8, p->col.name, e))
            continue;
        at += p->offsets->begin + 8 * (uint64_t)r->row0;
        w[nw++] =
            (struct vl_want){ at, at + 8 * ((uint64_t)r->rows + 1), (uint8_t *)p->col.offsets };
    }
    rc = e->code ? e->code : fetch(r, w, nw, e);
    free(w);
    return rc;
}

/* Shape and data range of one column within the row range; allocates its data. */
static int place_column(struct reader *r, struct plan *p, struct vl_want *w, struct vl_err *e)
{
    struct vl_col *c = &p->col;
    size_t width = vl_col_row_bytes(c);
    int64_t first = r->row0, count = r->rows;

    if (p->offsets) {
        if (rebase(r, c, p, &first, e))
            return e->code;
        count = c->offsets[r->rows];
    }
    c->shape[0] = count;
    c->bytes = (size_t)count * width;
    if (vl_try_alloc(&c->data, c->bytes, 1, c->name, e))
        return e->code;
    w->begin = r->src.total - r->st.data_bytes + p->data->begin + (uint64_t)first * width;
    w->end = w->begin + c->bytes;
    w->dst = c->data;
    return 0;
}

static int read_data(struct reader *r, struct vl_err *e)
{
    struct vl_want *w = vl_alloc(r->nplan * sizeof *w);
    size_t nw = 0;
    int rc;

    for (size_t i = 0; i < r->nplan && !e->code; i++)
        if (place_column(r, &r->plan[i], &w[nw], e) == 0 && w[nw].end > w[nw].begin)
            nw++;
    rc = e->code ? e->code : fetch(r, w, nw, e);
    free(w);
    return rc;
}

static void clip_rows(struct reader *r, int64_t rows, const struct vl_dp_read *opt)
{
    r->row0 = opt && opt->row0 > 0 ? opt->row0 : 0;
    if (r->row0 > rows)
        r->row0 = rows;
    r->rows = rows - r->row0;
    if (opt && opt->nrows >= 0 && opt->nrows < r->rows)
        r->rows = opt->nrows;
}

static int check_promises(const struct reader *r, struct vl_err *e)
{
    const char *frames = vl_st_meta_get(&r->st, "frames");
    uint64_t n;

    if (r->st.data_at + r->st.data_bytes != r->src.total)
        return vl_fail(e, VL_E_DATA,
                       "%s: holds %" PRIu64 " bytes, but the header promises %" PRIu64, r->name,
                       r->src.total, r->st.data_at + r->st.data_bytes);
    if (r->src.frame && (!get_count(frames, &n) || n != r->src.nframe))
        return vl_fail(e, VL_E_DATA, "%s: holds %u frames, but the header promises %.40s", r->name,
                       r->src.nframe, frames ? frames : "no number");
    return 0;
}

static int read_body(struct reader *r, struct vl_batch *b, const struct vl_dp_read *opt,
                     struct vl_err *e)
{
    if (check_promises(r, e) || plan_batch(r, b, e) || read_meta(r, b, e))
        return e->code;
    drop_unwanted(r, opt);
    clip_rows(r, b->rows, opt);
    if (!opt || !opt->header_only) {
        b->rows = r->rows;
        if (read_offsets(r, e) || read_data(r, e))
            return e->code;
    }
    for (size_t i = 0; i < r->nplan; i++) {
        int has = b->has_batch;

        vl_batch_put(b, &r->plan[i].col);
        b->has_batch = has;
    }
    return 0;
}

/* The batch behind an opened source; takes the source. *stream: marked as part of a stream. */
static int read_source(struct vl_batch *b, struct vl_source *src, const struct vl_dp_read *opt,
                       int *stream, struct vl_err *e)
{
    struct reader r = { .name = src->name, .src = *src };
    struct vl_buf text = { 0 };

    *b = (struct vl_batch){ 0 };
    if (vl_source_header(&r.src, &text, e) == 0 &&
        vl_st_parse(&r.st, text.s, text.n, r.name, e) == 0) {
        const char *mark = vl_st_meta_get(&r.st, "stream");

        *stream = mark && strcmp(mark, "1") == 0;
        if (read_body(&r, b, opt, e))
            vl_batch_free(b);
    }
    for (size_t i = 0; i < r.nplan; i++)
        vl_col_free(&r.plan[i].col);
    free(r.plan);
    vl_st_close(&r.st);
    vl_buf_free(&text);
    vl_source_close(&r.src);
    return e->code;
}

/* ---- files and streams ---- */

static int whole_read(const struct vl_dp_read *opt)
{
    return !opt || (!opt->columns && !opt->row0 && opt->nrows < 0 && !opt->header_only);
}

int vl_dp_document(struct vl_batch *b, const char *name, const uint8_t *p, size_t n, int *marked,
                   struct vl_err *e)
{
    struct vl_source s;

    *b = (struct vl_batch){ 0 };
    return vl_source_document(&s, name, p, n, 1, e) ? e->code : read_source(b, &s, NULL, marked, e);
}

/* After reading everything: the rows and columns asked for. */
static int narrow(struct vl_batch *b, const struct vl_dp_read *opt, struct vl_err *e)
{
    struct vl_batch part = { 0 };
    int64_t n;

    if (whole_read(opt))
        return 0;
    for (size_t i = b->ncol; i-- > 0;)
        if (!wanted(opt, b->col[i]->name))
            vl_batch_drop(b, b->col[i]->name);
    if (opt->header_only)
        return 0;
    n = opt->nrows < 0 ? INT64_MAX : opt->nrows;
    if (vl_batch_rows(&part, b, opt->row0, n, e))
        return e->code;
    vl_batch_free(b);
    *b = part;
    return 0;
}

static int read_bytes(struct vl_batch *b, const char *name, const struct bytes *in,
                      const struct vl_dp_read *opt, struct vl_err *e)
{
    enum vl_bytes_kind kind = vl_bytes_kind(in->p, in->n);
    struct vl_source s = { 0 };
    int stream = 0;

    if (kind == VL_BYTES_STREAM) {
        if (in->mapped)
            return vl_fail(e, VL_E_DATA,
                           "%s: is a saved stream, but a file holds one document: make one with "
                           "verl-batch concat -o FILE - < %s",
                           name, name);
        return vl_dp_read_stream(b, name, in->p, in->n, e) ? e->code : narrow(b, opt, e);
    }
    if (kind == VL_BYTES_DOCUMENT
            ? vl_source_document(&s, name, in->p, in->n, !in->mapped || whole_read(opt), e)
        : kind == VL_BYTES_RAW ? vl_source_raw(&s, name, in->p, in->n, e)
                               : vl_source_zstd(&s, name, in->p, in->n, e))
        return e->code;
    if (read_source(b, &s, opt, &stream, e))
        return e->code;
    if (stream) {
        vl_batch_free(b);
        return vl_fail(e, VL_E_DATA,
                       "%s: byte %zu: a stream without its end frame: its writer stopped early",
                       name, in->n);
    }
    return 0;
}

/* Files of others are not known to hold JSON where they should: looked at once, on the way in. */
static int check_texts(const struct vl_batch *b, const char *name, struct vl_err *e)
{
    for (size_t i = 0; i < b->ncol; i++) {
        const struct vl_col *c = b->col[i];

        for (int64_t r = 0; c->kind == VL_COL_JSON && r < b->rows; r++) {
            struct vl_json j = { 0 };
            size_t n;
            const char *p = vl_col_json(c, r, &n);
            int rc = vl_json_parse(&j, p, n, c->name, e);

            vl_json_free(&j);
            if (rc)
                return vl_err_prefix(e, "%s: row %" PRId64, name, r);
        }
    }
    return 0;
}

static int read_and_name(struct vl_batch *b, const char *name, const struct bytes *in,
                         const struct vl_dp_read *opt, struct vl_err *e)
{
    char hex[33];

    *b = (struct vl_batch){ 0 };
    if (read_bytes(b, name, in, opt, e)) {
        vl_batch_free(b);
        return e->code;
    }
    if (b->nparent || !whole_read(opt))
        return 0;
    if (check_texts(b, name, e) || vl_dp_hash(b, hex, e)) { /* its content names it */
        vl_batch_free(b);
        return e->code;
    }
    vl_batch_add_parent(b, hex);
    return 0;
}

int vl_dp_read(struct vl_batch *b, const char *path, const struct vl_dp_read *opt, struct vl_err *e)
{
    const char *name = strcmp(path, "-") ? path : "standard input";
    struct bytes in = { 0 };
    int rc;

    *b = (struct vl_batch){ 0 };
    if (bytes_open(&in, path, name, e))
        return e->code;
    rc = read_and_name(b, name, &in, opt, e);
    bytes_free(&in);
    return rc;
}

int vl_dp_read_bytes(struct vl_batch *b, const char *name, const void *p, size_t n,
                     const struct vl_dp_read *opt, struct vl_err *e)
{
    struct bytes in = { .p = p, .n = n };

    return read_and_name(b, name, &in, opt, e);
}
