/* bench_tok.c - how fast a tokenizer encodes.
 *
 *   bench_tok TOKENIZER ROWS.jsonl [MAX_ROWS]     MB/s of one pass after a warm-up, CPU time
 *   bench_tok -i TOKENIZER ROWS.jsonl [MAX_ROWS]  a pass for each line of standard input; prints
 *                                                 its seconds of CPU (tok_vs_hf.py asks so)
 * Encoded are all string members of each row, each by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/text/tok.h"

struct texts {
    struct vl_buf all;
    size_t *end, n, cap;
};

static void add_row(struct texts *x, const char *line, size_t n)
{
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    uint32_t k, c;

    if (vl_json_parse(&j, line, n, "row", &e) == 0 && j.node[0].type == VL_JSON_OBJECT)
        for (k = 0, c = 1; k < j.node[0].count; k++, c = j.node[c + 1].next) {
            if (!vl_json_str(&j, c + 1, &x->all))
                continue;
            if (x->n == x->cap) {
                x->cap = x->cap ? 2 * x->cap : 1024;
                x->end = vl_realloc(x->end, x->cap * sizeof *x->end);
            }
            x->end[x->n++] = x->all.n;
        }
    vl_json_free(&j);
}

static double pass(const struct vl_tok *t, const struct texts *x, size_t *tokens)
{
    struct timespec a, b;
    struct vl_ids ids = { 0 };
    struct vl_err e = { 0 };

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    *tokens = 0;
    for (size_t i = 0, at = 0; i < x->n; at = x->end[i++]) {
        ids.n = 0;
        if (vl_tok_encode(t, x->all.s + at, x->end[i] - at, 0, &ids, &e))
            puts(e.msg), exit(1);
        *tokens += ids.n;
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    vl_ids_free(&ids);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

int main(int argc, char **argv)
{
    int ask = argc > 1 && strcmp(argv[1], "-i") == 0;
    struct vl_buf file = { 0 };
    struct texts x = { 0 };
    struct vl_err e = { 0 };
    struct vl_tok *t;
    size_t tokens, rows = 0, max;
    char line[16];
    double s;

    argv += ask, argc -= ask;
    if (argc < 3)
        return fputs("usage: bench_tok [-i] TOKENIZER ROWS.jsonl [MAX_ROWS]\n", stderr), 64;
    max = argc > 3 ? strtoul(argv[3], NULL, 10) : SIZE_MAX;
    if (vl_tok_open(&t, argv[1], &e) || vl_fs_read(argv[2], (size_t)1 << 30, &file, &e))
        return fprintf(stderr, "%s\n", e.msg), e.code;
    for (char *at = file.s, *end; at && *at && rows < max; at = end, rows++) {
        end = strchr(at, '\n');
        end = end ? end + 1 : at + strlen(at);
        add_row(&x, at, (size_t)(end - at));
    }
    pass(t, &x, &tokens);
    if (ask) {
        printf("%zu %zu\n", x.all.n, tokens);
        fflush(stdout);
        while (fgets(line, sizeof line, stdin)) {
            printf("%.6f\n", pass(t, &x, &tokens));
            fflush(stdout);
        }
    } else {
        s = pass(t, &x, &tokens);
        printf("%s: %.1f MB/s, %zu texts, %zu bytes, %zu tokens\n", argv[1],
               1e-6 * (double)x.all.n / s, x.n, x.all.n, tokens);
    }
    free(x.end);
    vl_buf_free(&x.all);
    vl_buf_free(&file);
    vl_tok_free(t);
    return 0;
}
