/* data_messages.c - whether messages are such as a chat template can be given: said of the message and
 * the member, where the template could only say what it tripped over. */
#include "libverl/run/data_impl.h"

#include <stdlib.h>
#include <string.h>

const char *vl_json_kind(const struct vl_json *j, int64_t at)
{
    static const char *const name[] = { "null",     "false",  "true",     "a number",
                                        "a string", "a list", "an object" };

    return at < 0 ? "missing" : name[j->node[at].type];
}

/* Whether a message may be without content: a call, or what the model thought. */
static int speaks_otherwise(const struct vl_json *j, int64_t message)
{
    static const char *const names[] = { "tool_calls", "function_call", "reasoning_content",
                                         "thinking" };

    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        int64_t at = vl_json_get(j, message, names[k]);

        if (at >= 0 && !vl_json_is(j, at, VL_JSON_NULL))
            return 1;
    }
    return 0;
}

/* Appends what is wrong with an element of a content list. 1: something is. */
static int part_fault(const struct vl_json *j, int64_t at, struct vl_buf *out)
{
    char *type = vl_json_strdup(j, vl_json_get(j, at, "type"));
    int text = vl_json_is(j, vl_json_get(j, at, "text"), VL_JSON_STRING);
    int fault = 1;

    if (vl_json_is(j, at, VL_JSON_STRING) || (text && (!type || !strcmp(type, "text"))))
        fault = 0;
    else if (type && strcmp(type, "text"))
        vl_buf_printf(out, "of type %.40s: only text is read here", type);
    else
        vl_buf_printf(out, "%s, wanted {\"type\": \"text\", \"text\": ...}",
                      vl_json_is(j, at, VL_JSON_OBJECT) ? "without a text" : vl_json_kind(j, at));
    free(type);
    return fault;
}

/* Appends what is wrong with a message, behind its name: "has no role". 1: something is. */
static int message_fault(const struct vl_json *j, int64_t at, struct vl_buf *out)
{
    int64_t role = vl_json_get(j, at, "role"), content = vl_json_get(j, at, "content");
    struct vl_buf part = { 0 };
    size_t before = out->n;

    if (!vl_json_is(j, at, VL_JSON_OBJECT)) {
        vl_buf_printf(out, " is %s, wanted a message {role, content}", vl_json_kind(j, at));
    } else if (!vl_json_is(j, role, VL_JSON_STRING)) {
        vl_buf_printf(out, ".role is %s, wanted a string such as \"user\"", vl_json_kind(j, role));
    } else if (content < 0 || vl_json_is(j, content, VL_JSON_NULL)) {
        if (!speaks_otherwise(j, at))
            vl_buf_printf(out, ".content is %s, wanted a string", vl_json_kind(j, content));
    } else if (vl_json_is(j, content, VL_JSON_ARRAY)) {
        uint32_t c = (uint32_t)content + 1;

        for (uint32_t k = 0; k < j->node[content].count && !part.n; k++, c = j->node[c].next)
            if (part_fault(j, c, &part))
                vl_buf_printf(out, ".content[%u] is %s", k, part.s);
    } else if (!vl_json_is(j, content, VL_JSON_STRING)) {
        vl_buf_printf(out, ".content is %s, wanted a string or a list of texts",
                      vl_json_kind(j, content));
    }
    vl_buf_free(&part);
    return out->n > before;
}

int vl_is_messages(const struct vl_json *j, int64_t at)
{
    return vl_json_is(j, at, VL_JSON_ARRAY) && vl_json_is(j, vl_json_at(j, at, 0), VL_JSON_OBJECT);
}

void vl_check_messages(const struct vl_json *j, const char *name, int64_t at, struct vl_buf *bad)
{
    struct vl_buf fault = { 0 };
    uint32_t k, c;

    if (!vl_is_messages(j, at))
        return;
    for (k = 0, c = (uint32_t)at + 1; k < j->node[at].count; k++, c = j->node[c].next)
        if (message_fault(j, c, &fault)) {
            vl_buf_printf(bad, "%s%s[%u]%s", bad->n ? "; " : "", name, k, fault.s);
            break;
        }
    vl_buf_free(&fault);
}
