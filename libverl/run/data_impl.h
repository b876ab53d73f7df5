/* data_impl.h - what the parts of verl-data share: lines, rows, the work on one row. */
#ifndef VL_DATA_IMPL_H
#define VL_DATA_IMPL_H

#include "formats/json.h"
#include "libverl/base/jq.h"
#include "libverl/text/chat.h"
#include "libverl/reward/rule_set.h"
#include "libverl/run/stage_data.h"

/* ---- data_files.c ---- */

/* Names, "-" and patterns to the names of files: a pattern's in order of their bytes; one that no
 * file has is VL_E_NOINPUT. Free with vl_files_free, also after an error. */
int vl_files_expand(const struct vl_strs *names, struct vl_strs *out,
                    struct vl_err *e) VL_MUST_CHECK;
void vl_files_free(struct vl_strs *out);
/* Appends the text of a file of lines ("-": standard input). Parquet and compressed files are read
 * through their programs: VL_E_UNAVAIL where one is missing. */
int vl_files_read(const char *path, struct vl_buf *out, struct vl_err *e) VL_MUST_CHECK;

/* ---- data_lines.c ---- */

struct vl_line {
    const char *s; /* without its newline */
    size_t n;
    int32_t file;
    int64_t number; /* in its file, from 1 */
};

struct vl_lines {
    char **path;
    struct vl_buf *text; /* a file's bytes; the lines point there */
    size_t nfile;
    struct vl_line *line; /* lines that are not blank, all files end to end */
    int64_t n;
    size_t bytes;
};

/* Reads files, see above, and cuts them at 0x0A only, or into the elements of their one list. */
int vl_lines_read(struct vl_lines *l, const struct vl_strs *names, struct vl_err *e) VL_MUST_CHECK;
void vl_lines_free(struct vl_lines *l);

/* ---- data_shape.c ---- */

/* VL_E_DATA where a file, whose lines begin at `first`, is of another kind than one object a line:
 * what it looks like and the command that turns it into lines. */
int vl_lines_shape(const struct vl_lines *l, int32_t file, int64_t first,
                   struct vl_err *e) VL_MUST_CHECK;
/* The first member of an object that is a list of objects; NULL: none. Caller frees. */
char *vl_rows_member(const struct vl_json *j);

/* ---- data_messages.c ---- */

/* A list that is meant to be messages: its first element is an object. */
int vl_is_messages(const struct vl_json *j, int64_t at);
/* Appends the first fault of such a list, "; " before it: "prompt[2].content is missing, ...". A role
 * is text; so is content, or a list of texts, or there is a call or reasoning in its place. */
void vl_check_messages(const struct vl_json *j, const char *name, int64_t at, struct vl_buf *bad);
/* "a list", "missing" (at < 0)... */
const char *vl_json_kind(const struct vl_json *j, int64_t at);

/* ---- data_row.c ---- */

/* Where the row has what becomes tokens; -1: it has not. */
struct vl_row_parts {
    int64_t prompt;    /* a string or a list of messages */
    int64_t messages;  /* with --sft: a whole conversation, in place of the next */
    int64_t answer[2]; /* response; or chosen and rejected */
};

struct vl_reply {
    struct vl_ids ids;
    unsigned char *mask; /* of ids: trained on; NULL: all are */
};

struct vl_row {
    int64_t index;    /* position among all rows of the files: the ROW of its uid */
    char *json;       /* the row as mapped: an object's text */
    struct vl_json j; /* over json */
    struct vl_row_parts parts;
    char *prompt_json; /* raw_prompt: the string, or the messages as rendered */
    struct vl_ids prompt;
    struct vl_reply reply[2]; /* --sft: one; --preference: chosen, rejected */
    int64_t special;          /* special tokens that its content spells */
    struct vl_row_size {
        size_t prompt, response; /* tokens before any limit; of a pair the longer response */
    } size;
    int over; /* some limit was passed: the policy's affair */
    int truncated, done;
};

enum vl_row_fate { VL_ROW_KEPT, VL_ROW_BAD, VL_ROW_OVERLONG };

