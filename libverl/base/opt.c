/* opt.c - one pass over argv into the configuration, then every option from it. See opt.h.
 *
 * Long options and key=value words land in one place under full keys, so "the later wins" holds
 * between them, and --print-config, provenance and references cannot tell how a value was given. */
#include "libverl/base/opt_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cli {
    struct vl_parsed *p;
    struct vl_common *c;
    int argc;
    char **argv;
    int i;               /* next argument */
    int config, ignored; /* --print-config asked for */
    int *done;
    struct vl_strs words; /* owned: "key=value", or slot and value of an option, in order */
    struct vl_err *e;
};

const char *vl_opt_slot(const struct vl_opt *o, char name[80])
{
    if (o->key)
        return o->key;
    snprintf(name, 80, "--%s", o->name);
    return name;
}

/* ---- the table ---- */

void vl_opt_common(const struct vl_program *p, struct vl_common *c, struct vl_opt *rows)
{
    const struct {
        struct vl_opt o;
        unsigned bit;
    } all[] = {
        { VL_OPT_LIST("input", NULL, &c->input, "FILE", 0,
                      "batch to read, repeatable: columns are united; - is standard input",
                      .letter = 'i'),
          VL_NO_INPUT },
        { VL_OPT_TEXT("output", NULL, &c->output, "FILE", 0, "batch to write; - is standard output",
                      .letter = 'o'),
          VL_NO_OUTPUT },
        { VL_OPT_TEXT("model", NULL, &c->model, "DIR", 0,
                      "model: a Hugging Face directory, a published version or a train state",
                      .letter = 'm'),
          VL_NO_MODEL },
        { VL_OPT_TEXT("state", NULL, &c->state, "DIR", 0, "train state", .letter = 's'),
          VL_NO_STATE },
        { VL_OPT_LIST("config", NULL, &c->config, "FILE", 0,
                      "YAML file under verl's keys, repeatable: later ones win", .letter = 'c'),
          0 },
        { VL_OPT_FLAG("delta", NULL, &c->delta, 0,
                      "write only new columns, uid, sample and new meta_info"),
          VL_NO_DELTA },
        { VL_OPT_TEXT("device", NULL, &c->device, "DEVICE", 0, "auto, cpu, cuda or cuda:N"),
          VL_NO_DEVICE },
        { VL_OPT_INT("seed", NULL, &c->seed, "N", 0, 9007199254740991.0, 0,
                     "seed of all random numbers; not given: the batch's own, if it has one"),
          VL_NO_SEED },
        { VL_OPT_INT("threads", NULL, &c->threads, "N", 0, 4096, 0,
                     "threads of this process; 0: processors of this machine / ranks on it"),
          VL_NO_THREADS },
        { VL_OPT_INT("level", NULL, &c->level, "N", 1, 19, 0, "zstd level of the output"),
          VL_NO_LEVEL },
        { VL_OPT_FLAG("quiet", NULL, &c->quiet, 0, "print warnings and errors only", .letter = 'q'),
          0 },
        { VL_OPT_FLAG("verbose", NULL, &c->verbose, 0, "print more", .letter = 'v'), 0 },
        { VL_OPT_FLAG("timing", NULL, &c->timing, 0,
                      "print seconds of each phase and tokens a second of the work, also with -q"),
          VL_NO_DEVICE },
    };
    size_t n = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct vl_opt o = all[i].o;
        int skip = !!(p->omit & all[i].bit);

        for (const struct vl_opt *own = p->opts; own && own->type != VL_T_END; own++) {
            skip |= own->dst == o.dst || (own->name && !strcmp(own->name, o.name));
            if (own->letter && own->letter == o.letter)
                o.letter = 0;
        }
        if (!skip)
            rows[n++] = o;
    }
}

static struct vl_parsed *table(const struct vl_program *prog, struct vl_common *c)
{
    struct vl_parsed *p = vl_alloc(sizeof *p);
    size_t n = 0, keys = 0;

    *c = (struct vl_common){ .output = "-", .device = "auto", .seed = 1, .level = 1 };
    while (prog->opts && prog->opts[n].type != VL_T_END)
        n++;
    p->program = prog;
    p->nown = n;
    p->opt = vl_alloc((n + VL_COMMON_ROWS) * sizeof *p->opt);
    if (n)
        memcpy(p->opt, prog->opts, n * sizeof *p->opt);
    vl_opt_common(prog, c, p->opt + n);
    while (p->opt[p->nopt].type != VL_T_END)
        p->nopt++;
    p->given = vl_alloc(p->nopt * sizeof *p->given);
    p->effective = vl_alloc(p->nopt * sizeof *p->effective);
    p->how = vl_alloc(p->nopt * sizeof *p->how);
    p->own_keys = vl_alloc((p->nopt + 1) * sizeof *p->own_keys);
    for (size_t i = 0; i < p->nopt; i++)
        if (p->opt[i].key)
            p->own_keys[keys++] = p->opt[i].key;
    p->names = (struct vl_names){ prog->subtree, p->own_keys };
    return p;
}

