/* rules.h - built-in scorers and which data_source each is for (verl's names, verl's scores).
 *
 * Lengths are in code points and "last" is the right-most match, as in verl. */
#ifndef VL_RULES_H
#define VL_RULES_H

#include "libverl/reward/score.h"

/* Arguments a rule may take, from --args. Members a rule does not know are refused. */
struct vl_rule_args {
    enum { VL_GSM8K_STRICT, VL_GSM8K_FLEXIBLE, VL_GSM8K_NUMBER } method;
    double score, format_score; /* given for a right, for a wrong but well-formed answer */
    int strict_box;             /* math_dapo: \boxed{} in the last 100 characters only */
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
};

struct vl_rule {
    const char *name;
    const char *args; /* members of --args it takes, "method|score|format_score" */
    const char *help;
    void (*score)(const struct vl_rule_in *in, struct vl_score *out);
};

/* The table, ends with name NULL. */
const struct vl_rule *vl_rules(void);
const struct vl_rule *vl_rule_named(const char *name); /* NULL: none */

/* The rule for a data_source (exact, case-sensitive), or NULL. verl-data asks this too, so that an
 * unknown source fails before anything is generated. */
const struct vl_rule *vl_rule_for_source(const char *data_source, size_t n);
void vl_rule_sources(struct vl_buf *out); /* the known sources, comma-separated */

/* Defaults, then the members of a JSON object text (NULL: none). VL_E_USAGE names the member and
 * those the rule takes; rule NULL takes the members of all rules. */
int vl_rule_args_parse(struct vl_rule_args *a, const struct vl_rule *rule, const char *json,
                       struct vl_err *e) VL_MUST_CHECK;

/* The scorers. */
void vl_score_exact(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_gsm8k(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_math(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_math_dapo(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_prime_math(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_search_r1(const struct vl_rule_in *in, struct vl_score *out);
void vl_score_search_r1_part(const struct vl_rule_in *in, struct vl_score *out);

/* Shared by scorers (rules.c). */
void vl_score_set(struct vl_score *out, double score); /* score = acc = score */
/* Start of the last `count` code points of s. */
const char *vl_last_chars(const char *s, size_t n, size_t count);

#endif
