/* test_opt.c - options, keys, config files, references: what is accepted, who wins, what errors say. */
#include "libverl/base/opt_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct opts {
    double temperature, lr;
    int64_t n, length, top_k;
    int sample, log_probs;
    const char *as, *name, *filter, *mode, *eight;
    struct vl_strs stop;
};

static struct opts o;
static struct vl_common c;
static struct vl_parsed *p;
static struct vl_err e;

#define R "actor_rollout_ref.rollout."

static const struct vl_opt table[] = {
    VL_OPT_REAL("temperature", R "temperature", &o.temperature, "X", 0, 100, VL_F_PROV, "heat",
                .letter = 't'),
    VL_OPT_INT("samples", R "n", &o.n, "N", 1, 1e6, VL_F_PROV, "samples", .letter = 'n'),
    VL_OPT_INT(NULL, R "response_length", &o.length, NULL, 1, 1e6, 0, "R",
               .fallback = "data.max_response_length"),
    VL_OPT_INT("top-k", R "top_k", &o.top_k, "K", -1, 1e6, VL_F_NULLABLE, "k"),
    VL_OPT_FLAG("sample", R "do_sample", &o.sample, 0, "sample"),
    VL_OPT_FLAG(NULL, R "calculate_log_probs", &o.log_probs, 0, "l"),
    VL_OPT_WORD("as", NULL, &o.as, "WHAT", "old|ref", 0, "as"),
    VL_OPT_WORD("mode", NULL, &o.mode, "MODE", "token|sequence", VL_F_NULLABLE, "mode"),
    VL_OPT_WORD("eight", NULL, &o.eight, "TYPE", "int8", VL_F_NULLABLE, "eight"),
    VL_OPT_TEXT("name", R "name", &o.name, "NAME", VL_F_NULLABLE, "name"),
    VL_OPT_TEXT("jq", NULL, &o.filter, "FILTER", 0, "jq"),
    VL_OPT_LIST("stop", R "stop", &o.stop, "TEXT", 0, "stop"),
    { .type = VL_T_END },
};
static const struct vl_program prog = {
    .name = "verl-rollout",
    .summary = "s",
    .usage = "u",
    .subtree = "actor_rollout_ref.rollout",
    .opts = table,
};

/* Arguments end with NULL. Returns the status. */
static int parse(const char *first, ...)
{
    char *argv[40] = { "verl-rollout" };
    int argc = 1, done;
    va_list ap;

    vl_parsed_free(p);
    o = (struct opts){ .temperature = 1,
                       .n = 1,
                       .length = 512,
                       .top_k = -1,
                       .sample = 1,
                       .log_probs = 1,
                       .as = "old" };
    e = (struct vl_err){ 0 };
    va_start(ap, first);
    for (const char *a = first; a; a = va_arg(ap, const char *))
        argv[argc++] = (char *)a;
    va_end(ap);
    return vl_parse(&prog, &c, argc, argv, &p, &done, &e);
}

#define good(...)                                                                                  \
    do {                                                                                           \
        if (parse(__VA_ARGS__, NULL))                                                              \
            fail_msg("%s", e.msg);                                                                 \
    } while (0)
/* refused with 64, the line holding `part` */
#define bad(part, ...)                                                                             \
    do {                                                                                           \
        assert_int_equal(parse(__VA_ARGS__, NULL), VL_E_USAGE);                                    \
        if (!strstr(e.msg, part) || strchr(e.msg, '\n'))                                           \
            fail_msg("no '%s' in: %s", part, e.msg);                                               \
    } while (0)

static char file[] = "/tmp/test_opt.XXXXXX";

static const char *yaml(const char *text)
{
    FILE *f = fopen(file, "w");

    fputs(text, f);
    fclose(f);
    return file;
}

