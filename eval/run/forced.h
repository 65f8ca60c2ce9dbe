/* SPDX-License-Identifier: MIT */
/* Teacher forcing: what a cache predicts for tokens that are fed to it, compared with the full cache's predictions for the same
 * tokens. */
#ifndef WNW_EVAL_FORCED_H
#define WNW_EVAL_FORCED_H

#include "winnow.h"

#include <stdbool.h>
#include <stdint.h>

/* sum_v p (log p - log q) in nats, p = softmax(full), q = softmax(comp). Sums are in double precision with the
 * maximum taken out; differences below 0, which rounding leaves where p = q, become 0. log_sum: app_log_sum of comp,
 * which callers need for more than this. */
double eval_kl(const float *full, const float *comp, double log_sum, int32_t n_vocab);

/* Sums over the positions that were compared. */
struct eval_agreement {
    int32_t n;      /* positions */
    int32_t n_same; /* of these, those where both have the same most likely token */
    int32_t n_lead; /* of these, those before the first difference */
    double kl;      /* sum */
};
/* log_sum: as above. */
void eval_agreement_add(struct eval_agreement *a, const float *full, const float *comp, double log_sum,
                        int32_t n_vocab);

/* What happens to the prediction of each token. */
struct eval_forced {
    int32_t n_vocab;
    float *keep;                 /* [tokens][n_vocab]: it is stored; NULL = no */
    const float *full;           /* [tokens][n_vocab]: it is compared with these; NULL = no */
    struct eval_agreement *same; /* sums of the comparison */
    const int32_t *targets;      /* [tokens]: it is asked for these tokens; NULL = no */
    double nll;                  /* sum of what they cost, in nats */
};

/* Feeds ids[n]; the session predicts the first of them already. `last`: the prediction after the last one is not
 * needed, which saves feeding it. Sets *good to false where logits are not numbers, and returns an exit code. */
int eval_force(struct eval_forced *l, wnw_session *s, const int32_t *ids, int32_t n, bool last, bool *good);
/* The same with a sequence on devices, which after what it has read predicts `predicts`. */
struct app_sequence;
int eval_force_on(struct eval_forced *l, struct app_sequence *s, const float *predicts, const int32_t *ids,
                  int32_t n, bool last);

#endif
