/* SPDX-License-Identifier: MIT */
/* Where the library is that other llama.cpp programs load. */
#ifndef WNW_CLI_BACKEND_LIBRARY_H
#define WNW_CLI_BACKEND_LIBRARY_H

#include <stddef.h>

#define CLI_NO_BACKEND "this winnow was built without the backend: scripts/setup.sh source, then build again"

/* Sets path to the library next to the program in a build folder, or where it is installed. Returns NULL, or why there
 * is none and what to do, a static sentence. */
const char *cli_backend_find(char *path, size_t size);

#endif
