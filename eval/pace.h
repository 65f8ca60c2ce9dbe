/* SPDX-License-Identifier: MIT */
/* How long samples take on this machine. */
#ifndef WNW_EVAL_PACE_H
#define WNW_EVAL_PACE_H

#include "eval/config.h"
#include "eval/entry.h"
#include "eval/setup.h"

struct eval_pace {
    double token_ms, step_ms; /* for a token of a prompt; for a step of generation, whose batch shares it */
    bool measured;            /* both are the machine's */
    int32_t n_reads, n_waves; /* readings of a sample, and batches that answer it */
};

/* Measures the machine, unless nobody asks for the result, and lowers the numbers of samples to what
 * --time-budget allows, which it says on stderr. A run that goes on has the numbers that it began with. Returns
 * an exit code. */
int eval_pace_open(struct eval_pace *p, const struct eval_machine *m, const struct eval_configs *c,
                   struct eval_setup *s);
/* What a sample of an item is expected to take, in milliseconds. */
double eval_pace_cost(const struct eval_pace *p, const struct eval_item *item, int32_t index);

#endif
