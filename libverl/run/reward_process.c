/* reward_process.c - from rows to a pool of scorer processes and back. See reward_process.h.
 *
 * A function that takes lists (verl's batch manager) is one row of the pool: its line holds all
 * rows, its answer all scores. So every rule of the pool about time limits, crashes and garbage
 * holds for it unchanged. */
#include "libverl/run/reward_process.h"

#include "formats/json.h"
#include "libverl/base/jq.h"
#include "libverl/base/keys.h"
#include "libverl/reward/custom.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOADING 60 /* seconds a Python file may take to load: some import half a framework */

struct process {
    struct vl_ctx *x;
    const struct vl_reward_opts *o;
    const struct vl_reward_job *job;
    int64_t done;
};

const char *vl_reward_policy(const struct vl_ctx *x, const struct vl_reward_opts *o)
{
    return !strcmp(o->manager, "prime") && !vl_parsed_given(x->parsed, &o->on_error) ? "value"
                                                                                     : o->on_error;
}

int vl_reward_has_process(const struct vl_reward_opts *o)
{
    return vl_reward_process_rule(o) != NULL;
}

const char *vl_reward_process_rule(const struct vl_reward_opts *o)
{
    return o->filter        ? "jq"
           : o->command     ? "command"
           : o->exec        ? "exec"
           : o->custom_path ? "custom"
                            : NULL;
}

int vl_reward_one_call(const struct vl_reward_opts *o)
{
    return o->custom_path && !strcmp(o->manager, "batch");
}

int vl_reward_brief(const struct vl_reward_opts *o)
{
    return o->filter ? !vl_jq_may_read(o->filter, "prompt") && !vl_jq_may_read(o->filter, "ids") &&
                           !vl_jq_may_read(o->filter, "args")
                     : o->custom_path && !o->command && !o->exec;
}

static int custom_command(const struct vl_reward_opts *o, char ***argv, struct vl_err *e)
{
    const struct vl_custom c = { o->custom_path, o->custom_name, o->custom_kwargs,
                                 vl_reward_one_call(o) };

    return vl_custom_command(&c, argv, e);
}

int vl_reward_process_check(struct vl_ctx *x, const struct vl_reward_opts *o, struct vl_err *e)
{
    const struct vl_custom c = { .path = o->custom_path };
    char **argv, *identity;

    if (!o->custom_path)
        return 0;
    if (custom_command(o, &argv, e))
        return e->code;
    vl_custom_free(argv);
    identity = vl_custom_identity(&c);
    vl_parsed_effective(x->parsed, &o->custom_path, identity);
    free(identity);
    return 0;
}

static struct vl_score *score_of(const struct process *p, int64_t k)
{
    return &p->job->s[p->job->asked[k] - p->job->first];
}

/* One row a line. */
static void put_row(void *arg, int64_t k, struct vl_buf *out)
{
    const struct process *p = arg;

    vl_reward_line(p->job->rows, p->job->asked[k], k, out);
}

static int take_answer(void *arg, int64_t k, const char *json, size_t n, const char *why)
{
    struct process *p = arg;
    struct vl_score *s = score_of(p, k);

    if (json)
        vl_score_parse(s, json, n);
    else
        vl_score_fail(s, "%s", why);
    if (p->done < p->job->nasked)
        vl_progress(&p->x->log, "rows", ++p->done, p->job->nasked, NULL);
    return s->why && !strcmp(vl_reward_policy(p->x, p->o), "fail");
}

/* All rows in one line: {"id":0,"rows":[{...},...]}. */
static void put_all(void *arg, int64_t k, struct vl_buf *out)
{
    const struct process *p = arg;

    vl_buf_printf(out, "{\"id\":%" PRId64 ",\"rows\":[", k);
    for (int64_t i = 0; i < p->job->nasked; i++) {
        put_row(arg, i, out);
        out->s[out->n - 1] = ','; /* its line feed */
    }
    out->n -= p->job->nasked > 0;
    vl_buf_str(out, "]}\n");
}

static void fail_all(const struct process *p, const char *why)
{
    for (int64_t i = 0; i < p->job->nasked; i++)
        vl_score_fail(score_of(p, i), "%s", why);
}

/* {"scores":[...]} with one entry a row, each an answer of its own; anything else fails them all. */
static int take_all(void *arg, int64_t k, const char *json, size_t n, const char *why)
{
    struct process *p = arg;
    struct vl_score whole = { 0 };
    struct vl_err ignored = { 0 };
    struct vl_json j = { 0 };
    int64_t list = -1;

    (void)k;
    if (json && !vl_json_parse(&j, json, n, "answer", &ignored))
        list = vl_json_get(&j, 0, "scores");
    if (vl_json_is(&j, list, VL_JSON_ARRAY) && j.node[list].count == p->job->nasked) {
        uint32_t c = (uint32_t)list + 1;

        for (int64_t i = 0; i < p->job->nasked; i++, c = j.node[c].next) {
            struct vl_buf raw = { 0 };

            vl_json_raw(&j, c, &raw);
            vl_score_parse(score_of(p, i), raw.s, raw.n);
            vl_buf_free(&raw);
        }
    } else {
        if (json)
            vl_score_parse(&whole, json, n); /* {"error": TEXT} and what is no answer */
        fail_all(p, why ? why : whole.why ? whole.why : "answered without a list of scores");
        vl_score_free(&whole);
    }
    vl_json_free(&j);
    return 0;
}

