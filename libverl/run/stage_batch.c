/* stage_batch.c - verl-batch: its table of commands, their input and output. See stage_batch.h. */
#include "libverl/run/stage_batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dp.h"
#include "formats/json.h"
#include "libverl/base/args.h"
#include "libverl/base/utf8.h"
#include "libverl/batch/ops.h"
#include "libverl/batch/provenance.h"

/* ---- arguments ---- */

/* "3,0,-1" as numbers; caller frees. `what` starts the error. */
static int numbers(const char *s, const char *what, int64_t **out, int64_t *n, struct vl_err *e)
{
    const char **list = vl_arg_list(s);

    *n = (int64_t)vl_arg_count(list);
    *out = vl_alloc((size_t)*n * sizeof **out);
    for (int64_t i = 0; i < *n; i++)
        if (!vl_arg_i64(list[i], strlen(list[i]), &(*out)[i]))
            vl_fail(e, VL_E_USAGE, "%s: '%s' is not a whole number", what, list[i]);
    free(list);
    if (e->code) {
        free(*out);
        *out = NULL;
    }
    return e->code;
}

static int number(const char *s, const char *what, int64_t *out, struct vl_err *e)
{
    if (vl_arg_i64(s, strlen(s), out))
        return 0;
    return vl_fail(e, VL_E_USAGE, "%s: '%s' is not a whole number", what, s);
}

/* ---- columns and meta ---- */

static int do_select(struct vl_job *j, struct vl_err *e)
{
    const char **k = j->o->columns ? vl_arg_list(j->o->columns) : NULL;
    const char **m = j->o->meta ? vl_arg_list(j->o->meta) : NULL;
    int rc = vl_batch_select(&j->out, &j->in, k, m, e);

    free(k);
    free(m);
    return rc;
}

static int do_pop(struct vl_job *j, struct vl_err *e)
{
    const char **k = j->o->columns ? vl_arg_list(j->o->columns) : NULL;
    const char **m = j->o->meta ? vl_arg_list(j->o->meta) : NULL;
    struct vl_batch popped = { 0 };
    int rc = vl_batch_pop(&popped, &j->in, k, m, e);

    free(k);
    free(m);
    if (!rc && j->o->popped)
        rc = vl_job_write(j, &popped, j->o->popped, e);
    vl_batch_free(&popped);
    j->out = j->in;
    j->in = (struct vl_batch){ 0 };
    return rc;
}

static int do_drop(struct vl_job *j, struct vl_err *e)
{
    if (!j->o->columns && !j->o->meta)
        return vl_fail(e, VL_E_USAGE, "drop: say what with -k LIST or --meta LIST");
    return do_pop(j, e);
}

static int do_rename(struct vl_job *j, struct vl_err *e)
{
    const char **from = vl_alloc(j->narg * sizeof *from), **to = vl_alloc(j->narg * sizeof *to);
    char **copy = vl_alloc(j->narg * sizeof *copy);
    int rc = 0;

    for (size_t i = 0; i < j->narg && !rc; i++) {
        char *colon;

        copy[i] = vl_strdup(j->arg[i]);
        colon = strchr(copy[i], ':');
        if (!colon || colon == copy[i] || !colon[1])
            rc = vl_fail(e, VL_E_USAGE, "rename: '%s' is not OLD:NEW", j->arg[i]);
        else
            *colon = 0;
        from[i] = copy[i];
        to[i] = colon ? colon + 1 : NULL;
    }
    if (!rc)
        rc = vl_batch_rename(&j->in, from, to, j->narg, e);
    for (size_t i = 0; i < j->narg; i++)
        free(copy[i]);
    free(copy);
    free(from);
    free(to);
    j->out = j->in;
    j->in = (struct vl_batch){ 0 };
    return rc;
}

