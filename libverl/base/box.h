/* box.h - runs a program nobody trusts: in namespaces of its own, with limits, and ends it whole.
 *
 * The program sees /usr, /bin, /sbin and /lib* read-only, an empty folder /tmp that is its working
 * directory, a few devices, no network, no other process and none of our environment. It runs as an
 * unused uid when we are root, as ourselves without any privilege when not, under a system call
 * filter. All its processes live in one pid namespace whose init we hold: they end with the run,
 * and with us when we are killed. Nothing here needs root. What this stops and what it does not:
 * verl-sandbox(7).
 *
 * The error *e is the sandbox's (it could not be made, the program is not there), never the
 * program's: how that one ended is in the result. */
#ifndef VL_BOX_H
#define VL_BOX_H

#include "libverl/base/mem.h"

struct vl_box_opts {
    int weak;                 /* no namespaces: limits, filter, Landlock, a group of processes */
    const char *const *binds; /* further absolute paths shown read-only, NULL-terminated; or NULL */
    double seconds;           /* wall clock */
    int64_t memory;           /* bytes: mapped by a process; resident in all of them together */
    int64_t disk;             /* bytes in the private folder, and of any one file */
    int64_t output;           /* bytes of standard output, and of standard error */
    int processes;            /* at the same time, threads counted */
};
#define VL_BOX_DEFAULTS                                                                            \
    {                                                                                              \
        .seconds = 10, .memory = 1024LL << 20, .disk = 64LL << 20, .output = 16LL << 20,           \
        .processes = 64                                                                            \
    }

struct vl_box_file {
    const char *name; /* in the private folder; no '/' */
    const void *data;
    size_t n;
};

struct vl_box_job {
    const char *const *argv; /* argv[0] is looked for in /usr/local/bin:/usr/bin:/bin */
    const struct vl_box_file *files;
    size_t nfiles;
    const void *in; /* standard input: a regular file with these bytes */
    size_t in_n;
};

enum vl_box_end {
    VL_BOX_EXITED,   /* code = its status */
    VL_BOX_SIGNALED, /* code = the signal, sent by itself or the kernel, not by us */
    VL_BOX_TIME,     /* the rest: we ended it */
    VL_BOX_MEMORY,
    VL_BOX_OUTPUT,
};

enum { VL_BOX_TAIL = 2048 };

struct vl_box_result {
    enum vl_box_end end;
    int code;
    struct vl_buf out;         /* standard output, at most `output` bytes */
    char err[VL_BOX_TAIL + 1]; /* end of standard error, NUL-terminated; may hold NULs */
    size_t err_n;
    double seconds, cpu; /* wall clock; user and system time of all its processes */
    int64_t peak;        /* largest resident size seen, all processes together */
};
void vl_box_result_free(struct vl_box_result *r);

/* Runs argv and waits for its end; processes it leaves behind are ended. *r is overwritten; free it
 * with vl_box_result_free (also after an error). VL_E_UNAVAIL: this kernel or container does not
 * let us make the namespaces (the line names the step, and --sandbox=weak), or argv[0] is not
 * there; VL_E_OS: out of processes, memory or descriptors. May be called by many threads at a
 * time. */
int vl_box_run(const struct vl_box_opts *o, const struct vl_box_job *job, struct vl_box_result *r,
               struct vl_err *e) VL_MUST_CHECK;

/* Whether weak boxes are kept to the folders of strong ones here (Landlock, Linux 5.13). */
int vl_box_weak_has_landlock(void);

/* Whether boxes of this kind work here: runs argv0 with --version in one. Same errors. */
int vl_box_check(const struct vl_box_opts *o, const char *argv0, struct vl_err *e) VL_MUST_CHECK;

#endif
