/* tok_steps.c - normalizer, pre-tokenizer, post-processor and decoder of tokenizer.json.
 *
 * Whatever is not understood is refused by name: a component left out gives other ids than the
 * model was trained on, and nothing later would notice. */
#include "libverl/text/tok_load.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

#define MAX_STEP 64

/* {"String": s} or {"Regex": r}. */
static int pattern(struct vl_load *l, int64_t obj, struct vl_pattern *p)
{
    int64_t pat = vl_json_get(&l->j, obj, "pattern");

    p->str = vl_load_str(l, pat, "String", &p->n);
    if (p->str)
        return 0;
    p->str = vl_load_str(l, pat, "Regex", &p->n);
    if (!p->str)
        return vl_load_bad(l, "a pattern that is neither String nor Regex", NULL);
    if (vl_regex_new(&p->re, p->str, p->n, l->e))
        return vl_err_prefix(l->e, "%s", l->path);
    return 0;
}

/* Calls `one` for the component, or for each one inside if it is a Sequence. */
static int each(struct vl_load *l, int64_t obj, const char *list, int depth,
                int (*one)(struct vl_load *, int64_t))
{
    int64_t arr;
    uint32_t k, c;

    if (vl_load_null(l, obj))
        return 0;
    if (strcmp(vl_load_type(l, obj), "Sequence") != 0)
        return one(l, obj);
    arr = vl_json_get(&l->j, obj, list);
    if (!vl_json_is(&l->j, arr, VL_JSON_ARRAY) || depth > 8)
        return vl_load_bad(l, "a Sequence without a list of", list);
    for (k = 0, c = (uint32_t)arr + 1; k < l->j.node[arr].count; k++, c = l->j.node[c].next)
        if (each(l, c, list, depth + 1, one))
            return l->e->code;
    return 0;
}

/* ---- normalizers ---- */

static struct vl_norm *new_norm(struct vl_load *l, enum vl_norm_type type)
{
    struct vl_norm *s = &l->t->norm[l->t->nnorm++];

    s->type = type;
    return s;
}

/* Cleaning, spaces around Chinese characters, no accents, lower case: each on by default, accents
 * as lower case is. */
static int bert_norm(struct vl_load *l, int64_t obj)
{
    int lower = vl_load_bool(l, obj, "lowercase", 1);

    if (vl_load_bool(l, obj, "clean_text", 1))
        new_norm(l, VL_NORM_BERT_CLEAN);
    if (vl_load_bool(l, obj, "handle_chinese_chars", 1))
        new_norm(l, VL_NORM_BERT_CHINESE);
    if (vl_load_bool(l, obj, "strip_accents", lower)) {
        new_norm(l, VL_NORM_NFD);
        new_norm(l, VL_NORM_BERT_ACCENTS);
    }
    if (lower)
        new_norm(l, VL_NORM_LOWERCASE);
    return 0;
}

static int charsmap_norm(struct vl_load *l, int64_t obj)
{
    size_t n;
    char *map = vl_load_str(l, obj, "precompiled_charsmap", &n);

    if (!map || vl_charsmap_read(new_norm(l, VL_NORM_CHARSMAP), map, n))
        vl_load_bad(l, "a normalizer Precompiled whose precompiled_charsmap is not a base64 table",
                    NULL);
    free(map);
    return l->e->code;
}

static int one_norm(struct vl_load *l, int64_t obj)
{
    static const struct {
        const char *name;
        enum vl_norm_type type;
    } known[] = {
        { "NFC", VL_NORM_NFC },
        { "NFD", VL_NORM_NFD },
        { "NFKC", VL_NORM_NFKC },
        { "NFKD", VL_NORM_NFKD },
        { "Lowercase", VL_NORM_LOWERCASE },
        { "Prepend", VL_NORM_PREPEND },
        { "Replace", VL_NORM_REPLACE },
        { "Strip", VL_NORM_STRIP },
        { "StripAccents", VL_NORM_STRIP_ACCENTS },
        { "ByteLevel", VL_NORM_BYTE_LEVEL },
        { "Nmt", VL_NORM_NMT },
    };
    const char *type = vl_load_type(l, obj);
    struct vl_norm *s;
    size_t i = 0;

    if (l->t->nnorm + 5 > MAX_STEP)
        return vl_load_bad(l, "more than 60 normalizers", NULL);
    if (strcmp(type, "BertNormalizer") == 0)
        return bert_norm(l, obj);
    if (strcmp(type, "Precompiled") == 0)
        return charsmap_norm(l, obj);
    while (i < sizeof known / sizeof *known && strcmp(known[i].name, type) != 0)
        i++;
    if (i == sizeof known / sizeof *known)
        return vl_load_bad(l, "unsupported normalizer", type);
    s = new_norm(l, known[i].type);
    if (s->type == VL_NORM_PREPEND)
        s->text = vl_load_str(l, obj, "prepend", &s->n);
    if (s->type == VL_NORM_REPLACE) {
        s->text = vl_load_str(l, obj, "content", &s->n);
        if (pattern(l, obj, &s->pat))
            return l->e->code;
    }
    if ((s->type == VL_NORM_PREPEND || s->type == VL_NORM_REPLACE) && !s->text)
        return vl_load_bad(l, "no text in normalizer", known[i].name);
    s->left = vl_load_bool(l, obj, "strip_left", 1);
    s->right = vl_load_bool(l, obj, "strip_right", 1);
    return 0;
}

