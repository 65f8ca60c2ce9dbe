/* SPDX-License-Identifier: MIT */
/* Expected attention: averaged RoPE in closed form, the logits against their definition, the scorer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"
#include "random.h"
#include "scoring.h"
#include "winnow_calibrate.h"

/* ---- RoPE averaged over positions ---- */

static void closed_form(void **state)
{
    (void)state;
    const double pi = 3.14159265358979323846;
    const double thetas[] = {1, 0.31, 1e-2, 1e-5, 1e-9, 0, pi, 2 * pi, 4 * pi, 2 * pi + 1e-7, -0.2};
    const int32_t firsts[] = {0, 1, 600, 32768}, counts[] = {1, 2, 17, 512};
    for (size_t t = 0; t < sizeof thetas / sizeof *thetas; t++)
        for (int f = 0; f < 4; f++)
            for (int n = 0; n < 4; n++) {
                double c = 0, s = 0;
                for (int32_t p = firsts[f]; p < firsts[f] + counts[n]; p++) {
                    c += cos(p * thetas[t]) / counts[n];
                    s += sin(p * thetas[t]) / counts[n];
                }
                const struct wnw__turn turn = wnw__mean_turn(thetas[t], firsts[f], counts[n]);
                assert_near(turn.c, c, 1e-5);
                assert_near(turn.s, s, 1e-5);
            }
}

static void pairs(void **state)
{
    (void)state;
    const float theta[] = {1.5707963f, 0}; /* a quarter turn per position; none */
    wnw_observation obs = {.rope_theta = theta, .n_rot = 4, .rope_neox = true, .n_embd_head = 6};
    float x[] = {1, 2, 3, 4, 5, 6};
    wnw__turn_rows(&obs, 1, 1, x, 1, 0, 1);
    const float halves[] = {-3, 2, 1, 4, 5, 6}; /* pairs (0, 2), (1, 3); 4 and 5 do not turn */
    for (int i = 0; i < 6; i++)
        assert_near((double)x[i], (double)halves[i], 1e-5);
    obs.rope_neox = false;
    float y[] = {1, 2, 3, 4, 5, 6};
    wnw__turn_rows(&obs, 1, 1, y, 1, 0, 1);
    const float neighbours[] = {-2, 1, 3, 4, 5, 6}; /* pairs (0, 1), (2, 3) */
    for (int i = 0; i < 6; i++)
        assert_near((double)y[i], (double)neighbours[i], 1e-5);
}

/* ---- The scorer against its definition ---- */

enum { D = 6, MAX_N = 64, N_HEAD = 4, N_KV = 2, GROUP = N_HEAD / N_KV, N_PAST = 70 };

struct arrays {
    float keys[N_KV][MAX_N][D], values[N_KV][MAX_N][D];
    float mean[N_HEAD][D], cov[N_HEAD][D][D], theta[D / 2];
    int32_t n_entry[N_KV], pos[N_KV][MAX_N];
    struct wnw_profile profile;
    struct score_rows rows; /* keys, values */
    wnw_observation obs;
};

static void make_arrays(struct arrays *a, uint32_t seed, bool neox, int32_t n_rot)
{
    memset(a, 0, sizeof *a);
    a->rows = (struct score_rows){.k = a->keys[0][0], .v = a->values[0][0]};
    for (int j = 0; j < N_KV; j++) {
        a->n_entry[j] = j == 0 ? MAX_N : MAX_N - 9;
        for (int i = 0; i < MAX_N; i++) {
            a->pos[j][i] = i < a->n_entry[j] ? i : -1;
            for (int c = 0; c < D; c++) {
                a->keys[j][i][c] = i < a->n_entry[j] ? (float)(1.5 * test_normal(&seed)) : 1e9f;
                a->values[j][i][c] = i < a->n_entry[j] ? (float)test_normal(&seed) : 1e9f;
            }
        }
    }
    for (int h = 0; h < N_HEAD; h++) {
        double root[D][D];
        for (int i = 0; i < D; i++) {
            a->mean[h][i] = (float)test_normal(&seed);
            for (int j = 0; j < D; j++)
                root[i][j] = 0.6 * test_normal(&seed);
        }
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++) {
                double sum = 0;
                for (int k = 0; k < D; k++)
                    sum += root[i][k] * root[j][k];
                a->cov[h][i][j] = (float)sum;
            }
    }
    for (int i = 0; i < n_rot / 2; i++)
        a->theta[i] = powf(100.0f, -2.0f * (float)i / (float)n_rot);
    a->obs = (wnw_observation){.n_layer = 1,
                               .n_head = N_HEAD,
                               .n_head_kv = N_KV,
                               .n_embd_head = D,
                               .n = MAX_N,
                               .n_past = N_PAST,
                               .n_entry = a->n_entry,
                               .pos = a->pos[0],
                               .attn_scale = 1 / sqrtf(D),
                               .keys = row_keys,
                               .values = row_values,
                               .query_mean = a->mean[0],
                               .query_cov = a->cov[0][0],
                               .rope_theta = a->theta,
                               .n_rot = n_rot,
                               .rope_neox = neox,
                               .source = &a->rows};
}

