/* SPDX-License-Identifier: MIT */
/*
 * LagKV and its variants on plain arrays: scores against hand-computed numbers, lengths against the paper's
 * formula, and the recursion through the driver: what survives depends on the tokens alone, not on how they
 * came. (arXiv 2504.04704, eq. 6 - 16.)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"
#include "plans.h"
#include "random.h"

/* ---- Rows of a made-up model ---- */

enum { MAX_N = 33000, MAX_HEAD = 2, MAX_LAYER = 3, MAX_D = 8 };

/* A cache of indices into rows that never change: entry -> position. */
struct toy {
    struct wnw__plan_source src; /* first: the callbacks get its address */
    int32_t n_past, d;
    float *k, *v; /* [n_head_kv][MAX_N][d] */
    int32_t n_settled[MAX_LAYER];
    int32_t len[MAX_LAYER][MAX_HEAD];
    int32_t *pos[MAX_LAYER][MAX_HEAD]; /* [MAX_N] */
    int32_t *flat;                     /* [n_head_kv][n] of the current layer */
    int64_t off[MAX_HEAD];             /* of each head in it */
    float *rows;
    int32_t il, first_read; /* layer observed; lowest entry whose rows were asked for */
    int32_t peak;
};

static struct toy *toy_of(const struct wnw__plan_source *src)
{
    return (struct toy *)(uintptr_t)src;
}

/* Lists the entries of all heads, one head after the other. */
static void flatten(struct toy *t, int32_t il)
{
    int64_t at = 0;
    for (int32_t ih = 0; ih < t->src.shape.n_head_kv; ih++) {
        t->off[ih] = at;
        memcpy(t->flat + at, t->pos[il][ih], (size_t)t->len[il][ih] * sizeof *t->flat);
        at += t->len[il][ih];
    }
}

static struct wnw__plan_layer toy_layer(const struct wnw__plan_source *src, int32_t il)
{
    struct toy *t = toy_of(src);
    flatten(t, il);
    return (struct wnw__plan_layer){
        .n_entry = t->len[il], .pos = t->flat, .off = t->off, .n_settled = t->n_settled[il]};
}

static const float *gather(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count, bool keys)
{
    struct toy *t = obs->source;
    const float *from = (keys ? t->k : t->v) + (size_t)ih * MAX_N * (size_t)t->d;
    assert_in_range(first, 0, obs->n_entry[ih]);
    assert_cmp(first + count, <=, obs->n_entry[ih]);
    t->first_read = first < t->first_read ? first : t->first_read;
    for (int32_t i = 0; i < count; i++)
        memcpy(t->rows + (size_t)i * (size_t)t->d, from + (size_t)t->pos[t->il][ih][first + i] * (size_t)t->d,
               (size_t)t->d * sizeof *from);
    return t->rows;
}

static const float *key_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count)
{
    return gather(obs, ih, first, count, true);
}

static const float *value_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count)
{
    return gather(obs, ih, first, count, false);
}

static const float *all_keys(const wnw_observation *obs, int32_t ih)
{
    return gather(obs, ih, 0, obs->n_entry[ih], true);
}

static const float *all_values(const wnw_observation *obs, int32_t ih)
{
    return gather(obs, ih, 0, obs->n_entry[ih], false);
}

static int toy_observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                       const bool *heads, wnw_observation *obs)
{
    struct toy *t = toy_of(src);
    (void)heads;
    const int32_t n = t->len[il][0];
    t->il = il;
    for (int32_t ih = 0; ih < src->shape.n_head_kv; ih++)
        assert_int_equal(t->len[il][ih], n); /* LagKV's heads have one length */
    flatten(t, il);
    *obs = (wnw_observation){.il = il,
                             .n_layer = src->shape.n_layer,
                             .n_head = src->shape.n_head,
                             .n_head_kv = src->shape.n_head_kv,
                             .n_embd_head = t->d,
                             .n = n,
                             .n_past = src->n_past,
                             .n_entry = t->len[il],
                             .pos = t->flat,
                             .source = t};
    if (needs->flags & WNW_NEED_KEYS) {
        obs->keys = all_keys;
        obs->key_rows = key_rows;
    }
    if (needs->flags & WNW_NEED_VALUES) {
        obs->values = all_values;
        obs->value_rows = value_rows;
    }
    return WNW_OK;
}

