/* SPDX-License-Identifier: MIT */
/*
 * What a gate reads of entry c of a KV head with n entries of d elements:
 *
 *     key      k~_c = R(-pos) k_c                            the key before RoPE, d numbers
 *     value    v_c                                           d numbers
 *     lk       log(||k_c|| + 1e-12)
 *     keydiff  -cos(k_c, mean over i of k_i / ||k_i||)       KeyDiff's score (keydiff.c)
 *     ea       log(EA_c + 1e-12)                             EA: expected attention (expected_attention.c) of the next
 *                                                            512 positions, mean over the group, times ||v_c||; 0 for
 *                                                            the first 4 entries
 *     lev      log(x_c^T (X^T X + 0.01 tr(X^T X) / d I)^-1 x_c + 1e-6)      X: the rows x_c = k~_c - mean of k~
 *
 * The matrix is at most 100 d times as large along one direction as along another, so that float32 products with its
 * inverse factor do; the factor itself is computed in double. Cost O(n d^2) per query head.
 */
#include "score/gate_features.h"

#include "base/vectors.h"
#include "kernel/kernel.h"
#include "policy/mean_rope.h"
#include "profile/profile.h"
#include "score/expected_attention.h"
#include "score/keydiff.h"

#include <math.h>
#include <string.h>

static const struct wnw__expected_opts expected = {
    .n_sink = WNW_GATE_SINKS, .n_future = WNW_GATE_FUTURE, .covariance = 1, .vnorm = 1, .epsilon = 0};

void wnw__gate_needs(wnw_needs *out)
{
    out->flags = WNW_NEED_KEYS | WNW_NEED_VALUES | WNW_NEED_QUERY_STATS | WNW_NEED_ROPE;
    out->skip = WNW_GATE_SINKS;
}

/* The memory of a layer. The matrix comes first, because doubles need the larger alignment. */
struct room {
    double *gram;   /* [d][d], then its factor L */
    float *inverse; /* [d][d] of L */
    float *ea;      /* [n_head][n] */
    float *key;     /* [n][d] before RoPE, centred */
    float *turned;  /* [d][n] the same, turned; then products */
    float *keydiff; /* [n] */
    float *mean;    /* [d] */
    float *work;    /* of expected attention */
};

static size_t rest_of(const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    return d * d + (size_t)obs->n_head * n + 2 * n * d + n + d;
}

size_t wnw__gate_room(const wnw_observation *obs)
{
    const size_t d = (size_t)obs->n_embd_head;
    return 1 + 2 * d * d + rest_of(obs) + wnw__expected_scratch(obs);
}

static struct room room_of(const wnw_observation *obs, float *at)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    at += (uintptr_t)at % sizeof(double) / sizeof(float);
    struct room r = {.gram = (double *)(void *)at};
    r.inverse = at + 2 * d * d;
    r.ea = r.inverse + d * d;
    r.key = r.ea + (size_t)obs->n_head * n;
    r.turned = r.key + n * d;
    r.keydiff = r.turned + n * d;
    r.mean = r.keydiff + n;
    r.work = r.mean + d;
    return r;
}

int wnw__gate_begin(const wnw_observation *obs, float *room)
{
    const struct room r = room_of(obs, room);
    return wnw__expected_attention(&expected, obs, r.ea, r.work);
}

/* ---- Keys before RoPE, and their leverage ---- */

/* Fills r->key[n][d] with keys as they were before RoPE, and r->mean. */
static void turn_back(const wnw_observation *obs, int32_t ih, const struct room *r)
{
    const int32_t n = obs->n_entry[ih], d = obs->n_embd_head;
    const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
    memcpy(r->key, obs->keys(obs, ih), (size_t)n * (size_t)d * sizeof *r->key);
    for (int32_t i = 0; i < n; i++)
        wnw__turn_rows(obs, -pos[i], 1, r->key + (int64_t)i * d, 1, 0, 1);
    for (int32_t c = 0; c < d; c++) {
        double sum = 0;
        for (int32_t i = 0; i < n; i++)
            sum += (double)r->key[(int64_t)i * d + c];
        r->mean[c] = (float)(sum / n);
    }
}

