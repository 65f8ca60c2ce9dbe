/* SPDX-License-Identifier: MIT */
/*
 * CompilerKV's scores: attention of the last W prompt queries, averaged over the whole model, times how large
 * a value is in its head. Paper: "CompilerKV: Risk-Adaptive KV Compression via Offline Experience
 * Compilation" (arXiv 2602.08686, eq. 6 to 10). For token t, layer l, query head h with KV head g:
 *
 *     alpha[t] = 1 / (L H_q) sum over l, h and the W queries of a_lh[j][t]        sum over t = W;
 *     rho[t]   = ||v_lg[t]||_2 / (mean over all tokens of ||v_lg||_2 + 1e-8);
 *     score[t] = max over h of Wt[l][h] alpha[t] rho[t]                           the same for every KV head
 *
 * Wt are head weights of a compiler profile, 1 without one. A weight <= 0 takes its head out; in a layer
 * where all are <= 0 every head has weight 1. alpha_scope takes the mean over the heads of the layer
 * alone, or a head's own attention, the only form in which a single retrieval head can save a token. pool
 * smooths alpha along the history, as the released code does (avg, 7) and the paper does not. utility=raw is
 * the paper's ablation with the last query alone and rho = 1; utility=attention sets rho = 1 only, which with
 * alpha_scope=layer is CompressKV with all heads.
 * Where heads hold different entries after an earlier compression, everything goes by position.
 * Observes window attention (twice) and values. Range >= 0. Cost per layer O(H_q W n + H_kv n d).
 */
#include "method/compiler.h"
#include "method/window.h"
#include "winnow_calibrate.h"

struct opts {
    int32_t window;
    int32_t alpha_scope;
    int32_t pool;
    int32_t kernel;
    int32_t n_sink;
    int32_t utility;
    int32_t table;
    int32_t force;
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    return wnw__pool_check("compilerkv", o->kernel);
}

static void gather_needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = o->window;
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    if (o->alpha_scope != WNW_ALPHA_GLOBAL)
        gather_needs(opts, out);
    if (o->utility == WNW_UTILITY_FULL)
        out->flags |= WNW_NEED_VALUES;
    if (o->table == WNW_TABLE_PROFILE) {
        out->flags |= WNW_NEED_PROFILE;
        out->profiles_optional = 1u << WNW_PROFILE_COMPILER;
    }
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)p;
    out->n_first = o->n_sink;
    out->n_last = o->window;
}

/* ---- alpha ---- */

static int32_t n_row_of(const struct opts *o, const wnw_observation *obs)
{
    return o->utility == WNW_UTILITY_RAW ? 1 : wnw__window_rows(obs, o->window);
}

/* Attention by position, then the number of layers and the length of the window, which the scoring of a layer
 * needs because it does not see the window. */
static size_t gather_size(const void *opts, const wnw_shape *shape)
{
    const struct opts *o = opts;
    return o->alpha_scope == WNW_ALPHA_GLOBAL ? (size_t)shape->n_past + 2 : 0;
}

static int gather_layer(const void *opts, const wnw_observation *obs, double *gathered)
{
    wnw__window_mass(obs, n_row_of(opts, obs), gathered);
    gathered[obs->n_past]++;
    gathered[obs->n_past + 1] = wnw__window_rows(obs, ((const struct opts *)opts)->window);
    return WNW_OK;
}

static const wnw_gather gather = {.size = gather_size, .needs = gather_needs, .visit = gather_layer};

/* Pools x[n], the first n_old of them history, in place; tmp[n] is scratch. */
static void smooth(const struct opts *o, float *x, int32_t n_old, int32_t n, float *tmp)
{
    const enum wnw__pool pool = o->pool == WNW_ALPHA_POOL_MAX ? WNW_POOL_MAX : WNW_POOL_AVG;
    if (o->pool == WNW_ALPHA_POOL_NONE)
        return;
    for (int32_t t = 0; t < n; t++) {
        tmp[t] = x[t];
        x[t] = 0;
    }
    wnw__pool_add(pool, o->kernel, tmp, n_old, 1, x);
    wnw__pool_add(pool, o->kernel, tmp + n_old, n - n_old, 1, x + n_old);
}

