/* names.c - from a shortened key to the full one, and the nearest names to a wrong one. See keys.h. */
#include "libverl/base/keys.h"

#include <stdlib.h>
#include <string.h>

#define SFT_OWNER "--role sft"
#define LISTED    6 /* names shown in an error line */

/* All known keys in turn: the program's own first, then the table's that are not among them. */
struct walk {
    const struct vl_names *n;
    size_t own, table;
};

static int is_own(const struct vl_names *n, const char *key)
{
    for (size_t i = 0; n->own && n->own[i]; i++)
        if (!strcmp(n->own[i], key))
            return 1;
    return 0;
}

static const char *walk_next(struct walk *w)
{
    if (w->n->own && w->n->own[w->own])
        return w->n->own[w->own++];
    while (vl_keys[w->table].key) {
        const char *k = vl_keys[w->table++].key;
        if (!is_own(w->n, k))
            return k;
    }
    return NULL;
}

const struct vl_key *vl_key_find(const char *full)
{
    for (const struct vl_key *k = vl_keys; k->key; k++)
        if (!strcmp(k->key, full))
            return k;
    return NULL;
}

int vl_key_open(const char *full)
{
    const struct vl_key *k = vl_key_find(full);

    return k && k->value && k->value[0] == '{';
}

static int is_sft(const char *full)
{
    const struct vl_key *k = vl_key_find(full);

    return k && strstr(k->owner, SFT_OWNER);
}

/* "a.b" is a suffix of "x.a.b" and of itself. */
static int has_suffix(const char *key, const char *suffix)
{
    size_t n = strlen(key), m = strlen(suffix);

    return m <= n && !strcmp(key + n - m, suffix) && (m == n || key[n - m - 1] == '.');
}

/* Whether a key belongs to the subtree; "" stands for the keys of the program's table. */
static int below(const struct vl_names *n, const char *key)
{
    size_t len = strlen(n->subtree);

    if (!len)
        return is_own(n, key);
    return !strncmp(key, n->subtree, len) && key[len] == '.';
}

struct hits {
    const char *exact, *first;
    size_t n;
    struct vl_buf list;
};

static void collect(const struct vl_names *n, const char *given, int inside, struct hits *h)
{
    size_t head = inside && *n->subtree ? strlen(n->subtree) + 1 : 0;
    struct walk w = { .n = n };
    const char *k;

    while ((k = walk_next(&w))) {
        if ((inside && !below(n, k)) || !has_suffix(k, given))
            continue;
        if (!strcmp(k, given) || !strcmp(k + head, given))
            h->exact = k;
        if (!h->first)
            h->first = k;
        if (h->n < LISTED)
            vl_buf_printf(&h->list, "%s%s", h->n ? ", " : "", k);
        else if (h->n == LISTED)
            vl_buf_str(&h->list, ", ...");
        h->n++;
    }
}

/* A section of other keys, though shortened it is also the one key of an open map: rollout is the
 * actor's section and not reward_model's map, nor is rollout.topp a member of that. */
static int hides_section(const struct vl_names *n, const char *given, const struct hits *h)
{
    return !h->exact && h->n && vl_key_open(h->first) && vl_key_section(n, given);
}

/* A key below an open map, full or shortened: *made = the open map's full name plus the rest, NULL
 * when no leading part names an open map. */
static int open_member(const struct vl_names *n, const char *given, const char *where, char **made,
                       struct vl_err *e)
{
    char *head = vl_strdup(given), *full = NULL, *dot;
    int rc = 0;

    *made = NULL;
    while (!*made && !rc && (dot = strrchr(head, '.'))) {
        struct hits h = { 0 };
        *dot = 0;
        collect(n, head, 0, &h);
        vl_buf_free(&h.list);
        if (!h.n || !vl_key_open(h.first) || hides_section(n, head, &h))
            continue;
        rc = vl_key_resolve(n, head, 1, where, &full, e);
        if (!rc && vl_key_open(full))
            *made = vl_asprintf("%s%s", full, given + strlen(head));
        free(full);
    }
    free(head);
    return rc;
}