static void test_options(void **state)
{
    (void)state;
    good("-t", "0.5", "-n4", "--top-k=7", "--no-sample", "--as", "ref", "-qv", "-i", "a", "-i",
         "b");
    assert_true(o.temperature == 0.5 && o.n == 4 && o.top_k == 7 && !o.sample);
    assert_string_equal(o.as, "ref");
    assert_true(c.quiet && c.verbose);
    assert_int_equal(c.input.n, 2);
    assert_string_equal(c.input.s[1], "b");
    assert_string_equal(c.output, "-");
    good("--sample=false", "--stop", "a,b", "--stop", "null", "--name", "null");
    assert_int_equal(o.sample, 0);
    assert_int_equal(o.stop.n, 2);
    assert_string_equal(o.stop.s[0], "a,b");
    assert_string_equal(o.stop.s[1], "null");
    assert_null(o.name);
    good("--temperature", "1e-6", "--top-k", "null");
    assert_true(o.temperature == 1e-6);
    assert_true(o.top_k == VL_NULL_I64);
    assert_string_equal(c.input.s[0], "-");
    assert_true(vl_parsed_given(p, &o.temperature) && !vl_parsed_given(p, &o.n));
    good("--jq", ".a | \"${x}\" # no");
    assert_string_equal(o.filter, ".a | \"${x}\" # no");
}

static void test_refused(void **state)
{
    (void)state;
    bad("nearest is --temperature", "--temperatur", "1");
    bad("nearest is --temperature", "--temp", "1");
    bad("nearest is --temperature", "--temperament", "1");
    bad("nearest is --samples", "--sample-count", "1");
    bad("unknown option --tops (", "--tops", "1");
    bad("unknown option -z", "-z");
    bad("unexpected argument '-1'", "-1");
    bad("response_length=VALUE", "--response_length", "8");
    bad("needs a value: -t X", "-t");
    bad("needs a value: --as WHAT", "--as");
    bad("--temperature (actor_rollout_ref.rollout.temperature): found abc, expected a number from "
        "0 "
        "to 100, for example 1",
        "-t", "abc");
    bad("expected a number from 0 to 100", "-t", "-1");
    bad("expected a number", "-t", "nan");
    bad("expected a number", "-t", "0x10");
    bad("expected a number", "-t", "1.5.2");
    bad("found 1.5, expected an integer from 1 to 1000000 (digits only)", "n=1.5");
    bad("found 1e3", "n=1e3");
    bad("found 99999999999999999999", "n=99999999999999999999");
    bad("expected a number", "temperature=");
    bad("expected a number", "temperature='1'");
    bad("found yes, expected true or false (YAML 1.2", "do_sample=yes");
    bad("found 1, expected true or false", "do_sample=1");
    bad("expected old or ref, for example old", "--as", "o");
    bad("expected old or ref", "--as", "");
    bad("expected token, sequence or null, for example token", "--mode", "x");
    bad("expected int8 or null", "--eight", "fp8");
    bad("expected an integer", "n=null");
    bad("expected an integer", "n=[1]");
    bad("unexpected argument 'file.dp'", "file.dp");
    bad("not an override", "+x");
    bad("not YAML", "stop=[a");
    bad("found \": found\", expected a number", "temperature=: found");
}

