/* err.c - the error buffer. See err.h. */
#include "libverl/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One line whatever names and values hold: a newline in a key must not look like a second message. */
static void one_line(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7F)
            *s = ' ';
}

int vl_fail(struct vl_err *e, int code, const char *fmt, ...)
{
    va_list ap;

    if (e->code)
        return e->code;
    e->code = code;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    one_line(e->msg);
    return code;
}

int vl_fail_errno(struct vl_err *e, int code, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;
    size_t n;

    if (e->code)
        return e->code;
    e->code = code;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    n = strlen(e->msg);
    snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(saved));
    one_line(e->msg);
    return code;
}

int vl_err_prefix(struct vl_err *e, const char *fmt, ...)
{
    char rest[sizeof e->msg];
    va_list ap;
    size_t n;

    memcpy(rest, e->msg, sizeof rest);
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    n = strlen(e->msg);
    snprintf(e->msg + n, sizeof e->msg - n, ": %.*s", (int)(sizeof rest - 1), rest);
    one_line(e->msg);
    return e->code;
}
