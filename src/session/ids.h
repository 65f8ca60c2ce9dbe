/* SPDX-License-Identifier: MIT */
/* Token ids that a sequence remembers: what it has read, and what a second pass may feed. */
#ifndef WNW_IDS_H
#define WNW_IDS_H

#include "base/err.h"

/* Starts as {0}; freed by wnw__ids_free. */
struct wnw__ids {
    int32_t *tokens; /* of all tokens read, by position; -1 below n_mixed */
    int32_t cap;     /* of tokens */
    int32_t n_mixed; /* below this position heads have different tokens at the same one (renumber.c) */
    /* What a task-aware second pass feeds: n_tasks runs of task_n[i] tokens, one behind the other. */
    int32_t *task_tokens, *task_n, n_tasks;
    int32_t *suffix, n_suffix; /* what ends the user's turn in the chat template; 0 = no template */
};

void wnw__ids_free(struct wnw__ids *ids);
/* to is {0} before; n_past tokens were read. Free `to` also after a failure. */
int wnw__ids_copy(struct wnw__ids *to, const struct wnw__ids *from, int32_t n_past);

/* Room for n more tokens behind n_past; what is there stays on failure. */
int wnw__ids_reserve(struct wnw__ids *ids, int32_t n_past, int32_t n);
/* Tokens that were read at positions n_past .. n_past + n - 1, for which there is room. */
void wnw__ids_add(struct wnw__ids *ids, int32_t n_past, const int32_t *tokens, int32_t n);

/* Both copy what they get; n = 0: none. Nothing changes on failure; none cannot fail for the suffix. */
int wnw__ids_set_tasks(struct wnw__ids *ids, const int32_t *const *tokens, const int32_t *n_tokens,
                       int32_t n_tasks);
int wnw__ids_set_suffix(struct wnw__ids *ids, const int32_t *tokens, int32_t n);
/* Exchanges the tasks and the suffix of the two; the tokens read stay. */
void wnw__ids_swap_given(struct wnw__ids *a, struct wnw__ids *b);

#endif
