/* SPDX-License-Identifier: MIT */
/* Content rules: merges and pruned channels by hand, how recipes name them, what the cache becomes. */
#include "asserts.h"
#include "scoring.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_session.h"
#include "plans.h"

/* ---- What the parts write ---- */

enum { N = 5 };

/* One KV head, d = 2. */
static float keys[N][2], values[N][2], attn_sum[2][N], queries[2][2][2];

static const int32_t n_entry = N, pos[N] = {0, 1, 2, 3, 4};
static const wnw_observation obs = {.n_layer = 1,
                                    .n_head = 2,
                                    .n_head_kv = 1,
                                    .n_embd_head = 2,
                                    .n = N,
                                    .n_past = N,
                                    .n_entry = &n_entry,
                                    .pos = pos,
                                    .keys = row_keys,
                                    .values = row_values,
                                    .source = &(struct score_rows){.k = keys[0], .v = values[0]},
                                    .attn_sum = attn_sum[0],
                                    .window_queries = queries[0][0],
                                    .n_window = 2};

static int32_t run_merge(const char *recipe, const int32_t *keep, int32_t n_keep, wnw_merge *out)
{
    wnw_policy *policy = test_policy(recipe);
    const wnw_contents *c = &policy->part[WNW_PART_CONTENTS].contents;
    const void *opts = policy->opts[WNW_PART_CONTENTS];
    const wnw_contents_problem p = {.obs = &obs, .ih = 0, .keep = keep, .n_keep = n_keep, .n = N};
    float *scratch = malloc(((c->scratch ? c->scratch(opts, &obs) : 0) + 1) * sizeof *scratch);
    assert_non_null(scratch);
    const int32_t n = c->merge(opts, &p, out, scratch);
    free(scratch);
    wnw_policy_free(policy);
    return n;
}

static void assert_merge(wnw_merge got, int32_t from, int32_t to, int32_t n_to, double weight)
{
    if (got.from != from || got.to != to || got.n_to != n_to)
        fail_msg("%d into %d from %d on, expected %d into %d from %d on", got.from, got.n_to, got.to, from,
                 n_to, to);
    assert_near((double)got.weight, weight, 1e-6);
}

/* Entries 0 and 3 stay, with keys (2, 0) and (0, 1). Cosines with them, the larger one:
 *     1: (3, 4)  -> 0.6, 0.8: entry 3, 0.8    values |v| = 5, |v_3| = 5: w = 0.8 * 5 / 10 = 0.4
 *     2: (1, 0)  -> 1: entry 0, 1             |v| = 1, |v_0| = 3: w = 1 / 4
 *     4: (-1, 0) -> -1, 0: entry 3, 0         w = 0: not merged
 * exp: e^-0.2, 1, e^-1. The mean of 0.8, 1, 0 is 0.6: entry 4 is out. A similarity of 0.9 leaves entry 2.
 * Half of three: the quantile 0.5 is the middle one, 0.8: two are merged. */
static void merge_by_hand(void **state)
{
    (void)state;
    const float k[N][2] = {{2, 0}, {3, 4}, {1, 0}, {0, 1}, {-1, 0}};
    const float v[N][2] = {{3, 0}, {0, 5}, {1, 0}, {4, 3}, {7, 7}};
    const int32_t keep[] = {0, 3};
    wnw_merge got[N];
    memcpy(keys, k, sizeof k);
    memcpy(values, v, sizeof v);
    assert_int_equal(run_merge("knorm+merge", keep, 2, got), 2);
    assert_merge(got[0], 1, 3, 1, 0.4);
    assert_merge(got[1], 2, 0, 1, 0.25);
    assert_int_equal(run_merge("knorm+merge:weight=exp", keep, 2, got), 3);
    assert_merge(got[0], 1, 3, 1, exp(-0.2));
    assert_merge(got[1], 2, 0, 1, 1);
    assert_merge(got[2], 4, 3, 1, exp(-1));
    assert_int_equal(run_merge("knorm+merge:weight=exp,gate=mean", keep, 2, got), 2);
    assert_merge(got[1], 2, 0, 1, 1);
    assert_int_equal(run_merge("knorm+merge:similarity=0.9", keep, 2, got), 1);
    assert_merge(got[0], 2, 0, 1, 0.25);
    assert_int_equal(run_merge("knorm+merge:weight=exp,fraction=0.5", keep, 2, got), 2);
    assert_merge(got[0], 1, 3, 1, exp(-0.2));
    assert_int_equal(run_merge("knorm+merge:weight=exp,fraction=0.001", keep, 2, got), 1);
    assert_int_equal(run_merge("knorm+merge", keep, 0, got), 0); /* nothing to merge into */
    const int32_t all[] = {0, 1, 2, 3, 4};
    assert_int_equal(run_merge("knorm+merge", all, N, got), 0); /* nothing to merge */
}

