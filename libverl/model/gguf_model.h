/* gguf_model.h - a GGUF file as a model: config.json from its keys, weights under Hugging Face's names.
 *
 * Architectures llama (and with it Mistral and SmolLM), qwen2 and qwen3. llama.cpp rotates neighbouring
 * elements of a Llama head where transformers rotates its halves, so such files have the rows of q and
 * k in another order, which is undone here. */
#ifndef VL_GGUF_MODEL_H
#define VL_GGUF_MODEL_H

#include "formats/gguf.h"
#include "libverl/model/model.h"

/* The model, its weights as fp32, generation_json filled; stored_dtype is "BF16" or "F16" when most
 * bytes are, else "F32" (which holds what quantized blocks mean). head as for vl_model_new. Every tensor
 * must be there with the shape that the keys ask for, and none that has no place. VL_E_DATA names key
 * or tensor, what was found and what was expected. Free with vl_model_free. */
int vl_gguf_model(struct vl_model **m, const struct vl_gguf *g, enum vl_head head,
                  struct vl_err *e) VL_MUST_CHECK;

/* config.json's and generation_config.json's texts, appended. */
int vl_gguf_config(const struct vl_gguf *g, struct vl_buf *config, struct vl_buf *generation,
                   struct vl_err *e) VL_MUST_CHECK;

#endif
