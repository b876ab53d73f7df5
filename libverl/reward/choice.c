/* choice.c - the letter of a multiple choice.
 *
 * The letter is looked for in the last \boxed{}, else the last <answer> tag, else after the last
 * "answer", "option" or "choice"; else the response itself must be one. "(B)", "B.", "B: Paris",
 * "**B**", "\text{B}" are all B; a letter inside a word ("Because") is none. */
#include "libverl/reward/latex.h"
#include "libverl/reward/rules.h"

#include <stdio.h>
#include <string.h>

enum { LINKS_MAX = 6 };

static int is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (c & 0x80);
}

/* The letter at the start, after brackets, stars and \text{; 0 when there is none. lower: "b" too. */
static char letter_at(const char *s, size_t n, const char *choices, int lower)
{
    static const char *const skip[] = { "\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{", "\\(" };
    int more = 1;
    char c;

    while (more) {
        more = n && *s && strchr(" \t\r\n(*[{$\"'`", *s);
        s += more;
        n -= (size_t)more;
        for (size_t k = 0; k < sizeof skip / sizeof *skip && !more; k++) {
            size_t len = strlen(skip[k]);

            if (n >= len && !memcmp(s, skip[k], len)) {
                s += len;
                n -= len;
                more = 1;
            }
        }
    }
    if (!n || (n > 1 && is_word(s[1])))
        return 0;
    c = lower && *s >= 'a' && *s <= 'z' ? (char)(*s - 32) : *s;
    return c && strchr(choices, c) ? c : 0;
}

/* "the answer is (B)", "Answer: B", "option B": the letter after the last such word. */
static char after_word(const char *s, size_t n, const char *choices)
{
    static const char *const words[] = { "answer", "option", "choice" };
    static const char *const link[] = { " is",     ":", " would be", " should be", " option",
                                        " choice", "s", " to",       " =" };

    for (size_t i = n; i-- > 0;)
        for (size_t k = 0; k < 3; k++) {
            size_t len = strlen(words[k]), at = i + len;
            int more = LINKS_MAX;
            char c;

            if ((s[i] | 0x20) != words[k][0] || n - i < len || strncasecmp(s + i, words[k], len))
                continue;
            while (more) {
                int left = more - 1;

                more = 0;
                while (at < n && (s[at] == '*' || (s[at] == ' ' && at + 1 < n && s[at + 1] == ' ')))
                    at++;
                for (size_t w = 0; w < sizeof link / sizeof *link && !more; w++) {
                    size_t m = strlen(link[w]);

                    if (n - at >= m && !strncasecmp(s + at, link[w], m)) {
                        at += m;
                        more = left;
                    }
                }
            }
            c = at < n && !is_word(s[at]) ? letter_at(s + at, n - at, choices, 0) : 0;
            if (c)
                return c;
        }
    return 0;
}

static char find(const char *s, size_t n, const char *choices)
{
    size_t len = 0;
    const char *box = vl_tex_last_box(s, n, &len), *open, *close;
    char c = box ? letter_at(box, len, choices, 1) : 0;

    if (c)
        return c;
    close = vl_tex_rfind(s, n, "</answer>");
    open = close ? vl_tex_rfind(s, (size_t)(close - s), "<answer>") : NULL;
    if (open) {
        c = letter_at(open + 8, (size_t)(close - open - 8), choices, 1);
        if (!c)
            c = after_word(open + 8, (size_t)(close - open - 8), choices);
        return c;
    }
    c = after_word(s, n, choices);
    if (c)
        return c;
    vl_tex_strip(&s, &n);
    return n <= 8 ? letter_at(s, n, choices, 1) : 0;
}

void vl_score_choice(const struct vl_rule_in *in, struct vl_score *out)
{
    const char *choices = in->args->choices ? in->args->choices : "ABCDEFGHIJ";
    char c = find(in->text, in->n, choices), t = letter_at(in->truth, in->truth_n, choices, 1);
    char member[20];

    if (!t) {
        vl_score_fail(out, "the ground truth '%.*s' starts with none of the letters %s",
                      (int)(in->truth_n < 40 ? in->truth_n : 40), in->truth, choices);
        return;
    }
    vl_score_set(out, !c ? 0 : c == t ? in->args->score : vl_score_format(in, 0));
    out->acc = c == t;
    if (c)
        snprintf(member, sizeof member, "\"pred\":\"%c\"", c);
    else
        snprintf(member, sizeof member, "\"pred\":null");
    vl_score_add(out, member);
}
