/* SPDX-License-Identifier: MIT */
/*
 * The rule of policies whose heads slide (DuoAttention): the heads that the prompt's compression has cut drop an entry
 * with every token that is decoded, the others grow.
 */
#include "method/count.h"
#include "policy/policy.h"
#include "session/rules/rules.h"
#include "session/session.h"

#include <stdlib.h>

/* Remembers which heads the prompt's compression has cut (those shorter than the longest head) and how many
 * entries each has left. */
static int hold_heads(wnw_session *s)
{
    struct wnw__rules *r = &s->rules;
    const struct wnw__cache *c = &s->cache;
    if (!r->slide_counts)
        r->slide_counts = calloc((size_t)c->n_layer * (size_t)c->n_head_kv, sizeof *r->slide_counts);
    if (!r->slide_counts)
        return wnw__fail(WNW_E_NOMEM, "no memory for the counts of %d heads", c->n_layer * c->n_head_kv);
    r->n_slide_counts = c->n_layer * c->n_head_kv;
    const int32_t longest = wnw__rules_longest_head(s);
    for (int32_t il = 0; il < c->n_layer; il++)
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            const int32_t n = wnw_cache_n(s, il, ih);
            r->slide_counts[il * c->n_head_kv + ih] =
                wnw__layer_takes_part(&s->shape.model, il) && n < longest ? n : 0;
        }
    return WNW_OK;
}

static int slide_heads(wnw_session *s, wnw_report *report)
{
    (void)report;
    struct wnw__cache *c = &s->cache;
    for (int32_t i = 0; i < s->rules.n_slide_counts; i++) {
        const int32_t il = i / c->n_head_kv, ih = i % c->n_head_kv, count = s->rules.slide_counts[i];
        const int32_t n = wnw_cache_n(s, il, ih);
        if (count == 0 || n <= count)
            continue;
        wnw_protected p = wnw__policy_keep(s->rules.ev.policy, &(wnw_keep_problem){.n = n, .budget = n});
        p = wnw__protected_shrink(wnw__protected_clamp(p, n), count);
        wnw__cache_drop(c, il, ih, p.n_first, n - count);
        s->n_judged = s->n_past;
    }
    return WNW_OK;
}

const struct wnw__rule wnw__rule_slide = {.compression = wnw__rules_compression,
                                          .next_chunk = wnw__rules_chunk,
                                          .after_piece = hold_heads,
                                          .after_token = slide_heads};
