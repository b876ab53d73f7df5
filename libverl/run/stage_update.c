/* stage_update.c - verl-update: a batch and a train state to the state's next version.
 *
 * The state names the batch and options that made it, so the same line run again finds its work done
 * (or, for a long sft or dpo run, half done and goes on). Metrics are kept in the state for that case: the
 * output is then the same file again. */
#include "libverl/run/update.h"

#include "formats/dp.h"
#include "formats/json.h"
#include "libverl/model/version.h"
#include "libverl/run/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    struct vl_update u;
    struct vl_state s;
    struct vl_batch batch;
    struct vl_plan plan;
    struct vl_schedule schedule;
    char *options, hash[33];
    int filled;       /* the state was made here, of the model */
    int64_t made;     /* version that this line made before, or -1 */
    int64_t start;    /* first step (sft that goes on) */
    int64_t position; /* of the schedule at step `start` */
    int64_t global_step;
    int64_t parent; /* version the run started from */
    char parent_hash[33];
    struct vl_update_totals sum;
};

static enum vl_head role_head(enum vl_role r)
{
    return r == VL_ROLE_CRITIC ? VL_HEAD_VALUE : VL_HEAD_LM;
}

/* Rank 0 locks and settles the base version; the others learn it. Collective. */
static int open_state(struct job *j, struct vl_err *e)
{
    struct vl_ctx *x = j->u.x;
    const char *model = x->common->model ? x->common->model : j->u.o->path;
    int64_t at[2] = { -1, -1 };
    double t0;

    j->s.lock = -1;
    if (vl_update_check_empty(&j->u, &j->batch, model, role_head(j->u.o->role), e))
        return e->code;
    t0 = vl_now();
    if (x->comm.rank == 0 && !vl_state_begin(&j->s, x->common->state, model, j->u.from,
                                             role_head(j->u.o->role), &j->filled, e)) {
        at[0] = j->s.base, at[1] = j->s.current;
        j->s.link_stays = j->u.o->keep_current && j->s.current != j->s.base;
        if (j->filled) {
            vl_timing_add(&x->timing, VL_PHASE_FILL, vl_now() - t0, 0);
            vl_info(&x->log, "%s: filled as v000000 from %s", x->common->state, model);
        } else if (x->common->model)
            vl_detail(&x->log, "%s: goes on from its own version; -m is not read",
                      x->common->state);
    }
    if (vl_comm_agree(&x->comm, e) || vl_comm_bcast(&x->comm, at, sizeof at, 0, e))
        return e->code;
    if (x->comm.rank) {
        j->s.dir = vl_strdup(x->common->state);
        j->s.base = at[0], j->s.current = at[1];
        if (vl_state_record_read(&j->s.rec, j->s.dir, j->s.base, e))
            vl_err_prefix(e, "rank %d", x->comm.rank);
    }
    return vl_comm_agree(&x->comm, e);
}

/* The options that can change values, with the seed, as one JSON object. Caller frees. */
static char *effective_options(const struct vl_update *u)
{
    char *text = vl_parsed_provenance(u->x->parsed);
    size_t n = strlen(text);
    char *all = vl_asprintf("%.*s,\"--seed\":%" PRId64 "}", (int)(n - 1), text, u->seed);

    free(text);
    return all;
}

/* Hash of the batch without what differs between runs of the same work. */
static int identify(struct job *j, struct vl_err *e)
{
    struct vl_comm *c = &j->u.x->comm;

    vl_meta_del(&j->batch, "timing");
    j->u.seed = vl_stage_seed(j->u.x, &j->batch);
    j->options = effective_options(&j->u);
    j->made = -1;
    if (c->rank == 0 && !vl_dp_hash(&j->batch, j->hash, e))
        j->made = vl_state_made(&j->s, j->u.from, j->hash, j->options);
    if (vl_comm_agree(c, e))
        return e->code;
    return vl_comm_bcast(c, &j->made, sizeof j->made, 0, e) ||
           vl_comm_bcast(c, j->hash, sizeof j->hash, 0, e);
}

