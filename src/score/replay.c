/* SPDX-License-Identifier: MIT */
/*
 * Replay: what KVzip's repetition of the context (arXiv 2505.23416) would attend to if it had the queries and keys of
 * the first reading, so that nothing is read a second time. From no paper that we know. n tokens were read, and the chat
 * template wrote the first n_p. Token t is repeated at position t + D,
 *
 *     D = min(n + S - n_p, n_train - n) S tokens of instruction are between; n_train: trained context far(h,t,c) = q_t . R(-D)
 *     k_c / sqrt(d) c = 0 .. n - 1: the text, seen from the repetition loc(h,t,c) = q_t . k_c / sqrt(d) n_p <= c <= t: the
 *     repetition's own keys, at their old distances lse(h,t) = log( sum e^far + sum e^loc ) exact: score(h,c) = max over t >=
 *     n_p of exp(far(h,t,c) - lse(h,t)) sparse: every s-th query looks at all keys, s = ceil(T / m) for the T queries; and
 *     every query at the keys
 *              |t - c| <= band, with an estimate of lse from these, the header, and every u-th key, each with weight u =
 *              ceil(T / m_keys); the larger of the two is the score
 * group_max takes the maximum over the query heads of a KV head. The header, or where none is known the first `sinks`
 * entries, stay and have score 1. A repeated text looks for its next token, not for itself, so that far scores mostly
 * fall on c = t + 1 and little is seen by chance: queries of the neighbourhood find it though the stride skips them.
 *
 * Where entries are gone, those left are the text; where only the newest queries are known (chunks), they alone look.
 * Queries and keys are multiplied in whole numbers of 15 bits and a sign (decision 091), and the estimate is left out where it
 * cannot raise a score.
 * Observes all queries and keys. Range 0..1. Cost per query head: sparse at most 1.5 d (n m + T m_keys), exact 1.5 d n T.
 */
#include "kernel/kernel.h"
#include "method/mean_rope.h"
#include "method/window.h"
#include "policy/part.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum form { FORM_SPARSE, FORM_EXACT };

struct opts {
    int32_t form, shift, gap, band, m, m_keys, sinks;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_QUERIES_F16 | WNW_NEED_KEYS | WNW_NEED_ROPE;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    out->n_first = p->n_prefix > 0 ? p->n_here : ((const struct opts *)opts)->sinks;
}

static int32_t ceil_div(int32_t a, int32_t b)
{
    return a > 0 ? (a - 1) / b + 1 : 1;
}

/* ---- The current layer ---- */

/* Rows of queries that look at everything together, at most, and rows of a tile. */
enum { ROWS = 2 * WNW_PAIR_ROWS, TILE = 64 };

/* Keys in panels, TILE of them together, and how many. */
struct list {
    uint32_t *panels; /* [blocks][WNW_PAIR_PANELS] */
    float *unit;      /* [blocks][WNW_PAIR_UNITS] */
    int32_t n;
};

/* A KV head: entries, the first n_head of them from the chat header. Keys are there as cached, and far: turned back by D. */
struct group {
    float *keys, *far;               /* [n][d] */
    uint32_t *key_tiles, *far_tiles; /* [tiles][WNW_PAIR_TILE] */
    float *key_unit, *far_unit;      /* [tiles][TILE] */
    const int32_t *pos;              /* [n] */
    int32_t n, n_head;
    /* Of the estimate: the header, every step-th entry after it from far, and these as cached. */
    struct list header, samples, own;
    int32_t step; /* u */
};

struct layer {
    const struct opts *o;
    const wnw_observation *obs;
    float *score;
    float *scratch;
    size_t group_size, head_size,
        keys_size;   /* floats of a KV head, of a query head, and of one that prepares keys */
    int32_t shift;   /* D */
    int32_t first;   /* position of the first query that looks */
    int32_t n_query; /* T */
};

/* n floats of the memory from `room` on, after the `used` ones; NULL where only sizes are wanted. */
static float *take(float *room, size_t *used, size_t n)
{
    float *at = room ? room + *used : NULL;
    *used += n;
    return at;
}

static size_t tiles_of(size_t n)
{
    return (n + TILE - 1) / TILE;
}

