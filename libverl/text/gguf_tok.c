/* gguf_tok.c - the tokenizer of a GGUF file as Hugging Face's files. See gguf_tok.h.
 *
 * Two kinds are read: "gpt2", a byte-level BPE whose way of cutting text is named (gguf_pre.c), and
 * "llama", a SentencePiece BPE (gguf_spm.c). What the files do not keep is which added tokens take
 * spaces at their sides; none of the supported models has such. */
#include "libverl/text/gguf_tok_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/base/utf8.h"

int vl_gguf_has_tokenizer(const struct vl_gguf *g)
{
    struct vl_err ignored = { 0 };
    const char *model = NULL;
    size_t n = 0;

    if (vl_gguf_str(g, "tokenizer.ggml.model", &model, &n, &ignored))
        return 1; /* vl_gguf_tokenizer says what is wrong */
    return model && !gguf_is(model, n, "none") && !gguf_is(model, n, "no_vocab");
}

static void put_token(struct vl_buf *b, const struct gguf_vocab *v, int64_t id)
{
    (void)vl_json_put_str(b, v->s[id], v->len[id]); /* checked to be UTF-8 */
}

/* ---- tokenizer.json ---- */

static void put_vocab(struct vl_buf *b, const struct gguf_vocab *v)
{
    vl_buf_str(b, "\"vocab\": {");
    for (int64_t i = 0; i < v->own; i++) {
        vl_buf_str(b, i ? ",\n  " : "\n  ");
        put_token(b, v, i);
        vl_buf_printf(b, ": %" PRId64, i);
    }
    vl_buf_str(b, "},\n \"merges\": ");
}

static void put_added(struct vl_buf *b, const struct gguf_vocab *v)
{
    int n = 0;

    vl_buf_str(
        b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n \"added_tokens\": [");
    for (int64_t i = 0; i < v->end; i++) {
        if (!vl_gguf_is_added(v, i))
            continue;
        vl_buf_printf(b, "%s{\"id\": %" PRId64 ", \"content\": ", n++ ? ",\n  " : "\n  ", i);
        put_token(b, v, i);
        vl_buf_printf(b,
                      ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                      "\"normalized\": false, \"special\": %s}",
                      v->type[i] == GGUF_USER_DEFINED ? "false" : "true");
    }
    vl_buf_str(b, "],\n");
}

/* A special token of a template, or the text ($A, $B), with its sequence's number. */
static void put_piece(struct vl_buf *b, const struct gguf_vocab *v, int64_t id, const char *seq,
                      int number)
{
    char last = b->n ? b->s[b->n - 1] : '[';

    vl_buf_str(b, last == '[' ? "" : ", ");
    if (seq) {
        vl_buf_printf(b, "{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}", seq, number);
    } else {
        vl_buf_str(b, "{\"SpecialToken\": {\"id\": ");
        put_token(b, v, id);
        vl_buf_printf(b, ", \"type_id\": %d}}", number);
    }
}

static void put_sequence(struct vl_buf *b, const struct gguf_vocab *v, int64_t bos, int64_t eos,
                         const char *seq, int number)
{
    if (bos >= 0)
        put_piece(b, v, bos, NULL, number);
    put_piece(b, v, -1, seq, number);
    if (eos >= 0)
        put_piece(b, v, eos, NULL, number);
}

/* Ids to add before and after; -1: none. */
static void put_template(struct vl_buf *b, const struct gguf_vocab *v, int64_t bos, int64_t eos)
{
    vl_buf_str(b, "{\"type\": \"TemplateProcessing\", \"single\": [");
    put_sequence(b, v, bos, eos, "A", 0);
    vl_buf_str(b, "], \"pair\": [");
    put_sequence(b, v, bos, eos, "A", 0);
    put_sequence(b, v, bos, eos, "B", 1);
    vl_buf_str(b, "], \"special_tokens\": {");
    for (int k = 0; k < 2; k++) {
        int64_t id = k ? eos : bos;

        if (id < 0 || (k && eos == bos))
            continue;
        vl_buf_str(b, k && bos >= 0 ? ", " : "");
        put_token(b, v, id);
        vl_buf_str(b, ": {\"id\": ");
        put_token(b, v, id);
        vl_buf_printf(b, ", \"ids\": [%" PRId64 "], \"tokens\": [", id);
        put_token(b, v, id);
        vl_buf_str(b, "]}");
    }
    vl_buf_str(b, "}}");
}

/* What to put around a text: bos and eos where the file asks for them and has them. */
static int around(const struct vl_gguf *g, const struct vl_gguf_ids *ids, int bos_by_default,
                  int64_t *bos, int64_t *eos, struct vl_err *e)
{
    int add_bos = bos_by_default, add_eos = 0;

    if (vl_gguf_bool(g, "tokenizer.ggml.add_bos_token", &add_bos, e) ||
        vl_gguf_bool(g, "tokenizer.ggml.add_eos_token", &add_eos, e))
        return e->code;
    *bos = add_bos ? ids->bos : -1;
    *eos = add_eos ? ids->eos : -1;
    return 0;
}