/* The metrics batch: no rows, metrics, and what a driver wants to know of the step. */
static int write_metrics(struct job *j, const char *metrics, const char *version, struct vl_err *e)
{
    static const char *const none[] = { NULL };
    struct vl_batch out = { 0 };
    int rc;

    vl_meta_set_i64(&out, "global_steps", j->global_step);
    if (vl_meta_get(&j->batch, "epoch"))
        vl_meta_set(&out, "epoch", vl_meta_get(&j->batch, "epoch"));
    if (metrics)
        vl_meta_set(&out, "metrics", metrics);
    out.provenance = vl_strdup(j->batch.provenance);
    rc = vl_stage_write(j->u.x, &out, none, version, e);
    vl_batch_free(&out);
    return rc;
}

/* What the batch says where no option does; read once more for an output that records it when there
 * is nothing to do, so that it is the same bytes. */
static int read_settings(struct job *j, double *temperature, int64_t *n, struct vl_err *e)
{
    const struct vl_update_opts *o = j->u.o;

    if ((o->role == VL_ROLE_ACTOR || o->role == VL_ROLE_DPO) &&
        vl_infer_temperature(j->u.x, &j->batch, &o->temperature, temperature, e))
        return e->code;
    return vl_role_is_long(o->role) ? 0 : vl_stage_i64(j->u.x, &j->batch, "n", &o->n, n, e);
}

/* This line already made version j->made. Completes what an interruption left (the link), and either
 * writes the recorded metrics (*done = 1) or sets the job to go on where the version stopped. */
static int take_made(struct job *j, int *done, struct vl_err *e)
{
    struct vl_ctx *x = j->u.x;
    struct vl_state_record r;
    char name[VL_VERSION_NAME];
    int64_t step, n;
    double temperature;

    vl_version_name(name, j->made);
    if (x->comm.rank == 0 && j->made != j->s.current && !j->s.link_stays &&
        !vl_state_point(&j->s, j->made, e))
        vl_info(&x->log, "%s: %s was published by an interrupted run; `current` now points to it",
                j->s.dir, name);
    if (vl_state_record_read(&r, j->s.dir, j->made, e)) {
        vl_state_record_free(&r);
        return vl_comm_agree(&x->comm, e);
    }
    if (vl_comm_agree(&x->comm, e))
        return e->code;
    step = vl_totals_read(&j->sum, &r);
    j->parent = r.parent;
    memcpy(j->parent_hash, r.parent_hash ? r.parent_hash : "", r.parent_hash ? 33 : 1);
    if (step) {
        vl_info(&x->log, "%s: going on with %s, which stopped after step %" PRId64, j->s.dir, name,
                step);
        j->start = step;
        j->position = r.schedule - step;
        vl_state_record_free(&j->s.rec);
        j->s.rec = r;
        j->s.rec.skipped -= j->sum.skipped; /* publish adds them again */
        j->s.base = j->made;
        return 0;
    }
    *done = 1;
    vl_info(&x->log,
            "nothing to do: %s/%s came from this batch and these options (--from v%" PRId64
            " makes it again)",
            j->s.dir, name, j->parent);
    j->global_step = r.global_step;
    vl_version_name(name, vl_state_twin(&j->s, &r));
    if (!read_settings(j, &temperature, &n, e))
        (void)write_metrics(j, r.metrics, name, e);
    vl_state_record_free(&r);
    return e->code;
}

