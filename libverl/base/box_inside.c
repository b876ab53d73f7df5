/* box_inside.c - what happens in a box: its init makes the small world, then runs the program.
 *
 * The init is a copy of a process that may have many threads, so nothing here allocates. It keeps
 * the privileges it has inside its own user namespace until the world is made; the program gets
 * none. It holds a copy of the parent's memory (answers of tests among it), therefore it is not
 * dumpable: the program, though of the same uid, cannot trace it or see its /proc files. */
#include "libverl/base/box_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the program's world; links are copied as links, what is missing is left out. */
const char *const box_shown[] = { "/usr",
                                  "/bin",
                                  "/sbin",
                                  "/lib",
                                  "/lib32",
                                  "/lib64",
                                  "/libx32",
                                  "/etc/alternatives",
                                  "/etc/ld.so.cache",
                                  NULL };
const char *const box_devices[] = { "null", "zero", "full", "random", "urandom", NULL };

static char home[128] = "HOME=/tmp", tmpdir[128] = "TMPDIR=/tmp"; /* other ones in a weak box */
static char *environment[] = { "PATH=/usr/local/bin:/usr/bin:/bin",
                               home,
                               tmpdir,
                               "LANG=C.UTF-8",
                               "PYTHONHASHSEED=0",
                               "OMP_NUM_THREADS=1",
                               "OPENBLAS_NUM_THREADS=1",
                               NULL };

static void tell(const struct box_word *w)
{
    while (write(BOX_STATUS, w, sizeof *w) < 0 && errno == EINTR)
        ;
}

/* The box cannot be made: says which step failed. */
_Noreturn static void give_up(const char *step)
{
    struct box_word w = { .kind = BOX_NO_SETUP, .error = errno };

    snprintf(w.step, sizeof w.step, "%s", step);
    tell(&w);
    _exit(1);
}

static void must(int rc, const char *step)
{
    if (rc < 0)
        give_up(step);
}

/* SIGKILL when the parent ends. Changes of uid clear it, so it is asked for again after them. */
static void die_with_parent(void)
{
    char c;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(BOX_GO, &c, 1) == 0) /* else EAGAIN: it lives, and holds the other end */
        _exit(1);
}

/* Gives up every privilege, also to regain one; the uid where root has no user namespace. */
static void no_privileges(const struct box_plan *p, const struct box_go *go)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { { 0 } };

    for (int cap = 0; cap < 64; cap++)
        prctl(PR_CAPBSET_DROP, cap); /* fails past the last one, and for who has none anyway */
    prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED);
    if (p->root && !p->userns) {
        must((int)syscall(SYS_setgroups, 0, NULL), "setgroups");
        must((int)syscall(SYS_setresgid, go->uid, go->uid, go->uid), "setresgid");
        must((int)syscall(SYS_setresuid, go->uid, go->uid, go->uid), "setresuid");
    }
    must((int)syscall(SYS_capset, &head, none), "dropping capabilities");
}

/* From root outside, whom the user namespace does not know, to its one user, privileges kept. */
static void become_user(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct cap[2];

    must((int)syscall(SYS_setgroups, 0, NULL), "setgroups");
    must((int)syscall(SYS_setresgid, BOX_UID, BOX_UID, BOX_UID), "setresgid");
    prctl(PR_SET_KEEPCAPS, 1);
    must((int)syscall(SYS_setresuid, BOX_UID, BOX_UID, BOX_UID), "setresuid");
    must((int)syscall(SYS_capget, &head, cap), "capget");
    cap[0].effective = cap[0].permitted;
    cap[1].effective = cap[1].permitted;
    must((int)syscall(SYS_capset, &head, cap), "capset");
    prctl(PR_SET_DUMPABLE, 0);
}

/* ---- the world: a new root, made in place of /tmp ---- */