static void toy_init(struct toy *t, int32_t n_layer, int32_t n_head_kv, int32_t d)
{
    uint32_t seed = 5;
    *t = (struct toy){
        .src = {.shape = {.n_layer = n_layer, .n_head = n_head_kv, .n_head_kv = n_head_kv, .d = d},
                .entry_bytes = {.each = 16},
                .layer = toy_layer,
                .observe = toy_observe},
        .d = d,
        .first_read = INT32_MAX};
    const size_t n = (size_t)n_head_kv * MAX_N * (size_t)d;
    t->k = malloc(n * sizeof *t->k);
    t->v = malloc(n * sizeof *t->v);
    t->rows = malloc(n * sizeof *t->rows);
    t->flat = malloc((size_t)n_head_kv * MAX_N * sizeof *t->flat);
    assert_non_null(t->k);
    assert_non_null(t->v);
    assert_non_null(t->rows);
    assert_non_null(t->flat);
    for (size_t i = 0; i < n; i++) {
        t->k[i] = test_uniform(&seed) - 0.5f;
        t->v[i] = test_uniform(&seed) - 0.5f;
    }
    for (int32_t il = 0; il < n_layer; il++)
        for (int32_t ih = 0; ih < n_head_kv; ih++) {
            t->pos[il][ih] = malloc(MAX_N * sizeof *t->pos[il][ih]);
            assert_non_null(t->pos[il][ih]);
        }
}

static void toy_free(struct toy *t)
{
    free(t->k);
    free(t->v);
    free(t->rows);
    free(t->flat);
    for (int32_t il = 0; il < t->src.shape.n_layer; il++)
        for (int32_t ih = 0; ih < t->src.shape.n_head_kv; ih++)
            free(t->pos[il][ih]);
}

static void toy_append(struct toy *t, int32_t n)
{
    for (int32_t il = 0; il < t->src.shape.n_layer; il++)
        for (int32_t ih = 0; ih < t->src.shape.n_head_kv; ih++) {
            for (int32_t i = 0; i < n; i++)
                t->pos[il][ih][t->len[il][ih]++] = t->n_past + i;
            t->peak = t->len[il][ih] > t->peak ? t->len[il][ih] : t->peak;
        }
    t->n_past += n;
    t->src.n_past = t->n_past;
}

/* Keeps what the plan says, and frees it. */
static void toy_take(struct toy *t, wnw_plan *plan)
{
    for (int32_t il = 0; il < t->src.shape.n_layer; il++) {
        for (int32_t ih = 0; ih < t->src.shape.n_head_kv; ih++) {
            const int32_t *kept;
            t->len[il][ih] = wnw_plan_head(plan, il, ih, &kept);
            memcpy(t->pos[il][ih], kept, (size_t)t->len[il][ih] * sizeof *kept);
        }
        t->n_settled[il] = plan->n_settled[il];
    }
    wnw_plan_free(plan);
}

static void toy_compress(struct toy *t, const wnw_policy *p, const wnw_size *size)
{
    wnw_plan *plan = NULL;
    wnw_report r = {WNW_INIT(wnw_report)};
    if (wnw__plan_make(&plan, p, size, &t->src, &r) != WNW_OK)
        fail_msg("%s", wnw_last_error());
    toy_take(t, plan);
}

/* ---- Scores ---- */

static const float golden_k[9][3] = {{9, 9, 9}, {1, 2, 3}, {2, 0, 1}, {0, 1, 0}, {3, 3, 3},
                                     {0, 0, 0}, {2, 4, 1}, {1, 1, 4}, {4, 2, 2}};
static const float golden_v[9][3] = {{5, 5, 5}, {0, 1, 0}, {1, 1, 1}, {2, 0, 2}, {0, 0, 4},
                                     {0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 4}};

/* Scores of entries 1..4 of nine, S = 1, L = 4, d = 3. */
static void golden_scores(const char *options, const float *k, const float *v, float out[4])
{
    char recipe[96];
    struct toy t;
    wnw_observation obs;
    float score[9], scratch[16];
    snprintf(recipe, sizeof recipe, "%s", options);
    wnw_policy *p = test_policy(recipe);
    const wnw_scorer *scorer = &p->part[WNW_PART_SCORER].scorer;
    const void *opts = p->opts[WNW_PART_SCORER];
    wnw_needs needs = {0};
    scorer->part.needs(opts, &needs);
    toy_init(&t, 1, 1, 3);
    memcpy(t.k, k, 27 * sizeof *k);
    memcpy(t.v, v, 27 * sizeof *v);
    toy_append(&t, 9);
    toy_observe(&t.src, 0, &needs, NULL, &obs);
    assert_cmp((scorer->scratch ? scorer->scratch(opts, &obs) : 0), <=, 16);
    assert_int_equal(scorer->score(opts, &obs, score, scratch), WNW_OK);
    memcpy(out, score + 1, 4 * sizeof *out);
    toy_free(&t);
    wnw_policy_free(p);
}

