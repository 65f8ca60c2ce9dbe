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

#include "base/vectors.h"
#include "kernel/kernel.h"
#include "policy/mean_rope.h"
#include "profile/profile.h"
#include "score/score.h"

#include <math.h>
#include <string.h>

static const struct wnw__expected_opts expected = {
    .n_sink = WNW_GATE_SINKS, .n_future = WNW_GATE_FUTURE, .covariance = 1, .vnorm = 1, .epsilon = 0};

void wnw__gate_needs(wnw_needs *out)
{
    out->flags = WNW_NEED_KEYS | WNW_NEED_VALUES | WNW_NEED_QUERY_STATS | WNW_NEED_ROPE;
    out->skip = WNW_GATE_SINKS;
}

/* The memory of a layer. What is double comes first, because it needs the larger alignment. */
struct room {
    double *gram;   /* [d][d], then its factor L, and [d] more; before that, angles [4][d / 2] and sums [d] */
    float *inverse; /* [d][d] of L */
    float *products; /* WNW_GRAM_FLOATS, then a triangle */
    float *ea;       /* [n_head][n] */
    float *key;      /* [n][d] before RoPE, centred */
    float *tiles;    /* the same in tiles */
    float *rows;     /* [64][ld] of one tile */
    float *keydiff;  /* [n], then leverages */
    float *length;   /* [n] */
    float *mean;     /* [d] */
    float *work;     /* of expected attention and KeyDiff */
};

static int32_t padded(int32_t d)
{
    return (d + WNW_GRAM_BLOCK - 1) / WNW_GRAM_BLOCK * WNW_GRAM_BLOCK;
}

static size_t products_of(size_t d)
{
    return WNW_GRAM_FLOATS(d) > WNW_TRIANGLE_FLOATS(d) ? WNW_GRAM_FLOATS(d) : WNW_TRIANGLE_FLOATS(d);
}

static size_t doubles_of(size_t d)
{
    return d * d + 3 * d;
}

static size_t rest_of(const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    return d * d + products_of(d) + (size_t)obs->n_head * n + n * d + WNW_TILE_FLOATS(n, d) +
           64 * (size_t)padded(obs->n_embd_head) + 2 * n + d;
}

size_t wnw__gate_room(const wnw_observation *obs)
{
    return 1 + 2 * doubles_of((size_t)obs->n_embd_head) + rest_of(obs) + wnw__expected_scratch(obs);
}

static struct room room_of(const wnw_observation *obs, float *at)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    at += (uintptr_t)at % sizeof(double) / sizeof(float);
    struct room r = {.gram = (double *)(void *)at};
    r.inverse = at + 2 * doubles_of(d);
    r.products = r.inverse + d * d;
    r.ea = r.products + products_of(d);
    r.key = r.ea + (size_t)obs->n_head * n;
    r.tiles = r.key + n * d;
    r.rows = r.tiles + WNW_TILE_FLOATS(n, d);
    r.keydiff = r.rows + 64 * (size_t)padded(obs->n_embd_head);
    r.length = r.keydiff + n;
    r.mean = r.length + n;
    r.work = r.mean + d;
    return r;
}

int wnw__gate_begin(const wnw_observation *obs, float *room)
{
    const struct room r = room_of(obs, room);
    return wnw__expected_attention(&expected, obs, r.ea, r.work);
}

/* ---- Keys before RoPE, and their leverage ---- */

/* Cosines and sines of the angles of a position, and of one position. */
struct turn {
    double *c, *s, *one_c, *one_s; /* [n_rot / 2] */
};

/* Turns key[d] of a head back by the angles. */
static void turn_key(const wnw_observation *obs, const struct turn *turn, float *key)
{
    const int32_t n_pair = obs->n_rot / 2;
    if (obs->rope_neox) {
        for (int32_t f = 0; f < n_pair; f++) {
            const double u = (double)key[f], v = (double)key[f + n_pair];
            key[f] = (float)(turn->c[f] * u + turn->s[f] * v);
            key[f + n_pair] = (float)(turn->c[f] * v - turn->s[f] * u);
        }
        return;
    }
    for (int32_t f = 0; f < n_pair; f++) {
        const double u = (double)key[2 * f], v = (double)key[2 * f + 1];
        key[2 * f] = (float)(turn->c[f] * u + turn->s[f] * v);
        key[2 * f + 1] = (float)(turn->c[f] * v - turn->s[f] * u);
    }
}

static void turn_to(const wnw_observation *obs, int32_t pos, double *c, double *s)
{
    for (int32_t f = 0; f < obs->n_rot / 2; f++) {
        const struct wnw__turn t = wnw__mean_turn((double)obs->rope_theta[f], pos, 1);
        c[f] = t.c;
        s[f] = t.s;
    }
}

/* Fills r->key[n][d] with keys as they were before RoPE, and r->mean. The angles of a position follow from those of the
 * one before it, which costs a product in place of sine and cosine; every RESET entries, and after a gap, they are
 * computed anew. */
