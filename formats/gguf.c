/* gguf.c - parsing a GGUF file. See gguf.h. */
#include "formats/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_KEY    65535 /* bytes, as the format has it */
#define MAX_NAME   255   /* of a tensor; llama.cpp takes 63 */
#define MIN_KEY    13    /* bytes that a key takes at least: length, type, a one-byte value */
#define MIN_TENSOR 32    /* length, dimensions, one of them, type, offset */

/* ---- reading forward ---- */

struct cursor {
    const struct vl_gguf *g;
    uint64_t at;
    uint64_t align, next; /* the data area: alignment, where the next tensor begins in it */
    struct vl_err *e;
};

static uint64_t left(const struct cursor *c)
{
    return c->g->size - c->at;
}

/* Whether n more bytes are there, of which `what` consists. */
static int have(struct cursor *c, uint64_t n, const char *what)
{
    if (n <= left(c))
        return 1;
    vl_fail(c->e, VL_E_DATA,
            "%s: byte %" PRIu64 ": %s takes %" PRIu64 " bytes, but the file ends after %" PRIu64
            ": cut short or damaged",
            c->g->name, c->at, what, n, left(c));
    return 0;
}

static int take(struct cursor *c, void *out, size_t n, const char *what)
{
    if (!have(c, n, what))
        return 0;
    memcpy(out, c->g->data + c->at, n);
    c->at += n;
    return 1;
}

/* A length and so many bytes. */
static int take_str(struct cursor *c, uint64_t max, const char **s, size_t *n, const char *what)
{
    uint64_t len;

    if (!take(c, &len, sizeof len, what))
        return 0;
    if (len > max) {
        vl_fail(c->e, VL_E_DATA,
                "%s: byte %" PRIu64 ": %s of %" PRIu64 " bytes; expected at most %" PRIu64,
                c->g->name, c->at - 8, what, len, max);
        return 0;
    }
    if (!have(c, len, what))
        return 0;
    *s = (const char *)c->g->data + c->at;
    *n = (size_t)len;
    c->at += len;
    return 1;
}

static int take_name(struct cursor *c, uint64_t max, char **name, const char *what)
{
    uint64_t at = c->at;
    const char *s;
    size_t n;

    if (!take_str(c, max, &s, &n, what))
        return 0;
    if (!n || memchr(s, 0, n) || memchr(s, '\n', n)) {
        vl_fail(c->e, VL_E_DATA, "%s: byte %" PRIu64 ": %s is %s; expected a name", c->g->name, at,
                what, n ? "text with a NUL or line feed" : "empty");
        return 0;
    }
    *name = vl_strndup(s, n);
    return 1;
}

/* ---- the header ---- */

static int header(struct cursor *c, struct vl_gguf *g, uint64_t *nkey, uint64_t *ntensor)
{
    uint32_t v;

    if (g->size < 4 || memcmp(g->data, "GGUF", 4) != 0)
        return vl_fail(c->e, VL_E_DATA, "%s: byte 0: not a GGUF file: expected the letters GGUF",
                       g->name);
    c->at = 4;
    if (!take(c, &v, sizeof v, "the version"))
        return c->e->code;
    if (v && !(v & 0xffff))
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte 4: version 0x%08" PRIx32 ": a big-endian file; expected a "
                       "little-endian one",
                       g->name, v);
    if (v != 2 && v != 3)
        return vl_fail(c->e, VL_E_DATA, "%s: byte 4: GGUF version %" PRIu32 "; expected 2 or 3",
                       g->name, v);
    g->version = v;
    if (!take(c, ntensor, 8, "the number of tensors") || !take(c, nkey, 8, "the number of keys"))
        return c->e->code;
    if (*nkey > left(c) / MIN_KEY)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte 16: %" PRIu64 " keys; the %" PRIu64
                       " bytes after this can hold at most %" PRIu64,
                       g->name, *nkey, left(c), left(c) / MIN_KEY);
    if (*ntensor > left(c) / MIN_TENSOR)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte 8: %" PRIu64 " tensors; the %" PRIu64
                       " bytes after this can describe at most %" PRIu64,
                       g->name, *ntensor, left(c), left(c) / MIN_TENSOR);
    return 0;
}

/* ---- keys ---- */

static int take_type(struct cursor *c, uint32_t *type, const char *name, int in_array)
{
    if (!take(c, type, sizeof *type, "a value's type"))
        return c->e->code;
    if (*type > VL_GGUF_F64)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": key %.200s has a value of type %" PRIu32
                       "; expected 0 to %d",
                       c->g->name, c->at - 4, name, *type, VL_GGUF_F64);
    if (in_array && *type == VL_GGUF_ARRAY)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": key %.200s is an array of arrays; expected numbers "
                       "or strings",
                       c->g->name, c->at - 4, name);
    return 0;
}

