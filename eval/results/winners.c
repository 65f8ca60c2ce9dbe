/* SPDX-License-Identifier: MIT */
/* The highest mean at each size. */
#include "eval/results/winners.h"

#include "app/console.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct place {
    const struct eval_row *row;
    int32_t order;
};

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->row->macro.mean != y->row->macro.mean)
        return x->row->macro.mean > y->row->macro.mean ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Whether a row takes part, and is of the same size and type as another. */
static bool takes_part(const struct eval_run *run, const struct eval_row *row)
{
    return !run->variants[row->variant].full && !isnan(row->macro.mean);
}

static bool same_size(const struct eval_run *run, const struct eval_row *a, const struct eval_row *b)
{
    const struct eval_variant *x = &run->variants[a->variant], *y = &run->variants[b->variant];
    return takes_part(run, b) && strcmp(x->size, y->size) == 0 && strcmp(x->kv_type, y->kv_type) == 0;
}

/* The winner among the rows of the size of row i; places[] is room for them. */
static bool make_one(struct eval_winner *w, struct place *places, const struct eval_tables *t,
                     const struct eval_block *b, int32_t i)
{
    int32_t n = 0;
    bool good = true;
    for (int32_t k = i; k < b->n_rows; k++)
        if (same_size(t->run, &b->rows[i], &b->rows[k])) {
            places[n] = (struct place){&b->rows[k], k};
            n++;
        }
    qsort(places, (size_t)n, sizeof *places, compare);
    *w = (struct eval_winner){
        .best = places[0].row->variant, .other = calloc((size_t)n, sizeof *w->other), .n_others = n - 1};
    for (int32_t k = 1; w->other && good && k < n; k++) {
        w->other[k - 1] = (struct eval_versus){.block = b, .a = w->best, .b = places[k].row->variant};
        good = eval_versus_measure(&w->other[k - 1], t);
    }
    return good && w->other;
}

int eval_winners_make(struct eval_winner **out, int32_t *n, const struct eval_tables *t,
                      const struct eval_block *b)
{
    struct place *places = malloc(((size_t)b->n_rows + 1) * sizeof *places);
    *n = 0;
    *out = calloc((size_t)b->n_rows + 1, sizeof **out);
    bool good = places && *out;
    for (int32_t i = 0; good && i < b->n_rows; i++) {
        bool had = !takes_part(t->run, &b->rows[i]);
        for (int32_t k = 0; k < i && !had; k++)
            had = takes_part(t->run, &b->rows[k]) && same_size(t->run, &b->rows[k], &b->rows[i]);
        if (!had)
            good = make_one(&(*out)[(*n)++], places, t, b, i);
    }
    free(places);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for the winners");
}

void eval_winners_free(struct eval_winner *winners, int32_t n)
{
    for (int32_t i = 0; winners && i < n; i++)
        free(winners[i].other);
    free(winners);
}
