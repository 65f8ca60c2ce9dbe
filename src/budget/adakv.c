/* SPDX-License-Identifier: MIT */
/*
 * AdaKV: the heads of a layer compete for the layer's budget with their raw scores, so that a head whose
 * attention is concentrated gives entries to one whose attention is spread. Paper: "Ada-KV: Optimizing KV
 * Cache Eviction by Adaptive Budget Allocation for Efficient LLM Inference" (arXiv 2407.11550).
 *
 * With H heads and an average of B entries, protected ones included:
 *
 * safeguard: every head keeps its floor(alpha B) best. The rest of the H B is taken from the flattened scores
 *            of the layer (kvpress; default).
 *
 * floor:     c_j = entries of head j among the H (B - w) best of the flattened scores. In addition to its w
 *            protected entries head j chooses (1 - alpha) c_j + alpha (B - w). The largest fractions are
 *            rounded up until the total is exact.
 *
 * code:      the same with floor(alpha (B - w)), each head rounded to the nearest by itself, halves to even. So
 *            totals drift by up to an entry per head (the authors' code).
 *
 * The flattened scores are ordered by score, then lower head, then lower position. Cost O(H n).
 */
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"

#include <math.h>

enum mode { MODE_SAFEGUARD, MODE_FLOOR, MODE_CODE };

struct opts {
    double alpha_safeguard;
    int32_t mode;
};

/* n_keep[ih] becomes skip + the number of head ih's candidates among the `total` best of the layer, where
 * skip = n_keep[ih] - its protected entries on entry. */
static void compete(const wnw_head_problem *p, int64_t total, int32_t *n_keep, float *flat)
{
    int64_t n_flat = 0;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const int32_t n_prot = p->prot[ih].n_first + p->prot[ih].n_last;
        n_flat += wnw__candidates(p->score + (int64_t)ih * p->n, p->n_entry[ih], p->prot[ih],
                                  n_keep[ih] - n_prot, flat + n_flat);
    }
    struct wnw__cut cut = wnw__topk_cut(flat, n_flat, total < n_flat ? total : n_flat);
    for (int32_t ih = 0; ih < p->n_head_kv; ih++)
        for (int32_t left = p->n_entry[ih] - n_keep[ih]; left > 0; left--)
            n_keep[ih] += wnw__cut_take(&cut, *flat++);
}

/* A head's share; n_keep is the number of entries that it won, protected ones included. */
static double mixed(const wnw_head_problem *p, int32_t ih, double alpha, double sure, int32_t n_keep)
{
    return (1 - alpha) * (n_keep - p->prot[ih].n_first - p->prot[ih].n_last) + sure;
}

static void mix_exactly(const wnw_head_problem *p, double alpha, int32_t *n_keep, float *fraction)
{
    int64_t missing = 0, have = 0;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const int32_t n_prot = p->prot[ih].n_first + p->prot[ih].n_last, most = p->n_entry[ih];
        const double x = mixed(p, ih, alpha, alpha * (p->budget - n_prot), n_keep[ih]);
        const int32_t whole = wnw__round_count(x, WNW_ROUND_EXACT);
        fraction[ih] = (float)(x - whole);
        n_keep[ih] = whole < most - n_prot ? whole + n_prot : most;
        missing += p->budget - n_keep[ih];
        have += most - n_keep[ih];
    }
    wnw__hand_out(p->n_entry, p->n_head_kv, missing < have ? missing : have, fraction, n_keep);
}

static void mix_as_code(const wnw_head_problem *p, double alpha, int32_t *n_keep)
{
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const int32_t n_prot = p->prot[ih].n_first + p->prot[ih].n_last, most = p->n_entry[ih] - n_prot;
        const int32_t sure = wnw__round_count(alpha * (p->budget - n_prot), p->rounding);
        const double x = nearbyint(mixed(p, ih, alpha, sure, n_keep[ih]));
        n_keep[ih] = n_prot + (x < most ? (int32_t)x : most);
    }
}

static int allocate(const void *opts, const wnw_head_problem *p, int32_t *n_keep, int32_t *n_safe,
                    float *scratch)
{
    const struct opts *o = opts;
    const double alpha = o->alpha_safeguard;
    const int32_t sure = wnw__round_count(p->budget * alpha, p->rounding);
    int64_t total = (int64_t)p->n_head_kv * p->budget;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const int32_t n_prot = p->prot[ih].n_first + p->prot[ih].n_last;
        const int32_t safe = sure < p->n_entry[ih] ? sure : p->n_entry[ih];
        n_keep[ih] = o->mode == MODE_SAFEGUARD && safe > n_prot ? safe : n_prot;
        n_safe[ih] = n_keep[ih] - n_prot;
        total -= n_keep[ih];
    }
    compete(p, total, n_keep, scratch);
    if (o->mode == MODE_FLOOR)
        mix_exactly(p, alpha, n_keep, scratch);
    else if (o->mode == MODE_CODE)
        mix_as_code(p, alpha, n_keep);
    return WNW_OK;
}

static const char *const modes[] = {"safeguard", "floor", "code", NULL};

static const wnw_option options[] = {
    {.name = "alpha_safeguard",
     .help = "share of the average count that every head is sure of",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, alpha_safeguard),
     .def = 0.2,
     .min = 0,
     .max = 1},
    {.name = "mode",
     .help = "safeguard: sure first, then compete; floor: mix of both; code: as the authors'"
             " code rounds the mix",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, mode),
     .def = MODE_SAFEGUARD,
     .choices = modes},
    {0}};

const wnw_head_budget wnw__head_budget_adakv = {
    .part = {WNW_HEAD_BUDGET_INIT, .name = "adakv",
             .about = "The heads of a layer compete for its budget with their scores.",
             .paper = "Ada-KV, arXiv 2407.11550",
             .details =
                 "The heads of a layer compete with their raw scores for the layer's `H B` entries. "
                 "`safeguard`: every head keeps its `floor(alpha B)` best, the rest is taken from the "
                 "flattened scores (kvpress). `floor`: with `c_j` entries of head j among the `H (B - "
                 "w)` best of the layer, head j chooses `(1 - alpha) c_j + alpha (B - w)` besides its "
                 "window, and the largest fractions are rounded up until the total is exact. `code`: "
                 "`round((1 - alpha) c_j + floor(alpha (B - w)))` for each head by itself, as the "
                 "authors' code has it, so that totals drift.\n\nEqual scores go to the lower head, then the "
                 "lower position. A ratio of a cache whose heads differ in length counts all of them "
                 "together.\n\nCost: O(H n).",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES},
    .allocate = allocate,
};
