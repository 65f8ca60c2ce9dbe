/* SPDX-License-Identifier: MIT */
/* `winnow serve --evict`: when the server compresses a prompt. */
#ifndef WNW_CLI_SERVE_CHUNK_H
#define WNW_CLI_SERVE_CHUNK_H

#include "cli/args.h"

enum { CLI_SERVE_CHUNK = 16 };

/* Writes what the server's environment says of it: tokens of a chunk, "0" for the prompt's end, "" where the server decides. recipe: that of
 * requests which name none. Returns an exit code. */
int cli_serve_chunk(char out[CLI_SERVE_CHUNK], const struct cli_args *args, const char *recipe);

#endif
