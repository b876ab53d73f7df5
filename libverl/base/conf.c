/* conf.c - what was given, and references between it. See conf.h.
 *
 * References are resolved when a value is asked for, after all sources: so an override on the
 * command line reaches every key that refers to it, and a reference only another program's key
 * holds costs this program nothing. */
#include "libverl/base/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN_MAX 32 /* references through references; more is a circle */

static void entry_free(struct vl_conf_entry *e)
{
    free(e->key);
    free(e->source);
    vl_yaml_free(e->value);
}

void vl_conf_free(struct vl_conf *c)
{
    for (size_t i = 0; i < c->n; i++)
        entry_free(&c->e[i]);
    free(c->e);
    *c = (struct vl_conf){ 0 };
}

struct vl_conf_entry *vl_conf_get(const struct vl_conf *c, const char *key)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->e[i].key, key))
            return &c->e[i];
    return NULL;
}

void vl_conf_unset(struct vl_conf *c, const char *key)
{
    struct vl_conf_entry *e = vl_conf_get(c, key);

    if (!e)
        return;
    entry_free(e);
    memmove(e, e + 1, (size_t)(c->e + c->n - (e + 1)) * sizeof *e);
    c->n--;
}

struct vl_conf_entry *vl_conf_set(struct vl_conf *c, const char *key, struct vl_yaml *value,
                                  const char *source)
{
    struct vl_conf_entry *e = vl_conf_get(c, key);

    if (e) {
        vl_yaml_free(e->value);
        free(e->source);
    } else {
        c->e = vl_realloc(c->e, (c->n + 1) * sizeof *c->e);
        e = &c->e[c->n++];
        e->key = vl_strdup(key);
    }
    e->value = value;
    e->source = vl_strdup(source);
    e->literal = e->listed = e->used = 0;
    return e;
}

static int deprecated(const char *full, const struct vl_yaml *v, const char *where,
                      struct vl_err *e)
{
    const struct vl_key *k = vl_key_find(full);

    if (!k || !k->instead || vl_yaml_null(v))
        return 0;
    return vl_fail(e, VL_E_USAGE, "%s: key '%s' is deprecated in verl, use %s", where, full,
                   k->instead);
}

/* ---- files ---- */

struct file {
    struct vl_conf *c;
    const struct vl_names *n;
    const char *path;
    struct vl_err *e;
};

static int file_leaf(struct file *f, const char *key, const struct vl_yaml *v)
{
    char where[512], *full;
    int rc;

    snprintf(where, sizeof where, "%s:%zu", f->path, v->line);
    rc = vl_key_resolve(f->n, key, 1, where, &full, f->e);
    if (!rc)
        rc = deprecated(full, v, where, f->e);
    if (!rc)
        vl_conf_set(f->c, full, vl_yaml_copy(v), where);
    free(full);
    return rc;
}

/* What a Hydra file holds beside values: the Python class of a section, a mandatory value not given,
 * a section left empty. */
static int no_value(struct file *f, const char *key, const struct vl_yaml *v)
{
    size_t n = strlen(key);

    if (n >= 8 && !strcmp(key + n - 8, "_target_"))
        return 1;
    if (v->kind != VL_YAML_SCALAR)
        return 0;
    return (!v->quoted && !strcmp(v->text, "???")) ||
           (vl_yaml_null(v) && vl_key_section(f->n, key) && !vl_key_find(key));
}

/* A map is a section, to be entered, unless it is the value of an open key. */
static int file_map(struct file *f, const char *prefix, const struct vl_yaml *map)
{
    struct vl_err probe = { 0 };
    int rc = 0;

    for (size_t i = 0; i < map->n && !rc; i++) {
        const struct vl_yaml *v = map->item[i];
        char *key = vl_asprintf("%s%s%s", prefix, *prefix ? "." : "", map->key[i]), *full = NULL;
        int open = 0;

        if (v->kind == VL_YAML_MAP) {
            open = !vl_key_resolve(f->n, key, 1, "", &full, &probe) && vl_key_open(full);
            probe.code = 0;
            free(full);
        }
        if (v->kind == VL_YAML_MAP && !open && vl_key_section(f->n, key))
            rc = file_map(f, key, v);
        else if (!no_value(f, key, v))
            rc = file_leaf(f, key, v);
        free(key);
    }
    return rc;
}

