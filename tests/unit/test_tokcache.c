/* test_tokcache.c - tokenizers that come from a cache file: the same ids for every kind of model, and
 * no file that is not exactly right is ever used. The small golden tokenizers are padded with spaces
 * to the size from which on a cache is kept. */
#include <dirent.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <xxhash.h>

#include "libverl/base/fs.h"
#include "libverl/text/tok_load.h"

static char dir[] = "/tmp/verl-tokcache-XXXXXX", *json_path, *cache_dir;
static struct vl_buf golden;
static struct vl_json j;

static const char text[] = "The caf\xC3\xA9 at 7:45, the\n\n 22 trains \xE6\x97\xA5\xE6\x9C\xAC "
                           "\xF0\x9F\x99\x82<s> don't ab\xCC\x81";

static void write_tokenizer(int64_t at)
{
    struct vl_buf b = { 0 };
    struct vl_err e = { 0 };

    vl_json_raw(&j, vl_json_get(&j, at, "tokenizer"), &b);
    while (b.n < VL_TOK_CACHE_MIN)
        vl_buf_str(&b, "                                                                ");
    unlink(json_path);
    assert_int_equal(vl_fs_write(json_path, b.s, b.n, &e), 0);
    vl_buf_free(&b);
}

/* Opens, encodes and closes; *mapped: it came from the cache. */
static void answer(struct vl_buf *out, int *mapped)
{
    struct vl_ids ids = { 0 };
    struct vl_err e = { 0 }, wrong = { 0 };
    struct vl_tok *t;

    vl_buf_reset(out);
    if (vl_tok_open(&t, json_path, &e))
        fail_msg("%s", e.msg);
    *mapped = t->map != NULL;
    if (vl_tok_encode(t, text, sizeof text - 1, VL_TOK_SPECIAL, &ids, &wrong))
        vl_buf_str(out, wrong.msg);
    for (size_t i = 0; i < ids.n; i++)
        vl_buf_printf(out, " %d", ids.id[i]);
    vl_tok_decode(t, ids.id, ids.n, 0, out);
    vl_ids_free(&ids);
    vl_tok_free(t);
}

/* The one file in the cache directory; NULL when there is none, more fail. Caller frees. */
static char *cached_file(void)
{
    struct dirent **list;
    int n = scandir(cache_dir, &list, NULL, alphasort), files = 0;
    char *path = NULL;

    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.')
            files++, free(path), path = vl_asprintf("%s/%s", cache_dir, list[i]->d_name);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    assert_true(files <= 1);
    return path;
}

static void put(const char *path, const void *p, size_t n)
{
    struct vl_err e = { 0 };

    unlink(path);
    assert_int_equal(vl_fs_write(path, p, n, &e), 0);
}

static int set_up(void **state)
{
    struct vl_err e = { 0 };

    (void)state;
    assert_non_null(mkdtemp(dir));
    json_path = vl_asprintf("%s/tokenizer.json", dir);
    cache_dir = vl_asprintf("%s/a/b", dir);
    assert_int_equal(vl_fs_read("tests/golden/text/components.json", (size_t)1 << 26, &golden, &e),
                     0);
    assert_int_equal(vl_json_parse(&j, golden.s, golden.n, "components.json", &e), 0);
    return 0;
}

static int tear_down(void **state)
{
    struct vl_err e = { 0 };

    (void)state;
    vl_json_free(&j);
    vl_buf_free(&golden);
    free(json_path);
    free(cache_dir);
    return vl_fs_remove(dir, &e);
}

static void fresh(void)
{
    struct vl_err e = { 0 };

    assert_int_equal(vl_fs_remove(cache_dir, &e), 0);
    setenv("VERL_CACHE", cache_dir, 1);
}

