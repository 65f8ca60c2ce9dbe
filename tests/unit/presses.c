/* SPDX-License-Identifier: MIT */
/* Scorers that look at keys and values alone, and selectors that go by chunks; numbers worked out by hand. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"
#include "plans.h"
#include "scoring.h"

static int32_t run_select(const char *recipe, const wnw_select_problem *problem, int32_t *keep)
{
    float scratch[64];
    wnw_policy *p = test_policy(recipe);
    const wnw_selector *s = &p->part[WNW_PART_SELECTOR].selector;
    const void *opts = p->opts[WNW_PART_SELECTOR];
    assert_true(!s->scratch || s->scratch(opts, problem->n) <= 64);
    const int32_t n = s->select(opts, problem, keep, scratch);
    wnw_policy_free(p);
    return n;
}

static const int32_t ascending[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* One layer, one head of n entries, head size d. */
static wnw_observation observation(const struct score_rows *rows, const int32_t *n, int32_t d)
{
    return (wnw_observation){.n_layer = 1,
                             .n_head = 1,
                             .n_head_kv = 1,
                             .n_embd_head = d,
                             .n = *n,
                             .n_past = *n,
                             .n_entry = n,
                             .pos = ascending,
                             .attn_scale = 1,
                             .keys = row_keys,
                             .values = row_values,
                             .source = (void *)(uintptr_t)rows};
}

/* ---- Scorers ---- */

static void keydiff(void **state)
{
    (void)state;
    const float k[] = {1, 0, 0, 2, 3, 4};
    const struct score_rows rows = {.k = k};
    const int32_t n = 3;
    const wnw_observation obs = observation(&rows, &n, 2);
    float got[3];
    run_scorer("keydiff", &obs, got); /* unit keys (1 0) (0 1) (.6 .8), mean (1.6 1.8) / 3 */
    assert_values(got, 2e-6, -0.664364, -0.747409, -0.996546);
    /* A zero key counts in the mean's divisor, which no cosine sees; its own is 0. */
    const float holed[] = {1, 0, 0, 0, 3, 4};
    const struct score_rows with_zero = {.k = holed};
    const wnw_observation obs2 = observation(&with_zero, &n, 2);
    run_scorer("keydiff", &obs2, got);
    assert_values(got, 2e-6, -0.894427, 0, -0.894427);
    const float opposite[] = {1, 0, -1, 0, 0, 0}; /* no mean direction */
    const struct score_rows without_mean = {.k = opposite};
    const wnw_observation obs3 = observation(&without_mean, &n, 2);
    run_scorer("keydiff", &obs3, got);
    assert_values(got, 2e-6, 0, 0, 0);
}

/* Both numbers of an entry are standardised over the head: z(a) = (a - mean) / deviation, divisor n. */
static void keydiff_with_values(void **state)
{
    (void)state;
    /* Cosines as above: mean -0.802773, deviation 0.141150. Norms 1, 10 and 100, whose logarithms have z = -1.224745, 0 and 1.224745. */
    const float k[] = {1, 0, 0, 2, 3, 4}, v[] = {0, -1, 6, 8, 100, 0};
    const struct score_rows rows = {.k = k, .v = v};
    const int32_t n = 3;
    const wnw_observation obs = observation(&rows, &n, 2);
    float got[3];
    run_scorer("keydiff:values=2", &obs, got);
    assert_values(got, 2e-5, 0.980581 - 2.449490, 0.392232, -1.372813 + 2.449490);
    run_scorer("keydiff:values=0.5", &obs, got);
    assert_values(got, 2e-5, 0.980581 - 0.612372, 0.392232, -1.372813 + 0.612372);
    run_scorer("keydiff:values=0", &obs, got);
    assert_values(got, 2e-6, -0.664364, -0.747409, -0.996546);
    /* A size of values changes no score, nor one of keys. */
    const float k10[] = {10, 0, 0, 20, 30, 40}, v10[] = {0, -10, 60, 80, 1000, 0};
    const struct score_rows larger = {.k = k10, .v = v10};
    const wnw_observation obs2 = observation(&larger, &n, 2);
    run_scorer("keydiff:values=2", &obs2, got);
    assert_values(got, 2e-5, 0.980581 - 2.449490, 0.392232, -1.372813 + 2.449490);
}

