/* SPDX-License-Identifier: MIT */
/*
 * Attention Matching: the entries that stay get a bias, which attention adds to their logits, and new values, so that queries
 * get of them what they got of all. Paper: "Fast KV Compaction via Attention Matching" (arXiv 2602.16284), its step after
 * keys are chosen; they are chosen by the rest of the recipe here. match_fit.h has the formulas. Per KV head, over the
 * queries of its group at `queries` / group positions, spread evenly over the text after the chat header:
 *
 *     from=replay: q_t turned to position t + D, D = min(n - n_prefix, n_train - n), sees every entry: what comes later
 *     from=prompt: q_t as it was read, sees entries up to itself
 *     beta = 1: biases are fitted; values = 1: values are, with the present biases
 *
 * Biases that entries have are in the logits, and the new ones take their place, so that a head may be matched again.
 * Where all entries of a head stay nothing is written. Observes queries, keys and values. Cost per KV head with m queries, b
 * of n entries kept: logits O(m n d), biases O(m b) a step, values O(m b min(m, b) + min(m, b)^3 / 3).
 */
#include "contents/more/match_fit.h"
#include "kernel/kernel.h"
#include "method/mean_rope.h"
#include "policy/part.h"

#include <math.h>
#include <string.h>

enum from { FROM_REPLAY, FROM_PROMPT };

struct opts {
    int32_t beta, values, queries, from;
    double ridge;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_QUERIES | WNW_NEED_KEYS | WNW_NEED_VALUES;
    if (o->from == FROM_REPLAY)
        out->flags |= WNW_NEED_ROPE;
}

/* Positions of queries, and the first of them that may be taken. */
struct positions {
    int32_t first, n, n_taken;
};

static struct positions positions_of(const struct opts *o, const wnw_observation *obs)
{
    const int32_t known = obs->n_past - obs->n_queries, group = obs->n_head / obs->n_head_kv;
    struct positions p = {.first =
                              obs->n_prefix > known && obs->n_prefix < obs->n_past ? obs->n_prefix : known};
    const int32_t most = o->queries > group ? o->queries / group : 1;
    p.n = obs->n_past - p.first;
    p.n_taken = p.n < most ? p.n : most;
    return p;
}

static int32_t rows_of(const struct opts *o, const wnw_observation *obs)
{
    return positions_of(o, obs).n_taken * (obs->n_head / obs->n_head_kv);
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const int32_t m = rows_of(opts, obs), n = obs->n, d = obs->n_embd_head;
    return (size_t)m * (size_t)(n + d) + (size_t)n + 1 + wnw__match_scratch(m, n, n, d);
}

/* How far later than they were read queries look. */
static int32_t shift_of(const wnw_observation *obs, const struct positions *at)
{
    const int32_t wanted = obs->n_past - at->first;
    if (obs->n_ctx_train == 0)
        return wanted;
    const int32_t room = obs->n_ctx_train - obs->n_past;
    if (wanted < room)
        return wanted;
    if (room > 0)
        return room;
    return 0;
}

/* Hides the entries after position t from a row of logits, unless it would see none. */
static void hide_later(const wnw_observation *obs, int32_t ih, int32_t n, int32_t t, float *row)
{
    const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
    for (int32_t i = n - 1; i > 0 && pos[0] <= t && pos[i] > t; i--)
        row[i] = -INFINITY;
}

/* Sets logits[m][n]; q[m][d] is scratch. */
static void ask(const struct opts *o, const wnw_contents_problem *p, float *q, float *logits)
{
    const wnw_observation *obs = p->obs;
    const struct positions at = positions_of(o, obs);
    const int32_t d = obs->n_embd_head, group = obs->n_head / obs->n_head_kv, m = at.n_taken * group;
    const float *bias = obs->bias ? obs->bias + (int64_t)p->ih * obs->n : NULL;
    for (int32_t i = 0; i < m; i++) {
        const int64_t t = at.first + (2 * (int64_t)(i / group) + 1) * at.n / (2 * at.n_taken);
        memcpy(q + (int64_t)i * d,
               obs->queries +
                   ((t - (obs->n_past - obs->n_queries)) * obs->n_head + p->ih * group + i % group) * d,
               (size_t)d * sizeof *q);
    }
    if (o->from == FROM_REPLAY)
        wnw__turn_rows(obs, shift_of(obs, &at), 1, q, m, d, 1);
    wnw__mul_nt(q, m, obs->keys(obs, p->ih), p->n, d, obs->attn_scale, logits, p->n);
    for (int32_t i = 0; i < m; i++) {
        float *row = logits + (int64_t)i * p->n;
        for (int32_t c = 0; bias && c < p->n; c++)
            row[c] += bias[c];
        if (o->from == FROM_PROMPT)
            hide_later(obs, p->ih, p->n,
                       (int32_t)(at.first + (2 * (int64_t)(i / group) + 1) * at.n / (2 * at.n_taken)), row);
    }
}

