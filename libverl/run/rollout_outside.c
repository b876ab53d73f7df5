/* rollout_outside.c - generations made elsewhere: JSON lines to the rollout's form.
 *
 * Text is tokenized without special tokens, and text that ended by itself gets the stop id it cannot
 * spell, since a policy must learn to stop. Log-probs need ids: text could be cut into other tokens
 * than the sampler's. */
#include "libverl/run/rollout_batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/text/tok.h"

#define MAX_BYTES ((size_t)1 << 36)

struct named {
    char *uid;
    size_t len;
    int64_t row;
};

struct item {
    int64_t row, sample, line;
    struct vl_gen gen;
};

struct reader {
    struct vl_rollout_set *set;
    struct vl_outside *o;
    struct vl_tok *tok;
    struct named *name; /* (prompts) sorted */
    int64_t *seen;      /* (prompts) lines read */
    struct item *item;
    int64_t n, cap, line, with_logp;
};

static int by_uid(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int c = memcmp(x->uid, y->uid, x->len < y->len ? x->len : y->len);

    return c ? c : (x->len > y->len) - (x->len < y->len);
}

static int bad(const struct reader *r, struct vl_err *e, const char *what)
{
    return vl_fail(e, VL_E_DATA, "%s:%" PRId64 ": %s", r->o->path, r->line, what);
}

static int index_uids(struct reader *r, const struct vl_batch *in, struct vl_err *e)
{
    int64_t n = r->set->prompts;

    r->name = vl_alloc((size_t)n * sizeof *r->name);
    r->seen = vl_alloc((size_t)n * sizeof *r->seen);
    for (int64_t i = 0; i < n; i++) {
        r->name[i].uid = vl_uid_of(in, i, &r->name[i].len);
        r->name[i].row = i;
    }
    qsort(r->name, (size_t)n, sizeof *r->name, by_uid);
    for (int64_t i = 1; i < n; i++)
        if (by_uid(&r->name[i - 1], &r->name[i]) == 0)
            return vl_fail(e, VL_E_DATA, "uid %s is in rows %" PRId64 " and %" PRId64,
                           r->name[i].uid, r->name[i - 1].row, r->name[i].row);
    return 0;
}

static int read_name(struct reader *r, const struct vl_json *j, struct item *it, struct vl_err *e)
{
    int64_t uid = vl_json_get(j, 0, "uid"), sample = vl_json_get(j, 0, "sample");
    struct vl_buf text = { 0 };
    struct named key, *found;

    if (uid < 0)
        return bad(r, e, "no member uid: expected {\"uid\":...,\"response_ids\":[...]}");
    if (!vl_json_str(j, uid, &text))
        vl_json_raw(j, uid, &text);
    key = (struct named){ .uid = text.s ? text.s : "", .len = text.n };
    found = bsearch(&key, r->name, (size_t)r->set->prompts, sizeof key, by_uid);
    if (!found)
        vl_fail(e, VL_E_DATA, "%s:%" PRId64 ": uid %s is not in the prompt batch", r->o->path,
                r->line, text.s);
    vl_buf_free(&text);
    if (!found)
        return e->code;
    it->row = found->row;
    it->sample = r->seen[it->row]++;
    if (sample >= 0 && (!vl_json_i64(j, sample, &it->sample) || it->sample < 0))
        return bad(r, e, "sample: expected a whole number from 0");
    return 0;
}

static int read_ids(struct reader *r, const struct vl_json *j, int64_t at, struct vl_gen *gen,
                    struct vl_err *e)
{
    uint32_t n = j->node[at].count;
    int64_t k = at + 1, id;

    gen->ids = vl_alloc((size_t)(n + 1) * sizeof *gen->ids);
    for (uint32_t i = 0; i < n; i++, k = j->node[k].next) {
        if (!vl_json_i64(j, k, &id) || id < 0 || id > INT32_MAX || (r->o->V && id >= r->o->V))
            return vl_fail(e, VL_E_DATA,
                           "%s:%" PRId64
                           ": response_ids[%u] is %.*s: expected an id in [0, %" PRId64 ")",
                           r->o->path, r->line, i, (int)(j->node[k].len > 40 ? 40 : j->node[k].len),
                           j->text + j->node[k].at, r->o->V ? r->o->V : (int64_t)INT32_MAX);
        gen->ids[gen->len++] = (int32_t)id;
    }
    return 0;
}

