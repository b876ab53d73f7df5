/* pattern.h - a regular expression of the user's (PCRE2, UTF-8) that always ends: the number of
 * steps is limited, and one that passes the limit is a failure, not a "no". */
#ifndef VL_PATTERN_H
#define VL_PATTERN_H

#include "libverl/base/mem.h"

struct vl_pattern;

/* VL_E_USAGE when it does not compile, with the place. `.` matches line feeds only under (?s). */
int vl_pattern_new(struct vl_pattern **p, const char *pat, size_t n,
                   struct vl_err *e) VL_MUST_CHECK;
void vl_pattern_free(struct vl_pattern *p);
/* Whether it matches somewhere in the text: 1 or 0, -1 with *why set (static) when a limit was
 * passed. Bytes that are not UTF-8 match nothing. For use by several threads. */
int vl_pattern_match(const struct vl_pattern *p, const char *s, size_t n, const char **why);

#endif
