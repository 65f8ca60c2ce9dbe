/* SPDX-License-Identifier: MIT */
/*
 * The folder of a run. Each record is one line and goes to the file in one write, so that a process that is
 * killed leaves whole lines and at most one torn one at the end, which the next run cuts off.
 */
#include "eval/run/journal.h"

#include "app/console.h"
#include "app/files.h"
#include "app/process.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SYNC_MS = 10000 };

static int out_of_memory(const struct eval_journal *j)
{
    return app_fail(APP_FAILED, "out of memory for '%s'", j->path ? j->path : "the results");
}

/* ---- Keys ---- */

static size_t slot_of(char *const *keys, size_t n_slots, const char *key)
{
    size_t i = wnw__hash_of(key, strlen(key)) % n_slots;
    while (keys[i] && strcmp(keys[i], key) != 0)
        i = (i + 1) % n_slots;
    return i;
}

static bool grow(struct eval_journal *j)
{
    const size_t n_slots = j->n_slots > 0 ? 2 * j->n_slots : 1024;
    char **keys = calloc(n_slots, sizeof *keys);
    for (size_t i = 0; keys && i < j->n_slots; i++)
        if (j->keys[i])
            keys[slot_of(keys, n_slots, j->keys[i])] = j->keys[i];
    if (!keys)
        return false;
    free(j->keys);
    j->keys = keys;
    j->n_slots = n_slots;
    return true;
}

static bool add_key(struct eval_journal *j, const char *key)
{
    if (2 * (j->n_keys + 1) > j->n_slots && !grow(j))
        return false;
    const size_t i = slot_of(j->keys, j->n_slots, key);
    if (j->keys[i])
        return true;
    j->keys[i] = strdup(key);
    j->n_keys += j->keys[i] != NULL;
    return j->keys[i] != NULL;
}

bool eval_journal_has(const struct eval_journal *j, const char *key)
{
    return j->n_slots > 0 && j->keys[slot_of(j->keys, j->n_slots, key)];
}

bool eval_journal_any(const struct eval_journal *j, bool (*is)(const char *key))
{
    for (size_t i = 0; i < j->n_slots; i++)
        if (j->keys[i] && is(j->keys[i]))
            return true;
    return false;
}

/* ---- Opening ---- */

static int make_folder(const char *dir)
{
    struct stat st;
    if (mkdir(dir, 0777) == 0)
        return APP_OK;
    if (errno == EEXIST && stat(dir, &st) == 0 && S_ISDIR(st.st_mode))
        return APP_OK;
    return app_fail(APP_BAD_INPUT, "--out: cannot make the folder '%s': %s", dir,
                    errno == EEXIST ? "a file has that name" : strerror(errno));
}

/* The kernel gives a lock back when its process ends, however it ends. The file says whose it is. */
static int take_lock(struct eval_journal *j)
{
    char *path = app_in_folder(j->dir, "lock"), text[32] = "";
    if (!path)
        return out_of_memory(j);
    j->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    free(path);
    if (j->lock < 0)
        return app_fail(APP_BAD_INPUT, "--out: cannot write in '%s': %s", j->dir, strerror(errno));
    const bool taken = flock(j->lock, LOCK_EX | LOCK_NB) == 0;
    const ssize_t n = read(j->lock, text, sizeof text - 1);
    if (!taken) {
        text[strcspn(text, "\n")] = '\0';
        return app_fail(APP_BAD_INPUT, "--out: process %s writes in '%s' already", n > 0 ? text : "?",
                        j->dir);
    }
    if (n > 0)
        app_note("the run in '%s' did not end by itself; going on", j->dir);
    snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(j->lock, 0) != 0 || pwrite(j->lock, text, strlen(text), 0) < 0)
        return app_fail(APP_FAILED, "--out: cannot write in '%s': %s", j->dir, strerror(errno));
    return APP_OK;
}

