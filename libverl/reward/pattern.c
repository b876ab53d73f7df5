/* pattern.c - see pattern.h. */
#include "libverl/reward/pattern.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Steps a match may take: about 50 ms. A pattern over a 10 MB text that does not backtrack at each
 * place stays below. */
enum { STEPS_MAX = 20000000, HEAP_KIB = 65536 };

struct vl_pattern {
    pcre2_code *code;
    pcre2_match_context *limits;
};

void vl_pattern_free(struct vl_pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    pcre2_match_context_free(p->limits);
    free(p);
}

int vl_pattern_new(struct vl_pattern **p, const char *pat, size_t n, struct vl_err *e)
{
    struct vl_pattern *q = vl_alloc(sizeof *q);
    PCRE2_SIZE at;
    int code;

    q->code = pcre2_compile((PCRE2_SPTR)pat, n, PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF,
                            &code, &at, NULL);
    q->limits = pcre2_match_context_create(NULL);
    if (!q->code || !q->limits) {
        PCRE2_UCHAR text[120] = "";

        pcre2_get_error_message(code, text, sizeof text);
        vl_pattern_free(q);
        return vl_fail(e, VL_E_USAGE, "pattern %.200s: byte %zu: %s", pat, (size_t)at,
                       (const char *)text);
    }
    pcre2_set_match_limit(q->limits, STEPS_MAX);
    pcre2_set_heap_limit(q->limits, HEAP_KIB);
    pcre2_jit_compile(q->code, PCRE2_JIT_COMPLETE); /* where there is none, it interprets */
    *p = q;
    return 0;
}

int vl_pattern_match(const struct vl_pattern *p, const char *s, size_t n, const char **why)
{
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    int rc = m ? pcre2_match(p->code, (PCRE2_SPTR)s, n, 0, 0, m, p->limits) : PCRE2_ERROR_NOMEMORY;

    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter has more room */
        rc = pcre2_match(p->code, (PCRE2_SPTR)s, n, 0, PCRE2_NO_JIT, m, p->limits);
    pcre2_match_data_free(m);
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
        return rc >= 0;
    *why = rc == PCRE2_ERROR_MATCHLIMIT
               ? "the pattern takes too many steps on this response: it backtracks; make it simpler"
           : rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT
               ? "the pattern needs too much memory on this response: it nests or backtracks too "
                 "deep; make it simpler"
               : "the pattern cannot be matched here";
    return -1;
}
