/* SPDX-License-Identifier: MIT */
/*
 * Sums and maxima of the columns of attention, taken while prefill computes it. A probability is known only when the
 * row's softmax is, after the last tile, so the tiles of some rows are kept until then: exp(s - m') with the maximum
 * m' of that moment. One factor per row and tile, exp(m' - m) / l, makes probabilities of them.
 *
 * Every run of rows has statistics of its own, which their reader adds up in the order of the runs. So they do
 * not depend on which thread took which run, and no thread waits for another.
 */
#include "attend/attend_impl.h"
#include "base/clamp.h"
#include "kernel/noise.h"

#include <string.h>

/* The largest number of floats in kept tiles, so that they stay in the second-level cache. KEPT_ROWS is the fewest
 * rows for which converting a tile of keys and values pays. */
enum { KEPT_FLOATS = 1 << 18, KEPT_ROWS = WNW_ROWS_PAD };

/* Tiles that are needed in addition to one for every WNW_TILE entries. Rows read up to three stretches (struct
 * wnw__attend_stretches), and the last tile of each stretch may be short. Entries that leave the tail meanwhile are read twice: one
 * per row, and a block. */
enum { TILES_MORE = 3 + (WNW_ATTEND_ROWS + WNW_CACHE_BLOCK + WNW_TILE - 1) / WNW_TILE };

bool wnw__attend_leaves_columns(const struct wnw__attend_shared *sh, const struct wnw__attend_slice *slice)
{
    return slice->columns && !wnw__attend_is_decode(sh, slice->n_row);
}

/* Queries whose tiles are kept together where they see n entries; a multiple of WNW_ROWS_PAD, at least one token's. */
static int32_t kept_rows(const struct wnw__attend_shared *sh, int32_t n)
{
    const int32_t fit = KEPT_FLOATS / (n > 0 ? n : 1) / KEPT_ROWS * KEPT_ROWS;
    const int32_t most = (int32_t)wnw__clamp(fit, KEPT_ROWS, WNW_ATTEND_ROWS);
    return sh->group <= most ? most : wnw__attend_round_up(sh->group, WNW_ROWS_PAD);
}

/* Most floats of tiles that any number of entries up to n needs. */
static size_t most_floats(const struct wnw__attend_shared *sh, int32_t n)
{
    const size_t least = (size_t)kept_rows(sh, INT32_MAX) * (size_t)n;
    const size_t probabilities =
        (least > KEPT_FLOATS ? least : KEPT_FLOATS) + (TILES_MORE + 1) * WNW_TILE * (size_t)sh->rows;
    const size_t tiles = (size_t)n / WNW_TILE + TILES_MORE + 1;
    return probabilities + probabilities / WNW_TILE + tiles * WNW_KEPT_HEAD;
}

/* ---- Places ---- */

static int n_kinds(unsigned columns)
{
    return (columns & WNW_COLUMN_SUMS ? 1 : 0) + (columns & WNW_COLUMN_MAXIMA ? 1 : 0);
}

static size_t kind_floats(const struct wnw__attend_shared *sh, const struct wnw__attend_scratch *p,
                          int32_t n_row)
{
    return (size_t)wnw__attend_runs(sh, n_row) * (size_t)sh->dims.model.n_head * (size_t)p->n;
}

/* Floats of the far keys in bytes, which stretches of a run share. */
static size_t keys_floats(const struct wnw__attend_shared *sh, const struct wnw__attend_scratch *p)
{
    return sh->score8 ? wnw__attend_far_floats(sh->dims.model.d, p->n / WNW_TILE) : 0;
}

void wnw__attend_reserve_columns(const struct wnw__attend_shared *sh, const struct wnw__attend_slice *s,
                                 struct wnw__attend_scratch *p, struct wnw__attend_columns_room *room)
{
    const size_t n = keys_floats(sh, p) + (most_floats(sh, p->n) + 15) / 16 * 16;
    p->columns = room->columns;
    room->columns += (size_t)n_kinds(s->columns) * kind_floats(sh, p, s->n_row);
    room->tiles = n > room->tiles ? n : room->tiles;
}

