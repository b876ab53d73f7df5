/* state.c - train state: filling, loading, publishing. See state.h. */
#include "libverl/model/state.h"

#include "formats/json.h"
#include "libverl/base/aside.h"
#include "libverl/base/fs.h"
#include "libverl/base/publish.h"
#include "libverl/model/tensors.h"
#include "libverl/model/version.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RECORD ((size_t)64 << 20)

const char *const vl_moment_name[VL_MOMENT_KINDS] = {
    [VL_EXP_AVG] = "exp_avg",
    [VL_EXP_AVG_SQ] = "exp_avg_sq",
    [VL_MAX_EXP_AVG_SQ] = "max_exp_avg_sq",
    [VL_MOMENTUM_BUFFER] = "momentum_buffer",
};

void vl_state_record_free(struct vl_state_record *r)
{
    free(r->parent_hash);
    free(r->role);
    free(r->batch);
    free(r->options);
    free(r->optimizer);
    free(r->progress);
    free(r->metrics);
    *r = (struct vl_state_record){ 0 };
}

/* Source text of a member that is not null; caller frees. */
static char *raw_member(const struct vl_json *j, const char *key)
{
    int64_t at = vl_json_get(j, 0, key);
    struct vl_buf b = { 0 };

    if (at < 0 || vl_json_is(j, at, VL_JSON_NULL))
        return NULL;
    vl_json_raw(j, at, &b);
    return vl_buf_detach(&b);
}

static int get_hash(char out[33], const struct vl_json *j, const char *key)
{
    char *s = vl_json_strdup(j, vl_json_get(j, 0, key));
    int ok = s && strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32;

    if (ok)
        memcpy(out, s, 33);
    free(s);
    return ok;
}

static int whole_members(struct vl_state_record *r, const struct vl_json *j, const char *path,
                         struct vl_err *e)
{
    const struct {
        const char *key;
        int64_t *to;
    } row[] = {
        { "global_step", &r->global_step }, { "schedule_position", &r->schedule },
        { "total_steps", &r->total_steps }, { "optimizer_steps", &r->optimizer_steps },
        { "skipped", &r->skipped },         { "skipped_in_row", &r->skipped_in_row },
    };

    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (!vl_json_i64(j, vl_json_get(j, 0, row[i].key), row[i].to) || *row[i].to < 0)
            return vl_fail(e, VL_E_DATA, "%s: %s is missing or not a whole number from 0", path,
                           row[i].key);
    return 0;
}

int vl_state_record_read(struct vl_state_record *r, const char *dir, int64_t version,
                         struct vl_err *e)
{
    char name[VL_VERSION_NAME], *path, *parent = NULL;
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };

    *r = (struct vl_state_record){ .version = version, .parent = -1 };
    vl_version_name(name, version);
    path = vl_asprintf("%s/%s/state.json", dir, name);
    if (vl_fs_read(path, MAX_RECORD, &text, e) || vl_json_parse(&j, text.s, text.n, path, e) ||
        whole_members(r, &j, path, e))
        goto out;
    parent = vl_json_strdup(&j, vl_json_get(&j, 0, "parent"));
    if (parent)
        r->parent = vl_version_number(parent);
    vl_json_bool(&j, vl_json_get(&j, 0, "redo"), &r->redo);
    r->parent_hash = vl_json_strdup(&j, vl_json_get(&j, 0, "parent_hash"));
    r->role = vl_json_strdup(&j, vl_json_get(&j, 0, "role"));
    r->batch = vl_json_strdup(&j, vl_json_get(&j, 0, "batch"));
    r->options = raw_member(&j, "options");
    r->progress = raw_member(&j, "progress");
    r->metrics = raw_member(&j, "metrics");
    r->optimizer = vl_json_strdup(&j, vl_json_get(&j, 0, "optimizer"));
    if (!get_hash(r->hash, &j, "hash"))
        vl_fail(e, VL_E_DATA, "%s: hash should be 32 hex digits", path);
    for (int i = 0; i < VL_MOMENT_KINDS && !e->code; i++) {
        char key[40];

        snprintf(key, sizeof key, "%s_hash", vl_moment_name[i]);
        if (vl_json_get(&j, 0, key) >= 0 && !get_hash(r->moment_hash[i], &j, key))
            vl_fail(e, VL_E_DATA, "%s: %s should be 32 hex digits", path, key);
    }