static int set_value(struct vl_batch *b, const char *key, const char *value, struct vl_err *e)
{
    struct vl_json v = { 0 };
    struct vl_err why = { 0 };

    if (!vl_utf8_valid(key, strlen(key)) || !vl_utf8_valid(value, strlen(value)))
        return vl_fail(e, VL_E_USAGE,
                       "set-meta %s: key and value must be UTF-8 (other bytes as base64)", key);
    if (vl_json_parse(&v, value, strlen(value), key, &why) == 0)
        vl_meta_set(b, key, value);
    else
        vl_meta_set_str(b, key, value); /* a word is a string */
    vl_json_free(&v);
    return 0;
}

static int do_set_meta(struct vl_job *j, struct vl_err *e)
{
    if (!j->o->unset && j->narg % 2)
        return vl_fail(e, VL_E_USAGE, "set-meta: '%s' has no value", j->arg[j->narg - 1]);
    for (size_t i = 0; i < j->narg; i += j->o->unset ? 1 : 2) {
        if (!j->o->unset) {
            if (set_value(&j->in, j->arg[i], j->arg[i + 1], e))
                return e->code;
        } else if (!vl_meta_get(&j->in, j->arg[i])) {
            return vl_fail(e, VL_E_DATA, "set-meta --unset: no meta_info key %s", j->arg[i]);
        } else {
            vl_meta_del(&j->in, j->arg[i]);
        }
    }
    j->out = j->in;
    j->in = (struct vl_batch){ 0 };
    return 0;
}

/* ---- rows ---- */

static int do_slice(struct vl_job *j, struct vl_err *e)
{
    int64_t part[3] = { VL_SLICE_NONE, VL_SLICE_NONE, VL_SLICE_NONE };
    const char *s = j->arg[0];

    for (int k = 0;; k++) {
        size_t n = strcspn(s, ":");

        if (k == 3 || (n && !vl_arg_i64(s, n, &part[k])))
            return vl_fail(e, VL_E_USAGE, "slice: '%s' is not START:STOP:STEP", j->arg[0]);
        if (!s[n]) {
            if (k == 0)
                return vl_fail(e, VL_E_USAGE, "slice: '%s' has no colon (index takes single rows)",
                               j->arg[0]);
            break;
        }
        s += n + 1;
    }
    return vl_batch_slice(&j->out, &j->in, part[0], part[1], part[2], e);
}

static int take_list(struct vl_job *j, const char *what, int all, struct vl_err *e)
{
    int64_t *idx, n;
    uint8_t *seen = NULL;
    int rc = numbers(j->arg[0], what, &idx, &n, e);

    if (!rc && all) { /* reorder: each row once */
        seen = vl_alloc((size_t)j->in.rows);
        for (int64_t i = 0; i < n; i++) {
            int64_t r = idx[i] < 0 ? idx[i] + j->in.rows : idx[i];

            if (r >= 0 && r < j->in.rows)
                seen[r] = 1;
        }
        if (n != j->in.rows || memchr(seen, 0, (size_t)n))
            rc = vl_fail(e, VL_E_USAGE, "%s: must name each of the %" PRId64 " rows once", what,
                         j->in.rows);
    }
    if (!rc)
        rc = vl_batch_take(&j->out, &j->in, idx, n, e);
    free(seen);
    free(idx);
    return rc;
}

static int do_index(struct vl_job *j, struct vl_err *e)
{
    int64_t *flag, n;
    uint8_t *mask;
    int rc;

    if (!j->o->mask) {
        if (!j->narg)
            return vl_fail(e, VL_E_USAGE, "index: give row numbers, such as 3,0,-1, or --mask");
        return take_list(j, "index", 0, e);
    }
    rc = numbers(j->o->mask, "--mask", &flag, &n, e);
    if (rc)
        return rc;
    mask = vl_alloc((size_t)n);
    for (int64_t i = 0; i < n; i++)
        mask[i] = flag[i] != 0;
    free(flag);
    if (n != j->in.rows)
        rc = vl_fail(e, VL_E_USAGE, "--mask has %" PRId64 " entries for %" PRId64 " rows", n,
                     j->in.rows);
    else
        rc = vl_batch_mask(&j->out, &j->in, mask, e);
    free(mask);
    return rc;
}

static int do_reorder(struct vl_job *j, struct vl_err *e)
{
    return take_list(j, "reorder", 1, e);
}

