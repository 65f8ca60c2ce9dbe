/* SPDX-License-Identifier: MIT */
/*
 * A folder of stored sessions. A document is a file whose name is made of the hash of its form (model, cache, recipe, size, template) and that of
 * its tokens; the file says both itself. index.sqlite has a row for each, by which the longest beginning of a text is found, and what was
 * used when. The files are what counts: rows can be made again from them.
 *
 * Nobody holds a lock of the index while a document is written or read. A file is written and checked without its name; a short
 * transaction gives it the name and the row. So a file without a row is one whose process ended in between, or whose index was lost.
 */
#ifndef WNW_STORE_H
#define WNW_STORE_H

#include "store/wkv.h"

#include <sqlite3.h>

struct wnw_store {
    sqlite3 *db;
    char *folder;
    uint64_t limit;
    bool read_only;
};

/* ---- Names ---- */

enum { WNW_DOCUMENT_NAME = 40 }; /* bytes of a name */

/* What the index has of a document. */
struct wnw__document {
    const char *form, *fingerprint, *policy; /* borrowed */
    char name[WNW_DOCUMENT_NAME];
    int64_t hash; /* of its tokens */
    int32_t n_tokens;
    int64_t bytes, used; /* of the file; seconds since 1970 */
};

int64_t wnw__document_hash(const int32_t *tokens, int32_t n);
/* Sets hash and name of one that has the others. */
void wnw__document_set(struct wnw__document *d, const int32_t *tokens, int32_t n);
/* Whether it is a name that this folder gives; an index that somebody else made could name any file. */
bool wnw__document_is_name(const char *name);
/* Whether it is that of a file on its way to such a name (base/whole_file.h). */
bool wnw__document_is_unfinished(const char *name);
/* The path of a file of the folder, which the caller frees; NULL without memory, which the message says. */
char *wnw__store_path(const char *folder, const char *name);
/* Opens a document by its name. Errors of wnw_stored_open. */
int wnw__document_open(wnw_stored **st, const wnw_store *store, const char *name);
/* What a file says of itself, borrowed from it. E_FORMAT: that it was not made for a folder, or has the name of another document. */
int wnw__document_of_file(struct wnw__document *d, const wnw_stored *st, const char *name);

/* ---- The index (store_index.c) ---- */

/* Opens the index of store->folder, or makes one: *made. E_FORMAT: it is damaged; E_MISMATCH: it is another program's. */
int wnw__index_open(wnw_store *store, bool *made);
/* E_FORMAT unless SQLite finds the index whole. */
int wnw__index_check(wnw_store *store);
/* A transaction with the index's write lock; ending it keeps its changes if rc is WNW_OK. */
int wnw__index_begin(wnw_store *store);
int wnw__index_end(wnw_store *store, int rc);
/* Adds a row, as the one that was used last; `replaces` one of that name, or leaves it as it is. */
int wnw__index_insert(wnw_store *store, const struct wnw__document *d, bool replaces);
int wnw__index_delete(wnw_store *store, const char *name);
/* Notes that a document was used now, and adds its row if there is none. A failure is not worth one, nor a wait. */
void wnw__index_touch(wnw_store *store, const struct wnw__document *d);
/* All rows, the most recently used first; *entries is freed by the caller. */
int wnw__index_list(wnw_store *store, wnw_store_entry **entries, int64_t *n);
/* The names of the documents of a form whose tokens are the first of these [n], as their hashes say, the longest first; fewer than n
 * tokens. *names is freed by the caller. */
int wnw__index_prefixes(wnw_store *store, const char *form, const int32_t *tokens, int32_t n,
                        char (**names)[WNW_DOCUMENT_NAME], int32_t *n_names);
/* The sum of bytes, and the document that was used longest ago and is not `keep`; "" = there is none. */
int wnw__index_oldest(wnw_store *store, const char *keep, uint64_t *bytes, char name[WNW_DOCUMENT_NAME]);

/* ---- Checking (store_check.c) ---- */

/* Adds rows for documents of the folder that no row names, the oldest file first; damaged ones are left alone. *n: how many. */
int wnw__store_adopt(wnw_store *store, int64_t *n);
/* Whether the folder has the file still. */
bool wnw__store_has_file(const wnw_store *store, const char *name);
/* Moves a file of the folder to the folder of those that cannot be read, where none is replaced. */
int wnw__store_set_aside(const char *folder, const char *name);

#endif