/* A part that is equal for all entries adds nothing, and a value of length 0 has a logarithm. */
static void keydiff_with_equal_values(void **state)
{
    (void)state;
    const float k[] = {1, 0, 0, 2, 3, 4}, same[] = {3, 4, 5, 0, -4, 3}, none[] = {0, 0, 0, 0, 0, 0};
    const float one_none[] = {0, 0, 1e-6f, 0, 1e-6f, 0};
    const int32_t n = 3, one = 1;
    float got[3];
    const struct score_rows equal = {.k = k, .v = same}, all_zero = {.k = k, .v = none};
    const struct score_rows keys_alike = {.k = same, .v = none}, least = {.k = k, .v = one_none};
    wnw_observation obs = observation(&equal, &n, 2);
    run_scorer("keydiff:values=2", &obs, got);
    assert_values(got, 2e-5, 0.980581, 0.392232, -1.372813);
    obs = observation(&all_zero, &n, 2);
    run_scorer("keydiff:values=2", &obs, got);
    assert_values(got, 2e-5, 0.980581, 0.392232, -1.372813);
    obs = observation(&least, &n, 2); /* 1e-6 is the least length */
    run_scorer("keydiff:values=2", &obs, got);
    assert_values(got, 2e-5, 0.980581, 0.392232, -1.372813);
    obs = observation(&keys_alike, &one, 2); /* one entry has no distance from the mean */
    run_scorer("keydiff:values=2", &obs, got);
    assert_values(got, 0, 0);
}

static void cur(void **state)
{
    (void)state;
    const float k[] = {1, 2, 3}, v[] = {1, 1, 2}, zero[] = {0, 0, 0};
    const struct score_rows rows = {.k = k, .v = v};
    const int32_t n = 3;
    wnw_observation obs = observation(&rows, &n, 1);
    float got[3];
    /* Blocks {0, 1} and {2}: keys .2 .8 1, values .5 .5 1. */
    run_scorer("cur:block=2", &obs, got);
    assert_values(got, 2e-6, 0.1 / 1.5, 0.4 / 1.5, 1 / 1.5);
    run_scorer("cur:block=2,leverage=key", &obs, got);
    assert_values(got, 2e-6, 0.1, 0.4, 0.5);
    run_scorer("cur:block=2,leverage=value", &obs, got);
    assert_values(got, 2e-6, 0.25, 0.25, 0.5);
    run_scorer("cur:block=2,leverage=mean", &obs, got);
    assert_values(got, 2e-6, 0.175, 0.325, 0.5);
    run_scorer("cur:block=16", &obs, got); /* (1 4 9) / 14 and (1 1 4) / 6 */
    assert_values(got, 2e-6, 1 / 41.0, 4 / 41.0, 36 / 41.0);
    const struct score_rows none = {.k = zero, .v = zero};
    obs.source = (void *)(uintptr_t)&none;
    run_scorer("cur:block=2", &obs, got); /* shared out evenly: .25 .25 1 */
    assert_values(got, 2e-6, 1 / 6.0, 1 / 6.0, 4 / 6.0);

    wnw_policy *p = test_policy("cur");
    const wnw_protected prot = wnw__policy_keep(p, &(wnw_keep_problem){.n = 100, .budget = 50});
    assert_int_equal(prot.n_first, 4);
    assert_int_equal(prot.n_last, 0);
    wnw_policy_free(p);
    p = test_policy("cur:leverage=key");
    assert_int_equal(wnw_policy_needs(p).flags, WNW_NEED_KEYS);
    wnw_policy_free(p);
    p = test_policy("cur:leverage=value");
    assert_int_equal(wnw_policy_needs(p).flags, WNW_NEED_VALUES);
    wnw_policy_free(p);
}

