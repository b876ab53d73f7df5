/* model_tool.c - verl-model: init, hash, checkpoints, and which command is meant. See model_tool.h. */
#include "libverl/run/model_tool.h"

#include "formats/json.h"
#include "libverl/base/aside.h"
#include "libverl/base/fs.h"
#include "libverl/model/checkpoint.h"
#include "libverl/model/tensors.h"
#include "libverl/model/version.h"
#include "libverl/text/tok.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_JSON ((size_t)16 << 20)

int vl_dir_begin(const char *dir, char **aside, struct vl_err *e)
{
    size_t n = strlen(dir);
    char *clean;

    *aside = NULL;
    while (n > 1 && dir[n - 1] == '/')
        n--;
    clean = vl_strndup(dir, n);
    if (vl_fs_exists(clean, NULL) && rmdir(clean)) {
        vl_fail(e, VL_E_CREATE, "%s: is there already and not an empty directory (%s)", dir,
                strerror(errno));
    } else {
        *aside = vl_asprintf("%s.aside-%d", clean, (int)getpid());
        if (vl_fs_remove(*aside, e) || vl_fs_mkdirs(*aside, e))
            vl_err_prefix(e, "making %s", dir);
        vl_aside_add(*aside);
    }
    free(clean);
    return e->code;
}

int vl_dir_commit(const char *dir, char *aside, struct vl_err *e)
{
    char *final = vl_strndup(aside, (size_t)(strrchr(aside, '.') - aside));
    char *slash = strrchr(final, '/');
    char *parent = !slash           ? vl_strdup(".")
                   : slash == final ? vl_strdup("/")
                                    : vl_strndup(final, (size_t)(slash - final));
    struct vl_err ignored = { 0 };

    if (!e->code && !vl_sync_dir(aside, e)) {
        if (rename(aside, final))
            vl_fail_errno(e, VL_E_CREATE, "%s: cannot rename %s to it", dir, aside);
        else if (vl_sync_dir(parent, e))
            vl_err_prefix(e, "publishing %s", dir);
    }
    if (e->code && vl_fs_remove(aside, &ignored))
        vl_err_prefix(&ignored, "cleaning up");
    vl_aside_drop(aside);
    free(parent);
    free(final);
    free(aside);
    return e->code;
}

static int64_t pick(int64_t given, int64_t rule)
{
    return given > 0 ? given : rule;
}

/* config.json's text from the options. */
static int config_from_options(const struct vl_model_opts *o, const struct vl_tok *t,
                               struct vl_buf *b, struct vl_err *e)
{
    int64_t C = o->hidden, H = pick(o->heads, C / 64 ? C / 64 : 1);
    int64_t K = pick(o->kv_heads, H), D = pick(o->head_dim, C / H);
    int64_t F = pick(o->ffn, (C * 8 / 3 + 31) / 32 * 32), V = o->vocab;
    int64_t id[3] = { o->bos, o->eos, o->pad };
    static const char *const id_key[3] = { "bos_token_id", "eos_token_id", "pad_token_id" };

    if (t && V <= 0)
        V = vl_tok_size(t);
    if (C < 1 || o->layers < 1 || V < 1)
        return vl_fail(e, VL_E_USAGE,
                       "give the sizes: a config.json as operand, or --hidden, --layers and "
                       "--vocab (or --tokenizer), for example --hidden 128 --layers 2 --vocab 512");
    if (t) {
        id[0] = id[0] < 0 ? vl_tok_bos(t) : id[0];
        id[1] = id[1] < 0 ? vl_tok_eos(t) : id[1];
        id[2] = id[2] < 0 ? vl_tok_pad(t) : id[2];
    }
    vl_buf_printf(b,
                  "{\"model_type\": \"%s\", \"hidden_act\": \"silu\", \"hidden_size\": %" PRId64
                  ", \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": %" PRId64
                  ", \"num_key_value_heads\": %" PRId64 ", \"head_dim\": %" PRId64
                  ", \"intermediate_size\": %" PRId64 ", \"vocab_size\": %" PRId64
                  ", \"max_position_embeddings\": %" PRId64,
                  o->arch, C, o->layers, H, K, D, F, V, o->positions);
    vl_buf_str(b, ", \"rms_norm_eps\": ");
    vl_json_put_f64(b, o->rms_eps);
    vl_buf_str(b, ", \"rope_theta\": ");
    vl_json_put_f64(b, o->rope_theta);
    vl_buf_str(b, ", \"initializer_range\": ");
    vl_json_put_f64(b, isnan(o->std) ? 0.02 : o->std);
    vl_buf_printf(b, ", \"tie_word_embeddings\": %s", o->tied ? "true" : "false");
    if (!strcmp(o->arch, "mistral"))
        vl_buf_str(b, ", \"sliding_window\": null");
    for (int i = 0; i < 3; i++)
        if (id[i] >= 0)
            vl_buf_printf(b, ", \"%s\": %" PRId64, id_key[i], id[i]);
    vl_buf_str(b, "}\n");
    return 0;
}

