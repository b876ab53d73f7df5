/* stage_rollout.c - from a prompt batch to a batch of responses. See stage_rollout.h.
 *
 * Prompts are divided over the ranks; rank 0 puts the results back in their order. The draw of a
 * token is keyed by (seed, uid, sample, position, step), so the division does not show. */
#include "libverl/run/stage_rollout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dp.h"
#include "libverl/base/fs.h"
#include "libverl/base/meminfo.h"
#include "libverl/batch/ops.h"
#include "libverl/run/rollout_batch.h"
#include "libverl/run/rollout_text.h"
#include "libverl/run/weights.h"

struct rollout {
    struct vl_ctx *x;
    const struct vl_rollout_opts *o;
    struct vl_rollout_how how;
    struct vl_batch in, out;
    struct vl_infer f;
    struct vl_rows rows;
    struct vl_gen_prompt *p; /* (in.rows) */
    struct vl_rollout_set set;
    struct vl_tok *tok; /* the model's, where something needs it */
    int32_t *stop;
    int64_t nstop, steps, seed;
    struct vl_rules rules;
    struct vl_stop_text *stop_text;
    int32_t bos; /* stands in for an empty prompt */
    int64_t empty;
    struct vl_dp_stream stream; /* --stream: documents in the order of the prompts */
    int64_t streamed;
    struct vl_gen_stats stats;
    char *done;          /* (in.rows) all samples of the prompt are there */
    struct vl_gen *mine; /* (share * n) */
};

/* ---- before anything runs ---- */

static void add_stop(struct rollout *r, int64_t id)
{
    for (int64_t i = 0; i < r->nstop; i++)
        if (r->stop[i] == id)
            return;
    r->stop = vl_realloc(r->stop, (size_t)(r->nstop + 1) * sizeof *r->stop);
    r->stop[r->nstop++] = (int32_t)id;
}

/* As add_stop, for an id that a config file names: one that no token has would end nothing. */
static void add_named_stop(struct rollout *r, int64_t id)
{
    if (id < r->f.model->cfg.V)
        add_stop(r, id);
    else
        vl_warn(&r->x->log,
                "%s: end id %" PRId64 " is outside the vocabulary of %" PRId64 ": it never comes",
                r->f.model->dir, id, r->f.model->cfg.V);
}

static int listed_stops(struct rollout *r, struct vl_err *e)
{
    int64_t V = r->f.model ? r->f.model->cfg.V : INT32_MAX;

    for (size_t i = 0; i < r->o->stop_ids.n; i++) {
        const char *s = r->o->stop_ids.s[i];
        char *end;
        long long id = strtoll(s, &end, 10);

        if (end == s || *end || id < 0 || id >= V)
            return vl_fail(e, VL_E_USAGE, "--stop-id %s: expected a token id in [0, %" PRId64 ")",
                           s, V);
        add_stop(r, id);
    }
    return 0;
}

/* The user's list, or the generation config's ids and the tokenizer's end id. */
static int find_stops(struct rollout *r, struct vl_err *e)
{
    const struct vl_model *m = r->f.model;

    if (r->o->stop_ids.n)
        return listed_stops(r, e);
    if (!m || r->o->ignore_eos)
        return 0;
    for (int64_t i = 0; i < m->nstop; i++)
        add_named_stop(r, m->stop_ids[i]);
    if (vl_fs_exists(m->dir, "tokenizer.json")) {
        struct vl_err why = { 0 };

        if (!vl_tok_open(&r->tok, m->dir, &why)) {
            if (vl_tok_eos(r->tok) >= 0)
                add_named_stop(r, vl_tok_eos(r->tok));
        } else if (!r->nstop) {
            return vl_fail(e, why.code, "%s", why.msg);
        } else { /* ids are enough to sample */
            vl_warn(&r->x->log, "%s; only the config's stop ids are used", why.msg);
        }
    }
    if (!r->nstop && !r->o->stop.n)
        vl_warn(&r->x->log, "%s names no end id: only the length limit ends a response (--stop-id)",
                m->dir);
    return 0;
}

