/* rule_set.h - which rules score a row: one rule, the rule for its data_source, or several with
 * weights. */
#ifndef VL_RULE_SET_H
#define VL_RULE_SET_H

#include "libverl/reward/rules.h"

struct vl_rule_use {
    const struct vl_rule *rule; /* NULL: by data_source */
    char *name;                 /* its column is score_NAME */
    double weight;
    struct vl_rule_args args;
    char *json; /* the object it was made of, a schema's file replaced by its text; may be NULL */
};

struct vl_rule_source { /* of reward.dispatch */
    char *pattern;
    struct vl_rule_use use;
};

struct vl_rule_set {
    struct vl_rule_use *use; /* in the order given; at least one when ready */
    size_t n;
    int columns; /* each has a column of its own */
    struct vl_rule_source *source;
    size_t nsources;
};
void vl_rule_set_free(struct vl_rule_set *s);

/* Adds the one scorer of --scorer (NULL: by data_source) with the arguments of --args. */
int vl_rule_set_one(struct vl_rule_set *s, const char *name, const char *args,
                    struct vl_err *e) VL_MUST_CHECK;
/* Adds NAME[:WEIGHT][,member=value]...: NAME is a rule or `source`; a value is a JSON text, or else
 * (also where one only seems to start) text up to the next comma. The member `as` names the column. */
int vl_rule_set_add(struct vl_rule_set *s, const char *spec, struct vl_err *e) VL_MUST_CHECK;
/* Adds a JSON list, whose elements are such texts or {"name":..., "weight":..., "as":..., member:
 * value...} (reward.scorers). */
int vl_rule_set_json(struct vl_rule_set *s, const char *json, struct vl_err *e) VL_MUST_CHECK;
/* reward.dispatch: {"pattern": "rule" or "known data_source" or {"name":..., member: value...}}; *, ?
 * and [...] in patterns as in file names. */
int vl_rule_set_dispatch(struct vl_rule_set *s, const char *json, struct vl_err *e) VL_MUST_CHECK;

/* What scores, for provenance: the uses as a JSON list, then the dispatch as an object; files are
 * replaced by what they hold. NULL when none was given as an object. Caller frees. */
char *vl_rule_set_uses(const struct vl_rule_set *s);
char *vl_rule_set_map(const struct vl_rule_set *s);

/* The use for a data_source: the first pattern that matches, else verl's table with `otherwise`'s
 * arguments; *rule is what scores. NULL when there is none. */
const struct vl_rule_use *vl_rule_set_find(const struct vl_rule_set *s,
                                           const struct vl_rule_use *otherwise,
                                           const char *data_source, size_t n,
                                           const struct vl_rule **rule);
/* Whether every row of this source has its rules, and whether one of them needs a ground truth. */
int vl_rule_set_covers(const struct vl_rule_set *s, const char *data_source, size_t n, int *truth);
/* The arguments of the rule code when it is one of those that score this source, else NULL. */
const struct vl_rule_args *vl_rule_set_code(const struct vl_rule_set *s, const char *data_source,
                                            size_t n);
/* Whether it may be for some source. */
int vl_rule_set_may_code(const struct vl_rule_set *s);
/* Whether a rule is among those that score this source; data_source NULL: some source. */
int vl_rule_set_names(const struct vl_rule_set *s, const struct vl_rule *rule,
                      const char *data_source, size_t n);
/* The sources that have a rule, comma-separated. */
void vl_rule_set_sources(const struct vl_rule_set *s, struct vl_buf *out);

/* Scores one row; in->args is not used. The score is the sum of weight * score; acc is that of the
 * first scorer. With columns, extra gets score_NAME of each, and members are called NAME_MEMBER when
 * there are several scorers. A scorer that fails makes the row invalid, its name before the reason. */
void vl_rule_set_score(const struct vl_rule_set *s, const struct vl_rule_in *in,
                       const char *data_source, size_t n, struct vl_score *out);

#endif