out:
    free(parent);
    vl_json_free(&j);
    vl_buf_free(&text);
    free(path);
    return e->code;
}

static void put_str(struct vl_buf *b, const char *key, const char *s)
{
    vl_buf_printf(b, "  \"%s\": ", key);
    if (s)
        vl_json_put_str(b, s, strlen(s));
    else
        vl_buf_str(b, "null");
    vl_buf_str(b, ",\n");
}

static void put_whole(struct vl_buf *b, const char *key, int64_t v)
{
    vl_buf_printf(b, "  \"%s\": %" PRId64 ",\n", key, v);
}

static char *record_text(const struct vl_state_record *r)
{
    char name[VL_VERSION_NAME], parent[VL_VERSION_NAME];
    struct vl_buf b = { 0 };

    vl_version_name(name, r->version);
    if (r->parent >= 0)
        vl_version_name(parent, r->parent);
    vl_buf_str(&b, "{\n  \"train_state\": 1,\n");
    put_str(&b, "version", name);
    put_str(&b, "parent", r->parent >= 0 ? parent : NULL);
    put_str(&b, "parent_hash", r->parent_hash);
    vl_buf_printf(&b, "  \"redo\": %s,\n", r->redo ? "true" : "false");
    put_str(&b, "role", r->role);
    put_whole(&b, "global_step", r->global_step);
    put_str(&b, "batch", r->batch);
    vl_buf_printf(&b, "  \"options\": %s,\n", r->options ? r->options : "null");
    put_whole(&b, "schedule_position", r->schedule);
    put_whole(&b, "total_steps", r->total_steps);
    put_str(&b, "optimizer", r->optimizer);
    put_whole(&b, "optimizer_steps", r->optimizer_steps);
    put_whole(&b, "skipped", r->skipped);
    put_whole(&b, "skipped_in_row", r->skipped_in_row);
    vl_buf_printf(&b, "  \"progress\": %s,\n", r->progress ? r->progress : "null");
    vl_buf_printf(&b, "  \"metrics\": %s,\n", r->metrics ? r->metrics : "null");
    for (int i = 0; i < VL_MOMENT_KINDS; i++)
        if (r->moment_hash[i][0])
            vl_buf_printf(&b, "  \"%s_hash\": \"%s\",\n", vl_moment_name[i], r->moment_hash[i]);
    vl_buf_printf(&b, "  \"hash\": \"%s\"\n}\n", r->hash);
    return vl_buf_detach(&b);
}

/* The files of weights and moments, and their hashes. */
static int write_slabs(const struct vl_model *m, struct vl_state_record *rec,
                       const struct vl_origin *params,
                       const struct vl_origin moment[VL_MOMENT_KINDS], const char *aside,
                       struct vl_err *e)
{
    char *path = vl_asprintf("%s/params.safetensors", aside);

    if (!vl_tensors_stream(m, params, "weight", path, rec->hash, e))
        vl_stop_at("state-params");
    free(path);
    for (int i = 0; i < VL_MOMENT_KINDS && !e->code; i++) {
        rec->moment_hash[i][0] = 0;
        if (!moment[i].get)
            continue;
        path = vl_asprintf("%s/%s.safetensors", aside, vl_moment_name[i]);
        if (!vl_tensors_stream(m, &moment[i], vl_moment_name[i], path, rec->moment_hash[i], e))
            vl_stop_at("state-moments");
        free(path);
    }
    return e->code;
}

/* Makes DIR/vN whole: aside, files, record, publish. m gives layout, configs and tokenizer files. */
static int publish(const char *dir, const struct vl_model *m, struct vl_state_record *rec,
                   const struct vl_origin *params, const struct vl_origin moment[VL_MOMENT_KINDS],
                   int link, struct vl_err *e)
{
    char *aside = vl_asprintf("%s/.aside-%d", dir, (int)getpid()), *text = NULL, *path = NULL;

    if (vl_fs_remove(aside, e))
        goto out;
    if (mkdir(aside, 0777)) {
        vl_fail_errno(e, VL_E_CREATE, "%s: cannot make the directory", aside);
        goto out;
    }
    vl_aside_add(aside);
    path = vl_asprintf("%s/state.json", aside);
    if (write_slabs(m, rec, params, moment, aside, e) ||
        vl_model_save_configs(m, aside, "F32", m->dir, e) || !(text = record_text(rec)) ||
        vl_fs_write(path, text, strlen(text), e) ||
        vl_version_publish(dir, aside, rec->version, link, "state", e)) {
        struct vl_err ignored = { 0 };

        if (vl_fs_remove(aside, &ignored))
            vl_err_prefix(&ignored, "cleaning up");
    }
out:
    vl_aside_drop(aside);
    free(path);
    free(text);
    free(aside);
    return e->code;
}

