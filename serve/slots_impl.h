/* SPDX-License-Identifier: MIT */
/* The slots as the files slots*.c see them. */
#ifndef WNW_SERVE_SLOTS_IMPL_H
#define WNW_SERVE_SLOTS_IMPL_H

#include "serve/slots.h"

struct serve_slot {
    bool claimed, fresh; /* fresh: the decoding thread has not seen what is wanted */
    uint64_t used;       /* when it was claimed last, to compare */
    int32_t n_together;  /* slots of its claim; 0: it is not the first of them */
    uint64_t reserved;   /* bytes at most, while it is claimed */
    uint64_t incoming;   /* bytes at most that a file brings, while it is restored */
    int64_t n_prompt;    /* tokens that its request reads */
    int64_t n_answer;    /* tokens of all answers of its request, at most */
    int32_t stores;      /* 1 + the document that its request reads */
    int32_t list_plus_1; /* 1 + the list of documents that its request begins with, 0 = none */
    char *key;           /* of the prompt that it had last */
    size_t key_len;
    struct serve_owner owner;                /* who brought that prompt */
    bool visited, parked, no_reuse, refuses; /* how its request began */
    bool of_others;                          /* what it held then was not of that client */
    bool given_up;                           /* its cells are gone, and the server does not know */
    struct serve_keep_rule keep_rule;
    /* What the decoding thread said last. */
    int32_t n_tokens;
    int64_t entries;
    int32_t document_plus_1, n_removed;
    bool reading, compressed, unnoted, of_list;
    struct serve_keep_rule compressed_by;
};

/* A request that waits, in the line of all; it lies on the stack of its thread. */
struct serve_waiter {
    const struct serve_ask *ask;
    struct serve_waiter *next;
    int32_t n_overtaken; /* requests that came later and had their slots earlier */
};

struct serve_slots {
    struct serve_slot slot[SERVE_MAX_SLOTS];
    int32_t n_slots, row_entries, n_cells, n_batch, n_vocab;
    struct serve_lost *moving;    /* conversations that are being parked, by next_moving */
    struct serve_waiter *waiting; /* in the order in which they came */
    uint64_t row_bytes, uncut_bytes, query_numbers, clock;
    uint64_t window_bytes, window_held; /* of layers that slide: at most, and now */
    uint64_t rounding_bytes;            /* mapped in addition to entries, at most */
    uint64_t most_text;
    int32_t most,
        times; /* tokens of a slot before room is made, 0: none is; the longest conversation, in contexts */
    const char *why_full;
    bool by_request;
    uint64_t bytes, n_compressed, n_failed, n_fallback, n_refused;
    int64_t n_tokens;
};

/* The slots of the process: for one thread at a time, from serve_slots_lock to serve_slots_unlock. */
struct serve_slots *serve_slots_lock(void);
void serve_slots_unlock(void);
/* For the thread that has them: wakes those that wait; or lets others have them until one wakes it, a tenth of a second at most. */
void serve_slots_wake(void);
void serve_slots_wait(void);

/* Whether the cap leaves room for a request: SERVE_CLAIMED, SERVE_BUSY or SERVE_TOO_LONG with the reason (slots_cap.c). */
enum serve_answer serve_slots_check_cap(struct serve_slots *all, const struct serve_ask *ask, char *why);
/* Whether the cap holds if the slots of a set go to a request, with what claimed slots still hold of earlier requests. What unclaimed slots hold is
 * cleared when it is needed. */
bool serve_slots_room_now(const struct serve_slots *all, uint64_t slots, const struct serve_ask *ask);
/* Tokens after which its prompt is compressed while it is read; 0: at its end. */
int32_t serve_slots_chunk(const struct serve_slots *all, const struct serve_ask *ask);
/* Whether the cap holds if slots without a request keep what they hold, while the request of a slot has its list of documents made. */
bool serve_slots_list_fits(const struct serve_slots *all, int32_t slot);
/* Bytes that it takes at most, without those of its list of documents, which others may begin with, too. */
uint64_t serve_slots_peak(const struct serve_slots *all, const struct serve_ask *ask);

#endif