/* r->inverse = L^-1 with L L^T = X^T X + 0.01 tr / d I; false where keys are not finite. Equal keys, whose X is 0, have
 * no leverage: L^-1 is 0 then. */
static bool invert(const struct room *r, int32_t n, int32_t d)
{
    double trace = 0;
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = 0; c < d; c++)
            r->turned[(int64_t)c * n + i] = r->key[(int64_t)i * d + c];
    wnw__mul_nt(r->turned, d, r->turned, d, n, 1, r->inverse, d);
    for (int32_t c = 0; c < d; c++)
        trace += (double)r->inverse[(int64_t)c * d + c];
    for (int32_t i = 0; i < d * d; i++)
        r->gram[i] = (double)r->inverse[i] + (i % (d + 1) == 0 ? 0.01 * trace / d : 0);
    memset(r->inverse, 0, (size_t)d * (size_t)d * sizeof *r->inverse);
    if (!(trace > 0))
        return trace >= 0;
    if (!isfinite(trace) || !wnw__cholesky(r->gram, d))
        return false;
    for (int32_t j = 0; j < d; j++)
        for (int32_t i = j; i < d; i++) {
            double sum = i == j;
            for (int32_t k = j; k < i; k++)
                sum -= r->gram[i * d + k] * (double)r->inverse[k * d + j];
            r->inverse[i * d + j] = (float)(sum / r->gram[i * d + i]);
        }
    return true;
}

/* Takes the mean off the keys and fills r->turned[n][d] with rows whose squared length is the leverage. */
static bool leverage(const struct room *r, int32_t n, int32_t d)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = 0; c < d; c++)
            r->key[(int64_t)i * d + c] -= r->mean[c];
    if (!invert(r, n, d))
        return false;
    wnw__mul_nt(r->key, n, r->inverse, d, d, 1, r->turned, d);
    return true;
}

/* ---- A head ---- */

static float expected_of(const wnw_observation *obs, int32_t ih, const struct room *r, int32_t i)
{
    const int32_t group = obs->n_head / obs->n_head_kv;
    double sum = 0;
    for (int32_t g = 0; g < group && i >= WNW_GATE_SINKS; g++)
        sum += (double)r->ea[((int64_t)ih * group + g) * obs->n + i];
    return (float)log(sum / group + 1e-12);
}

int wnw__gate_head(const wnw_observation *obs, int32_t ih, int32_t n_feature, float *room, float *f)
{
    const struct room r = room_of(obs, room);
    const int32_t n = obs->n_entry[ih], d = obs->n_embd_head;
    if (n == 0)
        return WNW_OK;
    turn_back(obs, ih, &r);
    for (int32_t i = 0; n_feature > WNW_GATE_SCALARS && i < n; i++)
        memcpy(f + (int64_t)i * n_feature, r.key + (int64_t)i * d, (size_t)d * sizeof *f);
    wnw__keydiff(obs, ih, r.keydiff, r.work);
    const float *k = obs->keys(obs, ih);
    float *scalars = f + n_feature - WNW_GATE_SCALARS;
    for (int32_t i = 0; i < n; i++) {
        float *to = scalars + (int64_t)i * n_feature;
        to[0] = (float)log(wnw__norm(k + (int64_t)i * d, d) + 1e-12);
        to[1] = r.keydiff[i];
        to[2] = expected_of(obs, ih, &r, i);
    }
    if (!leverage(&r, n, d))
        return wnw__fail(WNW_E_NOT_FINITE, "kvgate: the keys of layer %d are not finite", (int)obs->il);
    for (int32_t i = 0; i < n; i++) {
        const double length = wnw__norm(r.turned + (int64_t)i * d, d);
        scalars[(int64_t)i * n_feature + 3] = (float)log(length * length + 1e-6);
    }
    if (n_feature == WNW_GATE_SCALARS)
        return WNW_OK;
    const float *v = obs->values(obs, ih);
    for (int32_t i = 0; i < n; i++)
        memcpy(f + (int64_t)i * n_feature + d, v + (int64_t)i * d, (size_t)d * sizeof *f);
    return WNW_OK;
}