void vl_parsed_free(struct vl_parsed *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->nmemory; i++)
        free(p->memory[i]);
    for (size_t i = 0; i < p->nopt; i++)
        free(p->how[i]), free(p->effective[i]);
    free(p->effective);
    free(p->memory);
    free(p->how);
    free(p->given);
    free(p->own_keys);
    free(p->opt);
    free(p->ignored);
    vl_conf_free(&p->conf);
    free(p);
}

/* ---- argv ---- */

static void push(struct vl_strs *l, const char *s)
{
    l->s = vl_realloc(l->s, (l->n + 1) * sizeof *l->s);
    l->s[l->n++] = s;
}

/* Kept until the config files are read, since the command line comes after them. */
static void remember(struct cli *a, const struct vl_opt *o, const char *value)
{
    push(&a->words, vl_asprintf("%zu", (size_t)(o - a->p->opt)));
    push(&a->words, vl_strdup(value));
}

static const struct vl_opt *by_name(const struct vl_parsed *p, const char *name, size_t n)
{
    for (size_t i = 0; i < p->nopt; i++)
        if (p->opt[i].name && strlen(p->opt[i].name) == n && !strncmp(p->opt[i].name, name, n))
            return &p->opt[i];
    return NULL;
}

/* --help, --version, --print-config[=ignored]: 1 when it was one. */
static int answer(struct cli *a, const char *arg)
{
    if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
        vl_print_help(a->p);
        *a->done = 1;
    } else if (!strcmp(arg, "--version")) {
        vl_print_version(a->p->program->name);
        *a->done = 1;
    } else if (!strcmp(arg, "--print-config")) {
        a->config = 1;
    } else if (!strcmp(arg, "--print-config=ignored")) {
        a->ignored = 1;
    } else {
        return 0;
    }
    return 1;
}

static int need_value(struct cli *a, const struct vl_opt *o, const char *shown, const char **value)
{
    if (a->i < a->argc) {
        *value = a->argv[a->i++];
        return 0;
    }
    return vl_fail(a->e, VL_E_USAGE, "option %s needs a value: %s %s", shown, shown,
                   o->arg ? o->arg : "VALUE");
}

static int long_option(struct cli *a, const char *arg)
{
    const char *name = arg + 2, *value = strchr(name, '=');
    size_t n = value ? (size_t)(value++ - name) : strlen(name);
    const struct vl_opt *o = by_name(a->p, name, n);
    char *shown;
    int rc = 0;

    if (!o && !value && n > 3 && !strncmp(name, "no-", 3)) {
        o = by_name(a->p, name + 3, n - 3);
        if (o && o->type == VL_T_BOOL) {
            remember(a, o, "false");
            return 0;
        }
        o = NULL;
    }
    shown = vl_strndup(name, n);
    if (!o) {
        rc = vl_opt_unknown(a->p, shown, a->e);
    } else if (o->type == VL_T_BOOL && !value) {
        value = "true";
    } else if (!value) {
        free(shown);
        shown = vl_strndup(arg, n + 2);
        rc = need_value(a, o, shown, &value);
    }
    free(shown);
    if (!rc)
        remember(a, o, value);
    return rc;
}

/* -x, -xVALUE, -x VALUE; flags may be joined: -qv. */
static int short_options(struct cli *a, const char *arg)
{
    for (const char *s = arg + 1; *s; s++) {
        const struct vl_opt *o = NULL;
        char shown[3] = { '-', *s, 0 };
        const char *value = s + 1;

        for (size_t i = 0; i < a->p->nopt; i++)
            if (a->p->opt[i].letter == *s)
                o = &a->p->opt[i];
        if (!o)
            return vl_opt_unknown_letter(*s, arg, a->e);
        if (o->type == VL_T_BOOL) {
            remember(a, o, "true");
            continue;
        }
        if (!*value && need_value(a, o, shown, &value))
            return a->e->code;
        remember(a, o, value);
        return 0;
    }
    return 0;
}

