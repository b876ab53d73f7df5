/* meta_merge.c - joining meta_info of several batches. See meta_merge.h. */
#include "libverl/batch/meta_merge.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/batch/ops.h"

static int is_counter(const char *key)
{
    return strcmp(key, "metrics") == 0 || strcmp(key, "timing") == 0;
}

/* How far the data had been read: rows of several generation batches have the furthest. */
static int is_position(const char *key)
{
    return strcmp(key, "epoch") == 0 || strcmp(key, "gen_batch") == 0;
}

/* ---- concat ---- */

/* data_counts of verl-data: rows and truncated are the generation batch's own and add up; the others
 * are of all rows of the files, which every batch of a run says alike. */
static int sum_counts(struct vl_buf *t, const char *x, const char *y, struct vl_err *e)
{
    struct vl_json a = { 0 }, b = { 0 };

    if (vl_json_parse(&a, x, strlen(x), "data_counts", e) == 0 &&
        vl_json_parse(&b, y, strlen(y), "data_counts", e) == 0) {
        uint32_t k = 1;

        vl_buf_ch(t, '{');
        for (uint32_t m = 0; m < a.node[0].count && vl_json_is(&a, 0, VL_JSON_OBJECT); m++) {
            char *name = vl_json_name(&a, k);
            uint32_t v = a.node[k].next;
            int64_t p = 0, q = 0;

            (void)vl_json_i64(&a, v, &p);
            (void)vl_json_i64(&b, vl_json_get_as(&b, 0, &a, k), &q);
            vl_buf_str(t, m ? ", " : "");
            vl_json_raw(&a, k, t);
            if (strcmp(name, "rows") == 0 || strcmp(name, "truncated") == 0)
                vl_buf_printf(t, ": %" PRId64, p + q);
            else
                vl_buf_printf(t, ": %" PRId64, p > q ? p : q);
            free(name);
            k = a.node[v].next;
        }
        vl_buf_ch(t, '}');
    }
    vl_json_free(&a);
    vl_json_free(&b);
    return e->code;
}

static const char *of(const struct vl_batch *b, const char *key)
{
    const char *text = vl_meta_get(b, key);

    return text ? text : "";
}

/* Counts of each generation batch once: parts of one batch, as split makes them, have the same. */
static int concat_counts(struct vl_batch *dst, const struct vl_batch *const *part, size_t p,
                         struct vl_err *e)
{
    const char *mine = vl_meta_get(part[p], "data_counts");
    struct vl_buf sum = { 0 };

    for (size_t i = 0; i < p; i++)
        if (strcmp(of(part[i], "data_counts"), mine) == 0 &&
            strcmp(of(part[i], "gen_batch"), of(part[p], "gen_batch")) == 0)
            return 0;
    if (sum_counts(&sum, vl_meta_get(dst, "data_counts"), mine, e) == 0)
        vl_meta_set(dst, "data_counts", sum.s);
    vl_buf_free(&sum);
    return e->code;
}

/* The names of x, then those of y that x has not. */
static int join_names(struct vl_batch *dst, const char *key, const char *more, struct vl_err *e)
{
    const char *have = vl_meta_get(dst, key);
    struct vl_json a = { 0 }, b = { 0 };
    struct vl_buf t = { 0 };

    if (vl_json_parse(&a, have, strlen(have), key, e) == 0 &&
        vl_json_parse(&b, more, strlen(more), key, e) == 0 && vl_json_is(&a, 0, VL_JSON_ARRAY) &&
        vl_json_is(&b, 0, VL_JSON_ARRAY)) {
        uint32_t k = 1;

        vl_buf_add(&t, a.text + a.node[0].at, a.node[0].len - 1);
        for (uint32_t i = 0, n = a.node[0].count; i < b.node[0].count; i++, k = b.node[k].next) {
            uint32_t m = 1, at = 0;

            while (at < a.node[0].count &&
                   (a.node[m].len != b.node[k].len ||
                    memcmp(a.text + a.node[m].at, b.text + b.node[k].at, b.node[k].len) != 0))
                at++, m = a.node[m].next;
            if (at < a.node[0].count)
                continue;
            vl_buf_str(&t, n++ ? "," : "");
            vl_json_raw(&b, k, &t);
        }
        vl_buf_ch(&t, ']');
        vl_meta_set(dst, key, t.s);
    }
    vl_buf_free(&t);
    vl_json_free(&a);
    vl_json_free(&b);
    return e->code;
}

