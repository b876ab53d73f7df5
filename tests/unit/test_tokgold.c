/* test_tokgold.c - tokenizers against the reference's answers.
 *
 *   test_tokgold                               the tree's own: tests/golden/text/tokenizers.json and
 *                                              components.json, small tokenizers, one for each
 *                                              component, with their cases
 *   test_tokgold TOKENIZER GOLDEN.json...      encode, decode, pretok and bulk goldens, by content;
 *                                              t2010-tokenizers.sh runs it on the shared ones
 * Bulk goldens need VERL_DATASETS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/base/utf8.h"
#include "libverl/text/tok.h"
#include "tests/unit/sha256.h"

static int bad, checked;

static void report(const char *file, uint32_t k, const char *what, const struct vl_buf *want,
                   const struct vl_buf *got)
{
    checked++;
    if (want->n == got->n && (!want->n || memcmp(want->s, got->s, want->n) == 0))
        return;
    if (bad++ < 10)
        printf("# %s: case %u: %s\n#   want %.400s\n#   got  %.400s\n", file, k, what,
               want->s ? want->s : "", got->s ? got->s : "");
}

static void ids_text(const struct vl_ids *x, struct vl_buf *out)
{
    vl_buf_ch(out, '[');
    for (size_t i = 0; i < x->n; i++)
        vl_buf_printf(out, "%s%d", i ? "," : "", x->id[i]);
    vl_buf_ch(out, ']');
}

static void ids_of(const struct vl_json *j, int64_t arr, struct vl_ids *out)
{
    uint32_t k, c;

    for (k = 0, c = (uint32_t)arr + 1; k < j->node[arr].count; k++, c = j->node[c].next) {
        int64_t id = 0;

        vl_json_i64(j, c, &id);
        vl_ids_add(out, (int32_t)id);
    }
}

/* What a byte-fallback decoder makes of a malformed run depends on the whole of it, which a stream
 * has not seen when it shows the first characters. */
static int stream_may_differ(const struct vl_tok *t, const struct vl_buf *want)
{
    return vl_tok_id(t, "<0x0A>", 6) >= 0 && want->n && memmem(want->s, want->n, "\xEF\xBF\xBD", 3);
}

static void decode_case(const struct vl_tok *t, const char *file, const struct vl_json *j,
                        uint32_t k, int64_t c)
{
    static const char *const field[] = { "decoded", "decoded_skip_special" };
    struct vl_ids ids = { 0 };

    ids_of(j, vl_json_get(j, c, "ids"), &ids);
    for (int skip = 0; skip < 2; skip++) {
        struct vl_buf want = { 0 }, got = { 0 }, stream = { 0 };
        struct vl_tok_stream *s = vl_tok_stream_new(t, skip);

        if (vl_json_str(j, vl_json_get(j, c, field[skip]), &want)) {
            vl_tok_decode(t, ids.id, ids.n, skip, &got);
            report(file, k, field[skip], &want, &got);
            for (size_t i = 0; i < ids.n; i++)
                vl_tok_stream_push(s, ids.id[i], &stream);
            vl_tok_stream_end(s, &stream);
            if (!stream_may_differ(t, &want))
                report(file, k, "streamed", &want, &stream);
        }
        vl_tok_stream_free(s);
        vl_buf_free(&want);
        vl_buf_free(&got);
        vl_buf_free(&stream);
    }
    vl_ids_free(&ids);
}

static void encode_case(const struct vl_tok *t, const char *file, const struct vl_json *j,
                        uint32_t k, int64_t c)
{
    struct vl_buf text = { 0 }, want = { 0 }, got = { 0 };
    struct vl_ids ids = { 0 };
    struct vl_err e = { 0 };
    int special = 0;

    vl_json_bool(j, vl_json_get(j, c, "add_special_tokens"), &special);
    vl_json_str(j, vl_json_get(j, c, "text"), &text);
    vl_json_raw(j, vl_json_get(j, c, "ids"), &want);
    if (vl_tok_encode(t, text.s ? text.s : "", text.n, special ? VL_TOK_SPECIAL : 0, &ids, &e))
        vl_buf_str(&got, e.msg);
    else
        ids_text(&ids, &got);
    report(file, k, text.s ? text.s : "", &want, &got);
    vl_ids_free(&ids);
    vl_buf_free(&text);
    vl_buf_free(&want);
    vl_buf_free(&got);
}

