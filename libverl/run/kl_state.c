/* kl_state.c - see kl_state.h. */
#include "libverl/run/kl_state.h"

#include "formats/json.h"
#include "libverl/base/aside.h"
#include "libverl/base/fs.h"
#include "libverl/model/version.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int same(const struct vl_json *j, const char *key, const char *text)
{
    char *s = vl_json_strdup(j, vl_json_get(j, 0, key));
    int equal = s && !strcmp(s, text);

    free(s);
    return equal;
}

/* *fits = the record is this step's own (s->made) or that of a step before it. */
static int read_record(struct vl_kl_state *s, const char *path, const char *batch,
                       const char *options, int *fits, struct vl_err *e)
{
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    double coef, before;
    int64_t step;

    if (vl_fs_read(path, 1 << 20, &text, e) || vl_json_parse(&j, text.s, text.n, path, e))
        goto done;
    if (!vl_json_f64(&j, vl_json_get(&j, 0, "kl_coef"), &coef) || !(coef > 0)) {
        vl_fail(e, VL_E_DATA, "%s: kl_coef is missing or not > 0; it is no KL state", path);
        goto done;
    }
    s->coef = coef;
    if (same(&j, "batch", batch) && same(&j, "options", options) &&
        vl_json_f64(&j, vl_json_get(&j, 0, "before"), &before)) {
        s->made = 1;
        s->coef = before;
    }
    *fits = s->made || s->step < 0 || !vl_json_i64(&j, vl_json_get(&j, 0, "step"), &step) ||
            step < s->step;
done:
    vl_json_free(&j);
    vl_buf_free(&text);
    return e->code;
}

int vl_kl_state_open(struct vl_kl_state *s, const char *dir, double first, int64_t step,
                     const char *batch, const char *options, struct vl_err *e)
{
    char name[VL_VERSION_NAME], *path;
    int64_t n = 0, *list = NULL, current;
    int fits = 0;

    *s = (struct vl_kl_state){ .dir = dir, .lock = -1, .step = step, .parent = -1, .coef = first };
    if (vl_fs_mkdirs(dir, e) || vl_version_lock(dir, &s->lock, e) ||
        vl_version_current(dir, &current, e))
        return e->code;
    if (current < 0)
        return 0;
    list = vl_version_list(dir, &n);
    for (int64_t k = n - 1; k >= 0 && !fits && !e->code; k--) {
        if (list[k] > current)
            continue; /* renamed, but the process ended before it moved the link */
        vl_version_name(name, list[k]);
        path = vl_asprintf("%s/%s/state.json", dir, name);
        s->parent = list[k];
        (void)!read_record(s, path, batch, options, &fits, e);
        free(path);
    }
    if (!e->code && !fits && n && list[0] > 0)
        vl_fail(e, VL_E_DATA,
                "%s: the oldest record, v%06lld, is of step %lld or later; the coefficient of that "
                "step is no longer there: give a new directory and kl_ctrl.kl_coef",
                dir, (long long)list[0], (long long)step);
    if (!fits) {
        s->parent = -1;
        s->coef = first;
    }
    free(list);
    return e->code;
}

static void write_record(struct vl_buf *b, const struct vl_kl_state *s, int64_t version,
                         double next, double current_kl, int64_t rows, const char *batch,
                         const char *options)
{
    vl_buf_printf(b, "{\"kind\": \"kl\", \"version\": %lld, \"parent\": ", (long long)version);
    vl_json_put_i64(b, s->parent);
    vl_buf_str(b, ", \"step\": ");
    vl_json_put_i64(b, s->step);
    vl_buf_str(b, ", \"kl_coef\": ");
    vl_json_put_f64(b, next);
    vl_buf_str(b, ", \"before\": ");
    vl_json_put_f64(b, s->coef);
    vl_buf_str(b, ", \"current_kl\": ");
    vl_json_put_f64(b, current_kl);
    vl_buf_printf(b, ", \"rows\": %lld, \"batch\": ", (long long)rows);
    vl_json_put_str(b, batch, strlen(batch));
    vl_buf_str(b, ", \"options\": ");
    vl_json_put_str(b, options, strlen(options));
    vl_buf_str(b, "}\n");
}

int vl_kl_state_publish(struct vl_kl_state *s, double next, double current_kl, int64_t rows,
                        const char *batch, const char *options, int64_t keep, struct vl_err *e)
{
    struct vl_buf text = { 0 };
    char *aside = vl_asprintf("%s/.aside-%d", s->dir, (int)getpid());
    char *file = vl_asprintf("%s/state.json", aside);
    int64_t n, *list = vl_version_list(s->dir, &n), version = n ? list[n - 1] + 1 : 0;

    if (s->made)
        goto done;
    write_record(&text, s, version, next, current_kl, rows, batch, options);
    if (vl_fs_remove(aside, e))
        goto done;
    if (mkdir(aside, 0777)) {
        vl_fail_errno(e, VL_E_CREATE, "%s: cannot make the directory", aside);
        goto done;
    }
    vl_aside_add(aside);
    if (vl_fs_write(file, text.s, text.n, e) ||
        vl_version_publish(s->dir, aside, version, 1, "kl", e)) {
        struct vl_err ignored = { 0 };
        (void)!vl_fs_remove(aside, &ignored);
        goto done;
    }
    (void)!vl_version_prune(s->dir, keep, -1, e);
done:
    vl_aside_drop(aside);
    free(list);
    free(aside);
    free(file);
    vl_buf_free(&text);
    return e->code;
}

void vl_kl_state_close(struct vl_kl_state *s)
{
    if (s->lock >= 0)
        vl_version_unlock(s->lock);
    s->lock = -1;
}
