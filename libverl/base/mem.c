/* mem.c - heap helpers, growable byte strings, arenas. See mem.h. */
#include "libverl/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

_Noreturn void vl_oom(size_t n)
{
    fprintf(stderr, "verl: out of memory (%zu bytes asked for)\n", n);
    exit(VL_E_OS);
}

void *vl_alloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);

    if (!p)
        vl_oom(n);
    return p;
}

void *vl_realloc(void *p, size_t n)
{
    p = realloc(p, n ? n : 1);
    if (!p)
        vl_oom(n);
    return p;
}

char *vl_strdup(const char *s)
{
    return s ? vl_strndup(s, strlen(s)) : NULL;
}

char *vl_strndup(const char *s, size_t n)
{
    char *p = vl_alloc(n + 1);

    memcpy(p, s, n);
    return p;
}

char *vl_asprintf(const char *fmt, ...)
{
    va_list ap, again;
    int n;
    char *p;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    p = vl_alloc((size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

int vl_try_alloc(void *out, size_t n, size_t size, const char *what, struct vl_err *e)
{
    size_t bytes;
    void *p = NULL;
    int huge;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2)
        return vl_fail(e, VL_E_OS, "%s: %zu x %zu bytes is more than memory can hold", what, n,
                       size);
    huge = bytes >= 4 * HUGE_PAGE;
    if (posix_memalign(&p, huge ? HUGE_PAGE : 64, bytes ? bytes : 1))
        return vl_fail(e, VL_E_OS, "%s: cannot allocate %zu bytes", what, bytes);
    if (huge) /* a hint: a third of the time to touch it */
        madvise(p, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
    memset(p, 0, bytes);
    *(void **)out = p;
    return 0;
}

void vl_buf_reserve(struct vl_buf *b, size_t more)
{
    size_t need = b->n + more + 1;

    if (need <= b->cap)
        return;
    b->cap = need > 2 * b->cap ? need : 2 * b->cap;
    if (b->cap < 64)
        b->cap = 64;
    b->s = vl_realloc(b->s, b->cap);
}

void vl_buf_add(struct vl_buf *b, const void *p, size_t n)
{
    vl_buf_reserve(b, n);
    if (n)
        memcpy(b->s + b->n, p, n);
    b->n += n;
    b->s[b->n] = 0;
}

void vl_buf_str(struct vl_buf *b, const char *s)
{
    vl_buf_add(b, s, strlen(s));
}

void vl_buf_ch(struct vl_buf *b, char c)
{
    vl_buf_add(b, &c, 1);
}

void vl_buf_printf(struct vl_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    vl_buf_reserve(b, (size_t)n);
    vsnprintf(b->s + b->n, (size_t)n + 1, fmt, again);
    va_end(again);
    b->n += (size_t)n;
}

void vl_buf_real(struct vl_buf *b, double x)
{
    char s[40];

    for (int n = 15; n <= 17; n++) {
        snprintf(s, sizeof s, "%.*g", n, x);
        if (strtod(s, NULL) == x)
            break;
    }
    vl_buf_str(b, s);
}

void vl_buf_reset(struct vl_buf *b)
{
    b->n = 0;
    if (b->s)
        b->s[0] = 0;
}

void vl_buf_free(struct vl_buf *b)
{
    free(b->s);
    *b = (struct vl_buf){ 0 };
}

char *vl_buf_detach(struct vl_buf *b)
{
    char *s = b->s ? b->s : vl_strdup("");

    *b = (struct vl_buf){ 0 };
    return s;
}

void *vl_arena_take(struct vl_arena *a, size_t n, size_t size)
{
    size_t at = a->used, bytes;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - 64 - at) {
        a->used = SIZE_MAX;
        return NULL;
    }
    a->used = at + ((bytes + 63) & ~(size_t)63);
    return a->base ? a->base + at : NULL;
}
