/* rollout_batch.c - generations to columns. See rollout_batch.h. */
#include "libverl/run/rollout_batch.h"

#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/batch/ops.h"

const char *const vl_rollout_columns[] = {
    "prompts",           "responses",        "input_ids",
    "attention_mask",    "position_ids",     "response_mask",
    "rollout_log_probs", "rollout_topk_ids", "rollout_topk_log_probs",
    "finish_reason",     "sample",           NULL,
};

char *vl_uid_of(const struct vl_batch *b, int64_t row, size_t *n)
{
    size_t len;
    const char *text = vl_col_json(vl_batch_col(b, "uid"), row, &len);
    struct vl_buf out = { 0 };
    struct vl_json j;
    struct vl_err e = { 0 };

    if (vl_json_parse(&j, text, len, "uid", &e) || !vl_json_str(&j, 0, &out)) {
        vl_buf_reset(&out);
        vl_buf_add(&out, text, len);
    }
    vl_json_free(&j);
    *n = out.n;
    return vl_buf_detach(&out);
}

struct columns {
    int64_t *prompts, *responses, *ids, *mask, *pos, *rmask, *sample, *top_id;
    float *logp, *top_logp;
};

static int64_t *add(struct vl_batch *b, const char *name, int64_t width, struct vl_err *e)
{
    struct vl_col *c;

    if (e->code || vl_batch_add_tensor(b, name, VL_I64, width ? 1 : 0, &width, &c, e))
        return NULL;
    return c->data;
}

static int add_topk(struct vl_batch *out, struct columns *c, const struct vl_rollout_set *s,
                    struct vl_err *e)
{
    int64_t shape[] = { s->R, s->topk };
    struct vl_col *id, *logp;

    if (vl_batch_add_tensor(out, "rollout_topk_ids", VL_I64, 2, shape, &id, e) ||
        vl_batch_add_tensor(out, "rollout_topk_log_probs", VL_F32, 2, shape, &logp, e))
        return e->code;
    c->top_id = id->data;
    c->top_logp = logp->data;
    return 0;
}

static int add_columns(struct vl_batch *out, struct columns *c, const struct vl_rollout_set *s,
                       struct vl_err *e)
{
    struct vl_col *logp;

    c->prompts = add(out, "prompts", s->P, e);
    c->responses = add(out, "responses", s->R, e);
    c->ids = add(out, "input_ids", s->P + s->R, e);
    c->mask = add(out, "attention_mask", s->P + s->R, e);
    c->pos = add(out, "position_ids", s->P + s->R, e);
    c->rmask = add(out, "response_mask", s->R, e);
    if (!e->code && s->have_logp) {
        if (vl_batch_add_tensor(out, "rollout_log_probs", VL_F32, 1, &s->R, &logp, e))
            return e->code;
        c->logp = logp->data;
    }
    if (!e->code && s->topk && add_topk(out, c, s, e))
        return e->code;
    c->sample = add(out, "sample", 0, e);
    return e->code;
}

static void fill_row(const struct columns *c, const struct vl_rollout_set *s, int64_t row)
{
    const struct vl_gen_prompt *p = &s->p[row / s->n];
    const struct vl_gen *gen = &s->gen[row];
    int64_t P = s->P, R = s->R, S = P + R, pad = P - p->len, valid = 0;
    int64_t *prompt = c->prompts + row * P, *response = c->responses + row * R;

    for (int64_t i = 0; i < P; i++)
        prompt[i] = i < pad ? s->pad : p->ids[i - pad];
    for (int64_t t = 0; t < R; t++) {
        response[t] = t < gen->len ? gen->ids[t] : s->pad;
        c->rmask[row * R + t] = t < gen->len;
        if (s->have_logp && t < gen->len)
            c->logp[row * R + t] = gen->logp[t];
    }
    for (int64_t k = 0; k < gen->len * s->topk; k++) {
        c->top_id[row * R * s->topk + k] = gen->top_id[k];
        c->top_logp[row * R * s->topk + k] = gen->top_logp[k];
    }
    memcpy(c->ids + row * S, prompt, (size_t)P * sizeof *prompt);
    memcpy(c->ids + row * S + P, response, (size_t)R * sizeof *response);
    for (int64_t i = 0; i < S; i++) {
        int64_t one = i >= pad && i < P + gen->len;

        valid += one;
        c->mask[row * S + i] = one;
        c->pos[row * S + i] = valid ? valid - 1 : 0; /* right padding keeps the last index */
    }
    c->sample[row] = row % s->n;
}

static void add_reasons(struct vl_batch *out, const struct vl_rollout_set *s)
{
    static const char *const name[] = { "\"stop\"", "\"length\"", "\"abort\"" };
    int64_t *at = vl_alloc((size_t)(out->rows + 1) * sizeof *at);
    struct vl_buf text = { 0 };

    for (int64_t i = 0; i < out->rows; i++) {
        vl_buf_str(&text, name[s->gen[i].finish]);
        at[i + 1] = (int64_t)text.n;
    }
    vl_batch_add_json(out, "finish_reason", vl_buf_detach(&text), at);
}

int vl_rollout_batch(struct vl_batch *out, const struct vl_batch *in,
                     const struct vl_rollout_set *set, struct vl_err *e)
{
    struct vl_batch rest = { 0 };
    struct columns c = { 0 };

    if (vl_batch_clone(&rest, in, e)) {
        vl_batch_free(&rest);
        return e->code;
    }
    for (size_t i = 0; vl_rollout_columns[i]; i++)
        vl_batch_drop(&rest, vl_rollout_columns[i]);
    if (!vl_batch_repeat(out, &rest, set->n, 1, e) && !add_columns(out, &c, set, e)) {
        for (int64_t i = 0; i < out->rows; i++)
            fill_row(&c, set, i);
        add_reasons(out, set);
    }
    vl_batch_free(&rest);
    return e->code;
}

/* ---- between ranks: (len, finish) of every sample, then its arrays ---- */

void vl_gen_put(struct vl_buf *b, const struct vl_gen *gen, int64_t n, int64_t topk)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t head[2] = { gen[i].len, (int32_t)gen[i].finish };
        size_t len = (size_t)gen[i].len, top = len * (size_t)topk;

        vl_buf_add(b, head, sizeof head);
        vl_buf_add(b, gen[i].ids, len * sizeof *gen->ids);
        vl_buf_add(b, gen[i].logp, len * sizeof *gen->logp);
        vl_buf_add(b, gen[i].top_id, top * sizeof *gen->top_id);
        vl_buf_add(b, gen[i].top_logp, top * sizeof *gen->top_logp);
    }
}

static void *take(const char **b, size_t bytes)
{
    void *p = vl_alloc(bytes);

    memcpy(p, *b, bytes);
    *b += bytes;
    return p;
}

size_t vl_gen_get(struct vl_gen *gen, int64_t n, int64_t topk, const char *b)
{
    const char *from = b;

    for (int64_t i = 0; i < n; i++) {
        int32_t head[2];
        size_t len;

        memcpy(head, b, sizeof head);
        b += sizeof head;
        len = (size_t)head[0];
        gen[i].len = head[0], gen[i].finish = (enum vl_finish)head[1];
        gen[i].ids = take(&b, len * sizeof *gen->ids);
        gen[i].logp = take(&b, len * sizeof *gen->logp);
        gen[i].top_id = take(&b, len * (size_t)topk * sizeof *gen->top_id);
        gen[i].top_logp = take(&b, len * (size_t)topk * sizeof *gen->top_logp);
    }
    return (size_t)(b - from);
}
