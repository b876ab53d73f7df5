/* fuzz_tokenizer.c - tokenizers and texts from outside.
 *
 * Input: a tokenizer.json, a line "---", a text; without that line the input is a text for a small
 * byte-level tokenizer. Whatever opens must encode any bytes to ids in range, decode them to UTF-8,
 * and give the same text as a stream; a byte-level one that loses nothing gives the text back. */
#include "libverl/text/tok.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libverl/text/unicode.h"
#include "tests/fuzz/main.h"

static struct vl_tok *open_text(const char *s, size_t n, struct vl_err *e)
{
    char path[64];
    int fd = memfd_create("tokenizer", 0);
    struct vl_tok *t = NULL;

    assert(fd >= 0 && write(fd, s, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (vl_tok_open(&t, path, e))
        assert(!t && e->msg[0] && !strchr(e->msg, '\n'));
    close(fd);
    return t;
}

static void try_text(const struct vl_tok *t, const char *s, size_t n, unsigned flags, int lossless)
{
    struct vl_tok_stream *st = vl_tok_stream_new(t, 0);
    struct vl_buf back = { 0 }, streamed = { 0 }, want = { 0 };
    struct vl_ids ids = { 0 };
    struct vl_err e = { 0 };

    if (vl_tok_encode(t, s, n, flags, &ids, &e) == 0) {
        for (size_t i = 0; i < ids.n; i++) {
            size_t before = streamed.n;

            assert(ids.id[i] >= 0);
            vl_tok_stream_push(st, ids.id[i], &streamed);
            assert(streamed.n == before || vl_utf8_valid(streamed.s + before, streamed.n - before));
        }
        vl_tok_stream_end(st, &streamed);
        vl_tok_decode(t, ids.id, ids.n, 0, &back);
        assert(vl_utf8_valid(back.s ? back.s : "", back.n));
        if (lossless) {
            vl_utf8_lossy(&want, s, n);
            assert(back.n == want.n && (!want.n || memcmp(back.s, want.s, want.n) == 0));
            assert(streamed.n == want.n && (!want.n || memcmp(streamed.s, want.s, want.n) == 0));
        }
    }
    vl_tok_stream_free(st);
    vl_ids_free(&ids);
    vl_buf_free(&back);
    vl_buf_free(&streamed);
    vl_buf_free(&want);
}

/* All 256 bytes and a few merges. */
static struct vl_tok *built_in(void)
{
    static struct vl_tok *t;
    static const char pair[][2][4] = { { "a", "b" }, { "ab", "a" }, { "\xC4\xA0", "a" } };
    struct vl_buf b = { 0 };
    struct vl_err e = { 0 };

    if (t)
        return t;
    vl_buf_str(&b, "{\"added_tokens\":[{\"id\":259,\"content\":\"<|x|>\",\"special\":true}],"
                   "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                   "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (unsigned i = 0; i < 256; i++) {
        uint32_t c = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174 ? i
                     : i <= 32                                                   ? 256 + i
                     : i <= 160 ? 256 + 33 + (i - 127)
                                : 256 + 33 + 34;

        vl_buf_printf(&b, "%s\"", i ? "," : "");
        if (c == '"' || c == '\\')
            vl_buf_ch(&b, '\\');
        vl_utf8_put(&b, c);
        vl_buf_printf(&b, "\":%u", i);
    }
    for (unsigned i = 0; i < 3; i++)
        vl_buf_printf(&b, ",\"%s%s\":%u", pair[i][0], pair[i][1], 256 + i);
    vl_buf_str(&b, "},\"merges\":[");
    for (unsigned i = 0; i < 3; i++)
        vl_buf_printf(&b, "%s\"%s %s\"", i ? "," : "", pair[i][0], pair[i][1]);
    vl_buf_str(&b, "]}}");
    t = open_text(b.s, b.n, &e);
    assert(t);
    vl_buf_free(&b);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *s = (const char *)data, *cut = size ? memmem(s, size, "\n---\n", 5) : NULL;
    struct vl_err e = { 0 };
    struct vl_tok *t;

    if (!cut) {
        try_text(built_in(), s, size, 0, 1);
        try_text(built_in(), s, size, VL_TOK_NO_PARSE, 1);
        return 0;
    }
    t = open_text(s, (size_t)(cut - s), &e);
    if (t) {
        try_text(t, cut + 5, size - (size_t)(cut + 5 - s), VL_TOK_SPECIAL, 0);
        try_text(t, cut + 5, size - (size_t)(cut + 5 - s), VL_TOK_MARKED, 0);
    }
    vl_tok_free(t);
    return 0;
}
