/* SPDX-License-Identifier: MIT */
/* A slot in a file and back: what llama_state_seq_save_file and _load_file do for slots of the watched context. */
#ifndef WNW_SERVE_SLOT_SAVE_H
#define WNW_SERVE_SLOT_SAVE_H

#include "serve/watched.h"

/* Says what the context takes of files: once, when it is watched. */
void serve_saved_open(const struct serve_watched *w);
/* What libllama has of a sequence, in the order of its positions, which the caller frees. */
int serve_saved_state(uint8_t **state, uint64_t *n, const struct serve_watched *w, int32_t seq);
/* Writes a slot with the server's notes of its tokens. Returns the file's bytes, 0 on failure with a line on standard error. */
size_t serve_saved_write(const struct serve_watched *w, const char *path, int32_t seq, const int32_t *notes,
                         size_t n_notes);
/* Gives a slot to the request that parks it (parks.h). An empty slot is not given. replaced: nothing of it is used afterwards. */
void serve_saved_park(struct serve_watched *w, int32_t ticket, bool replaced, int32_t seq,
                      const int32_t *notes, size_t n_notes);
/* Parks what a slot without a request holds, where no request has it saved. Ends *about. */
void serve_saved_park_slot(struct serve_watched *w, int32_t seq, struct serve_park_about *about);
/* Parks what all slots hold, when the server ends. */
void serve_saved_park_all(struct serve_watched *w);
/* Reads one into a slot, in two calls: with notes = NULL for *n_notes, then with notes [room], which puts it there. Returns bytes of the file, 0 on
 * failure likewise. */
size_t serve_saved_read(struct serve_watched *w, const char *path, int32_t seq, int32_t *notes, size_t room,
                        size_t *n_notes);

#endif