static int read_text(struct reader *r, const struct vl_json *j, int64_t at, struct vl_gen *gen,
                     struct vl_err *e)
{
    struct vl_buf text = { 0 };
    struct vl_ids ids = { 0 };

    if (!r->tok && !r->o->model_dir)
        return bad(r, e, "a response as text needs a tokenizer: give -m DIR, or response_ids");
    if (!r->tok && vl_tok_open(&r->tok, r->o->model_dir, e))
        return e->code;
    vl_json_str(j, at, &text);
    if (!vl_tok_encode(r->tok, text.s ? text.s : "", text.n, 0, &ids, e)) {
        gen->ids = vl_alloc((ids.n + 1) * sizeof *gen->ids);
        if (ids.n)
            memcpy(gen->ids, ids.id, ids.n * sizeof *gen->ids);
        gen->len = (int32_t)ids.n;
    }
    vl_ids_free(&ids);
    vl_buf_free(&text);
    return e->code;
}

/* Closed by a stop id? Text that ended by itself gets one. */
static int read_reason(struct reader *r, const struct vl_json *j, int is_text, struct vl_gen *gen,
                       struct vl_err *e)
{
    int64_t why = vl_json_get(j, 0, "finish_reason");
    int stopped = 0;

    for (int64_t i = 0; gen->len && i < r->o->nstop; i++)
        stopped |= gen->ids[gen->len - 1] == r->o->stop[i];
    if (!r->o->nstop && gen->len < r->set->R) /* no model, so no stop ids to look for */
        stopped = 1;
    gen->finish = stopped || is_text ? VL_FINISH_STOP : VL_FINISH_LENGTH;
    if (why >= 0 && !vl_json_is(j, why, VL_JSON_NULL)) {
        gen->finish = vl_json_streq(j, why, "stop")     ? VL_FINISH_STOP
                      : vl_json_streq(j, why, "length") ? VL_FINISH_LENGTH
                                                        : VL_FINISH_ABORT;
        if (gen->finish == VL_FINISH_ABORT && !vl_json_streq(j, why, "abort"))
            return bad(r, e, "finish_reason: expected \"stop\", \"length\" or \"abort\"");
    }
    if (is_text && !stopped && gen->finish == VL_FINISH_STOP && r->o->nstop)
        gen->ids[gen->len++] = r->o->stop[0];
    return 0;
}

static int read_logp(struct reader *r, const struct vl_json *j, int64_t at, struct vl_gen *gen,
                     struct vl_err *e)
{
    int64_t k = at + 1;
    double x;

    if (!vl_json_is(j, at, VL_JSON_ARRAY) || j->node[at].count != (uint32_t)gen->len)
        return bad(r, e, "log_probs: expected one number for each of response_ids");
    gen->logp = vl_alloc((size_t)(gen->len + 1) * sizeof *gen->logp);
    for (int32_t i = 0; i < gen->len; i++, k = j->node[k].next) {
        if (!vl_json_f64(j, k, &x) || !isfinite(x))
            return bad(r, e, "log_probs: expected finite numbers");
        gen->logp[i] = (float)x;
    }
    r->with_logp++;
    return 0;
}

static int read_item(struct reader *r, const struct vl_json *j, struct item *it, struct vl_err *e)
{
    int64_t ids = vl_json_get(j, 0, "response_ids"), text = vl_json_get(j, 0, "response");
    int64_t logp = vl_json_get(j, 0, "log_probs");
    struct vl_gen *gen = &it->gen;

    it->line = r->line;
    if (!vl_json_is(j, 0, VL_JSON_OBJECT))
        return bad(r, e, "expected an object");
    if (read_name(r, j, it, e))
        return e->code;
    if (vl_json_is(j, ids, VL_JSON_ARRAY)) {
        if (read_ids(r, j, ids, gen, e))
            return e->code;
        if (logp >= 0 && read_logp(r, j, logp, gen, e))
            return e->code;
    } else if (vl_json_is(j, text, VL_JSON_STRING)) {
        if (logp >= 0)
            return bad(r, e, "log_probs with a response as text: give response_ids");
        if (read_text(r, j, text, gen, e))
            return e->code;
    } else {
        return bad(r, e, "expected response_ids (a list of ids) or response (text)");
    }
    if (read_reason(r, j, ids < 0, gen, e))
        return e->code;
    if (gen->len > r->set->R) {
        gen->len = (int32_t)r->set->R;
        gen->finish = VL_FINISH_LENGTH;
        r->o->cut++;
    }
    return 0;
}

