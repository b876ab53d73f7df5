/* meta.c - meta_info: ordered names with JSON texts. See batch.h.
 *
 * Values stay the text they came as, so that 1 and 1.0 and 30-digit integers survive every stage. */
#include "libverl/batch/batch.h"

#include <stdlib.h>
#include <string.h>

#include "formats/json.h"

static struct vl_meta_entry *find(const struct vl_batch *b, const char *key)
{
    for (size_t i = 0; i < b->nmeta; i++)
        if (strcmp(b->meta[i].key, key) == 0)
            return &b->meta[i];
    return NULL;
}

const char *vl_meta_get(const struct vl_batch *b, const char *key)
{
    const struct vl_meta_entry *m = find(b, key);

    return m ? m->json : NULL;
}

void vl_meta_set(struct vl_batch *b, const char *key, const char *json)
{
    struct vl_meta_entry *m = find(b, key);
    char *copy = vl_strdup(json); /* first: json may be the entry's own text */

    if (!m) {
        b->meta = vl_realloc(b->meta, (b->nmeta + 1) * sizeof *b->meta);
        m = &b->meta[b->nmeta++];
        m->key = vl_strdup(key);
    } else {
        free(m->json);
    }
    m->json = copy;
}

void vl_meta_del(struct vl_batch *b, const char *key)
{
    struct vl_meta_entry *m = find(b, key);

    if (!m)
        return;
    free(m->key);
    free(m->json);
    memmove(m, m + 1, (size_t)(b->meta + b->nmeta - m - 1) * sizeof *m);
    b->nmeta--;
}

/* Parses a value; 1 when there and whole. The caller frees j either way. */
static int parse(const struct vl_batch *b, const char *key, struct vl_json *j)
{
    const char *text = vl_meta_get(b, key);
    struct vl_err e = { 0 };

    *j = (struct vl_json){ 0 };
    return text && vl_json_parse(j, text, strlen(text), key, &e) == 0;
}

int vl_meta_f64(const struct vl_batch *b, const char *key, double *out)
{
    struct vl_json j;
    int got = parse(b, key, &j) && vl_json_f64(&j, 0, out);

    vl_json_free(&j);
    return got;
}

int vl_meta_i64(const struct vl_batch *b, const char *key, int64_t *out)
{
    struct vl_json j;
    int got = parse(b, key, &j) && vl_json_i64(&j, 0, out);

    vl_json_free(&j);
    return got;
}

char *vl_meta_str(const struct vl_batch *b, const char *key)
{
    struct vl_json j;
    char *s = parse(b, key, &j) ? vl_json_strdup(&j, 0) : NULL;

    vl_json_free(&j);
    return s;
}

void vl_meta_set_f64(struct vl_batch *b, const char *key, double x)
{
    struct vl_buf t = { 0 };

    vl_json_put_f64(&t, x);
    vl_meta_set(b, key, t.s);
    vl_buf_free(&t);
}

void vl_meta_set_i64(struct vl_batch *b, const char *key, int64_t x)
{
    struct vl_buf t = { 0 };

    vl_json_put_i64(&t, x);
    vl_meta_set(b, key, t.s);
    vl_buf_free(&t);
}

void vl_meta_set_str(struct vl_batch *b, const char *key, const char *s)
{
    struct vl_buf t = { 0 };

    vl_json_put_str(&t, s, strlen(s));
    vl_meta_set(b, key, t.s);
    vl_buf_free(&t);
}

void vl_meta_metric(struct vl_batch *b, const char *name, double x)
{
    struct vl_buf t = { 0 };
    struct vl_json j;
    int any = 0, there = 0;

    vl_buf_ch(&t, '{');
    if (parse(b, "metrics", &j) && vl_json_is(&j, 0, VL_JSON_OBJECT)) {
        uint32_t k = 1;

        for (uint32_t i = 0; i < j.node[0].count; i++, any = 1) {
            uint32_t v = j.node[k].next;
            int same = vl_json_streq(&j, k, name);

            if (any)
                vl_buf_ch(&t, ',');
            vl_json_raw(&j, k, &t);
            vl_buf_ch(&t, ':');
            if (same)
                vl_json_put_f64(&t, x);
            else
                vl_json_raw(&j, v, &t);
            there |= same;
            k = j.node[v].next;
        }
    }
    vl_json_free(&j);
    if (!there) {
        if (any)
            vl_buf_ch(&t, ',');
        vl_json_put_str(&t, name, strlen(name));
        vl_buf_ch(&t, ':');
        vl_json_put_f64(&t, x);
    }
    vl_buf_ch(&t, '}');
    vl_meta_set(b, "metrics", t.s);
    vl_buf_free(&t);
}