/* Takes the key of one line; *good is false if the line is no record. */
static int take_line(struct eval_journal *j, const char *line, size_t len, bool *good)
{
    json_t *row = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const char *key = json_string_value(json_object_get(row, "key"));
    *good = key != NULL;
    const bool added = !key || add_key(j, key);
    json_decref(row);
    return added ? APP_OK : out_of_memory(j);
}

/* Reads the records; *whole is the length of the lines that are whole. */
static int read_lines(struct eval_journal *j, FILE *f, off_t *whole)
{
    char *line = NULL;
    size_t cap = 0;
    int64_t number = 0, bad = 0;
    int rc = APP_OK;
    *whole = 0;
    for (ssize_t n; rc == APP_OK && (n = getline(&line, &cap, f)) > 0;) {
        bool good = false;
        number++;
        if (line[n - 1] == '\n')
            rc = take_line(j, line, (size_t)n - 1, &good);
        if (rc == APP_OK && bad > 0)
            rc = app_fail(APP_BAD_INPUT, "'%s' line %lld is not a result; repair or remove the line", j->path,
                          (long long)bad);
        bad = good ? 0 : number;
        *whole += good ? n : 0;
    }
    if (rc == APP_OK && ferror(f))
        rc = app_fail(APP_FAILED, "reading '%s' failed: %s", j->path, strerror(errno));
    free(line);
    return rc;
}

static int read_results(struct eval_journal *j)
{
    off_t whole = 0;
    FILE *f = fopen(j->path, "r");
    int rc = APP_OK;
    if (f) {
        rc = read_lines(j, f, &whole);
        fclose(f);
    } else if (errno != ENOENT) {
        rc = app_fail(APP_BAD_INPUT, "cannot read '%s': %s", j->path, strerror(errno));
    }
    if (rc != APP_OK)
        return rc;
    j->fd = open(j->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (j->fd < 0 || ftruncate(j->fd, whole) != 0)
        return app_fail(APP_BAD_INPUT, "cannot write '%s': %s", j->path, strerror(errno));
    return APP_OK;
}

int eval_journal_open(struct eval_journal *j, const char *dir)
{
    *j = (struct eval_journal){.dir = strdup(dir), .fd = -1, .lock = -1, .synced_ms = app_now_ms()};
    if (asprintf(&j->path, "%s/results.jsonl", dir) < 0)
        j->path = NULL;
    if (!j->dir || !j->path)
        return out_of_memory(j);
    int rc = make_folder(dir);
    if (rc == APP_OK)
        rc = take_lock(j);
    return rc == APP_OK ? read_results(j) : rc;
}

void eval_journal_close(struct eval_journal *j)
{
    if (j->fd >= 0) {
        (void)fsync(j->fd);
        close(j->fd);
    }
    if (j->lock >= 0) {
        /* An empty file says that the run ended by itself; it stays, because removing it could remove the
         * file that another process has just locked. */
        if (j->fd >= 0 && ftruncate(j->lock, 0) != 0)
            app_note("the lock in '%s' keeps the number of this process: %s", j->dir, strerror(errno));
        close(j->lock);
    }
    for (size_t i = 0; i < j->n_slots; i++)
        free(j->keys[i]);
    free(j->keys);
    free(j->path);
    free(j->dir);
    *j = (struct eval_journal){.fd = -1, .lock = -1};
}

/* ---- Writing ---- */

/* Writes all of text[len]; a signal may interrupt a write. */
static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, text, len);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

int eval_journal_add(struct eval_journal *j, const json_t *row)
{
    char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(12));
    const size_t len = text ? strlen(text) : 0;
    if (!text || !add_key(j, json_string_value(json_object_get(row, "key")))) {
        free(text);
        return out_of_memory(j);
    }
    text[len] = '\n'; /* in the place of the NUL */
    const bool good = write_all(j->fd, text, len + 1);
    const int err = errno;
    free(text);
    if (good && app_now_ms() - j->synced_ms > SYNC_MS) {
        (void)fsync(j->fd);
        j->synced_ms = app_now_ms();
    }
    return good ? APP_OK : app_fail(APP_FAILED, "writing '%s' failed: %s", j->path, strerror(err));
}
