/* stage_sync.c - verl-sync: train state to published rollout weights. See stage_sync.h.
 *
 * The default is fp32: rollout, log-prob and update then start from the same bits, which is what
 * makes rollout log-probs equal to recomputed ones. A rounded copy is an option; its record names
 * the state's hash as source_hash, so that later stages still know whose weights they are. */
#include "libverl/run/stage_sync.h"

#include "formats/json.h"
#include "libverl/base/aside.h"
#include "libverl/base/fs.h"
#include "libverl/base/half.h"
#include "libverl/model/state.h"
#include "libverl/model/tensors.h"
#include "libverl/model/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sync {
    struct vl_ctx *x;
    const struct vl_sync_opts *o;
    const char *dtype; /* "F32" "BF16" "F16" */
    int64_t number;
    struct vl_model *m;         /* the sender's */
    struct vl_state_record rec; /* of the sender's version */
    char want[33];              /* hash of what is published */
};

/* What the stored values are after rounding, in m's place: m is the sender's copy in memory only. */
static void round_slab(struct vl_model *m, const char *dtype)
{
    int bf = !strcmp(dtype, "BF16");

    for (int64_t i = 0; i < m->count; i++)
        m->slab[i] = bf ? vl_bf16_to_f32(vl_f32_to_bf16(m->slab[i]))
                        : vl_f16_to_f32(vl_f32_to_f16(m->slab[i]));
}

static int write_record(const struct sync *s, const char *aside, struct vl_err *e)
{
    struct vl_buf b = { 0 };
    char name[VL_VERSION_NAME], *path = vl_asprintf("%s/version.json", aside);
    int rc;

    vl_version_name(name, s->number);
    vl_buf_printf(&b, "{\n  \"rollout_weights\": 1,\n  \"version\": \"%s\",\n", name);
    vl_buf_printf(&b, "  \"global_step\": %" PRId64 ",\n  \"dtype\": \"%s\",\n", s->rec.global_step,
                  s->dtype);
    vl_buf_printf(&b, "  \"payload\": \"full\",\n  \"parameters\": %" PRId64 ",\n",
                  vl_model_parameters(s->m));
    if (strcmp(s->want, s->rec.hash))
        vl_buf_printf(&b, "  \"source_hash\": \"%s\",\n", s->rec.hash);
    vl_buf_printf(&b, "  \"hash\": \"%s\"\n}\n", s->want);
    rc = vl_fs_write(path, b.s, b.n, e);
    free(path);
    vl_buf_free(&b);
    return rc;
}

/* Reads back what was written: names, shapes, count (by loading), dtype and hash. */
static int verify(const struct sync *s, const char *aside, struct vl_err *e)
{
    struct vl_model *m;

    if (vl_model_open(&m, aside, VL_HEAD_AUTO, 0, e))
        return vl_err_prefix(e, "reading back what was published");
    if (vl_model_read(m, NULL, e))
        vl_err_prefix(e, "reading back what was published");
    else if (strcmp(m->hash, s->want) || strcmp(m->stored_dtype, s->dtype) ||
             m->count != s->m->count)
        vl_fail(e, VL_E_IO,
                "%s: read back as %s of hash %s, but %s of hash %s was written: the disk or memory "
                "is not to be trusted",
                aside, m->stored_dtype, m->hash, s->dtype, s->want);
    vl_model_free(m);
    return e->code;
}

/* Whether an update changed weights, by its own count, ROLE/weights_changed. */
static int update_changed(const struct vl_state_record *r)
{
    static const char suffix[] = "/weights_changed";
    struct vl_json j = { 0 };
    struct vl_err ignored = { 0 };
    double share = 1;

    if (r->metrics && !vl_json_parse(&j, r->metrics, strlen(r->metrics), "metrics", &ignored) &&
        vl_json_is(&j, 0, VL_JSON_OBJECT)) {
        int64_t k = 1;
        for (uint32_t a = 0; a < j.node[0].count; a++, k = j.node[k + 1].next) {
            char *key = vl_json_strdup(&j, k);
            size_t n = key ? strlen(key) : 0;
            if (n >= sizeof(suffix) && !strcmp(key + n - (sizeof(suffix) - 1), suffix))
                vl_json_f64(&j, k + 1, &share);
            free(key);
        }
    }
    vl_json_free(&j);
    return share > 0;
}

/* The receiver already has these very weights under a lower number. */
static int check_changed(const struct sync *s, const char *dir, int64_t current, struct vl_err *e)
{
    char name[VL_VERSION_NAME], *path;
    struct vl_model *m;

    if (current < 0 || current >= s->number)
        return 0;
    vl_version_name(name, current);
    path = vl_asprintf("%s/%s", dir, name);
    if (vl_model_open(&m, path, VL_HEAD_AUTO, 0, e)) {
        free(path);
        return e->code;
    }
    if (!strcmp(m->hash, s->want)) {
        if (!update_changed(&s->rec))
            vl_info(&s->x->log,
                    "the weights are those of %s: the update changed none (learning "
                    "rate 0, or all steps skipped)",
                    name);
        else if (strcmp(s->dtype, "F32"))
            vl_warn(&s->x->log,
                    "rounded to %s the weights are those of %s: the update is lost in "
                    "rollout; publish fp32",
                    s->dtype, name);
        else
            vl_fail(e, VL_E_DATA,
                    "%s/v%06" PRId64 " holds the same weights as %s, though its update says that "
                    "it changed some",
                    s->x->common->state, s->number, name);
    }
    vl_model_free(m);
    free(path);
    return e->code;
}