static int operand(struct cli *a, const char *arg)
{
    if (!a->p->program->takes_operands)
        return vl_fail(a->e, VL_E_USAGE,
                       "unexpected argument '%s': %s takes options and key=value only (files are "
                       "given with -i)",
                       arg, a->p->program->name);
    push(&a->c->operands, arg);
    return 0;
}

static int scan(struct cli *a)
{
    int only_operands = 0, rc = 0;

    while (a->i < a->argc && !rc && !*a->done) {
        const char *arg = a->argv[a->i++];

        if (only_operands || !strcmp(arg, "-"))
            rc = operand(a, arg);
        else if (!strcmp(arg, "--"))
            only_operands = 1;
        else if (answer(a, arg))
            continue;
        else if (!strncmp(arg, "--", 2))
            rc = long_option(a, arg);
        else if (*arg == '-' && (arg[1] < '0' || arg[1] > '9')) /* -1 is a number: a row, a slice */
            rc = short_options(a, arg);
        else if (vl_conf_is_word(arg)) {
            push(&a->words, vl_strdup(""));
            push(&a->words, vl_strdup(arg));
        } else
            rc = operand(a, arg);
    }
    return rc;
}

/* ---- sources in order ---- */

static void apply_option(struct vl_parsed *p, const struct vl_opt *o, const char *value)
{
    char name[80], source[80];
    const char *slot = vl_opt_slot(o, name);
    struct vl_conf_entry *e = vl_conf_get(&p->conf, slot);
    int null = (o->flags & VL_F_NULLABLE) && !strcmp(value, "null");
    int text = o->type == VL_T_STR || o->type == VL_T_LIST || !*value; /* "" is no null */
    struct vl_yaml *item = vl_yaml_scalar(value, !null && text), *list;

    snprintf(source, sizeof source, "--%s", o->name);
    if (o->type != VL_T_LIST) {
        vl_conf_set(&p->conf, slot, item, source)->literal = 1;
    } else if (e && e->listed) {
        vl_yaml_push(e->value, item);
    } else {
        list = vl_yaml_new(VL_YAML_LIST);
        vl_yaml_push(list, item);
        e = vl_conf_set(&p->conf, slot, list, source);
        e->literal = e->listed = 1;
    }
}

/* Config files first, then the words and options of the command line. */
static int apply(struct cli *a)
{
    struct vl_parsed *p = a->p;
    int rc = 0;

    for (size_t i = 0; i < a->words.n && !rc; i += 2)
        if (*a->words.s[i] && p->opt[atoi(a->words.s[i])].dst == &a->c->config)
            rc = vl_conf_file(&p->conf, &p->names, a->words.s[i + 1], a->e);
    for (size_t i = 0; i < a->words.n && !rc; i += 2) {
        if (*a->words.s[i])
            apply_option(p, &p->opt[atoi(a->words.s[i])], a->words.s[i + 1]);
        else
            rc = vl_conf_word(&p->conf, &p->names, a->words.s[i + 1], a->e);
    }
    return rc;
}

/* ---- values ---- */

static const struct vl_opt *by_key(const struct vl_parsed *p, const char *full)
{
    for (size_t i = 0; i < p->nopt; i++)
        if (p->opt[i].key && !strcmp(p->opt[i].key, full))
            return &p->opt[i];
    return NULL;
}

static const char *fallback_of(void *user, const char *full)
{
    const struct vl_opt *o = by_key(user, full);
    const struct vl_key *k = vl_key_find(full);

    return o && o->fallback ? o->fallback : k ? k->fallback : NULL;
}

/* The text of a key's default: this program's own, else verl's, else that of its fallback. */
static char *default_text(void *user, const char *full)
{
    for (int i = 0; full && i < 32; i++, full = fallback_of(user, full)) {
        const struct vl_opt *o = by_key(user, full);
        const struct vl_key *k = vl_key_find(full);
        struct vl_yaml *y = o ? vl_opt_yaml(o) : NULL;
        struct vl_buf b = { 0 };

        if (y) {
            vl_yaml_put(&b, y);
            vl_yaml_free(y);
            return vl_buf_detach(&b);
        }
        if (k && k->value)
            return vl_strdup(k->value);
    }
    return NULL;
}

