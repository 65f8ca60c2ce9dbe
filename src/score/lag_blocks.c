/* SPDX-License-Identifier: MIT */
#include "score/lag_blocks.h"

int32_t wnw__lag_n_thinned(const struct wnw__lag_opts *o, int32_t n)
{
    return wnw__blocks_thinned(&(wnw_blocks){.sink = o->sink, .lag = o->lag}, n);
}

void wnw__lag_blocks(const void *opts, wnw_blocks *out)
{
    const struct wnw__lag_opts *o = opts;
    *out = (wnw_blocks){.sink = o->sink, .lag = o->lag};
}

bool wnw__lag_skips(const void *opts, int32_t il)
{
    const struct wnw__lag_opts *o = opts;
    return il < o->skip;
}

void wnw__lag_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct wnw__lag_opts *o = opts;
    const int32_t n = p->n;
    const int32_t thinned = wnw__lag_n_thinned(o, n);
    out->n_first = thinned > 0 ? o->sink : n;
    out->n_last = thinned > 0 ? n - o->sink - thinned * o->lag : 0;
}

bool wnw__lag_fit(void *opts, int32_t n, int32_t n_keep)
{
    struct wnw__lag_opts *o = opts;
    for (int32_t sink = o->sink;; sink /= 2) {
        for (int32_t lag = o->lag; lag >= 4; lag /= 2) {
            const struct wnw__lag_opts t = {.sink = sink, .lag = lag, .skip = o->skip};
            const int32_t thinned = wnw__lag_n_thinned(&t, n);
            if (thinned > 0 && n - thinned * lag + thinned <= n_keep) {
                *o = t;
                return true;
            }
        }
        if (sink == 0)
            return false;
    }
}

const wnw_block_rule wnw__lag_rule = {.of = wnw__lag_blocks, .fit = wnw__lag_fit};