static void scores_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        double want[4];
    } row[] = {
        {"lagkv:sink=1,lag=4", {0.497298, 0.466997, 0.523091, 0.512614}},
        {"lagkv:sink=1,lag=4,use=key", {0.271848, 0.271848, 0.244589, 0.211715}},
        {"lagkv:sink=1,lag=4,wv=0", {0.271848, 0.271848, 0.244589, 0.211715}},
        {"lagkv:sink=1,lag=4,use=value", {0.225450, 0.195149, 0.278502, 0.300899}},
        {"localkv:sink=1,lag=4,use=key", {0.278931, 0.278931, 0.242276, 0.199862}},
        {"localkv:sink=1,lag=4,use=value", {0.266808, 0.219436, 0.246948, 0.266808}},
        {"localkv:sink=1,lag=4", {0.545739, 0.498367, 0.489224, 0.466670}},
        {"l2norm:sink=1,lag=4", {-3.741657, -2.236068, -1.0, -5.196152}},
        {"l2norm:sink=1,lag=4,low=0", {3.741657, 2.236068, 1.0, 5.196152}},
        /* ||V|| = 1, sqrt 3, sqrt 8, 4 */
        {"l2norm:sink=1,lag=4,wv=2", {-5.741657, -5.700169, -6.656854, -13.196152}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        float got[4];
        golden_scores(row[i].recipe, &golden_k[0][0], &golden_v[0][0], got);
        for (int t = 0; t < 4; t++)
            if (fabs((double)got[t] - row[i].want[t]) > 1e-6 * fmax(1, fabs(row[i].want[t])))
                fail_msg("%s, token %d: %.7f, expected %.7f", row[i].recipe, t, (double)got[t],
                         row[i].want[t]);
    }
}

/* What survives of the golden block, k = 2. */
static void survivors_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        int32_t a, b;
    } row[] = {
        {"lagkv:sink=1,lag=4", 3, 4},         {"lagkv:sink=1,lag=4,use=key", 1, 2},
        {"localkv:sink=1,lag=4", 1, 2},       {"lagkv:sink=1,lag=4,use=value", 3, 4},
        {"l2norm:sink=1,lag=4,skip=0", 2, 3},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct toy t;
        wnw_policy *p = test_policy(row[i].recipe);
        toy_init(&t, 1, 1, 3);
        memcpy(t.k, golden_k, sizeof golden_k);
        memcpy(t.v, golden_v, sizeof golden_v);
        toy_append(&t, 9);
        toy_compress(&t, p, NULL);
        const int32_t want[] = {0, row[i].a, row[i].b, 5, 6, 7, 8};
        assert_int_equal(t.len[0][0], 7);
        assert_memory_equal(t.pos[0][0], want, sizeof want);
        assert_int_equal(t.n_settled[0], 3);
        toy_free(&t);
        wnw_policy_free(p);
    }
}

/* A channel that is constant in the reference adds the same to every token: scores are finite, and what the
 * other channels say decides. */
static void constant_channels(void **state)
{
    (void)state;
    float k[27], got[4];
    memcpy(k, golden_k, sizeof k);
    for (int t = 0; t < 9; t++)
        k[3 * t + 1] = t < 5 ? (float)t * 100 : 7;
    golden_scores("lagkv:sink=1,lag=4,use=key", k, &golden_v[0][0], got);
    double sum = 0;
    for (int t = 0; t < 4; t++) {
        assert_true(isfinite(got[t]));
        sum += (double)got[t];
    }
    assert_float_equal(sum, 1, 1e-6);
    /* All channels constant: nothing is known, everything is equal. */
    for (int i = 15; i < 27; i++)
        k[i] = 1;
    golden_scores("lagkv:sink=1,lag=4,use=key", k, &golden_v[0][0], got);
    for (int t = 0; t < 4; t++)
        assert_float_equal((double)got[t], 0.25, 1e-6);
}

/* ---- Lengths ---- */

static int32_t formula(int32_t n, int32_t sink, int32_t lag, int32_t k)
{
    const int32_t nb = (n - sink) / lag, m = (n - sink) % lag;
    return n < sink + 2 * lag ? n : sink + k * (nb - 1) + lag + m;
}

