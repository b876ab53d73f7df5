/* help.c - the answers a program gives about itself: --help and --print-config. See opt_impl.h. */
#include "libverl/base/opt_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT 28
#define WIDTH  96

/* Appends text wrapped at WIDTH, later lines indented. *col is the column reached. */
static void wrap(struct vl_buf *b, const char *text, size_t *col)
{
    while (*text) {
        size_t n = strcspn(text, " ");

        if (*col > INDENT && *col + 1 + n > WIDTH) {
            vl_buf_printf(b, "\n%*s", INDENT, "");
            *col = INDENT;
        } else if (*col > INDENT) {
            vl_buf_ch(b, ' ');
            ++*col;
        }
        vl_buf_add(b, text, n);
        *col += n;
        text += n;
        text += strspn(text, " ");
    }
}

/* "(default 1; a number from 0 to 100)" */
static void put_default(struct vl_buf *b, const struct vl_opt *o)
{
    const struct vl_key *k = o->key ? vl_key_find(o->key) : NULL;
    const char *fallback = o->fallback ? o->fallback : k ? k->fallback : NULL;
    struct vl_yaml *y = vl_opt_yaml(o);
    int flag = o->type == VL_T_BOOL, on = flag && *(int *)o->dst, any;

    if (y && y->kind == VL_YAML_LIST && !y->n) {
        vl_yaml_free(y);
        y = NULL;
    }
    any = (y && (!flag || on || o->key)) || fallback || (o->flags & VL_F_REQUIRED);
    if (any || o->lo != 0 || o->hi != 0 || o->choices)
        vl_buf_str(b, " (");
    else
        goto out;
    if (o->flags & VL_F_REQUIRED)
        vl_buf_str(b, "required");
    else if (any)
        vl_buf_str(b, "default ");
    if (fallback)
        vl_buf_printf(b, "that of %s%s", fallback, y ? ", else " : "");
    if (y && any && !(o->flags & VL_F_REQUIRED)) {
        if (y->kind == VL_YAML_SCALAR && *y->text) /* "-" reads better without YAML's quotes */
            vl_buf_str(b, y->text);
        else
            vl_yaml_put(b, y);
    }
    if (on && o->name)
        vl_buf_printf(b, "; --no-%s turns it off", o->name);
    if (o->lo != 0 || o->hi != 0 || o->choices) {
        vl_buf_str(b, any ? "; " : "");
        vl_opt_expected(b, o);
    }
    vl_buf_ch(b, ')');
out:
    vl_yaml_free(y);
}

static void put_option(struct vl_buf *b, const struct vl_opt *o)
{
    struct vl_buf left = { 0 }, text = { 0 };
    size_t col;

    if (o->name) {
        if (o->letter)
            vl_buf_printf(&left, "  -%c, ", o->letter);
        else
            vl_buf_str(&left, "      ");
        vl_buf_printf(&left, "--%s%s%s", o->name, o->type == VL_T_BOOL ? "" : " ",
                      o->type == VL_T_BOOL ? ""
                      : o->arg             ? o->arg
                                           : "VALUE");
    } else {
        vl_buf_printf(&left, "  %s", o->key);
    }
    vl_buf_str(b, left.s);
    if (left.n + 2 > INDENT)
        vl_buf_printf(b, "\n%*s", INDENT, "");
    else
        vl_buf_printf(b, "%*s", (int)(INDENT - left.n), "");
    vl_buf_str(&text, o->help ? o->help : "");
    put_default(&text, o);
    col = INDENT;
    wrap(b, text.s, &col);
    vl_buf_ch(b, '\n');
    if (o->name && o->key)
        vl_buf_printf(b, "%*skey %s\n", INDENT, "", o->key);
    vl_buf_free(&left);
    vl_buf_free(&text);
}

/* Rows [from, to) that have (named = 1) or lack a long option. Headings come before the first row
 * they hold. */
