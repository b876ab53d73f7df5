/* pool_once.c - a process for each row: what it printed and how it ended. See scorers.h. */
#include "libverl/reward/pool.h"

#include <string.h>

static int is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* All it printed is the answer, white space around it aside. */
void vl_pool_once_ended(struct vl_pool *p, struct vl_pool_worker *w, int status)
{
    const char *s = w->got.s;
    size_t n = w->got.n;
    char how[80];

    if (w->nflight && !vl_pool_cannot_run(p, status)) {
        p->answered = 1;
        while (n && is_space(s[n - 1]))
            n--;
        for (; n && is_space(*s); n--)
            s++;
        vl_pool_how_it_ended(status, how, sizeof how);
        p->stats->crashed += status != 0;
        if (status)
            vl_pool_blame(p, w->flight[0], "the scorer %s", how);
        else
            vl_pool_settle(p, w->flight[0], n ? s : NULL, n,
                           n ? NULL : "the scorer printed nothing");
    }
    vl_pool_forget(w);
}

void vl_pool_once_late(struct vl_pool *p, struct vl_pool_worker *w)
{
    vl_worker_end(w->p.pid);
    p->stats->timed_out++;
    vl_pool_blame(p, w->flight[0], "the scorer did not end within %g s", p->o->timeout);
    vl_pool_forget(w);
}
