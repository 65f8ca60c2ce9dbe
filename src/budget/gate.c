/* SPDX-License-Identifier: MIT */
/*
 * CompilerKV's gate: how many entries of a layer clear a threshold that depends on how risky the prompt is.
 * Paper: "CompilerKV: Risk-Adaptive KV Compression via Offline Experience Compilation" (arXiv 2602.08686, eq.
 * 11 to 16). With alpha as in compilerkv.c, scores u of layer l over the history P (all but sinks and
 * window), C = budget - protected, W queries:
 *
 *     H = - sum over t of (alpha[t] / W) ln(alpha[t] / W)         PPL = perplexity of the last W tokens;
 *     tau_l = Tau[l][bin(H)][bin(PPL)]                            z = u / mean over P of u
 *     I_l = { t in P: z >= tau_l }
 *     elastic   n_l = min(|I_l|, C), at least min(|P|, ceil(floor C)): the paper; keeps less than asked for;
 *     strict    n_l = min(|P|, C): what the released code comes to; the threshold is without effect;
 *     pooled    sum of n_l = L C, or all entries within cap if they are fewer; |I_l| is the layer's demand
 *
 * Entries above a threshold are the best ones, so a count is all that selection needs. floor = 1/4 is winnow's; the paper has
 * none. pooled is winnow's too: let lo = min(|P|, C, max(1, floor C)), cap = min(|P|, 4 C), and want = |I_l| within lo .. cap. If
 * the wants exceed the total, it is shared out between lo and want, else between want and cap. The largest remainders are rounded
 * up, ties to the lower layer. score_norm=max divides by the largest score, as the released code does. Its thresholds of 0.8 to 1
 * then let hardly any entry pass. score_norm=median divides by the median. table=constant is the paper's ablation without risk.
 * It has one threshold, which kept as much as the table on average over the prompts of its calibration. table=mean takes the mean
 * of the table, which keeps another size. Without table and tau every layer keeps C, as with strict (decision 013).
 * count=history: the size is C; window and sinks are added to it. Scores of several heads are counted per head and averaged. Cost
 * O(L n), and the window's attention once more.
 */
#include "method/compiler.h"
#include "method/count.h"
#include "winnow_calibrate.h"

#include <math.h>

struct opts {
    struct wnw__layer_opts common;
    int32_t mode;
    int32_t score_norm;
    double tau;
    int32_t entropy_norm;
    int32_t risk_ppl;
    int32_t table;
    int32_t force;
    int32_t window;
    double floor;
    int32_t count;
};

/* Option values of the gate alone; TABLE_MEAN follows the values of `table` that the scorer has too. */
enum { TABLE_MEAN = WNW_TABLE_NONE + 1, TABLE_CONSTANT };
enum count { COUNT_PROMPT, COUNT_HISTORY };

/* Whether thresholds come from the profile. */
static bool uses_table(const struct opts *o)
{
    return o->mode != WNW_GATE_STRICT && o->tau <= 0 && o->table != WNW_TABLE_NONE;
}

/* Whether the threshold depends on the prompt. */
static bool follows_risk(const struct opts *o)
{
    return uses_table(o) && o->table == WNW_TABLE_PROFILE;
}

static bool protected_apart(const void *opts)
{
    return ((const struct opts *)opts)->count == COUNT_HISTORY;
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    if (!uses_table(o))
        return;
    out->flags = WNW_NEED_PROFILE;
    out->profiles_optional = 1u << WNW_PROFILE_COMPILER;
    if (!follows_risk(o))
        return;
    out->flags |= o->risk_ppl ? WNW_NEED_PERPLEXITY : 0u;
    out->window = o->window;
}

/* ---- Entropy: gathered over the layers ---- */

enum { SEEN_TOKENS, SEEN_MASS, N_SEEN }; /* gathered numbers; attention by position follows them */

static size_t gather_size(const void *opts, const wnw_shape *shape)
{
    return follows_risk(opts) ? (size_t)shape->n_past + N_SEEN : 0;
}

static void gather_needs(const void *opts, wnw_needs *out)
{
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = ((const struct opts *)opts)->window;
}

static int gather_layer(const void *opts, const wnw_observation *obs, double *gathered)
{
    const struct opts *o = opts;
    const int32_t n_row = o->window < obs->n_window ? o->window : obs->n_window;
    wnw__window_mass(obs, n_row, gathered + N_SEEN);
    gathered[SEEN_TOKENS] = obs->n_past;
    gathered[SEEN_MASS] += (double)obs->n_head * n_row;
    return WNW_OK;
}

static const wnw_gather gather = {.size = gather_size, .needs = gather_needs, .visit = gather_layer};

/* ---- Threshold ---- */

