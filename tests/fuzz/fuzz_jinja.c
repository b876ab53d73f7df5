/* fuzz_jinja.c - chat templates from outside: any text is refused in one line or renders within the
 * limits, the same twice. */
#include "libverl/text/jinja.h"

#include <assert.h>
#include <string.h>

#include "tests/fuzz/main.h"

static const char messages[] =
    "[{\"role\": \"system\", \"content\": \"be\\nbrief\"}, {\"role\": \"user\", \"content\": "
    "\"h\\u00e9 "
    "<x>\", \"n\": 1.5}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
    "[{\"function\": "
    "{\"name\": \"f\", \"arguments\": {\"a\": [1, 12345678901234567890, true]}}}]}]";

static const char values[] =
    "{\"a\": [3, 1.5, \"x\", [[1], []]], \"b\": \"l1\\nl2\", \"role\": {\"k\": null}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vl_jinja *t = NULL;
    struct vl_buf out[2] = { 0 };
    struct vl_err e = { 0 };

    if (vl_jinja_open(&t, (const char *)data, size, "t", &e)) {
        assert(!t && e.code == VL_E_DATA && e.msg[0]);
        return 0;
    }
    vl_jinja_set_now(t, 1741529107, 1);
    vl_jinja_set_json(t, "messages", messages, sizeof messages - 1);
    vl_jinja_set_json(t, "bos_token", "\"<s>\"", 5);
    vl_jinja_set_json(t, "add_generation_prompt", "true", 4);
    vl_jinja_set_json(t, "d", values, sizeof values - 1);
    for (int k = 0; k < 2; k++) {
        struct vl_err why = { 0 };

        if (vl_jinja_render(t, &out[k], &why))
            assert(why.code == VL_E_DATA && why.msg[0] && out[k].n == 0);
    }
    assert(out[0].n == out[1].n && (!out[0].n || memcmp(out[0].s, out[1].s, out[0].n) == 0));
    vl_buf_free(&out[0]);
    vl_buf_free(&out[1]);
    vl_jinja_free(t);
    return 0;
}