/* Penalties, biases, banned words: all but the stop strings, which need the number of rows. */
static int find_rules(struct rollout *r, struct vl_err *e)
{
    const struct vl_rollout_rules *o = &r->o->rules;

    r->rules = (struct vl_rules){ .repetition = o->repetition,
                                  .presence = o->presence,
                                  .frequency = o->frequency,
                                  .min_new = o->min_tokens };
    if (!r->tok && (o->bad_words.n || r->o->stop.n) && vl_tok_open(&r->tok, r->f.model->dir, e))
        return e->code;
    for (size_t i = 0; i < r->o->stop.n; i++)
        if (!*r->o->stop.s[i])
            return vl_fail(e, VL_E_USAGE, "--stop '': expected a text that ends a response");
    if (o->bad_words.n && vl_banned_words(&r->rules, r->tok, &o->bad_words, e))
        return e->code;
    return o->bias.n ? vl_logit_biases(&r->rules, &o->bias, r->f.model->cfg.V, e) : 0;
}

static void find_pad(struct rollout *r)
{
    int64_t pad = 0;

    if (!vl_meta_i64(&r->in, "pad_token_id", &pad)) {
        if (r->f.model && r->f.model->pad_id >= 0)
            pad = r->f.model->pad_id;
        else if (r->nstop)
            pad = r->stop[0];
    }
    r->set.pad = pad;
}

static int read_prompts(struct rollout *r, struct vl_err *e)
{
    int64_t V = r->f.model ? r->f.model->cfg.V : INT32_MAX;

    if (vl_rows_read_prompts(&r->rows, &r->in, V, e))
        return e->code;
    if (!r->in.rows)
        return vl_fail(e, VL_E_DATA, "the batch has no prompts");
    if (!vl_batch_col(&r->in, "uid") || vl_batch_col(&r->in, "uid")->kind != VL_COL_JSON)
        return vl_fail(e, VL_E_DATA,
                       "column uid is missing: it names each prompt (verl-data writes it, "
                       "verl-batch from-json takes it)");
    r->p = vl_alloc((size_t)r->in.rows * sizeof *r->p);
    for (int64_t i = 0; i < r->in.rows; i++) {
        size_t n;
        char *uid = vl_uid_of(&r->in, i, &n);

        r->p[i] = (struct vl_gen_prompt){ .ids = r->rows.ids + r->rows.start[i],
                                          .len = r->rows.plen[i],
                                          .key = vl_philox_key(uid, n, (uint64_t)r->seed),
                                          .row = i };
        free(uid);
    }
    return 0;
}

/* An empty prompt becomes the begin token: a model needs something to predict from. */
static int fill_empty(struct rollout *r, struct vl_err *e)
{
    char who[128];

    r->bos = (int32_t)r->f.model->bos_id;
    for (int64_t i = 0; i < r->in.rows; i++) {
        if (r->p[i].len)
            continue;
        if (r->bos < 0)
            return vl_fail(e, VL_E_DATA,
                           "%s has an empty prompt and %s names no begin token (bos_token_id): "
                           "nothing predicts the first token",
                           vl_batch_row_name(&r->in, i, who, sizeof who), r->f.model->dir);
        r->p[i].ids = &r->bos;
        r->p[i].len = 1;
        r->empty++;
    }
    if (r->empty)
        vl_warn(&r->x->log, "%" PRId64 " empty prompts begin with the model's begin token %d",
                r->empty, r->bos);
    return 0;
}

static int check_context(struct rollout *r, int64_t *max_len, struct vl_err *e)
{
    const struct vl_rollout_opts *o = r->o;
    int64_t context = r->f.model->cfg.max_positions, longest = 0, at = 0;
    char who[128];

    for (int64_t i = 0; i < r->in.rows; i++)
        if (r->p[i].len > longest)
            longest = r->p[i].len, at = i;
    *max_len = 0;
    if (o->max_model_len != VL_NULL_I64) {
        if (context && o->max_model_len > context)
            return vl_fail(e, VL_E_USAGE,
                           "rollout.max_model_len=%" PRId64 " is more than the model's context of "
                           "%" PRId64,
                           o->max_model_len, context);
        *max_len = o->max_model_len;
        return 0; /* rows end where the context does */
    }
    if (context && longest + o->response_length > context)
        return vl_fail(e, VL_E_USAGE,
                       "%s: the prompt of %" PRId64 " tokens and rollout.response_length=%" PRId64
                       " pass the model's context of %" PRId64 ": use %" PRId64
                       " or shorter prompts, or rollout.max_model_len=%" PRId64
                       " to end rows there",
                       vl_batch_row_name(&r->in, at, who, sizeof who), longest, o->response_length,
                       context, context > longest ? context - longest : 0, context);
    return 0;
}

