/* provenance.h - where a batch came from: a graph of stages keyed by content hash.
 *
 * The text is one JSON object, parents before children:
 *   {"HASH": {"program": ..., "version": ..., "options": {...}, "seed": n, "weight_version": ...,
 *             "parents": ["HASH", ...]}, ...}
 * HASH is vl_dp_hash of what the stage wrote. It holds what can change values and nothing else: no
 * paths, hosts, times, ranks or threads, so that the same work gives the same bytes. */
#ifndef VL_PROVENANCE_H
#define VL_PROVENANCE_H

#include "libverl/batch/batch.h"

/* One stage's work, for vl_prov_add. */
struct vl_prov {
    const char *program, *version;
    const char *options;        /* JSON object text (vl_parsed_provenance) or NULL */
    int64_t seed;               /* INT64_MIN: none was used */
    const char *weight_version; /* or NULL */
};

/* Last step before writing: adds the node of the batch as it is now, whose parents are b's, and
 * makes its hash b's only parent. Nothing is added when the content is a parent's. */
int vl_prov_add(struct vl_batch *b, const struct vl_prov *p, struct vl_err *e) VL_MUST_CHECK;

/* Nodes of a, then those of b that a lacks. Either may be NULL; malformed text counts as empty.
 * Caller frees; NULL when both are. */
char *vl_prov_merge(const char *a, const char *b);

/* Documents of a stream as one batch: vl_batch_concat, and when one stage wrote them all its node
 * is kept once, under the hash of the whole, as if it had been written in one piece. */
int vl_prov_join_stream(struct vl_batch *dst, const struct vl_batch *doc, size_t n,
                        struct vl_err *e) VL_MUST_CHECK;

#endif
