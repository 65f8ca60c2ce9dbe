/* SPDX-License-Identifier: MIT */
/*
 * Documents of the server's own: named when it starts, each in a sequence that no request writes to: texts, which are read and
 * compressed once, and stored caches (winnow_store.h), which are loaded. A request that names one gets a copy of that
 * sequence, which shares its cells. Texts and names do not change after main has begun; the rest is for any thread.
 */
#ifndef WNW_SERVE_DOCUMENTS_H
#define WNW_SERVE_DOCUMENTS_H

#include "app/join_plan.h"
#include "serve/config.h"
#include "winnow_store.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SERVE_MAX_DOCUMENTS = 32,
    SERVE_DOCUMENT_NAME = 64,
    SERVE_MAX_JOINS = 8, /* lists of documents that are there at once */
    SERVE_JOINED = 8,    /* documents of a list */
    SERVE_JOIN_NAME = SERVE_JOINED * (SERVE_DOCUMENT_NAME + 1),
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

/* ---- Several in one request ----
 *
 * A list of documents is a document of its own, which is made when it is asked for. It stays until another list needs its place. Its number is
 * never that of another. All functions above take it, while somebody holds it. */

/* How many lists may be there: 0 where there are not two documents. */
int32_t serve_joins_n(void);
/* Why documents cannot be joined here; NULL: they can. The decoding thread sets it before main has begun. */
void serve_joins_refuse(const char *why);
const char *serve_joins_refused(void);
/* The number of a list, which is held until it is given back. share: of the first tokens of later documents that are read again. -1: as many other
 * lists are held, or no memory. */
int32_t serve_join_take(const int32_t *documents, int32_t n, double share);
void serve_join_give_back(int32_t d);
bool serve_document_is_join(int32_t d);
/* Its documents, [*n]; its place among lists, and its share. */
const int32_t *serve_join_documents(int32_t d, int32_t *n);
int32_t serve_join_place(int32_t d);
double serve_join_share(int32_t d);
/* When it was asked for last, to compare; 0: it is gone. */
uint64_t serve_join_used(int32_t d);
/* Entries of the later documents of a list, at most, where a token has row_entries: once it is there, and while it is made. */
struct serve_join_size {
    int64_t kept, most;
    bool is_there;
};
/* False: it is gone, or its tokens are not known yet. */
bool serve_join_look(int32_t d, int32_t row_entries, struct serve_join_size *out);
/* The cells of a list are there no more. It may be gone itself. */
void serve_join_lost(int32_t d);
/* Sets and returns where its documents are in its tokens. It is set before these. */
void serve_join_set_parts(int32_t d, const struct app_join_part parts[SERVE_JOINED]);
const struct app_join_part *serve_join_parts(int32_t d);
/* A name to show, of any document or list; that of a list which is gone is "". */
void serve_document_show(int32_t d, char name[SERVE_JOIN_NAME + 1]);

#ifdef __cplusplus
}
#endif

#endif
