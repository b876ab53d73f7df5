/* stage_data.c - which rows a batch has, and the stage around it. See stage_data.h.
 *
 * Training: each epoch is a permutation of the rows by (seed, epoch), cut into batches; what is left
 * at its end is dropped (--remainder drop) and comes back in the next epoch's own permutation. */
#include "libverl/run/data_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libverl/base/fs.h"
#include "libverl/base/philox.h"
#include "libverl/run/data_maps.h"

#define SAMPLE_EPOCH UINT32_MAX /* the permutation that max_samples draws from */

static const char *const adds[] = { "prompts",      "input_ids",  "attention_mask", "position_ids",
                                    "uid",          "sample",     "raw_prompt",     "data_source",
                                    "reward_model", "extra_info", "index",          NULL };

struct data {
    struct vl_ctx *x;
    struct vl_data_opts opts; /* with the filter of --dataset */
    const struct vl_data_opts *o;
    char *map;
    struct vl_lines lines;
    struct vl_row_work work;
    struct vl_row *row; /* candidates, in file order */
    int64_t nrow;
    struct vl_row **pick; /* the batch */
    int64_t npick;
    struct vl_data_meta m;
    int64_t untrained;
    struct vl_err first_bad;
    struct vl_kept_counts kept; /* of all rows, where some are left out */
};

/* ---- options ---- */

static int training(const struct vl_data_opts *o)
{
    return !o->all && !o->validate && (o->step != VL_NULL_I64 || o->batch != VL_NULL_I64);
}

static int check_options(const struct vl_data_opts *o, struct vl_err *e)
{
    if (training(o) && o->batch_size == VL_NULL_I64)
        return vl_fail(e, VL_E_USAGE,
                       "--step and --batch need the number of rows of a batch, for example "
                       "data.train_batch_size=64 (or --batch-size 64)");
    if (o->batch != VL_NULL_I64 && !training(o))
        return vl_fail(e, VL_E_USAGE, "--batch has no effect with --all or --validate");
    if (o->system && o->tmpl && strcmp(o->tmpl, "none") == 0)
        return vl_fail(e, VL_E_USAGE, "--system has no effect with --template none");
    if (o->chat && o->tmpl && strcmp(o->tmpl, "none") == 0)
        return vl_fail(e, VL_E_USAGE, "--chat has no effect with --template none");
    if (strcmp(o->mask, "last") == 0 && !o->sft)
        return vl_fail(e, VL_E_USAGE, "--mask has no effect without --sft");
    if (o->check && o->check_json)
        return vl_fail(e, VL_E_USAGE, "--check and --check-json are one report; give one");
    if (o->sft && o->preference)
        return vl_fail(e, VL_E_USAGE, "--sft and --preference make different batches; give one");
    if (o->filter_overlong && o->max_prompt == VL_NULL_I64 && o->max_length == VL_NULL_I64)
        return vl_fail(e, VL_E_USAGE,
                       "data.filter_overlong_prompts has no effect without data.max_prompt_length");
    return 0;
}

/* The context a model directory states, against the limits. */
static int check_context(const struct vl_data_opts *o, const char *model, struct vl_err *e)
{
    char *path = vl_asprintf("%s/config.json", model);
    int parts = o->max_prompt != VL_NULL_I64 && o->max_response != VL_NULL_I64;
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    int64_t context;

    if ((parts || o->max_length != VL_NULL_I64) && vl_fs_exists(path, NULL) &&
        vl_fs_read(path, (size_t)16 << 20, &text, e) == 0 &&
        vl_json_parse(&j, text.s, text.n, path, e) == 0 &&
        vl_json_i64(&j, vl_json_get(&j, 0, "max_position_embeddings"), &context)) {
        if (o->max_length != VL_NULL_I64 && o->max_length > context)
            vl_fail(e, VL_E_USAGE,
                    "data.max_length=%" PRId64 " passes the model's context of %" PRId64 " (%s)",
                    o->max_length, context, path);
        else if (o->max_length == VL_NULL_I64 && o->max_prompt + o->max_response > context)
            vl_fail(e, VL_E_USAGE,
                    "data.max_prompt_length=%" PRId64 " + data.max_response_length=%" PRId64
                    " pass the model's context of %" PRId64 " (%s)",
                    o->max_prompt, o->max_response, context, path);
    }
    vl_json_free(&j);
    vl_buf_free(&text);
    free(path);
    return e->code;
}

