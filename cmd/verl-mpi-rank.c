/* verl-mpi-rank - started by scripts/verl-mpi once per rank: gives rank 0 the real standard input
 * and output, runs the program, and reports how it ended.
 *
 * Why a process of its own: mpiexec forwards standard input through a buffer that kills the job at
 * 64 kB, prints a banner on standard output when a rank dies, and neither its status nor the banner
 * tells which rank was first. A rank's parent knows all of that. It costs one fork. */
#include "libverl/base/brood.h"
#include "libverl/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t child;

static void pass_on(int sig)
{
    if (child > 0)
        kill((pid_t)child, sig);
}

static int env_int(const char *name, int absent)
{
    const char *s = getenv(name);

    return s && *s ? atoi(s) : absent;
}

static int my_rank(void)
{
    static const char *const name[] = { "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID" };

    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (getenv(name[i]))
            return env_int(name[i], 0);
    return 0;
}

/* One write, so that lines of several ranks do not mix. RS (0x1E) starts a report: verl-mpi takes
 * it out of what the user sees. */
static void report(int rank, const char *host, pid_t pid, const char *kind, int value)
{
    char line[256];
    int n =
        snprintf(line, sizeof line, "\036rank %d %s %d %s %d\n", rank, host, (int)pid, kind, value);
    ssize_t ignored = write(2, line, (size_t)n);

    (void)ignored;
}

/* Rank 0 takes the launcher's descriptors as 0 and 1; the others read nothing and what they print
 * goes to standard error. Returns 0, or a status after a message. */
static int place_files(int rank, const char *host)
{
    int in = env_int("VL_LAUNCH_IN", -1), out = env_int("VL_LAUNCH_OUT", -1), null;
    const char *start = getenv("VL_LAUNCH_HOST");
    int here = start && !strcmp(start, host);

    if (rank) {
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
            return VL_E_OS;
    } else if (in >= 0 && out >= 0) {
        if (!here || dup2(in, 0) < 0 || dup2(out, 1) < 0) {
            fprintf(stderr,
                    "verl-mpi: rank 0 runs on %s, but standard input and output are on %s; list "
                    "%s first in --hosts\n",
                    host, start ? start : "another host", start ? start : "that host");
            return VL_E_UNAVAIL;
        }
    }
    if (here && in > 2 && out > 2) {
        close(in);
        close(out);
    }
    return 0;
}

static void run_program(char **argv, pid_t parent)
{
    int code;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* when this rank's parent is killed, so is the rank */
    if (getppid() != parent)
        _exit(VL_E_RETRY);
    execvp(argv[0], argv);
    code = errno == ENOENT ? VL_E_NOINPUT : VL_E_OS;
    fprintf(stderr, "verl-mpi: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(code);
}

static int supervise(char **argv, int rank, const char *host)
{
    struct sigaction pass = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
    pid_t self = getpid(), pid;
    struct vl_brood brood;
    int status;

    vl_brood_begin(&brood); /* what a killed program started is ended here */
    pid = fork();
    if (pid < 0) {
        fprintf(stderr, "verl-mpi: rank %d: fork: %s\n", rank, strerror(errno));
        return VL_E_OS;
    }
    if (!pid)
        run_program(argv, self);
    child = pid;
    sigaction(SIGTERM, &pass, NULL);
    sigaction(SIGINT, &pass, NULL);
    sigaction(SIGHUP, &pass, NULL);
    close(0); /* only the program holds the pipes */
    close(1);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return VL_E_OS;
    if (WIFSIGNALED(status))
        report(rank, host, pid, "signal", WTERMSIG(status));
    else
        report(rank, host, pid, "exit", WEXITSTATUS(status));
    vl_brood_end(&brood);
    return WIFSIGNALED(status) ? VL_E_RETRY : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    char host[64] = "";
    int rank = my_rank(), rc;

    if (argc == 2 && !strcmp(argv[1], "--version")) {
        puts("verl-mpi-rank " VL_VERSION);
        return 0;
    }
    if (argc < 2 || argv[1][0] == '-') {
        FILE *to = argc == 2 && !strcmp(argv[1], "--help") ? stdout : stderr;

        fputs("usage: verl-mpi-rank PROGRAM [ARG...]\n"
              "Runs one rank for verl-mpi, which starts it; see verl-mpi(1).\n",
              to);
        return to == stdout ? 0 : VL_E_USAGE;
    }
    if (gethostname(host, sizeof host - 1) != 0 || !*host)
        strcpy(host, "localhost");
    rc = place_files(rank, host);
    return rc ? rc : supervise(argv + 1, rank, host);
}
