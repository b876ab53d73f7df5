/* yaml.c - YAML trees by libyaml's events. See yaml.h.
 *
 * Events and not libyaml's document loader, because the loader resolves aliases (a few lines then
 * stand for gigabytes) and forgets which of two equal keys came first. */
#include "libverl/base/yaml.h"

#include "libverl/base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define DEPTH_MAX 64
#define FILE_MAX  (16 << 20)

struct load {
    yaml_parser_t p;
    const char *name;
    struct vl_err *e;
};

void vl_yaml_free(struct vl_yaml *y)
{
    if (!y)
        return;
    for (size_t i = 0; i < y->n; i++) {
        if (y->key)
            free(y->key[i]);
        vl_yaml_free(y->item[i]);
    }
    free(y->key);
    free(y->item);
    free(y->text);
    free(y);
}

static struct vl_yaml *node(enum vl_yaml_kind kind, size_t line)
{
    struct vl_yaml *y = vl_alloc(sizeof *y);

    y->kind = kind;
    y->line = line;
    return y;
}

struct vl_yaml *vl_yaml_scalar(const char *text, int quoted)
{
    struct vl_yaml *y = node(VL_YAML_SCALAR, 0);

    y->text = vl_strdup(text);
    y->quoted = quoted;
    return y;
}

void vl_yaml_push(struct vl_yaml *list, struct vl_yaml *item)
{
    list->item = vl_realloc(list->item, (list->n + 1) * sizeof *list->item);
    list->item[list->n++] = item;
}

void vl_yaml_member(struct vl_yaml *map, const char *key, struct vl_yaml *item)
{
    map->key = vl_realloc(map->key, (map->n + 1) * sizeof *map->key);
    map->key[map->n] = vl_strdup(key);
    vl_yaml_push(map, item);
}

struct vl_yaml *vl_yaml_new(enum vl_yaml_kind kind)
{
    return node(kind, 0);
}

struct vl_yaml *vl_yaml_copy(const struct vl_yaml *y)
{
    struct vl_yaml *c = node(y->kind, y->line);

    c->text = vl_strdup(y->text);
    c->quoted = y->quoted;
    for (size_t i = 0; i < y->n; i++) {
        if (y->key)
            vl_yaml_member(c, y->key[i], vl_yaml_copy(y->item[i]));
        else
            vl_yaml_push(c, vl_yaml_copy(y->item[i]));
    }
    return c;
}

int vl_yaml_null(const struct vl_yaml *y)
{
    return y->kind == VL_YAML_SCALAR && !y->quoted &&
           (!*y->text || !strcmp(y->text, "null") || !strcmp(y->text, "~") ||
            !strcmp(y->text, "Null") || !strcmp(y->text, "NULL"));
}

static int next(struct load *l, yaml_event_t *ev)
{
    if (yaml_parser_parse(&l->p, ev))
        return 0;
    if (l->p.error == YAML_MEMORY_ERROR)
        return vl_fail(l->e, VL_E_OS, "%s: out of memory", l->name);
    return vl_fail(l->e, VL_E_USAGE, "%s:%zu: not YAML: %s%s%s", l->name,
                   l->p.problem_mark.line + 1, l->p.problem ? l->p.problem : "unreadable",
                   l->p.context ? " " : "", l->p.context ? l->p.context : "");
}

static int scalar(struct load *l, const yaml_event_t *ev, struct vl_yaml **out)
{
    const char *tag = (const char *)ev->data.scalar.tag, *text = (char *)ev->data.scalar.value;
    size_t line = ev->start_mark.line + 1;
    int str = tag && !strcmp(tag, "tag:yaml.org,2002:str");

    if (strlen(text) != ev->data.scalar.length)
        return vl_fail(l->e, VL_E_USAGE, "%s:%zu: a value with a NUL character", l->name, line);
    if (tag && !str && strncmp(tag, "tag:yaml.org,2002:", 18) != 0 && strcmp(tag, "!") != 0)
        return vl_fail(l->e, VL_E_USAGE, "%s:%zu: tag '%s' is not known, remove it", l->name, line,
                       tag);
    *out = vl_yaml_scalar(text, str || ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE);
    (*out)->line = line;
    return 0;
}

