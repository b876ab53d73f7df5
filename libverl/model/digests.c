/* digests.c - digests.json: bytes and XXH3-128 of a version's text files. See version.h.
 *
 * Weights and moments have their hashes in the record; but a flipped bit in the record's step count
 * or in config.json's rope_theta would train on without a word. What is not listed is not looked at,
 * so a file can be laid beside; what is listed must be there as it was. */
#include "libverl/model/version.h"

#include "formats/json.h"
#include "libverl/base/fs.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define NAME     "digests.json"
#define MAX_TEXT ((size_t)1 << 30) /* tokenizer.json is the largest */

static void digest(char hex[33], const struct vl_buf *b)
{
    XXH128_hash_t h = XXH3_128bits(b->s, b->n);

    snprintf(hex, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64, (uint64_t)h.low64);
}

static int listed(const struct dirent *f)
{
    size_t n = strlen(f->d_name), m = strlen(".safetensors");

    return f->d_name[0] != '.' && strcmp(f->d_name, NAME) &&
           (n < m || strcmp(f->d_name + n - m, ".safetensors"));
}

static int add_file(struct vl_buf *out, const char *dir, const char *name, struct vl_err *e)
{
    char *path = vl_asprintf("%s/%s", dir, name), hex[33];
    struct vl_buf text = { 0 };
    struct stat st;

    if (!stat(path, &st) && S_ISREG(st.st_mode) && !vl_fs_read(path, MAX_TEXT, &text, e)) {
        digest(hex, &text);
        vl_buf_str(out, out->n > 1 ? ",\n  " : "\n  ");
        vl_json_put_str(out, name, strlen(name));
        vl_buf_printf(out, ": [%zu, \"%s\"]", text.n, hex);
    }
    vl_buf_free(&text);
    free(path);
    return e->code;
}

int vl_digests_write(const char *dir, struct vl_err *e)
{
    struct dirent **f;
    struct vl_buf out = { 0 };
    int n = scandir(dir, &f, listed, alphasort);
    char *path;

    if (n < 0)
        return vl_fail_errno(e, VL_E_IO, "%s: cannot read the directory", dir);
    if (!vl_fs_exists(dir, NAME)) {
        vl_buf_ch(&out, '{');
        for (int i = 0; i < n && !e->code; i++)
            (void)!add_file(&out, dir, f[i]->d_name, e);
        vl_buf_str(&out, "\n}\n");
        path = vl_asprintf("%s/" NAME, dir);
        if (!e->code && vl_fs_write(path, out.s, out.n, e))
            vl_err_prefix(e, "listing the files of a version");
        free(path);
    }
    for (int i = 0; i < n; i++)
        free(f[i]);
    free(f);
    vl_buf_free(&out);
    return e->code;
}

/* One member: "NAME": [BYTES, "HASH"]. */
static int check_file(const char *dir, const struct vl_json *j, int64_t key, struct vl_err *e)
{
    char *name = vl_json_strdup(j, key), *want = vl_json_strdup(j, vl_json_at(j, key + 1, 1));
    char *path = vl_asprintf("%s/%s", dir, name ? name : ""), hex[33] = "";
    struct vl_buf text = { 0 };
    int64_t bytes = -1;

    if (!name || strchr(name, '/') || !want || !vl_json_i64(j, vl_json_at(j, key + 1, 0), &bytes)) {
        vl_fail(e, VL_E_DATA,
                "%s/" NAME ": expected \"FILE\": [bytes, \"hash\"] for each file: damaged", dir);
    } else if (vl_fs_read(path, MAX_TEXT, &text, e)) {
        e->code = VL_E_DATA; /* a version without one of its files is damaged */
    } else {
        digest(hex, &text);
        if ((int64_t)text.n != bytes || strcmp(hex, want))
            vl_fail(e, VL_E_DATA,
                    "%s: has %zu bytes of hash %s, but " NAME " says %" PRId64
                    " bytes of hash %s: damaged (remove " NAME " if it was changed on purpose)",
                    path, text.n, hex, bytes, want);
    }
    vl_buf_free(&text);
    free(path);
    free(name);
    free(want);
    return e->code;
}

int vl_digests_check(const char *dir, struct vl_err *e)
{
    char *path = vl_asprintf("%s/" NAME, dir);
    struct vl_buf text = { 0 };
    struct vl_json j = { 0 };
    int64_t at = 1;

    if (!vl_fs_exists(path, NULL) || vl_fs_read(path, MAX_TEXT, &text, e) ||
        vl_json_parse(&j, text.s, text.n, path, e))
        goto out;
    if (!vl_json_is(&j, 0, VL_JSON_OBJECT))
        vl_fail(e, VL_E_DATA, "%s: expected an object: damaged", path);
    for (uint32_t k = 0; !e->code && k < j.node[0].count; k++, at = j.node[at + 1].next)
        if (check_file(dir, &j, at, e))
            break;
out:
    vl_json_free(&j);
    vl_buf_free(&text);
    free(path);
    return e->code;
}
