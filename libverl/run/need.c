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

/* The batch has another value than the user gave. A file serves every stage, and one of them was told
 * otherwise: the batch is right. What is typed for this program is meant, and used. Returns whether
 * the batch's counts. */
static int differs(struct vl_ctx *x, const char *key, const void *opt, const char *given,
                   const char *have)
{
    const char *how = vl_parsed_how(x->parsed, opt);
    int typed = vl_parsed_typed(x->parsed, opt), n = (int)strlen(how);

    n -= n && how[n - 1] == '=';
    if (x->comm.rank == 0)
        vl_warn(&x->log,
                typed ? "%.*s is %s, but the batch was made with %s %s: %s is used, as given here"
                      : "%.*s is %s in the config file, but the batch was made with %s %s, which "
                        "is used",
                n, how, given, key, have, given);
    return !typed;
}

int vl_stage_f64(struct vl_ctx *x, const struct vl_batch *b, const char *key, const double *opt,
                 double *out, struct vl_err *e)
{
    struct vl_buf given = { 0 };
    double have;
    int there = vl_meta_f64(b, key, &have), batch = !vl_parsed_given(x->parsed, opt);

    if (batch && !there)
        return missing(x, key, opt, e);
    if (!batch && there && have != *opt) {
        vl_json_put_f64(&given, *opt);
        batch = differs(x, key, opt, given.s, vl_meta_get(b, key));
        vl_buf_free(&given);
    }
    *out = batch ? have : *opt;
    if (batch)
        vl_parsed_effective(x->parsed, opt, vl_meta_get(b, key));
    return 0;
}

int vl_stage_i64(struct vl_ctx *x, const struct vl_batch *b, const char *key, const int64_t *opt,
                 int64_t *out, struct vl_err *e)
{
    int64_t have;
    int there = vl_meta_i64(b, key, &have), batch = !vl_parsed_given(x->parsed, opt);
    char given[32];

    if (batch && !there)
        return missing(x, key, opt, e);
    if (!batch && there && have != *opt) {
        snprintf(given, sizeof given, "%" PRId64, *opt);
        batch = differs(x, key, opt, given, vl_meta_get(b, key));
    }
    *out = batch ? have : *opt;
    if (batch)
        vl_parsed_effective(x->parsed, opt, vl_meta_get(b, key));
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
