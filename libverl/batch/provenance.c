/* provenance.c - the provenance graph. See provenance.h. */
#include "libverl/batch/provenance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dp.h"
#include "formats/json.h"
#include "libverl/batch/ops.h"

/* Adds `"key":value` to an object that is being written ("{" first). */
static void put_member(struct vl_buf *t, const char *key, const char *value, size_t n)
{
    vl_buf_str(t, t->n > 1 ? "," : "");
    vl_json_put_str(t, key, strlen(key));
    vl_buf_ch(t, ':');
    vl_buf_add(t, value, n);
}

/* Copies a graph's nodes into t, but those in `skip` (parsed, may be NULL) or named so. */
static void put_nodes(struct vl_buf *t, const char *graph, const struct vl_json *skip,
                      const struct vl_batch *leave)
{
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    uint32_t k = 1;

    if (graph && vl_json_parse(&j, graph, strlen(graph), "provenance", &e) == 0 &&
        vl_json_is(&j, 0, VL_JSON_OBJECT))
        for (uint32_t i = 0; i < j.node[0].count; i++) {
            char *key = vl_json_strdup(&j, k);
            uint32_t v = j.node[k].next;
            int out = skip && vl_json_get(skip, 0, key) >= 0;
            struct vl_buf raw = { 0 };

            for (size_t p = 0; leave && p < leave->nparent; p++)
                out |= strcmp(leave->parent[p], key) == 0;
            if (!out) {
                vl_json_raw(&j, v, &raw);
                put_member(t, key, raw.s, raw.n);
            }
            vl_buf_free(&raw);
            free(key);
            k = j.node[v].next;
        }
    vl_json_free(&j);
}

char *vl_prov_merge(const char *a, const char *b)
{
    struct vl_buf t = { 0 };
    struct vl_json have = { 0 };
    struct vl_err e = { 0 };

    if (!a || !b || strcmp(a, b) == 0)
        return vl_strdup(a ? a : b);
    vl_buf_ch(&t, '{');
    put_nodes(&t, a, NULL, NULL);
    if (vl_json_parse(&have, a, strlen(a), "provenance", &e) == 0)
        put_nodes(&t, b, &have, NULL);
    else
        put_nodes(&t, b, NULL, NULL);
    vl_json_free(&have);
    vl_buf_ch(&t, '}');
    return vl_buf_detach(&t);
}

static void put_text(struct vl_buf *t, const char *key, const char *s)
{
    struct vl_buf v = { 0 };

    vl_json_put_str(&v, s, strlen(s));
    put_member(t, key, v.s, v.n);
    vl_buf_free(&v);
}

static void put_node(struct vl_buf *t, const struct vl_batch *b, const struct vl_prov *p)
{
    struct vl_buf v = { 0 };
    char seed[24];

    vl_buf_ch(t, '{');
    put_text(t, "program", p->program);
    put_text(t, "version", p->version);
    if (p->options)
        put_member(t, "options", p->options, strlen(p->options));
    if (p->seed != INT64_MIN)
        put_member(t, "seed", seed, (size_t)snprintf(seed, sizeof seed, "%" PRId64, p->seed));
    if (p->weight_version)
        put_text(t, "weight_version", p->weight_version);
    vl_buf_ch(&v, '[');
    for (size_t i = 0; i < b->nparent; i++)
        vl_buf_printf(&v, "%s\"%s\"", i ? "," : "", b->parent[i]);
    vl_buf_ch(&v, ']');
    put_member(t, "parents", v.s, v.n);
    vl_buf_ch(t, '}');
    vl_buf_free(&v);
}

int vl_prov_add(struct vl_batch *b, const struct vl_prov *p, struct vl_err *e)
{
    struct vl_buf t = { 0 }, node = { 0 };
    char hash[33];

    if (vl_dp_hash(b, hash, e))
        return e->code;
    for (size_t i = 0; i < b->nparent; i++)
        if (strcmp(b->parent[i], hash) == 0)
            return 0;
    put_node(&node, b, p);
    vl_buf_ch(&t, '{');
    put_nodes(&t, b->provenance, NULL, NULL);
    put_member(&t, hash, node.s, node.n);
    vl_buf_ch(&t, '}');
    vl_buf_free(&node);
    free(b->provenance);
    b->provenance = vl_buf_detach(&t);
    b->nparent = 0;
    vl_batch_add_parent(b, hash);
    return 0;
}

/* The text of a document's own node; caller frees; NULL when it has none. */
static char *own_node(const struct vl_batch *b)
{
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    struct vl_buf t = { 0 };
    char *text = NULL;

    if (b->nparent == 1 && b->provenance &&
        vl_json_parse(&j, b->provenance, strlen(b->provenance), "provenance", &e) == 0) {
        int64_t i = vl_json_get(&j, 0, b->parent[0]);

        if (i >= 0) {
            vl_json_raw(&j, i, &t);
            text = vl_buf_detach(&t);
        }
    }
    vl_json_free(&j);
    return text;
}

int vl_prov_join_stream(struct vl_batch *dst, const struct vl_batch *doc, size_t n,
                        struct vl_err *e)
{
    const struct vl_batch **part;
    char *node = n ? own_node(&doc[0]) : NULL, hash[33];
    int one = node != NULL, rc;

    if (!n)
        return 0;
    part = vl_alloc(n * sizeof *part);
    for (size_t i = 0; i < n; i++) {
        char *other = own_node(&doc[i]);

        part[i] = &doc[i];
        one = one && other && strcmp(node, other) == 0;
        free(other);
    }
    rc = n == 1 ? vl_batch_clone(dst, part[0], e) : vl_batch_concat(dst, part, n, e);
    free(part);
    if (!rc && n > 1 && one) {
        rc = vl_dp_hash(dst, hash, e);
        if (!rc) {
            struct vl_buf t = { 0 };

            vl_buf_ch(&t, '{');
            put_nodes(&t, dst->provenance, NULL, dst);
            put_member(&t, hash, node, strlen(node));
            vl_buf_ch(&t, '}');
            free(dst->provenance);
            dst->provenance = vl_buf_detach(&t);
            dst->nparent = 0;
            vl_batch_add_parent(dst, hash);
        }
    }
    free(node);
    return rc;
}
