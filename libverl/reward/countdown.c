/* countdown.c - an equation that makes the target of given numbers (the game of TinyZero).
 *
 * The ground truth is {"target": 98, "numbers": [44, 19, 35]}. The equation is the text in the last
 * <answer> tag. It is right when it holds only digits, + - * / ( ) . and white space, uses every number exactly
 * once (with all = false: at most once) and its value is the target; then the score, else
 * format_score (0.1), and 0 without an <answer>. */
#include "libverl/reward/latex.h"
#include "libverl/reward/prime_impl.h"
#include "libverl/reward/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS_MAX = 256, EQUATION_MAX = 10000 };

struct numbers {
    int64_t x[NUMBERS_MAX];
    size_t n;
};

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Reads the ground truth, also where it is a string of JSON. 0 when it is none. */
static int read_truth(const struct vl_rule_in *in, double *target, struct numbers *have)
{
    struct vl_json j = { 0 };
    struct vl_err ignored = { 0 };
    int64_t list, c;
    int fine;

    fine = !vl_json_parse(&j, in->truth, in->truth_n, "ground_truth", &ignored) &&
           vl_json_f64(&j, vl_json_get(&j, 0, "target"), target);
    list = fine ? vl_json_get(&j, 0, "numbers") : -1;
    fine = fine && vl_json_is(&j, list, VL_JSON_ARRAY) && j.node[list].count <= NUMBERS_MAX;
    have->n = 0;
    c = list + 1;
    for (uint32_t k = 0; fine && k < j.node[list].count; k++, c = j.node[c].next)
        fine = vl_json_i64(&j, c, &have->x[have->n++]);
    vl_json_free(&j);
    return fine;
}

/* The runs of digits; line ends become spaces. 0 when there is another character, or too many
 * numbers. */
static int read_numbers(char *s, size_t n, struct numbers *used)
{
    used->n = 0;
    for (size_t i = 0; i < n;) {
        int64_t x = 0;

        if (!s[i] || !strchr("0123456789+-*/(). \t\r\n", s[i]))
            return 0;
        if (s[i] == '\r' || s[i] == '\n')
            s[i] = ' ';
        if (s[i] < '0' || s[i] > '9') {
            i++;
            continue;
        }
        for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
            if (__builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, s[i] - '0', &x))
                return 0;
        if (used->n == NUMBERS_MAX)
            return 0;
        used->x[used->n++] = x;
    }
    return 1;
}

static int fair(struct numbers *used, struct numbers *have, int all)
{
    size_t k = 0;

    if (all && used->n != have->n)
        return 0;
    qsort(used->x, used->n, sizeof *used->x, compare);
    qsort(have->x, have->n, sizeof *have->x, compare);
    for (size_t i = 0; i < used->n; i++) {
        while (k < have->n && have->x[k] < used->x[i])
            k++;
        if (k == have->n || have->x[k++] != used->x[i])
            return 0;
    }
    return 1;
}

void vl_score_countdown(const struct vl_rule_in *in, struct vl_score *out)
{
    struct numbers have, used;
    const char *close = vl_tex_rfind(in->text, in->n, "</answer>"), *open, *s;
    char equation[EQUATION_MAX];
    double target, x;
    size_t n;
    int right;

    if (!read_truth(in, &target, &have)) {
        vl_score_fail(out, "the ground truth '%.*s' is not {\"target\": N, \"numbers\": [...]}",
                      (int)(in->truth_n < 60 ? in->truth_n : 60), in->truth);
        return;
    }
    open = close ? vl_tex_rfind(in->text, (size_t)(close - in->text), "<answer>") : NULL;
    if (!open) {
        vl_score_set(out, 0);
        return;
    }
    s = open + 8;
    n = (size_t)(close - s);
    vl_tex_strip(&s, &n);
    if (n > EQUATION_MAX)
        n = 0;
    memcpy(equation, s, n);
    right = read_numbers(equation, n, &used) && fair(&used, &have, in->args->all) &&
            vl_py_arithmetic(equation, n, &x) && fabs(x - target) < 1e-5;
    vl_score_set(out, right ? in->args->score : vl_score_format(in, 0.1));
    out->acc = right;
}
