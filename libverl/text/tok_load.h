/* tok_load.h - reading tokenizer.json: what its components and its model share. */
#ifndef VL_TOK_LOAD_H
#define VL_TOK_LOAD_H

#include "formats/json.h"
#include "libverl/text/tok_impl.h"

struct vl_load {
    struct vl_tok *t;
    struct vl_json j;
    const char *path;
    struct vl_err *e;
    struct vl_buf key; /* scratch */
    int have_tables;   /* vocabulary and merges came from a cache */
};

/* "PATH: what name" as VL_E_DATA. */
int vl_load_bad(struct vl_load *l, const char *what, const char *name);
int vl_load_bool(struct vl_load *l, int64_t obj, const char *key, int otherwise);
char *vl_load_str(struct vl_load *l, int64_t obj, const char *key, size_t *n); /* NULL: none */
int vl_load_null(struct vl_load *l, int64_t i); /* absent counts as null */
/* Type of a component, for comparisons and messages; borrowed until the next call. */
const char *vl_load_type(struct vl_load *l, int64_t obj);

/* tok_steps.c: normalizer, pre-tokenizer, post-processor and decoder, the members of obj. */
int vl_load_steps(struct vl_load *l, int64_t obj) VL_MUST_CHECK;
/* tok_cache.c: the tables of a large tokenizer.json (source_n bytes, t->hash) kept in a file.
 * path: where, NULL when no cache is to be used; caller frees. use: 1 when t has its tables now, from
 * the file, and rest is the JSON of everything else (borrowed from t). make: writes the file. */
#define VL_TOK_CACHE_MIN ((size_t)1 << 20) /* smaller ones load at once */
char *vl_tok_cache_path(const struct vl_tok *t, size_t source_n);
int vl_tok_cache_use(struct vl_tok *t, const char *path, size_t source_n, const char **rest,
                     size_t *n);
void vl_tok_cache_make(struct vl_load *l, const char *path, size_t source_n);
/* tok_model.c: vocabulary, merges and options of the member "model". */
int vl_load_model(struct vl_load *l, int64_t obj) VL_MUST_CHECK;

#endif
