/* SPDX-License-Identifier: MIT */
/* CompilerKV: scores, entropy, bins, tables of another depth, the gate's three modes, what is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_arrays.h"
#include "peek_plan.h"
#include "plans.h"
#include "winnow_calibrate.h"

static float uniform(void)
{
    return (float)rand() / (float)RAND_MAX;
}

/* ---- One layer, made up: attention rows that sum to 1, values ---- */

enum { H = 6, G = 2, N = 40, W = 8, D = 4 };

struct layer {
    float attn[H * W * N], values[G * N * D];
    int32_t pos[G * N], n_entry[G];
    wnw_observation obs;
};

static const float *get_values(const wnw_observation *obs, int32_t ih)
{
    const struct layer *l = obs->source;
    return l->values + (int64_t)ih * obs->n * D;
}

static void make_layer(struct layer *l, int32_t il)
{
    for (int32_t h = 0; h < H; h++)
        for (int32_t w = 0; w < W; w++) {
            float *row = l->attn + (h * W + w) * N, sum = 0;
            for (int32_t t = 0; t < N; t++)
                sum += row[t] = t <= N - W + w ? uniform() + 0.01f : 0;
            for (int32_t t = 0; t < N; t++)
                row[t] /= sum;
        }
    for (int32_t i = 0; i < G * N * D; i++)
        l->values[i] = uniform() - 0.5f;
    for (int32_t ih = 0; ih < G; ih++) {
        l->n_entry[ih] = N;
        for (int32_t t = 0; t < N; t++)
            l->pos[ih * N + t] = t;
    }
    l->obs = (wnw_observation){.il = il,
                               .n_layer = 2,
                               .n_head = H,
                               .n_head_kv = G,
                               .n_embd_head = D,
                               .n = N,
                               .n_past = N,
                               .n_entry = l->n_entry,
                               .pos = l->pos,
                               .budget = 20,
                               .n_window = W,
                               .window_attn = l->attn,
                               .values = get_values,
                               .source = l};
}

/* Scores layer 0 of two; collected[N + 2] is returned where it is not NULL. The window is there only where
 * the scorer asks for it. */
static int run(const char *recipe, struct layer *l, const wnw_profile *profile, float *out, double *collected)
{
    double gathered[N + 2] = {0};
    wnw_policy *p = test_policy(recipe);
    const wnw_scorer *s = &p->part[WNW_PART_SCORER].scorer;
    const void *opts = p->opts[WNW_PART_SCORER];
    const wnw_shape shape = {.n_layer = 2, .n_past = N};
    if (s->part.gather->size(opts, &shape) > 0)
        for (int32_t il = 0; il < 2; il++)
            assert_int_equal(s->part.gather->visit(opts, &l[il].obs, gathered), WNW_OK);
    const wnw_observation whole = l[0].obs;
    wnw_needs needs = {0};
    s->part.needs(opts, &needs);
    if (!(needs.flags & WNW_NEED_WINDOW_ATTN)) {
        l[0].obs.n_window = 0;
        l[0].obs.window_attn = NULL;
    }
    l[0].obs.gathered = gathered;
    l[0].obs.profile = profile;
    float *scratch = malloc(s->scratch(opts, &l[0].obs) * sizeof *scratch);
    assert_non_null(scratch);
    const int rc = s->score(opts, &l[0].obs, out, scratch);
    free(scratch);
    wnw_policy_free(p);
    l[0].obs = whole;
    if (collected)
        memcpy(collected, gathered, sizeof gathered);
    return rc;
}

/* The formulas, written down head by head. */
static void reference(const struct layer *l, int32_t scope, const float *weight, int32_t n_row, float *out)
{
    for (int32_t t = 0; t < N; t++) {
        double best = 0, alpha[H] = {0};
        for (int32_t h = 0; h < H; h++) {
            for (int32_t il = 0; il < (scope == WNW_ALPHA_GLOBAL ? 2 : 1); il++)
                for (int32_t k = 0; k < H; k++)
                    for (int32_t w = W - n_row; w < W; w++)
                        if (scope != WNW_ALPHA_HEAD || k == h)
                            alpha[h] += (double)l[il].attn[(k * W + w) * N + t];
            alpha[h] /= scope == WNW_ALPHA_GLOBAL ? 2 * H : scope == WNW_ALPHA_LAYER ? H : 1;
        }
        for (int32_t h = 0; h < H; h++) {
            double norm[N], mean = 0;
            for (int32_t i = 0; i < N; i++) {
                double sum = 0;
                for (int32_t c = 0; c < D; c++)
                    sum += pow((double)l->values[((h / (H / G)) * N + i) * D + c], 2);
                mean += norm[i] = sqrt(sum);
            }
            const double u = (double)(weight ? weight[h] : 1) * alpha[h] * norm[t] / (mean / N + 1e-8);
            best = u > best ? u : best;
        }
        out[t] = (float)best;
    }
}

static void assert_same_row(const float *got, const float *want, const char *what)
{
    for (int32_t ih = 0; ih < G; ih++)
        for (int32_t t = 0; t < N; t++)
            if (fabsf(got[ih * N + t] - want[t]) > 2e-6f * (1 + fabsf(want[t])))
                fail_msg("%s: head %d token %d is %g, expected %g", what, ih, t, (double)got[ih * N + t],
                         (double)want[t]);
}

static void scores_follow_the_formulas(void **state)
{
    (void)state;
    static const char *const recipes[] = {"compilerkv:window=8", "compilerkv:window=8,alpha_scope=layer",
                                          "compilerkv:window=8,alpha_scope=head"};
    struct layer l[2];
    float weight[2 * H] = {0.85f, 1.15f, 1, 0.9f, -1, 1.1f, 1, 1, 1, 1, 1, 1}, got[G * N], want[N];
    double collected[N + 2];
    wnw_profile p = {.model = {.n_layer = 2, .n_head = H},
                     .kinds = 1u << WNW_PROFILE_COMPILER,
                     .compiler = {.n_layer = 2, .weight = weight, .alpha_scope = -1}};
    srand(1);
    make_layer(&l[0], 0);
    make_layer(&l[1], 1);
    for (int32_t scope = 0; scope < 3; scope++)
        for (int k = 0; k < 2; k++) {
            assert_int_equal(run(recipes[scope], l, k ? &p : NULL, got, collected), WNW_OK);
            reference(l, scope, k ? weight : NULL, W, want);
            assert_same_row(got, want, recipes[scope]);
            if (scope == WNW_ALPHA_GLOBAL) { /* sum over t of alpha = W */
                double sum = 0;
                for (int32_t t = 0; t < N; t++)
                    sum += collected[t] / (2 * H);
                assert_near(sum, W, 1e-5);
                assert_cmp(collected[N], ==, 2);
            }
        }
    /* A window larger than what the scorer asked for: only its last rows. */
    assert_int_equal(run("compilerkv:window=3,utility=full", l, NULL, got, NULL), WNW_OK);
    reference(l, WNW_ALPHA_GLOBAL, NULL, 3, want);
    assert_same_row(got, want, "window 3");
    /* utility=raw: the last query alone, no values. */
    l[0].obs.values = NULL;
    assert_int_equal(run("compilerkv:window=8,utility=raw", l, NULL, got, collected), WNW_OK);
    for (int32_t t = 0; t < N; t++)
        assert_near(got[t], collected[t] / (2 * H), 1e-7);
}

/* Weights: a common factor changes no order, nor does permuting heads of a group; 0 and less takes a head
 * out, and if that leaves none, all weigh 1. */
