/* version.h - directories of numbered versions: vNNNNNN/ and the link `current`.
 *
 * Train states and published rollout weights have the same frame: versions only grow, a directory is
 * whole once it has its final name, and the link says which one is in force. The record inside is
 * state.json (train state) or version.json (published weights). */
#ifndef VL_VERSION_H
#define VL_VERSION_H

#include "libverl/model/model.h"

#define VL_VERSION_NAME 24 /* bytes for "v000012" with NUL */

/* Number in a version's name, or -1 when it is not one ("v" and six digits or more). */
int64_t vl_version_number(const char *name);
/* The same for what a user types: "v000012", "v12" or "12". */
int64_t vl_version_parse(const char *text);
void vl_version_name(char name[VL_VERSION_NAME], int64_t number);

/* The directory that `path` means, links resolved: itself when it has a config.json, else the
 * version its link `current` points to. A link to a missing or damaged version is VL_E_DATA naming
 * the newest usable one; nothing there is VL_E_NOINPUT. Caller frees *dir. */
int vl_version_resolve(const char *path, char **dir, struct vl_err *e) VL_MUST_CHECK;

/* What `current` points to, as a number; -1 when there is no link. A link that points to nothing
 * usable is VL_E_DATA as above. */
int vl_version_current(const char *dir, int64_t *number, struct vl_err *e) VL_MUST_CHECK;

/* digests.json in a version's directory lists bytes and hash of its files that are not weights.
 * Written before publishing, unless it is there (a restored version's); checked whenever the version
 * is used. A file that is missing or not as listed is VL_E_DATA naming it; no list: no check. */
int vl_digests_write(const char *dir, struct vl_err *e) VL_MUST_CHECK;
int vl_digests_check(const char *dir, struct vl_err *e) VL_MUST_CHECK;

/* Whether dir/vN is there, its record can be read, and its files are as digests.json says. */
int vl_version_usable(const char *dir, int64_t number);

/* Numbers of all versions in dir in rising order; *n of them (0 when dir is missing); caller frees. */
int64_t *vl_version_list(const char *dir, int64_t *n);

/* Takes version, hash and source hash of m->dir from its record into m; no record: no change. */
int vl_version_read(struct vl_model *m, struct vl_err *e) VL_MUST_CHECK;

/* The writer's lock: flock on dir/.lock until vl_version_unlock (or the end of the process). A held
 * lock is VL_E_RETRY naming the process that holds it. */
int vl_version_lock(const char *dir, int *fd, struct vl_err *e) VL_MUST_CHECK;
void vl_version_unlock(int fd);

/* Publishes the finished directory `aside` (its files fsynced) as dir/vN: fsync, files read-only,
 * rename, parent fsync; then points `current` at it, unless `link` is 0. `stage` prefixes the stop
 * points of kill tests: STAGE-written, STAGE-renamed, STAGE-linked. */
int vl_version_publish(const char *dir, const char *aside, int64_t number, int link,
                       const char *stage, struct vl_err *e) VL_MUST_CHECK;

/* Removes what interrupted writers left in dir (.aside-*). Call it holding the lock. */
int vl_version_sweep(const char *dir, struct vl_err *e) VL_MUST_CHECK;

/* Removes all versions but the newest `keep`, `spare` (-1: none) and those any link in dir points to,
 * and sweeps. Call it holding the lock. */
int vl_version_prune(const char *dir, int64_t keep, int64_t spare, struct vl_err *e) VL_MUST_CHECK;

#endif
