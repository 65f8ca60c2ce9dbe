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

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t read;
    struct document of[SERVE_MAX_DOCUMENTS];
    int32_t n;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .read = PTHREAD_COND_INITIALIZER};

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

void serve_documents_free(void)
{
    for (int32_t d = 0; d < all.n; d++) {
        serve_document_file_free(&all.of[d].file);
        free(all.of[d].tokens);
        all.of[d] = (struct document){0};
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
    return all.of[d].name;
}

const char *serve_document_text(int32_t d)
{
    return all.of[d].file.text;
}

bool serve_document_is_stored(int32_t d)
{
    return all.of[d].is_stored;
}

const char *serve_document_system(int32_t d)
{
    return all.of[d].file.system;
}

const wnw_stored *serve_document_stored(int32_t d)
{
    return all.of[d].file.stored;
}

void serve_document_close(int32_t d)
{
    wnw_stored_free(all.of[d].file.stored);
    all.of[d].file.stored = NULL;
}

struct serve_keep_rule serve_document_stored_by(int32_t d)
{
    struct serve_keep_rule by = all.of[d].file.by;
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
    all.of[d].tokens = copy;
    all.of[d].n_tokens = n;
    all.of[d].n_header = n_header;
    pthread_mutex_unlock(&all.lock);
    return true;
}

const int32_t *serve_document_tokens(int32_t d, int32_t *n)
{
    pthread_mutex_lock(&all.lock);
    const int32_t *tokens = all.of[d].tokens;
    *n = tokens ? all.of[d].n_tokens : 0;
    pthread_mutex_unlock(&all.lock);
    return tokens;
}

int32_t serve_document_n_header(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    const int32_t n = all.of[d].n_header;
    pthread_mutex_unlock(&all.lock);
    return n;
}

void serve_document_set_at(int32_t d, size_t at)
{
    pthread_mutex_lock(&all.lock);
    all.of[d].at = at;
    pthread_mutex_unlock(&all.lock);
}

size_t serve_document_at(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    const size_t at = all.of[d].at;
    pthread_mutex_unlock(&all.lock);
    return at;
}

void serve_document_kept(int32_t d, int64_t entries, const struct serve_keep_rule *by)
{
    pthread_mutex_lock(&all.lock);
    all.of[d].entries = entries;
    all.of[d].by = *by;
    all.of[d].is_read = true;
    pthread_cond_broadcast(&all.read);
    pthread_mutex_unlock(&all.lock);
}

bool serve_document_wait(int32_t d, bool (*client_left)(void *user), void *user)
{
    bool left = false;
    pthread_mutex_lock(&all.lock);
    while (!all.of[d].is_read && !left) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&all.read, &all.lock, &until);
        left = client_left && client_left(user);
    }
    const bool is_read = all.of[d].is_read;
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
    const struct document *of = &all.of[d];
    const bool is_read = of->is_read;
    *n_tokens = of->n_tokens;
    *entries = of->entries;
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
    return *end == '\0' && end > name + sizeof file_prefix - 1 && d >= 0 && d < all.n ? (int32_t)d : -1;
}