static void head_weights(void **state)
{
    (void)state;
    struct layer l[2];
    float weight[2 * H], got[G * N], one[G * N];
    wnw_profile p = {.model = {.n_layer = 2, .n_head = H},
                     .kinds = 1u << WNW_PROFILE_COMPILER,
                     .compiler = {.n_layer = 2, .weight = weight, .alpha_scope = -1}};
    srand(2);
    make_layer(&l[0], 0);
    make_layer(&l[1], 1);
    run("compilerkv:window=8", l, NULL, one, NULL);
    for (int i = 0; i < 2 * H; i++)
        weight[i] = 2;
    run("compilerkv:window=8", l, &p, got, NULL);
    for (int i = 0; i < G * N; i++)
        assert_near(got[i], 2 * one[i], 1e-6f);
    for (int i = 0; i < 2 * H; i++)
        weight[i] = -0.5f * (float)(i % 3); /* none above 0 */
    run("compilerkv:window=8", l, &p, got, NULL);
    assert_memory_equal(got, one, sizeof got);
    static const float a[2 * H] = {0.9f, 1, 1.1f, 1.15f, 0.8f, 1, 1, 1, 1, 1, 1, 1},
                             b[2 * H] = {1.1f, 0.9f, 1, 1, 1.15f, 0.8f, 1, 1, 1, 1, 1, 1};
    memcpy(weight, a, sizeof a);
    run("compilerkv:window=8", l, &p, one, NULL);
    memcpy(weight, b, sizeof b);
    run("compilerkv:window=8", l, &p, got, NULL);
    assert_memory_equal(got, one, sizeof got);
    run("compilerkv:window=8,table=none", l, &p, got, NULL);
    run("compilerkv:window=8", l, NULL, one, NULL);
    assert_memory_equal(got, one, sizeof got);
}

/* Average pooling 7 divides by 7 at both ends of the history, and the window's columns stay outside. */
static void pooling(void **state)
{
    (void)state;
    struct layer l[2];
    float plain[G * N], pooled[G * N];
    srand(3);
    make_layer(&l[0], 0);
    make_layer(&l[1], 1);
    for (int32_t i = 0; i < G * N * D; i++)
        l[0].values[i] = 0.5f; /* rho = 1 */
    run("compilerkv:window=8", l, NULL, plain, NULL);
    run("compilerkv:window=8,pool=avg", l, NULL, pooled, NULL);
    for (int32_t t = 0; t < N - W; t++) {
        float sum = 0;
        for (int32_t u = t - 3; u <= t + 3; u++)
            sum += u >= 0 && u < N - W ? plain[u] : 0;
        assert_near(pooled[t], sum / 7, 1e-6f);
    }
    run("compilerkv:window=8,pool=max,kernel=3,alpha_scope=layer", l, NULL, pooled, NULL);
    run("compilerkv:window=8,alpha_scope=layer", l, NULL, plain, NULL);
    assert_near(pooled[0], (plain[0] > plain[1] ? plain[0] : plain[1]), 1e-6f);
    const float last = plain[N - W - 1] > plain[N - W - 2] ? plain[N - W - 1] : plain[N - W - 2];
    assert_near(pooled[N - W - 1], last, 1e-6f);
}

/* ---- Risk ---- */

static void entropy_and_bins(void **state)
{
    (void)state;
    double mass[100];
    for (int i = 0; i < 100; i++)
        mass[i] = 3;
    assert_near(wnw__entropy(mass, 100, 300), log(100), 1e-12);
    for (int i = 0; i < 100; i++)
        mass[i] = i == 7 ? 5 : 0;
    assert_cmp(wnw__entropy(mass, 100, 5), ==, 0);
    static const double edge[] = {2, 3, 5};
    bool odd = false;
    assert_int_equal(wnw__bin(edge, 4, 1, &odd), 0);
    assert_int_equal(wnw__bin(edge, 4, 2, &odd), 1); /* an edge belongs to the bin above it */
    assert_int_equal(wnw__bin(edge, 4, 2.5, &odd), 1);
    assert_int_equal(wnw__bin(edge, 4, 5, &odd), 3);
    assert_int_equal(wnw__bin(edge, 4, 1e9, &odd), 3);
    assert_int_equal(wnw__bin(edge, 1, 1e9, &odd), 0);
    assert_false(odd);
    assert_int_equal(wnw__bin(edge, 4, NAN, &odd), 3);
    assert_true(odd);
    odd = false;
    assert_int_equal(wnw__bin(edge, 4, -INFINITY, &odd), 3);
    assert_true(odd);
    struct layer l;
    double window[N] = {0}, sum = 0;
    make_layer(&l, 0);
    wnw__window_mass(&l.obs, W, window);
    for (int i = 0; i < N; i++)
        sum += window[i];
    assert_near(sum, H * W, 1e-4);
}

/* Heads that hold other entries than their neighbours, more of them than are added up at a time. */
static void window_mass_goes_by_position(void **state)
{
    (void)state;
    enum { LONG = 700, ROWS = 5, PAST = 900 };
    static float attn[2 * ROWS * LONG];
    static int32_t pos[2 * LONG];
    static double got[PAST], want[PAST];
    const int32_t n_entry[] = {LONG, 300};
    srand(6);
    for (int i = 0; i < 2 * ROWS * LONG; i++)
        attn[i] = uniform();
    for (int ih = 0; ih < 2; ih++)
        for (int i = 0; i < LONG; i++)
            pos[ih * LONG + i] = i < n_entry[ih] ? i + i * (ih + 1) / 7 : -1;
    const wnw_observation obs = {.n_head = 2,
                                 .n_head_kv = 2,
                                 .n = LONG,
                                 .n_past = PAST,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .n_window = ROWS,
                                 .window_attn = attn};
    wnw__window_mass(&obs, 3, got);
    for (int h = 0; h < 2; h++)
        for (int w = 2; w < ROWS; w++)
            for (int i = 0; i < n_entry[h]; i++)
                want[pos[h * LONG + i]] += (double)attn[(h * ROWS + w) * LONG + i];
    for (int t = 0; t < PAST; t++)
        assert_near(got[t], want[t], 1e-12);
}

/* A table of 3 layers on a model of 5: x = 0, 0.5, 1, 1.5, 2. */
static void depth_mapping(void **state)
{
    (void)state;
    float tau[3 * 2 * 2] = {1, 2, 3, 4, /**/ 5, 6, 7, 8, /**/ 2, 2, 2, 0}, weight[3 * 2] = {1, 2, 3, 4, 5, 6};
    const struct wnw__compiler_table t = {
        .n_layer = 3, .n_entropy = 2, .n_ppl = 2, .tau = tau, .weight = weight};
    static const double want[] = {4, 6, 8, 4, 0}, heads[] = {2, 3, 4, 5, 6};
    for (int32_t il = 0; il < 5; il++) {
        assert_cmp(wnw__table_tau(&t, il, 5, 1, 1), ==, want[il]);
        assert_cmp(wnw__table_weight(&t, il, 5, 1, 2), ==, heads[il]);
    }
    assert_cmp(wnw__table_tau(&t, 0, 1, 1, 0), ==, 3);
    for (int32_t il = 0; il < 3; il++) /* its own depth: no interpolation */
        assert_cmp(wnw__table_tau(&t, il, 3, 0, 1), ==, (double)tau[il * 4 + 1]);
    const struct wnw__compiler_table flat = {.n_layer = 1, .n_entropy = 1, .n_ppl = 1, .tau = tau};
    assert_cmp(wnw__table_tau(&flat, 3, 5, 0, 0), ==, 1);
}

