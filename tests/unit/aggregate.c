/* SPDX-License-Identifier: MIT */
/* Head aggregations: from scores of query heads, or of KV heads, to one score per entry and KV head. */
#include "asserts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"
#include "scoring.h"

enum { H = 4, KV = 2, N = 3, PAST = 5 };

/* What the scorer of these tests gives: rows[n_head or n_head_kv][N]. */
static const float *rows;

static int give_rows(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t h = 0; h < obs->n_head; h++)
        for (int32_t i = 0; i < N; i++)
            if (!obs->query_head_used || obs->query_head_used[h])
                score[h * N + i] = rows[h * N + i];
            else
                score[h * N + i] = NAN; /* so that a head that does not count is seen if it does */
    return WNW_OK;
}

static int give_kv_rows(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    memcpy(score, rows, (size_t)obs->n_head_kv * N * sizeof *score);
    return WNW_OK;
}

static const wnw_scorer query_heads = {
    .part = {WNW_SCORER_INIT, .name = "query_heads", .flags = WNW_FLAG_QUERY_HEADS}, .score = give_rows};
static const wnw_scorer kv_heads = {.part = {WNW_SCORER_INIT, .name = "kv_heads"}, .score = give_kv_rows};

/* KV head 0 holds positions 0, 2, 4; head 1 holds 2, 3 and a padding entry. */
static const int32_t pos[KV * N] = {0, 2, 4, 2, 3, -1}, n_entry[KV] = {3, 2};
static const float query_rows[H * N] = {1, 2, 3, /**/ 3, 6, 1, /**/ 10, 4, 99, /**/ 2, 8, 99};

