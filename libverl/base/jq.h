/* jq.h - user filters, run by libjq. The only place that sees libjq's values. */
#ifndef VL_JQ_H
#define VL_JQ_H

#include "libverl/base/mem.h"

struct vl_jq;

/* args: JSON object text whose members become $name variables, or NULL. VL_E_USAGE when the filter
 * does not compile (jq's own words in the line). */
int vl_jq_open(struct vl_jq **q, const char *filter, const char *args,
               struct vl_err *e) VL_MUST_CHECK;
void vl_jq_free(struct vl_jq *q);
/* Runs the filter on one JSON text; each result's JSON text is appended to out followed by '\n';
 * *nresult counts them. A runtime error is VL_E_DATA. Numbers libjq cannot reproduce digit for
 * digit enter as strings of their digits and are counted in vl_jq_inexact. raw: strings unquoted. */
int vl_jq_run(struct vl_jq *q, const char *json, size_t n, int raw, struct vl_buf *out,
              int64_t *nresult, struct vl_err *e) VL_MUST_CHECK;
/* Runs end at this many results: a filter may have no end of them, and who wants one needs two to know. */
void vl_jq_most(struct vl_jq *q, int64_t results);
int64_t vl_jq_inexact(const struct vl_jq *q);
/* Appends the names of members that the filter reads of its input, each followed by '\n': those seen
 * in its text outside of strings, arguments, definitions and what follows a pipe, and not read with
 * `?` or `//`. There may be more. */
void vl_jq_members(const char *filter, struct vl_buf *out);
/* 0 when the filter certainly does not look at this member of its input, so that it need not be
 * made: its input goes into paths alone, and none of them names it. */
int vl_jq_may_read(const char *filter, const char *member);

#endif
