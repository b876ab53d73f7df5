/* files.c - which files hold a directory's weights. See tensors.h. */
#include "libverl/model/tensors.h"

#include "formats/json.h"
#include "formats/safetensors.h"
#include "libverl/base/fs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INDEX ((size_t)64 << 20)
#define MAX_FILES 100000

static void add_file(struct vl_weight_files *f, const char *dir, const char *name)
{
    f->path = vl_realloc(f->path, sizeof *f->path * (f->n + 1));
    f->path[f->n++] = vl_asprintf("%s/%s", dir, name);
}

/* The distinct files of weight_map, in order of first mention. */
static int read_index(struct vl_weight_files *f, const char *dir, const char *index,
                      struct vl_err *e)
{
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    int64_t map, at;
    char *last = NULL;

    if (vl_fs_read(index, MAX_INDEX, &text, e) || vl_json_parse(&j, text.s, text.n, index, e))
        goto out;
    map = vl_json_get(&j, 0, "weight_map");
    if (map < 0 || !vl_json_is(&j, map, VL_JSON_OBJECT) || !j.node[map].count) {
        vl_fail(e, VL_E_DATA, "%s: expected an object weight_map of tensor names to files", index);
        goto out;
    }
    at = map + 1;
    for (uint32_t k = 0; k < j.node[map].count && !e->code; k++, at = j.node[at + 1].next) {
        char *name = vl_json_strdup(&j, at + 1), *path;
        size_t i = 0;

        if (!name || !*name || strchr(name, '/') || name[0] == '.' || f->n == MAX_FILES) {
            vl_fail(e, VL_E_DATA, "%s: weight_map entry %" PRIu32 " should be a file name in %s",
                    index, k, dir);
        } else if (!last || strcmp(last, name)) {
            path = vl_asprintf("%s/%s", dir, name);
            while (i < f->n && strcmp(f->path[i], path))
                i++;
            if (i == f->n)
                add_file(f, dir, name);
            free(path);
        }
        free(last);
        last = name;
    }
out:
    free(last);
    vl_json_free(&j);
    vl_buf_free(&text);
    return e->code;
}

int vl_weight_files(struct vl_weight_files *f, const char *dir, const char *single,
                    struct vl_err *e)
{
    char *index = vl_asprintf("%s/model.safetensors.index.json", dir);
    int rc = 0;

    *f = (struct vl_weight_files){ 0 };
    if (single)
        add_file(f, dir, single);
    else if (vl_fs_exists(dir, "model.safetensors"))
        add_file(f, dir, "model.safetensors");
    else if (vl_fs_exists(index, NULL))
        rc = read_index(f, dir, index, e);
    else if (vl_fs_exists(dir, "pytorch_model.bin"))
        rc = vl_fail(e, VL_E_DATA,
                     "%s: has pytorch_model.bin only, which is Python pickle; save it as "
                     "model.safetensors with save_pretrained(..., safe_serialization=True)",
                     dir);
    else
        rc = vl_fail(
            e, VL_E_NOINPUT,
            "%s: no weights here: expected model.safetensors or model.safetensors.index.json", dir);
    free(index);
    return rc;
}

void vl_weight_files_free(struct vl_weight_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->path[i]);
    free(f->path);
    *f = (struct vl_weight_files){ 0 };
}

int vl_tensors_probe(const struct vl_weight_files *f, int *value_head, int *value_bias,
                     struct vl_err *e)
{
    *value_head = *value_bias = 0;
    for (size_t i = 0; i < f->n; i++) {
        struct vl_st st;

        if (!vl_st_open(&st, f->path[i], e)) {
            *value_head |=
                vl_st_find(&st, "score.weight") || vl_st_find(&st, "v_head.summary.weight");
            *value_bias |= vl_st_find(&st, "score.bias") || vl_st_find(&st, "v_head.summary.bias");
        }
        vl_st_close(&st);
        if (e->code)
            break;
    }
    return e->code;
}
