/* gguf_tok_impl.h - what the gguf_*.c of this directory share. */
#ifndef VL_GGUF_TOK_IMPL_H
#define VL_GGUF_TOK_IMPL_H

#include <string.h>

#include "libverl/text/gguf_tok.h"

#define VL_GGUF_ASK "give the original's tokenizer files with --tokenizer DIR"

static inline int gguf_is(const char *s, size_t n, const char *want)
{
    return s && n == strlen(want) && memcmp(s, want, n) == 0;
}

/* tokenizer.ggml.token_type */
enum { GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER_DEFINED, GGUF_UNUSED, GGUF_BYTE };

/* The vocabulary of a file, by id. Texts are borrowed from it. */
struct gguf_vocab {
    const struct vl_gguf *g;
    int64_t n;
    const char **s;
    size_t *len;
    int32_t *type;
    float *score; /* NULL: the file has none */
    int64_t own;  /* ids below are in the model's vocabulary, those from here on only added ones */
    int64_t end;  /* ids from here on are unused and left out */
};

/* VL_E_DATA on text that is not UTF-8, a text twice, a type or score that is none. Free it with
 * vl_gguf_vocab_free, also after an error. */
int vl_gguf_vocab_read(struct gguf_vocab *v, const struct vl_gguf *g,
                       struct vl_err *e) VL_MUST_CHECK;
void vl_gguf_vocab_free(struct gguf_vocab *v);
int vl_gguf_is_added(const struct gguf_vocab *v, int64_t id); /* looked for in raw text */

/* How a byte-level BPE cuts its text: by the name in tokenizer.ggml.pre. */
struct gguf_pre {
    const char *names;    /* those that mean this, "|" between them */
    const char *split[4]; /* regexes, each cutting what the one before left */
    int digits;           /* each digit alone, before anything else */
    int gpt2;             /* ByteLevel's own regex, after anything else */
    int nfc;
    int ignore_merges;
    int add_bos; /* where the file does not say */
};
const struct gguf_pre *vl_gguf_pre(const char *name, size_t n);   /* NULL: not known */
extern const char vl_gguf_pre_known[];                            /* the names, for messages */
void vl_gguf_put_pre(struct vl_buf *b, const struct gguf_pre *p); /* the pre_tokenizer's value */

/* Appends SentencePiece's merges as the list of tokenizer.json. */
int vl_gguf_put_spm_merges(struct vl_buf *b, const struct gguf_vocab *v,
                           struct vl_err *e) VL_MUST_CHECK;

#endif
