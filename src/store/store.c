/* SPDX-License-Identifier: MIT */
/*
 * A folder of stored sessions. index.sqlite has a row for each: the form (model, cache, recipe, size, template), the number
 * of tokens and their hash, the file. The rows' ids are the order of use: seconds are too coarse for it, and a clock may go
 * back. Who adds or removes holds the index's write lock from before the file appears or goes until the row says so; so a
 * file without a row is one whose process ended in between.
 */
#include "base/err.h"
#include "store/wkv.h"

#include <dirent.h>
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { INDEX_VERSION = 1, WAIT_MS = 60000 };

struct wnw_store {
    sqlite3 *db;
    char *folder;
    uint64_t limit;
    bool read_only;
};

/* ---- SQLite ---- */

static int failed(const wnw_store *store, int code)
{
    const int rc = code == SQLITE_NOMEM                              ? WNW_E_NOMEM
                   : code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? WNW_E_FORMAT
                                                                     : WNW_E_IO;
    return wnw__fail(rc, "the index of the store '%.200s': %s", store->folder,
                     store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(code));
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

/* Ends a transaction: with its changes if rc is WNW_OK. */
static int end(wnw_store *store, int rc)
{
    if (rc == WNW_OK)
        rc = execute(store, "COMMIT");
    if (rc != WNW_OK && sqlite3_get_autocommit(store->db) == 0)
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* ---- Opening ---- */

static char *in_folder(const wnw_store *store, const char *name)
{
    const size_t n = strlen(store->folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%s/%s", store->folder, name);
    else
        wnw__fail(WNW_E_NOMEM, "no memory for a path");
    return path;
}

static int make_tables(wnw_store *store)
{
    sqlite3_stmt *q;
    WNW_TRY(execute(store, store->read_only ? "BEGIN" : "BEGIN IMMEDIATE"));
    int rc = prepare(store, &q, "PRAGMA user_version", NULL, 0);
    if (rc != WNW_OK)
        return end(store, rc);
    const int code = sqlite3_step(q);
    const int version = code == SQLITE_ROW ? sqlite3_column_int(q, 0) : 0;
    rc = code == SQLITE_ROW ? WNW_OK : failed(store, code);
    sqlite3_finalize(q);
    if (rc == WNW_OK && version > INDEX_VERSION)
        rc = wnw__fail(WNW_E_UNSUPPORTED,
                       "the store '%.200s' has version %d, this program reads up to %d; use a newer program",
                       store->folder, version, INDEX_VERSION);
    if (rc == WNW_OK && version == 0 && !store->read_only)
        rc = execute(store, "CREATE TABLE document (name TEXT PRIMARY KEY, form TEXT NOT NULL, n_tokens "
                            "INTEGER NOT NULL, hash INTEGER NOT NULL, fingerprint TEXT NOT NULL, policy TEXT "
                            "NOT NULL, bytes INTEGER NOT NULL, made INTEGER NOT NULL, used INTEGER NOT NULL);"
                            "CREATE INDEX by_form ON document (form, n_tokens);"
                            "PRAGMA user_version = 1");
    return end(store, rc);
}

static int open_index(wnw_store *store)
{
    char *path = in_folder(store, "index.sqlite");
    if (!path)
        return WNW_E_NOMEM;
    store->read_only = access(store->folder, W_OK) != 0;
    const int flags = store->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    const int code = sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    free(path);
    if (code != SQLITE_OK)
        return failed(store, code);
    sqlite3_busy_timeout(store->db, WAIT_MS);
    return make_tables(store);
}

int wnw_store_open(wnw_store **out, const char *folder, uint64_t limit)
{
    struct stat st;
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(folder);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return wnw__fail(WNW_E_IO, "cannot make the folder '%.200s': %s", folder, strerror(errno));
    if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
        return wnw__fail(WNW_E_IO, "'%.200s' is not a folder", folder);
    wnw_store *store = calloc(1, sizeof *store);
    if (!store || !(store->folder = strdup(folder))) {
        free(store);
        return wnw__fail(WNW_E_NOMEM, "no memory for a store");
    }
    store->limit = limit;
    const int rc = open_index(store);
    if (rc != WNW_OK) {
        wnw_store_close(store);
        return rc;
    }
    *out = store;
    return WNW_OK;
}

void wnw_store_close(wnw_store *store)
{
    if (!store)
        return;
    sqlite3_close(store->db);
    free(store->folder);
    free(store);
}

/* ---- Keys ---- */

/* What the index has of a key. */
struct row {
    char *form; /* everything but the tokens; owned */
    char fingerprint[WNW_FINGERPRINT_SIZE], name[40];
    const char *policy;
    int64_t hash;
};

static int64_t hash_of(const int32_t *tokens, int32_t n)
{
    return (int64_t)XXH3_64bits(tokens, (size_t)n * sizeof *tokens);
}

static void size_text(char out[64], const wnw_size *size)
{
    switch (size->kind) {
    case WNW_SIZE_BUDGET:
        snprintf(out, 64, "budget %lld", (long long)size->budget);
        break;
    case WNW_SIZE_BYTES:
        snprintf(out, 64, "bytes %llu", (unsigned long long)size->bytes);
        break;
    case WNW_SIZE_RATIO:
        snprintf(out, 64, "ratio %a", size->ratio);
        break;
    case WNW_SIZE_NONE:
        snprintf(out, 64, "own");
        break;
    }
}

static int check_run(const wnw_run *run)
{
    if (!run->policy)
        return wnw__fail(WNW_E_ARG, "documents are found by their recipe, and the run has no policy");
    if (run->profile || run->every > 0 || run->n_tasks > 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "a run with a profile, with `every` or with tasks is not found by "
                         "its recipe alone; it cannot be kept in a store");
    return WNW_OK;
}

static int make_form(struct row *row, const wnw_store_key *key)
{
    wnw_run run = wnw_run_default();
    wnw_session_params how = wnw_session_default_params();
    wnw_prompt prompt = wnw_prompt_default();
    char size[64];
    WNW_TRY(WNW_SIZED_TAKE(wnw_run, &run, key->run));
    WNW_TRY(WNW_SIZED_TAKE(wnw_session_params, &how, key->session));
    WNW_TRY(WNW_SIZED_TAKE(wnw_prompt, &prompt, run.prompt));
    WNW_TRY(check_run(&run));
    wnw_model_fingerprint(key->model, row->fingerprint);
    size_text(size, &run.size);
    row->policy = wnw_policy_string(run.policy);
    const size_t room = strlen(row->policy) + 300;
    row->form = malloc(room);
    if (!row->form)
        return wnw__fail(WNW_E_NOMEM, "no memory for the form of a document");
    snprintf(row->form, room,
             "%s, %s, tail %d, rotated %d, attention %d, %s, %s, %s %d, prefix %d, suffix %d",
             row->fingerprint, wnw_kv_type_name(how.kv_type), (int)how.kv_tail, (int)!how.kv_unrotated,
             (int)how.attn, row->policy, size, wnw_phase_name(run.phase), (int)run.chunk,
             (int)prompt.n_prefix, (int)prompt.n_suffix);
    return WNW_OK;
}

static int take_key(wnw_store_key *own, struct row *row, const wnw_store_key *key)
{
    *row = (struct row){0};
    *own = wnw_store_key_default();
    WNW_TRY(WNW_SIZED_TAKE(wnw_store_key, own, key));
    if (!own->model || !own->run || !own->tokens || own->n_tokens < 1)
        return wnw__fail(WNW_E_ARG, "a key needs a model, a run and at least one token");
    WNW_TRY(make_form(row, own));
    row->hash = hash_of(own->tokens, own->n_tokens);
    const uint64_t of_form = XXH3_64bits(row->form, strlen(row->form));
    snprintf(row->name, sizeof row->name, "%016llx%016llx.wkv", (unsigned long long)of_form,
             (unsigned long long)row->hash);
    return WNW_OK;
}

/* ---- Finding ---- */

/* The end of a name that this file gives, NULL = it is none. */
static const char *behind_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == 32 && strncmp(name + 32, ".wkv", 4) == 0 ? name + 36 : NULL;
}

/* Whether it is a name that this file gives; an index that somebody else made could name any file. */
static bool is_name(const char *name)
{
    const char *rest = behind_name(name);
    return rest && !*rest;
}

/* Whether it is that of a file on its way to such a name (whole_file.c). */
static bool is_unfinished(const char *name)
{
    const char *rest = behind_name(name);
    const size_t n = rest ? strlen(rest) : 0;
    return n > 5 && *rest == '.' && strcmp(rest + n - 4, ".tmp") == 0;
}

static int open_document(wnw_stored **st, const wnw_store *store, const char *name)
{
    *st = NULL;
    if (!is_name(name))
        return wnw__fail(WNW_E_FORMAT, "'%.40s' is no name of a document", name);
    char *path = in_folder(store, name);
    const int rc = path ? wnw_stored_open(st, path) : WNW_E_NOMEM;
    free(path);
    return rc;
}

/* Opens a document if it is what the index says: its tokens are those of the key, not only of the same hash. */
static int try_document(wnw_stored **out, const wnw_store *store, const char *name, const wnw_store_key *key,
                        int32_t n)
{
    wnw_stored *st;
    const int rc = open_document(&st, store, name);
    *out = NULL;
    if (rc != WNW_OK)
        return rc == WNW_E_NOMEM ? rc : WNW_OK; /* it is damaged, or another process has removed it */
    int32_t n_tokens;
    const int32_t *tokens = wnw_stored_tokens(st, &n_tokens);
    if (n_tokens == n && memcmp(tokens, key->tokens, (size_t)n * sizeof *tokens) == 0 &&
        wnw_stored_check_model(st, key->model) == WNW_OK)
        *out = st;
    else
        wnw_stored_free(st);
    return WNW_OK;
}

static int search(wnw_stored **out, char name[40], wnw_store *store, const struct row *row,
                  const wnw_store_key *key, bool exact)
{
    sqlite3_stmt *q;
    const struct value values[] = {{row->form, 0}, {NULL, key->n_tokens}, {NULL, exact ? key->n_tokens : 1}};
    WNW_TRY(prepare(store, &q,
                    "SELECT name, n_tokens, hash FROM document WHERE form = ? AND n_tokens <= ? AND n_tokens "
                    ">= ? ORDER BY n_tokens DESC",
                    values, 3));
    int rc = WNW_OK, code;
    while (rc == WNW_OK && !*out && (code = sqlite3_step(q)) != SQLITE_DONE) {
        if (code != SQLITE_ROW) {
            rc = failed(store, code);
            break;
        }
        const int32_t n = sqlite3_column_int(q, 1);
        const unsigned char *text = sqlite3_column_text(q, 0);
        if (n < 1 || !text || sqlite3_column_int64(q, 2) != hash_of(key->tokens, n))
            continue;
        snprintf(name, 40, "%s", (const char *)text);
        rc = try_document(out, store, name, key, n);
    }
    sqlite3_finalize(q);
    return rc;
}

int wnw_store_find(wnw_stored **out, wnw_store *store, const wnw_store_key *key, bool exact)
{
    wnw_store_key own;
    struct row row;
    char name[40] = "";
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(store);
    WNW_REQUIRE(key);
    int rc = take_key(&own, &row, key);
    if (rc == WNW_OK)
        rc = search(out, name, store, &row, &own, exact);
    free(row.form);
    if (rc == WNW_OK && *out && !store->read_only) {
        const struct value values[] = {{NULL, (int64_t)time(NULL)}, {name, 0}};
        /* That it was used is not worth a failure. */
        (void)run(
            store,
            "UPDATE document SET used = ?, rowid = (SELECT MAX(rowid) + 1 FROM document) WHERE name = ?",
            values, 2);
    }
    return rc;
}

/* ---- Adding and removing ---- */

/* Takes a document away; the write lock is held. */
static int drop(wnw_store *store, const char *name)
{
    const struct value values[] = {{name, 0}};
    char *path = in_folder(store, name);
    if (!path)
        return WNW_E_NOMEM;
    const int failed_to = is_name(name) && unlink(path) != 0 && errno != ENOENT ? errno : 0;
    free(path);
    if (failed_to)
        return wnw__fail(WNW_E_IO, "cannot remove '%.100s' of the store: %s", name, strerror(failed_to));
    return run(store, "DELETE FROM document WHERE name = ?", values, 1);
}

/* The sum of bytes, and the document that was used longest ago and is not `keep`; "" = there is none. */
static int find_oldest(wnw_store *store, const char *keep, uint64_t *bytes, char name[40])
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
    const unsigned char *text = rc == WNW_OK ? sqlite3_column_text(q, 1) : NULL;
    *bytes = rc == WNW_OK ? (uint64_t)sqlite3_column_int64(q, 0) : 0;
    snprintf(name, 40, "%s", text ? (const char *)text : "");
    sqlite3_finalize(q);
    return rc;
}

static int keep_to_limit(wnw_store *store, const char *keep)
{
    char name[40];
    uint64_t bytes;
    while (store->limit > 0) {
        WNW_TRY(find_oldest(store, keep, &bytes, name));
        if (bytes <= store->limit || !*name)
            return WNW_OK;
        WNW_TRY(drop(store, name));
    }
    return WNW_OK;
}

static int insert(wnw_store *store, const struct row *row, int32_t n_tokens, int64_t bytes)
{
    const int64_t now = (int64_t)time(NULL);
    const struct value values[] = {{row->name, 0},    {row->form, 0},        {NULL, n_tokens},
                                   {NULL, row->hash}, {row->fingerprint, 0}, {row->policy, 0},
                                   {NULL, bytes},     {NULL, now},           {NULL, now}};
    return run(store, "INSERT OR REPLACE INTO document VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values, 9);
}

static int add_locked(wnw_store *store, const struct row *row, const wnw_store_key *key, const wnw_session *s,
                      const wnw_store_params *params)
{
    struct stat st = {0};
    char *path = in_folder(store, row->name);
    int rc = path ? wnw_session_store(s, path, params) : WNW_E_NOMEM;
    if (rc == WNW_OK && stat(path, &st) != 0)
        rc = wnw__fail(WNW_E_IO, "'%.200s' is gone: %s", path, strerror(errno));
    if (rc == WNW_OK && store->limit > 0 && (uint64_t)st.st_size > store->limit) {
        unlink(path);
        rc = wnw__fail(WNW_E_FULL, "the document takes %lld bytes, and the store may have %llu",
                       (long long)st.st_size, (unsigned long long)store->limit);
    }
    free(path);
    if (rc == WNW_OK)
        rc = insert(store, row, key->n_tokens, st.st_size);
    return rc == WNW_OK ? keep_to_limit(store, row->name) : rc;
}

int wnw_store_add(wnw_store *store, const wnw_store_key *key, const wnw_session *s,
                  const wnw_store_params *params)
{
    wnw_store_key own;
    struct row row;
    wnw_store_params what = wnw_store_default_params();
    WNW_REQUIRE(store);
    WNW_REQUIRE(key);
    WNW_REQUIRE(s);
    WNW_TRY(WNW_SIZED_TAKE(wnw_store_params, &what, params));
    if (store->read_only)
        return wnw__fail(WNW_E_IO, "the store '%.200s' cannot be written to", store->folder);
    int rc = take_key(&own, &row, key);
    if (rc == WNW_OK && own.model != s->m)
        rc = wnw__fail(WNW_E_ARG, "the session is of another model than the key");
    if (rc == WNW_OK) {
        what.tokens = own.tokens;
        what.n_tokens = own.n_tokens;
        rc = execute(store, "BEGIN IMMEDIATE");
        rc = rc == WNW_OK ? end(store, add_locked(store, &row, &own, s, &what)) : rc;
    }
    free(row.form);
    return rc;
}

int wnw_store_remove(wnw_store *store, const char *name)
{
    sqlite3_stmt *q;
    WNW_REQUIRE(store);
    WNW_REQUIRE(name);
    const struct value values[] = {{name, 0}};
    WNW_TRY(execute(store, "BEGIN IMMEDIATE"));
    int rc = prepare(store, &q, "SELECT 1 FROM document WHERE name = ?", values, 1);
    if (rc != WNW_OK)
        return end(store, rc);
    const bool there = sqlite3_step(q) == SQLITE_ROW;
    sqlite3_finalize(q);
    rc = there ? drop(store, name)
               : wnw__fail(WNW_E_ARG, "the store '%.200s' has no '%.100s'", store->folder, name);
    return end(store, rc);
}

/* ---- Looking ---- */

static void text_of(char *out, size_t size, sqlite3_stmt *q, int column)
{
    const unsigned char *text = sqlite3_column_text(q, column);
    snprintf(out, size, "%s", text ? (const char *)text : "");
}

int wnw_store_list(wnw_store *store, bool (*visit)(const wnw_store_entry *entry, void *user), void *user)
{
    sqlite3_stmt *q;
    WNW_REQUIRE(store);
    WNW_REQUIRE(visit);
    WNW_TRY(prepare(
        store, &q,
        "SELECT name, n_tokens, bytes, made, used, fingerprint, policy FROM document ORDER BY rowid DESC",
        NULL, 0));
    int code;
    bool going = true;
    while (going && (code = sqlite3_step(q)) == SQLITE_ROW) {
        wnw_store_entry e = wnw_store_entry_default();
        text_of(e.name, sizeof e.name, q, 0);
        e.n_tokens = sqlite3_column_int(q, 1);
        e.bytes = (uint64_t)sqlite3_column_int64(q, 2);
        e.made = sqlite3_column_int64(q, 3);
        e.used = sqlite3_column_int64(q, 4);
        text_of(e.fingerprint, sizeof e.fingerprint, q, 5);
        text_of(e.policy, sizeof e.policy, q, 6);
        going = visit(&e, user);
    }
    const int rc = !going || code == SQLITE_DONE ? WNW_OK : failed(store, code);
    sqlite3_finalize(q);
    return rc;
}

/* The names of all documents. */
struct names {
    char (*at)[40];
    int64_t n, cap;
    int rc;
};

static bool add_name(const wnw_store_entry *e, void *user)
{
    struct names *names = user;
    if (names->n == names->cap) {
        const int64_t cap = names->cap * 2 + 64;
        char(*more)[40] = realloc(names->at, (size_t)cap * sizeof *more);
        if (!more) {
            names->rc = wnw__fail(WNW_E_NOMEM, "no memory for the names of documents");
            return false;
        }
        names->at = more;
        names->cap = cap;
    }
    memcpy(names->at[names->n++], e->name, sizeof e->name);
    return true;
}

static bool has_name(const struct names *names, const char *name)
{
    for (int64_t i = 0; i < names->n; i++)
        if (strcmp(names->at[i], name) == 0)
            return true;
    return false;
}

/* Removes documents that no row names, and what is left of unfinished ones. Files of other names are somebody's own, who has put them into
 * the folder. */
static void drop_strays(const wnw_store *store, const struct names *names)
{
    DIR *dir = opendir(store->folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const bool stray = is_name(e->d_name) && !has_name(names, e->d_name);
        char *path = stray || is_unfinished(e->d_name) ? in_folder(store, e->d_name) : NULL;
        if (path)
            unlink(path);
        free(path);
    }
    if (dir)
        closedir(dir);
}

struct faults {
    void (*fault)(const char *name, const char *why, void *user);
    void *user;
};

/* What becomes of a document that could not be opened: one that is damaged or gone is dropped. One that needs a newer program may be
 * whole, and why a file that is there could not be read is not known. */
static int judge(wnw_store *store, const char *name, int opened, const struct faults *faults)
{
    struct stat st;
    char *path = in_folder(store, name);
    if (!path)
        return WNW_E_NOMEM;
    const bool gone = is_name(name) && stat(path, &st) != 0 && errno == ENOENT;
    free(path);
    if (opened == WNW_E_UNSUPPORTED)
        return WNW_OK;
    if (opened != WNW_E_FORMAT && !gone)
        return opened;
    if (faults->fault)
        faults->fault(name, wnw_last_error(), faults->user);
    return drop(store, name);
}

static int check_locked(wnw_store *store, int64_t *n_good, const struct faults *faults)
{
    struct names names = {0};
    int rc = wnw_store_list(store, add_name, &names);
    rc = rc == WNW_OK ? names.rc : rc;
    for (int64_t i = 0; rc == WNW_OK && i < names.n; i++) {
        wnw_stored *st;
        const int opened = open_document(&st, store, names.at[i]);
        wnw_stored_free(st);
        *n_good += opened == WNW_OK;
        rc = opened == WNW_OK ? WNW_OK : judge(store, names.at[i], opened, faults);
    }
    if (rc == WNW_OK)
        drop_strays(store, &names);
    free(names.at);
    return rc;
}

int wnw_store_check(wnw_store *store, int64_t *n,
                    void (*fault)(const char *name, const char *why, void *user), void *user)
{
    int64_t n_good = 0;
    if (n)
        *n = 0;
    WNW_REQUIRE(store);
    if (store->read_only)
        return wnw__fail(WNW_E_IO, "the store '%.200s' cannot be written to", store->folder);
    WNW_TRY(execute(store, "BEGIN IMMEDIATE"));
    const int rc = end(store, check_locked(store, &n_good, &(struct faults){fault, user}));
    if (n)
        *n = n_good;
    return rc;
}
