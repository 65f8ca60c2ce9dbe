/* SPDX-License-Identifier: MIT */
/* Scores of one layer: those that the scorer gives, their aggregation over query heads, and a last step that the scorer
 * may have (decision 014). */
#include "plan/compress_impl.h"

#include "base/system.h"

#include <math.h>
#include <string.h>

/* ---- Scorer and aggregation ---- */

/* The number of floats that hold the flags of query heads. */
static size_t flags_room(const wnw_observation *obs)
{
    return ((size_t)obs->n_head * sizeof(bool) + sizeof(float) - 1) / sizeof(float);
}

static int32_t n_row_of(const wnw_scorer *scorer, const wnw_observation *obs)
{
    return scorer->part.flags & WNW_FLAG_QUERY_HEADS ? obs->n_head : obs->n_head_kv;
}

size_t wnw__score_room(const wnw_policy *p, const void *scorer_opts, const wnw_observation *obs)
{
    const wnw_scorer *scorer = wnw__scorer_of(p);
    const wnw_aggregation *agg = wnw__aggregation_of(p);
    const size_t a = scorer->scratch ? scorer->scratch(scorer_opts, obs) : 0;
    const size_t b = agg->scratch ? agg->scratch(p->opts[WNW_PART_AGGREGATION], obs) : 0;
    const size_t rows = agg->aggregate ? (size_t)n_row_of(scorer, obs) * (size_t)obs->n : 0;
    const size_t most = a > b ? a : b, row = (size_t)obs->n;
    if (most > SIZE_MAX / 16) /* a registered part may ask for anything; this avoids an overflow of the sum */
        return SIZE_MAX;
    return flags_room(obs) + rows + (most > row ? most : row);
}

const float *wnw__score_rows(const wnw_observation *obs, const float *room)
{
    return room + flags_room(obs);
}

int wnw__score(const wnw_policy *p, const void *scorer_opts, const wnw_observation *seen, float *score,
               float *room)
{
    const wnw_scorer *scorer = wnw__scorer_of(p);
    const wnw_aggregation *agg = wnw__aggregation_of(p);
    const void *opts = p->opts[WNW_PART_AGGREGATION];
    if (!agg->aggregate) {
        WNW_TRY(wnw__part_status(&scorer->part, scorer->score(scorer_opts, seen, score, room)));
        if (scorer->finish)
            scorer->finish(scorer_opts, seen, seen->n_head_kv, score, room);
        return WNW_OK;
    }
    const int32_t n_row = n_row_of(scorer, seen);
    bool *used = (bool *)room;
    float *rows = room + flags_room(seen), *scratch = rows + (size_t)n_row * (size_t)seen->n;
    wnw_observation obs = *seen;
    if (agg->choose && !seen->query_head_used) { /* the driver may have asked already, before it observed */
        for (int32_t h = 0; h < seen->n_head; h++)
            used[h] = true;
        WNW_TRY(wnw__part_status(&agg->part, agg->choose(opts, seen, used)));
        obs.query_head_used = used;
    }
    WNW_TRY(wnw__part_status(&scorer->part, scorer->score(scorer_opts, &obs, rows, scratch)));
    agg->aggregate(opts, &obs, rows, n_row, score, scratch);
    if (scorer->finish)
        scorer->finish(scorer_opts, &obs, obs.n_head_kv, score, scratch);
    return WNW_OK;
}

/* ---- A layer of a draft ---- */

/* Copies the scores of query heads from the scratch for a selector that looks at them. */
static int keep_head_scores(struct wnw__draft *draft, const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n_head * (size_t)obs->n;
    if (!wnw__policy_has(draft->policy, WNW_PART_SELECTOR, WNW_FLAG_QUERY_HEADS))
        return WNW_OK;
    WNW_TRY(wnw__draft_reserve(&draft->head_score, n));
    memcpy(draft->head_score.x, wnw__score_rows(obs, draft->scratch.x), n * sizeof *draft->head_score.x);
    if (draft->scorer->finish)
        draft->scorer->finish(draft->scorer_opts, obs, obs->n_head, draft->head_score.x, draft->scratch.x);
    return WNW_OK;
}

static int check_numbers(const struct wnw__draft *draft, const wnw_observation *obs)
{
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            if (isnan(draft->score.x[(int64_t)ih * obs->n + i]))
                return wnw__fail(WNW_E_NOT_FINITE,
                                 "the score that %s gives entry %d of layer %d, KV head %d is not a number: "
                                 "%s",
                                 wnw__policy_name(draft->policy), i, obs->il, ih,
                                 wnw__part_is_ours(&draft->scorer->part)
                                     ? "keys, values or queries are not numbers: weights in the model's file "
                                       "are damaged, or "
                                       "values are too large for the type of the KV cache; try f32"
                                     : "a fault of this scorer, or of the model's weights");
    return WNW_OK;
}

static int show_scores(const struct wnw__draft *draft, const struct wnw__scored_layer *l)
{
    for (int32_t ih = 0; draft->src->scored && ih < draft->src->shape.n_head_kv; ih++)
        WNW_TRY(draft->src->scored(draft->src, l->il, ih, l->score + (int64_t)ih * l->row, l->n_entry[ih],
                                   wnw__draft_protected_head(draft, l->il, ih)));
    return WNW_OK;
}

int wnw__draft_score(struct wnw__draft *draft, const wnw_observation *obs, struct wnw__scored_layer *out)
{
    const size_t n_score = (size_t)obs->n_head_kv * (size_t)obs->n;
    const size_t n_scratch = wnw__score_room(draft->policy, draft->scorer_opts, obs);
    WNW_TRY(wnw__draft_reserve(&draft->score, n_score));
    WNW_TRY(wnw__draft_reserve(&draft->scratch, n_scratch > n_score ? n_scratch : n_score));
    wnw_observation chosen = *obs;
    if (draft->aggregation->choose)
        chosen.query_head_used = draft->heads;
    WNW_TRY(wnw__score(draft->policy, draft->scorer_opts, &chosen, draft->score.x, draft->scratch.x));
    WNW_TRY(keep_head_scores(draft, obs));
    *out = (struct wnw__scored_layer){.il = obs->il,
                                      .i = draft->cache.rank[obs->il],
                                      .row = obs->n,
                                      .n_settled = obs->n_settled,
                                      .n_entry = wnw__draft_entries(draft, obs->il),
                                      .score = draft->score.x,
                                      .head_score = draft->head_score.x};
    WNW_TRY(check_numbers(draft, obs));
    return show_scores(draft, out);
}