/* ---- the batch ---- */

static void put_meta(const struct rollout *r, struct vl_batch *b)
{
    struct vl_buf ids = { 0 };
    int filtered = r->how.top_k > 0 || r->how.top_p < 1;

    vl_meta_set_i64(b, "global_steps", r->steps);
    vl_meta_set_i64(b, "seed", r->seed);
    vl_meta_set_i64(b, "n", r->set.n);
    vl_meta_set_f64(b, "temperature", r->how.temperature);
    vl_meta_set_f64(b, "top_p", r->how.top_p);
    vl_meta_set_i64(b, "top_k", r->how.top_k);
    if (r->set.have_logp) /* what an outside engine with filters records is over the kept set */
        vl_meta_set_str(b, "logprobs_mode",
                        r->o->from_json && filtered ? "kept_set" : "full_vocabulary");
    vl_buf_ch(&ids, '[');
    for (int64_t i = 0; i < r->nstop; i++)
        vl_buf_printf(&ids, "%s%d", i ? "," : "", r->stop[i]);
    vl_buf_ch(&ids, ']');
    vl_meta_set(b, "stop_token_ids", ids.s);
    vl_buf_free(&ids);
    vl_meta_set_i64(b, "pad_token_id", r->set.pad);
    if (r->o->validate)
        vl_meta_set(b, "validate", "true");
    if (!r->o->from_json) {
        vl_meta_set_str(b, "compute", vl_compute_name(r->f.compute));
        vl_weights_set(b, "rollout_log_probs", r->f.model, r->f.quantization);
    }
}

static const char *weights_name(const struct rollout *r)
{
    const struct vl_model *m = r->o->from_json ? NULL : r->f.model;

    return !m ? NULL : m->version ? m->version : m->hash;
}

/* One prompt's rows as a document of their own. */
static int put_document(struct rollout *r, int64_t prompt, struct vl_err *e)
{
    struct vl_rollout_set set = r->set;
    struct vl_batch one = { 0 }, doc = { 0 };

    set.prompts = 1;
    set.P = r->rows.P > 0 ? r->rows.P : 1;
    set.p = r->p + prompt;
    set.gen = r->mine + prompt * set.n;
    if (!vl_batch_rows(&one, &r->in, prompt, 1, e) && !vl_rollout_batch(&doc, &one, &set, e)) {
        put_meta(r, &doc);
        if (!vl_stage_sign(r->x, &doc, weights_name(r), e))
            (void)!vl_dp_stream_put(&r->stream, &doc, e);
    }
    vl_batch_free(&one);
    vl_batch_free(&doc);
    return e->code;
}

/* Documents keep the prompts' order, so that their concat is the batch that one file would hold. */
static int finished(void *arg, int64_t prompt, struct vl_err *e)
{
    struct rollout *r = arg;

    r->done[prompt] = 1;
    while (r->streamed < r->in.rows && r->done[r->streamed] && !e->code)
        (void)!put_document(r, r->streamed++, e);
    return e->code;
}

/* ---- sampling ---- */

static int stop_text(void *arg, int64_t sample, int32_t id)
{
    struct rollout *r = arg;

    return vl_stop_text_push(r->stop_text, sample, id);
}

static void progress(void *arg, int64_t rows, int64_t tokens)
{
    struct rollout *r = arg;
    char note[64];
    double s = vl_now() - r->x->log.t0;

    snprintf(note, sizeof note, "%" PRId64 " tokens, %.0f/s", tokens,
             s > 0 ? (double)tokens / s : 0.0);
    vl_progress(&r->x->log, "rows", rows, r->set.prompts * r->set.n, note);
}

static struct vl_gen_opts gen_opts(struct rollout *r, int64_t max_len)
{
    const struct vl_rollout_opts *o = r->o;

    return (struct vl_gen_opts){ .n = r->how.n,
                                 .max_new = o->response_length,
                                 .max_len = max_len,
                                 .topk = o->topk,
                                 .stats = &r->stats,
                                 .sampling = { .temperature = r->how.temperature,
                                               .top_p = r->how.top_p,
                                               .top_k = r->how.top_k,
                                               .min_p = o->rules.min_p },
                                 .rules = r->rules,
                                 .stop = r->stop,
                                 .nstop = r->nstop,
                                 .stop_text = r->stop_text ? stop_text : NULL,
                                 .step = (uint32_t)r->steps,
                                 .max_seqs = o->max_seqs,
                                 .max_tokens = o->max_tokens,
                                 .deadline = o->time_limit > 0 ? vl_now() + o->time_limit : 0,
                                 .finished = o->stream ? finished : NULL,
                                 .progress = progress,
                                 .arg = r };
}

