/* SPDX-License-Identifier: MIT */
/* Gates on hidden states on tiny models: they are asked while tokens are read, and their scores stay with the entries. */
#include "helpers.h"
#include "peek_session.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdlib.h>

enum { N = 90, N_CTX = 160 };

/* A profile with linear gates for the model, made up. */
static wnw_profile *made_up(const wnw_model *m, int32_t n_embd, int32_t skipped)
{
    wnw_profile *p;
    uint64_t seed = 5;
    assert_ok(wnw_profile_new(&p, m));
    p->kinds = 1u << WNW_PROFILE_INPUTGATE;
    p->inputs = (struct wnw__input_gate){.form = WNW_INPUT_LINEAR, .n_embd = n_embd};
    assert_ok(wnw__input_gate_new(&p->inputs, &p->model));
    const int64_t n = wnw__input_numbers(&p->inputs, &p->model);
    for (int64_t i = 0; i < n * p->model.n_layer; i++)
        p->inputs.number[i] = (float)(test_random(&seed) >> 40) * 0x1p-24f - 0.5f;
    for (int32_t il = 0; il < p->model.n_layer; il++)
        p->inputs.there[il] = il != skipped;
    return p;
}

static wnw_session *session_of(const struct test_model *t, int32_t n_ubatch)
{
    return test_session_new(
        t->m,
        &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = N_CTX, .n_ubatch = n_ubatch, .n_threads = 2});
}

/* What is read from now on is observed for the policy, with the profile. */
static void watch(wnw_session *s, const wnw_policy *policy, const wnw_profile *p)
{
    const wnw_run run = {WNW_INIT(wnw_run), .profile = p,
                         .more =
                             &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = &policy, .n_policies = 1}};
    assert_ok(wnw_session_begin(s, &run));
}

static float score_at(const wnw_session *s, int32_t il, int32_t ih, int32_t i)
{
    const struct wnw__kv_layer *l = &s->cache.layers[il];
    return wnw__cache_aux(l, WNW_AUX_GATE, 0)[l->off[ih] + i];
}

/* Every entry has the score of its token's hidden state, as another session recorded it; gates change no logit. */
static void asked_while_reading(void **state)
{
    (void)state;
    static const char *const arch[] = {"llama", "qwen2", "gemma3"};
    for (size_t a = 0; a < sizeof arch / sizeof *arch; a++) {
        struct test_model t;
        test_open_tiny(&t, arch[a], N + 8, 7);
        wnw_profile *p = made_up(t.m, t.info.n_embd, -1);
        wnw_policy *policy = test_policy("inputgate");
        wnw_session *plain = session_of(&t, 64), *asked = session_of(&t, 64);
        assert_ok(wnw__session_record(plain, "inputs", true));
        test_prefill(plain, t.tokens, N);
        watch(asked, policy, p);
        test_prefill(asked, t.tokens, N);
        assert_same_cache(plain, asked);
        assert_same_logits(plain, asked);
        const struct wnw__token_rows *x = wnw__recorders_find(&plain->recorders, &wnw__inputs_recorder);
        const int64_t n = wnw__input_numbers(&p->inputs, &p->model);
        for (int32_t il = 0; il < t.info.n_layer; il++) {
            const float *w = p->inputs.number + il * n;
            for (int32_t ih = 0; ih < t.info.n_head_kv && !wnw_model_layer_is_swa(t.m, il); ih++)
                for (int32_t i = 0; i < N; i++) {
                    const float *row = wnw__token_rows_at(x, il, i);
                    double want = (double)w[(int64_t)t.info.n_head_kv * t.info.n_embd + ih];
                    for (int32_t c = 0; c < t.info.n_embd; c++)
                        want += (double)w[(int64_t)ih * t.info.n_embd + c] * (double)row[c];
                    assert_near(score_at(asked, il, ih, i), want, test_rounding(1e-4, 8) * (1 + fabs(want)));
                }
        }
        wnw_session_free(plain);
        wnw_session_free(asked);
        wnw_policy_free(policy);
        wnw_profile_free(p);
        test_close(&t);
    }
}

