/* test_text.c - parts of text that goldens do not reach: the regex dialect, both ways of merging,
 * added tokens with marks, streams, what is refused, and the limits of templates. */
#include "libverl/text/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libverl/base/fs.h"
#include "libverl/text/jinja_impl.h"
#include "libverl/text/tok_impl.h"
#include "libverl/text/unicode.h"

/* ---- regexes ---- */

static void test_regex_dialect(void **state)
{
    static const char *const same[] = { "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "a{2,3}?b*?c++",
                                        "(?<!x)y(?=z)(?:q)(?>r)",
                                        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]",
                                        "\\p{L}\\p{^Nd}\\P{Lu}" };
    static const char *const pair[][2] = {
        { "\\h+", "[0-9A-Fa-f]+" },
        { "[\\h_]", "[0-9A-Fa-f_]" },
        { "a{,3}", "a{0,3}" },
        { "\\p{N}{1,3}+", "(?:\\p{N}{1,3})+" },
        { "(ab|c){2}+x", "(?:(ab|c){2})+x" },
        { "a{2}?", "(?:a{2})?" },
        { "(?m:.)", "(?s:.)" },
        { "a{x}{", "a\\{x}\\{" },
        { "[]a]", "[\\]a]" },
        { "[[:alpha:]_]+", "[\\p{Alphabetic}_]+" },
        { "\\p{Han}[\\p{^Greek}]", "\\p{sc:Han}[\\p{^sc:Greek}]" },
    };
    struct vl_err e = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct vl_buf b = { 0 };

        assert_int_equal(vl_regex_translate(&b, same[i], strlen(same[i]), &e), 0);
        assert_string_equal(b.s, same[i]);
        vl_buf_free(&b);
    }
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        struct vl_buf b = { 0 };

        assert_int_equal(vl_regex_translate(&b, pair[i][0], strlen(pair[i][0]), &e), 0);
        assert_string_equal(b.s, pair[i][1]);
        vl_buf_free(&b);
    }
}

/* ---- Unicode forms ---- */

static void form(enum vl_norm_type type, const char *text, size_t n, struct vl_buf *out)
{
    struct vl_norm step = { .type = type };
    struct vl_err e = { 0 };
    int lost;

    vl_buf_reset(out);
    vl_buf_add(out, text, n);
    assert_int_equal(vl_normalize(&step, 1, out, NULL, &lost, &e), 0);
}

/* Marks since Unicode 10 are letters to the reference, and U+11A7 is no final consonant. */
static void test_forms(void **state)
{
    static const struct {
        enum vl_norm_type type;
        const char *text, *want;
    } c[] = {
        { VL_NORM_NFC, "e\u0316\u0301", "\u00e9\u0316" },
        { VL_NORM_NFC, "e\u0301\u0316", "\u00e9\u0316" },
        { VL_NORM_NFD, "\u00e9\u0316", "e\u0316\u0301" },
        { VL_NORM_NFC, "a\u1df9\u0301", "a\u1df9\u0301" },
        { VL_NORM_NFD, "a\u0345\u0c3c", "a\u0345\u0c3c" },
        { VL_NORM_NFKD, "\ufb01\u0345\u08e3", "fi\u08e3\u0345" },
        { VL_NORM_NFC, "\ub77c\u11a7", "\ub77c\u11a7" },
        { VL_NORM_NFKC, "\ub77c\u11a8", "\ub77d" },
        { VL_NORM_NFC, "\u1100\u1161\u11a8", "\uac01" },
    };
    struct vl_buf got = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        form(c[i].type, c[i].text, strlen(c[i].text), &got);
        assert_string_equal(got.s, c[i].want);
    }
    vl_buf_free(&got);
}

/* A text of nothing but marks: not the square of its length (100,000 took minutes). */
static void test_many_marks(void **state)
{
    enum { N = 500000 };
    struct vl_buf text = { 0 }, got = { 0 };

    (void)state;
    for (int i = 0; i < N; i++)
        vl_buf_str(&text, "\u0301\u0316");
    form(VL_NORM_NFC, text.s, text.n, &got);
    assert_int_equal(got.n, 4 * N);
    for (size_t i = 0; i < 4 * N; i += 2)
        assert_memory_equal(got.s + i, i < 2 * N ? "\u0316" : "\u0301", 2);
    vl_buf_free(&text);
    vl_buf_free(&got);
}