static void turn_back(const wnw_observation *obs, int32_t ih, const float *k, const struct room *r)
{
    enum { RESET = 128 };
    const int32_t n = obs->n_entry[ih], d = obs->n_embd_head, n_pair = obs->n_rot / 2;
    const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
    double *sum = r->gram + 4 * n_pair; /* the matrix comes later */
    const struct turn t = {r->gram, r->gram + n_pair, r->gram + 2 * n_pair, r->gram + 3 * n_pair};
    memcpy(r->key, k, (size_t)n * (size_t)d * sizeof *r->key);
    memset(sum, 0, (size_t)d * sizeof *sum);
    turn_to(obs, 1, t.one_c, t.one_s);
    for (int32_t i = 0; i < n; i++) {
        float *key = r->key + (int64_t)i * d;
        if (i % RESET == 0 || pos[i] != pos[i - 1] + 1)
            turn_to(obs, pos[i], t.c, t.s);
        else
            for (int32_t f = 0; f < n_pair; f++) {
                const double c = t.c[f], s = t.s[f];
                t.c[f] = c * t.one_c[f] - s * t.one_s[f];
                t.s[f] = c * t.one_s[f] + s * t.one_c[f];
            }
        turn_key(obs, &t, key);
        for (int32_t c = 0; c < d; c++)
            sum[c] += (double)key[c];
    }
    for (int32_t c = 0; c < d; c++)
        r->mean[c] = (float)(sum[c] / n);
}

/* r->products = X^T X, of the centred keys. */
static void multiply(const struct room *r, int32_t n, int32_t d)
{
    const int32_t ld = padded(d);
    memset(r->products, 0, WNW_GRAM_FLOATS(d) * sizeof *r->products);
    memset(r->rows, 0, 64 * (size_t)ld * sizeof *r->rows);
    for (int32_t at = 0; at < n; at += 64) {
        for (int32_t i = 0; i < 64; i++)
            if (at + i < n)
                memcpy(r->rows + i * ld, r->key + (int64_t)(at + i) * d, (size_t)d * sizeof *r->rows);
            else
                memset(r->rows + i * ld, 0, (size_t)d * sizeof *r->rows);
        wnw__gram_add(r->rows, ld, d, r->tiles + (int64_t)at * d, r->products);
    }
}

/* r->inverse = L^-1 with L L^T = X^T X + 0.01 tr / d I; false where keys are not finite. Equal keys, whose X is 0, have
 * no leverage: L^-1 is 0 then. */
static bool invert(const struct room *r, int32_t n, int32_t d)
{
    double trace = 0;
    multiply(r, n, d);
    for (int32_t c = 0; c < d; c++)
        trace += (double)r->products[wnw__gram_at(d, c, c)];
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = 0; j <= i; j++)
            r->gram[i * d + j] = (double)r->products[wnw__gram_at(d, i, j)] + (i == j ? 0.01 * trace / d : 0);
    memset(r->inverse, 0, (size_t)d * (size_t)d * sizeof *r->inverse);
    if (!(trace > 0))
        return trace >= 0;
    if (!isfinite(trace) || !wnw__cholesky(r->gram, d))
        return false;
    double *row = r->gram + (size_t)d * (size_t)d;
    for (int32_t i = 0; i < d; i++) {
        for (int32_t j = 0; j <= i; j++)
            row[j] = i == j;
        for (int32_t k = 0; k < i; k++)
            for (int32_t j = 0; j <= k; j++)
                row[j] -= r->gram[i * d + k] * (double)r->inverse[k * d + j];
        for (int32_t j = 0; j <= i; j++)
            r->inverse[i * d + j] = (float)(row[j] / r->gram[i * d + i]);
    }
    return true;
}

/* Takes the mean off the keys and fills r->keydiff[n], which was read, with leverages. */
static bool leverage(const struct room *r, int32_t n, int32_t d)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = 0; c < d; c++)
            r->key[(int64_t)i * d + c] -= r->mean[c];
    wnw__tiles_of(r->key, n, d, r->tiles);
    if (!invert(r, n, d))
        return false;
    wnw__triangle_of(r->inverse, d, r->products);
    wnw__triangle_lengths(r->products, d, r->tiles, n, r->keydiff);
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