int vl_reward_pool(struct vl_ctx *x, const struct vl_reward_opts *o, int64_t rows,
                   const struct vl_scorers_io *io, struct vl_err *e)
{
    const char *shell[] = { "/bin/sh", "-c", o->exec ? o->exec : o->command, NULL };
    struct vl_scorers_opts so = { .argv = o->filter ? NULL : shell,
                                  .filter = o->filter,
                                  .args = o->args,
                                  .once = o->exec != NULL,
                                  .workers = (int)(o->workers ? o->workers : x->comm.threads),
                                  .timeout = o->timeout };
    struct vl_scorers_stats st = { 0 };
    char **argv = NULL;

    if (o->custom_path) {
        if (custom_command(o, &argv, e))
            return e->code;
        so.argv = (const char *const *)argv;
        so.start = LOADING;
    }
    if (so.workers > rows && !io->arrived)
        so.workers = rows ? (int)rows : 1;
    so.memory = o->memory != VL_NULL_I64 ? o->memory : o->filter ? 1024 : 0;
    so.memory *= 1024 * 1024;
    (void)!vl_scorers_run(&so, rows, io, &st, e);
    vl_custom_free(argv);
    if (!e->code && (st.crashed || st.timed_out || st.asked_again))
        vl_warn(&x->log,
                "scorer: %" PRId64 " crashes, %" PRId64 " time limits passed, %" PRId64
                " rows asked again",
                st.crashed, st.timed_out, st.asked_again);
    return e->code;
}

int vl_reward_by_process(struct vl_ctx *x, const struct vl_reward_opts *o,
                         const struct vl_reward_job *job, struct vl_err *e)
{
    int one = vl_reward_one_call(o);
    struct process p = { x, o, job, 0 };
    const struct vl_scorers_io io = { .arg = &p,
                                      .line = one ? put_all : put_row,
                                      .answer = one ? take_all : take_answer };

    return vl_reward_pool(x, o, one ? job->nasked > 0 : job->nasked, &io, e);
}

/* ---- members that no row has ---- */

/* All rows' lines have the same members. */
static void warn_member(struct vl_ctx *x, const char *option, const char *name,
                        const struct vl_json *line)
{
    size_t least = 3 + strlen(name) / 4;
    struct vl_buf have = { 0 };
    char *near = NULL;
    uint32_t c = 1;

    for (uint32_t k = 0; k < line->node[0].count; k++, c = line->node[c + 1].next) {
        char *member = vl_json_strdup(line, c);
        size_t d = vl_edits(name, member);

        vl_buf_printf(&have, "%s.%s", k ? ", " : "", member);
        if (d < least) {
            free(near);
            near = vl_strdup(member);
            least = d;
        }
        free(member);
    }
    if (near)
        vl_warn(&x->log, "%s: no row has .%s (did you mean .%s?)", option, name, near);
    else
        vl_warn(&x->log, "%s: no row has .%s; there are %s", option, name, have.s);
    vl_buf_free(&have);
    free(near);
}

static void warn_members(struct vl_ctx *x, const char *option, const char *filter,
                         const struct vl_json *line)
{
    struct vl_buf names = { 0 };
    char *rest = NULL, *name;

    vl_jq_members(filter, &names);
    for (name = names.n ? strtok_r(names.s, "\n", &rest) : NULL; name;
         name = strtok_r(NULL, "\n", &rest))
        if (vl_json_get(line, 0, name) < 0)
            warn_member(x, option, name, line);
    vl_buf_free(&names);
}

void vl_reward_warn_members(struct vl_ctx *x, const struct vl_reward_opts *o,
                            const struct vl_reward_rows *rows)
{
    struct vl_reward_rows whole = *rows;
    struct vl_err ignored = { 0 };
    struct vl_json line = { 0 };
    struct vl_buf text = { 0 };

    whole.brief = 0;
    vl_reward_line(&whole, 0, 0, &text);
    if (!vl_json_parse(&line, text.s, text.n, "row", &ignored)) {
        if (o->filter)
            warn_members(x, "--jq", o->filter, &line);
        if (o->judge.url && o->judge.request)
            warn_members(x, "--judge-request", o->judge.request, &line);
    }
    vl_json_free(&line);
    vl_buf_free(&text);
}