/* An entry's score is its own: it depends on seed, layer, head and position, not on what else is there. */
static void chance(void **state)
{
    (void)state;
    enum { N = 1000 };
    static int32_t pos[2 * N], half[2 * N];
    static float a[2 * N], b[2 * N], c[2 * N];
    const int32_t n_entry[] = {N, N}, n_half[] = {N / 2, N / 2};
    for (int32_t i = 0; i < 2 * N; i++) {
        pos[i] = i % N;
        half[i] = i % N < N / 2 ? 2 * (i % N) : -1;
    }
    wnw_observation obs = {.il = 3, .n_head = 2, .n_head_kv = 2, .n = N, .n_entry = n_entry, .pos = pos};
    run_scorer("random", &obs, a);
    run_scorer("random", &obs, b);
    assert_memory_equal(a, b, sizeof a);
    run_scorer("random:seed=1", &obs, b);
    obs.il = 4;
    run_scorer("random", &obs, c);
    int32_t same_seed = 0, same_layer = 0, same_head = 0;
    double mean = 0, square = 0;
    for (int32_t i = 0; i < 2 * N; i++) {
        assert_cmp(a[i], >=, 0);
        assert_cmp(a[i], <, 1);
        same_seed += a[i] == b[i];
        same_layer += a[i] == c[i];
        same_head += a[i] == a[(i + N) % (2 * N)];
        mean += (double)a[i] / (2 * N);
        square += (double)a[i] * (double)a[i] / (2 * N);
    }
    assert_cmp(same_seed, <, 5);
    assert_cmp(same_layer, <, 5);
    assert_cmp(same_head, <, 5);
    assert_near(mean, 0.5, 0.03);
    assert_cmp(fabs(square - 1 / 3.0), <, 0.03);
    obs.il = 3;
    obs.pos = half;
    obs.n_entry = n_half;
    run_scorer("random", &obs, b);
    for (int32_t i = 0; i < N / 2; i++) {
        assert_cmp(b[i], ==, a[2 * i]);
        assert_cmp(b[N + i], ==, a[N + 2 * i]);
    }
}

static void noncausal(void **state)
{
    (void)state;
    const float third = 1.0986123f; /* ln 3: softmax(ln 3, 0) = .75 .25 */
    const float k[] = {third, 0, third}, v[] = {2, -4, 1}, q[] = {1, 0, 1}, two[] = {1, 0, 0, 0, 1, 0};
    const struct score_rows rows = {.k = k, .v = v};
    const int32_t n = 3;
    wnw_observation obs = observation(&rows, &n, 1);
    obs.queries = q;
    obs.n_queries = 3;
    float got[3];
    /* Chunks {0, 1} and {2} receive 1.25 .75 and 1, times the norms 2.5 3 1. */
    run_scorer("noncausal:chunk=2,pool=1", &obs, got);
    assert_values(got, 2e-6, 0.320256, 0.800641, -1.120897);
    /* Pooled over the border of the chunks: 5.5 6.5 4, each / 3. */
    run_scorer("noncausal:chunk=2,pool=3", &obs, got);
    assert_values(got, 2e-6, 0.132453, 0.927173, -1.059626);
    /* A zero key takes a quarter of the last query, a zero query adds a half: 2.5 3 1.25. */
    run_scorer("noncausal:chunk=2,pool=1,padded=1", &obs, got);
    assert_values(got, 2e-6, 0.277350, 0.832050, -1.109400);
    obs.attn_scale = 2; /* softmax(2 ln 3, 0) = .9 .1: 2.8 2.4 1 */
    run_scorer("noncausal:chunk=2,pool=1", &obs, got);
    assert_values(got, 2e-6, 0.775880, 0.352673, -1.128553);
    run_scorer("noncausal:chunk=2,pool=1,scaled=0", &obs, got);
    assert_values(got, 2e-6, 0.320256, 0.800641, -1.120897);
    obs.attn_scale = 1;
    obs.n_head = 2; /* a second query head of zeros gives 1 to each: 2.25 3.5 1 */
    obs.queries = two;
    run_scorer("noncausal:chunk=2,pool=1", &obs, got);
    assert_values(got, 2e-6, 0, 1, -1);
    obs.n_head = 1;
    obs.queries = q + 1; /* the first query is not known: .5 .5 1 times norms is 1 2 1 */
    obs.n_queries = 2;
    run_scorer("noncausal:chunk=2,pool=1", &obs, got);
    assert_values(got, 2e-6, -0.577350, 1.154701, -0.577350);
    /* All alike. */
    const float zero[] = {0, 0, 0};
    const struct score_rows none = {.k = zero, .v = zero};
    obs.source = (void *)(uintptr_t)&none;
    run_scorer("noncausal", &obs, got);
    assert_values(got, 2e-6, 0, 0, 0);
}

