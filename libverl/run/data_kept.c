/* data_kept.c - which rows a data set keeps, remembered from step to step. See data_impl.h.
 *
 * Each step is a program of its own, and what rows it may draw from hangs on all rows: a filter by
 * length tokenizes them all. That is a pure function of the files' bytes, the options, the tokenizer
 * and this release, so it is kept under the hash of these: a bit a row and what was counted on the
 * way. A file that is damaged or does not fit is passed over, and nothing is kept where a template or
 * a filter can see the time or the environment. */
#include "libverl/run/data_impl.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "libverl/base/cache.h"

#define MAGIC     "verlrows"
#define FORMAT    1 /* raise it when what makes a row bad, long or cut changes */
#define MIN_BYTES ((size_t)1 << 20)

struct head {
    char magic[8];
    uint64_t check; /* XXH3-64 of all that follows */
    uint32_t format, order;
    char release[24];
    uint64_t key[2];
    int64_t rows, kept;
    struct vl_kept_counts counts;
    char first_bad[1200];
};

/* ---- what it hangs on ---- */

static void add_text(XXH3_state_t *h, const char *s, size_t n)
{
    uint64_t size = s ? n : UINT64_MAX;

    XXH3_128bits_update(h, &size, sizeof size);
    if (s)
        XXH3_128bits_update(h, s, n);
}

static void add_str(XXH3_state_t *h, const char *s)
{
    add_text(h, s, s ? strlen(s) : 0);
}

static void add_list(XXH3_state_t *h, const struct vl_strs *l)
{
    XXH3_128bits_update(h, &l->n, sizeof l->n);
    for (size_t i = 0; i < l->n; i++)
        add_str(h, l->s[i]);
}

static void add_options(XXH3_state_t *h, const struct vl_data_opts *o)
{
    const char *const text[] = { o->map,          o->truncation,
                                 o->prompt_key,   o->response_key,
                                 o->messages_key, o->tools_key,
                                 o->thinking_key, o->kwargs,
                                 o->system,       o->mask,
                                 o->source_key,   o->scorers,
                                 o->dispatch,     o->tmpl ? "file" : NULL,
                                 o->custom_reward };
    const int64_t number[] = {
        o->max_prompt, o->max_response,    o->max_length,   o->filter_overlong, o->chat,
        o->sft,        o->preference,      o->eos,          o->multiturn,       o->plain_special,
        o->skip_bad,   o->ignore_mismatch, o->check_scorer, o->reward_model,
    };

    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        add_str(h, text[i]);
    XXH3_128bits_update(h, number, sizeof number);
    add_list(h, &o->prompt_path);
    add_list(h, &o->response_path);
}

/* Whether a filter's or template's text has one of these words. */
static int has_word(const char *text, const char *const *word)
{
    for (; text && *word; word++) {
        size_t n = strlen(*word);

        for (const char *p = text; (p = strstr(p, *word)); p += n)
            if ((p == text || !isalnum((unsigned char)p[-1])) && !isalnum((unsigned char)p[n]))
                return 1;
    }
    return 0;
}

/* Fills the key. 0: the outcome hangs on more than can be hashed. */
static int make_key(const struct vl_row_work *w, const struct vl_row *row, int64_t n,
                    uint64_t key[2])
{
    static const char *const clocks[] = { "strftime_now", NULL };
    static const char *const outside[] = { "now",    "localtime",      "env",
                                           "ENV",    "input_filename", "input_line_number",
                                           "import", "include",        NULL };
    const struct vl_lines *l = w->lines;
    XXH3_state_t *h = XXH3_createState();
    struct vl_buf texts = { 0 };
    XXH128_hash_t x;
    int can;

    vl_tok_texts(w->tok, &texts);
    can = !has_word(texts.s, clocks) && !has_word(w->tmpl_text, clocks) &&
          !has_word(w->o->map, outside);
    XXH3_128bits_reset(h);
    add_str(h, vl_tok_hash(w->tok));
    add_text(h, texts.s, texts.n);
    add_str(h, w->tmpl_text);
    add_str(h, w->tmpl_name);
    add_options(h, w->o);
    for (size_t i = 0; i < l->nfile; i++)
        add_str(h, l->path[i]); /* first_bad names one */
    for (int64_t i = 0; i < n; i++) {
        const struct vl_line *line = &l->line[row[i].index];

        add_text(h, line->s, line->n);
        XXH3_128bits_update(h, &line->number, sizeof line->number);
        XXH3_128bits_update(h, &line->file, sizeof line->file);
    }
    x = XXH3_128bits_digest(h);
    key[0] = x.low64, key[1] = x.high64;
    XXH3_freeState(h);
    vl_buf_free(&texts);
    return can;
}

