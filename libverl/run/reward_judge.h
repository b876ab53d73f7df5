/* reward_judge.h - rows scored by a generative judge behind an OpenAI-compatible HTTP endpoint. */
#ifndef VL_REWARD_JUDGE_H
#define VL_REWARD_JUDGE_H

#include <math.h>

#include "libverl/run/stage.h"

struct vl_judge_opts {
    const char *url;     /* --judge; NULL: no judge */
    const char *path;    /* --judge-endpoint, under the URL */
    const char *model;   /* --judge-model */
    const char *request; /* --judge-request, a jq filter; NULL: vl_judge_default_request */
    const char *filter;  /* --judge-filter, a jq filter; NULL: vl_judge_default_filter */
    const char *params;  /* --judge-params, JSON object text; NULL: temperature 0 for a chat */
    const char *key_env; /* --judge-key-env or NULL */
    int64_t concurrent;  /* reward_model.max_concurrent */
    double timeout;      /* seconds a row, all tries together: reward_model.timeout */
    double try_timeout;  /* seconds a try */
    int64_t retries;     /* tries after the first */
    double rpm, tpm;     /* reward_model.max_rpm, max_tpm: requests, tokens a minute; NAN: any */
    int64_t estimated;   /* tokens of a request: reward_model.estimated_tokens_per_request */
};
#define VL_JUDGE_DEFAULTS                                                                          \
    {                                                                                              \
        .path = "chat/completions", .concurrent = 16, .timeout = 300, .try_timeout = 120,          \
        .retries = 3, .rpm = NAN, .tpm = NAN, .estimated = 2000                                    \
    }

struct vl_judge_usage {
    int64_t answers, again, prompt_tokens, completion_tokens;
};

struct vl_reward_job;
struct vl_reward_opts;

/* VL_E_USAGE: a URL, filter or parameter that cannot be; before anything is read. */
int vl_judge_check(struct vl_ctx *x, const struct vl_reward_opts *o,
                   struct vl_err *e) VL_MUST_CHECK;
/* Fills job->s: a score and judge_text in its extra members, or the reason why there is none (then
 * also with judge_text, when the judge wrote something). With --on-error fail rows behind the first
 * failure may be left without either. Errors are those of the run: no libcurl, a key that is not
 * set. */
int vl_judge_rows(struct vl_ctx *x, const struct vl_reward_opts *o, const struct vl_reward_job *job,
                  struct vl_judge_usage *u, struct vl_err *e) VL_MUST_CHECK;

#endif
