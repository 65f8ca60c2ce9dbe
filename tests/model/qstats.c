/* SPDX-License-Identifier: MIT */
/* Query statistics of a session, against the window's queries turned back by the reported frequencies. */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOK = 75, SKIP = 4 };

/* A scorer that asks for query statistics and nothing else. */
struct opts {
    int32_t skip;
};
static const wnw_option options[] = {
    {.name = "skip", .help = "positions left out", .type = WNW_OPT_INT, .def = SKIP, .min = 0, .max = 1000},
    {.name = NULL},
};
static void needs_stats(const void *opts, wnw_needs *out)
{
    *out = (wnw_needs){.flags = WNW_NEED_QUERY_STATS, .skip = ((const struct opts *)opts)->skip};
}
static int score(const void *opts, const wnw_observation *obs, float *out, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t i = 0; i < obs->n_head_kv * obs->n; i++)
        out[i] = obs->query_mean[0] + (float)i;
    return WNW_OK;
}
static const wnw_scorer stats_scorer = {
    .part =
        {
            WNW_SCORER_INIT,
            .name = "stats-only",
            .about = "test",
            .options = options,
            .options_size = sizeof(struct opts),
            .needs = needs_stats,
        },
    .score = score,
};

static wnw_policy *stats_policy(const char *recipe)
{
    return test_policy_with(&stats_scorer.part, recipe);
}

struct run {
    wnw_model *m;
    wnw_session *s;
    int32_t *tokens;
};

/* A session that keeps a window as long as the prompt, and statistics. */
static struct run start(const char *name, int32_t n_ubatch, wnw_attn attn)
{
    struct run r = {.m = test_model_open(name)};
    wnw_session_params params = wnw_session_default_params();
    params.n_ubatch = n_ubatch;
    params.kv_type = WNW_KV_F32;
    params.n_threads = 2;
    params.attn = attn;
    assert_ok(wnw_session_new(&r.s, r.m, &params));
    wnw_policy *window = test_policy("snapkv:window=100"), *stats = stats_policy("stats-only");
    assert_ok(test_observe(r.s, (const wnw_policy *const[]){window, stats}, 2));
    wnw_policy_free(window);
    wnw_policy_free(stats);
    r.tokens = test_random_tokens(N_TOK + 5, r.m->hp.n_vocab, 5);
    test_prefill(r.s, r.tokens, N_TOK);
    return r;
}

static void finish(struct run *r)
{
    free(r->tokens);
    wnw_session_free(r->s);
    wnw_model_free(r->m);
}

static int observe(const struct wnw__plan_source *src, int32_t il, wnw_observation *obs)
{
    const wnw_needs needs = {.flags = WNW_NEED_QUERY_STATS, .skip = SKIP};
    return src->observe(src, il, &needs, NULL, obs);
}

/* Query of head h at a position as it was before RoPE, from the window. */
static void query_before_rope(const wnw_session *s, const wnw_observation *obs, int32_t h, int32_t pos,
                              double *q)
{
    const int32_t d = obs->n_embd_head;
    const struct wnw__window *window = wnw__recorders_find(&s->recorders, &wnw__window_recorder);
    const float *x = wnw__window_at(window, obs->il, pos) + (size_t)h * (size_t)d;
    for (int32_t c = 0; c < d; c++)
        q[c] = (double)x[c];
    for (int32_t i = 0; i < obs->n_rot / 2; i++) {
        const int32_t a = obs->rope_neox ? i : 2 * i, b = obs->rope_neox ? i + obs->n_rot / 2 : 2 * i + 1;
        const double angle = (double)pos * (double)obs->rope_theta[i];
        q[a] = (double)x[a] * cos(angle) + (double)x[b] * sin(angle);
        q[b] = (double)x[b] * cos(angle) - (double)x[a] * sin(angle);
    }
}

static void check_head(const wnw_session *s, const wnw_observation *obs, int32_t h)
{
    const int32_t d = obs->n_embd_head, n = N_TOK - SKIP;
    double *q = malloc((size_t)(N_TOK * d) * sizeof *q), *mean = calloc((size_t)d, sizeof *mean);
    double largest = 0.0;
    assert_non_null(q);
    assert_non_null(mean);
    for (int32_t t = SKIP; t < N_TOK; t++) {
        query_before_rope(s, obs, h, t, q + t * d);
        for (int32_t c = 0; c < d; c++) {
            mean[c] += q[t * d + c] / n;
            largest = fabs(q[t * d + c]) > largest ? fabs(q[t * d + c]) : largest;
        }
    }
    for (int32_t a = 0; a < d; a++) {
        assert_near(obs->query_mean[h * d + a], mean[a], test_rounding(1e-5, 16) * largest);
        for (int32_t b = 0; b < d; b++) {
            double sum = 0.0;
            for (int32_t t = SKIP; t < N_TOK; t++)
                sum += (q[t * d + a] - mean[a]) * (q[t * d + b] - mean[b]) / n;
            const double got = (double)obs->query_cov[((int64_t)h * d + a) * d + b];
            if (!(fabs(got - sum) <= 2e-5 * largest * largest))
                fail_msg("layer %d, head %d, covariance %d %d: %g, expected %g", (int)obs->il, (int)h, (int)a,
                         (int)b, got, sum);
        }
    }
    free(q);
    free(mean);
}

