/* cgroup.h - the control groups whose limits hold for this process. */
#ifndef VL_CGROUP_H
#define VL_CGROUP_H

/* Calls see() with the directory of the process's group of `controller` ("cpu", "memory") and of each
 * group above it that can be seen: a limit of any of them holds. Version 2 and 1; in a container the
 * directory may be the root alone. Directories that are not there are among them. */
void vl_cgroup_each(const char *controller, void (*see)(void *arg, const char *dir), void *arg);
/* The same with other names for /sys/fs/cgroup and /proc/self/cgroup. */
void vl_cgroup_each_in(const char *root, const char *self, const char *controller,
                       void (*see)(void *arg, const char *dir), void *arg);

#endif
