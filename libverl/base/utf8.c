/* utf8.c - checking and writing UTF-8. See utf8.h. */
#include "libverl/base/utf8.h"

#include <string.h>

/* Table 3-7 of the Unicode standard: the second byte's range depends on the first. */
int vl_utf8_get(const char *p, size_t n, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)p;
    unsigned char lo = 0x80, hi = 0xBF;
    uint32_t c = u[0];
    int want;

    if (c < 0x80) {
        if (cp)
            *cp = c;
        return 1;
    }
    if (c < 0xC2 || c > 0xF4)
        return -1;
    want = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c == 0xE0)
        lo = 0xA0;
    else if (c == 0xED)
        hi = 0x9F;
    else if (c == 0xF0)
        lo = 0x90;
    else if (c == 0xF4)
        hi = 0x8F;
    c &= 0x7Fu >> want;
    for (int i = 1; i < want; i++) {
        if ((size_t)i >= n || u[i] < lo || u[i] > hi)
            return -i;
        c = c << 6 | (u[i] & 0x3F);
        lo = 0x80, hi = 0xBF;
    }
    if (cp)
        *cp = c;
    return want;
}

int vl_utf8_valid(const char *s, size_t n)
{
    for (size_t at = 0; at < n;) {
        uint64_t w = UINT64_MAX;
        int len;

        if (n - at >= 8)
            memcpy(&w, s + at, 8);
        if (!(w & 0x8080808080808080u)) {
            at += 8;
            continue;
        }
        len = vl_utf8_get(s + at, n - at, NULL);
        if (len < 0)
            return 0;
        at += (size_t)len;
    }
    return 1;
}

void vl_utf8_put(struct vl_buf *b, uint32_t cp)
{
    char s[4];

    if (cp < 0x80) {
        vl_buf_ch(b, (char)cp);
    } else if (cp < 0x800) {
        s[0] = (char)(0xC0 | cp >> 6);
        s[1] = (char)(0x80 | (cp & 0x3F));
        vl_buf_add(b, s, 2);
    } else if (cp < 0x10000) {
        s[0] = (char)(0xE0 | cp >> 12);
        s[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        s[2] = (char)(0x80 | (cp & 0x3F));
        vl_buf_add(b, s, 3);
    } else {
        s[0] = (char)(0xF0 | cp >> 18);
        s[1] = (char)(0x80 | (cp >> 12 & 0x3F));
        s[2] = (char)(0x80 | (cp >> 6 & 0x3F));
        s[3] = (char)(0x80 | (cp & 0x3F));
        vl_buf_add(b, s, 4);
    }
}