static int publish(struct sync *s, const char *dir, struct vl_err *e)
{
    char *aside = vl_asprintf("%s/.aside-%d", dir, (int)getpid());

    if (vl_fs_remove(aside, e) || vl_fs_mkdirs(aside, e))
        goto out;
    vl_aside_add(aside);
    if (vl_model_save(s->m, aside, s->dtype, s->o->shard_size, s->m->dir, e) ||
        write_record(s, aside, e))
        goto out;
    vl_stop_at("sync-saved");
    if (verify(s, aside, e) || vl_version_publish(dir, aside, s->number, 1, "sync", e))
        goto out;
    if (vl_version_prune(dir, s->o->keep, -1, e))
        goto out;
out:
    if (e->code) {
        struct vl_err ignored = { 0 };

        if (vl_fs_remove(aside, &ignored))
            vl_err_prefix(&ignored, "cleaning up");
    }
    vl_aside_drop(aside);
    free(aside);
    return e->code;
}

/* dir/vN is there: equal is "nothing to do", anything else is refused. */
static int already(struct sync *s, const char *dir, const char *name, int64_t current,
                   struct vl_err *e)
{
    char *path = vl_asprintf("%s/%s", dir, name);
    struct vl_model *m;

    if (vl_model_open(&m, path, VL_HEAD_AUTO, 0, e) || vl_model_read(m, NULL, e))
        goto out;
    if (strcmp(m->hash, s->want) || strcmp(m->stored_dtype, s->dtype))
        vl_fail(e, VL_E_CREATE,
                "%s: is there with other weights (%s, hash %s; to be published: %s, hash %s); "
                "published versions are never replaced: give another -o",
                path, m->stored_dtype, m->hash, s->dtype, s->want);
    else if (current != s->number && vl_fs_point(dir, "current", name, e))
        vl_err_prefix(e, "nothing to write, but");
    else
        vl_info(&s->x->log, "nothing to do: %s has these weights", path);
out:
    vl_model_free(m);
    free(path);
    return e->code;
}

/* -m: an empty state is filled from it, as verl-update would, so that a run can begin with a sync. */
static int fill(struct sync *s, const char *model, struct vl_err *e)
{
    struct vl_state st = { .lock = -1 };
    int filled = 0;

    if (!vl_state_begin(&st, s->x->common->state, model, -1, VL_HEAD_LM, &filled, e) && filled)
        vl_info(&s->x->log, "%s: filled as v000000 from %s", s->x->common->state, model);
    vl_state_close(&st);
    return e->code;
}

static int open_sender(struct sync *s, struct vl_err *e)
{
    const char *state = s->x->common->state, *from = s->o->from;
    char name[VL_VERSION_NAME], *path;

    if (from)
        s->number = vl_version_parse(from);
    else if (vl_version_current(state, &s->number, e))
        return e->code;
    if (from && s->number < 0)
        return vl_fail(e, VL_E_USAGE, "--from %s: expected a version such as v12", from);
    if (s->number < 0)
        return vl_fail(e, VL_E_NOINPUT,
                       "%s: no train state here (no link `current`); -m MODEL fills an empty one",
                       state);
    if (vl_state_record_read(&s->rec, state, s->number, e))
        return e->code;
    vl_version_name(name, s->number);
    path = vl_asprintf("%s/%s", state, name);
    if (!vl_model_open(&s->m, path, VL_HEAD_AUTO, 1, e)) {
        memcpy(s->want, s->m->hash, sizeof s->want);
        if (strcmp(s->dtype, "F32")) {
            round_slab(s->m, s->dtype);
            vl_tensors_hash(s->m, s->m->slab, s->want);
        }
    }
    free(path);
    return e->code;
}

static int run(struct sync *s, struct vl_err *e)
{
    const char *dir = s->x->common->output;
    char name[VL_VERSION_NAME], *path;
    int64_t current;
    int lock;

    if (s->x->common->model && fill(s, s->x->common->model, e))
        return e->code;
    if (open_sender(s, e) || vl_fs_mkdirs(dir, e) || vl_version_lock(dir, &lock, e))
        return e->code;
    vl_version_name(name, s->number);
    path = vl_asprintf("%s/%s", dir, name);
    if (vl_version_current(dir, &current, e) || check_changed(s, dir, current, e))
        goto out;
    if (vl_version_usable(dir, s->number) ? already(s, dir, name, current, e) : publish(s, dir, e))
        goto out;
    printf("%s\n", path);
    vl_info(&s->x->log, "%s: %.3f M parameters as %s, hash %s", path,
            (double)vl_model_parameters(s->m) * 1e-6, s->dtype, s->want);
out:
    free(path);
    vl_version_unlock(lock);
    return e->code;
}

int vl_stage_sync(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    struct sync s = { .x = x, .o = opts };

    s.dtype = !strcmp(s.o->dtype, "bf16") ? "BF16" : !strcmp(s.o->dtype, "fp16") ? "F16" : "F32";
    if (!x->common->state)
        return vl_fail(e, VL_E_USAGE, "no train state: give -s DIR");
    if (!strcmp(x->common->output, "-"))
        return vl_fail(e, VL_E_USAGE, "published weights are a directory: give -o DIR");
    if (x->comm.rank == 0 && run(&s, e)) /* files only: the other ranks wait in the agreement */
        goto out;
out:
    vl_state_record_free(&s.rec);
    vl_model_free(s.m);
    return vl_comm_agree(&x->comm, e);
}
