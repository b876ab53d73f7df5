/* json.c - span scanner and writers for JSON. See json.h.
 *
 * Ours rather than libjq's parser because spans keep every digit and lone surrogate as they came,
 * and a 10 MB tokenizer.json takes a fifth of the time. The parser is a loop with a stack of open
 * containers, so hostile nesting costs an error line and never the C stack. */
#include "formats/json.h"

#include "libverl/base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 512

struct scan {
    const char *s;
    size_t n, p; /* p: next byte to read */
    struct vl_json *j;
    uint32_t cap, max;
    const char *name;
    struct vl_err *e;
    uint32_t open[DEPTH_MAX]; /* node indices of the containers around p */
    int depth;
};

/* One line: where, what was found, what was expected. */
static int bad(struct scan *s, size_t at, const char *expected)
{
    char found[40];

    if ((s->n - at >= 3 && at < s->n && !memcmp(s->s + at, "NaN", 3)) ||
        (s->n - at >= 8 && at < s->n && !memcmp(s->s + at, "Infinity", 8)))
        return vl_fail(
            s->e, VL_E_DATA,
            "%s: not JSON at byte %zu: found %.*s, which JSON has not; write null or the "
            "text \"NaN\" (Python: json.dumps(..., allow_nan=False) finds such numbers)",
            s->name, at, s->s[at] == 'N' ? 3 : 8, s->s + at);
    if (at >= s->n)
        snprintf(found, sizeof found, "the text ends");
    else if (s->s[at] > 0x20 && s->s[at] < 0x7F)
        snprintf(found, sizeof found, "found '%c'", s->s[at]);
    else
        snprintf(found, sizeof found, "found byte 0x%02X", (unsigned char)s->s[at]);
    return vl_fail(s->e, VL_E_DATA, "%s: not JSON at byte %zu: %s, expected %s", s->name, at, found,
                   expected);
}

static int grow(struct scan *s)
{
    uint64_t cap = s->cap ? 2 * (uint64_t)s->cap : 64;
    void *p;

    if (s->j->n >= s->max)
        return vl_fail(s->e, VL_E_DATA,
                       "%s: JSON text has more than %" PRIu32
                       " values, the most one document may have (byte %zu)",
                       s->name, s->max, s->p);
    if (cap > s->max)
        cap = s->max;
    p = realloc(s->j->node, (size_t)cap * sizeof *s->j->node);
    if (!p)
        return vl_fail(s->e, VL_E_OS, "%s: out of memory for %" PRIu64 " JSON values", s->name,
                       cap);
    s->j->node = p;
    s->cap = (uint32_t)cap;
    return 0;
}

static int add(struct scan *s, enum vl_json_type type, size_t at, size_t len, int escaped)
{
    if (s->j->n >= s->cap && grow(s))
        return s->e->code;
    s->j->node[s->j->n] = (struct vl_json_node){
        .type = (uint8_t)type,
        .escaped = (uint8_t)escaped,
        .next = s->j->n + 1,
        .at = at,
        .len = len,
    };
    s->j->n++;
    return 0;
}

static void skip_space(struct scan *s)
{
    while (s->p < s->n &&
           (s->s[s->p] == ' ' || s->s[s->p] == '\n' || s->s[s->p] == '\r' || s->s[s->p] == '\t'))
        s->p++;
}

static int hex4(const char *p, size_t n, uint32_t *out)
{
    uint32_t v = 0;

    if (n < 4)
        return 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        v <<= 4;
        if (c >= '0' && c <= '9')
            v |= (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v |= (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            v |= (uint32_t)(c - 'A' + 10);
        else
            return 0;
    }
    *out = v;
    return 1;
}

/* Bytes a string may hold as they are without a closer look: all but quote, backslash, control
 * characters and the parts of longer UTF-8 characters. Eight at a time (Mycroft's zero-byte test). */
static size_t plain_run(const char *p, size_t n)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    size_t i = 0;

    while (i + 8 <= n) {
        uint64_t w, q, b, c;
        memcpy(&w, p + i, 8);
        q = w ^ ones * '"';
        b = w ^ ones * '\\';
        c = ((q - ones) & ~q) | ((b - ones) & ~b) | ((w - ones * 0x20) & ~w) | w;
        if (c & tops)
            break;
        i += 8;
    }
    while (i < n && p[i] != '"' && p[i] != '\\' && p[i] >= 0x20) /* >= 0x80 is negative */
        i++;
    return i;
}

