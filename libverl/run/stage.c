/* stage.c - input and output of a stage: united inputs, replaced columns, provenance, --delta.
 * See stage.h. */
#include "libverl/run/stage.h"

#include "formats/dp.h"
#include "formats/fields.h"
#include "libverl/base/publish.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/provenance.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Size of a regular file, 0 for pipes and what cannot be looked at. */
static int64_t file_bytes(const char *path, int fd)
{
    struct stat st;
    int rc = strcmp(path, "-") ? stat(path, &st) : fstat(fd, &st);

    return !rc && S_ISREG(st.st_mode) ? (int64_t)st.st_size : 0;
}

static int check_inputs(struct vl_ctx *x, struct vl_err *e)
{
    const struct vl_strs *in = &x->common->input;
    int dashes = 0;

    for (size_t i = 0; i < in->n; i++)
        dashes += !strcmp(in->s[i], "-");
    if (dashes > 1)
        return vl_fail(e, VL_E_USAGE, "-i - is given %d times; standard input can be read once",
                       dashes);
    if (dashes && !x->comm.stdin_ok)
        return vl_fail(e, VL_E_USAGE,
                       "standard input cannot be read under mpiexec, which breaks it off at 64 kB: "
                       "use 'verl-mpi %d %s ...' or name a file with -i",
                       x->comm.size, x->program->name);
    if (dashes && isatty(STDIN_FILENO))
        return vl_fail(e, VL_E_USAGE,
                       "the batch is expected on standard input, which is a terminal: name a file "
                       "with -i FILE");
    return 0;
}

/* An input that a reader of the stage's own takes from its descriptor. */
static int read_by(const char *path, vl_stage_reader *by, void *arg, struct vl_batch *b,
                   struct vl_err *e)
{
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;

    if (fd < 0)
        return vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open", path);
    (void)!by(arg, path, fd, b, e);
    if (fd != STDIN_FILENO)
        close(fd);
    return e->code;
}

static int read_all(struct vl_ctx *x, struct vl_batch *b, vl_stage_reader *by, void *arg,
                    struct vl_err *e)
{
    const struct vl_strs *in = &x->common->input;
    int rc = check_inputs(x, e);

    for (size_t i = 0; i < in->n && !rc; i++) {
        struct vl_batch more = { 0 };

        rc = !i && by ? read_by(in->s[i], by, arg, b, e)
                      : vl_dp_read(i ? &more : b, in->s[i], NULL, e);
        x->log.bytes_in += file_bytes(in->s[i], STDIN_FILENO);
        if (!rc && i && (rc = vl_batch_unite(b, &more, e)))
            vl_err_prefix(e, "uniting %s with %s", in->s[i], in->s[0]);
        vl_batch_free(&more);
    }
    if (!rc && (rc = vl_batch_unique(b, e)))
        vl_err_prefix(e, "%s", strcmp(in->s[0], "-") ? in->s[0] : "standard input");
    return rc;
}

/* What --delta and its checks need of the input. */
static void remember(struct vl_ctx *x, const struct vl_batch *b)
{
    vl_batch_free(&x->before);
    x->before.has_batch = b->has_batch;
    x->before.rows = b->rows;
    for (size_t i = 0; i < b->nmeta; i++)
        vl_meta_set(&x->before, b->meta[i].key, b->meta[i].json);
}

int vl_stage_read(struct vl_ctx *x, struct vl_batch *b, struct vl_err *e)
{
    return vl_stage_read_by(x, b, NULL, NULL, e);
}

int vl_stage_read_by(struct vl_ctx *x, struct vl_batch *b, vl_stage_reader *by, void *arg,
                     struct vl_err *e)
{
    double t0 = vl_now();

    if (x->comm.rank == 0 && !vl_publish_check(x->common->output, e))
        (void)read_all(x, b, by, arg, e);
    if (vl_comm_agree(&x->comm, e) || vl_batch_bcast(&x->comm, b, e))
        return e->code;
    remember(x, b);
    vl_timing_add(&x->timing, VL_PHASE_READ, vl_now() - t0, 0);
    vl_stop_at("stage-read");
    return 0;
}

static int has_name(const char *const *list, const char *name)
{
    for (; list && *list; list++)
        if (!strcmp(*list, name))
            return 1;
    return 0;
}

/* Drops what is computed from `name`, but for the columns the stage makes itself. */
static void drop_dependents(struct vl_batch *b, const char *name, const char *const *adds,
                            struct vl_buf *dropped)
{
    for (size_t i = b->ncol; i-- > 0;) {
        const char *other = b->col[i]->name;

        if (has_name(adds, other) || !vl_field_depends(other, name))
            continue;
        vl_buf_printf(dropped, "%s%s", dropped->n ? ", " : "", other);
        vl_batch_drop(b, other);
    }
}