static void test_regex_refusals(void **state)
{
    static const char *const bad[][2] = {
        { "[a[b]]", "class inside a class" },
        { "[[:graph:]]", "[:name:]" },
        { "[\\W]", "\\W in a class" },
        { "[a&&b]", "intersection" },
        { "a\\Xb", "\\X" },
        { "\\k<x>", "\\k" },
        { "(a", "unclosed group" },
        { "[a", "unclosed class" },
        { "a)", "unmatched" },
        { "\\", "backslash" },
        { "(?~x)", "kind of group" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct vl_buf b = { 0 };
        struct vl_err e = { 0 };

        assert_int_equal(vl_regex_translate(&b, bad[i][0], strlen(bad[i][0]), &e), VL_E_DATA);
        if (!strstr(e.msg, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], e.msg);
        vl_buf_free(&b);
    }
}

/* \s is White_Space: not U+180E, which PCRE2's own would take. */
static void test_regex_space(void **state)
{
    static const char text[] = "a\xE1\xA0\x8E \xC2\xA0\xE3\x80\x80z";
    struct vl_regex_match *m = vl_regex_match_new();
    struct vl_regex *r;
    struct vl_err e = { 0 };
    size_t start, end;

    (void)state;
    assert_int_equal(vl_regex_new(&r, "\\s+", 3, &e), 0);
    assert_int_equal(vl_regex_find(r, m, text, sizeof text - 1, 0, &start, &end, &e), 1);
    assert_int_equal(start, 4);
    assert_int_equal(end, 10);
    vl_regex_free(r);
    vl_regex_match_free(m);
}

/* ---- merging ---- */

/* Words over a and b; every pair of pieces up to four letters merges, ranks scrambled. */
static void make_bpe(struct vl_bpe *b, struct vl_vocab *v)
{
    char piece[64][8];
    int n = 0;

    vl_vocab_init(v, 64, 64, 512);
    for (size_t len = 1; len <= 4; len++)
        for (int k = 0; k < 1 << len; k++, n++) {
            for (size_t i = 0; i < len; i++)
                piece[n][i] = (k >> i & 1) ? 'b' : 'a';
            piece[n][len] = 0;
            vl_vocab_add(v, piece[n], len, n);
        }
    b->vocab = v;
    b->unk = -1;
    b->mask = 4095;
    b->merge = vl_alloc(4096 * sizeof *b->merge);
    memset(b->merge, 0xFF, 4096 * sizeof *b->merge);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            char both[32];
            int32_t id;

            snprintf(both, sizeof both, "%.7s%.7s", piece[i], piece[j]);
            id = vl_vocab_get(v, both, strlen(both));
            if (id >= 0 && (i * 7 + j * 13) % 3)
                vl_bpe_add_merge(b, i, j, (uint32_t)((i * 31 + j * 17) % 97), id);
        }
}

static const struct vl_merge *merge_of(const struct vl_bpe *b, int32_t x, int32_t y)
{
    for (size_t i = 0; i <= b->mask; i++)
        if (b->merge[i].pair == ((uint64_t)(uint32_t)x << 32 | (uint32_t)y))
            return &b->merge[i];
    return NULL;
}

/* The definition: the lowest rank, leftmost, until nothing merges. */
static void naive(const struct vl_bpe *b, const char *s, size_t n, struct vl_ids *out)
{
    for (size_t i = 0; i < n; i++)
        vl_ids_add(out, vl_vocab_get(b->vocab, s + i, 1));
    for (;;) {
        const struct vl_merge *best = NULL;
        size_t at = 0;

        for (size_t i = 0; i + 1 < out->n; i++) {
            const struct vl_merge *m = merge_of(b, out->id[i], out->id[i + 1]);

            if (m && (!best || m->rank < best->rank))
                best = m, at = i;
        }
        if (!best)
            return;
        out->id[at] = best->id;
        memmove(out->id + at + 1, out->id + at + 2, (out->n - at - 2) * sizeof *out->id);
        out->n--;
    }
}