/* This rank's share of the prompts: lo .. lo + n - 1. */
static void my_share(struct rollout *r, int64_t *range)
{
    int64_t *cost = vl_alloc((size_t)r->in.rows * sizeof *cost);

    for (int64_t i = 0; i < r->in.rows; i++)
        cost[i] = r->p[i].len + r->how.n * r->o->response_length;
    vl_comm_cut(r->x->comm.size, cost, r->in.rows, range);
    free(cost);
}

static int gather(struct rollout *r, const struct vl_gen *mine, int64_t n, const int64_t *range,
                  struct vl_err *e)
{
    int size = r->x->comm.size, root = r->x->comm.rank == 0;
    size_t *sizes = vl_alloc((size_t)size * sizeof *sizes);
    struct vl_buf b = { 0 };
    void *all = NULL;
    const char *at;

    vl_gen_put(&b, mine, n, r->o->topk);
    if (!vl_comm_gather(&r->x->comm, b.s, b.n, root ? &all : NULL, root ? sizes : NULL, e) &&
        root) {
        r->set.gen = vl_alloc((size_t)(r->in.rows * r->how.n) * sizeof *r->set.gen);
        at = all;
        for (int k = 0; k < size; k++) {
            (void)vl_gen_get(r->set.gen + range[k] * r->how.n, (range[k + 1] - range[k]) * r->how.n,
                             r->o->topk, at);
            at += sizes[k];
        }
    }
    free(all);
    free(sizes);
    vl_buf_free(&b);
    return e->code;
}

/* What the cache takes, and how the user makes it and the rest smaller. */
static size_t cache_bytes(struct rollout *r, const struct vl_gen_opts *o, int64_t lo, int64_t n)
{
    size_t want, least, free_now = vl_mem_available(), share;
    struct vl_parsed *p = r->x->parsed;

    r->f.mem.least = 16; /* fewer would work, slowly */
    r->f.mem.tokens = vl_parsed_how(p, &r->o->max_tokens);
    r->f.mem.compute = vl_parsed_how(p, &r->o->compute);
    r->f.mem.quantization = vl_parsed_how(p, &r->o->quantization);
    r->f.mem.share = vl_parsed_how(p, &r->o->memory);
    if (!n)
        return 0;
    vl_gen_kv(&r->f.model->cfg, r->f.compute, r->f.be, r->p + lo, n, o, &want, &least);
    r->f.mem.cache_least = least;
    share = free_now == SIZE_MAX
                ? SIZE_MAX
                : (size_t)((double)free_now * r->o->memory / (double)r->x->comm.local_size);
    r->f.mem.cache = want < share ? want : share > least ? share : least;
    return r->f.mem.cache;
}

/* Rank 0, once it has all rows: tokens of all ranks, prefill and decoding of its own. */
static void note_times(struct rollout *r, double s)
{
    const struct vl_gen_stats *g = &r->stats;
    struct vl_timing *t = &r->x->timing;
    int64_t drawn = 0;

    for (int64_t i = 0; i < r->in.rows * r->how.n; i++)
        drawn += r->set.gen[i].len;
    vl_timing_add(t, VL_PHASE_WORK, s, drawn);
    vl_timing_add(t, VL_PHASE_PREFILL, g->prefill_s, g->prefill);
    vl_timing_add(t, VL_PHASE_DECODE, g->decode_s, g->decode);
}

