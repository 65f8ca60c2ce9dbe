/* SPDX-License-Identifier: MIT */
/* The attention of the newest queries over the entries of a layer, one tile of keys after the other. */
#include "attend/attend_impl.h"
#include "base/parallel.h"
#include "base/vectors.h"
#include "kernel/noise.h"
#include "observe/source_impl.h"
#include "observe/window.h"
#include "winnow_method.h"

#include <math.h>
#include <string.h>

/* Units of work per KV head. Models have few of these, and threads should end together. */
enum { PIECES = 8 };

/* The buffers of the source that are used here. */
enum { ATTN, QUERIES, PACKED, WORK };

struct job {
    struct wnw__source *source;
    const wnw_observation *obs; /* its layer, with the entries */
    const bool *heads;          /* [n_head] query heads that are wanted; NULL = all */
    const struct wnw__vec *vec;
    int32_t n_window, end; /* queries of positions end - n_window .. end - 1 */
    float *attn;           /* [n_head][n_window][n] */
    float *queries;        /* [n_head][n_window][d] */
    float *packed; /* [n_head_kv][n_packed] scaled queries of a group's wanted heads, see pack_group */
    size_t n_packed;
    float *work; /* [n_head_kv][PIECES][n_work] */
    size_t n_work;
};

static int32_t group_of(const struct job *j)
{
    return wnw__shape_group(&j->source->shape);
}

static bool is_wanted(const struct job *j, int32_t h)
{
    return !j->heads || j->heads[h];
}

/* The rows that the wanted query heads of KV head ih have together. */
static int32_t wanted_rows(const struct job *j, int32_t ih)
{
    const int32_t group = group_of(j);
    int32_t n = 0;
    for (int32_t h = ih * group; h < (ih + 1) * group; h++)
        n += is_wanted(j, h) ? j->n_window : 0;
    return n;
}

/* Rows per panel of the packed queries: 1 where so few queries look at a KV head that stored keys are read directly.
 * Which heads are wanted does not matter, so that the others' attention is the same to the bit. */
static int32_t panel_rows(const struct job *j)
{
    return group_of(j) * j->n_window > WNW_ATTEND_NT_ROWS ? j->vec->panel_rows : 1;
}

static void gather_queries(const struct wnw__window_queries *queries, const struct job *j)
{
    const wnw_observation *obs = j->obs;
    const size_t d = (size_t)obs->n_embd_head, n_window = (size_t)j->n_window;
    for (size_t i = 0; i < n_window; i++) {
        const float *q = queries->at(queries->of, obs->il, j->end - j->n_window + (int32_t)i);
        for (size_t h = 0; h < (size_t)obs->n_head; h++)
            memcpy(j->queries + (h * n_window + i) * d, q + h * d, d * sizeof *q);
    }
}

/* Sets the group's panels [n_panels][d][panel_rows]: the wanted heads one after the other, scaled. */
static void pack_group(const struct job *j, int32_t ih)
{
    const int32_t d = j->obs->n_embd_head, group = group_of(j), mr = panel_rows(j);
    float *to = j->packed + (size_t)ih * j->n_packed;
    int32_t row = 0;
    memset(to, 0, j->n_packed * sizeof *to);
    for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
        const float *q = j->queries + (size_t)h * (size_t)j->n_window * (size_t)d;
        for (int32_t i = 0; is_wanted(j, h) && i < j->n_window; i++, q += d)
            wnw__attend_pack(to, row++, mr, q, d, j->obs->attn_scale);
    }
}

/* Writes the scores of entries at .. at+n-1 into the rows of the wanted heads. work: a tile of keys, the same
 * transposed, and scores [panels * panel_rows][WNW_TILE]. */
static void score_tile(const struct job *j, int32_t ih, int32_t n_rows, int32_t at, int32_t n, float *work)
{
    const wnw_observation *obs = j->obs;
    const int32_t d = obs->n_embd_head, group = group_of(j), mr = panel_rows(j);
    const float *q = j->packed + (size_t)ih * j->n_packed;
    float *keys = work, *transposed = keys + WNW_TILE * (size_t)d, *s = transposed + WNW_TILE * (size_t)d;
    j->source->of.entries.read(j->source->of.entries.of, obs->il, WNW_KEYS, ih, at, n, keys);
    if (mr == 1) {
        j->vec->mul_rows(WNW_KV_F32, q, n_rows, keys, (size_t)d * sizeof *keys, n, d, 1.0f, s, WNW_TILE);
    } else {
        j->vec->transpose(keys, d, transposed);
        j->vec->mul_panels(q, (n_rows + mr - 1) / mr, d, transposed, s);
    }
    if (obs->bias)
        wnw__attend_add_bias(s, n_rows, obs->bias + (size_t)ih * (size_t)obs->n + (size_t)at, n);
    for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
        float *to = j->attn + (size_t)h * (size_t)j->n_window * (size_t)obs->n + at;
        for (int32_t i = 0; is_wanted(j, h) && i < j->n_window; i++, to += obs->n, s += WNW_TILE)
            memcpy(to, s, (size_t)n * sizeof *to);
    }
}