static void test_merges(void **state)
{
    struct vl_bpe b = { 0 };
    struct vl_vocab v;
    struct vl_err e = { 0 };
    uint32_t seed = 1;

    (void)state;
    make_bpe(&b, &v);
    for (size_t n = 1; n < 120; n += n < 45 ? 1 : 13) { /* 40 symbols divide the two ways */
        struct vl_ids want = { 0 }, got = { 0 };
        char s[128];

        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525 + 1013904223;
            s[i] = seed >> 31 ? 'a' : 'b';
        }
        naive(&b, s, n, &want);
        assert_int_equal(vl_bpe_encode(&b, s, n, &got, &e), 0);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.id, want.id, want.n * sizeof *want.id);
        vl_ids_free(&want);
        vl_ids_free(&got);
    }
    vl_vocab_free(&v);
    free(b.merge);
}

static void test_byte_alphabet(void **state)
{
    (void)state;
    for (int b = 0; b < 256; b++)
        assert_int_equal(vl_char_byte(vl_byte_char((unsigned char)b)), b);
    assert_int_equal(vl_byte_char(' '), 0x120);
    assert_int_equal(vl_char_byte(' '), -1);
    assert_int_equal(vl_char_byte(0x144), -1);
}

/* ---- whole tokenizers ---- */

static struct vl_tok *open_own(const char *name)
{
    char *path = vl_asprintf("tests/golden/text/%s", name);
    struct vl_err e = { 0 };
    struct vl_tok *t;

    if (vl_tok_open(&t, path, &e))
        fail_msg("%s", e.msg);
    free(path);
    return t;
}

static void test_special_texts(void **state)
{
    struct vl_tok *t = open_own("bytes");
    static const char text[] = "a<|end|>b";
    struct vl_ids ids = { 0 };
    struct vl_buf marked = { 0 };
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_tok_count_special(t, text, sizeof text - 1), 1);
    assert_int_equal(vl_tok_encode(t, text, sizeof text - 1, 0, &ids, &e), 0);
    assert_int_equal(ids.n, 3);
    assert_true(vl_tok_is_special(t, ids.id[1]));
    ids.n = 0;
    assert_int_equal(vl_tok_encode(t, text, sizeof text - 1, VL_TOK_NO_PARSE, &ids, &e), 0);
    assert_int_equal(ids.n, 9);
    /* the first is marked, the second is the template's own */
    assert_int_equal(vl_tok_mark(t, text, sizeof text - 1, &marked, &e), 0);
    vl_buf_str(&marked, "<|end|>");
    ids.n = 0;
    assert_int_equal(vl_tok_encode(t, marked.s, marked.n, VL_TOK_MARKED, &ids, &e), 0);
    assert_int_equal(ids.n, 10);
    assert_int_equal(ids.id[9], vl_tok_eos(t));
    assert_int_equal(vl_tok_mark(t, VL_TOK_MARK, 3, &marked, &e), VL_E_DATA);
    vl_ids_free(&ids);
    vl_buf_free(&marked);
    vl_tok_free(t);
}

/* A character of four tokens appears at once, with its last one. */
static void test_stream(void **state)
{
    struct vl_tok *t = open_own("bytes");
    struct vl_tok_stream *s = vl_tok_stream_new(t, 1);
    static const int32_t ids[] = { 'a', 0xF0, 0x9F, 0x99, 0x82, 'b', 0xE2, 0x82 };
    static const size_t shown[] = { 1, 1, 1, 1, 5, 6, 6, 6 };
    struct vl_buf out = { 0 };

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        vl_tok_stream_push(s, ids[i], &out);
        assert_int_equal(out.n, shown[i]);
    }
    vl_tok_stream_end(s, &out);
    assert_string_equal(out.s, "a\xF0\x9F\x99\x82"
                               "b\xEF\xBF\xBD");
    vl_buf_free(&out);
    vl_tok_stream_free(s);
    vl_tok_free(t);
}

