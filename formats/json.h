/* json.h - a span scanner for JSON (RFC 8259, checked), and writers of JSON text.
 *
 * Numbers and strings keep their source bytes: "1.0", 1e400 and a 30-digit integer pass through
 * unchanged, and union tells 1 from 1.0. The whole text becomes one flat array of nodes; nothing is
 * copied. Depth is limited to 512, since texts come from models and users. */
#ifndef VL_JSON_H
#define VL_JSON_H

#include "libverl/base/mem.h"

enum vl_json_type {
    VL_JSON_NULL,
    VL_JSON_FALSE,
    VL_JSON_TRUE,
    VL_JSON_NUMBER,
    VL_JSON_STRING,
    VL_JSON_ARRAY,
    VL_JSON_OBJECT,
};

struct vl_json_node {
    uint8_t type;    /* enum vl_json_type */
    uint8_t escaped; /* string with backslashes */
    uint32_t count;  /* array: elements; object: members */
    uint32_t next;   /* index of the node after this value's subtree (its next sibling) */
    size_t at, len;  /* source bytes; for a string without its quotes */
};

/* Children of an array follow it: first = i + 1, then node[c].next, `count` of them. In an object
 * each member is two nodes, the key (a string) and its value. */
struct vl_json {
    const char *text; /* borrowed; must outlive the document */
    size_t len;
    struct vl_json_node *node;
    uint32_t n;
};

/* Parses one JSON value with nothing but white space around it; `name` (a file, a row) starts the
 * error line, which gives the byte offset. Duplicate keys are accepted, the last wins in _get.
 * VL_E_DATA on malformed text. Free with vl_json_free (also after an error). */
int vl_json_parse(struct vl_json *j, const char *text, size_t len, const char *name,
                  struct vl_err *e) VL_MUST_CHECK;
/* The same with a limit on the number of values (it is UINT32_MAX above: indices are 32 bits). */
int vl_json_parse_max(struct vl_json *j, const char *text, size_t len, const char *name,
                      uint32_t max_nodes, struct vl_err *e) VL_MUST_CHECK;
void vl_json_free(struct vl_json *j);

/* Node index of obj's member `key`, or -1 (also when obj is no object or is -1). */
int64_t vl_json_get(const struct vl_json *j, int64_t obj, const char *key);
/* The same under the string that is node i of k: also one that holds \u0000. */
int64_t vl_json_get_as(const struct vl_json *j, int64_t obj, const struct vl_json *k, int64_t i);
/* Node index of element k of an array, or -1. Linear; loop with ->next instead where it matters. */
int64_t vl_json_at(const struct vl_json *j, int64_t arr, uint32_t k);
int vl_json_is(const struct vl_json *j, int64_t i, enum vl_json_type t);

/* 1 when node i is such a value and it fits (i64: an integer without fraction or exponent; f64: any
 * number a double can hold, so not 1e400), else 0 with *out untouched. i = -1 gives 0. */
int vl_json_i64(const struct vl_json *j, int64_t i, int64_t *out);
int vl_json_f64(const struct vl_json *j, int64_t i, double *out);
int vl_json_bool(const struct vl_json *j, int64_t i, int *out);
/* As f64, and also the strings "NaN", "Infinity" and "-Infinity", which the writers below make. */
int vl_json_real(const struct vl_json *j, int64_t i, double *out);
/* The string's text with escapes resolved, appended to out; a lone surrogate becomes its WTF-8
 * bytes (ED Ax xx). 1 when i is a string. */
int vl_json_str(const struct vl_json *j, int64_t i, struct vl_buf *out);
char *vl_json_strdup(const struct vl_json *j, int64_t i); /* NULL unless a string; caller frees.
    A text with \u0000 inside reads as cut there: use _str or _name where that can matter. */
/* The same for names: \u0000 becomes the bytes C0 80, which vl_col_name_ok() refuses and which
 * equal no other name, so that "x\u0000y" is never taken for "x". */
char *vl_json_name(const struct vl_json *j, int64_t i);
/* The value's own source text (a string with its quotes), appended. */
void vl_json_raw(const struct vl_json *j, int64_t i, struct vl_buf *out);
/* Whether node i, a string, equals s. */
int vl_json_streq(const struct vl_json *j, int64_t i, const char *s);

/* Writers: append to b. put_str quotes and escapes; bytes that are not UTF-8 become U+FFFD and the
 * result is 1 when something was lost. put_f32 prints %.9g, put_f64 the shortest of %.15g to %.17g
 * that reads back the same; non-finite numbers are the strings "NaN", "Infinity", "-Infinity". */
int vl_json_put_str(struct vl_buf *b, const char *s, size_t n);
void vl_json_put_f32(struct vl_buf *b, float x);
void vl_json_put_f64(struct vl_buf *b, double x);
void vl_json_put_i64(struct vl_buf *b, int64_t x);

#endif