/* Scores stay with their entries: in pieces, through compression, in a copy, and of tokens that are decoded. */
static void scores_travel(void **state)
{
    (void)state;
    struct test_model t;
    test_open_tiny(&t, "llama", N + 8, 7);
    wnw_profile *p = made_up(t.m, t.info.n_embd, -1);
    wnw_policy *policy = test_policy("inputgate:recent=0+equal");
    wnw_session *whole = session_of(&t, 64), *s = session_of(&t, 20), *copy;
    wnw_session *const both[] = {whole, s};
    for (int i = 0; i < 2; i++) {
        watch(both[i], policy, p);
        test_prefill(both[i], t.tokens, N);
    }
    assert_ok(wnw_session_compress(s, policy, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5}, NULL));
    assert_ok(wnw_session_copy(&copy, s));
    wnw_session_free(s);
    for (int32_t k = 0; k < 4; k++) {
        assert_ok(wnw_session_decode(copy, t.tokens[N + k]));
        assert_ok(wnw_session_decode(whole, t.tokens[N + k]));
    }
    for (int32_t il = 0; il < t.info.n_layer; il++)
        for (int32_t ih = 0; ih < t.info.n_head_kv; ih++) {
            const struct wnw__kv_layer *l = &copy->cache.layers[il];
            assert_int_equal(l->len[ih], N / 2 + 4);
            /* Layer 0 reads the same hidden states under any cache. */
            for (int32_t i = 0; i < l->len[ih]; i++)
                if (il == 0 || i < N / 2)
                    assert_near(score_at(copy, il, ih, i), score_at(whole, il, ih, l->pos[l->off[ih] + i]),
                                test_rounding(1e-3, 32));
                else
                    assert_true(isfinite(score_at(copy, il, ih, i)));
        }
    /* The best of what is there, decoded tokens too. */
    assert_ok(wnw_session_compress(copy, policy, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 20}, NULL));
    wnw_session_free(whole);
    wnw_session_free(copy);
    wnw_policy_free(policy);
    wnw_profile_free(p);
    test_close(&t);
}

static void what_is_missing(void **state)
{
    (void)state;
    struct test_model t;
    test_open_tiny(&t, "llama", N, 7);
    wnw_profile *p = made_up(t.m, t.info.n_embd, -1), *gap = made_up(t.m, t.info.n_embd, 1),
                *wide = made_up(t.m, t.info.n_embd + 1, -1);
    wnw_policy *policy = test_policy("inputgate");
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    wnw_session *s = session_of(&t, 64);
    wnw_plan *plan;
    /* A profile that comes after the prompt. */
    watch(s, policy, NULL);
    test_prefill(s, t.tokens, N);
    assert_error(wnw_session_plan(s, policy, &half, &plan, NULL), WNW_E_MISMATCH);
    assert_says("kind inputgate");
    watch(s, policy, p);
    assert_error(wnw_session_plan(s, policy, &half, &plan, NULL), WNW_E_NOT_OBSERVED);
    assert_says("the profile must be there before");
    wnw_session_free(s);
    /* A layer without gates. */
    s = session_of(&t, 64);
    watch(s, policy, gap);
    test_prefill(s, t.tokens, N);
    assert_error(wnw_session_plan(s, policy, &half, &plan, NULL), WNW_E_NOT_OBSERVED);
    assert_says("layer 1 has no gate");
    wnw_session_free(s);
    /* Gates for other hidden states. */
    s = session_of(&t, 64);
    watch(s, policy, wide);
    assert_error(wnw_session_prefill(s, t.tokens, N, NULL, NULL), WNW_E_MISMATCH);
    assert_says("read hidden states of");
    wnw_session_free(s);
    wnw_policy_free(policy);
    wnw_profile_free(p);
    wnw_profile_free(gap);
    wnw_profile_free(wide);
    test_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(asked_while_reading), cmocka_unit_test(scores_travel),
                                       cmocka_unit_test(what_is_missing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
