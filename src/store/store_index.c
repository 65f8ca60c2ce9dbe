/* SPDX-License-Identifier: MIT */
/* The index of a folder of documents: all that is said to SQLite. See store.h. */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Transactions are short; who waits longer than this waits for a program that hangs. */
enum { INDEX_VERSION = 1, WAIT_MS = 5000, TOUCH_MS = 50 };

#define REPAIR  "; `winnow store check` sets it aside and makes one from the documents"
#define COLUMNS "name, n_tokens, bytes, made, used, fingerprint, policy"

/* ---- SQLite ---- */

static int failed(const wnw_store *store, int code)
{
    const bool damaged = code == SQLITE_NOTADB || code == SQLITE_CORRUPT;
    int rc = damaged ? WNW_E_FORMAT : WNW_E_IO;
    if (code == SQLITE_NOMEM)
        rc = WNW_E_NOMEM;
    return wnw__fail(rc, "the index of the store '%.200s': %s%s", store->folder,
                     store->db && !damaged ? sqlite3_errmsg(store->db) : sqlite3_errstr(code),
                     damaged ? REPAIR : "");
}

static int execute(wnw_store *store, const char *sql)
{
    const int code = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? WNW_OK : failed(store, code);
}

/* Values of a statement's parameters, in their order. */
struct value {
    const char *text; /* NULL = the number */
    int64_t number;
};

static int prepare(wnw_store *store, sqlite3_stmt **out, const char *sql, const struct value *values, int n)
{
    int code = sqlite3_prepare_v2(store->db, sql, -1, out, NULL);
    for (int i = 0; code == SQLITE_OK && i < n; i++)
        code = values[i].text ? sqlite3_bind_text(*out, i + 1, values[i].text, -1, SQLITE_STATIC)
                              : sqlite3_bind_int64(*out, i + 1, values[i].number);
    if (code == SQLITE_OK)
        return WNW_OK;
    const int rc = failed(store, code);
    sqlite3_finalize(*out);
    *out = NULL;
    return rc;
}

/* Runs a statement that gives no rows. */
static int run(wnw_store *store, const char *sql, const struct value *values, int n)
{
    sqlite3_stmt *q;
    WNW_TRY(prepare(store, &q, sql, values, n));
    const int code = sqlite3_step(q);
    const int rc = code == SQLITE_DONE || code == SQLITE_ROW ? WNW_OK : failed(store, code);
    sqlite3_finalize(q);
    return rc;
}

static int number_of(wnw_store *store, const char *sql, int64_t *number)
{
    sqlite3_stmt *q;
    *number = 0;
    WNW_TRY(prepare(store, &q, sql, NULL, 0));
    const int code = sqlite3_step(q);
    const int rc = code == SQLITE_ROW ? WNW_OK : failed(store, code);
    *number = rc == WNW_OK ? sqlite3_column_int64(q, 0) : 0;
    sqlite3_finalize(q);
    return rc;
}

int wnw__index_begin(wnw_store *store)
{
    return execute(store, "BEGIN IMMEDIATE");
}

int wnw__index_end(wnw_store *store, int rc)
{
    if (rc == WNW_OK)
        rc = execute(store, "COMMIT");
    if (rc != WNW_OK && sqlite3_get_autocommit(store->db) == 0)
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* ---- Opening ---- */

static int no_index(const wnw_store *store)
{
    return wnw__fail(WNW_E_MISMATCH,
                     "'%.200s/index.sqlite' is the database of another program; name another folder",
                     store->folder);
}

/* Makes the tables of an index that has none, unless another process has done so meanwhile. */
static int make_tables(wnw_store *store, bool *made)
{
    int64_t version;
    if (store->read_only)
        return wnw__fail(WNW_E_IO, "the store '%.200s' has no index and cannot be written to", store->folder);
    WNW_TRY(wnw__index_begin(store));
    int rc = number_of(store, "PRAGMA user_version", &version);
    if (rc == WNW_OK && version == 0) {
        rc = execute(store, "CREATE TABLE document (name TEXT PRIMARY KEY, form TEXT NOT NULL, n_tokens "
                            "INTEGER NOT NULL, hash INTEGER NOT NULL, fingerprint TEXT NOT NULL, policy TEXT "
                            "NOT NULL, bytes INTEGER NOT NULL, made INTEGER NOT NULL, used INTEGER NOT NULL);"
                            "CREATE INDEX by_form ON document (form, n_tokens);"
                            "PRAGMA user_version = 1");
        *made = rc == WNW_OK;
    }
    return wnw__index_end(store, rc);
}

/* Looks at what is there without a lock that keeps anybody from writing. */
static int look(wnw_store *store, bool *made)
{
    int64_t version, n_tables;
    sqlite3_stmt *q;
    WNW_TRY(number_of(store, "PRAGMA user_version", &version));
    if (version > INDEX_VERSION)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the store '%.200s' has version %lld, this program reads up to %d; use a newer program",
            store->folder, (long long)version, INDEX_VERSION);
    if (version == 0) {
        WNW_TRY(number_of(store, "SELECT COUNT(*) FROM sqlite_master", &n_tables));
        return n_tables == 0 ? make_tables(store, made) : no_index(store);
    }
    if (sqlite3_prepare_v2(store->db, "SELECT " COLUMNS ", form, hash FROM document", -1, &q, NULL) ==
        SQLITE_ERROR)
        return no_index(store);
    sqlite3_finalize(q);
    return WNW_OK;
}

