/* http.c - opens libcurl's part when it is needed. See http.h. */
#include "libverl/base/http.h"

#include "libverl/base/plugin.h"

#include <string.h>

int vl_http_run(const struct vl_http_opts *o, int64_t n, const struct vl_http_io *io,
                struct vl_http_stats *stats, struct vl_err *e)
{
    int (*run)(const struct vl_http_opts *, int64_t, const struct vl_http_io *,
               struct vl_http_stats *, struct vl_err *);

    if (vl_plugin_symbol(&run, "libverl_http.so", "vl_http_curl", e))
        return vl_err_prefix(e, "HTTP requests need libverl_http.so: install libcurl's development "
                                "package and build with HTTP=1");
    return run(o, n, io, stats, e);
}

int vl_http_check_url(const char *s, const char *option, struct vl_err *e)
{
    const char *host = !strncmp(s, "http://", 7)    ? s + 7
                       : !strncmp(s, "https://", 8) ? s + 8
                                                    : NULL;
    size_t n = host ? strcspn(host, "/?#") : 0;

    if (!n || strpbrk(s, " \t\r\n"))
        return vl_fail(e, VL_E_USAGE,
                       "%s: expected a URL such as http://127.0.0.1:8000/v1, with http:// or "
                       "https:// and a host",
                       option);
    if (memchr(host, '@', n))
        return vl_fail(e, VL_E_USAGE,
                       "%s: the URL has a user or password in it, which messages would show: give "
                       "a key by an environment variable",
                       option);
    return 0;
}
