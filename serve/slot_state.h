/* SPDX-License-Identifier: MIT */
/*
 * Checks the parts of a slot's file that libllama and its server read: the state of a sequence, and the server's notes of its tokens.
 * libllama does not check a state's cells and positions, and ends the process if they are wrong. So both parts are checked here first.
 *
 * A state is a mark and a sequence number, then its caches. There is one cache of keys and values, or two: one of the
 * layers that see the whole text, one of those with a sliding window. Models with recurrent layers have their state after that, of one cell.
 *
 * src/store/wkv_sequence.c describes a cache. Its values may also be transposed. Then each layer's values have a type, the bytes of
 * an element and the number of elements of a token. For each element, the values of all cells follow.
 */
#ifndef WNW_SERVE_SLOT_STATE_H
#define WNW_SERVE_SLOT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SERVE_MAX_ROW_KINDS = 16 };

/* What the server's context has, which a state must fit. Numbers of 0 are not known and not compared. */
struct serve_slot_form {
    uint64_t model[2];    /* identify the model's shape */
    char fingerprint[24]; /* the first digits of the model's, as in the file; "": not known */
    int32_t n_vocab;
    int32_t n_most; /* tokens of a slot */
    int32_t
        n_longest; /* tokens of a conversation in it from which some were removed (stretch.h); 0: none may be */
    int32_t n_cells;        /* of the cache */
    int32_t n_window_cells; /* of the layers with a sliding window; 0: they have n_cells */
    int32_t n_layers;       /* of all caches of keys and values */
    int32_t n_heads;        /* of all these layers together */
    int32_t type_k, type_v; /* ggml's, -1 = not known */
    uint64_t row_bytes;     /* keys and values of one token in layers that see the whole text */
    uint64_t window_bytes;  /* keys and values that layers with a sliding window have at most */
    int32_t n_rows;         /* kinds of layers; 0: not known, or too many */
    struct serve_slot_rows {
        uint64_t k, v; /* bytes of a token's keys and values in a layer */
    } rows[SERVE_MAX_ROW_KINDS];
    uint32_t ext_bytes; /* of a cell, in addition to its position and sequence */
    bool recurrent;     /* the model has recurrent layers */
};

/* Checks the server's notes: tokens, or the server's own format if there are images among them. Sets *n_tokens and *several: there are
 * images, whose tokens may share a position. WNW_E_FORMAT with a message: these are not the server's notes. */
int serve_slot_notes_check(int32_t *n_tokens, bool *several, const int32_t *notes, size_t n_notes,
                           const struct serve_slot_form *form);
/* The tokens in notes that were checked and have no images. */
const int32_t *serve_slot_notes_tokens(const int32_t *notes, size_t n_notes);
/* Whether a state is one of that many tokens: each has a cell, in the order of its positions, which are 0, 1, 2 ... A cache of layers with a
 * sliding window may have the newest alone. WNW_E_FORMAT with a sentence. */
int serve_slot_state_check(const uint8_t *state, size_t n, int32_t n_tokens, bool several,
                           const struct serve_slot_form *form);
/* Brings the cells of a state from libllama into the order of their positions. WNW_E_FORMAT, WNW_E_NOMEM with a sentence. */
int serve_slot_state_sort(uint8_t *state, size_t n, const struct serve_slot_form *form);

#ifdef __cplusplus
}
#endif

#endif