static void test_keys(void **state)
{
    (void)state;
    good("temperature=0.5", R "n=3", "rollout.top_k=9", "max_response_length=99");
    assert_true(o.temperature == 0.5 && o.n == 3 && o.top_k == 9 && o.length == 99);
    assert_true(vl_parsed_given(p, &o.length));
    good("data.max_response_length=99", "response_length=7");
    assert_int_equal(o.length, 7);
    bad("unknown key 'temprature'; the nearest known: actor_rollout_ref.rollout.temperature",
        "temprature=1");
    bad("actor_rollout_ref.rollout.top_p", "rollout.topp=1");
    bad("key 'optim.lr' is ambiguous, write one of: actor_rollout_ref.actor.optim.lr, "
        "critic.optim.lr",
        "optim.lr=1");
    bad("ambiguous", "model.path=/x");
    bad("key 'override_config' is ambiguous", "override_config.rope.theta=3");
    bad("unknown key 'zzzzzzzzz'", "zzzzzzzzz=1");
    bad("is deprecated in verl, use actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        "actor_rollout_ref.actor.ppo_micro_batch_size=4");
    good("actor_rollout_ref.actor.ppo_micro_batch_size=null");
    good("critic.optim.lr=1", "+my.own=2", "++" R "n=5",
         "actor_rollout_ref.model.override_config.rope.theta=3", "actor_rollout_ref.model.path=/m");
    assert_int_equal(o.n, 5);
}

static void test_top_level(void **state)
{
    const char *const own[] = { "optim.lr", "data.max_length", NULL };
    const struct vl_names n = { "", own };
    struct {
        const char *given, *full;
    } cases[] = {
        { "lr", "optim.lr" },
        { "optim.lr", "optim.lr" },
        { "max_length", "data.max_length" },
        { "critic.optim.lr", "critic.optim.lr" },
        { "rollout.n", "actor_rollout_ref.rollout.n" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *full;
        e = (struct vl_err){ 0 };
        if (vl_key_resolve(&n, cases[i].given, 0, "t", &full, &e))
            fail_msg("%s", e.msg);
        assert_string_equal(full, cases[i].full);
        free(full);
    }
}

static void test_ignored(void **state)
{
    const char *named;

    (void)state;
    good("-c", yaml("trainer:\n  total_epochs: 3\n"), "critic.optim.lr=1", "n=2");
    assert_int_equal(vl_parsed_ignored(p, &named), 2);
    assert_string_equal(named, "critic.optim.lr");
}

static void test_order(void **state)
{
    char other[] = "/tmp/test_opt2.XXXXXX";
    FILE *f = fdopen(mkstemp(other), "w");

    (void)state;
    fputs("temperature: 0.2\n", f);
    fclose(f);
    yaml("actor_rollout_ref:\n  rollout: {temperature: 0.1, n: 4}\n");
    good("-c", file);
    assert_true(o.temperature == 0.1 && o.n == 4);
    good("-c", file, "-c", other);
    assert_true(o.temperature == 0.2 && o.n == 4);
    good("-c", other, "-c", file);
    assert_true(o.temperature == 0.1);
    good("temperature=0.3", "-c", file);
    assert_true(o.temperature == 0.3);
    good("-c", file, "temperature=0.3", "-t", "0.4");
    assert_true(o.temperature == 0.4);
    good("-c", file, "-t", "0.4", "temperature=0.3");
    assert_true(o.temperature == 0.3);
    good("-c", file, "~temperature");
    assert_true(o.temperature == 1);
    assert_false(vl_parsed_given(p, &o.temperature));
    good("-c", file, "~temperature=0.1");
    bad("is 0.1", "-c", file, "~temperature=0.7");
    good("-c", yaml("rollout:\n  stop: [a, b]\n"), "--stop", "c", "--stop", "d");
    assert_int_equal(o.stop.n, 2);
    assert_string_equal(o.stop.s[0], "c");
    unlink(other);
}

static void test_yaml(void **state)
{
    (void)state;
    good("-c", yaml("# nothing\n"));
    good("-c", yaml("actor_rollout_ref:\n  rollout:\n    stop:\n    - x\n    - 'y: z'\n"
                    "    name: \"null\"\n    top_k: ~\n    do_sample: False\n"
                    "  model:\n    override_config: {a: {b: 1}}\n"
                    "reward_model: {enable: true}\n"));
    assert_int_equal(o.stop.n, 2);
    assert_string_equal(o.stop.s[1], "y: z");
    assert_string_equal(o.name, "null");
    assert_true(o.top_k == VL_NULL_I64 && !o.sample);
    good("-c", yaml("actor_rollout_ref:\n  rollout:\n    _target_: a.b.C\n    name: ???\n"
                    "  ref: {model: null, profiler: {tool_config: {a: {b: 1}}}}\n"
                    "  actor: {checkpoint: {load_contents: \"${.save_contents}\"}}\n"
                    "ray_kwargs: {ray_init: {num_cpus: null}}\n"));
    assert_null(o.name);
    good("-c", yaml("rollout: {n: 4, top_k: 7}\nreward_model: {rollout: {n: 9}}\n"));
    assert_true(o.n == 4 && o.top_k == 7);
    bad(":1: unknown key 'rollout.tempreature'", "-c", yaml("rollout: {tempreature: 3}\n"));
    bad(":1: 'rollout' is a section, write its keys: rollout.NAME", "-c", yaml("rollout: 3\n"));
    bad("rollout={n: 4}: 'rollout' is a section", "rollout={n: 4}");
    bad(":3: unknown key 'actor_rollout_ref.rollout.tempreature'", "-c",
        yaml("actor_rollout_ref:\n  rollout:\n    tempreature: 1\n"));
    bad(":2: key 'n' is given twice, first in line 1", "-c", yaml("n: 1\nn: 2\n"));
    bad("not YAML", "-c", yaml("a: [1\n"));
    bad("aliases", "-c", yaml("n: &x 1\ntop_k: *x\n"));
    bad("expected 'key: value' lines, found a list", "-c", yaml("- 1\n"));
    bad("second document", "-c", yaml("n: 1\n---\nn: 2\n"));
    bad("tag '!python/object' is not known", "-c", yaml("n: !python/object 1\n"));
    bad(":1: actor_rollout_ref.rollout.n: found x", "-c", yaml("n: x\n"));
    assert_int_equal(parse("-c", "/nonexistent.yaml", NULL), VL_E_NOINPUT);
    assert_non_null(strstr(e.msg, "/nonexistent.yaml"));
}

static void test_references(void **state)
{
    (void)state;
    good("n=8", "top_k=${rollout.n}", "name=a-${" R "n}-${.top_k}");
    assert_int_equal(o.top_k, 8);
    assert_string_equal(o.name, "a-8-8");
    good("name=${trainer.default_local_dir}", "trainer.project_name=p");
    assert_string_equal(o.name, "checkpoints/p/gsm8k");
    good("top_k=${data.max_prompt_length}");
    assert_int_equal(o.top_k, 512);
    good("stop=[x,\"${data.truncation}\"]", "name=${oc.select:" R "seed,none}");
    assert_string_equal(o.stop.s[1], "error");
    good("name=${oc.env:VL_NO_SUCH_VARIABLE,dflt}");
    assert_string_equal(o.name, "dflt");
    good("-c", yaml("data: {max_response_length: \"${data.max_prompt_length}\", "
                    "max_prompt_length: 33}\n"));
    assert_int_equal(o.length, 33);
    good("name=\\${n}");
    assert_string_equal(o.name, "${n}");
    good("+my.base=7", "n=${my.base}");
    assert_int_equal(o.n, 7);
    bad("circle", "n=${top_k}", "top_k=${n}");
    bad("'${' without '}'", "name=${n");
    bad("unknown key 'nothere'", "name=${nothere}");
    bad("not understood", "name=${now:%Y}");
    bad("VL_NO_SUCH_VARIABLE is not set", "name=${oc.env:VL_NO_SUCH_VARIABLE}");
    bad("found abc", "n=${name}", "name=abc");
    good("actor_rollout_ref.actor.strategy=${now:%Y}"); /* not ours to resolve */
}

static void test_table(void **state)
{
    (void)state;
    for (const struct vl_key *k = vl_keys; k->key; k++) {
        if (vl_key_find(k->key) != k)
            fail_msg("%s is twice in the table", k->key);
        if (k->fallback && !vl_key_find(k->fallback))
            fail_msg("%s falls back to unknown %s", k->key, k->fallback);
        if (k->instead && k->instead[0] != '(' && !vl_key_find(k->instead))
            fail_msg("%s is replaced by unknown %s", k->key, k->instead);
        assert_true(k->owner && *k->owner);
        if (strstr(k->owner, "verl-run"))
            fail_msg("%s is credited to a program that is not there", k->key);
    }
    assert_int_equal(vl_edits("kitten", "sitting"), 3);
    assert_int_equal(vl_edits("ab", "ba"), 1);
    assert_int_equal(vl_edits("", "abc"), 3);
}

static void test_how(void **state)
{
    (void)state;
    good("n=1");
    assert_string_equal(vl_parsed_how(p, &o.temperature), "--temperature or " R "temperature=");
    assert_string_equal(vl_parsed_how(p, &o.log_probs), R "calculate_log_probs=");
    assert_null(vl_parsed_how(p, &e));
}

static int teardown(void **state)
{
    (void)state;
    vl_parsed_free(p);
    unlink(file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_keys),       cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_references), cmocka_unit_test(test_table),
        cmocka_unit_test(test_how),        cmocka_unit_test(test_top_level),
    };

    close(mkstemp(file));
    return cmocka_run_group_tests(tests, NULL, teardown);
}
