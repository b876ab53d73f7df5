/* unknown.c - what is said about an option that a program does not have. See opt_impl.h.
 *
 * Which other program has it is taken from the man pages when this file is built: tests hold them
 * against --help, so there is no second list to keep. */
#include "libverl/base/opt_impl.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *option, *program;
} has[] = {
#include VL_OPTION_ROWS /* { "temperature", "verl-rollout" }, sorted */
};

/* Edits from `name` to `have`, 0 when it begins it; 1000: not near. */
static size_t distance(const char *name, const char *have)
{
    size_t n = strlen(name), m = strlen(have), same = 0, d = vl_edits(name, have);

    while (name[same] && name[same] == have[same])
        same++;
    if (same == n && n > 1)
        return 0;
    if (d <= n / 3)
        return d;
    return same > 3 && 2 * same >= n && 2 * same >= m ? d : 1000;
}

static const char *nearest(const struct vl_parsed *p, const char *name)
{
    static const char *const always[] = { "help", "version", "print-config" };
    const char *best = NULL;
    size_t least = 1000;

    for (size_t i = 0; i < p->nopt + 3; i++) {
        const char *have = i < 3 ? always[i] : p->opt[i - 3].name;
        size_t d = have ? distance(name, have) : 1000;

        if (d < least)
            least = d, best = have;
    }
    return best;
}

/* "a", "a and b", "a, b and c" */
static void put_list(struct vl_buf *b, const char *const *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        vl_buf_printf(b, "%s%s", !i ? "" : i + 1 < n ? ", " : " and ", s[i]);
}

/* The common option of this name or letter that the program leaves out. */
static const char *common_name(const char *name, char letter)
{
    struct vl_opt rows[VL_COMMON_ROWS] = { { 0 } };
    struct vl_common c;

    vl_opt_common(&(struct vl_program){ 0 }, &c, rows);
    for (const struct vl_opt *o = rows; o->type != VL_T_END; o++)
        if (name ? !strcmp(o->name, name) : o->letter == letter)
            return o->name;
    return NULL;
}

static int put_programs(struct vl_buf *b, const char *name)
{
    const char *program[sizeof has / sizeof *has];
    size_t n = 0;

    if (common_name(name, 0)) {
        vl_buf_str(b, "; other programs have it, this one has no use for it");
        return 1;
    }
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if (!strcmp(has[i].option, name))
            program[n++] = has[i].program;
    if (n) {
        vl_buf_printf(b, "; --%s is an option of ", name);
        put_list(b, program, n);
    }
    return n > 0;
}

/* "verl-rollout, verl-update --role sft" of the table's "verl-rollout verl-update --role sft" */
static void put_owners(struct vl_buf *b, const char *owner)
{
    for (const char *next; (next = strstr(owner, " verl-")); owner = next + 1)
        vl_buf_printf(b, "%.*s, ", (int)(next - owner), owner);
    vl_buf_str(b, owner);
}

/* A config key of that name: how it is given where this program reads it, else who does. */
static void put_key(struct vl_buf *b, const struct vl_parsed *p, const char *name)
{
    char *key = vl_strdup(name), *full = NULL;
    struct vl_err quiet = { 0 };
    const struct vl_key *k;
    int own = 0;

    for (char *s = key; *s; s++)
        if (*s == '-')
            *s = '_';
    if (!vl_key_resolve(&p->names, key, 0, "", &full, &quiet)) {
        for (size_t i = 0; p->own_keys[i]; i++)
            own |= !strcmp(p->own_keys[i], full);
        k = vl_key_find(full);
        if (own) {
            vl_buf_printf(b, "; the config key is given as %s=VALUE", full);
        } else {
            vl_buf_printf(b, "; the config key %s is read by ", full);
            put_owners(b, k ? k->owner : "no program");
        }
    }
    free(full);
    free(key);
}

int vl_opt_unknown(const struct vl_parsed *p, const char *name, struct vl_err *e)
{
    const char *best = strchr(name, '.') ? NULL : nearest(p, name); /* a key has dots */
    struct vl_buf b = { 0 };

    if (best)
        vl_buf_printf(&b, ", the nearest is --%s", best);
    if (!put_programs(&b, name) && !best)
        put_key(&b, p, name);
    vl_fail(e, VL_E_USAGE, "unknown option --%s%s (--help lists all)", name, b.s ? b.s : "");
    vl_buf_free(&b);
    return e->code;
}

int vl_opt_unknown_letter(char letter, const char *arg, struct vl_err *e)
{
    const char *name = common_name(NULL, letter);
    char shown[] = { '-', letter, 0 };

    return vl_fail(e, VL_E_USAGE, "unknown option %s%s%s%s%s%s%s (--help lists all)", shown,
                   arg[2] ? " in '" : "", arg[2] ? arg : "", arg[2] ? "'" : "",
                   name ? "; other programs have it as --" : "", name ? name : "",
                   name ? ", this one has no use for it" : "");
}
