/* box.c - making a box, watching it and ending it. See box.h.
 *
 * The child is made by clone() with all namespaces at once and waits until we have written its uid
 * map. Standard input is a sealed memory file, so there is nothing to feed; both outputs are pipes
 * read here; a third pipe tells how the program ended. The deadline and the limits on memory and
 * output are ours to keep: one SIGKILL to the namespace's init ends everything in it. */
#include "libverl/base/box_impl.h"

#include "libverl/base/fs.h"
#include "libverl/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WEAK_WAY "; --sandbox=weak does without namespaces, with less protection (verl-sandbox(7))"

struct run {
    const struct vl_box_opts *o;
    const struct vl_box_job *job;
    struct vl_box_result *r;
    struct vl_err *e;
    struct box_plan plan;
    int in, out[2], err[2], go[2], status[2]; /* pipes: [0] is read, [1] written */
    char folder[64];
    pid_t pid;
    struct box_word word;
    int heard; /* a word came */
};

void vl_box_result_free(struct vl_box_result *r)
{
    vl_buf_free(&r->out);
    *r = (struct vl_box_result){ 0 };
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- before ---- */

/* A read-only descriptor of a file with these bytes. */
static int input_file(const void *data, size_t n)
{
    int fd = memfd_create("stdin", MFD_CLOEXEC | MFD_ALLOW_SEALING), ro;
    char path[48];

    for (size_t done = 0; fd >= 0 && done < n;) {
        ssize_t k = write(fd, (const char *)data + done, n - done);

        if (k < 0 && errno != EINTR) {
            close(fd);
            return -1;
        }
        done += k > 0 ? (size_t)k : 0;
    }
    if (fd < 0)
        return -1;
    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fchmod(fd, 0444);
    ro = open(path, O_RDONLY | O_CLOEXEC); /* an offset of its own, at 0 */
    close(fd);
    return ro;
}

static int open_all(struct run *r)
{
    r->in = input_file(r->job->in, r->job->in_n);
    if (r->in < 0 || pipe2(r->out, O_CLOEXEC) < 0 || pipe2(r->err, O_CLOEXEC) < 0 ||
        pipe2(r->go, O_CLOEXEC) < 0 || pipe2(r->status, O_CLOEXEC) < 0)
        return vl_fail_errno(r->e, VL_E_OS, "sandbox: input and pipes");
    fcntl(r->out[0], F_SETFL, O_NONBLOCK);
    fcntl(r->err[0], F_SETFL, O_NONBLOCK);
    fcntl(r->status[0], F_SETFL, O_NONBLOCK);
    return 0;
}

/* Whether RLIMIT_NPROC counts within a user namespace (Linux 5.14), not over the machine. */
static int nproc_is_ours(void)
{
    struct utsname u;
    int major = 0, minor = 0;

    return !uname(&u) && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 14));
}

static int known_uid(uid_t uid)
{
    struct passwd entry, *found = NULL;
    char text[2048];

    return getpwuid_r(uid, &entry, text, sizeof text, &found) != 0 || found;
}

/* A uid that nobody has: above those of people, services and systemd's containers, one for each
 * box, since limits count by uid. In a container that knows few, one from the end of its range; 0
 * when it knows root alone. */
static uid_t unused_uid(pid_t pid)
{
    unsigned long first, outside, count, last = 0;
    const unsigned long far = 2000000000UL + (unsigned long)pid;
    FILE *f = fopen("/proc/self/uid_map", "re");
    int found = 0;

    while (f && fscanf(f, "%lu %lu %lu", &first, &outside, &count) == 3) {
        if (far >= first && far - first < count)
            found = 1;
        last = first + count - 1;
    }
    if (f)
        fclose(f);
    if (found)
        return (uid_t)far;
    last -= last > 20000 ? (unsigned long)pid % 10000 : 0;
    while (last > 1 && (last == 65534 || known_uid((uid_t)last)))
        last--;
    return last > 1 ? (uid_t)last : 0;
}

