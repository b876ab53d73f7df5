/* rollout_text.h - what sampling needs a tokenizer for: stop strings and banned words. */
#ifndef VL_ROLLOUT_TEXT_H
#define VL_ROLLOUT_TEXT_H

#include "libverl/base/opt.h"
#include "libverl/engine/steer.h"
#include "libverl/text/tok.h"

/* Watches the text of `rows` responses for stop strings, token by token. Special tokens count as the
 * text they are written as; a character is looked at when all its bytes are there. */
struct vl_stop_text;

struct vl_stop_text *vl_stop_text_new(const struct vl_tok *t, const struct vl_strs *stops,
                                      int64_t rows); /* borrows t and stops */
void vl_stop_text_free(struct vl_stop_text *s);
/* 1: with this id a stop string is complete. 0 for every later id of that row, too. */
int vl_stop_text_push(struct vl_stop_text *s, int64_t row, int32_t id);

/* The ids of each word as it stands at the start of a text and after a blank: r->word, words and
 * nwords, freed with vl_banned_words_free. VL_E_USAGE for an empty word. */
int vl_banned_words(struct vl_rules *r, const struct vl_tok *t, const struct vl_strs *words,
                    struct vl_err *e) VL_MUST_CHECK;
void vl_banned_words_free(struct vl_rules *r);

/* "ID=X" (X a number or -inf) of each text: r->bias, ascending ids; free it. VL_E_USAGE. */
int vl_logit_biases(struct vl_rules *r, const struct vl_strs *texts, int64_t V,
                    struct vl_err *e) VL_MUST_CHECK;

#endif