/* Attention sums of two query heads, mean A = 4 2 1 8 0 . Entries 1, 2, 4 stay.
 *     0: next two that stay are 1 and 2, mean 1.5: p = 1; weight 1/2
 *     3: only 4 is after it, mean 0: p = 1; weight 1
 * With entries 1 and 3 kept: 0 -> {1, 3}, mean 5, p = 4/5; 2 -> {3}, p = 1/8; 4 has nothing after it. */
static void cam_by_hand(void **state)
{
    (void)state;
    const float a[2][N] = {{8, 1, 1, 10, 0}, {0, 3, 1, 6, 0}};
    const int32_t keep[] = {1, 2, 4}, other[] = {1, 3};
    wnw_merge got[N];
    memcpy(attn_sum, a, sizeof a);
    assert_int_equal(run_merge("knorm+cam:targets=2", keep, 3, got), 2);
    assert_merge(got[0], 0, 1, 2, 0.5);
    assert_merge(got[1], 3, 4, 1, 1);
    assert_int_equal(run_merge("knorm+cam:targets=2,draw=mean", other, 2, got), 2);
    assert_merge(got[0], 0, 1, 2, 0.4);
    assert_merge(got[1], 2, 3, 1, 0.125);
    /* Draws: of many seeds entry 0 is merged in 4 of 5, entry 2 in 1 of 8, and always the same way. */
    int n_first = 0, n_second = 0;
    for (int seed = 0; seed < 4000; seed++) {
        char recipe[64];
        wnw_merge again[N];
        snprintf(recipe, sizeof recipe, "knorm+cam:targets=2,seed=%d", seed);
        const int32_t n = run_merge(recipe, other, 2, got);
        assert_int_equal(run_merge(recipe, other, 2, again), n);
        assert_memory_equal(got, again, (size_t)n * sizeof *got);
        for (int32_t i = 0; i < n; i++) {
            n_first += got[i].from == 0;
            n_second += got[i].from == 2;
            assert_near((double)got[i].weight, got[i].from == 0 ? 0.5 : 1, 0);
        }
    }
    assert_near(n_first / 4000.0, 0.8, 0.03);
    assert_near(n_second / 4000.0, 0.125, 0.03);
}

/* Queries of two heads and two positions: channel 0: 1 1 1 1, channel 1: 0 2 2 0: means of squares 1 and 2.
 * Keys that stay, 0 and 3: channel 0: 3 1, mean 5; channel 1: 1 1, mean 1. Scores 5 and 2: channel 1 goes.
 * With the last query alone (heads 1 and 1; 2 and 0) the same; with keys 1 and 4, (0, 1) and (1, 3): 1/2 and
 * 5 * 2: channel 0. */
static void think_by_hand(void **state)
{
    (void)state;
    const float k[N][2] = {{3, 1}, {0, 1}, {9, 9}, {1, 1}, {1, 3}};
    const float q[2][2][2] = {{{1, 0}, {1, 2}}, {{1, 2}, {1, 0}}};
    static const struct {
        const char *recipe;
        int32_t keep[2], n, channel, spared;
    } rows[] = {
        {"full+think:ratio=0.5,recent=0", {0, 3}, 1, 1, 0},
        {"full+think:ratio=0.5,recent=1,window=1", {0, 3}, 1, 1, 1},
        {"full+think:ratio=0.5,recent=0", {1, 4}, 1, 0, 0},
        {"full+think:ratio=0.4,recent=0", {1, 4}, 0, 0, 0}, /* floor(0.8) = 0 */
        {"full+think:ratio=0.5,recent=2", {1, 4}, 0, 0, 2}, /* all are recent */
    };
    memcpy(keys, k, sizeof k);
    memcpy(queries, q, sizeof q);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        wnw_policy *policy;
        int32_t out[2], n_spared;
        float scratch[2];
        policy = test_policy(rows[r].recipe);
        const wnw_contents_problem p = {.obs = &obs, .keep = rows[r].keep, .n_keep = 2, .n = N};
        assert_int_equal(policy->part[WNW_PART_CONTENTS].contents.prune(policy->opts[WNW_PART_CONTENTS], &p,
                                                                        out, &n_spared, scratch),
                         rows[r].n);
        assert_int_equal(n_spared, rows[r].spared);
        if (rows[r].n > 0)
            assert_int_equal(out[0], rows[r].channel);
        wnw_policy_free(policy);
    }
}

