/* SPDX-License-Identifier: MIT */
/* Names of files that mean something to the decoding thread, and that no request may give a file. */
#ifndef WNW_SERVE_OWN_NAMES_H
#define WNW_SERVE_OWN_NAMES_H

#include <stdbool.h>
#include <string.h>

#define SERVE_FILE_DOCUMENT "winnow-document." /* and the document's number: its cells (documents.c) */
#define SERVE_FILE_LOOK     "winnow-look."     /* a look at a slot (inspect.c) */
#define SERVE_FILE_PARK     "winnow-park."     /* a slot on its way to or from where it is parked (parks.h) */

/* Whether a name is the server's own: all that begin as one, so that nothing depends on how their numbers are read. */
static inline bool serve_is_own_name(const char *name)
{
    return strncmp(name, SERVE_FILE_DOCUMENT, sizeof SERVE_FILE_DOCUMENT - 1) == 0 ||
           strncmp(name, SERVE_FILE_LOOK, sizeof SERVE_FILE_LOOK - 1) == 0 ||
           strncmp(name, SERVE_FILE_PARK, sizeof SERVE_FILE_PARK - 1) == 0;
}

#endif
