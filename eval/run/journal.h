/* SPDX-License-Identifier: MIT */
/* The folder of a run: results.jsonl, which grows line by line and says what is done already, and a lock. */
#ifndef WNW_EVAL_JOURNAL_H
#define WNW_EVAL_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>

struct wnw__journal;
struct eval_journal {
    char *dir, *path;          /* owned; path is that of results.jsonl */
    struct wnw__journal *file; /* NULL = not open */
    json_t *keys;              /* of the records, as members with their scores (null without one), owned */
};

/* Makes the folder if it is not there, locks it and reads which records it holds. A last line that is not
 * whole is cut off. Returns an exit code: bad input if another process writes there, or if a line is damaged.
 * The caller closes in any case. */
int eval_journal_open(struct eval_journal *j, const char *dir);
void eval_journal_close(struct eval_journal *j);
bool eval_journal_has(const struct eval_journal *j, const char *key);
/* The score of a record, 0 to 1; NaN without a record or a score. */
double eval_journal_score(const struct eval_journal *j, const char *key);
/* Appends a record with the text "key" as one line. Returns an exit code. */
int eval_journal_add(struct eval_journal *j, const json_t *record);

#endif
