/* philox.h - counter-based random numbers (Philox4x32-10, Salmon et al. 2011).
 *
 * Every draw is a pure function of (seed, uid, step, sample, position, purpose): no streams, so a
 * row gets the same numbers whichever rank, batch or process computes it. */
#ifndef VL_PHILOX_H
#define VL_PHILOX_H

#include <stddef.h>
#include <stdint.h>

enum vl_rng_purpose { VL_RNG_SAMPLE = 1, VL_RNG_SHUFFLE = 2, VL_RNG_INIT = 3, VL_RNG_DROPOUT = 4 };

struct vl_philox_key {
    uint32_t k[2];
};

/* Raw block: out[4] from counter[4] and key. */
void vl_philox(uint32_t out[4], const uint32_t counter[4], struct vl_philox_key key);

/* Key of a named thing (a prompt's uid, a tensor's name): XXH64(bytes, seed) as (low, high). */
struct vl_philox_key vl_philox_key(const void *bytes, size_t n, uint64_t seed);

/* Uniform in (0, 1), 53 bits: counter = {position, sample, step, purpose}. */
double vl_uniform(struct vl_philox_key key, uint32_t position, uint32_t sample, uint32_t step,
                  enum vl_rng_purpose purpose);

/* perm[0..n) = a permutation that depends on (seed, epoch) only (Fisher-Yates, purpose shuffle). */
void vl_shuffle(int64_t *perm, int64_t n, uint64_t seed, uint32_t epoch);

#endif