/* The merges of a byte-level BPE as they are, "left right". */
static int put_merges(struct vl_buf *b, const struct vl_gguf *g, struct vl_err *e)
{
    const struct vl_gguf_key *k;
    uint64_t at;

    if (vl_gguf_array(g, "tokenizer.ggml.merges", VL_GGUF_STRING, &k, e))
        return e->code;
    if (!k)
        return vl_fail(e, VL_E_DATA,
                       "%s: key tokenizer.ggml.merges is missing; a gpt2 tokenizer has "
                       "it; " VL_GGUF_ASK,
                       g->name);
    vl_buf_ch(b, '[');
    at = k->at;
    for (uint64_t i = 0; i < k->n; i++) {
        const char *s, *space;
        uint64_t here = at;
        size_t n;

        at = vl_gguf_str_at(g, at, &s, &n);
        space = memchr(s, ' ', n);
        if (!space || space == s || space == s + n - 1 ||
            memchr(space + 1, ' ', (size_t)(s + n - space - 1)) || !vl_utf8_valid(s, n))
            return vl_fail(e, VL_E_DATA,
                           "%s: byte %" PRIu64 ": merge %" PRIu64
                           " is not two pieces of UTF-8 text with a space between them",
                           g->name, here, i);
        vl_buf_str(b, i ? ",\n  " : "\n  ");
        (void)vl_json_put_str(b, s, n);
    }
    vl_buf_str(b, "]");
    return 0;
}

static int put_gpt2(struct vl_buf *b, const struct gguf_vocab *v, const struct vl_gguf_ids *ids,
                    struct vl_err *e)
{
    static const char level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": true}";
    const struct gguf_pre *p;
    const char *name = NULL;
    int64_t bos, eos;
    size_t n = 0;

    if (vl_gguf_str(v->g, "tokenizer.ggml.pre", &name, &n, e))
        return e->code;
    p = vl_gguf_pre(name, n);
    if (!p)
        return vl_fail(e, VL_E_DATA,
                       "%s: tokenizer.ggml.pre is %s%.*s; known are %s; for another, " VL_GGUF_ASK,
                       v->g->name, name ? "" : "missing", n < 60 ? (int)n : 60, name ? name : "",
                       vl_gguf_pre_known);
    if (around(v->g, ids, p->add_bos, &bos, &eos, e))
        return e->code;
    put_added(b, v);
    vl_buf_printf(
        b, " \"normalizer\": %s,\n \"pre_tokenizer\": ", p->nfc ? "{\"type\": \"NFC\"}" : "null");
    vl_gguf_put_pre(b, p);
    vl_buf_str(b, ",\n \"post_processor\": ");
    if (bos >= 0 || eos >= 0) {
        vl_buf_printf(b, "{\"type\": \"Sequence\", \"processors\": [%s, ", level);
        put_template(b, v, bos, eos);
        vl_buf_str(b, "]}");
    } else {
        vl_buf_str(b, level);
    }
    vl_buf_printf(b,
                  ",\n \"decoder\": %s,\n \"model\": {\"type\": \"BPE\", \"dropout\": null, "
                  "\"unk_token\": null, \"continuing_subword_prefix\": null, "
                  "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, "
                  "\"ignore_merges\": %s,\n ",
                  level, p->ignore_merges ? "true" : "false");
    put_vocab(b, v);
    return put_merges(b, v->g, e);
}

/* Whether every byte has its token <0xNN>. */
static int has_bytes(const struct gguf_vocab *v)
{
    int n = 0;

    for (int64_t i = 0; i < v->n; i++)
        n += v->type[i] == GGUF_BYTE;
    return n == 256;
}

static int put_spm(struct vl_buf *b, const struct gguf_vocab *v, const struct vl_gguf_ids *ids,
                   struct vl_err *e)
{
    int prefix = 1, squeeze = 0;
    int64_t bos, eos;

