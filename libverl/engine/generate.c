/* generate.c - a rollout: memory, what is drawn in each step, and what becomes of it.
 *
 *   waiting prompts -> group (prompt prefilled once, in pieces) -> samples in slots -> results
 *
 * Who runs on which pages is schedule.c's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/log.h"
#include "libverl/engine/generate_impl.h"

float vl_inv_temperature(double temperature)
{
    return temperature > 0 ? (float)(1.0 / temperature) : 1.0f;
}

/* Of a page in one layer's cache of keys, or of values. */
static size_t page_bytes(const struct vl_config *c, enum vl_compute ct, const struct vl_backend *be)
{
    struct vl_attn a = vl_layer_attn(c, ct, 0);

    return be->kv_bytes(be->ctx, &a);
}

void vl_gen_kv(const struct vl_config *c, enum vl_compute ct, const struct vl_backend *be,
               const struct vl_gen_prompt *p, int64_t prompts, const struct vl_gen_opts *o,
               size_t *want, size_t *least)
{
    size_t page = 2 * (size_t)c->L * page_bytes(c, ct, be);
    int64_t top = 0, all = 0, widest = 0, longest = 0, groups;

    for (int64_t i = 0; i < prompts; i++) {
        int64_t mine = vl_pages_of(p[i].len), own = vl_own_pages(o, p[i].len);

        top = mine + own > top ? mine + own : top;
        widest = own > widest ? own : widest;
        longest = mine > longest ? mine : longest;
        all += mine + o->n * own;
    }
    groups = o->max_seqs / o->n + 2;
    groups = groups < prompts ? groups : prompts;
    widest = groups * longest + o->max_seqs * widest;
    *least = (size_t)top * page;
    *want = (size_t)(all < widest ? all : widest) * page;
}

void vl_gen_free(struct vl_gen *gen, int64_t n)
{
    for (int64_t i = 0; gen && i < n; i++) {
        free(gen[i].ids);
        free(gen[i].logp);
        free(gen[i].top_id);
        free(gen[i].top_logp);
    }
}

/* ---- memory ---- */

static int dev_alloc(struct run *r, void *p, size_t bytes, struct vl_err *e)
{
    struct vl_backend *be = r->g->be;

    return be->alloc(be->ctx, p, bytes, e);
}

static int open_cache(struct run *r, struct vl_err *e)
{
    const struct vl_config *c = &r->g->cfg;
    enum vl_compute ct = r->g->opt.compute;
    size_t want, least, one = page_bytes(c, ct, r->g->be);

    vl_gen_kv(c, ct, r->g->be, r->p, r->prompts, r->o, &want, &least);
    if (r->o->kv_bytes < least)
        return vl_fail(e, VL_E_OS,
                       "the KV cache of the longest row needs %zu bytes, %zu are allowed: shorten "
                       "the response or free memory",
                       least, r->o->kv_bytes);
    r->kv.pages =
        (int64_t)((want < r->o->kv_bytes ? want : r->o->kv_bytes) / (2 * (size_t)c->L * one));
    r->kv.k = vl_alloc((size_t)c->L * sizeof *r->kv.k);
    r->kv.v = vl_alloc((size_t)c->L * sizeof *r->kv.v);
    for (int64_t l = 0; l < c->L; l++)
        if (dev_alloc(r, &r->kv.k[l], (size_t)r->kv.pages * one, e) ||
            dev_alloc(r, &r->kv.v[l], (size_t)r->kv.pages * one, e))
            return e->code;
    r->free_page = vl_alloc((size_t)r->kv.pages * sizeof *r->free_page);
    r->users = vl_alloc((size_t)r->kv.pages * sizeof *r->users);
    for (int64_t i = r->kv.pages - 1; i >= 0; i--)
        r->free_page[r->nfree++] = (int32_t)i;
    return 0;
}

struct vl_extent vl_gen_extent(const struct vl_gen_prompt *p, int64_t prompts,
                               const struct vl_gen_opts *o)
{
    int64_t total = prompts * o->n;
    struct vl_extent x = { .longest = 1, .paged = 1 };

    x.M = o->max_seqs < total ? o->max_seqs : total;
    x.M = x.M < o->max_tokens ? x.M : o->max_tokens;
    for (int64_t i = 0; i < prompts; i++) {
        x.N += p[i].len;
        x.longest = p[i].len + o->max_new > x.longest ? p[i].len + o->max_new : x.longest;
    }
    x.N = x.N > x.M ? x.N : x.M; /* all prompts at once, or all rows a token each */
    x.N = x.nseq = x.N < o->max_tokens ? x.N : o->max_tokens;
    return x;
}

