/* SPDX-License-Identifier: MIT */
#include "serve/documents.h"

#include "serve/document_file.h"
#include "serve/own_names.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char file_prefix[] = SERVE_FILE_DOCUMENT;

struct document {
    char name[SERVE_DOCUMENT_NAME + 1];
    struct serve_document_file file; /* what was stored is closed once it is loaded */
    int32_t *tokens, n_tokens, n_header;
    size_t at; /* its first byte in a prompt */
    int64_t entries;
    struct serve_keep_rule by;
    bool is_stored, is_read;
};

/* A list of documents. */
struct join {
    int32_t number; /* 0: there is none */
    int32_t documents[SERVE_JOINED], n;
    double share;
    struct app_join_part parts[SERVE_JOINED];
    struct document as; /* its name is not used */
    int32_t n_holders;
    uint64_t used;
};

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t read;
    struct document of[SERVE_MAX_DOCUMENTS];
    int32_t n;
    struct join join[SERVE_MAX_JOINS];
    int32_t next; /* lists that there have been */
    uint64_t clock;
    const char *refused;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .read = PTHREAD_COND_INITIALIZER};

/* ---- Finding ---- */

/* The list of that number, NULL = it is none, or gone. The lock is held. */
static struct join *join_of(int32_t d)
{
    for (int32_t i = 0; d >= SERVE_MAX_DOCUMENTS && i < SERVE_MAX_JOINS; i++)
        if (all.join[i].number == d)
            return &all.join[i];
    return NULL;
}

/* The lock is held. NULL: it is a list that is gone. */
static struct document *find(int32_t d)
{
    struct join *j = join_of(d);
    if (d < SERVE_MAX_DOCUMENTS)
        return &all.of[d];
    return j ? &j->as : NULL;
}

/* One that does not go: a document, or a list that is held. */
static struct document *held(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    struct document *of = find(d);
    pthread_mutex_unlock(&all.lock);
    return of;
}

/* ---- Loading ---- */

static bool complain(char *why, const char *name, const char *what)
{
    snprintf(why, SERVE_TEXT, "document %.80s: %.300s", name, what);
    return false;
}

static bool is_name(const char *name, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return n > 0 && n <= SERVE_DOCUMENT_NAME && strspn(name, letters) >= n;
}

static bool add_line(char *line, char *why)
{
    char *eq = strchr(line, '='), what[SERVE_TEXT];
    const size_t n = eq ? (size_t)(eq - line) : 0;
    if (!eq || !is_name(line, n))
        return complain(why, line, "it is NAME=FILE; a name has up to 64 letters, digits and . _ -");
    *eq = '\0';
    if (serve_documents_find(line) >= 0)
        return complain(why, line, "there are two of that name");
    if (all.n == SERVE_MAX_DOCUMENTS)
        return complain(why, line, "a server has 32 documents at most");
    struct document *d = &all.of[all.n++];
    memcpy(d->name, line, n + 1);
    const char *own = serve_settings()->fingerprint;
    const bool good = serve_document_file_read(&d->file, eq + 1, own ? own : "", what);
    d->is_stored = d->file.stored != NULL;
    return good || complain(why, line, what);
}

bool serve_documents_load(const char *lines, char *why)
{
    char *copy = strdup(lines), *rest = NULL;
    bool ok = copy != NULL || complain(why, "list", "out of memory");
    for (char *line = ok ? strtok_r(copy, "\n", &rest) : NULL; ok && line; line = strtok_r(NULL, "\n", &rest))
        ok = add_line(line, why);
    free(copy);
    return ok;
}

static void clear_join(struct join *j)
{
    free(j->as.file.text);
    free(j->as.tokens);
    j->as = (struct document){0};
    j->number = 0;
}

void serve_documents_free(void)
{
    for (int32_t d = 0; d < all.n; d++) {
        serve_document_file_free(&all.of[d].file);
        free(all.of[d].tokens);
        all.of[d] = (struct document){0};
    }
    for (int32_t i = 0; i < SERVE_MAX_JOINS; i++) {
        clear_join(&all.join[i]);
        all.join[i] = (struct join){0};
    }
    all.n = 0;
}

/* ---- What does not change ---- */

int32_t serve_documents_n(void)
{
    return all.n;
}

int32_t serve_documents_find(const char *name)
{
    for (int32_t d = 0; d < all.n; d++)
        if (strcmp(all.of[d].name, name) == 0)
            return d;
    return -1;
}

const char *serve_document_name(int32_t d)
{
    return held(d)->name;
}

const char *serve_document_text(int32_t d)
{
    return held(d)->file.text;
}

bool serve_document_is_stored(int32_t d)
{
    return held(d)->is_stored;
}

const char *serve_document_system(int32_t d)
{
    return held(d)->file.system;
}

const wnw_stored *serve_document_stored(int32_t d)
{
    return held(d)->file.stored;
}

void serve_document_close(int32_t d)
{
    wnw_stored_free(held(d)->file.stored);
    held(d)->file.stored = NULL;
}

