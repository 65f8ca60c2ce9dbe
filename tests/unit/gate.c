/* SPDX-License-Identifier: MIT */
/* Gates: the regression by hand, the features against a plain computation in double precision, and the scorer. */
#include "asserts.h"
#include "fake_source.h"
#include "peek_calibrate.h"
#include "peek_plan.h"
#include "random.h"
#include "scoring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The regression ---- */

static void fit_by_hand(void **state)
{
    (void)state;
    struct wnw__gate_fit fit = {0};
    float f[2][6] = {{1, 0, 0, 1, 1, 1}, {2, 0, 0, 0, 1, 2}}, w[2], b;
    double y[2][3] = {{0.5, 0.1, 0.3}, {0.6, 0.05, 0.2}};
    assert_ok(wnw__gate_fit_new(&fit, 2, 2, 1));
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++)
            y[i][k] = log(y[i][k] + 1e-6);
        wnw__gate_fit_add(&fit, 1, f[i], y[i], 3);
    }
    const double *gram = fit.gram + 4, *cross = fit.cross + 2;
    assert_int_equal(fit.n[1], 6);
    assert_near(gram[0] / 6, 0.444444, 1e-6);
    assert_near(gram[2] / 6, -0.055556, 1e-6);
    assert_near(gram[3] / 6, 0.555556, 1e-6);
    assert_near(cross[0] / 6, 0.564594, 1e-6);
    assert_near(cross[1] / 6, -0.085829, 1e-6);
    assert_ok(wnw__gate_fit_solve(&fit, 1, 0.01, w, &b));
    assert_near(w[0], 1.254198, 2e-6);
    assert_near(w[1], -0.028784, 2e-6);
    assert_near(b, -2.578585, 2e-6);
    assert_near(w[0] + 0.5f * w[1] + b, -1.338780, 2e-6);
    /* The other row has no entries. */
    assert_error(wnw__gate_fit_solve(&fit, 0, 0.01, w, &b), WNW_E_NOT_FINITE);
    assert_says("row 0 are not finite");
    wnw__gate_fit_free(&fit);
}

/* A feature that does not vary has no weight, and one that gives the target exactly has nearly its slope. */
static void constant_features(void **state)
{
    (void)state;
    struct wnw__gate_fit fit = {0};
    float f[4][2] = {{7, 1}, {7, 2}, {7, 3}, {7, 4}}, w[2], b;
    double y[4] = {3, 5, 7, 9};
    assert_ok(wnw__gate_fit_new(&fit, 1, 2, 1));
    wnw__gate_fit_add(&fit, 0, f[0], y, 4);
    wnw__gate_fit_add(&fit, 0, f[0], y, 0); /* an empty piece */
    assert_ok(wnw__gate_fit_solve(&fit, 0, 0.01, w, &b));
    assert_cmp(w[0], ==, 0.0f);
    assert_near(w[1], 2 / 1.01, 1e-6);
    assert_near(b, 6 - 2.5 * 2 / 1.01, 1e-6); /* the means agree */
    wnw__gate_fit_free(&fit);
}

/* ---- Features ---- */

enum { D = 6, N = 23, G = 2, H = 4 };

struct layer {
    wnw_observation obs;
    float key[G][N][D], value[G][N][D], theta[D / 2], mean[H * D], cov[H * D * D];
    int32_t n_entry[G], pos[G * N];
};

static const float *keys(const wnw_observation *obs, int32_t ih)
{
    const struct layer *l = obs->source;
    return l->key[ih][0];
}

static const float *values(const wnw_observation *obs, int32_t ih)
{
    const struct layer *l = obs->source;
    return l->value[ih][0];
}

static float number(uint64_t *seed)
{
    return (float)(test_random(seed) % 2001) / 1000 - 1;
}

