/* SPDX-License-Identifier: MIT */
/* What a cache predicts for tokens that are fed to it. */
#ifndef WNW_EVAL_LISTEN_H
#define WNW_EVAL_LISTEN_H

#include "eval/run/compare.h"
#include "winnow.h"

#include <stddef.h>

/* The exit code of a status of a session that reads or generates. Logits that are not numbers are no failure: who asks for
 * them finds that there are none. */
int eval_status_code(int status);

/* What happens to the prediction of each token. */
struct eval_listener {
    int32_t n_vocab;
    float *keep;                 /* [tokens][n_vocab]: it is stored; NULL = no */
    const float *full;           /* [tokens][n_vocab]: it is compared with these; NULL = no */
    struct eval_agreement *same; /* sums of the comparison */
    const int32_t *gold;         /* [tokens]: it is asked for these tokens; NULL = no */
    double nll;                  /* sum of what they cost, in nats */
};

/* Feeds ids[n]; the session predicts the first of them already. `last`: the prediction after the last one is not
 * needed, which saves feeding it. Sets *good to false where logits are not numbers, and returns an exit code. */
int eval_listen(struct eval_listener *l, wnw_session *s, const int32_t *ids, int32_t n, bool last,
                bool *good);

#endif
