/* SPDX-License-Identifier: MIT */
/* Cells of the server's documents: each has a sequence of its own, which slots that begin with it share. */
#ifndef WNW_SERVE_DOCUMENT_CELLS_H
#define WNW_SERVE_DOCUMENT_CELLS_H

#include "serve/watched.h"

#include <llama.h>

/* Makes room for the documents' sequences and cells in a context that is about to be made. What cannot be served ends the process. */
void serve_document_cells_room(const struct llama_model *model, struct llama_context_params *params);
/* Has the context take what was stored once and give it back, before anybody can ask: what it does not take ends the process. */
void serve_document_cells_try(struct serve_watched *w);
/* First tokens of a slot whose cells are a document's. */
int32_t serve_document_cells_shared(const struct serve_watched *w, int32_t seq);
/* Keeps what a slot has read as a document. */
void serve_document_cells_keep(struct serve_watched *w, int32_t seq, int32_t d);
/* Begins a slot with a document, as if it were in a file: writes its tokens to tokens[room], or with NULL only their number to *n. One
 * that was stored is loaded the first time. Returns how many they are, 0 on failure. */
size_t serve_document_cells_restore(struct serve_watched *w, int32_t seq, int32_t d, int32_t *tokens,
                                    size_t room, size_t *n);
/* Records that a slot no longer begins with its document, and that the remaining cells are its own. */
void serve_document_cells_end(struct serve_watched *w, int32_t seq);
/* Records that a slot has lost a part of its document. It no longer begins with the document, and the remaining cells are its own. */
void serve_document_cells_check(struct serve_watched *w, int32_t seq);

#endif
