/* SPDX-License-Identifier: MIT */
/* The folder of a run: its journal, and which records are in it. */
#include "eval/run/journal.h"

#include "app/console.h"
#include "app/files.h"
#include "base/journal.h"
#include "eval/base/grow.h"
#include "eval/base/record.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SYNC_MS = 10000 };
static const char lock_name[] = "lock";

static int out_of_memory(const struct eval_journal *j)
{
    return app_fail(APP_FAILED, "out of memory for '%s'", j->path ? j->path : "the results");
}

bool eval_journal_has(const struct eval_journal *j, const char *key)
{
    return json_object_get(j->keys, key);
}

double eval_journal_score(const struct eval_journal *j, const char *key)
{
    const json_t *score = json_object_get(j->keys, key);
    return json_is_number(score) ? json_number_value(score) : NAN;
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

/* Says what is wrong with a journal, where the folder was asked for. Returns the exit code. */
static int no_journal(const struct eval_journal *j, int status)
{
    const int of_lock = app_folder_code(j->dir, lock_name, status);
    const int code = of_lock == APP_BAD_INPUT ? of_lock : app_write_code(j->path, status);
    return app_fail(code, "--out: %s", wnw_last_error());
}

static const json_t *key_of(const json_t *record)
{
    return json_object_get(record, eval_field_name(EVAL_F_KEY));
}

static bool add_key(struct eval_journal *j, const json_t *record)
{
    const json_t *score = eval_field_get(record, EVAL_M_SCORE);
    return json_object_set_new(j->keys, json_string_value(key_of(record)),
                               json_is_number(score) ? json_real(json_number_value(score)) : json_null()) ==
           0;
}

/* Takes the key of one line; *good is false if the line is no record. */
static int take_line(struct eval_journal *j, json_t *record, bool *good)
{
    *good = json_is_string(key_of(record));
    const bool added = !*good || add_key(j, record);
    json_decref(record);
    return added ? APP_OK : out_of_memory(j);
}

/* Reads the records. A last line that is no record goes as a torn one does. */
static int read_results(struct eval_journal *j)
{
    for (;;) {
        json_t *record;
        bool good = false;
        const int status = wnw__journal_next(j->file, &record);
        if (status == WNW_OK && !record)
            return APP_OK;
        if (status != WNW_OK && status != WNW_E_FORMAT)
            return no_journal(j, status);
        if (record)
            WNW_TRY(take_line(j, record, &good));
        if (!good && !wnw__journal_take_back(j->file))
            return no_journal(j, wnw__journal_damaged(j->file, "is not a result; repair or remove the line"));
    }
}

static int open_file(struct eval_journal *j)
{
    char *lock = app_in_folder(j->dir, lock_name);
    if (!lock)
        return out_of_memory(j);
    const int rc =
        wnw__journal_open(&j->file, j->path, &(struct wnw__journal_params){.lock = lock, .sync_ms = SYNC_MS});
    free(lock);
    if (rc != WNW_OK)
        return no_journal(j, rc);
    if (wnw__journal_was_left(j->file))
        app_note("the run in '%s' did not end by itself; going on", j->dir);
    return read_results(j);
}

/* A packed file of results is what a run has left, and not one that goes on. */
static int refuse_packed(const struct eval_journal *j)
{
    char *packed = app_in_folder(j->dir, "results.jsonl.gz");
    const bool there = packed && access(packed, F_OK) == 0;
    free(packed);
    if (!packed)
        return out_of_memory(j);
    return there ? app_fail(APP_BAD_INPUT,
                            "--out: '%s' has packed results; unpack results.jsonl.gz with gunzip to go on",
                            j->dir)
                 : APP_OK;
}

int eval_journal_open(struct eval_journal *j, const char *dir)
{
    *j = (struct eval_journal){
        .dir = strdup(dir), .path = app_in_folder(dir, "results.jsonl"), .keys = json_object()};
    if (!j->dir || !j->path || !j->keys)
        return out_of_memory(j);
    WNW_TRY(make_folder(dir));
    WNW_TRY(refuse_packed(j));
    return open_file(j);
}

void eval_journal_close(struct eval_journal *j)
{
    wnw__journal_close(j->file);
    json_decref(j->keys);
    free(j->path);
    free(j->dir);
    *j = (struct eval_journal){0};
}

int eval_journal_add(struct eval_journal *j, const json_t *record)
{
    char *text = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(12));
    if (!text || !add_key(j, record)) {
        free(text);
        return out_of_memory(j);
    }
    const int rc = wnw__journal_add(j->file, text, strlen(text));
    free(text);
    return app_status_code(rc);
}