static int from_tree(struct vl_conf *c, const struct vl_names *n, const char *name,
                     struct vl_yaml *y, struct vl_err *e)
{
    struct file f = { c, n, name, e };
    int rc;

    if (y->kind != VL_YAML_MAP)
        rc = vl_fail(e, VL_E_USAGE, "%s:%zu: expected 'key: value' lines, found a %s", name,
                     y->line, y->kind == VL_YAML_LIST ? "list" : "single value");
    else
        rc = file_map(&f, "", y);
    vl_yaml_free(y);
    return rc;
}

int vl_conf_text(struct vl_conf *c, const struct vl_names *n, const char *text, size_t len,
                 const char *name, struct vl_err *e)
{
    struct vl_yaml *y;
    int rc = vl_yaml_parse(&y, text, len, name, e);

    return rc ? rc : from_tree(c, n, name, y, e);
}

int vl_conf_file(struct vl_conf *c, const struct vl_names *n, const char *path, struct vl_err *e)
{
    struct vl_yaml *y;
    int rc = vl_yaml_read(&y, path, e);

    return rc ? rc : from_tree(c, n, path, y, e);
}

/* ---- words of the command line ---- */

static size_t key_length(const char *s)
{
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
}

int vl_conf_is_word(const char *arg)
{
    size_t n;

    if (*arg == '~' || *arg == '+')
        return 1;
    n = key_length(arg);
    return n && arg[n] == '=' && *arg != '.' && *arg != '-';
}

/* The value of key=value: YAML where it starts like a list, map or quoted string, else the text as
 * it stands, so that jq filters and paths with ':' or '#' need no second layer of quotes. */
static int word_value(const char *text, const char *word, struct vl_yaml **out, struct vl_err *e)
{
    struct vl_buf b = { 0 };
    int rc;

    if (!*text || !strchr("[{\"'", *text)) {
        *out = vl_yaml_scalar(text, !*text); /* "key=" is the empty string */
        return 0;
    }
    vl_buf_printf(&b, "- %s\n", text);
    rc = vl_yaml_parse(out, b.s, b.n, word, e);
    vl_buf_free(&b);
    if (!rc && ((*out)->kind != VL_YAML_LIST || (*out)->n != 1))
        rc = vl_fail(e, VL_E_USAGE, "%s: not one YAML value", word);
    if (rc) {
        vl_yaml_free(*out);
        *out = NULL;
    } else {
        struct vl_yaml *list = *out;
        *out = list->item[0];
        list->n = 0;
        vl_yaml_free(list);
    }
    return rc;
}

static int forget(struct vl_conf *c, const char *full, const char *value, const char *word,
                  struct vl_err *e)
{
    const struct vl_conf_entry *have = vl_conf_get(c, full);
    struct vl_buf b = { 0 };
    int rc = 0;

    if (value && have) {
        vl_yaml_put(&b, have->value);
        if (strcmp(b.s, value) != 0)
            rc = vl_fail(e, VL_E_USAGE, "%s: %s is %s (%s), not %s; write ~%s to drop any value",
                         word, full, b.s, have->source, value, full);
    }
    vl_buf_free(&b);
    if (!rc)
        vl_conf_unset(c, full);
    return rc;
}

int vl_conf_word(struct vl_conf *c, const struct vl_names *n, const char *word, struct vl_err *e)
{
    const char *p = word + strspn(word, *word == '~' ? "~" : "+"), *eq;
    size_t len = key_length(p);
    struct vl_yaml *v = NULL;
    struct vl_err quiet = { 0 };
    char *key, *full;
    int rc;

    eq = p[len] == '=' ? p + len + 1 : NULL;
    if (!len || p - word > 2 || (p[len] && !eq) || (*word != '~' && !eq))
        return vl_fail(e, VL_E_USAGE,
                       "%s: not an override, expected key=value, +key=value or ~key (put -- before "
                       "operands that look like one)",
                       word);
    key = vl_strndup(p, len);
    rc = vl_key_resolve(n, key, 0, word, &full, *word == '+' ? &quiet : e);
    if (rc && *word == '+') {
        full = vl_strdup(key);
        rc = 0;
    }
    if (!rc && *word == '~')
        rc = forget(c, full, eq, word, e);
    else if (!rc && !(rc = word_value(eq, word, &v, e)) && !(rc = deprecated(full, v, word, e)))
        vl_conf_set(c, full, v, "command line"), v = NULL;
    vl_yaml_free(v);
    free(full);
    free(key);
    return rc;
}