/* Rotation matrix of one position. */
static void rope_matrix(const wnw_observation *obs, int32_t position, double r[D][D])
{
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++)
            r[i][j] = i == j;
    for (int i = 0; i < obs->n_rot / 2; i++) {
        const int a = obs->rope_neox ? i : 2 * i, b = obs->rope_neox ? i + obs->n_rot / 2 : 2 * i + 1;
        const double angle = (double)obs->rope_theta[i] * position;
        r[a][a] = r[b][b] = cos(angle);
        r[a][b] = -sin(angle);
        r[b][a] = sin(angle);
    }
}

/* z of one key, by the definition: a mean of matrices and plain products. */
static double logit(const struct arrays *a, int h, int j, int i, int n_future, bool covariance)
{
    double r[D][D] = {{0}}, one[D][D], mu[D], rk[D], z = 0, quadratic = 0;
    for (int p = N_PAST; p < N_PAST + n_future; p++) {
        rope_matrix(&a->obs, p, one);
        for (int x = 0; x < D * D; x++)
            r[x / D][x % D] += one[x / D][x % D] / n_future;
    }
    for (int x = 0; x < D; x++) {
        mu[x] = rk[x] = 0;
        for (int y = 0; y < D; y++) {
            mu[x] += r[x][y] * (double)a->mean[h][y];
            rk[x] += r[y][x] * (double)a->keys[j][i][y]; /* R^T k */
        }
        z += mu[x] * (double)a->keys[j][i][x];
    }
    for (int x = 0; x < D; x++)
        for (int y = 0; y < D; y++)
            quadratic += rk[x] * (double)a->cov[h][x][y] * rk[y];
    return z / sqrt(D) + (covariance ? quadratic / (2 * D) : 0);
}

static void assert_scores(const char *recipe, const struct arrays *a, int n_sink, int n_future,
                          bool covariance, bool vnorm, double epsilon)
{
    static float got[N_KV * MAX_N];
    double want[N_KV][MAX_N] = {{0}}, most = 0;
    run_scorer(recipe, &a->obs, got);
    for (int h = 0; h < N_HEAD; h++) {
        const int j = h / GROUP;
        double z[MAX_N], sum = 0;
        for (int i = n_sink; i < a->n_entry[j]; i++)
            sum += z[i] = exp(logit(a, h, j, i, n_future, covariance));
        for (int i = n_sink; i < a->n_entry[j]; i++)
            want[j][i] += z[i] / sum / GROUP;
    }
    for (int j = 0; j < N_KV; j++)
        for (int i = n_sink; i < a->n_entry[j]; i++) {
            double norm = 0;
            for (int c = 0; c < D; c++)
                norm += (double)a->values[j][i][c] * (double)a->values[j][i][c];
            want[j][i] = vnorm ? (want[j][i] + epsilon) * sqrt(norm) : want[j][i];
            most = want[j][i] > most ? want[j][i] : most;
            assert_near((double)got[j * MAX_N + i], want[j][i], 1e-5 + 1e-4 * want[j][i]);
        }
    for (int j = 0; j < N_KV; j++)
        for (int i = 0; i < n_sink; i++)
            assert_cmp((double)got[j * MAX_N + i], >, most + 0.5); /* before all others */
}

static void equals_its_definition(void **state)
{
    (void)state;
    static struct arrays a;
    static const int32_t n_rot[] = {6, 6, 4, 4, 0};
    for (uint32_t trial = 0; trial < 5; trial++) {
        make_arrays(&a, 10 + trial, trial % 2 == 0, n_rot[trial]);
        assert_scores("expected_attention", &a, 4, 512, true, true, 0);
        assert_scores("expected_attention:n_sink=0,n_future=3", &a, 0, 3, true, true, 0);
        assert_scores("expected_attention:covariance=0,vnorm=0", &a, 4, 512, false, false, 0);
        assert_scores("expected_attention:epsilon=0.01,n_future=1", &a, 4, 1, true, true, 0.01);
        assert_scores("expected_attention:vnorm=0,epsilon=0.5", &a, 4, 512, true, false, 0);
    }
}

