/* worker.c - starting and ending scorer processes. See worker.h.
 *
 * Each worker leads a process group, dies with us (PR_SET_PDEATHSIG), and its descendants come to
 * us when their parents die, wherever they moved: so none is left behind. When we are killed
 * ourselves, the brood's guard ends them. */
#include "libverl/reward/worker.h"

#include "libverl/comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Address space in use now: a forked filter worker has inherited it, and the limit counts it. */
static int64_t mapped_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (!f)
        return 0;
    if (fscanf(f, "%ld", &pages) != 1)
        pages = 0;
    fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void limit_memory(int64_t bytes)
{
    const struct rlimit r = { (rlim_t)bytes, (rlim_t)bytes };

    if (bytes > 0)
        setrlimit(RLIMIT_AS, &r);
}

_Noreturn static void become(const struct vl_scorers_opts *o, const struct vl_scorers_io *io,
                             pid_t parent, int in, int out, char **env)
{
    int64_t inherited = o->argv ? 0 : mapped_bytes();
    static char *no_environment[] = { NULL };
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(VL_E_RETRY);
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);   /* handlers of MPI and of tests are not for this process */
    in = fcntl(in, F_DUPFD, 3); /* so that neither is in the other's place */
    out = fcntl(out, F_DUPFD, 3);
    dup2(in, 0);
    dup2(out, 1);
    close_range(3, ~0U, 0);
    limit_memory(o->memory ? o->memory + inherited : 0);
    if (!o->argv) {
        environ = no_environment;
        vl_jq_worker(o, io, 0, 1);
    }
    execvpe(o->argv[0], (char *const *)o->argv, env);
    _exit(127);
}

/* The environment without a launcher's variables, with the brood's mark. */
static char **environment(const struct vl_brood *brood)
{
    char **env = vl_comm_clean_env();
    size_t n = 0;

    while (env[n])
        n++;
    env = vl_realloc(env, (n + 2) * sizeof *env);
    env[n] = (char *)brood->mark;
    env[n + 1] = NULL;
    return env;
}

int vl_worker_start(const struct vl_scorers_opts *o, const struct vl_scorers_io *io,
                    const struct vl_brood *brood, struct vl_worker *w, struct vl_err *e)
{
    int to[2] = { -1, -1 }, from[2] = { -1, -1 };
    char **env = environment(brood);
    pid_t self = getpid(), pid = -1;

    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0) {
        vl_fail_errno(e, VL_E_OS, "scorer: pipe");
        goto fail;
    }
    pid = fork();
    if (pid == 0)
        become(o, io, self, to[0], from[1], env);
    if (pid < 0) {
        vl_fail_errno(e, VL_E_OS, "scorer: fork");
        goto fail;
    }
    setpgid(pid, pid);
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (w->pidfd < 0) {
        vl_fail_errno(e, VL_E_OS, "scorer: pidfd_open (Linux 5.3 or later)");
        vl_worker_end(pid);
        goto fail;
    }
    close(to[0]);
    close(from[1]);
    fcntl(to[1], F_SETFL, O_NONBLOCK);
    fcntl(from[0], F_SETFL, O_NONBLOCK);
    w->pid = pid;
    w->in = to[1];
    w->out = from[0];
    free(env);
    return 0;
fail:
    for (int k = 0; k < 2; k++) {
        if (to[k] >= 0)
            close(to[k]);
        if (from[k] >= 0)
            close(from[k]);
    }
    free(env);
    return e->code;
}

int vl_worker_end(pid_t pid)
{
    int status = 0;

    kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}
