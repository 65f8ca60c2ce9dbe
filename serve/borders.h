/* SPDX-License-Identifier: MIT */
/*
 * Where a conversation can be gone back to, in models whose state cannot be cut: recurrent layers have one state, layers with a sliding window have
 * the newest tokens. llama.cpp's server keeps such states at borders of turns, and gives them up when a slot is restored. They are
 * kept here as well, and go with a parked prompt. A prompt that shares a part of what was parked is read from the last border on.
 * For the thread that decodes.
 */
#ifndef WNW_SERVE_BORDERS_H
#define WNW_SERVE_BORDERS_H

#include "serve/watched.h"

/* Takes note of a state that the server has asked for: that of the first tokens of a slot, as many as it has now. */
void serve_borders_add(struct serve_watched *w, int32_t seq, const uint8_t *state, size_t bytes);
/* The slot has n tokens of those that it had. */
void serve_borders_cut(struct serve_watched *w, int32_t seq, int32_t n);
void serve_borders_copy(struct serve_watched *w, int32_t from, int32_t to);
void serve_borders_clear(struct serve_watched *w);

/* Writes the borders of a slot's first n tokens into its file. False: no memory. */
bool serve_borders_save(struct serve_slot_read *x, const struct serve_watched *w, int32_t seq, int32_t n);
/* Takes those of a file for an empty slot. What libllama does not take is left out. */
void serve_borders_restore(struct serve_watched *w, int32_t seq, const struct serve_slot_read *x);

/* The first position of a slot. In layers with a sliding window the server wants two tokens more than the next token sees. libllama's state of
 * a sequence does not have them, so a restored slot would be read again. */
int32_t serve_borders_first(const struct serve_watched *w, int32_t seq);
/* The server compares the tokens of a slot with a prompt, and finds that n are the same. Returns after how many of them it may go on. */
size_t serve_borders_common(struct serve_watched *w, const void *tokens, size_t n);
/* Whether a request goes on with all that its slot holds, of a model with recurrent layers and sliding windows. The server would look for a state
 * of its own that is a window older, which it needs for windows alone. It is asked once. */
bool serve_borders_goes_on(struct serve_watched *w, int32_t seq);
/* The server asks for a slot's first position, or cuts it: now it is known whose tokens it compared. Whether it goes back to a border. */
bool serve_borders_goes_back(struct serve_watched *w, int32_t seq);
/* Goes back to the border of n tokens, if that was said. */
void serve_borders_go_back(struct serve_watched *w, int32_t seq, int32_t n);

#endif