/* Through the driver, at once and in two halves. */
static void lengths_of_the_formula(void **state)
{
    (void)state;
    static const struct {
        int32_t n, s, l;
        const char *r;
        int32_t k, kept;
    } row[] = {
        {700, 16, 1024, "0.5", 512, 700},
        {2063, 16, 1024, "0.5", 512, 2063},
        {2064, 16, 1024, "0.5", 512, 1552},
        {8192, 16, 1024, "0.5", 512, 5120},
        {8192, 16, 1024, "0.25", 256, 3584},
        {8192, 16, 1024, "0.167", 171, 3074},
        {8192, 16, 1024, "0.125", 128, 2816},
        {8192, 16, 512, "0.25", 128, 2816},
        {8192, 16, 128, "0.125", 16, 1248},
        {32768, 16, 1024, "0.125", 128, 5888},
        {32768, 16, 128, "0.125", 16, 4320},
        {1000, 16, 64, "0.25", 16, 328},
        {1000, 16, 64, "0.001", 1, 16 + 14 + 64 + 24},
        {1000, 16, 64, "1", 64, 1000},
        {9, 1, 1, "0.5", 1, 9},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int halves = 1; halves <= 2; halves++) {
            char recipe[96];
            struct toy t;
            snprintf(recipe, sizeof recipe, "lagkv:sink=%d,lag=%d,retain=%s", row[i].s, row[i].l, row[i].r);
            wnw_policy *p = test_policy(recipe);
            toy_init(&t, 1, 1, 2);
            for (int h = 0; h < halves; h++) {
                toy_append(&t, h ? row[i].n - row[i].n / 2 : row[i].n / halves);
                toy_compress(&t, p, NULL);
            }
            assert_int_equal(t.len[0][0], row[i].kept);
            assert_int_equal(t.len[0][0], formula(row[i].n, row[i].s, row[i].l, row[i].k));
            const int32_t nb = (row[i].n - row[i].s) / row[i].l;
            assert_int_equal(t.n_settled[0], nb < 2 ? row[i].s : row[i].s + row[i].k * (nb - 1));
            toy_free(&t);
            wnw_policy_free(p);
        }
}

/* ---- The recursion ---- */

/* Feeds pieces as listed, the last one again and again, n tokens in all. */
static void feed(struct toy *t, const wnw_policy *p, const int32_t *pieces, int32_t n_piece, int32_t n)
{
    for (int32_t i = 0; t->n_past < n; i++) {
        const int32_t piece = pieces[i < n_piece ? i : n_piece - 1];
        toy_append(t, piece < n - t->n_past ? piece : n - t->n_past);
        toy_compress(t, p, NULL);
    }
}

static void any_schedule_gives_the_same_survivors(void **state)
{
    (void)state;
    static const char *const recipes[] = {
        "lagkv:sink=16,lag=64,retain=0.25",
        "localkv:sink=16,lag=64,retain=0.25",
        "l2norm:sink=16,lag=64,skip=0,retain=0.25",
        "lagkv:sink=0,lag=64,retain=0.26",
    };
    static const struct {
        int32_t pieces[4];
        int32_t n_piece, peak; /* peak with 16 sinks; 0 = not checked */
    } schedule[] = {
        {{1000}, 1, 1000}, {{1}, 1, 352},      {{144, 64}, 2, 352},     {{700, 1}, 2, 700},
        {{37}, 1, 0},      {{200, 999}, 2, 0}, {{5, 333, 2, 70}, 4, 0},
    };
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
        struct toy first = {0};
        for (size_t s = 0; s < sizeof schedule / sizeof *schedule; s++) {
            struct toy t;
            wnw_policy *p = test_policy(recipes[r]);
            toy_init(&t, 2, MAX_HEAD, MAX_D);
            feed(&t, p, schedule[s].pieces, schedule[s].n_piece, 1000);
            if (r < 3) {
                assert_int_equal(t.len[0][0], 328);
                if (schedule[s].peak)
                    assert_int_equal(t.peak, schedule[s].peak);
            }
            if (s == 0) {
                first = t;
            } else {
                for (int32_t il = 0; il < 2; il++) {
                    assert_int_equal(t.n_settled[il], first.n_settled[il]);
                    for (int32_t ih = 0; ih < MAX_HEAD; ih++) {
                        assert_int_equal(t.len[il][ih], first.len[il][ih]);
                        assert_memory_equal(t.pos[il][ih], first.pos[il][ih],
                                            (size_t)t.len[il][ih] * sizeof(int32_t));
                    }
                }
                toy_free(&t);
            }
            wnw_policy_free(p);
        }
        /* Sinks and tail are whole; heads differ. */
        const int32_t sink = r < 3 ? 16 : 0, tail = 1000 - (1000 - sink) % 64 - 64;
        for (int32_t i = 0; i < sink; i++)
            assert_int_equal(first.pos[0][1][i], i);
        for (int32_t i = 0; i < 1000 - tail; i++)
            assert_int_equal(first.pos[0][1][first.len[0][1] - 1 - i], 999 - i);
        assert_memory_not_equal(first.pos[0][0], first.pos[0][1], (size_t)first.len[0][0] * sizeof(int32_t));
        toy_free(&first);
    }
}

