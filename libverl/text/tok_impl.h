/* tok_impl.h - what a loaded tokenizer consists of. Private to libverl/text.
 *
 * Each part of tokenizer.json is a flat list of steps (a Sequence is spliced into its parent) in a
 * file of its own: added.c, normalize.c, charsmap.c, pretok.c, decode.c, and bpe.c, unigram.c or
 * words.c for the model; tok_load.c, tok_steps.c and tok_model.c read the JSON. */
#ifndef VL_TOK_IMPL_H
#define VL_TOK_IMPL_H

#include "libverl/text/tok.h"
#include "libverl/text/regex.h"

#define VL_TOK_MAX_ID (1 << 22) /* ids above this are refused: a typo, not a vocabulary */

/* Strings to ids and back. */
struct vl_vocab {
    char *pool;
    size_t pool_n, pool_cap;
    uint32_t *off, *len; /* by id; len UINT32_MAX: no such token */
    int64_t size;        /* largest id + 1 */
    uint64_t *slot;      /* open addressing: hash's high half | id + 1; 0 = empty */
    uint64_t mask;
    int32_t one[0x800]; /* ids of the tokens that are one character below U+0800, or -1 */
    int32_t byte[256];  /* ids of <0x00> to <0xFF> (byte fallback), or -1 */
};
void vl_vocab_init(struct vl_vocab *v, int64_t size, int64_t entries, size_t bytes);
void vl_vocab_free(struct vl_vocab *v);
/* id < size; a string given twice keeps its last id, as a dictionary would. */
void vl_vocab_add(struct vl_vocab *v, const char *s, size_t n, int32_t id);
int32_t vl_vocab_get(const struct vl_vocab *v, const char *s, size_t n); /* -1: none */
/* The same in two steps, for many lookups in a row: the first starts fetching the table's line. */
uint64_t vl_vocab_hash(const struct vl_vocab *v, const char *s, size_t n);
int32_t vl_vocab_get_hashed(const struct vl_vocab *v, const char *s, size_t n, uint64_t h);
void vl_vocab_find_bytes(struct vl_vocab *v); /* fills byte[] */
/* Appends the byte tokens of the text, all or none: 1 or 0. */
int vl_vocab_put_bytes(const struct vl_vocab *v, const char *s, size_t n, struct vl_ids *out);

struct vl_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX = empty */
    uint32_t rank;
    int32_t id; /* of the merged token */
};

