/* reward_rows.c - rows as scorers see them. See reward_rows.h.
 *
 * Valid is what attention_mask says after the prompt, as in verl: tokens that a tool wrote are part
 * of the text. Padding is never found by comparing ids. */
#include "libverl/run/reward_rows.h"

#include "formats/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct vl_col *json_col(const struct vl_batch *b, const char *name)
{
    const struct vl_col *c = vl_batch_col(b, name);

    return c && c->kind == VL_COL_JSON ? c : NULL;
}

static int find_mask(struct vl_reward_rows *r, struct vl_err *e)
{
    int64_t wide[1] = { -1 };
    const int64_t *m;

    if (vl_batch_col(r->b, "attention_mask")) {
        if (vl_batch_need_mask(r->b, "attention_mask", wide, &m, e))
            return e->code;
        if (wide[0] < r->R || (r->prompts && wide[0] != r->P + r->R))
            return vl_fail(e, VL_E_DATA,
                           "attention_mask has %" PRId64 " columns, prompts %" PRId64
                           " and responses %" PRId64 ": it must have their sum",
                           wide[0], r->P, r->R);
        r->stride = wide[0];
        r->valid = m + (wide[0] - r->R);
        r->prompt_valid = r->prompts ? m : NULL;
        return 0;
    }
    if (!vl_batch_col(r->b, "response_mask"))
        return vl_fail(e, VL_E_DATA,
                       "the batch has neither attention_mask nor response_mask, so the length of "
                       "its responses is unknown: run verl-rollout or unite it with -i");
    wide[0] = r->R;
    r->stride = r->R;
    return vl_batch_need_mask(r->b, "response_mask", wide, &r->valid, e);
}

/* Valid positions hold token ids: one that is none would silently be missing in the text. */
static int ids_fit(const struct vl_reward_rows *r, const char *name, const int64_t *id,
                   const int64_t *valid, int64_t width, struct vl_err *e)
{
    char who[128];

    for (int64_t i = 0; id && valid && i < r->b->rows; i++)
        for (int64_t t = 0; t < width; t++) {
            int64_t x = id[i * width + t];

            if (valid[i * r->stride + t] && (x < 0 || x > INT32_MAX))
                return vl_fail(e, VL_E_DATA,
                               "%s: %s is %" PRId64 " at position %" PRId64
                               "; a token id is 0 to %d",
                               vl_batch_row_name(r->b, i, who, sizeof who), name, x, t, INT32_MAX);
        }
    return 0;
}

int vl_reward_rows_open(struct vl_reward_rows *r, const struct vl_batch *b, const char *source_key,
                        struct vl_err *e)
{
    int64_t wide[1] = { -1 };

    r->b = b;
    if (b->rows == 0)
        return vl_fail(e, VL_E_DATA, "the batch has no rows: there is nothing to score");
    if (vl_batch_need(b, "responses", VL_I64, 1, wide, &r->responses, e))
        return e->code;
    r->R = wide[0];
    wide[0] = -1;
    if (vl_batch_col(b, "prompts")) {
        if (vl_batch_need(b, "prompts", VL_I64, 1, wide, &r->prompts, e))
            return e->code;
        r->P = wide[0];
    }
    if (vl_batch_col(b, "sample") && vl_batch_need(b, "sample", VL_I64, 0, NULL, &r->sample, e))
        return e->code;
    r->uid = json_col(b, "uid");
    r->source = json_col(b, source_key);
    r->reward_model = json_col(b, "reward_model");
    r->extra_info = json_col(b, "extra_info");
    r->finish = json_col(b, "finish_reason");
    r->raw_prompt = json_col(b, "raw_prompt");
    r->num_turns = json_col(b, "__num_turns__");
    r->reward_scores = json_col(b, "reward_scores");
    if (find_mask(r, e) || ids_fit(r, "responses", r->responses, r->valid, r->R, e))
        return e->code;
    return ids_fit(r, "prompts", r->prompts, r->prompt_valid, r->P, e);
}

int64_t vl_reward_ids(const struct vl_reward_rows *r, int64_t i, int32_t *ids)
{
    const int64_t *id = r->responses + i * r->R, *valid = r->valid + i * r->stride;
    int64_t n = 0;

    for (int64_t t = 0; t < r->R; t++)
        if (valid[t])
            ids[n++] = (int32_t)id[t];
    return n;
}