/* The threshold's source, and the bins that the prompt falls into. */
struct risk {
    int32_t mode;                            /* strict where there is no threshold */
    const struct wnw__compiler_table *table; /* NULL: the threshold is `constant` everywhere */
    double constant;
    int32_t entropy_bin, ppl_bin;
};

/* Thresholds that share the budget between layers are others than those that may leave it unused. */
static void check_mode(const struct opts *o, const struct wnw__compiler_table *t, char *warning)
{
    if (t->gate >= 0 && (t->gate == WNW_GATE_POOLED) != (o->mode == WNW_GATE_POOLED))
        wnw__warn(warning, "the thresholds of the profile were made for mode=%s, not %s",
                  wnw__gate_modes[t->gate], wnw__gate_modes[o->mode]);
}

/* The mean over all cells of all layers. */
static double mean_threshold(const struct wnw__compiler_table *t)
{
    const int64_t n = (int64_t)t->n_layer * t->n_entropy * t->n_ppl;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)t->tau[i];
    return sum / (double)n;
}

static int assess(const struct opts *o, const wnw_layer_problem *p, struct risk *r, char *warning)
{
    *r = (struct risk){.mode = o->mode, .constant = o->tau};
    if (o->mode == WNW_GATE_STRICT || o->tau > 0)
        return WNW_OK;
    const bool given = uses_table(o) && p->profile && p->profile->kinds >> WNW_PROFILE_COMPILER & 1u;
    const struct wnw__compiler_table *t = given ? &p->profile->compiler : NULL;
    if (!t || !t->tau) {
        wnw__warn(warning, "no calibrated thresholds: every layer keeps what the size allows, as mode=strict "
                           "does; tau sets a threshold");
        r->mode = WNW_GATE_STRICT;
        return WNW_OK;
    }
    check_mode(o, t, warning);
    if (o->table != WNW_TABLE_PROFILE) {
        const bool stated = o->table == TABLE_CONSTANT && t->tau_constant > 0;
        if (o->table == TABLE_CONSTANT && !stated)
            wnw__warn(
                warning,
                "the profile does not say which one threshold keeps as much (tau_constant): the mean of "
                "its thresholds is taken; calibrate it anew");
        r->constant = stated ? t->tau_constant : mean_threshold(t);
        return WNW_OK;
    }
    bool odd = false;
    const int64_t n_tokens = (int64_t)p->gathered[SEEN_TOKENS];
    double entropy = wnw__entropy(p->gathered + N_SEEN, n_tokens, p->gathered[SEEN_MASS]);
    if (o->entropy_norm)
        entropy = n_tokens > 1 ? entropy / log((double)n_tokens) : 0;
    r->table = t;
    r->entropy_bin = wnw__bin(t->entropy_edge, t->n_entropy, entropy, &odd);
    r->ppl_bin = o->risk_ppl ? wnw__bin(t->ppl_edge, t->n_ppl, p->perplexity, &odd) : t->default_ppl_bin;
    if (odd)
        wnw__warn(warning,
                  "entropy %g or perplexity %g of the prompt is no number: taken as the highest risk",
                  entropy, p->perplexity);
    return WNW_OK;
}

/* ---- Counts ---- */

/* History of one head: entries first .. first + n - 1 of its row. */
static int32_t history(const wnw_layer_problem *p, int32_t i, int32_t ih, int32_t *first)
{
    const int32_t at = i * p->n_head_kv + ih;
    const wnw_protected prot = wnw__protected_shrink(p->prot[at], p->budget);
    const int32_t n = p->n_entry[at] - prot.n_first - prot.n_last;
    *first = prot.n_first;
    return n > 0 ? n : 0;
}

/* |P| of the layer: its longest head's. */
static int32_t room(const wnw_layer_problem *p, int32_t i)
{
    int32_t most = 0, first;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const int32_t n = history(p, i, ih, &first);
        most = n > most ? n : most;
    }
    return most;
}

