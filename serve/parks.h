/* SPDX-License-Identifier: MIT */
/*
 * Conversations from which a slot was taken: packed as slot_file.h packs them, in memory up to a limit, and in a folder up to another one.
 * What was used least recently goes first. For any thread.
 *
 * Each belongs to the client of its prompt. A prompt that is parked again replaces the shorter one that it begins with.
 * With a folder, a thread writes each to its file soon after it was parked, so that it is there after a crash.
 */
#ifndef WNW_SERVE_PARKS_H
#define WNW_SERVE_PARKS_H

#include "serve/park_file.h"
#include "serve/slot_file.h"
#include "serve/slots.h"
#include "serve/tickets.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct serve_parks_limits {
    uint64_t memory, disk; /* bytes */
    const char *folder;    /* NULL: none */
    const char *fingerprint;
};
/* Opens the folder, which no other server may have open, and finds what is there. A status with a sentence. */
int serve_parks_open(const struct serve_parks_limits *limits);
/* Waits until all is written, and forgets it. */
void serve_parks_close(void);
bool serve_parks_are_on(void);

/* The parked prompt that a request may begin with most of, and *n, the bytes that both begin with; 0 = none. */
uint64_t serve_parks_find(size_t *n, const struct serve_ask *ask);
/* Parks a slot. Takes the contents of *about over. What cannot be kept is logged, without room once. */
void serve_parks_put(struct serve_park_about *about, struct serve_slot_read *slot);
/* Reads what was parked, for a request with this text; the caller clears *out. WNW_E_ARG: it is gone.
 * WNW_E_FORMAT, WNW_E_MISMATCH: it is damaged, or does not fit this server; it is not found again. */
int serve_parks_get(struct serve_slot_read *out, uint64_t id, const char *key, size_t key_len);

/* Writes an object of JSON, and lines for Prometheus. */
void serve_parks_print(FILE *f);
void serve_parks_print_metrics(FILE *f);

/* Parks what the slots hold, for the thread that has decoded (calls.c). */
void serve_park_slots(void);

/* ---- Slots on their way (park_tickets.c) ---- */

/* A request that has a slot saved takes a ticket; the slot is saved under a name that says it. The decoding thread gives the slot, and who has the
 * ticket gets it: false: nothing was given. */
int32_t serve_park_ticket(char name[SERVE_TICKET_NAME], bool replaced);
void serve_park_give(int32_t ticket, struct serve_slot_read *slot);
bool serve_park_end(struct serve_slot_read *out, int32_t ticket);
/* Whether a path is such a name; sets *ticket, and *replaced: nothing of the slot is used after it was parked. */
bool serve_park_of_file(const char *path, int32_t *ticket, bool *replaced);

#ifdef __cplusplus
}
#endif

#endif