/* p is after the opening quote; leaves p after the closing one. */
static int string(struct scan *s)
{
    size_t at = s->p;
    int escaped = 0;

    for (;;) {
        unsigned char c;
        uint32_t u;
        int len;

        s->p += plain_run(s->s + s->p, s->n - s->p);
        if (s->p >= s->n)
            return bad(s, s->p, "the string's closing '\"'");
        c = (unsigned char)s->s[s->p];
        if (c == '"')
            break;
        if (c == '\\') {
            escaped = 1;
            if (s->p + 1 >= s->n || !strchr("\"\\/bfnrtu", s->s[s->p + 1]) || !s->s[s->p + 1])
                return bad(s, s->p + 1, "an escape: one of \" \\ / b f n r t u");
            if (s->s[s->p + 1] == 'u') {
                if (!hex4(s->s + s->p + 2, s->n - s->p - 2, &u))
                    return bad(s, s->p + 2, "four hex digits after \\u");
                s->p += 4;
            }
            s->p += 2;
            continue;
        }
        if (c < 0x20)
            return bad(s, s->p, "control characters in strings as \\u00XX");
        len = vl_utf8_get(s->s + s->p, s->n - s->p, NULL);
        if (len < 0)
            return bad(s, s->p, "UTF-8 (write other bytes as base64 or \\u escapes)");
        s->p += (size_t)len;
    }
    s->p++;
    return add(s, VL_JSON_STRING, at, s->p - 1 - at, escaped);
}

static size_t digits(struct scan *s)
{
    size_t at = s->p;

    while (s->p < s->n && s->s[s->p] >= '0' && s->s[s->p] <= '9')
        s->p++;
    return s->p - at;
}

static int number(struct scan *s)
{
    size_t at = s->p;

    if (s->s[s->p] == '-')
        s->p++;
    if (s->p < s->n && s->s[s->p] == '0') {
        s->p++;
        if (s->p < s->n && s->s[s->p] >= '0' && s->s[s->p] <= '9')
            return bad(s, s->p, "no digit after a leading 0");
    } else if (!digits(s)) {
        return bad(s, s->p, "a digit");
    }
    if (s->p < s->n && s->s[s->p] == '.') {
        s->p++;
        if (!digits(s))
            return bad(s, s->p, "a digit after the decimal point");
    }
    if (s->p < s->n && (s->s[s->p] == 'e' || s->s[s->p] == 'E')) {
        s->p++;
        if (s->p < s->n && (s->s[s->p] == '+' || s->s[s->p] == '-'))
            s->p++;
        if (!digits(s))
            return bad(s, s->p, "a digit in the exponent");
    }
    return add(s, VL_JSON_NUMBER, at, s->p - at, 0);
}

static int word(struct scan *s, const char *w, enum vl_json_type type)
{
    size_t n = strlen(w);

    for (size_t i = 0; i < n; i++)
        if (s->p + i >= s->n || s->s[s->p + i] != w[i])
            return bad(s, s->p + i, w);
    s->p += n;
    return add(s, type, s->p - n, n, 0);
}

/* A member's key and colon. */
static int key(struct scan *s)
{
    skip_space(s);
    if (s->p >= s->n || s->s[s->p] != '"')
        return bad(s, s->p, "a key in double quotes");
    s->p++;
    if (string(s))
        return s->e->code;
    skip_space(s);
    if (s->p >= s->n || s->s[s->p] != ':')
        return bad(s, s->p, "':' after the key");
    s->p++;
    return 0;
}