static int make_plan(struct run *r)
{
    struct box_plan *p = &r->plan;
    const char *dir = getenv("TMPDIR");

    *p = (struct box_plan){ .o = r->o, .job = r->job, .userns = !r->o->weak };
    p->root = geteuid() == 0 && unused_uid(1);
    p->max_tasks = r->o->processes + 1; /* the init is one */
    if (!p->root && (r->o->weak || !nproc_is_ours()))
        p->max_tasks += box_tasks_of(geteuid());
    if (!r->o->weak)
        return 0;
    if (!geteuid() && !p->root)
        return vl_fail(r->e, VL_E_UNAVAIL,
                       "sandbox: weak boxes drop root for another uid, and this container knows "
                       "none; start as an ordinary user");
    if (!dir || strlen(dir) > sizeof r->folder - 20)
        dir = "/tmp";
    snprintf(r->folder, sizeof r->folder, "%s/verl-box.XXXXXX", dir);
    if (!mkdtemp(r->folder)) {
        r->folder[0] = 0;
        return vl_fail_errno(r->e, VL_E_CREATE, "sandbox: a folder in %s", dir);
    }
    p->folder = r->folder;
    return 0;
}

/* ---- the child ---- */

_Noreturn static void child(const struct run *r)
{
    const int want[BOX_FDS] = { r->in, r->out[1], r->err[1], r->go[0], r->status[1] };
    int high[BOX_FDS];

    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    for (int i = 0; i < BOX_FDS; i++)
        high[i] = fcntl(want[i], F_DUPFD, BOX_FDS);
    for (int i = 0; i < BOX_FDS; i++)
        dup2(high[i], i);
    close_range(BOX_FDS, ~0U, 0);
    box_inside(&r->plan);
}

/* A limit on processes that others have reached for a moment is waited out, up to 2 s. */
static pid_t patient_clone(unsigned long flags)
{
    const struct timespec nap = { .tv_nsec = 50000000 };
    pid_t pid;

    for (int i = 0; (pid = box_clone(flags)) < 0 && errno == EAGAIN && i < 40; i++)
        nanosleep(&nap, NULL);
    return pid;
}

static int start(struct run *r)
{
    const unsigned long spaces =
        CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    unsigned long flags = r->o->weak ? 0 : spaces | CLONE_NEWUSER;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of ours runs in the child */
    r->pid = patient_clone(flags);
    if (r->pid < 0 && r->plan.root && !r->o->weak && errno != EAGAIN && errno != ENOMEM) {
        r->plan.userns = 0; /* root needs none for the others */
        r->pid = patient_clone(spaces);
    }
    if (r->pid == 0)
        child(r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r->pid < 0) {
        r->pid = 0;
        if (errno == EAGAIN || errno == ENOMEM || r->o->weak)
            return vl_fail_errno(r->e, VL_E_OS, "sandbox: cannot start a process");
        return vl_fail(r->e, VL_E_UNAVAIL,
                       "sandbox: this kernel or container makes no user and pid namespaces: "
                       "%s" WEAK_WAY,
                       strerror(errno));
    }
    close_fd(&r->in);
    close_fd(&r->out[1]);
    close_fd(&r->err[1]);
    close_fd(&r->go[0]);
    close_fd(&r->status[1]);
    return 0;
}

static int write_map(struct run *r, const char *file, const char *text)
{
    char path[64];
    int fd, ok;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)r->pid, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (!ok)
        vl_fail(r->e, VL_E_UNAVAIL, "sandbox: writing %s: %s" WEAK_WAY, file, strerror(errno));
    if (fd >= 0)
        close(fd);
    return r->e->code;
}

