/* SPDX-License-Identifier: MIT */
/*
 * Replay: what KVzip's repetition of the context (arXiv 2505.23416) would attend to if it had the queries and keys of
 * the first reading, so that nothing is read a second time. From no paper that we know. Token t of the n read, of
 * which the chat template wrote the first n_p, is repeated at position t + D,
 *
 *     D = min(n + S - n_p, n_train - n)              S tokens of instruction stand between; n_train: trained context
 *     far(h,t,c) = q_t . R(-D) k_c / sqrt(d)         c = 0 .. n - 1: the text, seen from the repetition
 *     loc(h,t,c) = q_t . k_c / sqrt(d)               n_p <= c <= t: the repetition's own keys, at their old distances
 *     lse(h,t)   = log( sum e^far + sum e^loc )
 *     exact:   score(h,c) = max over t >= n_p of exp(far(h,t,c) - lse(h,t))
 *     sparse:  every s-th query looks at all keys, s = ceil(T / m) for the T queries; and every query at the keys
 *              |t - c| <= band, with an estimate of lse from these, the header, and every u-th key, each of which
 *              stands for u, u = ceil(T / m_keys); the larger of the two is the score
 * group_max takes the maximum over the query heads of a KV head. The header, or where none is known the first `sinks`
 * entries, stay and have score 1. A repeated text looks for its next token, not for itself, so that far scores mostly
 * fall on c = t + 1 and little is seen by chance: queries of the neighbourhood find it though the stride skips them.
 *
 * Where entries are gone, those left are the text; where only the newest queries are known (chunks), they alone look.
 * Observes all queries and keys. Range 0..1. Cost per query head: sparse 1.5 d (n m + T m_keys), exact 1.5 d n T.
 */
#include "kernel/kernel.h"
#include "policy/mean_rope.h"
#include "policy/part.h"
#include "policy/window.h"

#include <math.h>
#include <string.h>

enum form { FORM_SPARSE, FORM_EXACT };

struct opts {
    int32_t form, shift, gap, band, m, m_keys, sinks;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_QUERIES | WNW_NEED_KEYS | WNW_NEED_ROPE;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    out->n_first = p->n_prefix > 0 ? p->n_here : ((const struct opts *)opts)->sinks;
}

static int32_t ceil_div(int32_t a, int32_t b)
{
    return a > 0 ? (a - 1) / b + 1 : 1;
}

/* ---- The layer at hand ---- */

struct layer {
    const struct opts *o;
    const wnw_observation *obs;
    float *score;
    float *keys, *far;            /* [n_head_kv][n][d] as cached, and turned back by D */
    float *key_tiles, *far_tiles; /* [n_head_kv][tile_size] the same in tiles */
    size_t tile_size;
    float *room; /* [n_head][room_size] */
    size_t room_size;
    int32_t shift;   /* D */
    int32_t first;   /* position of the first query that looks */
    int32_t n_query; /* T */
};

/* Keys of the neighbourhood of queries that are multiplied together. */
static int32_t most_near(const struct opts *o)
{
    return WNW_PANEL_MOST + 2 * o->band;
}

/* Floats of one query head: rows of logits, queries and their panel, the keys of the estimate and their tiles. */
static size_t room_of(const struct opts *o, const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head, n_key = n + 2 * (size_t)o->m_keys;
    const size_t row = n_key + 4 * (size_t)most_near(o); /* the header may be all */
    return WNW_PANEL_MOST * ((row > 2 * n ? row : 2 * n) + 2 * d) + n_key * d + WNW_TILE_FLOATS(n_key, d);
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    return 2 * (size_t)obs->n_head_kv * (n * d + WNW_TILE_FLOATS(n, d)) +
           (size_t)obs->n_head * room_of(opts, obs);
}