/* Opens a container; *empty = 1 when it was closed at once. */
static int container(struct scan *s, char close, enum vl_json_type type, int *empty)
{
    uint32_t i = s->j->n;

    if (s->depth == DEPTH_MAX)
        return vl_fail(s->e, VL_E_DATA, "%s: JSON nested deeper than %d levels at byte %zu",
                       s->name, DEPTH_MAX, s->p);
    if (add(s, type, s->p, 0, 0))
        return s->e->code;
    s->p++;
    skip_space(s);
    *empty = s->p < s->n && s->s[s->p] == close;
    if (*empty) {
        s->p++;
        s->j->node[i].len = s->p - s->j->node[i].at;
        return 0;
    }
    s->open[s->depth++] = i;
    return type == VL_JSON_OBJECT ? key(s) : 0;
}

/* Reads one value or opens a container; *whole = 1 when a value is complete. */
static int value(struct scan *s, int *whole)
{
    *whole = 1;
    skip_space(s);
    switch (s->p < s->n ? s->s[s->p] : 0) {
    case '"':
        s->p++;
        return string(s);
    case '{':
        return container(s, '}', VL_JSON_OBJECT, whole);
    case '[':
        return container(s, ']', VL_JSON_ARRAY, whole);
    case 't':
        return word(s, "true", VL_JSON_TRUE);
    case 'f':
        return word(s, "false", VL_JSON_FALSE);
    case 'n':
        return word(s, "null", VL_JSON_NULL);
    case '-':
    case '0' ... '9':
        return number(s);
    }
    if (s->p == 0 && s->n >= 3 && !memcmp(s->s, "\xEF\xBB\xBF", 3))
        return bad(s, 0, "a value: remove the byte order mark");
    return bad(s, s->p, "a value");
}

/* After a complete value: closes containers until one goes on, *more = 1, or none is open. */
static int after_value(struct scan *s, int *more)
{
    *more = 1;
    while (s->depth) {
        uint32_t i = s->open[s->depth - 1];
        struct vl_json_node *c = &s->j->node[i];
        int object = c->type == VL_JSON_OBJECT;

        c->count++;
        skip_space(s);
        if (s->p < s->n && s->s[s->p] == ',') {
            s->p++;
            return object ? key(s) : 0;
        }
        if (s->p >= s->n || s->s[s->p] != (object ? '}' : ']'))
            return bad(s, s->p, object ? "',' or '}'" : "',' or ']'");
        s->p++;
        c->len = s->p - c->at;
        c->next = s->j->n;
        s->depth--;
    }
    *more = 0;
    return 0;
}

int vl_json_parse_max(struct vl_json *j, const char *text, size_t len, const char *name,
                      uint32_t max_nodes, struct vl_err *e)
{
    struct scan s = { .s = text, .n = len, .j = j, .max = max_nodes, .name = name, .e = e };
    int whole, more = 1;

    *j = (struct vl_json){ .text = text, .len = len };
    while (more) {
        if (value(&s, &whole) || (whole && after_value(&s, &more)))
            return e->code;
    }
    skip_space(&s);
    if (s.p < s.n)
        return bad(&s, s.p, "nothing after the value");
    return 0;
}

int vl_json_parse(struct vl_json *j, const char *text, size_t len, const char *name,
                  struct vl_err *e)
{
    return vl_json_parse_max(j, text, len, name, UINT32_MAX, e);
}

void vl_json_free(struct vl_json *j)
{
    free(j->node);
    *j = (struct vl_json){ 0 };
}

int vl_json_is(const struct vl_json *j, int64_t i, enum vl_json_type t)
{
    return i >= 0 && i < j->n && j->node[i].type == t;
}

/* Appends the text of string node n with its escapes resolved. */
static void unescape(const struct vl_json *j, const struct vl_json_node *n, struct vl_buf *out)
{
    const char *p = j->text + n->at, *end = p + n->len;

    while (p < end) {
        const char *b = memchr(p, '\\', (size_t)(end - p));
        uint32_t u = 0, low = 0;

        if (!b)
            b = end;
        vl_buf_add(out, p, (size_t)(b - p));
        if (b == end)
            return;
        p = b + 2;
        switch (b[1]) {
        case 'b':
            vl_buf_ch(out, '\b');
            break;
        case 'f':
            vl_buf_ch(out, '\f');
            break;
        case 'n':
            vl_buf_ch(out, '\n');
            break;
        case 'r':
            vl_buf_ch(out, '\r');
            break;
        case 't':
            vl_buf_ch(out, '\t');
            break;
        case 'u':
            hex4(p, 4, &u);
            p += 4;
            if (u >= 0xD800 && u < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u' &&
                hex4(p + 2, 4, &low) && low >= 0xDC00 && low < 0xE000) {
                u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
                p += 6;
            }
            vl_utf8_put(out, u);
            break;
        default: /* " \ / */
            vl_buf_ch(out, b[1]);
        }
    }
}