static int open_run(struct run *r, struct vl_err *e)
{
    const struct vl_config *c = &r->g->cfg;
    struct vl_extent most = vl_gen_extent(r->p, r->prompts, r->o);

    r->seqs = most.M;
    r->cap = most.N;
    r->group = vl_alloc((size_t)(r->seqs + 1) * sizeof *r->group);
    r->slot = vl_alloc((size_t)r->seqs * sizeof *r->slot);
    r->order = vl_alloc((size_t)r->seqs * sizeof(struct slot *));
    r->waiting = vl_alloc((size_t)(r->seqs + 1) * sizeof *r->waiting);
    r->finished = vl_alloc((size_t)r->prompts * sizeof *r->finished);
    for (int64_t i = 0; i < r->seqs; i++)
        r->slot[i].gen = -1;
    r->ids = vl_alloc((size_t)r->cap * sizeof *r->ids);
    r->pos = vl_alloc((size_t)r->cap * sizeof *r->pos);
    r->seq = vl_alloc((size_t)r->cap * sizeof *r->seq);
    r->out = vl_alloc((size_t)r->cap * sizeof *r->out);
    r->decode = vl_alloc((size_t)r->cap * sizeof *r->decode);
    r->prefill = vl_alloc((size_t)r->cap * sizeof *r->prefill);
    r->draw = vl_alloc((size_t)r->seqs * sizeof *r->draw);
    r->from = vl_alloc((size_t)r->seqs * sizeof *r->from);
    r->id = vl_alloc((size_t)r->seqs * sizeof *r->id);
    r->logp = vl_alloc((size_t)r->seqs * sizeof *r->logp);
    r->u = vl_alloc((size_t)r->seqs * sizeof *r->u);
    r->top_id = vl_alloc((size_t)(r->seqs * r->o->topk) * sizeof *r->top_id);
    r->top_logp = vl_alloc((size_t)(r->seqs * r->o->topk) * sizeof *r->top_logp);
    r->steered = vl_rules_any(&r->o->rules);
    r->edits_at = vl_alloc((size_t)(r->seqs + 1) * sizeof *r->edits_at);
    if (open_cache(r, e) ||
        dev_alloc(r, &r->hidden, (size_t)((r->seqs + 1) * c->C) * sizeof(float), e) ||
        dev_alloc(r, &r->xs, (size_t)(r->seqs * c->C) * sizeof(float), e))
        return e->code;
    return 0;
}

static void close_run(struct run *r)
{
    struct vl_backend *be = r->g->be;

    for (int64_t l = 0; r->kv.k && r->kv.v && l < r->g->cfg.L; l++) {
        if (r->kv.k[l])
            be->free(be->ctx, r->kv.k[l]);
        if (r->kv.v[l])
            be->free(be->ctx, r->kv.v[l]);
    }
    if (r->hidden)
        be->free(be->ctx, r->hidden);
    if (r->xs)
        be->free(be->ctx, r->xs);
    for (int64_t i = 0; r->group && i <= r->seqs; i++)
        free(r->group[i].page);
    for (int64_t i = 0; r->slot && i < r->seqs; i++) {
        free(r->slot[i].page);
        vl_seen_free(&r->slot[i].seen);
    }
    void *host[] = { r->kv.k,   r->kv.v,     r->free_page, r->group,   r->slot,     r->ids,
                     r->pos,    r->seq,      r->out,       r->decode,  r->prefill,  r->draw,
                     r->from,   r->id,       r->logp,      r->u,       r->edits.a,  r->edits_at,
                     r->top_id, r->top_logp, r->order,     r->waiting, r->finished, r->users };

    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
}

/* ---- one step ---- */

static void copy_partial_page(struct run *r, struct slot *s)
{
    const struct vl_config *c = &r->g->cfg;
    struct vl_attn a = vl_layer_attn(c, r->g->opt.compute, 0);
    struct vl_backend *be = r->g->be;

    s->copied = 1;
    if (r->p[s->group->prompt].len % VL_PAGE == 0)
        return;
    for (int64_t l = 0; l < c->L; l++) {
        int32_t dst = s->page[s->shared], src = s->group->page[s->shared];

        be->kv_copy(be->ctx, r->kv.k[l], dst, src, &a);
        be->kv_copy(be->ctx, r->kv.v[l], dst, src, &a);
    }
}

