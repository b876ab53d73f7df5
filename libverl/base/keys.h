/* keys.h - verl's configuration keys: names, defaults, who reads them, and how short names resolve.
 *
 * One table for all programs, so that one YAML file can serve all of them and a misspelt key is
 * refused everywhere. A program's own additions that verl lacks are listed at the table's end. */
#ifndef VL_KEYS_H
#define VL_KEYS_H

#include "libverl/base/mem.h"

struct vl_key {
    const char *key;      /* full dotted name */
    const char *value;    /* default as YAML text; NULL: none, or given by `fallback` */
    const char *fallback; /* key whose value is used while this one is not set, or NULL */
    const char *owner;    /* programs that read it, separated by blanks */
    const char *instead; /* deprecated in verl: what to write; a value other than null is refused */
};

extern const struct vl_key vl_keys[]; /* ends with key == NULL */

const struct vl_key *vl_key_find(const char *full); /* NULL when verl has no such key */

/* The keys one program knows: the table's and those of its options table. */
struct vl_names {
    const char *subtree;    /* its own subtree; "": the keys of its table; NULL: none */
    const char *const *own; /* keys of its options, NULL-terminated */
};

/* Full key of `given`, which may be shortened to a suffix of whole segments: (1) subtree.given, (2)
 * the only suffix match inside the subtree, (3) given itself, (4) the only suffix match anywhere.
 * A key below one whose value is an open map (override_config.x) is accepted as it is. *full is
 * owned by the caller. file = 0 (command line): a name that is both a full key of the SFT trainer,
 * which this program does not read, and a suffix of others counts as ambiguous, since it would be
 * ignored in silence (model.path). VL_E_USAGE: unknown, with the nearest names, or ambiguous, with
 * the candidates; `where` starts the line. */
int vl_key_resolve(const struct vl_names *n, const char *given, int file, const char *where,
                   char **full, struct vl_err *e) VL_MUST_CHECK;

/* Whether `path` is a section: a leading part of a full key, or the leading part of a suffix. */
int vl_key_section(const struct vl_names *n, const char *path);
/* Whether a map is this key's value (override_config), so that its members are no keys. */
int vl_key_open(const char *full);

/* Number of edits (insert, delete, replace, swap neighbours) from a to b. */
size_t vl_edits(const char *a, const char *b);

#endif
