/* SPDX-License-Identifier: MIT */
/* What a cache predicts for tokens that are fed to it, and how far that is from what the full cache predicts. */
#include "eval/run/forced.h"

#include "app/likelihood.h"
#include "app/sequence.h"
#include "base/vectors.h"
#include "eval/base/grow.h"

#include <string.h>

/* ---- Comparing ---- */

/* The mean of full - comp under full, less the difference of the two log sums, so that exp is taken once for an entry of full. */
double eval_kl(const float *full, const float *comp, double log_sum, int32_t n_vocab)
{
    const float max = full[wnw__argmax(full, n_vocab)];
    double sum = 0.0, less = 0.0;
    for (int32_t at = 0; at < n_vocab; at += APP_EXPS) {
        float p[APP_EXPS];
        const int32_t n_now = n_vocab - at < APP_EXPS ? n_vocab - at : APP_EXPS;
        app_exps(p, full + at, n_now, max);
        for (int32_t i = 0; i < n_now; i++) {
            sum += (double)p[i];
            less += (double)p[i] * ((double)full[at + i] - (double)comp[at + i]);
        }
    }
    const double kl = less / sum - ((double)max + log(sum) - log_sum);
    return kl < 0 ? 0 : kl;
}

void eval_agreement_add(struct eval_agreement *a, const float *full, const float *comp, double log_sum,
                        int32_t n_vocab)
{
    const bool same = wnw__argmax(full, n_vocab) == wnw__argmax(comp, n_vocab);
    a->n_lead += same && a->n_lead == a->n;
    a->n++;
    a->n_same += same;
    a->kl += eval_kl(full, comp, log_sum, n_vocab);
}

/* ---- Feeding ---- */

/* Takes the prediction of token number i. */
static void take(struct eval_forced *l, int32_t i, const float *logits)
{
    const size_t at = (size_t)i * (size_t)l->n_vocab;
    if (l->keep)
        memcpy(l->keep + at, logits, (size_t)l->n_vocab * sizeof *logits);
    const double log_sum = l->full || l->targets ? app_log_sum(logits, l->n_vocab) : 0.0;
    if (l->full)
        eval_agreement_add(l->same, l->full + at, logits, log_sum, l->n_vocab);
    if (l->targets)
        l->nll += log_sum - (double)logits[l->targets[i]];
}

struct feeding {
    struct eval_forced *l;
    int32_t n; /* predictions that are asked for */
};

static bool on_logits(int32_t i, const float *logits, void *user)
{
    struct feeding *f = user;
    if (i + 1 < f->n)
        take(f->l, i + 1, logits);
    return true;
}

int eval_force(struct eval_forced *l, wnw_session *s, const int32_t *ids, int32_t n, bool last, bool *good)
{
    struct feeding f = {l, n};
    const int32_t n_fed = last ? n - 1 : n;
    *good = wnw_session_logits(s) != NULL;
    if (!*good || n < 1)
        return APP_OK;
    take(l, 0, wnw_session_logits(s));
    const int status = n_fed > 0 ? wnw_session_prefill(s, ids, n_fed, on_logits, &f) : WNW_OK;
    *good = status == WNW_OK;
    return eval_status_code(status);
}

int eval_force_on(struct eval_forced *l, struct app_sequence *s, const float *predicts, const int32_t *ids,
                  int32_t n, bool last)
{
    struct feeding f = {l, n};
    const int32_t n_fed = last ? n - 1 : n;
    if (n < 1)
        return APP_OK;
    take(l, 0, predicts);
    return n_fed > 0 ? eval_status_code(app_sequence_read(s, ids, n_fed, on_logits, &f)) : APP_OK;
}
