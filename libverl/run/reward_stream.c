/* reward_stream.c - scoring the documents of a stream as they come. See reward_stream.h.
 *
 * The overlap changes when a row is scored and nothing else: at the end the documents are one batch,
 * as if it had been read whole, and the stage goes on with the scores that are there. A stream that
 * breaks off is an error like any cut file: what was scored is thrown away. */
#include "libverl/run/reward_stream.h"

#include "formats/dp.h"
#include "libverl/batch/provenance.h"
#include "libverl/reward/scorers.h"
#include "libverl/run/reward_process.h"
#include "libverl/run/reward_rule.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct document {
    struct vl_batch b;
    struct vl_reward_rows rows;
};

/* Where a row with a valid token is. */
struct place {
    const struct document *doc;
    int64_t row;
};

struct stream {
    struct vl_ctx *x;
    const struct vl_reward_opts *o;
    const struct vl_reward_how *how;
    struct vl_reward_early *early;
    int fd;
    const char *name;
    struct vl_dp_feed *feed;
    struct document **doc;
    size_t docs;
    int64_t rows; /* in them */
    struct place *place;
    int64_t done, checked;  /* rows scored; rows looked at for failures */
    int idle;               /* the scores are a column: nothing is scored here */
    int is_stream;          /* known at the end */
    struct vl_batch *whole; /* gets a batch that is no stream */
};

/* By rules: the rows from `from` on, all of one document. */
static int score_document(struct stream *s, const struct document *d, int64_t from,
                          struct vl_err *e)
{
    int64_t n = s->early->n - from, *asked = vl_alloc((size_t)n * sizeof *asked);
    struct vl_score *row = vl_alloc((size_t)d->b.rows * sizeof *row);
    const struct vl_reward_job job = { .rows = &d->rows, .asked = asked, .nasked = n, .s = row };

    for (int64_t k = 0; k < n; k++)
        asked[k] = s->place[from + k].row;
    (void)!vl_reward_by_rules(s->x, s->how->rules, s->o, &job, e);
    for (int64_t k = 0; k < n; k++)
        s->early->s[from + k] = row[asked[k]];
    free(row);
    free(asked);
    return e->code;
}

/* Adds the rows of the newest document that have a text. */
static int add_rows(struct stream *s, struct document *d, struct vl_err *e)
{
    struct vl_reward_early *early = s->early;
    int64_t from = early->n;

    d->rows = *s->how->like;
    d->rows.first = s->rows;
    s->rows += d->b.rows;
    s->idle |= !s->how->scorer_given && vl_batch_col(&d->b, "rm_scores");
    if (!d->b.rows || s->idle)
        return 0;
    if ((!early->tok && vl_reward_tokenizer(s->x, &d->b, &early->tok, e)) ||
        vl_reward_rows_open(&d->rows, &d->b, s->o->source_key, e))
        return e->code;
    d->rows.tok = early->tok;
    if (vl_batch_col(&d->b, "rm_scores") &&
        vl_batch_need(&d->b, "rm_scores", VL_F32, 1, &d->rows.R, &d->rows.rm_scores, e))
        return e->code;
    early->s = vl_realloc(early->s, (size_t)(early->n + d->b.rows) * sizeof *early->s);
    s->place = vl_realloc(s->place, (size_t)(early->n + d->b.rows) * sizeof *s->place);
    for (int64_t i = 0; i < d->b.rows; i++)
        if (vl_reward_length(&d->rows, i, NULL)) {
            early->s[early->n] = (struct vl_score){ 0 };
            s->place[early->n++] = (struct place){ d, i };
        }
    return s->how->rules ? score_document(s, d, from, e) : 0;
}

static int add_documents(struct stream *s, struct vl_err *e)
{
    for (;;) {
        struct document *d = vl_alloc(sizeof *d);
        int got;

        if (vl_dp_feed_next(s->feed, &d->b, &got, e) || !got) {
            free(d);
            return e->code;
        }
        s->doc = vl_realloc(s->doc, (s->docs + 1) * sizeof *s->doc);
        s->doc[s->docs++] = d;
        if (add_rows(s, d, e))
            return e->code;
    }
}

/* ---- what the pool asks for ---- */