/* exp(z) is the mean of exp(q . k / sqrt(d)) over normally distributed queries, where one position is asked. */
static void logits_are_a_log_mean(void **state)
{
    (void)state;
    enum { SAMPLES = 40000 };
    uint32_t seed = 77;
    double root[D][D], r[D][D], sum[3] = {0};
    static struct arrays a;
    make_arrays(&a, 5, true, 6);
    for (int i = 0; i < D; i++) /* Cholesky factor of the covariance of head 0 */
        for (int j = 0; j <= i; j++) {
            double x = (double)a.cov[0][i][j];
            for (int k = 0; k < j; k++)
                x -= root[i][k] * root[j][k];
            root[i][j] = i == j ? sqrt(x) : x / root[j][j];
        }
    rope_matrix(&a.obs, N_PAST, r);
    for (int n = 0; n < SAMPLES; n++) {
        double g[D], q[D], turned[D];
        for (int i = 0; i < D; i++) {
            g[i] = test_normal(&seed);
            q[i] = (double)a.mean[0][i];
            for (int j = 0; j <= i; j++)
                q[i] += root[i][j] * g[j];
        }
        for (int i = 0; i < D; i++) {
            turned[i] = 0;
            for (int j = 0; j < D; j++)
                turned[i] += r[i][j] * q[j];
        }
        for (int k = 0; k < 3; k++) {
            double z = 0;
            for (int i = 0; i < D; i++)
                z += turned[i] * (double)a.keys[0][k][i] / sqrt(D);
            sum[k] += exp(z) / SAMPLES;
        }
    }
    for (int k = 0; k < 3; k++)
        assert_near(log(sum[k]), logit(&a, 0, 0, k, 1, true), 0.1);
}

/* ---- Statistics from a profile, short prompts, whole plans ---- */

static void statistics_of_a_profile(void **state)
{
    (void)state;
    static struct arrays a;
    static float want[N_KV * MAX_N], got[N_KV * MAX_N], mean[2 * N_HEAD * D], cov[2 * N_HEAD * D * D];
    make_arrays(&a, 3, true, 6);
    run_scorer("expected_attention", &a.obs, want);
    memcpy(mean + N_HEAD * D, a.mean, sizeof a.mean); /* of layer 1 */
    memcpy(cov + N_HEAD * D * D, a.cov, sizeof a.cov);
    a.profile = (struct wnw_profile){.query_mean = mean, .query_cov = cov};
    a.obs.profile = &a.profile;
    a.obs.query_mean = a.obs.query_cov = NULL;
    a.obs.il = 1;
    run_scorer("expected_attention:stats=profile", &a.obs, got);
    assert_memory_equal(got, want, sizeof got);

    wnw_policy *p;
    assert_int_equal(wnw_policy_parse(&p, "expected_attention:stats=profile,vnorm=0", NULL), WNW_OK);
    const wnw_needs needs = wnw_policy_needs(p);
    assert_int_equal(needs.flags, WNW_NEED_PROFILE | WNW_NEED_KEYS | WNW_NEED_ROPE);
    assert_int_equal(needs.profiles, 1u << WNW_PROFILE_STATS);
    wnw_policy_free(p);
    p = test_policy("expected_attention:n_sink=7");
    assert_int_equal(wnw_policy_needs(p).skip, 7);
    assert_int_equal(wnw_policy_needs(p).flags,
                     WNW_NEED_QUERY_STATS | WNW_NEED_KEYS | WNW_NEED_VALUES | WNW_NEED_ROPE);
    wnw_policy_free(p);
}

static void plans(void **state)
{
    (void)state;
    static const char *const recipes[] = {
        "expected_attention", "adakv-expected_attention", "kvpress-criticalkv_expected_attention",
        "expected_attention+pyramid+critical", "expected_attention:stats=profile+adakv+critical"};
    for (int32_t ragged = 0; ragged < 2; ragged++) {
        struct fake f;
        fake_init(&f, 3, 2, 2, 96, ragged);
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
            const wnw_size size = size_budget(20);
            wnw_plan *plan = fake_planned(&f, recipes[i], &size, NULL);
            const int64_t n = fake_check_plan(plan, &f);
            if (n > 3 * 2 * 20 || n < 3 * 2 * 18)
                fail_msg("%s: %d entries", recipes[i], (int)n);
            for (int32_t ih = 0; ih < 2 && !ragged; ih++)
                for (int32_t p = 0; p < 4; p++)
                    assert_true(fake_holds(plan, 1, ih, p));
            wnw_plan_free(plan);
        }
        fake_free(&f);
    }
}

/* Heads with no more than the sinks. */
static void nothing_behind_the_sinks(void **state)
{
    (void)state;
    static struct arrays a;
    static float got[N_KV * MAX_N];
    make_arrays(&a, 8, true, 6);
    a.n_entry[0] = 4;
    a.n_entry[1] = 0;
    run_scorer("expected_attention", &a.obs, got);
    assert_near((double)got[3], 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_form),
        cmocka_unit_test(pairs),
        cmocka_unit_test(equals_its_definition),
        cmocka_unit_test(logits_are_a_log_mean),
        cmocka_unit_test(statistics_of_a_profile),
        cmocka_unit_test(plans),
        cmocka_unit_test(nothing_behind_the_sinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
