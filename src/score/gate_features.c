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
 *
 * Threads share pieces of a head's entries. Where a head is cut depends on its length alone, and what pieces add up is added in
 * their order, so results are the same for any number of threads.
 */

#include "base/vectors.h"
#include "kernel/kernel.h"
#include "method/mean_rope.h"
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

/* Entries of a piece, at least, and pieces of a head, at most. Pieces are whole tiles, and begin where angles are computed
 * again. */
enum { TILE = 64, PIECE = 256, PIECES = 8, RESET = 128 };

/* The memory of a layer. What is double comes first, because it needs the larger alignment. */
struct room {
    double *gram;    /* [d][d], then its factor L, and [d] more */
    double *turns;   /* [pieces][3 d]: angles [4][d / 2] and sums [d] */
    float *inverse;  /* [d][d] of L */
    float *grams;    /* [pieces][WNW_GRAM_FLOATS]; the first becomes their sum */
    float *triangle; /* of `inverse` */
    float *ea;       /* [n_head][n] */
    float *key;      /* [n][d] before RoPE, centred */
    float *tiles;    /* the same in tiles */
    float *rows;     /* [pieces][TILE][ld] of one tile */
    float *keydiff;  /* [n], then leverages */
    float *length;   /* [n] */
    float *mean;     /* [d] */
    float *work;     /* of expected attention and KeyDiff */
};

static int32_t padded(int32_t d)
{
    return (d + WNW_GRAM_BLOCK - 1) / WNW_GRAM_BLOCK * WNW_GRAM_BLOCK;
}

/* The most pieces of a head of up to n entries. */
static size_t most_pieces(int32_t n)
{
    return n / PIECE < PIECES ? (size_t)n / PIECE + 1 : PIECES;
}

static size_t doubles_of(const wnw_observation *obs)
{
    const size_t d = (size_t)obs->n_embd_head;
    return d * d + d + most_pieces(obs->n) * 3 * d;
}

static size_t rest_of(const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    return d * d + most_pieces(obs->n) * (WNW_GRAM_FLOATS(d) + TILE * (size_t)padded(obs->n_embd_head)) +
           WNW_TRIANGLE_FLOATS(d) + (size_t)obs->n_head * n + n * d + WNW_TILE_FLOATS(n, d) + 2 * n + d;
}

size_t wnw__gate_room(const wnw_observation *obs)
{
    return 1 + 2 * doubles_of(obs) + rest_of(obs) + wnw__expected_scratch(obs);
}

static struct room room_of(const wnw_observation *obs, float *at)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head, pieces = most_pieces(obs->n);
    at += (uintptr_t)at % sizeof(double) / sizeof(float);
    struct room r = {.gram = (double *)(void *)at};
    r.turns = r.gram + d * d + d;
    r.inverse = at + 2 * doubles_of(obs);
    r.grams = r.inverse + d * d;
    r.triangle = r.grams + pieces * WNW_GRAM_FLOATS(d);
    r.ea = r.triangle + WNW_TRIANGLE_FLOATS(d);
    r.key = r.ea + (size_t)obs->n_head * n;
    r.tiles = r.key + n * d;
    r.rows = r.tiles + WNW_TILE_FLOATS(n, d);
    r.keydiff = r.rows + pieces * TILE * (size_t)padded(obs->n_embd_head);
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

/* ---- A head and its pieces ---- */

struct head {
    const wnw_observation *obs;
    struct room r; /* its own, but for `ea`, which is of all heads */
    const float *k, *v;
    float *f; /* [n][n_feature] */
    int32_t ih, n, n_feature;
    int32_t size, n_piece; /* entries of a piece, pieces */
    bool finite;           /* its keys are */
};

static struct head head_of(const wnw_observation *obs, int32_t ih, int32_t n_feature, const struct room *r)
{
    struct head h = {.obs = obs, .r = *r, .ih = ih, .n = obs->n_entry[ih], .n_feature = n_feature};
    const int32_t even = (h.n + PIECES - 1) / PIECES;
    h.size = even <= PIECE ? PIECE : (even + RESET - 1) / RESET * RESET;
    h.n_piece = (h.n + h.size - 1) / h.size;
    h.finite = true;
    return h;
}