static int arrived(void *arg, int64_t *rows, struct vl_err *e)
{
    static char piece[1 << 18];
    struct stream *s = arg;
    ssize_t n = read(s->fd, piece, sizeof piece);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n < 0)
        return vl_fail_errno(e, VL_E_IO, "%s: read failed", s->name), 1;
    if (n == 0) {
        (void)!vl_dp_feed_end(s->feed, s->whole, &s->is_stream, e);
        return 1;
    }
    vl_dp_feed_add(s->feed, piece, (size_t)n);
    (void)!add_documents(s, e);
    *rows = s->early->n;
    return e->code != 0;
}

static void put_line(void *arg, int64_t k, struct vl_buf *out)
{
    const struct stream *s = arg;

    vl_reward_line(&s->place[k].doc->rows, s->place[k].row, k, out);
}

static int take_answer(void *arg, int64_t k, const char *json, size_t n, const char *why)
{
    struct stream *s = arg;
    struct vl_score *score = &s->early->s[k];

    if (json)
        vl_score_parse(score, json, n);
    else
        vl_score_fail(score, "%s", why);
    if (s->done < s->early->n)
        vl_progress(&s->x->log, "rows", ++s->done, s->early->n, "so far");
    return score->why && !strcmp(vl_reward_policy(s->x, s->o), "fail");
}

/* ---- together ---- */

/* The first row that fails for good. */
static int check_failures(struct stream *s, struct vl_err *e)
{
    for (; s->checked < s->early->n && !strcmp(s->o->on_error, "fail"); s->checked++) {
        const struct place *at = &s->place[s->checked];

        if (s->early->s[s->checked].why)
            return vl_reward_row_failed(&at->doc->rows, at->row, s->early->s[s->checked].why, e);
    }
    return 0;
}

/* By rules: a document is scored before more bytes are read. */
static int read_and_score(struct stream *s, struct vl_err *e)
{
    int64_t rows;

    while (!arrived(s, &rows, e) && !check_failures(s, e))
        ;
    return e->code ? e->code : check_failures(s, e);
}

static int join(const struct stream *s, struct vl_batch *b, struct vl_err *e)
{
    struct vl_batch *part = vl_alloc(s->docs * sizeof *part); /* borrowed */

    for (size_t i = 0; i < s->docs; i++)
        part[i] = s->doc[i]->b;
    (void)!vl_prov_join_stream(b, part, s->docs, e);
    free(part);
    return e->code;
}

static int read_pipe(void *arg, const char *path, int fd, struct vl_batch *b, struct vl_err *e)
{
    struct stream *s = arg;
    const struct vl_scorers_io io = { s, put_line, take_answer, arrived, fd };

    s->fd = fd;
    s->name = strcmp(path, "-") ? path : "standard input";
    s->feed = vl_dp_feed_open(s->name);
    s->whole = b;
    if (s->how->rules)
        (void)!read_and_score(s, e);
    else if (!vl_reward_pool(s->x, s->o, 0, &io, e))
        (void)!check_failures(s, e);
    if (!e->code && s->is_stream)
        (void)!join(s, b, e);
    s->early->used = s->is_stream && !s->idle;
    vl_dp_feed_close(s->feed);
    for (size_t i = 0; i < s->docs; i++) {
        vl_batch_free(&s->doc[i]->b);
        free(s->doc[i]);
    }
    free(s->doc);
    free(s->place);
    return e->code;
}

static int is_pipe(const char *path)
{
    struct stat st;
    int rc = strcmp(path, "-") ? stat(path, &st) : fstat(STDIN_FILENO, &st);

    return !rc && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

int vl_reward_stream_read(struct vl_ctx *x, const struct vl_reward_opts *o,
                          const struct vl_reward_how *how, struct vl_batch *b,
                          struct vl_reward_early *early, struct vl_err *e)
{
    struct stream s = { .x = x, .o = o, .how = how, .early = early };
    const struct vl_strs *in = &x->common->input;

    *early = (struct vl_reward_early){ 0 };
    if (!o->stream || x->comm.size > 1 || in->n != 1 || !is_pipe(in->s[0]) || o->judge.url ||
        vl_reward_one_call(o) || vl_rm_wanted(&o->rm) || how->whole)
        return vl_stage_read(x, b, e);
    return vl_stage_read_by(x, b, read_pipe, &s, e);
}

void vl_reward_early_free(struct vl_reward_early *early)
{
    for (int64_t k = 0; k < early->n; k++)
        vl_score_free(&early->s[k]);
    free(early->s);
    vl_tok_free(early->tok);
}
