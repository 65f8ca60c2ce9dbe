/* SPDX-License-Identifier: MIT */
#include "serve/origins.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A host and a port, borrowed from the text. */
struct authority {
    const char *host;
    size_t n;     /* bytes of the host, without brackets and a dot at its end */
    bool bracket; /* it stood in brackets, as addresses of IPv6 do */
    long port;    /* -1: not given */
};

/* ---- Reading ---- */

/* Reads ":PORT" or nothing up to the end of a text. */
static bool read_port(long *port, const char *s)
{
    *port = -1;
    if (!*s)
        return true;
    if (*s++ != ':')
        return false;
    const size_t n = strspn(s, "0123456789");
    if (s[n] || n > 5)
        return false;
    for (size_t i = 0; i < n; i++)
        *port = (*port < 0 ? 0 : *port * 10) + (s[i] - '0');
    return *port <= 65535;
}

/* Reads HOST or HOST:PORT, and nothing else. */
static bool read_authority(struct authority *a, const char *s)
{
    *a = (struct authority){.bracket = *s == '['};
    a->host = s + a->bracket;
    a->n = strcspn(a->host, a->bracket ? "]" : ":");
    const char *end = a->host + a->n;
    if (a->n == 0 || (a->bracket && *end++ != ']'))
        return false;
    if (!a->bracket && a->n > 1 && a->host[a->n - 1] == '.') /* "name." is "name" */
        a->n--;
    return read_port(&a->port, end);
}

static bool same_text(const char *a, size_t n, const char *b, size_t n_b)
{
    return n == n_b && strncasecmp(a, b, n) == 0;
}

static bool is_word(const char *a, size_t n, const char *word)
{
    return same_text(a, n, word, strlen(word));
}

/* Whether a list with ',' between its words has this one. */
static bool has_word(const char *list, const char *word, size_t n)
{
    while (*list) {
        list += strspn(list, ", ");
        const size_t m = strcspn(list, ", ");
        if (m > 0 && same_text(list, m, word, n))
            return true;
        list += m;
    }
    return false;
}

/* ---- Hosts ---- */

/* An address as browsers write it: other forms of IPv4 ("127.1") reach the server as its four numbers. */
static bool is_address(const struct authority *a)
{
    char text[INET6_ADDRSTRLEN + 1];
    unsigned char address[sizeof(struct in6_addr)];
    const char *zone = a->bracket ? memchr(a->host, '%', a->n) : NULL; /* "fe80::1%eth0" */
    const size_t n = zone ? (size_t)(zone - a->host) : a->n;
    if (n >= sizeof text)
        return false;
    memcpy(text, a->host, n);
    text[n] = '\0';
    return inet_pton(a->bracket ? AF_INET6 : AF_INET, text, address) == 1;
}

static bool is_local(const struct authority *a)
{
    return !a->bracket && is_word(a->host, a->n, "localhost");
}

bool serve_is_host_name(const char *name)
{
    struct authority a;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    return strlen(name) < 256 && read_authority(&a, name) && !a.bracket && a.port < 0 &&
           strspn(name, letters) == strlen(name) && name[0] != '.' && name[strlen(name) - 1] != '.';
}

static bool is_own_host(const struct serve_doors *doors, const struct authority *a)
{
    return is_address(a) || (!a->bracket && (is_local(a) || has_word(doors->names, a->host, a->n)));
}

/* ---- Origins ---- */

/* Reads SCHEME://HOST or SCHEME://HOST:PORT; "null", as pages without an origin have, is none. */
static bool read_origin(struct authority *a, bool *tls, const char *origin)
{
    const bool plain = strncasecmp(origin, "http://", 7) == 0;
    *tls = strncasecmp(origin, "https://", 8) == 0;
    if (!plain && !*tls)
        return false;
    const char *rest = origin + (plain ? 7 : 8);
    return !rest[strcspn(rest, "/?#@\\ ")] && read_authority(a, rest);
}

static long port_of(const struct authority *a, bool tls)
{
    const long usual = tls ? 443 : 80;
    return a->port >= 0 ? a->port : usual;
}

static bool is_own_origin(const struct serve_doors *doors, const struct authority *host, const char *origin)
{
    struct authority a;
    bool tls;
    return read_origin(&a, &tls, origin) && tls == doors->tls && a.bracket == host->bracket &&
           same_text(a.host, a.n, host->host, host->n) && port_of(&a, tls) == port_of(host, doors->tls);
}

/* Origins that the server's options name. */
static bool is_allowed(const struct serve_doors *doors, const char *origin)
{
    struct authority a;
    bool tls;
    if (has_word(doors->origins, "*", 1) || has_word(doors->origins, origin, strlen(origin)))
        return true;
    if (!has_word(doors->origins, "localhost", strlen("localhost")) || !read_origin(&a, &tls, origin))
        return false;
    return is_local(&a) || (a.bracket ? is_word(a.host, a.n, "::1") : is_word(a.host, a.n, "127.0.0.1"));
}

/* Requests by which a page of somebody else loads a picture or a script, or leads to another page, have no origin; browsers say of them that
 * they cross sites. To the server's own page anyone may lead. */
static bool crosses(const struct serve_doors *doors, const struct serve_asker *asker)
{
    if (strcasecmp(asker->site, "cross-site") != 0 && strcasecmp(asker->site, "same-site") != 0)
        return false;
    return strcmp(asker->method, "GET") != 0 || strcmp(asker->path, doors->page) != 0 ||
           strcasecmp(asker->mode, "navigate") != 0;
}

/* ---- The rule ---- */

/* A header's value as it can be shown: none where it is long or has other than ASCII. */
static const char *shown(const char *value)
{
    const size_t n = strlen(value);
    for (size_t i = 0; i < n; i++)
        if (value[i] < ' ' || value[i] > '~')
            return "...";
    return n < 100 ? value : "...";
}

bool serve_refuses(const struct serve_doors *doors, const struct serve_asker *asker, char *why)
{
    struct authority host;
    if (asker->n_hosts != 1 || !read_authority(&host, asker->host)) {
        snprintf(why, SERVE_REASON, "Host: a request names one host, that of this server; this one has '%s'",
                 shown(asker->host));
        return true;
    }
    if (!is_own_host(doors, &host)) {
        snprintf(why, SERVE_REASON,
                 "Host: '%s' is no address, and no name that this server was given: winnow serve --host-name "
                 "NAME gives it one",
                 shown(asker->host));
        return true;
    }
    if (asker->path[0] != '/' && strcmp(asker->path, "*") != 0) {
        snprintf(why, SERVE_REASON, "the request's path begins with '/': this server is no proxy");
        return true;
    }
    const bool own = asker->n_origins == 1 &&
                     (is_own_origin(doors, &host, asker->origin) || is_allowed(doors, asker->origin));
    if (asker->n_origins > 0 && !own) {
        snprintf(why, SERVE_REASON,
                 "Origin: pages of '%s' may not ask this server: winnow serve ... -- --cors-origins ORIGIN "
                 "allows it",
                 shown(asker->origin));
        return true;
    }
    if (asker->n_origins == 0 && crosses(doors, asker) && !has_word(doors->origins, "*", 1)) {
        snprintf(why, SERVE_REASON, "Sec-Fetch-Site: a page of another site may not ask this server");
        return true;
    }
    return false;
}
