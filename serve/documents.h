/* SPDX-License-Identifier: MIT */
/*
 * Documents of the server's own: named when it starts, each in a sequence that no request writes to: texts, which are read and
 * compressed once, and stored caches (winnow_store.h), which are loaded. A request that names one gets a copy of that
 * sequence, which shares its cells. Texts and names do not change after main has begun; the rest is for any thread.
 */
#ifndef WNW_SERVE_DOCUMENTS_H
#define WNW_SERVE_DOCUMENTS_H

#include "serve/config.h"
#include "winnow_store.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SERVE_MAX_DOCUMENTS = 32,
    SERVE_DOCUMENT_NAME = 64,
    SERVE_DOCUMENT_OVERLAP = 8 /* last tokens of a document that what follows may write otherwise */
};

/* Reads what `winnow serve` names, lines of NAME=FILE, before main. False: why[SERVE_TEXT] says what is wrong. */
bool serve_documents_load(const char *lines, char *why);
void serve_documents_free(void);

int32_t serve_documents_n(void);
/* -1: no document has that name. */
int32_t serve_documents_find(const char *name);
const char *serve_document_name(int32_t d);
const char *serve_document_text(int32_t d);
/* Whether it comes from a .wkv file. Such a document begins the user's first message, after the system message that it was stored with
 * (NULL = none). A text document comes before the system message. */
bool serve_document_is_stored(int32_t d);
const char *serve_document_system(int32_t d);
/* What was stored, until the decoding thread has loaded it and closes it; NULL: then, and of a text. */
const wnw_stored *serve_document_stored(int32_t d);
void serve_document_close(int32_t d);
/* By what it was compressed before it was stored. */
struct serve_keep_rule serve_document_stored_by(int32_t d);

/* Sets the tokens that every conversation about the document begins with. The chat template writes the first n_header of them. Call it
 * once; false: out of memory. */
bool serve_document_set_tokens(int32_t d, const int32_t *tokens, int32_t n, int32_t n_header);
/* Valid from then on; NULL before. */
const int32_t *serve_document_tokens(int32_t d, int32_t *n);
int32_t serve_document_n_header(int32_t d);
/* The byte of every prompt at which its text begins. Set before its tokens. */
void serve_document_set_at(int32_t d, size_t at);
size_t serve_document_at(int32_t d);

/* It has been read: what is kept of it, entries of all heads. */
void serve_document_kept(int32_t d, int64_t entries, const struct serve_keep_rule *by);
/* Waits until it was read; false if client_left() says first that nobody waits any more. */
bool serve_document_wait(int32_t d, bool (*client_left)(void *user), void *user);
/* Entries in all heads of those that were read. */
int64_t serve_documents_entries(void);
/* Copies what is kept of one; false: it is being read. */
bool serve_document_look(int32_t d, int32_t *n_tokens, int64_t *entries, struct serve_keep_rule *by);

/* The file under which the decoding thread finds it when a slot is restored, and back; -1: it is the name of a real file. */
void serve_document_file(int32_t d, char name[32]);
int32_t serve_document_of_file(const char *path);

#ifdef __cplusplus
}
#endif

#endif
