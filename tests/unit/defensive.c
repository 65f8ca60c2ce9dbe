/* SPDX-License-Identifier: MIT */
/* DefensiveKV: aggregation by the worst case, and the scorer with norms across the heads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"
#include "random.h"
#include "scoring.h"

static const float *proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    (void)kind;
    return obs->source;
}

static void assert_scores(const char *recipe, const wnw_observation *obs, int32_t n, const double *want)
{
    float got[64];
    run_scorer(recipe, obs, got);
    for (int32_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-6))
            fail_msg("%s: score %d is %.7g, expected %.7g", recipe, i, (double)got[i], want[i]);
}

static const int32_t positions[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};

/* One KV head of two query heads, six entries, a window of two queries. */
static const float attn[] = {
    .8f, 0,    0,    0,   .2f, 0, /**/ 0,   .1f, .1f, 0,   .4f, .4f, /* query head 0 */
    .1f, 0.1f, 0.1f, .1f, .6f, 0, /**/ .2f, .2f, 0,   .4f, .1f, .1f, /* query head 1 */
};

static wnw_observation small(const int32_t *n_entry)
{
    return (wnw_observation){.n_layer = 1,
                             .n_head = 2,
                             .n_head_kv = 1,
                             .n = 6,
                             .n_past = 6,
                             .n_entry = n_entry,
                             .pos = positions,
                             .n_window = 2,
                             .window_attn = attn,
                             .budget = 5};
}

static void worst_case_of_window_and_group(void **state)
{
    (void)state;
    const int32_t n_entry[] = {6};
    const wnw_observation obs = small(n_entry);
    /* Without pooling the maxima are .8 .2 .1 .4; their mean .375 is the floor. */
    assert_scores("snapkv:window=2,kernel=1,agg=max+defensive", &obs, 4,
                  (const double[]){.8, .375, .375, .4});
    /* Rows pooled by max 3 and scaled back to their mass:
     *   .8 .8 0 0 -> .4 .4 0 0;  .1 .1 .1 .1 -> .2 * (1/4 each) = .05;  all .1 stay;
     *   .2 .2 .4 .4 -> .8 * (1/6 1/6 1/3 1/3) */
    const double third = .8 / 3;
    const double mean = (.4 + .4 + third + third) / 4;
    assert_scores("snapkv:window=2,kernel=3,pool=max,agg=max+defensive", &obs, 4,
                  (const double[]){.4, .4, mean, mean});
    /* Average 3, scaled: .8 .8 0 0 -> .4 .4 0 0; .2 .2 0 .4 -> .8 * (4 4 6 4) / 18; the others are lower. */
    const double mean_avg = (.4 + .4 + .8 / 3 + .8 * 4 / 18) / 4;
    assert_scores("snapkv:window=2,kernel=3,pool=avg,agg=max+defensive", &obs, 4,
                  (const double[]){.4, .4, mean_avg, mean_avg});
}

/* One KV head, so that norms cancel: entries of stage 1 get the largest score. */
static void scores_by_hand(void **state)
{
    (void)state;
    const int32_t n_entry[] = {6};
    float nu[] = {3, 3, 3, 3, 3, 3};
    wnw_observation obs = small(n_entry);
    obs.proj_norm = proj_norm;
    obs.source = nu;
    /* Mean attention 1.1 .4 .2 .5, normalised .5 .1818 .0909 .2273. Window mass: (.2 + .8
     * + .6 + .2) / 4 = .45; .9 - .45 = .45 < .5: nothing fits below. */
    assert_scores("defensivekv:window=2,kernel=1", &obs, 4, (const double[]){.8, .375, .375, .4});
    /* Below .55: one entry, which has the largest score anyway. */
    assert_scores("defensivekv:window=2,kernel=1,mass=1", &obs, 4, (const double[]){.8, .375, .375, .4});
    /* as_code: attention before the window, columns 2 and 3: (0 + .1 + .2 + .4) / 4 = .175: below .725 is .5
     * alone; below .825 .5 and .2273. */
    assert_scores("defensivekv:window=2,kernel=1,as_code=1", &obs, 4, (const double[]){.8, .375, .375, .4});
    obs.budget = 6;
    assert_scores("defensivekv:window=2,kernel=1,as_code=1,mass=1", &obs, 4,
                  (const double[]){.8, .375, .375, .8});
    /* The bound: 6 (6 - 2) / 6 - 2 = 2 entries above, 4 (6 - 2) / 6 - 2 = .67 here, then below 0. */
    obs.budget = 4;
    assert_scores("defensivekv:window=2,kernel=1,as_code=1,mass=1", &obs, 4,
                  (const double[]){.8, .375, .375, .4});
    obs.budget = 1;
    assert_scores("defensivekv:window=2,kernel=1,as_code=1,mass=1", &obs, 4,
                  (const double[]){.8, .375, .375, .4});
}