/* Makes tiles of the keys of KV head i / 2, as they are, or turned back by the shift where i is odd. */
static void prepare_keys(int32_t i, void *user)
{
    const struct layer *l = user;
    const wnw_observation *obs = l->obs;
    const int32_t ih = i / 2, n = obs->n_entry[ih], d = obs->n_embd_head;
    const int64_t at = (int64_t)ih * obs->n * d;
    if (i % 2 == 0) {
        wnw__tiles_of(l->keys + at, n, d, l->key_tiles + (size_t)ih * l->tile_size);
        return;
    }
    memcpy(l->far + at, l->keys + at, (size_t)n * (size_t)d * sizeof(float));
    wnw__turn_rows(obs, -l->shift, 1, l->far + at, n, d, 1);
    wnw__tiles_of(l->far + at, n, d, l->far_tiles + (size_t)ih * l->tile_size);
}

/* Copies the keys of all KV heads, which one thread alone may ask for; threads share out the rest. */
static void copy_keys(struct layer *l)
{
    const wnw_observation *obs = l->obs;
    const int64_t row = (int64_t)obs->n * obs->n_embd_head;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        memcpy(l->keys + ih * row, obs->keys(obs, ih),
               (size_t)obs->n_entry[ih] * (size_t)obs->n_embd_head * sizeof(float));
    wnw__observation_each(obs, 2 * obs->n_head_kv, prepare_keys, l);
}

/* ---- One query head ---- */

struct head {
    const struct layer *l;
    const float *keys, *far, *key_tiles, *far_tiles;
    const int32_t *pos;                       /* [n] */
    int32_t h, n, n_head;                     /* entries, of which the first n_head are of the chat header */
    float *score;                             /* [n] */
    float *row, *query, *panel, *key, *tiles; /* the head's part of the room */
};

/* Takes the queries at t, t + step, ... into a panel. */
static void take_queries(const struct head *x, int32_t t, int32_t step, int32_t n)
{
    const wnw_observation *obs = x->l->obs;
    const int32_t first = obs->n_past - obs->n_queries, d = obs->n_embd_head;
    for (int32_t i = 0; i < n; i++)
        memcpy(x->query + (int64_t)i * d,
               obs->queries + ((int64_t)(t + i * step - first) * obs->n_head + x->h) * d,
               (size_t)d * sizeof(float));
    wnw__panel_of(x->query, n, d, obs->attn_scale, x->panel);
}

/* out[n_query][ld] = logits of the queries at hand with keys first .. end - 1 of the tiles. */
static void mul(const struct head *x, int32_t n_query, const float *tiles, int32_t first, int32_t end,
                float *out, int64_t ld)
{
    wnw__mul_tiles(x->panel, n_query, x->l->obs->n_embd_head, tiles, first, end, out, ld);
}

/* The number of entries, of the first n, at positions up to t. `from` is a number that it is not below. */
static int32_t n_until(const struct head *x, int32_t t, int32_t from)
{
    while (from < x->n && x->pos[from] <= t)
        from++;
    return from;
}

static void raise(float *score, const float *p, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        score[i] = p[i] > score[i] ? p[i] : score[i];
}

/* Lets every step-th query look at everything. */
static void look_at_all(const struct head *x, int32_t step)
{
    const int32_t end = x->l->first + x->l->n_query, n_head = x->n_head, most = wnw__panel_rows();
    const int64_t ld = 2 * (int64_t)x->n;
    int32_t seen = n_head;
    for (int32_t t = x->l->first; t < end; t += most * step) {
        const int32_t left = ceil_div(end - t, step), n_row = left < most ? left : most;
        take_queries(x, t, step, n_row);
        mul(x, n_row, x->far_tiles, 0, x->n, x->row, ld);
        mul(x, n_row, x->key_tiles, n_head, n_until(x, t + (n_row - 1) * step, seen), x->row + x->n, ld);
        for (int32_t i = 0; i < n_row; i++) {
            float *row = x->row + i * ld;
            seen = n_until(x, t + i * step, seen);
            wnw__softmax(row, x->n + seen - n_head);
            raise(x->score + n_head, row + n_head, x->n - n_head);
        }
    }
}