/* ---- Recipes ---- */

static void recipes(void **state)
{
    (void)state;
    wnw_policy *p;
    const char *reason;
    p = test_policy("snapkv+plain");
    assert_lacks(wnw_policy_string(p), "plain"); /* recipes without merging are what they were */
    wnw_policy_free(p);
    p = test_policy("snapkv+merge:fraction=0.75");
    assert_contains(wnw_policy_string(p),
                    "+original+merge:similarity=0,fraction=0.75,weight=norm,gate=fixed");
    assert_int_equal(wnw_policy_needs(p).flags, WNW_NEED_WINDOW_ATTN | WNW_NEED_KEYS | WNW_NEED_VALUES);
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_DECODE; phase++)
        assert_true(wnw_policy_allows(p, (wnw_phase)phase, &reason));
    wnw_policy_free(p);
    p = test_policy("snapkv+think");
    assert_true(wnw_policy_allows(p, WNW_PHASE_LAYER, &reason));
    assert_false(wnw_policy_allows(p, WNW_PHASE_CHUNK, &reason));
    assert_false(wnw_policy_allows(p, WNW_PHASE_DECODE, &reason));
    wnw_policy_free(p);
    p = test_policy("full+think");
    assert_false(wnw_policy_is_full(p)); /* it has work to do */
    assert_true(wnw_policy_has_own_size(p));
    wnw_policy_free(p);
    p = test_policy("full+merge");
    assert_true(wnw_policy_is_full(p)); /* nothing goes */
    wnw_policy_free(p);
    assert_int_equal(wnw_policy_parse(&p, "snapkv+merge+think", NULL), WNW_E_ARG);
    assert_says("both a content rule");
}

/* ---- The cache ---- */

enum { D = 32, ROWS = 6 };

/* Entry i of the one head: key element c is i + c / 8, value element c is 10 i + c / 4. */
static void make_cache(struct wnw__cache *c, wnw_kv_type type)
{
    float k[D], v[D];
    assert_int_equal(wnw__cache_init(c, 1, 1, D, type, 8, NULL), WNW_OK);
    assert_int_equal(wnw__cache_reserve_layer(c, 0, ROWS, true), WNW_OK);
    for (int i = 0; i < ROWS; i++) {
        for (int e = 0; e < D; e++) {
            k[e] = (float)i + (float)e / 8;
            v[e] = 10 * (float)i + (float)e / 4;
        }
        wnw__rows_from_f32(type, k, 1, D, c->layers[0].k + (size_t)i * c->row_bytes);
        wnw__rows_from_f32(type, v, 1, D, c->layers[0].v + (size_t)i * c->row_bytes);
    }
    wnw__cache_commit_layer(c, 0, 0, ROWS);
}

static void read_row(const struct wnw__cache *c, bool key, int32_t i, float *out)
{
    const struct wnw__kv_layer *l = &c->layers[0];
    wnw__rows_to_f32(c->type, (key ? l->k : l->v) + (size_t)i * c->row_bytes, 1, D, out);
}

/* Positions 1, 2 and 4 stay. 0 goes into 1 with weight 1/2, 3 into 2 and 4 with 1/4, 5 into 1 with 1/2.
 * Element 0 of the values: 0 10 20 30 40 50.
 *     sums:     1: 10 + 0 + 25 = 35    2: 20 + 7.5 = 27.5    4: 40 + 7.5 = 47.5
 *     averages: 1: 35 / 2 = 17.5       2: 27.5 / 1.25 = 22   4: 47.5 / 1.25 = 38
 * Channels 0 and 5 of the keys become 0 but in the last entry. */
