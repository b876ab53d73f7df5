/* fuzz_rows.c - rows of verl-data: after a byte of options, any text is a row that is kept within its
 * limits, left out, or refused in one line. Tokens of a small byte-level tokenizer with a template. */
#include "libverl/run/data_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

static const char *const policy[] = { "error", "left", "right", "middle", "filter" };

static struct vl_data_opts options(uint8_t b)
{
    return (struct vl_data_opts){
        .prompt_key = "prompt",
        .response_key = "response",
        .messages_key = "messages",
        .tools_key = "tools",
        .thinking_key = "enable_thinking",
        .source_key = "data_source",
        .sft = b % 3 == 1,
        .preference = b % 3 == 2,
        .chat = b >> 2 & 1,
        .plain_special = b >> 3 & 1,
        .mask = b >> 4 & 1 ? "last" : "all-assistant",
        .ignore_mismatch = b >> 5 & 1,
        .system = b >> 6 & 1 ? "s" : NULL,
        .truncation = policy[b % 5],
        .max_prompt = 6,
        .max_response = b >> 7 ? 5 : VL_NULL_I64,
        .max_length = b >> 7 ? 9 : VL_NULL_I64,
        .check_scorer = b & 1,
        .eos = 1,
    };
}

static void check(const struct vl_data_opts *o, const struct vl_row *r, enum vl_row_fate fate,
                  const struct vl_err *e)
{
    size_t R = r->reply[0].ids.n > r->reply[1].ids.n ? r->reply[0].ids.n : r->reply[1].ids.n;

    assert((fate == VL_ROW_BAD) == (e->code == VL_E_DATA));
    assert(!e->code == !e->msg[0] && !strchr(e->msg, '\n'));
    if (fate != VL_ROW_KEPT)
        return;
    assert(r->prompt_json && (int64_t)r->prompt.n <= o->max_prompt);
    assert(o->max_response == VL_NULL_I64 || (int64_t)R <= o->max_response);
    assert(o->max_length == VL_NULL_I64 || !R || (int64_t)(r->prompt.n + R) <= o->max_length);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; r->reply[k].mask && i < r->reply[k].ids.n; i++)
            assert(r->reply[k].mask[i] <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vl_tok *tok;
    char *names[] = { "fuzz" };
    struct vl_line line = { "", 0, 0, 1 };
    struct vl_lines lines = { .path = names, .nfile = 1, .line = &line, .n = 1 };
    struct vl_data_opts o = options(size ? data[0] : 0);
    struct vl_row_work w = { .o = &o, .lines = &lines, .tok = tok, .tmpl_name = "tokenizer" };
    struct vl_row r = { 0 };
    struct vl_err e = { 0 };

    if (!tok) {
        const char *repo = getenv("REPO");
        char *path = vl_asprintf("%s/tests/golden/text/bytes", repo ? repo : ".");

        assert(vl_tok_open(&tok, path, &e) == 0);
        w.tok = tok;
        free(path);
    }
    assert(vl_chat_open(&w.chat, tok, NULL, "chat template", NULL, &e) == 0);
    if (size > 1)
        line.s = (const char *)data + 1, line.n = size - 1;
    check(&o, &r, vl_row_make(&w, &r, &e), &e);
    vl_row_free(&r);
    w.tok = NULL;
    vl_row_work_close(&w);
    return 0;
}
