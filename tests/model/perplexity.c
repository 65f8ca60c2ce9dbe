/* SPDX-License-Identifier: MIT */
/* Perplexity of the end of a prompt, against the logits of all its tokens. */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_TOK = 70, WINDOW = 20 };

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    *out = (wnw_needs){.flags = WNW_NEED_PERPLEXITY, .window = WINDOW};
}
static int score(const void *opts, const wnw_observation *obs, float *out, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t i = 0; i < obs->n_head_kv * obs->n; i++)
        out[i] = (float)obs->perplexity + (float)i;
    return WNW_OK;
}
static const wnw_scorer scorer = {
    .part =
        {
            WNW_SCORER_INIT,
            .name = "perplexed",
            .about = "test",
            .needs = needs,
        },
    .score = score,
};

static wnw_policy *policy(void)
{
    return test_policy_with(&scorer.part, NULL);
}

struct all {
    const int32_t *tokens;
    int32_t n_vocab;
    double nll[N_TOK]; /* of token i + 1 given those up to i */
};

static bool take_all(int32_t i, const float *logits, void *user)
{
    struct all *a = user;
    if (i + 1 < N_TOK)
        a->nll[i] = wnw__nll_of(logits, a->n_vocab, a->tokens[i + 1]);
    return true;
}

static wnw_session *session(const wnw_model *m, int32_t n_ubatch)
{
    wnw_session_params params = wnw_session_default_params();
    wnw_session *s;
    params.n_ubatch = n_ubatch;
    params.n_threads = 2;
    params.kv_type = WNW_KV_F32;
    assert_ok(wnw_session_new(&s, m, &params));
    return s;
}

static int perplexity(wnw_session *s, int32_t window, double *out)
{
    struct wnw__plan_source src;
    assert_ok(wnw__session_source(&src, s));
    const int rc = src.perplexity(&src, window, out);
    wnw__source_close(&src);
    return rc;
}

static double mean_nll(const struct all *a, int32_t window)
{
    double sum = 0.0;
    for (int32_t t = N_TOK - window; t < N_TOK; t++)
        sum += a->nll[t - 1] / window;
    return sum;
}

/* How much two programs that round inputs of products to bytes may differ in the likelihood of one token: each is off
 * the same weights in float32 by about as much as this one is, and 4 times what is usual is left. */
static double rounding_noise(const char *name, const struct all *rounded)
{
    char path[4096];
    wnw_model *m;
    struct all exact = {.tokens = rounded->tokens, .n_vocab = rounded->n_vocab};
    double sum = 0;
    test_float32_copy(path, sizeof path, name);
    assert_ok(wnw_model_open(&m, path, NULL));
    unlink(path);
    wnw_session *s = session(m, 512);
    assert_ok(wnw_session_prefill(s, exact.tokens, N_TOK, take_all, &exact));
    wnw_session_free(s);
    wnw_model_free(m);
    for (int32_t i = 0; i + 1 < N_TOK; i++)
        sum += (exact.nll[i] - rounded->nll[i]) * (exact.nll[i] - rounded->nll[i]);
    return 4 * sqrt(2 * sum / (N_TOK - 1));
}

static void check_model(const char *name)
{
    static const int32_t sizes[] = {512, 69, 16};
    char path[4096];
    wnw_model *m = test_model_open(name);
    wnw_policy *p = policy();
    int32_t *tokens = test_random_tokens(N_TOK, m->hp.n_vocab, 6);
    struct all all = {.tokens = tokens, .n_vocab = m->hp.n_vocab};
    wnw_session *s = session(m, 512);
    test_model_path(path, sizeof path, name);
    /* Products of few rows and of many differ in how they round, with quantised weights their inputs too, which
     * random weights amplify; the likelihoods themselves are about 10 and those of neighbours differ by 1. */
    assert_ok(wnw_session_prefill(s, tokens, N_TOK, take_all, &all));
    wnw_session_free(s);
    const double noise = test_all_float(path) ? 0 : rounding_noise(name, &all);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int pieces = 0; pieces < 2; pieces++) {
            double got;
            s = session(m, sizes[i]);
            assert_ok(test_observe(s, (const wnw_policy *const[]){p}, 1));
            if (pieces)
                test_prefill(s, tokens, 60); /* the window begins in the first call */
            test_prefill(s, tokens + (pieces ? 60 : 0), pieces ? 10 : N_TOK);
            assert_ok(perplexity(s, WINDOW, &got));
            assert_near(log(got), mean_nll(&all, WINDOW), test_rounding(5e-3, 32) + noise / sqrt(WINDOW));
            assert_ok(perplexity(s, 3, &got));
            assert_near(log(got), mean_nll(&all, 3), test_rounding(5e-3, 32) + noise / sqrt(3));
            wnw_session_free(s);
        }
    }
    free(tokens);
    wnw_policy_free(p);
    wnw_model_free(m);
}

static void every_family(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n = test_tiny_models(names, 32);
    for (int i = 0; i < n; i++)
        check_model(names[i]);
}

