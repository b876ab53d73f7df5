/* bench_engine.c - how fast the engine is on a batch of given shape, without start, files or text.
 *
 *   bench_engine KIND -m MODEL [-r ROWS] [-p PROMPT] [-g LONGEST] [-l SHORTEST] [-n GROUP]
 *                [-c fp32|bf16|amx|half] [-w full|int8] [-o DIR] [-t THREADS] [-i SECONDS]
 *                [-s SAMPLES]
 *
 *   decode   steps of vl_generate in which every row draws a token: drawn tokens a second
 *   rollout  all of vl_generate, prompts included: response tokens a second
 *   logp     log-probs of the responses: the batch's valid tokens a second
 *   train    the same and backward, clipping, AdamW, packing the weights anew: likewise; with -o the
 *            moments in a file of DIR
 *
 * Response i of a group of n has l + (g - l) (2i + 1)^2 / (4 n^2) tokens: with -l 16 -g 256 some 60 %
 * of the padded response cells are padding. Rows of a group have the same prompt. Valid tokens are
 * counted as in the padded batch, so that a prompt computed once for its group counts as often as
 * it is there: the number says how soon the work is done, and is that of a peer that pads.
 *
 * First comes a line `ready check=X NAME` once one iteration has run; X is the mean log-prob (logp,
 * train), which a peer with the same weights has to find too. Then -s samples (3), each the mean of
 * as many iterations as take -i seconds:
 *
 *   sample tok/s 1234.5 seconds 0.83 cpu 1.62 iterations 1 peak_mib 812
 *
 * With -s 0 a sample is taken for each line of standard input, so that programs can take turns
 * (tests/bench/peers). peak_mib is the process's largest resident set so far; cpu
 * is its processor time while the iterations ran, which others on the machine change less than they
 * do the seconds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libverl/base/log.h"
#include "libverl/engine/generate.h"
#include "libverl/engine/pack.h"

/* What verl-update and verl-rollout take on a CPU. */
enum { PASS_TOKENS = 2048, TRAIN_TOKENS = 512, PREFILL_TOKENS = 8192 };

struct bench {
    const char *model_dir, *offload;
    int64_t rows, prompt, longest, shortest, group, threads, samples;
    enum vl_compute compute;
    int half; /* whichever of bf16 and amx is faster here */
    int int8; /* weights, not for train */
    double least;

    struct vl_backend *be;
    struct vl_model *model;
    struct vl_engine *engine;
    struct vl_rows batch;
    int64_t outputs, valid, steps;
    float *logp, *dlogp;
    double check;
    /* decode */
    int64_t *drawn;
    double all_draw_at, last_at;
    int64_t all_draw, last;
};

struct iteration {
    double seconds;
    int64_t tokens;
};

static int64_t response_length(const struct bench *b, int64_t row)
{
    int64_t k = 2 * (row % b->group) + 1;

    return b->shortest + (b->longest - b->shortest) * k * k / (4 * b->group * b->group);
}

/* Any id; the peers make the same. */
static int32_t token(const struct bench *b, int64_t row, int64_t t)
{
    int64_t of = t < b->prompt ? row / b->group : b->rows + row;
    uint32_t h = ((uint32_t)of * 65537u + (uint32_t)t) * 2654435761u;

    h = (h ^ h >> 15) * 2246822519u;
    return (int32_t)((h ^ h >> 13) % (uint64_t)b->model->cfg.V);
}

static void make_rows(struct bench *b)
{
    struct vl_rows *r = &b->batch;

    r->B = b->rows, r->P = b->prompt, r->R = b->longest;
    r->start = vl_alloc((size_t)(r->B + 1) * sizeof *r->start);
    r->ids = vl_alloc((size_t)(r->B * (r->P + r->R)) * sizeof *r->ids);
    r->plen = vl_alloc((size_t)r->B * sizeof *r->plen);
    r->rlen = vl_alloc((size_t)r->B * sizeof *r->rlen);
    for (int64_t row = 0; row < r->B; row++) {
        int64_t len = response_length(b, row), n = b->prompt + len;

        r->plen[row] = (int32_t)b->prompt;
        r->rlen[row] = (int32_t)len;
        r->start[row + 1] = r->start[row] + n;
        for (int64_t t = 0; t < n; t++)
            r->ids[r->start[row] + t] = token(b, row, t);
        b->outputs += len;
    }
    b->valid = r->start[r->B];
}

