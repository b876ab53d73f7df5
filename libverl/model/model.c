/* model.c - the slab's layout and opening a model directory. See model.h.
 *
 * The layout is one list in one order (below). Everything else, file names included, is derived from
 * it, so a new architecture is a change here, in config.c and in the engine. */
#include "libverl/model/model.h"

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/model/tensors.h"
#include "libverl/model/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MAX_JSON ((size_t)16 << 20)

static void add(struct vl_model *m, int64_t layer, const char *name, int64_t rows, int64_t cols,
                int decay)
{
    struct vl_param *p = &m->param[m->nparam++];

    if (layer >= 0)
        snprintf(p->name, sizeof p->name, "layers.%" PRId64 ".%s", layer, name);
    else
        snprintf(p->name, sizeof p->name, "%s", name);
    p->rows = rows, p->cols = cols, p->decay = decay;
    p->offset = m->count;
    m->count += (rows * cols + 15) / 16 * 16;
}

/* Matrices (out, in). q, k, v and gate, up are rows of one matrix each, in that order. */
static void add_layer(struct vl_model *m, int64_t i)
{
    const struct vl_config *c = &m->cfg;
    int64_t qkv = (c->H + 2 * c->K) * c->D;

    add(m, i, "attn_norm", 1, c->C, 0);
    add(m, i, "qkv", qkv, c->C, 1);
    if (c->qkv_bias)
        add(m, i, "qkv_bias", 1, qkv, 0);
    if (c->qk_norm) {
        add(m, i, "q_norm", 1, c->D, 0);
        add(m, i, "k_norm", 1, c->D, 0);
    }
    add(m, i, "o", c->C, c->H * c->D, 1);
    if (c->o_bias)
        add(m, i, "o_bias", 1, c->C, 0);
    add(m, i, "mlp_norm", 1, c->C, 0);
    add(m, i, "gate_up", 2 * c->F, c->C, 1);
    if (c->mlp_bias)
        add(m, i, "gate_up_bias", 1, 2 * c->F, 0);
    add(m, i, "down", c->C, c->F, 1);
    if (c->mlp_bias)
        add(m, i, "down_bias", 1, c->C, 0);
}

void vl_model_layout(struct vl_model *m)
{
    const struct vl_config *c = &m->cfg;

    free(m->param);
    m->param = vl_alloc(sizeof *m->param * (size_t)(13 * c->L + 5));
    m->nparam = m->count = 0;
    add(m, -1, "embed", c->V, c->C, 1);
    for (int64_t i = 0; i < c->L; i++)
        add_layer(m, i);
    add(m, -1, "norm", 1, c->C, 0);
    if (c->head == VL_HEAD_VALUE) {
        add(m, -1, "value_head", 1, c->C, 1);
        if (c->value_bias)
            add(m, -1, "value_head_bias", 1, 1, 0);
    } else if (!c->tied) {
        add(m, -1, "head", c->V, c->C, 1);
    }
}

int64_t vl_model_parameters(const struct vl_model *m)
{
    int64_t n = 0;

    for (int64_t i = 0; i < m->nparam; i++)
        n += m->param[i].rows * m->param[i].cols;
    return n;
}

const struct vl_param *vl_model_param(const struct vl_model *m, const char *name)
{
    for (int64_t i = 0; i < m->nparam; i++)
        if (!strcmp(m->param[i].name, name))
            return &m->param[i];
    return NULL;
}

/* Hugging Face's names of a parameter's parts; rows of each part, -1 the rest. */
static const struct part {
    const char *ours, *theirs;
    int which; /* 0: all of it, 1 2 3: q k v, 4 5: gate up */
} part_table[] = {
    { "attn_norm", "input_layernorm.weight", 0 },
    { "qkv", "self_attn.q_proj.weight", 1 },
    { "qkv", "self_attn.k_proj.weight", 2 },
    { "qkv", "self_attn.v_proj.weight", 3 },
    { "qkv_bias", "self_attn.q_proj.bias", 1 },
    { "qkv_bias", "self_attn.k_proj.bias", 2 },
    { "qkv_bias", "self_attn.v_proj.bias", 3 },
    { "q_norm", "self_attn.q_norm.weight", 0 },
    { "k_norm", "self_attn.k_norm.weight", 0 },
    { "o", "self_attn.o_proj.weight", 0 },
    { "o_bias", "self_attn.o_proj.bias", 0 },
    { "mlp_norm", "post_attention_layernorm.weight", 0 },
    { "gate_up", "mlp.gate_proj.weight", 4 },
    { "gate_up", "mlp.up_proj.weight", 5 },
    { "gate_up_bias", "mlp.gate_proj.bias", 4 },
    { "gate_up_bias", "mlp.up_proj.bias", 5 },
    { "down", "mlp.down_proj.weight", 0 },
    { "down_bias", "mlp.down_proj.bias", 0 },
    { "embed", "model.embed_tokens.weight", 0 },
    { "norm", "model.norm.weight", 0 },
    { "head", "lm_head.weight", 0 },
    { "value_head", "score.weight", 0 },
    { "value_head_bias", "score.bias", 0 },
};