static void lay_out_list(struct list *list, size_t n, size_t d, float *room, size_t *used)
{
    list->panels = (uint32_t *)(void *)take(room, used, tiles_of(n) * WNW_PAIR_PANELS(d));
    list->unit = take(room, used, tiles_of(n) * WNW_PAIR_UNITS);
}

/* Sets the pointers of a KV head into its memory; returns the size of that. */
static size_t lay_out_group(struct group *g, const struct opts *o, const wnw_observation *obs, float *room)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head, n_sample = (size_t)o->m_keys;
    size_t used = 0;
    g->keys = take(room, &used, n * d);
    g->far = take(room, &used, n * d);
    g->key_tiles = (uint32_t *)(void *)take(room, &used, tiles_of(n) * WNW_PAIR_TILE(d));
    g->far_tiles = (uint32_t *)(void *)take(room, &used, tiles_of(n) * WNW_PAIR_TILE(d));
    g->key_unit = take(room, &used, tiles_of(n) * TILE);
    g->far_unit = take(room, &used, tiles_of(n) * TILE);
    lay_out_list(&g->header, n, d, room, &used);
    lay_out_list(&g->samples, n_sample, d, room, &used);
    lay_out_list(&g->own, n_sample, d, room, &used);
    return used;
}

/* The number of entries, of the first n, at positions up to t. `from` is a number that it is not below. */
static int32_t n_until(const struct group *g, int32_t t, int32_t from)
{
    while (from < g->n && g->pos[from] <= t)
        from++;
    return from;
}

static void group_at(const struct layer *l, int32_t ih, struct group *g)
{
    lay_out_group(g, l->o, l->obs, l->scratch + (size_t)ih * l->group_size);
    g->n = l->obs->n_entry[ih];
    g->pos = l->obs->pos + (int64_t)ih * l->obs->n;
    g->n_head = n_until(g, l->obs->n_prefix - 1, 0);
    const int32_t n_text = g->n - g->n_head;
    g->step = ceil_div(n_text, l->o->m_keys);
    g->header.n = g->n_head;
    g->samples.n = g->own.n = n_text > 0 ? ceil_div(n_text, g->step) : 0;
}

/* The memory in which keys of KV head i / 2 are prepared: of i even as cached, of i odd far. */
static float *keys_room(const struct layer *l, int32_t i)
{
    const size_t n_head_kv = (size_t)l->obs->n_head_kv, n_head = (size_t)l->obs->n_head;
    return l->scratch + n_head_kv * l->group_size + n_head * l->head_size + (size_t)i * l->keys_size;
}

static void prepare_keys(int32_t i, void *user)
{
    const struct layer *l = user;
    const int32_t d = l->obs->n_embd_head;
    float *room = keys_room(l, i);
    struct group g;
    group_at(l, i / 2, &g);
    const float *rows = i % 2 ? g.far : g.keys;
    if (i % 2) {
        memcpy(g.far, g.keys, (size_t)g.n * (size_t)d * sizeof *g.far);
        wnw__turn_rows(l->obs, -l->shift, 1, g.far, g.n, d, 1);
    }
    for (int32_t at = 0, k = 0; at < g.n; at += TILE, k++)
        wnw__pair_tile(rows + (int64_t)at * d, g.n - at < TILE ? g.n - at : TILE, d,
                       (i % 2 ? g.far_tiles : g.key_tiles) + (size_t)k * WNW_PAIR_TILE(d),
                       (i % 2 ? g.far_unit : g.key_unit) + k * TILE, room);
}

/* Makes panels of every step-th of the rows. */
static void fill_list(const struct list *list, const float *rows, int32_t step, int32_t d, float *room)
{
    float *key = room + WNW_PAIR_ROOM(d), *unit = key + TILE * d;
    uint32_t *tile = (uint32_t *)(void *)(unit + TILE);
    for (int32_t at = 0, b = 0; at < list->n; at += TILE, b++) {
        const int32_t n = list->n - at < TILE ? list->n - at : TILE;
        for (int32_t i = 0; i < n; i++)
            memcpy(key + i * d, rows + (int64_t)(at + i) * step * d, (size_t)d * sizeof *key);
        wnw__pair_tile(key, n, d, tile, unit, room);
        wnw__pair_panels(tile, unit, n, d, 1, list->panels + (size_t)b * WNW_PAIR_PANELS(d),
                         list->unit + b * WNW_PAIR_UNITS);
    }
}