struct serve_keep_rule serve_document_stored_by(int32_t d)
{
    struct serve_keep_rule by = held(d)->file.by;
    by.n_protected = serve_document_n_header(d);
    return by;
}

/* ---- What is found out ---- */

bool serve_document_set_tokens(int32_t d, const int32_t *tokens, int32_t n, int32_t n_header)
{
    int32_t *copy = malloc(((size_t)n + 1) * sizeof *copy);
    if (!copy)
        return false;
    memcpy(copy, tokens, (size_t)n * sizeof *copy);
    pthread_mutex_lock(&all.lock);
    find(d)->tokens = copy;
    find(d)->n_tokens = n;
    find(d)->n_header = n_header;
    pthread_mutex_unlock(&all.lock);
    return true;
}

const int32_t *serve_document_tokens(int32_t d, int32_t *n)
{
    pthread_mutex_lock(&all.lock);
    const struct document *of = find(d);
    const int32_t *tokens = of ? of->tokens : NULL;
    *n = tokens ? of->n_tokens : 0;
    pthread_mutex_unlock(&all.lock);
    return tokens;
}

int32_t serve_document_n_header(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    const struct document *of = find(d);
    const int32_t n = of ? of->n_header : 0;
    pthread_mutex_unlock(&all.lock);
    return n;
}

void serve_document_set_at(int32_t d, size_t at)
{
    pthread_mutex_lock(&all.lock);
    find(d)->at = at;
    pthread_mutex_unlock(&all.lock);
}

size_t serve_document_at(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    const size_t at = find(d)->at;
    pthread_mutex_unlock(&all.lock);
    return at;
}

void serve_document_kept(int32_t d, int64_t entries, const struct serve_keep_rule *by)
{
    pthread_mutex_lock(&all.lock);
    struct document *of = find(d);
    if (of) {
        of->entries = entries;
        of->by = *by;
        of->is_read = true;
    }
    pthread_cond_broadcast(&all.read);
    pthread_mutex_unlock(&all.lock);
}

bool serve_document_wait(int32_t d, bool (*client_left)(void *user), void *user)
{
    bool left = false;
    pthread_mutex_lock(&all.lock);
    while (!find(d)->is_read && !left) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&all.read, &all.lock, &until);
        left = client_left && client_left(user);
    }
    const bool is_read = find(d)->is_read;
    pthread_mutex_unlock(&all.lock);
    return is_read;
}

int64_t serve_documents_entries(void)
{
    int64_t n = 0;
    pthread_mutex_lock(&all.lock);
    for (int32_t d = 0; d < all.n; d++)
        n += all.of[d].is_read ? all.of[d].entries : 0;
    pthread_mutex_unlock(&all.lock);
    return n;
}

bool serve_document_look(int32_t d, int32_t *n_tokens, int64_t *entries, struct serve_keep_rule *by)
{
    pthread_mutex_lock(&all.lock);
    const struct document *of = find(d);
    const bool is_read = of && of->is_read;
    *n_tokens = of ? of->n_tokens : 0;
    *entries = of ? of->entries : 0;
    *by = is_read ? of->by : serve_settings()->keep_rule;
    pthread_mutex_unlock(&all.lock);
    return is_read;
}

/* ---- Names for the decoding thread ---- */

void serve_document_file(int32_t d, char name[32])
{
    snprintf(name, 32, "%s%d", file_prefix, (int)d);
}

int32_t serve_document_of_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *end;
    if (strncmp(name, file_prefix, sizeof file_prefix - 1) != 0)
        return -1;
    const long d = strtol(name + sizeof file_prefix - 1, &end, 10);
    if (*end != '\0' || end == name + sizeof file_prefix - 1 || d < 0 || d > INT32_MAX)
        return -1;
    return d < all.n || (d >= SERVE_MAX_DOCUMENTS && held((int32_t)d)) ? (int32_t)d : -1;
}

/* ---- Several in one request ---- */

int32_t serve_joins_n(void)
{
    return all.n > 1 ? SERVE_MAX_JOINS : 0;
}

void serve_joins_refuse(const char *why)
{
    all.refused = why;
}

const char *serve_joins_refused(void)
{
    return all.refused;
}

static bool is_list(const struct join *j, const int32_t *documents, int32_t n, double share)
{
    return j->number > 0 && j->n == n && j->share == share &&
           memcmp(j->documents, documents, (size_t)n * sizeof *documents) == 0;
}

/* The texts of documents, an empty line between them; NULL: no memory. */
static char *texts_of(const int32_t *documents, int32_t n)
{
    size_t size = 1, at = 0;
    for (int32_t i = 0; i < n; i++)
        size += strlen(all.of[documents[i]].file.text) + 2;
    char *text = malloc(size);
    for (int32_t i = 0; text && i < n; i++) {
        const char *one = all.of[documents[i]].file.text;
        const size_t n_one = strlen(one);
        memcpy(text + at, one, n_one);
        memcpy(text + at + n_one, "\n\n", 2);
        at += n_one + 2;
    }
    if (text)
        text[at - 2] = '\0';
    return text;
}

