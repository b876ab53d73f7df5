/* added.c - finding added tokens (<|im_start|>, <s>) in text before anything else splits it.
 *
 * Leftmost, then longest, as the reference's Aho-Corasick does. The tokens are kept sorted and the
 * candidate range narrows with each byte: no automaton to build at start, and texts rarely get
 * past the first byte. */
#include "libverl/text/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#include "libverl/text/unicode.h"

static int compare(const struct vl_added *a, const struct vl_added *b)
{
    size_t n = a->norm_n < b->norm_n ? a->norm_n : b->norm_n;
    int c = n ? memcmp(a->norm, b->norm, n) : 0;

    return c ? c : (a->norm_n > b->norm_n) - (a->norm_n < b->norm_n);
}

static int by_text(const void *x, const void *y, void *added)
{
    const struct vl_added *a = added;

    return compare(&a[*(const uint32_t *)x], &a[*(const uint32_t *)y]);
}

void vl_matcher_build(struct vl_matcher *m, const struct vl_added *a, size_t n, int normalized)
{
    m->sorted = vl_alloc(n * sizeof *m->sorted);
    m->n = 0;
    for (size_t i = 0; i < n; i++)
        if (a[i].normalized == normalized && a[i].norm_n)
            m->sorted[m->n++] = (uint32_t)i;
    if (m->n)
        qsort_r(m->sorted, m->n, sizeof *m->sorted, by_text, (void *)(uintptr_t)a);
    for (size_t b = 0, i = 0; b < 256; b++) {
        m->first[b] = (uint32_t)i;
        while (i < m->n && (unsigned char)a[m->sorted[i]].norm[0] == b)
            i++;
    }
    m->first[256] = (uint32_t)m->n;
}

/* First index in [lo, hi) whose byte at depth is >= want (shorter texts sort first). */
static size_t bound(const struct vl_matcher *m, const struct vl_added *a, size_t lo, size_t hi,
                    size_t depth, int want)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct vl_added *x = &a[m->sorted[mid]];
        int have = x->norm_n > depth ? (unsigned char)x->norm[depth] : -1;

        if (have < want)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest token that starts at s; NULL if none. */
static const struct vl_added *longest_at(const struct vl_matcher *m, const struct vl_added *a,
                                         const char *s, size_t n)
{
    unsigned char c = (unsigned char)s[0];
    size_t lo = m->first[c], hi = m->first[c + 1];
    const struct vl_added *best = NULL;

    for (size_t depth = 1; lo < hi; depth++) {
        if (a[m->sorted[lo]].norm_n == depth) {
            best = &a[m->sorted[lo]];
            while (lo < hi && a[m->sorted[lo]].norm_n == depth)
                lo++;
        }
        if (depth == n)
            break;
        c = (unsigned char)s[depth];
        lo = bound(m, a, lo, hi, depth, c);
        hi = bound(m, a, lo, hi, depth, c + 1);
    }
    return best;
}

static int word_before(const char *s, size_t at)
{
    size_t i;
    uint32_t cp;

    if (!at)
        return 0;
    i = vl_uc_back(s, at);
    vl_uc_next(s + i, at - i, &cp);
    return vl_uc_word(cp);
}

static int word_after(const char *s, size_t at, size_t n)
{
    uint32_t cp;

    if (at == n)
        return 0;
    vl_uc_next(s + at, n - at, &cp);
    return vl_uc_word(cp);
}

static size_t spaces_before(const char *s, size_t at, size_t stop)
{
    while (at > stop) {
        size_t i = vl_uc_back(s, at);
        uint32_t cp;

        vl_uc_next(s + i, at - i, &cp);
        if (!vl_uc_space(cp))
            break;
        at = i;
    }
    return at;
}

static size_t spaces_after(const char *s, size_t at, size_t n)
{
    while (at < n) {
        uint32_t cp;
        size_t k = vl_uc_next(s + at, n - at, &cp);

        if (!vl_uc_space(cp))
            break;
        at += k;
    }
    return at;
}

/* A match is looked for where the last one ended, not where the spaces that one took end: those can
 * start the next one, which then counts too, as in the reference. */
int vl_added_cut(const struct vl_tok *t, const struct vl_matcher *m, const char *s, size_t n,
                 unsigned flags, const struct vl_cut *cut, struct vl_err *e)
{
    size_t done = 0, i = 0, k = 0;

    while (i < n) {
        const struct vl_added *a = longest_at(m, t->added, s + i, n - i);
        size_t start = i, stop;

        if (!a) {
            i++;
            continue;
        }
        i = stop = start + a->norm_n;
        while (k < cut->nnot && cut->not_at[k] < start)
            k++;
        if (a->special && ((flags & VL_TOK_NO_PARSE) || (k < cut->nnot && cut->not_at[k] == start)))
            continue;
        if (a->single_word && (word_before(s, start) || word_after(s, stop, n)))
            continue;
        if (a->lstrip)
            start = spaces_before(s, start, done);
        if (a->rstrip)
            stop = spaces_after(s, stop, n);
        if (done < start && cut->part(cut->arg, s + done, start - done, -1, e))
            return e->code;
        start = start < done ? done : start;
        if (cut->part(cut->arg, s + start, start < stop ? stop - start : 0, a->id, e))
            return e->code;
        done = stop;
    }
    if (done < n && cut->part(cut->arg, s + done, n - done, -1, e))
        return e->code;
    return 0;
}
