/* SPDX-License-Identifier: MIT */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

int wnw__plan_begin(wnw_plan **out, int32_t n_layer, int32_t n_head_kv, int32_t n_tokens)
{
    *out = NULL;
    const int64_t n_head = (int64_t)n_layer * n_head_kv;
    if (n_layer < 1 || n_head_kv < 1 || n_tokens < 0 || n_head > INT32_MAX)
        return wnw__fail(WNW_E_ARG, "a plan of %d layers, %d KV heads, %d tokens is not possible", n_layer,
                         n_head_kv, n_tokens);
    wnw_plan *p = calloc(1, sizeof *p);
    if (p) {
        p->off = calloc((size_t)n_head + 1, sizeof *p->off);
        p->n_settled = calloc((size_t)n_layer, sizeof *p->n_settled);
    }
    if (!p || !p->off || !p->n_settled) {
        wnw_plan_free(p);
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan of %d layers", n_layer);
    }
    p->n_layer = n_layer;
    p->n_head_kv = n_head_kv;
    p->n_tokens = n_tokens;
    *out = p;
    return WNW_OK;
}

int32_t *wnw__plan_add_head(wnw_plan *p, int32_t n)
{
    const int64_t at = p->off[p->n_head_done];
    const int64_t need = at + n;
    if (need > p->cap || !p->pos) {
        const int64_t cap = need > 2 * p->cap ? need + 1024 : 2 * p->cap;
        if ((uint64_t)cap > SIZE_MAX / sizeof *p->pos)
            return NULL;
        int32_t *grown = realloc(p->pos, (size_t)cap * sizeof *grown);
        if (!grown)
            return NULL;
        p->pos = grown;
        p->cap = cap;
    }
    p->off[++p->n_head_done] = need;
    return p->pos + at;
}

int wnw_plan_new(wnw_plan **out, int32_t n_layer, int32_t n_head_kv, int32_t n_tokens, const int32_t *n,
                 const int32_t *const *positions)
{
    wnw_plan *p;
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(n);
    WNW_REQUIRE(positions);
    WNW_TRY(wnw__plan_begin(&p, n_layer, n_head_kv, n_tokens));
    for (int32_t i = 0; i < n_layer * n_head_kv; i++) {
        const int32_t il = i / n_head_kv, ih = i % n_head_kv;
        if (n[i] < 0 || n[i] > n_tokens) {
            wnw_plan_free(p);
            return wnw__fail(WNW_E_ARG, "layer %d, head %d of the plan keeps %d of %d tokens", il, ih, n[i],
                             n_tokens);
        }
        if (n[i] > 0 && !positions[i]) {
            wnw_plan_free(p);
            return wnw__fail(WNW_E_ARG, "layer %d, head %d of the plan has no positions", il, ih);
        }
        int32_t last = -1;
        for (int32_t k = 0; k < n[i]; k++) {
            const int32_t at = positions[i][k];
            if (at <= last || at >= n_tokens) {
                wnw_plan_free(p);
                return wnw__fail(WNW_E_ARG,
                                 "layer %d, head %d of the plan: position %d after %d; positions must ascend "
                                 "and lie in 0..%d",
                                 il, ih, at, last, n_tokens - 1);
            }
            last = at;
        }
        int32_t *to = wnw__plan_add_head(p, n[i]);
        if (!to) {
            wnw_plan_free(p);
            return wnw__fail(WNW_E_NOMEM, "out of memory for a plan");
        }
        if (n[i] > 0)
            memcpy(to, positions[i], (size_t)n[i] * sizeof *to);
    }
    *out = p;
    return WNW_OK;
}

void wnw_plan_free(wnw_plan *p)
{
    if (!p)
        return;
    for (int64_t i = 0; p->contents && i < (int64_t)p->n_layer * p->n_head_kv; i++) {
        free(p->contents[i].merges);
        free(p->contents[i].channels);
        free(p->contents[i].bias);
        free(p->contents[i].values);
        free(p->contents[i].note);
    }
    free(p->contents);
    free(p->off);
    free(p->n_settled);
    free(p->pos);
    free(p);
}

int32_t wnw_plan_n_layer(const wnw_plan *p)
{
    return p ? p->n_layer : 0;
}

int32_t wnw_plan_n_head_kv(const wnw_plan *p)
{
    return p ? p->n_head_kv : 0;
}