/* Rows for the likelihoods change neither the last logits nor those that a callback sees. */
static void logits_stay(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_policy *p = policy();
    int32_t *tokens = test_random_tokens(N_TOK, m->hp.n_vocab, 6);
    struct all all = {.tokens = tokens, .n_vocab = m->hp.n_vocab};
    double with, without;
    wnw_session *plain = session(m, 32), *observed = session(m, 32);
    assert_ok(test_observe(observed, (const wnw_policy *const[]){p}, 1));
    test_prefill(plain, tokens, N_TOK);
    test_prefill(observed, tokens, N_TOK);
    for (int32_t i = 0; i < m->hp.n_vocab; i++)
        assert_float_equal(wnw_session_logits(plain)[i], wnw_session_logits(observed)[i],
                           (float)test_rounding(1e-4, 64));
    assert_ok(perplexity(observed, WINDOW, &without));
    assert_ok(wnw_session_reset(observed));
    assert_error(perplexity(observed, WINDOW, &with), WNW_E_NOT_OBSERVED);
    assert_ok(wnw_session_prefill(observed, tokens, N_TOK, take_all, &all));
    assert_ok(perplexity(observed, WINDOW, &with));
    assert_float_equal((float)log(with), (float)mean_nll(&all, WINDOW), (float)test_rounding(1e-6, 32));
    assert_float_equal((float)(with / without), 1.0f, (float)test_rounding(1e-3, 64));
    wnw_session_free(plain);
    wnw_session_free(observed);
    free(tokens);
    wnw_policy_free(p);
    wnw_model_free(m);
}

static void what_is_missing_is_said(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "qwen3");
    wnw_model *m = test_model_open(name);
    wnw_policy *p = policy();
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    wnw_session *s = session(m, 512), *copy;
    wnw_plan *plan;
    test_prefill(s, tokens, 8);
    assert_error(wnw_session_plan(s, p, &size, &plan, NULL), WNW_E_NOT_OBSERVED);
    assert_ok(wnw_session_reset(s));
    assert_ok(test_observe(s, (const wnw_policy *const[]){p}, 1));
    test_prefill(s, tokens, 8);
    assert_ok(wnw_session_copy(&copy, s));
    assert_ok(wnw_session_decode(s, 9));
    assert_error(wnw_session_plan(s, p, &size, &plan, NULL), WNW_E_NOT_OBSERVED);
    assert_ok(wnw_session_plan(copy, p, &size, &plan, NULL));
    wnw_plan_free(plan);
    wnw_session_free(copy);
    wnw_session_free(s);
    wnw_policy_free(p);
    wnw_model_free(m);
}

/* A policy that wants likelihoods of more tokens than another one wants queries of. */
static void windows_of_two_kinds(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_policy *perplexed = policy(), *snapkv = test_policy("snapkv:window=8");
    const wnw_policy *both[] = {perplexed, snapkv};
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5}, sizes[] = {size, size};
    int32_t *tokens = test_random_tokens(N_TOK, m->hp.n_vocab, 8);
    wnw_plan *plans[2], *alone;
    wnw_session *s = session(m, 32);
    assert_ok(test_observe(s, both, 2));
    test_prefill(s, tokens, N_TOK);
    assert_ok(wnw_session_plan_many(s, both, sizes, 2, plans, NULL));
    assert_ok(wnw_session_plan(s, snapkv, &size, &alone, NULL));
    for (int32_t il = 0; il < m->hp.n_layer; il++)
        for (int32_t ih = 0; ih < m->hp.n_head_kv; ih++) {
            const int32_t *a, *b, n = wnw_plan_head(alone, il, ih, &a);
            assert_int_equal(wnw_plan_head(plans[1], il, ih, &b), n);
            assert_memory_equal(a, b, (size_t)n * sizeof *a);
        }
    wnw_plan_free(plans[0]);
    wnw_plan_free(plans[1]);
    wnw_plan_free(alone);
    wnw_session_free(s);
    free(tokens);
    wnw_policy_free(perplexed);
    wnw_policy_free(snapkv);
    wnw_model_free(m);
}

/* A context that is shorter than the window. */
static void short_context(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_policy *perplexed = policy(), *snapkv = test_policy("snapkv:window=32");
    const wnw_policy *both[] = {perplexed, snapkv};
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.25}, sizes[] = {size, size};
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    wnw_plan *plans[2];
    wnw_session *s = test_session_new(m, &(struct test_session){.n_ctx = 16});
    assert_ok(test_observe(s, both, 2));
    test_prefill(s, tokens, 12);
    assert_ok(wnw_session_plan_many(s, both, sizes, 2, plans, NULL));
    wnw_plan_free(plans[0]);
    wnw_plan_free(plans[1]);
    wnw_session_free(s);
    wnw_policy_free(perplexed);
    wnw_policy_free(snapkv);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(logits_stay),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(windows_of_two_kinds),
        cmocka_unit_test(short_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
