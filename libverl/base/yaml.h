/* yaml.h - YAML as a tree of values, through libyaml. Scalars stay text: types come from options. */
#ifndef VL_YAML_H
#define VL_YAML_H

#include "libverl/base/mem.h"

enum vl_yaml_kind { VL_YAML_SCALAR, VL_YAML_LIST, VL_YAML_MAP };

struct vl_yaml {
    enum vl_yaml_kind kind;
    char *text;  /* scalar */
    int quoted;  /* scalar in quotes, a block scalar or !!str: always a string, never null */
    size_t line; /* from 1 */
    size_t n;    /* items of a list or map */
    char **key;  /* map: n keys */
    struct vl_yaml **item;
};

/* Parses one YAML 1.2 document (block and flow maps, lists, scalars). name starts error lines as
 * "name:LINE". Aliases, duplicate keys, a second document, nesting deeper than 64 and files over
 * 16 MB are VL_E_USAGE: a config is written by the user. An empty document is an empty map. */
int vl_yaml_parse(struct vl_yaml **out, const char *text, size_t len, const char *name,
                  struct vl_err *e) VL_MUST_CHECK;
/* The same from a file; VL_E_NOINPUT when it cannot be read. */
int vl_yaml_read(struct vl_yaml **out, const char *path, struct vl_err *e) VL_MUST_CHECK;
void vl_yaml_free(struct vl_yaml *y);

struct vl_yaml *vl_yaml_scalar(const char *text, int quoted); /* caller frees */
struct vl_yaml *vl_yaml_copy(const struct vl_yaml *y);
void vl_yaml_push(struct vl_yaml *list, struct vl_yaml *item);                   /* takes item */
void vl_yaml_member(struct vl_yaml *map, const char *key, struct vl_yaml *item); /* takes item */
struct vl_yaml *vl_yaml_new(enum vl_yaml_kind kind); /* an empty list or map; caller frees */
int vl_yaml_null(const struct vl_yaml *y);           /* plain null, Null, NULL, ~ or nothing */
/* Appends y in flow form on one line; reading it back gives the same tree. */
void vl_yaml_put(struct vl_buf *b, const struct vl_yaml *y);
/* Appends a map in block form, two blanks a level; maps inside it too, lists in flow form. */
void vl_yaml_put_block(struct vl_buf *b, const struct vl_yaml *map, int indent);
/* Appends a string as a YAML scalar: plain where that reads back as this string, else quoted. */
void vl_yaml_put_str(struct vl_buf *b, const char *s);

#endif
