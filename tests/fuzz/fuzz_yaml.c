/* fuzz_yaml.c - config files and override words: anything is taken or refused in one line. The first
 * byte chooses: 'f' the rest is a file, else a word of the command line. */
#include "libverl/base/conf.h"

#include <assert.h>
#include <string.h>

#include "tests/fuzz/main.h"

static char *no_default(void *user, const char *full)
{
    const struct vl_key *k = vl_key_find(full);

    (void)user;
    return k ? vl_strdup(k->value) : NULL;
}

static const char *fallback(void *user, const char *full)
{
    const struct vl_key *k = vl_key_find(full);

    (void)user;
    return k ? k->fallback : NULL;
}

/* What the printer writes must read back as the same tree. */
static void round_trip(const struct vl_yaml *y)
{
    struct vl_buf once = { 0 }, twice = { 0 };
    struct vl_err e = { 0 };
    struct vl_yaml *back;

    vl_buf_str(&once, "k: ");
    vl_yaml_put(&once, y);
    assert(vl_yaml_parse(&back, once.s, once.n, "again", &e) == 0);
    vl_buf_str(&twice, "k: ");
    vl_yaml_put(&twice, back->item[0]);
    assert(!strcmp(once.s, twice.s));
    vl_yaml_free(back);
    vl_buf_free(&once);
    vl_buf_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct vl_names names = { "actor_rollout_ref.rollout", NULL };
    const struct vl_conf_default d = { no_default, fallback, NULL };
    struct vl_conf c = { 0 };
    struct vl_err e = { 0 };
    char *text = size ? vl_strndup((const char *)data + 1, size - 1) : vl_strdup("");
    struct vl_yaml *y = NULL;
    int rc;

    if (size && *data == 'f') {
        rc = vl_yaml_parse(&y, text, size - 1, "fuzz", &e);
        if (!rc)
            round_trip(y);
        vl_yaml_free(y);
        if (!rc)
            rc = vl_conf_text(&c, &names, text, size - 1, "fuzz", &e);
    } else {
        rc = vl_conf_word(&c, &names, text, &e);
    }
    for (size_t i = 0; i < c.n && !rc; i++) {
        rc = vl_conf_value(&c, &names, &d, c.e[i].key, &y, NULL, &e);
        vl_yaml_free(y);
        y = NULL;
    }
    assert(!rc == !e.code);
    assert(!rc || (e.code == VL_E_USAGE && e.msg[0] && !strchr(e.msg, '\n')));
    vl_conf_free(&c);
    free(text);
    return 0;
}
