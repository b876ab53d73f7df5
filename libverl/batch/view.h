/* view.h - the JSON view of a batch: rows and columns as text. Rules: formats/dataproto.md 4. */
#ifndef VL_VIEW_H
#define VL_VIEW_H

#include "libverl/batch/batch.h"

/* Text of token ids, for the columns prompt_text and response_text (any bytes), and for
 * prompt_tokens and response_tokens: a JSON list with the text of each. */
struct vl_view_text {
    void (*decode)(void *arg, const int64_t *ids, size_t n, struct vl_buf *out);
    void (*pieces)(void *arg, const int64_t *ids, size_t n, struct vl_buf *json);
    void *arg;
};

/* Whether it is one of these four: no column, but a view of ids. */
int vl_view_is_text(const char *name);

/* Appends row i as one JSON object on one line, without the newline: the columns in `columns`
 * (NULL-terminated, must be there; NULL = all), then, with text != NULL and columns == NULL,
 * prompt_text and response_text where the batch has such ids. The four views may also be named in
 * columns. A JSON column's text that does not parse is VL_E_DATA naming row and
 * column. */
int vl_view_row(struct vl_buf *out, const struct vl_batch *b, int64_t row,
                const char *const *columns, const struct vl_view_text *text,
                struct vl_err *e) VL_MUST_CHECK;

/* Appends the value of one column in one row. A JSON column's is written without white space;
 * *lossy (may be NULL) = 1 when surrogates that stand alone became U+FFFD. */
int vl_view_value(struct vl_buf *out, const struct vl_col *c, int64_t row, int *lossy,
                  struct vl_err *e) VL_MUST_CHECK;

/* Copies valid JSON text without the white space between its parts. */
void vl_view_compact(struct vl_buf *out, const char *s, size_t n);

/* Appends {"rows", "batch_size", "hash", "columns": [{"name", "kind", "dtype", "shape", "bytes"}],
 * "meta_info"}: the batch may come from a header-only read. */
void vl_view_schema(struct vl_buf *out, const struct vl_batch *b);
void vl_view_meta(struct vl_buf *out, const struct vl_batch *b); /* meta_info as one object */

#endif
