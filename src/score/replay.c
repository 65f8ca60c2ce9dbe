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
#include "policy/part.h"
#include "policy/window.h"
#include "score/mean_rope.h"

#include <math.h>
#include <string.h>

enum form { FORM_SPARSE, FORM_EXACT };

/* Queries that are multiplied together: with all keys, and with their neighbourhood. */
enum { ALL_ROWS = 8, NEAR_ROWS = 16 };

struct opts {
    int32_t form, shift, gap, band, m, m_keys, sinks;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_QUERIES | WNW_NEED_KEYS;
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
    float *keys, *far; /* [n_head_kv][n][d] as cached, and turned back by D */
    float *room;       /* [n_head][room_size] */
    size_t room_size;
    int32_t first;   /* position of the first query that looks */
    int32_t n_query; /* T */
};

static int32_t most_near(const struct opts *o)
{
    return NEAR_ROWS + 2 * o->band;
}

/* Floats of one query head: rows of logits, the queries of those rows, and the keys of the estimate. */
static size_t room_of(const struct opts *o, const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head, n_key = (size_t)o->m_keys;
    const size_t all = ALL_ROWS * 2 * n;
    const size_t near = NEAR_ROWS * (n + 2 * n_key + 4 * (size_t)most_near(o)); /* the header may be all */
    return (all > near ? all : near) + (size_t)NEAR_ROWS * d + (n + 2 * n_key) * d;
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const size_t keys = (size_t)obs->n_head_kv * (size_t)obs->n * (size_t)obs->n_embd_head;
    return 2 * keys + (size_t)obs->n_head * room_of(opts, obs);
}

/* Copies the keys of all KV heads, as they are and turned back by `shift` positions. */
static void copy_keys(const struct layer *l, int32_t shift)
{
    const wnw_observation *obs = l->obs;
    const int64_t d = obs->n_embd_head, row = obs->n * d;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const size_t bytes = (size_t)obs->n_entry[ih] * (size_t)d * sizeof(float);
        memcpy(l->keys + ih * row, obs->keys(obs, ih), bytes);
        memcpy(l->far + ih * row, l->keys + ih * row, bytes);
        wnw__turn_rows(obs, -shift, 1, l->far + ih * row, obs->n_entry[ih], obs->n_embd_head, 1);
    }
}

/* ---- One query head ---- */

struct head {
    const struct layer *l;
    const float *keys, *far;  /* [n][d] */
    const int32_t *pos;       /* [n] */
    int32_t h, n, n_head;     /* entries, of which the first n_head are of the chat header */
    float *score;             /* [n] */
    float *row, *query, *key; /* the head's part of the room */
};

static void take_queries(const struct head *x, int32_t t, int32_t step, int32_t n)
{
    const wnw_observation *obs = x->l->obs;
    const int32_t first = obs->n_past - obs->n_queries, d = obs->n_embd_head;
    for (int32_t i = 0; i < n; i++)
        memcpy(x->query + (int64_t)i * d,
               obs->queries + ((int64_t)(t + i * step - first) * obs->n_head + x->h) * d,
               (size_t)d * sizeof(float));
}

/* out[n_query][ld] = logits of the queries at hand with n keys. */
static void mul(const struct head *x, int32_t n_query, const float *key, int32_t n, float *out, int64_t ld)
{
    if (n > 0)
        wnw__mul_nt(x->query, n_query, key, n, x->l->obs->n_embd_head, x->l->obs->attn_scale, out, ld);
}

/* The number of entries, of the first n, at positions up to t. */
static int32_t n_until(const struct head *x, int32_t t)
{
    int32_t low = 0, high = x->n;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (x->pos[mid] <= t)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void raise(float *score, float p)
{
    *score = p > *score ? p : *score;
}

/* Lets every step-th query look at everything. */
static void look_at_all(const struct head *x, int32_t step)
{
    const int32_t end = x->l->first + x->l->n_query, n_head = x->n_head, d = x->l->obs->n_embd_head;
    const int64_t ld = 2 * (int64_t)x->n;
    for (int32_t t = x->l->first; t < end; t += ALL_ROWS * step) {
        const int32_t left = ceil_div(end - t, step), n_row = left < ALL_ROWS ? left : ALL_ROWS;
        const int32_t last = n_until(x, t + (n_row - 1) * step);
        take_queries(x, t, step, n_row);
        mul(x, n_row, x->far, x->n, x->row, ld);
        mul(x, n_row, x->keys + (int64_t)n_head * d, last - n_head, x->row + x->n, ld);
        for (int32_t i = 0; i < n_row; i++) {
            float *row = x->row + i * ld;
            const int32_t n_loc = n_until(x, t + i * step) - n_head;
            wnw__softmax(row, x->n + (n_loc > 0 ? n_loc : 0));
            for (int32_t c = n_head; c < x->n; c++)
                raise(&x->score[c], row[c]);
        }
    }
}

/* The keys of the estimate lie one behind the other: header, every u-th, and these once more as cached. */
struct estimate {
    int32_t step, n; /* u, and how many */
    float weight;    /* log u */
};

static struct estimate take_keys(const struct head *x)
{
    const int32_t n_text = x->n - x->n_head;
    struct estimate e = {.step = ceil_div(n_text, x->l->o->m_keys)};
    const size_t d = (size_t)x->l->obs->n_embd_head, bytes = d * sizeof(float);
    float *to = x->key;
    e.n = n_text > 0 ? ceil_div(n_text, e.step) : 0;
    e.weight = logf((float)e.step);
    memcpy(to, x->far, (size_t)x->n_head * bytes);
    to += (size_t)x->n_head * d;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < e.n; i++, to += d)
            memcpy(to, (pass ? x->keys : x->far) + (size_t)(x->n_head + i * e.step) * d, bytes);
    return e;
}

