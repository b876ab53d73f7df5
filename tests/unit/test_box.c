/* test_box.c - hostile programs in boxes: each is contained and reported, and the host untouched.
 *
 * Every scene runs in strong and in weak boxes, as root (who drops to an unused uid) and as an
 * ordinary user. A scene is itself harmless to the machine were the box to fail: processes end
 * within seconds, and what is written goes to folders made here. */
#include "libverl/base/box.h"
#include "libverl/base/log.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { USER = 1999999999, NEARER_USER = 60001 };       /* in a container that maps few */
enum { STRONG = 1, WEAK = 2, BOTH = 3, CONFINED = 4 }; /* CONFINED: weak with Landlock */

struct scene {
    const char *command; /* for sh -c; the rest is what a box must make of it */
    int kinds;           /* of boxes it is for */
    enum vl_box_end end;
    int code;        /* -1: any */
    const char *out; /* the whole output, or NULL */
    const char *err; /* part of standard error, or NULL */
    double seconds;
    int64_t memory;
};

struct outcome { /* in memory shared with the child that ran it */
    int rc, end, code, sentinel, children;
    char msg[1200], out[65536], err[VL_BOX_TAIL + 1];
    size_t out_n;
    double seconds, cpu;
    int64_t peak;
};

static struct outcome *shared;
static char host[64];      /* a folder anybody may write to */
static char token[32];     /* in the command lines of this run's processes */
static int listener, port; /* on 127.0.0.1 */
static char *expand(const char *s);

static void run_scene(const struct scene *s, int weak)
{
    const char *argv[] = { "sh", "-c", NULL, NULL };
    const struct vl_box_file file = { "data.txt", "a file\n", 7 };
    const struct vl_box_job job = { argv, &file, 1, "the input\n", 10 };
    struct vl_box_opts o = VL_BOX_DEFAULTS;
    struct vl_box_result r;
    struct vl_err e = { 0 };
    char *command = expand(s->command);

    argv[2] = command;
    o.weak = weak;
    o.seconds = s->seconds ? s->seconds : 20;
    o.memory = s->memory ? s->memory : 256 << 20;
    o.disk = 8 << 20;
    o.output = 1 << 20;
    o.processes = 24;
    shared->rc = vl_box_run(&o, &job, &r, &e);
    memcpy(shared->msg, e.msg, sizeof e.msg);
    shared->end = (int)r.end;
    shared->code = r.code;
    shared->out_n = r.out.n;
    snprintf(shared->out, sizeof shared->out, "%s", r.out.s ? r.out.s : "");
    memcpy(shared->err, r.err, sizeof r.err);
    shared->seconds = r.seconds;
    shared->cpu = r.cpu;
    shared->peak = r.peak;
    vl_box_result_free(&r);
    free(command);
}

static int become_user(void)
{
    if (geteuid())
        return 0;
    (void)!setgroups(0, NULL);
    if ((setresgid(USER, USER, USER) || setresuid(USER, USER, USER)) &&
        (setresgid(NEARER_USER, NEARER_USER, NEARER_USER) ||
         setresuid(NEARER_USER, NEARER_USER, NEARER_USER)))
        return -1;
    return prctl(PR_SET_DUMPABLE, 1);
}

/* Runs the scene in a child, as an ordinary user when asked for, with a process of the same uid beside it
 * that must live on. */
static void in_child(const struct scene *s, int weak, int user)
{
    pid_t child, sentinel;
    int status;

    memset(shared, 0, sizeof *shared);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (user && become_user())
            _exit(9);
        sentinel = fork();
        if (!sentinel) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        run_scene(s, weak);
        shared->sentinel = waitpid(sentinel, &status, WNOHANG) == 0;
        kill(sentinel, SIGKILL);
        waitpid(sentinel, NULL, 0);
        shared->children = waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status)
        fail_msg("the child that ran the box ended with wait status %d", status);
}

/* Processes whose command line holds the token, but ours. */
static int left_over(void)
{
    struct dirent *entry;
    char path[300], line[4096];
    int found = 0, fd;
    ssize_t n;
    DIR *d = opendir("/proc");

    while ((entry = readdir(d))) {
        if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        fd = open(path, O_RDONLY);
        n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        if (fd >= 0)
            close(fd);
        found += n > 0 && memmem(line, (size_t)n, token, strlen(token)) != NULL;
    }
    closedir(d);
    return found;
}

static int entries(const char *path, const char *prefix)
{
    DIR *d = opendir(path);
    struct dirent *entry;
    int n = 0;

    while ((entry = readdir(d)))
        n += entry->d_name[0] != '.' && !strncmp(entry->d_name, prefix, strlen(prefix));
    closedir(d);
    return n;
}

