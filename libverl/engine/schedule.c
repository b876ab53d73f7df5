/* schedule.c - who runs in a rollout, on which pages of the cache.
 *
 *   samples that never ran, in order --> slots --> done
 *                                        |   ^
 *                                        v   |      put off for want of a page: pages given back,
 *                                       waiting     computed again from the ids that are there
 *
 * A sample takes pages as it grows. When none is left the sample latest in order goes, so the first
 * always comes to its end, and a batch needs no more memory than its largest row. Recomputed keys have
 * the bits they had, so none of this shows in a result. Full pages of a prompt are shared by its
 * samples, the partial last one is copied; prompts that begin alike share the full pages of that. */
#include <stdlib.h>
#include <string.h>

#include "libverl/engine/generate_impl.h"

int64_t vl_response_limit(const struct vl_gen_opts *o, int64_t prompt_len)
{
    int64_t room = o->max_len ? o->max_len - prompt_len : o->max_new;

    return room < o->max_new ? room : o->max_new;
}

int64_t vl_own_pages(const struct vl_gen_opts *o, int64_t prompt_len)
{
    return vl_pages_of(prompt_len + vl_response_limit(o, prompt_len) - 1) - prompt_len / VL_PAGE;
}

/* ---- pages ---- */

static void take_pages(struct run *r, int32_t *page, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        page[i] = r->free_page[--r->nfree];
        r->users[page[i]] = 1;
    }
}

static void give_pages(struct run *r, const int32_t *page, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (--r->users[page[i]] == 0)
            r->free_page[r->nfree++] = page[i];
}

/* Groups that counted on its filling their first pages do so themselves. */
static void release_group(struct run *r, struct group *gr)
{
    for (int64_t i = 0; i <= r->seqs; i++)
        if (r->group[i].live && r->group[i].donor == gr) {
            r->group[i].done = gr->done < r->group[i].done ? gr->done : r->group[i].done;
            r->group[i].donor = NULL;
        }
    give_pages(r, gr->page, gr->npage);
    gr->live = 0;
}

/* The sample that is admitted next, or -1. */
static int64_t next_sample(const struct run *r)
{
    if (r->nwaiting)
        return r->waiting[0];
    return r->next < r->prompts * r->o->n ? r->next : -1;
}

/* A group without a running sample stays in the cache while the next sample is of it. */
static void empty_slot(struct run *r, struct slot *s)
{
    struct group *gr = s->group;
    int64_t next = next_sample(r);

    give_pages(r, s->page + s->shared, s->npage - s->shared);
    free(s->page);
    *s = (struct slot){ .gen = -1, .seen = s->seen };
    if (--gr->running == 0 && (next < 0 || next / r->o->n != gr->prompt))
        release_group(r, gr);
}

void vl_leave(struct run *r, struct slot *s)
{
    empty_slot(r, s);
}

static void put_off(struct run *r, struct slot *s)
{
    int64_t i = r->nwaiting++;

    for (; i > 0 && r->waiting[i - 1] > s->gen; i--)
        r->waiting[i] = r->waiting[i - 1];
    r->waiting[i] = s->gen;
    r->stats.put_off++;
    empty_slot(r, s);
}

/* Releases groups without a running sample, but for `keep`. */
static void release_idle(struct run *r, const struct group *keep)
{
    for (int64_t i = 0; i <= r->seqs; i++)
        if (r->group[i].live && !r->group[i].running && &r->group[i] != keep)
            release_group(r, &r->group[i]);
}

/* Makes a page free; returns 0 when s itself had to go for it. */
static int make_room(struct run *r, const struct slot *s)
{
    if (!r->nfree)
        release_idle(r, NULL);
    while (!r->nfree) {
        struct slot *last = NULL;

        for (int64_t i = 0; i < r->seqs; i++)
            if (r->slot[i].gen >= 0 && (!last || r->slot[i].gen > last->gen))
                last = &r->slot[i];
        put_off(r, last);
        if (last == s)
            return 0;
    }
    return 1;
}

