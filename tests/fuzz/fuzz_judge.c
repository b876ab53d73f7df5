/* fuzz_judge.c - what a judge's server answers: there is a text, or one line of reason. */
#include "libverl/reward/judge.h"

#include <assert.h>
#include <string.h>

#include "tests/fuzz/main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vl_judge_answer a;

    vl_judge_read(&a, (const char *)data, size);
    assert(a.why ? a.why[0] && !strchr(a.why, '\n') : a.text.n > 0);
    vl_judge_answer_free(&a);
    vl_judge_read_any(&a, (const char *)data, size);
    assert(!a.text.n && (!a.why || (a.why[0] && !strchr(a.why, '\n'))));
    vl_judge_answer_free(&a);
    return 0;
}