/* Steps, their rows, and the schedule. */
static int make_plan(struct job *j, struct vl_err *e)
{
    const struct vl_update_opts *o = j->u.o;
    int sft = o->role == VL_ROLE_SFT;
    int64_t n = 1, total, per;
    struct vl_ctx *x = j->u.x;

    int64_t units = o->role == VL_ROLE_DPO ? j->u.data.pairs : j->batch.rows;

    if (!vl_role_is_long(o->role) && vl_stage_i64(x, &j->batch, "n", &o->n, &n, e))
        return e->code;
    n = n > 0 ? n : 1;
    per = o->mini_batch > INT64_MAX / n ? INT64_MAX : o->mini_batch * n;
    if (sft && per > j->batch.rows)
        return vl_fail(e, VL_E_DATA,
                       "data.train_batch_size is %" PRId64 " but the batch has %" PRId64
                       " rows; give a smaller one",
                       per, j->batch.rows);
    vl_plan_init(&j->plan, units, per, o->epochs, sft);
    j->plan.pair = j->u.data.pair;
    if (sft && o->sft_steps != VL_NULL_I64 &&
        (o->sft_steps < j->plan.steps || !vl_parsed_given(x->parsed, &o->epochs)))
        j->plan.steps = o->sft_steps;
    j->plan.shuffle = o->shuffle;
    j->plan.seed = (uint64_t)(o->data_seed == VL_NULL_I64 ? j->u.seed : o->data_seed);
    if (!sft)
        j->plan.epoch0 = (uint32_t)(j->global_step * o->epochs);
    total = sft                      ? j->plan.steps
            : o->total_steps > 0     ? o->total_steps
            : o->role == VL_ROLE_DPO ? j->position + j->plan.steps
                                     : j->s.rec.total_steps;
    if (vl_schedule_init(&j->schedule, o->schedule, o->lr, total, o->lr_warmup_steps,
                         o->lr_warmup_ratio, e))
        return e->code;
    j->schedule.min_ratio = isnan(o->min_lr_ratio) ? 0 : o->min_lr_ratio;
    j->schedule.num_cycles = o->num_cycles;
    j->schedule.stable_ratio = o->stable_ratio;
    return 0;
}

/* Engine and moments of the base version on every rank. Collective. */
static int load(struct job *j, struct vl_err *e)
{
    struct vl_update *u = &j->u;
    struct vl_infer *f = &u->f;
    struct vl_engine_opts eo = vl_update_engine_opts(u);
    int threads = u->x->comm.threads;
    double t0 = vl_now();

    if (!vl_state_open(&j->s, role_head(u->o->role), e) &&
        !vl_engine_load(&f->eng, f->model, f->be, &eo, threads, e)) {
        for (int i = 0; i < u->optim.moments && !e->code; i++) {
            struct vl_engine_slab slab = { f->eng, f->model, i };
            struct vl_sink to = { vl_engine_slab_put, &slab, threads };

            (void)!vl_state_moment(&j->s, u->optim.kind[i], &to, e);
        }
        vl_detail(&u->x->log, "%s: state read and packed in %.2f s by %d thread%s", j->s.model->dir,
                  vl_now() - t0, threads, threads == 1 ? "" : "s");
    }
    vl_timing_add(&u->x->timing, VL_PHASE_LOAD, vl_now() - t0, 0);
    vl_timing_model(&u->x->timing, f->be->name, vl_compute_name(f->compute));
    u->t = j->s.rec.optimizer_steps;
    return vl_comm_agree(&u->x->comm, e);
}

/* Configuration, device, columns: all that can be wrong before hours of work. Collective. */
static int prepare(struct job *j, struct vl_err *e)
{
    struct vl_update *u = &j->u;
    struct vl_ctx *x = u->x;
    char name[VL_VERSION_NAME], *path;
    struct vl_extent pass;
    int rc;

    vl_version_name(name, j->s.base);
    path = vl_asprintf("%s/%s", j->s.dir, name);
    if (vl_optim_fits(&u->optim, &j->s, e)) {
        free(path);
        return e->code;
    }
    rc = vl_infer_open(x, &u->f, &j->batch, path, "model.path", role_head(u->o->role),
                       u->o->compute, e);
    free(path);
    if (rc)
        return rc;
    if (!vl_update_columns(u, &j->batch, &j->s.rec, e) && !make_plan(j, e)) {
        vl_infer_check_context(x, &u->f, &u->data.rows);
        vl_update_extent(u, 0, &pass);
        vl_update_check_memory(u, &pass, e);
    }
    if (vl_comm_agree(&x->comm, e))
        return e->code;
    return load(j, e);
}