static int do_repeat(struct vl_job *j, struct vl_err *e)
{
    int64_t n, *counts;
    int rc;

    if (!j->o->counts) {
        if (!j->narg)
            return vl_fail(e, VL_E_USAGE, "repeat: give a number, or --counts");
        rc = number(j->arg[0], "repeat", &n, e);
        return rc ? rc : vl_batch_repeat(&j->out, &j->in, n, !j->o->tiled, e);
    }
    rc = numbers(j->o->counts, "--counts", &counts, &n, e);
    if (rc)
        return rc;
    rc = vl_batch_repeat_counts(&j->out, &j->in, counts, n, e);
    free(counts);
    return rc;
}

static int do_unfold(struct vl_job *j, struct vl_err *e)
{
    const char **k = j->o->columns ? vl_arg_list(j->o->columns) : NULL;
    int64_t n;
    int rc = number(j->arg[0], "unfold", &n, e);

    if (!rc)
        rc = vl_batch_unfold(&j->out, &j->in, n, k, e);
    free(k);
    return rc;
}

static int do_fold(struct vl_job *j, struct vl_err *e)
{
    int64_t n;
    int rc = number(j->arg[0], "fold", &n, e);

    return rc ? rc : vl_batch_fold(&j->out, &j->in, n, e);
}

static int do_pad(struct vl_job *j, struct vl_err *e)
{
    int64_t m, pad;

    if ((j->o->copies >= 0) == (j->narg == 1))
        return vl_fail(e, VL_E_USAGE, "pad: give a multiple, or --copies K");
    if (j->o->copies >= 0)
        return vl_batch_pad(&j->out, &j->in, j->o->copies, j->o->first, e);
    if (number(j->arg[0], "pad", &m, e) || vl_batch_pad_divisor(&j->out, &j->in, m, &pad, e))
        return e->code;
    vl_info(&j->x->log, "pad: %" PRId64 " rows added; verl-batch unpad %" PRId64 " drops them", pad,
            pad);
    return 0;
}

static int do_unpad(struct vl_job *j, struct vl_err *e)
{
    int64_t n;
    int rc = number(j->arg[0], "unpad", &n, e);

    return rc ? rc : vl_batch_unpad(&j->out, &j->in, n, e);
}

/* ---- pieces ---- */

/* -o with its one %d replaced by k. Caller frees. */
static char *piece_name(const char *pattern, int64_t k)
{
    const char *at = strstr(pattern, "%d");

    return vl_asprintf("%.*s%" PRId64 "%s", (int)(at - pattern), pattern, k, at + 2);
}

/* Writes pieces first[k]..first[k+1], or the one that --piece names. */
static int write_pieces(struct vl_job *j, const int64_t *first, int64_t n, struct vl_err *e)
{
    const char *out = j->x->common->output;

    if (j->o->piece >= n)
        return vl_fail(e, VL_E_USAGE, "--piece %" PRId64 ": there are %" PRId64, j->o->piece, n);
    if (j->o->piece < 0 && !strstr(out, "%d"))
        return vl_fail(e, VL_E_USAGE,
                       "%" PRId64 " pieces need names: -o part-%%d.dp, or --piece K for one", n);
    for (int64_t k = 0; k < n; k++) {
        struct vl_batch b = { 0 };
        char *name = NULL;
        int rc;

        if (j->o->piece >= 0 && j->o->piece != k)
            continue;
        name = strstr(out, "%d") ? piece_name(out, k) : vl_strdup(out);
        rc = vl_batch_rows(&b, &j->in, first[k], first[k + 1] - first[k], e) ||
             vl_job_write(j, &b, name, e);
        vl_batch_free(&b);
        free(name);
        if (rc)
            return e->code;
    }
    j->written = 1;
    return 0;
}

static int do_chunk(struct vl_job *j, struct vl_err *e)
{
    int64_t n, *first;
    int rc = number(j->arg[0], "chunk", &n, e);

    if (rc || (n > 0 && vl_try_alloc(&first, (size_t)n + 1, sizeof *first, "pieces", e)))
        return e->code;
    if (n < 1)
        return vl_fail(e, VL_E_USAGE, "chunk: cannot make %" PRId64 " pieces", n);
    rc = vl_batch_chunk(&j->in, n, j->o->auto_padding || vl_batch_auto_padding(&j->in), first, e);
    if (!rc)
        rc = write_pieces(j, first, n, e);
    free(first);
    return rc;
}

