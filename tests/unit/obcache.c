/* SPDX-License-Identifier: MIT */
/* OBCache's scores against their formulas and against finite differences of the output itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"
#include "peek_plan.h"
#include "random.h"
#include "scoring.h"

enum { D = 6, N = 80, W = 5, H = 2, G = 2 };

struct arrays {
    float keys[H][N][D], values[H][N][D], queries[H * G][W][D], attn[H * G][W][N];
    int32_t n_entry[H], pos[H][N];
    struct score_rows rows; /* keys, values */
    wnw_observation obs;
};

static double logit(const struct arrays *a, int h, int w, int i)
{
    double z = 0;
    for (int c = 0; c < D; c++)
        z += (double)a->queries[h][w][c] * (double)a->keys[h / G][i][c];
    return z * (double)a->obs.attn_scale;
}

static bool visible(const struct arrays *a, int h, int w, int i)
{
    return i < a->n_entry[h / G] && a->pos[h / G][i] <= N - W + w;
}

/* Output of query w of head h; entry p's value weighs `value`, its logit is multiplied by `key`. */
static void output(const struct arrays *a, int h, int w, int p, double value, double key, double o[D])
{
    double sum = 0;
    memset(o, 0, D * sizeof *o);
    for (int i = 0; i < N; i++)
        if (visible(a, h, w, i)) {
            const double e = exp(logit(a, h, w, i) * (i == p ? key : 1));
            sum += e;
            for (int c = 0; c < D; c++)
                o[c] += e * (i == p ? value : 1) * (double)a->values[h / G][i][c];
        }
    for (int c = 0; c < D; c++)
        o[c] /= sum;
}

/* Output of query w of head h over all entries but p. */
static void output_without(const struct arrays *a, int h, int w, int p, double o[D])
{
    double sum = 0;
    memset(o, 0, D * sizeof *o);
    for (int i = 0; i < N; i++)
        if (i != p && visible(a, h, w, i)) {
            const double e = exp(logit(a, h, w, i));
            sum += e;
            for (int c = 0; c < D; c++)
                o[c] += e * (double)a->values[h / G][i][c];
        }
    for (int c = 0; c < D; c++)
        o[c] /= sum;
}

static void make_arrays(struct arrays *a, uint32_t seed)
{
    memset(a, 0, sizeof *a);
    a->rows = (struct score_rows){.k = a->keys[0][0], .v = a->values[0][0]};
    float *const all[] = {a->keys[0][0], a->values[0][0], a->queries[0][0]};
    const int32_t count[] = {H * N * D, H * N * D, H * G * W * D};
    for (int k = 0; k < 3; k++)
        for (int32_t i = 0; i < count[k]; i++)
            all[k][i] = test_signed(&seed);
    a->obs = (wnw_observation){.n_layer = 1,
                               .n_head = H * G,
                               .n_head_kv = H,
                               .n_embd_head = D,
                               .n = N,
                               .n_past = N,
                               .n_entry = a->n_entry,
                               .pos = a->pos[0],
                               .attn_scale = 0.8f,
                               .n_window = W,
                               .window_attn = a->attn[0][0],
                               .window_queries = a->queries[0][0],
                               .keys = row_keys,
                               .values = row_values,
                               .source = &a->rows};
    for (int j = 0; j < H; j++) {
        a->n_entry[j] = N - 7 * j;
        for (int i = 0; i < N; i++) /* head 1 has lost positions 0 .. 6 */
            a->pos[j][i] = i < a->n_entry[j] ? i + 7 * j : -1;
    }
    for (int h = 0; h < H * G; h++)
        for (int w = 0; w < W; w++) {
            double sum = 0;
            for (int i = 0; i < N; i++)
                sum += visible(a, h, w, i) ? exp(logit(a, h, w, i)) : 0;
            for (int i = 0; i < N; i++)
                a->attn[h][w][i] = visible(a, h, w, i)     ? (float)(exp(logit(a, h, w, i)) / sum)
                                   : i < a->n_entry[h / G] ? 0
                                                           : 1e9f;
        }
}

/* Rules without logits ask for no keys, and read neither these nor queries. */
static wnw_observation without_keys(const struct arrays *a)
{
    wnw_observation obs = a->obs;
    obs.keys = NULL;
    obs.window_queries = NULL;
    return obs;
}

