/* chat.h - a chat template parsed once and used for many conversations. */
#ifndef VL_CHAT_H
#define VL_CHAT_H

#include "libverl/text/tok.h"

struct vl_chat;

/* src: template text; NULL: the tokenizer's own. name starts error lines (a file name). A tokenizer
 * without a template is VL_E_DATA that says how to give one. kwargs: JSON object text whose members
 * become variables, or NULL; they win over the tokenizer's special tokens. */
int vl_chat_open(struct vl_chat **c, const struct vl_tok *t, const char *src, const char *name,
                 const char *kwargs, struct vl_err *e) VL_MUST_CHECK;
void vl_chat_free(struct vl_chat *c);
/* What strftime_now shows: one time for a whole run keeps its rows alike. See jinja.h. */
void vl_chat_set_now(struct vl_chat *c, int64_t seconds, int utc);
/* The text of a template's file, which must be UTF-8 without NUL. Caller frees. */
int vl_chat_read(char **text, const char *path, struct vl_err *e) VL_MUST_CHECK;
/* Appends the rendered text of messages (JSON array text); tools: JSON array text or NULL. */
int vl_chat_apply(struct vl_chat *c, const char *messages, size_t n, const char *tools,
                  int add_generation_prompt, struct vl_buf *out, struct vl_err *e) VL_MUST_CHECK;

#endif