/* Publishes the weights as they are after `done` steps. Collective; rank 0 works. */
static int publish(struct job *j, int64_t done, const char *metrics, struct vl_err *e)
{
    struct vl_update *u = &j->u;
    struct vl_state_record r = { .parent = j->parent,
                                 .redo = u->from >= 0,
                                 .global_step = j->global_step,
                                 .total_steps = j->schedule.total > 0 ? j->schedule.total : 0,
                                 .optimizer_steps = u->t,
                                 .skipped = j->s.rec.skipped + j->sum.skipped,
                                 .skipped_in_row = j->sum.in_row };
    struct vl_engine_slab slab[1 + VL_MAX_MOMENTS];
    struct vl_origin params = { vl_engine_slab_get, &slab[0] }, moment[VL_MOMENT_KINDS] = { 0 };
    double t0 = vl_now();

    if (u->x->comm.rank == 0) {
        r.schedule = j->position + (vl_role_is_long(u->o->role) ? done : 1);
        r.parent_hash = vl_strdup(j->parent_hash);
        r.role = vl_strdup(vl_role_name(u->o->role));
        r.batch = vl_strdup(j->hash);
        r.options = vl_strdup(j->options);
        r.metrics = vl_strdup(metrics);
        if (done < j->plan.steps)
            r.progress = vl_totals_text(&j->sum, done, j->plan.steps);
        r.optimizer = vl_strdup(vl_optim_name(&u->optim));
        slab[0] = (struct vl_engine_slab){ u->f.eng, u->f.model, VL_WEIGHTS };
        for (int i = 0; i < u->optim.moments; i++) {
            slab[1 + i] = (struct vl_engine_slab){ u->f.eng, u->f.model, i };
            moment[u->optim.kind[i]] = (struct vl_origin){ vl_engine_slab_get, &slab[1 + i] };
        }
        if (!vl_state_publish(&j->s, &r, &params, moment, u->o->keep, e)) {
            vl_info(&u->x->log, "%s/v%06" PRId64 ": published (hash %s)", j->s.dir, r.version,
                    r.hash);
            if (j->s.link_stays)
                vl_info(&u->x->log, "%s/current stays v%06" PRId64 " (--keep-current)%s", j->s.dir,
                        j->s.current,
                        strcmp(j->s.last.hash, r.hash) ? "" : ", which has the same weights");
        }
        j->made = e->code ? -1 : vl_state_twin(&j->s, &r);
        vl_state_record_free(&r);
    }
    vl_timing_add(&u->x->timing, VL_PHASE_WRITE, vl_now() - t0, 0);
    return vl_comm_agree(&u->x->comm, e);
}

/* A step whose gradient was not finite changed nothing; too many in a row end the run. */
static int count_skip(struct job *j, int64_t step, const struct vl_step_result *r, struct vl_err *e)
{
    struct vl_update_totals *t = &j->sum;

    t->skipped++;
    t->in_row++;
    vl_warn(&j->u.x->log, "step %" PRId64 " skipped: the gradient of %s is not finite", step + 1,
            r->where);
    if (t->in_row < j->u.o->max_skips)
        return 0;
    return vl_fail(e, VL_E_DATA,
                   "%" PRId64 " steps in a row had a gradient that is not finite, the last of %s; "
                   "nothing is published (look at the batch, or try a lower optim.lr)",
                   t->in_row, r->where);
}

static double loss_of(const struct vl_step_result *r)
{
    double loss = 0;

    vl_loss_sums_value(&r->sums, VL_M_LOSS, &loss);
    return loss;
}