static int skip_values(struct cursor *c, const struct vl_gguf_key *k)
{
    uint64_t bytes;
    const char *s;
    size_t n;

    if (k->type != VL_GGUF_STRING) {
        if (__builtin_mul_overflow(k->n, (uint64_t)vl_gguf_type_size(k->type), &bytes))
            bytes = UINT64_MAX;
        if (!have(c, bytes, k->name))
            return c->e->code;
        c->at += bytes;
        return 0;
    }
    if (k->n > left(c) / 8)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": %.200s: %" PRIu64 " strings; the %" PRIu64
                       " bytes after this can hold at most %" PRIu64,
                       c->g->name, c->at, k->name, k->n, left(c), left(c) / 8);
    for (uint64_t i = 0; i < k->n; i++)
        if (!take_str(c, UINT64_MAX, &s, &n, k->name))
            return c->e->code;
    return 0;
}

static int take_key(struct cursor *c, struct vl_gguf_key *k)
{
    uint32_t type;

    if (!take_name(c, MAX_KEY, &k->name, "a key") || take_type(c, &type, k->name, 0))
        return c->e->code;
    k->n = 1;
    k->is_array = type == VL_GGUF_ARRAY;
    if (k->is_array &&
        (take_type(c, &type, k->name, 1) || !take(c, &k->n, 8, "the length of an array")))
        return c->e->code;
    k->type = (enum vl_gguf_type)type;
    k->at = c->at;
    return skip_values(c, k);
}

/* ---- tensors ---- */

/* Neither n nor align is near the end of 64 bits. */
static uint64_t padded(uint64_t n, uint64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

/* Elements and bytes of the shape; 0 when that overflows. */
static int sizes(struct vl_gguf_tensor *t)
{
    t->n = 1;
    for (int d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(t->n, t->shape[d], &t->n))
            return 0;
    return !__builtin_mul_overflow((uint64_t)(t->n / t->type->elems), (uint64_t)t->type->bytes,
                                   &t->bytes);
}

static int take_shape(struct cursor *c, struct vl_gguf_tensor *t)
{
    uint32_t ndim;

    if (!take(c, &ndim, sizeof ndim, "a tensor's number of dimensions"))
        return c->e->code;
    if (ndim < 1 || ndim > 4)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": tensor %s has %" PRIu32
                       " dimensions; expected 1 to 4",
                       c->g->name, c->at - 4, t->name, ndim);
    t->ndim = (int)ndim;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (!take(c, &t->shape[d], 8, "a tensor's dimension"))
            return c->e->code;
        if (t->shape[d] < 1)
            return vl_fail(c->e, VL_E_DATA,
                           "%s: byte %" PRIu64 ": tensor %s has a dimension of %" PRId64
                           "; expected 1 or more",
                           c->g->name, c->at - 8, t->name, t->shape[d]);
    }
    return 0;
}

/* t->at is left relative to the data area. */
static int take_tensor(struct cursor *c, struct vl_gguf_tensor *t)
{
    uint32_t type;
    int64_t row;

    if (!take_name(c, MAX_NAME, &t->name, "a tensor's name") || take_shape(c, t) ||
        !take(c, &type, sizeof type, "a tensor's type"))
        return c->e->code;
    t->type = vl_ggml_type(type);
    if (!t->type)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": tensor %s has type %" PRIu32
                       ", which is none of ggml's that are known here",
                       c->g->name, c->at - 4, t->name, type);
    row = t->shape[t->ndim - 1];
    if (row % t->type->elems)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": tensor %s is %s with rows of %" PRId64
                       "; expected a multiple of %d",
                       c->g->name, c->at - 4, t->name, t->type->name, row, t->type->elems);
    if (!sizes(t))
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": the size of tensor %s overflows 64 bits", c->g->name,
                       c->at - 4, t->name);
    if (!take(c, &t->at, 8, "a tensor's offset"))
        return c->e->code;
    if (t->at != c->next)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": tensor %s has offset %" PRIu64 "; expected %" PRIu64
                       ", where the one before it ends",
                       c->g->name, c->at - 8, t->name, t->at, c->next);
    if (t->bytes > c->g->size || c->next > INT64_MAX / 4) /* else place() names the first cut one */
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": tensor %s takes %" PRIu64
                       " bytes, but the whole file is %zu long: cut short or damaged",
                       c->g->name, c->at - 8, t->name, t->bytes, c->g->size);
    c->next = padded(t->at + t->bytes, c->align);
    return 0;
}

static int take_alignment(struct cursor *c)
{
    int64_t n = 32;

    if (vl_gguf_i64(c->g, "general.alignment", &n, c->e))
        return c->e->code;
    if (n < 1 || n > 1 << 30 || (n & (n - 1)))
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": general.alignment is %" PRId64
                       "; expected a power of two",
                       c->g->name, vl_gguf_find(c->g, "general.alignment")->at, n);
    c->align = (uint64_t)n;
    return 0;
}