/* As wnw__gate_head with the keys and values of the head; r->ea is of all heads. */
static int head_features(const wnw_observation *obs, int32_t ih, int32_t n_feature, const float *k,
                         const float *v, const struct room *r, float *f)
{
    const int32_t n = obs->n_entry[ih], d = obs->n_embd_head;
    if (n == 0)
        return WNW_OK;
    turn_back(obs, ih, k, r);
    for (int32_t i = 0; n_feature > WNW_GATE_SCALARS && i < n; i++)
        memcpy(f + (int64_t)i * n_feature, r->key + (int64_t)i * d, (size_t)d * sizeof *f);
    wnw__keydiff(k, n, d, r->keydiff, r->work);
    wnw__dots(k, d, k, d, n, d, r->length);
    float *scalars = f + n_feature - WNW_GATE_SCALARS;
    for (int32_t i = 0; i < n; i++) {
        float *to = scalars + (int64_t)i * n_feature;
        to[0] = (float)log(sqrt((double)r->length[i]) + 1e-12);
        to[1] = r->keydiff[i];
        to[2] = expected_of(obs, ih, r, i);
    }
    if (!leverage(r, n, d))
        return WNW_E_NOT_FINITE;
    for (int32_t i = 0; i < n; i++)
        scalars[(int64_t)i * n_feature + 3] = (float)log((double)r->keydiff[i] + 1e-6);
    for (int32_t i = 0; n_feature > WNW_GATE_SCALARS && i < n; i++)
        memcpy(f + (int64_t)i * n_feature + d, v + (int64_t)i * d, (size_t)d * sizeof *f);
    return WNW_OK;
}

static int not_finite(const wnw_observation *obs)
{
    return wnw__fail(WNW_E_NOT_FINITE, "kvgate: the keys of layer %d are not finite", (int)obs->il);
}

int wnw__gate_head(const wnw_observation *obs, int32_t ih, int32_t n_feature, float *room, float *f)
{
    const struct room r = room_of(obs, room);
    const float *k = obs->keys(obs, ih), *v = n_feature > WNW_GATE_SCALARS ? obs->values(obs, ih) : NULL;
    const int rc = head_features(obs, ih, n_feature, k, v, &r, f);
    return rc == WNW_OK ? rc : not_finite(obs);
}

/* ---- All heads, on all threads ---- */

/* Heads whose features are there at once: with more, memory would grow with the model. */
enum { TOGETHER = 4 };

static size_t own_room(const wnw_observation *obs, int32_t n_feature)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    const size_t size = wnw__gate_room(obs) + 2 * n * d + n * (size_t)n_feature;
    return size + size % 2; /* doubles of the next one are aligned as those of the first */
}

size_t wnw__gate_room_all(const wnw_observation *obs, int32_t n_feature)
{
    const int32_t most = obs->n_head_kv < TOGETHER ? obs->n_head_kv : TOGETHER;
    return wnw__gate_room(obs) + 1 + (size_t)most * own_room(obs, n_feature);
}

struct batch {
    const wnw_observation *obs;
    int32_t first, n_feature;
    float *ea;   /* of all heads */
    float *room; /* [TOGETHER][own_room] */
    void (*take)(int32_t ih, const float *f, void *user);
    void *user;
    int rc[TOGETHER];
};

/* The keys, values and features of head i of a batch, after its room. */
static float *keys_of(const struct batch *b, int32_t i)
{
    return b->room + (size_t)i * own_room(b->obs, b->n_feature) + wnw__gate_room(b->obs);
}

static void do_head(int32_t i, void *user)
{
    struct batch *b = user;
    const size_t size = (size_t)b->obs->n * (size_t)b->obs->n_embd_head;
    float *k = keys_of(b, i), *v = k + size, *f = v + size;
    struct room r = room_of(b->obs, b->room + (size_t)i * own_room(b->obs, b->n_feature));
    r.ea = b->ea;
    b->rc[i] = head_features(b->obs, b->first + i, b->n_feature, k, v, &r, f);
    if (b->rc[i] == WNW_OK)
        b->take(b->first + i, f, b->user);
}

int wnw__gate_all_heads(const wnw_observation *obs, int32_t n_feature, float *room,
                        void (*take)(int32_t ih, const float *f, void *user), void *user)
{
    const size_t d = (size_t)obs->n_embd_head, size = (size_t)obs->n * d;
    struct batch b = {.obs = obs,
                      .n_feature = n_feature,
                      .ea = room_of(obs, room).ea,
                      .room = room + wnw__gate_room(obs) + wnw__gate_room(obs) % 2,
                      .take = take,
                      .user = user};
    WNW_TRY(wnw__gate_begin(obs, room));
    for (; b.first < obs->n_head_kv; b.first += TOGETHER) {
        const int32_t left = obs->n_head_kv - b.first, n = left < TOGETHER ? left : TOGETHER;
        for (int32_t i = 0; i < n; i++) {
            const size_t bytes = (size_t)obs->n_entry[b.first + i] * d * sizeof(float);
            memcpy(keys_of(&b, i), obs->keys(obs, b.first + i), bytes);
            if (n_feature > WNW_GATE_SCALARS)
                memcpy(keys_of(&b, i) + size, obs->values(obs, b.first + i), bytes);
        }
        wnw__observation_each(obs, n, do_head, &b);
        for (int32_t i = 0; i < n; i++)
            if (b.rc[i] != WNW_OK)
                return not_finite(obs);
    }
    return WNW_OK;
}