static int find_files(struct data *d, struct vl_strs *files, struct vl_err *e)
{
    struct vl_common *c = d->x->common;

    if (c->operands.n)
        *files = c->operands;
    else
        *files = d->o->validate ? d->o->val_files : d->o->train_files;
    if (!files->n)
        return vl_fail(e, VL_E_USAGE,
                       "no rows: name JSON lines files (- is standard input), or set data.%s_files",
                       d->o->validate ? "val" : "train");
    return 0;
}

static const char *find_model(const struct data *d, struct vl_err *e)
{
    const char *m = d->x->common->model;

    if (!m)
        m = d->o->tokenizer_path;
    if (!m)
        m = d->o->model_path;
    if (!m)
        vl_fail(e, VL_E_USAGE,
                "no tokenizer: give a model directory with -m DIR (or data.tokenizer=, "
                "actor_rollout_ref.model.path=)");
    return m;
}

/* --dataset's filter, then --map's. Provenance has this text, so that it is the same batch whichever
 * way the filter was given. */
static int find_map(struct data *d, const struct vl_data_opts *given, struct vl_err *e)
{
    const struct vl_data_map *m;
    struct vl_buf both = { 0 }, json = { 0 };

    if (!given->dataset)
        return 0;
    if (!(m = vl_data_map_find(given->dataset, e)))
        return e->code;
    if (given->map)
        vl_buf_printf(&both, "(%s) |\n%s", m->filter, given->map);
    else
        vl_buf_str(&both, m->filter);
    d->map = vl_buf_detach(&both);
    d->opts.map = d->map;
    (void)vl_json_put_str(&json, d->map, strlen(d->map));
    vl_parsed_effective(d->x->parsed, &given->map, json.s);
    vl_buf_free(&json);
    return 0;
}

/* What --dataset help and --print-map print. */
static int print_maps(struct vl_ctx *x, const struct vl_data_opts *o, struct vl_err *e)
{
    const struct vl_data_map *m;
    struct vl_buf t = { 0 };

    if (!o->print_map)
        for (m = vl_data_maps(); m->name; m++)
            vl_buf_printf(&t, "%-16s %s\n", m->name, m->what);
    else if ((m = vl_data_map_find(o->print_map, e)))
        vl_buf_printf(&t, "%s\n", m->filter);
    if (!e->code)
        (void)!vl_publish_file(x->common->output, t.s, t.n, 0, e);
    vl_buf_free(&t);
    return e->code;
}

/* ---- rows ---- */

static int check_lines(struct data *d, struct vl_err *e)
{
    for (int64_t i = 0; i < d->lines.n; i++)
        if (vl_row_check(&d->work, i, e))
            return e->code;
    return 0;
}

static int by_index(const void *a, const void *b)
{
    const struct vl_row *x = a, *y = b;

    return (x->index > y->index) - (x->index < y->index);
}

/* All rows, or max_samples of them: the first, or with shuffling a draw by the seed. */
static void find_candidates(struct data *d)
{
    const struct vl_data_opts *o = d->o;
    int64_t max = o->validate ? o->val_max : o->train_max, n = d->lines.n;
    int shuffle = o->validate ? o->val_shuffle : o->shuffle;
    int64_t *perm = NULL;

    d->nrow = max > 0 && max < n ? max : n;
    d->row = vl_alloc((size_t)d->nrow * sizeof *d->row);
    if (d->nrow < n && shuffle) {
        perm = vl_alloc((size_t)n * sizeof *perm);
        vl_shuffle(perm, n, (uint64_t)d->m.order_seed, SAMPLE_EPOCH);
    }
    for (int64_t i = 0; i < d->nrow; i++)
        d->row[i].index = perm ? perm[i] : i;
    if (perm)
        qsort(d->row, (size_t)d->nrow, sizeof *d->row, by_index);
    free(perm);
    d->m.rows_seen = d->nrow;
}

/* Makes one row; a row that is not kept is counted, or fails the stage. */
static int make_row(struct data *d, struct vl_row *r, struct vl_err *e)
{
    struct vl_err why = { 0 };

    switch (vl_row_make(&d->work, r, &why)) {
    case VL_ROW_KEPT:
        return 0;
    case VL_ROW_OVERLONG:
        d->m.overlong++;
        break;
    case VL_ROW_BAD:
        if (!d->o->skip_bad) {
            *e = why;
            return e->code;
        }
        if (!d->m.bad++)
            d->first_bad = why;
        break;
    }
    vl_row_free(r);
    return 0;
}

/* Whether rows may fall away: then all must be looked at before any batch is cut. */
static int may_drop(const struct vl_data_opts *o)
{
    return o->skip_bad || o->filter_overlong || strcmp(o->truncation, "filter") == 0;
}

