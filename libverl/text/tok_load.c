/* tok_load.c - tokenizer.json and tokenizer_config.json into the parts of tok_impl.h.
 *
 * Whatever is not understood is refused by name: a component left out gives other ids than the
 * model was trained on, and nothing later would notice. */
#include "libverl/text/tok_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/text/unicode.h"

#define MAX_FILE ((size_t)1 << 30)
#define MAX_STEP 64

int vl_load_bad(struct vl_load *l, const char *what, const char *name)
{
    return vl_fail(l->e, VL_E_DATA, "%s: %s%s%s", l->path, what, name ? " " : "", name ? name : "");
}

int vl_load_bool(struct vl_load *l, int64_t obj, const char *key, int otherwise)
{
    int v = otherwise;

    vl_json_bool(&l->j, vl_json_get(&l->j, obj, key), &v);
    return v;
}

char *vl_load_str(struct vl_load *l, int64_t obj, const char *key, size_t *n)
{
    struct vl_buf b = { 0 };

    if (!vl_json_str(&l->j, vl_json_get(&l->j, obj, key), &b)) {
        *n = 0;
        return NULL;
    }
    *n = b.n;
    return vl_buf_detach(&b);
}

int vl_load_null(struct vl_load *l, int64_t i)
{
    return i < 0 || l->j.node[i].type == VL_JSON_NULL;
}

/* Type of a component, for comparisons and messages; borrowed until the next call. */
const char *vl_load_type(struct vl_load *l, int64_t obj)
{
    vl_buf_reset(&l->key);
    if (!vl_json_str(&l->j, vl_json_get(&l->j, obj, "type"), &l->key))
        return "without a type";
    return l->key.s ? l->key.s : "";
}

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
    };
    const char *type = vl_load_type(l, obj);
    struct vl_norm *s;
    size_t i = 0;

    while (i < sizeof known / sizeof *known && strcmp(known[i].name, type) != 0)
        i++;
    if (i == sizeof known / sizeof *known)
        return vl_load_bad(l, "unsupported normalizer", type);
    if (l->t->nnorm == MAX_STEP)
        return vl_load_bad(l, "more than 64 normalizers", NULL);
    s = &l->t->norm[l->t->nnorm++];
    s->type = known[i].type;
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
        return regex_pre(l, s, "\\w+|[^\\w\\s]+");
    }
    if (strcmp(type, "Metaspace") == 0) {
        s = new_pre(l, VL_PRE_METASPACE);
        s->split = vl_load_bool(l, obj, "split", 1);
        return metaspace(l, obj, &s->text, &s->n, &s->prefix_space);
    }
    return vl_load_bad(l, "unsupported pre-tokenizer", type);
}

/* ---- decoders ---- */