static int do_split(struct vl_job *j, struct vl_err *e)
{
    int64_t size, n, *first;
    int rc = number(j->arg[0], "split", &size, e);

    if (rc)
        return rc;
    if (size < 1)
        return vl_fail(e, VL_E_USAGE, "split: cannot make pieces of %" PRId64 " rows", size);
    n = (j->in.rows + size - 1) / size;
    first = vl_alloc(((size_t)n + 1) * sizeof *first);
    for (int64_t k = 0; k <= n; k++)
        first[k] = k * size < j->in.rows ? k * size : j->in.rows;
    rc = write_pieces(j, first, n, e);
    free(first);
    return rc;
}

/* ---- several batches ---- */

/* Reads the batches that are named as operands; caller frees each and the list. */
static int read_all(struct vl_job *j, struct vl_batch **b, struct vl_err *e)
{
    *b = vl_alloc((j->narg + 1) * sizeof **b);
    for (size_t i = 0; i < j->narg; i++)
        if (vl_dp_read(&(*b)[i], j->arg[i], NULL, e))
            return e->code;
    return 0;
}

static void free_all(struct vl_batch *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        vl_batch_free(&b[i]);
    free(b);
}

static int do_concat(struct vl_job *j, struct vl_err *e)
{
    const struct vl_batch **part = vl_alloc((j->narg + 1) * sizeof *part);
    struct vl_batch *b = NULL;
    int rc = read_all(j, &b, e);

    for (size_t i = 0; i < j->narg; i++)
        part[i] = &b[i];
    if (!rc)
        rc = vl_batch_concat(&j->out, part, j->narg, e);
    if (!rc && vl_batch_unique(&j->out, e))
        rc = vl_err_prefix(e, "concat");
    free(part);
    free_all(b, j->narg);
    return rc;
}

static int do_union(struct vl_job *j, struct vl_err *e)
{
    struct vl_batch *b = NULL;
    int rc = read_all(j, &b, e);

    for (size_t i = 1; i < j->narg && !rc; i++)
        if ((rc = vl_batch_union(&b[0], &b[i], e)))
            vl_err_prefix(e, "%s", j->arg[i]);
    if (!rc && j->narg) {
        j->out = b[0];
        b[0] = (struct vl_batch){ 0 };
    }
    free_all(b, j->narg);
    return rc;
}

/* ---- the table ---- */

enum { ONE, FILES, NO_INPUT }; /* reads one batch; its operands are files; reads by itself */

