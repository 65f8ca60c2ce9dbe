/* SPDX-License-Identifier: MIT */
/* Where a prompt breaks with what its slot held, for the thread that decodes. */
#ifndef WNW_SERVE_BREAKS_H
#define WNW_SERVE_BREAKS_H

#include "serve/watched.h"

/* A slot is about to lose its tokens from a position on: notes the first ones, if that is where its request's prompt goes on. */
void serve_breaks_note(struct serve_watched *w, int32_t seq, int32_t from);
/* A prompt was read, after n_document tokens of a document: says where its tokens came from (why.h). */
void serve_breaks_tell(struct serve_watched *w, int32_t seq, int32_t n_document);

#endif