static void test_questions(void **state)
{
    struct vl_tok *t = open_own("fallback");
    struct vl_buf b = { 0 };
    static const int32_t odd[] = { -1, 1 << 30, 5 };

    (void)state;
    assert_int_equal(vl_tok_bos(t), 1);
    assert_int_equal(vl_tok_eos(t), 2);
    assert_int_equal(vl_tok_pad(t), 2); /* none is named */
    assert_int_equal(vl_tok_id(t, "</s>", 4), 2);
    assert_int_equal(vl_tok_id(t, "nope", 4), -1);
    assert_null(vl_tok_template(t));
    assert_int_equal(strlen(vl_tok_hash(t)), 32);
    vl_tok_decode(t, odd, 3, 0, &b); /* ids out of range are skipped */
    assert_int_equal(b.n, 1);
    vl_buf_free(&b);
    vl_tok_free(t);
}

/* ---- refusals of tokenizer.json ---- */

static void refuses(const char *json, const char *words)
{
    char path[] = "/tmp/verl-text-XXXXXX";
    int fd = mkstemp(path);
    struct vl_err e = { 0 };
    struct vl_tok *t;

    assert_true(fd >= 0 && write(fd, json, strlen(json)) == (ssize_t)strlen(json));
    close(fd);
    assert_int_equal(vl_tok_open(&t, path, &e), VL_E_DATA);
    assert_null(t);
    if (!strstr(e.msg, words) || !strstr(e.msg, path))
        fail_msg("%s", e.msg);
    unlink(path);
}

static void test_tokenizer_refusals(void **state)
{
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"
    (void)state;
    refuses("{\"model\":{\"type\":\"Lattice\",\"vocab\":[]}}", "unsupported model (BPE");
    refuses("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "empty");
    refuses("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "token 0 is not");
    refuses("{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", "unk_id");
    refuses("{\"model\":{\"type\":\"WordPiece\",\"vocab\":[]}}", "without a vocab");
    refuses("{\"normalizer\":{\"type\":\"Precompiled\"}," MODEL "}", "precompiled_charsmap");
    refuses("{\"normalizer\":{\"type\":\"X\"}," MODEL "}", "normalizer X");
    refuses("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}",
            "pre-tokenizer UnicodeScripts");
    refuses("{\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":0}," MODEL "}", "FixedLength");
    refuses("{\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}," MODEL "}",
            "delimiter");
    refuses("{\"decoder\":{\"type\":\"X\"}," MODEL "}", "decoder X");
    refuses("{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", "pad_token");
    refuses("{\"post_processor\":{\"type\":\"X\"}," MODEL "}", "post-processor X");
    refuses("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge 0");
    refuses("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}",
            "vocabulary id");
    refuses("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.5}}",
            "dropout");
    refuses("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
            "\"behavior\":\"Isolated\"}," MODEL "}",
            "unclosed group");
    refuses("[]", "no model");
}

/* What the model cannot encode is an error where the reference has one, never left out. */
static void test_cannot_encode(void **state)
{
    static const char *const json[] = {
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<u>\",\"vocab\":{\"a\":0},\"merges\":[]}}",
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\",-1]]}}",
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"<u>\",\"vocab\":{\"a\":0}}}",
        "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"<u>\",\"vocab\":{\"a\":0}}}",
    };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char path[] = "/tmp/verl-text-XXXXXX";
        int fd = mkstemp(path);
        struct vl_ids ids = { 0 };
        struct vl_err e = { 0 };
        struct vl_tok *t;

        assert_true(fd >= 0 && write(fd, json[i], strlen(json[i])) == (ssize_t)strlen(json[i]));
        close(fd);
        assert_int_equal(vl_tok_open(&t, path, &e), 0);
        unlink(path);
        assert_int_equal(vl_tok_encode(t, "a", 1, 0, &ids, &e), 0);
        assert_int_equal(ids.n, 1);
        assert_int_equal(vl_tok_encode(t, "b", 1, 0, &ids, &e), VL_E_DATA);
        if (!strstr(e.msg, "unknown token"))
            fail_msg("%s", e.msg);
        vl_ids_free(&ids);
        vl_tok_free(t);
    }
}

/* ---- templates ---- */