static size_t list_room(size_t d)
{
    return WNW_PAIR_ROOM(d) + TILE * d + TILE + WNW_PAIR_TILE(d);
}

static void prepare_lists(int32_t ih, void *user)
{
    const struct layer *l = user;
    const int32_t d = l->obs->n_embd_head;
    float *room = keys_room(l, ih);
    struct group g;
    group_at(l, ih, &g);
    fill_list(&g.header, g.far, 1, d, room);
    fill_list(&g.samples, g.far + (int64_t)g.n_head * d, g.step, d, room);
    fill_list(&g.own, g.keys + (int64_t)g.n_head * d, g.step, d, room);
}

/* Copies the keys of all KV heads, which one thread alone may ask for; threads share out the rest. */
static void prepare(struct layer *l)
{
    const wnw_observation *obs = l->obs;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        struct group g;
        group_at(l, ih, &g);
        memcpy(g.keys, obs->keys(obs, ih), (size_t)g.n * (size_t)obs->n_embd_head * sizeof *g.keys);
    }
    wnw__observation_each(obs, 2 * obs->n_head_kv, prepare_keys, l);
    if (l->o->form == FORM_SPARSE)
        wnw__observation_each(obs, obs->n_head_kv, prepare_lists, l);
}

/* ---- One query head ---- */

/* The memory of a query head. */
struct head {
    const struct layer *l;
    struct group g;
    int32_t h, n_pad;         /* n, rounded up to whole tiles */
    float *best;              /* [n_pad] the largest logarithm of a score so far */
    float *rows;              /* [ROWS][n_pad] logits with far keys */
    float *own;               /* [ROWS][TILE] logits with keys as cached */
    float *query;             /* [TILE][d] */
    float *unit, *panel_unit; /* of queries: [TILE], [WNW_PAIR_UNITS] */
    uint32_t *tile, *panels;  /* queries in whole numbers */
    float *s;                 /* [WNW_PAIR_UNITS][TILE] logits of keys in panels with a tile of queries */
    float *near[2];           /* [2][2 band + 1][TILE] logits of neighbourhoods, far and as cached */
    float *room;              /* of wnw__pair_tile */
};

static size_t lay_out_head(struct head *x, const struct opts *o, const wnw_observation *obs, float *room)
{
    const size_t d = (size_t)obs->n_embd_head, n_pad = tiles_of((size_t)obs->n) * TILE,
                 near = 2 * (size_t)o->band + 1;
    size_t used = 0;
    x->n_pad = (int32_t)n_pad;
    x->best = take(room, &used, n_pad);
    x->rows = take(room, &used, ROWS * n_pad);
    x->own = take(room, &used, ROWS * TILE);
    x->query = take(room, &used, TILE * d);
    x->unit = take(room, &used, TILE);
    x->panel_unit = take(room, &used, WNW_PAIR_UNITS);
    x->tile = (uint32_t *)(void *)take(room, &used, WNW_PAIR_TILE(d));
    x->panels = (uint32_t *)(void *)take(room, &used, WNW_PAIR_PANELS(d));
    x->s = take(room, &used, WNW_PAIR_UNITS * TILE);
    for (int i = 0; i < 2; i++)
        x->near[i] = take(room, &used, 2 * near * TILE);
    x->room = take(room, &used, WNW_PAIR_ROOM(d));
    return used;
}

/* The query at t; from one position to the next are n_head rows. */
static const float *query_at(const struct head *x, int32_t t)
{
    const wnw_observation *obs = x->l->obs;
    return obs->queries +
           ((int64_t)(t - obs->n_past + obs->n_queries) * obs->n_head + x->h) * obs->n_embd_head;
}

/* Takes n <= TILE queries at t, t + step, .. into a tile. */
static void take_queries(const struct head *x, int32_t t, int32_t step, int32_t n)
{
    const int32_t d = x->l->obs->n_embd_head;
    for (int32_t i = 0; i < n; i++)
        memcpy(x->query + (int64_t)i * d, query_at(x, t + i * step), (size_t)d * sizeof(float));
    wnw__pair_tile(x->query, n, d, x->tile, x->unit, x->room);
}