static void make(struct layer *l)
{
    uint64_t seed = 3;
    memset(l, 0, sizeof *l);
    for (int i = 0; i < D / 2; i++)
        l->theta[i] = 1 / (1 + 3 * (float)i);
    for (int ih = 0; ih < G; ih++) {
        l->n_entry[ih] = N - 4 * ih;
        for (int i = 0; i < N; i++) {
            l->pos[ih * N + i] = i < l->n_entry[ih] ? i + (i > 9) * (3 + ih) : -1;
            for (int c = 0; c < D; c++) {
                l->key[ih][i][c] = number(&seed) + (c == 2);
                l->value[ih][i][c] = number(&seed);
            }
        }
    }
    for (int h = 0; h < H; h++)
        for (int a = 0; a < D; a++) {
            l->mean[h * D + a] = number(&seed);
            l->cov[(h * D + a) * D + a] = 0.1f + 0.1f * (float)a;
        }
    l->obs = (wnw_observation){.n_layer = 1,
                               .n_head = H,
                               .n_head_kv = G,
                               .n_embd_head = D,
                               .n = N,
                               .n_past = N + 4,
                               .n_entry = l->n_entry,
                               .pos = l->pos,
                               .attn_scale = 1 / sqrtf(D),
                               .keys = keys,
                               .values = values,
                               .query_mean = l->mean,
                               .query_cov = l->cov,
                               .n_query_stats = N,
                               .rope_theta = l->theta,
                               .n_rot = D,
                               .rope_neox = true,
                               .source = l};
}

/* What is not a method of its own, in double: keys before RoPE, lengths, and leverage by solving with elimination. */
static void plain(const struct layer *l, int32_t ih, double key[N][D], double lev[N])
{
    const int32_t n = l->n_entry[ih];
    double x[N][D], gram[D][D] = {{0}}, mean[D] = {0}, trace = 0;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < D / 2; c++) {
            const double t = l->pos[ih * N + i] * (double)l->theta[c], a = (double)l->key[ih][i][c],
                         b = (double)l->key[ih][i][c + D / 2];
            key[i][c] = a * cos(t) + b * sin(t);
            key[i][c + D / 2] = b * cos(t) - a * sin(t);
        }
    for (int i = 0; i < n; i++)
        for (int c = 0; c < D; c++)
            mean[c] += key[i][c] / n;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < D; c++)
            x[i][c] = key[i][c] - mean[c];
    for (int i = 0; i < n; i++)
        for (int a = 0; a < D; a++)
            for (int b = 0; b < D; b++)
                gram[a][b] += x[i][a] * x[i][b];
    for (int a = 0; a < D; a++)
        trace += gram[a][a];
    for (int a = 0; a < D; a++)
        gram[a][a] += 0.01 * trace / D;
    for (int i = 0; i < n; i++) {
        double m[D][D + 1];
        lev[i] = 0;
        for (int a = 0; a < D; a++) {
            memcpy(m[a], gram[a], sizeof gram[a]);
            m[a][D] = x[i][a];
        }
        for (int a = 0; a < D; a++)
            for (int b = 0; b < D; b++)
                for (int c = D; b != a && c >= a; c--)
                    m[b][c] -= m[a][c] * m[b][a] / m[a][a];
        for (int a = 0; a < D; a++)
            lev[i] += x[i][a] * m[a][D] / m[a][a];
    }
}

