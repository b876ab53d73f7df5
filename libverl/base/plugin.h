/* plugin.h - parts that are opened when they are needed: MPI (libverl_mpi.so), CUDA. */
#ifndef VL_PLUGIN_H
#define VL_PLUGIN_H

#include "libverl/base/err.h"

/* Opens `file` and finds `symbol` in it. Looked for beside the program, in ../lib and ../lib/verl,
 * one directory further up for the test programs, then where the dynamic loader looks. The
 * plugin stays open. VL_E_UNAVAIL with the loader's own words. */
int vl_plugin_symbol(void *fn_out, const char *file, const char *symbol,
                     struct vl_err *e) VL_MUST_CHECK;

#endif
