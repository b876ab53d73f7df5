/* jq_members.c - which members of its input a filter certainly reads. See jq.h.
 *
 * The text is scanned, not parsed: wherever `.` may be something other than the filter's input, or a
 * missing member may be meant, nothing is said. So a name that is listed is one that matters. */
#include "libverl/base/jq.h"

#include <ctype.h>
#include <string.h>

enum { DEPTH = 64 };

static int word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Behind a string that begins at p; NULL where one holds an expression, or does not end. */
static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && (*++p == '(' || !*p))
            return NULL;
    return *p ? p + 1 : NULL;
}

/* Whether what follows a path says that it may be missing, or gives it a value. */
static int optional(const char *p)
{
    while (*p == '.' || *p == '[' || *p == ']' || word(*p))
        p++;
    p += strspn(p, " \t\n");
    return *p == '?' || !strncmp(p, "//", 2) || (*p == '=' && p[1] != '=') ||
           (*p && strchr("|+-*/%", *p) && p[1] == '=');
}

static void add(struct vl_buf *out, const char *s, size_t n)
{
    vl_buf_add(out, s, n);
    vl_buf_ch(out, '\n');
}

/* Words with which `.` changes in ways not followed here. */
static int changes(const char *s, size_t n)
{
    static const char *const words[] = { "def",   "reduce", "foreach", "input", "inputs",
                                         "label", "import", "include", "try" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && !memcmp(words[i], s, n))
            return 1;
    return 0;
}

void vl_jq_members(const char *filter, struct vl_buf *out)
{
    char other[DEPTH] = { 0 }; /* per bracket: `.` is no longer the input */
    char object[DEPTH] = { 0 };
    const char *p = filter, *from;
    int depth = 0, bound = 0; /* bound: the next | follows `as` and leaves `.` as it is */

    for (char last = 0; p && *p; last = p && p > filter ? p[-1] : 0) {
        if (*p == '"') {
            p = skip_string(p);
        } else if (*p == '#') {
            p += strcspn(p, "\n");
        } else if (strchr("([{", *p)) {
            if (depth + 1 == DEPTH)
                return;
            /* an argument, an index of something */
            other[depth + 1] =
                (char)(other[depth] ||
                       (*p != '{' && (word(last) || last == '.' || last == ']' || last == ')')));
            object[++depth] = *p++ == '{';
        } else if (strchr(")]}", *p)) {
            if (!depth--)
                return;
            p++;
        } else if (*p == '|') {
            if (p[1] == '=' || !bound)
                other[depth] = 1;
            bound = 0;
            p++;
        } else if (*p == ',' && object[depth]) {
            other[depth] = other[depth - 1];
            p++;
        } else if (*p == '.') {
            int starts = !word(last) && !strchr(".])}\"?$", last ? last : ' ');

            for (from = ++p; word(*p); p++)
                ;
            if (p > from && !isdigit((unsigned char)*from) && starts && !other[depth] &&
                !optional(p))
                add(out, from, (size_t)(p - from));
        } else if (word(*p) || *p == '$') {
            for (from = p++; word(*p); p++)
                ;
            if (changes(from, (size_t)(p - from)))
                return;
            bound |= p - from == 2 && !memcmp(from, "as", 2);
        } else {
            p++;
        }
    }
}

/* ---- what a filter cannot read ---- */

static int is(const char *s, size_t n, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == n && !memcmp(*words, s, n))
            return 1;
    return 0;
}

/* Whether the input only ever goes into paths `.name`: no other dot, no function but behind a pipe,
 * no assignment (it gives the input back), no variables, no `if` without `else`. */
static int only_paths(const char *p)
{
    static const char *const plain[] = { "and",  "or",   "then",  "elif", "end",
                                         "null", "true", "false", NULL };
    static const char *const yes[] = { "if", NULL }, *const no[] = { "else", NULL };
    const char *from;
    char last = 0; /* the token before, blanks left out */
    int open = 0;

    while (p && *p) {
        char c = *p;

        if (c == ' ' || c == '\t' || c == '\n') {
            p++;
            continue;
        }
        if (c == '"') {
            p = skip_string(p);
        } else if (c == '.') {
            if (!isalpha((unsigned char)p[1]) && p[1] != '_')
                return 0;
            while (*p == '.' || word(*p))
                p++;
        } else if (word(c)) {
            for (from = p; word(*p) || (*p == '.' && isdigit((unsigned char)c)); p++)
                ;
            open += is(from, (size_t)(p - from), yes) - is(from, (size_t)(p - from), no);
            if (!isdigit((unsigned char)c) && last != '|' && !is(from, (size_t)(p - from), plain) &&
                !is(from, (size_t)(p - from), yes) && !is(from, (size_t)(p - from), no))
                return 0;
            if (changes(from, (size_t)(p - from)) || (p - from == 2 && !memcmp(from, "as", 2)))
                return 0;
        } else if (c == '=' && p[1] == '=') {
            p += 2;
        } else if (strchr("<>!", c) && p[1] == '=') {
            p += 2;
        } else if (c == '/' && p[1] == '/' && p[2] != '=') {
            p += 2;
        } else if (strchr("()[],|<>+-*/%?", c) && !(strchr("|+-*/%", c) && p[1] == '=')) {
            p++;
        } else {
            return 0;
        }
        last = c;
    }
    return p && !open;
}

int vl_jq_may_read(const char *filter, const char *member)
{
    return strstr(filter, member) || !only_paths(filter);
}