/* The row of query t: logits of the header, e->n far and n_loc local ones of the estimate. Those of the entries first ..
 * end - 1, which are looked at themselves, do not count; n_own of them are local too. Their logits follow: far[end - first],
 * loc[n_own]. */
static void look_near(const struct head *x, const struct estimate *e, float *row, int32_t n_loc,
                      int32_t first, int32_t end, const float *far, const float *loc, int32_t n_own)
{
    float *sample = row + x->n_head, *near = sample + e->n + n_loc;
    const int32_t n_near = end - first;
    for (int32_t i = 0; i < e->n + n_loc; i++) {
        const int32_t c = x->n_head + (i < e->n ? i : i - e->n) * e->step;
        sample[i] = c >= first && c < end ? -INFINITY : sample[i] + e->weight;
    }
    memmove(near, far, (size_t)n_near * sizeof *near);
    memmove(near + n_near, loc, (size_t)n_own * sizeof *near);
    wnw__softmax(row, x->n_head + e->n + n_loc + n_near + n_own);
    for (int32_t i = 0; i < n_near; i++)
        raise(&x->score[first + i], near[i]);
}

/* Entries of the text at positions from .. to: first .. end - 1. */
static void range_of(const struct head *x, int32_t from, int32_t to, int32_t *first, int32_t *end)
{
    const int32_t a = n_until(x, from - 1), b = n_until(x, to);
    *first = a > x->n_head ? a : x->n_head;
    *end = b > *first ? b : *first;
}

/* Lets every query look at its neighbourhood. */
static void look_around(const struct head *x)
{
    const int32_t d = x->l->obs->n_embd_head, band = x->l->o->band, n_head = x->n_head;
    const struct estimate e = take_keys(x);
    const int32_t end = x->l->first + x->l->n_query, most = most_near(x->l->o);
    const int64_t n_fixed = n_head + 2 * (int64_t)e.n, ld = n_fixed + 4 * (int64_t)most;
    for (int32_t t = x->l->first; t < end; t += NEAR_ROWS) {
        const int32_t n_row = end - t < NEAR_ROWS ? end - t : NEAR_ROWS, last = t + n_row - 1;
        const int32_t n_loc = ceil_div(n_until(x, last) - n_head, e.step);
        int32_t from, to;
        range_of(x, t - band, last + band, &from, &to);
        float *far = x->row + n_fixed + 2 * most, *loc = far + most; /* behind the room of the row itself */
        take_queries(x, t, 1, n_row);
        mul(x, n_row, x->key, (int32_t)(n_head + e.n + (n_loc < e.n ? n_loc : e.n)), x->row, ld);
        mul(x, n_row, x->far + (int64_t)from * d, to - from, far, ld);
        mul(x, n_row, x->keys + (int64_t)from * d, to - from, loc, ld);
        for (int32_t i = 0; i < n_row; i++) {
            const int32_t seen = n_until(x, t + i), text = seen - n_head;
            int32_t a, b;
            range_of(x, t + i - band, t + i + band, &a, &b);
            look_near(x, &e, x->row + i * ld, text > 0 ? ceil_div(text, e.step) : 0, a, b,
                      far + i * ld + (a - from), loc + i * ld + (a - from),
                      seen > a ? (seen < b ? seen : b) - a : 0);
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
                     .pos = obs->pos + at,
                     .h = h,
                     .n = obs->n_entry[ih],
                     .score = l->score + (int64_t)h * obs->n,
                     .query = l->room + (size_t)h * l->room_size};
    x.key = x.query + NEAR_ROWS * d;
    x.row = x.key + ((int64_t)obs->n + 2 * l->o->m_keys) * d;
    x.n_head = n_until(&x, obs->n_prefix - 1);
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
    const size_t keys = (size_t)obs->n_head_kv * (size_t)obs->n * (size_t)obs->n_embd_head;
    const int32_t known = obs->n_past - obs->n_queries;
    struct layer l = {.o = opts,
                      .obs = obs,
                      .score = score,
                      .keys = scratch,
                      .far = scratch + keys,
                      .room = scratch + 2 * keys,
                      .room_size = room_of(opts, obs),
                      .first = known > obs->n_prefix ? known : obs->n_prefix};
    int32_t shift = 0;
    WNW_TRY(shift_of(l.o, obs, &shift));
    l.n_query = obs->n_past - l.first;
    copy_keys(&l, shift);
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
     .help = "positions between the text and its repetition; -1 = its length behind the header, and gap",
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
             "k_c / sqrt(d)` for those behind the header up to `t`, `score(c) = max_t exp(far(t,c)) / (sum "
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
         .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION, .needs = needs, .keep = keep},
    .aggregation = "group_max",
    .scratch = scratch_size,
    .score = score,
};