static void fill(float *x, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++)
        x[i] = -INFINITY;
}

/* ---- Queries that look at everything ---- */

/* n_row queries in panels, at t, t + step, .., and how many entries are not after each. */
struct watch {
    const uint32_t *panels;
    const float *unit;
    int32_t n_panel, n_row, seen[ROWS];
    float most[ROWS], sum[ROWS]; /* of the softmax */
};

static void watch_far(const struct head *x, struct watch *w)
{
    const struct group *g = &x->g;
    const int32_t d = x->l->obs->n_embd_head;
    for (int32_t at = 0, k = 0; at < g->n; at += TILE, k++) {
        wnw__mul_pairs(w->panels, w->unit, w->n_panel, d, g->far_tiles + (size_t)k * WNW_PAIR_TILE(d),
                       g->far_unit + at, x->rows + at, x->n_pad);
        for (int32_t r = 0; r < w->n_row && g->n - at < TILE; r++)
            fill(x->rows + (int64_t)r * x->n_pad, g->n, x->n_pad);
        wnw__sum_rows(x->rows + at, x->n_pad, w->n_row, w->most, w->sum);
    }
}

static void watch_own(const struct head *x, struct watch *w)
{
    const struct group *g = &x->g;
    const int32_t d = x->l->obs->n_embd_head, n_head = g->n_head;
    for (int32_t k = n_head / TILE; k * TILE < w->seen[w->n_row - 1]; k++) {
        const int32_t at = k * TILE;
        wnw__mul_pairs(w->panels, w->unit, w->n_panel, d, g->key_tiles + (size_t)k * WNW_PAIR_TILE(d),
                       g->key_unit + at, x->own, TILE);
        for (int32_t r = 0; r < w->n_row && (at < n_head || at + TILE > w->seen[0]); r++) {
            const int32_t seen = w->seen[r] > at ? w->seen[r] - at : 0;
            fill(x->own + r * TILE, 0, n_head - at);
            fill(x->own + r * TILE, seen, TILE);
        }
        wnw__sum_rows(x->own, TILE, w->n_row, w->most, w->sum);
    }
}

/* Lets the queries of w look; the first one is at t. */
static void watch(const struct head *x, struct watch *w, int32_t t, int32_t step)
{
    float log_sum[ROWS];
    for (int32_t r = 0; r < w->n_row; r++) {
        w->seen[r] = n_until(&x->g, t + r * step, r > 0 ? w->seen[r - 1] : x->g.n_head);
        w->most[r] = -FLT_MAX;
        w->sum[r] = 0;
    }
    watch_far(x, w);
    watch_own(x, w);
    for (int32_t r = 0; r < w->n_row; r++)
        log_sum[r] = w->most[r] + logf(w->sum[r]);
    for (int32_t at = 0; at < x->g.n; at += TILE)
        wnw__raise_to(x->best + at, x->rows + at, x->n_pad, w->n_row, log_sum);
}

/* Lets every step-th query look at everything. */
static void look_at_all(const struct head *x, int32_t step)
{
    const wnw_observation *obs = x->l->obs;
    const int32_t end = x->l->first + x->l->n_query, d = obs->n_embd_head, rows = wnw__pair_rows();
    for (int32_t t = x->l->first; t < end; t += TILE * step) {
        const int32_t left = ceil_div(end - t, step), n = left < TILE ? left : TILE;
        take_queries(x, t, step, n);
        wnw__pair_panels(x->tile, x->unit, n, d, obs->attn_scale, x->panels, x->panel_unit);
        for (int32_t i = 0; i < n; i += 2 * rows) {
            struct watch w = {.panels = x->panels + (size_t)i * WNW_PAIRS(d), .unit = x->panel_unit + i};
            w.n_row = n - i < 2 * rows ? n - i : 2 * rows;
            w.n_panel = ceil_div(w.n_row, rows);
            watch(x, &w, t + i * step, step);
        }
    }
}

