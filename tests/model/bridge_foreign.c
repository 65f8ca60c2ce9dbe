/* SPDX-License-Identifier: MIT */
/*
 * Models that run through libllama and our sessions. On families that winnow has graphs for, both ways must agree: logits,
 * and what policies keep. Families that it has none for: model/bridge_foreign_families.c.
 */
#include "cuts.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_session.h"
#include "profiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 300, N_DECODE = 8, N = N_PROMPT + N_DECODE, N_KEPT = 190 };

static const char *const own[] = {"tiny/tiny-llama.gguf", "tiny/tiny-qwen2-f32.gguf",
                                  "tiny/tiny-qwen3-f32.gguf", "tiny/tiny-gemma3-f32.gguf"};

static const struct test_session exact = {
    .kv_type = WNW_KV_F32, .attn = WNW_ATTN_F32, .n_ctx = 1024, .n_ubatch = 128};

static void set_tokens(int32_t *tokens)
{
    for (int32_t i = 0; i < N; i++)
        tokens[i] = 1 + (i * 7919 + i * i) % 120;
}

static wnw_model *open_foreign(const char *name)
{
    char path[4096];
    wnw_model *m;
    test_model_path(path, sizeof path, name);
    assert_ok(wnw__model_open_foreign(&m, path, NULL));
    assert_non_null(m->executor);
    return m;
}

/* ---- Both ways ---- */

struct two {
    wnw_model *m[2]; /* our graphs, libllama's */
    wnw_session *s[2];
};

static void open_two(struct two *t, const char *name, const struct test_session *want)
{
    t->m[0] = test_model_open(name);
    t->m[1] = open_foreign(name);
    for (int i = 0; i < 2; i++)
        t->s[i] = test_session_new(t->m[i], want);
}

static void close_two(struct two *t)
{
    for (int i = 0; i < 2; i++) {
        wnw_session_free(t->s[i]);
        wnw_model_free(t->m[i]);
    }
}

static double distance(const struct two *t)
{
    return test_nmse(wnw_session_logits(t->s[1]), wnw_session_logits(t->s[0]), t->m[0]->hp.n_vocab);
}

static void test_same_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct two t;
        char a[WNW_FINGERPRINT_SIZE], b[WNW_FINGERPRINT_SIZE];
        open_two(&t, own[i], &exact);
        const struct wnw__hparams *x = &t.m[0]->hp, *y = &t.m[1]->hp;
        assert_int_equal(y->n_layer, x->n_layer);
        assert_int_equal(y->n_head, x->n_head);
        assert_int_equal(y->n_head_kv, x->n_head_kv);
        assert_int_equal(y->n_embd_head, x->n_embd_head);
        assert_int_equal(y->n_vocab, x->n_vocab);
        assert_int_equal(y->n_swa, x->n_swa);
        assert_int_equal(y->n_rot, x->n_rot);
        assert_false(y->rope_unknown);
        assert_float_equal(y->attn_scale * y->q_scale, x->attn_scale * x->q_scale, 1e-7);
        for (int32_t il = 0; il < x->n_layer; il++)
            assert_int_equal(wnw_model_layer_is_swa(t.m[1], il), wnw_model_layer_is_swa(t.m[0], il));
        wnw_model_fingerprint(t.m[0], a);
        wnw_model_fingerprint(t.m[1], b);
        assert_string_equal(a, b);
        close_two(&t);
    }
}

static void test_same_logits(void **state)
{
    (void)state;
    int32_t tokens[N];
    set_tokens(tokens);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct two t;
        double worst = 0;
        open_two(&t, own[i], &exact);
        for (int k = 0; k < 2; k++)
            test_prefill(t.s[k], tokens, N_PROMPT);
        worst = distance(&t);
        for (int32_t at = N_PROMPT; at < N; at++) {
            for (int k = 0; k < 2; k++)
                assert_ok(wnw_session_decode(t.s[k], tokens[at]));
            worst = distance(&t) > worst ? distance(&t) : worst;
        }
        print_message("%s: logits differ by %.2g\n", own[i], worst);
        assert_cmp(worst, <, test_nmse_most(1e-8));
        close_two(&t);
    }
}

/* ---- What is kept ---- */

static const char *const recipes[] = {
    "snapkv",        "keydiff", "lagkv",      "h2o",  "expected_attention", "snapkv+critical", "kvcompose",
    "streaming_llm", "kvzip",   "kvzip_plus", "kvzap"};

/* The session uses the policy and the profile until it ends. */
static wnw_plan *plan_of(wnw_session *s, const wnw_policy *policy, const wnw_profile *profile,
                         const int32_t *tokens)
{
    const wnw_size size = size_budget(N_KEPT);
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy, .profile = profile};
    wnw_plan *plan;
    assert_ok(wnw_session_begin(s, &run));
    test_prefill(s, tokens, N_PROMPT);
    assert_ok(wnw_session_plan(s, policy, &size, &plan, NULL));
    return plan;
}

