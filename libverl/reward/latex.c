/* latex.c - pieces of LaTeX answers. See latex.h. */
#include "libverl/reward/latex.h"

#include "libverl/text/unicode.h"

#include <string.h>

void vl_tex_replace(struct vl_buf *b, const char *from, const char *to)
{
    size_t n = strlen(from), at = 0;
    struct vl_buf out = { 0 };
    const char *hit;

    while (at < b->n && (hit = memmem(b->s + at, b->n - at, from, n))) {
        vl_buf_add(&out, b->s + at, (size_t)(hit - b->s) - at);
        vl_buf_str(&out, to);
        at = (size_t)(hit - b->s) + n;
    }
    if (!at)
        return;
    vl_buf_add(&out, b->s + at, b->n - at);
    vl_buf_free(b);
    *b = out;
}

const char *vl_tex_rfind(const char *s, size_t n, const char *needle)
{
    size_t len = strlen(needle);

    for (size_t i = n < len ? 0 : n - len + 1; i-- > 0;)
        if (!memcmp(s + i, needle, len))
            return s + i;
    return NULL;
}

const char *vl_tex_last_braced(const char *s, size_t len, const char *command, size_t *n)
{
    const char *from = vl_tex_rfind(s, len, command);
    int64_t depth = 0;

    for (const char *p = from; p && p < s + len; p++) {
        depth += (*p == '{') - (*p == '}');
        if (*p == '}' && depth == 0) {
            *n = (size_t)(p + 1 - from);
            return from;
        }
    }
    return NULL;
}

size_t vl_tex_char(const char *s, size_t n)
{
    uint32_t cp;

    return vl_uc_next(s, n, &cp);
}

void vl_tex_strip(const char **s, size_t *n)
{
    uint32_t cp;
    size_t k;

    while (*n && (k = vl_uc_next(*s, *n, &cp), vl_py_space(cp))) {
        *s += k;
        *n -= k;
    }
    while (*n) {
        k = vl_uc_back(*s, *n);
        vl_uc_next(*s + k, *n - k, &cp);
        if (!vl_py_space(cp))
            break;
        *n = k;
    }
}
