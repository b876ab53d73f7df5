/* fuzz_schema.c - a schema and a text, the parts before and after the first line feed. A verdict that
 * is no "valid" has a reason. */
#include "libverl/reward/schema.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data, *cut = size ? memchr(p, '\n', size) : NULL;
    size_t n = cut ? (size_t)(cut - p) : size;
    struct vl_schema *s;
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };
    struct vl_buf why = { 0 };

    if (vl_schema_new(&s, p, n, "schema", &e)) {
        assert(e.msg[0] && !strchr(e.msg, '\n'));
        return 0;
    }
    if (cut && !vl_json_parse(&j, cut + 1, size - n - 1, "text", &e)) {
        int verdict = vl_schema_check(s, &j, 0, &why);

        assert(verdict == 1 || why.n);
    }
    vl_json_free(&j);
    vl_buf_free(&why);
    vl_schema_free(s);
    return 0;
}