static void check_model(const char *name, int32_t n_ubatch, wnw_attn attn)
{
    struct run r = start(name, n_ubatch, attn);
    struct wnw__plan_source src;
    wnw_observation obs;
    assert_ok(wnw__session_source(&src, r.s));
    for (int32_t il = 0; il < r.m->hp.n_layer; il++) {
        if (wnw_model_layer_is_swa(r.m, il))
            continue;
        assert_ok(observe(&src, il, &obs));
        assert_int_equal(obs.n_query_stats, N_TOK - SKIP);
        for (int32_t h = 0; h < obs.n_head; h++)
            check_head(r.s, &obs, h);
    }
    wnw__source_close(&src);
    finish(&r);
}

static void every_family(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n = test_tiny_models(names, 32);
    for (int i = 0; i < n; i++)
        check_model(names[i], i % 2 ? 512 : 16, i % 3 ? WNW_ATTN_OWN : WNW_ATTN_GGML);
}

/* Statistics of one layer, [n_head][d] and [n_head][d][d]. */
static float *stats_of_layer(wnw_session *s, int32_t il, size_t *n)
{
    struct wnw__plan_source src;
    wnw_observation obs;
    assert_ok(wnw__session_source(&src, s));
    assert_ok(observe(&src, il, &obs));
    const size_t n_mean = (size_t)obs.n_head * (size_t)obs.n_embd_head;
    *n = n_mean * (1 + (size_t)obs.n_embd_head);
    float *x = malloc(*n * sizeof *x);
    assert_non_null(x);
    memcpy(x, obs.query_mean, n_mean * sizeof *x);
    memcpy(x + n_mean, obs.query_cov, (*n - n_mean) * sizeof *x);
    wnw__source_close(&src);
    return x;
}

static void any_ubatch(void **state)
{
    (void)state;
    static const int32_t sizes[] = {512, 64, 10, 1};
    char name[TEST_NAME_MAX];
    float *want = NULL;
    test_tiny_model_of(name, "qwen2");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct run r = start(name, sizes[i], WNW_ATTN_OWN);
        size_t n;
        float *got = stats_of_layer(r.s, 1, &n), largest = 0.0f;
        want = want ? want : got;
        for (size_t k = 0; k < n; k++)
            largest = fabsf(want[k]) > largest ? fabsf(want[k]) : largest;
        for (size_t k = 0; k < n; k++)
            assert_near(got[k], want[k], test_rounding(2e-5, 16) * (double)largest);
        if (got != want)
            free(got);
        finish(&r);
    }
    free(want);
}

/* Decoded tokens count as queries, a copy counts for itself, and a reset session starts from zero. */
static void timeline(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    struct run r = start(name, 512, WNW_ATTN_OWN);
    wnw_session *copy;
    struct wnw__plan_source src;
    wnw_observation obs;
    size_t n, n2;
    assert_ok(wnw_session_copy(&copy, r.s));
    assert_ok(wnw_session_decode(copy, r.tokens[N_TOK]));
    assert_ok(wnw_session_decode(copy, r.tokens[N_TOK + 1]));
    assert_ok(wnw__session_source(&src, copy));
    assert_ok(observe(&src, 0, &obs));
    assert_int_equal(obs.n_query_stats, N_TOK - SKIP + 2);
    wnw__source_close(&src);
    float *before = stats_of_layer(r.s, 0, &n);
    assert_ok(wnw_session_reset(r.s));
    test_prefill(r.s, r.tokens, N_TOK);
    float *again = stats_of_layer(r.s, 0, &n2);
    assert_int_equal(n, n2);
    assert_memory_equal(before, again, n * sizeof *before);
    free(before);
    free(again);
    wnw_session_free(copy);
    finish(&r);
}

static void prompt_within_the_skip(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    struct run r = start(name, 512, WNW_ATTN_OWN);
    struct wnw__plan_source src;
    wnw_observation obs;
    assert_ok(wnw_session_reset(r.s));
    test_prefill(r.s, r.tokens, SKIP);
    assert_ok(wnw__session_source(&src, r.s));
    assert_ok(observe(&src, 0, &obs));
    assert_int_equal(obs.n_query_stats, 0);
    assert_float_equal(obs.query_mean[0], 0.0f, 0.0f);
    wnw__source_close(&src);
    finish(&r);
}

static void what_is_missing_is_said(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_session *s = test_session_new(m, &(struct test_session){.kv_type = WNW_KV_F16});
    wnw_policy *four = stats_policy("stats-only"), *two = stats_policy("stats-only:skip=2");
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    wnw_plan *plans[2];
    assert_error(test_observe(s, (const wnw_policy *const[]){four, two}, 2), WNW_E_ARG);
    test_prefill(s, tokens, 8);
    assert_error(wnw_session_plan(s, four, &size, plans, NULL), WNW_E_NOT_OBSERVED);
    assert_ok(wnw_session_reset(s));
    assert_ok(test_observe(s, (const wnw_policy *const[]){four}, 1));
    test_prefill(s, tokens, 8);
    assert_ok(wnw_session_plan(s, four, &size, plans, NULL));
    wnw_plan_free(plans[0]);
    assert_error(wnw_session_plan(s, two, &size, plans, NULL), WNW_E_NOT_OBSERVED);
    const wnw_size sizes[2] = {size, size};
    assert_error(wnw_session_plan_many(s, (const wnw_policy *const[]){four, two}, sizes, 2, plans, NULL),
                 WNW_E_ARG);
    wnw_policy_free(four);
    wnw_policy_free(two);
    wnw_session_free(s);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(any_ubatch),
        cmocka_unit_test(timeline),
        cmocka_unit_test(prompt_within_the_skip),
        cmocka_unit_test(what_is_missing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
