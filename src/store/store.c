/* SPDX-License-Identifier: MIT */
/* A folder of stored sessions: finding, adding and removing. See store.h. */
#include "store/store.h"

#include "base/err.h"
#include "winnow_tools.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- Opening ---- */

bool wnw_store_is(const char *folder)
{
    struct stat st;
    char *index = folder ? wnw__store_path(folder, "index.sqlite") : NULL;
    bool is = index && stat(index, &st) == 0 && S_ISREG(st.st_mode);
    free(index);
    DIR *dir = folder && !is ? opendir(folder) : NULL;
    for (struct dirent *e; dir && !is && (e = readdir(dir));)
        is = wnw__document_is_name(e->d_name);
    if (dir)
        closedir(dir);
    return is;
}

static int open_store(wnw_store *store)
{
    int64_t n;
    bool made;
    WNW_TRY(wnw__index_open(store, &made));
    return made ? wnw__store_adopt(store, &n) : WNW_OK;
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
    const int rc = open_store(store);
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

/* A key with what follows from it. */
struct key {
    wnw_store_key of;
    struct wnw__document document;
    char *form; /* everything but the tokens; owned */
    char fingerprint[WNW_FINGERPRINT_SIZE];
};

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
    wnw_run_more more = wnw_run_more_default();
    WNW_TRY(WNW_SIZED_TAKE(wnw_run_more, &more, run->more));
    if (!run->policy)
        return wnw__fail(WNW_E_ARG, "documents are found by the policy of their run, which is NULL");
    if (run->profile || run->every > 0 || more.n_tasks > 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "a run with a profile, with `every` or with tasks is not found by "
                         "its recipe alone; it cannot be kept in a store");
    return WNW_OK;
}

static int make_form(struct key *k, const wnw_store_key *key)
{
    wnw_run run = wnw_run_default();
    wnw_run_more more = wnw_run_more_default();
    wnw_session_params how = wnw_session_default_params();
    wnw_prompt_parts prompt = wnw_prompt_parts_default();
    char size[64], slack[32] = "";
    WNW_TRY(WNW_SIZED_TAKE(wnw_run, &run, key->run));
    WNW_TRY(WNW_SIZED_TAKE(wnw_run_more, &more, run.more));
    WNW_TRY(WNW_SIZED_TAKE(wnw_session_params, &how, key->session));
    WNW_TRY(run.prompt ? wnw_prompt_get_parts(run.prompt, &prompt) : WNW_OK);
    WNW_TRY(check_run(&run));
    wnw_model_fingerprint(key->model, k->fingerprint);
    WNW_TRY(wnw_model_check_files(key->model));
    size_text(size, &run.size);
    const char *policy = wnw_policy_string(run.policy);
    const size_t room = strlen(policy) + 300;
    k->form = malloc(room);
    if (!k->form)
        return wnw__fail(WNW_E_NOMEM, "no memory for the form of a document");
    if (more.chunk_slack > 1)
        snprintf(slack, sizeof slack, " slack %a", more.chunk_slack);
    snprintf(k->form, room,
             "%s, %s, tail %d, rotated %d, attention %d, %s, %s, %s %d%s, prefix %d, suffix %d",
             k->fingerprint, wnw_kv_type_name(how.kv_type), (int)how.kv_tail, (int)!how.kv_unrotated,
             (int)how.attn, policy, size, wnw_phase_name(run.phase), (int)run.chunk, slack,
             (int)prompt.n_prefix, (int)prompt.n_suffix);
    k->document = (struct wnw__document){.form = k->form, .fingerprint = k->fingerprint, .policy = policy};
    return WNW_OK;
}

/* k->form is freed by the caller in any case. */
static int take_key(struct key *k, const wnw_store_key *key)
{
    *k = (struct key){.of = wnw_store_key_default()};
    WNW_TRY(WNW_SIZED_TAKE(wnw_store_key, &k->of, key));
    if (!k->of.model || !k->of.run || !k->of.tokens || k->of.n_tokens < 1)
        return wnw__fail(WNW_E_ARG, "a key needs a model, a run and at least one token");
    WNW_TRY(make_form(k, &k->of));
    wnw__document_set(&k->document, k->of.tokens, k->of.n_tokens);
    return WNW_OK;
}