static void template_fails(const char *src, const char *words)
{
    struct vl_jinja *t;
    struct vl_err e = { 0 };
    struct vl_buf out = { 0 };

    if (vl_jinja_open(&t, src, strlen(src), "t.jinja", &e) == 0) {
        assert_int_equal(vl_jinja_render(t, &out, &e), VL_E_DATA);
        vl_jinja_free(t);
    }
    if (!strstr(e.msg, words) || strncmp(e.msg, "t.jinja: line ", 14) != 0)
        fail_msg("%s: %s", src, e.msg);
    assert_int_equal(out.n, 0);
    vl_buf_free(&out);
}

static void test_template_refusals(void **state)
{
    (void)state;
    template_fails("{% include 'x' %}", "{% include %}");
    template_fails("\n\n{{ x|pprint }}", "line 3: the filter \"pprint\"");
    template_fails("{{ 'a' is sameas 'a' }}", "sameas of a str");
    template_fails("{{ 1 is string('x') }}", "takes 0 arguments");
    template_fails("{{ [1].append(2) }}", "\"append\" of a list");
    template_fails("{{ f(*x) }}", "* or **");
    template_fails("{{ 10 ** 60 }}", "64 bits");
    template_fails("{{ (0 - 8) ** 0.5 }}", "complex");
    template_fails("{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "recursive");
    template_fails("{% for x in [[]] recursive %}{{ loop([x]) }}{% endfor %}", "deeper than");
    template_fails("{% call 1 %}{% endcall %}", "expected a call");
    template_fails("{{ range(3)|map('abs') }}", "printing a generator");
    template_fails("{{ cycler(1, 2) }}", "cycler");
    template_fails("{{ x.y }}", "\"x\" is not defined");
    template_fails("{{ raise_exception('no ' ~ 1) }}", "no 1");
    template_fails("{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", "not defined");
    template_fails("{% macro f() %}{% set caller = 1 %}{% endmacro %}", "assigning to caller");
    template_fails("{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}", "caller");
}

static void test_template_limits(void **state)
{
    struct vl_buf deep = { 0 };

    (void)state;
    template_fails(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "steps");
    template_fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeper than");
    template_fails("{% set n = namespace(x='ab') %}{% for i in range(40) %}"
                   "{% set n.x = n.x ~ n.x %}{% endfor %}",
                   "grows beyond");
    template_fails("{{ 'x' * 999999999 }}", "grows beyond");
    template_fails("{% for a in range(90000) %}{{ 'x' * 1000 }}{% endfor %}", "grows beyond");
    template_fails("{{ range(10 ** 9) }}", "range too big");
    vl_buf_str(&deep, "{{ ");
    for (int i = 0; i < 5000; i++)
        vl_buf_ch(&deep, '(');
    for (int i = 0; i < 5000; i++)
        vl_buf_ch(&deep, ')');
    vl_buf_str(&deep, " }}");
    template_fails(deep.s, "nested too deeply");
    vl_buf_free(&deep);
}

/* Whether the page's section says the name, as a word between commas. */
static int page_names(const char *page, const char *section, const char *name)
{
    const char *at = strstr(page, section), *end;
    size_t n = strlen(name);

    assert_non_null(at);
    end = strstr(at + 3, "\n.S");
    assert_non_null(end);
    for (at += strlen(section); (at = strstr(at, name)) && at < end; at += n)
        if (strchr(" \n", at[-1]) && strchr(",.", at[n]))
            return 1;
    return 0;
}

/* verl-chat-template(7) lists the filters and tests there are, of all that jinja2 3.1 has. */
static void test_template_page(void **state)
{
    static const char *const filter[] = {
        "abs",    "attr",       "batch",       "capitalize", "center",   "count",
        "d",      "default",    "dictsort",    "e",          "escape",   "filesizeformat",
        "first",  "float",      "forceescape", "format",     "groupby",  "indent",
        "int",    "items",      "join",        "last",       "length",   "list",
        "lower",  "map",        "max",         "min",        "pprint",   "random",
        "reject", "rejectattr", "replace",     "reverse",    "round",    "safe",
        "select", "selectattr", "slice",       "sort",       "string",   "striptags",
        "sum",    "title",      "tojson",      "trim",       "truncate", "unique",
        "upper",  "urlencode",  "urlize",      "wordcount",  "wordwrap", "xmlattr",
    };
    static const char *const test[] = {
        "odd",    "even",    "divisibleby", "defined",  "undefined",   "filter",   "test",
        "none",   "boolean", "false",       "true",     "integer",     "float",    "lower",
        "upper",  "string",  "mapping",     "number",   "sequence",    "iterable", "callable",
        "sameas", "escaped", "in",          "eq",       "equalto",     "ne",       "gt",
        "ge",     "lt",      "le",          "lessthan", "greaterthan",
    };
    struct vl_buf page = { 0 };
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_fs_read("man/verl-chat-template.7", 1 << 20, &page, &e), 0);
    for (size_t i = 0; i < sizeof filter / sizeof *filter; i++)
        if (vl_jfilter_known(filter[i]) != page_names(page.s, ".Ss Filters", filter[i]))
            fail_msg("the filter %s", filter[i]);
    for (size_t i = 0; i < sizeof test / sizeof *test; i++)
        if (vl_jtest_known(test[i]) != page_names(page.s, ".Ss Tests", test[i]))
            fail_msg("the test %s", test[i]);
    vl_buf_free(&page);
}