static void put_rows(struct vl_buf *b, const struct vl_parsed *p, size_t from, size_t to, int named,
                     const char *title)
{
    const char *heading = title;

    for (size_t i = from; i < to; i++) {
        const struct vl_opt *o = &p->opt[i];

        if (o->type == VL_T_GROUP) {
            heading = named ? o->help : heading;
            continue;
        }
        if ((o->name != NULL) != named)
            continue;
        if (heading)
            vl_buf_printf(b, "\n%s:\n", heading);
        heading = NULL;
        put_option(b, o);
    }
}

void vl_print_help(const struct vl_parsed *p)
{
    const struct vl_program *g = p->program;
    struct vl_buf b = { 0 };

    vl_buf_printf(&b, "usage: %s %s\n%s\n", g->name, g->usage, g->summary);
    put_rows(&b, p, 0, p->nown, 1, "Options");
    put_rows(&b, p, 0, p->nown, 0, "Config keys, as key=value or in a -c file");
    put_rows(&b, p, p->nown, p->nopt, 1, "Common options");
    vl_buf_printf(&b,
                  "      --help                print this text\n"
                  "      --version             print version, build and libraries\n"
                  "      --print-config        print this program's effective values as YAML\n"
                  "      --print-config=ignored\n%*sprint the keys given that it does not "
                  "read\n",
                  INDENT, "");
    if (g->details)
        vl_buf_printf(&b, "\n%s%s", g->details,
                      g->details[strlen(g->details) - 1] == '\n' ? "" : "\n");
    vl_buf_str(&b, "\nKeys may be shortened to a suffix; verl-config(5) has the rules.\n");
    if (!(g->omit & VL_NO_DEVICE))
        vl_buf_str(&b,
                   "Environment: VL_ISA (instruction set), OMP_NUM_THREADS; see verl-config(5).\n");
    fputs(b.s, stdout);
    vl_buf_free(&b);
}

/* Puts the value into the tree of maps at a.b.c. */
static void graft(struct vl_yaml *map, const char *key, struct vl_yaml *v)
{
    size_t n = strcspn(key, ".");
    char *head = vl_strndup(key, n);
    struct vl_yaml *sub = NULL;

    if (!key[n]) {
        vl_yaml_member(map, head, v);
        free(head);
        return;
    }
    for (size_t i = 0; i < map->n && !sub; i++)
        if (!strcmp(map->key[i], head) && map->item[i]->kind == VL_YAML_MAP)
            sub = map->item[i];
    if (!sub) {
        sub = vl_yaml_new(VL_YAML_MAP);
        vl_yaml_member(map, head, sub);
    }
    free(head);
    graft(sub, key + n + 1, v);
}

void vl_print_config(const struct vl_parsed *p)
{
    struct vl_yaml *root = vl_yaml_new(VL_YAML_MAP);
    struct vl_buf b = { 0 };

    for (size_t i = 0; i < p->nopt; i++) {
        struct vl_yaml *v = vl_opt_yaml(&p->opt[i]);

        if (v && p->opt[i].key) {
            graft(root, p->opt[i].key, v);
        } else if (v && !strcmp(p->opt[i].name, "config")) {
            vl_yaml_free(v); /* what the files said is in the values */
        } else if (v) {      /* no key: shown, but only the command line can set it */
            vl_buf_printf(&b, "# --%s ", p->opt[i].name);
            vl_yaml_put(&b, v);
            vl_buf_ch(&b, '\n');
            vl_yaml_free(v);
        }
    }
    vl_yaml_put_block(&b, root, 0);
    fputs(b.s ? b.s : "", stdout);
    vl_yaml_free(root);
    vl_buf_free(&b);
}

void vl_print_ignored(const struct vl_parsed *p)
{
    struct vl_buf b = { 0 };

    for (size_t i = 0; i < p->conf.n; i++) {
        const struct vl_conf_entry *e = &p->conf.e[i];
        const struct vl_key *k = vl_key_find(e->key);

        if (e->used)
            continue;
        vl_buf_printf(&b, "%s: ", e->key);
        vl_yaml_put(&b, e->value);
        vl_buf_printf(&b, " # %s; %s\n", e->source, k ? k->owner : "no program");
    }
    fputs(b.s ? b.s : "", stdout);
    vl_buf_free(&b);
}