static void leverage(void **state)
{
    (void)state;
    /* One dimension: l is proportional to the squared distance from the mean, 4 1 9, for any Phi. */
    const float k[] = {1, 2, 6}, level[] = {2, 2, 2};
    const struct score_rows rows = {.k = k}, equal = {.k = level};
    const int32_t n = 3;
    wnw_observation obs = observation(&rows, &n, 1);
    float got[12], want[12];
    run_scorer("leverage:sketch=1", &obs, got);
    assert_values(got, 2e-6, -0.164957, -0.907265, 1.072222);
    run_scorer("leverage:sketch=48,seed=5", &obs, got); /* eps matters less than 1e-3 here */
    assert_values(got, 1e-3, -0.164957, -0.907265, 1.072222);
    obs.source = (void *)(uintptr_t)&equal;
    run_scorer("leverage", &obs, got);
    assert_values(got, 2e-6, 0, 0, 0);

    /* Keys come as RoPE has turned them: the scores are those of the keys before. */
    enum { N = 12, D = 4 };
    const int32_t n12 = N;
    float plain[N * D], turned[N * D];
    const float theta[] = {1, 0.1f};
    for (int neox = 0; neox < 2; neox++) {
        for (int32_t i = 0; i < N; i++) {
            for (int32_t c = 0; c < D; c++)
                plain[i * D + c] = (float)((i * 7 + c * 5 + i * c) % 11) - 4;
            for (int32_t t = 0; t < 2; t++) {
                const int32_t a = neox ? t : 2 * t, b = neox ? t + 2 : 2 * t + 1;
                const double angle = i * (double)theta[t];
                const double x = (double)plain[i * D + a], y = (double)plain[i * D + b];
                turned[i * D + a] = (float)(x * cos(angle) - y * sin(angle));
                turned[i * D + b] = (float)(x * sin(angle) + y * cos(angle));
            }
        }
        const struct score_rows before = {.k = plain}, after = {.k = turned};
        wnw_observation o = observation(&before, &n12, D);
        run_scorer("leverage:sketch=8", &o, want);
        o.source = (void *)(uintptr_t)&after;
        o.rope_theta = theta;
        o.n_rot = D;
        o.rope_neox = neox;
        run_scorer("leverage:sketch=8", &o, got);
        for (int32_t i = 0; i < N; i++)
            assert_near(got[i], want[i], 1e-4f);
        o.rope_neox = !neox;
        run_scorer("leverage:sketch=8", &o, got);
        float off = 0;
        for (int32_t i = 0; i < N; i++)
            off += fabsf(got[i] - want[i]);
        assert_cmp(off, >, 0.1f);
    }
}

