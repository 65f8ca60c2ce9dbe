/* SPDX-License-Identifier: MIT */
/* New positions for kept tokens: keys of the first layer depend on token and position alone, and attention on
 * distances alone. */
#include "helpers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_session.h"

enum { N = 120, KEEP = 40, N_MORE = 8 };

struct fixture {
    wnw_model *m;
    wnw_model_info info;
    wnw_session *s;
    int32_t *tokens; /* [N + N_MORE] */
};

static void open_fixture(struct fixture *f, const char *arch, wnw_kv_type type)
{
    f->m = test_tiny_open(arch);
    f->info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(f->m, &f->info));
    f->tokens = test_random_tokens(N + N_MORE, f->info.n_vocab, 23);
    f->s = test_session_new(f->m, &(struct test_session){.kv_type = type, .n_ctx = 256, .n_threads = 1});
    test_prefill(f->s, f->tokens, N);
}

static void close_fixture(struct fixture *f)
{
    wnw_session_free(f->s);
    wnw_model_free(f->m);
    free(f->tokens);
}

/* Keeps the first n_first and the last tokens, KEEP in all, everywhere. */
static void keep(struct fixture *f, int32_t n_first)
{
    char recipe[64];
    snprintf(recipe, sizeof recipe, "streaming_llm:sinks=%d", (int)n_first);
    wnw_policy *p = test_policy(recipe);
    assert_ok(wnw_session_compress(f->s, p, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = KEEP}, NULL));
    wnw_policy_free(p);
}

static double key_error(const wnw_session *a, const wnw_session *b, int32_t il)
{
    const struct wnw__cache *c = &a->cache;
    float x[512], y[512];
    double worst = 0;
    assert_cmp(c->d, <=, 512);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        for (int32_t i = 0; i < wnw_cache_n(a, il, ih); i++) {
            const struct wnw__kv_layer *la = &a->cache.layers[il], *lb = &b->cache.layers[il];
            wnw__rows_to_f32(c->type, la->k + (size_t)(la->off[ih] + i) * c->row_bytes, 1, c->d, x);
            wnw__rows_to_f32(c->type, lb->k + (size_t)(lb->off[ih] + i) * c->row_bytes, 1, c->d, y);
            for (int32_t k = 0; k < c->d; k++)
                worst = fmax(worst, fabs((double)x[k] - (double)y[k]));
        }
    return worst;
}

static const char *const archs[] = {"llama", "qwen2", "qwen3"};

/* The kept tokens read afresh have the same keys in the first layer, with every family's way to turn. */
static void keys_as_if_read_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct fixture f;
        open_fixture(&f, archs[i], WNW_KV_F32);
        keep(&f, 4);
        int32_t kept[KEEP];
        for (int32_t k = 0; k < KEEP; k++)
            kept[k] = f.tokens[wnw_cache_positions(f.s, 0, 0)[k]];
        wnw_session *fresh = test_session_new(
            f.m, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = 256, .n_threads = 1});
        test_prefill(fresh, kept, KEEP);
        assert_cmp(key_error(f.s, fresh, 0), >, 0.01);
        assert_ok(wnw_session_renumber(f.s));
        assert_int_equal(wnw_session_n_past(f.s), KEEP);
        for (int32_t k = 0; k < KEEP; k++)
            assert_int_equal(wnw_cache_positions(f.s, f.info.n_layer - 1, 0)[k], k);
        const double worst = key_error(f.s, fresh, 0);
        if (!(worst < test_rounding(2e-5, 16))) /* float32 angles on one side, double on the other */
            fail_msg("%s: keys differ by %g", archs[i], worst);
        assert_memory_equal(f.s->token_log.tokens, kept, sizeof kept);
        wnw_session_free(fresh);
        close_fixture(&f);
    }
}

/* All kept entries move by the same distance: nothing that follows may notice. */
static void shifts_go_unnoticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct fixture f;
        wnw_session *moved;
        struct test_diff d = {0};
        open_fixture(&f, archs[i], WNW_KV_F32);
        keep(&f, 0);
        assert_ok(wnw_session_copy(&moved, f.s));
        assert_ok(wnw_session_renumber(moved));
        for (int32_t k = 0; k < N_MORE; k++) {
            assert_ok(wnw_session_decode(f.s, f.tokens[N + k]));
            assert_ok(wnw_session_decode(moved, f.tokens[N + k]));
            test_diff_add(&d, wnw_session_logits(f.s), wnw_session_logits(moved), f.info.n_vocab);
        }
        assert_int_equal(wnw_session_n_past(moved), KEEP + N_MORE);
        if (!(test_diff_nmse(&d) < test_nmse_most(1e-8)))
            fail_msg("%s: logits differ, normalised error %g", archs[i], test_diff_nmse(&d));
        wnw_session_free(moved);
        close_fixture(&f);
    }
}

/* Sinks move closer: that is noticed, or nothing was turned. */
static void gaps_close(void **state)
{
    (void)state;
    struct fixture f;
    wnw_session *moved;
    struct test_diff d = {0};
    open_fixture(&f, "llama", WNW_KV_F16);
    keep(&f, 4);
    assert_ok(wnw_session_copy(&moved, f.s));
    assert_ok(wnw_session_renumber(moved));
    assert_ok(wnw_session_renumber(moved)); /* nothing left to do */
    assert_ok(wnw_session_decode(f.s, f.tokens[N]));
    assert_ok(wnw_session_decode(moved, f.tokens[N]));
    test_diff_add(&d, wnw_session_logits(f.s), wnw_session_logits(moved), f.info.n_vocab);
    assert_cmp(test_diff_nmse(&d), >, 1e-8);
    wnw_session_free(moved);
    close_fixture(&f);
}

/* A window that slides for ever: many more tokens than the context holds. */
static void endless(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "llama", WNW_KV_F16);
    assert_ok(wnw_session_reset(f.s));
    wnw_policy *p = test_policy("streaming_llm+rerotate");
    wnw_run rules = {WNW_INIT(wnw_run), .policy = p, .size = {.kind = WNW_SIZE_BUDGET, .budget = KEEP},
                     .every = 4, .target = KEEP};
    assert_ok(wnw_session_begin(f.s, &rules));
    assert_ok(wnw_session_read(f.s, f.tokens, N, NULL));
    assert_int_equal(wnw_session_n_past(f.s), KEEP);
    for (int32_t k = 0; k < 400; k++) {
        assert_ok(wnw_session_decode(f.s, f.tokens[k % N]));
        assert_cmp(wnw_session_n_past(f.s), <, KEEP + 4);
        assert_int_equal(wnw_cache_n(f.s, 0, 0), wnw_session_n_past(f.s));
    }
    assert_all_finite(wnw_session_logits(f.s), f.info.n_vocab);
    wnw_policy_free(p);
    close_fixture(&f);
}

static void refusals(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "llama", WNW_KV_F16);
    wnw_policy *p = test_policy("knorm+adakv");
    assert_ok(wnw_session_compress(f.s, p, &(wnw_size){.kind = WNW_SIZE_BUDGET, .budget = KEEP}, NULL));
    assert_error(wnw_session_renumber(f.s), WNW_E_UNSUPPORTED);
    assert_int_equal(wnw_session_n_past(f.s), N);
    wnw_policy_free(p);
    close_fixture(&f);
    open_fixture(&f, "gemma3", WNW_KV_F16);
    assert_error(wnw_session_renumber(f.s), WNW_E_UNSUPPORTED);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_as_if_read_there),
        cmocka_unit_test(shifts_go_unnoticed),
        cmocka_unit_test(gaps_close),
        cmocka_unit_test(endless),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
