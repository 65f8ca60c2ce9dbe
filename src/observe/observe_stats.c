/* SPDX-License-Identifier: MIT */
/* What a session gathers while it reads, beside the window of queries: mean and covariance of all queries,
 * and likelihoods of the last tokens. */
#include "observe/observe.h"
#include "observe/qstats.h"
#include "policy/policy.h"
#include "session/session.h"

#include <stdlib.h>

static int new_qstats(const wnw_session *s, int32_t skip, struct wnw__qstats **out)
{
    const struct wnw__hparams *hp = &s->m->hp;
    const struct wnw__qstats_params params = {.n_layer = hp->n_layer,
                                              .n_head = hp->n_head,
                                              .d = hp->n_embd_head,
                                              .n_threads = s->params.n_threads,
                                              .skip = skip,
                                              .scale = hp->q_scale};
    bool *left_out = calloc((size_t)hp->n_layer, sizeof *left_out);
    if (!left_out)
        return wnw__fail(WNW_E_NOMEM, "no memory for query statistics");
    for (int32_t il = 0; il < hp->n_layer; il++)
        left_out[il] = wnw__layer_is_swa(hp, il); /* policies leave those alone */
    const int rc = wnw__qstats_new(out, &params, left_out);
    free(left_out);
    return rc;
}

int wnw__session_stats_new(const wnw_session *s, const wnw_policy *const *policies, int32_t n,
                           struct wnw__stats *out)
{
    wnw_needs needs = {0};
    int32_t n_nll = 0;
    *out = (struct wnw__stats){0};
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs more = wnw_policy_needs(policies[i]);
        wnw__needs_merge(&needs, &more);
        if ((more.flags & WNW_NEED_PERPLEXITY) && more.window > n_nll)
            n_nll = more.window;
    }
    out->proj_norm = needs.flags & WNW_NEED_PROJ_NORM;
    if (needs.flags & WNW_NEED_QUERY_STATS)
        WNW_TRY(new_qstats(s, needs.skip, &out->qstats));
    const int rc = wnw__nll_init(&out->nll, n_nll < s->params.n_ctx ? n_nll : s->params.n_ctx);
    if (rc != WNW_OK)
        wnw__session_stats_free(out);
    return rc;
}

void wnw__session_stats_free(struct wnw__stats *stats)
{
    wnw__qstats_free(stats->qstats);
    wnw__nll_free(&stats->nll);
    *stats = (struct wnw__stats){0};
}

void wnw__session_stats_take(wnw_session *s, const struct wnw__stats *stats)
{
    wnw__qstats_free(s->qstats);
    wnw__nll_free(&s->nll);
    s->qstats = stats->qstats;
    s->nll = stats->nll;
    for (int kind = WNW_AUX_PROJ; kind < WNW_N_AUX && !stats->proj_norm; kind++)
        (void)wnw__cache_set_aux(&s->cache, (enum wnw__aux)kind, 0);
}

void wnw__session_take_nll(wnw_session *s, const int32_t *tokens, int32_t n, const struct ggml_tensor *logits)
{
    const struct wnw__nll_batch batch = {.tokens = tokens,
                                         .first = s->n_past,
                                         .n = n,
                                         .before = s->has_logits ? s->logits : NULL,
                                         .rows = logits->data,
                                         .n_rows = (int32_t)logits->ne[1],
                                         .n_vocab = s->m->hp.n_vocab,
                                         .n_threads = s->params.n_threads};
    wnw__nll_take(&s->nll, &batch);
}
