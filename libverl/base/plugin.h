/* plugin.h - parts that are opened when they are needed: MPI (libverl_mpi.so), CUDA, scripts. */
#ifndef VL_PLUGIN_H
#define VL_PLUGIN_H

#include "libverl/base/err.h"

/* Where `file` is: beside the program, in ../lib and ../lib/verl, or one directory further up for
 * the test programs. The caller frees it; NULL: in none of them. */
char *vl_plugin_path(const char *file);

/* Opens `file` and finds `symbol` in it. Looked for as vl_plugin_path does, then where the dynamic
 * loader looks. The plugin stays open. VL_E_UNAVAIL with the loader's own words. */
int vl_plugin_symbol(void *fn_out, const char *file, const char *symbol,
                     struct vl_err *e) VL_MUST_CHECK;

#endif