static int32_t end_of(const struct head *h, int32_t piece)
{
    return h->n - piece * h->size < h->size ? h->n : (piece + 1) * h->size;
}

/* The four numbers of entry i, after its key and value where those are features. */
static float *scalars_of(const struct head *h, int32_t i)
{
    return h->f + (int64_t)(i + 1) * h->n_feature - WNW_GATE_SCALARS;
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

/* Fills the rows of a piece in r.key with keys as they were before RoPE, and their sum. The angles of a position follow from
 * those of the one before it, which costs a product in place of sine and cosine; every RESET entries, and after a gap, they are
 * computed again. */
static void turn_back(const struct head *h, int32_t piece)
{
    const wnw_observation *obs = h->obs;
    const int32_t d = obs->n_embd_head, n_pair = obs->n_rot / 2;
    const int32_t from = piece * h->size, to = end_of(h, piece);
    const int32_t *pos = obs->pos + (int64_t)h->ih * obs->n;
    double *at = h->r.turns + (int64_t)piece * 3 * d, *sum = at + 2 * (int64_t)d;
    const struct turn t = {at, at + n_pair, at + 2 * n_pair, at + 3 * n_pair};
    memcpy(h->r.key + (int64_t)from * d, h->k + (int64_t)from * d,
           (size_t)(to - from) * (size_t)d * sizeof(float));
    memset(sum, 0, (size_t)d * sizeof *sum);
    turn_to(obs, 1, t.one_c, t.one_s);
    for (int32_t i = from; i < to; i++) {
        float *key = h->r.key + (int64_t)i * d;
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
}

/* r.grams of the piece = X^T X of its centred keys. */
static void multiply(const struct head *h, int32_t piece)
{
    const struct room *r = &h->r;
    const int32_t d = h->obs->n_embd_head, ld = padded(d), to = end_of(h, piece);
    float *rows = r->rows + (int64_t)piece * TILE * ld, *gram = r->grams + (size_t)piece * WNW_GRAM_FLOATS(d);
    memset(gram, 0, WNW_GRAM_FLOATS(d) * sizeof *gram);
    memset(rows, 0, TILE * (size_t)ld * sizeof *rows);
    for (int32_t at = piece * h->size; at < to; at += TILE) {
        for (int32_t i = 0; i < TILE; i++)
            if (at + i < to)
                memcpy(rows + i * ld, r->key + (int64_t)(at + i) * d, (size_t)d * sizeof *rows);
            else
                memset(rows + i * ld, 0, (size_t)d * sizeof *rows);
        wnw__gram_add(rows, ld, d, r->tiles + (int64_t)at * d, gram);
    }
}

/* r->inverse = L^-1 with L L^T = X^T X + 0.01 tr / d I, of r->grams; false where keys are not finite. Equal keys, whose X is 0,
 * have no leverage: L^-1 is 0 then. */
static bool invert(const struct room *r, int32_t d)
{
    double trace = 0;
    for (int32_t c = 0; c < d; c++)
        trace += (double)r->grams[wnw__gram_at(d, c, c)];
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = 0; j <= i; j++)
            r->gram[i * d + j] = (double)r->grams[wnw__gram_at(d, i, j)] + (i == j ? 0.01 * trace / d : 0);
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

/* ---- The features of a head: steps of a piece and of the whole head, in turn ---- */

static float expected_of(const struct head *h, int32_t i)
{
    const int32_t group = h->obs->n_head / h->obs->n_head_kv;
    double sum = 0;
    for (int32_t g = 0; g < group && i >= WNW_GATE_SINKS; g++)
        sum += (double)h->r.ea[((int64_t)h->ih * group + g) * h->obs->n + i];
    return (float)log(sum / group + 1e-12);
}

static void turn_piece(const struct head *h, int32_t piece)
{
    const int32_t d = h->obs->n_embd_head, from = piece * h->size, to = end_of(h, piece);
    const float *k = h->k + (int64_t)from * d;
    turn_back(h, piece);
    wnw__dots(k, d, k, d, to - from, d, h->r.length + from);
    for (int32_t i = from; i < to; i++) {
        float *scalars = scalars_of(h, i);
        if (h->n_feature > WNW_GATE_SCALARS)
            memcpy(h->f + (int64_t)i * h->n_feature, h->r.key + (int64_t)i * d, (size_t)d * sizeof(float));
        scalars[0] = (float)log(sqrt((double)h->r.length[i]) + 1e-12);
        scalars[2] = expected_of(h, i);
    }
}

static void find_means(const struct head *h)
{
    const int32_t d = h->obs->n_embd_head;
    for (int32_t c = 0; c < d; c++) {
        double sum = 0;
        for (int32_t piece = 0; piece < h->n_piece; piece++)
            sum += h->r.turns[((int64_t)piece * 3 + 2) * d + c];
        h->r.mean[c] = (float)(sum / h->n);
    }
    wnw__keydiff(h->k, h->n, d, h->r.keydiff, h->r.work);
}

static void multiply_piece(const struct head *h, int32_t piece)
{
    const int32_t d = h->obs->n_embd_head, from = piece * h->size, to = end_of(h, piece);
    float *key = h->r.key + (int64_t)from * d;
    for (int32_t i = 0; i < to - from; i++) {
        scalars_of(h, from + i)[1] = h->r.keydiff[from + i];
        for (int32_t c = 0; c < d; c++)
            key[(int64_t)i * d + c] -= h->r.mean[c];
    }
    wnw__tiles_of(key, to - from, d, h->r.tiles + (int64_t)from * d);
    multiply(h, piece);
}

static void find_inverse(struct head *h)
{
    const int32_t d = h->obs->n_embd_head;
    const size_t size = WNW_GRAM_FLOATS(d);
    for (int32_t piece = 1; piece < h->n_piece; piece++)
        for (size_t i = 0; i < size; i++)
            h->r.grams[i] += h->r.grams[(size_t)piece * size + i];
    h->finite = invert(&h->r, d);
    if (h->finite)
        wnw__triangle_of(h->r.inverse, d, h->r.triangle);
}

static void end_piece(const struct head *h, int32_t piece)
{
    const int32_t d = h->obs->n_embd_head, from = piece * h->size, to = end_of(h, piece);
    float *leverage = h->r.keydiff + from;
    wnw__triangle_lengths(h->r.triangle, d, h->r.tiles + (int64_t)from * d, to - from, leverage);
    for (int32_t i = from; i < to; i++) {
        scalars_of(h, i)[3] = (float)log((double)leverage[i - from] + 1e-6);
        if (h->n_feature > WNW_GATE_SCALARS)
            memcpy(h->f + (int64_t)i * h->n_feature + d, h->v + (int64_t)i * d, (size_t)d * sizeof(float));
    }
}

static int not_finite(const wnw_observation *obs)
{
    return wnw__fail(WNW_E_NOT_FINITE, "kvgate: the keys of layer %d are not finite", (int)obs->il);
}

int wnw__gate_head(const wnw_observation *obs, int32_t ih, int32_t n_feature, float *room, float *f)
{
    const struct room r = room_of(obs, room);
    struct head h = head_of(obs, ih, n_feature, &r);
    if (h.n == 0)
        return WNW_OK;
    h.k = obs->keys(obs, ih);
    h.v = n_feature > WNW_GATE_SCALARS ? obs->values(obs, ih) : NULL;
    h.f = f;
    for (int32_t piece = 0; piece < h.n_piece; piece++)
        turn_piece(&h, piece);
    find_means(&h);
    for (int32_t piece = 0; piece < h.n_piece; piece++)
        multiply_piece(&h, piece);
    find_inverse(&h);
    for (int32_t piece = 0; h.finite && piece < h.n_piece; piece++)
        end_piece(&h, piece);
    return h.finite ? WNW_OK : not_finite(obs);
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
    struct head head[TOGETHER];
    int32_t n; /* heads */
    void (*take)(int32_t ih, const float *f, void *user);
    void *user;
};

/* Units of pieces: all of the first head, then those of the next. */
static void do_turn(int32_t i, void *user)
{
    const struct head *h = &((const struct batch *)user)->head[i / PIECES];
    if (i % PIECES < h->n_piece)
        turn_piece(h, i % PIECES);
}

static void do_multiply(int32_t i, void *user)
{
    const struct head *h = &((const struct batch *)user)->head[i / PIECES];
    if (i % PIECES < h->n_piece)
        multiply_piece(h, i % PIECES);
}

static void do_end(int32_t i, void *user)
{
    const struct head *h = &((const struct batch *)user)->head[i / PIECES];
    if (i % PIECES < h->n_piece && h->finite)
        end_piece(h, i % PIECES);
}

static void do_means(int32_t i, void *user)
{
    const struct head *h = &((const struct batch *)user)->head[i];
    if (h->n > 0)
        find_means(h);
}

static void do_inverse(int32_t i, void *user)
{
    struct head *h = &((struct batch *)user)->head[i];
    if (h->n > 0)
        find_inverse(h);
}

static void do_take(int32_t i, void *user)
{
    const struct batch *b = user;
    if (b->head[i].finite)
        b->take(b->head[i].ih, b->head[i].f, b->user);
}

static void do_batch(const wnw_observation *obs, struct batch *b)
{
    wnw__observation_each(obs, b->n * PIECES, do_turn, b);
    wnw__observation_each(obs, b->n, do_means, b);
    wnw__observation_each(obs, b->n * PIECES, do_multiply, b);
    wnw__observation_each(obs, b->n, do_inverse, b);
    wnw__observation_each(obs, b->n * PIECES, do_end, b);
    wnw__observation_each(obs, b->n, do_take, b);
}

/* Makes a head whose memory begins at `own`, and copies its keys and values, which one thread alone may ask for. */
static struct head copy_head(const wnw_observation *obs, int32_t ih, int32_t n_feature, float *own)
{
    const struct room r = room_of(obs, own);
    struct head h = head_of(obs, ih, n_feature, &r);
    const size_t size = (size_t)obs->n * (size_t)obs->n_embd_head,
                 bytes = (size_t)h.n * (size_t)obs->n_embd_head * sizeof(float);
    float *k = own + wnw__gate_room(obs), *v = k + size;
    h.k = k;
    h.v = v;
    h.f = v + size;
    memcpy(k, obs->keys(obs, ih), bytes);
    if (n_feature > WNW_GATE_SCALARS)
        memcpy(v, obs->values(obs, ih), bytes);
    return h;
}

int wnw__gate_all_heads(const wnw_observation *obs, int32_t n_feature, float *room,
                        void (*take)(int32_t ih, const float *f, void *user), void *user)
{
    float *ea = room_of(obs, room).ea, *own = room + wnw__gate_room(obs) + wnw__gate_room(obs) % 2;
    WNW_TRY(wnw__gate_begin(obs, room));
    for (int32_t first = 0; first < obs->n_head_kv; first += TOGETHER) {
        const int32_t left = obs->n_head_kv - first;
        struct batch b = {.n = left < TOGETHER ? left : TOGETHER, .take = take, .user = user};
        for (int32_t i = 0; i < b.n; i++) {
            b.head[i] = copy_head(obs, first + i, n_feature, own + (size_t)i * own_room(obs, n_feature));
            b.head[i].r.ea = ea;
        }
        do_batch(obs, &b);
        for (int32_t i = 0; i < b.n; i++)
            if (!b.head[i].finite)
                return not_finite(obs);
    }
    return WNW_OK;
}
