/* SPDX-License-Identifier: MIT */
/*
 * What a slot or a document holds, token by token, as the page of `winnow inspect`. Only the thread that decodes may look at the
 * cache, and it does so when the server saves a slot: under the name of a file that means such a look. So a request takes
 * a ticket, has a slot saved under the ticket's name, and finds what was seen in its place.
 */
#ifndef WNW_SERVE_INSPECT_H
#define WNW_SERVE_INSPECT_H

#include "serve/serve.h"

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_vocab;

/* For HTTP's threads. A ticket, and the name of its file; document -1 = the slot that is saved. */
int32_t serve_inspect_begin(void);
void serve_inspect_file(int32_t ticket, int32_t document, char name[64]);
/* What was seen, to be freed with json_decref, and the ticket ends. NULL: why[SERVE_TEXT] says why not. */
json_t *serve_inspect_end(int32_t ticket, char *why);
/* The page with what was seen, [*n], to be freed; NULL: no memory. */
char *serve_inspect_page(const json_t *seen, size_t *n);

/* For the thread that decodes. Whether the path is such a name; sets *ticket and *document. */
bool serve_inspect_of_file(const char *path, int32_t *ticket, int32_t *document);
/* Something that is held: cells [n] in the order of its tokens. Pointers are borrowed. */
struct serve_inspected {
    const wnw_bridge *cache;
    const struct llama_vocab *vocab;
    const int32_t *cells, *ids; /* [n]; ids NULL: which tokens they are is not known */
    int32_t n, n_cells;         /* of the cache */
    char name[80];
    const char *model;
    const struct serve_want *by; /* NULL: everything is kept */
};
/* Looks at it and puts what it sees where the ticket's owner finds it; with why, that it cannot be seen. */
void serve_inspect_look(int32_t ticket, const struct serve_inspected *x, const char *why);

/* inspect_page.c, written by embed.cmake from share/pages/inspect.html. */
extern const unsigned char serve_inspect_html[];
extern const size_t serve_inspect_html_size;

#ifdef __cplusplus
}
#endif

#endif
