/* test_chatgold.c - templates against jinja2's renderings.
 *
 *   test_chatgold                                the tree's own snippets, tests/golden/text/jinja.json
 *   test_chatgold - jinja_features.json          each snippet, in the file's context
 *   test_chatgold TEMPLATE.jinja GOLDEN.json     every case's rendering or error
 * A case with an error must fail, with these words in the message. t2020-chat.sh runs it on the
 * shared goldens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "libverl/base/fs.h"
#include "libverl/text/jinja.h"

#define NOW 1741529107 /* 2025-03-09 14:05:07 UTC */

static int bad, checked;

static void set(struct vl_jinja *t, const struct vl_json *j, const char *name, int64_t at)
{
    struct vl_buf b = { 0 };

    if (at < 0)
        return;
    vl_json_raw(j, at, &b);
    vl_jinja_set_json(t, name, b.s, b.n);
    vl_buf_free(&b);
}

static void set_members(struct vl_jinja *t, const struct vl_json *j, int64_t obj)
{
    uint32_t k, m;

    for (k = 0, m = (uint32_t)obj + 1; obj >= 0 && k < j->node[obj].count;
         k++, m = j->node[m + 1].next) {
        char *name = vl_json_strdup(j, m);

        set(t, j, name, m + 1);
        free(name);
    }
}

static void compare(const char *file, const char *name, const struct vl_json *j, int64_t c,
                    const struct vl_buf *got, const struct vl_err *e)
{
    struct vl_buf want = { 0 };
    int ok;

    checked++;
    if (vl_json_str(j, vl_json_get(j, c, "error"), &want))
        ok = e->code && strstr(e->msg, want.s);
    else {
        vl_json_str(j, vl_json_get(j, c, "rendered"), &want);
        ok = !e->code && want.n == got->n && (!want.n || memcmp(want.s, got->s, want.n) == 0);
    }
    if (!ok && bad++ < 12)
        printf("# %s: %s\n#   want %.1500s\n#   got  %.1500s\n", file, name, want.s ? want.s : "",
               e->code  ? e->msg
               : got->s ? got->s
                        : "");
    vl_buf_free(&want);
}

static void one(const char *file, const char *src, const struct vl_json *j, int64_t c)
{
    struct vl_buf got = { 0 };
    struct vl_err e = { 0 };
    struct vl_jinja *t = NULL;
    char *name = vl_json_strdup(j, vl_json_get(j, c, src ? "case" : "template"));
    int64_t null = vl_json_get(j, c, "bos_token");

    if (vl_jinja_open(&t, src ? src : name, strlen(src ? src : name), "t", &e) == 0) {
        vl_jinja_set_now(t, NOW, 1);
        if (src) {
            vl_jinja_set_json(t, "documents", "null", 4);
            set(t, j, "messages", vl_json_get(j, c, "messages"));
            set(t, j, "tools", vl_json_get(j, c, "tools"));
            if (!vl_json_is(j, null, VL_JSON_NULL))
                set(t, j, "bos_token", null);
            if (!vl_json_is(j, vl_json_get(j, c, "eos_token"), VL_JSON_NULL))
                set(t, j, "eos_token", vl_json_get(j, c, "eos_token"));
            set_members(t, j, vl_json_get(j, c, "options"));
        } else {
            vl_jinja_set_json(t, "messages", "[]", 2);
            set_members(t, j, vl_json_get(j, 0, "context"));
        }
        (void)!vl_jinja_render(t, &got, &e);
    }
    compare(file, name, j, c, &got, &e);
    vl_jinja_free(t);
    vl_buf_free(&got);
    free(name);
}

int main(int argc, char **argv)
{
    struct vl_buf text = { 0 }, src = { 0 };
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    int64_t cases;
    uint32_t k, c;

    const char *tmpl = argc < 3 ? "-" : argv[1];
    const char *file = argc < 3 ? "tests/golden/text/jinja.json" : argv[2];

    if (vl_fs_read(file, (size_t)1 << 28, &text, &e) ||
        vl_json_parse(&j, text.s, text.n, file, &e) ||
        (strcmp(tmpl, "-") != 0 && vl_fs_read(tmpl, (size_t)1 << 28, &src, &e)))
        return puts(e.msg), 1;
    cases = vl_json_get(&j, 0, "cases");
    if (cases < 0)
        return printf("%s: no cases\n", file), 1;
    for (k = 0, c = (uint32_t)cases + 1; k < j.node[cases].count; k++, c = j.node[c].next)
        one(file, src.s, &j, c);
    if (argc < 3)
        printf("1..1\n%sok 1 - snippets render as jinja2 renders them\n", bad ? "not " : "");
    printf("# %d of %d answers differ\n", bad, checked);
    vl_json_free(&j);
    vl_buf_free(&text);
    vl_buf_free(&src);
    return bad != 0 || checked == 0;
}
