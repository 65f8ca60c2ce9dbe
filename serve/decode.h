/* SPDX-License-Identifier: MIT */
/* A batch on its way through libllama: its rows are matched with the cells that they get, prompts that end are compressed. */
#ifndef WNW_SERVE_DECODE_H
#define WNW_SERVE_DECODE_H

#include "serve/watched.h"

/* Before the batch runs: room is made for it. */
void serve_decode_begin(struct serve_watched *w, const struct serve_batch *b);
/* While it runs: for serve_watch; user is the struct serve_watched. */
void serve_decode_rows(const int32_t *cells, int32_t n, int32_t n_cells, void *user);
/* After it ran, or could not. */
void serve_decode_end(struct serve_watched *w, const struct serve_batch *b, bool good);

#endif
