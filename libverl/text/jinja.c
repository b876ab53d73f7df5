/* jinja.c - a template from its opening to its renders. See jinja.h. */
#include "libverl/text/jinja_impl.h"

#include <stdlib.h>
#include <string.h>

/* "\r\n" and "\r" become "\n"; one newline at the end goes (keep_trailing_newline is off). */
static char *normalize_newlines(const char *s, size_t n, size_t *out_n)
{
    char *out = vl_alloc(n + 1);
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n')
            continue;
        out[k++] = s[i];
        if (s[i] == '\r')
            out[k - 1] = '\n';
    }
    if (k && out[k - 1] == '\n')
        k--;
    out[k] = 0;
    *out_n = k;
    return out;
}

int vl_jinja_open(struct vl_jinja **j, const char *src, size_t n, const char *name,
                  struct vl_err *e)
{
    struct vl_jinja *t = vl_alloc(sizeof *t);
    struct vl_jin in = { .t = t, .mem = &t->tree, .e = e };

    t->name = vl_strdup(name);
    t->src = normalize_newlines(src, n, &t->n);
    *j = t;
    if (vl_jinja_parse(&in)) {
        vl_jinja_free(t);
        *j = NULL;
    }
    return e->code;
}

void vl_jinja_free(struct vl_jinja *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->nset; i++)
        free(t->set[i].json);
    vl_jregion_free(&t->tree);
    free(t->intern);
    free(t->set);
    free(t->src);
    free(t->name);
    free(t);
}

void vl_jinja_set_json(struct vl_jinja *t, const char *name, const char *json, size_t n)
{
    const char *known = vl_jinja_intern(t, name, strlen(name));
    size_t i = 0;

    while (i < t->nset && t->set[i].name != known)
        i++;
    if (i == t->nset) {
        t->set = vl_realloc(t->set, (t->nset + 1) * sizeof *t->set);
        t->set[t->nset++] = (struct vl_jset){ .name = known };
    }
    free(t->set[i].json);
    t->set[i].json = vl_strndup(json, n);
    t->set[i].n = n;
}

void vl_jinja_set_now(struct vl_jinja *t, int64_t seconds, int utc)
{
    t->now = seconds;
    t->now_utc = utc;
    t->now_set = 1;
}

int vl_jinja_render(struct vl_jinja *t, struct vl_buf *out, struct vl_err *e)
{
    struct vl_jregion mem = { 0 };
    struct vl_jin in = { .t = t, .mem = &mem, .out = out, .e = e };
    size_t before = out->n;

    vl_jrun(&in);
    if (e->code)
        out->n = before;
    vl_jregion_free(&mem);
    return e->code;
}
