/* SPDX-License-Identifier: MIT */
/*
 * OBCache: what the outputs of the last w queries lose, to first order, when an entry's value, key or both
 * are taken away; optimal brain damage for the cache. Paper: "OBCache: Optimal Brain KV Cache Pruning for
 * Efficient Long-Context LLM Inference" (arXiv 2510.07651). For query i of the window with attention A_ip,
 * scaled logit Z_ip and output o_i of its head, summed over the window:
 *
 *     value   A_ip^2 ||v_p||^2
 *     key     (A_ip Z_ip)^2 ||v_p - o_i||^2
 *     joint   value + key + 2 A_ip^2 Z_ip (||v_p||^2 - v_p . o_i)  =  || A_ip (v_p + Z_ip (v_p - o_i)) ||^2
 *     drop    (A_ip / (1 - A_ip))^2 ||v_p - o_i||^2
 *
 * `drop` is DropKV's rule: the exact change of o_i when entry p goes and the attention to the others grows to
 * a sum of 1. Its denominator is at least 0.05, so that rounding of an attention near 1 does not decide the score.
 *
 * The sums are pooled along the positions like SnapKV's attention and averaged over the query heads of the KV
 * head. The output projection is not seen; a model with soft-capping has its logits from before the capping.
 * The window stays.
 * Observes window attention and its queries, keys and values. Range >= 0. Cost O(H_q w n d).
 */
#include "kernel/kernel.h"
#include "policy/window.h"

#include <math.h>

enum { BLOCK = 64 };                   /* entries whose products with the window are held at a time */
static const double LEAST_REST = 0.05; /* attention to all other entries */
enum prune { PRUNE_JOINT, PRUNE_VALUE, PRUNE_KEY, PRUNE_DROP };

struct opts {
    struct wnw__window_opts w;
    int32_t prune;
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    return wnw__pool_check("obcache", o->w.kernel);
}

/* The rules for values and for entries have no logits, so that no key is read for them. */
static bool has_logits(enum prune prune)
{
    return prune == PRUNE_JOINT || prune == PRUNE_KEY;
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES;
    if (has_logits((enum prune)o->prune))
        out->flags |= WNW_NEED_KEYS;
    out->window = o->w.window;
}

/* Scratch holds scores of one query head, outputs of its window, and logits and v . o of a block. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const struct opts *o = opts;
    const size_t n_row = (size_t)wnw__window_rows(obs, o->w.window);
    return (size_t)obs->n + n_row * ((size_t)obs->n_embd_head + 2 * BLOCK);
}

/* o[n_row][d] = attention a[n_row][stride] times v[n][d]. */
static void outputs(const float *a, int32_t n_row, int64_t stride, const float *v, int32_t n, int32_t d,
                    float *o)
{
    for (int32_t w = 0; w < n_row; w++) {
        float *to = o + (int64_t)w * d;
        for (int32_t c = 0; c < d; c++)
            to[c] = 0;
        for (int32_t i = 0; i < n; i++) {
            const float weight = a[w * stride + i], *from = v + (int64_t)i * d;
            for (int32_t c = 0; c < d; c++)
                to[c] += weight * from[c];
        }
    }
}

static double squared(const float *x, int32_t d)
{
    double sum = 0;
    for (int32_t c = 0; c < d; c++)
        sum += (double)x[c] * x[c];
    return sum;
}

/* m <= BLOCK entries as the n_row queries of the window see them. */
struct block {
    int32_t n_row, m, d;
    const float *a; /* [n_row][stride] attention */
    int64_t stride;
    const float *v;      /* [m][d] values */
    const float *o;      /* [n_row][d] outputs of the head */
    const float *z, *vo; /* [n_row][BLOCK] logits, which are read where the rule has them, and v . o */
};

/* What the square of the attention p is multiplied by; vv = ||v||^2, vo = v . o, oo = ||o||^2. */
static double factor(enum prune prune, double p, double logit, double vv, double vo, double oo)
{
    const double apart = fmax(vv - 2 * vo + oo, 0); /* rounding can take it below 0 */
    const double key = logit * logit * apart;
    switch (prune) {
    case PRUNE_VALUE:
        return vv;
    case PRUNE_KEY:
        return key;
    case PRUNE_DROP: {
        const double rest = fmax(1 - p, LEAST_REST);
        return apart / (rest * rest);
    }
    case PRUNE_JOINT:
        break;
    }
    return fmax(vv + key + 2 * logit * (vv - vo), 0);
}

