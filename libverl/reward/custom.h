/* custom.h - a verl user's Python file as the program of a scorer pool. */
#ifndef VL_CUSTOM_H
#define VL_CUSTOM_H

#include "libverl/base/mem.h"

struct vl_custom {
    const char *path;   /* custom_reward_function.path: a file, file://FILE or pkg://MODULE */
    const char *name;   /* .name: a function in it */
    const char *kwargs; /* .reward_kwargs: JSON object text or NULL */
    int batch;          /* the function takes lists and scores all rows in one call */
};

/* Command line of the wrapper (custom_reward.py), NULL-terminated; free with vl_custom_free.
 * VL_E_NOINPUT when the file cannot be read, VL_E_UNAVAIL without python3 or the wrapper. What is
 * in the file shows when the wrapper has started: its answers tell. */
int vl_custom_command(const struct vl_custom *c, char ***argv, struct vl_err *e) VL_MUST_CHECK;
void vl_custom_free(char **argv);
/* JSON text of the file's content hash, for provenance; for a module its name. The caller frees. */
char *vl_custom_identity(const struct vl_custom *c);

#endif