/* The settled prefix is not even read. */
static void settled_rows_are_left_alone(void **state)
{
    (void)state;
    struct toy t;
    wnw_policy *p = test_policy("lagkv:sink=16,lag=64,retain=0.25");
    toy_init(&t, 1, 1, 4);
    toy_append(&t, 1000);
    toy_compress(&t, p, NULL);
    assert_int_equal(t.first_read, 16);
    assert_int_equal(t.n_settled[0], 16 + 14 * 16);
    toy_append(&t, 40); /* 24 + 40 = 64: one more block */
    t.first_read = INT32_MAX;
    toy_compress(&t, p, NULL);
    assert_int_equal(t.first_read, 240);
    assert_int_equal(t.n_settled[0], 256);
    assert_int_equal(t.len[0][0], formula(1040, 16, 64, 16));
    toy_free(&t);
    wnw_policy_free(p);
}

/* A size asked for later thins what is not settled; settled entries do not age. */
static void later_sizes_keep_what_is_settled(void **state)
{
    (void)state;
    struct toy t;
    int32_t before[MAX_N];
    wnw_policy *p = test_policy("lagkv:sink=16,lag=64,retain=0.25");
    const wnw_size small = {.kind = WNW_SIZE_BUDGET, .budget = 50};
    toy_init(&t, 1, 1, 4);
    toy_append(&t, 1000); /* 16 + 15 x 64 + 24: 16 + 14 x 16 = 240 settled, 88 after them */
    toy_compress(&t, p, NULL);
    memcpy(before, t.pos[0][0], 328 * sizeof *before);
    toy_compress(&t, p, &small);
    assert_int_equal(t.len[0][0], 328);
    assert_int_equal(t.n_settled[0], 240);
    assert_memory_equal(t.pos[0][0], before, 328 * sizeof *before);
    toy_append(&t, 104); /* 192 = 3 x 64 after: two blocks have no room, and keep one entry each */
    toy_compress(&t, p, &small);
    assert_int_equal(t.len[0][0], 240 + 2 + 64);
    assert_int_equal(t.n_settled[0], 242);
    assert_memory_equal(t.pos[0][0], before, 240 * sizeof *before);
    assert_in_range(t.pos[0][0][240], 912, 975);
    assert_in_range(t.pos[0][0][241], 976, 1039);
    assert_int_equal(t.pos[0][0][242], 1040);
    toy_free(&t);
    wnw_policy_free(p);
}

/* Skipped layers keep everything and have nothing settled. */
static void skipped_layers_stay_whole(void **state)
{
    (void)state;
    struct toy t;
    wnw_policy *p = test_policy("l2norm:sink=4,lag=32,skip=2,retain=0.5");
    const wnw_size half = {.kind = WNW_SIZE_BUDGET, .budget = 150};
    toy_init(&t, 3, 2, 4);
    toy_append(&t, 300);
    toy_compress(&t, p, NULL);
    for (int32_t il = 0; il < 2; il++) {
        assert_int_equal(t.len[il][1], 300);
        assert_int_equal(t.n_settled[il], 0);
        for (int32_t i = 0; i < 300; i++)
            assert_int_equal(t.pos[il][1][i], i);
    }
    assert_int_equal(t.len[2][0], formula(300, 4, 32, 16));
    toy_free(&t);
    /* A size counts the others. */
    toy_init(&t, 3, 2, 4);
    toy_append(&t, 300);
    toy_compress(&t, p, &half);
    assert_int_equal(t.len[1][0], 300);
    assert_in_range(t.len[2][0], 150 - 8, 150);
    toy_free(&t);
    wnw_policy_free(p);
}

/* ---- Retention for a size ---- */