/* |I_l|, mean over the heads. */
static int32_t demand(const struct opts *o, const wnw_layer_problem *p, int32_t i, double tau)
{
    double sum = 0;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        int32_t first;
        const int32_t n = history(p, i, ih, &first);
        sum += wnw__gate_above(p->score[i] + (int64_t)ih * p->row[i] + first, n, o->score_norm, tau);
    }
    return (int32_t)nearbyint(sum / p->n_head_kv);
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct opts *o = opts;
    const int32_t c = p->budget - p->n_protected;
    struct risk r;
    WNW_TRY(assess(o, p, &r, warning));
    for (int32_t i = 0; i < p->n_layer; i++) {
        const int32_t n = room(p, i), most = n < c ? n : c;
        if (r.mode == WNW_GATE_STRICT) {
            n_keep[i] = most;
            continue;
        }
        const double tau = r.table
                               ? wnw__table_tau(r.table, p->il[i], p->n_layer_model, r.entropy_bin, r.ppl_bin)
                               : r.constant;
        n_keep[i] = demand(o, p, i, tau);
        if (r.mode == WNW_GATE_POOLED) {
            p->work[i] = n;
            continue;
        }
        n_keep[i] = wnw__gate_elastic(n_keep[i], n, c, o->floor);
    }
    if (r.mode == WNW_GATE_POOLED)
        wnw__gate_pooled(p->work, p->n_layer, c, o->floor, n_keep);
    for (int32_t i = 0; i < p->n_layer; i++)
        n_keep[i] += p->n_protected;
    return WNW_OK;
}

static const char *const tables[] = {"profile", "none", "mean", "constant", NULL};
static const char *const counts[] = {"prompt", "history", NULL};

static const wnw_option options[] = {
    WNW_OPTION_ROUNDING,
    {.name = "mode",
     .help = "elastic: no more than clear the threshold; strict: always the budget; pooled: layers share it",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, mode),
     .def = WNW_GATE_ELASTIC,
     .choices = wnw__gate_modes},
    {.name = "score_norm",
     .help = "scores are divided by their mean, the largest or their median before they meet the threshold",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, score_norm),
     .def = WNW_NORM_MEAN,
     .choices = wnw__score_norms},
    {.name = "tau",
     .help = "one threshold for all layers; 0: from the profile",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, tau),
     .def = 0,
     .min = 0,
     .max = 1e6},
    {.name = "entropy_norm",
     .help = "divide the entropy by its largest value at this length",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, entropy_norm)},
    {.name = "risk_ppl",
     .help = "look at the prompt's perplexity; 0: the profile's default bin",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, risk_ppl),
     .def = 1},
    {.name = "table",
     .help = "thresholds: from the profile; regardless of the prompt their mean, or the constant that keeps "
             "as much; "
             "none: tau is needed",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, table),
     .def = WNW_TABLE_PROFILE,
     .choices = tables},
    {.name = "force",
     .help = "use a profile of another model with as many heads; its layers are mapped by depth",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, force)},
    {.name = "window",
     .help = "last prompt tokens whose attention and perplexity tell the risk",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 64,
     .min = 1,
     .max = 4096},
    {.name = "floor",
     .help = "fewest entries of a layer besides window and sinks, as a part of what the size leaves there",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, floor),
     .def = 0.25,
     .min = 0,
     .max = 1},
    {.name = "count",
     .help = "what a budget or ratio counts: all entries of the prompt, or those besides window and sinks",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, count),
     .def = COUNT_PROMPT,
     .choices = counts},
    {0}};

static const char details[] =
    "`H = - sum (alpha / W) ln(alpha / W)` and the perplexity of the last W tokens choose a threshold tau "
    "per "
    "layer; I_l are the entries with `score / mean score >= tau`, C what the budget leaves besides window "
    "and "
    "sinks. `elastic` keeps min(|I_l|, C), at least `floor` C: less than asked for. `strict` keeps C: the "
    "threshold "
    "is without effect. `pooled` lets the layers share L C in proportion to |I_l|, within `floor` C and 4 C. "
    "The paper has no floor: the parity presets say 0.\n\n"
    "Thresholds come from a profile of kind `compiler`. Without one, and without `tau`, every layer keeps C, "
    "and a warning says so: a threshold that nobody calibrated is not the method. `table=constant` takes one "
    "threshold regardless of the prompt, the paper's ablation without risk: "
    "the one that kept as much as the table on average over the prompts that its calibration held out. "
    "`table=mean` takes the mean of all thresholds, which keeps another size. `count=history` reads a "
    "budget "
    "or a ratio as C, the compressed history, and keeps window and sinks besides; a size in bytes counts "
    "everything. "
    "The paper does not say how scores are normalised: dividing by the mean makes 1 mean \"as useful as the "
    "average token\". The released code divides by the largest and fills up to C, which is `strict`.\n\n"
    "Cost O(L n) and the window's attention once more.";

const wnw_layer_budget wnw__layer_budget_gate = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "gate",
             .about = "Counts of entries above a calibrated threshold that follows the prompt's entropy and "
                      "perplexity.",
             .paper = "CompilerKV, arXiv 2602.08686", .details = details, .options = options,
             .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_MATCHES_LAYERS | WNW_FLAG_RAGGED | WNW_FLAG_ALL_LAYERS, .needs = needs,
             .gather = &gather},
    .allocate = allocate,
    .protected_apart = protected_apart,
};