static const struct command {
    const char *name, *args, *what;
    size_t lo, hi; /* arguments before the files */
    int input;
    int (*run)(struct vl_job *, struct vl_err *);
} command[] = {
    { "select", "[-k LIST] [--meta LIST]", "keep these columns and meta keys", 0, 0, ONE,
      do_select },
    { "pop", "[-k LIST] [--meta LIST] [--popped FILE]", "take columns out, into FILE", 0, 0, ONE,
      do_pop },
    { "drop", "[-k LIST] [--meta LIST]", "leave columns and meta keys out", 0, 0, ONE, do_drop },
    { "rename", "OLD:NEW...", "rename columns, all at once", 1, SIZE_MAX, ONE, do_rename },
    { "set-meta", "KEY VALUE... | --unset KEY...", "set meta_info keys to JSON values or strings",
      1, SIZE_MAX, ONE, do_set_meta },
    { "slice", "START:STOP:STEP", "rows by Python's slice rules", 1, 1, ONE, do_slice },
    { "index", "I,J,... | --mask 0,1,...", "these rows, in this order", 0, 1, ONE, do_index },
    { "reorder", "I,J,...", "all rows, in this order", 1, 1, ONE, do_reorder },
    { "repeat", "N [--tiled] | --counts N,N,...", "each row several times", 0, 1, ONE, do_repeat },
    { "unfold", "N [-k LIST]", "cut the second dimension into N rows", 1, 1, ONE, do_unfold },
    { "fold", "M", "rows into M groups: (B, ...) to (M, B/M, ...)", 1, 1, ONE, do_fold },
    { "pad", "M | --copies K [--first]", "to a multiple of M rows, or K copies of the last", 0, 1,
      ONE, do_pad },
    { "unpad", "K", "drop the last K rows", 1, 1, ONE, do_unpad },
    { "chunk", "N [--auto-padding] [--piece K]", "N pieces, -o part-%d.dp", 1, 1, ONE, do_chunk },
    { "split", "ROWS [--piece K]", "pieces of ROWS rows, -o part-%d.dp", 1, 1, ONE, do_split },
    { "concat", "FILE...", "the rows of all files", 0, SIZE_MAX, FILES, do_concat },
    { "union", "FILE...", "the columns of all files", 0, SIZE_MAX, FILES, do_union },
    { "filter", "FILTER", "rows for which the jq filter is true", 1, 1, ONE, vl_job_filter },
    { "filter-groups", "--metric NAME [--target N]", "prompts whose samples differ in NAME", 0, 0,
      ONE, vl_job_filter_groups },
    { "pairs", "--metric NAME", "best and worst sample of each prompt, for verl-update --role dpo",
      0, 0, ONE, vl_job_pairs },
    { "balance", "WORKERS", "order rows for equal work in equal slices", 1, 1, ONE,
      vl_job_balance },
    { "map", "--filter FILTER | --command CMD", "change rows by jq, or by any program", 0, 0, ONE,
      vl_job_map },
    { "from-json", "[--like FILE] [--dtype NAME=T] [FILE]", "JSON lines to a batch", 0, 1, NO_INPUT,
      vl_job_from_json },
    { "to-safetensors", "", "write an uncompressed safetensors file", 0, 0, ONE,
      vl_job_to_safetensors },
};

char *vl_batchcmd_help(void)
{
    struct vl_buf t = { 0 };

    vl_buf_str(&t, "Commands:\n");
    for (size_t i = 0; i < sizeof command / sizeof *command; i++)
        vl_buf_printf(&t, "  %s %s\n      %s\n", command[i].name, command[i].args, command[i].what);
    vl_buf_str(
        &t, "The batch is read from -i FILE; several are united by columns.\n\n"
            "  verl-batch slice 0:64 -i gen.dp -o first.dp\n"
            "  verl-dump x.dp | jq -c '.score *= 2' | verl-batch from-json --like x.dp -o y.dp\n");
    return vl_buf_detach(&t);
}

static const struct command *find_command(const struct vl_strs *op, struct vl_err *e)
{
    struct vl_buf names = { 0 };

    for (size_t i = 0; i < sizeof command / sizeof *command; i++) {
        if (op->n && strcmp(op->s[0], command[i].name) == 0) {
            vl_buf_free(&names);
            return &command[i];
        }
        vl_buf_printf(&names, " %s", command[i].name);
    }
    vl_fail(e, VL_E_USAGE, "%s%s%s; commands:%s", op->n ? "no command '" : "no command given",
            op->n ? op->s[0] : "", op->n ? "'" : "", names.s);
    vl_buf_free(&names);
    return NULL;
}

/* ---- output ---- */

/* Adds the options that were used: those that are not null, false, empty, or a number's "none". */
static void put_used(struct vl_buf *t, const char *options)
{
    static const char *const none[] = { "null", "false", "[]", "0", "-1" };
    struct vl_json o = { 0 };
    struct vl_err why = { 0 };
    uint32_t k = 1;

    if (vl_json_parse(&o, options, strlen(options), "options", &why) == 0)
        for (uint32_t i = 0; i < o.node[0].count; i++) {
            uint32_t v = o.node[k].next;
            struct vl_buf value = { 0 };
            int used = 1;

            vl_json_raw(&o, v, &value);
            for (size_t n = 0; n < sizeof none / sizeof *none; n++)
                used &= strcmp(value.s, none[n]) != 0;
            if (used) {
                vl_buf_ch(t, ',');
                vl_json_raw(&o, k, t);
                vl_buf_printf(t, ":%s", value.s);
            }
            vl_buf_free(&value);
            k = o.node[v].next;
        }
    vl_json_free(&o);
}

