/* SPDX-License-Identifier: MIT */
/* What a slot or a document holds, token by token, as the thread that decodes sees it. */
#ifndef WNW_SERVE_SLOT_VIEW_H
#define WNW_SERVE_SLOT_VIEW_H

#include "serve/watched.h"

#include <jansson.h>

/* Looks at a document, or with document = -1 at a slot, of whose tokens the server has notes. The data of a page (inspect.h), to be
 * released with json_decref; NULL: *why says why not. */
json_t *serve_look(const struct serve_watched *w, int32_t document, int32_t slot, const int32_t *notes,
                   size_t n_notes, const char **why);

#endif