/* A row of a training batch is made again when it is drawn: all of them would fill the memory. */
static int keep_good(struct data *d, struct vl_kept *k, struct vl_err *e)
{
    const int again = training(d->o);
    int64_t kept = 0;

    for (int64_t i = 0; i < d->nrow; i++) {
        if (make_row(d, &d->row[i], e))
            return e->code;
        vl_progress(&d->x->log, "rows checked", i + 1, d->nrow, NULL);
        if (!d->row[i].done)
            continue;
        k->bit[i / 8] |= (unsigned char)(1 << i % 8);
        if (again)
            vl_row_free(&d->row[i]);
        if (kept != i) {
            d->row[kept] = d->row[i];
            d->row[i] = (struct vl_row){ 0 };
        }
        kept++;
    }
    d->nrow = kept;
    return 0;
}

static struct vl_kept_counts counts(const struct data *d)
{
    const struct vl_row_work *w = &d->work;

    return (struct vl_kept_counts){ d->m.bad,  d->m.overlong, w->templated, w->double_bos,
                                    w->no_bos, w->straddled,  w->loose,     w->media };
}

static void set_counts(struct data *d, const struct vl_kept_counts *c)
{
    struct vl_row_work *w = &d->work;

    d->m.bad = c->bad, d->m.overlong = c->overlong;
    w->templated = c->templated, w->double_bos = c->double_bos, w->no_bos = c->no_bos;
    w->straddled = c->straddled, w->loose = c->loose, w->media = c->media;
}

/* What an earlier step found out. */
static void recall(struct data *d, const struct vl_kept *k)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < k->rows; i++)
        if (k->bit[i / 8] >> i % 8 & 1)
            d->row[kept++].index = d->row[i].index;
    d->nrow = kept;
    set_counts(d, &k->counts);
    snprintf(d->first_bad.msg, sizeof d->first_bad.msg, "%s", k->first_bad);
}

/* Looks at every row, so that one that is bad is told of before a batch is made of others. */
static int look(struct data *d, struct vl_kept *k, struct vl_err *e)
{
    k->bit = vl_alloc((size_t)(k->rows + 7) / 8);
    if (!d->o->skip_bad && check_lines(d, e))
        return e->code;
    if (may_drop(d->o)) {
        (void)!keep_good(d, k, e);
        k->counts = counts(d);
        k->first_bad = vl_strdup(d->first_bad.msg);
    } else {
        memset(k->bit, 0xFF, (size_t)k->rows / 8);
        for (int64_t i = k->rows / 8 * 8; i < k->rows; i++)
            k->bit[i / 8] |= (unsigned char)(1 << i % 8);
    }
    return e->code;
}

static int keep_rows(struct data *d, struct vl_err *e)
{
    struct vl_kept k = { .rows = d->nrow };

    if (training(d->o))
        vl_kept_open(&k, &d->work, d->row, d->nrow);
    if (k.known)
        recall(d, &k);
    else
        (void)!look(d, &k, e);
    d->kept = k.counts;
    vl_kept_close(&k, !e->code);
    return e->code;
}

/* ---- the batch ---- */

/* Rows at..at + n of the order of this epoch. */
static void take(struct data *d, int64_t at, int64_t n, int shuffle)
{
    int64_t *perm = vl_alloc((size_t)(d->nrow ? d->nrow : 1) * sizeof *perm);

    if (shuffle)
        vl_shuffle(perm, d->nrow, (uint64_t)d->m.order_seed, (uint32_t)d->m.epoch);
    d->npick = n;
    d->pick = vl_alloc((size_t)n * sizeof *d->pick);
    for (int64_t i = 0; i < n; i++)
        d->pick[i] = &d->row[shuffle ? perm[at + i] : at + i];
    free(perm);
}

static int pick_training(struct data *d, struct vl_err *e)
{
    const struct vl_data_opts *o = d->o;
    int64_t B = o->batch_size, per = d->nrow / B, left = d->nrow % B, at;

    if (strcmp(o->rest, "keep") == 0 && left)
        per++, left = 0;
    if (!per)
        return vl_fail(e, VL_E_DATA,
                       "%" PRId64 " rows do not fill one batch of data.train_batch_size=%" PRId64
                       ": use at most %" PRId64 ", or --remainder keep",
                       d->nrow, B, d->nrow);
    d->m.batch = o->batch != VL_NULL_I64 ? o->batch : o->step - 1;
    d->m.step = o->step != VL_NULL_I64 ? o->step : d->m.batch + 1;
    d->m.epoch = d->m.batch / per;
    d->m.left_over = left;
    at = d->m.batch % per * B;
    take(d, at, B < d->nrow - at ? B : d->nrow - at, o->shuffle);
    return 0;
}