/* The keys of the estimate lie one after the other: header, every u-th, and these once more as cached. */
struct estimate {
    int32_t step, n; /* u, and how many */
    float weight;    /* log u */
};

static struct estimate take_keys(const struct head *x)
{
    const int32_t n_text = x->n - x->n_head, d = x->l->obs->n_embd_head;
    struct estimate e = {.step = ceil_div(n_text, x->l->o->m_keys)};
    const size_t bytes = (size_t)d * sizeof(float);
    float *to = x->key;
    e.n = n_text > 0 ? ceil_div(n_text, e.step) : 0;
    e.weight = logf((float)e.step);
    memcpy(to, x->far, (size_t)x->n_head * bytes);
    to += (int64_t)x->n_head * d;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < e.n; i++, to += d)
            memcpy(to, (pass ? x->keys : x->far) + ((int64_t)x->n_head + (int64_t)i * e.step) * d, bytes);
    wnw__tiles_of(x->key, x->n_head + 2 * e.n, d, x->tiles);
    return e;
}

/* What a query sees: n_loc keys of the estimate and n_own entries of its neighbourhood first .. end - 1 are before it. */
struct sight {
    int32_t n_loc, first, end, n_own;
};

/* The row of a query: logits of the header, e->n far and s->n_loc local ones of the estimate. Those of entries that are
 * looked at themselves do not count. Logits of the neighbourhood follow: far[end - first], loc[n_own]. A sampled key
 * stands for u: all others lose log u, which is the same. */
static void look_near(const struct head *x, const struct estimate *e, const struct sight *s, float *row,
                      const float *far, const float *loc)
{
    float *sample = row + x->n_head, *near = sample + e->n + s->n_loc;
    const int32_t n_near = s->end - s->first;
    for (int32_t i = ceil_div(s->first - x->n_head, e->step) * (s->first > x->n_head);
         i < e->n && x->n_head + i * e->step < s->end; i++) {
        sample[i] = -INFINITY;
        if (i < s->n_loc)
            sample[e->n + i] = -INFINITY;
    }
    for (int32_t i = 0; i < x->n_head; i++)
        row[i] -= e->weight;
    for (int32_t i = 0; i < n_near; i++)
        near[i] = far[i] - e->weight;
    for (int32_t i = 0; i < s->n_own; i++)
        near[n_near + i] = loc[i] - e->weight;
    wnw__softmax(row, x->n_head + e->n + s->n_loc + n_near + s->n_own);
    raise(x->score + s->first, near, n_near);
}

/* Lets every query look at its neighbourhood. */
static void look_around(const struct head *x)
{
    const int32_t d = x->l->obs->n_embd_head, band = x->l->o->band, n_head = x->n_head,
                  rows = wnw__panel_rows();
    const float scale = x->l->obs->attn_scale;
    const struct estimate e = take_keys(x);
    const int32_t end = x->l->first + x->l->n_query, most = most_near(x->l->o);
    const int64_t n_fixed = n_head + 2 * (int64_t)e.n, ld = n_fixed + 4 * (int64_t)most;
    float *far = x->row + n_fixed + 2 * most, *loc = far + most; /* after the room of a row itself */
    struct sight s = {.first = n_head, .end = n_head};
    int32_t seen = n_head;
    for (int32_t t = x->l->first; t < end; t += rows) {
        const int32_t n_row = end - t < rows ? end - t : rows, last = t + n_row - 1;
        const int32_t n_text = n_until(x, last, seen) - n_head,
                      n_loc = n_text > 0 ? ceil_div(n_text, e.step) : 0;
        const int32_t from = n_until(x, t - band - 1, s.first), to = n_until(x, last + band, s.end);
        take_queries(x, t, 1, n_row);
        mul(x, n_row, x->tiles, 0, n_head + e.n + n_loc, x->row, ld);
        if (to > from) {
            wnw__mul_nt(x->query, n_row, x->far + (int64_t)from * d, to - from, d, scale, far, ld);
            wnw__mul_nt(x->query, n_row, x->keys + (int64_t)from * d, to - from, d, scale, loc, ld);
        }
        for (int32_t i = 0; i < n_row; i++) {
            seen = n_until(x, t + i, seen);
            s.n_loc = seen > n_head ? ceil_div(seen - n_head, e.step) : 0;
            s.first = n_until(x, t + i - band - 1, s.first);
            s.end = n_until(x, t + i + band, s.end);
            s.n_own = seen > s.first ? seen - s.first : 0;
            look_near(x, &e, &s, x->row + i * ld, far + i * ld + (s.first - from),
                      loc + i * ld + (s.first - from));
        }
    }
}

