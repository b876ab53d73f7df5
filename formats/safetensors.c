/* safetensors.c - safetensors headers and files. See safetensors.h. */
#include "formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/json.h"

static uint64_t get_u64(const uint8_t *p)
{
    uint64_t x = 0;

    for (int i = 7; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

int vl_st_header_len(const uint8_t first[8], const char *name, uint64_t *n, struct vl_err *e)
{
    *n = get_u64(first);
    if (*n > VL_ST_MAX_HEADER)
        return vl_fail(e, VL_E_DATA,
                       "%s: byte 0: a safetensors header of %" PRIu64
                       " bytes is above the limit of %" PRIu64,
                       name, *n, VL_ST_MAX_HEADER);
    if (*n < 2)
        return vl_fail(e, VL_E_DATA, "%s: byte 0: a safetensors header of %" PRIu64 " bytes", name,
                       *n);
    return 0;
}

/* [u64, u64] at node i */
static int get_pair(const struct vl_json *j, int64_t i, uint64_t out[2])
{
    int64_t v[2];

    if (!vl_json_is(j, i, VL_JSON_ARRAY) || j->node[i].count != 2)
        return 0;
    for (uint32_t k = 0; k < 2; k++)
        if (!vl_json_i64(j, vl_json_at(j, i, k), &v[k]) || v[k] < 0)
            return 0;
    out[0] = (uint64_t)v[0];
    out[1] = (uint64_t)v[1];
    return 1;
}

static int get_shape(const struct vl_json *j, int64_t i, struct vl_st_tensor *t)
{
    uint32_t c = (uint32_t)i + 1;

    if (!vl_json_is(j, i, VL_JSON_ARRAY) || j->node[i].count > VL_MAX_DIMS)
        return 0;
    t->ndim = (int)j->node[i].count;
    for (int d = 0; d < t->ndim; d++, c = j->node[c].next)
        if (!vl_json_i64(j, c, &t->shape[d]) || t->shape[d] < 0)
            return 0;
    return 1;
}

/* Bytes of shape x dtype; 0 when that overflows. */
static int size_of(const struct vl_st_tensor *t, uint64_t *n)
{
    *n = vl_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(*n, (uint64_t)t->shape[d], n))
            return 0;
    return 1;
}

static int size_agrees(const struct vl_st_tensor *t)
{
    uint64_t n;

    return size_of(t, &n) && t->end >= t->begin && t->end - t->begin == n;
}

static int parse_tensor(const struct vl_json *j, int64_t i, struct vl_st_tensor *t,
                        const char *name, struct vl_err *e)
{
    int64_t d = vl_json_get(j, i, "dtype");
    uint64_t span[2];

    if (!vl_json_is(j, i, VL_JSON_OBJECT) || !vl_json_is(j, d, VL_JSON_STRING))
        return vl_fail(e, VL_E_DATA, "%s: tensor %.200s: not an object with a dtype", name,
                       t->name);
    if (!vl_dtype_parse(j->text + j->node[d].at, j->node[d].len, &t->dtype))
        return vl_fail(e, VL_E_DATA,
                       "%s: tensor %.200s: unknown dtype %.*s (known: U8 BOOL I8 I16 U16 F16 BF16 "
                       "I32 U32 F32 I64 U64 F64)",
                       name, t->name, (int)(j->node[d].len > 40 ? 40 : j->node[d].len),
                       j->text + j->node[d].at);
    if (!get_shape(j, vl_json_get(j, i, "shape"), t))
        return vl_fail(e, VL_E_DATA,
                       "%s: tensor %.200s: shape is not a list of at most %d whole numbers", name,
                       t->name, VL_MAX_DIMS);
    if (!get_pair(j, vl_json_get(j, i, "data_offsets"), span))
        return vl_fail(e, VL_E_DATA, "%s: tensor %.200s: data_offsets is not [begin, end]", name,
                       t->name);
    t->begin = span[0];
    t->end = span[1];
    if (!size_agrees(t))
        return vl_fail(e, VL_E_DATA,
                       "%s: tensor %.200s: data_offsets [%" PRIu64 ", %" PRIu64
                       "] do not fit its shape and dtype %s",
                       name, t->name, t->begin, t->end, vl_dtype_name(t->dtype));
    return 0;
}

static int parse_meta(struct vl_st *s, const struct vl_json *j, int64_t i, const char *name,
                      struct vl_err *e)
{
    uint32_t k = (uint32_t)i + 1;

    if (vl_json_is(j, i, VL_JSON_NULL))
        return 0;
    if (!vl_json_is(j, i, VL_JSON_OBJECT))
        return vl_fail(e, VL_E_DATA, "%s: __metadata__ is not an object of strings", name);
    s->has_meta = 1;
    s->meta = vl_alloc(j->node[i].count * sizeof *s->meta);
    for (uint32_t c = 0; c < j->node[i].count; c++) {
        uint32_t v = j->node[k].next;
        struct vl_st_meta *m = &s->meta[s->nmeta];

        if (!vl_json_is(j, v, VL_JSON_STRING))
            return vl_fail(e, VL_E_DATA, "%s: __metadata__ is not an object of strings", name);
        m->key = vl_json_strdup(j, k);
        m->value = vl_json_strdup(j, v);
        s->nmeta++;
        if (!vl_json_streq(j, k, m->key) || !vl_json_streq(j, v, m->value))
            return vl_fail(e, VL_E_DATA, "%s: __metadata__.%.200s holds a NUL", name, m->key);
        k = j->node[v].next;
    }
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct vl_st_tensor *x = *(const struct vl_st_tensor *const *)a;
    const struct vl_st_tensor *y = *(const struct vl_st_tensor *const *)b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct vl_st_tensor *const *)a)->name,
                  (*(const struct vl_st_tensor *const *)b)->name);
}

