/* SPDX-License-Identifier: MIT */
/* Readings of a server's memory that a relay asks for before ggml's client does. */
#ifndef WNW_BRIDGE_WRAP_AHEAD_H
#define WNW_BRIDGE_WRAP_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WNW_READINGS = 4,      /* after one graph */
    WNW_READING = 9 + 312, /* bytes of such a request: a command, a size, a tensor, an offset and a size */
    WNW_READING_HEAD = 8,  /* the size of an answer, before it */
    WNW_READING_MOST = 1 << 20, /* bytes that one reads; more take longer than a round trip */
};

/* What a client read after a graph, and before anything else. */
struct wnw__readings {
    uint8_t request[WNW_READINGS][WNW_READING];
    int32_t n;
};

/* Adds a request of n bytes. One too many, too large or of another form is passed over. */
void wnw__readings_add(struct wnw__readings *r, const uint8_t *request, size_t n);

/* Requests that were sent, and what came of their answers, in their order. */
struct wnw__ahead {
    struct wnw__readings sent;
    uint8_t *answer[WNW_READINGS]; /* [room], with its size before it */
    uint64_t room[WNW_READINGS];
    int32_t n_came;  /* answers that are whole */
    uint64_t n_part; /* bytes of the next one */
};

/* The answers to these requests are due. false: there is no memory for them, and none may be sent. */
bool wnw__ahead_begin(struct wnw__ahead *a, const struct wnw__readings *r);
/* Where the next bytes of an answer go, and how many at most. 0: none are due. */
size_t wnw__ahead_next(struct wnw__ahead *a, uint8_t **to);
/* n of them came. false: the server says another size. */
bool wnw__ahead_came(struct wnw__ahead *a, size_t n);
/* The request that reads the same as one of n bytes; -1: there is none. */
int32_t wnw__ahead_find(const struct wnw__ahead *a, const uint8_t *request, size_t n);
/* Nothing is due any more, and what came is of no use. */
void wnw__ahead_drop(struct wnw__ahead *a);
void wnw__ahead_free(struct wnw__ahead *a);

#endif