/* A folder, a FIFO or a link to nothing under the name of a file that SQLite would open. */
static int check_regular(const wnw_store *store, const char *name)
{
    struct stat st, end;
    char *path = wnw__store_path(store->folder, name);
    if (!path)
        return WNW_E_NOMEM;
    const bool odd = lstat(path, &st) == 0 && (stat(path, &end) != 0 || !S_ISREG(end.st_mode));
    free(path);
    return odd ? wnw__fail(WNW_E_FORMAT, "the index of the store '%.200s': '%s' is no regular file" REPAIR,
                           store->folder, name)
               : WNW_OK;
}

int wnw__index_open(wnw_store *store, bool *made)
{
    *made = false;
    WNW_TRY(check_regular(store, "index.sqlite"));
    WNW_TRY(check_regular(store, "index.sqlite-journal"));
    char *path = wnw__store_path(store->folder, "index.sqlite");
    if (!path)
        return WNW_E_NOMEM;
    store->read_only = access(store->folder, W_OK) != 0;
    const int flags = store->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    const int code = sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    free(path);
    if (code != SQLITE_OK)
        return failed(store, code);
    store->read_only = sqlite3_db_readonly(store->db, "main") == 1;
    sqlite3_busy_timeout(store->db, WAIT_MS);
    return look(store, made);
}

int wnw__index_check(wnw_store *store)
{
    sqlite3_stmt *q;
    WNW_TRY(prepare(store, &q, "PRAGMA quick_check(1)", NULL, 0));
    const int code = sqlite3_step(q);
    const unsigned char *text = code == SQLITE_ROW ? sqlite3_column_text(q, 0) : NULL;
    int rc = code == SQLITE_ROW ? WNW_OK : failed(store, code);
    if (rc == WNW_OK && (!text || strcmp((const char *)text, "ok") != 0))
        rc = failed(store, SQLITE_CORRUPT);
    sqlite3_finalize(q);
    return rc;
}

/* ---- Rows ---- */

int wnw__index_insert(wnw_store *store, const struct wnw__document *d, bool replaces)
{
    const int64_t now = d->used > 0 ? d->used : (int64_t)time(NULL);
    const struct value values[] = {{d->name, 0},     {d->form, 0},        {NULL, d->n_tokens},
                                   {NULL, d->hash},  {d->fingerprint, 0}, {d->policy, 0},
                                   {NULL, d->bytes}, {NULL, now},         {NULL, now}};
    return run(store,
               replaces ? "INSERT OR REPLACE INTO document VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                        : "INSERT OR IGNORE INTO document VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
               values, 9);
}

int wnw__index_delete(wnw_store *store, const char *name)
{
    const struct value values[] = {{name, 0}};
    return run(store, "DELETE FROM document WHERE name = ?", values, 1);
}

void wnw__index_touch(wnw_store *store, const struct wnw__document *d)
{
    const struct value values[] = {{NULL, (int64_t)time(NULL)}, {d->name, 0}};
    if (store->read_only)
        return;
    sqlite3_busy_timeout(store->db, TOUCH_MS);
    /* Ids of rows are the order of use: seconds are too coarse for it, and a clock may go back. */
    const int rc = run(
        store, "UPDATE document SET used = ?, rowid = (SELECT MAX(rowid) + 1 FROM document) WHERE name = ?",
        values, 2);
    if (rc == WNW_OK && sqlite3_changes(store->db) == 0)
        (void)wnw__index_insert(store, d, false);
    sqlite3_busy_timeout(store->db, WAIT_MS);
}

static void text_of(char *out, size_t size, sqlite3_stmt *q, int column)
{
    const unsigned char *text = sqlite3_column_text(q, column);
    snprintf(out, size, "%s", text ? (const char *)text : "");
}