/* No name twice; sorted by place, each tensor begins where the one before it ended. */
static int check_places(struct vl_st *s, const char *name, struct vl_err *e)
{
    const struct vl_st_tensor **t = vl_alloc(s->n * sizeof *t);
    uint64_t at = 0;

    for (size_t i = 0; i < s->n; i++)
        t[i] = &s->tensor[i];
    qsort(t, s->n, sizeof *t, by_name);
    for (size_t i = 1; i < s->n; i++)
        if (strcmp(t[i - 1]->name, t[i]->name) == 0)
            vl_fail(e, VL_E_DATA, "%s: tensor %.200s is there twice", name, t[i]->name);
    qsort(t, s->n, sizeof *t, by_begin);
    for (size_t i = 0; i < s->n; at = t[i++]->end)
        if (t[i]->begin != at)
            vl_fail(e, VL_E_DATA,
                    "%s: tensor %.200s begins at data byte %" PRIu64 ", but must at %" PRIu64
                    " (%s)",
                    name, t[i]->name, t[i]->begin, at, t[i]->begin > at ? "a hole" : "an overlap");
    free(t);
    s->data_bytes = at;
    return e->code;
}

static int parse_members(struct vl_st *s, const struct vl_json *j, const char *name,
                         struct vl_err *e)
{
    uint32_t k = 1;

    if (!vl_json_is(j, 0, VL_JSON_OBJECT))
        return vl_fail(e, VL_E_DATA, "%s: the safetensors header is not a JSON object", name);
    s->tensor = vl_alloc(j->node[0].count * sizeof *s->tensor);
    for (uint32_t i = 0; i < j->node[0].count; i++) {
        uint32_t v = j->node[k].next;
        struct vl_buf key = { 0 };

        if (vl_json_streq(j, k, "__metadata__")) {
            if (s->has_meta)
                return vl_fail(e, VL_E_DATA, "%s: __metadata__ is there twice", name);
            if (parse_meta(s, j, v, name, e))
                return e->code;
        } else {
            struct vl_st_tensor *t = &s->tensor[s->n];

            vl_json_str(j, k, &key);
            if (key.n != (key.s ? strlen(key.s) : 0)) {
                vl_buf_free(&key);
                return vl_fail(e, VL_E_DATA, "%s: a tensor's name holds a NUL", name);
            }
            t->name = vl_buf_detach(&key);
            s->n++;
            if (parse_tensor(j, v, t, name, e))
                return e->code;
        }
        k = j->node[v].next;
    }
    return check_places(s, name, e);
}

int vl_st_parse(struct vl_st *s, const char *text, size_t n, const char *name, struct vl_err *e)
{
    struct vl_json j = { 0 };
    struct vl_buf what = { 0 };

    *s = (struct vl_st){ .data_at = 8 + n };
    vl_buf_printf(&what, "%s: safetensors header", name);
    if (vl_json_parse(&j, text, n, what.s, e) || parse_members(s, &j, name, e))
        vl_st_close(s);
    vl_buf_free(&what);
    vl_json_free(&j);
    return e->code;
}

/* n bytes of the file from `at`. A file that was made shorter while it is read ends early. */
static int read_at(int fd, const char *path, const char *what, uint64_t at, void *to, size_t n,
                   struct vl_err *e)
{
    char *p = to;

