/* judge.h - what a generative judge answers: a chat completion of an OpenAI-compatible server. */
#ifndef VL_JUDGE_H
#define VL_JUDGE_H

#include "libverl/base/mem.h"

struct vl_judge_answer {
    struct vl_buf text;    /* the first choice's message */
    int64_t prompt_tokens; /* as the server counts, 0 when it does not */
    int64_t completion_tokens;
    char *why; /* NULL, or why there is no text, one line */
};
void vl_judge_answer_free(struct vl_judge_answer *a);

/* Reads a response body into *a (zeroed before). Content is a string or a list of parts with text.
 * An {"error": ...}, a refusal, no or empty content and what is not a completion give a `why`. */
void vl_judge_read(struct vl_judge_answer *a, const char *json, size_t n);
/* The same for another endpoint's answer, any JSON but an {"error": ...}: text stays empty. */
void vl_judge_read_any(struct vl_judge_answer *a, const char *json, size_t n);

/* What --judge-request and --judge-filter are without being given; verl-reward(1) shows them. */
extern const char vl_judge_default_request[], vl_judge_default_filter[];

/* The jq program that turns a row into {"request": BODY}: `filter` gives a string (the user's
 * message), a list of messages or an object (members of the body); `params`, JSON object text, are
 * further members, which the filter's win over. Caller frees. */
char *vl_judge_program(const char *filter, const char *model, const char *params);

#endif