static int value(struct load *l, yaml_event_t *ev, int depth, struct vl_yaml **out);

static int list(struct load *l, struct vl_yaml *y, int depth)
{
    yaml_event_t ev;
    struct vl_yaml *item;

    for (;;) {
        int rc, end;
        if (next(l, &ev))
            return l->e->code;
        end = ev.type == YAML_SEQUENCE_END_EVENT;
        rc = end ? 0 : value(l, &ev, depth, &item);
        yaml_event_delete(&ev);
        if (end || rc)
            return rc;
        vl_yaml_push(y, item);
    }
}

static int map_key(struct load *l, const yaml_event_t *ev, struct vl_yaml *y)
{
    const char *k = (const char *)ev->data.scalar.value;
    size_t line = ev->start_mark.line + 1;

    if (ev->type != YAML_SCALAR_EVENT)
        return vl_fail(l->e, VL_E_USAGE, "%s:%zu: a key must be a word, not a list or map", l->name,
                       line);
    for (size_t i = 0; i < y->n; i++)
        if (!strcmp(y->key[i], k))
            return vl_fail(l->e, VL_E_USAGE, "%s:%zu: key '%s' is given twice, first in line %zu",
                           l->name, line, k, y->item[i]->line);
    y->key = vl_realloc(y->key, (y->n + 1) * sizeof *y->key);
    y->key[y->n] = vl_strdup(k);
    return 0;
}

static int map(struct load *l, struct vl_yaml *y, int depth)
{
    yaml_event_t ev;
    struct vl_yaml *item;

    for (;;) {
        int rc, end;
        if (next(l, &ev))
            return l->e->code;
        end = ev.type == YAML_MAPPING_END_EVENT;
        rc = end ? 0 : map_key(l, &ev, y);
        yaml_event_delete(&ev);
        if (end || rc)
            return rc;
        rc = next(l, &ev);
        if (!rc) {
            rc = value(l, &ev, depth, &item);
            yaml_event_delete(&ev);
        }
        if (rc) {
            free(y->key[y->n]);
            return rc;
        }
        vl_yaml_push(y, item);
    }
}

/* The value that starts with event ev (deleted by the caller). On an error nothing is left. */
static int value(struct load *l, yaml_event_t *ev, int depth, struct vl_yaml **out)
{
    size_t line = ev->start_mark.line + 1;
    int rc;

    *out = NULL;
    if (ev->type == YAML_SCALAR_EVENT)
        return scalar(l, ev, out);
    if (ev->type == YAML_ALIAS_EVENT)
        return vl_fail(l->e, VL_E_USAGE, "%s:%zu: aliases (*%s) are not supported, write ${key}",
                       l->name, line, (const char *)ev->data.alias.anchor);
    if (depth >= DEPTH_MAX)
        return vl_fail(l->e, VL_E_USAGE, "%s:%zu: nested deeper than %d levels", l->name, line,
                       DEPTH_MAX);
    *out = node(ev->type == YAML_MAPPING_START_EVENT ? VL_YAML_MAP : VL_YAML_LIST, line);
    rc = (*out)->kind == VL_YAML_MAP ? map(l, *out, depth + 1) : list(l, *out, depth + 1);
    if (rc) {
        vl_yaml_free(*out);
        *out = NULL;
    }
    return rc;
}

/* Stream start, document start, value, document end, stream end. */
static int document(struct load *l, struct vl_yaml **out)
{
    yaml_event_t ev;
    int rc = 0, done = 0;

    while (!rc && !done) {
        if (next(l, &ev))
            return l->e->code;
        switch (ev.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_STREAM_END_EVENT:
            done = 1;
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (*out)
                rc = vl_fail(l->e, VL_E_USAGE, "%s:%zu: a second document, expected one", l->name,
                             ev.start_mark.line + 1);
            break;
        default:
            rc = value(l, &ev, 0, out);
        }
        yaml_event_delete(&ev);
    }
    return rc;
}

