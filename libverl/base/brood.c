/* brood.c - ending what children have started. See brood.h. */
#include "libverl/base/brood.h"

#include "libverl/base/mem.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
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
    *b = (struct vl_brood){ 0 };
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
    if (!b->was_subreaper)
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    free(b->before);
}
