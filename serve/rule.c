/* SPDX-License-Identifier: MIT */
/* What holds for a slot: its rule, and the first tokens that stay whole. */
#include "serve/compress.h"

#include "serve/automatic.h"
#include "serve/document_cells.h"

int serve_choose_rule(struct serve_rule *out, const struct serve_watched *w, int32_t seq, int32_t n, bool fed)
{
    const struct serve_keep_rule *keep_rule = &w->rule[seq].keep_rule;
    wnw_policy_facts facts;
    const wnw_automatic of = serve_automatic_of(&facts, keep_rule, fed);
    char *recipe;
    *out = (struct serve_rule){.keep_rule = *keep_rule};
    /* What is asked about a document comes later. The rows are the same, and what they need: one keeps less of the end. */
    facts.question_known = serve_slots_stores(seq) == 0;
    facts.phase = keep_rule->chunk > 0 ? WNW_PHASE_CHUNK : WNW_PHASE_END;
    facts.queries_unknown = serve_watched_shares_caches(w);
    int rc = wnw_automatic_choose(&recipe, &of, n, w->slot_cache[seq].restored || w->slot_cache[seq].unnoted);
    if (rc == WNW_OK)
        rc = serve_keep_rule_set(&out->keep_rule, recipe, &out->policy);
    wnw_free(recipe);
    return rc;
}

int32_t serve_compress_header(const struct serve_watched *w, int32_t seq)
{
    const int32_t n_shared = serve_document_cells_shared(w, seq), n = w->rule[seq].keep_rule.n_protected;
    return n > n_shared ? n : n_shared;
}

wnw_turns serve_compress_turns(const struct serve_watched *w, int32_t seq)
{
    const struct serve_slot_cache *s = &w->slot_cache[seq];
    return (wnw_turns){WNW_INIT(wnw_turns),         .n_header = serve_compress_header(w, seq),
                       .n = w->sequences.of[seq].n, .n_judged = s->n_judged,
                       .at_prompt = s->at_prompt,   .compressed = s->compressed};
}