static void untouched(const char *who)
{
    struct pollfd fd = { listener, POLLIN, 0 };

    if (!shared->sentinel)
        fail_msg("%s: a process of the same user was ended", who);
    if (shared->children || left_over())
        fail_msg("%s: a process is left", who);
    if (entries(host, "") != 1)
        fail_msg("%s: the host's folder was written to", who);
    if (poll(&fd, 1, 0) != 0)
        fail_msg("%s: the listener on 127.0.0.1 got a connection", who);
    if (entries(getenv("TMPDIR"), "verl-box."))
        fail_msg("%s: a private folder is left", who);
}

/* %P the listener's port, %H the host's folder, %T the token, %p %u %m %s numbers of system calls */
static char *expand(const char *s)
{
    struct vl_buf b = { 0 };

    for (; *s; s++) {
        if (*s != '%')
            vl_buf_ch(&b, *s);
        else if (*++s == 'P')
            vl_buf_printf(&b, "%d", port);
        else if (*s == 'H')
            vl_buf_str(&b, host);
        else if (*s == 'T')
            vl_buf_str(&b, token);
        else if (*s == 'p')
            vl_buf_printf(&b, "%d", SYS_ptrace);
        else if (*s == 'u')
            vl_buf_printf(&b, "%d", SYS_unshare);
        else if (*s == 's')
            vl_buf_printf(&b, "%d", SYS_socket);
        else if (*s == 'm')
            vl_buf_printf(&b, "%d", SYS_memfd_create);
        else
            vl_buf_ch(&b, *s);
    }
    return vl_buf_detach(&b);
}

static void check(const struct scene *s, int weak, int user)
{
    const struct outcome *r = shared;
    double t0 = vl_now();
    char who[300];

    snprintf(who, sizeof who, "%s box, %s, '%.150s'", weak ? "weak" : "strong",
             user || geteuid() ? "user" : "root", s->command);
    in_child(s, weak, user);
    if (getenv("VL_TEST_TIMES"))
        print_message("# %.2f %.2f s %s\n", vl_now() - t0, r->seconds, who);
    if (r->rc)
        fail_msg("%s: %s", who, r->msg);
    if (r->end != (int)s->end || (s->code >= 0 && r->code != s->code))
        fail_msg("%s: end %d code %d, wanted %d %d; out '%.300s' err '%.300s'", who, r->end,
                 r->code, (int)s->end, s->code, r->out, r->err);
    if (s->out && strcmp(r->out, s->out))
        fail_msg("%s: output '%.500s', wanted '%s'; err '%.300s'", who, r->out, s->out, r->err);
    if (s->err && !strstr(r->err, s->err))
        fail_msg("%s: error output '%.500s' lacks '%s'", who, r->err, s->err);
    if (r->seconds > (s->seconds ? s->seconds : 20) + 5)
        fail_msg("%s: took %g s", who, r->seconds);
    untouched(who);
}

static int strong_works[2]; /* here, as root and as an ordinary user */
static int strong_here;     /* as who we are */

static void everywhere(const struct scene *scenes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int user = geteuid() != 0; user <= 1; user++) {
            if (scenes[i].kinds & STRONG && strong_works[user])
                check(&scenes[i], 0, user);
            if (scenes[i].kinds & WEAK ||
                (scenes[i].kinds & CONFINED && vl_box_weak_has_landlock()))
                check(&scenes[i], 1, user);
        }
}
#define EVERYWHERE(scenes) everywhere(scenes, sizeof(scenes) / sizeof *(scenes))

static void ordinary_programs(void **state)
{
    static const struct scene scenes[] = {
        { "cat; cat data.txt; echo out >f; cat f; echo oops >&2; exit 3", BOTH, VL_BOX_EXITED, 3,
          "the input\na file\nout\n", "oops", 0, 0 },
        { "kill -15 $$; sleep 9", BOTH, VL_BOX_SIGNALED, 15, "", NULL, 0, 0 },
        { "[ $PWD = $HOME ] && [ $PWD = $TMPDIR ] && echo x >$TMPDIR/y && cat y", BOTH,
          VL_BOX_EXITED, 0, "x\n", NULL, 0, 0 },
        { "pwd; echo $HOME; hostname", STRONG, VL_BOX_EXITED, 0, "/tmp\n/tmp\nbox\n", NULL, 0, 0 },
        { "env | grep -c SECRET", BOTH, VL_BOX_EXITED, 1, "0\n", NULL, 0, 0 },
        { "i=0; while [ $i -lt 9 ]; do sh -c 'echo x' | cat; i=$((i+1)); done", BOTH, VL_BOX_EXITED,
          0, "x\nx\nx\nx\nx\nx\nx\nx\nx\n", NULL, 0, 0 },
        { "cat /dev/stdin; cat /dev/stdin", STRONG, VL_BOX_EXITED, 0, "the input\nthe input\n",
          NULL, 0, 0 },
    };

    (void)state;
    EVERYWHERE(scenes);
}

