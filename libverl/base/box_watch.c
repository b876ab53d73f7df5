/* box_watch.c - what the processes in a box use, read from /proc.
 *
 * Limits of the kernel hold for one process each; a box's memory is a sum. A cgroup would count it
 * exactly but few users may make one, so the tree is added up every few milliseconds instead, which
 * needs no right at all; between two looks every process still has its own limit. */
#include "libverl/base/box_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TREE_MAX = 4096 };

/* The file's text into buf, NUL-terminated; its length, 0 when it cannot be read. */
static size_t read_text(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);

    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

/* The kB behind `name` in such a text, as bytes. */
static int64_t kilobytes(const char *text, const char *name)
{
    const char *s = strstr(text, name);

    return s ? 1024 * strtoll(s + strlen(name), NULL, 10) : 0;
}

static void add_children(pid_t pid, const char *tid, pid_t *tree, int *n)
{
    char path[300], list[8192];

    snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)pid, tid);
    read_text(path, list, sizeof list);
    for (char *s = list, *end; *n < TREE_MAX; s = end) {
        long child = strtol(s, &end, 10);

        if (end == s || *end != ' ')
            break;
        tree[(*n)++] = (pid_t)child;
    }
}

/* Appends the children of each thread of pid; returns its threads. */
static int look_at(pid_t pid, pid_t *tree, int *n)
{
    struct dirent *entry;
    char path[64];
    int tasks = 0;
    DIR *d;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    d = opendir(path);
    while (d && (entry = readdir(d)))
        if (entry->d_name[0] != '.') {
            add_children(pid, entry->d_name, tree, n);
            tasks++;
        }
    if (d)
        closedir(d);
    return tasks;
}

static int64_t resident(pid_t pid)
{
    char path[64], text[4096];

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (!read_text(path, text, sizeof text))
        return 0;
    return kilobytes(text, "\nRssAnon:") + kilobytes(text, "\nRssShmem:");
}

/* The same with pages that are shared counted by their share; -1: may not be read. */
static int64_t proportional(pid_t pid)
{
    char path[64], text[4096];

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    if (!read_text(path, text, sizeof text))
        return -1;
    return kilobytes(text, "\nPss_Anon:") + kilobytes(text, "\nPss_Shmem:");
}

void box_use(pid_t pid, int64_t limit, struct box_use *u)
{
    pid_t *tree = vl_alloc(TREE_MAX * sizeof *tree);
    int64_t share, sum = 0;
    int n = 0;

    *u = (struct box_use){ 0 };
    look_at(pid, tree, &n);
    for (int i = 0; i < n; i++) {
        u->tasks += look_at(tree[i], tree, &n);
        u->resident += resident(tree[i]);
    }
    if (u->resident > limit && n > 1) { /* forked copies share pages: once more, exactly */
        for (int i = 0; i < n; i++) {
            share = proportional(tree[i]);
            sum += share < 0 ? resident(tree[i]) : share;
        }
        u->resident = sum;
    }
    free(tree);
}

void box_kill_children(pid_t pid)
{
    pid_t *tree = vl_alloc(TREE_MAX * sizeof *tree);
    int n = 0;

    look_at(pid, tree, &n);
    for (int i = 0; i < n; i++)
        kill(tree[i], SIGKILL);
    free(tree);
}

int box_tasks_of(uid_t uid)
{
    char path[300], text[4096];
    struct dirent *entry;
    struct stat st;
    int tasks = 0;
    const char *s;
    DIR *d = opendir("/proc");

    while (d && (entry = readdir(d))) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s/status", entry->d_name);
        if (stat(path, &st) < 0 || !read_text(path, text, sizeof text))
            continue;
        s = strstr(text, "\nUid:");
        if (s && (uid_t)strtoul(s + 5, NULL, 10) == uid) {
            s = strstr(text, "\nThreads:");
            tasks += s ? atoi(s + 9) : 1;
        }
    }
    if (d)
        closedir(d);
    return tasks;
}
