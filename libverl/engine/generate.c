/* generate.c - the scheduler of a rollout: who runs, on which pages, and what each draw becomes.
 *
 *   waiting prompts -> group (prompt prefilled once, in pieces) -> samples in slots -> results
 *
 * A sample gets a slot and all pages it could ever need when it is admitted, strictly in order. So
 * nothing is ever preempted or recomputed and no two rows can wait for each other's pages; the price
 * is that rows which end early held pages they did not use. Full pages of a prompt are shared by its
 * samples, the partial last one is copied. */
#include "libverl/engine/generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libverl/base/log.h"
#include "libverl/engine/internal.h"

struct group {
    int64_t prompt;
    int32_t *page; /* of the prompt */
    int32_t npage;
    int64_t done; /* prompt tokens in the cache */
    int ready;    /* its last token's final hidden row is kept */
    int64_t admitted, finished;
    int live;
};

struct slot {
    int64_t gen; /* prompt * n + sample; -1 = free */
    struct group *group;
    int32_t *page;
    int32_t npage, shared; /* pages; the first `shared` belong to the group */
    int64_t limit;         /* response tokens at most */
    struct vl_seen seen;   /* for o->rules */
};

struct run {
    struct vl_engine *g;
    const struct vl_gen_prompt *p;
    const struct vl_gen_opts *o;
    struct vl_gen *gen;
    int64_t prompts, next, seqs; /* next: the first sample not admitted */
    struct vl_kv kv;
    int32_t *free_page;
    int64_t nfree;
    struct group *group; /* (seqs + 1) */
    struct slot *slot;   /* (seqs) */
    float *hidden;       /* dev (seqs + 1, C) of ready groups */
    float *xs;           /* dev (seqs, C) rows to sample from */
    /* the step being built */
    int64_t cap;
    int32_t *ids, *pos;
    struct vl_seq *seq;
    int64_t *out;
    struct vl_packed packed;
    struct slot **decode;   /* (M) whose output it is, or NULL: */
    struct group **prefill; /* (M) the group whose prompt ends there */
    struct slot **draw;     /* (seqs) slots that sample now */
    int64_t *from;          /* (seqs) row of xn or of hidden */
    int32_t *id, *top_id;   /* (seqs), (seqs, topk) */
    float *logp, *top_logp;
    double *u;
    int steered;           /* o->rules say something: */
    struct vl_edits edits; /* of this step's draws */
    int64_t *edits_at;     /* (seqs + 1) where each row's begin */
    int64_t rows_done, tokens;
};

float vl_inv_temperature(double temperature)
{
    return temperature > 0 ? (float)(1.0 / temperature) : 1.0f;
}

static int64_t pages_of(int64_t positions)
{
    return (positions + VL_PAGE - 1) / VL_PAGE;
}

static int64_t response_limit(const struct vl_gen_opts *o, int64_t prompt_len)
{
    int64_t room = o->max_len ? o->max_len - prompt_len : o->max_new;

    return room < o->max_new ? room : o->max_new;
}

/* Pages of one sample beyond the group's full ones. The last token is never stored. */
static int64_t own_pages(const struct vl_gen_opts *o, int64_t len)
{
    return pages_of(len + response_limit(o, len) - 1) - len / VL_PAGE;
}

static size_t page_bytes(const struct vl_config *c)
{
    return (size_t)(2 * c->L * VL_PAGE * c->K * c->D) * sizeof(float);
}