/* Attention over kept entries alone differs from all of it by twice the mass that was dropped. */
static void dropped_mass_bounds_the_change(void **state)
{
    (void)state;
    float all[64], kept[64];
    srand(9);
    for (int round = 0; round < 200; round++) {
        bool drop[64];
        double mass = 0, change = 0;
        for (int i = 0; i < 64; i++) {
            drop[i] = i > 0 && rand() % 3 == 0;
            all[i] = 6 * uniform() - 3;
            kept[i] = drop[i] ? -INFINITY : all[i];
        }
        wnw__softmax(all, 64);
        wnw__softmax(kept, 64);
        for (int i = 0; i < 64; i++) {
            mass += drop[i] ? (double)all[i] : 0;
            change += fabs((double)all[i] - (double)kept[i]);
        }
        assert_cmp(fabs(change - 2 * mass), <, 1e-5);
    }
}

/* ---- The gate on scores alone ---- */

enum { MAX_LAYERS = 12, MAX_N = 200 };

struct gate {
    float score[MAX_LAYERS][MAX_N];
    const float *rows[MAX_LAYERS];
    int32_t row[MAX_LAYERS], n_entry[MAX_LAYERS], il[MAX_LAYERS];
    wnw_protected prot[MAX_LAYERS];
    double work[MAX_LAYERS];
    wnw_layer_problem p;
    char warning[256];
};

/* demand[i] of the n - 4 entries before the window of 4 are worth something. */
static void make_gate(struct gate *g, int32_t n_layer, int32_t n, int32_t budget, const int32_t *demand)
{
    memset(g, 0, sizeof *g);
    for (int32_t i = 0; i < n_layer; i++) {
        for (int32_t t = 0; t < n; t++)
            g->score[i][t] = t < demand[i] ? 1 : t >= n - 4 ? 1e6f : 0;
        g->rows[i] = g->score[i];
        g->row[i] = g->n_entry[i] = n;
        g->il[i] = i;
        g->prot[i].n_last = 4;
    }
    g->p = (wnw_layer_problem){.n_layer = n_layer,
                               .n = n,
                               .n_protected = 4,
                               .budget = budget,
                               .mean = budget,
                               .il = g->il,
                               .n_layer_model = n_layer,
                               .n_head = 1,
                               .n_head_kv = 1,
                               .score = g->rows,
                               .row = g->row,
                               .n_entry = g->n_entry,
                               .prot = g->prot,
                               .work = g->work};
}

static int allocate(const char *recipe, struct gate *g, int32_t *n_keep)
{
    wnw_policy *p = test_policy(recipe);
    const int rc = p->part[WNW_PART_LAYER_BUDGET].layer.allocate(p->opts[WNW_PART_LAYER_BUDGET], &g->p,
                                                                 n_keep, g->warning);
    wnw_policy_free(p);
    return rc;
}

static void assert_counts(const char *recipe, struct gate *g, const int32_t *want)
{
    int32_t got[MAX_LAYERS];
    assert_int_equal(allocate(recipe, g, got), WNW_OK);
    for (int32_t i = 0; i < g->p.n_layer; i++)
        if (got[i] != want[i] + 4)
            fail_msg("%s: layer %d gets %d, expected %d besides the window", recipe, i, got[i] - 4, want[i]);
}

#define NO_TABLE "compilerkv:window=4,table=none"
#define NEUTRAL  NO_TABLE ",tau=1"

static void gate_by_hand(void **state)
{
    (void)state;
    struct gate g;
    /* C = 8, 100 entries to choose from. */
    make_gate(&g, 3, 104, 12, (const int32_t[]){20, 1, 5});
    assert_counts(NEUTRAL, &g, (const int32_t[]){8, 2, 5}); /* at least ceil(C / 4) */
    assert_counts(NEUTRAL ",mode=strict", &g, (const int32_t[]){8, 8, 8});
    /* Too much is wanted: lo 2 + 18 x 0.6 = 12.8, 2 + 2 x 0.6 = 3.2. */
    make_gate(&g, 2, 104, 12, (const int32_t[]){20, 4});
    assert_counts(NEUTRAL ",mode=pooled", &g, (const int32_t[]){13, 3});
    /* Too little: 4 + 28 x 8 / 56 = 8 each. */
    make_gate(&g, 2, 104, 12, (const int32_t[]){4, 4});
    assert_counts(NEUTRAL ",mode=pooled", &g, (const int32_t[]){8, 8});
    /* Demands beyond 4 C are cut to it: lo 2 + 30 x 0.4, 2. */
    make_gate(&g, 2, 204 - 4, 12, (const int32_t[]){90, 1});
    assert_counts(NEUTRAL ",mode=pooled", &g, (const int32_t[]){14, 2});
    /* With the demand of 190 cut to 80: 5 + 75 x 30 / 120 = 23.75, 5 + 45 x 30 / 120 = 16.25. */
    make_gate(&g, 2, MAX_N, 24, (const int32_t[]){190, 50});
    assert_counts(NEUTRAL ",mode=pooled", &g, (const int32_t[]){24, 16});
    /* C = 9: at least 3. */
    make_gate(&g, 1, 104, 13, (const int32_t[]){1});
    assert_counts(NEUTRAL, &g, (const int32_t[]){3});
    /* Hardly more entries than places: nobody gets more than there are. */
    make_gate(&g, 2, 13, 12, (const int32_t[]){9, 1});
    assert_counts(NEUTRAL ",mode=pooled", &g, (const int32_t[]){9, 7});
    /* Normalised by the largest: 0.95 and 0.91 pass 0.9, 0.89 does not. */
    make_gate(&g, 1, 104, 24, (const int32_t[]){0});
    for (int t = 0; t < 100; t++)
        g.score[0][t] = t == 50 ? 2 : t == 60 ? 1.9f : t == 70 ? 1.82f : t < 20 ? 1.78f : 0.1f;
    assert_counts(NO_TABLE ",tau=0.9,score_norm=max,mode=elastic", &g, (const int32_t[]){5});
    assert_counts(NO_TABLE ",score_norm=max,tau=0.85", &g, (const int32_t[]){20});
    /* The threshold is inclusive, and of nothing but zeros all are average. */
    for (int t = 0; t < 100; t++)
        g.score[0][t] = t % 2 ? 1.5f : 0.5f;
    assert_counts(NO_TABLE ",tau=1.5", &g, (const int32_t[]){20});
    assert_counts(NO_TABLE ",tau=1.51", &g, (const int32_t[]){5});
    for (int t = 0; t < 100; t++)
        g.score[0][t] = 0;
    assert_counts(NEUTRAL, &g, (const int32_t[]){20});
    assert_string_equal(g.warning, "");
}

