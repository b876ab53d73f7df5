/* regex.c - Oniguruma's dialect rewritten for PCRE2, and matching. See regex.h.
 *
 * Differences that occur in tokenizers: \s is White_Space (PCRE2's UCP adds U+180E); \w has marks and
 * letters in circles; \p{Han} is the script, not its extensions; \h is a hex digit; {,n} is a quantifier; a '+' after a braced quantifier repeats it instead of making it
 * possessive, and '?' after {n} makes it optional; ^ and $ match at lines; '(?m' is dot-all. */
#include "libverl/text/regex.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SPACE_SET                                                                                  \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"       \
    "\\x{3000}"
#define PLAIN_WORD                                                                                 \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-"         \
    "\\x{1F169}\\x{1F170}-\\x{1F189}"
#define WORD_SET        PLAIN_WORD "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define AFTER_WORD      "(?<=[" WORD_SET "])"
#define NOT_AFTER_WORD  "(?<![" WORD_SET "])"
#define BEFORE_WORD     "(?=[" WORD_SET "])"
#define NOT_BEFORE_WORD "(?![" WORD_SET "])"
#define MAX_GROUPS      64

struct vl_regex {
    pcre2_code *code;
    int jit;
};

struct vl_regex_match {
    pcre2_match_data *data;
};

struct translator {
    const char *p, *end, *pat;
    struct vl_buf *out;
    size_t atom;              /* where in out the last complete atom starts */
    int has_atom;             /* something that a quantifier can follow */
    size_t group[MAX_GROUPS]; /* where in out each open group starts */
    int depth;
    struct vl_err *e;
};

static int refuse(struct translator *t, const char *what)
{
    return vl_fail(t->e, VL_E_DATA, "regex \"%.200s\": byte %zu: %s is not supported", t->pat,
                   (size_t)(t->p - t->pat), what);
}

static int compiles(const char *pattern)
{
    int code;
    size_t at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);

    pcre2_code_free(re);
    return re != NULL;
}

/* {name} of \p: PCRE2 takes a script's name for the script and its extensions. */
static void property(struct translator *t, const char *name, const char *end)
{
    const char *body = name < end && *name == '^' ? name + 1 : name;
    char *script = vl_asprintf("\\p{sc:%.*s}", (int)(end - body), body);

    vl_buf_add(t->out, "{", 1);
    vl_buf_add(t->out, name, (size_t)(body - name));
    if (!memchr(body, ':', (size_t)(end - body)) && compiles(script))
        vl_buf_str(t->out, "sc:");
    vl_buf_add(t->out, body, (size_t)(end + 1 - body));
    free(script);
}

/* A backslash escape at t->p; in_set: inside [...]. */
static int escape(struct translator *t, int in_set)
{
    char c = t->p + 1 < t->end ? t->p[1] : 0;

    if (!c)
        return refuse(t, "a backslash at the end");
    t->p += 2;
    switch (c) {
    case 's':
        vl_buf_str(t->out, in_set ? SPACE_SET : "[" SPACE_SET "]");
        return 0;
    case 'S':
        vl_buf_str(t->out, in_set ? "\\P{White_Space}" : "[^" SPACE_SET "]");
        return 0;
    case 'w':
        vl_buf_str(t->out, in_set ? WORD_SET : "[" WORD_SET "]");
        return 0;
    case 'W':
        if (in_set)
            return refuse(t, "\\W in a class");
        vl_buf_str(t->out, "[^" WORD_SET "]");
        return 0;
    case 'b':
    case 'B':
        if (in_set)
            break;
        vl_buf_str(t->out,
                   c == 'b' ? "(?:" AFTER_WORD NOT_BEFORE_WORD "|" NOT_AFTER_WORD BEFORE_WORD ")"
                            : "(?:" AFTER_WORD BEFORE_WORD "|" NOT_AFTER_WORD NOT_BEFORE_WORD ")");
        return 0;
    case 'h':
        vl_buf_str(t->out, in_set ? "0-9A-Fa-f" : "[0-9A-Fa-f]");
        return 0;
    case 'p':
    case 'P':
        if (t->p < t->end && *t->p != '{')
            return refuse(t, "\\p without braces");
        break;
    case 'H':
        if (!in_set) {
            vl_buf_str(t->out, "[^0-9A-Fa-f]");
            return 0;
        }
        /* fall through */
    case 'g':
    case 'k':
    case 'y':
    case 'Y':
    case 'K':
    case 'N':
    case 'O':
    case 'X':
    case 'R':
    case 'c':
    case 'C':
    case 'M':
    case 'Q':
    case 'E': {
        char name[24] = { '\\', c, 0 };

        t->p -= 2;
        return refuse(t, name);
    }
    default:
        break;
    }
    vl_buf_ch(t->out, '\\');
    vl_buf_ch(t->out, c);
    if (c == 'p' || c == 'P' || c == 'x' || c == 'u')
        while (t->p < t->end && t->out->s[t->out->n - 1] != '}' && *t->p == '{') {
            const char *close = memchr(t->p, '}', (size_t)(t->end - t->p));

            if (!close)
                return refuse(t, "an unclosed brace");
            if (c == 'p' || c == 'P')
                property(t, t->p + 1, close);
            else
                vl_buf_add(t->out, t->p, (size_t)(close + 1 - t->p));
            t->p = close + 1;
        }
    return 0;
}

