/* model_convert.c - verl-model convert: a model directory or a GGUF file as a new directory. */
#include "libverl/run/model_tool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libverl/base/fs.h"
#include "libverl/model/gguf_model.h"
#include "libverl/text/gguf_tok.h"
#include "libverl/text/tok.h"

static int write_tokenizer(const char *dir, const struct vl_buf tok[2], struct vl_err *e)
{
    static const char *const name[] = { "tokenizer.json", "tokenizer_config.json" };

    for (int i = 0; i < 2 && !e->code; i++) {
        char *path = vl_asprintf("%s/%s", dir, name[i]);

        if (vl_fs_write(path, tok[i].s, tok[i].n, e))
            vl_err_prefix(e, "writing the tokenizer");
        free(path);
    }
    return e->code;
}

/* That the directory's tokenizer opens and has no id beyond the model's. */
static int check_tokenizer(const char *dir, const struct vl_model *m, const char *name,
                           struct vl_err *e)
{
    struct vl_tok *t;

    if (vl_tok_open(&t, dir, e))
        return vl_err_prefix(e, "%s: its tokenizer", name);
    if (vl_tok_size(t) > m->cfg.V)
        vl_fail(e, VL_E_DATA, "%s: a tokenizer of %lld ids for a model of %lld", name,
                (long long)vl_tok_size(t), (long long)m->cfg.V);
    vl_tok_free(t);
    return e->code;
}

static const char *dtype_name(const char *given, const char *stored)
{
    return !given ? stored : !strcmp(given, "f32") ? "F32" : !strcmp(given, "f16") ? "F16" : "BF16";
}

int vl_model_tool_write(struct vl_ctx *x, const struct vl_model_opts *o, const struct vl_model *m,
                        const char *stored, const char *like, const struct vl_buf tok[2],
                        struct vl_err *e)
{
    const char *dir = x->common->output, *dtype = dtype_name(o->dtype, stored);
    char *aside;

    if (!strcmp(dir, "-"))
        return vl_fail(e, VL_E_USAGE, "a model is a directory: give -o DIR");
    if (vl_dir_begin(dir, &aside, e)) {
        free(aside);
        return e->code;
    }
    if (vl_model_save(m, aside, dtype, o->shard_size, like, e) ||
        (tok && write_tokenizer(aside, tok, e)))
        vl_err_prefix(e, "writing %s", dir);
    else if (tok)
        (void)!check_tokenizer(aside, m, dir, e);
    if (!vl_dir_commit(dir, aside, e))
        vl_info(&x->log, "%s: %s, %.3f M parameters, %s%s%s", dir, vl_config_class(&m->cfg),
                (double)vl_model_parameters(m) * 1e-6, dtype, strcmp(dtype, "F32") ? "" : ", hash ",
                strcmp(dtype, "F32") ? "" : m->hash);
    return e->code;
}

static int is_gguf(const char *path)
{
    size_t n = strlen(path);
    struct stat st;

    return (n > 5 && !strcmp(path + n - 5, ".gguf")) || (!stat(path, &st) && S_ISREG(st.st_mode));
}

static int convert_gguf(struct vl_ctx *x, const struct vl_model_opts *o, const char *path,
                        struct vl_err *e)
{
    struct vl_buf tok[2] = { { 0 }, { 0 } };
    int own = 0;
    struct vl_model *m = NULL;
    struct vl_gguf g;

    if (!vl_gguf_open(&g, path, e)) {
        own = !o->tokenizer && vl_gguf_has_tokenizer(&g);
        if (!(own && vl_gguf_tokenizer(&g, &tok[0], &tok[1], e)) &&
            !vl_gguf_model(&m, &g, vl_model_tool_head(o), e) &&
            !(o->tokenizer && check_tokenizer(o->tokenizer, m, o->tokenizer, e)) &&
            !vl_model_tool_write(x, o, m, m->stored_dtype, o->tokenizer, own ? tok : NULL, e) &&
            !own && !o->tokenizer)
            vl_info(&x->log, "%s has no tokenizer; --tokenizer DIR gives one", path);
    }
    vl_model_free(m);
    vl_buf_free(&tok[0]);
    vl_buf_free(&tok[1]);
    vl_gguf_close(&g);
    return e->code;
}

int vl_model_tool_convert(struct vl_ctx *x, const struct vl_model_opts *o, const char *path,
                          struct vl_err *e)
{
    enum vl_head head = vl_model_tool_head(o),
                 open_as = head == VL_HEAD_REWARD ? VL_HEAD_VALUE : head;
    struct vl_model *m;

    if (is_gguf(path))
        return convert_gguf(x, o, path, e);
    if (vl_model_open(&m, path, open_as, 1, e))
        return e->code;
    if (head == VL_HEAD_REWARD)
        m->cfg.sequence = 1;
    if ((o->tokenizer && check_tokenizer(o->tokenizer, m, o->tokenizer, e)) ||
        vl_model_tool_write(x, o, m, m->stored_dtype, o->tokenizer ? o->tokenizer : m->dir, NULL,
                            e))
        vl_err_prefix(e, "converting %s", path);
    vl_model_free(m);
    return e->code;
}
