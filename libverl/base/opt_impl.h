/* opt_impl.h - what the files of the options parser share; nobody else includes it, but
 * libverl/run/prov.c, which needs JSON and so cannot live in base. */
#ifndef VL_OPT_IMPL_H
#define VL_OPT_IMPL_H

#include "libverl/base/conf.h"
#include "libverl/base/opt.h"

struct vl_parsed {
    const struct vl_program *program;
    struct vl_opt *opt; /* the program's rows, then the common ones; ends with VL_T_END */
    size_t nopt, nown;
    int *given;            /* 1: by a file, 2: on the command line */
    char **effective;      /* JSON texts of vl_parsed_effective, or NULL */
    char **how;            /* lazily made texts of vl_parsed_how */
    const char **own_keys; /* keys of opt, NULL-terminated */
    struct vl_names names;
    struct vl_conf conf;
    void **memory; /* strings and lists that options point to */
    size_t nmemory;
    char *ignored; /* keys of the command line that are not read, ", " between */
};

/* Frees this memory with p. */
void vl_parsed_keep(struct vl_parsed *p, void *memory);
/* The name conf uses for an option: its key, or "--name". Borrowed or from `name`. */
const char *vl_opt_slot(const struct vl_opt *o, char name[80]);
/* The current value as a YAML tree; NULL when a string is NULL without being nullable. */
struct vl_yaml *vl_opt_yaml(const struct vl_opt *o);
/* What the option accepts, for errors and help: "a number from 0 to 1", "auto, cpu or cuda". */
void vl_opt_expected(struct vl_buf *b, const struct vl_opt *o);

/* The common options that the program does not leave out, ended by VL_T_END: VL_COMMON_ROWS zeroed
 * rows hold them. */
enum { VL_COMMON_ROWS = 20 };
void vl_opt_common(const struct vl_program *p, struct vl_common *c, struct vl_opt *rows);

/* (unknown.c) VL_E_USAGE: the option is none of p's; the line names the nearest of p's and who has it.
 * arg is the word the letter stands in. */
int vl_opt_unknown(const struct vl_parsed *p, const char *name, struct vl_err *e);
int vl_opt_unknown_letter(char letter, const char *arg, struct vl_err *e);

/* (absent.c) VL_E_USAGE naming the first key that is set to something this toolkit lacks and that changes
 * what is trained (tools, adapters, ...). */
int vl_absent_check(const struct vl_conf *c, struct vl_err *e) VL_MUST_CHECK;

/* Answers on stdout. */
void vl_print_help(const struct vl_parsed *p);
void vl_print_version(const char *program);
void vl_print_config(const struct vl_parsed *p);
void vl_print_ignored(const struct vl_parsed *p);

/* Converts v into *o->dst. where starts the error line. */
int vl_opt_convert(struct vl_parsed *p, const struct vl_opt *o, const struct vl_yaml *v,
                   const char *where, struct vl_err *e) VL_MUST_CHECK;

#endif