/* Both halves on what is not protected, as if the rest were not there. */
static void compactor(void **state)
{
    (void)state;
    enum { N = 14, M = 9, D = 2, FIRST = 2 };
    float k[N * D], v[N * D], q[N * D];
    for (int32_t i = 0; i < N * D; i++) {
        k[i] = (float)(i * 5 % 13) / 6 - 1;
        v[i] = (float)(i * 7 % 11) / 5 - 1;
        q[i] = (float)(i * 3 % 17) / 8 - 1;
    }
    const struct score_rows all = {.k = k, .v = v}, middle = {.k = k + FIRST * D, .v = v + FIRST * D};
    const int32_t n = N, m = M;
    const float theta[] = {0.3f};
    wnw_observation obs = observation(&all, &n, D), sub = observation(&middle, &m, D);
    obs.queries = sub.queries = q;
    obs.n_queries = sub.n_queries = sub.n_past = N;
    obs.rope_theta = sub.rope_theta = theta;
    obs.n_rot = sub.n_rot = D;
    sub.pos = ascending + FIRST;
    obs.budget = N * 0.25;
    float got[N], lev[M], non[M];
    run_scorer("compactor:first=2,last=3,chunk=4", &obs, got);
    run_scorer("leverage", &sub, lev);
    run_scorer("noncausal:chunk=4", &sub, non);
    for (int32_t i = 0; i < N; i++) {
        const float want = i < FIRST || i >= FIRST + M ? 0 : 0.75f * lev[i - FIRST] + non[i - FIRST];
        assert_near(got[i], want, 1e-5f);
    }
    run_scorer("compactor:first=2,last=3,chunk=4,beta=2", &obs, got);
    assert_cmp(fabsf(got[5] - 2 * lev[3] - non[3]), <, 1e-5f);
    obs.budget = N;
    run_scorer("compactor:first=2,last=3,chunk=4", &obs, got);
    assert_near(got[5], non[3], 1e-5f);
    run_scorer("compactor:first=8,last=7", &obs, got); /* nothing is left */
    for (int32_t i = 0; i < N; i++)
        assert_cmp(got[i], ==, 0);
}

/* Five entries, the last two are the question; each query counts as often as it could see entries before. */
static void finch(void **state)
{
    (void)state;
    const float attn[] = {9,    9, 9,    9,    9,    0.1f, 0.2f, 0.3f, /* another policy's row comes first */
                          0.4f, 0, 0.2f, 0.1f, 0.1f, 0.3f, 0.3f};
    const int32_t n = 5;
    wnw_observation obs = observation(NULL, &n, 1);
    obs.window_attn = attn;
    obs.n_window = 3;
    obs.n_question = 2;
    float got[5];
    /* (3 a + 4 b) / 2; the question is above, the most recent token highest. */
    const double want[] = {0.55, 0.5, 0.65, 1.65 * 1.6, 1.65 * 1.8};
    run_scorer("finch", &obs, got);
    assert_floats_near(got, want, 5, 2e-6);
    obs.n_question = 0;
    run_scorer("finch:question=2", &obs, got);
    assert_floats_near(got, want, 5, 2e-6);
    run_scorer("finch:question=2,window=1", &obs, got); /* of the question only the last query is observed */
    assert_values(got, 2e-6, 0.8, 0.4, 0.4, 1.8 * 1.6, 1.8 * 1.8);
    run_scorer("finch", &obs, got); /* not known: the last 32 tokens, which is everything */
    assert_values(got, 2e-6, 1, 1.2, 1.4, 1.6, 1.8);

    /* A head that lost position 1: two and three entries come before the queries; mean over two query heads. */
    const float pair[] = {0.5f, 0.3f, 0.2f, 0, 0.4f, 0.1f, 0.1f, 0.4f, 0.1f, 0.9f, 0, 0, 0, 0, 1, 0};
    const int32_t pos[] = {0, 2, 3, 4}, n4 = 4;
    obs.n = n4;
    obs.n_entry = &n4;
    obs.pos = pos;
    obs.n_head = 2;
    obs.n_window = obs.n_question = 2;
    obs.window_attn = pair;
    run_scorer("finch", &obs, got); /* m = 2, 3; (1.1 + .1) / 2 and (.45 + .9) / 2 */
    /* Above 1.1, the best of any head. */
    assert_values(got, 2e-6, 0.6, 0.675, 2.1 * 1.5, 2.1 * 1.75);

    wnw_policy *p = test_policy("finch:question=20");
    assert_int_equal(wnw_policy_needs(p).window, 20);
    assert_false(wnw_policy_allows(p, WNW_PHASE_CHUNK, NULL));
    assert_true(wnw_policy_allows(p, WNW_PHASE_LAYER, NULL));
    wnw_policy_free(p);
}