/* Offsets into the file; the last tensor, padded or not, must end where the file does. */
static int place(struct cursor *c, struct vl_gguf *g)
{
    uint64_t begin = padded(c->at, c->align), room = begin < g->size ? g->size - begin : 0;

    for (size_t i = 0; i < g->ntensor; i++) {
        struct vl_gguf_tensor *t = &g->tensor[i];

        if (t->at > room || t->bytes > room - t->at)
            return vl_fail(
                c->e, VL_E_DATA,
                "%s: byte %" PRIu64 ": tensor %s takes %" PRIu64 " bytes, up to byte %" PRIu64
                ", but the file ends at byte %zu: cut short or damaged",
                g->name, begin + t->at, t->name, t->bytes, begin + t->at + t->bytes, g->size);
        t->at += begin;
    }
    if (room > c->next)
        return vl_fail(c->e, VL_E_DATA,
                       "%s: byte %" PRIu64 ": %" PRIu64 " bytes after the last tensor; expected "
                       "the end of the file",
                       g->name, begin + c->next, room - c->next);
    return 0;
}

/* ---- names ---- */

/* A key's and a tensor's first member is its name. */
static const char *name_of(const void *x)
{
    return *(char *const *)x;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(name_of(*(const void *const *)a), name_of(*(const void *const *)b));
}

/* Sorts n pointers; VL_E_DATA when two have one name. */
static int sort_names(const void **p, size_t n, const struct cursor *c, const char *what)
{
    qsort(p, n, sizeof *p, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&p[i - 1], &p[i]) == 0)
            return vl_fail(c->e, VL_E_DATA, "%s: %s %.200s is there twice", c->g->name, what,
                           name_of(p[i]));
    return 0;
}

static const void *find(const void *const *p, size_t n, const char *name)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int d = strcmp(name, name_of(p[mid]));

        if (!d)
            return p[mid];
        if (d < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const struct vl_gguf_key *vl_gguf_find(const struct vl_gguf *g, const char *name)
{
    return find(g->by_name, g->nkey, name);
}

const struct vl_gguf_tensor *vl_gguf_tensor(const struct vl_gguf *g, const char *name)
{
    return find(g->by_name + g->nkey, g->ntensor, name);
}

/* ---- opening ---- */

static int parse(struct vl_gguf *g, struct vl_err *e)
{
    struct cursor c = { .g = g, .e = e };
    uint64_t nkey, ntensor;

    if (header(&c, g, &nkey, &ntensor))
        return e->code;
    g->key = vl_alloc(nkey * sizeof *g->key);
    g->tensor = vl_alloc(ntensor * sizeof *g->tensor);
    g->by_name = vl_alloc((nkey + ntensor) * sizeof *g->by_name);
    while (g->nkey < nkey)
        if (take_key(&c, &g->key[g->nkey++]))
            return e->code;
    for (size_t i = 0; i < nkey; i++)
        g->by_name[i] = &g->key[i];
    if (sort_names(g->by_name, nkey, &c, "key") || take_alignment(&c))
        return e->code;
    while (g->ntensor < ntensor)
        if (take_tensor(&c, &g->tensor[g->ntensor++]))
            return e->code;
    for (size_t i = 0; i < ntensor; i++)
        g->by_name[nkey + i] = &g->tensor[i];
    if (sort_names(g->by_name + nkey, ntensor, &c, "tensor"))
        return e->code;
    return place(&c, g);
}

int vl_gguf_parse(struct vl_gguf *g, const void *data, size_t size, const char *name,
                  struct vl_err *e)
{
    *g = (struct vl_gguf){ .name = vl_strdup(name), .data = data, .size = size };
    return parse(g, e);
}

int vl_gguf_open(struct vl_gguf *g, const char *path, struct vl_err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *p = MAP_FAILED;
    struct stat st;

    *g = (struct vl_gguf){ .name = vl_strdup(path) };
    if (fd < 0)
        return vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open", path);
    if (fstat(fd, &st))
        vl_fail_errno(e, VL_E_IO, "%s: cannot stat", path);
    else if (!S_ISREG(st.st_mode))
        vl_fail(e, VL_E_NOINPUT, "%s: not a regular file", path);
    else if (!st.st_size)
        vl_fail(e, VL_E_DATA, "%s: byte 0: an empty file; expected the letters GGUF", path);
    else if ((p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        vl_fail_errno(e, VL_E_IO, "%s: cannot map", path);
    close(fd);
    if (e->code)
        return e->code;
    g->data = p, g->size = (size_t)st.st_size, g->mapped = 1;
    return parse(g, e);
}

void vl_gguf_close(struct vl_gguf *g)
{
    for (size_t i = 0; i < g->nkey; i++)
        free(g->key[i].name);
    for (size_t i = 0; i < g->ntensor; i++)
        free(g->tensor[i].name);
    free(g->key);
    free(g->tensor);
    free(g->by_name);
    free(g->name);
    if (g->mapped)
        munmap((void *)g->data, g->size);
    *g = (struct vl_gguf){ 0 };
}