/* mount_setattr(2), which glibc has since 2.36. */
enum {
    READ_ONLY = 1,
    NO_SUID = 2,
    NO_DEV = 4,
    NO_EXEC = 8,
    MOUNT_SETATTR = 442,
    WHOLE_TREE = 0x8000
};
struct mount_attributes {
    uint64_t set, clear, propagation, userns;
};

static void lock_mount(const char *path, uint64_t set, const char *step)
{
    struct mount_attributes a = { .set = set };

    must((int)syscall(MOUNT_SETATTR, AT_FDCWD, path, WHOLE_TREE, &a, sizeof a), step);
}

/* Makes the parents of path. */
static void make_parents(const char *path)
{
    char p[4096];

    snprintf(p, sizeof p, "%s", path);
    for (char *s = p + 1; (s = strchr(s, '/')); s++) {
        *s = 0;
        mkdir(p, 0755);
        *s = '/';
    }
}

/* Shows the old root's `path` at the same place, read-only. 0 when it is not there. */
static int show(const char *path, uint64_t attr, const char *step)
{
    char old[4200], target[4096];
    struct stat st;
    ssize_t n;

    snprintf(old, sizeof old, "/old%s", path);
    if (lstat(old, &st) < 0)
        return 0;
    make_parents(path);
    if (S_ISLNK(st.st_mode)) {
        n = readlink(old, target, sizeof target - 1);
        if (n < 0)
            return 0;
        target[n] = 0;
        (void)!symlink(target, path);
        return 1;
    }
    if (S_ISDIR(st.st_mode))
        mkdir(path, 0755);
    else
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    must(mount(old, path, NULL, MS_BIND | MS_REC, NULL), step);
    lock_mount(path, attr, step);
    return 1;
}

static void make_devices(void)
{
    char path[32];

    mkdir("/dev", 0755);
    for (const char *const *d = box_devices; *d; d++) {
        snprintf(path, sizeof path, "/dev/%s", *d);
        show(path, NO_SUID | NO_EXEC, "mounting devices");
    }
    (void)!symlink("/proc/self/fd", "/dev/fd");
    (void)!symlink("/proc/self/fd/0", "/dev/stdin");
    (void)!symlink("/proc/self/fd/1", "/dev/stdout");
    (void)!symlink("/proc/self/fd/2", "/dev/stderr");
    (void)!symlink("/tmp", "/dev/shm");
}

static void make_world(const struct box_plan *p)
{
    const uint64_t ro = READ_ONLY | NO_SUID | NO_DEV;
    const unsigned long plain = MS_NOSUID | MS_NODEV;
    char options[96];

    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "making mounts private");
    must(mount("box", "/tmp", "tmpfs", plain, "size=1m,nr_inodes=1024,mode=755"),
         "mounting a tmpfs");
    must(mkdir("/tmp/old", 0755), "making the root");
    must((int)syscall(SYS_pivot_root, "/tmp", "/tmp/old"), "pivot_root");
    must(chdir("/"), "entering the root");
    for (const char *const *s = box_shown; *s; s++)
        show(*s, ro, "mounting the system's folders");
    make_devices();
    mkdir("/proc", 0755); /* a convenience: where a container forbids it, there is none */
    (void)!mount("proc", "/proc", "proc", plain | MS_NOEXEC | MS_RDONLY, "hidepid=2,subset=pid");
    mkdir("/tmp", 0755);
    snprintf(options, sizeof options, "size=%lld,nr_inodes=4096,mode=1777",
             (long long)p->o->disk + 65536);
    must(mount("box", "/tmp", "tmpfs", plain, options), "mounting the private folder");
    for (const char *const *b = p->o->binds; b && *b; b++)
        if (!show(*b, ro, *b)) {
            errno = ENOENT;
            give_up(*b);
        }
    must(umount2("/old", MNT_DETACH), "leaving the old root");
    rmdir("/old");
    must(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | plain, NULL),
         "making the root read-only");
    must(chdir("/tmp"), "entering the private folder");
    (void)!sethostname("box", 3);
}

