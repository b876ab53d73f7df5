/* update_log.c - verl-update --log: one JSON line for each optimizer step, as the run goes on.
 *
 * A line holds what the metrics of the whole run hold, of this step alone, and nothing of clock or
 * machine: a run that was interrupted and goes on leaves the same file as one that was not. */
#include "libverl/run/update.h"

#include "libverl/base/fs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The bytes of the first `lines` lines of a file; fewer where it has fewer. */
static int head_bytes(const char *path, int64_t lines, off_t *bytes, struct vl_err *e)
{
    struct vl_buf text = { 0 };
    size_t at = 0;

    *bytes = 0;
    if (!lines || !vl_fs_exists(path, NULL))
        return 0;
    if (vl_fs_read(path, (size_t)1 << 34, &text, e) == 0) {
        for (; lines && at < text.n; at++)
            if (text.s[at] == '\n' && --lines >= 0)
                *bytes = (off_t)at + 1;
    }
    vl_buf_free(&text);
    return e->code;
}

int vl_update_log_open(struct vl_update *u, int64_t start, struct vl_err *e)
{
    const char *path = u->o->log;
    struct stat st;
    off_t bytes;

    if (!path || u->x->comm.rank)
        return 0;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
        (head_bytes(path, start, &bytes, e) || truncate(path, bytes)))
        return e->code ? e->code : vl_fail_errno(e, VL_E_IO, "--log %s: cannot cut it", path);
    u->log = fopen(path, "ae");
    return u->log ? 0 : vl_fail_errno(e, VL_E_CREATE, "--log %s: cannot write there", path);
}

int vl_update_log_step(struct vl_update *u, int64_t global_step, int64_t step, double lr,
                       const struct vl_step_result *r, struct vl_err *e)
{
    struct vl_update_totals t = { 0 };
    struct vl_batch b = { 0 };

    if (!u->log)
        return 0;
    if (r->empty)
        t.empty = 1;
    else if (r->skipped)
        t.skipped = 1;
    else
        vl_totals_add(&t, r);
    t.last.lr = lr;
    vl_meta_metric(&b, "training/global_step", (double)global_step);
    vl_meta_metric(&b, "training/optimizer_step", (double)step);
    vl_totals_metrics(&t, u, &b);
    if (fprintf(u->log, "%s\n", vl_meta_get(&b, "metrics")) < 0 || fflush(u->log))
        vl_fail_errno(e, VL_E_IO, "--log %s", u->o->log);
    vl_metrics_free(&t.corr);
    vl_batch_free(&b);
    return e->code;
}

void vl_update_log_close(struct vl_update *u)
{
    if (u->log)
        fclose(u->log); /* each line was flushed and checked */
    u->log = NULL;
}
