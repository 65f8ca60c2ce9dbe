/* SPDX-License-Identifier: MIT */
/*
 * What winnow-llama-server has besides llama.cpp's server. Two kinds of threads meet here: those that answer HTTP, and the
 * one that decodes.
 *
 *     main.cpp     the program                        routes.cpp   requests and replies, on HTTP's threads
 *     calls.c      libllama's calls, on the thread    request.c    the field `winnow` and the body that is passed on
 *                  that decodes                       slots.c      who has which slot, and what is in it: shared
 *     sequences.c  which cells a sequence has         config.c     what `winnow serve` set
 */
#ifndef WNW_SERVE_H
#define WNW_SERVE_H

#include "winnow.h"
#include "winnow_bridge.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SERVE_MAX_SLOTS = 64, SERVE_RECIPE = 512, SERVE_TEXT = 512 };

/* What is kept of a sequence. */
struct serve_want {
    char recipe[SERVE_RECIPE]; /* "full": everything */
    wnw_size size;
    int32_t n_protected; /* tokens of the header */
};

/* Whether nothing is ever dropped. */
bool serve_keeps_all(const struct serve_want *want);
bool serve_same_want(const struct serve_want *a, const struct serve_want *b);

/* ---- config.c ---- */

struct serve_config {
    struct serve_want want; /* of requests that do not say */
    uint64_t cap;           /* bytes of keys and values over all slots, 0 = none */
    bool saves;             /* slots may be saved and restored */
};
/* What the environment says, read once before main. */
const struct serve_config *serve_settings(void);
/* Says one line and ends the process at once: for what must not start. */
void serve_refuse(const char *what) __attribute__((noreturn));

/* ---- slots.c: any thread ---- */

/* When a prompt may begin with what a slot holds of an earlier one. */
enum serve_reuse {
    SERVE_REUSE_SAME, /* where it was kept by the same rule, and the rule does not look at the question */
    SERVE_REUSE_ANY,
    SERVE_REUSE_NEVER
};

struct serve_ask {
    struct serve_want want;
    enum serve_reuse reuse;
    const char *key; /* the prompt, as far as slots are compared by it */
    size_t key_len;
    int32_t slot;                /* -1: any */
    int32_t n_slots;             /* answers that are wanted at once */
    int64_t n_prompt, n_predict; /* tokens; counted only where there is a cap */
    bool (*gone)(void *user);    /* whether the client has left */
    void *user;
};

struct serve_claim {
    int32_t slot;
    uint64_t slots; /* a bit for each claimed slot */
    bool no_reuse;  /* the slot's content must not be used */
};

enum serve_answer { SERVE_CLAIMED, SERVE_GONE, SERVE_BUSY, SERVE_TOO_LONG };
/* Claims slots for a request; waits for its turn while all are taken. SERVE_BUSY: the cap leaves no room now. why[SERVE_TEXT]. */
enum serve_answer serve_slots_claim(const struct serve_ask *ask, struct serve_claim *claim, char *why);
void serve_slots_release(const struct serve_claim *claim);
/* Number of slots, bytes of one token's keys and values in all heads; what the decoding thread says when it starts. */
void serve_slots_open(int32_t n_slots, uint64_t row_bytes, int32_t row_entries, bool by_request);
/* Whether requests may bring policies of their own. */
bool serve_slots_by_request(void);
int32_t serve_slots_n(void);

/* For the decoding thread. Sets *want to what holds for a slot, and whether it is new since the last call. */
bool serve_slots_want(int32_t slot, struct serve_want *want);
bool serve_slots_is_claimed(int32_t slot);
/* What is in a slot now. */
struct serve_content {
    int32_t n_tokens;
    int64_t entries;                        /* in all heads */
    bool reading;                           /* a part of a prompt */
    const struct serve_want *compressed_by; /* NULL: nothing was dropped */
};
void serve_slots_report(int32_t slot, const struct serve_content *held);
/* For any thread: whether a slot holds a part of a prompt. */
bool serve_slots_is_reading(int32_t slot);
void serve_slots_count(bool compressed_one, bool failed_one, uint64_t bytes);
uint64_t serve_slots_row_bytes(void);

/* The object of GET /winnow/kv and the lines for Prometheus, to be freed; NULL: no memory. */
char *serve_slots_json(void);
char *serve_slots_metrics(void);

/* ---- request.c ---- */

struct serve_request {
    struct serve_ask ask;
    struct json_t *body;
    char *key; /* owned; set by the caller */
    bool has_field;
    bool is_chat;
};
/* Reads a body; 0, or the HTTP status with why[SERVE_TEXT] and the field's name in param. A body that is no JSON object, or lacks what a
 * prompt is made of, is left to the server: *r has no body then. */
int serve_request_read(struct serve_request *r, const char *body, size_t n, char *why, const char **param);
void serve_request_free(struct serve_request *r);
/* The body that is passed on (claim = NULL: to be rendered), and bodies for the server's own routes, to be freed; NULL: no memory. */
char *serve_request_passed(const struct serve_request *r, const struct serve_claim *claim);
/* The same prompt up to its first message of a user, which says `text`. */
char *serve_request_header(const struct serve_request *r, const char *text);
char *serve_request_tokenize(const char *text);
/* Parts of replies of these routes; to be freed. */
char *serve_reply_prompt(const char *reply, size_t n);
int32_t *serve_reply_tokens(const char *reply, size_t n, int32_t *n_tokens);
/* An error as OpenAI's clients read it; to be freed. */
char *serve_error(int status, const char *why, const char *param);

#ifdef __cplusplus
}
#endif

#endif
