/* SPDX-License-Identifier: MIT */
#include "session/timeline/token_log.h"

#include <stdlib.h>
#include <string.h>

void wnw__token_log_free(struct wnw__token_log *log)
{
    free(log->tokens);
    free(log->task_tokens);
    free(log->task_n);
    free(log->suffix);
    *log = (struct wnw__token_log){0};
}

int wnw__token_log_reserve(struct wnw__token_log *log, int32_t n_past, int32_t n)
{
    if (n <= log->cap - n_past)
        return WNW_OK;
    /* A first prompt is reserved at once; what comes after it arrives in small pieces. */
    const int64_t need = (int64_t)n_past + n, more = n_past > 0 ? (int64_t)log->cap + log->cap / 8 : need;
    const int64_t slack = more < INT32_MAX ? more : INT32_MAX;
    const int32_t cap = (int32_t)(need > more ? need : slack);
    int32_t *tokens = realloc(log->tokens, (size_t)cap * sizeof *tokens);
    if (!tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d token ids", (int)cap);
    log->tokens = tokens;
    log->cap = cap;
    return WNW_OK;
}

void wnw__token_log_add(struct wnw__token_log *log, int32_t n_past, const int32_t *tokens, int32_t n)
{
    memcpy(log->tokens + n_past, tokens, (size_t)n * sizeof *tokens);
}

int wnw__token_log_set_tasks(struct wnw__token_log *log, const int32_t *const *tokens,
                             const int32_t *n_tokens, int32_t n_tasks)
{
    size_t total = 0;
    for (int32_t i = 0; i < n_tasks; i++)
        total += (size_t)n_tokens[i];
    int32_t *all = malloc((total + 1) * sizeof *all), *n = malloc(((size_t)n_tasks + 1) * sizeof *n);
    if (!all || !n) {
        free(all);
        free(n);
        return wnw__fail(WNW_E_NOMEM, "no memory for %d tasks", (int)n_tasks);
    }
    free(log->task_tokens);
    free(log->task_n);
    log->task_tokens = all;
    log->task_n = n;
    log->n_tasks = n_tasks;
    for (int32_t i = 0; i < n_tasks; all += n[i++]) {
        n[i] = n_tokens[i];
        memcpy(all, tokens[i], (size_t)n[i] * sizeof *all);
    }
    return WNW_OK;
}

int wnw__token_log_set_suffix(struct wnw__token_log *log, const int32_t *tokens, int32_t n)
{
    int32_t *copy = n > 0 ? malloc((size_t)n * sizeof *copy) : NULL;
    if (n > 0 && !copy)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d tokens of a template", (int)n);
    if (n > 0)
        memcpy(copy, tokens, (size_t)n * sizeof *copy);
    free(log->suffix);
    log->suffix = copy;
    log->n_suffix = n;
    return WNW_OK;
}

static int copy_tasks(struct wnw__token_log *to, const struct wnw__token_log *from)
{
    const int32_t **tokens = malloc(((size_t)from->n_tasks + 1) * sizeof *tokens);
    if (!tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d tasks", (int)from->n_tasks);
    const int32_t *at = from->task_tokens;
    for (int32_t i = 0; i < from->n_tasks; at += from->task_n[i++])
        tokens[i] = at;
    const int rc = wnw__token_log_set_tasks(to, tokens, from->task_n, from->n_tasks);
    free(tokens);
    return rc;
}

int wnw__token_log_copy(struct wnw__token_log *to, const struct wnw__token_log *from, int32_t n_past)
{
    WNW_TRY(wnw__token_log_reserve(to, 0, n_past));
    if (n_past > 0)
        wnw__token_log_add(to, 0, from->tokens, n_past);
    to->n_ambiguous = from->n_ambiguous;
    WNW_TRY(copy_tasks(to, from));
    return wnw__token_log_set_suffix(to, from->suffix, from->n_suffix);
}

void wnw__token_log_swap_given(struct wnw__token_log *a, struct wnw__token_log *b)
{
    const struct wnw__token_log was = *a;
    a->task_tokens = b->task_tokens;
    a->task_n = b->task_n;
    a->n_tasks = b->n_tasks;
    a->suffix = b->suffix;
    a->n_suffix = b->n_suffix;
    b->task_tokens = was.task_tokens;
    b->task_n = was.task_n;
    b->n_tasks = was.n_tasks;
    b->suffix = was.suffix;
    b->n_suffix = was.n_suffix;
}