/* The place for a new list: one that is empty, or that of the list that was unused for longest; NULL: all are held. */
static struct join *free_place(void)
{
    struct join *best = NULL;
    for (int32_t i = 0; i < serve_joins_n(); i++) {
        struct join *j = &all.join[i];
        if (j->n_holders == 0 && (!best || (best->number > 0 && (j->number == 0 || j->used < best->used))))
            best = j;
    }
    return best;
}

static struct join *new_join(const int32_t *documents, int32_t n, double share)
{
    struct join *j = free_place();
    char *text = j ? texts_of(documents, n) : NULL;
    if (!text)
        return NULL;
    clear_join(j);
    *j = (struct join){.number = SERVE_MAX_DOCUMENTS + all.next++, .n = n, .share = share};
    memcpy(j->documents, documents, (size_t)n * sizeof *documents);
    j->as.file.text = text;
    j->as.file.system = all.of[documents[0]].file.system; /* the document's */
    j->as.is_stored = all.of[documents[0]].is_stored;
    return j;
}

int32_t serve_join_take(const int32_t *documents, int32_t n, double share)
{
    struct join *j = NULL;
    pthread_mutex_lock(&all.lock);
    for (int32_t i = 0; !j && i < SERVE_MAX_JOINS; i++)
        j = is_list(&all.join[i], documents, n, share) ? &all.join[i] : NULL;
    j = j || all.next > INT32_MAX - SERVE_MAX_DOCUMENTS - 2 ? j : new_join(documents, n, share);
    if (j) {
        j->n_holders++;
        j->used = ++all.clock;
    }
    const int32_t number = j ? j->number : -1;
    pthread_mutex_unlock(&all.lock);
    return number;
}

void serve_join_give_back(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    join_of(d)->n_holders--;
    pthread_mutex_unlock(&all.lock);
}

bool serve_document_is_join(int32_t d)
{
    return d >= SERVE_MAX_DOCUMENTS;
}

static struct join *held_join(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    struct join *j = join_of(d);
    pthread_mutex_unlock(&all.lock);
    return j;
}

const int32_t *serve_join_documents(int32_t d, int32_t *n)
{
    const struct join *j = held_join(d);
    *n = j->n;
    return j->documents;
}

int32_t serve_join_place(int32_t d)
{
    return (int32_t)(held_join(d) - all.join);
}

double serve_join_share(int32_t d)
{
    return held_join(d)->share;
}

uint64_t serve_join_used(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    const struct join *j = join_of(d);
    const uint64_t used = j ? j->used : 0;
    pthread_mutex_unlock(&all.lock);
    return used;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* As join_cells.c makes it: each later document is copied as a whole, with a token after it, and the part that the list has of it stays. */
static struct serve_join_size size_of(const struct join *j, int32_t row_entries)
{
    struct serve_join_size size = {.is_there = j->as.is_read};
    int64_t n_read = j->as.n_tokens - j->parts[0].n;
    for (int32_t i = 1; i < j->n; i++) {
        const struct document *of = &all.of[j->documents[i]];
        const int64_t whole = (int64_t)j->parts[i].n * row_entries;
        size.most = larger(size.most, size.kept + ((int64_t)of->n_tokens + 1) * row_entries);
        size.kept += whole < of->entries ? whole : of->entries;
        n_read -= j->parts[i].n;
    }
    size.kept += n_read * row_entries;
    size.most = larger(size.most, size.kept);
    return size;
}

bool serve_join_look(int32_t d, int32_t row_entries, struct serve_join_size *out)
{
    pthread_mutex_lock(&all.lock);
    const struct join *j = join_of(d);
    const bool is_known = j && j->as.tokens;
    *out = is_known ? size_of(j, row_entries) : (struct serve_join_size){0};
    pthread_mutex_unlock(&all.lock);
    return is_known;
}

void serve_join_lost(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    struct join *j = join_of(d);
    if (j)
        j->as.is_read = false;
    pthread_mutex_unlock(&all.lock);
}

void serve_join_set_parts(int32_t d, const struct app_join_part parts[SERVE_JOINED])
{
    struct join *j = held_join(d);
    memcpy(j->parts, parts, (size_t)j->n * sizeof *parts);
}

const struct app_join_part *serve_join_parts(int32_t d)
{
    return held_join(d)->parts;
}

void serve_document_show(int32_t d, char name[SERVE_JOIN_NAME + 1])
{
    pthread_mutex_lock(&all.lock);
    const struct join *j = join_of(d);
    int at = d < SERVE_MAX_DOCUMENTS ? snprintf(name, SERVE_JOIN_NAME, "%s", all.of[d].name) : 0;
    name[at] = '\0';
    for (int32_t i = 0; j && i < j->n; i++)
        at += snprintf(name + at, (size_t)(SERVE_JOIN_NAME + 1 - at), "%s%s", i > 0 ? "+" : "",
                       all.of[j->documents[i]].name);
    pthread_mutex_unlock(&all.lock);
}
