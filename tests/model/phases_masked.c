/* SPDX-License-Identifier: MIT */
/*
 * Several evictions in a row against the oracle: a session that keeps everything and hides, before every
 * step, what the other one has dropped by then. Pieces of a prompt and decoded tokens are steps alike. Both
 * sides use ggml's attention on a float32 cache, the same arithmetic on the same rows: normalised square
 * error of the logits below 1e-9, and far above it without the masks.
 */
#include "helpers.h"
#include "hiding.h"

#include <stdlib.h>
#include <string.h>

enum { N_CTX = 400 };

static wnw_session *new_session(const wnw_model *m, wnw_attn attn)
{
    return test_session_new(
        m, &(struct test_session){.kv_type = WNW_KV_F32, .attn = attn, .n_ctx = N_CTX, .n_threads = 1});
}

/* What s holds, as a plan of a full cache. */
static wnw_plan *holdings(const wnw_session *s, const wnw_model_info *info)
{
    const int32_t n_head = info->n_layer * info->n_head_kv;
    int32_t *n = calloc((size_t)n_head, sizeof *n);
    const int32_t **pos = calloc((size_t)n_head, sizeof(const int32_t *));
    wnw_plan *plan = NULL;
    assert_non_null(n);
    assert_non_null(pos);
    for (int32_t i = 0; i < n_head; i++) {
        n[i] = wnw_cache_n(s, i / info->n_head_kv, i % info->n_head_kv);
        pos[i] = wnw_cache_positions(s, i / info->n_head_kv, i % info->n_head_kv);
    }
    assert_ok(wnw_plan_new(&plan, info->n_layer, info->n_head_kv, wnw_session_n_past(s), n, pos));
    free(n);
    free(pos);
    return plan;
}

static double compare(const char *arch, const char *recipe, wnw_run rules, wnw_attn attn, bool mask)
{
    wnw_model *m = test_tiny_open(arch);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(N_CTX, info.n_vocab, 17);
    wnw_session *ref = new_session(m, WNW_ATTN_GGML), *s = new_session(m, attn);
    wnw_policy *p = test_policy(recipe);
    struct test_diff d = {0};
    rules.policy = p;
    assert_ok(wnw_session_begin(s, &rules));
    static const int32_t pieces[] = {120, 1, 1, 1, 1, 1, 1, 1, 1, 60, 1, 1, 1, 1, 50};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        const int32_t *at = tokens + wnw_session_n_past(s);
        if (i > 0 && mask) {
            wnw_plan *plan = holdings(s, &info);
            test_hide_dropped(ref, plan);
            wnw_plan_free(plan);
        }
        if (pieces[i] == 1) {
            assert_ok(wnw_session_decode(ref, *at));
            assert_ok(wnw_session_decode(s, *at));
        } else {
            test_prefill(ref, at, pieces[i]);
            assert_ok(wnw_session_read(s, at, pieces[i], NULL));
        }
        test_diff_add(&d, wnw_session_logits(ref), wnw_session_logits(s), info.n_vocab);
    }
    assert_cmp(wnw_cache_n(s, info.n_layer - 1, 0), <, wnw_cache_n(ref, info.n_layer - 1, 0));
    test_diff_print(recipe, &d);
    test_hide_end();
    wnw_session_free(ref);
    wnw_session_free(s);
    wnw_policy_free(p);
    free(tokens);
    wnw_model_free(m);
    return test_diff_nmse(&d);
}

static void against_masks(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma3"};
    static const char *const recipes[] = {"tova", "snapkv:window=8+adakv", "lagkv:sink=4,lag=16",
                                          "streaming_llm"};
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 50};
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++)
        for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
            for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_LAYER; phase++) {
                const wnw_run rules = {WNW_INIT(wnw_run), .size = size, .phase = (wnw_phase)phase,
                                       .every = r == 0 ? 1 : 3};
                assert_cmp(compare(archs[a], recipes[r], rules, WNW_ATTN_GGML, true), <,
                           test_nmse_most(1e-9));
            }
}

static void masks_matter(void **state)
{
    (void)state;
    const wnw_run rules = {WNW_INIT(wnw_run), .size = {.kind = WNW_SIZE_BUDGET, .budget = 50}, .every = 1};
    assert_cmp(compare("llama", "tova", rules, WNW_ATTN_GGML, false), >, 1e-6);
}

/* Our attention differs from ggml's in the order of additions only. */
static void own_attention(void **state)
{
    (void)state;
    const wnw_run rules = {WNW_INIT(wnw_run), .size = {.kind = WNW_SIZE_BUDGET, .budget = 50}, .every = 2};
    assert_cmp(compare("llama", "snapkv:window=8+adakv", rules, WNW_ATTN_OWN, true), <, test_nmse_most(1e-6));
    assert_cmp(compare("qwen2", "tova", rules, WNW_ATTN_OWN, true), <, test_nmse_most(1e-6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_masks),
        cmocka_unit_test(masks_matter),
        cmocka_unit_test(own_attention),
    };
    return cmocka_run_group_tests_name("phases against masks", tests, NULL, NULL);
}
