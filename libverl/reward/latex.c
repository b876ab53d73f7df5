/* latex.c - pieces of LaTeX answers. See latex.h. */
#include "libverl/reward/latex.h"

#include "libverl/text/unicode.h"

#include <stdlib.h>
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

/* One pass over a stack of open braces, whatever the text. */
const char *vl_tex_last_box(const char *s, size_t len, size_t *n)
{
    static const char *const command[] = { "\\boxed", "\\fbox" };
    size_t *open = NULL, depth = 0, cap = 0;
    const char *last = NULL;

    for (size_t i = 0; i < len; i++) {
        if (s[i] == '{') {
            if (depth == cap) {
                cap = cap ? 2 * cap : 64;
                open = vl_realloc(open, cap * sizeof *open);
            }
            open[depth++] = i;
        } else if (s[i] == '}' && depth) {
            size_t at = open[--depth];

            for (size_t k = 0; k < 2; k++) {
                size_t c = strlen(command[k]);

                if (at >= c && !memcmp(s + at - c, command[k], c) && (!last || s + at + 1 > last)) {
                    last = s + at + 1;
                    *n = i - at - 1;
                }
            }
        }
    }
    free(open);
    return last;
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
