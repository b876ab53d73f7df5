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
    VL_TOK_MARKED = 4,   /* the same, only for those that vl_tok_mark has marked */
};
/* Appends the ids of text (n bytes; bytes that are not UTF-8 become U+FFFD first). */
int vl_tok_encode(const struct vl_tok *t, const char *text, size_t n, unsigned flags,
                  struct vl_ids *out, struct vl_err *e) VL_MUST_CHECK;
/* Appends the text; never fails: ids out of range are skipped. */
void vl_tok_decode(const struct vl_tok *t, const int32_t *ids, size_t n, int skip_special,
                   struct vl_buf *out);

/* Streaming decode, for stop strings and terminals: push appends the text that is certain so far,
 * never half a character; end appends the rest (U+FFFD for a character that stayed unfinished) and
 * starts over. All pieces together are vl_tok_decode of all ids, unless a byte-fallback decoder met
 * a malformed run of bytes: it judges a run as a whole, a stream has shown its beginning by then. */
struct vl_tok_stream;
struct vl_tok_stream *vl_tok_stream_new(const struct vl_tok *t, int skip_special);
void vl_tok_stream_free(struct vl_tok_stream *s);
void vl_tok_stream_push(struct vl_tok_stream *s, int32_t id, struct vl_buf *out);
void vl_tok_stream_end(struct vl_tok_stream *s, struct vl_buf *out);

int32_t vl_tok_id(const struct vl_tok *t, const char *token, size_t n); /* -1: not in vocabulary */
int64_t vl_tok_size(const struct vl_tok *t);                            /* largest id + 1 */
int32_t vl_tok_bos(const struct vl_tok *t);                             /* -1: none */
int32_t vl_tok_eos(const struct vl_tok *t);
int32_t vl_tok_pad(const struct vl_tok *t); /* the eos id when no pad token is named */
const char *vl_tok_text(const struct vl_tok *t, int32_t id, size_t *n); /* NULL: no such token */
int vl_tok_is_special(const struct vl_tok *t, int32_t id);
/* The pieces BPE would see, one call each in order (added tokens are not looked for): for finding
 * where an encoding goes wrong. */
int vl_tok_pretokens(const struct vl_tok *t, const char *text, size_t n,
                     void (*piece)(void *arg, const char *s, size_t n), void *arg,
                     struct vl_err *e) VL_MUST_CHECK;
/* Appends the text with VL_TOK_MARK inside each special token it spells, so that a template can put it
 * beside real ones; vl_tok_encode with VL_TOK_MARKED takes the marks out again. VL_E_DATA when the
 * text has that character already (Unicode calls it no character, so no text should), or when the
 * tokenizer looks for special tokens in normalized text, where marks would get lost. */
#define VL_TOK_MARK "\xEF\xB7\x90" /* U+FDD0 */
int vl_tok_mark(const struct vl_tok *t, const char *text, size_t n, struct vl_buf *out,
                struct vl_err *e) VL_MUST_CHECK;
/* How many special tokens the text spells (0 with text that NO_PARSE would not change). */
int64_t vl_tok_count_special(const struct vl_tok *t, const char *text, size_t n);
const char *vl_tok_template(const struct vl_tok *t); /* chat template text or NULL */
/* Appends what else its directory says: tokenizer_config.json and its templates. */
void vl_tok_texts(const struct vl_tok *t, struct vl_buf *out);
const char *vl_tok_hash(const struct vl_tok *t); /* 32 hex digits of tokenizer.json's XXH3-128 */

#endif
