/* SPDX-License-Identifier: MIT */
/*
 * A slot in a file. libllama's state of a sequence has a row of full size for every token, with all bits set where a head has
 * dropped the entry. In the file such runs are left out, so that it has the size of what was kept. It is for the same model
 * and program; numbers are as this machine has them.
 */
#ifndef WNW_SERVE_SLOT_FILE_H
#define WNW_SERVE_SLOT_FILE_H

#include "serve/want.h"

#include <stdio.h>

/* By what it was compressed. */
struct serve_slot_by {
    char recipe[SERVE_RECIPE];
    wnw_size size;
    int32_t n_protected;
};

struct serve_slot_file {
    uint64_t model[2];    /* numbers that tell models apart; 0: who wrote it had the file alone */
    char fingerprint[40]; /* of the model; "": who wrote it did not know it */
    uint64_t n_tokens, state_bytes, packed_bytes;
    int64_t entries;    /* in all heads */
    int32_t n_sequence; /* tokens whose keys and values are there; n_tokens counts the server's notes, too */
    int32_t compressed;
    struct serve_slot_by by; /* if it was compressed */
    uint64_t sum; /* XXH3 of all that follows, and of this with a sum of 0 (decision 111); set on writing */
};

/* Writes all of it to an empty file that can be read and written. False: errno says why. */
bool serve_slot_file_put(FILE *f, struct serve_slot_file *file, const int32_t *tokens, const uint8_t *state);
/* Writes the file, complete or not at all; returns its bytes, 0 on failure with a line on standard error. */
size_t serve_slot_file_write(const char *path, struct serve_slot_file *file, const int32_t *tokens,
                             const uint8_t *state);
/* Whether it is of that model. Numbers alone tell models apart that differ in shape, so that a fingerprint which one side alone knows is
 * another model. */
bool serve_slot_file_fits(const struct serve_slot_file *file, const uint64_t model[2],
                          const char *fingerprint);
/* Reads what comes first, and checks it against the file's size, the bytes that a token has in all heads, and what layers that slide have at
 * most. */
bool serve_slot_file_look(const char *path, struct serve_slot_file *file, uint64_t row_bytes,
                          uint64_t window_bytes);
/* Reads tokens[n_tokens] and state[state_bytes]; returns the file's bytes, 0 on failure, also where they are not what was written. */
size_t serve_slot_file_read(const char *path, const struct serve_slot_file *file, int32_t *tokens,
                            uint8_t *state);

#endif
