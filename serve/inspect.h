/* SPDX-License-Identifier: MIT */
/*
 * What a slot or a document holds, token by token, as the page of `winnow inspect`. Only the thread that decodes may look at the
 * cache, and it does so when the server saves a slot: under the name of a file that means such a look. So a request takes
 * a ticket, has a slot saved under the ticket's name, and finds what was seen in its place.
 */
#ifndef WNW_SERVE_INSPECT_H
#define WNW_SERVE_INSPECT_H

#include "serve/config.h"

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For HTTP's threads. A ticket, and the name of its file; document -1 = the slot that is saved. */
int32_t serve_inspect_begin(void);
void serve_inspect_file(int32_t ticket, int32_t document, char name[64]);
/* What was seen, to be freed with json_decref, and the ticket ends. NULL: why[SERVE_TEXT] says why not. */
json_t *serve_inspect_end(int32_t ticket, char *why);
/* The page with what was seen, [*n], to be freed; NULL: no memory. */
char *serve_inspect_page(const json_t *seen, size_t *n);

/* For the thread that decodes. Whether the path is such a name; sets *ticket and *document. */
bool serve_inspect_of_file(const char *path, int32_t *ticket, int32_t *document);
/* Puts what was seen, which it takes over, where the ticket's owner finds it; NULL with why: that it cannot be seen. */
void serve_inspect_give(int32_t ticket, json_t *seen, const char *why);

/* inspect_page.c, written by embed.cmake from share/pages/inspect.html. */
extern const unsigned char serve_inspect_html[];
extern const size_t serve_inspect_html_size;

#ifdef __cplusplus
}
#endif

#endif
