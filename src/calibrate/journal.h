/* SPDX-License-Identifier: MIT */
/*
 * The journal of a calibration: a file of lines, to which every finished piece of work is added at once. The
 * first line is a header that says what the work belongs to; each other line is {"unit": NAME, "result":
 * ...}. Work that is taken up again asks for its units in the same order and finds those that were finished.
 * A last line that is not complete, because the process ended while it was written, is dropped.
 */
#ifndef WNW_CALIBRATE_JOURNAL_H
#define WNW_CALIBRATE_JOURNAL_H

#include "base/err.h"

#include <jansson.h>

struct wnw__journal;

/* Opens the journal at path, or makes it. E_MISMATCH: it has another header; the sentence names the first
 * field that differs. E_FORMAT: it is no journal. E_ARG: another process has it open. E_IO. *out is released
 * with wnw__journal_close. */
int wnw__journal_open(struct wnw__journal **out, const char *path, const json_t *header);
void wnw__journal_close(struct wnw__journal *j);

/* Takes the next result out of the journal; *result is NULL where it has no more, else released with
 * json_decref. E_FORMAT: the line is damaged, or of another unit. */
int wnw__journal_next(struct wnw__journal *j, const char *unit, json_t **result);
/* Adds a result and has it written before the call returns. To be called once wnw__journal_next has found
 * nothing. */
int wnw__journal_add(struct wnw__journal *j, const char *unit, const json_t *result);

#endif