struct series { /* values of one metric: "a,b,c" */
    char *name;
    struct vl_buf values;
};

struct collect {
    struct series *s;
    size_t n;
};

static void collect_free(struct collect *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->s[i].name);
        vl_buf_free(&c->s[i].values);
    }
    free(c->s);
}

static void collect_object(struct collect *c, const struct vl_json *j, uint32_t obj)
{
    uint32_t k = obj + 1;

    for (uint32_t m = 0; m < j->node[obj].count; m++) {
        char *name = vl_json_name(j, k);
        uint32_t v = j->node[k].next;
        size_t i = 0;

        while (i < c->n && strcmp(c->s[i].name, name) != 0)
            i++;
        if (i == c->n) {
            c->s = vl_realloc(c->s, (c->n + 1) * sizeof *c->s);
            c->s[c->n++] = (struct series){ .name = vl_strdup(name) };
        } else {
            vl_buf_ch(&c->s[i].values, ',');
        }
        vl_json_raw(j, v, &c->s[i].values);
        free(name);
        k = j->node[v].next;
    }
}

static int collect_part(struct collect *c, const char *key, const char *text, struct vl_err *e)
{
    struct vl_json j = { 0 };
    uint32_t k = 1;

    if (vl_json_parse(&j, text, strlen(text), key, e)) {
        vl_json_free(&j);
        return e->code;
    }
    if (vl_json_is(&j, 0, VL_JSON_OBJECT)) {
        collect_object(c, &j, 0);
    } else if (vl_json_is(&j, 0, VL_JSON_ARRAY)) {
        for (uint32_t i = 0; i < j.node[0].count; i++, k = j.node[k].next)
            if (vl_json_is(&j, k, VL_JSON_OBJECT))
                collect_object(c, &j, k);
            else
                vl_fail(e, VL_E_DATA, "meta_info key %s: element %u is not an object", key, i);
    } else if (!vl_json_is(&j, 0, VL_JSON_NULL)) {
        vl_fail(e, VL_E_DATA, "meta_info key %s is not an object, a list of objects or null", key);
    }
    vl_json_free(&j);
    return e->code;
}

static int collect_key(struct vl_batch *dst, const char *key, const struct vl_batch *const *part,
                       size_t n, struct vl_err *e)
{
    struct collect c = { 0 };
    struct vl_buf t = { 0 };

    for (size_t p = 0; p < n && !e->code; p++) {
        const char *text = vl_meta_get(part[p], key);

        if (text && collect_part(&c, key, text, e))
            break;
    }
    if (!e->code && c.n) {
        vl_buf_ch(&t, '{');
        for (size_t i = 0; i < c.n; i++) {
            vl_buf_str(&t, i ? "," : "");
            vl_json_put_str(&t, c.s[i].name, strlen(c.s[i].name));
            vl_buf_printf(&t, ":[%s]", c.s[i].values.s);
        }
        vl_buf_ch(&t, '}');
        vl_meta_set(dst, key, t.s);
        vl_buf_free(&t);
    }
    collect_free(&c);
    return e->code;
}

int vl_meta_concat(struct vl_batch *dst, const struct vl_batch *const *part, size_t n,
                   struct vl_err *e)
{
    for (size_t p = 0; p < n; p++)
        for (size_t i = 0; i < part[p]->nmeta; i++) {
            const struct vl_meta_entry *m = &part[p]->meta[i];
            const char *old = vl_meta_get(dst, m->key);

            if (is_counter(m->key)) {
                if (!old && collect_key(dst, m->key, part, n, e))
                    return e->code;
                continue;
            }
            if (old && strcmp(m->key, "data_counts") == 0) {
                if (concat_counts(dst, part, p, e))
                    return e->code;
                continue;
            }
            if (old && strcmp(m->key, "reward_extra_keys") == 0) {
                if (join_names(dst, m->key, m->json, e))
                    return e->code;
                continue;
            }
            if (old && is_position(m->key)) {
                if (strtoll(m->json, NULL, 10) > strtoll(old, NULL, 10))
                    vl_meta_set(dst, m->key, m->json);
                continue;
            }
            if (old && !vl_json_equal(old, strlen(old), m->json, strlen(m->json), 0))
                return vl_fail(
                    e, VL_E_DATA,
                    "concat: conflicting values for meta_info key %s: %.100s, and %.100s "
                    "in part %zu",
                    m->key, old, m->json, p);
            if (!old)
                vl_meta_set(dst, m->key, m->json);
        }
    return 0;
}