static void floods(void **state)
{
    static const struct scene scenes[] = {
        { "f() { f | f & }; f & echo here; exec sleep 0.2", BOTH, VL_BOX_EXITED, 0, "here\n", NULL,
          0, 0 },
        { "f() { f | f & }; f & exec sleep 5.%T", BOTH, VL_BOX_TIME, 0, NULL, NULL, 0.25, 0 },
        { "perl -e 'fork while 1; # %T'", BOTH, VL_BOX_TIME, 0, NULL, NULL, 0.25, 0 },
        { "perl -e '$n = 1 << 30; $x = \"a\" x $n; print \"got it\"'", BOTH, VL_BOX_EXITED, 1, "",
          "Out of memory", 0, 0 },
        /* each within its limit, not together */
        { "for i in 1 2 3 4; do perl -e '$x = \"a\" x (24 << 20); sleep 5; # %T' & done; wait",
          BOTH, VL_BOX_MEMORY, 0, NULL, NULL, 10, 96 << 20 },
        /* forked copies share it */
        { "perl -e '$x = \"a\" x (30 << 20); for (1..6) { if (!fork) { select(undef, undef, undef, "
          "0.2); exit } } 1 while wait > 0; "
          "print \"ok\"'",
          BOTH, VL_BOX_EXITED, 0, "ok", NULL, 10, 96 << 20 },
        { "yes", BOTH, VL_BOX_OUTPUT, 0, NULL, NULL, 0, 0 },
        { "yes >&2", BOTH, VL_BOX_OUTPUT, 0, "", "y\ny\n", 0, 0 },
        { "head -c 16000000 /dev/zero >big; echo $?; wc -c <big", BOTH, VL_BOX_EXITED, 0,
          "153\n8388608\n", NULL, 0, 0 },
        { "for i in 1 2 3; do head -c 4000000 /dev/zero >f$i; done; [ $(cat f* | wc -c) -lt "
          "8500000 ]",
          STRONG, VL_BOX_EXITED, 0, "", "No space left", 0, 0 },
        { "i=0; while [ $i -lt 5000 ]; do : >f$i || break; i=$((i+1)); done; [ $i -lt 4200 ]",
          STRONG, VL_BOX_EXITED, 2, "", "No space left", 0, 0 },
        { "perl -e '$n = \"x\"; print syscall(%m, $n, 0)'", BOTH, VL_BOX_EXITED, 0, "-1", NULL, 0,
          0 },
    };

    (void)state;
    EVERYWHERE(scenes);
}

static void outside(void **state)
{
    static const struct scene scenes[] = {
        { "echo x >%H/new; echo x >/usr/new; echo x >/new; ls -d %H", STRONG, VL_BOX_EXITED, 2, "",
          "Read-only file system", 0, 0 },
        { "cat /etc/passwd /etc/hostname /etc/shadow %H/secret", STRONG, VL_BOX_EXITED, 1, "",
          "No such file", 0, 0 },
        { "ln -s %H/secret s; ln -s / root; cat s; touch root/usr/new; ls root/usr/new", STRONG,
          VL_BOX_EXITED, 2, "", "Read-only file system", 0, 0 },
        { "echo x >%H/new; echo x >/usr/new; cat /etc/passwd %H/secret; ls %H; ln -s %H l; cat "
          "l/secret; "
          "cat /proc/*/environ | grep -a -c SECRET",
          CONFINED, VL_BOX_EXITED, 1, "0\n", "Permission denied", 0, 0 },
        /* links in the private folder are not followed when it is removed */
        { "ln -s %H outside; ln -s / root; mkdir -p a/b; ln -s %H a/b/c; echo ok", BOTH,
          VL_BOX_EXITED, 0, "ok\n", NULL, 0, 0 },
        { "cat /proc/*/environ /proc/1/maps /proc/1/cmdline 2>/dev/null | grep -a -c SECRET",
          STRONG, VL_BOX_EXITED, 1, "0\n", NULL, 0, 0 },
        { "ls /proc | grep -c '^1$'", STRONG, VL_BOX_EXITED, 1, "0\n", NULL, 0, 0 },
        { "perl -e 'print syscall(%p, 16, 1, 0, 0), syscall(%p, 0, 0, 0, 0)'", BOTH, VL_BOX_EXITED,
          0, "-1-1", NULL, 0, 0 },
        { "perl -e 'print syscall(%u, 0x10000000)'; unshare -U true", BOTH, VL_BOX_EXITED, 1, "-1",
          "unshare", 0, 0 },
        { "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(\"127.0.0.1:%P\") ? 1 : 0'",
          BOTH, VL_BOX_EXITED, 0, "0", NULL, 0, 0 },
        /* a vsock, which no network namespace holds */
        { "perl -e 'print syscall(%s, 40, 1, 0)'", BOTH, VL_BOX_EXITED, 0, "-1", NULL, 0, 0 },
        { "mount -t tmpfs x /tmp; chroot / true; true", BOTH, VL_BOX_EXITED, 0, "", NULL, 0, 0 },
        /* a weak box may signal itself only */
        { "sleep 3.%T & kill -9 -1; kill -9 $! 2>/dev/null; perl -e 'print kill(9, $ARGV[0])' "
          "$PPID",
          WEAK, VL_BOX_EXITED, 0, "0", NULL, 0, 0 },
        { "sleep 30.%T & sleep 31.%T & perl -e 'kill(9, -1)'", STRONG, VL_BOX_SIGNALED, 9, "", NULL,
          0, 0 },
        { "kill -9 -1; kill -9 1; echo on", BOTH, VL_BOX_EXITED, 0, "on\n", NULL, 0, 0 },
    };

    (void)state;
    EVERYWHERE(scenes);
}

