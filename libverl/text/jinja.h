/* jinja.h - chat templates: the part of Jinja2 they use, with Python's values and printing.
 *
 * A template is outside input and decides every id a model sees. So it runs under limits (depth,
 * steps, memory, output), it can reach nothing but its variables and the clock, and whatever this
 * interpreter does not do as Python's does is refused by name: it is never rendered wrong.
 * The environment is the one transformers sets up: trim_blocks, lstrip_blocks, loop controls,
 * {% generation %}, tojson as json.dumps(ensure_ascii=False), raise_exception, strftime_now. */
#ifndef VL_JINJA_H
#define VL_JINJA_H

#include "libverl/base/mem.h"

struct vl_jinja;

/* Parses a template; name starts every error line. VL_E_DATA: line and what is wrong or unsupported. */
int vl_jinja_open(struct vl_jinja **j, const char *src, size_t n, const char *name,
                  struct vl_err *e) VL_MUST_CHECK;
void vl_jinja_free(struct vl_jinja *j);

/* A variable of the next renders, replacing one of that name. The JSON text is copied and parsed by
 * the render, whose error names the variable. */
void vl_jinja_set_json(struct vl_jinja *j, const char *name, const char *json, size_t n);
/* What strftime_now formats (default: the time of the call): seconds since 1970 in local time, or
 * with SOURCE_DATE_EPOCH in the environment that time in UTC. */
void vl_jinja_set_now(struct vl_jinja *j, int64_t seconds, int utc);

/* Appends the rendered text. VL_E_DATA: template line and cause; raise_exception's own words. */
int vl_jinja_render(struct vl_jinja *j, struct vl_buf *out, struct vl_err *e) VL_MUST_CHECK;

#endif
