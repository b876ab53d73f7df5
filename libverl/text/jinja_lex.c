/* jinja_lex.c - template source to tokens, with jinja2's rules for white space.
 *
 * As transformers sets it up: trim_blocks (the newline after a block goes), lstrip_blocks (white
 * space before a block that begins its line goes), '-' strips either side, '+' keeps it. Newlines
 * are normalized and one at the very end is dropped before anything else. */
#include "libverl/text/jinja_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

#define MAX_NAMES 5000

struct lexer {
    struct vl_jin *in;
    const char *s;
    size_t n, at;
    int line;
    int line_starting; /* the last tag ended with a newline, or nothing came yet */
    struct vl_jtok *tok;
    size_t ntok, cap;
};

static struct vl_jtok *emit(struct lexer *l, enum vl_jtok_type type, const char *s, size_t n)
{
    if (l->ntok == l->cap) {
        struct vl_jtok *more;

        l->cap = l->cap ? 2 * l->cap : 64;
        more = vl_jalloc(l->in, l->cap * sizeof *more);
        if (l->ntok)
            memcpy(more, l->tok, l->ntok * sizeof *more);
        l->tok = more;
    }
    l->tok[l->ntok] = (struct vl_jtok){ .type = type, .line = l->line, .s = s, .n = n };
    return &l->tok[l->ntok++];
}

static int fail(struct lexer *l, const char *what)
{
    l->in->line = l->line;
    vl_jfail(l->in, "%s", what);
    return l->in->e->code;
}

static void count_lines(struct lexer *l, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        l->line += l->s[i] == '\n';
}

