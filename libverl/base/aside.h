/* aside.h - what is written aside goes when a signal ends the program.
 *
 * A file or directory that is not yet under its final name means nothing to anybody else: INT, TERM
 * and HUP remove it and then end the program as they would have (status 128 + signal in a shell).
 * Nothing can be done about KILL; what that leaves carries the process id in its name. */
#ifndef VL_ASIDE_H
#define VL_ASIDE_H

/* Remembers / forgets a path made by this process. At most 16 at a time, each shorter than 4096
 * bytes; what does not fit is not remembered. A path is remembered once. */
void vl_aside_add(const char *path);
void vl_aside_drop(const char *path);

/* For main(): installs the handlers, where the signal is not ignored (nohup, background jobs). */
void vl_aside_guard(void);

#endif
