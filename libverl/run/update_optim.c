/* update_optim.c - the optimizers of torch.optim that verl names: what they remember, what they do to
 * the weights. See update.h.
 *
 * Weight decay acts on every weight, norms and biases too, as it does in verl, whose sharded
 * parameters are flat; optim.decay=matrices leaves the vectors alone, which is the usual advice. */
#include "libverl/run/update.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = { [VL_ADAMW] = "AdamW", [VL_ADAM] = "Adam", [VL_SGD] = "SGD" };

const char *vl_optim_name(const struct vl_optim *m)
{
    return names[m->name];
}

static int parse_betas(double beta[2], const struct vl_strs *s, enum vl_role role, struct vl_err *e)
{
    beta[0] = 0.9, beta[1] = role == VL_ROLE_SFT ? 0.95 : 0.999;
    if (!s->n)
        return 0;
    for (size_t i = 0; i < 2 && s->n == 2; i++) {
        char *end;

        beta[i] = strtod(s->s[i], &end);
        if (end == s->s[i] || *end || !(beta[i] >= 0) || !(beta[i] < 1))
            return vl_fail(e, VL_E_USAGE, "optim.betas: %s is not a number in [0, 1)", s->s[i]);
    }
    if (s->n != 2)
        return vl_fail(e, VL_E_USAGE,
                       "optim.betas has %zu numbers; expected two, such as [0.9,0.999]", s->n);
    return 0;
}

int vl_optim_parse(struct vl_optim *m, const struct vl_update_opts *o, struct vl_err *e)
{
    size_t k = 0;

    while (k < 3 && strcmp(names[k], o->optimizer) != 0)
        k++;
    if (k == 3 || strcmp(o->impl, "torch.optim"))
        return vl_fail(
            e, VL_E_USAGE,
            "optim.optimizer=%s of %s is not here; known: AdamW, Adam, SGD of torch.optim "
            "(their state is fp32; there are no 8-bit forms)",
            o->optimizer, o->impl);
    m->name = (int)k;
    if (m->name != VL_SGD) {
        m->kind[m->moments++] = VL_EXP_AVG;
        m->kind[m->moments++] = VL_EXP_AVG_SQ;
        if (o->amsgrad)
            m->kind[m->moments++] = VL_MAX_EXP_AVG_SQ;
    } else if (o->momentum != 0) {
        m->kind[m->moments++] = VL_MOMENTUM_BUFFER;
    }
    if (m->name == VL_SGD && o->nesterov && (o->momentum <= 0 || o->dampening != 0))
        return vl_fail(e, VL_E_USAGE,
                       "override_optimizer_config.nesterov needs momentum above 0 and dampening 0, "
                       "as in torch; found momentum %g, dampening %g",
                       o->momentum, o->dampening);
    return parse_betas(m->beta, &o->betas, o->role, e);
}

int vl_optim_fits(const struct vl_optim *m, const struct vl_state *s, struct vl_err *e)
{
    const struct vl_state_record *r = &s->rec;
    const char *made = r->optimizer ? r->optimizer : "AdamW";
    struct vl_buf have = { 0 }, want = { 0 };
    int same = !strcmp(made, vl_optim_name(m)), has[VL_MOMENT_KINDS] = { 0 };

    if (!r->optimizer_steps)
        return 0;
    for (int i = 0; i < m->moments; i++) {
        has[m->kind[i]] = 1;
        vl_buf_printf(&want, " %s", vl_moment_name[m->kind[i]]);
    }
    for (int i = 0; i < VL_MOMENT_KINDS; i++) {
        if (r->moment_hash[i][0])
            vl_buf_printf(&have, " %s", vl_moment_name[i]);
        same &= has[i] == (r->moment_hash[i][0] != 0);
    }
    if (!same)
        vl_fail(e, VL_E_USAGE,
                "%s: %lld steps of %s made this state (it remembers%s), and %s remembers%s: one "
                "cannot go on from the other. Give the optimizer it was made with, or start "
                "another state from it: -s NEW -m %s",
                s->dir, (long long)r->optimizer_steps, made, have.n ? have.s : " nothing",
                vl_optim_name(m), want.n ? want.s : " nothing", s->dir);
    vl_buf_free(&have);
    vl_buf_free(&want);
    return e->code;
}

static int step_run(struct vl_update *u, int64_t at, int64_t n, double decay, double lr,
                    double scale, int64_t *changed, struct vl_err *e)
{
    const struct vl_optim *m = &u->optim;
    struct vl_engine *g = u->f.eng;

    if (m->name == VL_SGD) {
        struct vl_sgd o = { .lr = (float)lr,
                            .momentum = (float)u->o->momentum,
                            .dampening = (float)u->o->dampening,
                            .l2 = (float)decay,
                            .nesterov = u->o->nesterov,
                            .t = u->t,
                            .grad_scale = (float)scale };

        return vl_engine_sgd(g, at, n, &o, changed, e);
    } else {
        struct vl_adamw o = { .lr = (float)lr,
                              .beta1 = (float)m->beta[0],
                              .beta2 = (float)m->beta[1],
                              .eps = (float)u->o->eps,
                              .weight_decay = m->name == VL_ADAMW ? (float)decay : 0,
                              .l2 = m->name == VL_ADAM ? (float)decay : 0,
                              .t = u->t,
                              .grad_scale = (float)scale };

        return vl_engine_adamw(g, at, n, &o, changed, e);
    }
}

int vl_optim_step(struct vl_update *u, double lr, double scale, int64_t *changed, struct vl_err *e)
{
    const struct vl_model *m = u->f.model;
    int all = !strcmp(u->o->decay, "all");

    for (int64_t i = 0, j; i < m->nparam; i = j) { /* runs of parameters with the same decay */
        int64_t at = m->param[i].offset;

        for (j = i + 1; j < m->nparam && (all || m->param[j].decay == m->param[i].decay); j++)
            ;
        if (step_run(u, at, (j < m->nparam ? m->param[j].offset : m->count) - at,
                     all || m->param[i].decay ? u->o->weight_decay : 0, lr, scale, changed, e))
            break;
    }
    return e->code;
}