static int pick_all(struct data *d, struct vl_err *e)
{
    const struct vl_data_opts *o = d->o;
    int64_t n = d->nrow;

    d->m.step = o->step != VL_NULL_I64 ? o->step : 0;
    if (!n)
        return vl_fail(e, VL_E_DATA,
                       "no rows are left (%" PRId64 " read, %" PRId64 " filtered, %" PRId64 " bad)",
                       d->lines.n, d->m.overlong, d->m.bad);
    take(d, 0, n, o->validate && o->val_shuffle);
    return 0;
}

static int make_picked(struct data *d, struct vl_err *e)
{
    for (int64_t i = 0; i < d->npick; i++) {
        if (!d->pick[i]->done && make_row(d, d->pick[i], e))
            return e->code;
        if (!d->pick[i]->done)
            return vl_fail(e, VL_E_BUG, "row %" PRId64 " was kept and is not: VERL_CACHE=off",
                           d->pick[i]->index);
        d->m.truncated += d->pick[i]->truncated;
        d->untrained += vl_row_untrained(d->o, d->pick[i]);
        vl_progress(&d->x->log, "rows", i + 1, d->npick, NULL);
    }
    if (may_drop(d->o)) /* all rows were counted before */
        set_counts(d, &d->kept);
    return 0;
}

/* ---- the report ---- */

static void report_rows(struct data *d)
{
    struct vl_log *log = &d->x->log;
    const struct vl_data_opts *o = d->o;

    if (d->m.bad)
        vl_warn(log, "%" PRId64 " bad rows skipped, the first: %s", d->m.bad, d->first_bad.msg);
    if (d->m.overlong)
        vl_info(log, "%" PRId64 " of %" PRId64 " rows filtered: prompt%s over the limit",
                d->m.overlong, d->m.rows_seen, o->sft || o->preference ? " or response" : "");
    if (d->m.truncated)
        vl_info(log, "%" PRId64 " rows truncated (%s)", d->m.truncated, o->truncation);
    if (training(o))
        vl_info(log,
                "step %" PRId64 ": epoch %" PRId64 ", batch %" PRId64 " of %" PRId64
                " rows; %" PRId64 " rows of an epoch are left over",
                d->m.step, d->m.epoch, d->m.batch, d->npick, d->m.left_over);
    if (d->work.jq && vl_jq_inexact(d->work.jq))
        vl_info(log, "%" PRId64 " numbers that jq would change went through --map as strings",
                vl_jq_inexact(d->work.jq));
}

static int same_answers(const struct vl_row *r)
{
    const struct vl_ids *a = &r->reply[0].ids, *b = &r->reply[1].ids;

    return a->n && a->n == b->n && memcmp(a->id, b->id, a->n * sizeof *a->id) == 0;
}

static void report(struct data *d)
{
    struct vl_log *log = &d->x->log;
    int64_t special = 0, rows = 0, tokens = 0, same = 0;

    report_rows(d);
    for (int64_t i = 0; i < d->npick; i++) {
        special += d->pick[i]->special;
        rows += d->pick[i]->special > 0;
        same += same_answers(d->pick[i]);
        tokens += (int64_t)(d->pick[i]->prompt.n + d->pick[i]->reply[0].ids.n +
                            d->pick[i]->reply[1].ids.n);
    }
    if (special)
        vl_warn(log, "the content of %" PRId64 " rows spells %" PRId64 " special tokens; %s", rows,
                special,
                d->o->plain_special ? "they are ordinary text (--plain-special)"
                                    : "they become those tokens (--plain-special: ordinary text)");
    if (d->work.double_bos)
        vl_warn(log,
                "%" PRId64 " rows begin with more than one begin token: the template or the "
                "tokenizer writes one, and the content spells another",
                d->work.double_bos);
    if (d->work.straddled)
        vl_warn(log,
                "in %" PRId64 " rows tokens straddle the end of a turn; they are cut there "
                "(data.ignore_input_ids_mismatch)",
                d->work.straddled);
    if (d->work.loose)
        vl_warn(log,
                "the template writes earlier turns of %" PRId64 " rows otherwise; each is taken as "
                "it is when it is the last (data.ignore_input_ids_mismatch)",
                d->work.loose);
    if (same)
        vl_warn(log, "%" PRId64 " pairs have the same tokens as chosen and as rejected", same);
    if (d->work.media)
        vl_warn(log,
                "%" PRId64 " rows have images, videos or audio: only their text goes to the model",
                d->work.media);
    if (d->untrained)
        vl_warn(log, "%" PRId64 " rows have no token to train on", d->untrained);
    if (d->work.no_bos)
        vl_info(log,
                "%" PRId64 " rows have no begin token: the tokenizer would add one, the chat "
                "template does not",
                d->work.no_bos);
    vl_log_done(log, d->npick, tokens);
}

