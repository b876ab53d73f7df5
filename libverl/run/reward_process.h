/* reward_process.h - rows scored by processes: jq filters, commands, verl's Python functions. */
#ifndef VL_REWARD_PROCESS_H
#define VL_REWARD_PROCESS_H

#include "libverl/reward/score.h"
#include "libverl/reward/scorers.h"
#include "libverl/run/reward_rows.h"
#include "libverl/run/stage_reward.h"

/* The rows one rank scores. */
struct vl_reward_job {
    const struct vl_reward_rows *rows;
    const int64_t *asked; /* row numbers */
    int64_t nasked;
    struct vl_score *s; /* row i's score is s[i - first] */
    int64_t first;
    const struct vl_score *judge, *process; /* like s, where rules take them in; or NULL */
};

/* --on-error; where it is not given, prime's manager gives failed rows the value (0), others stop. */
const char *vl_reward_policy(const struct vl_ctx *x, const struct vl_reward_opts *o);
/* Whether the options name a scorer that is a process, and the rule that stands for it: NULL, "jq",
 * "command", "exec" or "custom". */
int vl_reward_has_process(const struct vl_reward_opts *o);
const char *vl_reward_process_rule(const struct vl_reward_opts *o);
/* What can be refused before anything is read: a function's file, python3. */
int vl_reward_process_check(struct vl_ctx *x, const struct vl_reward_opts *o,
                            struct vl_err *e) VL_MUST_CHECK;
/* Whether all rows go into one call (reward_manager.name=batch with a function of the user's): they
 * cannot be divided among ranks then. */
int vl_reward_one_call(const struct vl_reward_opts *o);
/* Whether lines may leave out prompt, ids and args: the scorer cannot look at them. */
int vl_reward_brief(const struct vl_reward_opts *o);
/* Fills job->s. A row whose scorer failed has its reason there; with --on-error fail rows behind
 * the first such one may be left without either. Errors are the pool's (scorers.h). */
int vl_reward_by_process(struct vl_ctx *x, const struct vl_reward_opts *o,
                         const struct vl_reward_job *job, struct vl_err *e) VL_MUST_CHECK;

/* The pool of the options' scorer over `rows` rows and those that io->arrived brings. */
int vl_reward_pool(struct vl_ctx *x, const struct vl_reward_opts *o, int64_t rows,
                   const struct vl_scorers_io *io, struct vl_err *e) VL_MUST_CHECK;

/* Warns of members that the filters of --jq and --judge-request read and no row's line has: such
 * a filter sees null, and its score is the same for every row. */
void vl_reward_warn_members(struct vl_ctx *x, const struct vl_reward_opts *o,
                            const struct vl_reward_rows *rows);

#endif
