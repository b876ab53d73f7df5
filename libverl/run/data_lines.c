/* data_lines.c - JSON lines files, cut at 0x0A only: other line separators of Unicode are ordinary
 * characters inside a string. */
#include "libverl/run/data_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/base/fs.h"

#define MAX_BYTES ((size_t)1 << 38)

/* A file of another kind is told by its first bytes. */
static int check_kind(const char *path, const struct vl_buf *b, struct vl_err *e)
{
    static const struct {
        const char *magic;
        size_t n;
        const char *what, *how;
    } known[] = {
        { "PAR1", 4, "Parquet",
          "duckdb -c \"copy (from '%s') to '/dev/stdout' (format json)\" | verl-data -" },
        { "\x28\xB5\x2F\xFD", 4, "zstd-compressed", "zstd -dc %s | verl-data -" },
        { "\x1F\x8B", 2, "gzip-compressed", "gzip -dc %s | verl-data -" },
        { "\xFD"
          "7zXZ",
          5, "xz-compressed", "xz -dc %s | verl-data -" },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (b->n >= known[i].n && memcmp(b->s, known[i].magic, known[i].n) == 0) {
            struct vl_buf how = { 0 };
            const char *at = strstr(known[i].how, "%s");

            vl_buf_add(&how, known[i].how, (size_t)(at - known[i].how));
            vl_buf_str(&how, path);
            vl_buf_str(&how, at + 2);
            vl_fail(e, VL_E_DATA, "%s: a %s file; rows must be JSON lines, for example: %s", path,
                    known[i].what, how.s);
            vl_buf_free(&how);
        }
    return e->code;
}

static int blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return 0;
    return 1;
}

static void cut(struct vl_lines *l, int32_t file, int64_t *cap)
{
    const char *p = l->text[file].s, *end = p + l->text[file].n;

    for (int64_t number = 1; p < end; number++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);

        if (!blank(p, n)) {
            if (l->n == *cap) {
                *cap = *cap ? 2 * *cap : 1024;
                l->line = vl_realloc(l->line, (size_t)*cap * sizeof *l->line);
            }
            l->line[l->n++] = (struct vl_line){ p, n, file, number };
        }
        p += n + (nl != NULL);
    }
}

int vl_lines_read(struct vl_lines *l, const struct vl_strs *files, struct vl_err *e)
{
    int64_t cap = 0;

    l->path = vl_alloc(files->n * sizeof *l->path);
    l->text = vl_alloc(files->n * sizeof *l->text);
    for (size_t i = 0; i < files->n && !e->code; i++) {
        int std = strcmp(files->s[i], "-") == 0;

        l->path[i] = vl_strdup(std ? "standard input" : files->s[i]);
        l->nfile = i + 1;
        if (vl_fs_read(std ? "/dev/stdin" : files->s[i], MAX_BYTES, &l->text[i], e) ||
            check_kind(l->path[i], &l->text[i], e))
            break;
        l->bytes += l->text[i].n;
        cut(l, (int32_t)i, &cap);
    }
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
