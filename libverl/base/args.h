/* args.h - small parts of operands: whole numbers and comma lists. */
#ifndef VL_ARGS_H
#define VL_ARGS_H

#include "libverl/base/mem.h"

/* 1 when the n bytes at s are one decimal integer that fits, else 0 with *out untouched. */
int vl_arg_i64(const char *s, size_t n, int64_t *out);
/* "a,b,c" as a NULL-terminated list; "" is an empty list. One block: the caller frees the list. */
const char **vl_arg_list(const char *s);
size_t vl_arg_count(const char *const *list); /* entries of a NULL-terminated list; NULL: 0 */

#endif