/* The least of a layer is an option; the paper's presets have none. */
static void the_floor(void **state)
{
    (void)state;
    struct gate g;
    make_gate(&g, 3, 104, 12, (const int32_t[]){20, 1, 0}); /* C = 8 */
    for (int t = 0; t < 100; t++)
        g.score[2][t] = t == 3 ? 0.5f : t < 20 ? 1 : 1.1f; /* the mean is about 1.07: 80 clear it */
    assert_counts(NEUTRAL ",floor=0", &g, (const int32_t[]){8, 1, 8});
    assert_counts(NEUTRAL ",floor=0.3", &g, (const int32_t[]){8, 3, 8}); /* ceil(2.4) */
    assert_counts(NEUTRAL ",floor=1", &g, (const int32_t[]){8, 8, 8});
    /* Divided by the largest nothing but it clears 1: no floor, no entry. */
    assert_counts(NO_TABLE ",tau=1.5,score_norm=max,floor=0", &g, (const int32_t[]){0, 0, 0});
    /* pooled with lo = max(1, floor(0 x 8)) = 1: 1 + 19 x 14 / 22 = 13.09, 1 + 3 x 14 / 22 = 2.9. */
    make_gate(&g, 2, 104, 12, (const int32_t[]){20, 4});
    assert_counts(NEUTRAL ",mode=pooled,floor=0", &g, (const int32_t[]){13, 3});
    make_gate(&g, 2, 104, 12, (const int32_t[]){20, 1});
    assert_counts(NEUTRAL ",mode=pooled,floor=0", &g, (const int32_t[]){15, 1}); /* 1 + 19 x 14 / 19 */
    assert_counts(NEUTRAL ",mode=pooled", &g, (const int32_t[]){14, 2});
    static const char *const paper[] = {"paper-compilerkv",          "paper-compilerkv-max",
                                        "paper-compilerkv-no_heads", "paper-compilerkv-no_risk",
                                        "paper-compilerkv-raw",      "paper-compilerkv-strict"};
    for (size_t i = 0; i < sizeof paper / sizeof *paper; i++) {
        wnw_policy *p = test_policy(paper[i]);
        assert_contains(wnw_policy_string(p), ",floor=0,");
        wnw_policy_free(p);
    }
    wnw_policy *p = test_policy("compilerkv");
    assert_contains(wnw_policy_string(p), ",floor=0.25,");
    wnw_policy_free(p);
}

/* Of 1, 2, 4, 8 the median is 3, which 4 and 8 reach; one more 2 makes it 2. */
static void median_of_scores(void **state)
{
    (void)state;
    struct gate g;
    make_gate(&g, 1, 8, 7, (const int32_t[]){0}); /* C = 3 of 4 */
    memcpy(g.score[0], ((const float[]){8, 1, 4, 2}), 4 * sizeof(float));
    assert_counts(NEUTRAL ",score_norm=median,floor=0", &g, (const int32_t[]){2}); /* median 3 */
    assert_counts(NO_TABLE ",tau=0.6,score_norm=median,floor=0", &g, (const int32_t[]){3});
    assert_counts(NO_TABLE ",tau=2,score_norm=median,floor=0", &g, (const int32_t[]){1});
    make_gate(&g, 1, 9, 8, (const int32_t[]){0}); /* C = 4 of 5 */
    memcpy(g.score[0], ((const float[]){8, 1, 4, 2, 2}), 5 * sizeof(float));
    assert_counts(NEUTRAL ",score_norm=median,floor=0", &g, (const int32_t[]){4}); /* median 2 */
    assert_counts(NO_TABLE ",tau=1.01,score_norm=median,floor=0", &g, (const int32_t[]){2});
    /* The mean is 3.4 and lets 2 pass; one that is far out moves the mean and not the median. */
    g.score[0][0] = 1e6f;
    assert_counts(NEUTRAL ",floor=0", &g, (const int32_t[]){1});
    assert_counts(NEUTRAL ",score_norm=median,floor=0", &g, (const int32_t[]){4});
    /* Half of them 0: any positive score clears. */
    memcpy(g.score[0], ((const float[]){0, 0, 0, 2, 1}), 5 * sizeof(float));
    assert_counts(NEUTRAL ",score_norm=median,floor=0", &g, (const int32_t[]){2});
}

static void pooled_totals(void **state)
{
    (void)state;
    struct gate g;
    srand(4);
    for (int round = 0; round < 3000; round++) {
        const int32_t n_layer = 1 + rand() % MAX_LAYERS, n = 8 + rand() % (MAX_N - 8);
        const int32_t budget = 5 + rand() % (n - 5), c = budget - 4;
        int32_t demand[MAX_LAYERS], got[MAX_LAYERS];
        for (int32_t i = 0; i < n_layer; i++)
            demand[i] = 1 + rand() % (n - 4);
        make_gate(&g, n_layer, n, budget, demand);
        assert_int_equal(allocate(NEUTRAL ",mode=pooled", &g, got), WNW_OK);
        const int32_t cap = n - 4 < 4 * c ? n - 4 : 4 * c, quarter = c / 4 > 1 ? c / 4 : 1;
        int64_t sum = 0;
        for (int32_t i = 0; i < n_layer; i++) {
            assert_in_range(got[i] - 4, quarter < c ? quarter : c, cap);
            sum += got[i] - 4;
            for (int32_t k = 0; k < i; k++) /* a larger demand gets no less, except for rounding */
                if (demand[i] > demand[k])
                    assert_cmp(got[i] + 1, >=, got[k]);
        }
        assert_int_equal(sum, (int64_t)n_layer * (c < cap ? c : cap));
    }
}

/* ---- Through the driver ---- */

static int32_t sum_of(const wnw_plan *plan, const struct fake *f)
{
    return (int32_t)fake_check_plan(plan, f) / f->src.shape.n_head_kv;
}

static wnw_plan *plan_of(struct fake *f, const char *recipe, int32_t budget, wnw_report *r)
{
    const wnw_size size = size_budget(budget);
    wnw_plan *plan = fake_planned(f, recipe, &size, r);
    return plan;
}

static void set_tau(struct fake *f, float tau)
{
    struct wnw__compiler_table *t = &f->profile.compiler;
    for (int32_t i = 0; i < t->n_layer * t->n_entropy * t->n_ppl; i++)
        t->tau[i] = tau;
}

/* strict: no table changes the plan, it is the best C of the scores. elastic: falls as tau rises. pooled: the
 * total is exact. */
static void modes(void **state)
{
    (void)state;
    static const float taus[] = {0.05f, 0.5f, 0.8f, 1, 1.2f, 1.5f, 2, 5};
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 4, 2, 3, 300, false);
    f.profile.compiler.window = 16;
    wnw_plan *strict = plan_of(&f, "compilerkv-strict:window=16", 80, &r);
    assert_int_equal(sum_of(strict, &f), 4 * 80);
    wnw_plan *uniform_ = plan_of(&f, "compilerkv:window=16+uniform+topk:ties=late", 80, &r);
    assert_same_plan(strict, uniform_);
    wnw_plan_free(uniform_);
    int32_t before = 4 * 80;
    for (size_t i = 0; i < sizeof taus / sizeof *taus; i++) {
        set_tau(&f, taus[i]);
        wnw_plan *again = plan_of(&f, "compilerkv-strict:window=16", 80, &r);
        wnw_plan *elastic = plan_of(&f, "compilerkv:window=16", 80, &r);
        assert_string_equal(r.warning, "");
        wnw_plan *pooled = plan_of(&f, "compilerkv-pooled:window=16", 80, &r);
        assert_same_plan(strict, again);
        const int32_t n = sum_of(elastic, &f);
        assert_cmp(n, <=, before);
        assert_cmp(n, >=, 4 * (16 + 16));
        before = n;
        assert_int_equal(sum_of(pooled, &f), 4 * 80);
        for (int32_t il = 0; il < 4; il++) /* one list per layer */
            for (int32_t t = 0; t < 300; t++)
                assert_int_equal(fake_holds(elastic, il, 0, t), fake_holds(elastic, il, 1, t));
        wnw_plan_free(again);
        wnw_plan_free(elastic);
        wnw_plan_free(pooled);
    }
    assert_cmp(before, ==, 4 * 32);
    wnw_plan_free(strict);
    /* Nothing is cut where everything fits. */
    wnw_plan *all = plan_of(&f, "compilerkv:window=16", 300, &r);
    assert_int_equal(sum_of(all, &f), 4 * 300);
    wnw_plan_free(all);
    /* Sinks stay. */
    wnw_plan *sinks = plan_of(&f, "compilerkv:window=16,n_sink=4,table=none", 40, &r);
    for (int32_t il = 0; il < 4; il++)
        for (int32_t t = 0; t < 4; t++) {
            assert_true(fake_holds(sinks, il, 0, t));
            assert_true(fake_holds(sinks, il, 0, 299 - t));
        }
    wnw_plan_free(sinks);
    fake_free(&f);
}