/* Samples that were put off go on once their prompt is in the cache again. */
static void take_up(struct run *r)
{
    for (int64_t i = 0; i < r->seqs; i++) {
        struct slot *s = &r->slot[i];

        if (s->gen >= 0 && s->group->ready && !s->copied && r->gen[s->gen].len > 0)
            copy_partial_page(r, s);
    }
}

/* Rows to draw from: this step's outputs, then the first tokens of samples whose prompt is ready. */
static int64_t gather_draws(struct run *r)
{
    struct vl_backend *be = r->g->be;
    int64_t C = r->g->cfg.C, n = 0, m;

    for (int64_t j = 0; j < r->packed.M; j++) {
        struct group *gr = r->prefill[j];

        if (gr) {
            be->gather(be->ctx, r->hidden + (gr - r->group) * C, r->g->work.xn, &j, 1, C);
            gr->ready = 1;
        } else {
            r->draw[n] = r->decode[j];
            r->from[n++] = j;
        }
    }
    if (n)
        be->gather(be->ctx, r->xs, r->g->work.xn, r->from, n, C);
    m = n;
    for (int64_t i = 0; i < r->seqs; i++) {
        struct slot *s = &r->slot[i];

        if (s->gen < 0 || !s->group->ready || r->gen[s->gen].len > 0)
            continue;
        copy_partial_page(r, s);
        r->draw[n] = s;
        r->from[n++] = s->group - r->group;
    }
    if (n > m)
        be->gather(be->ctx, r->xs + m * C, r->hidden, r->from + m, n - m, C);
    return n;
}

static int sample_done(struct run *r, int64_t sample, enum vl_finish why, struct vl_err *e)
{
    int64_t prompt = sample / r->o->n;

    r->gen[sample].finish = why;
    r->rows_done++;
    return ++r->finished[prompt] == r->o->n && r->o->finished ? r->o->finished(r->o->arg, prompt, e)
                                                              : 0;
}

static int finish(struct run *r, struct slot *s, enum vl_finish why, struct vl_err *e)
{
    int64_t sample = s->gen;

    vl_leave(r, s);
    return sample_done(r, sample, why, e);
}

static int is_stop(const struct vl_gen_opts *o, int32_t id)
{
    for (int64_t i = 0; i < o->nstop; i++)
        if (o->stop[i] == id)
            return 1;
    return 0;
}

/* Ends a response where its token `id`, just added, says so. */
static int end_or_go_on(struct run *r, struct slot *s, int32_t id, struct vl_err *e)
{
    const struct vl_gen *gen = &r->gen[s->gen];
    int ends = r->o->stop_text && r->o->stop_text(r->o->arg, s->gen, id) &&
               gen->len >= r->o->rules.min_new;

    if (ends || is_stop(r->o, id))
        return finish(r, s, VL_FINISH_STOP, e);
    if (gen->len == s->limit)
        return finish(r, s, VL_FINISH_LENGTH, e);
    return 0;
}

/* Takes what was drawn as row i of this step. */
static int accept(struct run *r, int64_t i, struct vl_err *e)
{
    struct slot *s = r->draw[i];
    struct vl_gen *gen = &r->gen[s->gen];
    int64_t K = r->o->topk;
    int32_t id = r->id[i];

    if (id < 0)
        return vl_fail(e, VL_E_DATA,
                       "row %" PRId64 ", sample %" PRId64 ": a logit at response position %d is "
                       "not finite: the weights hold NaN or overflow%s",
                       r->p[s->group->prompt].row, s->gen % r->o->n, gen->len,
                       r->steered ? ", or every id is banned" : "");
    if (K) {
        memcpy(gen->top_id + gen->len * K, r->top_id + i * K, (size_t)K * sizeof *gen->top_id);
        memcpy(gen->top_logp + gen->len * K, r->top_logp + i * K,
               (size_t)K * sizeof *gen->top_logp);
    }
    gen->ids[gen->len] = id;
    gen->logp[gen->len++] = r->logp[i];
    r->tokens++;
    if (r->steered)
        vl_seen_add(&s->seen, &r->o->rules, id);
    return end_or_go_on(r, s, id, e);
}

