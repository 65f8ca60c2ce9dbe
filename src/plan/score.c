/* SPDX-License-Identifier: MIT */
/* Turns the observation of a layer into one score per entry and KV head: by the scorer, the head aggregation,
 * and a last step that the scorer may have (decision 014). */
#include "plan/score.h"
#include "policy/policy.h"

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
