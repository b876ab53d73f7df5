/* httpd.c - a server on 127.0.0.1 that behaves, and misbehaves, as the request tells it to.
 *
 *     httpd        prints its port and serves until its standard input ends
 *
 * What to do is in the request: the body's first text between @@ and @@, else the first part of the
 * path that has one of the words below. It is a list of steps separated by commas; the Nth request
 * with the same body and path gets step N, later ones the last. A step:
 *     200 500 ...    answer with this status;  =TEXT after it is the body (%XX decoded)
 *     429:1          the same with Retry-After: 1
 *     chat=TEXT      a chat completion with this content (%XX decoded); chat alone: the content is
 *                    that of the last message
 *     echo           the body comes back
 *     auth           the Authorization line comes back
 *     hang           no answer       drip   a byte every 20 ms      garbage   no HTTP
 *     huge           4 MB            early  half of what was promised
 *     close          no byte         sleep  answer after 0.2 s
 * GET /stats gives {"requests":N,"peak":MOST AT ONE TIME}. */
#include "formats/json.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEYS = 4096 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char *key;
    int count;
} seen[KEYS];
static int requests, active, peak;

struct request {
    char path[2048], auth[512], *body;
    size_t n;
};

/* How many such requests came before. */
static int count_of(const struct request *q)
{
    char *key = vl_asprintf("%s\n%s", q->path, q->body);
    int k = 0, count;

    pthread_mutex_lock(&lock);
    while (k < KEYS - 1 && seen[k].key && strcmp(seen[k].key, key))
        k++;
    if (!seen[k].key)
        seen[k].key = key, key = NULL;
    count = seen[k].count++;
    pthread_mutex_unlock(&lock);
    free(key);
    return count;
}

static int send_all(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t k = send(fd, s, n, MSG_NOSIGNAL);

        if (k <= 0)
            return 1;
        s += k, n -= (size_t)k;
    }
    return 0;
}

static void reply(int fd, int status, const char *more, const char *body, size_t n)
{
    char head[300];
    int k = snprintf(head, sizeof head,
                     "HTTP/1.1 %d Told\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n%s\r\n",
                     status, n, more);

    if (!send_all(fd, head, (size_t)k))
        (void)!send_all(fd, body, n);
}

static char *decoded(const char *s)
{
    struct vl_buf b = { 0 };

    for (; *s; s++) {
        unsigned x;

        if (*s == '%' && sscanf(s + 1, "%2x", &x) == 1)
            vl_buf_ch(&b, (char)x), s += 2;
        else
            vl_buf_ch(&b, *s);
    }
    return vl_buf_detach(&b);
}

/* A chat completion; content NULL: the request's last message's. */
static void chat(int fd, const struct request *q, const char *content)
{
    struct vl_buf b = { 0 }, text = { 0 };
    struct vl_json j = { 0 };
    struct vl_err e = { 0 };

    if (content)
        vl_buf_str(&text, content);
    else if (!vl_json_parse(&j, q->body, q->n, "request", &e)) {
        int64_t m = vl_json_get(&j, 0, "messages");

        if (m >= 0 && j.node[m].count)
            vl_json_str(&j, vl_json_get(&j, vl_json_at(&j, m, j.node[m].count - 1), "content"),
                        &text);
    }
    vl_buf_str(&b, "{\"id\":\"x\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,"
                   "\"message\":{\"role\":\"assistant\",\"content\":");
    vl_json_put_str(&b, text.n ? text.s : "", text.n);
    vl_buf_str(&b, "},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,"
                   "\"completion_tokens\":3,\"total_tokens\":10}}");
    reply(fd, 200, "", b.s, b.n);
    vl_json_free(&j);
    vl_buf_free(&b);
    vl_buf_free(&text);
}

static void drip(int fd)
{
    static const char head[] = "HTTP/1.1 200 Told\r\nContent-Length: 100000\r\n\r\n";

    if (send_all(fd, head, sizeof head - 1))
        return;
    for (int i = 0; i < 500 && !send_all(fd, "x", 1); i++)
        usleep(20000);
}

static void huge(int fd)
{
    char *body = vl_alloc(4 << 20);

    memset(body, 'h', 4 << 20);
    reply(fd, 200, "", body, 4 << 20);
    free(body);
}

