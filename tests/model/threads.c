/* SPDX-License-Identifier: MIT */
/*
 * Sessions of one model in several threads at once, each with policies of its own, give what they give alone;
 * so do models that are opened and recipes that are parsed at the same time. Meant for ThreadSanitizer, which
 * sees our code but not ggml's. A graph is computed by one thread per session, so that no other barrier than
 * ours is needed. What our own loops do is planned with three threads that it sees.
 */
#include "helpers.h"

#include "peek_session.h"
#include "threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 120, N_DECODE = 12, N_THREADS = 4, N_POOL = 3, N_CTX = 256 };

/* What one thread does, and what came of it. */
struct life {
    const wnw_model *model;
    const char *recipe;
    const wnw_policy *policy; /* shared with other threads */
    const int32_t *tokens;    /* [N_PROMPT + N_DECODE] */
    uint64_t hash;            /* of plan and logits */
    int rc;
    char error[256];
    pthread_t id;
};

static uint64_t add(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t add_plan(uint64_t h, const wnw_plan *plan)
{
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++) {
            const int32_t *pos, n = wnw_plan_head(plan, il, ih, &pos);
            h = add(h, pos, (size_t)n * sizeof *pos);
        }
    return h;
}

static int live(struct life *l, wnw_session *s)
{
    wnw_policy *own;
    wnw_plan *plan = NULL;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(l->model, &info));
    int rc = wnw_policy_parse(&own, l->recipe, NULL);
    if (rc == WNW_OK)
        rc = test_observe(s, &l->policy, 1);
    if (rc == WNW_OK)
        rc = wnw_session_prefill(s, l->tokens, N_PROMPT, NULL, NULL);
    struct wnw__pool *pool = wnw__engine_pool(s->engine);
    pool->gather = test_gather; /* for our own loops, in the plan alone */
    pool->n_threads = N_POOL;
    if (rc == WNW_OK)
        rc = wnw_session_plan(s, own, NULL, &plan, NULL);
    pool->n_threads = 1;
    if (rc == WNW_OK) {
        l->hash = add_plan(l->hash, plan);
        rc = wnw_session_apply(s, plan, NULL);
    }
    for (int32_t i = 0; rc == WNW_OK && i < N_DECODE; i++) {
        rc = wnw_session_decode(s, l->tokens[N_PROMPT + i]);
        if (rc == WNW_OK)
            l->hash = add(l->hash, wnw_session_logits(s), (size_t)info.n_vocab * sizeof(float));
    }
    wnw_plan_free(plan);
    wnw_policy_free(own);
    return rc;
}

static void *thread(void *arg)
{
    struct life *l = arg;
    wnw_session_params p = wnw_session_default_params();
    wnw_session *s = NULL;
    p.n_ctx = N_CTX;
    p.n_ubatch = 64;
    p.n_threads = 1;
    l->hash = UINT64_C(0xcbf29ce484222325);
    l->rc = wnw_session_new(&s, l->model, &p);
    if (l->rc == WNW_OK)
        l->rc = live(l, s);
    snprintf(l->error, sizeof l->error, "%s", wnw_last_error()); /* of this thread */
    wnw_session_free(s);
    return NULL;
}

static void start(struct life *l)
{
    assert_int_equal(pthread_create(&l->id, NULL, thread, l), 0);
}

static void finish(struct life *l)
{
    assert_int_equal(pthread_join(l->id, NULL), 0);
    if (l->rc != WNW_OK)
        fail_msg("%s: %s", l->recipe, l->error);
}

static void same_as_alone(void **state)
{
    static const char *const recipes[] = {"snapkv:window=8",     "criticalkv:window=8", "h2o",
                                          "expected_attention",  "lagkv:lag=8,sink=2",  "leverage",
                                          "compilerkv:window=8", "adakv:window=8"};
    enum { N = sizeof recipes / sizeof *recipes };
    wnw_model *m = *state;
    wnw_policy *policies[N];
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(N_PROMPT + N_DECODE, info.n_vocab, 9);
    struct life alone[N], together[N];
    for (int i = 0; i < N; i++) {
        policies[i] = test_policy(recipes[i]);
        alone[i] = together[i] =
            (struct life){.model = m, .recipe = recipes[i], .policy = policies[i], .tokens = tokens};
        start(&alone[i]);
        finish(&alone[i]);
    }
    for (int at = 0; at < N; at += N_THREADS) {
        for (int i = at; i < at + N_THREADS && i < N; i++)
            start(&together[i]);
        for (int i = at; i < at + N_THREADS && i < N; i++)
            finish(&together[i]);
    }
    for (int i = 0; i < N; i++) {
        if (together[i].hash != alone[i].hash)
            fail_msg("%s: another plan or other logits beside other threads", recipes[i]);
        wnw_policy_free(policies[i]);
    }
    free(tokens);
}

/* ---- Everything that needs no session ---- */

static void *open_and_parse(void *arg)
{
    int *failed = arg;
    char path[4096], print[WNW_FINGERPRINT_SIZE];
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    test_model_path(path, sizeof path, "tiny/tiny-qwen3.gguf");
    for (int i = 0; i < 3; i++) {
        wnw_model *m;
        wnw_policy *p;
        int32_t *tokens, n;
        if (wnw_model_open(&m, path, NULL) != WNW_OK) {
            ++*failed;
            continue;
        }
        wnw_model_fingerprint(m, print);
        *failed += strlen(print) != WNW_FINGERPRINT_SIZE - 1;
        *failed += wnw_tokenize(m, "in the thin air", 15, false, false, &tokens, &n) != WNW_OK;
        wnw_free(tokens);
        wnw_model_free(m);
        *failed += wnw_policy_parse(&p, "no-such-policy", NULL) != WNW_E_ARG;
        *failed += strstr(wnw_last_error(), "no-such-policy") == NULL;
        for (int32_t k = 0; wnw_method_get(k, &info); k++)
            *failed += info.name[0] == '\0';
    }
    return NULL;
}

static void models_and_recipes(void **state)
{
    (void)state;
    pthread_t id[N_THREADS];
    int failed[N_THREADS] = {0};
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&id[i], NULL, open_and_parse, &failed[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(id[i], NULL), 0);
        assert_int_equal(failed[i], 0);
    }
}

/* ---- Set-up ---- */

static int set_up(void **state)
{
    *state = test_model_open("tiny/tiny-llama.gguf");
    return 0;
}

static int tear_down(void **state)
{
    wnw_model_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_alone), cmocka_unit_test(models_and_recipes)};
    return cmocka_run_group_tests_name("several threads", tests, set_up, tear_down);
}
