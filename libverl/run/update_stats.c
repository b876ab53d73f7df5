/* update_stats.c - what depends on all rows of a step at once: the tokens clip_cov and kl_cov treat
 * apart, bypass mode's weights and rejection, its metrics. See update.h.
 *
 * verl takes these over each micro-batch. Here, on request (--statistics mini-batch), one more forward
 * pass comes first; its log-probs are those of the passes with gradients to the bit, so looking ahead
 * changes nothing but which rows the statistics see. */
#include "libverl/run/update.h"

#include <stdlib.h>
#include <string.h>

/* The rows of a step side by side, (n, R) each. */
struct view {
    int64_t n, R, *first, *mask, *keep;
    float *logp, *old_logp, *adv, *w;
    double *draw;
    uint8_t *pick;
};

static void view_free(struct view *v)
{
    void *p[] = {
        v->first, v->mask, v->keep, v->logp, v->old_logp, v->adv, v->w, v->draw, v->pick
    };

    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        free(p[i]);
}

/* Rows of src (B, R), elements of `size` bytes, one after the other; NULL for NULL. */
static void *take(const void *src, size_t size, const int64_t *rows, const struct view *v)
{
    size_t width = (size_t)v->R * size;
    char *dst = src ? vl_alloc((size_t)v->n * width + 1) : NULL;

    for (int64_t i = 0; dst && i < v->n; i++)
        memcpy(dst + (size_t)i * width, (const char *)src + (size_t)rows[i] * width, width);
    return dst;
}

static void put_back(void *dst, const void *src, size_t size, const int64_t *rows,
                     const struct view *v)
{
    size_t width = (size_t)v->R * size;

    for (int64_t i = 0; i < v->n; i++)
        memcpy((char *)dst + (size_t)rows[i] * width, (const char *)src + (size_t)i * width, width);
}

/* Every rank gets the log-probs of all rows: each adds its own to zeros. */
static int share_logp(struct vl_update *u, const int64_t *rows, struct view *v, struct vl_err *e)
{
    size_t width = (size_t)v->R;
    int64_t count, *mine;

    if (u->x->comm.size == 1) {
        v->logp = take(u->data.new_logp, sizeof(float), rows, v);
        return 0;
    }
    v->logp = vl_alloc((size_t)v->n * width * sizeof(float) + 1);
    mine = vl_update_my_rows(u, rows, v->n, &count);
    for (int64_t i = 0, k = 0; i < v->n && k < count; i++)
        if (rows[i] == mine[k]) {
            memcpy(v->logp + (size_t)i * width, u->data.new_logp + (size_t)rows[i] * width,
                   width * sizeof(float));
            k++;
        }
    free(mine);
    return vl_comm_sum_f32(&u->x->comm, v->logp, (size_t)v->n * width, e);
}

static int make_view(struct view *v, struct vl_update *u, const int64_t *rows, int64_t n,
                     struct vl_err *e)
{
    const struct vl_update_data *d = &u->data;
    size_t total = (size_t)(n * d->rows.R) + 1;

    *v = (struct view){ .n = n, .R = d->rows.R };
    v->first = vl_alloc(sizeof *v->first * (size_t)(n + 1));
    for (int64_t i = 0; i <= n; i++)
        v->first[i] = i * v->R;
    v->mask = take(d->mask, sizeof *v->mask, rows, v);
    v->keep = vl_alloc(sizeof *v->keep * total);
    v->old_logp = take(d->old_logp, sizeof(float), rows, v);
    v->adv = take(d->adv, sizeof(float), rows, v);
    v->draw = take(d->draw, sizeof *v->draw, rows, v);
    v->pick = vl_alloc(total);
    v->w = u->corr.is ? vl_alloc(sizeof *v->w * total) : NULL;
    return share_logp(u, rows, v, e);
}

static int forward_rows(struct vl_update *u, const int64_t *rows, int64_t n, struct vl_err *e)
{
    int64_t count, *list = vl_update_my_rows(u, rows, n, &count);
    int64_t *first = vl_alloc(sizeof *first * (size_t)(count + 1));
    int64_t micros = vl_update_cut(u, list, count, first);

    for (int64_t k = 0; k < micros && !e->code; k++) {
        struct vl_pack pack;
        float *logp;

        vl_pack_rows(&pack, &u->data.rows, list + first[k], 0, first[k + 1] - first[k],
                     u->o->share_prompts);
        logp = vl_alloc(sizeof *logp * (size_t)(pack.p.M + 1));
        if (!vl_engine_forward(u->f.eng, &pack.p, u->data.inv_temp, 0, logp, NULL, NULL, NULL, e))
            vl_pack_scatter(u->data.new_logp, &pack, logp);
        free(logp);
        vl_pack_free(&pack);
    }
    free(first);
    free(list);
    return e->code;
}

/* Weights, mask and metrics over the view; the denominators of the tokens that stay. */
static int correct(struct vl_update *u, struct view *v, struct vl_step_result *r, struct vl_err *e)
{
    struct vl_loss_rows all = { v->n, v->first, v->mask }, kept = { v->n, v->first, v->keep };

    if (vl_corr_apply(&u->corr, &all, v->logp, v->old_logp, v->w, v->keep, &r->corr, e))
        return e->code;
    u->ahead_norm = (struct vl_loss_norm){ .dp = 1, .width = (double)v->R };
    if (u->o->loss_scale_factor > 0)
        u->ahead_norm.factor = u->o->loss_scale_factor;
    vl_loss_norm_count(&u->ahead_norm, &kept);
    r->empty = u->ahead_norm.tokens == 0;
    return 0;
}

int vl_update_look_ahead(struct vl_update *u, const int64_t *rows, int64_t n,
                         struct vl_step_result *r, struct vl_err *e)
{
    struct vl_update_data *d = &u->data;
    struct view v = { 0 };
    int rc = forward_rows(u, rows, n, e);

    if (vl_comm_agree(&u->x->comm, e) || rc || make_view(&v, u, rows, n, e))
        goto done;
    if (u->o->bypass) {
        if (correct(u, &v, r, e))
            goto done;
        put_back(d->keep, v.keep, sizeof *v.keep, rows, &v);
        if (d->bypass_w)
            put_back(d->bypass_w, v.w, sizeof *v.w, rows, &v);
    } else {
        struct vl_pg_in in = { .rows = { n, v.first, v.mask },
                               .logp = v.logp,
                               .old_logp = v.old_logp,
                               .adv = v.adv,
                               .draw = v.draw };

        if (vl_pg_pick(u->actor.loss, &in, &u->actor.pg, v.pick, e))
            goto done;
        put_back(d->pick, v.pick, 1, rows, &v);
    }
done:
    view_free(&v);
    return e->code;
}

int vl_update_look_back(struct vl_update *u, const int64_t *rows, int64_t n,
                        struct vl_step_result *r, struct vl_err *e)
{
    struct view v = { 0 };

    if (!make_view(&v, u, rows, n, e))
        (void)!correct(u, &v, r, e);
    view_free(&v);
    return e->code;
}