/* Pages for `positions` positions; returns 0 when the slot was emptied instead. */
static int grow(struct run *r, struct slot *s, int64_t positions)
{
    while (s->npage < vl_pages_of(positions)) {
        if (!make_room(r, s))
            return 0;
        take_pages(r, s->page + s->npage++, 1);
    }
    return 1;
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
    return idle; /* never NULL: each live group has a sample in a slot or among those that wait */
}

/* The group before `prompt`, or one that is filled, that shares the most full pages with it; *pages of
 * them, but never the prompt's last token, whose output is needed. */
static struct group *find_donor(struct run *r, int64_t prompt, int64_t *pages)
{
    const struct vl_gen_prompt *p = &r->p[prompt];
    struct group *best = NULL;

    *pages = 0;
    for (int64_t i = 0; i <= r->seqs; i++) {
        struct group *gr = &r->group[i];
        const struct vl_gen_prompt *q = &r->p[gr->prompt];
        int64_t n = p->len - 1 < q->len ? p->len - 1 : q->len, same = 0;

        if (!gr->live || (gr->prompt > prompt && !gr->ready))
            continue;
        while (same < n && p->ids[same] == q->ids[same])
            same++;
        if (same / VL_PAGE > *pages)
            best = gr, *pages = same / VL_PAGE;
    }
    return best;
}

static void admit_group(struct run *r, struct group *gr, int64_t prompt)
{
    int64_t shared;
    struct group *donor = find_donor(r, prompt, &shared);

    free(gr->page);
    *gr = (struct group){ .prompt = prompt, .live = 1, .donor = donor, .done = shared * VL_PAGE };
    gr->npage = (int32_t)vl_pages_of(r->p[prompt].len);
    gr->page = vl_alloc((size_t)gr->npage * sizeof *gr->page);
    for (int64_t i = 0; i < shared; i++)
        r->users[gr->page[i] = donor->page[i]]++;
    take_pages(r, gr->page + shared, gr->npage - shared);
}

static void new_result(const struct run *r, struct vl_gen *gen, int64_t limit)
{
    gen->ids = vl_alloc((size_t)limit * sizeof *gen->ids);
    gen->logp = vl_alloc((size_t)limit * sizeof *gen->logp);
    if (r->o->topk) {
        gen->top_id = vl_alloc((size_t)(limit * r->o->topk) * sizeof *gen->top_id);
        gen->top_logp = vl_alloc((size_t)(limit * r->o->topk) * sizeof *gen->top_logp);
    }
}

static void admit_sample(struct run *r, struct slot *s, struct group *gr, int64_t sample,
                         int64_t first)
{
    const struct vl_gen_prompt *p = &r->p[gr->prompt];
    struct vl_gen *gen = &r->gen[sample];

    *s = (struct slot){
        .gen = sample, .group = gr, .limit = vl_response_limit(r->o, p->len), .seen = s->seen
    };
    s->shared = (int32_t)(p->len / VL_PAGE);
    s->page = vl_alloc((size_t)(s->shared + vl_own_pages(r->o, p->len)) * sizeof *s->page);
    memcpy(s->page, gr->page, (size_t)s->shared * sizeof *s->page);
    take_pages(r, s->page + s->shared, first);
    s->npage = s->shared + (int32_t)first;
    gr->running++;
    if (!gen->ids)
        new_result(r, gen, s->limit);
    if (r->steered) {
        vl_seen_start(&s->seen, &r->o->rules, p->ids, p->len);
        for (int32_t t = 0; t < gen->len; t++)
            vl_seen_add(&s->seen, &r->o->rules, gen->ids[t]);
    }
    if (sample == r->next)
        r->next++;
    else
        memmove(r->waiting, r->waiting + 1, (size_t)--r->nwaiting * sizeof *r->waiting);
}

