/* rules.h - built-in scorers and which data_source each is for (verl's names, verl's scores).
 *
 * Lengths are in code points and "last" is the right-most match, as in verl. */
#ifndef VL_RULES_H
#define VL_RULES_H

#include "libverl/reward/code.h"
#include "libverl/reward/score.h"
#include "formats/json.h"

struct vl_pattern; /* pattern.h */
struct vl_schema;  /* schema.h */

/* Arguments a rule may take, from --args, --rule or reward.scorers. Members a rule does not know are
 * refused. NaN and NULL: not given. */
struct vl_rule_args {
    enum { VL_GSM8K_STRICT, VL_GSM8K_FLEXIBLE, VL_GSM8K_NUMBER } method;
    double score, format_score;     /* given for a right, for a wrong but well-formed answer */
    int strict_box;                 /* math_dapo: \boxed{} in the last 100 characters only */
    double tolerance;               /* math_verify: of numbers that are not exact */
    int all;                        /* countdown: every number must be used */
    int partial;                    /* tags: a part for some of them */
    double min, max, target, width; /* length: in tokens */
    char *choices;                  /* choice: the letters, "ABCD" */
    char *tags;                     /* tags: their names, each ended by a NUL, then an empty one */
    struct vl_pattern *pattern;     /* regex */
    struct vl_schema *schema;       /* json */
    struct vl_code_args code;       /* code */
};

/* One row. All borrowed. */
struct vl_rule_in {
    const char *text; /* the response, UTF-8 */
    size_t n;
    const char *truth; /* ground truth: a string's text, else its JSON text; "" when absent */
    size_t truth_n;
    const char *truth_json; /* its JSON text; NULL when absent */
    size_t truth_json_n;
    const struct vl_rule_args *args;
    int64_t tokens;                        /* valid tokens of the response */
    const struct vl_code_opts *code_opts;  /* NULL: programs cannot be run */
    const struct vl_code_answers *answers; /* code by a service: what it said; else NULL */
    const float *rm_score; /* the reward model's, NaN where it gave none; NULL: there is no model */
    const struct vl_score *judge;   /* the judge's, NULL: there is none */
    const struct vl_score *process; /* the filter's, program's or function's, likewise */
};

struct vl_rule {
    const char *name;
    const char *args; /* members of --args it takes, "method|score|format_score" */
    const char *help;
    int no_truth; /* needs no ground truth */
    void (*score)(const struct vl_rule_in *in, struct vl_score *out);
};

/* The table, ends with name NULL. */
const struct vl_rule *vl_rules(void);
const struct vl_rule *vl_rule_named(const char *name); /* NULL: none */

/* The rule for a data_source (exact, case-sensitive), or NULL. verl-data asks this too, so that an
 * unknown source fails before anything is generated. */
const struct vl_rule *vl_rule_for_source(const char *data_source, size_t n);
void vl_rule_sources(struct vl_buf *out); /* the known sources, comma-separated */
/* Appends what there is, a few lines a rule: what it does, its members, its sources. */
void vl_rules_help(struct vl_buf *out);

/* Defaults, then the members of a JSON object text (NULL: none). VL_E_USAGE names the member and
 * those the rule takes; rule NULL takes the members of all rules. `where` ("--args") starts the
 * line. Free with vl_rule_args_free, also after an error. */
int vl_rule_args_parse(struct vl_rule_args *a, const struct vl_rule *rule, const char *json,
                       const char *where, struct vl_err *e) VL_MUST_CHECK;
/* Sets one member: value node c + 1 under key node c. */
int vl_rule_args_set(struct vl_rule_args *a, const struct vl_rule *rule, const struct vl_json *j,
                     int64_t c, const char *where, struct vl_err *e) VL_MUST_CHECK;
void vl_rule_args_init(struct vl_rule_args *a);
void vl_rule_args_free(struct vl_rule_args *a);

/* The scorers. */
void vl_score_code(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_exact(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_gsm8k(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_math(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_math_dapo(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_prime_math(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_search_r1(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_search_r1_part(const struct vl_rule_in *in, struct vl_score *out);

void vl_score_rm(const struct vl_rule_in *in, struct vl_score *out);
/* What a scorer outside said of the row, as it is: the rule judge; jq, command, exec and custom. */
void vl_score_judge(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_process(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_math_verify(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_geo3k(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_choice(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_countdown(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_tags(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_regex(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_json(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_length(const struct vl_rule_in *in, struct vl_score *out);

/* Shared by scorers (rules.c). */
/* The score for a wrong but well-formed answer, or what this rule gives when none was set. */
double vl_score_format(const struct vl_rule_in *in, double otherwise);
void vl_score_set(struct vl_score *out, double score); /* score = acc = score */
/* Start of the last `count` code points of s. */
const char *vl_last_chars(const char *s, size_t n, size_t count);

#endif