bool wnw_store_continues(const wnw_run *run)
{
    wnw_run own = wnw_run_default();
    return WNW_SIZED_TAKE(wnw_run, &own, run) == WNW_OK && own.policy && wnw_policy_is_full(own.policy);
}

/* ---- Finding ---- */

/* Opens a document if it is the one: what it says itself is compared, not only its name. */
static int try_document(wnw_stored **out, struct wnw__document *d, const wnw_store *store, const char *name,
                        const struct key *k)
{
    wnw_stored *st;
    const int rc = wnw__document_open(&st, store, name);
    *out = NULL;
    if (rc != WNW_OK)
        return rc == WNW_E_NOMEM ? rc : WNW_OK; /* it is damaged, or there is none */
    if (wnw__document_of_file(d, st, name) == WNW_OK && strcmp(d->form, k->form) == 0 &&
        d->n_tokens <= k->of.n_tokens &&
        memcmp(st->tokens, k->of.tokens, (size_t)d->n_tokens * sizeof *st->tokens) == 0 &&
        wnw_stored_check_model(st, k->of.model) == WNW_OK)
        *out = st;
    else
        wnw_stored_free(st);
    return WNW_OK;
}

/* Tries the documents that the key begins with, the longest first. */
static int search_prefixes(wnw_stored **out, struct wnw__document *d, wnw_store *store, const struct key *k)
{
    char(*names)[WNW_DOCUMENT_NAME];
    int32_t n_names;
    int rc = wnw__index_prefixes(store, k->form, k->of.tokens, k->of.n_tokens, &names, &n_names);
    for (int32_t i = 0; rc == WNW_OK && !*out && i < n_names; i++)
        rc = try_document(out, d, store, names[i], k);
    free(names);
    return rc;
}

/* The document of all tokens is found by its name, without the index. */
static int search(wnw_stored **out, wnw_store *store, const struct key *k, bool exact)
{
    struct wnw__document d;
    WNW_TRY(try_document(out, &d, store, k->document.name, k));
    if (!*out && !exact)
        WNW_TRY(search_prefixes(out, &d, store, k));
    if (*out)
        wnw__index_touch(store, &d);
    return WNW_OK;
}

int wnw_store_find(wnw_stored **out, wnw_store *store, const wnw_store_key *key, bool exact)
{
    struct key k;
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(store);
    WNW_REQUIRE(key);
    int rc = take_key(&k, key);
    if (rc == WNW_OK)
        rc = search(out, store, &k, exact);
    free(k.form);
    return rc;
}

/* ---- Adding and removing ---- */

/* Takes a document away; the write lock is held. */
static int drop(wnw_store *store, const char *name)
{
    char *path = wnw__store_path(store->folder, name);
    if (!path)
        return WNW_E_NOMEM;
    const int failed_to = wnw__document_is_name(name) && unlink(path) != 0 && errno != ENOENT ? errno : 0;
    free(path);
    if (failed_to)
        return wnw__fail(WNW_E_IO, "cannot remove '%.100s' of the store: %s", name, strerror(failed_to));
    return wnw__index_delete(store, name);
}

static int keep_to_limit(wnw_store *store, const char *keep)
{
    char name[WNW_DOCUMENT_NAME];
    uint64_t bytes;
    while (store->limit > 0) {
        WNW_TRY(wnw__index_oldest(store, keep, &bytes, name));
        if (bytes <= store->limit || !*name)
            return WNW_OK;
        WNW_TRY(drop(store, name));
    }
    return WNW_OK;
}