/* ---- Against a naive computation, heads with the same tokens or not ---- */

enum { H = 3, G = 2, MAX_N = 14, W = 4 };

struct random_layer {
    float attn[H * G * W * MAX_N], nu[H * MAX_N];
    int32_t pos[H * MAX_N], n_entry[H];
    wnw_observation obs;
};

static void make_layer(struct random_layer *l, uint32_t seed, bool ragged)
{
    for (int j = 0; j < H; j++) {
        int32_t n = 0;
        for (int p = 0; p < MAX_N; p++)
            if (!ragged || p >= MAX_N - W || test_lcg(&seed) % 3 > 0)
                l->pos[j * MAX_N + n++] = p;
        l->n_entry[j] = n;
        for (int i = 0; i < MAX_N; i++) {
            l->nu[j * MAX_N + i] = i < n ? 0.1f + (float)(test_lcg(&seed) % 1000) / 500.0f : 1e9f;
            l->pos[j * MAX_N + i] = i < n ? l->pos[j * MAX_N + i] : -1;
        }
        for (int r = 0; r < G * W; r++) {
            float *row = l->attn + (j * G * W + r) * MAX_N, sum = 0;
            for (int i = 0; i < MAX_N; i++) {
                const float x = (float)(1 + test_lcg(&seed) % 1000) / 1000.0f;
                row[i] = i >= n ? 1e9f : l->pos[j * MAX_N + i] > MAX_N - W + r % W ? 0 : x * x * x * x;
                sum += i < n ? row[i] : 0;
            }
            for (int i = 0; i < n; i++)
                row[i] /= sum;
        }
    }
    l->obs = (wnw_observation){.n_layer = 1,
                               .n_head = H * G,
                               .n_head_kv = H,
                               .n = MAX_N,
                               .n_past = MAX_N,
                               .n_entry = l->n_entry,
                               .pos = l->pos,
                               .n_window = W,
                               .window_attn = l->attn,
                               .proj_norm = proj_norm,
                               .source = l->nu};
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The formulas one after the other, in double. */
static void naive(const struct random_layer *l, double mass, double want[H][MAX_N])
{
    double window = 0, most = 0, total[MAX_N] = {0};
    int holders[MAX_N] = {0};
    for (int j = 0; j < H; j++)
        for (int i = 0; i < l->n_entry[j]; i++) {
            total[l->pos[j * MAX_N + i]] += (double)l->nu[j * MAX_N + i];
            holders[l->pos[j * MAX_N + i]]++;
        }
    for (int j = 0; j < H; j++) {
        const int n_old = l->n_entry[j] - W;
        double m[MAX_N] = {0}, mean = 0;
        for (int r = 0; r < G * W; r++) {
            const float *row = l->attn + (j * G * W + r) * MAX_N;
            double pooled[MAX_N] = {0}, sum = 0, old = 0;
            for (int i = 0; i < n_old; i++) {
                old += (double)row[i];
                for (int u = i - 2; u <= i + 2; u++)
                    pooled[i] += u >= 0 && u < n_old ? (double)row[u] / 5 : 0;
                sum += pooled[i];
            }
            for (int i = 0; i < n_old; i++)
                m[i] = fmax(m[i], pooled[i] / sum * old);
            for (int i = n_old; i < l->n_entry[j]; i++)
                window += (double)row[i] / (H * G * W);
        }
        for (int i = 0; i < n_old; i++)
            mean += m[i] / n_old;
        for (int i = 0; i < n_old; i++) {
            const int p = l->pos[j * MAX_N + i];
            const double nhat = (double)l->nu[j * MAX_N + i] / (total[p] / holders[p] * H);
            want[j][i] = fmax(m[i], mean) * nhat;
            most = fmax(most, want[j][i]);
        }
    }
    for (int j = 0; j < H; j++) {
        const int n_old = l->n_entry[j] - W;
        double a[MAX_N] = {0}, sorted[MAX_N], sum = 0, part = 0;
        for (int i = 0; i < n_old; i++) {
            for (int r = 0; r < G * W; r++)
                a[i] += (double)l->attn[(j * G * W + r) * MAX_N + i];
            sum += a[i];
        }
        memcpy(sorted, a, sizeof sorted);
        qsort(sorted, (size_t)n_old, sizeof *sorted, descending);
        int count = 0;
        while (count < n_old && (part += sorted[count] / sum) < mass - window)
            count++;
        const int limit = (int)(l->obs.budget - W);
        count = count < limit ? count : limit > 0 ? limit : 0;
        for (int i = 0; i < n_old; i++)
            want[j][i] = count > 0 && a[i] >= sorted[count - 1] ? most : want[j][i];
    }
}

static void equals_the_formulas(void **state)
{
    (void)state;
    for (uint32_t trial = 0; trial < 60; trial++) {
        struct random_layer l;
        float got[H * MAX_N];
        double want[H][MAX_N];
        make_layer(&l, trial, trial % 2);
        l.obs.budget = 3 + trial % 10;
        const bool much = trial % 3 == 0; /* a small window mass leaves room for stage 1 */
        run_scorer(much ? "defensivekv:window=4,mass=1" : "defensivekv:window=4", &l.obs, got);
        naive(&l, much ? 1 : 0.9, want);
        for (int j = 0; j < H; j++)
            for (int i = 0; i < l.n_entry[j] - W; i++)
                if (!(fabs((double)got[j * MAX_N + i] - want[j][i]) <= 1e-6))
                    fail_msg("trial %u, head %d, entry %d: %.7g, expected %.7g", trial, j, i,
                             (double)got[j * MAX_N + i], want[j][i]);
    }
}

/* Heads of equal attention: what norms give one head they take from another. */
static void shares_sum_to_one(void **state)
{
    (void)state;
    struct random_layer l;
    float alone[H * MAX_N], got[H * MAX_N];
    make_layer(&l, 4, false);
    for (int j = 1; j < H; j++)
        memcpy(l.attn + j * G * W * MAX_N, l.attn, G * W * MAX_N * sizeof(float));
    run_scorer("snapkv:window=4,kernel=5,pool=avg,agg=max+defensive", &l.obs, alone);
    run_scorer("defensivekv:window=4,mass=0", &l.obs, got);
    for (int i = 0; i < MAX_N - W; i++) {
        double sum = 0;
        for (int j = 0; j < H; j++)
            sum += (double)got[j * MAX_N + i];
        assert_near(sum, alone[i], 1e-6);
    }
}

/* ---- Plans ---- */

/* What attention chose first and the window fit below every size: nothing is lost to another head. */
static void plans(void **state)
{
    (void)state;
    static const char *const recipes[] = {"defensivekv:window=8", "layer-defensivekv:window=8",
                                          "paper-defensivekv:window=8",
                                          "snapkv:window=8,agg=max+defensive+adakv"};
    for (int32_t ragged = 0; ragged < 2; ragged++) {
        struct fake f;
        fake_init(&f, 3, 2, 2, 96, ragged);
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
            for (int32_t b = 2; b < 28; b += 5) {
                const wnw_size size = size_ratio(1 - b / 96.0);
                wnw_report report = {WNW_INIT(wnw_report)};
                wnw_plan *plan = fake_planned(&f, recipes[i], &size, &report);
                const int64_t n = fake_check_plan(plan, &f);
                const int32_t of_layer =
                    i == 2 ? (int32_t)(2 * 96 * (1 - size.ratio)) : 2 * b; /* truncated */
                if (!ragged && n != 3 * of_layer)
                    fail_msg("%s: %d entries, %d asked for", recipes[i], (int)n, 3 * of_layer);
                for (int32_t il = 0; il < 3; il++)
                    for (int32_t ih = 0; ih < 2; ih++)
                        for (int32_t p = 88; p < 96 && b > 8 && !ragged; p++)
                            assert_true(fake_holds(plan, il, ih, p));
                wnw_plan_free(plan);
            }
        fake_free(&f);
    }
}

/* The released code truncates the count of a layer, not of a head: 4 heads of 50 keep 50 at 0.75, not 4 x 12. */
static void code_counts_layers(void **state)
{
    (void)state;
    struct fake f;
    fake_init(&f, 2, 4, 2, 50, false);
    const wnw_size size = size_ratio(0.75);
    wnw_plan *plan = fake_planned(&f, "paper-defensivekv:window=4", &size, NULL);
    assert_int_equal(fake_check_plan(plan, &f), 2 * 50);
    wnw_plan_free(plan);
    fake_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worst_case_of_window_and_group),
        cmocka_unit_test(scores_by_hand),
        cmocka_unit_test(equals_the_formulas),
        cmocka_unit_test(shares_sum_to_one),
        cmocka_unit_test(plans),
        cmocka_unit_test(code_counts_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
