/* opt.h - one table per program: command line, config keys, --help, --print-config, provenance.
 *
 * Parsing, help text and the recorded options come from the same rows, so none can drift. The
 * default of an option is what its variable holds before parsing. */
#ifndef VL_OPT_H
#define VL_OPT_H

#include "libverl/base/mem.h"

#define VL_NULL_I64 INT64_MIN /* YAML null for integers; NAN for reals, NULL for strings */

enum vl_opt_type {
    VL_T_END,
    VL_T_BOOL,  /* int; --name, --no-name, key=true|false */
    VL_T_I64,   /* int64_t */
    VL_T_F64,   /* double */
    VL_T_STR,   /* const char *; memory lives until vl_opts_free */
    VL_T_LIST,  /* struct vl_strs: repeatable, or a YAML list */
    VL_T_GROUP, /* no option: `help` is a heading of --help for the rows after it */
};

struct vl_strs {
    const char **s;
    size_t n;
};

enum {
    VL_F_PROV = 1,     /* its value can change output bytes: recorded in provenance */
    VL_F_NULLABLE = 2, /* accepts null */
    VL_F_REQUIRED = 4, /* must be given */
    VL_F_JSON = 8,     /* a string that is JSON text: a YAML map or list is turned into it */
};

struct vl_opt {
    enum vl_opt_type type;
    char letter;          /* short option or 0 */
    const char *name;     /* long option without dashes, or NULL: config key only */
    const char *key;      /* verl's dotted key, or NULL: command line only */
    const char *fallback; /* key that gives the value when `key` is not set, or NULL */
    void *dst;
    const char *arg;     /* name of the value in help: "FILE" */
    const char *help;    /* one sentence, lower case, no full stop */
    double lo, hi;       /* inclusive range of numbers; lo == hi == 0: any */
    const char *choices; /* "a|b|c" for strings, or NULL */
    unsigned flags;
};

/* Rows of a table: long name or NULL, key or NULL, variable (one of another type is warned of), name
 * of the value, inclusive range (0, 0: any), VL_F_*, help. The rare rest follows as designators:
 * VL_OPT_INT("workers", NULL, &o.workers, "N", 0, 4096, 0, "processes", .letter = 'j') */
#define VL_OPT_GROUP(HELP)                                                                         \
    {                                                                                              \
        .type = VL_T_GROUP, .help = HELP                                                           \
    }
#define VL_OPT_FLAG(NAME, KEY, DST, FLAGS, ...)                                                    \
    VL_OPT_ROW(VL_T_BOOL, int, NAME, KEY, DST, NULL, FLAGS, __VA_ARGS__)
#define VL_OPT_INT(NAME, KEY, DST, ARG, LO, HI, FLAGS, ...)                                        \
    VL_OPT_ROW(VL_T_I64, int64_t, NAME, KEY, DST, ARG, FLAGS, __VA_ARGS__, .lo = LO, .hi = HI)
#define VL_OPT_REAL(NAME, KEY, DST, ARG, LO, HI, FLAGS, ...)                                       \
    VL_OPT_ROW(VL_T_F64, double, NAME, KEY, DST, ARG, FLAGS, __VA_ARGS__, .lo = LO, .hi = HI)
#define VL_OPT_TEXT(NAME, KEY, DST, ARG, FLAGS, ...)                                               \
    VL_OPT_ROW(VL_T_STR, const char *, NAME, KEY, DST, ARG, FLAGS, __VA_ARGS__)
#define VL_OPT_WORD(NAME, KEY, DST, ARG, CHOICES, FLAGS, ...) /* a text of "a|b|c" */              \
    VL_OPT_ROW(VL_T_STR, const char *, NAME, KEY, DST, ARG, FLAGS, __VA_ARGS__, .choices = CHOICES)
#define VL_OPT_LIST(NAME, KEY, DST, ARG, FLAGS, ...)                                               \
    VL_OPT_ROW(VL_T_LIST, struct vl_strs, NAME, KEY, DST, ARG, FLAGS, __VA_ARGS__)
