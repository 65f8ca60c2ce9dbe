/* SPDX-License-Identifier: MIT */
/*
 * Which cells of the cache a sequence of libllama has, as seen from the calls that the server makes. Used by the thread that
 * decodes. A cell that no sequence has any more is dead: libllama forgets it without telling the backend.
 */
#ifndef WNW_SERVE_SEQUENCES_H
#define WNW_SERVE_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

struct serve_sequence {
    int32_t *pos, *cell; /* [n] positions and cells, ascending by position as they were written */
    int32_t *token;      /* [n] -1: not known, or none of a text */
    int32_t *
        at; /* [n] positions as the server counts them, also ascending: more, once room was made (stretch.h) */
    int32_t n, room;
};

struct serve_sequences {
    struct serve_sequence *of; /* [n] */
    int32_t n, n_cells;
    uint16_t *owners; /* [n_cells] sequences that have the cell */
    int32_t n_live;   /* cells that a sequence has */
    int32_t *dead;    /* [n_dead] since they were taken; room for n_cells */
    int32_t n_dead;
};

/* False: no memory. */
bool serve_sequences_init(struct serve_sequences *s, int32_t n, int32_t n_cells);
void serve_sequences_free(struct serve_sequences *s);
/* Gives a cell to a sequence, and says which token it has, or -1. The server counts the same position. False: no memory, or no such cell. */
bool serve_sequences_add(struct serve_sequences *s, int32_t seq, int32_t pos, int32_t cell, int32_t token);
/* As llama_memory_seq_rm, _cp, _add: seq < 0 = all, negative bounds are open. cp returns false without memory. */
void serve_sequences_rm(struct serve_sequences *s, int32_t seq, int32_t from, int32_t to);
bool serve_sequences_cp(struct serve_sequences *s, int32_t seq, int32_t other, int32_t from, int32_t to);
/* Takes the cells after the first n of a sequence away again. */
void serve_sequences_cut(struct serve_sequences *s, int32_t seq, int32_t n);
void serve_sequences_shift(struct serve_sequences *s, int32_t seq, int32_t from, int32_t to, int32_t by);
/* Has the tokens of a sequence follow each other, at the positions 0, 1, 2 ... The server counts them as before. */
void serve_sequences_close_up(struct serve_sequences *s, int32_t seq);
/* Puts cells[n], which ascend, into the order of the tokens of a state. is_free: which of n_cells were free for it, NULL: it is not known. libllama
 * takes free cells in their order, from some cell on and then from the first. False: the order is not known, as where it has taken them all. */
bool serve_sequences_order(const bool *is_free, int32_t n_cells, int32_t *cells, int32_t n);
/* How many more tokens the server counts than a sequence has. */
int32_t serve_sequences_removed(const struct serve_sequences *s, int32_t seq);

#endif
