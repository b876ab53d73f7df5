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
    const struct vl_reward_rows *like;
    struct vl_reward_early *early;
    int fd;
    const char *name;
    struct vl_dp_feed *feed;
    struct document **doc;
    size_t docs;
    int64_t rows; /* in them */
    struct place *place;
    int64_t done;
    struct vl_batch *whole; /* gets a batch that is no stream */
};

/* Adds the rows of the newest document that have a text. */
static int add_rows(struct stream *s, struct document *d, struct vl_err *e)
{
    struct vl_reward_early *early = s->early;

    d->rows = *s->like;
    d->rows.first = s->rows;
    if (!d->b.rows)
        return 0;
    if ((!early->tok && vl_reward_tokenizer(s->x, &d->b, &early->tok, e)) ||
        vl_reward_rows_open(&d->rows, &d->b, s->o->source_key, e))
        return e->code;
    d->rows.tok = early->tok;
    early->s = vl_realloc(early->s, (size_t)(early->n + d->b.rows) * sizeof *early->s);
    s->place = vl_realloc(s->place, (size_t)(early->n + d->b.rows) * sizeof *s->place);
    for (int64_t i = 0; i < d->b.rows; i++)
        if (vl_reward_length(&d->rows, i, NULL)) {
            early->s[early->n] = (struct vl_score){ 0 };
            s->place[early->n++] = (struct place){ d, i };
        }
    s->rows += d->b.rows;
    return 0;
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
    int is_stream;

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n < 0)
        return vl_fail_errno(e, VL_E_IO, "%s: read failed", s->name), 1;
    if (n == 0) {
        (void)!vl_dp_feed_end(s->feed, s->whole, &is_stream, e);
        s->early->used = is_stream;
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
static int check_failures(const struct stream *s, struct vl_err *e)
{
    for (int64_t k = 0; k < s->early->n && !strcmp(vl_reward_policy(s->x, s->o), "fail"); k++)
        if (s->early->s[k].why)
            return vl_reward_row_failed(&s->place[k].doc->rows, s->place[k].row, s->early->s[k].why,
                                        e);
    return 0;
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
    if (!vl_reward_pool(s->x, s->o, 0, &io, e) && !check_failures(s, e) && s->early->used)
        (void)!join(s, b, e);
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
                          const struct vl_reward_rows *like, struct vl_batch *b,
                          struct vl_reward_early *early, struct vl_err *e)
{
    struct stream s = { .x = x, .o = o, .like = like, .early = early };
    const struct vl_strs *in = &x->common->input;

    *early = (struct vl_reward_early){ 0 };
    if (!o->stream || x->comm.size > 1 || in->n != 1 || !is_pipe(in->s[0]) ||
        !vl_reward_has_process(o) || vl_reward_one_call(o) || vl_rm_wanted(&o->rm))
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
