/* chat.c - conversations to text through a chat template, with the variables that transformers'
 * apply_chat_template gives: messages, tools, documents, add_generation_prompt, the special tokens
 * of tokenizer_config.json, and the user's own. */
#include "libverl/text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/base/utf8.h"
#include "libverl/text/jinja.h"
#include "libverl/text/tok_impl.h"

struct vl_chat {
    struct vl_jinja *j;
    struct vl_jinja *tools; /* where a tokenizer has a template of its own for them; else NULL */
};

static const char *const special[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token" };

static void set_json(struct vl_chat *c, const char *name, const char *json, size_t n)
{
    vl_jinja_set_json(c->j, name, json, n);
    if (c->tools)
        vl_jinja_set_json(c->tools, name, json, n);
}

/* A special token is a string, or an object with its content. */
static void set_special(struct vl_chat *c, const struct vl_json *j, int64_t at, const char *name)
{
    struct vl_buf b = { 0 };

    if (vl_json_is(j, at, VL_JSON_OBJECT))
        at = vl_json_get(j, at, "content");
    if (!vl_json_is(j, at, VL_JSON_STRING))
        return;
    vl_json_raw(j, at, &b);
    set_json(c, name, b.s, b.n);
    vl_buf_free(&b);
}

static int set_tokens(struct vl_chat *c, const struct vl_tok *t, struct vl_err *e)
{
    struct vl_json j = { 0 };

    if (!t->config)
        return 0;
    if (vl_json_parse(&j, t->config, t->config_n, "tokenizer_config.json", e) == 0)
        for (size_t i = 0; i < sizeof special / sizeof *special; i++)
            set_special(c, &j, vl_json_get(&j, 0, special[i]), special[i]);
    vl_json_free(&j);
    return e->code;
}

static int set_kwargs(struct vl_chat *c, const char *kwargs, struct vl_err *e)
{
    struct vl_json j = { 0 };
    uint32_t k, m;

    if (vl_json_parse(&j, kwargs, strlen(kwargs), "apply_chat_template_kwargs", e) == 0 &&
        !vl_json_is(&j, 0, VL_JSON_OBJECT))
        vl_fail(e, VL_E_USAGE,
                "apply_chat_template_kwargs must be a JSON object such as "
                "{\"enable_thinking\": false}, found: %.100s",
                kwargs);
    for (k = 0, m = 1; !e->code && k < j.node[0].count; k++, m = j.node[m + 1].next) {
        char *name = vl_json_strdup(&j, m);
        struct vl_buf b = { 0 };

        vl_json_raw(&j, m + 1, &b);
        set_json(c, name, b.s, b.n);
        vl_buf_free(&b);
        free(name);
    }
    vl_json_free(&j);
    return e->code;
}

int vl_chat_read(char **text, const char *path, struct vl_err *e)
{
    struct vl_buf b = { 0 };
    size_t at = 0;
    int k;

    *text = NULL;
    if (vl_fs_read(path, (size_t)16 << 20, &b, e) == 0) {
        while (at < b.n && b.s[at] && (k = vl_utf8_get(b.s + at, b.n - at, NULL)) > 0)
            at += (size_t)k;
        if (at < b.n)
            vl_fail(
                e, VL_E_DATA,
                "%s: found byte 0x%02X at %zu, a template is UTF-8 text (iconv -f UTF-16 -t UTF-8, "
                "for example, makes it)",
                path, (unsigned char)b.s[at], at);
        else
            *text = vl_buf_detach(&b);
    }
    vl_buf_free(&b);
    return e->code;
}

int vl_chat_open(struct vl_chat **out, const struct vl_tok *t, const char *src, const char *name,
                 const char *kwargs, struct vl_err *e)
{
    struct vl_chat *c = vl_alloc(sizeof *c);
    const char *tools = src ? NULL : t->tmpl_tools;

    *out = NULL;
    if (!src)
        src = t->tmpl;
    if (!src)
        vl_fail(
            e, VL_E_DATA,
            "%s: the prompt is a list of messages, but the tokenizer has no chat template; give "
            "one with --template FILE (a Jinja file), or make the prompt a string",
            name);
    else if (vl_jinja_open(&c->j, src, strlen(src), name, e) == 0 &&
             (!tools ||
              vl_jinja_open(&c->tools, tools, strlen(tools), "tool_use template", e) == 0)) {
        set_json(c, "documents", "null", 4);
        (void)!set_tokens(c, t, e);
        if (kwargs && !e->code)
            (void)!set_kwargs(c, kwargs, e);
    }
    if (e->code)
        vl_chat_free(c);
    else
        *out = c;
    return e->code;
}

void vl_chat_free(struct vl_chat *c)
{
    if (c) {
        vl_jinja_free(c->j);
        vl_jinja_free(c->tools);
    }
    free(c);
}

void vl_chat_set_now(struct vl_chat *c, int64_t seconds, int utc)
{
    vl_jinja_set_now(c->j, seconds, utc);
    if (c->tools)
        vl_jinja_set_now(c->tools, seconds, utc);
}

int vl_chat_apply(struct vl_chat *c, const char *messages, size_t n, const char *tools,
                  int add_generation_prompt, struct vl_buf *out, struct vl_err *e)
{
    struct vl_jinja *j = tools && c->tools ? c->tools : c->j;

    vl_jinja_set_json(j, "messages", messages, n);
    vl_jinja_set_json(j, "tools", tools ? tools : "null", tools ? strlen(tools) : 4);
    vl_jinja_set_json(j, "add_generation_prompt", add_generation_prompt ? "true" : "false",
                      add_generation_prompt ? 4 : 5);
    return vl_jinja_render(j, out, e);
}
