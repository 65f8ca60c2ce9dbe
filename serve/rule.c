/* SPDX-License-Identifier: MIT */
/* What holds for a slot: its rule, and the first tokens that stay whole. */
#include "serve/compress.h"

#include "serve/automatic.h"
#include "serve/document_cells.h"

int serve_choose_rule(struct serve_rule *out, const struct serve_watched *w, int32_t seq, int32_t n, bool fed)
{
    const struct serve_want *want = &w->rule[seq].want;
    wnw_policy_facts facts;
    const wnw_automatic of = serve_automatic_of(&facts, want, fed);
    char *recipe;
    *out = (struct serve_rule){.want = *want};
    /* What is asked about a document comes later. The rows are the same, and what they need: one keeps less of the end. */
    facts.question_known = serve_slots_stores(seq) == 0;
    facts.phase = want->chunk > 0 ? WNW_PHASE_CHUNK : WNW_PHASE_END;
    facts.queries_unknown = serve_watched_shares_caches(w);
    int rc = wnw_automatic_choose(&recipe, &of, n, w->held[seq].restored || w->held[seq].unnoted);
    rc = rc == WNW_OK ? serve_want_set(&out->want, recipe, &out->policy) : rc;
    wnw_free(recipe);
    return rc;
}

int32_t serve_compress_header(const struct serve_watched *w, int32_t seq)
{
    const int32_t n_shared = serve_document_cells_shared(w, seq), n = w->rule[seq].want.n_protected;
    return n > n_shared ? n : n_shared;
}