/* Budgets that leave nothing but the window: the last max(8, B / 4), sinks what is left, and a warning. */
static void small_budgets(void **state)
{
    (void)state;
    struct fake f;
    fake_init(&f, 2, 1, 2, 300, false);
    f.profile.compiler.n_sink = -1;
    static const struct {
        int32_t budget, last, sinks;
        bool warns;
    } rows[] = {{69, 64, 4, false}, {68, 17, 4, true}, {64, 16, 4, true}, {40, 10, 4, true},
                {20, 8, 4, true},   {10, 8, 2, true},  {5, 4, 1, true},   {1, 0, 1, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_report r = {WNW_INIT(wnw_report)};
        wnw_plan *plan = plan_of(&f, "compilerkv-strict:n_sink=4", rows[i].budget, &r);
        assert_int_equal(sum_of(plan, &f), 2 * rows[i].budget);
        assert_int_equal(strstr(r.warning, "window shrinks") != NULL, rows[i].warns);
        for (int32_t t = 0; t < rows[i].last; t++)
            assert_true(fake_holds(plan, 1, 0, 299 - t));
        for (int32_t t = 0; t < rows[i].sinks; t++)
            assert_true(fake_holds(plan, 1, 0, t));
        wnw_plan_free(plan);
        plan = plan_of(&f, "compilerkv", rows[i].budget, &r);
        assert_cmp(sum_of(plan, &f), <=, 2 * rows[i].budget);
        assert_cmp(sum_of(plan, &f), >=, 2);
        wnw_plan_free(plan);
        plan = plan_of(&f, "compilerkv-pooled", rows[i].budget, &r);
        assert_int_equal(sum_of(plan, &f), 2 * rows[i].budget);
        wnw_plan_free(plan);
    }
    fake_free(&f);
}

/* Neither table nor tau: a threshold that nobody calibrated would keep what it happens to. */
static void nothing_calibrated_is_strict(void **state)
{
    (void)state;
    static const char *const recipes[] = {"compilerkv:window=16", "compilerkv-pooled:window=16",
                                          "paper-compilerkv-no_risk:window=16",
                                          "compilerkv:window=16,table=none"};
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 4, 2, 3, 300, false);
    f.src.profile = NULL;
    wnw_plan *strict = plan_of(&f, "compilerkv-strict:window=16", 150, &r);
    assert_lacks(r.warning, "thresholds");
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        wnw_plan *plan = plan_of(&f, recipes[i], 150, &r);
        assert_contains(r.warning, "no calibrated thresholds");
        assert_same_plan(plan, strict);
        wnw_plan_free(plan);
    }
    wnw_plan *plan = plan_of(&f, "compilerkv:window=16,tau=1", 150, &r); /* a caller asks for that */
    assert_lacks(r.warning, "thresholds");
    assert_other_plan(plan, strict);
    wnw_plan_free(plan);
    wnw_plan_free(strict);
    fake_free(&f);
    /* A profile with head weights alone has no thresholds either. */
    fake_init(&f, 4, 2, 3, 300, false);
    f.profile.compiler.window = 16;
    strict = plan_of(&f, "compilerkv-strict:window=16", 150, &r);
    float *tau = f.profile.compiler.tau;
    f.profile.compiler.tau = NULL;
    plan = plan_of(&f, "compilerkv:window=16", 150, &r);
    assert_contains(r.warning, "no calibrated thresholds");
    assert_same_plan(plan, strict);
    f.profile.compiler.tau = tau;
    wnw_plan_free(plan);
    wnw_plan_free(strict);
    fake_free(&f);
}

/* The ablation without risk: the mean of all thresholds, in every layer and for every prompt. */
static void one_threshold(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 3, 2, 2, 300, false);
    struct wnw__compiler_table *t = &f.profile.compiler;
    t->window = 64;
    for (int32_t i = 0; i < t->n_layer * t->n_entropy * t->n_ppl; i++)
        t->tau[i] = i % 2 ? 0.5f : 1.5f; /* 18 cells, mean 1 */
    t->tau_constant = 1.2;
    wnw_plan *constant = plan_of(&f, "paper-compilerkv-no_risk", 150, &r);
    assert_string_equal(r.warning, "");
    wnw_plan *mean = plan_of(&f, "paper-compilerkv+gate:table=mean,floor=0", 150, &r);
    assert_string_equal(r.warning, "");
    wnw_plan *one = plan_of(&f, "paper-compilerkv-no_risk:tau=1", 150, &r);
    wnw_plan *two = plan_of(&f, "paper-compilerkv-no_risk:tau=1.2", 150, &r);
    assert_same_plan(mean, one);
    assert_same_plan(constant, two);
    assert_other_plan(mean, two);
    wnw_plan_free(constant);
    t->tau_constant = 0; /* a table of before: the mean, and a word of it */
    constant = plan_of(&f, "paper-compilerkv-no_risk", 150, &r);
    assert_contains(r.warning, "tau_constant");
    assert_same_plan(constant, mean);
    wnw_plan_free(constant);
    wnw_plan_free(mean);
    wnw_plan_free(one);
    wnw_plan_free(two);
    fake_free(&f);
}

/* B for the compressed history: window and sinks come on top. */
static void the_size_of_the_history(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_plan *plan;
    fake_init(&f, 2, 2, 2, 300, false);
    f.src.profile = NULL;
    plan = plan_of(&f, "compilerkv-strict:window=16,n_sink=4,count=history", 100, &r);
    assert_int_equal(sum_of(plan, &f), 2 * 120);
    wnw_plan *same = plan_of(&f, "compilerkv-strict:window=16,n_sink=4", 120, &r);
    assert_same_plan(plan, same);
    wnw_plan_free(plan);
    wnw_plan_free(same);
    /* Less than the window is a size like any other, and nothing shrinks. */
    plan = plan_of(&f, "compilerkv-strict:window=64,count=history", 8, &r);
    assert_int_equal(sum_of(plan, &f), 2 * 72);
    assert_lacks(r.warning, "shrinks");
    wnw_plan_free(plan);
    /* A ratio: (300 - 20) x 0.25 + 20. */
    wnw_size size = size_ratio(0.75);
    plan = fake_planned(&f, "compilerkv-strict:window=16,n_sink=4,count=history", &size, &r);
    assert_int_equal(sum_of(plan, &f), 2 * 90);
    wnw_plan_free(plan);
    /* All of it fits: nothing to compress. */
    plan = plan_of(&f, "compilerkv-strict:window=64,count=history", 240, &r);
    assert_int_equal(sum_of(plan, &f), 2 * 300);
    wnw_plan_free(plan);
    /* Bytes are bytes: never more than that. */
    size = size_bytes((uint64_t)f.src.entry_bytes.each * 2 * 2 * 100);
    plan = fake_planned(&f, "compilerkv-strict:window=16,n_sink=4,count=history", &size, &r);
    assert_int_equal(sum_of(plan, &f), 2 * 100);
    wnw_plan_free(plan);
    fake_free(&f);
}