static int set_values(struct vl_parsed *p, struct vl_err *e)
{
    const struct vl_conf_default d = { default_text, fallback_of, p };
    int rc = 0;

    for (size_t i = 0; i < p->nopt && !rc; i++) {
        const struct vl_opt *o = &p->opt[i];
        const char *source = NULL;
        struct vl_yaml *v;
        char name[80], where[600];

        if (o->type == VL_T_GROUP)
            continue;
        rc = vl_conf_value(&p->conf, &p->names, &d, vl_opt_slot(o, name), &v, &source, e);
        if (rc || !v)
            continue;
        p->given[i] = strcmp(source, "command line") && strncmp(source, "--", 2) ? 1 : 2;
        if (!o->key)
            snprintf(where, sizeof where, "--%s", o->name);
        else if (!strncmp(source, "--", 2))
            snprintf(where, sizeof where, "%s (%s)", source, o->key);
        else
            snprintf(where, sizeof where, "%s: %s", source, o->key);
        rc = vl_opt_convert(p, o, v, where, e);
        vl_yaml_free(v);
    }
    return rc;
}

static int check_required(const struct vl_parsed *p, struct vl_err *e)
{
    for (size_t i = 0; i < p->nopt; i++) {
        const struct vl_opt *o = &p->opt[i];

        if (!(o->flags & VL_F_REQUIRED) || p->given[i])
            continue;
        if (o->name)
            return vl_fail(e, VL_E_USAGE, "option --%s %s is needed: %s", o->name,
                           o->arg ? o->arg : "VALUE", o->help);
        return vl_fail(e, VL_E_USAGE, "key %s is needed: %s (give %s=VALUE)", o->key, o->help,
                       o->key);
    }
    return 0;
}

static void name_ignored(struct vl_parsed *p)
{
    struct vl_buf b = { 0 };

    for (size_t i = 0; i < p->conf.n; i++)
        if (!p->conf.e[i].used && !strcmp(p->conf.e[i].source, "command line"))
            vl_buf_printf(&b, "%s%s", b.n ? ", " : "", p->conf.e[i].key);
    p->ignored = b.n ? vl_buf_detach(&b) : NULL;
}

int vl_parse(const struct vl_program *prog, struct vl_common *common, int argc, char **argv,
             struct vl_parsed **out, int *done, struct vl_err *e)
{
    struct vl_parsed *p = table(prog, common);
    struct cli a = {
        .p = p, .c = common, .argc = argc, .argv = argv, .i = 1, .done = done, .e = e
    };
    int rc;

    *out = p;
    *done = 0;
    rc = scan(&a);
    if (!rc && !*done)
        rc = apply(&a);
    if (!rc && !*done)
        rc = set_values(p, e);
    for (size_t i = 0; i < a.words.n; i++)
        free((char *)a.words.s[i]);
    free(a.words.s);
    vl_parsed_keep(p, common->operands.s);
    if (rc || *done)
        return rc;
    name_ignored(p);
    if (a.config || a.ignored) {
        *done = 1;
        if (a.config)
            vl_print_config(p);
        else
            vl_print_ignored(p);
        return 0;
    }
    if (vl_absent_check(&p->conf, e))
        return e->code;
    if (!common->input.n && !(prog->omit & VL_NO_INPUT)) {
        static const char *const standard_input[] = { "-" };
        common->input = (struct vl_strs){ (const char **)standard_input, 1 };
    }
    return check_required(p, e);
}

int vl_parsed_given(const struct vl_parsed *p, const void *dst)
{
    for (size_t i = 0; i < p->nopt; i++)
        if (p->opt[i].dst == dst && dst)
            return p->given[i] > 0;
    return 0;
}

int vl_parsed_typed(const struct vl_parsed *p, const void *dst)
{
    for (size_t i = 0; i < p->nopt; i++)
        if (p->opt[i].dst == dst && dst)
            return p->given[i] == 2;
    return 0;
}

void vl_parsed_effective(struct vl_parsed *p, const void *dst, const char *json)
{
    for (size_t i = 0; i < p->nopt; i++)
        if (p->opt[i].dst == dst && dst) {
            free(p->effective[i]);
            p->effective[i] = vl_strdup(json);
        }
}

size_t vl_parsed_ignored(const struct vl_parsed *p, const char **named)
{
    size_t n = 0;

    for (size_t i = 0; i < p->conf.n; i++)
        n += !p->conf.e[i].used;
    if (named)
        *named = p->ignored;
    return n;
}

const char *vl_parsed_how(const struct vl_parsed *p, const void *dst)
{
    for (size_t i = 0; i < p->nopt; i++) {
        const struct vl_opt *o = &p->opt[i];

        if (o->dst != dst || !dst)
            continue;
        if (!p->how[i] && o->name)
            p->how[i] = vl_asprintf("--%s%s%s%s", o->name, o->key ? " or " : "",
                                    o->key ? o->key : "", o->key ? "=" : "");
        else if (!p->how[i])
            p->how[i] = vl_asprintf("%s=", o->key);
        return p->how[i];
    }
    return NULL;
}