void vl_admit(struct run *r)
{
    int64_t running = 0, sample;

    for (int64_t i = 0; i < r->seqs; i++)
        running += r->slot[i].gen >= 0;
    for (int64_t i = 0; i < r->seqs && (sample = next_sample(r)) >= 0; i++) {
        int64_t prompt = sample / r->o->n, len = r->p[prompt].len;
        int64_t first = vl_own_pages(r->o, len) > 0, need = first;
        struct group *gr;

        if (r->slot[i].gen >= 0)
            continue;
        gr = find_group(r, prompt);
        if (!gr->live)
            need += vl_pages_of(len);
        /* A page for each that runs stays free, or the new one would soon be put off again. */
        if (need + running > r->nfree)
            release_idle(r, gr);
        if (need + running > r->nfree)
            return;
        if (!gr->live)
            admit_group(r, gr, prompt);
        admit_sample(r, &r->slot[i], gr, sample, first);
        running++;
    }
}

/* ---- one step ---- */

/* n tokens from position pos on, whose cache is in page. */
static void add_rows(struct run *r, const int32_t *ids, int64_t pos, int64_t n, const int32_t *page)
{
    struct vl_packed *p = &r->packed;

    for (int64_t i = 0; i < n; i++) {
        r->ids[p->N + i] = ids[i];
        r->pos[p->N + i] = (int32_t)(pos + i);
    }
    r->seq[p->nseq++] =
        (struct vl_seq){ .row = p->N, .n = (int32_t)n, .pos = (int32_t)pos, .page = page };
    p->N += n;
}

/* The last row gives an output: of a sample, or of a group's prompt. */
static void add_output(struct run *r, struct slot *s, struct group *gr)
{
    struct vl_packed *p = &r->packed;

    r->decode[p->M] = s;
    r->prefill[p->M] = gr;
    r->out[p->M++] = p->N - 1;
}

/* Own tokens that the cache lacks, at most `room` of them; the last one there is gives an output. */
static void add_own(struct run *r, struct slot *s, int64_t room)
{
    const struct vl_gen *gen = &r->gen[s->gen];
    int64_t n = gen->len - s->fed < room ? gen->len - s->fed : room;

    add_rows(r, gen->ids + s->fed, r->p[s->group->prompt].len + s->fed, n, s->page);
    s->fed += n;
    if (s->fed == gen->len)
        add_output(r, s, NULL);
}

static void add_prefill(struct run *r, struct group *gr)
{
    const struct vl_gen_prompt *q = &r->p[gr->prompt];
    int64_t n = q->len - gr->done, room = r->cap - r->packed.N;

    n = n < room ? n : room;
    gr->donor = NULL; /* its rows are packed: it is older, or was filled before */
    add_rows(r, q->ids + gr->done, gr->done, n, gr->page);
    gr->done += n;
    r->prompt_rows += n;
    if (gr->done == q->len)
        add_output(r, NULL, gr);
}

static int by_sample(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a, *y = *(struct slot *const *)b;

    return (x->gen > y->gen) - (x->gen < y->gen);
}

/* Every sample that can go on gets a row; those computed again share what rows are left. In order, so
 * that growing never puts off one that is packed already. */
static void add_samples(struct run *r)
{
    int64_t n = 0, spare;

    for (int64_t i = 0; i < r->seqs; i++)
        if (r->slot[i].gen >= 0 && r->slot[i].copied)
            r->order[n++] = &r->slot[i];
    qsort(r->order, (size_t)n, sizeof(struct slot *), by_sample);
    spare = r->cap - n;
    for (int64_t i = 0; i < n; i++) {
        struct slot *s = r->order[i];
        int64_t rows, len;

        if (s->gen < 0) /* put off by one before it */
            continue;
        len = r->p[s->group->prompt].len;
        rows = r->gen[s->gen].len - s->fed;
        rows = rows < 1 + spare ? rows : 1 + spare;
        if (!grow(r, s, len + s->fed + rows))
            continue;
        spare -= rows - 1;
        add_own(r, s, rows);
    }
}

void vl_build_step(struct run *r)
{
    r->packed = (struct vl_packed){ .ids = r->ids, .pos = r->pos, .seq = r->seq, .out = r->out };
    r->prompt_rows = 0;
    add_samples(r);
    /* Oldest first: their samples already hold slots, and younger ones may share their pages. */
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
