/* SPDX-License-Identifier: MIT */
/*
 * Which requests are allowed: those of programs and of the server's own page, not those of other pages. A browser lets any page send requests
 * to any address. It reports the page's origin (Origin, Sec-Fetch-Site) and the server's name (Host). A foreign name may resolve to this machine,
 * and its page would then look like the server's own. So names are checked as well.
 */
#ifndef WNW_SERVE_ORIGINS_H
#define WNW_SERVE_ORIGINS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a request says; texts are "" where it does not say. */
struct serve_asker {
    const char *method, *path;
    const char *host, *origin; /* the first header of that name */
    size_t n_hosts, n_origins; /* headers of that name */
    const char *site, *mode;   /* Sec-Fetch-Site, Sec-Fetch-Mode */
};

/* What the server allows. */
struct serve_doors {
    const char *names; /* own names, with ',' between them; "": none */
    const char *
        origins; /* of pages that may ask, with ',' between them; "*": any, "localhost": any of this machine; "": none */
    const char *page; /* path of the server's own page, to which others may lead */
    bool tls;         /* the server speaks HTTPS */
};

enum { SERVE_REASON = 320 /* bytes */ };
/* Whether a request is refused with 403; then why[SERVE_REASON] says what is wrong. Any thread. */
bool serve_refuses(const struct serve_doors *doors, const struct serve_asker *asker, char *why);
/* Whether a text can be a name of a host, without a port. */
bool serve_is_host_name(const char *name);

#ifdef __cplusplus
}
#endif

#endif