/* Scores one of the PIECES of a KV head's entries. They are cut between tiles. */
static void score_piece(int32_t unit, void *user)
{
    const struct job *j = user;
    const int32_t ih = unit / PIECES, piece = unit % PIECES, n_rows = wanted_rows(j, ih);
    const int32_t n_entry = j->obs->n_entry[ih], n_tile = (n_entry + WNW_TILE - 1) / WNW_TILE;
    const int32_t last = n_tile * (piece + 1) / PIECES;
    for (int32_t t = n_tile * piece / PIECES; n_rows > 0 && t < last; t++) {
        const int32_t at = t * WNW_TILE, n = n_entry - at < WNW_TILE ? n_entry - at : WNW_TILE;
        score_tile(j, ih, n_rows, at, n, j->work + (size_t)unit * j->n_work);
    }
}

/* Turns the scores of one query head into attention. */
static void normalise_head(int32_t h, void *user)
{
    const struct job *j = user;
    const wnw_observation *obs = j->obs;
    const int32_t ih = h / group_of(j), n_entry = obs->n_entry[ih];
    const size_t n = (size_t)obs->n;
    const int32_t *pos = obs->pos + (size_t)ih * n;
    const struct wnw__score_form *f = wnw__shape_form(&j->source->shape, obs->il);
    const float slope = f ? wnw__form_slope(f->max_bias, obs->n_head, h) : 1.0f;
    for (int32_t i = 0; i < j->n_window; i++) {
        float *row = j->attn + ((size_t)h * (size_t)j->n_window + (size_t)i) * n;
        const int32_t query = j->end - j->n_window + i;
        if (!is_wanted(j, h)) {
            memset(row, 0, n * sizeof *row);
            continue;
        }
        wnw__noise("scores of a window", row, n_entry, 1, n_entry);
        wnw__form_scores(f, slope, query, pos, row, n_entry);
        for (int32_t e = n_entry - 1; e >= 0 && pos[e] > query; e--)
            row[e] = -INFINITY;
        const float top = f && f->sinks ? row[wnw__argmax(row, n_entry)] : 0.0f;
        j->vec->softmax(row, n_entry);
        wnw__form_share(f, h, top, row, n_entry);
        memset(row + n_entry, 0, (n - (size_t)n_entry) * sizeof *row);
    }
}

/* Sets j's arrays and their sizes. */
static int need_arrays(struct job *j)
{
    const wnw_observation *obs = j->obs;
    const size_t n_head_kv = (size_t)obs->n_head_kv, d = (size_t)obs->n_embd_head;
    const size_t n_rows = (size_t)obs->n_head * (size_t)j->n_window, mr = (size_t)j->vec->panel_rows;
    const size_t padded = (n_rows / n_head_kv + mr - 1) / mr * mr; /* rows of a group in whole panels */
    j->n_packed = padded * d;
    j->n_work = 2 * WNW_TILE * d + padded * WNW_TILE;
    WNW_TRY(wnw__source_need(j->source, ATTN, n_rows * (size_t)obs->n, &j->attn));
    WNW_TRY(wnw__source_need(j->source, QUERIES, n_rows * d, &j->queries));
    WNW_TRY(wnw__source_need(j->source, PACKED, n_head_kv * j->n_packed, &j->packed));
    return wnw__source_need(j->source, WORK, n_head_kv * PIECES * j->n_work, &j->work);
}

int wnw__window_attend(struct wnw__source *s, const struct wnw__window_queries *queries, const bool *heads,
                       wnw_observation *obs)
{
    struct job j = {.source = s,
                    .obs = obs,
                    .heads = heads,
                    .vec = wnw__vec_at(0),
                    .n_window = queries->n,
                    .end = queries->end};
    WNW_TRY(need_arrays(&j));
    gather_queries(queries, &j);
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        pack_group(&j, ih);
    wnw__parallel(s->of.pool, obs->n_head_kv * PIECES, score_piece, &j);
    wnw__parallel(s->of.pool, obs->n_head, normalise_head, &j);
    obs->n_window = j.n_window;
    obs->window_attn = j.attn;
    obs->window_queries = j.queries;
    return WNW_OK;
}