struct vl_bpe {
    const struct vl_vocab *vocab;
    struct vl_merge *merge; /* open addressing */
    uint64_t mask;
    int byte_fallback, fuse_unk, ignore_merges;
    int32_t unk;           /* -1: none */
    char *unk_missing;     /* an unknown token that is not in the vocabulary; NULL = no such */
    char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; NULL = none */
    int by_word;        /* texts may be cut in front of a U+2581 that follows something else ... */
    uint8_t joins[256]; /* ... unless that ends in such a byte: a merge joins it to what comes */
};
#define VL_LOWER_BLOCK "\xE2\x96\x81" /* U+2581, SentencePiece's space */
void vl_bpe_want_merge(const struct vl_bpe *b, int32_t left, int32_t right); /* starts fetching */
void vl_bpe_add_merge(struct vl_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* Appends the ids of one pre-token. VL_E_DATA when the unknown token is wanted and missing. */
int vl_bpe_encode(const struct vl_bpe *b, const char *s, size_t n, struct vl_ids *out,
                  struct vl_err *e) VL_MUST_CHECK;

#define VL_UNIGRAM_ID_MASK (((uint64_t)1 << 23) - 1) /* VL_TOK_MAX_ID and 1 more */
/* A trie node is its place in an open-addressing table: the node before it, the byte that leads here
 * and what is stored (id + 1, 0 for none), in one word. */
struct vl_unigram {
    const struct vl_vocab *vocab;
    double *score; /* by id */
    uint64_t *node;
    uint64_t mask;
    double unk_score; /* the lowest score less 10 */
    int32_t unk;      /* -1: none */
    int byte_fallback;
};
void vl_unigram_build(struct vl_unigram *u); /* the trie, of all tokens in the vocabulary */
/* Appends the ids of one pre-token: the pieces with the largest sum of scores. VL_E_DATA when a
 * character is in no piece and there is no unknown token. */
int vl_unigram_encode(const struct vl_unigram *u, const char *s, size_t n, struct vl_ids *out,
                      struct vl_err *e) VL_MUST_CHECK;

/* WordPiece: the longest piece first, from the left; WordLevel: whole pre-tokens. */
struct vl_words {
    const struct vl_vocab *vocab;
    int whole;
    char *prefix; /* of the pieces after the first */
    size_t max_chars;
    int32_t unk; /* -1: none */
    char *unk_text;
};
int vl_words_encode(const struct vl_words *w, const char *s, size_t n, struct vl_ids *out,
                    struct vl_err *e) VL_MUST_CHECK;

/* A pattern of Split and Replace: a regex or a literal string. */
struct vl_pattern {
    struct vl_regex *re; /* NULL: the string */
    char *str;
    size_t n;
};

enum vl_norm_type {
    VL_NORM_NFC,
    VL_NORM_NFD,
    VL_NORM_NFKC,
    VL_NORM_NFKD,
    VL_NORM_LOWERCASE,
    VL_NORM_PREPEND,
    VL_NORM_REPLACE,
    VL_NORM_STRIP,
    VL_NORM_STRIP_ACCENTS,
    VL_NORM_BYTE_LEVEL,
    VL_NORM_NMT,
    VL_NORM_BERT_ACCENTS,
    VL_NORM_BERT_CLEAN, /* BertNormalizer is up to five steps: NFD and Lowercase too */
    VL_NORM_BERT_CHINESE,
    VL_NORM_CHARSMAP, /* Precompiled */
};
struct vl_norm {
    enum vl_norm_type type;
    struct vl_pattern pat; /* Replace */
    char *text;            /* Prepend, Replace's content, Precompiled's strings */
    size_t n;
    int left, right; /* Strip */
    uint32_t *trie;  /* Precompiled: a double array (ntrie) */
    size_t ntrie;
};
/* Precompiled's charsmap, base64: the trie and its strings. 0 on success. */
int vl_charsmap_read(struct vl_norm *s, const char *base64, size_t n);
/* Appends the text with what the charsmap replaces replaced; 1 when nothing is left of its front. */
int vl_charsmap_apply(const struct vl_norm *s, const struct vl_buf *b, struct vl_buf *out);
/* Normalizes the n bytes in b (in place of them). *lost_front is set to 1 when what stood first was
 * dropped, else left as it is. */
int vl_normalize(const struct vl_norm *step, size_t nstep, struct vl_buf *b,
                 struct vl_regex_match *m, int *lost_front, struct vl_err *e) VL_MUST_CHECK;

enum vl_pre_type {
    VL_PRE_BYTE_LEVEL,
    VL_PRE_SPLIT,
    VL_PRE_DIGITS,
    VL_PRE_PUNCTUATION,
    VL_PRE_WHITESPACE,
    VL_PRE_METASPACE,
    VL_PRE_FIXED_LENGTH,
};
enum vl_behavior {
    VL_SPLIT_REMOVED,
    VL_SPLIT_ISOLATED,
    VL_SPLIT_CONTIGUOUS,
    VL_SPLIT_WITH_PREVIOUS,
    VL_SPLIT_WITH_NEXT,
};
struct vl_pre {
    enum vl_pre_type type;
    struct vl_pattern pat; /* Split, and ByteLevel's regex when it uses one (else re = NULL) */
    enum vl_behavior behavior;
    int invert;
    int prefix_space; /* ByteLevel; Metaspace: 0 never, 1 always, 2 first */
    int split;        /* Metaspace */
    char *text;       /* Metaspace's replacement */
    size_t n;         /* its bytes; FixedLength's characters */
};

struct vl_span {
    size_t at, n;
};
/* The pieces of one text on their way through the steps: spans of `text`, in order. */
struct vl_pieces {
    struct vl_buf text, next_text, alike;
    struct vl_span *span, *next;
    size_t nspan, nnext, cap, next_cap;
    int first; /* the text stands at the very beginning of what was given */
    struct vl_regex_match *m;
};
void vl_pieces_free(struct vl_pieces *p);
/* Splits the text in p->text; first: it stands at the very beginning of what was given. */
int vl_pretokenize(const struct vl_pre *step, size_t nstep, struct vl_pieces *p, int first,
                   struct vl_err *e) VL_MUST_CHECK;
extern const char vl_bytelevel_regex[];
/* The printable alphabet of byte-level BPE (GPT-2's bytes_to_unicode): byte to character, and
 * character to byte or -1. */
uint32_t vl_byte_char(unsigned char byte);
int vl_char_byte(uint32_t cp);

struct vl_added {
    char *s;
    size_t n;
    char *norm; /* what is searched for: s, or s normalized */
    size_t norm_n;
    int32_t id;
    int special, normalized, lstrip, rstrip, single_word;
};
/* Leftmost-longest search for many strings: sorted, narrowed byte by byte. */
struct vl_matcher {
    uint32_t *sorted; /* indexes into the added tokens, by their searched text */
    size_t n;
    uint32_t first[257]; /* sorted[first[b]..first[b + 1]) begin with byte b */
};
void vl_matcher_build(struct vl_matcher *m, const struct vl_added *a, size_t n, int normalized);
/* Cuts text into added tokens and what is between; calls back in order with id >= 0 or -1. */
struct vl_cut {
    int (*part)(void *arg, const char *s, size_t n, int32_t id, struct vl_err *e);
    void *arg;
    const size_t *not_at; /* (nnot) ascending bytes at which no special token starts */
    size_t nnot;
};
int vl_added_cut(const struct vl_tok *t, const struct vl_matcher *m, const char *s, size_t n,
                 unsigned flags, const struct vl_cut *cut, struct vl_err *e) VL_MUST_CHECK;

enum vl_dec_type {
    VL_DEC_BYTE_LEVEL,
    VL_DEC_REPLACE,
    VL_DEC_BYTE_FALLBACK,
    VL_DEC_FUSE,
    VL_DEC_STRIP,
    VL_DEC_METASPACE,
    VL_DEC_WORDPIECE,
    VL_DEC_BPE,
    VL_DEC_CTC,
};
struct vl_dec {
    enum vl_dec_type type;
    struct vl_pattern pat; /* Replace; WordPiece's prefix, BPEDecoder's suffix, CTC's pad token */
    char *text; /* Replace's content, Strip's and Metaspace's character, CTC's word delimiter */
    size_t n;
    int start, stop; /* Strip; Metaspace: start = 1 drops the first one's */
    int cleanup;     /* WordPiece, CTC */
};

/* A post-processor for one sequence: ids before and after it. */
struct vl_post {
    struct vl_ids before, after;
};

enum vl_model_type {
    VL_MODEL_BPE,
    VL_MODEL_UNIGRAM,
    VL_MODEL_WORDS,
};

struct vl_tok {
    struct vl_vocab vocab;
    enum vl_model_type model; /* which of the three is used */
    struct vl_bpe bpe;
    struct vl_unigram unigram;
    struct vl_words words;
    struct vl_norm *norm;
    size_t nnorm;
    struct vl_pre *pre;
    size_t npre;
    struct vl_post post;
    struct vl_dec *dec;
    size_t ndec;
    int has_decoder; /* without one, tokens are joined by a space */
    struct vl_added *added;
    size_t nadded;
    int32_t *added_of; /* by id < size: index into added, or -1 */
    int64_t size;
    struct vl_matcher raw, normalized;
    int32_t bos, eos, pad;
    char *bos_text, *eos_text, *pad_text;
    char *config; /* tokenizer_config.json's text or NULL */
    size_t config_n;
    char *tmpl, *tmpl_tools; /* tmpl_tools: for rows with tools, where there is one of its own */
    char hash[33];
    uint64_t hash_bytes[2]; /* the same, high half first */
    void *map;              /* a cache file that vocab, bpe and unigram have their tables in */
    size_t map_n;
};
/* What to look for a pattern in: s, or with characters that PCRE2 may not know replaced in *copy. */
const char *vl_pattern_text(const struct vl_pattern *p, const char *s, size_t n,
                            struct vl_buf *copy);
int vl_pattern_find(const struct vl_pattern *p, struct vl_regex_match *m, const char *text,
                    size_t n, size_t from, size_t *start, size_t *end,
                    struct vl_err *e) VL_MUST_CHECK;

#endif
