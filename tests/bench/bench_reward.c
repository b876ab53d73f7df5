/* bench_reward.c - how many rows a second one core scores.
 *
 *   bench_reward                       every rule on responses in memory, without a tokenizer
 *   bench_reward BATCH.dp [TOKENIZER]  verl-reward's own steps on a batch: decoding, the rule of each
 *                                      row's data_source, the columns
 * CPU time of this thread; the best of three passes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/dp.h"
#include "libverl/run/reward_columns.h"
#include "libverl/run/reward_rule.h"

enum { ROWS = 20000 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static _Noreturn void die(const struct vl_err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    exit(1);
}

/* ---- rules alone ---- */

/* A response of some 600 bytes, as models write to a GSM8K question, with the answer in every form a
 * rule looks for. */
static char *response(int i)
{
    return vl_asprintf(
        "<think>She sells %d clips in April and half as many in May, so in May she sells %d / 2 = "
        "%d clips.\nAltogether she sells %d + %d = %d clips. We check: 2 * %d is %d, and the half "
        "of it again is what was sold in May. The price of a clip is $%d.50, so the clips of both "
        "months bring in some more, but that is not what was asked for. The question is about the "
        "number of clips alone, and the sum above has it.</think>\n"
        "<answer>The answer is \\boxed{\\frac{%d}{2}}.\nAnswer: %d\n#### %d</answer>",
        2 * i, 2 * i, i, 2 * i, i, 3 * i, i, 2 * i, i % 9, 6 * i, 3 * i, 3 * i);
}

static void rules_alone(void)
{
    char **text = vl_alloc(ROWS * sizeof *text), **truth = vl_alloc(ROWS * sizeof *truth);
    const char *t = "{\"target\":%d,\"numbers\":[%d,%d]}";

    for (int i = 0; i < ROWS; i++)
        text[i] = response(i);
    for (const struct vl_rule *r = vl_rules(); r->name; r++) {
        struct vl_rule_args a;
        double best = INFINITY, sum = 0;
        struct vl_err e = { 0 };
        const char *args = !strcmp(r->name, "length")  ? "{\"max\":100}"
                           : !strcmp(r->name, "regex") ? "{\"pattern\":\"(?s)<think>.*</think>\"}"
                                                       : NULL;

        if (vl_rule_args_parse(&a, r, args, "args", &e))
            die(&e);
        for (int i = 0; i < ROWS; i++)
            truth[i] = !strcmp(r->name, "countdown") || !strncmp(r->name, "search", 6)
                           ? vl_asprintf(t, 3 * i, i, 2 * i)
                       : !strcmp(r->name, "choice") ? vl_strdup("B")
                                                    : vl_asprintf("%d", 3 * i);
        for (int pass = 0; pass < 3; pass++) {
            double from = now();

            for (int i = 0; i < ROWS; i++) {
                struct vl_rule_in in = { .text = text[i], .n = strlen(text[i]), .args = &a };
                struct vl_score s = { 0 };

                in.truth = in.truth_json = truth[i];
                in.truth_n = in.truth_json_n = strlen(truth[i]);
                in.tokens = 120;
                r->score(&in, &s);
                sum += s.score;
                vl_score_free(&s);
            }
            best = fmin(best, now() - from);
        }
        printf("%-16s %9.0f rows/s   mean score %.2f\n", r->name, ROWS / best, sum / (3 * ROWS));
        for (int i = 0; i < ROWS; i++)
            free(truth[i]);
        vl_rule_args_free(&a);
    }
    for (int i = 0; i < ROWS; i++)
        free(text[i]);
    free(text);
    free(truth);
}

/* ---- the steps of verl-reward ---- */

static void steps(const char *path, const char *model)
{
    const struct vl_reward_opts o = VL_REWARD_DEFAULTS;
    struct vl_ctx x = { .comm = { .size = 1, .threads = 1 } };
    struct vl_batch b = { 0 };
    struct vl_tok *tok = NULL;
    struct vl_rule_set set = { 0 };
    struct vl_reward_rows rows = { 0 };
    struct vl_reward_result res = { 0 };
    struct vl_err e = { 0 };
    char *from_meta;
    double at[5], best[4] = { INFINITY, INFINITY, INFINITY, INFINITY };
    static const char *const name[] = { "checking", "decoding", "rules with decoding", "columns" };

    vl_log_init(&x.log, "bench_reward", 0, 0);
    if (vl_dp_read(&b, path, NULL, &e))
        die(&e);
    from_meta = vl_meta_str(&b, "tokenizer_path");
    if (!model && !from_meta)
        fputs("give a tokenizer: the batch names none\n", stderr), exit(1);
    if (vl_tok_open(&tok, model ? model : from_meta, &e) || vl_reward_rules_read(&x, &set, &o, &e))
        die(&e);
    for (int pass = 0; pass < 3; pass++) {
        struct vl_reward_job job = { .rows = &rows, .nasked = b.rows };
        int64_t *asked = vl_alloc((size_t)b.rows * sizeof *asked);
        struct vl_score *s = vl_alloc((size_t)b.rows * sizeof *s);
        struct vl_buf text = { 0 };
        int32_t *ids;

        at[0] = now();
        rows = (struct vl_reward_rows){ .tok = tok };
        if (vl_reward_rows_open(&rows, &b, o.source_key, &e))
            die(&e);
        ids = vl_alloc((size_t)rows.R * sizeof *ids);
        for (int64_t i = 0; i < b.rows; i++)
            asked[i] = i;
        job.asked = asked;
        job.s = s;
        at[1] = now();
        for (int64_t i = 0; i < b.rows; i++) {
            vl_buf_reset(&text);
            vl_reward_text(&rows, i, ids, &text);
        }
        at[2] = now();
        if (vl_reward_by_rules(&x, &set, &o, &job, &e))
            die(&e);
        at[3] = now();
        if (vl_reward_collect(&x, &rows, s, b.rows, 0, &res, &e) ||
            vl_reward_store(&x, &b, &rows, &res, &e))
            die(&e);
        at[4] = now();
        for (int k = 0; k < 4; k++)
            best[k] = fmin(best[k], at[k + 1] - at[k]);
        for (const char **c = res.adds; *c; c++)
            vl_batch_drop(&b, *c);
        vl_reward_result_free(&res);
        vl_buf_free(&text);
        free(asked);
        free(ids);
        for (int64_t i = 0; i < b.rows; i++)
            vl_score_free(&s[i]);
        free(s);
    }
    for (int k = 0; k < 4; k++)
        printf("%-20s %6.3f s, %9.0f rows/s\n", name[k], best[k], (double)b.rows / best[k]);
    printf("%-20s %6s    %9.0f rows/s\n", "all but decoding", "",
           (double)b.rows / (best[0] + best[2] - best[1] + best[3]));
    printf("%-20s %6s    %9.0f rows/s\n", "all", "",
           (double)b.rows / (best[0] + best[2] + best[3]));
    vl_rule_set_free(&set);
    vl_tok_free(tok);
    vl_batch_free(&b);
    free(from_meta);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        steps(argv[1], argc > 2 ? argv[2] : NULL);
    else
        rules_alone();
    return 0;
}