static void test_same_ids(void **state)
{
    uint32_t k, c;

    (void)state;
    for (k = 0, c = 1; k < j.node[0].count; k++, c = j.node[c].next) {
        struct vl_buf want = { 0 }, first = { 0 }, second = { 0 };
        int mapped;
        char *file;

        write_tokenizer(c);
        setenv("VERL_CACHE", "off", 1);
        answer(&want, &mapped);
        assert_false(mapped);
        fresh();
        assert_null(cached_file());
        answer(&first, &mapped);
        assert_false(mapped);
        assert_non_null(file = cached_file());
        answer(&second, &mapped);
        assert_true(mapped);
        assert_string_equal(want.s, first.s);
        assert_string_equal(want.s, second.s);
        free(file);
        vl_buf_free(&want);
        vl_buf_free(&first);
        vl_buf_free(&second);
    }
}

/* Entry k of the goldens, its right answer and its cache file. */
static void prepare(const char *name, struct vl_buf *want, struct vl_buf *good, char **file)
{
    struct vl_err e = { 0 };
    uint32_t k, c;
    int mapped;

    for (k = 0, c = 1; k < j.node[0].count; k++, c = j.node[c].next)
        if (vl_json_streq(&j, vl_json_get(&j, c, "name"), name))
            break;
    assert_true(k < j.node[0].count);
    write_tokenizer(c);
    fresh();
    answer(want, &mapped);
    assert_non_null(*file = cached_file());
    assert_int_equal(vl_fs_read(*file, (size_t)1 << 26, good, &e), 0);
}

/* Cut anywhere, or a bit changed anywhere: not used, and written anew. */
static void test_damage(void **state)
{
    struct vl_buf want = { 0 }, good = { 0 }, got = { 0 }, now = { 0 };
    struct vl_err e = { 0 };
    char *file;
    int mapped;

    (void)state;
    prepare("b_roberta", &want, &good, &file);
    for (int i = 0; i < 40; i++) {
        size_t at = (size_t)i * 7919 * 101 % good.n;
        char was = good.s[at];

        at = i < 12 ? (size_t)i * 40 : at; /* the header's fields too */
        was = good.s[at];
        good.s[at] ^= (char)(1 << i % 8);
        put(file, good.s, i % 2 ? good.n : at);
        good.s[at] = was;
        answer(&got, &mapped);
        assert_false(mapped);
        assert_string_equal(want.s, got.s);
        vl_buf_reset(&now);
        assert_int_equal(vl_fs_read(file, (size_t)1 << 26, &now, &e), 0);
        assert_int_equal(now.n, good.n);
        assert_memory_equal(now.s, good.s, good.n);
    }
    answer(&got, &mapped);
    assert_true(mapped);
    free(file);
    vl_buf_free(&want);
    vl_buf_free(&good);
    vl_buf_free(&got);
    vl_buf_free(&now);
}

/* A wrong index with a right checksum: whatever the answer, no access outside the file. */
static void test_wild_indices(void **state)
{
    static const char *const name[] = { "b_roberta", "u_bytes", "w_bert" };

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct vl_buf want = { 0 }, good = { 0 }, got = { 0 };
        uint64_t check, seed = 12345;
        char *file;
        int mapped;

        prepare(name[k], &want, &good, &file);
        for (int i = 0; i < 60; i++) {
            char *bad = vl_alloc(good.n);
            static const uint32_t wild[] = { 0xFFFFFFFF, 0x7FFFFFFF, 0x00FFFFFF, 0, 1, 0x10000 };
            size_t at;

            memcpy(bad, good.s, good.n);
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            at = i < 20 ? 300 + 4 * (size_t)(i * 13 % 80)
                        : (size_t)(seed >> 20) % (good.n - 4) & ~3u;
            memcpy(bad + at, &wild[i % 6], 4);
            check = XXH3_64bits(bad + 16, good.n - 16);
            memcpy(bad + 8, &check, 8);
            put(file, bad, good.n);
            answer(&got, &mapped);
            free(bad);
        }
        /* all places taken: a search would not end */
        memset(good.s + good.n / 3, 0x11, good.n / 2);
        check = XXH3_64bits(good.s + 16, good.n - 16);
        memcpy(good.s + 8, &check, 8);
        put(file, good.s, good.n);
        answer(&got, &mapped);
        assert_string_equal(want.s, got.s);
        free(file);
        vl_buf_free(&want);
        vl_buf_free(&good);
        vl_buf_free(&got);
    }
}