    while (n) {
        ssize_t k = pread(fd, p, n, (off_t)at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return vl_fail_errno(e, VL_E_IO, "%s: %s: cannot read byte %" PRIu64, path, what, at);
        if (k == 0)
            return vl_fail(e, VL_E_DATA,
                           "%s: ends at byte %" PRIu64 ", inside %s: it was cut short while it was "
                           "read",
                           path, at, what);
        p += k, at += (uint64_t)k, n -= (size_t)k;
    }
    return 0;
}

/* The descriptor of a regular file and its size, at least 8 bytes; -1 when it failed. */
static int open_file(const char *path, uint64_t *size, struct vl_err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not hold us */
    struct stat st;

    if (fd < 0) {
        vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open", path);
        return -1;
    }
    if (fstat(fd, &st))
        vl_fail_errno(e, VL_E_IO, "%s: cannot stat", path);
    else if (!S_ISREG(st.st_mode))
        vl_fail(e, VL_E_NOINPUT, "%s: not a regular file", path);
    else if (st.st_size < 8)
        vl_fail(e, VL_E_DATA, "%s: %lld bytes, too short for a safetensors file", path,
                (long long)st.st_size);
    *size = (uint64_t)st.st_size;
    if (e->code) {
        close(fd);
        return -1;
    }
    return fd;
}

int vl_st_open(struct vl_st *s, const char *path, struct vl_err *e)
{
    uint64_t n = 0, size = 0;
    int fd = open_file(path, &size, e);
    uint8_t first[8];
    char *text = NULL;

    *s = (struct vl_st){ 0 };
    if (fd < 0)
        return e->code;
    if (!read_at(fd, path, "header", 0, first, sizeof first, e) &&
        !vl_st_header_len(first, path, &n, e) && n > size - 8)
        vl_fail(e, VL_E_DATA, "%s: header of %" PRIu64 " bytes in a file of %" PRIu64 ": cut short",
                path, n, size);
    if (!e->code) {
        text = vl_alloc(n);
        (void)!(read_at(fd, path, "header", 8, text, n, e) || vl_st_parse(s, text, n, path, e));
        free(text);
    }
    if (e->code) {
        close(fd);
        return e->code;
    }
    s->fd = fd;
    s->path = vl_strdup(path);
    if (s->data_bytes != size - s->data_at) {
        vl_fail(e, VL_E_DATA,
                "%s: %" PRIu64 " bytes long, but the header promises %" PRIu64 " (the file was %s)",
                path, size, s->data_at + s->data_bytes,
                s->data_bytes > size - s->data_at ? "cut short" : "added to");
        vl_st_close(s);
    }
    return e->code;
}

int vl_st_read(const struct vl_st *s, const struct vl_st_tensor *t, uint64_t at, void *to, size_t n,
               struct vl_err *e)
{
    return read_at(s->fd, s->path, t->name, s->data_at + t->begin + at, to, n, e);
}

void vl_st_close(struct vl_st *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->tensor[i].name);
    for (size_t i = 0; i < s->nmeta; i++) {
        free(s->meta[i].key);
        free(s->meta[i].value);
    }
    free(s->tensor);
    free(s->meta);
    if (s->path)
        close(s->fd);
    free(s->path);
    *s = (struct vl_st){ 0 };
}

const struct vl_st_tensor *vl_st_find(const struct vl_st *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, name) == 0)
            return &s->tensor[i];
    return NULL;
}

const char *vl_st_meta_get(const struct vl_st *s, const char *key)
{
    for (size_t i = 0; i < s->nmeta; i++)
        if (strcmp(s->meta[i].key, key) == 0)
            return s->meta[i].value;
    return NULL;
}

int vl_st_header_put(struct vl_buf *out, struct vl_st_tensor *tensor, size_t n,
                     const struct vl_st_meta *meta, size_t nmeta, struct vl_err *e)
{
    size_t at = out->n;
    uint64_t pos = 0, len;

    vl_buf_add(out, "\0\0\0\0\0\0\0\0", 8);
    vl_buf_ch(out, '{');
    for (size_t i = 0; i < nmeta; i++) {
        vl_buf_str(out, i ? "," : "\"__metadata__\":{");
        vl_json_put_str(out, meta[i].key, strlen(meta[i].key));
        vl_buf_ch(out, ':');
        vl_json_put_str(out, meta[i].value, strlen(meta[i].value));
    }
    if (nmeta)
        vl_buf_ch(out, '}');
    for (size_t i = 0; i < n; i++) {
        struct vl_st_tensor *t = &tensor[i];

        if (!size_of(t, &len) || __builtin_add_overflow(pos, len, &t->end))
            return vl_fail(e, VL_E_DATA, "tensor %.200s: its size overflows", t->name);
        t->begin = pos;
        pos = t->end;
        vl_buf_str(out, i || nmeta ? "," : "");
        vl_json_put_str(out, t->name, strlen(t->name));
        vl_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", vl_dtype_name(t->dtype));
        for (int d = 0; d < t->ndim; d++)
            vl_buf_printf(out, "%s%" PRId64, d ? "," : "", t->shape[d]);
        vl_buf_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin, t->end);
    }
    vl_buf_ch(out, '}');
    while ((out->n - at) % 8)
        vl_buf_ch(out, ' ');
    len = out->n - at - 8;
    if (len > VL_ST_MAX_HEADER)
        return vl_fail(e, VL_E_DATA,
                       "the header would have %" PRIu64 " bytes, above the limit of %" PRIu64, len,
                       VL_ST_MAX_HEADER);
    for (int i = 0; i < 8; i++)
        out->s[at + (size_t)i] = (char)(len >> 8 * i);
    return 0;
}
