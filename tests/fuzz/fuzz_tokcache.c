/* fuzz_tokcache.c - a tokenizer's cache file with words changed and the checksum made right again:
 * whatever it says, opening and encoding stay inside it and end.
 *
 * Input: a byte that chooses the kind of model, then pairs of 32-bit numbers, little endian: a place in
 * the file (modulo its length) and what is written there. */
#include "libverl/text/tok_load.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "libverl/base/fs.h"
#include "tests/fuzz/main.h"

static const char *const model[] = {
    "{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aba\":3},"
    "\"merges\":[\"a "
    "b\",\"ab a\"]}",
    "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\",-1],[\"b\",-2],[\"ab\",-2.5],["
    "\"ba\","
    "-1]]}",
    "{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"##b\":2,\"##ba\":3}}",
};

static char dir[] = "/tmp/verl-fuzz-XXXXXX", json[3][64], cache[3][128];
static struct vl_buf good[3];

static void clean_up(void)
{
    struct vl_err e = { 0 };

    (void)!vl_fs_remove(dir, &e);
}

static void use(const char *path)
{
    static const char text[] = "abab ba\xC3\xA9 aab";
    struct vl_ids ids = { 0 };
    struct vl_buf back = { 0 };
    struct vl_err e = { 0 };
    struct vl_tok *t;

    assert(vl_tok_open(&t, path, &e) == 0);
    (void)!vl_tok_encode(t, text, sizeof text - 1, 0, &ids, &e);
    vl_tok_decode(t, ids.id, ids.n, 0, &back);
    vl_ids_free(&ids);
    vl_buf_free(&back);
    vl_tok_free(t);
}

static void set_up(void)
{
    char *home;
    struct vl_err e = { 0 };

    assert(mkdtemp(dir));
    atexit(clean_up);
    home = vl_asprintf("%s/cache", dir);
    setenv("VERL_CACHE", home, 1);
    free(home);
    for (int i = 0; i < 3; i++) {
        struct vl_buf b = { 0 };
        XXH128_hash_t h;

        vl_buf_printf(&b, "{\"model\":%s}", model[i]);
        while (b.n < VL_TOK_CACHE_MIN)
            vl_buf_str(&b, "                                                                ");
        h = XXH3_128bits(b.s, b.n);
        snprintf(json[i], sizeof json[i], "%s/%d.json", dir, i);
        snprintf(cache[i], sizeof cache[i], "%s/cache/tokenizer-%016llx%016llx", dir,
                 (unsigned long long)h.high64, (unsigned long long)h.low64);
        assert(vl_fs_write(json[i], b.s, b.n, &e) == 0);
        vl_buf_free(&b);
        use(json[i]);
        assert(vl_fs_read(cache[i], (size_t)1 << 30, &good[i], &e) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int k = size ? data[0] % 3 : 0;
    struct vl_err e = { 0 };
    uint64_t check;
    char *bad;

    if (!good[0].n)
        set_up();
    bad = vl_alloc(good[k].n);
    memcpy(bad, good[k].s, good[k].n);
    for (size_t i = 1; i + 8 <= size; i += 8) {
        uint32_t at, word;

        memcpy(&at, data + i, 4);
        memcpy(&word, data + i + 4, 4);
        memcpy(bad + at % (good[k].n - 3), &word, 4);
    }
    check = XXH3_64bits(bad + 16, good[k].n - 16);
    memcpy(bad + 8, &check, 8);
    unlink(cache[k]);
    assert(vl_fs_write(cache[k], bad, good[k].n, &e) == 0);
    free(bad);
    use(json[k]);
    return 0;
}