/* ---- references ---- */

struct ref {
    const struct vl_conf *c;
    const struct vl_names *n;
    const struct vl_conf_default *d;
    struct vl_err *e;
    int chain;
};

static int expand(struct ref *r, const char *self, const char *source, const struct vl_yaml *v,
                  struct vl_yaml **out);

static int circle(struct ref *r, const char *source, const char *full)
{
    return vl_fail(r->e, VL_E_USAGE, "%s: ${...} of key '%s' refers to itself in a circle", source,
                   full);
}

/* An open key's map together with what was set below it (full.name=value); NULL when neither is. */
static int members(struct ref *r, const char *full, struct vl_conf_entry *map, struct vl_yaml **out,
                   const char **source)
{
    size_t len = strlen(full);
    int rc = 0;

    if (map) {
        map->used = 1;
        if (source)
            *source = map->source;
        rc = expand(r, full, map->source, map->value, out);
    }
    for (size_t i = 0; i < r->c->n && !rc; i++) {
        struct vl_conf_entry *e = &r->c->e[i];
        struct vl_yaml *v;

        if (strncmp(e->key, full, len) != 0 || e->key[len] != '.')
            continue;
        e->used = 1;
        if (source)
            *source = e->source;
        if (!*out)
            *out = vl_yaml_new(VL_YAML_MAP);
        rc = expand(r, e->key, e->source, e->value, &v);
        if (!rc)
            vl_yaml_member(*out, e->key + len + 1, v);
    }
    return rc;
}

/* Value of a full key with its fallbacks; NULL when nothing is set. */
static int lookup(struct ref *r, const char *full, struct vl_yaml **out, const char **source)
{
    struct vl_conf_entry *have = NULL;
    const char *key = full;
    int rc;

    *out = NULL;
    for (int i = 0; key && i < CHAIN_MAX && !have; i++) {
        have = vl_conf_get(r->c, key);
        if (have && i && vl_yaml_null(have->value))
            have = NULL; /* a null elsewhere is no value to fall back on */
        if (!have)
            key = r->d->fallback(r->d->user, key);
    }
    if (vl_key_open(full) && (!have || have->value->kind == VL_YAML_MAP))
        return members(r, full, have, out, source);
    if (!have)
        return 0;
    have->used = 1;
    if (source)
        *source = have->source;
    if (have->literal) {
        *out = vl_yaml_copy(have->value);
        return 0;
    }
    if (r->chain >= CHAIN_MAX)
        return circle(r, have->source, full);
    r->chain++;
    rc = expand(r, key, have->source, have->value, out);
    r->chain--;
    return rc;
}

/* ${key} and ${.sibling}: what is set, else a default. `otherwise` is oc.select's, or NULL. */
static int by_key(struct ref *r, const char *self, const char *source, const char *name,
                  const char *otherwise, struct vl_yaml **out)
{
    char *abs = NULL, *full = NULL, *text, where[600];
    struct vl_yaml *raw = NULL;
    const char *dot = strrchr(self, '.');
    int rc;

    if (*name == '.')
        abs = vl_asprintf("%.*s%s", dot ? (int)(dot - self) : 0, self, dot ? name : name + 1);
    snprintf(where, sizeof where, "%s: ${%s}", source, name);
    if (abs && vl_conf_get(r->c, abs))
        full = vl_strdup(abs);
    else if (vl_conf_get(r->c, name)) /* also keys that +key added */
        full = vl_strdup(name);
    rc = full ? 0 : vl_key_resolve(r->n, abs ? abs : name, 1, where, &full, r->e);
    if (!rc)
        rc = lookup(r, full, out, NULL);
    if (!rc && !*out) {
        text = otherwise ? vl_strdup(otherwise) : r->d->text(r->d->user, full);
        if (!text)
            rc = vl_fail(r->e, VL_E_USAGE, "%s: key '%s' is not set and has no default", where,
                         full);
        else if (r->chain >= CHAIN_MAX)
            rc = circle(r, where, full);
        else if (!(rc = word_value(text, where, &raw, r->e)))
            r->chain++, rc = expand(r, full, source, raw, out), r->chain--;
        vl_yaml_free(raw);
        free(text);
    }
    free(abs);
    free(full);
    return rc;
}

