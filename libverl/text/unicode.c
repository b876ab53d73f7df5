/* unicode.c - characters. See unicode.h. */
#include "libverl/text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "libverl/text/ucdata.h"

/* Length of the run of ASCII bytes at s. */
static size_t ascii_run(const char *s, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        uint64_t w;

        memcpy(&w, s + i, 8);
        if (w & 0x8080808080808080u)
            break;
    }
    while (i < n && !(s[i] & 0x80))
        i++;
    return i;
}

void vl_utf8_lossy(struct vl_buf *b, const char *s, size_t n)
{
    size_t i = 0;

    while (i < n) {
        size_t run = ascii_run(s + i, n - i), k;
        uint32_t cp;

        vl_buf_add(b, s + i, run);
        i += run;
        if (i == n)
            break;
        k = vl_uc_next(s + i, n - i, &cp);
        if (cp == VL_UC_BAD)
            vl_buf_add(b, "\xEF\xBF\xBD", 3);
        else
            vl_buf_add(b, s + i, k);
        i += k;
    }
}

size_t vl_utf8_partial(const char *s, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)s[n - k];
        uint32_t cp;

        if ((c & 0xC0) == 0x80)
            continue;
        if (c < 0xC2 || c > 0xF4)
            return 0;
        /* unfinished: all bytes there are a proper beginning, and more were wanted */
        if (k < (c < 0xE0 ? 2u : c < 0xF0 ? 3u : 4u) && vl_uc_next(s + n - k, k, &cp) == k)
            return k;
        return 0;
    }
    return 0;
}

size_t vl_utf8_count(const char *s, size_t n)
{
    size_t c = 0;

    for (size_t i = 0; i < n; i++)
        c += (s[i] & 0xC0) != 0x80;
    return c;
}

int vl_uc_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

static utf8proc_category_t category(uint32_t cp)
{
    utf8proc_category_t c = UTF8PROC_CATEGORY_CN;

    if (cp <= 0x10FFFF)
        c = utf8proc_category((utf8proc_int32_t)cp);
    return c != UTF8PROC_CATEGORY_CN ? c : utf8proc_category((utf8proc_int32_t)vl_ucdata_like(cp));
}

int vl_uc_word(uint32_t c)
{
    if (c < 0x80)
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
               c == '_';
    switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
        return 1;
    default: /* the joiners, and the Other_Alphabetic symbols (circled letters) */
        return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
               (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
               (c >= 0x1F170 && c <= 0x1F189);
    }
}

int vl_uc_alpha(uint32_t c)
{
    if (c < 0x80)
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return 1;
    default:
        return 0;
    }
}

int vl_uc_numeric(uint32_t c)
{
    if (c < 0x80)
        return c >= '0' && c <= '9';
    switch (category(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return 1;
    default: /* Unicode 17's */
        return (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
    }
}

int vl_uc_punct(uint32_t c)
{
    if (c < 0x80)
        return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
               (c >= 123 && c <= 126);
    switch (category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return !vl_ucdata_new_in(VL_UC_PUNCT, c);
    default:
        return c == 0x166D || c == 0x111C9; /* punctuation at that time */
    }
}

int vl_uc_mark(uint32_t c)
{
    switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return !vl_ucdata_new_in(VL_UC_MARK, c);
    default:
        return c == 0x1CF2 || c == 0x1CF3; /* marks at that time */
    }
}

int vl_uc_nonspacing(uint32_t c)
{
    if (category(c) == UTF8PROC_CATEGORY_MN)
        return !vl_ucdata_new_in(VL_UC_MN, c);
    return c == 0x1734;
}

int vl_uc_control(uint32_t c)
{
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return !vl_ucdata_new_in(VL_UC_FORMAT, c);
    default:
        return 0;
    }
}

uint32_t vl_uc_lower(uint32_t c)
{
    uint32_t l = vl_ucdata_lower(c);

    return l != c ? l : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

/* Bytes up to the next character above U+07FF. */
static size_t low_run(const char *s, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        uint64_t w;

        memcpy(&w, s + i, 8);
        if (w & w << 1 & w << 2 & 0x8080808080808080u) /* a byte from 0xE0 on, or more than that */
            break;
    }
    while (i < n && (unsigned char)s[i] < 0xE0)
        i++;
    return i;
}

const char *vl_uc_alike(const char *s, size_t n, struct vl_buf *copy)
{
    size_t k;

    vl_buf_reset(copy);
    for (size_t i = low_run(s, n); i < n; i += k, i += low_run(s + i, n - i)) {
        unsigned char lead = (unsigned char)s[i];
        struct vl_buf one = { 0 };
        uint32_t cp, like;

        k = vl_uc_next(s + i, n - i, &cp);
        if ((lead >= 0xE4 && lead <= 0xE9) || (like = vl_ucdata_like(cp)) == cp)
            continue;
        if (!copy->n)
            vl_buf_add(copy, s, n);
        vl_utf8_put(&one, like);
        memcpy(copy->s + i, one.s, one.n);
        vl_buf_free(&one);
    }
    return copy->n ? copy->s : s;
}

int vl_py_space(uint32_t cp)
{
    return vl_uc_space(cp) || (cp >= 0x1C && cp <= 0x1F);
}
