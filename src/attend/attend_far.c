/* SPDX-License-Identifier: MIT */
/*
 * Scores of entries that are far from the queries are computed in bytes (decision 042). Most of a row's attention goes
 * to the beginning of the text and to the tokens just before the row. So the first tile, and tiles with entries near
 * the row, keep the exact scores. A row also keeps them if rounding would show: if a few elements of it or of the
 * tile's keys are far larger than the others, as in some heads of Qwen2.
 *
 * Each row is decided separately, from its position, the tile's position and their numbers. So results depend neither
 * on where prompts are cut nor on which rows are computed together.
 */
#include "attend/attend_impl.h"

#include <string.h>

/* A tile is far from the rows of another tile if there is at least one between them. */
enum { NEAR = WNW_TILE };

/* The most that rounding may move the scores of a row, as a root mean square for the longest key of the tile. */
static const float most_error = 0.25f;

/* Whole tiles of entries below it are far from the row that is itself entry i. */
static int32_t far_end(int32_t i)
{
    return i / WNW_TILE * WNW_TILE - NEAR;
}

/* A query's and a key's elements are off by up to half their scale, a twelfth of its square in the mean. */
static bool is_fine(float q_scale, float q_square, struct wnw__score8_size k)
{
    const float square = (q_scale * q_scale * k.square + k.scale * k.scale * q_square) / 12.0f;
    return square <= most_error * most_error; /* NaN is not */
}

/* ---- Tiles of keys ---- */

/* A tile begins with what its keys have at most, after it a mark that it is there; then come scales and words. */
enum { HEAD = 16 };

size_t wnw__attend_far_floats(int32_t d, int32_t n)
{
    return (size_t)n * (HEAD + WNW_TILE + WNW_TILE * (size_t)(d / 4));
}

void wnw__attend_far_clear(float *tiles, int32_t d, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        tiles[wnw__attend_far_floats(d, i) + 2] = 0.0f;
}

/* The keys of the stored rows, which are entries from `at` on. Parts of a run whose tiles are kept share them. */
static struct wnw__score8_size keys_of(const struct wnw__attend_job *job, const struct wnw__kv_rows *rows,
                                       int32_t at, struct wnw__attend_work *w)
{
    const int32_t d = job->op->shared->dims.model.d;
    const bool shared = w->kept && w->kept->keys && at % WNW_TILE == 0;
    float *tile = shared ? w->kept->keys + wnw__attend_far_floats(d, at / WNW_TILE) : w->far.k_room;
    float *scale = tile + HEAD;
    uint32_t *words = (uint32_t *)(void *)(scale + WNW_TILE);
    w->far.k = words;
    w->far.k_scale = scale;
    if (!shared || tile[2] == 0.0f) {
        const struct wnw__score8_size size =
            job->op->shared->score8->keys((const uint16_t *)(const void *)rows->k, d, words, scale);
        tile[0] = size.scale;
        tile[1] = size.square;
        tile[2] = 1.0f;
    }
    return (struct wnw__score8_size){.scale = tile[0], .square = tile[1]};
}

/* ---- Choosing ---- */

void wnw__attend_far_load(const struct wnw__attend_job *job, const float *panels, int32_t n_query,
                          struct wnw__attend_work *w)
{
    const struct wnw__score8 *score8 = job->op->shared->score8;
    struct wnw__attend_far *far = &w->far;
    far->on = score8 && score8->panel_rows == wnw__attend_panel_rows(job) && job->layer->n_swa <= 0 &&
              job->op->shared->dims.model.d % WNW_TILE_PAD == 0 && job->type != WNW_KV_F32 &&
              !wnw__attend_is_decode(job->op->shared, job->slice->n_row) &&
              far_end(w->to[n_query - 1] - 1) >= 2 * WNW_TILE;
    if (!far->on)
        return;
    score8->queries(panels, (n_query + score8->panel_rows - 1) / score8->panel_rows,
                    job->op->shared->dims.model.d, far->q, far->q_scale, far->q_square, far->q_first);
    far->q_most = (struct wnw__score8_size){0};
    for (int32_t i = 0; i < n_query; i++) {
        far->q_most.scale = wnw__score8_larger(far->q_scale[i], far->q_most.scale);
        far->q_most.square = wnw__score8_larger(far->q_square[i], far->q_most.square);
    }
}

int32_t wnw__attend_far_choose(const struct wnw__attend_job *job, const struct wnw__kv_rows *rows, int32_t at,
                               int32_t n_query, struct wnw__attend_work *w)
{
    const int32_t end = at + WNW_TILE;
    struct wnw__attend_far *far = &w->far;
    if (!far->on || at < WNW_TILE || end > far_end(w->to[n_query - 1] - 1) || rows->n < WNW_TILE ||
        rows->type != WNW_KV_F16)
        return 0;
    const struct wnw__score8_size k = keys_of(job, rows, at, w);
    if (end <= far_end(w->to[0] - 1) && is_fine(far->q_most.scale, far->q_most.square, k))
        return n_query;
    int32_t n = 0;
    for (int32_t i = 0; i < n_query; i++) {
        far->taken[i] = end <= far_end(w->to[i] - 1) && is_fine(far->q_scale[i], far->q_square[i], k);
        n += far->taken[i];
    }
    return n;
}

void wnw__attend_far_scores(const struct wnw__attend_job *job, int32_t chosen, int32_t n_query,
                            struct wnw__attend_work *w)
{
    const struct wnw__score8 *score8 = job->op->shared->score8;
    const struct wnw__attend_far *far = &w->far;
    const int32_t d = job->op->shared->dims.model.d, mr = score8->panel_rows;
    float s[WNW_ROWS_PAD * WNW_TILE];
    if (chosen == n_query) {
        score8->mul_panels(far->q, far->q_scale, far->q_first, (n_query + mr - 1) / mr, d, far->k,
                           far->k_scale, w->s);
        return;
    }
    for (int32_t p = 0; p < n_query; p += mr) {
        score8->mul_panels(far->q + (int64_t)p * (d / 4), far->q_scale + p, far->q_first + p, 1, d, far->k,
                           far->k_scale, s);
        for (int32_t i = p; i < p + mr && i < n_query; i++)
            if (far->taken[i])
                memcpy(w->s + (int64_t)i * WNW_TILE, s + (i - p) * WNW_TILE, WNW_TILE * sizeof *s);
    }
}