static int looking_at(const struct lexer *l, size_t at, const char *what)
{
    size_t n = strlen(what);

    return l->n - at >= n && memcmp(l->s + at, what, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    while (at < l->n) {
        uint32_t cp;
        size_t k = vl_uc_next(l->s + at, l->n - at, &cp);

        if (!vl_py_space(cp))
            break;
        at += k;
    }
    return at;
}

/* The text before a tag, less what the tag strips. */
static void text_before(struct lexer *l, size_t from, size_t to, char sign, int is_variable)
{
    struct vl_jv t = vl_jv_ref(l->s + from, to - from);

    if (sign == '-') {
        t = vl_py_strip(t, 0, 1);
    } else if (sign != '+' && !is_variable) {
        const char *nl = memrchr(t.u.s, '\n', t.n);
        size_t start = nl ? (size_t)(nl + 1 - t.u.s) : 0;

        if ((nl || l->line_starting) && start < t.n &&
            vl_py_strip(vl_jv_ref(t.u.s + start, t.n - start), 1, 0).n == 0)
            t.n = start;
    }
    if (t.n)
        emit(l, VL_JT_TEXT, t.u.s, t.n);
    count_lines(l, from, to);
}

/* Where the tag that ends at `at` (its closing mark starts there, with or without sign) leaves
 * off. */
static size_t after_tag(struct lexer *l, size_t at, size_t mark, int is_variable)
{
    char sign = l->s[at] == '-' || l->s[at] == '+' ? l->s[at] : 0;
    size_t end = at + (sign != 0) + mark;

    if (sign == '-')
        end = skip_space(l, end);
    else if (!sign && !is_variable && end < l->n && l->s[end] == '\n')
        end++;
    count_lines(l, at, end);
    l->line_starting = l->s[end - 1] == '\n';
    return end;
}

/* Whether a closing mark ("%}") starts here, perhaps with a sign. */
static int closes(const struct lexer *l, size_t at, const char *mark, const char *signs)
{
    if (looking_at(l, at, mark))
        return 1;
    return at < l->n && l->s[at] && strchr(signs, l->s[at]) && looking_at(l, at + 1, mark);
}

static int comment(struct lexer *l)
{
    size_t from = l->at;

    while (l->at < l->n && !closes(l, l->at, "#}", "-+"))
        l->at++;
    if (l->at == l->n && from == l->n)
        return 0; /* jinja2 misses that one */
    if (l->at == l->n)
        return fail(l, "a comment is not closed");
    count_lines(l, from, l->at);
    l->at = after_tag(l, l->at, 2, 0);
    return 0;
}

/* "raw" or "endraw" in a block tag at `at` (after "{%"): the end of the word, else 0. */
static size_t raw_word(const struct lexer *l, size_t at, const char *word)
{
    if (at < l->n && (l->s[at] == '-' || l->s[at] == '+'))
        at++;
    at = skip_space(l, at);
    if (!looking_at(l, at, word))
        return 0;
    at = skip_space(l, at + strlen(word));
    return closes(l, at, "%}", strcmp(word, "raw") == 0 ? "-" : "-+") ? at : 0;
}

static int raw(struct lexer *l, size_t end)
{
    size_t from, at, word = 0;
    char sign;

    /* unlike other blocks, raw keeps the newline after it */
    from = end + 2 + (l->s[end] == '-');
    if (l->s[end] == '-')
        from = skip_space(l, from);
    count_lines(l, l->at, from);
    for (at = from; at < l->n; at++)
        if (looking_at(l, at, "{%") && (word = raw_word(l, at + 2, "endraw")))
            break;
    if (at == l->n)
        return fail(l, "{% raw %} is not closed");
    sign = l->s[at + 2];
    l->line_starting = 0;
    text_before(l, from, at, sign == '-' || sign == '+' ? sign : 0, 0);
    l->at = after_tag(l, word, 2, 0);
    return 0;
}

/* ---- inside a tag ---- */

static int name_char(unsigned char c, int first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80 ||
           (!first && c >= '0' && c <= '9');
}

static int digit(const struct lexer *l, size_t at)
{
    return at < l->n && l->s[at] >= '0' && l->s[at] <= '9';
}

static int number(struct lexer *l)
{
    size_t at = l->at;
    struct vl_buf b = { 0 };
    int is_float = 0;
    struct vl_jv v;

    while (digit(l, at) || (at < l->n && l->s[at] == '_' && digit(l, at + 1)))
        at++;
    if (at == l->at + 1 && l->s[l->at] == '0' && at < l->n && strchr("xXoObB", l->s[at]))
        return fail(l, "integers in hexadecimal, octal or binary are not supported");
    if (at < l->n && l->s[at] == '.' && digit(l, at + 1)) {
        is_float = 1;
        for (at++; digit(l, at);)
            at++;
    }
    if (at < l->n && (l->s[at] == 'e' || l->s[at] == 'E')) {
        size_t k = at + 1;

        if (k < l->n && (l->s[k] == '-' || l->s[k] == '+'))
            k++;
        if (digit(l, k)) {
            is_float = 1;
            for (at = k; digit(l, at);)
                at++;
        }
    }
    for (size_t i = l->at; i < at; i++)
        if (l->s[i] != '_')
            vl_buf_ch(&b, l->s[i]);
    v = vl_jv_buf(l->in, &b);
    if (!is_float && v.u.s[0] == '0' && strspn(v.u.s, "0") != v.n)
        return fail(l, "an integer cannot begin with 0");
    emit(l, is_float ? VL_JT_FLOAT : VL_JT_INT, v.u.s, v.n);
    l->at = at;
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int hex_escape(struct lexer *l, const char *s, size_t left, int digits, struct vl_buf *b)
{
    uint32_t cp = 0;

    for (int i = 0; i < digits; i++) {
        int d = (size_t)i < left ? hex_digit(s[i]) : -1;

        if (d < 0)
            return fail(l, "a string has an unfinished \\x, \\u or \\U escape");
        cp = cp << 4 | (uint32_t)d;
    }
    if (cp > 0x10FFFF)
        return fail(l, "a string has an escape beyond U+10FFFF");
    vl_utf8_put(b, cp);
    return 0;
}

/* The escape after a backslash at s (left > 0 bytes); returns the bytes it took or 0 (failed). */
static size_t escape(struct lexer *l, const char *s, size_t left, struct vl_buf *b)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = *s ? strchr(from, *s) : NULL;
    int digits = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;

    if (known) {
        vl_buf_ch(b, to[known - from]);
        return 1;
    }
    if (*s == '\n') /* an escaped newline joins the lines */
        return 1;
    if (digits)
        return hex_escape(l, s + 1, left - 1, digits, b) ? 0 : 1 + (size_t)digits;
    if (*s >= '0' && *s <= '7') {
        uint32_t cp = 0;
        size_t n = 0;

        while (n < 3 && n < left && s[n] >= '0' && s[n] <= '7')
            cp = cp * 8 + (uint32_t)(s[n++] - '0');
        vl_utf8_put(b, cp);
        return n;
    }
    if (*s == 'N') {
        fail(l, "\\N{...} in a string is not supported");
        return 0;
    }
    vl_buf_ch(b, '\\'); /* unknown escapes stand for themselves */
    return (size_t)-1;
}

static int string(struct lexer *l)
{
    char quote = l->s[l->at];
    size_t at = l->at + 1;
    struct vl_buf b = { 0 };
    struct vl_jv v;

    while (at < l->n && l->s[at] != quote) {
        size_t k;

        if (l->s[at] != '\\') {
            vl_buf_ch(&b, l->s[at++]);
            continue;
        }
        if (at + 1 >= l->n)
            break;
        k = escape(l, l->s + at + 1, l->n - at - 1, &b);
        if (!k) {
            vl_buf_free(&b);
            return l->in->e->code;
        }
        at += k == (size_t)-1 ? 1 : 1 + k;
    }
    v = vl_jv_buf(l->in, &b);
    if (at >= l->n)
        return fail(l, "a string is not closed");
    emit(l, VL_JT_STRING, v.u.s, v.n);
    count_lines(l, l->at, at);
    l->at = at + 1;
    return 0;
}

static int operator(struct lexer *l)
{
    static const char *const two[] = { "**", "//", "==", "!=", "<=", ">=" };
    char c = l->s[l->at], shown[64] = "unexpected character ' '";

    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (looking_at(l, l->at, two[i])) {
            emit(l, VL_JT_OP, l->s + l->at, 2)->op = two[i][0] << 8 | two[i][1];
            l->at += 2;
            return 0;
        }
    if (!c || !strchr("+-*/%~[](){}<>=.:|,;", c)) {
        shown[22] = c >= 0x20 && c < 0x7F ? c : '?';
        return fail(l, shown);
    }
    emit(l, VL_JT_OP, l->s + l->at, 1)->op = c;
    l->at++;
    return 0;
}

/* Tokens up to the closing mark; brackets inside may hold it. */
static int tag(struct lexer *l, const char *mark, enum vl_jtok_type end)
{
    int depth = 0, is_variable = end == VL_JT_VAR_END;

    for (;;) {
        size_t from = l->at;
        unsigned char c;

        l->at = skip_space(l, l->at);
        count_lines(l, from, l->at);
        if (l->at >= l->n)
            return fail(l, "a tag is not closed");
        if (!depth && closes(l, l->at, mark, is_variable ? "-" : "-+")) {
            emit(l, end, NULL, 0);
            l->at = after_tag(l, l->at, 2, is_variable);
            return 0;
        }
        c = (unsigned char)l->s[l->at];
        if (c == '"' || c == '\'') {
            if (string(l))
                return l->in->e->code;
        } else if (c >= '0' && c <= '9') {
            if (number(l))
                return l->in->e->code;
        } else if (name_char(c, 1)) {
            size_t at = l->at;

            while (l->at < l->n && name_char((unsigned char)l->s[l->at], 0))
                l->at++;
            if (l->in->t->nintern > MAX_NAMES)
                return fail(l, "more than 5000 different names");
            emit(l, VL_JT_NAME, vl_jinja_intern(l->in->t, l->s + at, l->at - at), l->at - at);
        } else {
            if (operator(l))
                return l->in->e->code;
            depth += strchr("([{", c) != NULL;
            depth -= strchr(")]}", c) != NULL;
            if (depth < 0)
                return fail(l, "a closing bracket without its opening one");
        }
    }
}

int vl_jinja_lex(struct vl_jin *in, struct vl_jtok **out)
{
    struct lexer l = { .in = in, .s = in->t->src, .n = in->t->n, .line = 1, .line_starting = 1 };
    size_t text = 0;

    while (l.at < l.n) {
        size_t at = l.at, end;
        char mark = l.s[at] == '{' && at + 1 < l.n ? l.s[at + 1] : 0, sign;

        if (mark != '{' && mark != '%' && mark != '#') {
            l.at++;
            continue;
        }
        sign = at + 2 < l.n && (l.s[at + 2] == '-' || l.s[at + 2] == '+') ? l.s[at + 2] : 0;
        text_before(&l, text, at, sign, mark == '{');
        l.at = at + 2 + (sign != 0);
        if (mark == '#') {
            if (comment(&l))
                return in->e->code;
        } else if (mark == '%' && (end = raw_word(&l, at + 2, "raw"))) {
            if (raw(&l, end))
                return in->e->code;
        } else {
            emit(&l, mark == '{' ? VL_JT_VAR_BEGIN : VL_JT_BLOCK_BEGIN, NULL, 0);
            if (tag(&l, mark == '{' ? "}}" : "%}", mark == '{' ? VL_JT_VAR_END : VL_JT_BLOCK_END))
                return in->e->code;
        }
        text = l.at;
    }
    if (text < l.n)
        emit(&l, VL_JT_TEXT, l.s + text, l.n - text);
    emit(&l, VL_JT_EOF, NULL, 0);
    *out = l.tok;
    return in->e->code;
}
