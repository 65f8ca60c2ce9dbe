/* SPDX-License-Identifier: MIT */
/* Token ids that a session remembers: those it has read and those that a second pass may feed. */
#ifndef WNW_TOKEN_LOG_H
#define WNW_TOKEN_LOG_H

#include "base/err.h"

/* The struct starts as {0} and is freed by wnw__token_log_free. */
struct wnw__token_log {
    int32_t *tokens; /* [cap] ids of all tokens read, by position; -1 below n_ambiguous */
    int32_t cap;     /* allocated elements of tokens */
    /* below this position, heads hold different tokens at the same position (renumber.c) */
    int32_t n_ambiguous;
    /* A task-aware second pass feeds n_tasks tasks; task_tokens holds their task_n[i] tokens one after
     * another. */
    int32_t *task_tokens, *task_n, n_tasks;
    int32_t *suffix, n_suffix; /* tokens that end the user's turn in the chat template; n_suffix 0 = none */
};

void wnw__token_log_free(struct wnw__token_log *log);
/* Copies into `to`, which is {0} before; n_past is the number of tokens read. The caller frees `to` also
 * after a failure. */
int wnw__token_log_copy(struct wnw__token_log *to, const struct wnw__token_log *from, int32_t n_past);

/* Makes room for n more tokens after n_past. On failure the ids stay as they were. */
int wnw__token_log_reserve(struct wnw__token_log *log, int32_t n_past, int32_t n);
/* Stores the tokens that were read at positions n_past .. n_past + n - 1. wnw__token_log_reserve has made room for
 * them. */
void wnw__token_log_add(struct wnw__token_log *log, int32_t n_past, const int32_t *tokens, int32_t n);

/* Both replace what was set by a copy of the arguments; n = 0 (n_tasks = 0) sets none. Nothing changes on
 * failure. Setting no suffix cannot fail. */
int wnw__token_log_set_tasks(struct wnw__token_log *log, const int32_t *const *tokens,
                             const int32_t *n_tokens, int32_t n_tasks);
int wnw__token_log_set_suffix(struct wnw__token_log *log, const int32_t *tokens, int32_t n);
/* Exchanges the tasks and the suffix of a and b; the tokens read stay where they are. */
void wnw__token_log_swap_given(struct wnw__token_log *a, struct wnw__token_log *b);

#endif