/* s[m] = sums over the window. */
static void saliency(enum prune prune, const struct block *b, float *s)
{
    const int32_t d = b->d;
    double norm[BLOCK];
    for (int32_t i = 0; i < b->m; i++) {
        s[i] = 0;
        norm[i] = squared(b->v + (int64_t)i * d, d);
    }
    for (int32_t w = 0; w < b->n_row; w++) {
        const double oo = squared(b->o + (int64_t)w * d, d);
        for (int32_t i = 0; i < b->m; i++) {
            const double p = b->a[w * b->stride + i], dot = b->vo[w * BLOCK + i];
            if (p <= 0)
                continue;
            const double logit = has_logits(prune) ? b->z[w * BLOCK + i] : 0;
            s[i] += (float)(p * p * factor(prune, p, logit, norm[i], dot, oo));
        }
    }
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv, d = obs->n_embd_head;
    const int32_t n_row = wnw__window_rows(obs, o->w.window), skip = obs->n_window - n_row;
    const enum wnw__pool pool = (enum wnw__pool)o->w.pool;
    float *s = scratch, *out = s + obs->n, *z = out + (int64_t)n_row * d, *vo = z + (int64_t)n_row * BLOCK;
    const bool logits = has_logits((enum prune)o->prune);
    if (logits && !obs->window_queries)
        return wnw__fail(WNW_E_NOT_OBSERVED, "obcache needs the window's queries of layer %d", obs->il);
    const float *k = NULL, *v = NULL;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t ih = h / group, n = obs->n_entry[ih], n_old = wnw__window_n_old(obs, ih, n_row);
        const float *a = wnw__window_of(obs, h) + (int64_t)skip * obs->n;
        const float *q = logits ? obs->window_queries + ((int64_t)h * obs->n_window + skip) * d : NULL;
        float *to = score + (int64_t)h * obs->n;
        if (h % group == 0) {
            k = logits ? obs->keys(obs, ih) : NULL;
            v = obs->values(obs, ih);
        }
        if (!wnw__query_head_used(obs, h))
            continue;
        for (int32_t i = 0; i < obs->n; i++)
            to[i] = 0;
        outputs(a, n_row, obs->n, v, n, d, out);
        for (int32_t at = 0; at < n; at += BLOCK) {
            const int32_t m = n - at < BLOCK ? n - at : BLOCK;
            if (logits)
                wnw__mul_nt(q, n_row, k + (int64_t)at * d, m, d, obs->attn_scale, z, BLOCK);
            wnw__mul_nt(out, n_row, v + (int64_t)at * d, m, d, 1, vo, BLOCK);
            const struct block block = {.n_row = n_row,
                                        .m = m,
                                        .d = d,
                                        .a = a + at,
                                        .stride = obs->n,
                                        .v = v + (int64_t)at * d,
                                        .o = out,
                                        .z = z,
                                        .vo = vo};
            saliency((enum prune)o->prune, &block, s + at);
        }
        wnw__pool_add(pool, o->w.kernel, s, n_old, 1, to);
        wnw__pool_add(pool, o->w.kernel, s + n_old, n - n_old, 1, to + n_old);
    }
    return WNW_OK;
}

static const char *const prunes[] = {"joint", "value", "key", "drop", NULL};

static const wnw_option options[] = {
    WNW_OPTION_WINDOW(32),
    WNW_OPTION_KERNEL(7),
    WNW_OPTION_POOL(WNW_POOL_MAX),
    {.name = "prune",
     .help = "what is thought to be taken away: value, key, both, or the entry itself (drop)",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, prune),
     .def = PRUNE_JOINT,
     .choices = prunes},
    {0}};

const wnw_scorer wnw__scorer_obcache = {
    .part = {WNW_SCORER_INIT, .name = "obcache",
             .about =
                 "First-order change of the window's outputs when an entry goes, pooled along the positions.",
             .paper = "OBCache, arXiv 2510.07651",
             .details =
                 "With attention `A`, scaled logit `Z` and head output `o` of a query of the window, summed "
                 "over the window: `prune=value` `A^2 ||v||^2`, `key` `(A Z)^2 ||v - o||^2`, `joint` "
                 "`||A (v + Z (v - o))||^2`, `drop` (DropKV) `(A / (1 - A))^2 ||v - o||^2`, the exact "
                 "change of the output. Pooled as SnapKV's attention, mean over the group.\n\n"
                 "Cost: O(n w d) per query head.",
             .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_QUERY_HEADS,
             .check = check, .needs = needs, .keep = wnw__window_keep},
    .scratch = scratch_size,
    .score = score,
};
