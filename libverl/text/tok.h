/* tok.h - text and token ids: tokenizer.json, special tokens, chat templates. */
#ifndef VL_TOK_H
#define VL_TOK_H

#include "libverl/base/mem.h"

struct vl_tok;

struct vl_ids {
    int32_t *id;
    size_t n, cap;
};
void vl_ids_add(struct vl_ids *x, int32_t id);
void vl_ids_free(struct vl_ids *x);

/* dir: a model directory with tokenizer.json (and tokenizer_config.json), or the json file. An
 * unknown component of tokenizer.json is VL_E_DATA naming it. */
int vl_tok_open(struct vl_tok **t, const char *dir, struct vl_err *e) VL_MUST_CHECK;
void vl_tok_free(struct vl_tok *t);

enum {
    VL_TOK_SPECIAL = 1,  /* run the post-processor (adds <s> and the like) */
    VL_TOK_NO_PARSE = 2, /* text that spells a special token is ordinary text */
};
/* Appends the ids of text (n bytes; bytes that are not UTF-8 become U+FFFD first). */
int vl_tok_encode(const struct vl_tok *t, const char *text, size_t n, unsigned flags,
                  struct vl_ids *out, struct vl_err *e) VL_MUST_CHECK;
/* Appends the text; never fails: ids out of range are skipped. */
void vl_tok_decode(const struct vl_tok *t, const int32_t *ids, size_t n, int skip_special,
                   struct vl_buf *out);

int32_t vl_tok_id(const struct vl_tok *t, const char *token, size_t n); /* -1: not in vocabulary */
int64_t vl_tok_size(const struct vl_tok *t);                            /* largest id + 1 */
int32_t vl_tok_bos(const struct vl_tok *t);                             /* -1: none */
int32_t vl_tok_eos(const struct vl_tok *t);
int32_t vl_tok_pad(const struct vl_tok *t);
const char *vl_tok_template(const struct vl_tok *t); /* chat template text or NULL */
const char *vl_tok_hash(const struct vl_tok *t); /* 32 hex digits of tokenizer.json's XXH3-128 */

/* Renders messages (JSON array of {role, content, ...}) by the template `tmpl` (NULL: the
 * tokenizer's). kwargs: JSON object text or NULL; tools: JSON array text or NULL. A list without a
 * template is VL_E_DATA that says how to give one. */
int vl_chat_render(const struct vl_tok *t, const char *tmpl, const char *messages, size_t n,
                   const char *tools, const char *kwargs, int add_generation_prompt,
                   struct vl_buf *out, struct vl_err *e) VL_MUST_CHECK;

#endif