/* ---- All queries, at their neighbourhood ----
 * Few neighbourhoods can raise a score. Let a query look only at its neighbourhood and at the first keys, which take much.
 * What it then gives to its neighbourhood is an upper bound. If that is no more than the present scores, the estimate is left
 * out; other queries wait until there are TILE of them. */

/* Queries at t, one in each column, with sums of exponentials and what is near: entry first + i is in row i of near, and as
 * cached in row most + i. */
struct look {
    int32_t n, t[TILE], first[TILE], end[TILE]; /* entries first .. end - 1 */
    float most[TILE], sum[TILE];
    float *near;
};

static void forget_sums(struct look *k)
{
    for (int32_t j = 0; j < TILE; j++) {
        k->most[j] = -FLT_MAX;
        k->sum[j] = 0;
    }
}

/* Leaves the logits s[TILE] with the sampled entry at pos out where it is near the query, because the query looks at it
 * itself. As cached, also where it is after the query. */
static void leave_out(const struct look *k, int32_t pos, int32_t band, bool own, float *s)
{
    const int32_t low = own ? INT32_MIN : pos - band, high = pos + band;
    if (high < k->t[0] || low > k->t[k->n - 1])
        return;
    for (int32_t j = 0; j < TILE; j++)
        s[j] = k->t[j] >= low && k->t[j] <= high ? -INFINITY : s[j];
}

/* Adds the first n keys of a list to the sums of the queries in the tile. */
static void add_list(const struct head *x, const struct list *list, int32_t n, struct look *k)
{
    const struct group *g = &x->g;
    const int32_t d = x->l->obs->n_embd_head, band = x->l->o->band, rows = wnw__pair_rows();
    for (int32_t at = 0, b = 0; at < n; at += TILE, b++) {
        const int32_t here = n - at < TILE ? n - at : TILE;
        wnw__mul_pairs(list->panels + (size_t)b * WNW_PAIR_PANELS(d), list->unit + b * WNW_PAIR_UNITS,
                       ceil_div(here, rows), d, x->tile, x->unit, x->s, TILE);
        for (int32_t i = 0; i < here && list != &g->header; i++)
            leave_out(k, g->pos[g->n_head + (at + i) * g->step], band, list == &g->own, x->s + i * TILE);
        wnw__sum_columns(x->s, here, k->most, k->sum);
    }
}

/* Looks at the neighbourhoods of queries at consecutive positions where no entry is missing: row i is entry t + i - band. */
static void near_all(const struct head *x, struct look *k)
{
    enum { STEP = 16 }; /* queries whose neighbourhoods fit into the nearest memory */
    const struct group *g = &x->g;
    const int32_t d = x->l->obs->n_embd_head, band = x->l->o->band, most = 2 * band + 1,
                  at = g->n_head + k->t[0] - g->pos[g->n_head];
    const int64_t ld = (int64_t)x->l->obs->n_head * d;
    for (int32_t j = 0; j < k->n; j++) {
        k->first[j] = at + j - band;
        k->end[j] = at + j + band + 1;
    }
    for (int32_t j = 0; j < k->n; j += STEP)
        for (int32_t i = 0; i < most; i++) {
            const int32_t first = k->first[j] + i, skipped = first < g->n_head ? g->n_head - first : 0,
                          c = first + skipped, here = k->n - j < STEP ? k->n - j : STEP,
                          n = g->n - first < here ? g->n - c : here - skipped;
            if (n < 1)
                continue;
            const float *query = query_at(x, k->t[j] + skipped);
            float *to = k->near + i * TILE + j + skipped;
            wnw__dots(query, ld, g->far + (int64_t)c * d, d, n, d, to);
            if (i <= band)
                wnw__dots(query, ld, g->keys + (int64_t)c * d, d, n, d, to + most * TILE);
        }
}

/* The same entry by entry, where some are missing. No neighbourhood begins before entry `from`. */
static void near_left(const struct head *x, struct look *k, int32_t *from)
{
    const struct group *g = &x->g;
    const int32_t d = x->l->obs->n_embd_head, band = x->l->o->band, most = 2 * band + 1;
    for (int32_t j = 0; j < k->n; j++) {
        const float *query = query_at(x, k->t[j]);
        k->first[j] = *from = n_until(g, k->t[j] - band - 1, *from);
        k->end[j] = n_until(g, k->t[j] + band, *from);
        for (int32_t c = *from; c < k->end[j]; c++) {
            float *to = k->near + (c - *from) * TILE + j;
            wnw__dots(query, d, g->far + (int64_t)c * d, d, 1, d, to);
            if (g->pos[c] <= k->t[j])
                wnw__dots(query, d, g->keys + (int64_t)c * d, d, 1, d, to + most * TILE);
        }
    }
}

