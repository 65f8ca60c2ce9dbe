/* SPDX-License-Identifier: MIT */
/* R-KV's scores by hand: redundancy, groups of repeats, and what it takes of attention. */
#include "asserts.h"
#include "peek_plan.h"
#include "scoring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_N = 40 };

/* One KV head with two query heads; keys of two elements; the attention of one query. */
struct layer {
    wnw_observation obs;
    float key[MAX_N][2], attn[2 * MAX_N];
    int32_t n_entry, pos[MAX_N];
};

static const float *keys(const wnw_observation *obs, int32_t ih)
{
    const struct layer *l = obs->source;
    (void)ih;
    return l->key[0];
}

static void make(struct layer *l, int32_t n, const float key[][2], const float *attn)
{
    *l = (struct layer){.n_entry = n};
    l->obs = (wnw_observation){.n_layer = 1,
                               .n_head = 2,
                               .n_head_kv = 1,
                               .n_embd_head = 2,
                               .n = n,
                               .n_past = n,
                               .n_entry = &l->n_entry,
                               .pos = l->pos,
                               .n_window = 1,
                               .window_attn = l->attn,
                               .keys = keys,
                               .source = l};
    for (int32_t i = 0; i < n; i++) {
        l->pos[i] = i;
        memcpy(l->key[i], key[i], sizeof l->key[i]);
        l->attn[i] = attn[i];
        l->attn[n + i] = 1 - attn[i];
    }
}

/* Cosines .8 of keys 0 and 1, .6 of 1 and 2, 0 of 0 and 2. Row 0 lets 1 go, row 1 the newer 2, row 2 lets 1 go: what is
 * left is .8 of row 1 for key 0. The mean is .8 / 3, and R = (.394967, .302516, .302516). */
static void by_hand(void **state)
{
    (void)state;
    static struct layer l;
    const float key[][2] = {{2, 0}, {0.4f, 0.3f}, {0, 5}}, attn[] = {0.5f, 0.3f, 0.2f};
    float score[6];
    make(&l, 3, key, attn);
    assert_ok(try_scores("rkv:kernel=1,window=1", &l.obs, score));
    assert_values(score, 1e-6, -0.305470, -0.242265, -0.252265, -0.305470, -0.202265, -0.192265);
    /* With a threshold that nothing reaches all cosines count: means 0.8 / 3, 1.4 / 3, 0.6 / 3. */
    assert_ok(try_scores("rkv:kernel=1,window=1,threshold=1,lambda=0", &l.obs, score));
    const double e[] = {exp(0.8 / 3), exp(1.4 / 3), exp(0.6 / 3)}, sum = e[0] + e[1] + e[2];
    assert_values(score, 1e-6, -e[0] / sum, -e[1] / sum, -e[2] / sum, -e[0] / sum, -e[1] / sum, -e[2] / sum);
    /* Attention alone, pooled: the newest entry is the window's and pooled by itself. */
    assert_ok(try_scores("rkv:kernel=3,window=1,lambda=1", &l.obs, score));
    assert_values(score, 1e-6, 0.5, 0.5, 0.2, 0.7, 0.7, 0.8);
}

/* Of three equal keys the newest is penalised least; a key of length 0 is like no other. */
static void repeats(void **state)
{
    (void)state;
    static struct layer l;
    const float key[][2] = {{1, 1}, {3, 3}, {0, 0}, {2, 2}, {1, -1}}, attn[] = {0, 0, 0, 0, 0};
    float score[10];
    make(&l, 5, key, attn);
    assert_ok(try_scores("rkv:kernel=1,window=1", &l.obs, score));
    /* Row sums of what is left: two for key 0, one for key 1, none for the others. */
    assert_cmp(score[0], <, score[1]);
    assert_cmp(score[1], <, score[3]);
    const double e[] = {exp(0.4), exp(0.2), 1, 1, 1}, sum = e[0] + e[1] + 3;
    for (int i = 0; i < 5; i++)
        assert_near(score[i], -0.9 * e[i] / sum, 1e-6);
}

/* More keys than are multiplied at a time: the same as row by row in double. */
static void many_keys(void **state)
{
    (void)state;
    static struct layer l;
    float key[MAX_N][2], attn[MAX_N] = {0}, score[2 * MAX_N];
    double mean[MAX_N] = {0}, sum = 0;
    for (int i = 0; i < MAX_N; i++) {
        key[i][0] = (float)cos(i * i * 0.37);
        key[i][1] = (float)sin(i * i * 0.37);
    }
    make(&l, MAX_N, (const float(*)[2])key, attn);
    assert_ok(try_scores("rkv:kernel=1,window=1", &l.obs, score));
    for (int i = 0; i < MAX_N; i++) {
        int newest = -1;
        for (int c = 0; c < MAX_N; c++)
            if (c != i && cos((i * i - c * c) * 0.37) > 0.5)
                newest = c;
        for (int c = 0; c < MAX_N; c++)
            mean[c] += c != i && c != newest ? cos((i * i - c * c) * 0.37) / MAX_N : 0;
    }
    for (int c = 0; c < MAX_N; c++)
        sum += exp(mean[c]);
    for (int c = 0; c < MAX_N; c++)
        assert_near(score[c], -0.9 * exp(mean[c]) / sum, 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(repeats),
                                       cmocka_unit_test(many_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
