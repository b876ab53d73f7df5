/* gguf_tok.h - the tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json. */
#ifndef VL_GGUF_TOK_H
#define VL_GGUF_TOK_H

#include "formats/gguf.h"

/* tokenizer.ggml.*_token_id; -1: none. With model "llama" an absent bos, eos and unk are 1, 2 and 0,
 * as in llama.cpp. */
struct vl_gguf_ids {
    int64_t bos, eos, eot, eom, unk, pad;
};
int vl_gguf_ids(const struct vl_gguf *g, struct vl_gguf_ids *out, struct vl_err *e) VL_MUST_CHECK;

/* Whether the file has a vocabulary: not when tokenizer.ggml.model is absent, "none" or "no_vocab". */
int vl_gguf_has_tokenizer(const struct vl_gguf *g);

/* Appends the two files' texts. A kind of tokenizer, or a name of a pre-tokenizer, whose ids would only
 * be near those of the original is VL_E_DATA that names it and asks for --tokenizer. */
int vl_gguf_tokenizer(const struct vl_gguf *g, struct vl_buf *json, struct vl_buf *config,
                      struct vl_err *e) VL_MUST_CHECK;

#endif