/* Writes the document to a file without its name. */
static int write_document(struct wnw__whole_file *file, const wnw_store *store, struct key *k,
                          const wnw_session *s, const wnw_store_params *params)
{
    struct stat st;
    char *path = wnw__store_path(store->folder, k->document.name);
    int rc = path ? wnw__wkv_write(file, s, path, params, k->form) : WNW_E_NOMEM;
    free(path);
    if (rc == WNW_OK)
        rc = wnw__whole_file_sync(file);
    if (rc == WNW_OK && fstat(file->fd, &st) != 0)
        rc = wnw__fail(WNW_E_IO, "the size of a document is not known: %s", strerror(errno));
    if (rc != WNW_OK)
        return rc;
    k->document.bytes = st.st_size;
    if (store->limit > 0 && (uint64_t)st.st_size > store->limit)
        return wnw__fail(WNW_E_FULL, "the document takes %lld bytes, and the store may have %llu",
                         (long long)st.st_size, (unsigned long long)store->limit);
    return WNW_OK;
}

/* Gives the document its name and its row. */
static int place_document(struct wnw__whole_file *file, wnw_store *store, const struct key *k)
{
    WNW_TRY(wnw__index_begin(store));
    int rc = wnw__whole_file_commit(file);
    if (rc == WNW_OK)
        rc = wnw__index_insert(store, &k->document, true);
    if (rc == WNW_OK)
        rc = keep_to_limit(store, k->document.name);
    return wnw__index_end(store, rc);
}

static int add_session(wnw_store *store, struct key *k, const wnw_session *s, wnw_store_params *what)
{
    struct wnw__whole_file file = {.fd = -1};
    if (k->of.model != s->m)
        return wnw__fail(WNW_E_ARG, "the session is of another model than the key");
    what->tokens = k->of.tokens;
    what->n_tokens = k->of.n_tokens;
    int rc = write_document(&file, store, k, s, what);
    if (rc == WNW_OK)
        rc = place_document(&file, store, k);
    wnw__whole_file_abort(&file);
    return rc;
}

int wnw_store_add(wnw_store *store, const wnw_store_key *key, const wnw_session *s,
                  const wnw_store_params *params)
{
    struct key k;
    wnw_store_params what = wnw_store_default_params();
    WNW_REQUIRE(store);
    WNW_REQUIRE(key);
    WNW_REQUIRE(s);
    WNW_TRY(WNW_SIZED_TAKE(wnw_store_params, &what, params));
    if (store->read_only)
        return wnw__fail(WNW_E_IO, "the store '%.200s' cannot be written to", store->folder);
    int rc = take_key(&k, key);
    if (rc == WNW_OK)
        rc = add_session(store, &k, s, &what);
    free(k.form);
    return rc;
}

/* Whether the folder has a document: its row, or its file alone. */
static int is_there(bool *there, wnw_store *store, const char *name)
{
    struct stat st;
    wnw_store_entry *entries;
    int64_t n;
    char *path = wnw__store_path(store->folder, name);
    if (!path)
        return WNW_E_NOMEM;
    const int rc = wnw__index_list(store, &entries, &n);
    *there = rc == WNW_OK && wnw__document_is_name(name) && stat(path, &st) == 0;
    free(path);
    WNW_TRY(rc);
    for (int64_t i = 0; i < n; i++)
        *there = *there || strcmp(entries[i].name, name) == 0;
    free(entries);
    return WNW_OK;
}

int wnw_store_remove(wnw_store *store, const char *name)
{
    bool there;
    WNW_REQUIRE(store);
    WNW_REQUIRE(name);
    WNW_TRY(wnw__index_begin(store));
    int rc = is_there(&there, store, name);
    if (rc == WNW_OK)
        rc = there ? drop(store, name)
                   : wnw__fail(WNW_E_ARG, "the store '%.200s' has no '%.100s'", store->folder, name);
    return wnw__index_end(store, rc);
}

int wnw_store_list(wnw_store *store, bool (*visit)(const wnw_store_entry *entry, void *user), void *user)
{
    wnw_store_entry *entries;
    int64_t n;
    WNW_REQUIRE(store);
    WNW_REQUIRE(visit);
    WNW_TRY(wnw__index_list(store, &entries, &n));
    for (int64_t i = 0; i < n && visit(&entries[i], user); i++)
        ;
    free(entries);
    return WNW_OK;
}
