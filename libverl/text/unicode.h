/* unicode.h - runs of UTF-8: repair, counting, and the Unicode classes text code asks about.
 *
 * Classes follow what the reference tokenizers use: White_Space, Unicode categories, and \w as
 * letters, marks, decimal digits, connector punctuation and joiners. */
#ifndef VL_UNICODE_H
#define VL_UNICODE_H

#include "libverl/base/utf8.h"

#define VL_UC_BAD 0xFFFFFFFFu

/* Decodes the character at s (n > 0 bytes left) into *cp and returns its bytes. A malformed
 * sequence gives VL_UC_BAD and the length of its maximal subpart, so that replacing each by one
 * U+FFFD equals what Rust's from_utf8_lossy and Python's errors="replace" do. */
static inline size_t vl_uc_next(const char *s, size_t n, uint32_t *cp)
{
    int k = vl_utf8_get(s, n, cp);

    if (k > 0)
        return (size_t)k;
    *cp = VL_UC_BAD;
    return (size_t)-k;
}
/* Start of the character that ends at byte `at` (at > 0) of valid UTF-8. */
static inline size_t vl_uc_back(const char *s, size_t at)
{
    do
        at--;
    while (at && (s[at] & 0xC0) == 0x80);
    return at;
}
/* Appends the text with every malformed sequence replaced by U+FFFD. */
void vl_utf8_lossy(struct vl_buf *b, const char *s, size_t n);
/* Bytes at the end of s that begin a character but do not finish it (0 to 3). */
size_t vl_utf8_partial(const char *s, size_t n);
/* Characters in valid UTF-8. */
size_t vl_utf8_count(const char *s, size_t n);
/* Appends the text in lower case as Python's str.lower() has it (lower.c); malformed sequences become
 * U+FFFD. */
void vl_py_lower(struct vl_buf *out, const char *s, size_t n);

int vl_uc_space(uint32_t cp);      /* White_Space */
int vl_py_space(uint32_t cp);      /* what Python's str.strip() and \s take for white space */
int vl_uc_word(uint32_t cp);       /* \w */
int vl_uc_alpha(uint32_t cp);      /* Python's str.isalpha(): category L* */
int vl_uc_numeric(uint32_t cp);    /* category N* */
int vl_uc_punct(uint32_t cp);      /* ASCII punctuation or category P* of Unicode 8 */
int vl_uc_mark(uint32_t cp);       /* category M* of Unicode 9 */
int vl_uc_nonspacing(uint32_t cp); /* category Mn of Unicode 8 */
int vl_uc_control(uint32_t cp);    /* Cc, Cf or Co of Unicode 8 */
uint32_t vl_uc_lower(uint32_t cp);
/* The text with characters newer than PCRE2 may know replaced by older ones of the same category and
 * length (in *copy), so that a match in it is one in s: s itself when there are none. */
const char *vl_uc_alike(const char *s, size_t n, struct vl_buf *copy);

#endif