static int sample(struct rollout *r, struct vl_err *e)
{
    int64_t *range = vl_alloc((size_t)(r->x->comm.size + 1) * sizeof *range), lo, n, max_len;
    struct vl_extent pass;
    struct vl_gen_opts o;
    double t0;

    my_share(r, range);
    lo = range[r->x->comm.rank], n = range[r->x->comm.rank + 1] - lo;
    r->set.prompts = n, r->set.n = r->how.n; /* of this rank; all of them in write_out */
    r->set.have_logp = r->o->log_probs;
    r->set.topk = r->o->topk;
    if (r->o->topk > r->f.model->cfg.V)
        (void)!vl_fail(e, VL_E_USAGE, "--logprobs %" PRId64 ": the vocabulary has %" PRId64 " ids",
                       r->o->topk, r->f.model->cfg.V);
    if (e->code || check_context(r, &max_len, e))
        goto done;
    if (r->o->stop.n)
        r->stop_text = vl_stop_text_new(r->tok, &r->o->stop, n * r->how.n);
    o = gen_opts(r, max_len);
    o.kv_bytes = cache_bytes(r, &o, lo, n);
    pass = vl_gen_extent(r->p + lo, n, &o);
    if (vl_infer_load(r->x, &r->f, &pass, e))
        goto done;
    r->mine = vl_alloc((size_t)(n * r->how.n) * sizeof *r->mine);
    if (r->o->stream && vl_dp_stream_open(&r->stream, r->x->common->output,
                                          &(struct vl_dp_write){ (int)r->x->common->level, 1 }, e))
        goto done;
    t0 = vl_now();
    if (vl_generate(r->f.eng, r->p + lo, n, &o, r->mine, e) == VL_E_DATA)
        vl_err_prefix(e, "%s", r->f.model->dir);
    if (r->stats.put_off)
        vl_info(&r->x->log,
                "%" PRId64 " rows gave their cache back and were computed again: "
                "rollout.gpu_memory_utilization=%g leaves %.1f MB for it",
                r->stats.put_off, r->o->memory, (double)o.kv_bytes * 1e-6);
    if (r->o->stream)
        (void)!vl_dp_stream_close(&r->stream, !e->code, e);
    if (!vl_comm_agree(&r->x->comm, e))
        (void)!gather(r, r->mine, n * r->how.n, range, e);
    if (r->x->comm.rank == 0 && !e->code)
        note_times(r, vl_now() - t0);
done:
    if (r->mine)
        vl_gen_free(r->mine, n * r->how.n);
    free(range);
    return e->code;
}

static int outside(struct rollout *r, struct vl_err *e)
{
    const struct vl_model *m = r->f.model;
    struct vl_outside o = {
        .path = r->o->from_json,
        .model_dir = m && vl_fs_exists(m->dir, "tokenizer.json") ? m->dir : NULL,
        .V = m ? m->cfg.V : 0,
        .stop = r->stop,
        .nstop = r->nstop,
        .n = vl_parsed_given(r->x->parsed, r->o->validate ? &r->o->val.n : &r->o->train.n)
                 ? r->how.n
                 : 0
    };

    r->set.prompts = r->in.rows;
    if (r->x->comm.rank == 0 && !vl_rollout_outside(&r->set, &r->in, &o, e) && o.cut)
        vl_warn(&r->x->log,
                "%" PRId64 " responses were longer than rollout.response_length=%" PRId64
                " and are cut",
                o.cut, r->o->response_length);
    return vl_comm_agree(&r->x->comm, e);
}

/* ---- the batch ---- */

static void say_result(struct rollout *r, int64_t *tokens)
{
    int64_t rows = r->in.rows * r->set.n, count[3] = { 0 };

    *tokens = 0;
    for (int64_t i = 0; i < rows; i++) {
        *tokens += r->set.gen[i].len;
        count[r->set.gen[i].finish]++;
    }
    vl_info(&r->x->log,
            "%" PRId64 " rows of %" PRId64 " prompts: %" PRId64 " stopped, %" PRId64
            " at the length limit, %" PRId64 " aborted; %.1f tokens each",
            rows, r->in.rows, count[VL_FINISH_STOP], count[VL_FINISH_LENGTH],
            count[VL_FINISH_ABORT], (double)*tokens / (double)(rows ? rows : 1));
}

static int write_out(struct rollout *r, struct vl_err *e)
{
    struct vl_ctx *x = r->x;
    int64_t tokens = 0;

    r->set.P = r->rows.P > 0 ? r->rows.P : 1;
    r->set.prompts = r->in.rows;
    r->set.p = r->p;
    if (x->comm.rank == 0)
        say_result(r, &tokens);
    if (!r->o->stream) {
        if (x->comm.rank == 0 && !vl_rollout_batch(&r->out, &r->in, &r->set, e))
            put_meta(r, &r->out);
        if (vl_comm_agree(&x->comm, e) ||
            vl_stage_write(x, &r->out, vl_rollout_columns, weights_name(r), e))
            return e->code;
    }
    vl_log_done(&x->log, r->in.rows * r->set.n, tokens);
    return 0;
}