static void bad_pooling(void **state)
{
    (void)state;
    wnw_policy *p;
    assert_int_equal(wnw_policy_parse(&p, "noncausal:pool=4", NULL), WNW_E_ARG);
    assert_says("odd");
    assert_int_equal(wnw_policy_parse(&p, "compactor:pool=2", NULL), WNW_E_ARG);
}

/* ---- Chunks ---- */

static void assert_kept(const char *recipe, const wnw_select_problem *problem, int32_t n, const int32_t *want)
{
    int32_t keep[64];
    const int32_t got = run_select(recipe, problem, keep);
    if (got != n)
        fail_msg("%s keeps %d of %d, expected %d", recipe, got, problem->n, n);
    assert_memory_equal(keep, want, (size_t)n * sizeof *want);
}

/* Seven tokens in chunks of three, with two heads whose scores sum to 5 0 1 | 3 3 1 | 3: means 2, 7/3, 3. */
static const float chunk_score[] = {5, 0, 0, 1, 1, 1, 2, 0, 0, 1, 2, 2, 0, 1};
#define FILL "snapkv+chunkkv:chunk=3"
#define DROP FILL ",rest=drop"

static const struct chunks {
    const char *name, *recipe;
    wnw_protected prot;
    int32_t n_keep;
    double mean; /* entries that stay in a mean head; 0 = a count of its own */
    int32_t n;
    int32_t want[2][7]; /* [head]; the second of zeros: as the first */
} chunks[] = {
    {"nothing stays", FILL, {0, 0}, 0, 0, 0, {{0}}},
    {"the short chunk, then the best of the next", FILL, {0, 0}, 3, 0, 3, {{3, 4, 6}}},
    {"two chunks", FILL, {0, 0}, 4, 0, 4, {{3, 4, 5, 6}}},
    {"the last one is cut", FILL, {0, 0}, 5, 0, 5, {{0, 3, 4, 5, 6}}},
    {"all, filled", FILL, {0, 0}, 7, 0, 7, {{0, 1, 2, 3, 4, 5, 6}}},
    {"all, dropped", DROP, {0, 0}, 7, 0, 7, {{0, 1, 2, 3, 4, 5, 6}}},
    /* Of the others 0 1 3 | 3 1 are left, with the means 4/3 and 2. */
    {"ends protected, 4", FILL, {1, 1}, 4, 0, 4, {{0, 4, 5, 6}}},
    {"ends protected, 5", FILL, {1, 1}, 5, 0, 5, {{0, 3, 4, 5, 6}}},
    {"ends protected, nothing else", FILL, {1, 1}, 2, 0, 2, {{0, 6}}},
    {"1.5 chunks", DROP, {0, 0}, 3, 7 * (1 - 0.5), 1, {{6}}},
    {"2.4 chunks", DROP, {0, 0}, 5, 7 * (1 - 0.2), 4, {{3, 4, 5, 6}}},
    {"one chunk at least", DROP, {0, 0}, 1, 7 * (1 - 0.8), 1, {{6}}},
    {"18 / 7 chunks by count", DROP, {0, 0}, 6, 7 * (1 - 0.8), 4, {{3, 4, 5, 6}}},
    /* The highest of the others is 2, so each of the protected counts 3 in each head. */
    {"the first chunk protected", DROP, {3, 0}, 3, 7 * (1 - 0.5), 3, {{0, 1, 2}}},
    {"shorter than a chunk: each head for itself",
     "snapkv+chunkkv:chunk=8,rest=drop",
     {0, 0},
     3,
     7 * (1 - 0.5),
     3,
     {{0, 3, 6}, {2, 3, 4}}},
};

static void chunkkv(void **state)
{
    const struct chunks *c = *state;
    const int32_t n_entry[] = {7, 7};
    for (int32_t ih = 0; ih < 2; ih++) { /* the same tokens in both heads */
        const wnw_select_problem p = {.score = chunk_score + 7 * ih,
                                      .n = 7,
                                      .n_keep = c->n_keep,
                                      .prot = c->prot,
                                      .mean = c->mean,
                                      .ih = ih,
                                      .n_head_kv = 2,
                                      .row = 7,
                                      .layer_score = chunk_score,
                                      .n_entry = n_entry};
        assert_kept(c->recipe, &p, c->n, c->want[ih && c->want[1][0] ? 1 : 0]);
    }
}

