/* code_text.c - finding the program in a response. See code.h. */
#include "libverl/reward/code.h"

#include <string.h>

#define FENCE "```"

/* Tags of fenced blocks, the longer one first where one begins another. */
static const struct {
    const char *name, *tags[4];
} languages[] = {
    { "python", { "python", NULL } },
    { "c", { "c", NULL } },
    { "c++", { "cpp", "c++", "cxx", NULL } },
    { "sh", { "bash", "shell", "sh", NULL } },
    { "other", { NULL } },
};

const char *vl_code_language_name(int language)
{
    return language >= 0 && language < (int)(sizeof languages / sizeof *languages)
               ? languages[language].name
               : NULL;
}

static const char *find(const char *s, const char *end, const char *what)
{
    return s < end ? memmem(s, (size_t)(end - s), what, strlen(what)) : NULL;
}

/* The last occurrence of what in [s, end). */
static const char *find_last(const char *s, const char *end, const char *what)
{
    const char *last = NULL;

    while ((s = find(s, end, what))) {
        last = s;
        s += strlen(what);
    }
    return last;
}

static int is_tag(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '-' || c == '#' || c == '_' || c == '.';
}

static int is_blank(int c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Past a first line that holds nothing but a tag. */
static const char *skip_tag(const char *s, const char *end)
{
    const char *p = s;

    while (p < end && is_tag((unsigned char)*p))
        p++;
    while (p < end && is_blank((unsigned char)*p))
        p++;
    return p < end && *p == '\n' ? p + 1 : s;
}

static int give(const char *from, const char *end, const char **code, size_t *len)
{
    const char *close = find(from, end, FENCE);

    *code = from;
    *len = (size_t)((close ? close : end) - from);
    return 1;
}

/* The last block that is closed, else the last one. Fences come in pairs from the first on. */
static int any_block(const char *s, const char *end, const char **code, size_t *len)
{
    const char *open = NULL, *next;

    while ((next = find(s, end, FENCE))) {
        const char *close = find(next + 3, end, FENCE);

        if (open && !close)
            break;
        open = next + 3;
        if (!close)
            break;
        s = close + 3;
    }
    return open ? give(skip_tag(open, end), end, code, len) : 0;
}

/* The last block with one of the language's tags on its first line. */
static int tagged_block(int language, const char *s, const char *end, const char **code,
                        size_t *len)
{
    const char *found = NULL;

    for (const char *open = s; (open = find(open, end, FENCE)); open += 3)
        for (const char *const *tag = languages[language].tags; *tag; tag++) {
            const char *body = skip_tag(open + 3, end);
            size_t n = strlen(*tag);

            if (body > open + 3 + n && !strncasecmp(open + 3, *tag, n) &&
                !is_tag((unsigned char)open[3 + n]))
                found = body;
        }
    return found ? give(found, end, code, len) : 0;
}

/* Whether the line holds letters and blanks around them alone. */
static int is_word(const char *s, const char *end)
{
    while (s < end && is_blank((unsigned char)*s))
        s++;
    while (s < end && is_blank((unsigned char)end[-1]))
        end--;
    if (s == end)
        return 0;
    for (; s < end; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z')))
            return 0;
    return 1;
}

/* verl's sandbox_fusion: the first block; its first line goes when it is a word. */
static int first_block(const char *s, const char *end, const char **code, size_t *len)
{
    const char *open = find(s, end, FENCE), *feed;

    if (!open)
        return 0;
    open += strlen(FENCE);
    give(open, end, code, len);
    feed = memchr(open, '\n', *len);
    if (feed && is_word(open, feed)) {
        *len -= (size_t)(feed + 1 - open);
        *code = feed + 1;
    }
    return 1;
}

int vl_code_extract(const char *text, size_t n, const struct vl_code_args *a, int remote,
                    const char **code, size_t *len)
{
    const char *end = text + n, *mark;

    if (a->any_fence || a->language == VL_CODE_OTHER)
        return any_block(text, end, code, len);
    if (a->language != VL_CODE_PYTHON)
        return tagged_block((int)a->language, text, end, code, len);
    mark = find_last(text, end, FENCE "python");
    if (mark)
        return give(mark + strlen(FENCE "python"), end, code, len);
    return remote ? first_block(text, end, code, len) : give(text, end, code, len);
}