#define VL_OPT_ROW(TYPE, C_TYPE, NAME, KEY, DST, ARG, FLAGS, ...)                                  \
    {                                                                                              \
        .type = TYPE, .name = NAME, .key = KEY, .dst = 1 ? (DST) : (C_TYPE *)0, .arg = ARG,        \
        .flags = FLAGS, .help = __VA_ARGS__                                                        \
    }

/* Common options a program can leave out (they are then unknown to it). */
enum {
    VL_NO_INPUT = 1,
    VL_NO_OUTPUT = 2,
    VL_NO_MODEL = 4,
    VL_NO_STATE = 8,
    VL_NO_DELTA = 16,
    VL_NO_DEVICE = 32,
    VL_NO_SEED = 64,
    VL_NO_THREADS = 128,
    VL_NO_LEVEL = 256,
};

struct vl_program {
    const char *name;    /* "verl-rollout" */
    const char *summary; /* one line */
    const char *usage;   /* "[OPTION...] [key=value...]" */
    const char *subtree; /* own config subtree for key suffixes: "actor_rollout_ref.rollout"; "":
                            the keys of its own table, where these lie at the top (SFT) */
    const char *details; /* further help text (columns read and written, examples) or NULL */
    const struct vl_opt *opts; /* ends with type VL_T_END; common options are added by vl_parse */
    int takes_operands;        /* operands that hold no '=' are allowed; all after -- */
    unsigned omit;             /* VL_NO_*: common options that mean nothing here */
};

/* Options every program has. */
struct vl_common {
    struct vl_strs input;  /* -i, repeatable; default "-" */
    const char *output;    /* -o, default "-" */
    const char *model;     /* -m or NULL */
    const char *state;     /* -s or NULL */
    struct vl_strs config; /* -c FILE.yaml */
    const char *device;    /* --device auto|cpu|cuda[:n] */
    int64_t seed;          /* --seed, default 1; see vl_stage_seed for the rule with meta_info */
    int64_t threads;       /* --threads, 0 = the backend chooses; never in provenance */
    int delta, quiet, verbose, timing;
    struct vl_strs operands;
    int64_t level; /* --level of zstd */
};

struct vl_parsed; /* what was given: kept for --print-config and provenance */

/* Parses argv over the YAML files over the defaults. *common is set up here; an option's own variable
 * must hold its default. A program row with the name, letter or variable of a common option replaces
 * that one. 0 = go on; *done = 1 when --help, --version
 * or --print-config was answered on stdout (exit with the returned status). Errors are VL_E_USAGE
 * lines that name the option or key and the nearest known ones. */
int vl_parse(const struct vl_program *p, struct vl_common *common, int argc, char **argv,
             struct vl_parsed **out, int *done, struct vl_err *e) VL_MUST_CHECK;
void vl_parsed_free(struct vl_parsed *p);
/* Number of keys given that this program does not read; *named gets those of the command line,
 * separated by ", " (NULL when none; owned by p). */
size_t vl_parsed_ignored(const struct vl_parsed *p, const char **named);
/* How the user can give this option: "--temperature or actor_rollout_ref.rollout.temperature=". NULL
 * when `dst` is no option's variable; owned by p. */
const char *vl_parsed_how(const struct vl_parsed *p, const void *dst);
/* The stage took another value than the option's variable holds (meta_info's, see vl_stage_f64):
 * provenance records this JSON text (copied) instead. */
void vl_parsed_effective(struct vl_parsed *p, const void *dst, const char *json);
/* (libverl/run/prov.c) JSON object text of the options that are flagged VL_F_PROV, full keys, effective values. */
char *vl_parsed_provenance(const struct vl_parsed *p);
/* Whether the user set this option (any way). `dst` is the option's variable. */
int vl_parsed_given(const struct vl_parsed *p, const void *dst);
/* Whether the command line did it, and not a file that serves all stages. */
int vl_parsed_typed(const struct vl_parsed *p, const void *dst);

#endif
