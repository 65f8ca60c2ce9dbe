/* SPDX-License-Identifier: MIT */
/*
 * ZigZagKV: layers get entries according to how many they need to hold most of their attention. Paper:
 * "ZigZagKV: Dynamic KV Cache Compression for Long-context Modeling based on Layer Uncertainty" (arXiv
 * 2412.09036), in the form that kvpress' pull request 238 gives it.
 *
 *     MBA[l,h] = smallest n such that the n largest scores of head h hold 0.9 of its sum;
 *     LMBA[l]  = mean over h of MBA[l,h]          U_l = LMBA[l] / sum of LMBA;
 *     B_l      = Bmin + (Bavg - Bmin) L U_l       Bmin = 0.2 Bavg
 *
 * Bavg and B_l count the unprotected entries; protected ones take no part in the sums. Heads are KV heads. B_l is
 * rounded by largest fraction, so that the total is exact, and is at least 1 and at most the layer's entries. Where a
 * score is below 0 (of scorers that do not estimate attention) all are shifted so that the lowest is 0. Cost O(n) per
 * head.
 */
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"

#include <math.h>

struct opts {
    struct wnw__layer_opts common;
    double mass, min_share;
};

/* The smallest number of largest scores of score[n] that add up to `share` of the sum. It is found by a radix
 * search on sums, as wnw__topk_cut does on counts. */
static int64_t smallest_count(const float *score, int32_t n, double share)
{
    float low = 0;
    double total = 0, have = 0;
    for (int32_t i = 0; i < n; i++)
        low = score[i] < low ? score[i] : low;
    for (int32_t i = 0; i < n; i++)
        total += (double)(score[i] - low);
    if (!(total > 0))
        return (int64_t)ceil(share * n);
    const double target = share * total * (1 - 1e-7); /* so that 0.5f + 0.4f reaches 0.9 of 1 */
    int64_t count = 0, last = 0;
    uint32_t prefix = 0, mask = 0;
    double last_sum = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        double sum[256] = {0};
        int64_t number[256] = {0};
        for (int32_t i = 0; i < n; i++) {
            const uint32_t key = wnw__score_key(score[i]);
            if ((key & mask) != prefix)
                continue;
            sum[key >> shift & 0xffu] += (double)(score[i] - low);
            number[key >> shift & 0xffu]++;
        }
        uint32_t byte = 255;
        while (byte > 0 && have + sum[byte] < target) {
            have += sum[byte];
            count += number[byte--];
        }
        last = number[byte];
        last_sum = sum[byte];
        prefix |= byte << shift;
        mask |= 0xffu << shift;
    }
    /* `last` equal scores are left; some of them complete the sum. */
    const double some = last_sum > 0 ? ceil((target - have) / (last_sum / (double)last)) : 0;
    return count + (some < (double)last ? (int64_t)some : last);
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct opts *o = opts;
    (void)warning;
    const int32_t n_head = p->n_head_kv, n_layer = p->n_layer, average = p->budget - p->n_protected;
    double sum = 0;
    for (int32_t l = 0; l < n_layer; l++) {
        p->work[l] = 0;
        for (int32_t h = 0; h < n_head; h++) {
            const wnw_protected prot = p->prot[l * n_head + h];
            const int32_t n = p->n_entry[l * n_head + h] - prot.n_first - prot.n_last;
            p->work[l] +=
                (double)smallest_count(p->score[l] + (int64_t)h * p->row[l] + prot.n_first, n, o->mass) /
                n_head;
        }
        sum += p->work[l];
    }
    for (int32_t l = 0; l < n_layer; l++)
        p->work[l] = o->min_share + (1 - o->min_share) * (sum > 0 ? n_layer * p->work[l] / sum : 1);
    wnw__share_out(p->work, n_layer, (int64_t)average * n_layer, p->n - p->n_protected, n_keep);
    for (int32_t l = 0; l < n_layer && average > 0; l++) {
        if (n_keep[l] > 0)
            continue;
        int32_t most = 0; /* the layer with most entries, which gives one to layer l */
        for (int32_t i = 1; i < n_layer; i++)
            most = n_keep[i] > n_keep[most] ? i : most;
        n_keep[most]--;
        n_keep[l]++;
    }
    for (int32_t l = 0; l < n_layer; l++)
        n_keep[l] += p->n_protected;
    return WNW_OK;
}

static const wnw_option options[] = {WNW_OPTION_ROUNDING,
                                     {.name = "mass",
                                      .help = "share of a head's scores that its entries must hold",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, mass),
                                      .def = 0.9,
                                      .min = 0.01,
                                      .max = 1},
                                     {.name = "min_share",
                                      .help = "share of the average that every layer is sure of",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, min_share),
                                      .def = 0.2,
                                      .min = 0,
                                      .max = 1},
                                     {0}};

const wnw_layer_budget wnw__layer_budget_zigzagkv = {
    .part =
        {WNW_LAYER_BUDGET_INIT, .name = "zigzagkv",
         .about = "Entries in proportion to how many a layer needs to hold most of its attention.",
         .paper = "ZigZagKV, arXiv 2412.09036",
         .details =
             "`LMBA[l]` = mean over heads of the smallest number of entries that hold `mass` of the "
             "head's "
             "scores; `B_l = Bmin + (Bavg - Bmin) L LMBA[l] / sum LMBA`, `Bmin = min_share Bavg`.\n\n"
             "Protected entries are left out of sums and counts; rounding is by largest fraction, so that "
             "the total is exact.\n\n"
             "Cost O(n) per head.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_ALL_LAYERS},
    .allocate = allocate,
};
