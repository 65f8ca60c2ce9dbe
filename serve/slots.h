/* SPDX-License-Identifier: MIT */
/*
 * Who has which slot, and what is in it, for any thread. A request claims its slots before the server sees it. So the policy of each slot
 * is known when its prompt is read, and the memory limit is checked before anything is read. Requests that arrive while all slots are
 * taken wait in order of arrival. A request that names a slot delays only those that want the same one.
 */
#ifndef WNW_SERVE_SLOTS_H
#define WNW_SERVE_SLOTS_H

#include "serve/config.h"
#include "serve/park_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Opening ---- */

/* What the decoding thread says of the cache when it starts. */
struct serve_room {
    /* the part of row_bytes in layers that no policy acts on, as those of windows under --swa-full */
    uint64_t uncut_bytes;
    uint64_t row_bytes;    /* keys and values of one token, in all heads of layers that see the whole text */
    uint64_t window_bytes; /* what layers that slide hold at most, of all slots */
    uint64_t rounding_bytes; /* what is mapped in addition to entries, at most */
    int32_t row_entries;     /* entries that a token has in the former */
    int32_t n_cells;         /* tokens that have room in the cache, of all sequences */
    int32_t n_batch;         /* tokens that the server computes at once, at most */
    int32_t n_vocab;         /* tokens of the vocabulary; 0 = not known */
    uint64_t most_text;      /* bytes of a text that may have room in it; UINT64_MAX: not known */
};
void serve_slots_open(int32_t n_slots, const struct serve_room *room, bool by_request);
/* Whether requests may bring policies of their own. */
bool serve_slots_by_request(void);
int32_t serve_slots_n(void);
/* The slot whose number a text is; -1: it is no number, or there is no such slot. */
int32_t serve_slots_named(const char *text);
uint64_t serve_slots_row_bytes(void);
uint64_t serve_slots_window_bytes(void);
int32_t serve_slots_n_cells(void);
int32_t serve_slots_n_vocab(void);
uint64_t serve_slots_most_text(void);
/* Tokens that a slot holds before room is made in it, as the decoding thread has said it, and how long a conversation may be. most = 0: none is
 * made, and why not. */
void serve_slots_set_most(int32_t most, int32_t length, const char *why);
int32_t serve_slots_most(const char **why);
/* Contexts that a conversation may be long, 1 where no room is made. */
int32_t serve_slots_times(void);
/* Tokens of a slot's conversation that are there no more. */
int32_t serve_slots_removed(int32_t slot);
/* Whether the cache has room for n tokens in place of those that a slot holds, as far as the decoding thread has said it. */
bool serve_slots_has_room(int32_t slot, int32_t n);
/* The recipe of requests that do not say; where they cannot have rules of their own, one that compresses by itself, without a fallback. */
const char *serve_policy_of_all(bool by_request);

/* ---- Claims (slots_claim.c) ---- */

/* When a prompt may begin with what a slot holds of an earlier one. */
enum serve_reuse {
    SERVE_REUSE_SAME, /* where it was kept by the same rule, and the rule does not look at the question */
    SERVE_REUSE_ANY,
    SERVE_REUSE_NEVER
};

struct serve_ask {
    struct serve_keep_rule keep_rule;
    enum serve_reuse reuse;
    const char *key; /* the prompt, as far as slots are compared by it */
    size_t key_len;
    int32_t slot;                /* -1: any */
    int32_t n_slots;             /* answers that are wanted at once */
    int64_t n_prompt, n_predict; /* tokens that it adds; counted only where there is a cap */
    struct serve_owner owner;    /* who brings it */
    bool refuses;                /* no room is made for it (stretch.h) */
    bool visits; /* it looks at the slot or saves it: nothing is read, and what is in it stays */
    int32_t document_plus_1, stores; /* 1 + the document that it begins with, that it reads; 0 = none */
    bool (*client_left)(void *user); /* whether the client has left */
    void *user;
};

/* A conversation from which a slot is taken, to be parked first. */
struct serve_lost {
    int32_t slot;
    bool replaced; /* the request uses nothing of it */
    struct serve_park_about about;
    struct serve_owner owner;
    char *key; /* [key_len] the same text; requests that begin with it wait until it is parked */
    size_t key_len;
    struct serve_lost *next, *next_moving;
};

struct serve_claim {
    int32_t slot;
    uint64_t slots;    /* a bit for each claimed slot */
    uint64_t erase;    /* those of them that the server must erase before they are used */
    bool no_reuse;     /* the slot's content must not be used */
    bool must_restore; /* the document must be put into the slot first */
    uint64_t
        parked; /* the parked prompt that it begins with more of than with what the slot holds; 0 = none */
    struct serve_lost *lost; /* owned; ends with the claim */
};

/* A prompt that another one may begin with (prefix.c), as a slot holds it, or as it is parked. */
struct serve_prefix {
    const char *key; /* NULL: not known */
    size_t key_len;
    const struct serve_keep_rule *keep_rule, *compressed_by; /* compressed_by NULL: it is whole */
    bool unnoted, of_list;
    int32_t document_plus_1;
};
/* Whether a request may begin with it; its text is not compared, unless the policy looks at the question. */
bool serve_may_reuse(const struct serve_prefix *prefix, const struct serve_ask *ask);

