/* fuzz_answer.c - two answers, the parts before and after the first line feed, compared as
 * mathematics: the verdict is the same in either order for expressions, and each equals itself. */
#include "libverl/reward/math_equal.h"
#include "libverl/reward/prime_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

static enum vl_alg_verdict compare(const char *a, size_t na, const char *b, size_t nb,
                                   enum vl_alg_syntax syntax)
{
    struct vl_alg *w = vl_alg_new();
    enum vl_alg_verdict v =
        vl_alg_equal(w, vl_alg_parse(w, a, na, syntax), vl_alg_parse(w, b, nb, syntax));

    vl_alg_free(w);
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *a = (const char *)data, *cut = size ? memchr(a, '\n', size) : NULL;
    const char *b = cut ? cut + 1 : a + size;
    size_t na = cut ? (size_t)(cut - a) : size, nb = (size_t)(a + size - b);
    int undecided = 0;
    double x;

    for (int k = 0; k < 2; k++) {
        enum vl_alg_verdict v = compare(a, na, b, nb, (enum vl_alg_syntax)k);

        assert(v == compare(b, nb, a, na, (enum vl_alg_syntax)k) || v == VL_ALG_UNDECIDED ||
               compare(b, nb, a, na, (enum vl_alg_syntax)k) == VL_ALG_UNDECIDED);
        assert(compare(a, na, a, na, (enum vl_alg_syntax)k) != VL_ALG_DIFFERENT);
    }
    vl_math_equal(a, na, b, nb, 1e-6);
    vl_prime_grade(a, na, b, nb, &undecided);
    vl_prime_math_equal(a, na, b, nb, "3.14");
    vl_py_arithmetic(a, na, &x);
    return 0;
}
