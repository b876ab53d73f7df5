/* need.c - values that travel in meta_info and may be given again. See stage.h. */
#include "libverl/run/stage.h"

#include "formats/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int missing(struct vl_ctx *x, const char *key, const void *opt, struct vl_err *e)
{
    const char *how = vl_parsed_how(x->parsed, opt);
    const struct vl_strs *in = &x->common->input;

    return vl_fail(e, VL_E_DATA, "%s: meta_info has no usable '%s': give it with %s",
                   !in->n || !strcmp(in->s[0], "-") ? "standard input" : in->s[0], key,
                   how ? how : "an input that has it");
}

static void differs(struct vl_ctx *x, const char *key, const void *opt, const char *given,
                    const char *have)
{
    vl_warn(&x->log, "%s is %s by %s, but the batch was made with %s", key, given,
            vl_parsed_how(x->parsed, opt), have);
}

int vl_stage_f64(struct vl_ctx *x, const struct vl_batch *b, const char *key, const double *opt,
                 double *out, struct vl_err *e)
{
    double have;
    int there = vl_meta_f64(b, key, &have);

    if (!vl_parsed_given(x->parsed, opt)) {
        if (!there)
            return missing(x, key, opt, e);
        vl_parsed_effective(x->parsed, opt, vl_meta_get(b, key));
        *out = have;
        return 0;
    }
    *out = *opt;
    if (there && have != *opt && x->comm.rank == 0) {
        struct vl_buf given = { 0 };
        vl_json_put_f64(&given, *opt);
        differs(x, key, opt, given.s, vl_meta_get(b, key));
        vl_buf_free(&given);
    }
    return 0;
}

int vl_stage_i64(struct vl_ctx *x, const struct vl_batch *b, const char *key, const int64_t *opt,
                 int64_t *out, struct vl_err *e)
{
    int64_t have;
    int there = vl_meta_i64(b, key, &have);
    char given[32];

    if (!vl_parsed_given(x->parsed, opt)) {
        if (!there)
            return missing(x, key, opt, e);
        vl_parsed_effective(x->parsed, opt, vl_meta_get(b, key));
        *out = have;
        return 0;
    }
    *out = *opt;
    if (there && have != *opt && x->comm.rank == 0) {
        snprintf(given, sizeof given, "%" PRId64, *opt);
        differs(x, key, opt, given, vl_meta_get(b, key));
    }
    return 0;
}

const char *vl_stage_scores(const struct vl_batch *b)
{
    return vl_batch_col(b, "token_level_scores") || !vl_batch_col(b, "rm_scores")
               ? "token_level_scores"
               : "rm_scores";
}

int64_t vl_stage_seed(struct vl_ctx *x, const struct vl_batch *b)
{
    struct vl_err none = { 0 };
    int64_t seed = x->common->seed, found;

    if (vl_stage_i64(x, b, "seed", &x->common->seed, &found, &none) == 0)
        seed = found;
    return seed;
}