static void steer(struct run *r, int64_t n)
{
    r->edits.n = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct slot *s = r->draw[i];
        const struct vl_gen *gen = &r->gen[s->gen];

        vl_steer(&r->edits, &r->o->rules, &s->seen, gen->ids, gen->len, r->o->stop, r->o->nstop);
        r->edits_at[i + 1] = r->edits.n;
    }
}

static int draw(struct run *r, int64_t n, struct vl_err *e)
{
    struct vl_backend *be = r->g->be;

    for (int64_t i = 0; i < n; i++) {
        const struct slot *s = r->draw[i];

        r->u[i] = vl_uniform(r->p[s->group->prompt].key, (uint32_t)r->gen[s->gen].len,
                             (uint32_t)(s->gen % r->o->n), r->o->step, VL_RNG_SAMPLE);
    }
    if (r->steered)
        steer(r, n);
    be->head_sample(be->ctx, r->id, r->logp, NULL, r->xs, r->g->w_head, r->u, &r->o->sampling,
                    r->steered ? r->edits.a : NULL, r->steered ? r->edits_at : NULL, n);
    if (r->o->topk)
        be->head_topk(be->ctx, r->top_id, r->top_logp, NULL, r->xs, r->g->w_head, NULL,
                      vl_inv_temperature(r->o->sampling.temperature), r->o->topk, n);
    for (int64_t i = 0; i < n; i++)
        if (accept(r, i, e))
            return e->code;
    return 0;
}

static void note_step(struct run *r, double s, int64_t drawn)
{
    struct vl_gen_stats *t = &r->stats;

    if (r->prompt_rows)
        t->prefill_s += s, t->prefill += r->prompt_rows;
    else
        t->decode_s += s, t->decode += drawn;
}

static int step(struct run *r, struct vl_err *e)
{
    double t0 = vl_now();
    int64_t n;

    vl_admit(r);
    take_up(r);
    vl_build_step(r);
    if (r->packed.N) {
        if (vl_work_get(r->g, VL_KEEP_NONE, r->packed.N, r->packed.M, e))
            return e->code;
        vl_body_forward(r->g, &r->packed, &r->kv);
    }
    n = gather_draws(r);
    if (n && draw(r, n, e))
        return e->code;
    if (!n && !r->packed.N)
        return vl_fail(e, VL_E_BUG, "rollout: nothing runs and %" PRId64 " rows wait",
                       r->prompts * r->o->n - r->rows_done);
    note_step(r, vl_now() - t0, n);
    if (r->o->progress)
        r->o->progress(r->o->arg, r->rows_done, r->tokens);
    return 0;
}

/* The deadline has passed: rows keep what they have, those that never ran stay empty. */
static int abort_rows(struct run *r, struct vl_err *e)
{
    for (int64_t i = 0; i < r->seqs && !e->code; i++)
        if (r->slot[i].gen >= 0)
            (void)!finish(r, &r->slot[i], VL_FINISH_ABORT, e);
    for (; r->nwaiting && !e->code; r->nwaiting--)
        (void)!sample_done(r, r->waiting[r->nwaiting - 1], VL_FINISH_ABORT, e);
    for (; r->next < r->prompts * r->o->n && !e->code; r->next++)
        (void)!sample_done(r, r->next, VL_FINISH_ABORT, e);
    return e->code;
}

static int check(const struct run *r, int64_t *positions, struct vl_err *e)
{
    const struct vl_gen_opts *o = r->o;

    if (r->g->cfg.head != VL_HEAD_LM)
        return vl_fail(e, VL_E_DATA, "a model with a value head cannot generate");
    *positions = 1;
    for (int64_t i = 0; i < r->prompts; i++) {
        int64_t limit = vl_response_limit(o, r->p[i].len);

        if (r->p[i].len < 1 || limit < 1)
            return vl_fail(e, VL_E_DATA,
                           "row %" PRId64 ": a prompt of %" PRId64 " tokens leaves no room for a "
                           "response",
                           r->p[i].row, r->p[i].len);
        if (r->p[i].len + limit > *positions)
            *positions = r->p[i].len + limit;
        for (int64_t t = 0; t < r->p[i].len; t++)
            if (r->p[i].ids[t] < 0 || r->p[i].ids[t] >= r->g->cfg.V)
                return vl_fail(e, VL_E_DATA,
                               "row %" PRId64 ": prompt id %d is not in [0, %" PRId64 ")",
                               r->p[i].row, r->p[i].ids[t], r->g->cfg.V);
    }
    return 0;
}