/* With rho = 1, attention of the layer alone, pooled as there, the scores rank as CompressKV's with all
 * heads: two ways through the code, one set. */
static void attention_alone_is_compresskv(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 4, 2, 3, 300, false);
    f.src.profile = NULL;
    for (uint32_t seed = 0; seed < 8; seed++)
        for (int32_t budget = 12; budget < 300; budget += 41) {
            f.seed = seed;
            wnw_plan *a =
                plan_of(&f,
                        "compilerkv:utility=attention,alpha_scope=layer,pool=avg,kernel=5,window=8,table=none"
                        "+topk:ties=early",
                        budget, &r);
            wnw_plan *b = plan_of(&f, "compresskv:heads=all+uniform", budget, &r);
            assert_int_equal(sum_of(a, &f), 4 * budget);
            if (!test_same_plan(a, b))
                fail_msg("seed %u budget %d: the sets differ", seed, budget);
            wnw_plan_free(a);
            wnw_plan_free(b);
        }
    fake_free(&f);
}

static int32_t asked_window;

static int note_window(const struct wnw__plan_source *src, int32_t window, double *out)
{
    (void)src;
    asked_window = window;
    *out = 10;
    return WNW_OK;
}

/* Perplexity is that of the gate's window, independent of the observations of the scorer and others. */
static void perplexity_of_the_gates_window(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 3, 2, 2, 300, false);
    f.src.perplexity = note_window;
    f.profile.compiler.window = 0;
    wnw_plan_free(plan_of(&f, "compilerkv+gate:window=16", 100, &r)); /* the scorer's is 64 */
    assert_int_equal(asked_window, 16);
    wnw_plan_free(plan_of(&f, "compilerkv:window=32", 100, &r));
    assert_int_equal(asked_window, 32);
    fake_free(&f);
}

/* Scores made under other options are other scores. */
static void tables_are_bound_to_options(void **state)
{
    (void)state;
    static const struct {
        struct wnw__compiler_table t; /* settings alone */
        const char *says;
        const char *recipe; /* under which it serves */
    } rows[] = {
        {{.n_sink = 4}, "n_sink=4", "compilerkv:window=16,n_sink=4"},
        {{.pool = WNW_ALPHA_POOL_AVG}, "pool=avg", "compilerkv:window=16,pool=avg"},
        {{.pool = WNW_ALPHA_POOL_AVG, .kernel = 5}, "pool=avg", "compilerkv:window=16,pool=avg,kernel=5"},
        {{.utility = WNW_UTILITY_ATTENTION}, "utility=attention", "compilerkv:window=16,utility=attention"},
    };
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_plan *plan;
    const wnw_size size = size_budget(100);
    fake_init(&f, 3, 2, 2, 300, false);
    struct wnw__compiler_table *t = &f.profile.compiler;
    t->window = 16;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        t->n_sink = rows[i].t.n_sink;
        t->pool = rows[i].t.pool;
        t->kernel = rows[i].t.kernel;
        t->utility = rows[i].t.utility;
        assert_int_equal(fake_plan(&plan, &f, "compilerkv:window=16", &size, &r), WNW_E_MISMATCH);
        assert_says(rows[i].says);
        plan = fake_planned(&f, rows[i].recipe, &size, &r);
        wnw_plan_free(plan);
        plan = fake_planned(&f, "compilerkv:window=16,force=1", &size, &r);
        wnw_plan_free(plan);
    }
    t->utility = WNW_UTILITY_FULL;
    t->pool = WNW_ALPHA_POOL_AVG;
    t->kernel = 5;
    assert_int_equal(fake_plan(&plan, &f, "compilerkv:window=16,pool=avg", &size, &r), WNW_E_MISMATCH);
    assert_says("kernel=5, not 7");
    /* What it does not say is not compared; a window that a small size shrank is no other setting. */
    t->pool = t->utility = t->n_sink = -1;
    plan = fake_planned(&f, "compilerkv:window=16,pool=max,n_sink=2", &size, &r);
    wnw_plan_free(plan);
    t->n_sink = 4;
    t->budget = 0;
    wnw_plan_free(plan_of(&f, "compilerkv:window=16,n_sink=4", 5, &r));
    assert_contains(r.warning, "shrinks");
    fake_free(&f);
}

/* A table that nobody named does not make a policy fail that works without one: it is left out as a whole, weights
 * and thresholds, and one warning says why. A table of another budget within reach serves, found or named. */
static void found_tables_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *says;
        int32_t budget; /* the table's */
        bool serves;
    } rows[] = {
        {"compilerkv:window=16", "serves 256 to 1024, not 100", 512, false},
        {"compilerkv-strict:window=16", "serves 256 to 1024, not 100", 512, false},
        {"compilerkv-pooled:window=16", "serves 20 to 80, not 100", 40, false},
        {"compilerkv:window=32", "window=16, not 32", 100, false},
        {"compilerkv:window=16,pool=avg", "pool=none, not avg", 100, false},
        {"compilerkv:window=16,n_sink=4", "n_sink=0, not 4", 100, false},
        {"compilerkv:window=16,utility=attention", "utility=full, not attention", 100, false},
        {"compilerkv:window=16,alpha_scope=head", "alpha_scope=global, not head", 100, false},
        {"compilerkv:window=16+gate:window=16,score_norm=max", "score_norm=mean, not max", 100, false},
        {"compilerkv:window=16+gate:window=16,entropy_norm=1", "entropy_norm=0, not 1", 100, false},
        {"compilerkv:window=16", "budget of 128, not 100", 128, true},
    };
    struct fake f;
    const wnw_size size = size_budget(100);
    fake_init(&f, 3, 2, 2, 300, false);
    struct wnw__compiler_table *t = &f.profile.compiler;
    t->window = 16;
    t->pool = WNW_ALPHA_POOL_NONE;
    t->n_sink = 0;
    t->utility = WNW_UTILITY_FULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_report r = {WNW_INIT(wnw_report)}, plain = {WNW_INIT(wnw_report)};
        wnw_plan *with = NULL, *without = NULL;
        t->budget = rows[i].budget;
        wnw_profile_set_found(&f.profile, 0);
        const int rc = fake_plan(&with, &f, rows[i].recipe, &size, &r);
        assert_int_equal(rc, rows[i].serves ? WNW_OK : WNW_E_MISMATCH); /* named */
        if (!rows[i].serves)
            assert_says(rows[i].says);
        wnw_plan_free(with);
        wnw_profile_set_found(&f.profile, 1u << WNW_PROFILE_COMPILER);
        with = fake_planned(&f, rows[i].recipe, &size, &r);
        assert_contains(r.warning, rows[i].says);
        f.src.profile = NULL;
        without = fake_planned(&f, rows[i].recipe, &size, &plain);
        f.src.profile = &f.profile;
        if (rows[i].serves) {
            assert_null(strstr(r.warning, "left out"));
        } else {
            assert_contains(r.warning, "left out");
            if (!test_same_plan(with, without))
                fail_msg("%s: not the plan without a table", rows[i].recipe);
        }
        assert_true(wnw_profile_kinds(&f.profile) >> WNW_PROFILE_COMPILER & 1u); /* for other policies */
        wnw_plan_free(with);
        wnw_plan_free(without);
    }
    fake_free(&f);
}