/* [:name:] inside [...]. */
static int posix_set(struct translator *t)
{
    static const char *const set[][2] = {
        { "[:alpha:]", "\\p{Alphabetic}" }, { "[:alnum:]", "\\p{Alphabetic}\\p{Nd}" },
        { "[:upper:]", "\\p{Uppercase}" },  { "[:lower:]", "\\p{Lowercase}" },
        { "[:digit:]", "\\p{Nd}" },         { "[:xdigit:]", "0-9A-Fa-f" },
        { "[:space:]", SPACE_SET },         { "[:word:]", PLAIN_WORD },
        { "[:punct:]", "\\p{P}\\p{S}" },    { "[:cntrl:]", "\\p{Cc}" },
    };

    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        size_t n = strlen(set[i][0]);

        if ((size_t)(t->end - t->p) >= n && memcmp(t->p, set[i][0], n) == 0) {
            vl_buf_str(t->out, set[i][1]);
            t->p += n;
            return 0;
        }
    }
    return refuse(t,
                  t->p + 1 < t->end && t->p[1] == ':' ? "this [:name:]" : "a class inside a class");
}

static int char_class(struct translator *t)
{
    vl_buf_ch(t->out, *t->p++);
    if (t->p < t->end && *t->p == '^')
        vl_buf_ch(t->out, *t->p++);
    if (t->p < t->end && *t->p == ']') {
        vl_buf_str(t->out, "\\]");
        t->p++;
    }
    while (t->p < t->end && *t->p != ']') {
        if (*t->p == '\\') {
            if (escape(t, 1))
                return t->e->code;
        } else if (*t->p == '[') {
            if (posix_set(t))
                return t->e->code;
        } else if (*t->p == '&' && t->p + 1 < t->end && t->p[1] == '&') {
            return refuse(t, "an intersection of classes (&&)");
        } else {
            vl_buf_ch(t->out, *t->p++);
        }
    }
    if (t->p == t->end)
        return refuse(t, "an unclosed class");
    vl_buf_ch(t->out, *t->p++);
    return 0;
}

/* Wraps the atom and the quantifiers written so far: X{n,m} -> (?:X{n,m}). */
static void wrap_atom(struct translator *t)
{
    size_t n = t->out->n - t->atom;

    vl_buf_str(t->out, "(?:)");
    memmove(t->out->s + t->atom + 3, t->out->s + t->atom, n);
    memcpy(t->out->s + t->atom, "(?:", 3);
    t->out->s[t->out->n - 1] = ')';
}

/* {n}, {n,}, {,m}, {n,m}; anything else in braces is literal text, as in both dialects. */
static int brace(struct translator *t)
{
    const char *q = t->p + 1;
    size_t lo = 0, hi = 0;
    int comma = 0;

    for (; q < t->end && *q >= '0' && *q <= '9'; q++)
        lo++;
    if (q < t->end && *q == ',') {
        comma = 1;
        for (q++; q < t->end && *q >= '0' && *q <= '9'; q++)
            hi++;
    }
    if (q >= t->end || *q != '}' || (!lo && !hi) || !t->has_atom) {
        t->atom = t->out->n;
        vl_buf_str(t->out, "\\{");
        t->p++;
        t->has_atom = 1;
        return 0;
    }
    vl_buf_str(t->out, lo ? "{" : "{0");
    vl_buf_add(t->out, t->p + 1, (size_t)(q + 1 - (t->p + 1)));
    t->p = q + 1;
    if (t->p < t->end && (*t->p == '+' || (*t->p == '?' && !comma))) {
        wrap_atom(t);
        vl_buf_ch(t->out, *t->p++);
    } else if (t->p < t->end && *t->p == '?') {
        vl_buf_ch(t->out, *t->p++);
    }
    return 0;
}