static char *options_json(const struct vl_job *j)
{
    struct vl_buf t = { 0 };
    char *rest = vl_parsed_provenance(j->x->parsed);
    const struct vl_strs *op = &j->x->common->operands;

    vl_buf_str(&t, "{\"command\":");
    vl_json_put_str(&t, op->s[0], strlen(op->s[0]));
    if (strcmp(op->s[0], "concat") && strcmp(op->s[0], "union") && strcmp(op->s[0], "from-json")) {
        vl_buf_str(&t, ",\"arguments\":["); /* those of the others are paths */
        for (size_t i = 0; i < j->narg; i++) {
            vl_buf_str(&t, i ? "," : "");
            vl_json_put_str(&t, j->arg[i], strlen(j->arg[i]));
        }
        vl_buf_ch(&t, ']');
    }
    put_used(&t, rest);
    vl_buf_ch(&t, '}');
    free(rest);
    return vl_buf_detach(&t);
}

int vl_job_write(struct vl_job *j, struct vl_batch *b, const char *path, struct vl_err *e)
{
    char *options = options_json(j);
    struct vl_prov p = {
        .program = "verl-batch", .version = VL_VERSION, .options = options, .seed = INT64_MIN
    };
    struct vl_dp_write w = { .level = (int)j->x->common->level };
    int rc = vl_prov_add(b, &p, e);

    if (!rc)
        rc = vl_dp_write(b, path, &w, e);
    free(options);
    return rc;
}

void vl_job_dropped(struct vl_job *j, const char *name, int64_t n)
{
    char metric[80];

    vl_info(&j->x->log, "%s: %" PRId64 " of %" PRId64 " rows dropped", name, n, j->in.rows);
    snprintf(metric, sizeof metric, "%s/dropped_rows", name);
    vl_meta_metric(&j->out, metric, (double)n);
}

/* One batch may hold a (uid, sample) twice, after pad or repeat; only uniting wants them once. All
 * ranks get it when `all`. */
static int read_input(struct vl_ctx *x, struct vl_batch *b, int all, struct vl_err *e)
{
    const struct vl_strs *in = &x->common->input;
    int rc = 0;

    if (in->n > 1 || (strcmp(in->s[0], "-") == 0 && !x->comm.stdin_ok))
        return vl_stage_read(x, b, e);
    if (x->comm.rank == 0)
        rc = vl_dp_read(b, in->s[0], NULL, e);
    if (!all)
        return rc;
    return vl_comm_agree(&x->comm, e) ? e->code : vl_batch_bcast(&x->comm, b, e);
}

int vl_stage_batch(struct vl_ctx *x, const void *opts, struct vl_err *e)
{
    const struct vl_strs *op = &x->common->operands;
    const struct command *c = find_command(op, e);
    struct vl_job j = { .x = x, .o = opts };
    int rc;

    if (!c)
        return e->code;
    j.arg = op->s + 1;
    j.narg = op->n - 1;
    if (j.narg < c->lo || j.narg > c->hi)
        return vl_fail(e, VL_E_USAGE, "usage: verl-batch %s %s%s", c->name, c->args,
                       c->input == ONE ? " -i FILE -o FILE" : "");
    if (c->input == FILES && vl_parsed_given(x->parsed, &x->common->input))
        return vl_fail(e, VL_E_USAGE, "%s: its files are operands, not -i", c->name);
    rc = c->input == ONE ? read_input(x, &j.in, c->run == vl_job_map, e) : 0;
    if (!rc && (x->comm.rank == 0 || c->run == vl_job_map)) /* map works on all ranks */
        rc = c->run(&j, e);
    if (!rc && !j.written && x->comm.rank == 0)
        rc = vl_job_write(&j, &j.out, x->common->output, e);
    vl_batch_free(&j.in);
    vl_batch_free(&j.out);
    return rc;
}
