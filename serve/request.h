/* SPDX-License-Identifier: MIT */
/* A request that generates: what its field `winnow` asks for, and its body as it goes on to the server. */
#ifndef WNW_SERVE_REQUEST_H
#define WNW_SERVE_REQUEST_H

#include "serve/documents.h"
#include "serve/fields.h"
#include "serve/slots.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;

/* What is to be done where it is longer than the context. */
enum serve_full { SERVE_FULL_UNSAID, SERVE_FULL_COMPRESS, SERVE_FULL_REFUSE };

struct serve_request {
    struct serve_ask ask;
    struct json_t *body; /* as it is passed on */
    struct json_t *chat; /* the same as an ordinary chat request; NULL: it has no messages */
    char *key;           /* owned; set by the caller */
    enum serve_form form;
    bool has_field, is_open; /* is_open: it does not say how long the answer may be */
    bool has_media;          /* its prompt is no chat and has images or sounds */
    enum serve_full full;
    int64_t most_answer;                          /* most tokens that fit, 0 = not known */
    int32_t n_prompts;                            /* one after the other in one slot */
    int32_t documents[SERVE_JOINED], n_documents; /* those that it begins with, where they are several */
    double again; /* the share of the first tokens of later ones that is read again */
};
/* Reads a body; 0, or the HTTP status with why[SERVE_TEXT] and the field's name in param. What comes back in *r is to be freed in any case.
 * Messages and responses need serve_request_set_chat. */
int serve_request_read(struct serve_request *r, enum serve_form form, const char *body, size_t n, char *why,
                       const char **param);
/* Checks a body of a route that takes no slot: it has no field `winnow`, and its grammars and texts are within the same bounds; form: that of the
 * fields which it has in common with a route that takes one, -1 = none. 0 or a status. */
int serve_request_check_other(struct json_t *body, int form, char *why, const char **param);
/* Takes the same request as an ordinary chat request. False: it is none. */
bool serve_request_set_chat(struct serve_request *r, const char *body);
/* Once its prompt is known (key, and n_prompt where tokens were counted): has "auto" observe no more than a prompt of that length can need.
 * Returns a wnw_status. */
int serve_request_bound(struct serve_request *r);
void serve_request_free(struct serve_request *r);
/* Has it begin with a list of its documents that is held (documents.h). */
void serve_request_set_documents(struct serve_request *r, int32_t d);
/* The body as it is, and as it is passed on (claim = NULL: to be rendered), to be freed; NULL: no memory. What is passed on is what was read
 * here: a field has one name, and what was null is not there. */
char *serve_request_body(const struct serve_request *r);
char *serve_request_passed(const struct serve_request *r, const struct serve_claim *claim);

/* ---- Its prompt, where it is no chat (request_prompt.c) ---- */

/* Takes the prompt: a text, a list of tokens and texts, or a list of such prompts. 0, or a status, as serve_request_read. */
int serve_request_set_prompt(struct serve_request *r, char *why, const char **param);
/* What is to be tokenised to know how long the prompt is, as a body to be freed; NULL: no memory. */
char *serve_request_tokenize(const struct serve_request *r);
/* Whether a text of the body has more bytes than a prompt of `times` contexts can have. It need not be tokenised to know. *param is its field. */
bool serve_request_is_long(const struct json_t *body, int32_t times, const char **param);

/* ---- Its adapters (request_adapters.c) ---- */

/* Checks the adapters that it names against those of the server, and writes the scale of each into the body. What is read of its prompt is
 * used again with the same scales alone. all: the reply of GET /lora-adapters. 0, or a status, as serve_request_read. */
int serve_request_set_adapters(struct serve_request *r, const char *all, size_t n, char *why,
                               const char **param);

/* ---- Its messages (request_messages.c) ---- */

/* Whether a message has a part that is no text, as an image: nobody knows how many tokens it takes before they are computed. */
bool serve_request_has_media(const struct serve_request *r);

/* Puts the document that it names where its tokens have it: in front of the system message, or of the first message of a user. False: the
 * body is not as the form has it. */
bool serve_request_put_document(struct serve_request *r);
/* The same prompt up to its first message of a user, which says `text`; as a body to be freed. NULL: no memory, or no messages. */
char *serve_request_header(const struct serve_request *r, const char *text);

/* ---- Bodies of other vendors' forms (convert.cpp) ---- */

/* Such a body as an ordinary chat request, to be freed; NULL: why[SERVE_TEXT] says what is wrong with it. */
char *serve_convert(enum serve_form form, const char *body, char *why);

#ifdef __cplusplus
}
#endif

#endif
