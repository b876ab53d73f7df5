/* update_memory.c - whether verl-update fits in memory, asked before anything large is allocated. See
 * update.h.
 *
 * An empty state is filled on the host, in less than training takes: its model is asked first, so that
 * a model too large to train leaves no state behind. */
#include "libverl/run/update.h"

#include <inttypes.h>
#include <string.h>

#include "libverl/base/fs.h"
#include "libverl/base/meminfo.h"

struct vl_engine_opts vl_update_engine_opts(const struct vl_update *u)
{
    return (struct vl_engine_opts){ .compute = u->f.compute,
                                    .train = 1,
                                    .moments = u->optim.moments,
                                    .recompute = u->recompute,
                                    .offload = u->o->offload ? u->x->common->state : NULL };
}

static void how(struct vl_update *u)
{
    const struct vl_update_opts *o = u->o;

    vl_infer_options(u->x, &u->f, &o->cut, &o->micro_batch, &o->compute);
    u->f.mem.recompute = vl_parsed_how(u->x->parsed, &o->recompute);
    u->f.mem.offload = u->optim.moments ? vl_parsed_how(u->x->parsed, &o->offload) : NULL;
}

void vl_update_check_memory(struct vl_update *u, const struct vl_extent *pass, struct vl_err *e)
{
    const struct vl_model *m = u->f.model;
    struct vl_engine_opts eo;
    struct vl_extent least;
    size_t need, have = vl_mem_available(), mine = have / (size_t)u->x->comm.local_size;

    u->recompute = u->o->recompute;
    eo = vl_update_engine_opts(u);
    how(u);
    vl_update_extent(u, 1, &least);
    u->f.mem.least = least.N;
    if (u->o->share_prompts && least.N > least.longest)
        u->f.mem.hint = "with --no-share-prompts the rows of a prompt need not be in one pass";
    need = vl_memory_need(m, u->f.be, &eo, pass, &u->f.mem);
    if (have != SIZE_MAX && need > mine && !vl_parsed_given(u->x->parsed, &u->o->recompute)) {
        u->recompute = eo.recompute = 1;
        need = vl_memory_need(m, u->f.be, &eo, pass, &u->f.mem);
        vl_info(&u->x->log, "activations do not fit: they are computed again in the backward pass");
    }
    vl_info(&u->x->log,
            "%s: %.1f M parameters, %s, %s; %.1f MB needed for %" PRId64 " tokens at once", m->dir,
            (double)m->count * 1e-6, u->f.be->name, vl_compute_name(u->f.compute),
            (double)need * 1e-6, pass->N);
    (void)!vl_memory_check(u->x, m, u->f.be, &eo, pass, &u->f.mem, e);
}

int vl_update_check_empty(struct vl_update *u, const struct vl_batch *b, const char *model,
                          enum vl_head head, struct vl_err *e)
{
    struct vl_ctx *x = u->x;
    struct vl_engine_opts eo;
    int empty = x->comm.rank == 0 && model && !vl_fs_exists(x->common->state, "current");

    if (vl_comm_bcast(&x->comm, &empty, sizeof empty, 0, e) || !empty)
        return e->code;
    if (strcmp(u->o->compute, "auto") != 0)
        b = NULL; /* that it was made with another type is said when the state is opened */
    if (!vl_infer_open(x, &u->f, b, model, "model.path", head, u->o->compute, e)) {
        eo = vl_update_engine_opts(u);
        how(u);
        (void)!vl_memory_check(x, u->f.model, u->f.be, &eo, NULL, &u->f.mem, e);
        (void)!vl_comm_agree(&x->comm, e);
    }
    vl_infer_close(&u->f);
    return e->code;
}
