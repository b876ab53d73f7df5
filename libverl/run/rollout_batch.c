/* rollout_batch.c - generations to columns. See rollout_batch.h. */
#include "libverl/run/rollout_batch.h"

#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/batch/ops.h"

static const char *const per_token[] = { "prompts",           "responses",    "input_ids",
                                         "attention_mask",    "position_ids", "response_mask",
                                         "rollout_log_probs", "sample",       "finish_reason" };

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
    int64_t *prompts, *responses, *ids, *mask, *pos, *rmask, *sample;
    float *logp;
};

static int64_t *add(struct vl_batch *b, const char *name, int64_t width, struct vl_err *e)
{
    struct vl_col *c;

    if (e->code || vl_batch_add_tensor(b, name, VL_I64, width ? 1 : 0, &width, &c, e))
        return NULL;
    return c->data;
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
    for (size_t i = 0; i < sizeof per_token / sizeof *per_token; i++)
        vl_batch_drop(&rest, per_token[i]);
    if (!vl_batch_repeat(out, &rest, set->n, 1, e) && !add_columns(out, &c, set, e)) {
        for (int64_t i = 0; i < out->rows; i++)
            fill_row(&c, set, i);
        add_reasons(out, set);
    }
    vl_batch_free(&rest);
    return e->code;
}