static void what_is_left(void **state)
{
    static const struct scene scenes[] = {
        { "sleep 60.%T", BOTH, VL_BOX_TIME, 0, "", NULL, 0.15, 0 },
        { "exec <&- >&- 2>&-; sleep 60.%T", BOTH, VL_BOX_TIME, 0, "", NULL, 0.15, 0 },
        { "trap '' 1 2 3 15; echo busy; while :; do :; done; # %T", BOTH, VL_BOX_TIME, 0, "busy\n",
          NULL, 0.6, 0 },
        { "setsid sleep 60.%T & setsid setsid sleep 61.%T & sleep 62.%T & echo left", BOTH,
          VL_BOX_EXITED, 0, "left\n", NULL, 0, 0 },
        { "(sleep 60.%T & ) ; (setsid sh -c 'sleep 61.%T & sleep 62.%T' & ); exec >&- 2>&-; "
          "sleep 0.1; kill -9 $$",
          BOTH, VL_BOX_SIGNALED, 9, "", NULL, 0, 0 },
        { "perl -e 'for (1..9) { exit if !fork } print \"zombies\"; sleep 0.1'", BOTH,
          VL_BOX_EXITED, 0, "zombies", NULL, 0, 0 },
        { "kill -STOP $$; # %T", BOTH, VL_BOX_TIME, 0, "", NULL, 0.15, 0 },
    };

    (void)state;
    EVERYWHERE(scenes);
}

/* Its owner is ended by SIGKILL: the box ends, too. */
static void owner_killed(void **state)
{
    static const struct scene scene = {
        "setsid sleep 60.%T & sleep 61.%T", STRONG, 0, 0, NULL, NULL, 30, 0
    };
    double patience;
    pid_t owner;

    (void)state;
    for (int user = geteuid() != 0; user <= 1; user++) {
        if (!strong_works[user])
            continue;
        owner = fork();
        if (!owner) {
            if (user && become_user())
                _exit(9);
            run_scene(&scene, 0);
            _exit(0);
        }
        patience = vl_now() + 10;
        while (left_over() < 3 && vl_now() < patience)
            usleep(10000);
        assert_true(left_over() >= 3);
        kill(owner, SIGKILL);
        waitpid(owner, NULL, 0);
        patience = vl_now() + 5;
        while (left_over() && vl_now() < patience)
            usleep(10000);
        assert_int_equal(left_over(), 0);
    }
}

static void not_there(void **state)
{
    const char *const argv[] = { "no-such-program", NULL };
    const char *const binds[] = { "/no/such/folder", NULL };
    const struct vl_box_job job = { .argv = argv };
    struct vl_box_opts o = VL_BOX_DEFAULTS;
    struct vl_box_result r;
    struct vl_err e = { 0 };

    (void)state;
    for (o.weak = !strong_here; o.weak <= 1; o.weak++) {
        assert_int_equal(vl_box_run(&o, &job, &r, &e), VL_E_UNAVAIL);
        assert_non_null(strstr(e.msg, "cannot run no-such-program"));
        vl_box_result_free(&r);
        e = (struct vl_err){ 0 };
    }
    o.weak = 0;
    o.binds = binds;
    if (strong_here) {
        assert_int_equal(vl_box_run(&o, &job, &r, &e), VL_E_UNAVAIL);
        assert_non_null(strstr(e.msg, "/no/such/folder: No such file"));
        vl_box_result_free(&r);
    }
}