static int run_steps(struct job *j, struct vl_err *e)
{
    struct vl_update *u = &j->u;
    int lasting = vl_role_is_long(u->o->role);

    j->sum.in_row = j->s.rec.skipped_in_row;
    if (vl_update_log_open(u, j->start, e))
        return e->code;
    for (int64_t s = j->start; s < j->plan.steps; s++) {
        double lr = vl_schedule_lr(&j->schedule, j->position + (lasting ? s : 0));
        struct vl_step_result r;
        int64_t n;
        const int64_t *rows = vl_plan_rows(&j->plan, s, &n);
        char note[80];

        if (vl_update_step(u, rows, n, lr, &r, e)) {
            vl_metrics_free(&r.corr);
            return e->code;
        }
        if (r.empty)
            j->sum.empty++;
        else if (!r.skipped)
            vl_totals_add(&j->sum, &r);
        else
            (void)!count_skip(j, s, &r, e);
        if (!e->code)
            (void)!vl_update_log_step(u, lasting ? s + 1 : j->global_step, s + 1, lr, &r, e);
        vl_metrics_free(&r.corr);
        if (e->code)
            return e->code;
        snprintf(note, sizeof note, "loss %.4f, |g| %.3g, lr %.3g", loss_of(&r), r.grad_norm, lr);
        vl_progress(&u->x->log, "step", s + 1, j->plan.steps, note);
        vl_detail(&u->x->log, "step %" PRId64 "/%" PRId64 ": %s", s + 1, j->plan.steps, note);
        if (lasting && u->o->save_freq > 0 && (s + 1) % u->o->save_freq == 0 &&
            s + 1 < j->plan.steps && publish(j, s + 1, NULL, e))
            return e->code;
    }
    if (j->sum.empty)
        vl_warn(&u->x->log,
                "%" PRId64 " of %" PRId64 " steps had no token to learn from and were left out",
                j->sum.empty, j->plan.steps);
    if (!j->sum.steps && !j->sum.skipped)
        return vl_fail(
            e, VL_E_DATA, "no row has a valid token (%s): there is nothing to learn from",
            u->o->bypass         ? "response_mask is 0, rollout_rs rejects it, or the row has "
                                   "no score, everywhere"
            : j->u.data.unscored ? "response_mask is 0 or the row has no score, everywhere"
                                 : "response_mask is 0 everywhere");
    return 0;
}

static int run(struct job *j, struct vl_err *e)
{
    struct vl_update *u = &j->u;
    struct vl_batch metrics = { 0 };
    char name[VL_VERSION_NAME];
    const struct vl_update_totals *t = &j->sum;

    if (prepare(j, e) || run_steps(j, e))
        return e->code;
    vl_totals_metrics(&j->sum, u, &metrics);
    if (!publish(j, j->plan.steps, vl_meta_get(&metrics, "metrics"), e)) {
        vl_version_name(name, j->made);
        vl_info(&u->x->log,
                "%" PRId64 " optimizer steps on %" PRId64 " rows and %" PRId64
                " tokens in all, lr %.3g, %.1f %% of weights changed a step",
                t->steps, t->rows, t->tokens, t->last.lr,
                100.0 * (double)t->changed / (double)(t->steps ? t->steps : 1) /
                    (double)vl_model_parameters(u->f.model));
        if (!write_metrics(j, vl_meta_get(&metrics, "metrics"), name, e))
            vl_log_done(&u->x->log, t->rows, t->tokens);
    }
    vl_batch_free(&metrics);
    return e->code;
}

/* A state that another kind of run made starts its schedule anew. */
static void settle_position(struct job *j)
{
    const struct vl_state_record *r = &j->s.rec;
    const char *role = vl_role_name(j->u.o->role);

    j->parent = j->s.base;
    memcpy(j->parent_hash, r->hash, sizeof j->parent_hash);
    if (!vl_meta_i64(&j->batch, "global_steps", &j->global_step))
        j->global_step = r->global_step + 1;
    if (j->u.o->role == VL_ROLE_SFT)
        return;
    j->position = r->role && !strcmp(r->role, role) ? r->schedule : 0;
    if (r->schedule && !j->position)
        vl_info(&j->u.x->log, "the state was made by %s: its learning-rate schedule starts anew",
                r->role ? r->role : "another program");
}

int vl_stage_update(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    struct job j = { .u = { .x = x, .o = opts }, .s = { .lock = -1 }, .made = -1 };
    int done = 0;

    if (vl_update_check(&j.u, e))
        goto out;
    vl_update_warn_idle(&j.u);
    if (vl_stage_read(x, &j.batch, e) || open_state(&j, e) || identify(&j, e))
        goto out;
    settle_position(&j);
    if (j.made >= 0 && take_made(&j, &done, e))
        goto out;
    if (!done && run(&j, e))
        goto out;
out:
    if (e->code && j.filled && j.made < 0)
        vl_state_unfill(&j.s);
    vl_update_log_close(&j.u);
    vl_plan_free(&j.plan);
    vl_metrics_free(&j.sum.corr);
    vl_update_data_free(&j.u.data);
    vl_infer_close(&j.u.f);
    vl_state_close(&j.s);
    vl_batch_free(&j.batch);
    free(j.options);
    return e->code;
}