static wnw_store_entry entry_of(sqlite3_stmt *q)
{
    wnw_store_entry e = wnw_store_entry_default();
    text_of(e.name, sizeof e.name, q, 0);
    e.n_tokens = sqlite3_column_int(q, 1);
    e.bytes = (uint64_t)sqlite3_column_int64(q, 2);
    e.made = sqlite3_column_int64(q, 3);
    e.used = sqlite3_column_int64(q, 4);
    text_of(e.fingerprint, sizeof e.fingerprint, q, 5);
    text_of(e.policy, sizeof e.policy, q, 6);
    return e;
}

/* Room for one more of n elements in an array that doubles. Returns NULL, with the array as it was, without memory. */
static void *grown(void *array, int64_t n, int64_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    void *more = realloc(array, (size_t)(*cap * 2 + 64) * size);
    if (more)
        *cap = *cap * 2 + 64;
    else
        wnw__fail(WNW_E_NOMEM, "no memory for the names of documents");
    return more;
}

int wnw__index_list(wnw_store *store, wnw_store_entry **entries, int64_t *n)
{
    sqlite3_stmt *q;
    int64_t cap = 0;
    int code = SQLITE_DONE, rc;
    *entries = NULL;
    *n = 0;
    WNW_TRY(prepare(store, &q, "SELECT " COLUMNS " FROM document ORDER BY rowid DESC", NULL, 0));
    for (rc = WNW_OK; rc == WNW_OK && (code = sqlite3_step(q)) == SQLITE_ROW;) {
        wnw_store_entry *more = grown(*entries, *n, &cap, sizeof *more);
        rc = more ? WNW_OK : WNW_E_NOMEM;
        *entries = more ? more : *entries;
        if (more)
            more[(*n)++] = entry_of(q);
    }
    rc = rc != WNW_OK || code == SQLITE_DONE ? rc : failed(store, code);
    sqlite3_finalize(q);
    if (rc == WNW_OK)
        return WNW_OK;
    free(*entries);
    *entries = NULL;
    *n = 0;
    return rc;
}

int wnw__index_prefixes(wnw_store *store, const char *form, const int32_t *tokens, int32_t n,
                        char (**names)[WNW_DOCUMENT_NAME], int32_t *n_names)
{
    sqlite3_stmt *q;
    int64_t cap = 0;
    int code = SQLITE_DONE, rc;
    const struct value values[] = {{form, 0}, {NULL, n}};
    *names = NULL;
    *n_names = 0;
    WNW_TRY(
        prepare(store, &q,
                "SELECT name, n_tokens, hash FROM document WHERE form = ? AND n_tokens < ? AND n_tokens > 0 "
                "ORDER BY n_tokens DESC",
                values, 2));
    for (rc = WNW_OK; rc == WNW_OK && (code = sqlite3_step(q)) == SQLITE_ROW;) {
        if (sqlite3_column_int64(q, 2) != wnw__document_hash(tokens, sqlite3_column_int(q, 1)))
            continue;
        char(*more)[WNW_DOCUMENT_NAME] = grown(*names, *n_names, &cap, sizeof *more);
        rc = more ? WNW_OK : WNW_E_NOMEM;
        *names = more ? more : *names;
        if (more)
            text_of(more[(*n_names)++], sizeof *more, q, 0);
    }
    /* Who cannot look because the index is locked finds nothing: to read the text takes longer, and gives the same. */
    rc = rc != WNW_OK || code == SQLITE_DONE || code == SQLITE_BUSY ? rc : failed(store, code);
    sqlite3_finalize(q);
    if (rc == WNW_OK)
        return WNW_OK;
    free(*names);
    *names = NULL;
    *n_names = 0;
    return rc;
}

int wnw__index_oldest(wnw_store *store, const char *keep, uint64_t *bytes, char name[WNW_DOCUMENT_NAME])
{
    sqlite3_stmt *q;
    const struct value values[] = {{keep, 0}};
    WNW_TRY(
        prepare(store, &q,
                "SELECT (SELECT SUM(bytes) FROM document), (SELECT name FROM document WHERE name != ? ORDER "
                "BY rowid LIMIT 1)",
                values, 1));
    const int code = sqlite3_step(q);
    const int rc = code == SQLITE_ROW ? WNW_OK : failed(store, code);
    *bytes = rc == WNW_OK ? (uint64_t)sqlite3_column_int64(q, 0) : 0;
    *name = '\0';
    if (rc == WNW_OK)
        text_of(name, WNW_DOCUMENT_NAME, q, 1);
    sqlite3_finalize(q);
    return rc;
}