static int one_dec(struct vl_load *l, int64_t obj)
{
    static const char *const name[] = { "ByteLevel", "Replace", "ByteFallback",
                                        "Fuse",      "Strip",   "Metaspace" };
    const char *type = vl_load_type(l, obj);
    struct vl_dec *d;
    int64_t v = 0;
    size_t i = 0;

    while (i < 6 && strcmp(name[i], type) != 0)
        i++;
    if (i == 6)
        return vl_load_bad(l, "unsupported decoder", type);
    if (l->t->ndec == MAX_STEP)
        return vl_load_bad(l, "more than 64 decoders", NULL);
    d = &l->t->dec[l->t->ndec++];
    d->type = (enum vl_dec_type)i;
    if (d->type == VL_DEC_REPLACE && pattern(l, obj, &d->pat))
        return l->e->code;
    if (d->type == VL_DEC_METASPACE)
        return metaspace(l, obj, &d->text, &d->n, &d->start);
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

/* ---- added tokens ---- */

static int added(struct vl_load *l, int64_t arr)
{
    struct vl_tok *t = l->t;
    uint32_t count = vl_json_is(&l->j, arr, VL_JSON_ARRAY) ? l->j.node[arr].count : 0, k, c;
    struct vl_regex_match *m = vl_regex_match_new();

    t->added = vl_alloc(count * sizeof *t->added);
    t->size = t->bpe.vocab.size;
    for (k = 0, c = (uint32_t)arr + 1; k < count && !l->e->code; k++, c = l->j.node[c].next) {
        struct vl_added *a = &t->added[t->nadded++];
        struct vl_buf norm = { 0 };
        int64_t id = -1;

        a->s = vl_load_str(l, c, "content", &a->n);
        if (!a->s || !vl_json_i64(&l->j, vl_json_get(&l->j, c, "id"), &id) || id < 0 ||
            id >= VL_TOK_MAX_ID) {
            vl_fail(l->e, VL_E_DATA, "%s: added token %u has no content or no id below %d", l->path,
                    k, VL_TOK_MAX_ID);
            break;
        }
        a->id = (int32_t)id;
        a->special = vl_load_bool(l, c, "special", 0);
        a->normalized = vl_load_bool(l, c, "normalized", !a->special);
        a->lstrip = vl_load_bool(l, c, "lstrip", 0);
        a->rstrip = vl_load_bool(l, c, "rstrip", 0);
        a->single_word = vl_load_bool(l, c, "single_word", 0);
        vl_buf_add(&norm, a->s, a->n);
        if (a->normalized && vl_normalize(t->norm, t->nnorm, &norm, m, l->e))
            vl_err_prefix(l->e, "%s: added token %u", l->path, k);
        a->norm_n = norm.n;
        a->norm = vl_buf_detach(&norm);
        if (id >= t->size)
            t->size = id + 1;
    }
    vl_regex_match_free(m);
    t->added_of = vl_alloc((size_t)t->size * sizeof *t->added_of);
    memset(t->added_of, 0xFF, (size_t)t->size * sizeof *t->added_of);
    for (size_t i = 0; i < t->nadded && !l->e->code; i++)
        t->added_of[t->added[i].id] = (int32_t)i;
    vl_matcher_build(&t->raw, t->added, l->e->code ? 0 : t->nadded, 0);
    vl_matcher_build(&t->normalized, t->added, l->e->code ? 0 : t->nadded, 1);
    return l->e->code;
}

/* ---- tokenizer_config.json ---- */

/* A special token's text: a string, or an object with content. */
static char *token_text(struct vl_load *l, int64_t obj, const char *key)
{
    int64_t i = vl_json_get(&l->j, obj, key);

    if (vl_json_is(&l->j, i, VL_JSON_OBJECT))
        i = vl_json_get(&l->j, i, "content");
    return i < 0 ? NULL : vl_json_strdup(&l->j, i);
}

/* chat_template: text, or a list of {name, template} of which "default" is meant. */
static char *config_template(struct vl_load *l)
{
    int64_t i = vl_json_get(&l->j, 0, "chat_template");
    uint32_t k, c;

    if (!vl_json_is(&l->j, i, VL_JSON_ARRAY))
        return i < 0 ? NULL : vl_json_strdup(&l->j, i);
    for (k = 0, c = (uint32_t)i + 1; k < l->j.node[i].count; k++, c = l->j.node[c].next)
        if (vl_json_get(&l->j, c, "name") >= 0 &&
            vl_json_streq(&l->j, vl_json_get(&l->j, c, "name"), "default"))
            return vl_json_strdup(&l->j, vl_json_get(&l->j, c, "template"));
    return NULL;
}

static int config(struct vl_tok *t, const char *dir, struct vl_err *e)
{
    char *path = vl_asprintf("%s/tokenizer_config.json", dir),
         *jinja = vl_asprintf("%s/chat_template.jinja", dir);
    struct vl_load l = { .t = t, .path = path, .e = e };
    struct vl_buf b = { 0 };

    t->bos = t->eos = t->pad = -1;
    if (vl_fs_exists(path, NULL) && vl_fs_read(path, MAX_FILE, &b, e) == 0 &&
        vl_json_parse(&l.j, b.s, b.n, path, e) == 0) {
        t->bos_text = token_text(&l, 0, "bos_token");
        t->eos_text = token_text(&l, 0, "eos_token");
        t->pad_text = token_text(&l, 0, "pad_token");
        t->tmpl = config_template(&l);
        if (t->bos_text)
            t->bos = vl_tok_id(t, t->bos_text, strlen(t->bos_text));
        if (t->eos_text)
            t->eos = vl_tok_id(t, t->eos_text, strlen(t->eos_text));
        if (t->pad_text)
            t->pad = vl_tok_id(t, t->pad_text, strlen(t->pad_text));
    }
    vl_json_free(&l.j);
    t->config_n = b.n;
    t->config = b.n ? vl_buf_detach(&b) : NULL;
    vl_buf_free(&b);
    if (!e->code && vl_fs_exists(jinja, NULL) && vl_fs_read(jinja, MAX_FILE, &b, e) == 0) {
        free(t->tmpl); /* the newer place of the two */
        t->tmpl = vl_buf_detach(&b);
    }
    vl_buf_free(&b);
    free(path);
    free(jinja);
    return e->code;
}

/* ---- open and free ---- */

static int load_json(struct vl_tok *t, const char *path, struct vl_err *e)
{
    struct vl_load l = { .t = t, .path = path, .e = e };
    struct vl_buf text = { 0 };
    XXH128_hash_t h;

    if (vl_fs_read(path, MAX_FILE, &text, e) || vl_json_parse(&l.j, text.s, text.n, path, e))
        goto out;
    h = XXH3_128bits(text.s, text.n);
    snprintf(t->hash, sizeof t->hash, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    t->norm = vl_alloc(MAX_STEP * sizeof *t->norm);
    t->pre = vl_alloc(MAX_STEP * sizeof *t->pre);
    t->dec = vl_alloc(MAX_STEP * sizeof *t->dec);
    t->has_decoder = !vl_load_null(&l, vl_json_get(&l.j, 0, "decoder"));
    if (!vl_json_is(&l.j, vl_json_get(&l.j, 0, "model"), VL_JSON_OBJECT)) {
        vl_load_bad(&l, "no model: not a tokenizer.json", NULL);
        goto out;
    }
    (void)!(each(&l, vl_json_get(&l.j, 0, "normalizer"), "normalizers", 0, one_norm) ||
            each(&l, vl_json_get(&l.j, 0, "pre_tokenizer"), "pretokenizers", 0, one_pre) ||
            each(&l, vl_json_get(&l.j, 0, "post_processor"), "processors", 0, one_post) ||
            each(&l, vl_json_get(&l.j, 0, "decoder"), "decoders", 0, one_dec) ||
            vl_load_model(&l, vl_json_get(&l.j, 0, "model")) ||
            added(&l, vl_json_get(&l.j, 0, "added_tokens")));
out:
    vl_json_free(&l.j);
    vl_buf_free(&text);
    vl_buf_free(&l.key);
    return e->code;
}

/* The directory that has tokenizer.json: dir, or dir/current of a train state. NULL: a file. */
static char *find_dir(const char *path)
{
    char *current;

    if (vl_fs_exists(path, "tokenizer.json"))
        return vl_strdup(path);
    current = vl_asprintf("%s/current", path);
    if (vl_fs_exists(current, "tokenizer.json"))
        return current;
    free(current);
    return NULL;
}

int vl_tok_open(struct vl_tok **out, const char *path, struct vl_err *e)
{
    struct vl_tok *t = vl_alloc(sizeof *t);
    char *dir = find_dir(path), *file = dir ? vl_asprintf("%s/tokenizer.json", dir) : NULL;
    const char *slash = strrchr(path, '/');

    *out = NULL;
    if (!dir) { /* the file itself, whatever its name */
        file = vl_strdup(path);
        dir = slash ? vl_strndup(path, (size_t)(slash - path)) : vl_strdup(".");
    }
    if (vl_fs_exists(path, "."))
        if (!vl_fs_exists(dir, "tokenizer.json"))
            vl_fail(e, VL_E_NOINPUT, "%s: no tokenizer.json in this directory", path);
    if (e->code || load_json(t, file, e) || config(t, dir, e))
        vl_tok_free(t);
    else
        *out = t;
    free(dir);
    free(file);
    return e->code;
}

static void pattern_free(struct vl_pattern *p)
{
    vl_regex_free(p->re);
    free(p->str);
}

void vl_tok_free(struct vl_tok *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->nnorm; i++) {
        pattern_free(&t->norm[i].pat);
        free(t->norm[i].text);
    }
    for (size_t i = 0; i < t->npre; i++) {
        pattern_free(&t->pre[i].pat);
        free(t->pre[i].text);
    }
    for (size_t i = 0; i < t->ndec; i++) {
        pattern_free(&t->dec[i].pat);
        free(t->dec[i].text);
    }
    for (size_t i = 0; i < t->nadded; i++) {
        free(t->added[i].s);
        free(t->added[i].norm);
    }
    vl_vocab_free(&t->bpe.vocab);
    free(t->bpe.merge);
    free(t->bpe.prefix);
    free(t->bpe.suffix);
    vl_ids_free(&t->post.before);
    vl_ids_free(&t->post.after);
    free(t->norm);
    free(t->pre);
    free(t->dec);
    free(t->added);
    free(t->added_of);
    free(t->raw.sorted);
    free(t->normalized.sorted);
    free(t->bos_text);
    free(t->eos_text);
    free(t->pad_text);
    free(t->config);
    free(t->tmpl);
    free(t);
}