static void score_head(int32_t h, void *user)
{
    const struct layer *l = user;
    const wnw_observation *obs = l->obs;
    const int32_t ih = h / (obs->n_head / obs->n_head_kv), d = obs->n_embd_head;
    const int64_t at = (int64_t)ih * obs->n;
    struct head x = {.l = l,
                     .keys = l->keys + at * d,
                     .far = l->far + at * d,
                     .key_tiles = l->key_tiles + (size_t)ih * l->tile_size,
                     .far_tiles = l->far_tiles + (size_t)ih * l->tile_size,
                     .pos = obs->pos + at,
                     .h = h,
                     .n = obs->n_entry[ih],
                     .score = l->score + (int64_t)h * obs->n,
                     .query = l->room + (size_t)h * l->room_size};
    const int32_t n_key = obs->n + 2 * l->o->m_keys;
    x.panel = x.query + WNW_PANEL_MOST * d;
    x.key = x.panel + WNW_PANEL_MOST * d;
    x.tiles = x.key + (int64_t)n_key * d;
    x.row = x.tiles + WNW_TILE_FLOATS(n_key, d);
    x.n_head = n_until(&x, obs->n_prefix - 1, 0);
    const int32_t n_safe = obs->n_prefix > 0 ? x.n_head : l->o->sinks;
    for (int32_t c = 0; c < obs->n; c++)
        x.score[c] = c < n_safe ? 1 : 0;
    if (!wnw__query_head_used(obs, h) || l->n_query < 1)
        return;
    look_at_all(&x, l->o->form == FORM_EXACT ? 1 : ceil_div(l->n_query, l->o->m));
    if (l->o->form == FORM_SPARSE)
        look_around(&x);
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
            "replay: the prompt has %d tokens and the model was trained for %d, so that there is no "
            "position to replay it at; shorten it, or read it in chunks of which few entries stay",
            (int)n, (int)obs->n_ctx_train);
    const int64_t most = obs->n_ctx_train > 0 ? obs->n_ctx_train - n : INT32_MAX;
    *shift = (int32_t)(usual < most ? usual : most);
    return WNW_OK;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head, n_head_kv = (size_t)obs->n_head_kv;
    const int32_t known = obs->n_past - obs->n_queries;
    struct layer l = {.o = opts,
                      .obs = obs,
                      .score = score,
                      .keys = scratch,
                      .tile_size = WNW_TILE_FLOATS(n, d),
                      .room_size = room_of(opts, obs),
                      .first = known > obs->n_prefix ? known : obs->n_prefix};
    l.far = l.keys + n_head_kv * n * d;
    l.key_tiles = l.far + n_head_kv * n * d;
    l.far_tiles = l.key_tiles + n_head_kv * l.tile_size;
    l.room = l.far_tiles + n_head_kv * l.tile_size;
    WNW_TRY(shift_of(l.o, obs, &l.shift));
    l.n_query = obs->n_past - l.first;
    copy_keys(&l);
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
             "we know; docs/results.md has what it does to answers.\n\n"
             "Cost: `1.5 d (n m + T m_keys)` multiplications per query head, `1.5 d n T` with `form=exact`.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION | WNW_FLAG_SECOND_LOOK, .needs = needs,
         .keep = keep},
    .aggregation = "group_max",
    .scratch = scratch_size,
    .score = score,
};