size_t vl_edits(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), w = m + 1, d;
    size_t *row;

    if (n > 200 || m > 200)
        return 1000;
    row = vl_alloc((n + 1) * w * sizeof *row);
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[i * w] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = row[(i - 1) * w + j - 1] + (a[i - 1] != b[j - 1]);
            if (row[(i - 1) * w + j] + 1 < best)
                best = row[(i - 1) * w + j] + 1;
            if (row[i * w + j - 1] + 1 < best)
                best = row[i * w + j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                row[(i - 2) * w + j - 2] + 1 < best)
                best = row[(i - 2) * w + j - 2] + 1;
            row[i * w + j] = best;
        }
    }
    d = row[n * w + m];
    free(row);
    return d;
}

/* The last `segments` segments of key. */
static const char *tail(const char *key, size_t segments)
{
    const char *p = key + strlen(key);

    while (p > key) {
        if (p[-1] == '.' && --segments == 0)
            break;
        p--;
    }
    return p;
}

/* Up to three names with the fewest edits, own ones first among equals. */
static void nearest(const struct vl_names *n, const char *given, struct vl_buf *out)
{
    const char *best[3] = { 0 }, *k;
    size_t cost[3] = { 0 }, segments = 1, found = 0;
    struct walk w = { .n = n };

    for (const char *p = given; *p; p++)
        segments += *p == '.';
    while ((k = walk_next(&w))) {
        size_t d = vl_edits(given, tail(k, segments)), last = vl_edits(tail(given, 1), tail(k, 1)),
               i;
        if (last + 1 < d && (last < 2 || last <= strlen(tail(given, 1)) / 4))
            d = last + 1; /* the right word in a wrong section */
        else if (d > 2 && d > strlen(given) / 4)
            continue;
        if (found == 3 && d >= cost[2])
            continue;
        i = found < 3 ? found++ : 2;
        for (; i > 0 && cost[i - 1] > d; i--)
            best[i] = best[i - 1], cost[i] = cost[i - 1];
        best[i] = k, cost[i] = d;
    }
    for (size_t i = 0; i < found; i++)
        vl_buf_printf(out, "%s%s", i ? ", " : "", best[i]);
}

static int ambiguous(const char *given, const char *where, const struct hits *h, struct vl_err *e)
{
    return vl_fail(e, VL_E_USAGE, "%s: key '%s' is ambiguous, write one of: %s", where, given,
                   h->list.s);
}

static int unknown(const struct vl_names *n, const char *given, const char *where, struct vl_err *e)
{
    struct vl_buf near = { 0 };
    int rc;

    if (vl_key_section(n, given))
        return vl_fail(e, VL_E_USAGE, "%s: '%s' is a section, write its keys: %s.NAME", where,
                       given, given);
    nearest(n, given, &near);
    if (near.n)
        rc = vl_fail(e, VL_E_USAGE, "%s: unknown key '%s'; the nearest known: %s", where, given,
                     near.s);
    else
        rc = vl_fail(e, VL_E_USAGE, "%s: unknown key '%s'; --help lists this program's keys", where,
                     given);
    vl_buf_free(&near);
    return rc;
}

int vl_key_resolve(const struct vl_names *n, const char *given, int file, const char *where,
                   char **full, struct vl_err *e)
{
    struct hits h = { 0 };
    const char *got = NULL;
    int rc = 0;

    *full = NULL;
    if (n->subtree)
        collect(n, given, 1, &h);
    if (!h.n)
        collect(n, given, 0, &h);
    if (h.n == 1 && hides_section(n, given, &h))
        h.n = 0;
    if (h.exact && (file || h.n == 1 || !is_sft(h.exact) || is_own(n, h.exact)))
        got = h.exact;
    else if (h.n == 1)
        got = h.first;
    if (got)
        *full = vl_strdup(got);
    else if (h.n)
        rc = ambiguous(given, where, &h, e);
    else if (!(rc = open_member(n, given, where, full, e)) && !*full)
        rc = unknown(n, given, where, e);
    vl_buf_free(&h.list);
    return rc;
}

int vl_key_section(const struct vl_names *n, const char *path)
{
    struct walk w = { .n = n };
    size_t len = strlen(path);
    const char *k;

    while ((k = walk_next(&w)))
        for (const char *p = k; p; p = strchr(p, '.') ? strchr(p, '.') + 1 : NULL)
            if (!strncmp(p, path, len) && p[len] == '.')
                return 1;
    return 0;
}
