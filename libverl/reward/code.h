/* code.h - scoring programs: the code in a response, run against test cases.
 *
 * The rules are those of verl's prime_code (run here, in a box: base/box.h) and sandbox_fusion (run
 * by a service). What the program does wrong is a score; what the sandbox does wrong is a failure
 * of the scorer. */
#ifndef VL_CODE_H
#define VL_CODE_H

#include "formats/json.h"
#include "libverl/base/box.h"

#include <math.h>

/* Where and how programs are run, from the command line. */
struct vl_code_opts {
    struct vl_box_opts box; /* limits of one case */
    const char *command;    /* for sh -c beside the program's file; NULL: by language */
    const char *file;       /* its name; NULL: by language */
    double row_seconds;     /* time for all cases of a row; 0: as long as they take */
    const char *url;        /* the run_code address of a sandbox fusion service; NULL: boxes here */
    int concurrent;         /* its requests at a time */
    int give_up;            /* no further requests after one without an answer */
};

/* What --args may say. */
struct vl_code_args {
    enum vl_code_language {
        VL_CODE_PYTHON,
        VL_CODE_C,
        VL_CODE_CXX,
        VL_CODE_SHELL,
        VL_CODE_OTHER
    } language;
    int pass_fraction; /* score: passed / run of the first `cases`; else 1 if all pass, or 0 */
    double cases;      /* cases run at most, 0: all; NaN: 10 for the fraction, else all */
    int exact;         /* outputs are equal but for line feeds at the end; -1: by a service */
    int any_fence;     /* the last fenced block, whatever its tag */
};
#define VL_CODE_ARGS                                                                               \
    {                                                                                              \
        .pass_fraction = 1, .cases = NAN, .exact = -1                                              \
    }

/* Its name ("python", "c", "c++", "sh", "other"), NULL past the last one. */
const char *vl_code_language_name(int language);

/* ---- the program (code_text.c) ---- */

/* The code in a response: *code, *len point into text. 0: there is none. Here: what follows the last
 * "```python" (or the language's tag) up to the next "```"; for Python without such a mark, the text
 * before the first "```", as verl's prime_code has it. remote: as verl's sandbox_fusion, where a
 * block with another tag or none will do and a text without fences has no code. */
int vl_code_extract(const char *text, size_t n, const struct vl_code_args *a, int remote,
                    const char **code, size_t *len);

/* ---- test cases (code_cases.c) ---- */

struct vl_code_cases {
    char *text; /* the JSON text; nodes point into it */
    struct vl_json j;
    int64_t n;
    int64_t *in, *want, *check; /* nodes, -1 where there is none; check: text of an assertion */
    char *fn;                   /* function cases: its name; else NULL */
};

/* Reads a ground truth's text: {"inputs": [...], "outputs": [...]} with "fn_name" for function
 * cases, or with "assert_case": [...]. VL_E_DATA. Free with _free (also after an error). */
int vl_code_cases_open(struct vl_code_cases *c, const char *truth, size_t n,
                       struct vl_err *e) VL_MUST_CHECK;
void vl_code_cases_free(struct vl_code_cases *c);
/* Appends case k's standard input or expected output: a string's text, the lines of a list, or the
 * JSON text of anything else. Nothing where there is none. */
void vl_code_case_text(const struct vl_code_cases *c, int64_t node, struct vl_buf *out);
/* Appends a function case's arguments, a JSON array: a list as it is, or each line of a string is
 * one argument's JSON text. VL_E_DATA when a line is none. */
int vl_code_case_args(const struct vl_code_cases *c, int64_t k, struct vl_buf *out,
                      struct vl_err *e) VL_MUST_CHECK;
/* Appends a function case's expected value, a JSON text: of a string its text if that is JSON. */
void vl_code_case_value(const struct vl_code_cases *c, int64_t k, struct vl_buf *out);

/* ---- comparison (code_compare.c) ---- */

/* Standard output against what is expected, as prime_code compares: ends and line ends stripped,
 * empty lines left out, or line by line as numbers (relative 1e-5, absolute 1e-8). exact: equal but
 * for line feeds at the end, as sandbox_fusion. */
int vl_code_same_text(const char *out, size_t n, const char *want, size_t m, int exact);
/* A function's value against what is expected, both JSON texts: equal as Python's ==, with tuples
 * as lists; or equal to the first element of an expected list. 0 when `out` is no JSON text. */
int vl_code_same_value(const char *out, size_t n, const char *want, size_t m);

/* ---- one case ---- */

enum vl_code_verdict {
    VL_CODE_SKIPPED, /* not run */
    VL_CODE_PASSED,
    VL_CODE_WRONG,
    VL_CODE_TIME,
    VL_CODE_MEMORY,
    VL_CODE_OUTPUT,
    VL_CODE_RUNTIME,
    VL_CODE_COMPILE,
    VL_CODE_BROKEN, /* the sandbox failed */
};

struct vl_code_outcome {
    enum vl_code_verdict verdict;
    char *detail; /* one line for the report, or NULL; free() */
};

/* The program of a Python case (code_python.c): one file that runs src as __main__ with the usual
 * modules imported, or, with fn, calls that function with args (a JSON array) and prints its value
 * as JSON. Statuses: 120 src does not compile. */
enum { VL_CODE_NO_COMPILE = 120 };
void vl_code_python(struct vl_buf *out, const char *src, size_t n, const char *fn,
                    const struct vl_buf *args);

void vl_code_outcomes_free(struct vl_code_outcome *o, int64_t n);
/* How many of a row's cases count. */
int64_t vl_code_cases_run(const struct vl_code_args *a, const struct vl_code_cases *c);
/* Appends the program of case k, as a file of the language has it; bare: Python without what is
 * added here where nothing is called. */
int vl_code_program(const struct vl_code_args *a, const struct vl_code_cases *c, const char *code,
                    size_t n, int64_t k, int bare, struct vl_buf *out,
                    struct vl_err *e) VL_MUST_CHECK;
/* Makes a case whose program ended well PASSED or WRONG by what it printed. */
void vl_code_judge(const struct vl_code_args *a, const struct vl_code_cases *c, int64_t k,
                   const char *got, size_t n, struct vl_code_outcome *out);
char *vl_code_last_line(const char *s, size_t n); /* that is not empty; NULL: none */

/* ---- by a service (code_fusion.c) ---- */

/* The outcomes of a row's cases; n = 0: nothing was asked (no code, or no cases). */
struct vl_code_answers {
    struct vl_code_outcome *of;
    int64_t n;
};

struct vl_rule_in;
struct vl_code_rows {
    void *arg;
    /* The row's text and ground truth in *in (its args too), or 0: the row is for another scorer.
     * What it points to lasts until the next call. */
    int (*row)(void *arg, int64_t i, struct vl_rule_in *in);
};

/* Has the programs of rows 0..rows-1 run by the service at o->url, o->concurrent at a time over all
 * rows, and fills answers[0..rows-1], which the caller made zero and frees. The error is the
 * client's; what went wrong with a case is in its outcome. For one thread at a time. */
int vl_code_ask(const struct vl_code_opts *o, int64_t rows, const struct vl_code_rows *io,
                struct vl_code_answers *answers, struct vl_err *e) VL_MUST_CHECK;

/* Whether programs can be run: here the sandbox works and has the language's interpreter or compiler
 * (else VL_E_UNAVAIL), or the service knows the language (else VL_E_USAGE; also for "other" without
 * a command). */
int vl_code_check(const struct vl_code_opts *o, const struct vl_code_args *a,
                  struct vl_err *e) VL_MUST_CHECK;

#endif