/* ---- the stage ---- */

/* --check: every row is made, looked at and let go; the report is all that comes out. */
static int check_rows(struct data *d, struct vl_err *e)
{
    struct vl_check *c = vl_check_new();
    struct vl_buf text = { 0 };

    d->work.lenient = 1;
    for (int64_t i = 0; i < d->nrow; i++) {
        struct vl_row *r = &d->row[i];
        struct vl_err why = { 0 };
        enum vl_row_fate fate = vl_row_make(&d->work, r, &why);

        vl_check_row(c, &d->work, r, fate, &why);
        vl_row_free(r);
        vl_progress(&d->x->log, "rows checked", i + 1, d->nrow, NULL);
    }
    (void)!vl_check_report(c, &d->work, d->o->check_json, &text, e);
    if (text.n) {
        struct vl_err io = { 0 };

        if (vl_publish_file(d->x->common->output, text.s, text.n, 0, &io))
            *e = io;
    }
    vl_buf_free(&text);
    vl_check_free(c);
    return e->code;
}

static int build(struct data *d, struct vl_batch *b, struct vl_err *e)
{
    const struct vl_data_opts *o = d->o;
    struct vl_strs files;
    const char *model = find_model(d, e);
    char *real;

    if (!model || check_options(o, e) || check_context(o, model, e) || find_files(d, &files, e) ||
        vl_lines_read(&d->lines, &files, e))
        return e->code;
    if (o->max_length != VL_NULL_I64 && !o->sft && !o->preference)
        vl_warn(&d->x->log, "data.max_length is the limit of prompt and response together and has "
                            "no effect here; data.max_prompt_length is the prompt's");
    if (!d->lines.n)
        return vl_fail(e, VL_E_DATA, "%s: no rows", d->lines.path[0]);
    d->x->log.bytes_in += (int64_t)d->lines.bytes;
    d->m.seed = d->x->common->seed;
    d->m.order_seed = o->data_seed != VL_NULL_I64 ? o->data_seed : d->m.seed;
    d->work.x = d->x, d->work.o = o, d->work.lines = &d->lines;
    if (vl_row_work_open(&d->work, model, e))
        return e->code;
    if ((o->sft || o->preference) && o->eos && vl_tok_eos(d->work.tok) < 0)
        return vl_fail(e, VL_E_DATA,
                       "%s names no end token (eos_token in tokenizer_config.json): "
                       "nothing ends a response; --no-eos leaves it out",
                       model);
    find_candidates(d);
    if (o->check || o->check_json)
        return check_rows(d, e);
    if (keep_rows(d, e) || (training(o) ? pick_training(d, e) : pick_all(d, e)) ||
        make_picked(d, e) || vl_data_columns(b, &d->work, d->pick, d->npick, &d->m, e))
        return e->code;
    real = realpath(model, NULL);
    vl_meta_set_str(b, "tokenizer_path", real ? real : model);
    free(real);
    return 0;
}

int vl_stage_data(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_data_opts *o = opts;
    struct data d = { .x = x, .opts = *o };
    struct vl_batch b = { 0 };

    d.o = &d.opts;
    d.work.need_source = o->check_scorer && vl_parsed_given(x->parsed, &o->check_scorer);
    if (o->print_map || (o->dataset && strcmp(o->dataset, "help") == 0))
        return x->comm.rank == 0 ? print_maps(x, o, e) : 0;
    if (x->comm.rank == 0 && find_map(&d, o, e) == 0)
        (void)!build(&d, &b, e);
    if (!o->check && !o->check_json && vl_stage_write(x, &b, adds, NULL, e) == 0 &&
        x->comm.rank == 0)
        report(&d);
    for (int64_t i = 0; i < d.nrow; i++)
        vl_row_free(&d.row[i]);
    free(d.row);
    free(d.pick);
    free(d.map);
    vl_row_work_close(&d.work);
    vl_lines_free(&d.lines);
    vl_batch_free(&b);
    return e->code;
}
