/* data_talk.h - conversations: their messages, their text, their turns. Of verl-data. */
#ifndef VL_DATA_TALK_H
#define VL_DATA_TALK_H

#include "libverl/run/data_impl.h"

/* A conversation as JSON text; end[k] is where message k ends, so that any beginning can be cut. */
struct vl_talk {
    struct vl_buf text; /* "[m0, m1, ..." without the closing bracket */
    size_t *end;
    unsigned char *assistant; /* whose answers are trained on */
    int64_t n;
};

/* The first `last` messages of a list, or a string as one user message, after the system message of
 * --system where it has none. */
void vl_talk_begin(struct vl_talk *t, const struct vl_row_work *w, const struct vl_json *j,
                   int64_t at, int64_t last);
/* Adds messages first..last - 1 of a list, or a string as one user message. */
void vl_talk_add(struct vl_talk *t, const struct vl_json *j, int64_t at, int64_t first,
                 int64_t last);
void vl_talk_free(struct vl_talk *t);
/* The JSON text of the first n messages, appended. */
void vl_talk_cut(const struct vl_talk *t, int64_t n, struct vl_buf *out);
/* The first n messages as the template writes them, appended; gen: with a generation prompt. Marks of
 * --plain-special are in the text: encode it with vl_row_encode. */
int vl_talk_render(struct vl_row_work *w, const struct vl_row *r, const struct vl_talk *t,
                   int64_t n, int gen, struct vl_buf *out, struct vl_err *e) VL_MUST_CHECK;
/* Message k alone, without a system prompt that the template adds by itself. */
int vl_talk_alone(struct vl_row_work *w, const struct vl_row *r, const struct vl_talk *t, int64_t k,
                  int gen, struct vl_buf *out, struct vl_err *e) VL_MUST_CHECK;
/* Whether a conversation ends where its last turn does: not with a template that writes a generation
 * prompt whether or not it is asked for one (Llama 3's first). Tried on messages of our own; a template
 * that will not have them is taken to. */
int vl_talk_ends(struct vl_row_work *w, const struct vl_row *r);
int vl_row_encode(const struct vl_row_work *w, const struct vl_row *r, const char *s, size_t n,
                  struct vl_ids *out, struct vl_err *e) VL_MUST_CHECK;
/* Special tokens spelled by what people wrote: a string, or the strings of messages but their roles. */
int64_t vl_count_special(const struct vl_row_work *w, const struct vl_json *j, int64_t at);

/* ---- data_turns.c ---- */

/* Messages from.. are the response: their assistant's tokens are trained on, the others are not.
 * What follows the last assistant message is neither. */
int vl_tokenize_turns(struct vl_row_work *w, const struct vl_row *r, const struct vl_talk *t,
                      int64_t from, struct vl_ids *prompt, struct vl_reply *reply,
                      struct vl_err *e) VL_MUST_CHECK;

#endif