static void part_range(const struct vl_config *c, int which, int64_t all, int64_t *first,
                       int64_t *n)
{
    int64_t q = c->H * c->D, kv = c->K * c->D;

    *first = which == 2 ? q : which == 3 ? q + kv : which == 5 ? c->F : 0;
    *n = which == 1 ? q : which == 2 || which == 3 ? kv : which >= 4 ? c->F : all;
}

struct vl_piece *vl_model_pieces(const struct vl_model *m, int64_t *n)
{
    struct vl_piece *out = vl_alloc(sizeof *out * (size_t)(m->nparam * 3)), *o = out;

    for (int64_t i = 0; i < m->nparam; i++) {
        const struct vl_param *p = &m->param[i];
        const char *dot = strncmp(p->name, "layers.", 7) ? NULL : strrchr(p->name, '.');
        const char *base = dot ? dot + 1 : p->name;
        /* value_head is a matrix of one row; every other single row is a vector */
        int vector = p->rows == 1 && strcmp(base, "value_head") != 0;

        for (size_t k = 0; k < sizeof part_table / sizeof *part_table; k++) {
            const struct part *t = &part_table[k];
            int64_t first, len;

            if (strcmp(t->ours, base))
                continue;
            part_range(&m->cfg, t->which, vector ? p->cols : p->rows, &first, &len);
            if (dot)
                snprintf(o->name, sizeof o->name, "model.%.*s.%s", (int)(dot - p->name), p->name,
                         t->theirs);
            else
                snprintf(o->name, sizeof o->name, "%s", t->theirs);
            o->ndim = vector ? 1 : 2;
            o->shape[0] = len, o->shape[1] = p->cols;
            o->at = p->offset + first * (vector ? 1 : p->cols);
            o->n = len * (vector ? 1 : p->cols);
            o++;
        }
    }
    *n = o - out;
    return out;
}

XXH3_state_t *vl_hash_new(void)
{
    XXH3_state_t *h = XXH3_createState();

    if (!h)
        vl_oom(1024);
    XXH3_128bits_reset(h);
    return h;
}

void vl_hash_param(XXH3_state_t *h, const struct vl_param *p)
{
    int64_t shape[2] = { p->rows, p->cols };

    XXH3_128bits_update(h, p->name, strlen(p->name) + 1);
    XXH3_128bits_update(h, shape, sizeof shape);
}

void vl_hash_end(XXH3_state_t *h, char hex[33])
{
    XXH128_hash_t sum = XXH3_128bits_digest(h);

    XXH3_freeState(h);
    snprintf(hex, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)sum.high64, (uint64_t)sum.low64);
}

void vl_tensors_hash(const struct vl_model *m, const float *slab, char hex[33])
{
    XXH3_state_t *h = vl_hash_new();

    for (int64_t i = 0; i < m->nparam; i++) {
        const struct vl_param *p = &m->param[i];

        vl_hash_param(h, p);
        XXH3_128bits_update(h, slab + p->offset, (size_t)(p->rows * p->cols) * 4);
    }
    vl_hash_end(h, hex);
}

void vl_model_hash(struct vl_model *m)
{
    vl_tensors_hash(m, m->slab, m->hash);
}

/* A token id at j[at]; -1 and null are none. Anything else (a string, 2.5) would be a stop id or
 * padding silently left out. */
static int read_id(const struct vl_json *j, int64_t at, const char *key, const char *name,
                   int64_t *id, struct vl_err *e)
{
    struct vl_buf raw = { 0 };

    *id = -1;
    if (at < 0 || vl_json_is(j, at, VL_JSON_NULL) ||
        (vl_json_i64(j, at, id) && *id >= -1 && *id <= INT32_MAX))
        return 0;
    vl_json_raw(j, at, &raw);
    vl_fail(e, VL_E_DATA, "%s: %s is %.80s; expected a token id, such as 2%s", name, key, raw.s,
            !strcmp(key, "eos_token_id") ? ", or a list of ids" : "");
    vl_buf_free(&raw);
    return e->code;
}

