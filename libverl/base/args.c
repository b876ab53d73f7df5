/* args.c - small parts of operands. See args.h. */
#include "libverl/base/args.h"

#include <string.h>

int vl_arg_i64(const char *s, size_t n, int64_t *out)
{
    size_t i = n && (*s == '-' || *s == '+');
    int64_t x = 0;

    if (i == n)
        return 0;
    for (; i < n; i++) {
        int digit = s[i] - '0';

        if (digit < 0 || digit > 9 || __builtin_mul_overflow(x, 10, &x) ||
            (*s == '-' ? __builtin_sub_overflow(x, digit, &x)
                       : __builtin_add_overflow(x, digit, &x)))
            return 0;
    }
    *out = x;
    return 1;
}

const char **vl_arg_list(const char *s)
{
    size_t n = 1, len = strlen(s) + 1;
    const char **list;
    char *text;

    for (const char *p = s; *p; p++)
        n += *p == ',';
    list = vl_alloc((n + 1) * sizeof *list + len);
    text = (char *)(list + n + 1);
    memcpy(text, s, len);
    for (size_t i = 0; *s && text; i++) {
        list[i] = text;
        text = strchr(text, ',');
        if (text)
            *text++ = 0;
    }
    return list;
}

size_t vl_arg_count(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}