/* ---- log-probs and training ---- */

static int run_micro(struct bench *b, int64_t base, int64_t n, int train, double *sum,
                     struct vl_err *e)
{
    struct vl_pack k;

    vl_pack_rows(&k, &b->batch, NULL, base, n, 1);
    if (!vl_engine_forward(b->engine, &k.p, 1, train, b->logp, NULL, NULL, NULL, e)) {
        for (int64_t j = 0; j < k.p.M; j++)
            *sum += b->logp[j];
        if (train)
            (void)!vl_engine_backward(b->engine, b->dlogp, NULL, NULL, e);
    }
    vl_pack_free(&k);
    return e->code;
}

static int run_micros(struct bench *b, int train, struct vl_err *e)
{
    struct vl_micro_rule rule = { .max_tokens = train ? TRAIN_TOKENS : PASS_TOKENS,
                                  .share = 1,
                                  .whole = train };
    int64_t *first = vl_alloc((size_t)(b->rows + 1) * sizeof *first);
    int64_t n = vl_micro_cut(&b->batch, NULL, 0, b->rows, &rule, first);
    double sum = 0;

    for (int64_t k = 0; k < n; k++)
        if (run_micro(b, first[k], first[k + 1] - first[k], train, &sum, e))
            break;
    b->check = sum / (double)b->outputs;
    free(first);
    return e->code;
}

static int run_logp(struct bench *b, struct iteration *it, struct vl_err *e)
{
    double t = vl_now();

    (void)!run_micros(b, 0, e);
    it->seconds = vl_now() - t;
    it->tokens = b->valid;
    return e->code;
}

/* As vl_update_step on one rank, with the gradient of -mean(logp) in the policy loss's place. */
static int run_train(struct bench *b, struct iteration *it, struct vl_err *e)
{
    struct vl_backend *be = b->be;
    struct vl_engine *g = b->engine;
    double t = vl_now(), norm;
    int64_t changed = 0;

    vl_engine_zero_grads(g);
    if (run_micros(b, 1, e))
        return e->code;
    vl_engine_finish_grads(g);
    norm = sqrt(be->sumsq(be->ctx, vl_engine_grads(g), b->model->count));
    if (!isfinite(norm))
        return vl_fail(e, VL_E_DATA, "the gradient is not finite");
    struct vl_adamw o = { .lr = 1e-6f,
                          .beta1 = 0.9f,
                          .beta2 = 0.999f,
                          .eps = 1e-8f,
                          .weight_decay = 0.01f,
                          .t = ++b->steps,
                          .grad_scale = norm > 1 ? (float)(1 / norm) : 1 };

    if (vl_engine_adamw(g, 0, b->model->count, &o, &changed, e))
        return e->code;
    it->seconds = vl_now() - t;
    it->tokens = b->valid;
    return changed ? 0 : vl_fail(e, VL_E_BUG, "the step changed no weight");
}

/* ---- generation ---- */

/* Ends a response at its length. */
static int at_length(void *arg, int64_t sample, int32_t id)
{
    struct bench *b = arg;

    (void)id;
    return ++b->drawn[sample] >= response_length(b, sample);
}

static void stepped(void *arg, int64_t rows, int64_t tokens)
{
    struct bench *b = arg;

    (void)rows;
    b->last_at = vl_now();
    b->last = tokens;
    if (b->all_draw || tokens < b->rows)
        return;
    b->all_draw_at = b->last_at;
    b->all_draw = tokens;
}