static int open_group(struct translator *t)
{
    if (t->depth == MAX_GROUPS)
        return refuse(t, "nesting deeper than 64 groups");
    t->group[t->depth++] = t->out->n;
    t->has_atom = 0;
    vl_buf_ch(t->out, *t->p++);
    if (t->p >= t->end || *t->p != '?')
        return 0;
    vl_buf_ch(t->out, *t->p++);
    /* options: i, m (dot-all here), x; lookaround, atomic and named groups read the same */
    while (t->p < t->end && strchr("imx-", *t->p)) {
        vl_buf_ch(t->out, *t->p == 'm' ? 's' : *t->p);
        t->p++;
    }
    if (t->p < t->end && !strchr(":=!<>)", *t->p))
        return refuse(t, "this kind of group");
    if (t->p < t->end && *t->p != ')')
        vl_buf_ch(t->out, *t->p++);
    /* the character after (?< is = or ! or a name: literal for us */
    while (t->out->s[t->out->n - 1] == '<' && t->p < t->end && (*t->p == '=' || *t->p == '!'))
        vl_buf_ch(t->out, *t->p++);
    return 0;
}

static int one(struct translator *t)
{
    char c = *t->p;

    if (c == '*' || c == '+' || c == '?') {
        vl_buf_ch(t->out, *t->p++);
        return 0;
    }
    if (c == '{')
        return brace(t);
    if (c == '(')
        return open_group(t);
    if (c == ')') {
        if (t->depth == 0)
            return refuse(t, "an unmatched )");
        t->atom = t->group[--t->depth];
        t->has_atom = 1;
        vl_buf_ch(t->out, *t->p++);
        return 0;
    }
    if (c == '|') {
        t->has_atom = 0;
        vl_buf_ch(t->out, *t->p++);
        return 0;
    }
    t->atom = t->out->n;
    t->has_atom = 1;
    if (c == '\\')
        return escape(t, 0);
    if (c == '[')
        return char_class(t);
    do
        vl_buf_ch(t->out, *t->p++);
    while (t->p < t->end && (*t->p & 0xC0) == 0x80);
    return 0;
}

int vl_regex_translate(struct vl_buf *out, const char *pat, size_t n, struct vl_err *e)
{
    struct translator t = { .p = pat, .end = pat + n, .pat = pat, .out = out, .e = e };

    while (t.p < t.end)
        if (one(&t))
            return e->code;
    if (t.depth)
        return refuse(&t, "an unclosed group");
    return 0;
}

int vl_regex_new(struct vl_regex **r, const char *pat, size_t n, struct vl_err *e)
{
    struct vl_buf t = { 0 };
    pcre2_compile_context *cc;
    int code;
    size_t at;

    *r = NULL;
    if (vl_regex_translate(&t, pat, n, e)) {
        vl_buf_free(&t);
        return e->code;
    }
    cc = pcre2_compile_context_create(NULL);
    if (!cc)
        vl_oom(0);
    pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
    *r = vl_alloc(sizeof **r);
    (*r)->code = pcre2_compile((PCRE2_SPTR)(t.s ? t.s : ""), t.n,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!(*r)->code) {
        char why[120];

        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        vl_fail(e, VL_E_DATA, "regex \"%.*s\": %s (at byte %zu of \"%s\")",
                (int)(n < 200 ? n : 200), pat, why, at, t.s);
        free(*r);
        *r = NULL;
    } else {
        (*r)->jit = pcre2_jit_compile((*r)->code, PCRE2_JIT_COMPLETE) == 0;
    }
    vl_buf_free(&t);
    return e->code;
}

void vl_regex_free(struct vl_regex *r)
{
    if (r)
        pcre2_code_free(r->code);
    free(r);
}

struct vl_regex_match *vl_regex_match_new(void)
{
    struct vl_regex_match *m = vl_alloc(sizeof *m);

    m->data = pcre2_match_data_create(1, NULL);
    if (!m->data)
        vl_oom(0);
    return m;
}

void vl_regex_match_free(struct vl_regex_match *m)
{
    if (m)
        pcre2_match_data_free(m->data);
    free(m);
}

int vl_regex_find(const struct vl_regex *r, struct vl_regex_match *m, const char *text, size_t n,
                  size_t from, size_t *start, size_t *end, struct vl_err *e)
{
    PCRE2_SPTR s = (PCRE2_SPTR)text;
    PCRE2_SIZE *range;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;

    if (r->jit)
        rc = pcre2_jit_match(r->code, s, n, from, 0, m->data, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its state on the heap */
        rc = pcre2_match(r->code, s, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, NULL);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        char why[120];

        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        vl_fail(e, VL_E_DATA, "pre-tokenizer regex, %zu bytes of text, at byte %zu: %s", n, from,
                why);
        return -1;
    }
    range = pcre2_get_ovector_pointer(m->data);
    *start = range[0], *end = range[1];
    return 1;
}