int64_t vl_reward_length(const struct vl_reward_rows *r, int64_t i, int64_t *last)
{
    const int64_t *valid = r->valid + i * r->stride;
    int64_t n = 0, t = r->R - 1;

    for (int64_t k = 0; k < r->R; k++)
        n += valid[k]; /* 0 or 1 */
    while (t >= 0 && !valid[t])
        t--;
    if (last)
        *last = t;
    return n;
}

int64_t vl_reward_text(const struct vl_reward_rows *r, int64_t i, int32_t *ids, struct vl_buf *out)
{
    int64_t n = vl_reward_ids(r, i, ids);

    vl_tok_decode(r->tok, ids, (size_t)n, !r->keep_special, out);
    return n;
}

/* The prompt's text with its special tokens: they are its structure. */
static void prompt_text(const struct vl_reward_rows *r, int64_t i, struct vl_buf *out)
{
    int32_t *ids = vl_alloc((size_t)r->P * sizeof *ids);
    size_t n = 0;

    for (int64_t t = 0; t < r->P; t++)
        if (r->prompt_valid[i * r->stride + t])
            ids[n++] = (int32_t)r->prompts[i * r->P + t];
    vl_tok_decode(r->tok, ids, n, 0, out);
    free(ids);
}

/* A JSON text may hold line feeds between its parts. */
static void one_line(char *s, size_t n)
{
    for (char *p = s; (p = memchr(p, '\n', n - (size_t)(p - s)));)
        *p = ' ';
    for (char *p = s; (p = memchr(p, '\r', n - (size_t)(p - s)));)
        *p = ' ';
}

static void put_json(struct vl_buf *out, const char *name, const struct vl_col *c, int64_t i)
{
    size_t n = 4;
    const char *s = c ? vl_col_json(c, i, &n) : "null";

    vl_buf_str(out, ",\"");
    vl_buf_str(out, name);
    vl_buf_str(out, "\":");
    vl_buf_add(out, s, n);
    one_line(out->s + out->n - n, n);
}

void vl_reward_line(const struct vl_reward_rows *r, int64_t i, int64_t id, struct vl_buf *out)
{
    int32_t *ids = vl_alloc((size_t)r->R * sizeof *ids);
    struct vl_buf text = { 0 }, truth = { 0 };
    const float *rm = vl_reward_rm_score(r, i);
    int64_t n = vl_reward_ids(r, i, ids);

    vl_buf_str(out, "{\"id\":");
    vl_json_put_i64(out, id);
    put_json(out, "uid", r->uid, i);
    if (r->sample)
        vl_buf_printf(out, ",\"sample\":%" PRId64, r->sample[i]);
    put_json(out, "data_source", r->source, i);
    vl_buf_str(out, ",\"solution_str\":");
    vl_tok_decode(r->tok, ids, (size_t)n, !r->keep_special, &text);
    vl_json_put_str(out, text.s ? text.s : "", text.n);
    vl_buf_str(out, ",\"ground_truth\":");
    if (vl_reward_truth(r, i, &truth, NULL))
        vl_buf_add(out, truth.s, truth.n);
    else
        vl_buf_str(out, "null");
    put_json(out, "extra_info", r->extra_info, i);
    put_json(out, "finish_reason", r->finish, i);
    if (r->num_turns)
        put_json(out, "num_turns", r->num_turns, i);
    if (r->reward_scores)
        put_json(out, "reward_scores", r->reward_scores, i);
    if (r->rm_scores) {
        vl_buf_str(out, ",\"rm_score\":");
        if (rm && isfinite(*rm))
            vl_json_put_f32(out, *rm);
        else
            vl_buf_str(out, "null");
    }
    if (r->brief) {
        vl_buf_str(out, "}\n");
        goto done;
    }
    if (r->prompt_valid) {
        vl_buf_reset(&text);
        prompt_text(r, i, &text);
        vl_buf_str(out, ",\"prompt\":");
        vl_json_put_str(out, text.s ? text.s : "", text.n);
    }
    if (r->raw_prompt)
        put_json(out, "raw_prompt", r->raw_prompt, i);
    vl_buf_str(out, ",\"ids\":[");
    for (int64_t t = 0; t < n; t++) {
        if (t)
            vl_buf_ch(out, ',');
        vl_json_put_i64(out, ids[t]);
    }
    vl_buf_ch(out, ']');
    if (r->args)
        vl_buf_printf(out, ",\"args\":%s", r->args);
    vl_buf_str(out, "}\n");
done:
    vl_buf_free(&text);
    vl_buf_free(&truth);
    free(ids);
}