enum vl_head vl_model_tool_head(const struct vl_model_opts *o)
{
    const char *name = o->head ? o->head : o->value_head ? "value" : "";

    return !strcmp(name, "lm")       ? VL_HEAD_LM
           : !strcmp(name, "value")  ? VL_HEAD_VALUE
           : !strcmp(name, "reward") ? VL_HEAD_REWARD
                                     : VL_HEAD_AUTO;
}

static int run_init(struct vl_ctx *x, const struct vl_model_opts *o, const char *config,
                    struct vl_err *e)
{
    enum vl_head head = vl_model_tool_head(o);
    const char *name = config ? config : "the options";
    struct vl_tok *t = NULL;
    struct vl_model *m = NULL;
    struct vl_buf text = { 0 };

    if (o->tokenizer && vl_tok_open(&t, o->tokenizer, e))
        goto out;
    if (config ? vl_fs_read(config, MAX_JSON, &text, e) : config_from_options(o, t, &text, e))
        goto out;
    if (vl_model_new(&m, text.s, name, head, e))
        goto out;
    if (t && vl_tok_size(t) > m->cfg.V) {
        vl_fail(e, VL_E_DATA, "%s: vocab_size %" PRId64 " is less than the tokenizer's %" PRId64,
                name, m->cfg.V, vl_tok_size(t));
        goto out;
    }
    vl_model_init(m, (uint64_t)x->common->seed, isnan(o->std) ? m->cfg.init_std : o->std,
                  o->scale_residual);
    (void)!vl_model_tool_write(x, o, m, "F32", o->tokenizer, NULL, e);
out:
    vl_buf_free(&text);
    vl_model_free(m);
    vl_tok_free(t);
    return e->code;
}

static int run_hash(const char *path, struct vl_err *e)
{
    struct vl_model *m;

    if (vl_model_open(&m, path, VL_HEAD_AUTO, 0, e))
        return e->code;
    if (!vl_model_read(m, NULL, e))
        printf("%s  %s\n", m->hash, path);
    vl_model_free(m);
    return e->code;
}

static int run_checkpoint(struct vl_ctx *x, const struct vl_model_opts *o, int restore,
                          const char *from, const char *to, struct vl_err *e)
{
    struct vl_checkpoint_report r;
    int64_t step = o->step;

    if (!(restore ? vl_checkpoint_restore(from, to, step, &r, e)
                  : vl_checkpoint_save(from, to, step, &r, e))) {
        if (r.copied)
            vl_info(&x->log, "files were copied: %s and %s are not on one file system", from, to);
        if (!r.made)
            vl_info(&x->log, "nothing to do: %s/global_step_%" PRId64 " has %s", to, r.step,
                    r.parts.s);
        else
            vl_info(&x->log, "%s step %" PRId64 ": %s", restore ? "restored" : "saved", r.step,
                    r.parts.s);
    }
    vl_buf_free(&r.parts);
    return e->code;
}

int vl_stage_model(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_model_opts *o = opts;
    const struct vl_strs *a = &x->common->operands;
    const char *cmd = a->n ? a->s[0] : "";
    const char *first = a->n > 1 ? a->s[1] : x->common->model;

    if (x->comm.rank) /* one process does it; under a launcher the others have nothing to do */
        return 0;
    if (!strcmp(cmd, "init") && a->n <= 2)
        return run_init(x, o, a->n > 1 ? a->s[1] : NULL, e);
    if (!strcmp(cmd, "diff") && a->n == 3)
        return vl_model_tool_diff(x, o, a->s[1], a->s[2], e);
    if ((!strcmp(cmd, "checkpoint") || !strcmp(cmd, "restore")) && a->n == 3)
        return run_checkpoint(x, o, *cmd == 'r', a->s[1], a->s[2], e);
    if (a->n > 2 || !*cmd || !strcmp(cmd, "diff"))
        return vl_fail(
            e, VL_E_USAGE,
            "expected a command and its model: init [CONFIG.json], info "
            "MODEL, convert MODEL|FILE.gguf, hash MODEL, diff A B, checkpoint RUN DIR or "
            "restore DIR RUN");
    if (strcmp(cmd, "info") && strcmp(cmd, "convert") && strcmp(cmd, "hash"))
        return vl_fail(e, VL_E_USAGE,
                       "%s is no command; known: init, info, convert, hash, diff, "
                       "checkpoint, restore",
                       cmd);
    if (!first)
        return vl_fail(e, VL_E_USAGE, "%s: no model given; for example: verl-model %s DIR", cmd,
                       cmd);
    if (!strcmp(cmd, "info"))
        return vl_model_tool_info(x, o, first, e);
    return !strcmp(cmd, "convert") ? vl_model_tool_convert(x, o, first, e) : run_hash(first, e);
}