int vl_state_publish(struct vl_state *s, struct vl_state_record *rec,
                     const struct vl_origin *params, const struct vl_origin moment[VL_MOMENT_KINDS],
                     int64_t keep, struct vl_err *e)
{
    int64_t n, *v = vl_version_list(s->dir, &n);

    rec->version = n ? v[n - 1] + 1 : 0;
    free(v);
    if (publish(s->dir, s->model, rec, params, moment, !s->link_stays, e))
        return e->code;
    if (!s->link_stays)
        s->current = rec->version;
    if (vl_version_prune(s->dir, keep > 0 ? keep : 1, rec->parent, e))
        return e->code;
    vl_stop_at("state-pruned");
    return 0;
}

static const float *slab_get(void *arg, int64_t at, int64_t n, float *room, struct vl_err *e)
{
    (void)n, (void)room, (void)e;
    return (const float *)arg + at;
}

static const float *zeros_get(void *arg, int64_t at, int64_t n, float *room, struct vl_err *e)
{
    (void)arg, (void)at, (void)e;
    return memset(room, 0, (size_t)n * sizeof *room);
}

/* v000000 from a model directory. */
static int fill(const char *dir, const char *model, enum vl_head head, struct vl_err *e)
{
    struct vl_state_record rec = { .parent = -1 };
    struct vl_model *m;

    if (vl_model_open(&m, model, head, 1, e))
        return e->code;
    struct vl_origin params = { slab_get, m->slab };
    const struct vl_origin moment[VL_MOMENT_KINDS] = {
        [VL_EXP_AVG] = { .get = zeros_get }, [VL_EXP_AVG_SQ] = { .get = zeros_get }
    };
    rec.role = vl_strdup(head == VL_HEAD_VALUE ? "critic" : "actor");
    if (publish(dir, m, &rec, &params, moment, 1, e))
        vl_err_prefix(e, "filling the train state from %s", model);
    vl_state_record_free(&rec);
    vl_model_free(m);
    return e->code;
}

/* No link: an empty DIR is filled; a v000000 whose link was not made yet is taken. */
static int start(struct vl_state *s, const char *model, enum vl_head head, int *filled,
                 struct vl_err *e)
{
    int64_t n, *v = vl_version_list(s->dir, &n), last = n ? v[n - 1] : -1;

    free(v);
    if (n == 1 && last == 0 && vl_version_usable(s->dir, 0)) {
        s->current = 0;
        return vl_fs_point(s->dir, "current", "v000000", e);
    }
    if (n) {
        while (last >= 0 && !vl_version_usable(s->dir, last))
            last--;
        return vl_fail(e, VL_E_DATA,
                       "%s: has versions but no link `current`; the newest usable one is "
                       "v%06" PRId64 ": choose with `ln -sfn v%06" PRId64 " %s/current`",
                       s->dir, last, last, s->dir);
    }
    if (!model)
        return vl_fail(e, VL_E_NOINPUT, "%s: no train state here; give -m MODEL to start one",
                       s->dir);
    *filled = 1;
    s->current = 0;
    return fill(s->dir, model, head, e);
}

void vl_state_unfill(struct vl_state *s)
{
    int64_t n, *v = vl_version_list(s->dir, &n);
    char *link = vl_asprintf("%s/current", s->dir), *first = vl_asprintf("%s/v000000", s->dir);
    struct vl_err ignored = { 0 };

    if (s->lock >= 0 && n == 1 && v[0] == 0) {
        unlink(link);
        (void)!vl_fs_remove(first, &ignored);
    }
    free(link);
    free(first);
    free(v);
}

int vl_state_begin(struct vl_state *s, const char *dir, const char *model, int64_t from,
                   enum vl_head head, int *filled, struct vl_err *e)
{
    char name[VL_VERSION_NAME];

