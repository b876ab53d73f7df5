/* data_lines.c - JSON lines files, cut at 0x0A only: other line separators of Unicode are ordinary
 * characters inside a string. */
#include "libverl/run/data_impl.h"

#include <stdlib.h>
#include <string.h>

static int blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return 0;
    return 1;
}

static void add_line(struct vl_lines *l, int64_t *cap, struct vl_line line)
{
    if (l->n == *cap) {
        *cap = *cap ? 2 * *cap : 1024;
        l->line = vl_realloc(l->line, (size_t)*cap * sizeof *l->line);
    }
    l->line[l->n++] = line;
}

static void cut(struct vl_lines *l, int32_t file, int64_t *cap)
{
    const char *p = l->text[file].s, *end = p + l->text[file].n;

    for (int64_t number = 1; p < end; number++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);

        if (!blank(p, n))
            add_line(l, cap, (struct vl_line){ p, n, file, number });
        p += n + (nl != NULL);
    }
}

/* A file that is one JSON list has its elements as rows, each with the number of the line that it
 * begins in. 0: it is something else. */
static int cut_list(struct vl_lines *l, int32_t file, int64_t *cap)
{
    const struct vl_buf *b = &l->text[file];
    struct vl_json j = { 0 };
    struct vl_err no = { 0 };
    int64_t number = 1;
    size_t at = 0;
    uint32_t c = 1;
    int list;

    while (at < b->n && strchr(" \t\r\n", b->s[at]) && b->s[at])
        at++;
    if (at == b->n || b->s[at] != '[')
        return 0;
    list = vl_json_parse(&j, b->s, b->n, "", &no) == 0;
    for (uint32_t k = 0; list && k < j.node[0].count; k++, c = j.node[c].next) {
        size_t quote = j.node[c].type == VL_JSON_STRING, from = j.node[c].at - quote;

        for (; at < from; at++)
            number += b->s[at] == '\n';
        add_line(l, cap, (struct vl_line){ b->s + from, j.node[c].len + 2 * quote, file, number });
    }
    vl_json_free(&j);
    return list;
}

int vl_lines_read(struct vl_lines *l, const struct vl_strs *names, struct vl_err *e)
{
    struct vl_strs files = { 0 };
    int64_t cap = 0, first;

    if (vl_files_expand(names, &files, e) == 0) {
        l->path = vl_alloc(files.n * sizeof *l->path);
        l->text = vl_alloc(files.n * sizeof *l->text);
    }
    for (size_t i = 0; i < files.n && !e->code; i++) {
        l->path[i] = vl_strdup(strcmp(files.s[i], "-") ? files.s[i] : "standard input");
        l->nfile = i + 1;
        if (vl_files_read(files.s[i], &l->text[i], e))
            break;
        l->bytes += l->text[i].n;
        first = l->n;
        if (!cut_list(l, (int32_t)i, &cap)) {
            cut(l, (int32_t)i, &cap);
            if (vl_lines_shape(l, (int32_t)i, first, e))
                break;
        }
    }
    vl_files_free(&files);
    return e->code;
}

void vl_lines_free(struct vl_lines *l)
{
    for (size_t i = 0; i < l->nfile; i++) {
        free(l->path[i]);
        vl_buf_free(&l->text[i]);
    }
    free(l->path);
    free(l->text);
    free(l->line);
    *l = (struct vl_lines){ 0 };
}
