/* math_dapo.c - "Answer: ..." compared after Minerva's normalisation (verl's math_dapo): score 1 or
 * -1, acc, and pred, the normalised answer. With strict_box_verify the last \boxed{} of the last 100
 * characters is compared as it is. */
#include "libverl/reward/latex.h"
#include "libverl/reward/rules.h"
#include "libverl/text/unicode.h"
#include "formats/json.h"

#include <string.h>
#include <utf8proc.h>

enum { TAIL = 300, BOX_TAIL = 100 };

/* ---- normalisation ---- */

static void after_last_equals(struct vl_buf *b)
{
    const char *p = vl_tex_rfind(b->s, b->n, "=");

    if (!p)
        return;
    b->n -= (size_t)(p + 1 - b->s);
    memmove(b->s, p + 1, b->n);
}

/* Puts `out` in b's place; the bytes are never NULL, also when there are none. */
static void become(struct vl_buf *b, struct vl_buf *out)
{
    vl_buf_add(out, "", 0);
    vl_buf_free(b);
    *b = *out;
}

static const char *line_end(const char *p, const char *end)
{
    const char *nl = memchr(p, '\n', (size_t)(end - p));

    return nl ? nl : end;
}

/* (.*?)(\$)(.*?)(\$)(.*) -> $\3$, line by line. */
static void keep_dollars(struct vl_buf *b)
{
    struct vl_buf out = { 0 };
    const char *p = b->s, *end = b->s + b->n;

    while (p < end) {
        const char *stop = line_end(p, end), *one = memchr(p, '$', (size_t)(stop - p));
        const char *two = one ? memchr(one + 1, '$', (size_t)(stop - one - 1)) : NULL;

        vl_buf_add(&out, two ? one : p, (size_t)(two ? two + 1 - one : stop - p));
        if (stop < end)
            vl_buf_ch(&out, '\n');
        p = stop + 1;
    }
    become(b, &out);
}

/* Unwraps open(...)} : the content up to the first brace, or with greedy up to the last, of the
 * same line. */
static void unwrap(struct vl_buf *b, const char *open, int greedy)
{
    struct vl_buf out = { 0 };
    const char *p = b->s, *end = b->s + b->n, *hit;
    size_t n = strlen(open);

    while (p < end && (hit = memmem(p, (size_t)(end - p), open, n))) {
        const char *from = hit + n, *stop = line_end(from, end);
        const char *close = greedy ? memrchr(from, '}', (size_t)(stop - from))
                                   : memchr(from, '}', (size_t)(stop - from));

        if (close) {
            vl_buf_add(&out, p, (size_t)(hit - p));
            vl_buf_add(&out, from, (size_t)(close - from));
            p = close + 1;
        } else { /* no match here: the next one may begin one character on */
            vl_buf_add(&out, p, (size_t)(hit + 1 - p));
            p = hit + 1;
        }
    }
    if (p < end)
        vl_buf_add(&out, p, (size_t)(end - p));
    become(b, &out);
}

static void put_braced(struct vl_buf *out, const char *from, const char *to)
{
    vl_buf_ch(out, '{');
    vl_buf_add(out, from, (size_t)(to - from));
    vl_buf_ch(out, '}');
}

/* (frac)([^{])(.) -> frac{\2}{\3} and (sqrt)([^{]) -> sqrt{\2}; a `.` is no line feed. */
static void brace(struct vl_buf *b, const char *word, int two)
{
    struct vl_buf out = { 0 };
    const char *p = b->s, *end = b->s + b->n, *hit;

    while (p < end && (hit = memmem(p, (size_t)(end - p), word, 4))) {
        const char *x = hit + 4, *y = x < end ? x + vl_tex_char(x, (size_t)(end - x)) : end;
        const char *z = y;

        if (two && y < end)
            z = y + vl_tex_char(y, (size_t)(end - y));
        if (x == end || *x == '{' || (two && (y == end || *y == '\n'))) {
            vl_buf_add(&out, p, (size_t)(hit + 1 - p));
            p = hit + 1;
            continue;
        }
        vl_buf_add(&out, p, (size_t)(x - p));
        put_braced(&out, x, y);
        if (two)
            put_braced(&out, y, z);
        p = z;
    }
    if (p < end)
        vl_buf_add(&out, p, (size_t)(end - p));
    become(b, &out);
}

/* Python's str.isdigit() for one character: decimal digits, and digits of other forms. */
static int is_digit(uint32_t cp)
{
    static const uint32_t other[][2] = {
        { 0xB2, 0xB3 },       { 0xB9, 0xB9 },       { 0x1369, 0x1371 },   { 0x19DA, 0x19DA },
        { 0x2070, 0x2070 },   { 0x2074, 0x2079 },   { 0x2080, 0x2089 },   { 0x2460, 0x2468 },
        { 0x2474, 0x247C },   { 0x2488, 0x2490 },   { 0x24EA, 0x24EA },   { 0x24F5, 0x24FD },
        { 0x24FF, 0x24FF },   { 0x2776, 0x277E },   { 0x2780, 0x2788 },   { 0x278A, 0x2792 },
        { 0x10A40, 0x10A43 }, { 0x10E60, 0x10E68 }, { 0x11052, 0x1105A }, { 0x1F100, 0x1F10A },
    };

    if (cp == VL_UC_BAD)
        return 0;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (cp >= other[i][0] && cp <= other[i][1])
            return 1;
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND;
}

/* Without commas when only digits are left then. */
static void drop_commas(struct vl_buf *b)
{
    size_t digits = 0;
    uint32_t cp;

    for (size_t i = 0; i < b->n;) {
        i += vl_uc_next(b->s + i, b->n - i, &cp);
        if (cp == ',')
            continue;
        if (!is_digit(cp))
            return;
        digits++;
    }
    if (digits)
        vl_tex_replace(b, ",", "");
}