/* A further folder is shown at its own place, read-only. */
static void shown_folder(void **state)
{
    const char *const binds[] = { host, NULL };
    const char *argv[] = { "sh", "-c", NULL, NULL };
    const struct vl_box_job job = { .argv = argv };
    struct vl_box_opts o = VL_BOX_DEFAULTS;
    struct vl_box_result r;
    struct vl_err e = { 0 };
    char *command = expand("cat %H/secret; echo x >%H/new || echo no");

    (void)state;
    argv[2] = command;
    o.binds = binds;
    if (strong_here) {
        if (vl_box_run(&o, &job, &r, &e))
            fail_msg("%s", e.msg);
        assert_string_equal(r.out.s, "SECRET\nno\n");
        vl_box_result_free(&r);
        assert_int_equal(entries(host, ""), 1);
    }
    free(command);
}

static void *ten_boxes(void *arg)
{
    const char *argv[] = { "sh", "-c", NULL, NULL };
    struct vl_box_opts o = VL_BOX_DEFAULTS;
    char command[64], want[32];

    o.weak = !strong_here;
    for (int i = 0; i < 10; i++) {
        struct vl_box_job job = { .argv = argv };
        struct vl_box_result r;
        struct vl_err e = { 0 };

        snprintf(command, sizeof command, "echo %ld-%d; pwd >f; ls | wc -l", (long)(intptr_t)arg,
                 i);
        snprintf(want, sizeof want, "%ld-%d\n1\n", (long)(intptr_t)arg, i);
        argv[2] = command;
        if (vl_box_run(&o, &job, &r, &e) || r.end != VL_BOX_EXITED || !r.out.s ||
            strcmp(r.out.s, want))
            return "failed";
        vl_box_result_free(&r);
    }
    return NULL;
}

static void at_the_same_time(void **state)
{
    pthread_t t[6];
    void *why;

    (void)state;
    for (intptr_t i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&t[i], NULL, ten_boxes, (void *)i), 0);
    for (int i = 0; i < 6; i++) {
        pthread_join(t[i], &why);
        assert_null(why);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static int set_up(void **state)
{
    static char folder[] = "/tmp/verl-test-box.XXXXXX";
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t len = sizeof a;
    char path[100];
    FILE *f;

    (void)state;
    if (!mkdtemp(folder) || chmod(folder, 0777))
        return -1;
    setenv("TMPDIR", folder, 1);
    setenv("VL_TEST_SECRET", "SECRET", 1);
    snprintf(host, sizeof host, "%s/host", folder);
    mkdir(host, 0777);
    chmod(host, 0777);
    snprintf(path, sizeof path, "%s/secret", host);
    f = fopen(path, "w");
    if (!f || fputs("SECRET\n", f) < 0 || fclose(f))
        return -1;
    snprintf(token, sizeof token, "%d", 100000000 + (int)getpid());
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 5) ||
        getsockname(listener, (struct sockaddr *)&a, &len))
        return -1;
    port = ntohs(a.sin_port);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static int tear_down(void **state)
{
    char path[100];

    (void)state;
    snprintf(path, sizeof path, "%s/secret", host);
    unlink(path);
    rmdir(host);
    close(listener);
    return rmdir(getenv("TMPDIR"));
}

static void which_boxes(void **state)
{
    static const struct scene scene = { "true", STRONG, VL_BOX_EXITED, 0, "", NULL, 0, 0 };

    (void)state;
    for (int user = geteuid() != 0; user <= 1; user++) {
        in_child(&scene, 0, user);
        strong_works[user] = shared->rc == 0;
        if (strong_works[user])
            continue;
        assert_non_null(strstr(shared->msg, "--sandbox=weak"));
        print_message("# %s: only weak boxes are tested: %s\n", user ? "user" : "root",
                      shared->msg);
    }
    strong_here = strong_works[geteuid() != 0];
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_boxes),      cmocka_unit_test(ordinary_programs),
        cmocka_unit_test(floods),           cmocka_unit_test(outside),
        cmocka_unit_test(what_is_left),     cmocka_unit_test(owner_killed),
        cmocka_unit_test(not_there),        cmocka_unit_test(shown_folder),
        cmocka_unit_test(at_the_same_time),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