static void add_piece(void *arg, const char *s, size_t n)
{
    struct vl_buf *b = arg;

    vl_buf_str(b, b->n ? "," : "[");
    vl_json_put_str(b, s, n);
}

static void pretok_case(const struct vl_tok *t, const char *file, const struct vl_json *j,
                        uint32_t k, int64_t c)
{
    struct vl_buf text = { 0 }, want = { 0 }, got = { 0 };
    int64_t arr = vl_json_get(j, c, "pieces");
    struct vl_err e = { 0 };
    uint32_t i, p;

    vl_json_str(j, vl_json_get(j, c, "text"), &text);
    for (i = 0, p = (uint32_t)arr + 1; i < j->node[arr].count; i++, p = j->node[p].next) {
        struct vl_buf piece = { 0 };

        vl_json_str(j, p, &piece);
        add_piece(&want, piece.s ? piece.s : "", piece.n);
        vl_buf_free(&piece);
    }
    if (vl_tok_pretokens(t, text.s ? text.s : "", text.n, add_piece, &got, &e))
        vl_buf_str(&got, e.msg);
    report(file, k, text.s ? text.s : "", &want, &got);
    vl_buf_free(&text);
    vl_buf_free(&want);
    vl_buf_free(&got);
}

/* Rows first..first + n of a JSON lines file, one field, hashed as the README of the goldens says. */
static void bulk_case(const struct vl_tok *t, const char *file, const struct vl_json *j, uint32_t k,
                      int64_t c)
{
    const char *root = getenv("VERL_DATASETS");
    char *name = vl_json_strdup(j, vl_json_get(j, c, "file")),
         *field = vl_json_strdup(j, vl_json_get(j, c, "field")),
         *path = vl_asprintf("%s/%s", root ? root : "", name);
    struct vl_buf text = { 0 }, want = { 0 }, got = { 0 };
    int64_t first = 0, rows = 0, row = 0;
    struct vl_ids ids = { 0 };
    struct vl_err e = { 0 };
    char *line, *next;

    vl_json_i64(j, vl_json_get(j, c, "first_row"), &first);
    vl_json_i64(j, vl_json_get(j, c, "rows"), &rows);
    vl_json_str(j, vl_json_get(j, c, "sha256"), &want);
    if (root && vl_fs_read(path, (size_t)1 << 30, &text, &e) == 0) {
        for (line = text.s; line && *line && row < first + rows; line = next, row++) {
            struct vl_json d = { 0 };
            struct vl_buf s = { 0 };

            next = strchr(line, '\n');
            if (next)
                *next++ = 0;
            if (row < first)
                continue;
            if (vl_json_parse(&d, line, strlen(line), path, &e) == 0 &&
                vl_json_str(&d, vl_json_get(&d, 0, field), &s))
                (void)!vl_tok_encode(t, s.s ? s.s : "", s.n, 0, &ids, &e);
            vl_json_free(&d);
            vl_buf_free(&s);
        }
        sha256_hex(ids.id, ids.n * sizeof *ids.id, &got);
        report(file, k, path, &want, &got);
    }
    if (e.code)
        printf("%s\n", e.msg), bad++;
    vl_buf_free(&text);
    vl_buf_free(&want);
    vl_buf_free(&got);
    vl_ids_free(&ids);
    free(name);
    free(field);
    free(path);
}

static void all_cases(const struct vl_tok *t, const char *file, const struct vl_json *j,
                      int64_t cases)
{
    uint32_t k, c;

    for (k = 0, c = (uint32_t)cases + 1; cases >= 0 && k < j->node[cases].count;
         k++, c = j->node[c].next) {
        if (vl_json_get(j, c, "sha256") >= 0)
            bulk_case(t, file, j, k, c);
        if (vl_json_get(j, c, "pieces") >= 0)
            pretok_case(t, file, j, k, c);
        if (vl_json_get(j, c, "text") >= 0 && vl_json_get(j, c, "ids") >= 0)
            encode_case(t, file, j, k, c);
        if (vl_json_get(j, c, "ids") >= 0)
            decode_case(t, file, j, k, c);
    }
}

