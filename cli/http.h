/* SPDX-License-Identifier: MIT */
/* Requests to a winnow server: plain HTTP, one request per connection. */
#ifndef WNW_CLI_HTTP_H
#define WNW_CLI_HTTP_H

#include "app/text.h"

/* A server as an option names it: http://HOST[:PORT][/PREFIX]. */
struct cli_server {
    char host[256], port[8];
    char prefix[512]; /* "" or /PREFIX */
    const char *key;  /* of its API; NULL = none. Borrowed */
};
/* Parses a URL. Returns an exit code, like the other function. */
int cli_server_parse(struct cli_server *s, const char *url);
/* GET of a path. *status is that of the reply, and *body its bytes, which the caller frees. */
int cli_server_get(const struct cli_server *s, const char *path, int *status, struct app_text *body);
/* Says what a reply means that is not what was asked for. Returns an exit code. */
int cli_server_refused(int status, const struct app_text *body);
/* Adds text to a path with what no query may have as %XX. False if memory runs out. */
bool cli_server_escape(struct app_text *path, const char *text);

#endif
