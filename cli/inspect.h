/* SPDX-License-Identifier: MIT */
/* Stored documents and keep-plans, to be shown. */
#ifndef WNW_CLI_INSPECT_H
#define WNW_CLI_INSPECT_H

#include "cli/args.h"

#include <jansson.h>

/* Reads either kind of file as the object that `inspect --json` prints; the caller releases *o after errors, too. Returns an
 * exit code. */
int cli_inspect_read(json_t **o, const char *path);
/* Writes the page that the arguments ask for, share/pages/inspect.html. */
int cli_inspect_page(const struct cli_args *args);

#endif