int vl_yaml_parse(struct vl_yaml **out, const char *text, size_t len, const char *name,
                  struct vl_err *e)
{
    struct load l = { .name = name, .e = e };
    int rc;

    *out = NULL;
    if (!yaml_parser_initialize(&l.p))
        return vl_fail(e, VL_E_OS, "%s: out of memory", name);
    yaml_parser_set_input_string(&l.p, (const unsigned char *)text, len);
    rc = document(&l, out);
    yaml_parser_delete(&l.p);
    if (rc) {
        vl_yaml_free(*out);
        *out = NULL;
    } else if (!*out || vl_yaml_null(*out)) {
        vl_yaml_free(*out);
        *out = node(VL_YAML_MAP, 1);
    }
    return rc;
}

int vl_yaml_read(struct vl_yaml **out, const char *path, struct vl_err *e)
{
    struct vl_buf b = { 0 };
    int rc = vl_fs_read(path, FILE_MAX, &b, e);

    if (!rc)
        rc = vl_yaml_parse(out, b.s ? b.s : "", b.n, path, e);
    vl_buf_free(&b);
    return rc;
}

/* Words another reader might take for a number, a boolean, null or structure are quoted. */
static int plain_ok(const char *s)
{
    static const char *const words[] = { "null", "true", "false", "yes",  "no",  "on",
                                         "off",  "y",    "n",     ".nan", ".inf" };
    char *end;

    if (!*s || strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./~+-@") !=
                   strlen(s))
        return 0;
    if (strchr("~-@", *s) && (*s != '~' || s[1] != '/'))
        return 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(s, words[i]))
            return 0;
    if (strtod(s, &end) != 0 || end != s) /* "1", "1e5x", "nan", "0x10" */
        return 0;
    return 1;
}

void vl_yaml_put_str(struct vl_buf *b, const char *s)
{
    if (plain_ok(s)) {
        vl_buf_str(b, s);
        return;
    }
    vl_buf_ch(b, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            vl_buf_printf(b, "\\%c", *s);
        else if (*s == '\n')
            vl_buf_str(b, "\\n");
        else if (*s == '\t')
            vl_buf_str(b, "\\t");
        else if ((unsigned char)*s < 0x20 || *s == 0x7F)
            vl_buf_printf(b, "\\x%02x", (unsigned)*s);
        else
            vl_buf_ch(b, *s);
    }
    vl_buf_ch(b, '"');
}

void vl_yaml_put(struct vl_buf *b, const struct vl_yaml *y)
{
    if (y->kind == VL_YAML_SCALAR) {
        if (vl_yaml_null(y))
            vl_buf_str(b, "null");
        else if (y->quoted)
            vl_yaml_put_str(b, y->text);
        else if (strpbrk(y->text, ",[]{}:#\"'\n"))
            vl_yaml_put_str(b, y->text);
        else
            vl_buf_str(b, y->text);
        return;
    }
    vl_buf_ch(b, y->kind == VL_YAML_MAP ? '{' : '[');
    for (size_t i = 0; i < y->n; i++) {
        if (i)
            vl_buf_str(b, ", ");
        if (y->key) {
            vl_yaml_put_str(b, y->key[i]);
            vl_buf_str(b, ": ");
        }
        vl_yaml_put(b, y->item[i]);
    }
    vl_buf_ch(b, y->kind == VL_YAML_MAP ? '}' : ']');
}

void vl_yaml_put_block(struct vl_buf *b, const struct vl_yaml *map, int indent)
{
    for (size_t i = 0; i < map->n; i++) {
        const struct vl_yaml *v = map->item[i];

        vl_buf_printf(b, "%*s", 2 * indent, "");
        vl_yaml_put_str(b, map->key[i]);
        vl_buf_ch(b, ':');
        if (v->kind == VL_YAML_MAP && v->n) {
            vl_buf_ch(b, '\n');
            vl_yaml_put_block(b, v, indent + 1);
        } else {
            vl_buf_ch(b, ' ');
            vl_yaml_put(b, v);
            vl_buf_ch(b, '\n');
        }
    }
}
