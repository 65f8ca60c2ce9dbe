/* SPDX-License-Identifier: MIT */
/* Stored documents and keep-plans, to be shown. */
#ifndef WNW_CLI_INSPECT_H
#define WNW_CLI_INSPECT_H

#include "cli/args.h"
#include "winnow_store.h"

#include <jansson.h>

/* ---- Reading (inspect_read.c) ---- */

/* A stored document in one object, which is NULL without memory. */
json_t *cli_inspect_stored(const wnw_stored *st);
/* Reads either kind of file as the object that `inspect --json` prints; the caller releases *o after errors, too. Returns an
 * exit code. */
int cli_inspect_read(json_t **o, const char *path);

/* ---- The page (inspect_page.c) ---- */

/* Writes the page that the arguments ask for, share/pages/inspect.html. */
int cli_inspect_page(const struct cli_args *args);

#endif
