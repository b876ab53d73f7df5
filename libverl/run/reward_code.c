/* reward_code.c - see reward_code.h. */
#include "libverl/run/reward_code.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/base/http.h"
#include "libverl/run/reward_process.h"

struct source { /* for the service's client */
    const struct vl_reward_job *job;
    vl_reward_code_args *args;
    void *arg;
    struct vl_buf text, truth, json;
    int32_t *ids;
};

static int check_show(const struct vl_strs *show, struct vl_err *e)
{
    for (size_t i = 0; i < show->n; i++)
        if (show->s[i][0] != '/' || !show->s[i][1] || strstr(show->s[i], "/../"))
            return vl_fail(e, VL_E_USAGE,
                           "--sandbox-show %s: give the absolute path of a folder or file, such as "
                           "/opt/conda",
                           show->s[i]);
    return 0;
}

int vl_reward_code_check(const struct vl_reward_opts *o, struct vl_err *e)
{
    const struct vl_reward_code_opts *c = &o->code;

    if (c->url && vl_http_check_url(c->url, "reward_model.sandbox_fusion.url", e))
        return e->code;
    if (c->url && c->command)
        return vl_fail(e, VL_E_USAGE,
                       "--code-command runs programs here, reward_model.sandbox_fusion.url by a "
                       "service: give one");
    if (c->file && !c->command)
        return vl_fail(e, VL_E_USAGE, "--code-file is the file of --code-command: give that, too");
    if (c->file && (strchr(c->file, '/') || c->file[0] == '.' || !c->file[0]))
        return vl_fail(e, VL_E_USAGE, "--code-file %s: give a plain name such as main.rb", c->file);
    return check_show(&c->show, e);
}

/* Memory of a program: --memory, where 0 stands for no limit, else the service's key. */
static int64_t memory(const struct vl_reward_opts *o)
{
    int64_t mb = o->memory != VL_NULL_I64 && !o->code.url ? o->memory : o->code.memory_mb;

    return (mb ? mb : 1LL << 30) * 1024 * 1024;
}

static void set_up(struct vl_reward_code *c, struct vl_ctx *x, const struct vl_reward_opts *o,
                   int64_t rows)
{
    const struct vl_reward_code_opts *code = &o->code;
    struct vl_box_opts box = VL_BOX_DEFAULTS;

    c->binds = vl_alloc((code->show.n + 1) * sizeof *c->binds);
    for (size_t i = 0; i < code->show.n; i++)
        c->binds[i] = code->show.s[i];
    box.weak = !strcmp(code->sandbox, "weak");
    box.binds = c->binds;
    box.seconds = code->timeout;
    box.memory = memory(o);
    c->opts = (struct vl_code_opts){ .box = box,
                                     .command = code->command,
                                     .file = code->file,
                                     .url = code->url,
                                     .concurrent = (int)(code->concurrent / x->comm.size),
                                     .give_up = !strcmp(vl_reward_policy(x, o), "fail") };
    if (c->opts.concurrent < 1)
        c->opts.concurrent = 1;
    if (vl_parsed_given(x->parsed, &o->timeout))
        c->opts.row_seconds = o->timeout;
    c->n = rows;
    if (code->url)
        c->answers = vl_alloc((size_t)rows * sizeof *c->answers);
    else if (o->workers)
        c->threads = (int)o->workers;
}

static int service_row(void *arg, int64_t k, struct vl_rule_in *in)
{
    struct source *s = arg;
    int64_t i = s->job->asked[k];
    const struct vl_rule_args *args = s->args(s->arg, i);

    if (!args)
        return 0;
    vl_buf_reset(&s->text);
    vl_buf_reset(&s->truth);
    vl_buf_reset(&s->json);
    vl_reward_text(s->job->rows, i, s->ids, &s->text);
    if (!vl_reward_truth(s->job->rows, i, &s->json, &s->truth))
        return 0;
    in->args = args;
    in->text = s->text.n ? s->text.s : "";
    in->n = s->text.n;
    in->truth = s->truth.n ? s->truth.s : "";
    in->truth_n = s->truth.n;
    return 1;
}

static int ask_service(struct vl_reward_code *c, struct source *s, struct vl_err *e)
{
    const struct vl_code_rows io = { s, service_row };

    s->ids = vl_alloc((size_t)s->job->rows->R * sizeof *s->ids);
    (void)!vl_code_ask(&c->opts, c->n, &io, c->answers, e);
    vl_buf_free(&s->text);
    vl_buf_free(&s->truth);
    vl_buf_free(&s->json);
    free(s->ids);
    return e->code;
}

/* Each kind of program once; a row names its language by its arguments. */
static int check_programs(const struct vl_reward_code *c, const struct source *s, struct vl_err *e)
{
    unsigned seen = 0;

    for (int64_t k = 0; k < c->n && !e->code; k++) {
        const struct vl_rule_args *a = s->args(s->arg, s->job->asked[k]);

        if (!a || seen >> a->code.language & 1)
            continue;
        seen |= 1u << a->code.language;
        (void)!vl_code_check(&c->opts, &a->code, e);
    }
    return e->code;
}

int vl_reward_code_open(struct vl_reward_code *c, struct vl_ctx *x, const struct vl_reward_opts *o,
                        const struct vl_reward_job *job, vl_reward_code_args *args, void *arg,
                        struct vl_err *e)
{
    struct source s = { .job = job, .args = args, .arg = arg };

    *c = (struct vl_reward_code){ .threads = x->comm.threads };
    for (int64_t k = 0; k < job->nasked && !c->wanted; k++)
        c->wanted = args(arg, job->asked[k]) != NULL;
    if (!c->wanted)
        return 0;
    set_up(c, x, o, job->nasked);
    if (c->opts.box.weak && !o->code.url)
        vl_warn(&x->log, "--sandbox=weak: programs run without namespaces%s (verl-sandbox(7))",
                vl_box_weak_has_landlock()
                    ? ""
                    : ", and this kernel has no Landlock: they can read what this user may read");
    if (check_programs(c, &s, e) || !o->code.url)
        return e->code;
    return ask_service(c, &s, e);
}

void vl_reward_code_close(struct vl_reward_code *c)
{
    for (int64_t k = 0; k < c->n && c->answers; k++)
        vl_code_outcomes_free(c->answers[k].of, c->answers[k].n);
    free(c->answers);
    free(c->binds);
}
