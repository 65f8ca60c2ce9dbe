/* SPDX-License-Identifier: MIT */
#include "session/ids.h"

#include <stdlib.h>
#include <string.h>

void wnw__ids_free(struct wnw__ids *ids)
{
    free(ids->tokens);
    free(ids->task_tokens);
    free(ids->task_n);
    free(ids->suffix);
    *ids = (struct wnw__ids){0};
}

int wnw__ids_reserve(struct wnw__ids *ids, int32_t n_past, int32_t n)
{
    if (n <= ids->cap - n_past)
        return WNW_OK;
    /* A first prompt is reserved at once; what comes after it arrives in small pieces. */
    const int64_t need = (int64_t)n_past + n, more = n_past > 0 ? (int64_t)ids->cap + ids->cap / 8 : need;
    const int32_t cap = (int32_t)(need > more ? need : more > INT32_MAX ? INT32_MAX : more);
    int32_t *tokens = realloc(ids->tokens, (size_t)cap * sizeof *tokens);
    if (!tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d token ids", (int)cap);
    ids->tokens = tokens;
    ids->cap = cap;
    return WNW_OK;
}

void wnw__ids_add(struct wnw__ids *ids, int32_t n_past, const int32_t *tokens, int32_t n)
{
    memcpy(ids->tokens + n_past, tokens, (size_t)n * sizeof *tokens);
}

int wnw__ids_set_tasks(struct wnw__ids *ids, const int32_t *const *tokens, const int32_t *n_tokens,
                       int32_t n_tasks)
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
    free(ids->task_tokens);
    free(ids->task_n);
    ids->task_tokens = all;
    ids->task_n = n;
    ids->n_tasks = n_tasks;
    for (int32_t i = 0; i < n_tasks; all += n[i++]) {
        n[i] = n_tokens[i];
        memcpy(all, tokens[i], (size_t)n[i] * sizeof *all);
    }
    return WNW_OK;
}

int wnw__ids_set_suffix(struct wnw__ids *ids, const int32_t *tokens, int32_t n)
{
    int32_t *copy = n > 0 ? malloc((size_t)n * sizeof *copy) : NULL;
    if (n > 0 && !copy)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d tokens of a template", (int)n);
    if (n > 0)
        memcpy(copy, tokens, (size_t)n * sizeof *copy);
    free(ids->suffix);
    ids->suffix = copy;
    ids->n_suffix = n;
    return WNW_OK;
}

static int copy_tasks(struct wnw__ids *to, const struct wnw__ids *from)
{
    const int32_t **tokens = malloc(((size_t)from->n_tasks + 1) * sizeof *tokens);
    if (!tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d tasks", (int)from->n_tasks);
    const int32_t *at = from->task_tokens;
    for (int32_t i = 0; i < from->n_tasks; at += from->task_n[i++])
        tokens[i] = at;
    const int rc = wnw__ids_set_tasks(to, tokens, from->task_n, from->n_tasks);
    free(tokens);
    return rc;
}

int wnw__ids_copy(struct wnw__ids *to, const struct wnw__ids *from, int32_t n_past)
{
    WNW_TRY(wnw__ids_reserve(to, 0, n_past));
    if (n_past > 0)
        wnw__ids_add(to, 0, from->tokens, n_past);
    to->n_ambiguous = from->n_ambiguous;
    WNW_TRY(copy_tasks(to, from));
    return wnw__ids_set_suffix(to, from->suffix, from->n_suffix);
}

void wnw__ids_swap_given(struct wnw__ids *a, struct wnw__ids *b)
{
    const struct wnw__ids was = *a;
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
