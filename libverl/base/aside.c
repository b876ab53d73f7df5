/* aside.c - see aside.h. The handler uses only system calls that are safe in one, so names lie in a
 * fixed table and directories are read by getdents64. */
#include "libverl/base/aside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLOTS   16
#define LONGEST 4096
#define DEEPEST 4 /* a checkpoint is three deep */

static struct {
    volatile sig_atomic_t used;
    char path[LONGEST];
} slot[SLOTS];
static volatile pid_t owner; /* a forked child must not remove its parent's files */

static int find(const char *path)
{
    for (int i = 0; i < SLOTS; i++)
        if (slot[i].used && !strcmp(slot[i].path, path))
            return i;
    return -1;
}

void vl_aside_add(const char *path)
{
    size_t n = strlen(path);

    if (n >= LONGEST || find(path) >= 0)
        return;
    for (int i = 0; i < SLOTS; i++) {
        if (slot[i].used)
            continue;
        memcpy(slot[i].path, path, n + 1);
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* the whole name before the mark */
        slot[i].used = 1;
        return;
    }
}

void vl_aside_drop(const char *path)
{
    int i = find(path);

    if (i >= 0)
        slot[i].used = 0;
}

static void remove_at(int at, const char *name, int depth);

static void empty_directory(int fd, int depth)
{
    _Alignas(8) char block[2048];
    long n;

    while ((n = syscall(SYS_getdents64, fd, block, sizeof block)) > 0)
        for (long i = 0; i < n;) {
            struct dirent64 *f = (struct dirent64 *)(void *)(block + i);

            if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
                remove_at(fd, f->d_name, depth);
            i += f->d_reclen;
        }
}

static void remove_at(int at, const char *name, int depth)
{
    int fd;

    if (!unlinkat(at, name, 0) || errno != EISDIR || !depth)
        return;
    fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    empty_directory(fd, depth - 1);
    close(fd);
    unlinkat(at, name, AT_REMOVEDIR);
}

static void end(int sig)
{
    if (getpid() == owner)
        for (int i = 0; i < SLOTS; i++)
            if (slot[i].used)
                remove_at(AT_FDCWD, slot[i].path, DEEPEST);
    raise(sig); /* SA_RESETHAND: the default action, now */
}

void vl_aside_guard(void)
{
    static const int sigs[] = { SIGHUP, SIGINT, SIGTERM };
    struct sigaction act = { .sa_handler = end, .sa_flags = SA_RESETHAND | SA_NODEFER }, old;

    owner = getpid();
    for (int i = 0; i < 3; i++)
        if (!sigaction(sigs[i], NULL, &old) && old.sa_handler != SIG_IGN)
            sigaction(sigs[i], &act, NULL);
}