static void features_against_plain(void **state)
{
    (void)state;
    enum { P = 2 * D + 4 };
    static struct layer l;
    float keydiff[G * N], ea[H * N], f[N * P], few[N * 4];
    double key[N][D], lev[N];
    make(&l);
    assert_ok(try_scores("keydiff", &l.obs, keydiff));
    assert_ok(try_scores("expected_attention", &l.obs, ea));
    float *room = malloc(wnw__gate_room(&l.obs) * sizeof *room);
    assert_non_null(room);
    assert_ok(wnw__gate_begin(&l.obs, room));
    for (int32_t ih = 0; ih < G; ih++) {
        assert_ok(wnw__gate_head(&l.obs, ih, P, room, f));
        assert_ok(wnw__gate_head(&l.obs, ih, 4, room, few));
        plain(&l, ih, key, lev);
        for (int i = 0; i < l.n_entry[ih]; i++) {
            const float *x = f + i * P, *tail = x + 2 * D;
            const double mean = ((double)ea[2 * ih * N + i] + (double)ea[(2 * ih + 1) * N + i]) / 2;
            double length = 0;
            for (int c = 0; c < D; c++) {
                assert_near(x[c], key[i][c], 1e-5);
                assert_cmp(x[D + c], ==, l.value[ih][i][c]);
                length += key[i][c] * key[i][c];
            }
            assert_near(tail[0], log(length) / 2, 1e-5);
            assert_cmp(tail[1], ==, keydiff[ih * N + i]);
            assert_near(tail[2], i < 4 ? log(1e-12) : log(mean + 1e-12), 1e-5);
            assert_near(tail[3], log(lev[i] + 1e-6), 1e-4);
            assert_memory_equal(tail, few + i * 4, 4 * sizeof *few);
        }
    }
    free(room);
}

/* ---- Pieces ---- */

enum { LONG = 700, LONG_P = 2 * D + 4 };

static const float *long_keys(const wnw_observation *obs, int32_t ih)
{
    return (const float *)obs->source + (size_t)ih * LONG * D;
}

static void backwards(const wnw_observation *obs, int32_t n, void (*work)(int32_t i, void *user), void *user)
{
    (void)obs;
    for (int32_t i = n - 1; i >= 0; i--)
        work(i, user);
}

static void keep_features(int32_t ih, const float *f, void *user)
{
    memcpy((float *)user + (size_t)ih * LONG * LONG_P, f, (size_t)LONG * LONG_P * sizeof(float));
}

/* Leverage of key features in double: x^T (X^T X + 0.01 tr / D I)^-1 x for the row, by elimination. */
static double leverage_of(const float *f, int32_t row)
{
    double mean[D] = {0}, m[D][D + 1] = {{0}}, x[D], trace = 0, sum = 0;
    for (int i = 0; i < LONG; i++)
        for (int c = 0; c < D; c++)
            mean[c] += (double)f[i * LONG_P + c] / LONG;
    for (int i = 0; i < LONG; i++)
        for (int a = 0; a < D; a++)
            for (int b = 0; b < D; b++)
                m[a][b] += ((double)f[i * LONG_P + a] - mean[a]) * ((double)f[i * LONG_P + b] - mean[b]);
    for (int a = 0; a < D; a++)
        trace += m[a][a];
    for (int a = 0; a < D; a++) {
        m[a][a] += 0.01 * trace / D;
        m[a][D] = x[a] = (double)f[row * LONG_P + a] - mean[a];
    }
    for (int a = 0; a < D; a++)
        for (int b = 0; b < D; b++)
            for (int c = D; b != a && c >= a; c--)
                m[b][c] -= m[a][c] * m[b][a] / m[a][a];
    for (int a = 0; a < D; a++)
        sum += x[a] * m[a][D] / m[a][a];
    return sum;
}