/* Adds the id or ids of eos_token_id, each once. */
static int add_stops(struct vl_model *m, const struct vl_json *j, const char *name,
                     struct vl_err *e)
{
    int64_t at = vl_json_get(j, 0, "eos_token_id"), v;
    uint32_t n = 1;

    if (at >= 0 && vl_json_is(j, at, VL_JSON_ARRAY))
        n = j->node[at].count, at++;
    for (uint32_t k = 0; at >= 0 && k < n; k++, at = j->node[at].next) {
        int known;

        if (read_id(j, at, "eos_token_id", name, &v, e))
            return e->code;
        known = v < 0;
        for (int64_t i = 0; i < m->nstop && !known; i++)
            known = m->stop_ids[i] == (int32_t)v;
        if (known)
            continue;
        m->stop_ids = vl_realloc(m->stop_ids, sizeof(int32_t) * (size_t)(m->nstop + 1));
        m->stop_ids[m->nstop++] = (int32_t)v;
    }
    return 0;
}

static int read_ids(struct vl_model *m, const char *text, const char *name, struct vl_err *e)
{
    struct vl_json j;

    if (!vl_json_parse(&j, text, strlen(text), name, e) && !add_stops(m, &j, name, e)) {
        if (m->bos_id < 0 &&
            read_id(&j, vl_json_get(&j, 0, "bos_token_id"), "bos_token_id", name, &m->bos_id, e))
            vl_err_prefix(e, "reading token ids");
        else if (m->pad_id < 0 && read_id(&j, vl_json_get(&j, 0, "pad_token_id"), "pad_token_id",
                                          name, &m->pad_id, e))
            vl_err_prefix(e, "reading token ids");
    }
    vl_json_free(&j);
    return e->code;
}

static int read_configs(struct vl_model *m, struct vl_err *e)
{
    char *path = vl_asprintf("%s/config.json", m->dir);
    char *gen = vl_asprintf("%s/generation_config.json", m->dir);
    struct vl_buf b = { 0 }, g = { 0 };

    m->bos_id = m->pad_id = -1;
    if (vl_fs_exists(m->dir, "generation_config.json") && !vl_fs_read(gen, MAX_JSON, &g, e)) {
        m->generation_json = vl_buf_detach(&g);
        if (read_ids(m, m->generation_json, gen, e))
            goto out;
    }
    if (vl_fs_read(path, MAX_JSON, &b, e) || vl_config_parse(&m->cfg, b.s, b.n, path, e) ||
        read_ids(m, m->cfg.json, path, e))
        goto out;
out:
    vl_buf_free(&b);
    vl_buf_free(&g);
    free(path);
    free(gen);
    return e->code;
}

/* Settles which head is meant: what the caller asked for, what the directory holds. */
static int settle_head(struct vl_model *m, enum vl_head want, struct vl_err *e)
{
    int has = 0, bias = 0;

    if (m->files.n && vl_tensors_probe(&m->files, &has, &bias, e))
        return e->code;
    if (want == VL_HEAD_LM && (has || m->cfg.head == VL_HEAD_VALUE))
        return vl_fail(e, VL_E_DATA,
                       "%s: holds a value head (a critic or a reward model), where a language "
                       "model is expected",
                       m->dir);
    if (want == VL_HEAD_REWARD && !has)
        return vl_fail(
            e, VL_E_DATA,
            "%s: holds no score.weight, where a reward model (...ForSequenceClassification "
            "or ...ForTokenClassification with one label) is expected",
            m->dir);
    if (want == VL_HEAD_VALUE)
        m->cfg.sequence = 0;
    if (want == VL_HEAD_REWARD)
        want = VL_HEAD_VALUE;
    if (want == VL_HEAD_AUTO)
        want = has ? VL_HEAD_VALUE : m->cfg.head;
    m->added = want != VL_HEAD_VALUE || has   ? VL_ADDED_NONE
               : m->cfg.head == VL_HEAD_VALUE ? VL_ADDED_TO_VALUE
                                              : VL_ADDED_TO_LM;
    m->cfg.head = want;
    m->cfg.value_bias = bias;
    return 0;
}

