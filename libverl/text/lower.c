/* lower.c - lower case as Python's str.lower(): full mappings, and a capital sigma that is final
 * where a cased letter comes before it and none after. */
#include "libverl/text/unicode.h"

#include <utf8proc.h>

static int is_cased(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* Case_Ignorable: marks and word-internal punctuation. */
static int is_ignorable(uint32_t cp)
{
    static const uint32_t sign[] = { 0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                     0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                     0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A };
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    for (size_t i = 0; i < sizeof sign / sizeof *sign; i++)
        if (cp == sign[i])
            return 1;
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK;
}

/* A capital sigma is final when a cased letter comes before it and none after (ignorable characters
 * skipped). */
static int final_sigma(const char *s, size_t n, size_t at)
{
    uint32_t cp = 0;
    size_t i = at;

    do {
        if (!i)
            return 0;
        i = vl_uc_back(s, i);
        vl_uc_next(s + i, n - i, &cp);
    } while (is_ignorable(cp));
    if (!is_cased(cp))
        return 0;
    for (i = at + 2; i < n;) {
        i += vl_uc_next(s + i, n - i, &cp);
        if (!is_ignorable(cp))
            return !is_cased(cp);
    }
    return 1;
}

void vl_py_lower(struct vl_buf *out, const char *s, size_t n)
{
    uint32_t cp;

    for (size_t i = 0; i < n;) {
        size_t at = i;

        i += vl_uc_next(s + i, n - i, &cp);
        if (cp == VL_UC_BAD)
            vl_buf_str(out, "\xEF\xBF\xBD");
        else if (cp < 0x80)
            vl_buf_ch(out, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
        else if (cp == 0x130) /* I with dot: i and a combining dot */
            vl_buf_str(out, "i\xCC\x87");
        else if (cp == 0x3A3)
            vl_utf8_put(out, final_sigma(s, n, at) ? 0x3C2 : 0x3C3);
        else
            vl_utf8_put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
    }
}