/* The same template, another conversation: nothing stays from the last render. */
static void test_chat_again(void **state)
{
    struct vl_tok *t = open_own("bytes");
    static const char one[] = "[{\"role\":\"user\",\"content\":\"x\"}]",
                      two[] = "[{\"role\":\"user\",\"content\":\"y\"},{\"role\":\"assistant\","
                              "\"content\":\"z\"}]";
    struct vl_buf a = { 0 }, b = { 0 };
    struct vl_chat *c;
    struct vl_err e = { 0 };

    (void)state;
    assert_int_equal(vl_chat_open(&c, t, NULL, "chat", "{\"think\": true}", &e), 0);
    assert_int_equal(vl_chat_apply(c, two, sizeof two - 1, NULL, 0, &a, &e), 0);
    assert_string_equal(a.s, "<|user|>y<|end|><|bot|>z<|end|>");
    assert_int_equal(vl_chat_apply(c, one, sizeof one - 1, NULL, 1, &b, &e), 0);
    assert_string_equal(b.s, "<|user|>x<|end|><|bot|><think>");
    vl_buf_reset(&b);
    vl_chat_free(c);
    assert_int_equal(vl_chat_open(&c, t, "{{ eos_token }}|{{ bos_token }}", "t", NULL, &e), 0);
    assert_int_equal(vl_chat_apply(c, one, sizeof one - 1, NULL, 1, &b, &e), 0);
    assert_string_equal(b.s, "<|end|>|");
    vl_chat_free(c);
    vl_buf_free(&a);
    vl_buf_free(&b);
    vl_tok_free(t);
}

static void test_template_clock(void **state)
{
    static const char src[] = "{{ strftime_now('%d %b %Y %H:%M') }}";
    struct vl_buf out = { 0 };
    struct vl_jinja *t;
    struct vl_err e = { 0 };

    (void)state;
    setenv("SOURCE_DATE_EPOCH", "1741529107", 1);
    assert_int_equal(vl_jinja_open(&t, src, sizeof src - 1, "t", &e), 0);
    assert_int_equal(vl_jinja_render(t, &out, &e), 0);
    assert_string_equal(out.s, "09 Mar 2025 14:05");
    unsetenv("SOURCE_DATE_EPOCH");
    vl_jinja_free(t);
    vl_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regex_dialect),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_many_marks),
        cmocka_unit_test(test_regex_refusals),
        cmocka_unit_test(test_regex_space),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_byte_alphabet),
        cmocka_unit_test(test_template_page),
        cmocka_unit_test(test_cannot_encode),
        cmocka_unit_test(test_special_texts),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_tokenizer_refusals),
        cmocka_unit_test(test_template_refusals),
        cmocka_unit_test(test_template_limits),
        cmocka_unit_test(test_chat_again),
        cmocka_unit_test(test_template_clock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
