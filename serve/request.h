/* SPDX-License-Identifier: MIT */
/* A request that generates: what its field `winnow` asks for, and its body as it goes on to the server. */
#ifndef WNW_SERVE_REQUEST_H
#define WNW_SERVE_REQUEST_H

#include "serve/slots.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;

struct serve_request {
    struct serve_ask ask;
    struct json_t *body; /* as it is passed on */
    struct json_t *chat; /* the same as an ordinary chat request; NULL: it has no messages */
    char *key;           /* owned; set by the caller */
    bool has_field,
        is_open; /* is_open: it does not say how long the answer may be, or says it more than once */
};
/* The routes that generate and take a slot by its number, by the form of their bodies. */
enum serve_form { SERVE_FORM_CHAT, SERVE_FORM_MESSAGES, SERVE_FORM_RESPONSES };
/* Reads a body; 0, or the HTTP status with why[SERVE_TEXT] and the field's name in param. A body that is no object, or lacks what a
 * prompt is made of, is left to the server: *r has no body then. Forms but the first need serve_request_set_chat. */
int serve_request_read(struct serve_request *r, enum serve_form form, const char *body, size_t n, char *why,
                       const char **param);
/* Takes the same request as an ordinary chat request. False: it is none. */
bool serve_request_set_chat(struct serve_request *r, const char *body);
/* Once its prompt is known (key, and n_prompt where tokens were counted): has "auto" observe no more than a prompt of that length can need.
 * Returns a wnw_status. */
int serve_request_bound(struct serve_request *r);
void serve_request_free(struct serve_request *r);
/* The body as it is, and as it is passed on (claim = NULL: to be rendered), to be freed; NULL: no memory. */
char *serve_request_body(const struct serve_request *r);
char *serve_request_passed(const struct serve_request *r, const struct serve_claim *claim);

/* ---- Its messages (request_messages.c) ---- */

/* Whether a message has a part that is no text, as an image: nobody knows how many tokens it takes before they are computed. */
bool serve_request_has_media(const struct serve_request *r);

/* Puts the document that it names where its tokens have it: in front of the system message, or of the first message of a user. False: the
 * body is not as the form has it. */
bool serve_request_put_document(struct serve_request *r, enum serve_form form);
/* The same prompt up to its first message of a user, which says `text`; as a body to be freed. NULL: no memory, or no messages. */
char *serve_request_header(const struct serve_request *r, const char *text);

/* ---- Bodies of other vendors' forms (convert.cpp) ---- */

/* Such a body as an ordinary chat request, to be freed; NULL: the server will say what is wrong with it. */
char *serve_convert(enum serve_form form, const char *body);

#ifdef __cplusplus
}
#endif

#endif