    if (vl_gguf_bool(v->g, "tokenizer.ggml.add_space_prefix", &prefix, e) ||
        vl_gguf_bool(v->g, "tokenizer.ggml.remove_extra_whitespaces", &squeeze, e) ||
        around(v->g, ids, 1, &bos, &eos, e))
        return e->code;
    if (!v->score || squeeze || vl_gguf_find(v->g, "tokenizer.ggml.precompiled_charsmap"))
        return vl_fail(e, VL_E_DATA, "%s: a llama tokenizer %s; " VL_GGUF_ASK, v->g->name,
                       v->score ? "that normalizes text, which is not supported"
                                : "without tokenizer.ggml.scores");
    put_added(b, v);
    vl_buf_printf(b,
                  " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [%s{\"type\": "
                  "\"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\\u2581\"}]},\n "
                  "\"pre_tokenizer\": null,\n \"post_processor\": ",
                  prefix ? "{\"type\": \"Prepend\", \"prepend\": \"\\u2581\"}, " : "");
    put_template(b, v, bos, eos);
    vl_buf_printf(
        b,
        ",\n \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
        "\"pattern\": {\"String\": \"\\u2581\"}, \"content\": \" \"}, {\"type\": "
        "\"ByteFallback\"}, {\"type\": \"Fuse\"}%s]},\n \"model\": {\"type\": \"BPE\", "
        "\"dropout\": null, \"unk_token\": ",
        prefix ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}" : "");
    if (ids->unk >= 0)
        put_token(b, v, ids->unk);
    else
        vl_buf_str(b, "null");
    vl_buf_printf(b,
                  ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                  "\"fuse_unk\": true, \"byte_fallback\": %s, \"ignore_merges\": false,\n ",
                  has_bytes(v) ? "true" : "false");
    put_vocab(b, v);
    return vl_gguf_put_spm_merges(b, v, e);
}

/* ---- tokenizer_config.json ---- */

static int put_template_text(struct vl_buf *b, const struct vl_gguf *g, const char *key,
                             const char *before, int *n, struct vl_err *e)
{
    const char *s = NULL;
    size_t len = 0;

    if (vl_gguf_str(g, key, &s, &len, e) || !s)
        return e->code;
    vl_buf_str(b, before);
    ++*n;
    return vl_json_put_str(b, s, len)
               ? vl_fail(e, VL_E_DATA, "%s: byte %" PRIu64 ": %s is not UTF-8", g->name,
                         vl_gguf_find(g, key)->at, key)
               : 0;
}

/* One template is text; one for rows with tools beside it makes a list of them. */
static int put_chat(struct vl_buf *b, const struct vl_gguf *g, struct vl_err *e)
{
    int n = 0;

    if (!vl_gguf_find(g, "tokenizer.chat_template.tool_use"))
        return put_template_text(b, g, "tokenizer.chat_template", ",\n  \"chat_template\": ", &n,
                                 e);
    vl_buf_str(b, ",\n  \"chat_template\": [");
    if (put_template_text(b, g, "tokenizer.chat_template",
                          "{\"name\": \"default\", \"template\": ", &n, e))
        return e->code;
    vl_buf_str(b, n ? "}, " : "");
    if (put_template_text(b, g, "tokenizer.chat_template.tool_use",
                          "{\"name\": \"tool_use\", \"template\": ", &n, e))
        return e->code;
    vl_buf_str(b, "}]");
    return 0;
}

static int put_config(struct vl_buf *b, const struct gguf_vocab *v, const struct vl_gguf_ids *ids,
                      struct vl_err *e)
{
    static const char *const name[] = { "bos_token", "eos_token", "pad_token", "unk_token" };
    int64_t id[] = { ids->bos, ids->eos, ids->pad, ids->unk };

    vl_buf_str(b, "{\n  \"clean_up_tokenization_spaces\": false");
    for (int k = 0; k < 4; k++) {
        vl_buf_printf(b, ",\n  \"%s\": ", name[k]);
        if (id[k] < 0 || id[k] >= v->end)
            vl_buf_str(b, "null");
        else
            put_token(b, v, id[k]);
    }
    if (put_chat(b, v->g, e))
        return e->code;
    vl_buf_str(b, ",\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
    return 0;
}

int vl_gguf_tokenizer(const struct vl_gguf *g, struct vl_buf *json, struct vl_buf *config,
                      struct vl_err *e)
{
    struct gguf_vocab v = { 0 };
    struct vl_gguf_ids ids;
    const char *model = NULL;
    size_t n = 0;

    if (vl_gguf_str(g, "tokenizer.ggml.model", &model, &n, e))
        return e->code;
    if (!gguf_is(model, n, "gpt2") && !gguf_is(model, n, "llama"))
        return vl_fail(e, VL_E_DATA,
                       "%s: tokenizer.ggml.model is %s%.*s; gpt2 and llama are supported; for "
                       "another, " VL_GGUF_ASK,
                       g->name, model ? "" : "missing", n < 60 ? (int)n : 60, model ? model : "");
    if (!vl_gguf_vocab_read(&v, g, e) && !vl_gguf_ids(g, &ids, e) &&
        !(*model == 'g' ? put_gpt2(json, &v, &ids, e) : put_spm(json, &v, &ids, e))) {
        vl_buf_str(json, "}}\n");
        (void)!put_config(config, &v, &ids, e);
    }
    vl_gguf_vocab_free(&v);
    return e->code;
}