static void cache_by_hand(void **state)
{
    (void)state;
    static wnw_merge merges[] = {{0, 1, 1, 0.5f}, {3, 2, 2, 0.25f}, {5, 1, 1, 0.5f}};
    static int32_t channels[] = {0, 5};
    const struct wnw__plan_contents contents = {
        .merges = merges, .channels = channels, .n_merge = 3, .n_channel = 2, .n_spared = 1};
    const int32_t index[] = {1, 2, 4}, n_keep = 3, *const keep[] = {index};
    const float sums[] = {35, 27.5f, 47.5f}, averages[] = {17.5f, 22, 38};
    for (int average = 0; average < 2; average++)
        for (int thin = 0; thin < 2; thin++) {
            struct wnw__cache c;
            float row[D];
            make_cache(&c, WNW_KV_F32);
            assert_int_equal(wnw__cache_set_aux(&c, WNW_AUX_PROJ, 1), WNW_OK);
            for (int i = 0; i < ROWS; i++)
                wnw__cache_aux(&c.layers[0], WNW_AUX_PROJ, 0)[i] = (float)i;
            const struct wnw__kept_layer kept = {
                .keep = keep, .n_keep = &n_keep, .n_settled = 1, .contents = &contents, .averages = average};
            assert_int_equal(wnw__rewrite_check(&c, 0, &kept), WNW_OK);
            assert_int_equal(wnw__rewrite_layer(&c, 0, &kept, thin ? 64 : -1), WNW_OK);
            assert_int_equal(c.layers[0].len[0], 3);
            assert_int_equal(c.layers[0].n_settled, 1);
            for (int t = 0; t < 3; t++) {
                read_row(&c, false, t, row);
                assert_near((double)row[0], (double)(average ? averages[t] : sums[t]), 1e-5);
                read_row(&c, true, t, row);
                assert_near((double)row[0], t < 2 ? 0 : index[t], 0);
                assert_near((double)row[5], t < 2 ? 0 : index[t] + 5.0 / 8, 0);
                assert_near((double)row[6], index[t] + 6.0 / 8, 0);
                assert_int_equal(c.layers[0].pos[t], index[t]);
                /* norms of values that changed are not known any more */
                assert_near((double)wnw__cache_aux(&c.layers[0], WNW_AUX_PROJ, 0)[t], -1, 0);
            }
            wnw__cache_free(&c);
        }
}

/* Every type: what is stored is the float32 result in that type, and rows that take nothing in keep their
 * bits. */
static void cache_types(void **state)
{
    (void)state;
    static wnw_merge merges[] = {{0, 2, 1, 0.75f}};
    const struct wnw__plan_contents contents = {.merges = merges, .n_merge = 1};
    const int32_t index[] = {1, 2, 4}, n_keep = 3, *const keep[] = {index};
    for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++) {
        struct wnw__cache c, before;
        float a[D], b[D];
        uint8_t want[4 * D];
        make_cache(&c, (wnw_kv_type)type);
        make_cache(&before, (wnw_kv_type)type);
        const struct wnw__kept_layer kept = {
            .keep = keep, .n_keep = &n_keep, .contents = &contents, .averages = true};
        assert_int_equal(wnw__rewrite_layer(&c, 0, &kept, -1), WNW_OK);
        read_row(&before, false, 2, a);
        read_row(&before, false, 0, b);
        for (int e = 0; e < D; e++)
            a[e] = (a[e] + 0.75f * b[e]) * (1 / 1.75f);
        wnw__rows_from_f32((wnw_kv_type)type, a, 1, D, want);
        assert_memory_equal(c.layers[0].v + c.row_bytes, want, c.row_bytes);
        for (int t = 0; t < 3; t++) {
            if (t != 1)
                assert_memory_equal(c.layers[0].v + (size_t)t * c.row_bytes,
                                    before.layers[0].v + (size_t)index[t] * c.row_bytes, c.row_bytes);
            assert_memory_equal(c.layers[0].k + (size_t)t * c.row_bytes,
                                before.layers[0].k + (size_t)index[t] * c.row_bytes, c.row_bytes);
        }
        wnw__cache_free(&c);
        wnw__cache_free(&before);
    }
}

static void cache_refuses(void **state)
{
    (void)state;
    const int32_t index[] = {1, 2, 4}, n_keep = 3, *const keep[] = {index};
    const wnw_merge bad[] = {{7, 1, 1, 1}, {2, 1, 1, 1}, {0, 3, 1, 1}, {0, 2, 3, 1}, {0, 2, 0, 1}};
    struct wnw__cache c;
    make_cache(&c, WNW_KV_F32);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wnw_merge one = bad[i];
        const struct wnw__plan_contents contents = {.merges = &one, .n_merge = 1};
        const struct wnw__kept_layer kept = {.keep = keep, .n_keep = &n_keep, .contents = &contents};
        assert_int_equal(wnw__rewrite_check(&c, 0, &kept), WNW_E_MISMATCH);
    }
    int32_t channel = D;
    const struct wnw__plan_contents contents = {.channels = &channel, .n_channel = 1};
    const struct wnw__kept_layer kept = {.keep = keep, .n_keep = &n_keep, .contents = &contents};
    assert_int_equal(wnw__rewrite_check(&c, 0, &kept), WNW_E_MISMATCH);
    wnw__cache_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merge_by_hand), cmocka_unit_test(cam_by_hand),   cmocka_unit_test(think_by_hand),
        cmocka_unit_test(recipes),       cmocka_unit_test(cache_by_hand), cmocka_unit_test(cache_types),
        cmocka_unit_test(cache_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
