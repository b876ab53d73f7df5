/* timing.c - how long each phase of a stage took. See timing.h.
 *
 * The clocks always run, at two readings a phase; the option only prints them. */
#include "libverl/run/timing.h"

#include <inttypes.h>
#include <stdio.h>

#include "libverl/base/mem.h"

static const char *const name[VL_PHASES] = {
    [VL_PHASE_READ] = "read",
    [VL_PHASE_FILL] = "fill",
    [VL_PHASE_LOAD] = "load",
    [VL_PHASE_WORK] = "work",
    [VL_PHASE_PREFILL] = "prefill",
    [VL_PHASE_DECODE] = "decode",
    [VL_PHASE_PASSES] = "forward and backward",
    [VL_PHASE_OPTIMIZER] = "optimizer",
    [VL_PHASE_WRITE] = "write",
};

void vl_timing_add(struct vl_timing *t, enum vl_phase p, double s, int64_t tokens)
{
    t->phase[p].seen = 1;
    t->phase[p].s += s;
    t->phase[p].tokens += tokens;
}

void vl_timing_model(struct vl_timing *t, const char *device, const char *compute)
{
    snprintf(t->model, sizeof t->model, "%s, %s", device, compute);
}

static void put_phase(struct vl_buf *b, const char *before, enum vl_phase p,
                      const struct vl_phase_time *x)
{
    vl_buf_printf(b, "%s%s %.2f s", before, name[p], x->s);
    if (x->tokens)
        vl_buf_printf(b, ", %" PRId64 " tokens, %.4g tokens/s", x->tokens,
                      (double)x->tokens / (x->s > 1e-9 ? x->s : 1e-9));
}

/* Work has its parts behind it in brackets. */
void vl_timing_say(const struct vl_timing *t, struct vl_log *l, int ranks, int threads)
{
    struct vl_buf b = { 0 };
    int parts = 0;

    for (int p = 0; p < VL_PHASES; p++) {
        int part = p > VL_PHASE_WORK && p < VL_PHASE_WRITE;

        if (!t->phase[p].seen)
            continue;
        if (!part && parts)
            vl_buf_ch(&b, ')');
        put_phase(&b, part && !parts ? " (" : b.n ? "; " : "", (enum vl_phase)p, &t->phase[p]);
        parts = part;
    }
    vl_buf_printf(&b, "%s%.2f s in all; ", !b.n ? "" : parts ? "); " : "; ", vl_now() - l->t0);
    if (ranks > 1)
        vl_buf_printf(&b, "%d ranks of ", ranks);
    vl_buf_printf(&b, "%d thread%s%s%s", threads, threads == 1 ? "" : "s", t->model[0] ? ", " : "",
                  t->model);
    vl_answer(l, "timing: %s", b.s);
    vl_buf_free(&b);
}