/* Adds some keys that take much to the sums: the first of the header, or of the sampled ones. */
static void add_first(const struct head *x, struct look *k)
{
    enum { MOST = 4 };
    const struct group *g = &x->g;
    const int32_t d = x->l->obs->n_embd_head, band = x->l->o->band,
                  n_first = g->n_head > 0 ? g->n_head : 2 * g->samples.n, n = n_first < MOST ? n_first : MOST;
    const int64_t ld = (int64_t)x->l->obs->n_head * d;
    const float scale = x->l->obs->attn_scale, weight = g->n_head > 0 ? 0 : logf((float)g->step);
    for (int32_t i = 0; i < n; i++) {
        const bool own = g->n_head == 0 && i % 2;
        const int32_t c = g->n_head > 0 ? i : i / 2 * g->step;
        float *s = x->s + i * TILE;
        wnw__dots(query_at(x, k->t[0]), ld, (own ? g->keys : g->far) + (int64_t)c * d, 0, k->n, d, s);
        for (int32_t j = 0; j < k->n; j++)
            s[j] = s[j] * scale + weight;
        if (g->n_head == 0)
            leave_out(k, g->pos[c], band, own, s);
    }
    wnw__sum_columns(x->s, n, k->most, k->sum);
}

/* Whether query j can raise a score if it gives a neighbour at most exp(its logit - less). */
static bool can_raise(const struct head *x, const struct look *k, int32_t j, float less)
{
    const int32_t from = k->first[j] > x->g.n_head ? k->first[j] : x->g.n_head,
                  to = k->end[j] < x->g.n ? k->end[j] : x->g.n;
    for (int32_t c = from; c < to; c++)
        if (!(k->near[(c - k->first[j]) * TILE + j] - less <= x->best[c]))
            return true;
    return false;
}

/* Raises scores by the queries that wait. A sampled key counts u times. */
static void look_waiting(const struct head *x, struct look *w)
{
    const struct group *g = &x->g;
    const int32_t most = 2 * x->l->o->band + 1;
    int32_t n_own = 0;
    if (w->n == 0)
        return;
    wnw__pair_tile(x->query, w->n, x->l->obs->n_embd_head, x->tile, x->unit, x->room);
    for (int32_t j = 0; j < TILE; j++) {
        x->unit[j] *= x->l->obs->attn_scale;
        w->t[j] = w->t[j < w->n ? j : w->n - 1];
    }
    while (n_own < g->own.n && g->pos[g->n_head + n_own * g->step] <= w->t[w->n - 1])
        n_own++;
    forget_sums(w);
    add_list(x, &g->samples, g->samples.n, w);
    add_list(x, &g->own, n_own, w);
    for (int32_t j = 0; j < TILE; j++)
        w->sum[j] *= (float)g->step;
    add_list(x, &g->header, g->n_head, w);
    wnw__sum_columns(w->near, 2 * most, w->most, w->sum);
    for (int32_t j = 0; j < w->n; j++) {
        const float less = w->most[j] + logf(w->sum[j]);
        for (int32_t c = w->first[j]; c < w->end[j]; c++) {
            const float s = w->near[(c - w->first[j]) * TILE + j] - less;
            if (c >= g->n_head && c < g->n && s > x->best[c])
                x->best[c] = s;
        }
    }
    w->n = 0;
}

/* Lets query j wait. */
static void wait_for(const struct head *x, const struct look *k, int32_t j, struct look *w)
{
    const int32_t d = x->l->obs->n_embd_head, most = 2 * x->l->o->band + 1, to = w->n++;
    memcpy(x->query + (int64_t)to * d, query_at(x, k->t[j]), (size_t)d * sizeof(float));
    for (int32_t i = 0; i < 2 * most; i++)
        w->near[i * TILE + to] = k->near[i * TILE + j];
    w->t[to] = k->t[j];
    w->first[to] = k->first[j];
    w->end[to] = k->end[j];
    if (w->n == TILE)
        look_waiting(x, w);
}

