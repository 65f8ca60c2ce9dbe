/* SPDX-License-Identifier: MIT */
/*
 * Conversations longer than the context. The server believes in a longer context and counts positions in the whole conversation.
 * When a slot is full, its middle is compressed further. Tokens that few heads keep are removed, and later tokens move up.
 * The header and the last tokens stay as they are. From then on positions in the cache and those of the server differ; they are
 * translated here. For the thread that decodes.
 */
#ifndef WNW_SERVE_STRETCH_H
#define WNW_SERVE_STRETCH_H

#include "serve/watched.h"

struct llama_batch_ext;

/* Why positions in this context cannot be moved; NULL: they can. */
const char *serve_stretch_why_fixed(const struct serve_watched *w);
/* Sees whether room can be made in this context, and sets w->most. */
void serve_stretch_open(struct serve_watched *w);
/* Makes no room from now on: a draft model counts the same positions, and has no room for more. */
void serve_stretch_close(struct serve_watched *w);
/* Tokens that a conversation may have at most; 0 where no room is made. */
int32_t serve_stretch_length(const struct serve_watched *w);

/* Notes tokens of a slot's conversation from the position `at` of the server's on: those that are removed later have no other place. False: no
 * memory, and they are not known. */
bool serve_stretch_say(struct serve_watched *w, int32_t seq, int32_t at, const int32_t *ids, int32_t n);
/* The first n tokens of it; NULL: not all are known. */
const int32_t *serve_stretch_said(const struct serve_watched *w, int32_t seq, int32_t n);

/* Slots, a bit for each, that have cells of those in which room is to be made for a batch: positions of cells would be moved in both. */
uint64_t serve_stretch_in_way(const struct serve_watched *w, const struct serve_batch *b);
/* Compresses conversations further that would be longer than the context with a batch. */
void serve_stretch_make(struct serve_watched *w, const struct serve_batch *b);
/* Whether a batch has more tokens than there are free cells, where room can be made. */
bool serve_stretch_lacks(const struct serve_watched *w, const struct serve_batch *b);
/* Makes room in the longest conversation. */
void serve_stretch_longest(struct serve_watched *w);
/* Gives the rows of a batch their positions in the cache. */
void serve_stretch_place(const struct serve_watched *w, struct serve_batch *b, struct llama_batch_ext *batch);
/* The position in the cache of the first token of a slot that is not in front of a position of the server's. */
int32_t serve_stretch_pos(const struct serve_watched *w, int32_t seq, int32_t at);

#endif
