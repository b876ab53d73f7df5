/* mem.h - heap helpers, growable byte strings and measured arenas.
 *
 * Small host objects use vl_alloc & co, which end the process with status 71 when memory is gone:
 * under Linux overcommit that is practically never reported, and checking each would drown the
 * code. Sizes that come from a file or grow with a batch go through vl_try_alloc, which reports. */
#ifndef VL_MEM_H
#define VL_MEM_H

#include "libverl/base/err.h"

void *vl_alloc(size_t n);            /* zeroed; never NULL (n = 0 gives a pointer to free) */
void *vl_realloc(void *p, size_t n); /* never NULL; new bytes are not zeroed */
char *vl_strdup(const char *s);      /* NULL in, NULL out */
char *vl_strndup(const char *s, size_t n);
char *vl_asprintf(const char *fmt, ...) VL_PRINTF(1, 2); /* caller frees with free() */
_Noreturn void vl_oom(size_t n);                         /* prints one line, exits 71 */

/* n*size bytes zeroed at *out, 64-byte aligned, or VL_E_OS with `what` in the message (also when
 * the product overflows). Free with free(). */
int vl_try_alloc(void *out, size_t n, size_t size, const char *what,
                 struct vl_err *e) VL_MUST_CHECK;

/* Growable bytes. s is always NUL-terminated once anything was added; zero-initialise to start. */
struct vl_buf {
    char *s;
    size_t n, cap;
};
void vl_buf_add(struct vl_buf *b, const void *p, size_t n);
void vl_buf_str(struct vl_buf *b, const char *s);
void vl_buf_ch(struct vl_buf *b, char c);
void vl_buf_printf(struct vl_buf *b, const char *fmt, ...) VL_PRINTF(2, 3);
void vl_buf_real(struct vl_buf *b, double x); /* finite: shortest of %.15g..%.17g that reads back */
void vl_buf_reserve(struct vl_buf *b, size_t more); /* room for `more` bytes and the NUL */
void vl_buf_reset(struct vl_buf *b);                /* n = 0, memory kept */
void vl_buf_free(struct vl_buf *b);
char *
vl_buf_detach(struct vl_buf *b); /* caller frees; b is empty again; "" when nothing was added */

/* Arena: run the layout function once with base == NULL to measure, allocate `used` bytes at base,
 * set used = 0 and run it again to carve. Offsets are rounded to 64 bytes. `base` may be a device
 * address: it is never dereferenced here. Overflow makes used SIZE_MAX. */
struct vl_arena {
    char *base;
    size_t used;
};
void *vl_arena_take(struct vl_arena *a, size_t n, size_t size); /* NULL while measuring */

#endif
