/* jinja_global.c - the functions that every template has: raise_exception, strftime_now, namespace, dict
 * and range. */
#include "libverl/text/jinja_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct vl_jv vl_jglobal(const char *name)
{
    static const struct {
        const char *name;
        enum vl_jfunc f;
    } known[] = {
        { "raise_exception", VL_JF_RAISE },
        { "strftime_now", VL_JF_STRFTIME },
        { "namespace", VL_JF_NAMESPACE },
        { "range", VL_JF_RANGE },
        { "dict", VL_JF_DICT },
        { "lipsum", VL_JF_OTHER },
        { "cycler", VL_JF_OTHER },
        { "joiner", VL_JF_OTHER },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return (struct vl_jv){ .type = VL_J_FUNC, .u.i = known[i].f };
    return vl_jv_undef();
}

static struct vl_jv raise(struct vl_jin *in, const struct vl_jargs *a)
{
    struct vl_jv v = vl_jv_ref("", 0);

    vl_jarg(a, 0, "message", &v);
    v = vl_jv_to_str(in, v);
    return vl_jfail(in, "the template refuses these messages: %.*s", (int)(v.n < 600 ? v.n : 600),
                    v.u.s);
}

static struct vl_jv strftime_now(struct vl_jin *in, const struct vl_jargs *a)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    struct vl_jinja *t = in->t;
    struct vl_jv v;
    char *fmt, out[1024];
    struct tm tm;
    time_t now;

    if (!vl_jarg(a, 0, "format", &v) || v.type != VL_J_STR)
        return vl_jfail(in, "strftime_now needs a format");
    if (!t->now_set && epoch && *epoch)
        vl_jinja_set_now(t, strtoll(epoch, NULL, 10), 1);
    now = t->now_set ? (time_t)t->now : time(NULL);
    if (!(t->now_utc ? gmtime_r(&now, &tm) : localtime_r(&now, &tm)))
        return vl_jfail(in, "strftime_now: the time is out of range");
    fmt = vl_jalloc(in, v.n + 1);
    memcpy(fmt, v.u.s, v.n);
    return vl_jv_str(in, out, strftime(out, sizeof out, fmt, &tm));
}

static struct vl_jv new_dict(struct vl_jin *in, const struct vl_jargs *a, enum vl_jtype type)
{
    struct vl_jv m = vl_jv_map(in, type);

    if (a->n > 1 || (a->n == 1 && a->v[0].type != VL_J_MAP))
        return vl_jfail(in, "%s() takes one dictionary or keyword arguments", vl_jv_type_name(m));
    for (size_t i = 0; a->n && i < a->v[0].u.map->n; i++)
        vl_jmap_set(in, m.u.map, a->v[0].u.map->key[i], a->v[0].u.map->val[i]);
    for (size_t i = 0; i < a->nkw; i++)
        vl_jmap_set(in, m.u.map, vl_jv_ref(a->kw[i], strlen(a->kw[i])), a->kwv[i]);
    return m;
}

static struct vl_jv range(struct vl_jin *in, const struct vl_jargs *a)
{
    int64_t at = 0, end = 0, step = 1, count;
    struct vl_jv v;

    if (a->n < 1 || a->n > 3 || a->nkw)
        return vl_jfail(in, "range takes one to three arguments");
    for (size_t i = 0; i < a->n; i++)
        if (a->v[i].type != VL_J_INT && a->v[i].type != VL_J_BOOL)
            return vl_jfail(in, "range needs integers, not %s", vl_jv_type_name(a->v[i]));
    if (a->n == 1)
        end = a->v[0].u.i;
    else
        at = a->v[0].u.i, end = a->v[1].u.i;
    if (a->n == 3)
        step = a->v[2].u.i;
    if (step == 0)
        return vl_jfail(in, "range: the step must not be zero");
    if (at < -((int64_t)1 << 60) || at > (int64_t)1 << 60 || end < -((int64_t)1 << 60) ||
        end > (int64_t)1 << 60 || step < -((int64_t)1 << 60) || step > (int64_t)1 << 60)
        return vl_jfail(in, "range: a bound beyond 2^60 is not supported");
    count = step > 0 ? (end - at + step - 1) / step : (at - end - step - 1) / -step;
    count = count < 0 ? 0 : count;
    if (count > VL_J_MAX_RANGE)
        return vl_jfail(in, "range too big: %lld items, at most %d", (long long)count,
                        VL_J_MAX_RANGE);
    v = vl_jv_list(in, VL_J_RANGE, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        vl_jlist_add(in, v.u.list, vl_jv_int(at + i * step));
    return v;
}

struct vl_jv vl_jglobal_call(struct vl_jin *in, enum vl_jfunc f, const struct vl_jargs *a)
{
    switch (f) {
    case VL_JF_RAISE:
        return raise(in, a);
    case VL_JF_STRFTIME:
        return strftime_now(in, a);
    case VL_JF_NAMESPACE:
        return new_dict(in, a, VL_J_NAMESPACE);
    case VL_JF_DICT:
        return new_dict(in, a, VL_J_MAP);
    case VL_JF_RANGE:
        return range(in, a);
    case VL_JF_OTHER:
        break;
    }
    return vl_jfail(in, "lipsum, cycler and joiner are not supported");
}
