/* brood.c - ending what children have started. See brood.h. */
#include "libverl/base/brood.h"

#include "libverl/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void add_children(const char *task, pid_t **list, size_t *n)
{
    char path[300];
    int child;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%s/children", task);
    f = fopen(path, "re");
    while (f && fscanf(f, "%d", &child) == 1) {
        *list = vl_realloc(*list, (*n + 1) * sizeof **list);
        (*list)[(*n)++] = (pid_t)child;
    }
    if (f)
        fclose(f);
}

/* Children of this process, listed by thread. */
static pid_t *children(size_t *n)
{
    DIR *d = opendir("/proc/self/task");
    pid_t *list = NULL;
    struct dirent *entry;

    *n = 0;
    while (d && (entry = readdir(d)))
        if (entry->d_name[0] != '.')
            add_children(entry->d_name, &list, n);
    if (d)
        closedir(d);
    return list;
}

void vl_brood_begin(struct vl_brood *b)
{
    *b = (struct vl_brood){ .alive = -1 };
    prctl(PR_GET_CHILD_SUBREAPER, &b->was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    b->before = children(&b->n);
}

static int was_there(const struct vl_brood *b, pid_t pid)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->before[i] == pid)
            return 1;
    return 0;
}

/* ---- the guard ---- */

/* Whether a process was started with the mark. */
static int has_mark(const char *pid, const char *mark)
{
    char path[300];
    struct vl_buf t = { 0 };
    size_t n = strlen(mark);
    ssize_t k;
    int fd, found = 0;

    snprintf(path, sizeof path, "/proc/%s/environ", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    do {
        vl_buf_reserve(&t, 1 << 16);
        k = fd < 0 ? 0 : read(fd, t.s + t.n, 1 << 16);
        t.n += k > 0 ? (size_t)k : 0;
    } while (k > 0);
    for (size_t at = 0; at + n < t.n && !found; at += strlen(t.s + at) + 1) {
        t.s[t.n] = 0;
        found = !strcmp(t.s + at, mark);
    }
    vl_buf_free(&t);
    if (fd >= 0)
        close(fd);
    return found;
}

static int kill_marked(const char *mark)
{
    DIR *d = opendir("/proc");
    struct dirent *entry;
    int killed = 0;

    while (d && (entry = readdir(d)))
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && has_mark(entry->d_name, mark))
            killed += kill((pid_t)atoi(entry->d_name), SIGKILL) == 0;
    if (d)
        closedir(d);
    return killed;
}

/* In a session of its own, deaf to what ends the others. A process that was killed shows for a
 * moment as before, and one may be just starting: looked for until there is none. */
_Noreturn static void guard(int in, const char *mark)
{
    const struct timespec nap = { .tv_nsec = 2000000 };
    char byte;

    prctl(PR_SET_NAME, "verl-guard");
    setsid();
    for (int sig = 1; sig < 32; sig++)
        signal(sig, sig == SIGHUP || sig == SIGINT || sig == SIGTERM ? SIG_IGN : SIG_DFL);
    dup2(in, 0);
    close_range(1, ~0U, 0);
    while (read(0, &byte, 1) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < 1000 && kill_marked(mark); i++)
        nanosleep(&nap, NULL);
    _exit(0);
}

void vl_brood_guard(struct vl_brood *b)
{
    struct timespec now;
    int fd[2];
    pid_t pid;

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(b->mark, sizeof b->mark, "VL_BROOD=%d.%lld.%ld", (int)getpid(), (long long)now.tv_sec,
             now.tv_nsec);
    if (pipe2(fd, O_CLOEXEC) < 0)
        return;
    pid = fork();
    if (pid == 0)
        guard(fd[0], b->mark);
    close(fd[0]);
    if (pid < 0)
        close(fd[1]);
    else
        b->alive = fd[1];
}

void vl_brood_reap(const struct vl_brood *b, const pid_t *keep, size_t n)
{
    for (;;) {
        siginfo_t info = { 0 };
        int mine = 0;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
            return;
        for (size_t i = 0; i < n && !mine; i++)
            mine = keep[i] == info.si_pid;
        if (mine || was_there(b, info.si_pid))
            return;
        waitpid(info.si_pid, NULL, 0);
    }
}

/* A killed child's own children come to us in turn, so this repeats until none is new. */
void vl_brood_end(struct vl_brood *b)
{
    int more = 1;

    while (more) {
        size_t n;
        pid_t *list = children(&n);

        more = 0;
        for (size_t i = 0; i < n; i++)
            if (!was_there(b, list[i])) {
                kill(list[i], SIGKILL);
                waitpid(list[i], NULL, 0);
                more = 1;
            }
        free(list);
    }
    if (b->alive >= 0)
        close(b->alive); /* the guard was among them */
    if (!b->was_subreaper)
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    free(b->before);
}
