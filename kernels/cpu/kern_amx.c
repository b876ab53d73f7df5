/* kern_amx.c - the bf16 product on AMX tiles.
 *
 * A tile product takes each of its rows by itself, so the number of rows changes no bit; its order
 * of summation, one block of 16 pairs after the other, is that of body_amx.h. Output tiles are 32
 * x 32 (four accumulators, both operands read twice), or 16 x 64 for few rows, where the weights come
 * from memory and each is loaded once; outputs beyond a multiple of 64 take single tiles. */
#if defined(__x86_64__)
#    include <cpuid.h>
#    include <immintrin.h>
#    include <string.h>
#    include <sys/syscall.h>
#    include <unistd.h>

#    include "kernels/cpu/kern.h"

#    define VL_SIMD 16
#    include "kernels/cpu/simd.h"

#    define NR    64 /* width of a panel */
#    define AHEAD 3  /* blocks of the sum between what few rows multiply and what they fetch */

/* The operand of ldtilecfg. */
struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Giving the tiles their shapes takes as long as 15 products, asking for them a fifth of that: so
 * they stay as they are between calls. Live tiles slow nothing down, and the operating system lets
 * them go when a core idles. */
static void set_config(const struct config *c)
{
    struct config have;

    /* gcc 12 thinks that 8 bytes are written here, and read there */
    __asm__ volatile("" : : "r"(&have), "r"(c) : "memory");
    _tile_storeconfig(&have);
    __asm__ volatile("" : : "r"(&have) : "memory");
    if (memcmp(&have, c, sizeof have) != 0)
        _tile_loadconfig(c);
}

/* Tiles 0-3: outputs; 4, 5: rows of a; 6, 7: panels of b. Rows m0 and m1 of the two blocks of a;
 * with m1 = 0 all outputs belong to the first. */
static void configure(int m0, int m1)
{
    struct config c = { .palette = 1 };

    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = (uint8_t)m0;
    }
    if (m1)
        c.rows[2] = c.rows[3] = c.rows[5] = (uint8_t)m1;
    c.rows[6] = c.rows[7] = 16;
    set_config(&c);
}

/* For column below: tile 0 has w columns, tile 6 takes them from b. */
static void config_column(int rows, int w)
{
    struct config c = { .palette = 1, .row_bytes = { [4] = 64 }, .rows = { [4] = (uint8_t)rows } };

    c.row_bytes[0] = c.row_bytes[6] = (uint16_t)(4 * w);
    c.rows[0] = (uint8_t)rows;
    c.rows[6] = 16;
    set_config(&c);
}

/* Where tiles 1, 2 and 3 lie from tile 0, in floats: blocks of 16 x 16 beside and below it. */
struct places {
    int64_t t1, t2, t3;
};

