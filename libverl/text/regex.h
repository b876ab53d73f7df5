/* regex.h - the regular expressions of tokenizer.json, run by PCRE2.
 *
 * They are written for Oniguruma (Ruby syntax, Unicode). Most read the same in PCRE2; the rest is
 * rewritten (vl_regex_translate), and what cannot be is refused by name: a pre-tokenizer that
 * splits elsewhere than the reference gives other ids and nobody notices. */
#ifndef VL_REGEX_H
#define VL_REGEX_H

#include "libverl/base/mem.h"

struct vl_regex;
struct vl_regex_match; /* scratch of one thread */

/* Appends the PCRE2 form of an Oniguruma pattern. VL_E_DATA names the construct. */
int vl_regex_translate(struct vl_buf *out, const char *pat, size_t n,
                       struct vl_err *e) VL_MUST_CHECK;
int vl_regex_new(struct vl_regex **r, const char *pat, size_t n, struct vl_err *e) VL_MUST_CHECK;
void vl_regex_free(struct vl_regex *r);

struct vl_regex_match *vl_regex_match_new(void);
void vl_regex_match_free(struct vl_regex_match *m);
/* First match in text[from, n), looking back as far as text[0]: 1 with its range, 0 if none, -1 on a
 * limit (recorded in *e). text is valid UTF-8. */
int vl_regex_find(const struct vl_regex *r, struct vl_regex_match *m, const char *text, size_t n,
                  size_t from, size_t *start, size_t *end, struct vl_err *e) VL_MUST_CHECK;

#endif
