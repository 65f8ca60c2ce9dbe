/* SPDX-License-Identifier: MIT */
/* Where a prompt breaks with what its slot held, for the thread that decodes. */
#ifndef WNW_SERVE_BREAKS_H
#define WNW_SERVE_BREAKS_H

#include "serve/watched.h"

/* A slot is about to lose its tokens from a position of the server's on, or to have others in their place: notes them, if that is where its
 * request's prompt goes on. */
void serve_breaks_note(struct serve_watched *w, int32_t seq, int32_t from);
/* A prompt was read from token n_before on, as the server counts it, and its first n_document tokens are those of a document: says where its tokens came from (why.h). */
void serve_breaks_tell(struct serve_watched *w, int32_t seq, int32_t n_before, int32_t n_document);
/* A row of generated tokens: the same, if it is all that was read of a prompt. */
void serve_breaks_tell_row(struct serve_watched *w, int32_t seq, int32_t n_before, int32_t n_document);
void serve_breaks_clear(struct serve_watched *w);

/* Of models whose rows are not matched to cells, before a batch runs and once its tokens are noted (serve_stretch_say). */
void serve_breaks_begin(struct serve_watched *w, const struct serve_batch *batch);
void serve_breaks_end(struct serve_watched *w, const struct serve_batch *batch);

#endif