/* Asks for n queries from t on, which were written a while ago and are not adjacent. */
static void fetch_queries(const struct head *x, int32_t t, int32_t n)
{
    enum { LINE = 64 / sizeof(float) };
    for (int32_t j = 0; j < n; j++) {
        const float *query = query_at(x, t + j);
        for (int32_t c = 0; c < x->l->obs->n_embd_head; c += LINE)
            __builtin_prefetch(query + c);
    }
}

/* Lets every query look at its neighbourhood. */
static void look_around(const struct head *x)
{
    const struct group *g = &x->g;
    const int32_t end = x->l->first + x->l->n_query, most = 2 * x->l->o->band + 1, n_text = g->n - g->n_head;
    const bool whole = n_text > 0 && g->pos[g->n - 1] - g->pos[g->n_head] == n_text - 1;
    struct look k = {.near = x->near[0]}, w = {.near = x->near[1]};
    int32_t from = g->n_head;
    fill(w.near, 0, 2 * most * TILE);
    for (int32_t t = x->l->first; t < end; t += TILE) {
        const int32_t left = end - t - TILE;
        k.n = left < 0 ? end - t : TILE;
        fetch_queries(x, t + TILE, left < TILE ? left : TILE);
        for (int32_t j = 0; j < TILE; j++)
            k.t[j] = t + j;
        fill(k.near, 0, 2 * most * TILE);
        if (whole)
            near_all(x, &k);
        else
            near_left(x, &k, &from);
        for (int32_t i = 0; i < 2 * most * TILE; i++)
            k.near[i] *= x->l->obs->attn_scale;
        forget_sums(&k);
        wnw__sum_columns(k.near, 2 * most, k.most, k.sum);
        add_first(x, &k);
        for (int32_t j = 0; j < k.n; j++)
            if (can_raise(x, &k, j, k.most[j] + logf(k.sum[j])))
                wait_for(x, &k, j, &w);
    }
    look_waiting(x, &w);
}

static void score_head(int32_t h, void *user)
{
    const struct layer *l = user;
    const wnw_observation *obs = l->obs;
    const int32_t ih = h / (obs->n_head / obs->n_head_kv);
    float *score = l->score + (int64_t)h * obs->n;
    struct head x = {.l = l, .h = h};
    group_at(l, ih, &x.g);
    lay_out_head(&x, l->o, obs,
                 l->scratch + (size_t)obs->n_head_kv * l->group_size + (size_t)h * l->head_size);
    const int32_t n_safe = obs->n_prefix > 0 ? x.g.n_head : l->o->sinks;
    for (int32_t c = 0; c < obs->n; c++)
        score[c] = c < n_safe ? 1 : 0;
    if (!wnw__query_head_used(obs, h) || l->n_query < 1)
        return;
    fill(x.best, 0, x.n_pad);
    look_at_all(&x, l->o->form == FORM_EXACT ? 1 : ceil_div(l->n_query, l->o->m));
    if (l->o->form == FORM_SPARSE)
        look_around(&x);
    wnw__exps(x.best, x.n_pad);
    for (int32_t c = n_safe; c < x.g.n; c++)
        score[c] = x.best[c] < 1 ? x.best[c] : 1;
}

/* ---- The layer ---- */

/* D. */
static int shift_of(const struct opts *o, const wnw_observation *obs, int32_t *shift)
{
    const int32_t n = obs->n_past;
    const int64_t usual = o->shift < 0 ? (int64_t)n + o->gap - obs->n_prefix : o->shift;
    if (obs->n_ctx_train > 0 && n > obs->n_ctx_train)
        return wnw__fail(
            WNW_E_RANGE,
            "replay: the prompt has %d tokens and the model was trained for %d, so no "
            "position is left to replay it at; shorten it, or read it in chunks and keep few entries",
            (int)n, (int)obs->n_ctx_train);
    const int64_t most = obs->n_ctx_train > 0 ? obs->n_ctx_train - n : INT32_MAX;
    *shift = (int32_t)(usual < most ? usual : most);
    return WNW_OK;
}

