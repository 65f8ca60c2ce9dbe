/* SPDX-License-Identifier: MIT */
#include "cli/http.h"

#include "app/console.h"
#include "base/err.h"

#include <errno.h>
#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* The most bytes of a reply, and the last port. */
enum { MOST_BYTES = 1 << 30, MOST_PORT = 65535 };

int cli_server_parse(struct cli_server *s, const char *url)
{
    static const char scheme[] = "http://";
    *s = (struct cli_server){.port = "80"};
    const char *at = strncmp(url, scheme, sizeof scheme - 1) == 0 ? url + sizeof scheme - 1 : NULL;
    const char *bracket = at && *at == '[' ? strchr(at, ']') : NULL, *host = at, *rest = "";
    size_t n_host = 0;
    if (bracket) { /* an address of IPv6 */
        host = at + 1;
        n_host = (size_t)(bracket - host);
        rest = bracket + 1;
    } else if (at) {
        n_host = strcspn(at, ":/?#@ \t\r\n");
        rest = at + n_host;
    }
    const size_t n_port = *rest == ':' ? strspn(rest + 1, "0123456789") : 0;
    const char *prefix = rest + (*rest == ':' ? n_port + 1 : 0);
    size_t n_prefix = strlen(prefix);
    while (n_prefix > 0 && prefix[n_prefix - 1] == '/')
        n_prefix--;
    const bool good = n_host > 0 && n_host < sizeof s->host && n_port < sizeof s->port &&
                      (*rest != ':' || (n_port > 0 && strtol(rest + 1, NULL, 10) <= MOST_PORT)) &&
                      (!*prefix || *prefix == '/') && n_prefix < sizeof s->prefix &&
                      strcspn(prefix, " \t\r\n?#") == strlen(prefix);
    if (!good)
        return app_fail(APP_BAD_INPUT, "--url '%s': it is http://HOST:PORT, with a path after it at most",
                        url);
    memcpy(s->host, host, n_host);
    if (n_port > 0)
        snprintf(s->port, sizeof s->port, "%.*s", (int)n_port, rest + 1);
    memcpy(s->prefix, prefix, n_prefix);
    return APP_OK;
}

bool cli_server_escape(struct app_text *path, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-~";
    bool good = true;
    for (; good && *text; text++)
        good = strchr(plain, *text) ? app_text_add(path, text, 1)
                                    : app_text_put(path, "%%%02X", (unsigned)(unsigned char)*text);
    return good;
}

/* Connects to the first address that answers. Returns the socket, -1 = none does, with errno. */
static int connect_to(const struct addrinfo *list)
{
    int fd = -1;
    for (const struct addrinfo *a = list; fd < 0 && a; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            const int err = errno;
            close(fd);
            errno = err;
            fd = -1;
        }
    }
    return fd;
}

static int open_connection(int *fd, const struct cli_server *s)
{
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const int rc = getaddrinfo(s->host, s->port, &hints, &list);
    if (rc != 0)
        return app_fail(APP_BAD_INPUT, "%s: %s", s->host, gai_strerror(rc));
    *fd = connect_to(list);
    const int err = errno;
    freeaddrinfo(list);
    return *fd >= 0 ? APP_OK
                    : app_fail(APP_BAD_INPUT, "no server answers at %s, port %s: %s", s->host, s->port,
                               strerror(err));
}

static bool send_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        text += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Reads the reply to its end. The request is of HTTP/1.0, so the server closes the connection there. */
static int receive_all(int fd, struct app_text *all)
{
    char part[65536];
    ssize_t n;
    while ((n = recv(fd, part, sizeof part, 0)) > 0) {
        if (all->len > MOST_BYTES)
            return app_fail(APP_FAILED, "the server's reply is longer than %d bytes", MOST_BYTES);
        if (!app_text_add(all, part, (size_t)n))
            return app_fail(APP_FAILED, "out of memory");
    }
    return n == 0 ? APP_OK : app_fail(APP_FAILED, "the server's reply: %s", strerror(errno));
}

/* The value of a header; NULL: it is not there. */
static const char *find_header(const char *head, const char *end, const char *name)
{
    for (const char *line = strstr(head, "\r\n"); line && line < end; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, strlen(name)) == 0)
            return line + 2 + strlen(name);
    return NULL;
}

/* Takes the head off a reply. */
static int take_body(int *status, struct app_text *body, const struct app_text *all)
{
    const char *end = all->s ? strstr(all->s, "\r\n\r\n") : NULL;
    if (!end || sscanf(all->s, "HTTP/%*d.%*d %d", status) != 1)
        return app_fail(APP_FAILED, "what answers there does not speak HTTP");
    if (find_header(all->s, end, "Transfer-Encoding:"))
        return app_fail(APP_FAILED,
                        "the server's reply comes in pieces (Transfer-Encoding), for which it was not asked");
    const size_t n = all->len - (size_t)(end + 4 - all->s);
    const char *length = find_header(all->s, end, "Content-Length:");
    const long long whole = length ? strtoll(length, NULL, 10) : -1;
    if (whole >= 0 && (unsigned long long)whole != n)
        return app_fail(APP_FAILED, "the server's reply has %zu bytes of %lld", n, whole);
    return app_text_add(body, end + 4, n) ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

/* Writes a request. An IPv6 address is put into brackets, as in a URL. False if memory runs out. */
static bool write_question(struct app_text *out, const struct cli_server *s, const char *path)
{
    const bool six = strchr(s->host, ':') != NULL;
    return app_text_put(out, "GET %s%s HTTP/1.0\r\nHost: %s%s%s:%s\r\nConnection: close\r\n", s->prefix, path,
                        six ? "[" : "", s->host, six ? "]" : "", s->port) &&
           (!s->key || !*s->key || app_text_put(out, "Authorization: Bearer %s\r\n", s->key)) &&
           app_text_put(out, "\r\n");
}

/* Sends the question, which it writes, and reads all of the reply. */
static int exchange(int fd, struct app_text *request, struct app_text *all, const struct cli_server *s,
                    const char *path)
{
    if (!write_question(request, s, path))
        return app_fail(APP_FAILED, "out of memory");
    if (!send_all(fd, request->s, request->len))
        return app_fail(APP_FAILED, "the server does not take the question: %s", strerror(errno));
    return receive_all(fd, all);
}

int cli_server_get(const struct cli_server *s, const char *path, int *status, struct app_text *body)
{
    struct app_text request = {0}, all = {0};
    int fd = -1;
    WNW_TRY(open_connection(&fd, s));
    int rc = exchange(fd, &request, &all, s, path);
    if (rc == APP_OK)
        rc = take_body(status, body, &all);
    close(fd);
    free(request.s);
    free(all.s);
    return rc;
}

int cli_server_refused(int status, const struct app_text *body)
{
    json_t *o = body->s ? json_loadb(body->s, body->len, 0, NULL) : NULL;
    const char *why = json_string_value(json_object_get(json_object_get(o, "error"), "message"));
    int rc;
    if (status == 401)
        rc = app_fail(APP_BAD_INPUT, "the server asks for a key; give it with --api-key");
    else if (status == 404)
        rc = app_fail(APP_BAD_INPUT,
                      "the server has no such page; is it `winnow serve`, and this version of it?");
    else
        rc = app_fail(status < 500 ? APP_BAD_INPUT : APP_FAILED, "the server says: %s",
                      why ? why : "nothing that can be read");
    json_decref(o);
    return rc;
}