static int generate(struct vl_engine *g, const struct vl_gen_prompt *p, int64_t prompts,
                    const struct vl_gen_opts *o, struct vl_gen *gen, struct vl_err *e)
{
    struct run r = { .g = g, .p = p, .o = o, .gen = gen, .prompts = prompts };
    int64_t positions = 0;

    g->kept = 0;
    if (check(&r, &positions, e) || vl_rope_get(g, positions, e) || open_run(&r, e) ||
        vl_work_get(g, VL_KEEP_NONE, r.cap, r.seqs, e)) {
        close_run(&r);
        return e->code;
    }
    while (!e->code && r.rows_done < prompts * o->n)
        if (o->deadline > 0 && vl_now() > o->deadline ? abort_rows(&r, e) : step(&r, e))
            break;
    if (o->stats)
        *o->stats = r.stats;
    close_run(&r);
    return e->code;
}

/* ---- longest first ---- */

/* Without stops every response is as long as it may be; the longest then begin first, so that no long
 * one runs alone at the end. */
struct sorted {
    const struct vl_gen_opts *o; /* the caller's */
    const struct place {
        int64_t limit, at; /* response tokens; place among the caller's prompts */
    } * place;
    struct vl_gen *sorted, *gen; /* in the order they run in, in the caller's */
};

static int by_limit(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->limit != y->limit)
        return x->limit < y->limit ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

static void hand_over(const struct sorted *s, int64_t i)
{
    size_t each = (size_t)s->o->n * sizeof *s->gen;

    memcpy(s->gen + s->place[i].at * s->o->n, s->sorted + i * s->o->n, each);
    memset(s->sorted + i * s->o->n, 0, each);
}

static int sorted_finished(void *arg, int64_t i, struct vl_err *e)
{
    const struct sorted *s = arg;

    hand_over(s, i);
    return s->o->finished ? s->o->finished(s->o->arg, s->place[i].at, e) : 0;
}

static void sorted_progress(void *arg, int64_t rows, int64_t tokens)
{
    const struct sorted *s = arg;

    if (s->o->progress)
        s->o->progress(s->o->arg, rows, tokens);
}

static int generate_sorted(struct vl_engine *g, const struct vl_gen_prompt *p, int64_t prompts,
                           const struct vl_gen_opts *o, struct place *place, struct vl_gen *gen,
                           struct vl_err *e)
{
    struct vl_gen_prompt *q = vl_alloc((size_t)prompts * sizeof *q);
    struct sorted s = { o, place, vl_alloc((size_t)(prompts * o->n) * sizeof *gen), gen };
    struct vl_gen_opts own = *o;

    own.finished = sorted_finished, own.progress = sorted_progress, own.arg = &s;
    for (int64_t i = 0; i < prompts; i++)
        q[i] = p[place[i].at];
    (void)!generate(g, q, prompts, &own, s.sorted, e);
    for (int64_t i = 0; i < prompts * o->n; i++)
        if (s.sorted[i].ids)
            hand_over(&s, i / o->n); /* after an error: what there is, for the caller to free */
    free(s.sorted);
    free(q);
    return e->code;
}

int vl_generate(struct vl_engine *g, const struct vl_gen_prompt *p, int64_t prompts,
                const struct vl_gen_opts *o, struct vl_gen *gen, struct vl_err *e)
{
    struct place *place;
    int sort = 0;

    if (!prompts)
        return 0;
    if (o->nstop || o->stop_text)
        return generate(g, p, prompts, o, gen, e);
    place = vl_alloc((size_t)prompts * sizeof *place);
    for (int64_t i = 0; i < prompts; i++) {
        place[i] = (struct place){ vl_response_limit(o, p[i].len), i };
        sort |= i && place[i].limit > place[i - 1].limit;
    }
    qsort(place, (size_t)prompts, sizeof *place, by_limit);
    if (sort)
        (void)!generate_sorted(g, p, prompts, o, place, gen, e);
    else
        (void)!generate(g, p, prompts, o, gen, e);
    free(place);
    return e->code;
}