/* Whatever ids come, the pieces of a stream are UTF-8 and make the text of all. */
static void random_streams(const struct vl_tok *t, const char *file)
{
    uint64_t seed = 88172645463325252u;

    for (uint32_t k = 0; k < 400 && vl_tok_size(t); k++) {
        struct vl_buf want = { 0 }, got = { 0 };
        struct vl_tok_stream *s = vl_tok_stream_new(t, k & 1);
        struct vl_ids ids = { 0 };

        for (uint32_t i = 0; i < k / 2 % 40; i++) {
            size_t before = got.n;

            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            /* half of them low: byte tokens are there */
            vl_ids_add(&ids, (int32_t)((seed >> 20) % (uint64_t)(seed & 1 && vl_tok_size(t) > 300
                                                                     ? 300
                                                                     : vl_tok_size(t))));
            vl_tok_stream_push(s, ids.id[i], &got);
            if (got.n > before && !vl_utf8_valid(got.s + before, got.n - before))
                bad++, printf("# %s: a piece of a stream is not UTF-8\n", file);
        }
        vl_tok_stream_end(s, &got);
        vl_tok_decode(t, ids.id, ids.n, k & 1, &want);
        if (!stream_may_differ(t, &want))
            report(file, k, "random ids, streamed", &want, &got);
        vl_tok_stream_free(s);
        vl_ids_free(&ids);
        vl_buf_free(&want);
        vl_buf_free(&got);
    }
}

static int golden(const struct vl_tok *t, const char *file)
{
    int was = checked;
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };

    if (vl_fs_read(file, (size_t)1 << 30, &text, &e) || vl_json_parse(&j, text.s, text.n, file, &e))
        return printf("%s\n", e.msg), 1;
    all_cases(t, file, &j, vl_json_get(&j, 0, "cases"));
    if (checked == was)
        bad++, printf("# %s: nothing was compared\n", file);
    vl_json_free(&j);
    vl_buf_free(&text);
    return 0;
}

/* One entry {name, tokenizer, cases} of the tree's own file; the tokenizer goes through a file. */
static int own_one(const struct vl_json *j, int64_t at)
{
    char path[] = "/tmp/verl-tok-XXXXXX", *name = vl_json_strdup(j, vl_json_get(j, at, "name"));
    struct vl_buf text = { 0 };
    struct vl_err e = { 0 };
    struct vl_tok *t;
    int fd = mkstemp(path), was = checked, failed;

    vl_json_raw(j, vl_json_get(j, at, "tokenizer"), &text);
    failed = fd < 0 || write(fd, text.s, text.n) != (ssize_t)text.n;
    close(fd);
    if (!failed && vl_tok_open(&t, path, &e) == 0) {
        all_cases(t, name, j, vl_json_get(j, at, "cases"));
        failed = checked == was;
        random_streams(t, name);
        vl_tok_free(t);
    } else {
        printf("# %s: %s\n", name, e.msg);
        failed = 1;
    }
    unlink(path);
    vl_buf_free(&text);
    free(name);
    return failed;
}

static const char *const own_files[] = { "tests/golden/text/tokenizers.json",
                                         "tests/golden/text/components.json" };

/* The entries of one file as tests number *k and following; with k NULL it counts them. */
static int own_file(const char *file, int *k)
{
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    uint32_t i, c;
    int n;

    if (vl_fs_read(file, (size_t)1 << 26, &text, &e) || vl_json_parse(&j, text.s, text.n, file, &e))
        return printf("1..1\nnot ok 1 - %s\n", e.msg), exit(1), 0;
    n = (int)j.node[0].count;
    for (i = 0, c = 1; k && i < j.node[0].count; i++, c = j.node[c].next) {
        char *name = vl_json_strdup(&j, vl_json_get(&j, c, "name"));
        int before = bad, was = checked, failed = own_one(&j, c);

        printf("%sok %d - %s: %d answers\n", failed || bad != before ? "not " : "", ++*k, name,
               checked - was);
        bad += failed;
        free(name);
    }
    vl_json_free(&j);
    vl_buf_free(&text);
    return n;
}

static int own(void)
{
    int k = 0;

    printf("1..%d\n", own_file(own_files[0], NULL) + own_file(own_files[1], NULL));
    own_file(own_files[0], &k);
    own_file(own_files[1], &k);
    return bad != 0;
}

int main(int argc, char **argv)
{
    struct vl_err e = { 0 };
    struct vl_tok *t;

    if (argc < 3)
        return own();
    if (vl_tok_open(&t, argv[1], &e))
        return puts(e.msg), e.code;
    for (int i = 2; i < argc; i++)
        bad += golden(t, argv[i]);
    random_streams(t, argv[1]);
    printf("%d of %d answers differ\n", bad, checked);
    vl_tok_free(t);
    return bad != 0 || checked == 0;
}
