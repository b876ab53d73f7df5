/* score.h - one row's score, and reading one from what a scorer answers.
 *
 * A failure is never a score: a row is scored, or it is invalid with a reason. */
#ifndef VL_SCORE_H
#define VL_SCORE_H

#include "libverl/base/mem.h"

struct vl_score {
    double score;        /* finite, fits float32; meaningless when invalid */
    double acc;          /* the scorer's own acc, else the score */
    double extra_reward; /* what managers add to the score: the reward is their sum */
    char *extra;         /* JSON object text of the answer's other members, or NULL; free() */
    char *why;           /* NULL: scored. Else the reason why there is no score, one line; free() */
};

void vl_score_free(struct vl_score *s);
/* Makes *s invalid for this reason (control characters become spaces); drops what it held. */
void vl_score_fail(struct vl_score *s, const char *fmt, ...) VL_PRINTF(2, 3);

/* Adds members to s->extra: text such as "\"a\":1,\"b\":true". */
void vl_score_add(struct vl_score *s, const char *members);

/* Reads an answer, one JSON text: a number, true or false (1, 0), an array whose first element is
 * one of these, or an object with such a `score`, optionally `acc`, further members (extra), or
 * {"error": TEXT} for "cannot be scored". `id` is left out of extra. Anything else makes *s
 * invalid. A NULL text is an empty answer. */
void vl_score_parse(struct vl_score *s, const char *json, size_t n);

#endif
