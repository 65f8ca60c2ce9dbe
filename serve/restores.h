/* SPDX-License-Identifier: MIT */
/*
 * Slots on their way from files, for any thread. The thread that answers a request reads the file and checks it; only what was found good goes to the
 * server, whose decoding thread takes it from here. The server empties a slot for which it cannot read a file, so a file that is refused must never
 * reach it. The same form serves the other way: what is saved is checked against it.
 */
#ifndef WNW_SERVE_RESTORES_H
#define WNW_SERVE_RESTORES_H

#include "serve/config.h"
#include "serve/slot_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The decoding thread says what its context takes; copied. */
void serve_restores_open(const struct serve_slot_form *form);

/* It says, or says again, how many tokens a conversation may have from which some were removed; 0: none may be. */
void serve_restores_set_longest(int32_t n);

struct serve_restore;
/* Reads and checks a file of the server's folder for a slot. False with the reason in why[SERVE_TEXT]; else *out is released with
 * serve_restore_end once the server has answered. */
bool serve_restore_begin(struct serve_restore **out, int32_t slot, const char *name, char *why);
/* The same for what was read and checked already, under a name of the server's own; takes *read over. False: no memory. */
bool serve_restore_offer(struct serve_restore **out, int32_t slot, const char *name,
                         struct serve_slot_read *read);
/* Tokens that it brings. */
int32_t serve_restore_n_tokens(const struct serve_restore *r);
void serve_restore_end(struct serve_restore *r);

/* Takes what was read for a slot from the file of this path, which the caller clears. False: nobody has read it. */
bool serve_restore_take(struct serve_slot_read *out, int32_t slot, const char *path);
/* Reads a file that nobody has read. A status with a sentence. */
int serve_restore_read(struct serve_slot_read *out, const char *path);
/* The same of a packed slot in memory. */
int serve_restore_unpack(struct serve_slot_read *out, const uint8_t *bytes, size_t n);
/* Counts the tokens that the server's notes have. A status with a sentence. */
int serve_restore_count(int32_t *n_tokens, const int32_t *notes, size_t n_notes);
/* Checks a slot that is to be written: its notes against what libllama has of it. A status with a sentence. */
int serve_restore_check(const struct serve_slot_file *file, const int32_t *notes, const uint8_t *state);
/* Brings a state from libllama into the order that files have. A status with a sentence. */
int serve_restore_sort(uint8_t *state, size_t n);

#ifdef __cplusplus
}
#endif

#endif
