/* version.c - --version: what was built, how, with which libraries. The Makefile passes what only the
 * build knows: VL_VERSION, VL_BUILD_FLAGS, VL_MPI_VERSION, VL_CURL_VERSION, VL_JQ_VERSION. */
#include "libverl/base/opt_impl.h"

#include <stdio.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <yaml.h>
#include <zstd.h>

#ifndef VL_BUILD_FLAGS
#    define VL_BUILD_FLAGS "unknown"
#endif
#ifndef VL_MPI_VERSION
#    define VL_MPI_VERSION "no"
#endif
#ifndef VL_CURL_VERSION
#    define VL_CURL_VERSION "no"
#endif
#ifndef VL_JQ_VERSION
#    define VL_JQ_VERSION "unknown"
#endif

#ifdef __clang__
#    define COMPILER "clang " __clang_version__
#else
#    define COMPILER "gcc " __VERSION__
#endif

void vl_print_version(const char *program)
{
    char pcre[64] = "unknown";
    unsigned xx = XXH_versionNumber();

    pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    printf("%s %s\n", program, VL_VERSION);
    printf("build %s, %s\n", COMPILER, VL_BUILD_FLAGS);
    printf("mpi   %s\n", VL_MPI_VERSION);
    printf("curl  %s\n", VL_CURL_VERSION);
    printf("zstd  %s\n", ZSTD_versionString());
    printf("jq    %s\n", VL_JQ_VERSION);
    printf("yaml  %s\n", yaml_get_version_string());
    printf("pcre2 %s\n", pcre);
    printf("utf8proc %s\n", utf8proc_version());
    printf("xxhash %u.%u.%u\n", xx / 10000, xx / 100 % 100, xx % 100);
}