/* Does one step; 0: the connection may be used again. */
static int act(int fd, const struct request *q, const char *step)
{
    int status = 0, wait = 0, at = 0;
    char more[64] = "", *body;

    if (sscanf(step, "%3d%n", &status, &at) == 1) {
        if (step[at] == ':' && sscanf(step + at, ":%d", &wait) == 1)
            snprintf(more, sizeof more, "Retry-After: %d\r\n", wait);
        body = strchr(step, '=') ? decoded(strchr(step, '=') + 1) : vl_strdup("{}");
        reply(fd, status, more, body, strlen(body));
        free(body);
        return 0;
    }
    if (!strncmp(step, "chat", 4)) {
        body = step[4] == '=' ? decoded(step + 5) : NULL;
        chat(fd, q, body);
        free(body);
        return 0;
    }
    if (!strcmp(step, "sleep"))
        usleep(200000);
    if (!strcmp(step, "echo") || !strcmp(step, "sleep"))
        reply(fd, 200, "", q->body, q->n);
    else if (!strcmp(step, "auth"))
        reply(fd, 200, "", q->auth, strlen(q->auth));
    else if (!strcmp(step, "hang"))
        sleep(20);
    else if (!strcmp(step, "drip"))
        drip(fd);
    else if (!strcmp(step, "garbage"))
        (void)!send_all(fd, "220 not HTTP at all\r\n\r\n", 23);
    else if (!strcmp(step, "huge"))
        huge(fd);
    else if (!strcmp(step, "early"))
        (void)!send_all(fd, "HTTP/1.1 200 Told\r\nContent-Length: 100\r\n\r\n{\"half\":", 50);
    return strcmp(step, "echo") && strcmp(step, "sleep") && strcmp(step, "auth");
}

static int is_step(const char *s)
{
    static const char *const word[] = { "chat",  "echo", "auth",  "hang",  "drip", "garbage",
                                        "sleep", "huge", "early", "close", NULL };
    int n = 0;

    if (sscanf(s, "%*3[0-9]%n", &n) == 0 && n == 3)
        return 1;
    for (int k = 0; word[k]; k++)
        if (!strncmp(s, word[k], strlen(word[k])))
            return 1;
    return 0;
}

/* The list of steps. */
static char *script_of(const struct request *q)
{
    const char *from = strstr(q->body, "@@"), *to = from ? strstr(from + 2, "@@") : NULL, *p;

    if (to)
        return vl_strndup(from + 2, (size_t)(to - from - 2));
    for (p = strchr(q->path, '/'); p; p = strchr(p + 1, '/'))
        if (is_step(p + 1))
            return vl_strndup(p + 1, strcspn(p + 1, "/ "));
    return vl_strdup("404=no%20script");
}

static int serve(int fd, const struct request *q)
{
    char *script, *step, line[100];
    int k, close_it;

    pthread_mutex_lock(&lock);
    if (!strcmp(q->path, "/stats")) {
        snprintf(line, sizeof line, "{\"requests\":%d,\"peak\":%d}", requests, peak);
        pthread_mutex_unlock(&lock);
        reply(fd, 200, "", line, strlen(line));
        return 0;
    }
    requests++;
    peak = ++active > peak ? active : peak;
    pthread_mutex_unlock(&lock);
    script = script_of(q);
    step = script;
    for (k = count_of(q); k && strchr(step, ','); k--)
        step = strchr(step, ',') + 1;
    step[strcspn(step, ",")] = 0;
    usleep(2000); /* long enough to be counted beside others */
    pthread_mutex_lock(&lock);
    if (strcmp(step, "sleep"))
        active--;
    pthread_mutex_unlock(&lock);
    close_it = act(fd, q, step);
    if (!strcmp(step, "sleep")) {
        pthread_mutex_lock(&lock);
        active--;
        pthread_mutex_unlock(&lock);
    }
    free(script);
    return close_it;
}

static int read_request(FILE *f, struct request *q)
{
    char line[8192];
    size_t n = 0;

    q->auth[0] = 0;
    if (!fgets(line, sizeof line, f) || sscanf(line, "%*s %2047s", q->path) != 1)
        return 1;
    while (fgets(line, sizeof line, f) && line[0] != '\r') {
        if (!strncasecmp(line, "Content-Length:", 15))
            n = strtoul(line + 15, NULL, 10);
        if (!strncasecmp(line, "Authorization: ", 15))
            snprintf(q->auth, sizeof q->auth, "%.*s", (int)strcspn(line + 15, "\r\n"), line + 15);
    }
    q->body = vl_alloc(n + 1);
    q->n = fread(q->body, 1, n, f);
    return q->n != n;
}

static void *connection(void *arg)
{
    int fd = (int)(intptr_t)arg, ended = 0;
    int at_once = 1; /* head and body are two writes: no wait for an acknowledgement between */
    FILE *f = fdopen(fd, "r");

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    while (!ended) {
        struct request q = { 0 };

        ended = read_request(f, &q) || serve(fd, &q);
        free(q.body);
    }
    fclose(f);
    return NULL;
}

static void *accept_all(void *arg)
{
    int s = (int)(intptr_t)arg;

    for (;;) {
        int fd = accept(s, NULL, NULL);
        pthread_t t;

        if (fd >= 0 && !pthread_create(&t, NULL, connection, (void *)(intptr_t)fd))
            pthread_detach(t);
    }
    return NULL;
}

int main(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t t;
    char c;

    if (s < 0 || bind(s, (struct sockaddr *)&a, n) || listen(s, 256) ||
        getsockname(s, (struct sockaddr *)&a, &n)) {
        perror("httpd");
        return 71;
    }
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    if (pthread_create(&t, NULL, accept_all, (void *)(intptr_t)s))
        return 71;
    while (read(0, &c, 1) > 0)
        ;
    return 0;
}
