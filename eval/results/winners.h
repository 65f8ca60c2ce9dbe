/* SPDX-License-Identifier: MIT */
/* Which method has the highest mean at a size, and which others the samples cannot tell from it. */
#ifndef WNW_EVAL_WINNERS_H
#define WNW_EVAL_WINNERS_H

#include "eval/results/versus.h"

/* The methods of a protocol that have the same size and type of cache. */
struct eval_winner {
    int32_t best; /* variant with the highest mean over the informative tasks; of equal means the first */
    struct eval_versus
        *other; /* [n_others] best minus each other on the samples of both, from high means to low; owned */
    int32_t n_others;
};

/* Makes a block's winners in the order of its rows; full caches take no part. Returns an exit code. The caller releases
 * *out with eval_winners_free in any case. */
int eval_winners_make(struct eval_winner **out, int32_t *n, const struct eval_tables *t,
                      const struct eval_block *b);
void eval_winners_free(struct eval_winner *winners, int32_t n);

#endif
