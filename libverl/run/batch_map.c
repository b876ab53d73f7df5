/* batch_map.c - verl-batch: map, from-json, to-safetensors. See stage_batch.h.
 *
 * map --command is verl's user-registered dispatch: each rank's rows are given to a program of the
 * user's as a batch on its standard input, and what it writes is joined in row order. */
#include "libverl/run/stage_batch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/dp.h"
#include "libverl/base/fs.h"
#include "libverl/base/jq.h"
#include "libverl/batch/fromjson.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/view.h"

/* ---- from-json, to-safetensors ---- */

static int read_text(const char *path, struct vl_buf *t, struct vl_err *e)
{
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;

    if (fd < 0)
        return vl_fail_errno(e, VL_E_NOINPUT, "%s: cannot open", path);
    for (;;) {
        ssize_t n;

        vl_buf_reserve(t, (size_t)1 << 18);
        n = read(fd, t->s + t->n, t->cap - t->n - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            vl_fail_errno(e, VL_E_IO, "%s: read failed", path);
        if (n <= 0)
            break;
        t->n += (size_t)n;
    }
    if (fd != STDIN_FILENO)
        close(fd);
    return e->code;
}

int vl_job_from_json(struct vl_job *j, struct vl_err *e)
{
    const char *path = j->narg ? j->arg[0] : j->x->common->input.s[0];
    struct vl_fromjson opt = { .dtype = j->o->dtype.s, .ndtype = j->o->dtype.n };
    struct vl_buf text = { 0 };
    int64_t views = 0;
    int rc = read_text(path, &text, e);

    if (!rc && j->o->like) {
        rc = vl_dp_read(&j->in, j->o->like, NULL, e);
        opt.like = &j->in;
    }
    if (!rc)
        rc = vl_batch_from_json(&j->out, text.s ? text.s : "", text.n,
                                strcmp(path, "-") ? path : "standard input", &opt, &views, e);
    if (!rc && j->out.rows == 0 && !j->o->allow_empty)
        rc = vl_fail(e, VL_E_DATA,
                     "%s: no rows; a pipe's first program may have failed unseen (--allow-empty "
                     "makes a batch without rows)",
                     strcmp(path, "-") ? path : "standard input");
    if (!rc && views)
        vl_info(&j->x->log, "from-json: %" PRId64 " text views left out: token ids are the truth",
                views);
    vl_buf_free(&text);
    return rc;
}

int vl_job_to_safetensors(struct vl_job *j, struct vl_err *e)
{
    j->written = 1;
    return vl_dp_write_plain(&j->in, j->x->common->output, e);
}

/* ---- map by jq ---- */

static int map_filter(struct vl_job *j, struct vl_err *e)
{
    struct vl_fromjson opt = { .like = &j->in, .dtype = j->o->dtype.s, .ndtype = j->o->dtype.n };
    struct vl_buf row = { 0 }, text = { 0 };
    struct vl_jq *q = NULL;
    int64_t n;
    int rc = vl_jq_open(&q, j->o->filter, NULL, e);

    if (!rc)
        vl_jq_most(q, 2);
    for (int64_t i = 0; i < j->in.rows && !rc; i++) {
        vl_buf_reset(&row);
        rc = vl_view_row(&row, &j->in, i, NULL, NULL, e);
        if (!rc && vl_jq_run(q, row.s, row.n, 0, &text, &n, e))
            rc = vl_err_prefix(e, "row %" PRId64, i);
        else if (!rc && n != 1)
            rc = vl_fail(e, VL_E_DATA,
                         "row %" PRId64 ": the filter gave %s, map wants one object a row (filter "
                         "drops rows)",
                         i, n ? "several results" : "no result");
    }
    if (!rc)
        rc = vl_batch_from_json(&j->out, text.s ? text.s : "", text.n, "the filter's results", &opt,
                                NULL, e);
    vl_jq_free(q);
    vl_buf_free(&row);
    vl_buf_free(&text);
    return rc;
}

/* ---- map by a program ---- */

/* Runs the shell command on files `in` and `out`; its failure is ours. */
static int run_command(const char *cmd, const char *in, const char *out, struct vl_err *e)
{
    char **env = vl_comm_clean_env();
    int status, fd0 = open(in, O_RDONLY | O_CLOEXEC),
                fd1 = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pid_t pid = fd0 < 0 || fd1 < 0 ? -1 : fork();

    if (pid == 0) {
        char *argv[] = { "sh", "-c", (char *)cmd, NULL };

        signal(SIGPIPE, SIG_DFL);
        signal(SIGXFSZ, SIG_DFL);
        if (dup2(fd0, 0) >= 0 && dup2(fd1, 1) >= 0)
            execve("/bin/sh", argv, env);
        _exit(127);
    }
    if (pid < 0)
        vl_fail_errno(e, VL_E_OS, "map: cannot start '%s'", cmd);
    if (fd0 >= 0)
        close(fd0);
    if (fd1 >= 0)
        close(fd1);
    free(env);
    if (e->code)
        return e->code;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return vl_fail_errno(e, VL_E_OS, "map: cannot wait for '%s'", cmd);
    if (WIFSIGNALED(status))
        return vl_fail(e, VL_E_DATA, "map: '%s' was killed by signal %d", cmd, WTERMSIG(status));
    if (WEXITSTATUS(status))
        return vl_fail(e, VL_E_DATA, "map: '%s' ended with status %d", cmd, WEXITSTATUS(status));
    return 0;
}

/* Rows first..last through the command, as files in dir; *out gets the file it wrote. */
static int map_range(struct vl_job *j, const char *dir, int64_t first, int64_t last,
                     struct vl_buf *bytes, struct vl_err *e)
{
    char *in = vl_asprintf("%s/in.dp", dir), *out = vl_asprintf("%s/out.dp", dir);
    struct vl_batch b = { 0 }, back = { 0 };
    int rc = vl_batch_rows(&b, &j->in, first, last - first, e) || vl_dp_write(&b, in, NULL, e) ||
             run_command(j->o->command, in, out, e) || vl_dp_read(&back, out, NULL, e);

    if (!rc && back.rows != last - first)
        rc = vl_fail(e, VL_E_DATA,
                     "map: '%s' made %" PRId64 " rows of %" PRId64 "; each row must stay one",
                     j->o->command, back.rows, last - first);
    if (!rc)
        rc = vl_fs_read(out, SIZE_MAX, bytes, e);
    vl_batch_free(&b);
    vl_batch_free(&back);
    free(in);
    free(out);
    return rc ? e->code : 0;
}

/* Rank 0: the files of all ranks, joined. */
static int join(struct vl_job *j, const char *all, const size_t *sizes, struct vl_err *e)
{
    int size = j->x->comm.size;
    struct vl_batch *b = vl_alloc((size_t)size * sizeof *b);
    const struct vl_batch **part = vl_alloc((size_t)size * sizeof *part);
    size_t n = 0, at = 0;
    int rc = 0;

    for (int r = 0; r < size && !rc; at += sizes[r++]) {
        if (!sizes[r])
            continue; /* a rank without rows */
        rc = vl_dp_read_bytes(&b[n], "a rank's part", all + at, sizes[r], NULL, e);
        part[n] = &b[n];
        n += !rc;
    }
    if (!rc && n == 1)
        rc = vl_batch_clone(&j->out, part[0], e);
    else if (!rc)
        rc = vl_batch_concat(&j->out, part, n, e);
    for (size_t k = 0; k < n; k++)
        vl_batch_free(&b[k]);
    free(b);
    free(part);
    return rc;
}

static int map_command(struct vl_job *j, struct vl_err *e)
{
    struct vl_comm *c = &j->x->comm;
    const char *tmp = getenv("TMPDIR");
    char *dir = vl_asprintf("%s/verl-map.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    int64_t *cost = vl_alloc((size_t)j->in.rows * sizeof *cost);
    int64_t *first = vl_alloc(((size_t)c->size + 1) * sizeof *first);
    size_t *sizes = vl_alloc((size_t)c->size * sizeof *sizes);
    struct vl_buf mine = { 0 };
    struct vl_err ignored = { 0 };
    void *all = NULL;
    int rc = 0;

    for (int64_t i = 0; i < j->in.rows; i++)
        cost[i] = 1;
    vl_comm_cut(c->size, cost, j->in.rows, first);
    if (!mkdtemp(dir))
        vl_fail_errno(e, VL_E_CREATE, "map: cannot make a directory %s", dir);
    else if (first[c->rank] < first[c->rank + 1] || (j->in.rows == 0 && c->rank == 0))
        rc = map_range(j, dir, first[c->rank], first[c->rank + 1], &mine, e);
    if (vl_comm_agree(c, e) == 0 && vl_comm_gather(c, mine.s, mine.n, &all, sizes, e) == 0 &&
        c->rank == 0)
        rc = join(j, all, sizes, e);
    vl_comm_agree(c, e);
    if (vl_fs_remove(dir, &ignored))
        vl_warn(&j->x->log, "map: %s", ignored.msg);
    free(dir);
    free(cost);
    free(first);
    free(sizes);
    free(all);
    vl_buf_free(&mine);
    return rc ? rc : e->code;
}

int vl_job_map(struct vl_job *j, struct vl_err *e)
{
    if (!j->o->filter == !j->o->command)
        return vl_fail(e, VL_E_USAGE, "map: give one of --filter FILTER and --command CMD");
    if (j->o->command)
        return map_command(j, e);
    return j->x->comm.rank == 0 ? map_filter(j, e) : 0;
}