static void write_files(const struct vl_box_job *job)
{
    for (size_t i = 0; i < job->nfiles; i++) {
        const struct vl_box_file *f = &job->files[i];
        int fd = open(f->name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
        size_t done = 0;

        must(fd, "writing the program's files");
        while (done < f->n) {
            ssize_t k = write(fd, (const char *)f->data + done, f->n - done);

            must((int)(k < 0 ? -1 : 0), "writing the program's files");
            done += (size_t)k;
        }
        close(fd);
    }
}

/* ---- the program ---- */

static void limit(int what, int64_t n)
{
    struct rlimit r;

    must(getrlimit((__rlimit_resource_t)what, &r), "reading limits");
    if ((rlim_t)n < r.rlim_max)
        r.rlim_max = (rlim_t)n;
    r.rlim_cur = r.rlim_max;
    must(setrlimit((__rlimit_resource_t)what, &r), "setting limits");
}

_Noreturn static void become_program(const struct box_plan *p, const struct box_go *go)
{
    static const int zero[] = { RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_RTPRIO, RLIMIT_NICE };
    const struct vl_box_opts *o = p->o;
    struct box_word w = { .kind = BOX_NO_PROGRAM };
    sigset_t none;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit(RLIMIT_AS, o->memory);
    limit(RLIMIT_STACK, o->memory < (64 << 20) ? o->memory : 64 << 20);
    limit(RLIMIT_FSIZE, o->disk);
    limit(RLIMIT_CPU, 4 * (int64_t)o->seconds + 4); /* were the parent stopped; 4: threads */
    limit(RLIMIT_NPROC, p->max_tasks);
    limit(RLIMIT_NOFILE, 128);
    limit(RLIMIT_SIGPENDING, 128);
    limit(RLIMIT_CORE, 1); /* 1, not 0: a core_pattern that is a program runs at 0, too */
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
        limit(zero[i], 0);
    no_privileges(p, go);
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    must(fcntl(BOX_STATUS, F_SETFD, FD_CLOEXEC), "close-on-exec");
    close(BOX_GO);
    if (o->weak)
        must(box_landlock(p), "Landlock");
    must(box_filter(o->weak), "the system call filter");
    if (p->folder) {
        snprintf(home, sizeof home, "HOME=%s", p->folder);
        snprintf(tmpdir, sizeof tmpdir, "TMPDIR=%s", p->folder);
    }
    environ = environment;
    execvp(p->job->argv[0], (char *const *)p->job->argv);
    w.error = errno;
    tell(&w);
    _exit(127);
}

_Noreturn void box_inside(const struct box_plan *p)
{
    struct box_word w = { .kind = BOX_DONE };
    struct box_go go;
    struct rusage u;
    pid_t child, got;
    siginfo_t info;
    int fd, one, status = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(BOX_GO, &go, sizeof go) != sizeof go) /* the maps are written, or the parent is gone */
        _exit(1);
    fcntl(BOX_GO, F_SETFL, O_NONBLOCK);
    umask(022);
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); /* we first, were memory to end */
    if (fd >= 0) {
        (void)!write(fd, "1000", 4);
        close(fd);
    }
    if (p->userns && p->root)
        become_user();
    if (p->folder)
        must(chdir(p->folder), "entering the private folder");
    else
        make_world(p);
    write_files(p->job);
    if (p->folder)
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_DUMPABLE, 0);
    die_with_parent();
    child = box_clone(0);
    must(child, "starting the program's process");
    if (!child)
        become_program(p, &go);
    close(BOX_IN); /* the outputs end with the program's processes */
    close(BOX_OUT);
    close(BOX_ERR);
    if (p->folder) /* the filter keeps all in its process group: one signal finds them */
        waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), kill(-child, SIGKILL);
    do {
        got = waitpid(-1, &one, 0);
        if (got == child)
            status = one;
    } while ((got > 0 && (got != child || p->folder)) || (got < 0 && errno == EINTR));
    getrusage(RUSAGE_CHILDREN, &u);
    w.status = status;
    w.cpu = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
            1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    tell(&w);
    _exit(0);
}