static int read_lines(struct reader *r, const struct vl_buf *text, struct vl_err *e)
{
    const char *at = text->s, *end = text->s + text->n;

    while (at && at < end && !e->code) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((nl ? nl : end) - at);
        char where[1100];
        struct vl_json j;

        r->line++;
        if (len) {
            if (r->n == r->cap) {
                r->cap = r->cap ? 2 * r->cap : 64;
                r->item = vl_realloc(r->item, (size_t)r->cap * sizeof *r->item);
            }
            r->item[r->n] = (struct item){ 0 };
            snprintf(where, sizeof where, "%s:%" PRId64, r->o->path, r->line);
            if (!vl_json_parse(&j, at, len, where, e))
                (void)!read_item(r, &j, &r->item[r->n], e);
            vl_json_free(&j);
            r->n++;
        }
        at = nl ? nl + 1 : end;
    }
    return e->code;
}

/* Every prompt has samples 0..n-1, each once. */
static int place(struct reader *r, struct vl_err *e)
{
    struct vl_rollout_set *s = r->set;
    int64_t n = r->o->n;

    for (int64_t i = 0; !r->o->n && i < s->prompts; i++)
        n = r->seen[i] > n ? r->seen[i] : n;
    if (r->with_logp && r->with_logp != r->n)
        return vl_fail(e, VL_E_DATA,
                       "%s: %" PRId64 " of %" PRId64
                       " lines have log_probs: give them in all or none",
                       r->o->path, r->with_logp, r->n);
    s->n = n;
    s->have_logp = r->with_logp > 0;
    s->gen = vl_alloc((size_t)(s->prompts * n) * sizeof *s->gen);
    for (int64_t i = 0; i < r->n; i++) {
        struct item *it = &r->item[i];
        struct vl_gen *dst = &s->gen[it->row * n + it->sample];

        r->line = it->line;
        if (it->sample >= n)
            return vl_fail(e, VL_E_DATA,
                           "%s:%" PRId64 ": sample %" PRId64 ", where each prompt has %" PRId64
                           " (rollout.n)",
                           r->o->path, it->line, it->sample, n);
        if (dst->ids)
            return bad(r, e, "this uid and sample were there before");
        *dst = it->gen;
        it->gen = (struct vl_gen){ 0 };
    }
    for (int64_t i = 0; i < s->prompts; i++) {
        const struct named *name = &r->name[i];

        for (int64_t k = 0; k < n; k++)
            if (!s->gen[name->row * n + k].ids)
                return vl_fail(e, VL_E_DATA,
                               "%s: uid %s has no sample %" PRId64 ": each prompt needs %" PRId64
                               " (rollout.n)",
                               r->o->path, name->uid, k, n);
    }
    return 0;
}

int vl_rollout_outside(struct vl_rollout_set *set, const struct vl_batch *in, struct vl_outside *o,
                       struct vl_err *e)
{
    struct reader r = { .set = set, .o = o };
    struct vl_buf text = { 0 };

    if (!index_uids(&r, in, e) && !vl_fs_read(o->path, MAX_BYTES, &text, e) &&
        !read_lines(&r, &text, e))
        (void)!place(&r, e);
    for (int64_t i = 0; i < r.n; i++)
        vl_gen_free(&r.item[i].gen, 1);
    for (int64_t i = 0; r.name && i < set->prompts; i++)
        free(r.name[i].uid);
    free(r.item);
    free(r.name);
    free(r.seen);
    vl_buf_free(&text);
    if (r.tok)
        vl_tok_free(r.tok);
    return e->code;
}