static int generate(struct bench *b, struct iteration *it, struct vl_err *e)
{
    int64_t prompts = b->rows / b->group;
    struct vl_gen_prompt *p = vl_alloc((size_t)prompts * sizeof *p);
    struct vl_gen *gen = vl_alloc((size_t)b->rows * sizeof *gen);
    struct vl_gen_opts o = { .n = b->group,
                             .max_new = b->longest,
                             .sampling = { .temperature = 1, .top_p = 1 },
                             .stop_text = at_length,
                             .max_seqs = b->rows,
                             .max_tokens = PREFILL_TOKENS,
                             .progress = stepped,
                             .arg = b };
    size_t least;
    double t;

    for (int64_t i = 0; i < prompts; i++) {
        int64_t row = i * b->group;

        p[i] = (struct vl_gen_prompt){ .ids = b->batch.ids + b->batch.start[row],
                                       .len = b->prompt,
                                       .key = vl_philox_key(&i, sizeof i, 1),
                                       .row = row };
    }
    memset(b->drawn, 0, (size_t)b->rows * sizeof *b->drawn);
    b->all_draw = b->last = 0;
    vl_gen_kv(&b->model->cfg, b->compute, b->be, p, prompts, &o, &o.kv_bytes, &least);
    t = vl_now();
    if (!vl_generate(b->engine, p, prompts, &o, gen, e) && b->last != b->outputs)
        vl_fail(e, VL_E_BUG, "%lld tokens were drawn, %lld were to be", (long long)b->last,
                (long long)b->outputs);
    it->seconds = vl_now() - t;
    it->tokens = b->last;
    vl_gen_free(gen, b->rows);
    free(gen);
    free(p);
    return e->code;
}

/* From the step that drew every row's first token to the last. */
static int run_decode(struct bench *b, struct iteration *it, struct vl_err *e)
{
    if (generate(b, it, e))
        return e->code;
    it->seconds = b->last_at - b->all_draw_at;
    it->tokens = b->last - b->all_draw;
    return 0;
}

/* ---- the program ---- */

static const struct kind {
    const char *name;
    int train, checked;
    int (*run)(struct bench *b, struct iteration *it, struct vl_err *e);
} kinds[] = { { "decode", 0, 0, run_decode },
              { "rollout", 0, 0, generate },
              { "logp", 0, 1, run_logp },
              { "train", 1, 1, run_train } };

static int open_all(struct bench *b, const struct kind *k, struct vl_err *e)
{
    struct vl_engine_opts o = {
        .int8 = b->int8, .train = k->train, .moments = k->train ? 2 : 0, .offload = b->offload
    };

    if (vl_model_open(&b->model, b->model_dir, VL_HEAD_LM, 0, e) ||
        vl_backend_cpu(&b->be, NULL, (int)b->threads, 1, e))
        return e->code;
    o.compute = b->half ? vl_compute_half(b->be) : b->compute;
    if (vl_engine_load(&b->engine, b->model, b->be, &o, (int)b->threads, e))
        return e->code;
    make_rows(b);
    b->logp = vl_alloc((size_t)b->outputs * sizeof *b->logp);
    b->dlogp = vl_alloc((size_t)b->outputs * sizeof *b->dlogp);
    for (int64_t j = 0; j < b->outputs; j++)
        b->dlogp[j] = -1 / (float)b->outputs;
    b->drawn = vl_alloc((size_t)b->rows * sizeof *b->drawn);
    return 0;
}

static void close_all(struct bench *b)
{
    vl_engine_free(b->engine);
    if (b->model)
        vl_model_free(b->model);
    if (b->be)
        b->be->close(b->be);
    vl_rows_free(&b->batch);
    free(b->logp);
    free(b->dlogp);
    free(b->drawn);
}

static double cpu_seconds(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1e-6;
}

