/* SPDX-License-Identifier: MIT */
/* The places of lists of documents in the cache: emptying them, for other lists and for what has no room. */
#ifndef WNW_SERVE_JOIN_ROOM_H
#define WNW_SERVE_JOIN_ROOM_H

#include "serve/watched.h"

/* The sequence of a place. */
int32_t serve_join_sequence(const struct serve_watched *w, int32_t place);
/* Takes all tokens of a sequence away. False: libllama cannot. */
bool serve_join_clear(struct serve_watched *w, int32_t seq);
/* A place becomes empty. Slots that begin with what is there keep their cells, which are their own from now on. */
void serve_join_empty(struct serve_watched *w, int32_t place);
/* Whether n more tokens fit --kv-bytes. Lists that no request begins with are given up for that, the one that was unused for longest first. */
bool serve_join_make_way(struct serve_watched *w, int32_t n);

#endif