static int fit(const void *opts, const wnw_contents_problem *p, float *bias, float *values, float *scratch)
{
    const struct opts *o = opts;
    const wnw_observation *obs = p->obs;
    const size_t m = (size_t)rows_of(o, obs), d = (size_t)obs->n_embd_head, n = (size_t)p->n;
    float *q = scratch, *logits = q + m * d, *beta = logits + m * n, *work = beta + n;
    int done = 0;
    work += (work - scratch) % 2; /* doubles lie in it */
    if (p->n_keep == p->n || m == 0)
        return 0;
    ask(o, p, q, logits);
    const struct wnw__match match = {.m = (int32_t)m,
                                     .n = p->n,
                                     .b = p->n_keep,
                                     .d = obs->n_embd_head,
                                     .logits = logits,
                                     .values = obs->values(obs, p->ih),
                                     .keep = p->keep,
                                     .ridge = o->ridge,
                                     .obs = obs};
    memset(beta, 0, n * sizeof *beta);
    if (o->beta) {
        wnw__match_beta(&match, beta, work);
        for (int32_t t = 0; t < p->n_keep; t++)
            bias[t] += beta[t];
        done |= WNW_FIT_BIAS;
    }
    if (o->values && wnw__match_values(&match, beta, values, work))
        done |= WNW_FIT_VALUES;
    return done;
}

static const char *const froms[] = {"replay", "prompt", NULL};

static const wnw_option options[] = {
    {.name = "beta",
     .help = "fit what attention adds to the logits of the entries that stay",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, beta),
     .def = 1,
     .max = 1},
    {.name = "values",
     .help = "fit their values",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, values),
     .def = 1,
     .max = 1},
    {.name = "queries",
     .help = "queries of a KV head that look, those of its group together",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, queries),
     .def = 256,
     .min = 1,
     .max = 8192},
    {.name = "from",
     .help =
         "replay: queries look back from where the text would be repeated; prompt: from where they were read",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, from),
     .def = FROM_REPLAY,
     .choices = froms},
    {.name = "ridge",
     .help = "how much values stay what they are, relative to the mean square of the weights",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, ridge),
     .def = 0.01,
     .min = 1e-9,
     .max = 1000},
    {0}};

const wnw_contents wnw__contents_match = {
    .part =
        {WNW_CONTENTS_INIT, .name = "match",
         .about =
             "Entries that stay get a bias and new values, so that queries see of them what they saw of all.",
         .paper = "Attention Matching, arXiv 2602.16284",
         .details =
             "With logits S of `queries` queries of the text with all entries and I the ones that stay: `E = "
             "exp(S - row "
             "maximum)`, `B = argmin ||E_I B - E 1||^2` with `e^-3 <= B <= e^3`; `log B` **is added to the "
             "logits of the entry "
             "from then on** (one float32 per entry, next to its position). Then `X = softmax(S_I + log B)`, "
             "`Y = softmax(S) V`, and "
             "the values become `V_I + argmin ||X D - (Y - X V_I)||^2 + ridge tr(X^T X) / b ||D||^2`, which "
             "is the paper's "
             "least squares but that its ridge pulls values to 0. They are written in the cache's type.\n\n"
             "The paper also chooses keys, and shares of heads; here the rest of the recipe does: "
             "`snapkv+match`. With "
             "`from=replay` queries stand where the text would be repeated, as those of the scorer `replay`, "
             "and see all of it; with "
             "`from=prompt` they stand where they were read, and see what is before them. Where a head loses "
             "nothing, "
             "nothing is written.\n\n"
             "Scorers that compute attention by themselves (expected attention, replay, CompilerKV's "
             "estimates) do not see "
             "biases; window attention and sums over queries have them in them.\n\n"
             "Cost: per KV head with m queries and b of n entries kept, O(m n d) for logits, O(m b) for each "
             "of up to 200 steps "
             "of the biases, O(m b min(m, b)) for values.",
         .options = options, .options_size = sizeof(struct opts), .needs = needs},
    .scratch = scratch_size,
    .fit = fit,
};