/* Whether ids are drawn from another distribution than the one the log-probs speak of. */
static int reshaped(const struct rollout *r)
{
    const struct vl_rollout_rules *o = &r->o->rules;

    return r->how.top_k > 0 || r->how.top_p < 1 || o->min_p > 0 || o->repetition != 1 ||
           o->presence != 0 || o->frequency != 0 || o->bias.n || o->bad_words.n;
}

static int check_options(struct rollout *r, struct vl_err *e)
{
    const struct vl_rollout_opts *o = r->o;

    r->how = o->validate ? o->val : o->train;
    r->set.R = o->response_length;
    if (o->ignore_eos && o->stop_ids.n)
        return vl_fail(e, VL_E_USAGE, "rollout.ignore_eos and --stop-id contradict each other");
    if (o->topk && o->from_json)
        return vl_fail(e, VL_E_USAGE, "--logprobs records what is sampled here, not --from-json");
    if (o->rules.min_tokens > o->response_length)
        return vl_fail(e, VL_E_USAGE,
                       "rollout.min_tokens=%" PRId64
                       " is more than rollout.response_length=%" PRId64,
                       o->rules.min_tokens, o->response_length);
    if (r->x->common->delta && r->how.n > 1)
        return vl_fail(e, VL_E_USAGE,
                       "--delta with n=%" PRId64 ": the number of rows changes, write the whole "
                       "batch",
                       r->how.n);
    if (o->stream && (o->from_json || r->x->common->delta || r->x->comm.size > 1))
        return vl_fail(e, VL_E_USAGE, "--stream works on one rank, without %s",
                       o->from_json          ? "--from-json"
                       : r->x->common->delta ? "--delta"
                                             : "a launcher");
    if (!o->validate && !o->from_json && reshaped(r))
        vl_info(&r->x->log,
                "log-probs are the model's own over the full vocabulary, not those of the draws "
                "that filters, penalties or biases reshape; ratios will not know of them");
    return 0;
}

static int open_model(struct rollout *r, struct vl_err *e)
{
    const struct vl_rollout_opts *o = r->o;
    const char *path = r->x->common->model ? r->x->common->model : o->policy_path;
    const char *compute = o->compute;
    int half = 0; /* bfloat16 in whichever order is fastest here */

    if (o->from_json && !path)
        return 0;
    if (!vl_parsed_given(r->x->parsed, &o->compute) && vl_parsed_given(r->x->parsed, &o->dtype)) {
        half = strcmp(o->dtype, "float32") != 0;
        compute = half ? "bf16" : "fp32";
    }
    if (!vl_infer_open(r->x, &r->f, &r->in, path, "actor_rollout_ref.model.path", VL_HEAD_LM,
                       compute, e) &&
        half)
        r->f.compute = vl_compute_half(r->f.be);
    r->f.quantization = o->quantization;
    return e->code;
}

static int run(struct rollout *r, struct vl_err *e)
{
    const struct vl_rollout_opts *o = r->o;

    if (check_options(r, e) || vl_stage_read(r->x, &r->in, e) ||
        vl_stage_i64(r->x, &r->in, "global_steps", &o->global_steps, &r->steps, e))
        return e->code;
    r->seed = vl_stage_seed(r->x, &r->in);
    vl_meta_del(&r->in, "compute"); /* of an earlier stage: this one begins anew */
    if (open_model(r, e) || find_stops(r, e) || (!o->from_json && find_rules(r, e)) ||
        read_prompts(r, e))
        return e->code;
    find_pad(r);
    r->done = vl_alloc((size_t)r->in.rows);
    if (o->from_json ? outside(r, e) : (fill_empty(r, e) || sample(r, e)))
        return e->code;
    return write_out(r, e);
}

int vl_stage_rollout(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    struct rollout r = { .x = x, .o = opts };

    (void)!run(&r, e);
    if (r.set.gen)
        vl_gen_free(r.set.gen, r.in.rows * r.set.n);
    free(r.set.gen);
    free(r.p);
    free(r.mine);
    free(r.done);
    free(r.stop);
    vl_stop_text_free(r.stop_text);
    vl_banned_words_free(&r.rules);
    free((void *)r.rules.bias);
    vl_tok_free(r.tok);
    vl_rows_free(&r.rows);
    vl_infer_close(&r.f);
    vl_batch_free(&r.in);
    vl_batch_free(&r.out);
    return e->code;
}