int vl_json_str(const struct vl_json *j, int64_t i, struct vl_buf *out)
{
    const struct vl_json_node *n;

    if (!vl_json_is(j, i, VL_JSON_STRING))
        return 0;
    n = &j->node[i];
    if (n->escaped)
        unescape(j, n, out);
    else
        vl_buf_add(out, j->text + n->at, n->len);
    return 1;
}

char *vl_json_strdup(const struct vl_json *j, int64_t i)
{
    struct vl_buf b = { 0 };

    return vl_json_str(j, i, &b) ? vl_buf_detach(&b) : NULL;
}

char *vl_json_name(const struct vl_json *j, int64_t i)
{
    struct vl_buf b = { 0 }, name = { 0 };

    if (!vl_json_str(j, i, &b))
        return NULL;
    for (size_t k = 0; k < b.n; k++)
        if (b.s[k])
            vl_buf_ch(&name, b.s[k]);
        else
            vl_buf_str(&name, "\xC0\x80");
    vl_buf_free(&b);
    return vl_buf_detach(&name);
}

static int node_equals(const struct vl_json *j, const struct vl_json_node *n, const char *s,
                       size_t len)
{
    struct vl_buf b = { 0 };
    int same;

    if (!n->escaped)
        return n->len == len && !memcmp(j->text + n->at, s, len);
    if (n->len < len) /* an escape never grows: 2 to 12 bytes for 1 to 4 */
        return 0;
    unescape(j, n, &b);
    same = b.n == len && !memcmp(b.s, s, len);
    vl_buf_free(&b);
    return same;
}

int vl_json_streq(const struct vl_json *j, int64_t i, const char *s)
{
    return vl_json_is(j, i, VL_JSON_STRING) && node_equals(j, &j->node[i], s, strlen(s));
}

static int64_t get(const struct vl_json *j, int64_t obj, const char *name, size_t len)
{
    int64_t found = -1, c = obj + 1;

    if (!vl_json_is(j, obj, VL_JSON_OBJECT))
        return -1;
    for (uint32_t k = 0; k < j->node[obj].count; k++) {
        if (node_equals(j, &j->node[c], name, len))
            found = c + 1;
        c = j->node[c + 1].next;
    }
    return found;
}

int64_t vl_json_get(const struct vl_json *j, int64_t obj, const char *name)
{
    return get(j, obj, name, strlen(name));
}

int64_t vl_json_get_as(const struct vl_json *j, int64_t obj, const struct vl_json *k, int64_t i)
{
    struct vl_buf key = { 0 };
    int64_t found = vl_json_str(k, i, &key) ? get(j, obj, key.n ? key.s : "", key.n) : -1;

    vl_buf_free(&key);
    return found;
}

int64_t vl_json_at(const struct vl_json *j, int64_t arr, uint32_t k)
{
    int64_t c = arr + 1;

    if (!vl_json_is(j, arr, VL_JSON_ARRAY) || k >= j->node[arr].count)
        return -1;
    while (k--)
        c = j->node[c].next;
    return c;
}

int vl_json_i64(const struct vl_json *j, int64_t i, int64_t *out)
{
    const char *p, *end;
    int negative;
    uint64_t v = 0, limit;

    if (!vl_json_is(j, i, VL_JSON_NUMBER))
        return 0;
    p = j->text + j->node[i].at;
    end = p + j->node[i].len;
    negative = *p == '-';
    limit = (uint64_t)INT64_MAX + (uint64_t)negative;
    for (p += negative; p < end; p++) {
        unsigned d = (unsigned)(*p - '0');
        if (d > 9 || v > (limit - d) / 10) /* '.', 'e' and 'E' are no digits */
            return 0;
        v = v * 10 + d;
    }
    *out = (int64_t)(negative ? 0 - v : v);
    return 1;
}