/* r = (n (1 - C) - S - L - m) / (L (N - 1)): k = 95, 62, 30, 14 of 128 for 16384 tokens. */
static void retention_for_a_ratio(void **state)
{
    (void)state;
    static const int32_t sinks[] = {4, 16};
    static const struct {
        double c;
        int32_t k;
    } row[] = {{0.25, 95}, {0.5, 62}, {0.75, 30}, {0.875, 14}};
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            char recipe[64], warning[WNW_WARNING_SIZE] = "";
            struct toy t;
            wnw_policy *fixed;
            snprintf(recipe, sizeof recipe, "lagkv:sink=%d,lag=128", sinks[s]);
            wnw_policy *p = test_policy(recipe);
            const int32_t n_keep = wnw__round_count(16384 * (1 - row[i].c), WNW_ROUND_EXACT);
            const struct wnw__due due = {.n = 16384, .n_keep = n_keep, .strict = true};
            assert_int_equal(wnw__policy_fix_size(&fixed, p, &due, warning), WNW_OK);
            assert_non_null(fixed);
            assert_string_equal(warning, "");
            toy_init(&t, 1, 1, 2);
            feed(&t, fixed, (const int32_t[]){1000}, 1, 16384);
            assert_int_equal(t.len[0][0], formula(16384, sinks[s], 128, row[i].k));
            assert_cmp(t.len[0][0], <=, n_keep);
            toy_free(&t);
            wnw_policy_free(fixed);
            wnw_policy_free(p);
        }
}

static void retention_that_cannot_be(void **state)
{
    (void)state;
    char warning[WNW_WARNING_SIZE] = "";
    wnw_policy *p = test_policy("lagkv:sink=16,lag=128"), *fixed;
    struct wnw__due due = {.n = 600, .n_keep = 218, .strict = true};
    /* 16 + 128 + 72 = 216 of 600 are never touched, and each of 3 blocks keeps an entry. */
    assert_int_equal(wnw__policy_fix_size(&fixed, p, &due, warning), WNW_E_RANGE);
    assert_null(fixed);
    assert_says("allow at least 219");
    due.n_keep = 219;
    assert_int_equal(wnw__policy_fix_size(&fixed, p, &due, warning), WNW_OK);
    assert_string_equal(warning, "");
    wnw_policy_free(fixed);
    /* A ratio that cannot be reached: k = 1, and blocks and sinks as they are. */
    due.n_keep = 100;
    due.strict = false;
    assert_int_equal(wnw__policy_fix_size(&fixed, p, &due, warning), WNW_OK);
    assert_contains(warning, "keeps 219 of 600: the first 16, one of each of 3 blocks and the last 200");
    assert_int_equal(wnw__policy_blocks(fixed, 0).lag, 128);
    assert_int_equal(wnw__policy_blocks(fixed, 0).sink, 16);
    struct toy t;
    toy_init(&t, 1, 1, 2);
    toy_append(&t, 600);
    toy_compress(&t, fixed, NULL);
    assert_int_equal(t.len[0][0], 219);
    toy_free(&t);
    wnw_policy_free(fixed);
    /* One token short of S + 2 L = 272. */
    *warning = '\0';
    due = (struct wnw__due){.n = 271, .n_keep = 136};
    assert_int_equal(wnw__policy_fix_size(&fixed, p, &due, warning), WNW_OK);
    assert_null(fixed);
    assert_contains(warning, "keeps all 271");
    /* 80 are settled: 536 = 80 + 3 x 128 + 72, k = (300 - 80 - 128 - 72) / 2 = 10. */
    *warning = '\0';
    due = (struct wnw__due){.n = 536, .n_settled = 80, .n_keep = 300, .strict = true};
    assert_int_equal(wnw__policy_fix_size(&fixed, p, &due, warning), WNW_OK);
    const wnw_blocks b = wnw__policy_blocks(fixed, 80);
    assert_int_equal(fixed->part[WNW_PART_SELECTOR].selector.recursive->own_size(
                         fixed->opts[WNW_PART_SELECTOR], &b, 536, WNW_ROUND_EXACT),
                     300);
    wnw_policy_free(fixed);
    /* Settled entries are no reason to refuse a turn. */
    due.n_keep = 100;
    assert_int_equal(wnw__policy_fix_size(&fixed, p, &due, warning), WNW_OK);
    assert_contains(warning, "keeps 282 of 536");
    wnw_policy_free(fixed);
    wnw_policy_free(p);
}

/* ---- No block loses everything ---- */

/* What one compression must leave of n entries under a policy whose blocks were asked for with these sinks and
 * lag: blocks of one length, k >= 1 of each but the last, and as much as fits into the size. */
