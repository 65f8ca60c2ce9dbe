/* SPDX-License-Identifier: MIT */
/* Random things that several tasks need. */
#include "eval/tasks/draws.h"

#include "base/vectors.h"
#include "eval/tasks/prose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void eval_draw_value(char out[EVAL_MAX_VALUE], struct eval_random *r, enum eval_value kind)
{
    if (kind == EVAL_NUMBER) {
        snprintf(out, EVAL_MAX_VALUE, "%d", (int)(1000000 + eval_random_below(r, 9000000)));
    } else if (kind == EVAL_WORDS) {
        const char *adjective = eval_draw(r, &eval_adjectives);
        snprintf(out, EVAL_MAX_VALUE, "%s-%s", adjective, eval_draw(r, &eval_nouns));
    } else { /* version 4, variant 10 */
        const uint64_t a = eval_random_next(r), b = eval_random_next(r);
        snprintf(out, EVAL_MAX_VALUE, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32),
                 (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff), (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
                 (unsigned long long)(b & UINT64_C(0xffffffffffff)));
    }
}

const char *eval_value_name(enum eval_value kind)
{
    static const char *const names[] = {"number", "word", "uuid"};
    return names[kind];
}

char *eval_needle_text(struct eval_sample *s, enum eval_value kind, const char *key, const char *value)
{
    struct app_text text = {0};
    eval_put_template(s, &text, eval_form_niah_one.at[EVAL_NEEDLE],
                      (const char *const[]){"type", eval_value_name(kind), "key", key, "value", value, NULL});
    return text.s;
}

size_t *eval_iota(size_t n)
{
    size_t *ids = malloc((n + 1) * sizeof *ids);
    for (size_t i = 0; ids && i < n; i++)
        ids[i] = i;
    return ids;
}

bool eval_draw_ascending(struct eval_sample *s, size_t *out, struct eval_random *r, size_t n, size_t k)
{
    size_t *ids = eval_iota(n);
    if (!ids) {
        s->no_memory = true;
        return false;
    }
    eval_random_sample(r, ids, n, k);
    memcpy(out, ids, k * sizeof *out);
    free(ids);
    if (k > 1)
        qsort(out, k, sizeof *out, wnw__ascending_size);
    return true;
}

size_t *eval_draw_repeated(size_t *n_all, struct eval_random *r, const size_t *times, size_t n)
{
    *n_all = 0;
    for (size_t i = 0; i < n; i++)
        *n_all += times[i];
    size_t *ids = malloc((*n_all + 1) * sizeof *ids), k = 0;
    for (size_t i = 0; ids && i < n; i++)
        for (size_t c = 0; c < times[i]; c++)
            ids[k++] = i;
    if (ids)
        eval_random_shuffle(r, ids, *n_all);
    return ids;
}

bool eval_is_repeated(const void *list, size_t size, size_t i)
{
    const char *texts = list;
    for (size_t k = 0; k < i; k++)
        if (strcmp(texts + k * size, texts + i * size) == 0)
            return true;
    return false;
}