/* 30 chunks at ratio 0.9: truncated, 2.999... chunks are 2, else 3. */
static void chunkkv_rounds(void **state)
{
    (void)state;
    float level[600] = {0}, scratch[700];
    int32_t keep[600], n_entry = 600;
    wnw_select_problem p = {.score = level,
                            .n = 600,
                            .n_keep = 59,
                            .n_head_kv = 1,
                            .row = 600,
                            .layer_score = level,
                            .n_entry = &n_entry,
                            .rounding = WNW_ROUND_TRUNC,
                            .mean = 600 * (1 - 0.9)};
    wnw_policy *pol = test_policy("snapkv+chunkkv:chunk=20,rest=drop");
    const wnw_selector *s = &pol->part[WNW_PART_SELECTOR].selector;
    assert_int_equal(s->select(pol->opts[WNW_PART_SELECTOR], &p, keep, scratch), 40);
    p.rounding = WNW_ROUND_EXACT;
    p.n_keep = 60;
    assert_int_equal(s->select(pol->opts[WNW_PART_SELECTOR], &p, keep, scratch), 60);
    wnw_policy_free(pol);
}

/* A head that holds other tokens has no say. */
static void chunkkv_ragged(void **state)
{
    (void)state;
    const float score[] = {1, 1, 2, 2, 9, 9, 0, 0};
    const int32_t pos[] = {0, 1, 2, 3, 0, 1, 2, 9}, full[] = {4, 4}, shorter[] = {4, 3};
    const wnw_observation obs = {.n = 4, .pos = pos};
    wnw_select_problem p = {
        .score = score, .n = 4, .n_keep = 2, .n_head_kv = 2, .row = 4, .layer_score = score, .n_entry = full};
    assert_kept("snapkv+chunkkv:chunk=2", &p, 2, (const int32_t[]){0, 1}); /* taken for the same tokens */
    p.obs = &obs;
    assert_kept("snapkv+chunkkv:chunk=2", &p, 2, (const int32_t[]){2, 3});
    p.obs = NULL;
    p.n_entry = shorter;
    assert_kept("snapkv+chunkkv:chunk=2", &p, 2, (const int32_t[]){2, 3});
}

static void chunk_by_chunk(void **state)
{
    (void)state;
    const float score[] = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21};
    wnw_select_problem p = {.score = score, .n = 10, .n_keep = 5};
    /* Chunks of 4, 4 and 2 keep 2, 2 and 1. */
    assert_kept("knorm+chunk:chunk=4", &p, 5, (const int32_t[]){2, 3, 6, 7, 9});
    p.prot = (wnw_protected){1, 2}; /* 7 others in chunks of 4 and 3 keep 1 and 1 */
    assert_kept("knorm+chunk:chunk=4", &p, 5, (const int32_t[]){0, 4, 7, 8, 9});
    p.prot = (wnw_protected){0, 0};
    for (p.n_keep = 0; p.n_keep <= 10; p.n_keep++)
        for (int32_t c = 1; c < 12; c++) {
            int32_t keep[10];
            char recipe[32];
            snprintf(recipe, sizeof recipe, "knorm+chunk:chunk=%d", c);
            assert_int_equal(run_select(recipe, &p, keep), p.n_keep);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keydiff),
        cmocka_unit_test(keydiff_with_values),
        cmocka_unit_test(keydiff_with_equal_values),
        cmocka_unit_test(cur),
        cmocka_unit_test(noncausal),
        cmocka_unit_test(leverage),
        cmocka_unit_test(compactor),
        cmocka_unit_test(finch),
        cmocka_unit_test(bad_pooling),
        cmocka_unit_test(chance),
        cmocka_unit_test(chunkkv_rounds),
        cmocka_unit_test(chunkkv_ragged),
        cmocka_unit_test(chunk_by_chunk),
    };
    return cmocka_run_group_tests_name("presses", tests, NULL, NULL) + run_rows(chunkkv, chunks);
}