static void assert_blocks(const struct toy *t, int32_t n, int32_t n_keep, int32_t sink, int32_t lag,
                          const char *warning, const char *recipe)
{
    const char *shrunk = strstr(warning, "shrink to "), *more = strstr(warning, "even with ");
    if (shrunk)
        assert_int_equal(sscanf(shrunk, "shrink to %d after the first %d", &lag, &sink), 2);
    else if (more)
        assert_int_equal(sscanf(more, "even with blocks of %d after the first %d", &lag, &sink), 2);
    else
        assert_string_equal(warning, "");
    const int32_t nb = (n - sink) / lag, m = (n - sink) % lag, whole = sink + lag + m;
    int32_t at_entry = sink;
    if (nb < 2) { /* only where no blocks are short enough for two of them */
        assert_non_null(more);
        assert_int_equal(t->len[0][0], n);
        return;
    }
    const int32_t room = (n_keep - whole) / (nb - 1), k = more ? 1 : room < lag ? room : lag;
    if (k < 1 || (more && whole + nb - 1 <= n_keep) || t->len[0][0] != whole + k * (nb - 1))
        fail_msg("%s: %d of %d, %d asked for, blocks of %d after %d: k = %d", recipe, t->len[0][0], n, n_keep,
                 lag, sink, k);
    for (int32_t b = 0; b < nb - 1; b++)
        for (int32_t i = 0; i < k; i++, at_entry++)
            assert_in_range(t->pos[0][0][at_entry], sink + b * lag, sink + (b + 1) * lag - 1);
    for (int32_t i = 0; i < lag + m; i++)
        assert_int_equal(t->pos[0][0][t->len[0][0] - 1 - i], n - 1 - i);
}

static void no_block_loses_everything(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        int32_t sink, lag;
    } row[] = {{"lagkv", 16, 128},
               {"lagkv:sink=0,lag=32", 0, 32},
               {"localkv:sink=4,lag=100", 4, 100},
               {"l2norm:skip=0,lag=64", 16, 64}};
    static const int32_t lengths[] = {20, 40, 271, 272, 273, 399, 400, 527, 528, 600, 850, 1000, 1999, 2065};
    int32_t n_refused = 0, n_shrunk = 0, n_plain = 0, n_more = 0;
    for (size_t r = 0; r < sizeof row / sizeof *row; r++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (int32_t c = 1; c < 44; c++) {
                const int32_t n = lengths[l];
                /* 21 ratios, then 22 budgets, the smaller ones dense around what the blocks need */
                const wnw_size size = c < 22
                                          ? (wnw_size){.kind = WNW_SIZE_RATIO,
                                                       .ratio = c < 20   ? c / 20.0
                                                                : c < 21 ? 0.97
                                                                         : 0.99}
                                          : (wnw_size){.kind = WNW_SIZE_BUDGET,
                                                       .budget = c < 33 ? n * (c - 21) / 12 : 210 + c - 33};
                const int32_t n_keep = size.kind == WNW_SIZE_RATIO
                                           ? wnw__round_count(n * (1 - size.ratio), WNW_ROUND_EXACT)
                                           : (int32_t)size.budget;
                if (n_keep < 1 || n_keep >= n)
                    continue;
                struct toy t;
                wnw_plan *plan = NULL;
                wnw_report report = {WNW_INIT(wnw_report)};
                wnw_policy *p = test_policy(row[r].recipe);
                toy_init(&t, 1, 1, 2);
                toy_append(&t, n);
                const int rc = wnw__plan_make(&plan, p, &size, &t.src, &report);
                if (rc == WNW_OK) {
                    toy_take(&t, plan);
                    assert_blocks(&t, n, n_keep, row[r].sink, row[r].lag, report.warning, row[r].recipe);
                    n_shrunk += strstr(report.warning, "shrink to ") != NULL;
                    n_more += strstr(report.warning, "even with ") != NULL;
                    n_plain += report.warning[0] == '\0';
                } else {
                    assert_int_equal(rc, WNW_E_RANGE);
                    assert_int_equal(size.kind, WNW_SIZE_BUDGET);
                    assert_says("allow at least");
                    n_refused++;
                }
                toy_free(&t);
                wnw_policy_free(p);
            }
    assert_cmp(n_refused, >, 50);
    assert_cmp(n_shrunk, >, 50);
    assert_cmp(n_plain, >, 50);
    assert_cmp(n_more, >, 20);
}

