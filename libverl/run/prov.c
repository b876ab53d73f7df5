/* prov.c - the options that provenance records, as JSON. See opt.h.
 *
 * Here and not in libverl/base, which lies below the JSON writers. */
#include "libverl/base/opt_impl.h"

#include "formats/json.h"

#include <math.h>
#include <string.h>

static void put_value(struct vl_buf *b, const struct vl_opt *o)
{
    const struct vl_strs *list = o->dst;
    const char *s;

    switch (o->type) {
    case VL_T_BOOL:
        vl_buf_str(b, *(int *)o->dst ? "true" : "false");
        break;
    case VL_T_I64:
        if (*(int64_t *)o->dst == VL_NULL_I64)
            vl_buf_str(b, "null");
        else
            vl_json_put_i64(b, *(int64_t *)o->dst);
        break;
    case VL_T_F64:
        if (isnan(*(double *)o->dst))
            vl_buf_str(b, "null");
        else
            vl_json_put_f64(b, *(double *)o->dst);
        break;
    case VL_T_STR:
        s = *(const char **)o->dst;
        if (s)
            vl_json_put_str(b, s, strlen(s));
        else
            vl_buf_str(b, "null");
        break;
    default:
        vl_buf_ch(b, '[');
        for (size_t i = 0; i < list->n; i++) {
            if (i)
                vl_buf_ch(b, ',');
            vl_json_put_str(b, list->s[i], strlen(list->s[i]));
        }
        vl_buf_ch(b, ']');
    }
}

char *vl_parsed_provenance(const struct vl_parsed *p)
{
    struct vl_buf b = { 0 };
    char name[80];

    vl_buf_ch(&b, '{');
    for (size_t i = 0; i < p->nopt; i++) {
        const struct vl_opt *o = &p->opt[i];
        const char *slot;

        if (!(o->flags & VL_F_PROV) || o->type == VL_T_GROUP)
            continue;
        if (b.n > 1)
            vl_buf_ch(&b, ',');
        slot = vl_opt_slot(o, name);
        vl_json_put_str(&b, slot, strlen(slot));
        vl_buf_ch(&b, ':');
        if (p->effective[i])
            vl_buf_str(&b, p->effective[i]);
        else
            put_value(&b, o);
    }
    vl_buf_ch(&b, '}');
    return vl_buf_detach(&b);
}
