/* reward_rule.h - rows scored by built-in rules. */
#ifndef VL_REWARD_RULE_H
#define VL_REWARD_RULE_H

#include "libverl/reward/rule_set.h"
#include "libverl/run/reward_process.h"

/* The rules the options ask for: --scorer with --args, --rule, else reward.scorers, else the rule of
 * each row's data_source; and reward.dispatch. What they hold, files of schemas
 * included, is what provenance gets. VL_E_USAGE. */
int vl_reward_rules_read(struct vl_ctx *x, struct vl_rule_set *set, const struct vl_reward_opts *o,
                         struct vl_err *e) VL_MUST_CHECK;
/* --rule help: the rules, to -o. */
int vl_reward_rules_help(struct vl_ctx *x, struct vl_err *e) VL_MUST_CHECK;
/* Fills job->s; a row whose scorer fails has its reason there. VL_E_DATA, before anything is scored,
 * for a row without a rule (with the known sources) or without the ground truth its rule needs. */
int vl_reward_by_rules(struct vl_ctx *x, const struct vl_rule_set *set,
                       const struct vl_reward_opts *o, const struct vl_reward_job *job,
                       struct vl_err *e) VL_MUST_CHECK;

#endif
