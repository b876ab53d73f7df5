/* fuzz_config.c - config.json: any bytes are refused in one line, or give sizes that can be laid out and
 * a text that parses to the same model again. */
#include "libverl/model/tensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/main.h"

static void check(const struct vl_config *c)
{
    struct vl_model m = { .cfg = *c }, n = { 0 };
    struct vl_err e = { 0 };
    char *text = vl_config_text(c, "BF16");
    struct vl_piece *p;
    int64_t pieces;

    assert(c->H % c->K == 0 && c->D % 2 == 0 && c->window >= 0);
    vl_model_layout(&m);
    assert(m.count > 0 && m.count % 16 == 0);
    p = vl_model_pieces(&m, &pieces);
    for (int64_t i = 0; i < pieces; i++)
        assert(p[i].at >= 0 && p[i].n > 0 && p[i].at + p[i].n <= m.count);
    assert(vl_config_parse(&n.cfg, text, strlen(text), "again", &e) == 0);
    vl_model_layout(&n);
    assert(n.count == m.count && n.nparam == m.nparam && n.cfg.head == c->head);
    vl_config_free(&n.cfg);
    free(n.param);
    free(m.param);
    free(p);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vl_config c;
    struct vl_err e = { 0 };

    if (vl_config_parse(&c, (const char *)data, size, "fuzz", &e) == 0)
        check(&c);
    else
        assert(e.code == VL_E_DATA && e.msg[0] && !strchr(e.msg, '\n'));
    vl_config_free(&c);
    return 0;
}