/* What stands between "${" and "}". */
static int reference(struct ref *r, const char *self, const char *source, const char *body,
                     struct vl_yaml **out)
{
    char *name, *comma;
    const char *env;
    int rc = 0;

    if (!strncmp(body, "oc.select:", 10) || !strncmp(body, "oc.env:", 7)) {
        name = vl_strdup(strchr(body, ':') + 1);
        comma = strchr(name, ',');
        if (comma)
            *comma++ = 0;
        if (body[3] == 's') {
            rc = by_key(r, self, source, name, comma ? comma : "null", out);
        } else if ((env = getenv(name)) || comma) {
            *out = vl_yaml_scalar(env ? env : comma, 0);
        } else {
            rc = vl_fail(r->e, VL_E_USAGE, "%s: ${%s}: environment variable %s is not set", source,
                         body, name);
        }
        free(name);
        return rc;
    }
    if (body[key_length(body)])
        return vl_fail(r->e, VL_E_USAGE,
                       "%s: ${%s} is not understood, expected ${key}, ${oc.select:key,default} or "
                       "${oc.env:NAME,default}",
                       source, body);
    return by_key(r, self, source, body, NULL, out);
}

/* Appends the text of the reference at `open`, or, when it is the whole scalar, gives its value. */
static int expand_one(struct ref *r, const char *self, const char *source, const struct vl_yaml *v,
                      const char *open, const char *close, struct vl_buf *b, struct vl_yaml **out)
{
    struct vl_yaml *part = NULL;
    char *body = vl_strndup(open + 2, (size_t)(close - open - 2));
    int rc = reference(r, self, source, body, &part);

    free(body);
    if (!rc && open == v->text && !close[1]) {
        *out = part;
        return 0;
    }
    if (!rc && part->kind == VL_YAML_SCALAR)
        vl_buf_str(b, part->text);
    else if (!rc)
        rc = vl_fail(r->e, VL_E_USAGE, "%s: '%s': a list or map cannot stand inside text", source,
                     v->text);
    vl_yaml_free(part);
    return rc;
}

/* A scalar that is one reference takes its value whole (a list, null); inside other text the
 * reference's text is put in. \${ stands for ${ itself. */
static int expand_text(struct ref *r, const char *self, const char *source, const struct vl_yaml *v,
                       struct vl_yaml **out)
{
    struct vl_buf b = { 0 };
    const char *p = v->text, *open;
    int rc = 0;

    while (!rc && !*out && (open = strstr(p, "${"))) {
        const char *close = strchr(open, '}');

        if (open > p && open[-1] == '\\') {
            vl_buf_add(&b, p, (size_t)(open - p) - 1);
            vl_buf_str(&b, "${");
            p = open + 2;
            continue;
        }
        vl_buf_add(&b, p, (size_t)(open - p));
        if (close)
            rc = expand_one(r, self, source, v, open, close, &b, out);
        else
            rc = vl_fail(r->e, VL_E_USAGE, "%s: '%s': '${' without '}'", source, v->text);
        p = close ? close + 1 : p;
    }
    vl_buf_str(&b, p);
    if (!rc && !*out)
        *out = vl_yaml_scalar(b.s, v->quoted || !b.n);
    vl_buf_free(&b);
    return rc;
}

static int expand(struct ref *r, const char *self, const char *source, const struct vl_yaml *v,
                  struct vl_yaml **out)
{
    int rc = 0;

    *out = NULL;
    if (v->kind == VL_YAML_SCALAR && strstr(v->text, "${"))
        return expand_text(r, self, source, v, out);
    *out = vl_yaml_copy(v);
    for (size_t i = 0; i < v->n && !rc; i++) {
        struct vl_yaml *item = NULL;
        rc = expand(r, self, source, v->item[i], &item);
        if (!rc) {
            vl_yaml_free((*out)->item[i]);
            (*out)->item[i] = item;
        }
    }
    if (rc) {
        vl_yaml_free(*out);
        *out = NULL;
    }
    return rc;
}

int vl_conf_value(const struct vl_conf *c, const struct vl_names *n,
                  const struct vl_conf_default *d, const char *full, struct vl_yaml **out,
                  const char **source, struct vl_err *e)
{
    struct ref r = { c, n, d, e, 0 };

    return lookup(&r, full, out, source);
}
