/* SPDX-License-Identifier: MIT */
/*
 * A score threshold while a session runs. The first layer's keys depend on the tokens alone, and a key's norm
 * never changes: in every phase, what is left there must be what the whole text judged at once leaves.
 */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 120, N_DECODE = 40, N = N_PROMPT + N_DECODE, EVERY = 4 };

static wnw_session *new_session(const wnw_model *m, wnw_attn attn)
{
    return test_session_new(
        m, &(struct test_session){.kv_type = WNW_KV_F32, .attn = attn, .n_ctx = 256, .n_threads = 1});
}

/* A threshold between the scores of the first layer: that of its median entry in head 0. */
static double median_score(const wnw_model *m, const int32_t *tokens)
{
    wnw_session *s = new_session(m, WNW_ATTN_OWN);
    wnw_plan *plan;
    double low = -100, high = 0;
    test_prefill(s, tokens, N);
    for (int i = 0; i < 30; i++) {
        char recipe[96];
        const int32_t *unused;
        const double mid = (low + high) / 2;
        snprintf(recipe, sizeof recipe, "knorm+threshold:tau=%.9g,window=0", mid);
        wnw_policy *p = test_policy(recipe);
        assert_ok(test_observe(s, (const wnw_policy *const *)&p, 1));
        assert_ok(wnw_session_plan(s, p, NULL, &plan, NULL));
        *(wnw_plan_head(plan, 0, 0, &unused) > N / 2 ? &low : &high) = mid;
        wnw_plan_free(plan);
        wnw_policy_free(p);
    }
    wnw_session_free(s);
    return (low + high) / 2;
}

static double norm_of(const wnw_session *s, int32_t ih, int32_t i, int32_t d)
{
    float key[256];
    assert_cmp(d, <=, 256);
    test_read_row(s, true, 0, ih, i, key);
    return sqrt(test_dot(key, key, d));
}

/* An entry that one keeps and the other drops lies within the error of the threshold. That is measured on entries that both keep: keys
 * that were read in other batches are rounded otherwise. */
static void check_head(const wnw_session *once, const wnw_session *rules, int32_t ih, const int32_t *want,
                       int32_t n, double tau)
{
    const int32_t *has = wnw_cache_positions(rules, 0, ih), n_has = wnw_cache_n(rules, 0, ih),
                  d = rules->cache.d;
    double error = 0, farthest = 0;
    for (int32_t pos = 0, i = 0, k = 0; pos < N; pos++) {
        const double norm = norm_of(once, ih, pos, d); /* it holds everything */
        const bool in_plan = i < n && want[i] == pos, in_rules = k < n_has && has[k] == pos;
        if (in_plan && in_rules)
            error = fmax(error, fabs(norm_of(rules, ih, k, d) - norm));
        if (in_plan != in_rules)
            farthest = fmax(farthest, fabs(norm + tau));
        i += in_plan;
        k += in_rules;
    }
    assert_cmp(farthest, <=,
               4 * error +
                   1e-5 * fabs(tau)); /* the largest of some hundred errors; what float32 itself leaves */
}

struct threshold {
    const wnw_policy *p;
    double tau;
};

static void run(const wnw_model *m, const int32_t *tokens, const struct threshold *t, wnw_phase phase,
                wnw_attn attn)
{
    const wnw_policy *p = t->p;
    wnw_session *once = new_session(m, attn), *rules = new_session(m, attn);
    wnw_plan *plan;
    int32_t n_gone = 0;
    assert_ok(test_observe(once, (const wnw_policy *const *)&p, 1));
    test_prefill(once, tokens, N);
    assert_ok(wnw_session_plan(once, p, NULL, &plan, NULL));
    const wnw_run ev = {WNW_INIT(wnw_run), .policy = p, .phase = phase, .chunk = 16, .every = EVERY};
    assert_ok(wnw_session_begin(rules, &ev));
    assert_ok(wnw_session_read(rules, tokens, N_PROMPT, NULL));
    test_decode(rules, tokens + N_PROMPT, N - N_PROMPT);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    for (int32_t ih = 0; ih < info.n_head_kv; ih++) {
        const int32_t *want;
        const int32_t n = wnw_plan_head(plan, 0, ih, &want);
        check_head(once, rules, ih, want, n, t->tau);
        n_gone += N - n;
    }
    assert_cmp(n_gone, >, N / 4);
    wnw_plan_free(plan);
    wnw_session_free(once);
    wnw_session_free(rules);
}

static void same_in_every_phase(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX], recipe[96];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(N, info.n_vocab, 9);
    const double tau = median_score(m, tokens);
    snprintf(recipe, sizeof recipe, "knorm+threshold:tau=%.9g,window=12", tau);
    wnw_policy *p = test_policy(recipe);
    const struct threshold t = {p, tau};
    for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_GGML; attn++) {
        run(m, tokens, &t, WNW_PHASE_END, (wnw_attn)attn);
        run(m, tokens, &t, WNW_PHASE_LAYER, (wnw_attn)attn);
        run(m, tokens, &t, WNW_PHASE_CHUNK, (wnw_attn)attn);
    }
    wnw_policy_free(p);
    free(tokens);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_in_every_phase)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