static void test_keeps_the_same(void **state)
{
    (void)state;
    int32_t tokens[N];
    set_tokens(tokens);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
            struct two t;
            char name[128];
            wnw_plan *plan[2];
            wnw_policy *policy = test_policy(recipes[r]);
            open_two(&t, own[i], &exact);
            wnw_profile *profile = test_profile_of_all_kinds(t.m[0]);
            plan[0] = plan_of(t.s[0], policy, profile, tokens);
            struct test_cuts *kept = test_cuts_note();
            plan[1] = plan_of(t.s[1], policy, profile, tokens);
            test_cuts_stop();
            snprintf(name, sizeof name, "%s, %s", own[i], recipes[r]);
            test_session_keeps_as(
                name,
                &(struct test_keep){.m = t.m[0],
                                    .want = exact,
                                    .run = {WNW_INIT(wnw_run), .policy = policy, .profile = profile},
                                    .size = size_budget(N_KEPT),
                                    .tokens = tokens,
                                    .n = N_PROMPT},
                kept);
            test_cuts_free(kept);
            for (int k = 0; k < 2; k++) {
                assert_ok(wnw_session_apply(t.s[k], plan[0], NULL));
                assert_ok(wnw_session_decode(t.s[k], tokens[N_PROMPT]));
            }
            assert_cmp(distance(&t), <, test_nmse_most(1e-8));
            for (int k = 0; k < 2; k++)
                wnw_plan_free(plan[k]);
            close_two(&t);
            wnw_policy_free(policy);
            wnw_profile_free(profile);
        }
}

/* What layers' attention reads, in each as the other way shows it. */
static void test_reads_the_same(void **state)
{
    (void)state;
    int32_t tokens[N];
    set_tokens(tokens);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct two t;
        const struct wnw__token_rows *x[2];
        open_two(&t, own[i], &exact);
        for (int k = 0; k < 2; k++) {
            assert_ok(wnw__session_record(t.s[k], "inputs", true));
            test_prefill(t.s[k], tokens, N_PROMPT);
            x[k] = wnw__recorders_find(&t.s[k]->recorders, &wnw__inputs_recorder);
        }
        assert_int_equal(x[0]->row, t.m[0]->hp.n_embd);
        assert_int_equal(x[1]->row, t.m[0]->hp.n_embd);
        for (int32_t il = 0; il < t.m[0]->hp.n_layer; il++) {
            assert_int_equal(x[1]->layers[il].n, N_PROMPT);
            assert_cmp(
                test_nmse(x[1]->layers[il].q, x[0]->layers[il].q, (int64_t)N_PROMPT * t.m[0]->hp.n_embd), <,
                test_nmse_most(1e-8));
        }
        close_two(&t);
    }
}

/* ---- New positions ---- */

static void test_renumbers_the_same(void **state)
{
    (void)state;
    int32_t tokens[N];
    const wnw_size size = size_budget(100);
    set_tokens(tokens);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct two t;
        wnw_policy *policy = test_policy("streaming_llm+rerotate");
        bool refused = false;
        open_two(&t, own[i], &exact);
        for (int k = 0; k < 2; k++) {
            test_prefill(t.s[k], tokens, N_PROMPT);
            const int rc = wnw_session_compress(t.s[k], policy, &size, NULL);
            assert_true(rc == WNW_OK || strstr(own[i], "gemma3")); /* it has sliding windows */
            assert_true(k == 0 || refused == (rc != WNW_OK));
            refused = rc != WNW_OK;
            if (refused)
                assert_says("original positions");
        }
        for (int32_t at = N_PROMPT; !refused && at < N; at++) {
            for (int k = 0; k < 2; k++)
                assert_ok(wnw_session_decode(t.s[k], tokens[at]));
            assert_same_entries(t.s[0], t.s[1]);
            assert_cmp(distance(&t), <, test_nmse_most(1e-8));
        }
        close_two(&t);
        wnw_policy_free(policy);
    }
}

/* ---- Sessions ---- */

/* Sessions of one engine in one pass read what each reads alone, and a copy goes on as its original does. */
static void test_sequences(void **state)
{
    (void)state;
    int32_t tokens[N];
    set_tokens(tokens);
    wnw_model *m = open_foreign(own[0]);
    wnw_engine *e;
    wnw_session *s[3], *alone = test_session_new(m, &exact);
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = 1024, .kv_type = WNW_KV_F32,
                                       .attn = WNW_ATTN_F32};
    const wnw_engine_params of_engine = {WNW_INIT(wnw_engine_params), .n_ubatch = 128, .n_threads = 2,
                                         .attn = WNW_ATTN_F32};
    assert_ok(wnw_engine_new(&e, m, &of_engine));
    for (int i = 0; i < 2; i++) {
        assert_ok(wnw_session_new_on(&s[i], e, &params));
        test_prefill(s[i], tokens, 100 + 50 * i);
    }
    assert_ok(wnw_session_copy(&s[2], s[1]));
    const int32_t next[3] = {tokens[100], tokens[150], tokens[150]};
    assert_ok(wnw_decode_batch(e, s, next, 3));
    test_logits(s[1], s[2], __FILE__, __LINE__);
    test_prefill(alone, tokens, 150);
    assert_ok(wnw_session_decode(alone, tokens[150]));
    assert_cmp(test_nmse(wnw_session_logits(s[1]), wnw_session_logits(alone), m->hp.n_vocab), <,
               test_nmse_most(1e-8));
    for (int i = 0; i < 3; i++)
        wnw_session_free(s[i]);
    wnw_engine_free(e);
    wnw_session_free(alone);
    wnw_model_free(m);
}

static void test_refusals(void **state)
{
    (void)state;
    int32_t tokens[N];
    set_tokens(tokens);
    wnw_model *m = open_foreign(own[0]);
    wnw_session *s;
    const wnw_session_params ggml = {WNW_INIT(wnw_session_params), .attn = WNW_ATTN_GGML};
    assert_error(wnw_session_new(&s, m, &ggml), WNW_E_UNSUPPORTED);
    assert_says("the ggml attention");
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_sizes),         cmocka_unit_test(test_same_logits),
        cmocka_unit_test(test_keeps_the_same),     cmocka_unit_test(test_reads_the_same),
        cmocka_unit_test(test_renumbers_the_same), cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
