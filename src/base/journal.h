/* SPDX-License-Identifier: MIT */
/*
 * Files of lines to which finished work is added at once, so that a process that was killed goes on where it was:
 * the journal of a calibration, the results of an evaluation. Every line is one JSON value; the first may be a
 * header that says what the work belongs to. A last line without its end, because the process ended while it was
 * written, does not count, and the next line takes its place.
 *
 * Sentences name the file and the line, and say what to do. A journal belongs to one thread.
 */
#ifndef WNW_BASE_JOURNAL_H
#define WNW_BASE_JOURNAL_H

#include "base/err.h"

#include <jansson.h>

struct wnw__journal;

struct wnw__journal_params {
    const json_t *header; /* the first line; NULL = there is none */
    /* The file whose lock keeps other processes away, and that has the number of the process while it writes; NULL =
     * the journal itself is locked. */
    const char *lock;
    double sync_ms; /* a line is on the disk at most so much later, when another one is added; 0 = at once */
};

/* Opens the journal at path, or makes it, for this process alone. E_MISMATCH: it has another header; the sentence
 * names the first field that differs. E_FORMAT: it is no journal; nothing in it is changed. E_ARG: another process
 * has it open. E_IO, E_NOMEM. *out is released with wnw__journal_close, and NULL after a failure. */
int wnw__journal_open(struct wnw__journal **out, const char *path, const struct wnw__journal_params *params);
void wnw__journal_close(struct wnw__journal *j); /* puts what was added on the disk; NULL: does nothing */
/* Whether the process that wrote before has not closed the journal. Only a file of its own for the lock tells. */
bool wnw__journal_was_left(const struct wnw__journal *j);

/* Reads the next line; *v is NULL where there is no further complete one, else released with json_decref. E_FORMAT:
 * the line is not JSON. */
int wnw__journal_next(struct wnw__journal *j, json_t **v);
/* Removes the line that was read last from the journal: the next line that is added replaces it. Returns false and
 * changes nothing if anything follows that line in the file. */
bool wnw__journal_take_back(struct wnw__journal *j);
/* E_FORMAT with the sentence "line N of the journal 'PATH' WHY", of the line that was read last. */
int wnw__journal_damaged(const struct wnw__journal *j, const char *why);

/* Adds a line, text[len] without its line break, in one write. To be called once wnw__journal_next has found nothing.
 * After a failure the lines before it are whole, and it may be called again. E_IO, E_NOMEM. */
int wnw__journal_add(struct wnw__journal *j, const char *text, size_t len);
/* Writes to the disk what is not there yet. */
int wnw__journal_sync(struct wnw__journal *j);

#endif