static size_t keys_size(const wnw_observation *obs)
{
    return list_room((size_t)obs->n_embd_head);
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    struct group g;
    struct head x;
    const size_t n_head_kv = (size_t)obs->n_head_kv, n_head = (size_t)obs->n_head;
    return n_head_kv * lay_out_group(&g, opts, obs, NULL) + n_head * lay_out_head(&x, opts, obs, NULL) +
           2 * n_head_kv * keys_size(obs);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const int32_t known = obs->n_past - obs->n_queries;
    struct group g;
    struct head x;
    struct layer l = {.o = opts,
                      .obs = obs,
                      .score = score,
                      .scratch = scratch,
                      .group_size = lay_out_group(&g, opts, obs, NULL),
                      .head_size = lay_out_head(&x, opts, obs, NULL),
                      .keys_size = keys_size(obs),
                      .first = known > obs->n_prefix ? known : obs->n_prefix};
    WNW_TRY(shift_of(l.o, obs, &l.shift));
    l.n_query = obs->n_past - l.first;
    prepare(&l);
    wnw__observation_each(obs, obs->n_head, score_head, &l);
    return WNW_OK;
}

static const char *const forms[] = {"sparse", "exact", NULL};

static const wnw_option options[] = {
    {.name = "form",
     .help =
         "sparse: some queries look at everything and all at their neighbourhood; exact: all at everything",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, form),
     .def = FORM_SPARSE,
     .choices = forms},
    {.name = "shift",
     .help = "positions between the text and its repetition; -1 = its length after the header, and gap",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, shift),
     .def = -1,
     .min = -1,
     .max = 1 << 24},
    {.name = "gap",
     .help = "tokens of the instruction between them",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, gap),
     .def = 13,
     .min = 0,
     .max = 65536},
    {.name = "band",
     .help = "sparse: how far to each side every query looks",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, band),
     .def = 2,
     .min = 0,
     .max = 64},
    {.name = "m",
     .help = "sparse: queries that look at everything",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, m),
     .def = 64,
     .min = 1,
     .max = 65536},
    {.name = "m_keys",
     .help = "sparse: keys of the estimate of a query's whole attention",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, m_keys),
     .def = 64,
     .min = 1,
     .max = 4096},
    {.name = "sinks",
     .help = "first entries that always stay where no chat header is known",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sinks),
     .def = 4,
     .min = 0,
     .max = 65536},
    {0}};

const wnw_scorer wnw__scorer_replay = {
    .part =
        {WNW_SCORER_INIT, .name = "replay",
         .about = "What KVzip's second reading would attend to, from the queries and keys of the first.",
         .paper = "after KVzip, arXiv 2505.23416",
         .details =
             "Token `t` of `n`, `n_p` of which are the chat header, would be repeated at position `t + D`, "
             "`D = "
             "n + gap - n_p`. With `far(t,c) = q_t . R(-D) k_c / sqrt(d)` for all entries and `loc(t,c) = "
             "q_t . "
             "k_c / sqrt(d)` for those after the header up to `t`, `score(c) = max_t exp(far(t,c)) / (sum "
             "exp(far) + sum exp(loc))`, then the maximum over the query heads of a KV head.\n\n"
             "`form=sparse`: every `T / m`-th of the `T` queries looks at everything; every query looks at "
             "the "
             "entries up to `band` positions away, with an estimate of its sum from these, the header and "
             "every "
             "`T / m_keys`-th key.\n\n"
             "`D` is at most what the model's trained context leaves; a longer prompt is refused. With "
             "chunks "
             "only the newest chunk's queries are known, and they alone judge older entries. From no paper "
             "that "
             "we know; docs/research/auto.md has what it does to answers.\n\n"
             "Cost: at most `1.5 d (n m + T m_keys)` multiplications per query head, `1.5 d n T` with "
             "`form=exact`. "
             "Elements are rounded to 1/32000 of their row's length.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION | WNW_FLAG_SECOND_LOOK, .needs = needs,
         .keep = keep},
    .aggregation = "group_max",
    .scratch = scratch_size,
    .score = score,
};