float *wnw__attend_columns_of(const struct wnw__attend_job *job, unsigned kind, int32_t run, int32_t h)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const struct wnw__attend_scratch *p = &sh->scratch[job->i_slice];
    const bool second = kind == WNW_COLUMN_MAXIMA && job->slice->columns & WNW_COLUMN_SUMS;
    return sh->columns + p->columns + (second ? kind_floats(sh, p, job->slice->n_row) : 0) +
           ((size_t)run * (size_t)sh->dims.model.n_head + (size_t)h) * (size_t)p->n;
}

/* ---- A run ---- */

static void add(float *to, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        to[i] += x[i];
}

static void raise(float *to, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        to[i] = x[i] > to[i] ? x[i] : to[i];
}

/* Adds the kept tiles of rows r, whose softmax is complete, to the statistics of their run. */
static void add_kept(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, int32_t run,
                     const struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const unsigned columns = job->slice->columns;
    const int32_t group = sh->group, n_query = r->n * group;
    for (int32_t i = 0; i < n_query; i++)
        w->l[i] = 1.0f / w->l[i];
    for (int32_t i = 0; i < w->kept->n; i++) {
        const int32_t *entries = wnw__attend_kept_entries(w->kept, i);
        sh->vec->row_factors(wnw__attend_kept_max(w->kept, i), w->m, w->l, n_query, w->corr);
        for (int32_t g = 0; g < group; g++) {
            const int32_t h = r->ih * group + g;
            float sum[WNW_TILE] = {0}, max[WNW_TILE] = {0};
            sh->vec->add_columns(wnw__attend_kept_tile(w->kept, i) + (size_t)g * WNW_TILE, r->n, group,
                                 w->corr + g, sum, columns & WNW_COLUMN_MAXIMA ? max : NULL);
            wnw__noise("sums of attention", sum, WNW_TILE, 1, WNW_TILE);
            wnw__noise("maxima of attention", max, WNW_TILE, 1, WNW_TILE);
            if (columns & WNW_COLUMN_SUMS)
                add(wnw__attend_columns_of(job, WNW_COLUMN_SUMS, run, h) + entries[0], sum, entries[1]);
            if (columns & WNW_COLUMN_MAXIMA)
                raise(wnw__attend_columns_of(job, WNW_COLUMN_MAXIMA, run, h) + entries[0], max, entries[1]);
        }
    }
}

static void clear(const struct wnw__attend_job *job, int32_t ih, int32_t run, int32_t n)
{
    const int32_t group = job->op->shared->group;
    for (unsigned kind = WNW_COLUMN_SUMS; kind <= WNW_COLUMN_MAXIMA; kind *= 2)
        for (int32_t g = 0; job->slice->columns & kind && g < group; g++)
            memset(wnw__attend_columns_of(job, kind, run, ih * group + g), 0, (size_t)n * sizeof(float));
}

void wnw__attend_run_columns(const struct wnw__attend_job *job, const struct wnw__attend_rows *run,
                             const float *q, float *out, int ith, struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t i_run = run->t0 / wnw__attend_run_length(sh),
                  end = job->layer->len[run->ih] + run->t0 + run->n;
    const struct wnw__attend_scratch *scratch = &sh->scratch[job->i_slice];
    float *room = sh->tiles + (size_t)ith * sh->tiles_floats;
    struct wnw__attend_kept kept = {.tile = room + keys_floats(sh, scratch),
                                    .rows = kept_rows(sh, end),
                                    .keys = sh->score8 ? room : NULL};
    /* Even parts, so that none has so few queries that another kernel takes them: that would change bits. */
    const int32_t most = kept.rows / sh->group, n_part = (run->n + most - 1) / most;
    float *const s = w->s;
    clear(job, run->ih, i_run, end);
    if (kept.keys)
        wnw__attend_far_clear(kept.keys, sh->dims.model.d, scratch->n / WNW_TILE);
    w->kept = &kept;
    for (int32_t i = 0; i < n_part; i++) {
        const int32_t from = run->n * i / n_part;
        const struct wnw__attend_rows r = {
            .ih = run->ih, .t0 = run->t0 + from, .n = run->n * (i + 1) / n_part - from, .sinks = true};
        kept.n = 0;
        wnw__attend_rows(job, &r, q, out, w);
        add_kept(job, &r, i_run, w);
    }
    w->kept = NULL;
    w->s = s;
}
