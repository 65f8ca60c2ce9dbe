/* SPDX-License-Identifier: MIT */
#include "profile/input_gate.h"

#include "base/err.h"

#include <stdlib.h>

const char *const wnw__input_forms[] = {"linear", "mlp", "attention", NULL};

/* Numbers of all layers: 4 GB. Gates for models of 8 billion weights have about 80 million. */
#define MOST_NUMBERS (INT64_C(1) << 30)

int32_t wnw__input_tables(const struct wnw__input_gate *g, const struct wnw__shape *shape,
                          struct wnw__input_table out[WNW_INPUT_TABLES])
{
    const int32_t G = shape->n_head_kv, H = shape->n_head, n = g->n_embd, m = g->n_hidden, e = g->n_dim;
    const struct wnw__input_table linear[] = {{"W", G, n}, {"b", 1, G}};
    const struct wnw__input_table mlp[] = {{"W1", m, n}, {"b1", 1, m}, {"W2", G, m}, {"b2", 1, G}};
    const struct wnw__input_table attention[] = {{"Wq", H * e, n}, {"bq", 1, H * e}, {"Wk", G * e, n},
                                                 {"nq", 1, e},     {"nk", 1, e},     {"B", G * g->n_sink, e},
                                                 {"b", 1, H}};
    const struct {
        const struct wnw__input_table *table;
        int32_t n;
    } of[] = {[WNW_INPUT_LINEAR] = {linear, sizeof linear / sizeof *linear},
              [WNW_INPUT_MLP] = {mlp, sizeof mlp / sizeof *mlp},
              [WNW_INPUT_ATTENTION] = {attention, sizeof attention / sizeof *attention}};
    for (int32_t i = 0; i < of[g->form].n; i++)
        out[i] = of[g->form].table[i];
    return of[g->form].n;
}

int64_t wnw__input_numbers(const struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    struct wnw__input_table table[WNW_INPUT_TABLES];
    const int32_t n = wnw__input_tables(g, shape, table);
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (int64_t)table[i].n_row * table[i].n_col;
    return sum;
}

int wnw__input_gate_new(struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    const int64_t each = wnw__input_numbers(g, shape);
    if (each < 1 || each > MOST_NUMBERS / shape->n_layer)
        return wnw__fail(WNW_E_RANGE,
                         "gates of %lld numbers in each of %d layers; at most %lld in all are read",
                         (long long)each, (int)shape->n_layer, (long long)MOST_NUMBERS);
    g->number = calloc((size_t)each * (size_t)shape->n_layer, sizeof *g->number);
    g->there = calloc((size_t)shape->n_layer, sizeof *g->there);
    if (g->number && g->there)
        return WNW_OK;
    wnw__input_gate_free(g);
    return wnw__fail(WNW_E_NOMEM, "no memory for gates of %lld numbers in each of %d layers", (long long)each,
                     (int)shape->n_layer);
}

void wnw__input_gate_free(struct wnw__input_gate *g)
{
    free(g->number);
    free(g->there);
    g->number = NULL;
    g->there = NULL;
}
