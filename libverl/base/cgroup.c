/* cgroup.c - see cgroup.h. */
#include "libverl/base/cgroup.h"

#include <stdio.h>
#include <string.h>

/* ROOT/GROUP, then its parents, ROOT last. */
static void climb(const char *root, const char *group, void (*see)(void *arg, const char *dir),
                  void *arg)
{
    char dir[8192];
    size_t top = strlen(root);

    if (*group != '/' || strstr(group, "/..")) /* outside of what this process may see */
        group = "";
    if ((size_t)snprintf(dir, sizeof dir, "%s%s", root, group) >= sizeof dir)
        return;
    for (;; *strrchr(dir, '/') = '\0') {
        see(arg, dir);
        if (!dir[top])
            return;
    }
}

/* Whether `name` is in the list a,b,c of n bytes. */
static int listed(const char *list, size_t n, const char *name)
{
    size_t m = strlen(name);

    for (size_t at = 0, end; at <= n; at = end + 1) {
        for (end = at; end < n && list[end] != ',';)
            end++;
        if (end - at == m && memcmp(list + at, name, m) == 0)
            return 1;
    }
    return 0;
}

void vl_cgroup_each_in(const char *root, const char *self, const char *controller,
                       void (*see)(void *arg, const char *dir), void *arg)
{
    char line[4200], mount[4200];
    FILE *f = fopen(self, "re");

    snprintf(mount, sizeof mount, "%s/%s", root, controller);
    see(arg, root);
    see(arg, mount);
    while (f && fgets(line, sizeof line, f)) { /* NUMBER:CONTROLLERS:GROUP */
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;

        if (!group)
            continue;
        list++;
        group[strcspn(group, "\n")] = '\0';
        if (group == list)
            climb(root, group + 1, see, arg);
        else if (listed(list, (size_t)(group - list), controller))
            climb(mount, group + 1, see, arg);
    }
    if (f)
        fclose(f);
}

void vl_cgroup_each(const char *controller, void (*see)(void *arg, const char *dir), void *arg)
{
    vl_cgroup_each_in("/sys/fs/cgroup", "/proc/self/cgroup", controller, see, arg);
}
