/* SPDX-License-Identifier: MIT */
/* How long samples take on this machine. */
#ifndef WNW_EVAL_PACE_H
#define WNW_EVAL_PACE_H

#include "eval/run/config.h"
#include "eval/run/entry.h"
#include "eval/run/setup.h"

struct eval_pace {
    double token_ms, step_ms; /* for a token of a prompt; for a step of generation, whose batch shares it */
    bool measured;            /* both are the machine's */
    int32_t n_reads, n_waves; /* readings of a sample, and batches that answer it */
    int32_t n_ctx;            /* what the model can read; longer items cost nothing */
};

/* Measures the machine's speed and lowers the numbers of samples to what --time-budget allows. The budget is that of a process with one
 * of n_shards equal parts. Prints the numbers on stderr. A continued run keeps the numbers that it began with. If it is quiet and
 * has no time budget, nothing is measured. Returns an exit code. */
int eval_pace_open(struct eval_pace *p, const struct eval_runtime *m, const struct eval_configs *c,
                   struct eval_setup *s, int32_t n_shards);
/* Lowers the numbers of samples until one of n_shards equal parts is expected to take `ms` milliseconds, and says so. */
void eval_pace_cut(const struct eval_pace *p, struct eval_items *items, int32_t n_shards, double ms);
/* What a sample of an item is expected to take, in milliseconds; 0 where the item is left out because it is too long. */
double eval_pace_cost(const struct eval_pace *p, const struct eval_item *item, int32_t index);

#endif