/* 850 = 16 + 6 x 128 + 66: a quarter, 212, is 2 more than sinks and tail, for 5 blocks. */
static void blocks_shrink_before_they_lose_everything(void **state)
{
    (void)state;
    struct toy t;
    wnw_plan *plan = NULL;
    wnw_report report = {WNW_INIT(wnw_report)};
    wnw_policy *p = test_policy("lagkv");
    wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.75};
    toy_init(&t, 1, 1, 2);
    toy_append(&t, 850);
    assert_int_equal(wnw__plan_make(&plan, p, &size, &t.src, &report), WNW_OK);
    assert_contains(report.warning, "blocks shrink to 64 after the first 16");
    toy_take(&t, plan); /* 834 = 13 x 64 + 2: k = (212 - 16 - 64 - 2) / 12 = 10 */
    assert_int_equal(t.len[0][0], 16 + 12 * 10 + 64 + 2);
    toy_free(&t);
    /* A budget is not changed: 214 is too little, 215 one entry of each block. */
    toy_init(&t, 1, 1, 2);
    toy_append(&t, 850);
    size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 214};
    assert_int_equal(wnw__plan_make(&plan, p, &size, &t.src, &report), WNW_E_RANGE);
    assert_says("the first 16 and the last 194 of 850 entries and one of each of 5 blocks");
    assert_says("allow at least 215");
    size.budget = 215;
    toy_compress(&t, p, &size);
    assert_int_equal(t.len[0][0], 215);
    assert_int_equal(t.n_settled[0], 16 + 5);
    toy_free(&t);
    /* No blocks are small enough. Of 100 entries those of 8 without sinks leave one of 11 and 8 + 4 at the end, 23;
     * of 16 it is 5 + 16 + 4 = 25, of 4 it is 24 + 4 = 28. With 2 sinks it is 2 + 11 + 8 + 2 = 23 too, and with 4
     * sinks 4 + 11 + 8 = 23: sinks are given up last. */
    toy_init(&t, 1, 1, 2);
    toy_append(&t, 100);
    size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.97};
    assert_int_equal(wnw__plan_make(&plan, p, &size, &t.src, &report), WNW_OK);
    assert_contains(report.warning,
                    "leaves 3 entries per head, but lagkv keeps 23 of 100 even with blocks of 8 "
                    "after the first 4");
    toy_take(&t, plan);
    assert_int_equal(t.len[0][0], 23);
    toy_free(&t);
    /* Seven entries are no two blocks of 4. */
    toy_init(&t, 1, 1, 2);
    toy_append(&t, 7);
    assert_int_equal(wnw__plan_make(&plan, p, &size, &t.src, &report), WNW_OK);
    assert_contains(report.warning, "keeps 7 of 7");
    toy_take(&t, plan);
    assert_int_equal(t.len[0][0], 7);
    toy_free(&t);
    wnw_policy_free(p);
}

/* kvpress' form: exactly what was asked for, recursion off. */
static void kvpress_form(void **state)
{
    (void)state;
    wnw_policy *p = test_policy("kvpress-lagkv");
    assert_false(wnw__policy_is_recursive(p));
    for (int32_t n = 5; n < 700; n += 31)
        for (int c = 1; c < 10; c++) {
            struct toy t;
            const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = c / 10.0};
            const int32_t want = (int32_t)(n * (1 - c / 10.0));
            toy_init(&t, 1, 1, 4);
            toy_append(&t, n);
            toy_compress(&t, p, &size);
            assert_int_equal(t.len[0][0], want < 1 ? 1 : want);
            for (int32_t i = 0; n < 4 + 128 && i < t.len[0][0]; i++) /* sinks and the most recent */
                assert_int_equal(t.pos[0][0][i], i < 4 ? i : n - t.len[0][0] + i);
            toy_free(&t);
        }
    wnw_policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_by_hand),
        cmocka_unit_test(survivors_by_hand),
        cmocka_unit_test(constant_channels),
        cmocka_unit_test(lengths_of_the_formula),
        cmocka_unit_test(any_schedule_gives_the_same_survivors),
        cmocka_unit_test(settled_rows_are_left_alone),
        cmocka_unit_test(later_sizes_keep_what_is_settled),
        cmocka_unit_test(skipped_layers_stay_whole),
        cmocka_unit_test(no_block_loses_everything),
        cmocka_unit_test(blocks_shrink_before_they_lose_everything),
        cmocka_unit_test(retention_for_a_ratio),
        cmocka_unit_test(retention_that_cannot_be),
        cmocka_unit_test(kvpress_form),
    };
    return cmocka_run_group_tests_name("LagKV", tests, NULL, NULL);
}