static int32_t n_history(const struct opts *o, const wnw_observation *obs)
{
    const bool gathered = o->alpha_scope == WNW_ALPHA_GLOBAL;
    const int32_t n_row =
        gathered ? (int32_t)obs->gathered[obs->n_past + 1] : wnw__window_rows(obs, o->window);
    return n_row < obs->n_past ? obs->n_past - n_row : 0;
}

/* alpha[n_past] by position, of the model or of the layer; tmp[n_past]. */
static void shared_alpha(const struct opts *o, const wnw_observation *obs, float *alpha, float *tmp)
{
    const int32_t n = obs->n_past, group = obs->n_head / obs->n_head_kv, n_row = n_row_of(o, obs);
    if (o->alpha_scope == WNW_ALPHA_GLOBAL) {
        const double scale = 1 / (obs->gathered[n] * obs->n_head);
        for (int32_t t = 0; t < n; t++)
            alpha[t] = (float)(obs->gathered[t] * scale);
    } else {
        for (int32_t t = 0; t < n; t++)
            alpha[t] = 0;
        for (int32_t h = 0; h < obs->n_head; h++) {
            const int32_t *pos = obs->pos + (int64_t)(h / group) * obs->n;
            const float scale = (float)n_row / (float)obs->n_head;
            wnw__window_mean(wnw__window_of(obs, h), obs->n_window, n_row, obs->n, obs->n_entry[h / group],
                             tmp);
            for (int32_t i = 0; i < obs->n_entry[h / group]; i++)
                alpha[pos[i]] += tmp[i] * scale;
        }
    }
    smooth(o, alpha, n_history(o, obs), n, tmp);
}

/* alpha[n_entry] of one head's own attention. */
static void head_alpha(const struct opts *o, const wnw_observation *obs, int32_t h, float *alpha, float *tmp)
{
    const int32_t ih = h / (obs->n_head / obs->n_head_kv), n = obs->n_entry[ih], n_row = n_row_of(o, obs);
    wnw__window_mean(wnw__window_of(obs, h), obs->n_window, n_row, obs->n, n, alpha);
    for (int32_t i = 0; i < n; i++)
        alpha[i] *= (float)n_row;
    smooth(o, alpha, wnw__window_n_old(obs, ih, wnw__window_rows(obs, o->window)), n, tmp);
}

/* ---- rho and Wt ---- */

/* rho[n_entry] of one KV head. */
static void value_norms(const struct opts *o, const wnw_observation *obs, int32_t ih, float *rho)
{
    if (o->utility != WNW_UTILITY_FULL) {
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            rho[i] = 1;
        return;
    }
    wnw__relative_norms(obs, ih, rho);
}

static const struct wnw__compiler_table *table_of(const struct opts *o, const wnw_observation *obs)
{
    const wnw_profile *p = obs->profile;
    return o->table == WNW_TABLE_PROFILE && p && p->compiler.weight ? &p->compiler : NULL;
}

/* Weight of query head h; all 1 if there is no table or it leaves no head in. */
static float weight_of(const struct wnw__compiler_table *t, const wnw_observation *obs, int32_t h)
{
    return t ? (float)wnw__table_weight(t, obs->il, obs->n_layer, h, obs->n_head) : 1;
}

static const struct wnw__compiler_table *usable(const struct wnw__compiler_table *t,
                                                const wnw_observation *obs)
{
    for (int32_t h = 0; t && h < obs->n_head; h++)
        if (weight_of(t, obs, h) > 0)
            return t;
    return NULL;
}

/* ---- Score ---- */

