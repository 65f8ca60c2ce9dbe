/* SPDX-License-Identifier: MIT */
/*
 * A slot in a file. libllama's state of a sequence has a row of full size for every token, with all bits set where a head has
 * dropped the entry. In the file such runs are left out, so that it has the size of what was kept. It is for the same model
 * and program; numbers are as this machine has them.
 *
 * All that a file says is checked before a slot changes: its header against the file's size and the server's context, its checksum, then the
 * notes and the state (serve/slot_state.h).
 */
#ifndef WNW_SERVE_SLOT_FILE_H
#define WNW_SERVE_SLOT_FILE_H

#include "serve/keep_rule.h"
#include "serve/slot_state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By what it was compressed. */
struct serve_slot_by {
    char recipe[SERVE_RECIPE];
    wnw_size size;
    int32_t n_protected;
};

struct serve_slot_file {
    uint64_t model[2];    /* identify the model's shape; 0: the writer had only the model's file */
    char fingerprint[24]; /* the first 23 digits of the model's, 92 bits; "": who wrote it did not know it */
    uint64_t n_tokens, state_bytes, packed_bytes;
    uint64_t
        border_bytes; /* states that follow, to which it can be gone back (borders.h); of parked slots alone */
    int64_t entries;  /* in all heads */
    int32_t n_sequence; /* tokens whose keys and values are there; n_tokens counts the server's notes, too */
    int32_t compressed;
    int32_t
        n_at; /* positions that follow the notes, one for each of n_sequence; 0: nothing was removed (stretch.h) */
    int32_t n_settled;       /* first entries of a head that a policy of blocks has judged (watched.h) */
    struct serve_slot_by by; /* if it was compressed */
    uint64_t sum; /* XXH3 of all that follows, and of this with a sum of 0 (decision 111); set on writing */
};

/* What a file says: whether a text of `room` bytes is ASCII's visible characters and spaces and ends within them, so that it can be shown,
 * in JSON too; and whether a size is one. */
bool serve_is_plain(const char *text, size_t room);
bool serve_is_size(const wnw_size *size);

/*
 * Below, notes has the server's notes [n_tokens], then where room was made the positions [n_at] that the server counts for the tokens
 * that are left. They rise, and the last is that of the last noted token.
 */

/* Writes the file, complete or not at all, also where another process writes it at the same time. *bytes is its size. WNW_E_IO,
 * WNW_E_ARG (something else has that name) and WNW_E_NOMEM with a sentence. */
int serve_slot_file_write(size_t *bytes, const char *path, struct serve_slot_file *file, const int32_t *notes,
                          const uint8_t *state);

/* Whether notes and state fit each other, the header and a context; also before they are written. WNW_E_FORMAT with a sentence. */
int serve_slot_file_check(const struct serve_slot_file *file, const int32_t *notes, const uint8_t *state,
                          const struct serve_slot_form *form);

/* A slot that was read from a file and checked. */
struct serve_slot_read {
    struct serve_slot_file file;
    int32_t *notes;   /* [file.n_tokens + file.n_at], owned */
    uint8_t *state;   /* [file.state_bytes], owned */
    uint8_t *borders; /* [file.border_bytes], owned */
    size_t bytes;     /* of the file */
};
/* Writes a slot to memory, which the caller frees, with its borders. WNW_E_NOMEM with a sentence; then *bytes is NULL. */
int serve_slot_file_pack(uint8_t **bytes, size_t *n, struct serve_slot_read *slot);
/* Reads a file that a server with this context takes. WNW_E_IO, WNW_E_FORMAT and WNW_E_NOMEM with a sentence; then *out is empty. */
int serve_slot_file_read(struct serve_slot_read *out, const char *path, const struct serve_slot_form *form);
/* Reads those bytes from memory, with the same checks. */
int serve_slot_file_unpack(struct serve_slot_read *out, const uint8_t *bytes, size_t n,
                           const struct serve_slot_form *form);
void serve_slot_read_clear(struct serve_slot_read *x);

/* Whether it is of that model. The numbers only distinguish models of different shape. So if only one side knows a fingerprint, they
 * count as different models. Numbers of 0: the reader knows the fingerprint alone. */
bool serve_slot_file_fits(const struct serve_slot_file *file, const uint64_t model[2],
                          const char *fingerprint);

#ifdef __cplusplus
}
#endif

#endif
