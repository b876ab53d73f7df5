/* box_filter.c - the system calls a program in a box is refused.
 *
 * A list of what is refused, not of what is allowed: interpreters and compilers of every version
 * are to run. It takes away what reaches around the namespaces and limits: tracing, new namespaces
 * and mounts, keys, BPF, io_uring, sockets of odd families, and memory that no limit counts
 * (memfd, System V). Weak boxes have no namespaces, so theirs also refuses sockets, signals and
 * leaving the process group. */
#include "libverl/base/box_impl.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { ARCH = (int)AUDIT_ARCH_X86_64 };
#elif defined(__aarch64__)
enum { ARCH = (int)AUDIT_ARCH_AARCH64 };
#else
enum { ARCH = 0 }; /* box_filter() fails there: a box without filter would be a false promise */
#endif

static const int refused[] = {
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_shmget,
    SYS_msgget,
    SYS_semget,
    SYS_memfd_create,
    SYS_mq_open,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_quotactl,
    SYS_acct,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_vhangup,
    SYS_personality,
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
    /* the same numbers on every architecture */
    424 /* pidfd_send_signal: by descriptor, also to processes outside a weak box */,
    425 /* io_uring_setup */,
    426,
    427,
    428 /* open_tree */,
    429 /* move_mount */,
    430 /* fsopen */,
    431,
    432,
    433 /* fspick */,
    438 /* pidfd_getfd */,
    440 /* process_madvise */,
    442 /* mount_setattr */,
    447 /* memfd_secret */,
};
/* Signals reach every process of the uid; kill and tgkill are left for the program itself. The
 * process group is what a weak box is ended by, so nobody leaves it. */
static const int refused_weak[] = { SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
                                    SYS_setsid, SYS_setpgid };
static const int to_itself[] = { SYS_kill, SYS_tgkill };

enum {
    CLONE_NEW_ANY = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                    CLONE_NEWPID | CLONE_NEWNET
};

struct program {
    struct sock_filter at[256];
    unsigned short n;
};

static void put(struct program *p, struct sock_filter f)
{
    p->at[p->n++] = f;
}

#define LOAD(offset) (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset))
#define SKIP(test, k, yes, no)                                                                     \
    (struct sock_filter) BPF_JUMP(BPF_JMP | (test) | BPF_K, (uint32_t)(k), yes, no)
#define GIVE(error)                                                                                \
    (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)(error))
#define PASS   ((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW))
#define NUMBER offsetof(struct seccomp_data, nr)
#define FIRST  offsetof(struct seccomp_data, args) /* low half of the first argument */

/* If the loaded word equals k: that error. */
static void refuse(struct program *p, int k, int error)
{
    put(p, SKIP(BPF_JEQ, k, 0, 1));
    put(p, GIVE(error));
}

int box_filter(int weak)
{
    struct program p = { .n = 0 };
    struct sock_fprog prog;

    if (!ARCH)
        return errno = ENOSYS, -1;
    put(&p, LOAD(offsetof(struct seccomp_data, arch)));
    put(&p, SKIP(BPF_JEQ, ARCH, 1, 0));
    put(&p, GIVE(EPERM));
    put(&p, LOAD(NUMBER));
    put(&p, SKIP(BPF_JGE, 0x40000000, 0, 1)); /* x32: other numbers for the same calls */
    put(&p, GIVE(ENOSYS));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        refuse(&p, refused[i], EPERM);
    for (size_t i = 0; weak && i < sizeof refused_weak / sizeof *refused_weak; i++)
        refuse(&p, refused_weak[i], EPERM);
    for (size_t i = 0; weak && i < sizeof to_itself / sizeof *to_itself; i++) {
        put(&p, SKIP(BPF_JEQ, to_itself[i], 0, 4));
        put(&p, LOAD(FIRST));
        put(&p, SKIP(BPF_JEQ, getpid(), 1, 0));
        put(&p, GIVE(EPERM));
        put(&p, PASS);
    }
    refuse(&p, 435, ENOSYS); /* clone3: flags in memory cannot be checked; libc falls back */
    put(&p, SKIP(BPF_JEQ, SYS_clone, 0, 4));
    put(&p, LOAD(FIRST));
    put(&p, SKIP(BPF_JSET, CLONE_NEW_ANY, 0, 1));
    put(&p, GIVE(EPERM));
    put(&p, PASS);
    put(&p, SKIP(BPF_JEQ, SYS_socket, 0, weak ? 1 : 4));
    if (weak) {
        put(&p, GIVE(EACCES));
    } else {
        put(&p, LOAD(FIRST));
        put(&p, SKIP(BPF_JEQ, AF_UNIX, 2, 0));
        put(&p, SKIP(BPF_JEQ, AF_INET, 1, 0));
        put(&p, SKIP(BPF_JEQ, AF_INET6, 0, 1));
        put(&p, PASS);
        put(&p, GIVE(EAFNOSUPPORT)); /* vsock and others are in no network namespace */
    }
    put(&p, PASS);
    prog = (struct sock_fprog){ p.n, p.at };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}