void vl_stage_replaces(struct vl_ctx *x, struct vl_batch *b, const char *const *adds)
{
    struct vl_buf replaced = { 0 }, dropped = { 0 };

    for (const char *const *a = adds; a && *a; a++) {
        if (!vl_batch_col(b, *a))
            continue;
        vl_buf_printf(&replaced, "%s%s", replaced.n ? ", " : "", *a);
        drop_dependents(b, *a, adds, &dropped);
        vl_batch_drop(b, *a);
    }
    if (replaced.n)
        vl_info(&x->log, "replaces %s%s%s", replaced.s,
                dropped.n ? "; drops what was made from the old: " : "",
                dropped.n ? dropped.s : "");
    vl_buf_free(&replaced);
    vl_buf_free(&dropped);
}

/* -o must not take the full batch's place with a part of it. */
static int output_is_input(const struct vl_common *c)
{
    struct stat out, in;

    if (!strcmp(c->output, "-") || stat(c->output, &out) || !S_ISREG(out.st_mode))
        return 0;
    for (size_t i = 0; i < c->input.n; i++)
        if (strcmp(c->input.s[i], "-") != 0 && !stat(c->input.s[i], &in) &&
            in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return 1;
    return 0;
}

/* The part of b that --delta writes. */
static int make_delta(struct vl_ctx *x, struct vl_batch *d, const struct vl_batch *b,
                      const char *const *adds, struct vl_err *e)
{
    const char **columns = vl_alloc((b->ncol + 1) * sizeof *columns);
    const char **meta = vl_alloc((b->nmeta + 1) * sizeof *meta);
    size_t nc = 0, nm = 0;
    int rc;

    for (size_t i = 0; i < b->ncol; i++) {
        const char *name = b->col[i]->name;
        if (!strcmp(name, "uid") || !strcmp(name, "sample") || has_name(adds, name))
            columns[nc++] = name;
    }
    for (size_t i = 0; i < b->nmeta; i++) {
        const char *old = vl_meta_get(&x->before, b->meta[i].key);
        if (!old || strcmp(old, b->meta[i].json) != 0)
            meta[nm++] = b->meta[i].key;
    }
    rc = vl_batch_select(d, b, columns, meta, e);
    free(columns);
    free(meta);
    return rc;
}

static int check_delta(struct vl_ctx *x, const struct vl_batch *b, struct vl_err *e)
{
    if (b->rows != x->before.rows)
        return vl_fail(e, VL_E_USAGE,
                       "--delta: the stage made %lld rows of %lld, so its columns alone do not fit "
                       "the input: leave --delta out",
                       (long long)b->rows, (long long)x->before.rows);
    if (output_is_input(x->common))
        return vl_fail(e, VL_E_USAGE,
                       "--delta -o %s would replace an input by a part of it: name another file",
                       x->common->output);
    return 0;
}

int vl_stage_sign(struct vl_ctx *x, struct vl_batch *b, const char *weight_version,
                  struct vl_err *e)
{
    char *options = vl_parsed_provenance(x->parsed);
    struct vl_prov prov = {
        .program = x->program->name,
        .version = VL_VERSION,
        .options = options,
        .seed = x->program->omit & VL_NO_SEED ? INT64_MIN : vl_stage_seed(x, b),
        .weight_version = weight_version,
    };
    int rc = vl_prov_add(b, &prov, e);

    free(options);
    return rc;
}

static int write_one(struct vl_ctx *x, struct vl_batch *b, const char *const *adds,
                     const char *weight_version, struct vl_err *e)
{
    const struct vl_common *c = x->common;
    struct vl_dp_write how = { .level = (int)c->level };
    struct vl_batch delta = { 0 };
    int rc = c->delta ? check_delta(x, b, e) : 0;

    if (!rc && c->delta)
        rc = make_delta(x, &delta, b, adds, e);
    if (!rc)
        rc = vl_stage_sign(x, c->delta ? &delta : b, weight_version, e);
    vl_stop_at("stage-write");
    if (!rc)
        rc = vl_dp_write(c->delta ? &delta : b, c->output, &how, e);
    if (!rc)
        x->log.bytes_out += file_bytes(c->output, STDOUT_FILENO);
    vl_batch_free(&delta);
    return rc;
}

int vl_stage_write(struct vl_ctx *x, struct vl_batch *b, const char *const *adds,
                   const char *weight_version, struct vl_err *e)
{
    double t0 = vl_now();

    if (x->comm.rank == 0 && !e->code)
        (void)write_one(x, b, adds, weight_version, e);
    vl_timing_add(&x->timing, VL_PHASE_WRITE, vl_now() - t0, 0);
    return vl_comm_agree(&x->comm, e);
}
