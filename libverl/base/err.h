/* err.h - exit statuses and the error buffer every fallible function fills.
 *
 * A library that exits cannot tell other ranks and cannot be unit-tested, so functions return 0 or
 * an exit status and leave one complete line in *e; only cmd/ and vl_oom() end the process. */
#ifndef VL_ERR_H
#define VL_ERR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

enum vl_status {
    VL_OK = 0,
    VL_E_USAGE = 64,   /* bad option or value: fix the command */
    VL_E_DATA = 65,    /* input malformed or truncated */
    VL_E_NOINPUT = 66, /* input missing */
    VL_E_UNAVAIL = 69, /* a device, library or rank count that is not there */
    VL_E_BUG = 70,     /* our mistake */
    VL_E_OS = 71,      /* out of memory, fork, system */
    VL_E_CREATE = 73,  /* cannot create output */
    VL_E_IO = 74,      /* read or write failed */
    VL_E_RETRY = 75,   /* lost rank, lock held: the only status a restart loop may retry */
};

struct vl_err {
    int code; /* enum vl_status; 0 = no error */
    int rank; /* who failed; -1 or 0 when alone */
    char msg[1200];
};

#define VL_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define VL_MUST_CHECK   __attribute__((warn_unused_result))

/* Records code and the formatted line in *e unless *e already holds an error (the first cause is
 * kept); returns e->code. A line names file, row or byte, what was found, what was expected. */
int vl_fail(struct vl_err *e, int code, const char *fmt, ...) VL_PRINTF(3, 4);

/* As vl_fail, with ": " and strerror(errno) appended. */
int vl_fail_errno(struct vl_err *e, int code, const char *fmt, ...) VL_PRINTF(3, 4);

/* Puts "fmt: " in front of the message in *e; returns e->code. For callers that know the file. */
int vl_err_prefix(struct vl_err *e, const char *fmt, ...) VL_PRINTF(2, 3);

#endif