struct vl_row_work {
    struct vl_ctx *x;
    const struct vl_data_opts *o;
    const struct vl_lines *lines;
    struct vl_tok *tok;
    struct vl_chat *chat, *chat_thinking[2]; /* by a row's enable_thinking, opened when needed */
    struct vl_jq *jq;
    const char *tmpl_name; /* for meta_info: "tokenizer", "none", a file's last name */
    char *tmpl_text;
    int64_t now;              /* what the templates show as the time, in seconds */
    struct vl_rule_set rules; /* what verl-reward will score with */
    int ends; /* whether the template ends conversations: 1 it does, -1 not, 0 not yet asked */
    int need_source; /* --check-scorer was given: each row says its data_source */
    int lenient;     /* --check: an unknown data_source and length are counted, not refused */
    int64_t templated, double_bos, no_bos, straddled, loose;
    int64_t media; /* rows with images, videos or audio, of which nothing is read */
};

/* Opens the tokenizer's and the options' parts; close after an error too. */
int vl_row_work_open(struct vl_row_work *w, const char *model, struct vl_err *e) VL_MUST_CHECK;
void vl_row_work_close(struct vl_row_work *w);

/* Opens the template with the variable enable_thinking in addition to the options'. */
int vl_row_work_chat(struct vl_row_work *w, int thinking, struct vl_chat **c,
                     struct vl_err *e) VL_MUST_CHECK;

/* Maps, checks, renders and tokenizes row r->index. VL_ROW_KEPT, or with e filled VL_ROW_BAD
 * ("FILE:LINE: reason"), or VL_ROW_OVERLONG (e untouched) where the policy filters. */
enum vl_row_fate vl_row_make(struct vl_row_work *w, struct vl_row *r, struct vl_err *e);
void vl_row_free(struct vl_row *r);
/* What can be said of a row without making it: a batch may only be wanted much later. With --map
 * only whether the line is JSON. VL_E_DATA as above. */
int vl_row_check(struct vl_row_work *w, int64_t index, struct vl_err *e) VL_MUST_CHECK;

/* Whether it has an empty response, or one whose trained part was cut off. */
int vl_row_untrained(const struct vl_data_opts *o, const struct vl_row *r);
/* Whether the options ask for a built-in scorer for every data_source. */
int vl_row_wants_scorer(const struct vl_data_opts *o);
/* What verl-reward will score rows of this source with, for people; NULL: nothing. */
const char *vl_row_scorer(const struct vl_row_work *w, const char *source, size_t n);

/* ---- data_kept.c ---- */

/* Which of the candidates are kept, remembered between programs (cache.h). */
struct vl_kept {
    int known;          /* bit, counts and first_bad are those of an earlier run */
    unsigned char *bit; /* candidate i is kept when bit i % 8 of byte i / 8 is set; or NULL */
    int64_t rows;       /* candidates */
    struct vl_kept_counts {
        int64_t bad, overlong, templated, double_bos, no_bos, straddled, loose, media;
    } counts;
    char *first_bad; /* or NULL */
    char *path;      /* NULL: is not to be remembered */
    uint64_t key[2];
};
/* Looks up what an earlier run found for these rows, options and tokenizer. */
void vl_kept_open(struct vl_kept *k, const struct vl_row_work *w, const struct vl_row *row,
                  int64_t n);
/* good: what the caller filled in is right and may be remembered. Frees. */
void vl_kept_close(struct vl_kept *k, int good);

/* ---- data_check.c ---- */

struct vl_check; /* what --check has seen so far */
struct vl_check *vl_check_new(void);
void vl_check_free(struct vl_check *c);
/* Takes note of a row and how it fared: vl_row_make's result and message. */
void vl_check_row(struct vl_check *c, const struct vl_row_work *w, const struct vl_row *r,
                  enum vl_row_fate fate, const struct vl_err *why);
/* Appends the report, as text or one line of JSON. VL_E_DATA when a run with these options would
 * stop at these rows. */
int vl_check_report(struct vl_check *c, const struct vl_row_work *w, int json, struct vl_buf *out,
                    struct vl_err *e) VL_MUST_CHECK;

/* ---- data_render.c ---- */

/* Fills prompt, prompt_json, reply and special from the parts. */
int vl_row_tokenize(struct vl_row_work *w, struct vl_row *r, struct vl_err *e) VL_MUST_CHECK;

/* ---- data_columns.c ---- */

struct vl_data_meta {
    int64_t seed; /* of the run; recorded for the later stages */
    int64_t order_seed, step, epoch, batch;
    int64_t rows_seen, bad, overlong, truncated, left_over;
};

/* Builds the batch from rows (n); uid is EPOCH-ROW unless a row gives one. */
int vl_data_columns(struct vl_batch *b, const struct vl_row_work *w, struct vl_row *const *row,
                    int64_t n, const struct vl_data_meta *m, struct vl_err *e) VL_MUST_CHECK;

#endif