static int sample(struct bench *b, const struct kind *k, struct vl_err *e)
{
    double seconds = 0, tokens = 0, cpu;
    struct rusage use;
    int n = 0;

    getrusage(RUSAGE_SELF, &use);
    cpu = cpu_seconds(&use);

    do {
        struct iteration it = { 0 };

        if (k->run(b, &it, e))
            return e->code;
        seconds += it.seconds;
        tokens += (double)it.tokens;
        n++;
    } while (seconds < b->least);
    getrusage(RUSAGE_SELF, &use);
    printf("sample tok/s %.6g seconds %.6g cpu %.6g iterations %d peak_mib %ld\n", tokens / seconds,
           seconds, cpu_seconds(&use) - cpu, n, use.ru_maxrss / 1024);
    return fflush(stdout) ? vl_fail_errno(e, VL_E_IO, "standard output") : 0;
}

static int run(struct bench *b, const struct kind *k, struct vl_err *e)
{
    struct iteration warm;
    char line[64];

    if (open_all(b, k, e) || k->run(b, &warm, e))
        return e->code;
    printf("ready check=");
    printf(k->checked ? "%.6f" : "-", b->check);
    printf(" verl %s %s\n", VL_VERSION, b->be->name);
    fflush(stdout);
    for (int64_t i = 0; i < b->samples; i++)
        if (sample(b, k, e))
            return e->code;
    while (!b->samples && fgets(line, sizeof line, stdin))
        if (sample(b, k, e))
            return e->code;
    return 0;
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: bench_engine decode|rollout|logp|train -m MODEL [-r ROWS] [-p PROMPT]\n"
        "         [-g LONGEST] [-l SHORTEST] [-n GROUP] [-c fp32|bf16|amx|half] [-w full|int8]\n"
        "         [-o DIR] [-t THREADS] [-i SECONDS] [-s SAMPLES]\n");
    return VL_E_USAGE;
}

static int parse(struct bench *b, const struct kind **k, int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(argv[1], kinds[i].name))
            *k = &kinds[i];
    for (int i = 2; i < argc; i += 2) {
        static const char letters[] = "rpglnts";
        int64_t *dst[] = { &b->rows,  &b->prompt,  &b->longest, &b->shortest,
                           &b->group, &b->threads, &b->samples };
        const char *at, *v = argv[i + 1];
        char *end = NULL;

        if (argv[i][0] != '-' || !argv[i][1] || argv[i][2] || !v)
            return 0;
        if ((at = strchr(letters, argv[i][1]))) {
            *dst[at - letters] = strtoll(v, &end, 10);
            if (end == v || *end)
                return 0;
        } else if (argv[i][1] == 'm')
            b->model_dir = v;
        else if (argv[i][1] == 'o')
            b->offload = v;
        else if (argv[i][1] == 'i')
            b->least = atof(v);
        else if (argv[i][1] == 'c' && !strcmp(v, "half"))
            b->half = 1;
        else if (argv[i][1] == 'c' && vl_compute_named(v) < VL_COMPUTES)
            b->compute = vl_compute_named(v);
        else if (argv[i][1] == 'w' && (!strcmp(v, "full") || !strcmp(v, "int8")))
            b->int8 = !strcmp(v, "int8");
        else
            return 0;
    }
    b->shortest = b->shortest ? b->shortest : b->longest;
    return *k && b->model_dir && b->rows > 0 && b->prompt > 0 && b->group > 0 &&
           b->rows % b->group == 0 && b->shortest > 0 && b->shortest <= b->longest &&
           b->longest < 1 << 20 && b->rows < 1 << 20 && b->prompt < 1 << 20 && b->threads >= 0 &&
           b->samples >= 0;
}

int main(int argc, char **argv)
{
    struct bench b = { .rows = 8, .prompt = 1, .longest = 127, .group = 1, .samples = 3 };
    const struct kind *k = NULL;
    struct vl_err e = { 0 };

    if (!parse(&b, &k, argc, argv))
        return usage();
    if (run(&b, k, &e))
        fprintf(stderr, "bench_engine: %s\n", e.msg);
    close_all(&b);
    return e.code;
}
