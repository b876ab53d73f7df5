/* utf8.h - checking and writing UTF-8 one character at a time. */
#ifndef VL_UTF8_H
#define VL_UTF8_H

#include "libverl/base/mem.h"

/* Length 1..4 of the valid UTF-8 character at p (n > 0 bytes there), *cp = its code point when cp
 * is not NULL. Negative: not UTF-8 (surrogates and overlong forms included), and -result is the
 * length of the maximal ill-formed part, which one U+FFFD replaces (Unicode 15, section 3.9). */
int vl_utf8_get(const char *p, size_t n, uint32_t *cp);

/* 1 when the n bytes are UTF-8 (no surrogates, no overlong forms). */
int vl_utf8_valid(const char *s, size_t n);

/* Appends code point cp as UTF-8; a surrogate gets its three WTF-8 bytes (ED Ax xx). */
void vl_utf8_put(struct vl_buf *b, uint32_t cp);

#endif