/* The last n_row queries. joint: derivative of the output when value and logit shrink together. */
static void equals_its_definition(void **state)
{
    (void)state;
    static const char *const recipes[] = {"obcache:kernel=1,prune=value,window=5",
                                          "obcache:kernel=1,prune=key,window=5", "obcache:kernel=1,window=5",
                                          "obcache:kernel=1,window=3"};
    static struct arrays a;
    static float got[H * N];
    make_arrays(&a, 11);
    for (int r = 0; r < 4; r++) {
        const int n_row = r == 3 ? 3 : W;
        const wnw_observation obs = r == 0 ? without_keys(&a) : a.obs;
        run_scorer(recipes[r], &obs, got);
        for (int j = 0; j < H; j++)
            for (int p = 0; p < a.n_entry[j]; p += 3) {
                double want = 0;
                for (int h = j * G; h < (j + 1) * G; h++)
                    for (int w = W - n_row; w < W; w++) {
                        const double step = 1e-5;
                        double less[D], more[D];
                        output(&a, h, w, p, r == 1 ? 1 : 1 - step, r == 0 ? 1 : 1 - step, less);
                        output(&a, h, w, p, r == 1 ? 1 : 1 + step, r == 0 ? 1 : 1 + step, more);
                        for (int c = 0; c < D && visible(&a, h, w, p); c++)
                            want += pow((more[c] - less[c]) / (2 * step), 2) / G;
                    }
                if (!(fabs((double)got[j * N + p] - want) <= 1e-4 * want + 1e-9))
                    fail_msg("%s: head %d, entry %d: %.7g, expected %.7g", recipes[r], j, p,
                             (double)got[j * N + p], want);
            }
    }
}

/* The change of the output when the entry is not there, computed without it. */
static void drop_is_exact(void **state)
{
    (void)state;
    static struct arrays a;
    static float got[H * N];
    make_arrays(&a, 13);
    const wnw_observation obs = without_keys(&a);
    run_scorer("obcache:kernel=1,prune=drop,window=5", &obs, got);
    for (int j = 0; j < H; j++)
        for (int p = 0; p < a.n_entry[j]; p += 3) {
            double want = 0;
            for (int h = j * G; h < (j + 1) * G; h++)
                for (int w = 0; w < W; w++) {
                    double all[D], without[D];
                    output(&a, h, w, -1, 1, 1, all);
                    output_without(&a, h, w, p, without);
                    for (int c = 0; c < D && visible(&a, h, w, p); c++)
                        want += pow(without[c] - all[c], 2) / G;
                }
            if (!(fabs((double)got[j * N + p] - want) <= 1e-4 * want + 1e-9))
                fail_msg("head %d, entry %d: %.7g, expected %.7g", j, p, (double)got[j * N + p], want);
        }
}

/* One entry with all of the attention: by hand, 1 / 0.05 squared times |v - o|^2 = 0, as o is v; the others have 0. */
static void drop_of_everything_is_finite(void **state)
{
    (void)state;
    static struct arrays a;
    static float got[H * N];
    make_arrays(&a, 14);
    for (int h = 0; h < H * G; h++)
        for (int w = 0; w < W; w++)
            for (int i = 0; i < a.n_entry[h / G]; i++)
                a.attn[h][w][i] = i == 20 ? 1 : 0;
    run_scorer("obcache:kernel=1,prune=drop,window=5", &a.obs, got);
    for (int j = 0; j < H; j++)
        for (int i = 0; i < a.n_entry[j]; i++) {
            assert_true(isfinite(got[j * N + i]) && got[j * N + i] >= 0);
            if (i != 20)
                assert_true(got[j * N + i] == 0);
        }
}

/* Pooling happens within each query head, before the mean over the group, without the window's entries. */
static void pools_like_snapkv(void **state)
{
    (void)state;
    static struct arrays a;
    static float raw[H * N], got[H * N];
    make_arrays(&a, 12);
    for (int h = 0; h < H * G; h += G) /* one query head per group speaks: the mean is half of it */
        memset(a.attn[h + 1], 0, sizeof a.attn[h + 1]);
    run_scorer("obcache:kernel=1,window=5", &a.obs, raw);
    run_scorer("obcache:kernel=7,window=5", &a.obs, got);
    for (int j = 0; j < H; j++)
        for (int i = 0; i < a.n_entry[j] - W; i++) {
            float want = 0;
            for (int u = i - 3; u <= i + 3; u++)
                want = u >= 0 && u < a.n_entry[j] - W && raw[j * N + u] > want ? raw[j * N + u] : want;
            assert_near(got[j * N + i], want, 1e-6f * want);
        }
}

static void plans(void **state)
{
    (void)state;
    static const char *const recipes[] = {"obcache:window=8", "obcache:window=8,pool=avg,kernel=5+adakv",
                                          "obcache:window=8,prune=key+pyramid"};
    for (int32_t ragged = 0; ragged < 2; ragged++) {
        struct fake f;
        fake_init(&f, 3, 2, 2, 96, ragged);
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
            const wnw_size size = size_budget(20);
            wnw_plan *plan = fake_planned(&f, recipes[i], &size, NULL);
            const int64_t n = fake_check_plan(plan, &f);
            assert_cmp(n, <=, 3 * 2 * 20);
            assert_cmp(n, >=, 3 * 2 * (ragged ? 18 : 20));
            wnw_plan_free(plan);
        }
        fake_free(&f);
    }
    wnw_policy *p;
    assert_int_equal(wnw_policy_parse(&p, "obcache:kernel=4", NULL), WNW_E_ARG);
    assert_int_equal(wnw_policy_parse(&p, "obcache+critical", NULL), WNW_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_definition),
        cmocka_unit_test(drop_is_exact),
        cmocka_unit_test(drop_of_everything_is_finite),
        cmocka_unit_test(pools_like_snapkv),
        cmocka_unit_test(plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
