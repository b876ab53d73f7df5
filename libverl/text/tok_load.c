/* tok_load.c - tokenizer.json and tokenizer_config.json into the parts of tok_impl.h: the files, added
 * tokens and special ids here, components in tok_steps.c, the model in tok_model.c. */
#include "libverl/text/tok_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xxhash.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/text/chat.h"
#include "libverl/text/unicode.h"

#define MAX_FILE ((size_t)1 << 30)

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

/* ---- added tokens ---- */

static int added(struct vl_load *l, int64_t arr)
{
    struct vl_tok *t = l->t;
    uint32_t count = vl_json_is(&l->j, arr, VL_JSON_ARRAY) ? l->j.node[arr].count : 0, k, c;
    struct vl_regex_match *m;

    if (arr >= 0 && !vl_json_is(&l->j, arr, VL_JSON_ARRAY) && !vl_json_is(&l->j, arr, VL_JSON_NULL))
        return vl_load_bad(l, "added_tokens is not a list", NULL);
    m = vl_regex_match_new();
    t->added = vl_alloc(count * sizeof *t->added);
    t->size = t->vocab.size;
    for (k = 0, c = (uint32_t)arr + 1; k < count && !l->e->code; k++, c = l->j.node[c].next) {
        struct vl_added *a = &t->added[t->nadded++];
        struct vl_buf norm = { 0 };
        int64_t id = -1;
        int lost = 0;

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
        if (a->normalized && vl_normalize(t->norm, t->nnorm, &norm, m, &lost, l->e))
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

/* chat_template: text, or a list of {name, template}; that called `name` of it. */
static char *named_template(struct vl_load *l, int64_t list, const char *name)
{
    uint32_t k, c;

    for (k = 0, c = (uint32_t)list + 1; k < l->j.node[list].count; k++, c = l->j.node[c].next)
        if (vl_json_get(&l->j, c, "name") >= 0 &&
            vl_json_streq(&l->j, vl_json_get(&l->j, c, "name"), name))
            return vl_json_strdup(&l->j, vl_json_get(&l->j, c, "template"));
    return NULL;
}

static int config_templates(struct vl_load *l)
{
    int64_t i = vl_json_get(&l->j, 0, "chat_template");

    if (i < 0 || vl_json_is(&l->j, i, VL_JSON_NULL))
        return 0;
    if (vl_json_is(&l->j, i, VL_JSON_ARRAY)) {
        l->t->tmpl = named_template(l, i, "default");
        l->t->tmpl_tools = named_template(l, i, "tool_use");
    } else if (!(l->t->tmpl = vl_json_strdup(&l->j, i))) {
        return vl_load_bad(l, "chat_template is neither text nor a list of {name, template}", NULL);
    }
    return 0;
}

/* A text model would not stop at, or begin with, a token that is not there. */
static int config_token(struct vl_load *l, const char *key, char **text, int32_t *id)
{
    *text = token_text(l, 0, key);
    *id = *text ? vl_tok_id(l->t, *text, strlen(*text)) : -1;
    if (*text && *id < 0)
        return vl_fail(l->e, VL_E_DATA, "%s: %s \"%.60s\" is no token of tokenizer.json", l->path,
                       key, *text);
    return 0;
}

/* transformers adds what it finds here and not in tokenizer.json; to us these are other ids. */
static int config_added(struct vl_load *l)
{
    int64_t at = vl_json_get(&l->j, 0, "added_tokens_decoder");
    uint32_t k, c, n = vl_json_is(&l->j, at, VL_JSON_OBJECT) ? l->j.node[at].count : 0;

    for (k = 0, c = (uint32_t)at + 1; k < n && !l->e->code; k++, c = l->j.node[c + 1].next) {
        char *id = vl_json_strdup(&l->j, c), *text = token_text(l, c + 1, "content");

        if (text && vl_tok_id(l->t, text, strlen(text)) != (int32_t)strtol(id, NULL, 10))
            vl_fail(
                l->e, VL_E_DATA,
                "%s: added_tokens_decoder has token %.20s \"%.60s\", tokenizer.json does not: save "
                "the tokenizer again with save_pretrained()",
                l->path, id, text);
        free(id);
        free(text);
    }
    return l->e->code;
}

static int config(struct vl_tok *t, const char *dir, struct vl_err *e)
{
    char *path = vl_asprintf("%s/tokenizer_config.json", dir),
         *jinja = vl_asprintf("%s/chat_template.jinja", dir),
         *more = vl_asprintf("%s/additional_chat_templates/tool_use.jinja", dir), *text;
    struct vl_load l = { .t = t, .path = path, .e = e };
    struct vl_buf b = { 0 };

    t->bos = t->eos = t->pad = -1;
    if (vl_fs_exists(path, NULL) && vl_fs_read(path, MAX_FILE, &b, e) == 0 &&
        vl_json_parse(&l.j, b.s, b.n, path, e) == 0) {
        t->pad_text = token_text(&l, 0, "pad_token"); /* not a token: the end token pads */
        if (t->pad_text)
            t->pad = vl_tok_id(t, t->pad_text, strlen(t->pad_text));
        (void)!(config_templates(&l) || config_token(&l, "bos_token", &t->bos_text, &t->bos) ||
                config_token(&l, "eos_token", &t->eos_text, &t->eos) || config_added(&l));
    }
    vl_json_free(&l.j);
    t->config_n = b.n;
    t->config = b.n ? vl_buf_detach(&b) : NULL;
    vl_buf_free(&b);
    vl_buf_free(&b);
    if (!e->code && vl_fs_exists(jinja, NULL) && vl_chat_read(&text, jinja, e) == 0) {
        free(t->tmpl); /* the newer place of the two */
        free(t->tmpl_tools);
        t->tmpl = text;
        t->tmpl_tools = NULL;
        if (vl_fs_exists(more, NULL))
            (void)!vl_chat_read(&t->tmpl_tools, more, e);
    }
    free(path);
    free(jinja);
    free(more);
    return e->code;
}

/* ---- open and free ---- */

static void pattern_free(struct vl_pattern *p)
{
    vl_regex_free(p->re);
    free(p->str);
}

static void clear(struct vl_tok *t)
{
    for (size_t i = 0; i < t->nnorm; i++) {
        pattern_free(&t->norm[i].pat);
        free(t->norm[i].text);
        free(t->norm[i].trie);
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
    if (t->map) {
        munmap(t->map, t->map_n);
    } else {
        vl_vocab_free(&t->vocab);
        free(t->bpe.merge);
        free(t->unigram.score);
        free(t->unigram.node);
    }
    free(t->words.prefix);
    free(t->words.unk_text);
    free(t->bpe.prefix);
    free(t->bpe.unk_missing);
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
    free(t->tmpl_tools);
}

static int load_parts(struct vl_load *l, const char *text, size_t n)
{
    if (vl_json_parse(&l->j, text, n, l->path, l->e))
        return l->e->code;
    if (!vl_json_is(&l->j, vl_json_get(&l->j, 0, "model"), VL_JSON_OBJECT))
        return vl_load_bad(l, "no model: not a tokenizer.json", NULL);
    (void)!(vl_load_steps(l, 0) || vl_load_model(l, vl_json_get(&l->j, 0, "model")) ||
            added(l, vl_json_get(&l->j, 0, "added_tokens")));
    return l->e->code;
}

/* From the cache: 1, or 0 with t as it was. */
static int load_cached(struct vl_tok *t, const char *path, const char *cache, size_t source_n)
{
    struct vl_err e = { 0 };
    struct vl_load l = { .t = t, .path = path, .e = &e, .have_tables = 1 };
    const char *rest;
    size_t n;

    if (!vl_tok_cache_use(t, cache, source_n, &rest, &n))
        return 0;
    (void)!load_parts(&l, rest, n);
    vl_json_free(&l.j);
    vl_buf_free(&l.key);
    if (e.code) {
        struct vl_tok empty = { .hash_bytes = { t->hash_bytes[0], t->hash_bytes[1] } };

        memcpy(empty.hash, t->hash, sizeof t->hash);
        clear(t);
        *t = empty;
    }
    return !e.code;
}

static int load_json(struct vl_tok *t, const char *path, struct vl_err *e)
{
    struct vl_load l = { .t = t, .path = path, .e = e };
    struct vl_buf text = { 0 };
    XXH128_hash_t h;
    char *cache;

    if (vl_fs_read(path, MAX_FILE, &text, e))
        return e->code;
    h = XXH3_128bits(text.s, text.n);
    t->hash_bytes[0] = h.high64, t->hash_bytes[1] = h.low64;
    snprintf(t->hash, sizeof t->hash, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
    cache = vl_tok_cache_path(t, text.n);
    if (!load_cached(t, path, cache, text.n) && load_parts(&l, text.s, text.n) == 0 && cache)
        vl_tok_cache_make(&l, cache, text.n);
    free(cache);
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

void vl_tok_free(struct vl_tok *t)
{
    if (t)
        clear(t);
    free(t);
}