int32_t wnw_plan_n_tokens(const wnw_plan *p)
{
    return p ? p->n_tokens : 0;
}

int32_t wnw_plan_head(const wnw_plan *p, int32_t il, int32_t ih, const int32_t **positions)
{
    if (positions)
        *positions = NULL;
    if (!p || il < 0 || il >= p->n_layer || ih < 0 || ih >= p->n_head_kv)
        return 0;
    const int64_t i = (int64_t)il * p->n_head_kv + ih;
    if (positions)
        *positions = p->pos + p->off[i];
    return (int32_t)(p->off[i + 1] - p->off[i]);
}

/* ---- Contents ---- */

int wnw__plan_begin_contents(wnw_plan *p, bool averages)
{
    p->contents = calloc((size_t)p->n_layer * (size_t)p->n_head_kv, sizeof *p->contents);
    p->averages = averages;
    return p->contents ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for the contents of a plan");
}

int wnw__plan_set_contents(wnw_plan *p, int64_t i, const wnw_merge *merges, int32_t n_merge,
                           const int32_t *channels, int32_t n_channel, int32_t n_spared)
{
    struct wnw__plan_contents *c = &p->contents[i];
    c->merges = malloc(((size_t)n_merge + 1) * sizeof *c->merges);
    c->channels = malloc(((size_t)n_channel + 1) * sizeof *c->channels);
    if (!c->merges || !c->channels)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the contents of a plan");
    if (n_merge > 0)
        memcpy(c->merges, merges, (size_t)n_merge * sizeof *merges);
    if (n_channel > 0)
        memcpy(c->channels, channels, (size_t)n_channel * sizeof *channels);
    c->n_merge = n_merge;
    c->n_channel = n_channel;
    c->n_spared = n_spared;
    return WNW_OK;
}

/* Makes *to a copy of x[n], unless x is NULL. */
static bool copy_floats(float **to, const float *x, size_t n)
{
    if (!x)
        return true;
    *to = malloc((n + 1) * sizeof *x);
    if (*to)
        memcpy(*to, x, n * sizeof *x);
    return *to != NULL;
}

int wnw__plan_set_fitted(wnw_plan *p, int64_t i, int32_t n, int32_t d, const float *bias, const float *values)
{
    struct wnw__plan_contents *c = &p->contents[i];
    c->n_embd_head = d;
    return copy_floats(&c->bias, bias, (size_t)n) && copy_floats(&c->values, values, (size_t)n * (size_t)d)
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for the fitted values of a plan");
}

int wnw__plan_set_notes(wnw_plan *p, int64_t i, int32_t n, const float *note)
{
    return copy_floats(&p->contents[i].note, note, (size_t)n)
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for the notes of a plan");
}

const struct wnw__plan_contents *wnw__plan_contents_of(const wnw_plan *p, int32_t il)
{
    return p->contents ? p->contents + (int64_t)il * p->n_head_kv : NULL;
}

static const struct wnw__plan_contents *contents_of_head(const wnw_plan *p, int32_t il, int32_t ih)
{
    static const struct wnw__plan_contents none;
    const bool there = p && p->contents && il >= 0 && il < p->n_layer && ih >= 0 && ih < p->n_head_kv;
    return there ? &p->contents[(int64_t)il * p->n_head_kv + ih] : &none;
}

int32_t wnw_plan_merges(const wnw_plan *p, int32_t il, int32_t ih, const wnw_merge **merges)
{
    const struct wnw__plan_contents *c = contents_of_head(p, il, ih);
    if (merges)
        *merges = c->merges;
    return c->n_merge;
}

int32_t wnw_plan_channels(const wnw_plan *p, int32_t il, int32_t ih, const int32_t **channels,
                          int32_t *n_spared)
{
    const struct wnw__plan_contents *c = contents_of_head(p, il, ih);
    if (channels)
        *channels = c->channels;
    if (n_spared)
        *n_spared = c->n_spared;
    return c->n_channel;
}

wnw_fitted wnw_plan_fitted(const wnw_plan *p, int32_t il, int32_t ih)
{
    const struct wnw__plan_contents *c = contents_of_head(p, il, ih);
    if (!c->bias && !c->values)
        return (wnw_fitted){0};
    return (wnw_fitted){.n = wnw_plan_head(p, il, ih, NULL),
                        .n_embd_head = c->n_embd_head,
                        .bias = c->bias,
                        .values = c->values};
}
