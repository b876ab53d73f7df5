/* base64.c - base64. See base64.h. */
#include "libverl/base/base64.h"

#include <string.h>

static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void vl_base64_put(struct vl_buf *out, const void *p, size_t n)
{
    const uint8_t *s = p;

    vl_buf_reserve(out, (n + 2) / 3 * 4);
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t x = (uint32_t)s[i] << 16 | (left > 1 ? (uint32_t)s[i + 1] << 8 : 0) |
                     (left > 2 ? s[i + 2] : 0);

        vl_buf_ch(out, digit[x >> 18]);
        vl_buf_ch(out, digit[x >> 12 & 63]);
        vl_buf_ch(out, left > 1 ? digit[x >> 6 & 63] : '=');
        vl_buf_ch(out, left > 2 ? digit[x & 63] : '=');
    }
}

int vl_base64_get(struct vl_buf *out, const char *s, size_t n)
{
    size_t before = out->n;
    size_t pad = n >= 2 && s[n - 1] == '=' ? 1 + (s[n - 2] == '=') : 0;

    if (n % 4)
        return 0;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t x = 0;
        size_t have = i + 4 == n ? 3 - pad : 3;

        for (size_t k = 0; k < 4; k++) {
            const char *d = k <= have && s[i + k] ? strchr(digit, s[i + k]) : NULL;

            if (k <= have && !d) {
                out->n = before;
                return 0;
            }
            x = x << 6 | (d ? (uint32_t)(d - digit) : 0);
        }
        for (size_t k = 0; k < have; k++)
            vl_buf_ch(out, (char)(x >> (16 - 8 * k)));
    }
    return 1;
}
