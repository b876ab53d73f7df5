/* gguf_pre.c - tokenizer.ggml.pre: which pre-tokenizer a byte-level BPE of a GGUF file was trained with.
 *
 * The files name it, llama.cpp has it built in. Below are the components of the original models'
 * tokenizer.json, or for "default" llama.cpp's own cuts. A name that is not here is refused: its text
 * would be cut in other places, and the ids would be others without anything looking wrong. */
#include "libverl/text/gguf_tok_impl.h"

#include <string.h>

#include "formats/json.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define MARKS        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define QWEN2        CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" MARKS SPACES

const char vl_gguf_pre_known[] =
    "smollm, llama-bpe, qwen2, deepseek-r1-qwen, deepseek-v3, tekken, gpt-2, default";

static const struct gguf_pre table[] = {
    { .names = "llama-bpe|llama3|llama-v3|falcon3",
      .split = { CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" MARKS SPACES },
      .ignore_merges = 1,
      .add_bos = 1 },
    { .names = "qwen2", .split = { QWEN2 }, .nfc = 1 },
    { .names = "deepseek-r1-qwen", .split = { QWEN2 } },
    { .names = "smollm|starcoder|refact|command-r", .digits = 1, .gpt2 = 1 },
    { .names = "gpt-2", .gpt2 = 1 },
    { .names = "deepseek-v3",
      .split = { "\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                 "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                 "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*" SPACES } },
    { .names = "tekken",
      .split = { "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
                 "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES },
      .ignore_merges = 1,
      .add_bos = 1 },
    { .names = "default",
      .split = { "[\\p{P}\\$\\+<=>\\^~\\|]+",
                 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
                 "\\p{N}+", "[0-9][0-9][0-9]" } },
};

const struct gguf_pre *vl_gguf_pre(const char *name, size_t n)
{
    for (size_t i = 0; n && i < sizeof table / sizeof *table; i++)
        for (const char *s = table[i].names; *s; s += *s == '|') {
            size_t len = strcspn(s, "|");

            if (len == n && memcmp(s, name, n) == 0)
                return &table[i];
            s += len;
        }
    return NULL;
}

void vl_gguf_put_pre(struct vl_buf *b, const struct gguf_pre *p)
{
    vl_buf_str(b, "{\"type\": \"Sequence\", \"pretokenizers\": [");
    if (p->digits)
        vl_buf_str(b, "{\"type\": \"Digits\", \"individual_digits\": true}, ");
    for (int i = 0; i < 4 && p->split[i]; i++) {
        vl_buf_str(b, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        vl_json_put_str(b, p->split[i], strlen(p->split[i]));
        vl_buf_str(b, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    vl_buf_printf(b,
                  "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                  "\"use_regex\": %s}]}",
                  p->gpt2 ? "true" : "false");
}