/* Claims a slot without a request, whose memory the request of `slot` needs for its list of documents; it is to be erased. False: none is in its
 * way. */
bool serve_slots_claim_in_way(int32_t slot, struct serve_claim *claim);

enum serve_answer { SERVE_CLAIMED, SERVE_GONE, SERVE_BUSY, SERVE_TOO_LONG };
/* Claims slots for a request; waits while they are taken, until its client has left. SERVE_BUSY: the cap leaves no room now. why[SERVE_TEXT]. */
enum serve_answer serve_slots_claim(const struct serve_ask *ask, struct serve_claim *claim, char *why);
/* Claims a slot, or with slot = -1 any, for somebody who visits it. SERVE_CLAIMED or SERVE_GONE. */
enum serve_answer serve_slots_hold(int32_t slot, bool (*client_left)(void *user), void *user,
                                   struct serve_claim *claim);
void serve_slots_release(const struct serve_claim *claim);
/* It has been parked, or could not be: waiting requests continue. */
void serve_slots_was_parked(struct serve_lost *lost);
/* Reserves memory under the cap for n tokens that a file restores into a slot, instead of what the slot holds (slots_cap.c). The reservation
 * ends with serve_slots_came_in. SERVE_CLAIMED; SERVE_BUSY if slots without a request hold the memory or requests may need it;
 * SERVE_TOO_LONG. */
enum serve_answer serve_slots_comes_in(int32_t slot, int64_t n, char *why);
void serve_slots_came_in(int32_t slot);
bool serve_slots_is_claimed(int32_t slot);
/* Takes what is known of the prompt that a slot holds, if it is one to be parked. *about is the caller's. */
bool serve_slots_take_prompt(int32_t slot, struct serve_park_about *about);
/* What a slot holds is no longer of the prompt that it had last. */
void serve_slots_forget_prompt(int32_t slot);

/* ---- The decoding thread ---- */

/* Whether no request begins with a list of documents, so that its cells may go. It then counts as one that is there no more (slots_cap.c). */
bool serve_slots_give_up_list(int32_t d);
/* The slot without a request that was unused for longest, but for some, a bit for each. What it holds is given up: the caller removes its cells,
 * and the server erases the slot before it is used again. -1: there is none. *parks: its conversation is one to be parked, and *about is the
 * caller's. */
int32_t serve_slots_give_up(uint64_t but, struct serve_park_about *about, bool *parks);

/* Whether the rule of a slot differs from that at the last call, or this is the first call. The rule is then copied to *keep_rule. copied: the slot
 * has a further answer of some request, which need not be the one that claimed the slot: that one may wait for it. */
bool serve_slots_keep_rule(int32_t slot, bool copied, struct serve_keep_rule *keep_rule);
/* A slot has what another one holds, for a further answer. Of a slot that no request has claimed nobody knows the prompt then. */
void serve_slots_was_copied(int32_t slot);
/* 1 + the document that the slot's request reads, 0 = none. */
int32_t serve_slots_stores(int32_t slot);
/* What is in a slot now. */
struct serve_content {
    int32_t n_tokens;
    int64_t entries;         /* in all heads */
    int32_t document_plus_1; /* 1 + the document that it begins with, 0 = none */
    bool reading;            /* a part of a prompt */
    bool unnoted;            /* what some rules look back at was not noted, or has been dropped */
    bool of_list;      /* it begins with documents that were put one after the other, and that list is gone */
    int32_t n_removed; /* tokens of the conversation that are there no more (stretch.h) */
    const struct serve_keep_rule *compressed_by; /* NULL: nothing was dropped */
};
void serve_slots_report(int32_t slot, const struct serve_content *content);
/* For any thread: whether a slot holds a part of a prompt. */
bool serve_slots_is_reading(int32_t slot);
/* What the cache holds now. */
struct serve_cached {
    uint64_t bytes, window_bytes; /* of all layers, and of those that slide */
    int64_t n_tokens;
};
/* Adds to the counts, and sets what is held. */
void serve_slots_count(bool compressed_one, bool failed_one, const struct serve_cached *now);
/* Counts a compression that the fallback does in place of the rule that was wanted. */
void serve_slots_count_fallback(void);
/* Sets how many numbers the queries of one token have. A prompt needs memory for them while it is read by a rule that needs all queries. */
void serve_slots_set_query_numbers(uint64_t n);

/* How a slot's request began. */
struct serve_how {
    uint64_t
        claim; /* its number; 0: there is none, it only looks at the slot, or the server reads a document */
    bool parked, no_reuse, refuses;
    bool of_others; /* what the slot holds is not of the client that asks */
    struct serve_owner owner;
};
struct serve_how serve_slots_how(int32_t slot);
/* For any thread: the slot's request begins with what was parked. */
void serve_slots_set_parked(int32_t slot);

/* ---- What is shown (slots_show.c) ---- */

/* The object of GET /winnow/kv, with the texts of an owner's last requests, and the lines for Prometheus, to be freed; NULL: no memory. */
char *serve_slots_json(const struct serve_owner *owner);
char *serve_slots_metrics(void);

#ifdef __cplusplus
}
#endif

#endif