static int aggregate(const char *recipe, const wnw_profile *profile, float *out)
{
    wnw_registry *r;
    wnw_policy *p;
    assert_int_equal(wnw_registry_new(&r), WNW_OK);
    assert_int_equal(wnw_registry_add(r, &query_heads.part), WNW_OK);
    assert_int_equal(wnw_registry_add(r, &kv_heads.part), WNW_OK);
    if (wnw_policy_parse(&p, recipe, r) != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
    wnw_registry_free(r);
    const wnw_observation obs = {.n_layer = 1,
                                 .n_head = H,
                                 .n_head_kv = KV,
                                 .n = N,
                                 .n_past = PAST,
                                 .n_entry = n_entry,
                                 .pos = pos,
                                 .profile = profile};
    float *room = malloc((wnw__score_room(p, p->opts[WNW_PART_SCORER], &obs) + 1) * sizeof *room);
    assert_non_null(room);
    const int rc = wnw__score(p, p->opts[WNW_PART_SCORER], &obs, out, room);
    free(room);
    wnw_policy_free(p);
    return rc;
}

/* want[KV][N]; padding is not looked at. */
static void assert_scores(const char *recipe, const wnw_profile *profile, const double *want)
{
    float got[KV * N];
    if (aggregate(recipe, profile, got) != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
    for (int j = 0; j < KV; j++)
        for (int i = 0; i < n_entry[j]; i++)
            if (!(fabs((double)got[j * N + i] - want[j * N + i]) <= 1e-6))
                fail_msg("%s: head %d entry %d is %.7g, expected %.7g", recipe, j, i, (double)got[j * N + i],
                         want[j * N + i]);
}

static void group_mean(void **state)
{
    (void)state;
    rows = query_rows;
    assert_scores("query_heads", NULL, (const double[]){2, 4, 2, 6, 6, 0}); /* what no name means */
    assert_scores("query_heads+group_mean", NULL, (const double[]){2, 4, 2, 6, 6, 0});
    /* Means of the two KV heads at positions 0, 2, 3, 4: 1, (4 + 6) / 2, 3, 1. */
    assert_scores("query_heads+group_mean:cross_head=1", NULL, (const double[]){3, 9, 3, 11, 9, 0});
    /* Heads 0 and 2, heads 1 and 3, entry by entry; the last entry of KV head 0 has no partner. */
    assert_scores("query_heads+group_mean:gqa_bug=1", NULL, (const double[]){5.5, 3, 1.5, 2.5, 7, 0});
}

static void group_max(void **state)
{
    (void)state;
    rows = query_rows;
    assert_scores("query_heads+group_max", NULL, (const double[]){3, 6, 3, 10, 8, 0});
    /* Means of the two KV heads at positions 0, 2, 3, 4: 1.5, (6 + 10) / 2, 4, 1.5. */
    assert_scores("query_heads+group_max:cross_head=1", NULL, (const double[]){4.5, 14, 4.5, 18, 12, 0});
    const float negative[H * N] = {-1, -2, -3, -3, -6, -1, -10, -4, 0, -2, -8, 0};
    rows = negative;
    assert_scores("query_heads+group_max", NULL, (const double[]){-1, -2, -1, -2, -4, 0});
}

static void defensive(void **state)
{
    (void)state;
    rows = query_rows;
    /* Maxima 3, 6, 3 with mean 4; 10, 8 with mean 9. */
    assert_scores("query_heads+defensive:window=0", NULL, (const double[]){4, 6, 4, 10, 9, 0});
    /* Positions 3 and 4 are the window's: means 4.5 and 3; 10 and 8. */
    assert_scores("query_heads+defensive:window=2", NULL, (const double[]){4.5, 6, 3, 10, 8, 0});
}

/* By position: 0 in head 0 only, 2 in both, 3 in head 1 only, 4 in head 0 only. */
static void one_list(void **state)
{
    (void)state;
    rows = query_rows;
    /* (1 + 3) / 4, (2 + 6 + 10 + 2) / 4, (4 + 8) / 4, (3 + 1) / 4 */
    assert_scores("query_heads+layer_mean", NULL, (const double[]){1, 5, 1, 5, 3, 0});
    assert_scores("query_heads+layer_max", NULL, (const double[]){3, 10, 3, 10, 8, 0});
    assert_scores("query_heads+retrieval_heads:heads=all", NULL, (const double[]){1, 5, 1, 5, 3, 0});
    const float kv[KV * N] = {-4, 2, -1, 8, -3, 99};
    rows = kv;
    assert_scores("kv_heads", NULL, (const double[]){-4, 2, -1, 8, -3, 0});
    assert_scores("kv_heads+layer_mean", NULL, (const double[]){-2, 5, -0.5, 5, -1.5, 0});
    assert_scores("kv_heads+layer_max", NULL, (const double[]){-4, 8, -1, 8, -3, 0});
}

static void retrieval_heads(void **state)
{
    (void)state;
    int32_t rank[H] = {2, 0, 3, 1}, copies[H] = {1, 3, 0, 2};
    float copied[H] = {0, 1, 0, 0.5f}, got[KV * N];
    const wnw_profile p = {.model = {.n_layer = 1, .n_head = H, .n_head_kv = KV},
                           .srh_k = 1,
                           .srh_rank = rank,
                           .trad_rank = copies,
                           .trad_mean = copied};
    rows = query_rows;
    assert_scores("query_heads+retrieval_heads", &p, (const double[]){0, 10, 0, 10, 4, 0});
    assert_scores("query_heads+retrieval_heads:k=2", &p, (const double[]){0.5, 6, 1.5, 6, 2, 0});
    assert_scores("query_heads+retrieval_heads:k=2,heads=traditional", &p,
                  (const double[]){1.5, 4, 0.5, 4, 4, 0});
    copied[1] = copied[3] = 0; /* a layer without any: all heads */
    assert_scores("query_heads+retrieval_heads:k=2,heads=traditional", &p,
                  (const double[]){1, 5, 1, 5, 3, 0});
    assert_int_equal(aggregate("query_heads+retrieval_heads", NULL, got), WNW_E_MISMATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(group_mean), cmocka_unit_test(group_max),
                                       cmocka_unit_test(defensive), cmocka_unit_test(one_list),
                                       cmocka_unit_test(retrieval_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
