/* philox.c - Philox4x32-10 and the draws built on it. See philox.h. */
#include "libverl/base/philox.h"

#include <xxhash.h>

void vl_philox(uint32_t out[4], const uint32_t counter[4], struct vl_philox_key key)
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key.k[0], k1 = key.k[1];

    for (int r = 0; r < 10; r++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;

        c1 = (uint32_t)b, c3 = (uint32_t)a;
        c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

struct vl_philox_key vl_philox_key(const void *bytes, size_t n, uint64_t seed)
{
    uint64_t h = XXH64(bytes, n, seed);

    return (struct vl_philox_key){ { (uint32_t)h, (uint32_t)(h >> 32) } };
}

double vl_uniform(struct vl_philox_key key, uint32_t position, uint32_t sample, uint32_t step,
                  enum vl_rng_purpose purpose)
{
    uint32_t c[4] = { position, sample, step, (uint32_t)purpose }, r[4];

    vl_philox(r, c, key);
    return ((double)(((uint64_t)r[1] << 32 | r[0]) >> 11) + 0.5) * 0x1p-53;
}

void vl_shuffle(int64_t *perm, int64_t n, uint64_t seed, uint32_t epoch)
{
    struct vl_philox_key key = vl_philox_key("shuffle", 7, seed);

    for (int64_t i = 0; i < n; i++)
        perm[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        double u = vl_uniform(key, (uint32_t)i, (uint32_t)(i >> 32), epoch, VL_RNG_SHUFFLE);
        int64_t j = (int64_t)(u * (double)(i + 1)), t = perm[i];

        perm[i] = perm[j], perm[j] = t;
    }
}