/* ---- unite ---- */

static int merge(struct vl_buf *out, const struct vl_json *a, uint32_t i, const struct vl_json *b,
                 uint32_t k, const char *key, int take_b, struct vl_err *e);

/* {a's members, merged with b's of that name, then b's further ones} */
static int merge_objects(struct vl_buf *out, const struct vl_json *a, uint32_t i,
                         const struct vl_json *b, uint32_t k, const char *key, int take_b,
                         struct vl_err *e)
{
    uint32_t m = i + 1, any = 0;

    vl_buf_ch(out, '{');
    for (uint32_t c = 0; c < a->node[i].count; c++, any = 1) {
        char *name = vl_json_name(a, m), *full = vl_asprintf("%s.%s", key, name);
        uint32_t v = a->node[m].next;
        int64_t w = vl_json_get_as(b, k, a, m);
        int rc = 0;

        vl_buf_str(out, any ? "," : "");
        vl_json_raw(a, m, out);
        vl_buf_ch(out, ':');
        if (w < 0)
            vl_json_raw(a, v, out);
        else
            rc = merge(out, a, v, b, (uint32_t)w, full, take_b, e);
        free(name);
        free(full);
        if (rc)
            return rc;
        m = a->node[v].next;
    }
    m = k + 1;
    for (uint32_t c = 0; c < b->node[k].count; c++) {
        uint32_t v = b->node[m].next;

        if (vl_json_get_as(a, i, b, m) < 0) {
            vl_buf_str(out, any ? "," : "");
            vl_json_raw(b, m, out);
            vl_buf_ch(out, ':');
            vl_json_raw(b, v, out);
            any = 1;
        }
        m = b->node[v].next;
    }
    vl_buf_ch(out, '}');
    return 0;
}

static int merge(struct vl_buf *out, const struct vl_json *a, uint32_t i, const struct vl_json *b,
                 uint32_t k, const char *key, int take_b, struct vl_err *e)
{
    struct vl_buf x = { 0 }, y = { 0 };

    if (vl_json_is(a, i, VL_JSON_OBJECT) && vl_json_is(b, k, VL_JSON_OBJECT))
        return merge_objects(out, a, i, b, k, key, take_b, e);
    vl_json_raw(a, i, &x);
    vl_json_raw(b, k, &y);
    if (!take_b && !vl_json_equal(x.s, x.n, y.s, y.n, 0))
        vl_fail(e, VL_E_DATA,
                "meta_info key %s is %.100s, but %.100s in the inputs before it; correct one with "
                "verl-batch set-meta",
                key, y.s, x.s);
    vl_buf_add(out, take_b ? y.s : x.s, take_b ? y.n : x.n);
    vl_buf_free(&x);
    vl_buf_free(&y);
    return e->code;
}

static int unite_key(struct vl_batch *out, const char *key, const char *x, const char *y,
                     struct vl_err *e)
{
    struct vl_json a = { 0 }, b = { 0 };
    struct vl_buf t = { 0 };

    if (vl_json_parse(&a, x, strlen(x), key, e) == 0 &&
        vl_json_parse(&b, y, strlen(y), key, e) == 0 &&
        merge(&t, &a, 0, &b, 0, key, is_counter(key), e) == 0)
        vl_meta_set(out, key, t.s);
    vl_buf_free(&t);
    vl_json_free(&a);
    vl_json_free(&b);
    return e->code;
}

int vl_meta_unite(struct vl_batch *out, const struct vl_batch *a, const struct vl_batch *b,
                  struct vl_err *e)
{
    for (size_t i = 0; i < a->nmeta; i++) {
        const char *key = a->meta[i].key, *y = vl_meta_get(b, key);

        if (!y)
            vl_meta_set(out, key, a->meta[i].json);
        else if (unite_key(out, key, a->meta[i].json, y, e))
            return e->code;
    }
    for (size_t i = 0; i < b->nmeta; i++)
        if (!vl_meta_get(out, b->meta[i].key))
            vl_meta_set(out, b->meta[i].key, b->meta[i].json);
    return 0;
}