int vl_json_f64(const struct vl_json *j, int64_t i, double *out)
{
    char small[64], *s = small;
    size_t n;
    double x;

    if (!vl_json_is(j, i, VL_JSON_NUMBER))
        return 0;
    n = j->node[i].len;
    if (n >= sizeof small)
        s = vl_alloc(n + 1);
    memcpy(s, j->text + j->node[i].at, n);
    s[n] = 0;
    x = strtod(s, NULL);
    if (s != small)
        free(s);
    if (!isfinite(x)) /* 1e400 */
        return 0;
    *out = x;
    return 1;
}

int vl_json_real(const struct vl_json *j, int64_t i, double *out)
{
    if (vl_json_f64(j, i, out))
        return 1;
    if (vl_json_streq(j, i, "NaN"))
        *out = NAN;
    else if (vl_json_streq(j, i, "Infinity"))
        *out = INFINITY;
    else if (vl_json_streq(j, i, "-Infinity"))
        *out = -INFINITY;
    else
        return 0;
    return 1;
}

int vl_json_bool(const struct vl_json *j, int64_t i, int *out)
{
    if (!vl_json_is(j, i, VL_JSON_TRUE) && !vl_json_is(j, i, VL_JSON_FALSE))
        return 0;
    *out = j->node[i].type == VL_JSON_TRUE;
    return 1;
}

void vl_json_raw(const struct vl_json *j, int64_t i, struct vl_buf *out)
{
    const struct vl_json_node *n;

    if (i < 0 || i >= j->n)
        return;
    n = &j->node[i];
    if (n->type == VL_JSON_STRING)
        vl_buf_add(out, j->text + n->at - 1, n->len + 2);
    else
        vl_buf_add(out, j->text + n->at, n->len);
}

int vl_json_put_str(struct vl_buf *b, const char *s, size_t n)
{
    int lost = 0;

    vl_buf_ch(b, '"');
    for (size_t i = 0; i < n;) {
        size_t run = plain_run(s + i, n - i);
        const char *esc = NULL;
        int len;

        vl_buf_add(b, s + i, run);
        i += run;
        if (i >= n)
            break;
        if (s[i] == '"' || s[i] == '\\') {
            vl_buf_ch(b, '\\');
            vl_buf_ch(b, s[i++]);
            continue;
        }
        len = vl_utf8_get(s + i, n - i, NULL);
        if (len == 1) { /* a control character */
            if (s[i] && (esc = strchr("\bb\ff\nn\rr\tt", s[i])))
                vl_buf_printf(b, "\\%c", esc[1]);
            else
                vl_buf_printf(b, "\\u%04x", (unsigned)s[i]);
        } else if (len > 1) {
            vl_buf_add(b, s + i, (size_t)len);
        } else {
            vl_buf_str(b, "\xEF\xBF\xBD");
            lost = 1;
            len = -len;
        }
        i += (size_t)len;
    }
    vl_buf_ch(b, '"');
    return lost;
}

static int put_nonfinite(struct vl_buf *b, double x)
{
    if (isfinite(x))
        return 0;
    vl_buf_str(b, isnan(x) ? "\"NaN\"" : x > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    return 1;
}

void vl_json_put_f32(struct vl_buf *b, float x)
{
    if (!put_nonfinite(b, (double)x))
        vl_buf_printf(b, "%.9g", (double)x);
}

void vl_json_put_f64(struct vl_buf *b, double x)
{
    if (!put_nonfinite(b, x))
        vl_buf_real(b, x);
}

void vl_json_put_i64(struct vl_buf *b, int64_t x)
{
    char text[24], *p = text + sizeof text;
    uint64_t v = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;

    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    if (x < 0)
        *--p = '-';
    vl_buf_add(b, p, (size_t)(text + sizeof text - p));
}