    *s = (struct vl_state){ .lock = -1, .current = -1, .base = -1 };
    *filled = 0;
    s->dir = vl_strdup(dir);
    if (!model && !vl_fs_exists(dir, NULL))
        return vl_fail(e, VL_E_NOINPUT, "%s: no train state here; give -m MODEL to start one", dir);
    if (vl_fs_mkdirs(dir, e) || vl_version_lock(dir, &s->lock, e) ||
        vl_version_current(dir, &s->current, e))
        return e->code;
    if (s->current < 0 && start(s, model, head, filled, e))
        return e->code;
    s->base = from >= 0 ? from : s->current;
    vl_version_name(name, s->base);
    if (from >= 0 && !vl_version_usable(dir, from))
        return vl_fail(e, VL_E_NOINPUT,
                       "%s/%s: --from names a version that is not there or is damaged; current is "
                       "v%06" PRId64 " (--keep N: how many stay)",
                       dir, name, s->current);
    if (vl_state_record_read(&s->last, dir, s->current, e))
        return e->code;
    return vl_state_record_read(&s->rec, dir, s->base, e);
}

static int same(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

static int matches(const struct vl_state_record *r, int64_t from, const char *batch,
                   const char *options)
{
    return same(r->batch, batch) && same(r->options, options) &&
           (from < 0 || (r->redo && r->parent == from));
}

int64_t vl_state_made(const struct vl_state *s, int64_t from, const char *batch,
                      const char *options)
{
    int64_t n, *v, found = -1;

    if (matches(&s->last, from, batch, options))
        return s->current;
    v = vl_version_list(s->dir, &n);
    for (int64_t i = n - 1; i >= 0 && v[i] > s->current && found < 0; i--) {
        struct vl_state_record r;
        struct vl_err ignored = { 0 };

        if (!vl_state_record_read(&r, s->dir, v[i], &ignored) && r.parent == s->base &&
            matches(&r, from, batch, options))
            found = v[i];
        vl_state_record_free(&r);
    }
    free(v);
    return found;
}

int64_t vl_state_twin(const struct vl_state *s, const struct vl_state_record *of)
{
    int64_t n, *v = vl_version_list(s->dir, &n), found = of->version;

    for (int64_t i = 0; i < n && v[i] < found; i++) {
        struct vl_state_record r;
        struct vl_err ignored = { 0 };

        if (!vl_state_record_read(&r, s->dir, v[i], &ignored) && !strcmp(r.hash, of->hash) &&
            same(r.parent_hash, of->parent_hash) && same(r.batch, of->batch) &&
            same(r.options, of->options))
            found = v[i];
        vl_state_record_free(&r);
    }
    free(v);
    return found;
}

int vl_state_point(struct vl_state *s, int64_t version, struct vl_err *e)
{
    char name[VL_VERSION_NAME];

    vl_version_name(name, version);
    if (vl_fs_point(s->dir, "current", name, e))
        return e->code;
    s->current = version;
    return 0;
}

int vl_state_open(struct vl_state *s, enum vl_head head, struct vl_err *e)
{
    char name[VL_VERSION_NAME], *dir;

    vl_version_name(name, s->base);
    dir = vl_asprintf("%s/%s", s->dir, name);
    if (!vl_model_open(&s->model, dir, head, 0, e) && strcmp(s->model->hash, s->rec.hash))
        vl_fail(e, VL_E_DATA, "%s: its record says hash %s, but said %s before", dir,
                s->model->hash, s->rec.hash);
    free(dir);
    return e->code;
}

int vl_state_moment(struct vl_state *s, int which, const struct vl_sink *to, struct vl_err *e)
{
    char *file = vl_asprintf("%s.safetensors", vl_moment_name[which]), hash[33];
    struct vl_weight_files f = { 0 };

    if (s->rec.moment_hash[which][0] && !vl_weight_files(&f, s->model->dir, file, e) &&
        !vl_tensors_read(s->model, &f, to, hash, NULL, e) &&
        strcmp(hash, s->rec.moment_hash[which]))
        vl_fail(e, VL_E_DATA, "%s/%s: has hash %s but state.json says %s: damaged", s->model->dir,
                file, hash, s->rec.moment_hash[which]);
    vl_weight_files_free(&f);
    free(file);
    return e->code;
}

void vl_state_close(struct vl_state *s)
{
    vl_version_unlock(s->lock);
    vl_model_free(s->model);
    vl_state_record_free(&s->rec);
    vl_state_record_free(&s->last);
    free(s->dir);
    *s = (struct vl_state){ .lock = -1 };
}
