/* SPDX-License-Identifier: MIT */
/* TriAttention's scores, worked out with NumPy from the paper's own form: cosines of every distance, and a mean length of
 * queries that is integrated in polar coordinates. */
#include "asserts.h"
#include "peek_plan.h"
#include "scoring.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <string.h>

enum { N = 3, D = 3, H = 2 };

/* One KV head with two query heads of three elements. The first two turn by half a position. */
struct layer {
    wnw_observation obs;
    float mean[H * D], cov[H * D * D], theta[1];
    int32_t n_entry, pos[N];
};

static const float keys[N * D] = {1, 0.5f, 0.25f, -0.5f, 1, 1, 0.75f, -1, -2};
static const struct score_rows rows = {.k = keys};

static void make(struct layer *l)
{
    *l = (struct layer){.mean = {1, 0.5f, 2, 0, 0, -1},
                        .cov = {0.04f, 0.01f, 0, 0.01f, 0.09f, 0, 0, 0, 1, 0.25f, 0, 0, 0, 0.25f, 0, 0, 0, 1},
                        .theta = {0.5f},
                        .n_entry = N,
                        .pos = {0, 1, 3}};
    l->obs = (wnw_observation){.n_layer = 1,
                               .n_head = H,
                               .n_head_kv = 1,
                               .n_embd_head = D,
                               .n = N,
                               .n_past = 4,
                               .n_entry = &l->n_entry,
                               .pos = l->pos,
                               .query_mean = l->mean,
                               .query_cov = l->cov,
                               .n_query_stats = 9,
                               .rope_theta = l->theta,
                               .n_rot = 2,
                               .rope_neox = true,
                               .keys = row_keys,
                               .source = (void *)(uintptr_t)&rows};
}

/* Before they are normalised (0.376280, 2.069926, -4.027894) and (0.450624, -0.299376, 2.783321). */
static void by_hand(void **state)
{
    (void)state;
    static struct layer l;
    float score[H * N], best[N];
    make(&l);
    for (int neox = 0; neox < 2; neox++) { /* one pair is the same in both orders */
        l.obs.rope_neox = neox;
        assert_ok(try_scores("triattention:stats=prompt", &l.obs, score));
        assert_values(score, 2e-6, 0.351547, 1.010528, -1.362075, -0.401915, -0.973286, 1.375201);
    }
    run_scorer("triattention:stats=prompt", &l.obs, best);
    assert_values(best, 2e-6, 0.351547, 1.010528, 1.375201);
}

/* The same numbers from a profile; without one it is refused. */
static void from_a_profile(void **state)
{
    (void)state;
    static struct layer l;
    float score[H * N];
    make(&l);
    struct wnw_profile p = {.kinds = 1u << WNW_PROFILE_STATS, .query_mean = l.mean, .query_cov = l.cov};
    l.obs.query_mean = l.obs.query_cov = NULL;
    l.obs.profile = &p;
    assert_ok(try_scores("triattention", &l.obs, score));
    assert_values(score, 2e-6, 0.351547, 1.010528, -1.362075, -0.401915, -0.973286, 1.375201);
    l.obs.profile = NULL;
    assert_error(try_scores("triattention", &l.obs, score), WNW_E_MISMATCH);
    assert_says("winnow calibrate stats");
}

/* A mean without any spread leaves the cosines alone; keys that are equal in all that counts have equal scores, 0. */
static void edges(void **state)
{
    (void)state;
    static struct layer l;
    float score[H * N];
    make(&l);
    memset(l.cov, 0, sizeof l.cov);
    assert_ok(try_scores("triattention:stats=prompt", &l.obs, score));
    for (int i = 0; i < H * N; i++)
        assert_true(isfinite(score[i]));
    /* The second head has neither mean nor spread in the pair: -1 times the element that does not turn. */
    assert_values(score + N, 2e-6, -0.392232, -0.980581, 1.372813);
    memset(l.mean, 0, sizeof l.mean);
    assert_ok(try_scores("triattention:stats=prompt", &l.obs, score));
    assert_values(score, 0, 0, 0, 0, 0, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(from_a_profile),
                                       cmocka_unit_test(edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