/* Another tokenizer under this one's name, a directory, a pipe, another user's file, a place where
 * nothing can be made. */
static void test_in_the_way(void **state)
{
    struct vl_buf want = { 0 }, other = { 0 }, good = { 0 }, got = { 0 };
    char *file, *under;
    int mapped;

    (void)state;
    prepare("w_bert", &want, &other, &file);
    free(file);
    vl_buf_reset(&want);
    prepare("u_dup", &want, &good, &file);
    put(file, other.s, other.n);
    answer(&got, &mapped);
    assert_false(mapped);
    assert_string_equal(want.s, got.s);
    unlink(file);
    assert_int_equal(mkdir(file, 0700), 0);
    answer(&got, &mapped);
    assert_false(mapped);
    assert_string_equal(want.s, got.s);
    assert_int_equal(rmdir(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    answer(&got, &mapped);
    assert_false(mapped);
    assert_string_equal(want.s, got.s);
    put(file, good.s, good.n);
    if (chown(file, 4711, (gid_t)-1) == 0) { /* only root can */
        answer(&got, &mapped);
        assert_false(mapped);
        assert_string_equal(want.s, got.s);
    }
    under = vl_asprintf("%s/tokenizer.json/cache", dir);
    setenv("VERL_CACHE", under, 1);
    answer(&got, &mapped);
    assert_false(mapped);
    assert_string_equal(want.s, got.s);
    free(under);
    free(file);
    vl_buf_free(&want);
    vl_buf_free(&other);
    vl_buf_free(&good);
    vl_buf_free(&got);
}

/* Many at once: each has the right ids, one whole file is left. */
static void test_race(void **state)
{
    struct vl_buf want = { 0 }, good = { 0 }, got = { 0 };
    char *file;
    int mapped, status;
    pid_t pid[6];

    (void)state;
    prepare("b_llama_like", &want, &good, &file);
    unlink(file);
    for (int i = 0; i < 6; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            int bad = 0;

            for (int k = 0; k < 3; k++) {
                answer(&got, &mapped);
                bad |= strcmp(got.s, want.s) != 0;
            }
            _exit(bad);
        }
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    free(file);
    assert_non_null(file = cached_file());
    answer(&got, &mapped);
    assert_true(mapped);
    free(file);
    vl_buf_free(&want);
    vl_buf_free(&good);
    vl_buf_free(&got);
}

/* Where it is kept: VERL_CACHE, XDG_CACHE_HOME/verl, ~/.cache/verl; "off" and small files: nowhere. */
static void test_place(void **state)
{
    struct vl_tok t = { .hash = "0123" };
    char *p;

    (void)state;
    setenv("VERL_CACHE", "/x", 1);
    assert_null(vl_tok_cache_path(&t, VL_TOK_CACHE_MIN - 1));
    assert_string_equal(p = vl_tok_cache_path(&t, VL_TOK_CACHE_MIN), "/x/tokenizer-0123");
    free(p);
    setenv("VERL_CACHE", "off", 1);
    assert_null(vl_tok_cache_path(&t, VL_TOK_CACHE_MIN));
    unsetenv("VERL_CACHE");
    setenv("HOME", "/h", 1);
    setenv("XDG_CACHE_HOME", "/c", 1);
    assert_string_equal(p = vl_tok_cache_path(&t, VL_TOK_CACHE_MIN), "/c/verl/tokenizer-0123");
    free(p);
    setenv("XDG_CACHE_HOME", "relative", 1); /* the XDG rule: ignored */
    assert_string_equal(p = vl_tok_cache_path(&t, VL_TOK_CACHE_MIN),
                        "/h/.cache/verl/tokenizer-0123");
    free(p);
    unsetenv("HOME");
    assert_null(vl_tok_cache_path(&t, VL_TOK_CACHE_MIN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_ids),     cmocka_unit_test(test_damage),
        cmocka_unit_test(test_wild_indices), cmocka_unit_test(test_in_the_way),
        cmocka_unit_test(test_race),         cmocka_unit_test(test_place),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
