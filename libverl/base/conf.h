/* conf.h - what was given, from all sources, under full keys; and ${...} references between them.
 *
 * The entries know nothing of types: opt.c converts them. An option without a config key is kept
 * under its long name with two dashes, which no key can look like. */
#ifndef VL_CONF_H
#define VL_CONF_H

#include "libverl/base/keys.h"
#include "libverl/base/yaml.h"

struct vl_conf_entry {
    char *key; /* full */
    struct vl_yaml *value;
    char *source; /* "run.yaml:12" or "command line" */
    int literal;  /* text from a long option: ${...} and null are left alone */
    int listed;   /* a list that a repeated long option built */
    int used;     /* its value was asked for */
};

struct vl_conf {
    struct vl_conf_entry *e;
    size_t n;
};

void vl_conf_free(struct vl_conf *c);
struct vl_conf_entry *vl_conf_get(const struct vl_conf *c, const char *key);
/* Sets (replaces) an entry; takes value. */
struct vl_conf_entry *vl_conf_set(struct vl_conf *c, const char *key, struct vl_yaml *value,
                                  const char *source);
void vl_conf_unset(struct vl_conf *c, const char *key);

/* Every key of a YAML file, over what is there. */
int vl_conf_file(struct vl_conf *c, const struct vl_names *n, const char *path,
                 struct vl_err *e) VL_MUST_CHECK;
/* The same from text in memory; name stands for the file. */
int vl_conf_text(struct vl_conf *c, const struct vl_names *n, const char *text, size_t len,
                 const char *name, struct vl_err *e) VL_MUST_CHECK;
/* One Hydra-like word: key=value, +key=value (also ++: a key the tables lack is accepted), ~key and
 * ~key=value (forget what was given). */
int vl_conf_word(struct vl_conf *c, const struct vl_names *n, const char *word,
                 struct vl_err *e) VL_MUST_CHECK;
/* Whether an argument is such a word and not an operand: it starts like a key and has a '=', or
 * starts with '~' or '+'. */
int vl_conf_is_word(const char *arg);

/* Value of a full key, or NULL when neither it nor its fallbacks are set. ${key}, ${oc.select:key,
 * default} and ${oc.env:NAME,default} are replaced; the caller frees *out. source (may be NULL) gets
 * the entry's source, borrowed. missing() gives the text of a referenced key's default. */
struct vl_conf_default {
    /* YAML text of the default of a full key, caller frees; NULL: none */
    char *(*text)(void *user, const char *full);
    /* the key to use while `full` is not set, or NULL */
    const char *(*fallback)(void *user, const char *full);
    void *user;
};
int vl_conf_value(const struct vl_conf *c, const struct vl_names *n,
                  const struct vl_conf_default *d, const char *full, struct vl_yaml **out,
                  const char **source, struct vl_err *e) VL_MUST_CHECK;

#endif