/* Maps the ids and lets the child go on. */
static int let_go(struct run *r)
{
    struct box_go go = { .uid = r->plan.root ? unused_uid(r->pid) : geteuid() };
    unsigned gid = r->plan.root ? go.uid : getegid();
    char line[64];

    if (r->plan.folder && r->plan.root && chown(r->folder, go.uid, go.uid) < 0)
        return vl_fail_errno(r->e, VL_E_OS, "sandbox: chown %s", r->folder);
    if (r->plan.userns) {
        if (!r->plan.root && write_map(r, "setgroups", "deny"))
            return r->e->code;
        snprintf(line, sizeof line, "%d %u 1\n", BOX_UID, gid);
        if (write_map(r, "gid_map", line))
            return r->e->code;
        snprintf(line, sizeof line, "%d %u 1\n", BOX_UID, go.uid);
        if (write_map(r, "uid_map", line))
            return r->e->code;
    }
    if (write(r->go[1], &go, sizeof go) != sizeof go)
        return vl_fail_errno(r->e, VL_E_OS, "sandbox: its init is gone");
    return 0;
}

/* ---- while it runs ---- */

/* The last `size` bytes of what came. */
static void keep_tail(struct vl_box_result *r, const char *s, size_t n)
{
    size_t keep;

    if (n > VL_BOX_TAIL) {
        s += n - VL_BOX_TAIL;
        n = VL_BOX_TAIL;
    }
    keep = r->err_n + n > VL_BOX_TAIL ? VL_BOX_TAIL - n : r->err_n;
    memmove(r->err, r->err + r->err_n - keep, keep);
    memcpy(r->err + keep, s, n);
    r->err_n = keep + n;
    r->err[r->err_n] = 0;
}

