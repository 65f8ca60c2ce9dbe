/* SPDX-License-Identifier: MIT */
/*
 * SimLayerKV: a lazy layer looks at the first and at recent tokens only, and keeps nothing else; the others
 * stay whole. Paper: "SimLayerKV: A Simple Framework for Layer-Level KV Cache Reduction" (arXiv 2410.13846).
 *
 *     mass_l = mean over heads of what the last query gives to the first 4 and the 1024 most recent entries
 *              before its own
 *
 *     threshold   lazy where mass_l > threshold: 4 + 1023 entries (with the newest in place of the oldest
 *                 recent one), in prompts longer than 4 + 1024 + 1; the size follows from the lazy layers,
 *                 and the size asked for is ignored (kvpress; the paper sets 0.9 for Llama 3, 0.85 for Qwen)
 *     size        as few layers are lazy as the size needs, in order of mass; what is left over makes the
 *                 recent part of all lazy layers longer, in turn, so that the total is exact (default)
 *
 * The scorer is meant to be streaming_llm with 4 sinks, which decides which entries the 4 + 1023 are.
 * Observes window attention of 1 query. Cost O(H_q) per layer.
 */
#include "policy/part.h"

enum form { FORM_SIZE, FORM_THRESHOLD };

struct opts {
    struct wnw__layer_opts common;
    int32_t first, last;
    double threshold;
    int32_t form;
};

static void gather_needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = 1;
}

static size_t gather_size(const void *opts, const wnw_shape *shape)
{
    (void)opts;
    return (size_t)shape->n_layer;
}

static int gather_layer(const void *opts, const wnw_observation *obs, double *by_layer)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    double sum = 0;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t n = obs->n_entry[h / group] - 1; /* without the query's own */
        const float *a = obs->window_attn + ((int64_t)h * obs->n_window + obs->n_window - 1) * obs->n;
        for (int32_t i = 0; i < n; i++)
            sum += i < o->first || i >= n - o->last ? (double)a[i] : 0;
    }
    by_layer[obs->il] = sum / obs->n_head;
    return WNW_OK;
}

static const wnw_gather gather = {.size = gather_size, .needs = gather_needs, .visit = gather_layer};

/* Attention on first and last entries in the l-th layer that takes part. */
static double mass(const wnw_layer_problem *p, int32_t l)
{
    return p->gathered[p->il[l]];
}

/* The number of entries that a layer keeps whose heads keep at most n each. */
static int64_t kept(const wnw_layer_problem *p, int32_t l, int32_t n)
{
    int64_t sum = 0;
    for (int32_t h = 0; h < p->n_head_kv; h++) {
        const int32_t have = p->n_entry[l * p->n_head_kv + h];
        sum += have < n ? have : n;
    }
    return sum;
}

/* The laziest layer that is still whole. */
static int32_t laziest(const wnw_layer_problem *p, const int32_t *n_keep)
{
    int32_t best = -1;
    for (int32_t l = 0; l < p->n_layer; l++)
        if (n_keep[l] == p->n && (best < 0 || mass(p, l) > mass(p, best)))
            best = l;
    return best;
}

static void by_size(const struct opts *o, const wnw_layer_problem *p, int32_t *n_keep)
{
    const int32_t all = o->first + o->last - 1, lazy = all < p->budget ? all : p->budget;
    int64_t left = 0; /* entries of the size that the layers do not use yet; negative: they hold too many */
    for (int32_t l = 0; l < p->n_layer; l++)
        left += kept(p, l, p->budget) - kept(p, l, p->n);
    for (int32_t l; left < 0 && (l = laziest(p, n_keep)) >= 0;) {
        n_keep[l] = lazy;
        left += kept(p, l, p->n) - kept(p, l, lazy);
    }
    /* One more entry for every lazy layer in turn, so long as any has one and it fits. */
    for (bool again = true; again && left > 0;) {
        again = false;
        for (int32_t l = 0; l < p->n_layer; l++) {
            const int64_t more = n_keep[l] < p->n ? kept(p, l, n_keep[l] + 1) - kept(p, l, n_keep[l]) : 0;
            if (more > 0 && more <= left) {
                n_keep[l]++;
                left -= more;
                again = true;
            }
        }
    }
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct opts *o = opts;
    int32_t n_lazy = 0;
    for (int32_t l = 0; l < p->n_layer; l++)
        n_keep[l] = p->n;
    if (o->form == FORM_SIZE) {
        by_size(o, p, n_keep);
        return WNW_OK;
    }
    for (int32_t l = 0; l < p->n_layer && p->n > o->first + o->last + 1; l++)
        if (mass(p, l) > o->threshold) {
            n_keep[l] = o->first + o->last - 1;
            n_lazy++;
        }
    wnw__warn(warning, "simlayerkv: %d of %d layers are lazy; the size follows from that alone", n_lazy,
              p->n_layer);
    return WNW_OK;
}

static const char *const forms[] = {"size", "threshold", NULL};

static const wnw_option options[] = {
    WNW_OPTION_ROUNDING,
    {.name = "first",
     .help = "first entries that count as lazily looked at",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, first),
     .def = 4,
     .min = 0,
     .max = 65536},
    {.name = "last",
     .help = "recent entries that count as lazily looked at",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, last),
     .def = 1024,
     .min = 1,
     .max = 1048576},
    {.name = "threshold",
     .help = "form=threshold: layers with more attention there are lazy",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, threshold),
     .def = 0.9,
     .min = 0,
     .max = 1},
    {.name = "form",
     .help = "size: as many lazy layers as the size needs; threshold: the size follows",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, form),
     .def = FORM_SIZE,
     .choices = forms},
    {0}};

const wnw_layer_budget wnw__layer_budget_simlayerkv = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "simlayerkv",
             .about = "Layers that look at the first and recent tokens only keep nothing else; the others "
                      "stay whole.",
             .paper = "SimLayerKV, arXiv 2410.13846",
             .details =
                 "`mass_l` = mean over heads of what the last query gives to the first 4 and the 1024 most "
                 "recent entries before its own. Lazy layers keep 4 + 1023 entries.\n\n"
                 "`threshold` is the paper's rule, where the size follows from the text; `size` (default) "
                 "makes the layers of largest mass lazy until the size is reached, exactly: what "
                 "is left over goes to all lazy layers in turn.\n\n"
                 "Cost: one attention row per layer.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_ALL_LAYERS, .gather = &gather},
    .allocate = allocate,
};