/* Scratch holds alpha, scores and work space by position, and rho of one head. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return 3 * (size_t)obs->n_past + (size_t)obs->n;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t n_past = obs->n_past, group = obs->n_head / obs->n_head_kv;
    float *alpha = scratch, *best = alpha + n_past, *tmp = best + n_past, *rho = tmp + n_past;
    const struct wnw__compiler_table *t = usable(table_of(o, obs), obs);
    const bool per_head = o->alpha_scope == WNW_ALPHA_HEAD;
    if (!per_head)
        shared_alpha(o, obs, alpha, tmp);
    for (int32_t j = 0; j < n_past; j++)
        best[j] = 0;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        float most = 0; /* with alpha of all heads alike, the largest weight of the group decides */
        value_norms(o, obs, ih, rho);
        for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
            const float w = weight_of(t, obs, h);
            most = w > most ? w : most;
            if (!per_head || w <= 0)
                continue;
            head_alpha(o, obs, h, alpha, tmp);
            for (int32_t i = 0; i < obs->n_entry[ih]; i++) {
                const float u = w * alpha[i] * rho[i];
                best[pos[i]] = u > best[pos[i]] ? u : best[pos[i]];
            }
        }
        for (int32_t i = 0; !per_head && i < obs->n_entry[ih]; i++) {
            const float u = most * alpha[pos[i]] * rho[i];
            best[pos[i]] = u > best[pos[i]] ? u : best[pos[i]];
        }
    }
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            score[(int64_t)ih * obs->n + i] = best[obs->pos[(int64_t)ih * obs->n + i]];
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "window",
     .help = "last prompt tokens whose queries are observed, and that always stay",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 64,
     .min = 1,
     .max = 4096},
    {.name = "alpha_scope",
     .help = "attention is averaged over the whole model, a layer's heads, or not at all",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, alpha_scope),
     .def = WNW_ALPHA_GLOBAL,
     .choices = wnw__alpha_scopes},
    {.name = "pool",
     .help = "smoothing of the attention along the positions",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, pool),
     .def = WNW_ALPHA_POOL_NONE,
     .choices = wnw__alpha_pools},
    {.name = "kernel",
     .help = "its width, odd",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, kernel),
     .def = 7,
     .min = 1,
     .max = 1023},
    {.name = "n_sink",
     .help = "first tokens that always stay",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, n_sink),
     .def = 0,
     .min = 0,
     .max = 65536},
    {.name = "utility",
     .help = "full: attention times value norm; attention: that alone; raw: that of the last query alone",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, utility),
     .def = WNW_UTILITY_FULL,
     .choices = wnw__utilities},
    {.name = "table",
     .help = "weights of heads: from the profile where it has them, or none: all 1",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, table),
     .def = WNW_TABLE_PROFILE,
     .choices = wnw__table_choices},
    {.name = "force",
     .help = "use a profile of another model with as many heads, or of other settings",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, force)},
    {0}};

static const char details[] =
    "`alpha[t] = 1 / (L H_q) sum over layers, heads and the last W queries of a[j][t]`, `rho[t] = ||v[t]||_2 "
    "/ "
    "mean ||v||_2` per layer and KV head, `score[t] = max over h of Wt[l][h] alpha[t] rho[t]`: one row for "
    "all "
    "KV heads of a layer.\n\n"
    "The head weights Wt come from a profile of kind `compiler`; without one they are 1, and a warning says "
    "so. A weight of 0 or less takes its head out. A table is bound to the options it was made under. "
    "`utility=attention` leaves rho out: with `alpha_scope=layer` and average pooling the scores rank as "
    "those "
    "of `compresskv` with all heads. The paper smooths nothing; the released code pools with "
    "average 7. With `alpha_scope=global`, as in the paper, a head's own attention never reaches the score; "
    "`head` is the form in which one retrieval head can save a token. A budget that leaves nothing besides "
    "window and sinks keeps the last max(8, B / 4) tokens instead, with a warning.\n\n"
    "Cost per layer O(H_q W n + H_kv n d), window attention computed twice with `global`.";

const wnw_scorer wnw__scorer_compilerkv = {
    .part = {WNW_SCORER_INIT, .name = "compilerkv",
             .about = "Attention averaged over the model times the relative norm of values, with calibrated "
                      "head weights.",
             .paper = "CompilerKV, arXiv 2602.08686", .details = details, .options = options,
             .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_ONE_LIST | WNW_FLAG_MATCHES_LAYERS | WNW_FLAG_SHRINKS | WNW_FLAG_PROMPT_ONLY,
             .check = check, .needs = needs, .keep = keep, .gather = &gather},
    .scratch = scratch_size,
    .score = score,
};
