/* SPDX-License-Identifier: MIT */
/* What a session gathers while it reads, beside the window of queries: mean and covariance of all queries. */
#include "policy.h"
#include "qstats.h"
#include "session.h"

#include <stdlib.h>

static int observe_queries(wnw_session *s, int32_t skip)
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
    const int rc = wnw__qstats_new(&s->qstats, &params, left_out);
    free(left_out);
    return rc;
}

int wnw__session_observe_stats(wnw_session *s, const wnw_policy *const *policies, int32_t n)
{
    wnw_needs needs = {0};
    WNW_TRY(wnw__needs_agree(policies, n));
    wnw__qstats_free(s->qstats);
    s->qstats = NULL;
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs more = wnw_policy_needs(policies[i]);
        wnw__needs_merge(&needs, &more);
    }
    if (needs.flags & WNW_NEED_QUERY_STATS)
        WNW_TRY(observe_queries(s, needs.skip));
    return WNW_OK;
}
