/* SPDX-License-Identifier: MIT */
/*
 * What winnow-llama-server has besides llama.cpp's server. Two kinds of threads meet here: those that answer HTTP, and the
 * one that decodes.
 *
 *     main.cpp     the program                        routes.cpp   requests and replies, on HTTP's threads
 *     calls.c      libllama's calls, on the thread    request.c    the field `winnow` and the body that is passed on
 *                  that decodes                       convert.cpp  bodies of other vendors' routes
 *     sequences.c  which cells a sequence has         reader.cpp   reads documents when the server starts
 *     config.c     what `winnow serve` set            slots.c      who has which slot, and what is in it: shared
 *     inspect.c    what is kept, token by token: shared
 *                                                     documents.c  the server's own documents: shared
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
/* Whether a rule looks at the end of the prompt, where the question is; true where it cannot be told, as below. */
bool serve_looks_at_question(const char *recipe);
/* Whether it looks with the queries of the whole prompt, or with any. */
bool serve_looks_with_all(const char *recipe);
bool serve_looks_with_queries(const char *recipe);

/* What compresses where the rule that is wanted refuses: it asks for nothing but keys, and takes any size. */
#define SERVE_FALLBACK "keydiff"
/* The rule of requests that do not say; where they cannot have rules of their own, one that compresses by itself, without a fallback. */
const char *serve_policy_of_all(bool by_request);

/* ---- config.c ---- */

struct serve_config {
    struct serve_want want;  /* of requests that do not say */
    const char *automatic;   /* the recipe that "auto" means here */
    bool is_automatic;       /* want has it because nobody named another */
    uint64_t cap;            /* bytes of keys and values over all slots, 0 = none */
    bool saves;              /* slots may be saved and restored */
    const char *profiles;    /* files, with ':' between them; "" = none */
    const char *fingerprint; /* of the model, for what was stored; "" where nobody has said it */
};
/* What the environment says, read once before main. */
const struct serve_config *serve_settings(void);
/* Whether a recipe can be had here: WNW_OK, or wnw_last_error() says why not. Any thread. */
int serve_check_recipe(const char *recipe);
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
    int64_t n_prompt, n_predict; /* tokens that it adds; counted only where there is a cap */
    int32_t behind, stores;      /* 1 + the document that it stands behind, that it reads; 0 = none */
    bool (*gone)(void *user);    /* whether the client has left */
    void *user;
};

struct serve_claim {
    int32_t slot;
    uint64_t slots; /* a bit for each claimed slot */
    bool no_reuse;  /* the slot's content must not be used */
    bool puts;      /* the document must be put into the slot first */
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
/* 1 + the document that the slot's request reads, 0 = none. */
int32_t serve_slots_stores(int32_t slot);
/* What is in a slot now. */
struct serve_content {
    int32_t n_tokens;
    int64_t entries;                        /* in all heads */
    int32_t behind;                         /* 1 + the document that it begins with, 0 = none */
    bool reading;                           /* a part of a prompt */
    const struct serve_want *compressed_by; /* NULL: nothing was dropped */
};
void serve_slots_report(int32_t slot, const struct serve_content *held);
/* For any thread: whether a slot holds a part of a prompt. */
bool serve_slots_is_reading(int32_t slot);
/* Adds to the counts, and sets the bytes that are held and the tokens that they are of. */
void serve_slots_count(bool compressed_one, bool failed_one, uint64_t bytes, int64_t n_tokens);
/* Counts a compression that the fallback does in place of the rule that was wanted. */
void serve_slots_count_fallback(void);
uint64_t serve_slots_row_bytes(void);
/* Sets the bytes of the queries of one token, which a prompt takes besides while it is read by a rule that looks with all. */
void serve_slots_set_query_bytes(uint64_t bytes);

/* The object of GET /winnow/kv and the lines for Prometheus, to be freed; NULL: no memory. */
char *serve_slots_json(void);
char *serve_slots_metrics(void);

/* ---- request.c ---- */

struct serve_request {
    struct serve_ask ask;
    struct json_t *body;     /* as it is passed on */
    struct json_t *chat;     /* the same as an ordinary chat request; NULL: it has no messages */
    char *key;               /* owned; set by the caller */
    bool has_field, is_open; /* is_open: it does not say how long the answer may be */
};
/* The routes that generate and take a slot by its number, by the form of their bodies. */
enum serve_form { SERVE_FORM_CHAT, SERVE_FORM_MESSAGES, SERVE_FORM_RESPONSES };
/* Reads a body; 0, or the HTTP status with why[SERVE_TEXT] and the field's name in param. A body that is no object, or lacks what a
 * prompt is made of, is left to the server: *r has no body then. Forms but the first need serve_request_set_chat. */
int serve_request_read(struct serve_request *r, enum serve_form form, const char *body, size_t n, char *why,
                       const char **param);
/* Puts the document that it names where its tokens have it: in front of the system message, or of the first message of a user. False: the
 * body is not as the form has it. */
bool serve_request_put_document(struct serve_request *r, enum serve_form form);
/* Takes the same request as an ordinary chat request. False: it is none. */
bool serve_request_set_chat(struct serve_request *r, const char *body);
void serve_request_free(struct serve_request *r);
/* The body as it is. */
char *serve_request_body(const struct serve_request *r);
/* The body that is passed on (claim = NULL: to be rendered), and bodies for the server's own routes, to be freed; NULL: no memory. */
char *serve_request_passed(const struct serve_request *r, const struct serve_claim *claim);
/* The same prompt up to its first message of a user, which says `text`. */
char *serve_request_header(const struct serve_request *r, const char *text);
char *serve_request_tokenize(const char *text);
/* A chat that begins with a document, and goes on with `more` in the system message and from the user. */
char *serve_request_document(const char *text, const char *more);
/* A chat whose user begins with a document and goes on with `more`; system = NULL: without that message. */
char *serve_request_user(const char *system, const char *text, const char *more);
/* A prompt of tokens that is read and not answered. */
char *serve_request_read_tokens(const int32_t *tokens, int32_t n, const struct serve_claim *claim);
/* The body that has a slot restored from a file. */
char *serve_request_restore(const char *file);
/* Parts of replies of these routes; to be freed. */
char *serve_reply_prompt(const char *reply, size_t n);
int32_t *serve_reply_tokens(const char *reply, size_t n, int32_t *n_tokens);
/* An error as OpenAI's clients read it; to be freed. */
char *serve_error(int status, const char *why, const char *param);

/* ---- convert.cpp ---- */

/* A body of another vendor's form as an ordinary chat request, to be freed; NULL: the server will say what is wrong with it. */
char *serve_convert(enum serve_form form, const char *body);

/* ---- page.c, written by embed.cmake from share/pages/serve.html ---- */

extern const unsigned char serve_page[];
extern const size_t serve_page_size;

#ifdef __cplusplus
}
#endif

#endif