static void tables_are_bound_to_their_run(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_plan *plan;
    const wnw_size size = size_budget(100);
    fake_init(&f, 3, 2, 2, 300, false);
    struct wnw__compiler_table *t = &f.profile.compiler;
    t->window = 16;
    assert_int_equal(fake_plan(&plan, &f, "compilerkv", &size, &r), WNW_E_MISMATCH);
    assert_says("window=16");
    /* Another budget: near with a warning, far not at all. */
    static const struct {
        int32_t budget;
        int rc;
        bool warns;
    } rows[] = {{0, WNW_OK, false},          {100, WNW_OK, false}, {128, WNW_OK, true},
                {50, WNW_OK, true},          {200, WNW_OK, true},  {49, WNW_E_MISMATCH, false},
                {201, WNW_E_MISMATCH, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        t->budget = rows[i].budget;
        assert_int_equal(fake_plan(&plan, &f, "compilerkv:window=16", &size, &r), rows[i].rc);
        if (rows[i].rc == WNW_OK)
            assert_int_equal(r.warning[0] != '\0', rows[i].warns);
        wnw_plan_free(plan);
        plan = fake_planned(&f, "compilerkv:window=16,table=none,tau=1", &size, &r);
        assert_string_equal(r.warning, "");
        wnw_plan_free(plan);
    }
    t->budget = 0;
    t->score_norm = WNW_NORM_MAX;
    assert_int_equal(fake_plan(&plan, &f, "compilerkv:window=16", &size, &r), WNW_E_MISMATCH);
    plan = fake_planned(&f, "compilerkv:window=16,score_norm=max", &size, &r);
    wnw_plan_free(plan);
    t->score_norm = WNW_NORM_MEAN;
    assert_int_equal(fake_plan(&plan, &f, "compilerkv:window=16,entropy_norm=1", &size, &r), WNW_E_MISMATCH);
    assert_int_equal(fake_plan(&plan, &f, "compilerkv:window=16,alpha_scope=head", &size, &r),
                     WNW_E_MISMATCH);
    assert_says("alpha_scope");
    /* Thresholds for another mode: a warning. */
    plan = fake_planned(&f, "compilerkv-pooled:window=16", &size, &r);
    assert_contains(r.warning, "mode=elastic");
    wnw_plan_free(plan);
    t->foreign = true;
    assert_int_equal(fake_plan(&plan, &f, "compilerkv:window=16", &size, &r), WNW_E_MISMATCH);
    assert_says("force=1");
    plan = fake_planned(&f, "compilerkv:window=16,force=1", &size, &r);
    wnw_plan_free(plan);
    /* No profile at all: it works, and says so once. */
    f.src.profile = NULL;
    plan = fake_planned(&f, "compilerkv:window=16", &size, &r);
    assert_contains(r.warning, "kind compiler");
    wnw_plan_free(plan);
    plan = fake_planned(&f, "compilerkv:window=16,table=none,tau=1", &size, &r);
    assert_string_equal(r.warning, "");
    wnw_plan_free(plan);
    fake_free(&f);
}

/* A budget far from the table's own is served where it is as much of the prompt: a table of 512 of 1024 to 1280 tokens, which
 * is 0.4 to 0.5 of them, serves shares from 0.2 to 1 of these 300. */
static void tables_serve_their_share(void **state)
{
    (void)state;
    static const struct {
        int32_t least, most; /* lengths of the table's prompts */
        int64_t budget;
        bool serves;
    } rows[] = {
        {1024, 1280, 60, true},  {1024, 1280, 59, false},  {1024, 1280, 150, true}, {1024, 1280, 290, true},
        {0, 0, 150, false},      {4096, 4096, 150, false}, {4096, 4096, 75, true},  {4096, 4096, 18, false},
        {4096, 4096, 256, true}, /* half of its own budget */
        {512, 512, 149, false},  {512, 512, 151, true}};
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 3, 2, 2, 300, false);
    struct wnw__compiler_table *t = &f.profile.compiler;
    t->window = 16;
    t->budget = 512;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_plan *plan = NULL;
        const wnw_size size = size_budget(rows[i].budget);
        t->least_length = rows[i].least;
        t->most_length = rows[i].most;
        const int rc = fake_plan(&plan, &f, "compilerkv:window=16", &size, &r);
        if (rc != (rows[i].serves ? WNW_OK : WNW_E_MISMATCH))
            fail_msg("row %zu: %d, %s", i, rc, wnw_last_error());
        if (rows[i].serves)
            assert_contains(r.warning, "budget of 512");
        wnw_plan_free(plan);
    }
    fake_free(&f);
}

/* The bins of entropy and perplexity reach the threshold: one cell lets pass, all others do not. */
static void risk_chooses_the_cell(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 3, 2, 2, 300, false);
    struct wnw__compiler_table *t = &f.profile.compiler;
    t->window = 16;
    t->entropy_edge[0] = 0.5; /* uniform noise over 300 tokens has an entropy near ln 300 = 5.7 */
    t->entropy_edge[1] = 5;
    int open = -1;
    for (int cell = 0; cell < 6; cell++) {
        set_tau(&f, 1000);
        for (int32_t il = 0; il < 3; il++)
            t->tau[il * 6 + cell] = 0;
        wnw_plan *plan = plan_of(&f, "compilerkv:window=16", 100, &r);
        if (sum_of(plan, &f) == 3 * 100) {
            assert_int_equal(open, -1);
            open = cell;
        }
        wnw_plan_free(plan);
    }
    assert_in_range(open, 4, 5); /* the highest entropy */
    /* Without perplexity: the default bin. */
    for (int bin = 0; bin < 2; bin++) {
        t->default_ppl_bin = bin;
        set_tau(&f, 1000);
        for (int32_t il = 0; il < 3; il++)
            t->tau[il * 6 + 4 + bin] = 0;
        wnw_plan *plan = plan_of(&f, "compilerkv:window=16,risk_ppl=0", 100, &r);
        assert_int_equal(sum_of(plan, &f), 3 * 100);
        wnw_plan_free(plan);
        t->default_ppl_bin = 1 - bin;
        plan = plan_of(&f, "compilerkv:window=16,risk_ppl=0", 100, &r);
        assert_cmp(sum_of(plan, &f), <, 3 * 100);
        wnw_plan_free(plan);
    }
    /* Divided by ln T it is near 1: the middle bin. */
    set_tau(&f, 1000);
    t->entropy_norm = true;
    for (int32_t il = 0; il < 3; il++)
        t->tau[il * 6 + 2] = t->tau[il * 6 + 3] = 0;
    wnw_plan *plan = plan_of(&f, "compilerkv:window=16,entropy_norm=1", 100, &r);
    assert_int_equal(sum_of(plan, &f), 3 * 100);
    wnw_plan_free(plan);
    fake_free(&f);
}

/* The options in which two policies differ, as "part.option ...", without `force`, which permits and computes nothing. */
static void differences(char *out, size_t size, const char *recipe, const char *other)
{
    wnw_policy *a = test_policy(recipe), *b = test_policy(other);
    *out = '\0';
    for (int k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_part *part = &a->part[k].head;
        assert_string_equal(part->name, b->part[k].head.name);
        for (const wnw_option *o = part->options; o && o->name; o++) {
            char x[64], y[64];
            wnw__opt_format(o, a->opts[k], x, sizeof x);
            wnw__opt_format(o, b->opts[k], y, sizeof y);
            if (strcmp(x, y) != 0 && strcmp(o->name, "force") != 0) {
                const size_t len = strlen(out);
                snprintf(out + len, size - len, "%s%s.%s", len > 0 ? " " : "", part->name, o->name);
            }
        }
    }
    wnw_policy_free(a);
    wnw_policy_free(b);
}