void vl_gen_kv(const struct vl_config *c, const struct vl_gen_prompt *p, int64_t prompts,
               const struct vl_gen_opts *o, size_t *want, size_t *least)
{
    int64_t top = 0, all = 0, widest = 0, longest = 0, groups;

    for (int64_t i = 0; i < prompts; i++) {
        int64_t mine = pages_of(p[i].len), own = own_pages(o, p[i].len);

        top = mine + own > top ? mine + own : top;
        widest = own > widest ? own : widest;
        longest = mine > longest ? mine : longest;
        all += mine + o->n * own;
    }
    groups = o->max_seqs / o->n + 2;
    groups = groups < prompts ? groups : prompts;
    widest = groups * longest + o->max_seqs * widest;
    *least = (size_t)top * page_bytes(c);
    *want = (size_t)(all < widest ? all : widest) * page_bytes(c);
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

static int dev_alloc(struct run *r, float **p, size_t floats, struct vl_err *e)
{
    struct vl_backend *be = r->g->be;

    return be->alloc(be->ctx, (void **)p, floats * sizeof(float), e);
}

static int open_cache(struct run *r, struct vl_err *e)
{
    const struct vl_config *c = &r->g->cfg;
    size_t want, least, one = (size_t)(VL_PAGE * c->K * c->D);

    vl_gen_kv(c, r->p, r->prompts, r->o, &want, &least);
    if (r->o->kv_bytes < least)
        return vl_fail(e, VL_E_OS,
                       "the KV cache of the longest row needs %zu bytes, %zu are allowed: shorten "
                       "the response or free memory",
                       least, r->o->kv_bytes);
    r->kv.pages = (int64_t)((want < r->o->kv_bytes ? want : r->o->kv_bytes) / page_bytes(c));
    r->kv.k = vl_alloc((size_t)c->L * sizeof *r->kv.k);
    r->kv.v = vl_alloc((size_t)c->L * sizeof *r->kv.v);
    for (int64_t l = 0; l < c->L; l++)
        if (dev_alloc(r, &r->kv.k[l], (size_t)r->kv.pages * one, e) ||
            dev_alloc(r, &r->kv.v[l], (size_t)r->kv.pages * one, e))
            return e->code;
    r->free_page = vl_alloc((size_t)r->kv.pages * sizeof *r->free_page);
    for (int64_t i = r->kv.pages - 1; i >= 0; i--)
        r->free_page[r->nfree++] = (int32_t)i;
    return 0;
}

static int open_run(struct run *r, struct vl_err *e)
{
    const struct vl_config *c = &r->g->cfg;
    int64_t total = r->prompts * r->o->n, tokens = 0;

    r->seqs = r->o->max_seqs < total ? r->o->max_seqs : total;
    r->seqs = r->seqs < r->o->max_tokens ? r->seqs : r->o->max_tokens;
    for (int64_t i = 0; i < r->prompts && tokens < r->o->max_tokens; i++)
        tokens += r->p[i].len;
    tokens = tokens > r->seqs ? tokens : r->seqs;
    r->cap = tokens < r->o->max_tokens ? tokens : r->o->max_tokens;
    r->group = vl_alloc((size_t)(r->seqs + 1) * sizeof *r->group);
    r->slot = vl_alloc((size_t)r->seqs * sizeof *r->slot);
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
    if (open_cache(r, e) || dev_alloc(r, &r->hidden, (size_t)((r->seqs + 1) * c->C), e) ||
        dev_alloc(r, &r->xs, (size_t)(r->seqs * c->C), e))
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
    void *host[] = { r->kv.k, r->kv.v, r->free_page, r->group,    r->slot,   r->ids,     r->pos,
                     r->seq,  r->out,  r->decode,    r->prefill,  r->draw,   r->from,    r->id,
                     r->logp, r->u,    r->edits.a,   r->edits_at, r->top_id, r->top_logp };

    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
}

/* ---- admission ---- */

static struct group *find_group(struct run *r, int64_t prompt)
{
    struct group *idle = NULL;

    for (int64_t i = 0; i <= r->seqs; i++) {
        if (r->group[i].live && r->group[i].prompt == prompt)
            return &r->group[i];
        if (!r->group[i].live)
            idle = idle ? idle : &r->group[i];
    }
    return idle; /* never NULL: each live group but the last has a sample in a slot */
}

static void take_pages(struct run *r, int32_t *page, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        page[i] = r->free_page[--r->nfree];
}

static void give_pages(struct run *r, const int32_t *page, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        r->free_page[r->nfree++] = page[i];
}

static void admit_group(struct run *r, struct group *gr, int64_t prompt)
{
    free(gr->page);
    *gr = (struct group){ .prompt = prompt, .live = 1 };
    gr->npage = (int32_t)pages_of(r->p[prompt].len);
    gr->page = vl_alloc((size_t)gr->npage * sizeof *gr->page);
    take_pages(r, gr->page, gr->npage);
}

static void admit_sample(struct run *r, struct slot *s, struct group *gr)
{
    int64_t len = r->p[gr->prompt].len, own = own_pages(r->o, len);
    struct vl_gen *gen = &r->gen[r->next];

    *s = (struct slot){
        .gen = r->next, .group = gr, .limit = response_limit(r->o, len), .seen = s->seen
    };
    if (r->steered)
        vl_seen_start(&s->seen, &r->o->rules, r->p[gr->prompt].ids, len);
    s->shared = (int32_t)(len / VL_PAGE);
    s->npage = s->shared + (int32_t)own;
    s->page = vl_alloc((size_t)s->npage * sizeof *s->page);
    memcpy(s->page, gr->page, (size_t)s->shared * sizeof *s->page);
    take_pages(r, s->page + s->shared, own);
    gen->ids = vl_alloc((size_t)s->limit * sizeof *gen->ids);
    gen->logp = vl_alloc((size_t)s->limit * sizeof *gen->logp);
    if (r->o->topk) {
        gen->top_id = vl_alloc((size_t)(s->limit * r->o->topk) * sizeof *gen->top_id);
        gen->top_logp = vl_alloc((size_t)(s->limit * r->o->topk) * sizeof *gen->top_logp);
    }
    gr->admitted++;
    r->next++;
}

/* Fills free slots in order until pages run out. */
static void admit(struct run *r)
{
    for (int64_t i = 0; i < r->seqs && r->next < r->prompts * r->o->n; i++) {
        int64_t prompt = r->next / r->o->n, len = r->p[prompt].len, need = own_pages(r->o, len);
        struct group *gr;

        if (r->slot[i].gen >= 0)
            continue;
        gr = find_group(r, prompt);
        if (!gr->live)
            need += pages_of(len);
        if (need > r->nfree)
            return;
        if (!gr->live)
            admit_group(r, gr, prompt);
        admit_sample(r, &r->slot[i], gr);
    }
}

/* ---- one step ---- */

static void add_decode(struct run *r, struct slot *s)
{
    struct vl_packed *p = &r->packed;
    const struct vl_gen *gen = &r->gen[s->gen];
    int32_t pos = (int32_t)(r->p[s->group->prompt].len + gen->len - 1);

    r->ids[p->N] = gen->ids[gen->len - 1];
    r->pos[p->N] = pos;
    r->seq[p->nseq++] = (struct vl_seq){ .row = p->N, .n = 1, .pos = pos, .page = s->page };
    r->decode[p->M] = s;
    r->prefill[p->M] = NULL;
    r->out[p->M++] = p->N++;
}

static void add_prefill(struct run *r, struct group *gr)
{
    struct vl_packed *p = &r->packed;
    const struct vl_gen_prompt *q = &r->p[gr->prompt];
    int64_t n = q->len - gr->done;

    n = n < r->cap - p->N ? n : r->cap - p->N;
    if (n <= 0)
        return;
    for (int64_t i = 0; i < n; i++) {
        r->ids[p->N + i] = q->ids[gr->done + i];
        r->pos[p->N + i] = (int32_t)(gr->done + i);
    }
    r->seq[p->nseq++] =
        (struct vl_seq){ .row = p->N, .n = (int32_t)n, .pos = (int32_t)gr->done, .page = gr->page };
    p->N += n;
    gr->done += n;
    if (gr->done == q->len) {
        r->decode[p->M] = NULL;
        r->prefill[p->M] = gr;
        r->out[p->M++] = p->N - 1;
    }
}

static void build_step(struct run *r)
{
    r->packed = (struct vl_packed){ .ids = r->ids, .pos = r->pos, .seq = r->seq, .out = r->out };
    for (int64_t i = 0; i < r->seqs; i++)
        if (r->slot[i].gen >= 0 && r->gen[r->slot[i].gen].len > 0)
            add_decode(r, &r->slot[i]);
    /* Oldest first: their samples already hold slots. */
    for (int64_t k = 0; k < r->prompts; k++) {
        struct group *oldest = NULL;

        for (int64_t i = 0; i <= r->seqs; i++) {
            struct group *gr = &r->group[i];

            if (gr->live && gr->done < r->p[gr->prompt].len &&
                (!oldest || gr->prompt < oldest->prompt))
                oldest = gr;
        }
        if (!oldest || r->packed.N >= r->cap)
            return;
        add_prefill(r, oldest);
    }
}

static void copy_partial_page(struct run *r, const struct slot *s)
{
    const struct vl_config *c = &r->g->cfg;
    struct vl_backend *be = r->g->be;

    if (r->p[s->group->prompt].len % VL_PAGE == 0)
        return;
    for (int64_t l = 0; l < c->L; l++) {
        int32_t dst = s->page[s->shared], src = s->group->page[s->shared];

        be->kv_copy(be->ctx, r->kv.k[l], dst, src, c->K * c->D);
        be->kv_copy(be->ctx, r->kv.v[l], dst, src, c->K * c->D);
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

static int finish(struct run *r, struct slot *s, enum vl_finish why, struct vl_err *e)
{
    struct group *gr = s->group;

    r->gen[s->gen].finish = why;
    give_pages(r, s->page + s->shared, s->npage - s->shared);
    free(s->page);
    *s = (struct slot){ .gen = -1, .seen = s->seen };
    r->rows_done++;
    if (++gr->finished < r->o->n)
        return 0;
    give_pages(r, gr->page, gr->npage);
    gr->live = 0;
    return r->o->finished ? r->o->finished(r->o->arg, gr->prompt, e) : 0;
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
        be->head_topk(be->ctx, r->top_id, r->top_logp, r->xs, r->g->w_head,
                      vl_inv_temperature(r->o->sampling.temperature), r->o->topk, n);
    for (int64_t i = 0; i < n; i++)
        if (accept(r, i, e))
            return e->code;
    return 0;
}

static int step(struct run *r, struct vl_err *e)
{
    int64_t n;

    admit(r);
    build_step(r);
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
    if (r->o->progress)
        r->o->progress(r->o->arg, r->rows_done, r->tokens);
    return 0;
}

/* The deadline has passed: running rows keep what they have, waiting ones stay empty. */
static int abort_rows(struct run *r, struct vl_err *e)
{
    for (int64_t i = 0; i < r->seqs && !e->code; i++)
        if (r->slot[i].gen >= 0)
            (void)!finish(r, &r->slot[i], VL_FINISH_ABORT, e);
    for (; r->next < r->prompts * r->o->n && !e->code; r->next++) {
        r->gen[r->next].finish = VL_FINISH_ABORT;
        r->rows_done++;
        if ((r->next + 1) % r->o->n == 0 && r->o->finished)
            (void)!r->o->finished(r->o->arg, r->next / r->o->n, e);
    }
    return e->code;
}

static int check(const struct run *r, int64_t *positions, struct vl_err *e)
{
    const struct vl_gen_opts *o = r->o;

    if (r->g->cfg.head != VL_HEAD_LM)
        return vl_fail(e, VL_E_DATA, "a model with a value head cannot generate");
    *positions = 1;
    for (int64_t i = 0; i < r->prompts; i++) {
        int64_t limit = response_limit(o, r->p[i].len);

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

int vl_generate(struct vl_engine *g, const struct vl_gen_prompt *p, int64_t prompts,
                const struct vl_gen_opts *o, struct vl_gen *gen, struct vl_err *e)
{
    struct run r = { .g = g, .p = p, .o = o, .gen = gen, .prompts = prompts };
    int64_t positions = 0;

    if (!prompts)
        return 0;
    g->kept = 0;
    if (check(&r, &positions, e) || vl_rope_get(g, positions, e) || open_run(&r, e) ||
        vl_work_get(g, VL_KEEP_NONE, r.cap, r.seqs, e)) {
        close_run(&r);
        return e->code;
    }
    while (!e->code && r.rows_done < prompts * o->n)
        if (o->deadline > 0 && vl_now() > o->deadline ? abort_rows(&r, e) : step(&r, e))
            break;
    close_run(&r);
    return e->code;
}