/* Heads of several pieces: the same bits in whichever order pieces and heads are done, and by themselves. */
static void pieces_in_any_order(void **state)
{
    (void)state;
    static struct layer l;
    static float rows[G * LONG * D], one[LONG * LONG_P], all[2][G * LONG * LONG_P];
    static int32_t pos[G * LONG];
    int32_t n_entry[G];
    uint64_t seed = 9;
    make(&l);
    for (int i = 0; i < G * LONG * D; i++)
        rows[i] = number(&seed) + (i % D == 3);
    for (int i = 0; i < G * LONG; i++)
        pos[i] = i % LONG + (i % LONG > 300) * 5;
    for (int ih = 0; ih < G; ih++)
        n_entry[ih] = LONG;
    l.obs.n = LONG;
    l.obs.n_past = LONG + 9;
    l.obs.n_entry = n_entry;
    l.obs.pos = pos;
    l.obs.keys = l.obs.values = long_keys;
    l.obs.source = rows;
    float *room = malloc(wnw__gate_room_all(&l.obs, LONG_P) * sizeof *room);
    assert_non_null(room);
    assert_ok(wnw__gate_all_heads(&l.obs, LONG_P, room, keep_features, all[0]));
    l.obs.each = backwards;
    assert_ok(wnw__gate_all_heads(&l.obs, LONG_P, room, keep_features, all[1]));
    assert_memory_equal(all[0], all[1], sizeof all[0]);
    assert_ok(wnw__gate_begin(&l.obs, room));
    for (int32_t ih = 0; ih < G; ih++) {
        const float *f = all[0] + (size_t)ih * LONG * LONG_P;
        assert_ok(wnw__gate_head(&l.obs, ih, LONG_P, room, one));
        assert_memory_equal(f, one, sizeof one);
        for (int32_t i = 0; i < LONG; i += 37) {
            assert_near(f[i * LONG_P + LONG_P - 1], log(leverage_of(f, i) + 1e-6), 1e-3);
            for (int c = 0; c < D; c++)
                assert_cmp(f[i * LONG_P + D + c], ==, rows[((int32_t)ih * LONG + i) * D + c]);
        }
    }
    free(room);
}

/* ---- The scorer ---- */

static void scores_are_linear(void **state)
{
    (void)state;
    static struct layer l;
    float weight[G * 4] = {0.5f, -1, 0.25f, 2, 1, 0, 0, 0}, bias[G] = {-3, 1}, score[G * N], few[N * 4];
    struct wnw_profile p = {.model = {.n_layer = 1, .n_head_kv = G},
                            .n_gate_feature = 4,
                            .gate_weight = weight,
                            .gate_bias = bias};
    make(&l);
    l.obs.profile = &p;
    assert_ok(try_scores("kvgate", &l.obs, score));
    float *room = malloc(wnw__gate_room(&l.obs) * sizeof *room);
    assert_non_null(room);
    assert_ok(wnw__gate_begin(&l.obs, room));
    for (int32_t ih = 0; ih < G; ih++) {
        assert_ok(wnw__gate_head(&l.obs, ih, 4, room, few));
        for (int i = 0; i < N; i++) {
            double want = (double)bias[ih];
            for (int c = 0; c < 4; c++)
                want += (double)weight[4 * ih + c] * (double)few[4 * i + c];
            assert_near(score[ih * N + i], i < l.n_entry[ih] ? want : 0, 1e-5);
        }
    }
    free(room);
}

/* Equal keys have no leverage and no direction of their own; keys that are not finite are refused. */
static void odd_keys(void **state)
{
    (void)state;
    static struct layer l;
    float few[N * 4];
    make(&l);
    for (int i = 0; i < N; i++) {
        memset(l.key[0][i], 0, sizeof l.key[0][i]);
        memset(l.value[0][i], 0, sizeof l.value[0][i]);
    }
    float *room = malloc(wnw__gate_room(&l.obs) * sizeof *room);
    assert_non_null(room);
    assert_ok(wnw__gate_begin(&l.obs, room));
    assert_ok(wnw__gate_head(&l.obs, 0, 4, room, few));
    for (int i = 0; i < N; i++) {
        assert_near(few[4 * i], log(1e-12), 1e-5);
        assert_cmp(few[4 * i + 1], ==, 0.0f);
        assert_near(few[4 * i + 3], log(1e-6), 1e-5);
    }
    l.key[1][5][2] = INFINITY;
    assert_ok(wnw__gate_begin(&l.obs, room));
    assert_error(wnw__gate_head(&l.obs, 1, 4, room, few), WNW_E_NOT_FINITE);
    assert_says("layer 0 are not finite");
    l.n_entry[1] = 0; /* an empty head */
    assert_ok(wnw__gate_head(&l.obs, 1, 4, room, few));
    free(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_by_hand),
        cmocka_unit_test(constant_features),
        cmocka_unit_test(features_against_plain),
        cmocka_unit_test(pieces_in_any_order),
        cmocka_unit_test(scores_are_linear),
        cmocka_unit_test(odd_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