/* ---- pre-tokenizers ---- */

static int behavior(struct vl_load *l, int64_t obj, enum vl_behavior *out)
{
    static const char *const name[] = { "Removed", "Isolated", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext" };
    int64_t i = vl_json_get(&l->j, obj, "behavior");
    char *s;

    for (size_t k = 0; k < 5; k++)
        if (i >= 0 && vl_json_streq(&l->j, i, name[k])) {
            *out = (enum vl_behavior)k;
            return 0;
        }
    s = i >= 0 ? vl_json_strdup(&l->j, i) : NULL;
    vl_load_bad(l, "unsupported split behavior", s ? s : "(none)");
    free(s);
    return l->e->code;
}

static int metaspace(struct vl_load *l, int64_t obj, char **text, size_t *n, int *prefix)
{
    int64_t scheme = vl_json_get(&l->j, obj, "prepend_scheme");

    *text = vl_load_str(l, obj, "replacement", n);
    if (!*text || !*n)
        return vl_load_bad(l, "no replacement in Metaspace", NULL);
    *prefix = vl_load_bool(l, obj, "add_prefix_space", 1);
    if (vl_load_null(l, scheme))
        return 0;
    if (vl_json_streq(&l->j, scheme, "never"))
        *prefix = 0;
    else if (vl_json_streq(&l->j, scheme, "always"))
        *prefix = 1;
    else if (vl_json_streq(&l->j, scheme, "first"))
        *prefix = 2;
    else
        return vl_load_bad(l, "unsupported prepend_scheme in Metaspace", NULL);
    return 0;
}

static struct vl_pre *new_pre(struct vl_load *l, enum vl_pre_type type)
{
    struct vl_pre *s = &l->t->pre[l->t->npre++];

    s->type = type;
    s->behavior = VL_SPLIT_ISOLATED;
    return s;
}

static int regex_pre(struct vl_load *l, struct vl_pre *s, const char *re)
{
    if (vl_regex_new(&s->pat.re, re, strlen(re), l->e))
        return vl_err_prefix(l->e, "%s", l->path);
    return 0;
}

/* \w of the reference's Whitespace, which is not its \w of Split. */
#define WORD_SET                                                                                   \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}"                       \
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"

static int one_pre(struct vl_load *l, int64_t obj)
{
    const char *type = vl_load_type(l, obj);
    struct vl_pre *s;
    int i;

    if (l->t->npre + 2 > MAX_STEP)
        return vl_load_bad(l, "more than 62 pre-tokenizers", NULL);
    if (strcmp(type, "ByteLevel") == 0) {
        s = new_pre(l, VL_PRE_BYTE_LEVEL);
        s->prefix_space = vl_load_bool(l, obj, "add_prefix_space", 1);
        return vl_load_bool(l, obj, "use_regex", 1) ? regex_pre(l, s, vl_bytelevel_regex) : 0;
    }
    if (strcmp(type, "Split") == 0) {
        s = new_pre(l, VL_PRE_SPLIT);
        s->invert = vl_load_bool(l, obj, "invert", 0);
        return behavior(l, obj, &s->behavior) || pattern(l, obj, &s->pat) ? l->e->code : 0;
    }
    if (strcmp(type, "Digits") == 0) {
        i = vl_load_bool(l, obj, "individual_digits", 0);
        new_pre(l, VL_PRE_DIGITS)->behavior = i ? VL_SPLIT_ISOLATED : VL_SPLIT_CONTIGUOUS;
        return 0;
    }
    if (strcmp(type, "Punctuation") == 0) {
        s = new_pre(l, VL_PRE_PUNCTUATION);
        return vl_load_null(l, vl_json_get(&l->j, obj, "behavior"))
                   ? 0
                   : behavior(l, obj, &s->behavior);
    }
    if (strcmp(type, "WhitespaceSplit") == 0 || strcmp(type, "BertPreTokenizer") == 0) {
        new_pre(l, VL_PRE_WHITESPACE)->behavior = VL_SPLIT_REMOVED;
        if (type[0] == 'B')
            new_pre(l, VL_PRE_PUNCTUATION);
        return 0;
    }
    if (strcmp(type, "Whitespace") == 0) {
        s = new_pre(l, VL_PRE_SPLIT);
        s->behavior = VL_SPLIT_REMOVED;
        s->invert = 1;
        return regex_pre(l, s, "[" WORD_SET "]+|[^" WORD_SET "\\s]+");
    }
    if (strcmp(type, "Metaspace") == 0) {
        s = new_pre(l, VL_PRE_METASPACE);
        s->split = vl_load_bool(l, obj, "split", 1);
        return metaspace(l, obj, &s->text, &s->n, &s->prefix_space);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        s = new_pre(l, VL_PRE_SPLIT);
        s->behavior = VL_SPLIT_REMOVED;
        s->pat.str = vl_load_str(l, obj, "delimiter", &s->pat.n);
        return s->pat.str && vl_utf8_count(s->pat.str, s->pat.n) == 1
                   ? 0
                   : vl_load_bad(l, "a CharDelimiterSplit whose delimiter is not a character",
                                 NULL);
    }
    if (strcmp(type, "FixedLength") == 0) {
        int64_t length = 5;

        (void)!vl_json_i64(&l->j, vl_json_get(&l->j, obj, "length"), &length);
        if (length < 1)
            return vl_load_bad(l, "a FixedLength without a length", NULL);
        new_pre(l, VL_PRE_FIXED_LENGTH)->n = (size_t)length;
        return 0;
    }
    return vl_load_bad(l, "unsupported pre-tokenizer", type);
}

/* ---- decoders ---- */

/* WordPiece, BPEDecoder and CTC: the text of `key` is looked for in each token. */
static int subword_dec(struct vl_load *l, int64_t obj, struct vl_dec *d)
{
    static const char *const key[] = { "prefix", "suffix", "pad_token" };

    d->pat.str = vl_load_str(l, obj, key[d->type - VL_DEC_WORDPIECE], &d->pat.n);
    d->cleanup = vl_load_bool(l, obj, "cleanup", 1);
    if (d->type == VL_DEC_CTC)
        d->text = vl_load_str(l, obj, "word_delimiter_token", &d->n);
    if (!d->pat.str || (d->type == VL_DEC_CTC && !d->text))
        return vl_load_bad(l, "a decoder without its", key[d->type - VL_DEC_WORDPIECE]);
    return 0;
}

static int one_dec(struct vl_load *l, int64_t obj)
{
    static const char *const name[] = { "ByteLevel", "Replace",   "ByteFallback", "Fuse", "Strip",
                                        "Metaspace", "WordPiece", "BPEDecoder",   "CTC" };
    const char *type = vl_load_type(l, obj);
    struct vl_dec *d;
    int64_t v = 0;
    size_t i = 0, known = sizeof name / sizeof *name;

    while (i < known && strcmp(name[i], type) != 0)
        i++;
    if (i == known)
        return vl_load_bad(l, "unsupported decoder", type);
    if (l->t->ndec == MAX_STEP)
        return vl_load_bad(l, "more than 64 decoders", NULL);
    d = &l->t->dec[l->t->ndec++];
    d->type = (enum vl_dec_type)i;
    if (d->type == VL_DEC_REPLACE && pattern(l, obj, &d->pat))
        return l->e->code;
    if (d->type == VL_DEC_METASPACE)
        return metaspace(l, obj, &d->text, &d->n, &d->start);
    if (d->type >= VL_DEC_WORDPIECE)
        return subword_dec(l, obj, d);
    if (d->type == VL_DEC_REPLACE || d->type == VL_DEC_STRIP) {
        d->text = vl_load_str(l, obj, "content", &d->n);
        if (!d->text || (d->type == VL_DEC_STRIP && !d->n))
            return vl_load_bad(l, "no content in decoder", name[i]);
    }
    if (vl_json_i64(&l->j, vl_json_get(&l->j, obj, "start"), &v))
        d->start = (int)(v < 0 ? 0 : v < 1000 ? v : 1000);
    if (vl_json_i64(&l->j, vl_json_get(&l->j, obj, "stop"), &v))
        d->stop = (int)(v < 0 ? 0 : v < 1000 ? v : 1000);
    return 0;
}

/* ---- post-processors: for one sequence, some ids before and after ---- */

static int add_special(struct vl_load *l, int64_t map, int64_t piece, struct vl_ids *to)
{
    char *name = vl_json_strdup(&l->j, vl_json_get(&l->j, piece, "id"));
    int64_t def = name ? vl_json_get(&l->j, map, name) : -1, ids = vl_json_get(&l->j, def, "ids");
    uint32_t k, c;

    if (!vl_json_is(&l->j, ids, VL_JSON_ARRAY)) {
        vl_load_bad(l, "TemplateProcessing has no ids for", name ? name : "a special token");
        free(name);
        return l->e->code;
    }
    free(name);
    for (k = 0, c = (uint32_t)ids + 1; k < l->j.node[ids].count; k++, c = l->j.node[c].next) {
        int64_t id;

        if (!vl_json_i64(&l->j, c, &id) || id < 0 || id >= VL_TOK_MAX_ID)
            return vl_load_bad(l, "an id in TemplateProcessing that is no id", NULL);
        vl_ids_add(to, (int32_t)id);
    }
    return 0;
}

/* A later template wraps what an earlier one made: its ids stand outside. */
static void wrap(struct vl_post *p, struct vl_ids *before, const struct vl_ids *after)
{
    for (size_t i = 0; i < p->before.n; i++)
        vl_ids_add(before, p->before.id[i]);
    vl_ids_free(&p->before);
    p->before = *before;
    for (size_t i = 0; i < after->n; i++)
        vl_ids_add(&p->after, after->id[i]);
}

static int template_post(struct vl_load *l, int64_t obj)
{
    int64_t single = vl_json_get(&l->j, obj, "single"),
            map = vl_json_get(&l->j, obj, "special_tokens");
    struct vl_ids before = { 0 }, after = { 0 };
    int seen = 0;
    uint32_t k, c;

    if (!vl_json_is(&l->j, single, VL_JSON_ARRAY))
        return vl_load_bad(l, "TemplateProcessing whose single is not a list", NULL);
    for (k = 0, c = (uint32_t)single + 1; k < l->j.node[single].count; k++, c = l->j.node[c].next) {
        int64_t special = vl_json_get(&l->j, c, "SpecialToken");

        if (vl_json_get(&l->j, c, "Sequence") >= 0)
            seen++;
        else if (special < 0)
            vl_load_bad(l, "TemplateProcessing with an unknown piece", NULL);
        else
            (void)!add_special(l, map, special, seen ? &after : &before);
    }
    if (seen != 1)
        vl_load_bad(l, "TemplateProcessing whose single does not have the sequence once", NULL);
    wrap(&l->t->post, &before, &after);
    vl_ids_free(&after);
    return l->e->code;
}

/* BertProcessing and RobertaProcessing: [token, id] pairs cls and sep. */
static int cls_sep_post(struct vl_load *l, int64_t obj)
{
    int64_t cls = vl_json_at(&l->j, vl_json_get(&l->j, obj, "cls"), 1),
            sep = vl_json_at(&l->j, vl_json_get(&l->j, obj, "sep"), 1), a, b;
    struct vl_ids before = { 0 }, after = { 0 };

    if (!vl_json_i64(&l->j, cls, &a) || !vl_json_i64(&l->j, sep, &b) || a < 0 || b < 0 ||
        a >= VL_TOK_MAX_ID || b >= VL_TOK_MAX_ID)
        return vl_load_bad(l, "a post-processor without cls and sep ids", NULL);
    vl_ids_add(&before, (int32_t)a);
    vl_ids_add(&after, (int32_t)b);
    wrap(&l->t->post, &before, &after);
    vl_ids_free(&after);
    return 0;
}

static int one_post(struct vl_load *l, int64_t obj)
{
    const char *type = vl_load_type(l, obj);

    if (strcmp(type, "ByteLevel") == 0)
        return 0; /* offsets only */
    if (strcmp(type, "TemplateProcessing") == 0)
        return template_post(l, obj);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return cls_sep_post(l, obj);
    return vl_load_bad(l, "unsupported post-processor", type);
}

int vl_load_steps(struct vl_load *l, int64_t obj)
{
    struct vl_tok *t = l->t;

    t->norm = vl_alloc(MAX_STEP * sizeof *t->norm);
    t->pre = vl_alloc(MAX_STEP * sizeof *t->pre);
    t->dec = vl_alloc(MAX_STEP * sizeof *t->dec);
    t->has_decoder = !vl_load_null(l, vl_json_get(&l->j, obj, "decoder"));
    (void)!(each(l, vl_json_get(&l->j, obj, "normalizer"), "normalizers", 0, one_norm) ||
            each(l, vl_json_get(&l->j, obj, "pre_tokenizer"), "pretokenizers", 0, one_pre) ||
            each(l, vl_json_get(&l->j, obj, "post_processor"), "processors", 0, one_post) ||
            each(l, vl_json_get(&l->j, obj, "decoder"), "decoders", 0, one_dec));
    return l->e->code;
}