static void fill_head(struct head *h, const uint64_t key[2], int64_t rows)
{
    *h = (struct head){ .magic = MAGIC, .format = FORMAT, .order = 0x01020304, .rows = rows };
    snprintf(h->release, sizeof h->release, "%s", VL_VERSION);
    memcpy(h->key, key, sizeof h->key);
}

static size_t file_size(int64_t rows)
{
    return sizeof(struct head) + (size_t)(rows + 7) / 8;
}

/* ---- using one ---- */

static uint64_t checksum(const char *file, size_t n)
{
    const size_t from = offsetof(struct head, format);

    return XXH3_64bits(file + from, n - from);
}

static int is_good(const char *file, size_t n, const struct head *want)
{
    const size_t from = offsetof(struct head, format), to = offsetof(struct head, kept);
    const unsigned char *bit = (const unsigned char *)file + sizeof *want;
    int64_t kept = 0;
    struct head h;

    if (n != file_size(want->rows))
        return 0;
    memcpy(&h, file, sizeof h);
    for (int64_t i = 0; i < want->rows; i++)
        kept += bit[i / 8] >> i % 8 & 1;
    return memcmp(h.magic, want->magic, sizeof h.magic) == 0 &&
           memcmp(&h.format, &want->format, to - from) == 0 && h.check == checksum(file, n) &&
           h.kept == kept && memchr(h.first_bad, 0, sizeof h.first_bad) != NULL;
}

static int read_all(int fd, char *s, size_t n)
{
    size_t got = 0;
    ssize_t k;

    while (got < n && (k = read(fd, s + got, n - got)) > 0)
        got += (size_t)k;
    return got == n;
}

void vl_kept_open(struct vl_kept *k, const struct vl_row_work *w, const struct vl_row *row,
                  int64_t n)
{
    struct head want, have;
    uint64_t key[2];
    char name[64], *file;
    size_t size = 0;
    int fd;

    *k = (struct vl_kept){ .rows = n };
    if (w->lines->bytes < MIN_BYTES || !make_key(w, row, n, key))
        return;
    snprintf(name, sizeof name, "rows-%016" PRIx64 "%016" PRIx64, key[1], key[0]);
    k->path = vl_cache_path(name);
    memcpy(k->key, key, sizeof k->key);
    fd = vl_cache_open(k->path, &size);
    if (fd < 0)
        return;
    fill_head(&want, key, n);
    file = vl_alloc(file_size(n));
    if (size == file_size(n) && read_all(fd, file, size) && is_good(file, size, &want)) {
        memcpy(&have, file, sizeof have);
        k->known = 1;
        k->counts = have.counts;
        k->first_bad = vl_strdup(have.first_bad);
        k->bit = vl_alloc(size - sizeof have);
        memcpy(k->bit, file + sizeof have, size - sizeof have);
    }
    free(file);
    close(fd);
}

/* ---- making one ---- */

static void fill(void *arg, struct vl_buf *out)
{
    const struct vl_kept *k = arg;
    struct head h;

    fill_head(&h, k->key, k->rows);
    h.counts = k->counts;
    snprintf(h.first_bad, sizeof h.first_bad, "%s", k->first_bad ? k->first_bad : "");
    for (int64_t i = 0; i < k->rows; i++)
        h.kept += k->bit[i / 8] >> i % 8 & 1;
    vl_buf_add(out, &h, sizeof h);
    vl_buf_add(out, k->bit, (size_t)(k->rows + 7) / 8);
    h.check = checksum(out->s, out->n);
    memcpy(out->s, &h, sizeof h);
}

void vl_kept_close(struct vl_kept *k, int good)
{
    if (good && !k->known && k->path && k->bit)
        vl_cache_write(k->path, fill, k);
    free(k->path);
    free(k->bit);
    free(k->first_bad);
}