static inline void begin(const float *c, int64_t ldc, struct places p, int add)
{
    if (add) {
        _tile_loadd(0, c, ldc * 4);
        _tile_loadd(1, c + p.t1, ldc * 4);
        _tile_loadd(2, c + p.t2, ldc * 4);
        _tile_loadd(3, c + p.t3, ldc * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
}

static inline void end(float *c, int64_t ldc, struct places p)
{
    _tile_stored(0, c, ldc * 4);
    _tile_stored(1, c + p.t1, ldc * 4);
    _tile_stored(2, c + p.t2, ldc * 4);
    _tile_stored(3, c + p.t3, ldc * 4);
}

static const struct places in_a_row = { 16, 32, 48 };

/* A block of the sum of 17 to 32 rows by 32 outputs. */
static inline void step_32(const uint32_t *a, int64_t lda, const uint32_t *b, int64_t bks)
{
    _tile_loadd(6, b, bks * 4);
    _tile_loadd(4, a, lda * 4);
    _tile_loadd(7, b + 16, bks * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + 16 * lda, lda * 4);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* A block of the sum of 1 to 16 rows by 64 outputs. */
static inline void step_16(const uint32_t *a, int64_t lda, const uint32_t *b, int64_t bks)
{
    _tile_loadd(4, a, lda * 4);
    _tile_loadd(6, b, bks * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 16, bks * 4);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(6, b + 32, bks * 4);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, b + 48, bks * 4);
    _tile_dpbf16ps(3, 4, 7);
}

/* A step fetches `lines` lines from next on into the second-level cache. */
static void tile_32(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                    int64_t bks, int64_t K2, int add, const char *next, int lines)
{
    const struct places square = { 16, 16 * ldc, 16 * ldc + 16 };

    begin(c, ldc, square, add);
    for (int64_t k = 0; k < K2; k += VL_AMX_PAIRS, b += VL_AMX_PAIRS * bks) {
        for (int i = 0; i < lines; i++, next += 64)
            _mm_prefetch(next, _MM_HINT_T1);
        step_32(a + k, lda, b, bks);
    }
    end(c, ldc, square);
}

/* fetch: pairs of the block AHEAD that a step asks for, all or none. */
static void tile_16(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                    int64_t bks, int64_t K2, int add, int fetch)
{
    begin(c, ldc, in_a_row, add);
    for (int64_t k = 0; k < K2; k += VL_AMX_PAIRS, b += VL_AMX_PAIRS * bks) {
        for (int64_t i = 0; i < fetch; i++)
            for (int j = 0; j < NR; j += 16)
                _mm_prefetch(b + (AHEAD * VL_AMX_PAIRS + i) * bks + j, _MM_HINT_T0);
        step_16(a + k, lda, b, bks);
    }
    end(c, ldc, in_a_row);
}

/* 64 outputs. */
static void panel(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                  int64_t bks, int64_t M, int64_t K2, int add, const char *next)
{
    int64_t tiles = 2 * ((M + 15) / 32), m = 0;
    int lines = next && tiles ? (int)((NR + tiles - 1) / tiles) : 0; /* of a panel, a step */
    int64_t ahead = lines * 64 * (K2 / VL_AMX_PAIRS);

    if (M > 16)
        configure(16, M < 32 ? (int)(M - 16) : 16);
    for (; M - m > 16; m += 32) {
        if (M - m < 32 && m)
            configure(16, (int)(M - m - 16));
        for (int n = 0; n < NR; n += 32, next += ahead)
            tile_32(c + m * ldc + n, ldc, a + m * lda, lda, b + n, bks, K2, add, next, lines);
    }
    if (m < M) {
        configure((int)(M - m), 0);
        tile_16(c + m * ldc, ldc, a + m * lda, lda, b, bks, K2, add, m ? 0 : VL_AMX_PAIRS);
    }
}

/* w <= 16 outputs. */
static void column(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                   int64_t bks, int64_t M, int64_t w, int64_t K2, int add)
{
    for (int64_t m = 0; m < M; m += 16, c += 16 * ldc, a += 16 * lda) {
        if (m == 0 || M - m < 16)
            config_column(M - m < 16 ? (int)(M - m) : 16, (int)w);
        if (add)
            _tile_loadd(0, c, ldc * 4);
        else
            _tile_zero(0);
        for (int64_t k = 0; k < K2; k += VL_AMX_PAIRS) {
            _tile_loadd(4, a + k, lda * 4);
            _tile_loadd(6, b + k * bks, bks * 4);
            _tile_dpbf16ps(0, 4, 6);
        }
        _tile_stored(0, c, ldc * 4);
    }
}

static void k_mul_amx(float *c, int64_t ldc, const uint32_t *a, int64_t lda, const uint32_t *b,
                      int64_t bks, int64_t M, int64_t N, int64_t K2, int add, const void *next)
{
    int64_t n = 0;

    for (; n + NR <= N; n += NR)
        panel(c + n, ldc, a, lda, b + n, bks, M, K2, add, next);
    for (; n < N; n += 16)
        column(c + n, ldc, a, lda, b + n, bks, M, N - n < 16 ? N - n : 16, K2, add);
}

/* ---- attention ---- */

/* Tiles 0-3: outputs; 4: queries; 5: keys; 6: probabilities; 7: values, 8 pairs deep. The rows of a
 * call are divided into tiles of one height, so that it needs one shape. Returns the height. */
static int config_attention(int64_t M)
{
    int64_t tiles = (M + 15) / 16, rows = (M + tiles - 1) / tiles;
    struct config c = { .palette = 1 };

    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = (uint8_t)rows;
    }
    c.rows[5] = 16;
    c.rows[7] = 8;
    c.row_bytes[6] = 32;
    set_config(&c);
    return (int)rows;
}

static void k_keys_amx(float *s, int64_t lds, const uint32_t *q, int64_t ldq,
                       const uint32_t *const *k, int64_t blocks, int64_t M, int64_t K2)
{
    int rows = config_attention(M);

    for (int64_t i = 0; i < blocks; i++)
        for (int64_t m = 0; m < M; m += rows) {
            _tile_zero(0);
            for (int64_t j = 0; j < K2; j += VL_AMX_PAIRS) {
                _tile_loadd(4, q + m * ldq + j, ldq * 4);
                _tile_loadd(5, k[i] + j * 16, 64);
                _tile_dpbf16ps(0, 4, 5);
            }
            _tile_stored(0, s + m * lds + i * 16, lds * 4);
        }
}

/* 64 outputs of the rows of a tile. */
static void values_64(float *c, int64_t ldc, const uint32_t *p, int64_t ldp,
                      const uint32_t *const *v, int64_t ldv, int64_t n, int64_t blocks)
{
    begin(c, ldc, in_a_row, 1);
    for (int64_t i = 0; i < blocks; i++) {
        _tile_loadd(6, p + i * 8, ldp * 4);
        _tile_loadd(7, v[i] + n, ldv * 4);
        _tile_dpbf16ps(0, 6, 7);
        _tile_loadd(7, v[i] + n + 16, ldv * 4);
        _tile_dpbf16ps(1, 6, 7);
        _tile_loadd(7, v[i] + n + 32, ldv * 4);
        _tile_dpbf16ps(2, 6, 7);
        _tile_loadd(7, v[i] + n + 48, ldv * 4);
        _tile_dpbf16ps(3, 6, 7);
    }
    end(c, ldc, in_a_row);
}

static void k_values_amx(float *o, int64_t ldo, const uint32_t *p, int64_t ldp,
                         const uint32_t *const *v, int64_t ldv, int64_t blocks, int64_t M,
                         int64_t N)
{
    int rows = config_attention(M);

    for (int64_t m = 0; m < M; m += rows) {
        int64_t n = 0;

        for (; n + 64 <= N; n += 64)
            values_64(o + m * ldo + n, ldo, p + m * ldp, ldp, v, ldv, n, blocks);
        for (; n < N; n += 16) {
            float *c = o + m * ldo + n;

            _tile_loadd(0, c, ldo * 4);
            for (int64_t i = 0; i < blocks; i++) {
                _tile_loadd(6, p + m * ldp + i * 8, ldp * 4);
                _tile_loadd(7, v[i] + n, ldv * 4);
                _tile_dpbf16ps(0, 6, 7);
            }
            _tile_stored(0, c, ldo * 4);
        }
    }
}

/* ---- weights of eight bits: body_digits.h ---- */

#    define BLOCK (64 * NR) /* bytes of a panel that a step of 64 digits multiplies */

/* c (rows,NR): the sums of up to 16 digits of rows, as whole numbers of 32 bits. What is fetched is
 * near, where there is no next panel its own beginning. */
static void digits_16(float *c, const int8_t *a, int64_t lda, const int8_t *q, int64_t K,
                      const int8_t *next)
{
    const int8_t *behind = q + K * NR;

    begin(c, NR, in_a_row, 0);
    for (int64_t k = 0; k < K; k += 64, q += BLOCK) {
        const int8_t *then = q + AHEAD * BLOCK;

        then = then < behind ? then : next + (then - behind);
        for (int i = 0; i < BLOCK; i += 64)
            _mm_prefetch(then + i, _MM_HINT_T0);
        _tile_loadd(4, a + k, lda);
        _tile_loadd(6, q, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, q + BLOCK / 4, 64);
        _tile_dpbssd(1, 4, 7);
        _tile_loadd(6, q + BLOCK / 2, 64);
        _tile_dpbssd(2, 4, 6);
        _tile_loadd(7, q + BLOCK / 4 * 3, 64);
        _tile_dpbssd(3, 4, 7);
    }
    end(c, NR, in_a_row);
}

/* The sums of 17 to 32 digits of rows with half a panel. */
static void digits_32(float *c, const int8_t *a, int64_t lda, const int8_t *q, int64_t K,
                      const int8_t *next, int lines)
{
    const struct places square = { 16, 16 * NR, 16 * NR + 16 };

    begin(c, NR, square, 0);
    for (int64_t k = 0; k < K; k += 64, q += BLOCK) {
        for (int i = 0; i < lines; i++, next += 64)
            _mm_prefetch(next, _MM_HINT_T1);
        _tile_loadd(6, q, 64);
        _tile_loadd(4, a + k, lda);
        _tile_loadd(7, q + BLOCK / 4, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(5, a + 16 * lda + k, lda);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    end(c, NR, square);
}

/* y (M,N) of the sums c (2M,NR), as body_digits.h. */
static void scaled_sums(float *y, int64_t ldy, const float *c, const int8_t *a, int64_t lda,
                        const float *s, int64_t M, int64_t N, int64_t K)
{
    for (int64_t m = 0; m < M; m++, y += ldy, c += 2 * NR, a += 2 * lda) {
        float scale;

        memcpy(&scale, a + K, sizeof scale);
        for (int64_t n = 0; n < N; n += 16) {
            vf hi = _mm512_cvtepi32_ps(_mm512_load_si512(c + n));
            vf lo = _mm512_cvtepi32_ps(_mm512_load_si512(c + NR + n));
            vf v = v_mul(v_fma(hi, v_set1(256), lo), v_set1(scale));

            v_store_n(y + n, v_mul(v, v_load_n(s + n, N - n)), N - n);
        }
    }
}

static void k_mul_digits(float *y, int64_t ldy, const int8_t *a, int64_t lda, const int8_t *q,
                         int64_t nr, const float *s, int64_t M, int64_t N, int64_t K,
                         const int8_t *next)
{
    _Alignas(64) float c[32 * NR];
    int64_t tiles = 2 * ((M + 7) / 16), m = 0;
    int lines = next && tiles ? (int)((NR + tiles - 1) / tiles) : 0;
    int64_t ahead = lines * K;

    (void)nr;
    if (M > 8)
        configure(16, M < 16 ? (int)(2 * M - 16) : 16);
    for (; M - m > 8; m += 16, a += 32 * lda, y += 16 * ldy) {
        int64_t rows = M - m < 16 ? M - m : 16;

        if (rows < 16 && m)
            configure(16, (int)(2 * rows - 16));
        for (int n = 0; n < NR; n += 32, next = lines ? next + ahead : NULL)
            digits_32(c + n, a, lda, q + n * 64, K, next, lines);
        scaled_sums(y, ldy, c, a, lda, s, rows, N, K);
    }
    if (m < M) {
        configure((int)(2 * (M - m)), 0);
        digits_16(c, a, lda, q, K, next && !m ? next : q);
        scaled_sums(y, ldy, c, a, lda, s, M - m, N, K);
    }
}

int vl_kern_use_amx(struct vl_kern *k)
{
    unsigned a, b, c, d, need = 1u << 22 | 3u << 24; /* AMX-BF16, AMX-TILE, AMX-INT8 */

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & need) != need)
        return 0;
    if (syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XFEATURE_XTILEDATA */))
        return 0;
    k->name = "amx";
    k->mul_amx = k_mul_amx;
    k->keys_amx = k_keys_amx;
    k->values_amx = k_values_amx;
    k->mul_digits = k_mul_digits;
    return 1;
}
#endif
