/* SPDX-License-Identifier: MIT */
/* winnow inspect --answer: what an answer about a stored document attends to. */
#ifndef WNW_CLI_INSPECT_ANSWER_H
#define WNW_CLI_INSPECT_ANSWER_H

#include "winnow_store.h"

#include <jansson.h>

/* Answers a question about the file, greedily, with up to n tokens, and records the attention that produced each of them:
 * `{question, texts, ids, mass: [[position, share, position, share, ..], ..], document, behind}`. The last three have a row for each
 * token of the answer. Shares are means over the query heads of all layers without a sliding window, in 1/100000.
 * `document` is the share of all entries of the document, and `mass` has those of its largest entries. `behind` is the share of what
 * follows the document: the question and the answer so far. The caller releases *o, also after errors. Returns an exit code. */
struct inspect_question {
    const char *path, *text;
    int32_t n, n_threads; /* n_threads 0 = usable cores */
};
int cli_inspect_answer(json_t **o, const wnw_model *m, const struct inspect_question *q);

#endif
