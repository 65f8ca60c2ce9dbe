/* SPDX-License-Identifier: MIT */
/* What a cache predicts for tokens that are fed to it. */
#include "eval/run/listen.h"

#include "app/console.h"
#include "app/stop.h"

#include <string.h>

int eval_status_code(int status)
{
    return status == WNW_OK || status == WNW_E_NOT_FINITE ? APP_OK
           : status == WNW_E_CANCELLED                    ? (int)APP_INTERRUPTED
                                                          : app_fail_status(status);
}

/* Takes the prediction of token number i. */
static void take(struct eval_listener *l, int32_t i, const float *logits)
{
    const size_t at = (size_t)i * (size_t)l->n_vocab;
    if (l->keep)
        memcpy(l->keep + at, logits, (size_t)l->n_vocab * sizeof *logits);
    if (l->full)
        eval_agreement_add(l->same, l->full + at, logits, l->n_vocab);
    if (l->gold)
        l->nll += eval_token_nll(logits, l->n_vocab, l->gold[i]);
}

struct feeding {
    struct eval_listener *l;
    int32_t n; /* predictions that are asked for */
};

static bool on_logits(int32_t i, const float *logits, void *user)
{
    struct feeding *f = user;
    if (i + 1 < f->n)
        take(f->l, i + 1, logits);
    return true;
}

int eval_listen(struct eval_listener *l, wnw_session *s, const int32_t *ids, int32_t n, bool last, bool *good)
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