static void ablations_differ_in_one_thing(void **state)
{
    (void)state;
    static const struct {
        const char *whole, *ablation, *differs;
    } rows[] = {
        {"compilerkv", "paper-compilerkv", "gate.floor"},
        {"paper-compilerkv", "paper-compilerkv-no_heads", "compilerkv.table"},
        {"paper-compilerkv", "paper-compilerkv-no_risk", "gate.table"},
        {"paper-compilerkv", "paper-compilerkv-raw", "compilerkv.utility"},
        {"paper-compilerkv", "paper-compilerkv-max", "gate.score_norm"},
        {"paper-compilerkv", "paper-compilerkv-strict", "gate.mode"},
        {"paper-compilerkv-strict", "paper-compilerkv-strict-no_heads", "compilerkv.table"},
        {"paper-compilerkv-strict", "paper-compilerkv-strict-raw", "compilerkv.utility"},
        {"paper-compilerkv-strict", "paper-compilerkv-strict-attention", "compilerkv.utility"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char got[256];
        differences(got, sizeof got, rows[i].whole, rows[i].ablation);
        if (strcmp(got, rows[i].differs) != 0)
            fail_msg("%s and %s differ in '%s', not in '%s'", rows[i].whole, rows[i].ablation, got,
                     rows[i].differs);
    }
}

/* The readings of the study together: a short window, heads by themselves, average pooling, with and without value norms. */
static void readings_by_hand(void **state)
{
    (void)state;
    struct layer l[2];
    float got[G * N];
    for (int il = 0; il < 2; il++) {
        make_layer(&l[il], il);
        memset(l[il].attn, 0, sizeof l[il].attn);
    }
    for (int i = 0; i < G * N * D; i++)
        l[0].values[i] = i % D == 0 ? 1 : 0; /* norms of 1 .. */
    l[0].values[5 * D] = 3;                  /* .. but one of KV head 0: its mean is 42 / 40 */
    for (int w = 0; w < W;
         w++) { /* heads 0 and 4, of KV heads 0 and 1; the first rows are outside of a window of 4 */
        l[0].attn[(0 * W + w) * N + 5] = w < 4 ? 0.9f : 0.5f;
        l[0].attn[(0 * W + w) * N + 10] = w < 4 ? 0.1f : 0.25f;
        l[0].attn[(4 * W + w) * N + 20] = 0.75f;
    }
    static const struct {
        const char *options;
        double at4, at5, at10, at20;
    } rows[] = {
        /* alpha of head 0 is 4 x 0.5 = 2 and 1, of head 4 3; a pool of 3 spreads thirds of them. */
        {"alpha_scope=head,pool=avg,kernel=3", 2 / 3.0 / 1.05, 2 / 3.0 * 3 / 1.05, 1 / 3.0 / 1.05, 1},
        {"alpha_scope=head,pool=avg,kernel=3,utility=attention", 2 / 3.0, 2 / 3.0, 1 / 3.0, 1},
        {"alpha_scope=head", 0, 2 * 3 / 1.05, 1 / 1.05, 3},
        /* The mean of a layer's 6 heads; token 10's value counts most where its norm is largest relative to its head: 1. */
        {"alpha_scope=layer,pool=avg,kernel=3", 2 / 18.0, 2 / 18.0 * 3 / 1.05, 1 / 18.0, 3 / 18.0},
        /* Of both layers' 12; the other's see nothing. */
        {"alpha_scope=global", 0, 2 / 12.0 * 3 / 1.05, 1 / 12.0, 3 / 12.0},
        {"alpha_scope=global,pool=avg,kernel=3,utility=attention", 2 / 36.0, 2 / 36.0, 1 / 36.0, 3 / 36.0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char recipe[128];
        snprintf(recipe, sizeof recipe, "compilerkv:window=4,table=none,%s", rows[i].options);
        assert_int_equal(run(recipe, l, NULL, got, NULL), WNW_OK);
        for (int ih = 0; ih < G; ih++) { /* one list for all KV heads */
            assert_near((double)got[ih * N + 4], rows[i].at4, 1e-6);
            assert_near((double)got[ih * N + 5], rows[i].at5, 1e-6);
            assert_near((double)got[ih * N + 10], rows[i].at10, 1e-6);
            assert_near((double)got[ih * N + 20], rows[i].at20, 1e-6);
        }
    }
}

static void what_is_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        uint32_t flags, optional;
        bool layer_phase;
    } rows[] = {
        {"compilerkv", WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES | WNW_NEED_PERPLEXITY | WNW_NEED_PROFILE,
         1u << WNW_PROFILE_COMPILER, false},
        {"compilerkv:risk_ppl=0", WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES | WNW_NEED_PROFILE,
         1u << WNW_PROFILE_COMPILER, false},
        {"paper-compilerkv-no_risk", WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES | WNW_NEED_PROFILE,
         1u << WNW_PROFILE_COMPILER, false},
        {"compilerkv:table=none,utility=attention", WNW_NEED_WINDOW_ATTN, 0, false},
        {"compilerkv-strict", WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES | WNW_NEED_PROFILE,
         1u << WNW_PROFILE_COMPILER, false},
        {"compilerkv:table=none", WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES, 0, false},
        {"compilerkv:table=none,utility=raw", WNW_NEED_WINDOW_ATTN, 0, false},
        {"compilerkv:table=none,alpha_scope=layer+uniform", WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES, 0, true},
        {"compilerkv:table=none+uniform", WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p = test_policy(rows[i].recipe);
        const wnw_needs needs = wnw_policy_needs(p);
        assert_int_equal(needs.flags, rows[i].flags);
        assert_int_equal(needs.profiles, 0);
        assert_int_equal(needs.profiles_optional, rows[i].optional);
        assert_int_equal(needs.window, 64);
        assert_int_equal(wnw_policy_allows(p, WNW_PHASE_LAYER, NULL), rows[i].layer_phase);
        assert_false(wnw_policy_allows(p, WNW_PHASE_DECODE, NULL));
        wnw_policy_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_follow_the_formulas),
        cmocka_unit_test(head_weights),
        cmocka_unit_test(pooling),
        cmocka_unit_test(entropy_and_bins),
        cmocka_unit_test(window_mass_goes_by_position),
        cmocka_unit_test(depth_mapping),
        cmocka_unit_test(dropped_mass_bounds_the_change),
        cmocka_unit_test(gate_by_hand),
        cmocka_unit_test(the_floor),
        cmocka_unit_test(median_of_scores),
        cmocka_unit_test(pooled_totals),
        cmocka_unit_test(modes),
        cmocka_unit_test(small_budgets),
        cmocka_unit_test(nothing_calibrated_is_strict),
        cmocka_unit_test(one_threshold),
        cmocka_unit_test(the_size_of_the_history),
        cmocka_unit_test(attention_alone_is_compresskv),
        cmocka_unit_test(perplexity_of_the_gates_window),
        cmocka_unit_test(tables_are_bound_to_options),
        cmocka_unit_test(found_tables_are_left_out),
        cmocka_unit_test(tables_are_bound_to_their_run),
        cmocka_unit_test(tables_serve_their_share),
        cmocka_unit_test(risk_chooses_the_cell),
        cmocka_unit_test(ablations_differ_in_one_thing),
        cmocka_unit_test(readings_by_hand),
        cmocka_unit_test(what_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