static int parse_row(const struct vl_col *c, int64_t i, struct vl_json *j)
{
    struct vl_err ignored = { 0 };
    const char *s;
    size_t n;

    *j = (struct vl_json){ 0 };
    if (!c)
        return 0;
    s = vl_col_json(c, i, &n);
    return vl_json_parse(j, s, n, "row", &ignored) == 0;
}

void vl_reward_source(const struct vl_reward_rows *r, int64_t i, struct vl_buf *out)
{
    size_t n = 0;
    const char *s = r->source ? vl_col_json(r->source, i, &n) : NULL;
    struct vl_json j;

    if (n >= 2 && *s == '"' && s[n - 1] == '"' && !memchr(s, '\\', n)) { /* as most are */
        vl_buf_add(out, s + 1, n - 2);
        return;
    }
    if (parse_row(r->source, i, &j))
        vl_json_str(&j, 0, out);
    vl_json_free(&j);
}

int vl_reward_truth(const struct vl_reward_rows *r, int64_t i, struct vl_buf *json,
                    struct vl_buf *text)
{
    struct vl_json j;
    int64_t t = -1;
    size_t from = json->n;

    if (parse_row(r->reward_model, i, &j))
        t = vl_json_get(&j, 0, "ground_truth");
    if (t >= 0 && vl_json_is(&j, t, VL_JSON_NULL))
        t = -1;
    vl_json_raw(&j, t, json);
    if (json->n > from)
        one_line(json->s + from, json->n - from);
    if (text && !vl_json_str(&j, t, text))
        vl_json_raw(&j, t, text);
    vl_json_free(&j);
    return t >= 0;
}

const float *vl_reward_rm_score(const struct vl_reward_rows *r, int64_t i)
{
    int64_t last = -1;

    if (r->rm_scores)
        vl_reward_length(r, i, &last);
    return last >= 0 ? &r->rm_scores[i * r->R + last] : NULL;
}

const char *vl_reward_row_name(const struct vl_reward_rows *r, int64_t i, char *buf, size_t size)
{
    size_t n = 0;
    const char *uid = r->uid ? vl_col_json(r->uid, i, &n) : NULL;

    if (uid && r->sample)
        snprintf(buf, size, "row %" PRId64 " (uid %.*s, sample %" PRId64 ")", r->first + i,
                 (int)(n < 60 ? n : 60), uid, r->sample[i]);
    else
        snprintf(buf, size, "row %" PRId64, r->first + i);
    return buf;
}

int vl_reward_row_failed(const struct vl_reward_rows *r, int64_t i, const char *why,
                         struct vl_err *e)
{
    char name[120];

    return vl_fail(e, VL_E_DATA,
                   "%s: %s (--on-error invalid marks such rows, --on-error value gives them "
                   "--error-value)",
                   vl_reward_row_name(r, i, name, sizeof name), why);
}

int vl_reward_tokenizer(struct vl_ctx *x, const struct vl_batch *b, struct vl_tok **t,
                        struct vl_err *e)
{
    char *path = vl_meta_str(b, "tokenizer_path"), *hash = vl_meta_str(b, "tokenizer_hash");
    const char *from = x->common->model ? x->common->model : path;

    if (!from)
        vl_fail(e, VL_E_DATA,
                "responses are ids and meta_info names no tokenizer: give -m DIR with a "
                "tokenizer.json");
    else if (vl_tok_open(t, from, e) || !hash || !strcmp(hash, vl_tok_hash(*t)))
        ;
    else if (x->common->model)
        vl_warn(&x->log, "%s is not the tokenizer of this batch (hash %s, batch %s)", from,
                vl_tok_hash(*t), hash);
    else
        vl_fail(e, VL_E_DATA,
                "%s is not the tokenizer of this batch any more (hash %s, batch %s): give -m with "
                "the right one",
                from, vl_tok_hash(*t), hash);
    free(path);
    free(hash);
    return e->code;
}

int vl_reward_truncated(const struct vl_reward_rows *r, int64_t i)
{
    size_t n;
    const char *s = r->finish ? vl_col_json(r->finish, i, &n) : NULL;

    return s && n == 8 && !memcmp(s, "\"length\"", 8);
}
