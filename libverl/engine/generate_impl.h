/* generate_impl.h - what generate.c and schedule.c share: a running rollout. */
#ifndef VL_GENERATE_IMPL_H
#define VL_GENERATE_IMPL_H

#include "libverl/engine/generate.h"
#include "libverl/engine/internal.h"

/* A prompt in the cache, for the samples that run. */
struct group {
    int64_t prompt;
    int32_t *page; /* (npage) */
    int32_t npage;
    int64_t done;        /* prompt tokens in the cache, or that `donor` will put there */
    struct group *donor; /* whose first pages it shares, until they are filled; or NULL */
    int ready;           /* all of them, and the last one's final hidden row is kept */
    int64_t running;     /* samples in slots */
    int live;
};

/* A sample that runs. */
struct slot {
    int64_t gen; /* prompt * n + sample; -1 = free */
    struct group *group;
    int32_t *page;
    int32_t npage, shared; /* pages held; the first `shared` belong to the group */
    int copied;            /* the group's partial page was: own tokens can follow */
    int64_t fed;           /* own tokens in the cache */
    int64_t limit;         /* response tokens at most */
    struct vl_seen seen;   /* for o->rules */
};

struct run {
    struct vl_engine *g;
    const struct vl_gen_prompt *p;
    const struct vl_gen_opts *o;
    struct vl_gen *gen;
    int64_t prompts, next, seqs; /* next: the first sample that never ran */
    int64_t *waiting, nwaiting;  /* samples put off for want of pages, ascending */
    int64_t *finished;           /* (prompts) samples that are done */
    struct vl_kv kv;
    int32_t *free_page, *users; /* (nfree), (kv.pages) groups and samples that hold a page */
    int64_t nfree;
    struct group *group; /* (seqs + 1) */
    struct slot *slot;   /* (seqs) */
    float *hidden;       /* dev (seqs + 1, C) of ready groups */
    float *xs;           /* dev (seqs, C) rows to sample from */
    /* the step being built */
    int64_t cap, prompt_rows; /* rows there can be; of them those of prompts, so far */
    int32_t *ids, *pos;
    struct vl_seq *seq;
    int64_t *out;
    struct vl_packed packed;
    struct slot **order;    /* (seqs) slots by sample */
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
    struct vl_gen_stats stats;
};

static inline int64_t vl_pages_of(int64_t positions)
{
    return (positions + VL_PAGE - 1) / VL_PAGE;
}

int64_t vl_response_limit(const struct vl_gen_opts *o, int64_t prompt_len);
/* Pages one sample can come to need beyond the group's full ones. The last token is never stored. */
int64_t vl_own_pages(const struct vl_gen_opts *o, int64_t prompt_len);

/* Fills free slots in order of samples, as far as pages allow. */
void vl_admit(struct run *r);
/* Packs the rows of the next forward pass into r->packed, r->decode and r->prefill. */
void vl_build_step(struct run *r);
/* Empties the slot of a sample that is done; its pages are free. */
void vl_leave(struct run *r, struct slot *s);

#endif