static int find_files(struct vl_model *m, struct vl_err *e)
{
    const char *single = "params.safetensors"; /* of a train state */

    return vl_weight_files(&m->files, m->dir, vl_fs_exists(m->dir, single) ? single : NULL, e);
}

/* A value head added just now makes other weights than the recorded ones, and leaves lm_head out:
 * what is stored is checked as the language model that it is. */
static int check_as_lm(const struct vl_model *m, struct vl_err *e)
{
    struct vl_model *lm;

    if (!vl_model_open(&lm, m->dir, VL_HEAD_LM, 0, e))
        (void)!vl_model_read(lm, NULL, e);
    vl_model_free(lm);
    return e->code;
}

int vl_model_read(struct vl_model *m, const struct vl_sink *to, struct vl_err *e)
{
    char recorded[33];

    memcpy(recorded, m->hash, sizeof recorded);
    if ((m->added == VL_ADDED_TO_LM && recorded[0] && check_as_lm(m, e)) ||
        (!m->files.n && find_files(m, e)) ||
        vl_tensors_read(m, &m->files, to, m->hash, &m->stored_dtype, e))
        return e->code;
    if (recorded[0] && m->added == VL_ADDED_NONE && strcmp(recorded, m->hash))
        return vl_fail(e, VL_E_DATA,
                       "%s: weights have hash %s but the version's record says %s: damaged", m->dir,
                       m->hash, recorded);
    return 0;
}

static int read_slab(struct vl_model *m, struct vl_err *e)
{
    struct vl_slab slab = { .m = m };
    char *what = vl_asprintf("%s, %.1f M weights as fp32", m->dir, (double)m->count * 1e-6);
    int rc = vl_try_alloc(&m->slab, (size_t)m->count, sizeof(float), what, e);

    free(what);
    if (rc)
        return rc;
    slab.x = m->slab;
    return vl_model_read(m, &(struct vl_sink){ .put = vl_slab_put, .arg = &slab }, e);
}

int vl_model_plan(struct vl_model **out, const char *config, const char *name, enum vl_head head,
                  struct vl_err *e)
{
    struct vl_model *m = vl_alloc(sizeof *m);

    *out = m;
    m->stored_dtype = "F32";
    m->bos_id = m->pad_id = -1;
    if (!vl_config_parse(&m->cfg, config, strlen(config), name, e) &&
        !read_ids(m, m->cfg.json, name, e)) {
        if (head != VL_HEAD_AUTO) {
            m->cfg.head = head == VL_HEAD_LM ? VL_HEAD_LM : VL_HEAD_VALUE;
            m->cfg.sequence = head == VL_HEAD_REWARD;
        }
        vl_model_layout(m);
        return 0;
    }
    vl_model_free(m);
    *out = NULL;
    return e->code;
}

int vl_model_new(struct vl_model **out, const char *config, const char *name, enum vl_head head,
                 struct vl_err *e)
{
    if (!vl_model_plan(out, config, name, head, e) &&
        vl_try_alloc(&(*out)->slab, (size_t)(*out)->count, sizeof(float), name, e)) {
        vl_model_free(*out);
        *out = NULL;
    }
    return e->code;
}

int vl_model_open(struct vl_model **out, const char *path, enum vl_head head, int want_weights,
                  struct vl_err *e)
{
    struct vl_model *m = vl_alloc(sizeof *m);

    *out = m;
    m->stored_dtype = "F32";
    if (vl_version_resolve(path, &m->dir, e) || read_configs(m, e) || vl_version_read(m, e))
        goto out;
    if ((want_weights || vl_fs_exists(m->dir, "params.safetensors") ||
         vl_fs_exists(m->dir, "model.safetensors") ||
         vl_fs_exists(m->dir, "model.safetensors.index.json")) &&
        find_files(m, e))
        goto out;
    if (settle_head(m, head, e))
        goto out;
    vl_model_layout(m);
    if (want_weights && read_slab(m, e))
        goto out;
out:
    if (e->code) {
        vl_model_free(m);
        *out = NULL;
    }
    return e->code;
}

void vl_model_free(struct vl_model *m)
{
    if (!m)
        return;
    vl_config_free(&m->cfg);
    vl_weight_files_free(&m->files);
    free(m->param);
    free(m->slab);
    free(m->dir);
    free(m->version);
    free(m->stop_ids);
    free(m->generation_json);
    free(m->source_hash);
    free(m);
}
