/* SPDX-License-Identifier: MIT */
/* winnow inspect --answer: what an answer about a stored document attends to. */
#ifndef WNW_CLI_INSPECT_ANSWER_H
#define WNW_CLI_INSPECT_ANSWER_H

#include "winnow_store.h"

#include <jansson.h>

/* Answers a question about the file, greedily, with up to n tokens, and looks at the attention from which each of them came:
 * {question, texts, ids, mass: [[position, share, position, share, ..], ..], document, behind}. mass and the two lists of shares have a row for
 * each token of the answer: shares are means over all layers without a sliding window and their query heads, in 1/100000;
 * document: of all entries of the document, of which mass has the largest; behind: of the question and the answer so far. The caller
 * releases *o after errors, too. Returns an exit code. */
struct inspect_question {
    const char *path, *text;
    int32_t n, n_threads; /* n_threads 0 = usable cores */
};
int cli_inspect_answer(json_t **o, const wnw_model *m, const struct inspect_question *q);

#endif