/* Reads what is there. 1 when more than the limit came. */
static int receive(int *fd, int64_t *left, struct vl_buf *out, struct vl_box_result *tail)
{
    char piece[65536];
    ssize_t n;

    while (*fd >= 0) {
        n = read(*fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        if (n == 0) {
            close_fd(fd);
            break;
        }
        if (tail)
            keep_tail(tail, piece, (size_t)n);
        else
            vl_buf_add(out, piece, (size_t)(n < *left ? n : *left));
        *left -= n;
        if (*left < 0)
            return 1;
    }
    return 0;
}

static void hear(struct run *r)
{
    ssize_t n = r->heard ? 0 : read(r->status[0], &r->word, sizeof r->word);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    r->heard |= n == sizeof r->word;
    close_fd(&r->status[0]);
}

/* Waits for the end of all output and the word; returns why we must end it, or VL_BOX_EXITED. */
static enum vl_box_end watch(struct run *r)
{
    double start = vl_now(), deadline = start + r->o->seconds, look = start + 0.005, now = start;
    double last = deadline + 2; /* what is left open after the init's end is none of the box's */
    int64_t left_out = r->o->output, left_err = r->o->output;
    struct box_use use;

    while (r->out[0] >= 0 || r->err[0] >= 0 || r->status[0] >= 0) {
        struct pollfd fd[] = { { r->out[0], POLLIN, 0 },
                               { r->err[0], POLLIN, 0 },
                               { r->status[0], POLLIN, 0 } };
        double until = r->status[0] < 0 ? last : look < deadline ? look : deadline;

        (void)!poll(fd, 3, until > now ? (int)((until - now) * 1e3) + 1 : 0);
        if (receive(&r->out[0], &left_out, &r->r->out, NULL) ||
            receive(&r->err[0], &left_err, NULL, r->r))
            return VL_BOX_OUTPUT;
        if (fd[2].revents)
            hear(r);
        now = vl_now();
        if (now >= (r->status[0] < 0 ? last : deadline))
            return r->status[0] < 0 ? VL_BOX_EXITED : VL_BOX_TIME;
        if (now >= look && r->status[0] >= 0) {
            box_use(r->pid, r->o->memory, &use);
            if (use.resident > r->r->peak)
                r->r->peak = use.resident;
            if (use.resident > r->o->memory)
                return VL_BOX_MEMORY;
            look = now + (now - start < 0.1 ? 0.005 : 0.02);
        }
    }
    return VL_BOX_EXITED;
}

/* ---- after ---- */

/* A strong box ends with its init. A weak one's init ends what its program has left, so only the
 * program is killed here and the init gets a while to do that. */
static void end_all(struct run *r)
{
    double patience = vl_now() + 2;

    if (!r->pid)
        return;
    while (r->o->weak && r->status[0] >= 0 && vl_now() < patience) {
        struct pollfd fd = { r->status[0], POLLIN, 0 };

        box_kill_children(r->pid);
        if (poll(&fd, 1, 20) > 0)
            hear(r);
    }
    kill(r->pid, SIGKILL);
    while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    r->pid = 0;
}

static void judge(struct run *r, enum vl_box_end why)
{
    const struct box_word *w = &r->word;

    r->r->end = why;
    if (why != VL_BOX_EXITED)
        return;
    if (!r->heard) {
        vl_fail(r->e, VL_E_OS, "sandbox: its init was ended from outside");
    } else if (w->kind == BOX_NO_SETUP) {
        vl_fail(r->e, w->error == ENOMEM || w->error == EAGAIN ? VL_E_OS : VL_E_UNAVAIL,
                "sandbox: %s: %s%s", w->step, strerror(w->error), r->o->weak ? "" : WEAK_WAY);
    } else if (w->kind == BOX_NO_PROGRAM) {
        vl_fail(r->e, VL_E_UNAVAIL,
                "sandbox: cannot run %s: %s (looked for in /usr/local/bin, /usr/bin and /bin, as "
                "the box shows them)",
                r->job->argv[0], strerror(w->error));
    } else {
        r->r->cpu = w->cpu;
        r->r->end = WIFSIGNALED(w->status) ? VL_BOX_SIGNALED : VL_BOX_EXITED;
        r->r->code = WIFSIGNALED(w->status) ? WTERMSIG(w->status) : WEXITSTATUS(w->status);
        if (r->r->end == VL_BOX_SIGNALED && r->r->code == SIGXCPU)
            r->r->end = VL_BOX_TIME;
    }
}

int vl_box_run(const struct vl_box_opts *o, const struct vl_box_job *job, struct vl_box_result *res,
               struct vl_err *e)
{
    struct run r = { o,          job,        res,        e,  { 0 }, -1,    { -1, -1 },
                     { -1, -1 }, { -1, -1 }, { -1, -1 }, "", 0,     { 0 }, 0 };
    enum vl_box_end why = VL_BOX_EXITED;
    struct vl_err ignored = { 0 };
    double t0 = vl_now();

    *res = (struct vl_box_result){ 0 };
    if (open_all(&r) || make_plan(&r) || start(&r) || let_go(&r))
        goto done;
    why = watch(&r);
done:
    end_all(&r);
    if (!e->code)
        judge(&r, why);
    res->seconds = vl_now() - t0;
    close_fd(&r.in);
    for (int i = 0; i < 2; i++) {
        close_fd(&r.out[i]);
        close_fd(&r.err[i]);
        close_fd(&r.go[i]);
        close_fd(&r.status[i]);
    }
    if (r.folder[0])
        (void)!vl_fs_remove(r.folder, &ignored);
    return e->code;
}

int vl_box_check(const struct vl_box_opts *o, const char *argv0, struct vl_err *e)
{
    const char *const argv[] = { argv0, "--version", NULL };
    const struct vl_box_job job = { .argv = argv };
    struct vl_box_opts longer = *o;
    struct vl_box_result r;

    longer.seconds = 30; /* a first start reads the program from the disk */
    if (!vl_box_run(&longer, &job, &r, e) && r.end >= VL_BOX_TIME)
        vl_fail(e, VL_E_UNAVAIL, "sandbox: %s --version does not end within its limits", argv0);
    vl_box_result_free(&r);
    return e->code;
}
