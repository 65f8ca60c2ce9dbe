/* SPDX-License-Identifier: MIT */
/* The score of each question on one context. */
#include "eval/results/turns.h"

#include <math.h>

int32_t eval_turn_means(double mean[EVAL_MAX_TURNS], const struct eval_run *run, const struct eval_block *b,
                        int32_t task, int32_t variant)
{
    double sum[EVAL_MAX_TURNS] = {0};
    int32_t n[EVAL_MAX_TURNS] = {0}, n_turns = 0;
    for (int32_t k = 0; k < b->n_strata; k++)
        for (size_t i = b->strata[k].begin; b->strata[k].task == task && i < b->strata[k].end; i++) {
            const struct eval_result *r = &run->results[i];
            if (isnan(r->m[EVAL_M_SCORE]))
                continue;
            n_turns = r->turn >= n_turns ? r->turn + 1 : n_turns;
            if (r->turn >= EVAL_MAX_TURNS)
                continue;
            sum[r->turn] += r->variant == variant ? 100.0 * r->m[EVAL_M_SCORE] : 0.0;
            n[r->turn] += r->variant == variant;
        }
    for (int32_t i = 0; i < EVAL_MAX_TURNS; i++)
        mean[i] = n[i] > 0 ? sum[i] / n[i] : NAN;
    return n_turns;
}

int32_t eval_turns_shown(int32_t n_turns)
{
    return n_turns < EVAL_MAX_TURNS ? n_turns : EVAL_MAX_TURNS;
}
