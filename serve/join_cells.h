/* SPDX-License-Identifier: MIT */
/* Cells of documents that follow each other: the first document's are shared, those of later ones are copied to other positions. */
#ifndef WNW_SERVE_JOIN_CELLS_H
#define WNW_SERVE_JOIN_CELLS_H

#include "serve/watched.h"

/* Why documents cannot be joined in this context; NULL: they can. */
const char *serve_join_cells_refused(const struct serve_watched *w);
/* Fills the sequence of a list, unless that was done, by way of a slot, which is empty afterwards. False: it cannot be had now, and stderr says why. */
bool serve_join_cells_make(struct serve_watched *w, int32_t seq, int32_t d);

#endif
