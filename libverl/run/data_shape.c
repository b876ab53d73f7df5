/* data_shape.c - files that are not one object a line: said once, with the command that makes them so.
 *
 * A guess is made only where the first two lines that are not blank are no JSON: one bad line among
 * good ones is a bad row, not a file of another kind. */
#include "libverl/run/data_impl.h"

#include <stdlib.h>
#include <string.h>

static int parses(const char *s, size_t n, struct vl_json *j)
{
    struct vl_err ignored = { 0 };

    return vl_json_parse(j, s, n, "", &ignored) == 0;
}

static int is_json(const struct vl_line *l)
{
    struct vl_json j = { 0 };
    int is = parses(l->s, l->n, &j);

    vl_json_free(&j);
    return is;
}

char *vl_rows_member(const struct vl_json *j)
{
    uint32_t c = 1;

    for (uint32_t k = 0; vl_json_is(j, 0, VL_JSON_OBJECT) && k < j->node[0].count;
         k++, c = j->node[c + 1].next)
        if (vl_json_is(j, vl_json_at(j, c + 1, 0), VL_JSON_OBJECT))
            return vl_json_strdup(j, c);
    return NULL;
}

static size_t trimmed(const struct vl_line *l, const char **from)
{
    size_t n = l->n;

    for (*from = l->s; n && strchr(" \t", **from); n--)
        ++*from;
    while (n && strchr(" \t\r", (*from)[n - 1]))
        n--;
    return n;
}

static int separated(const struct vl_line *l, char by)
{
    return memchr(l->s, by, l->n) != NULL;
}

int vl_lines_shape(const struct vl_lines *l, int32_t file, int64_t first, struct vl_err *e)
{
    const struct vl_line *a = &l->line[first], *b = a + 1;
    const struct vl_buf *text = &l->text[file];
    const char *path = l->path[file], *from;
    struct vl_json j = { 0 };
    char *member = NULL;
    size_t n;

    if (l->n - first < 2 || is_json(a) || is_json(b))
        return 0;
    n = trimmed(a, &from);
    if (n && *from == '{' && parses(text->s, text->n, &j) && (member = vl_rows_member(&j)))
        vl_fail(e, VL_E_DATA,
                "%s: one object, whose member %s holds the rows; one row a line is wanted: jq -c "
                "'.[\"%s\"][]' %s > rows.jsonl",
                path, member, member, path);
    else if (n == 1 && *from == '{')
        vl_fail(e, VL_E_DATA,
                "%s: JSON objects over several lines; one object a line is wanted: jq -c . %s > "
                "rows.jsonl",
                path, path);
    else if (n && !strchr("{[\"", *from) &&
             ((separated(a, ',') && separated(b, ',')) ||
              (separated(a, '\t') && separated(b, '\t'))))
        vl_fail(e, VL_E_DATA,
                "%s: looks like a table (CSV); JSON objects are wanted, one a line: python3 -c "
                "'import csv,json,sys; [print(json.dumps(r)) for r in "
                "csv.DictReader(sys.stdin%s)]' < %s > rows.jsonl",
                path, separated(a, ',') ? "" : ", delimiter=\"\\t\"", path);
    free(member);
    vl_json_free(&j);
    return e->code;
}
