/* ucdata.h - characters that the reference's Unicode tables know otherwise than PCRE2 or utf8proc. */
#ifndef VL_UCDATA_H
#define VL_UCDATA_H

#include <stdint.h>

/* A character of Unicode 14 that regexes treat as Unicode 16 says of cp, in as many bytes of UTF-8;
 * cp itself when it is no newer. */
uint32_t vl_ucdata_like(uint32_t cp);

enum vl_uc_class {
    VL_UC_PUNCT,
    VL_UC_MARK,
    VL_UC_MN,
    VL_UC_FORMAT,
};
/* Whether cp came into the class after the reference's table of it was made. */
int vl_ucdata_new_in(enum vl_uc_class c, uint32_t cp);

uint32_t vl_ucdata_lower(uint32_t cp); /* the lower case of letters since Unicode 14, else cp */
int vl_ucdata_new_mark(uint32_t cp); /* a combining class since Unicode 10: not in the reference */
int vl_ucdata_stays(uint32_t cp);    /* decomposes since Unicode 12: not in the reference */

#endif