static void normalize(struct vl_buf *b)
{
    static const char *const change[][2] = {
        { "an ", "" },          { "a ", "" },
        { ".$", "$" },          { "\\$", "" },
        { "\\ ", "" },          { " ", "" },
        { "mbox", "text" },     { ",\\text{and}", "," },
        { "\\text{and}", "," }, { "\\text{m}", "\\text{}" },
    };
    static const char *const drop[] = {
        "square",     "ways",       "integers",  "dollars",      "mph",
        "inches",     "hours",      "km",        "units",        "\\ldots",
        "sue",        "points",     "feet",      "minutes",      "digits",
        "cents",      "degrees",    "cm",        "gm",           "pounds",
        "meters",     "meals",      "edges",     "students",     "childrentickets",
        "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",  "\\text{}^2",
        "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}", "^\\circ",
        "^{\\circ}",  "\\;",        ",\\!",      "{,}",          "\"",
        "\\dots",
    };
    const char *s;
    size_t n;

    after_last_equals(b);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++)
        vl_tex_replace(b, change[i][0], change[i][1]);
    for (size_t i = 0; i < sizeof drop / sizeof *drop; i++)
        vl_tex_replace(b, drop[i], "");
    keep_dollars(b);
    unwrap(b, "\\text{", 0);
    unwrap(b, "\\textbf{", 0);
    unwrap(b, "\\overline{", 0);
    unwrap(b, "\\boxed{", 1);
    brace(b, "frac", 1);
    brace(b, "sqrt", 0);
    vl_tex_replace(b, "$", "");
    drop_commas(b);
    s = b->s;
    n = b->n;
    vl_tex_strip(&s, &n);
    memmove(b->s, s, n);
    b->n = n;
}

/* ---- extraction: (?i)Answer\s*:\s*([^\n]+), the last match ---- */

static size_t spaces(const char *p, const char *end)
{
    const char *from = p;
    uint32_t cp;

    while (p < end) {
        size_t k = vl_uc_next(p, (size_t)(end - p), &cp);

        if (!vl_py_space(cp))
            break;
        p += k;
    }
    return (size_t)(p - from);
}

/* Bytes of "answer" at p in any case, 0 if it is not there. The long s folds to s. */
static size_t answer_word(const char *p, size_t n)
{
    static const char word[] = "answer";
    size_t at = 0;

    for (int i = 0; i < 6; i++) {
        if (i == 2 && n - at >= 2 && !memcmp(p + at, "\xC5\xBF", 2))
            at += 2;
        else if (at < n && (p[at] | 0x20) == word[i])
            at++;
        else
            return 0;
    }
    return at;
}

/* The group that starts after the colon, at p: *from up to the end of its line. 1 if it matches. */
static int group(const char *p, const char *end, const char **from)
{
    const char *q = p + spaces(p, end);

    if (q < end) {
        *from = q;
        return 1;
    }
    while (q > p) { /* only white space is left: the expression gives some of it back */
        q = p + vl_uc_back(p, (size_t)(q - p));
        if (*q != '\n') {
            *from = q;
            return 1;
        }
    }
    return 0;
}

static int extract(const char *s, size_t n, const char **answer, size_t *len)
{
    const char *p = s, *end = s + n, *from;
    int found = 0;

    while (p < end) {
        size_t word = answer_word(p, (size_t)(end - p));
        const char *q = p + word;

        q += word ? spaces(q, end) : 0;
        if (!word || q == end || *q != ':' || !group(q + 1, end, &from)) {
            p++;
            continue;
        }
        p = line_end(from, end);
        *answer = from;
        *len = (size_t)(p - from);
        found = 1;
    }
    return found;
}

/* ---- scores ---- */

static void set(struct vl_score *out, int right, const struct vl_buf *pred)
{
    struct vl_buf member = { 0 };

    vl_score_set(out, right ? 1 : -1);
    out->acc = right;
    vl_buf_str(&member, "\"pred\":");
    if (pred)
        vl_json_put_str(&member, pred->n ? pred->s : "", pred->n);
    else
        vl_buf_str(&member, "null");
    vl_score_add(out, member.s);
    vl_buf_free(&member);
}

static void score_box(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *tail = vl_last_chars(in->text, in->n, BOX_TAIL), *box;
    size_t n;
    struct vl_buf pred = { 0 };

    box = vl_tex_last_braced(tail, in->n - (size_t)(tail - in->text), "\\boxed{", &n);
    if (!box) {
        set(out, 0, NULL);
        return;
    }
    vl_buf_add(&pred, box + 7, n - 8);
    set(out, pred.n == in->truth_n && !memcmp(pred.s, in->truth, pred.n), &pred);
    vl_buf_free(&pred);
}

void vl_score_math_dapo(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *tail = vl_last_chars(in->text, in->n, TAIL), *answer = "[INVALID]";
    size_t len = strlen(answer);
    struct vl_buf pred = { 0 }, truth = { 0 };

    if (in->args->strict_box) {
        score_box(in, out);
        return;
    }
    extract(tail, in->n - (size_t)(tail - in->text), &answer, &len);
    vl_buf_add(&pred, answer, len);
    vl_buf_add(&truth, in->truth, in->truth_n);
    normalize(&pred);
    normalize(&truth);
    set(out, pred.n == truth.n && !memcmp(pred.s, truth.s, pred.n), &pred);
    vl_buf_free(&pred);
    vl_buf_free(&truth);
}
