/* SPDX-License-Identifier: MIT */
/*
 * A session as its user sees it: keeping everything changes nothing, the bytes that are reported are the
 * bytes that are held (model_freed: and go back to the system), and the number of threads changes no result.
 */
#include "helpers.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const recipes[] = {"streaming_llm", "tova",      "snapkv",       "knorm",
                                      "lagkv",         "pyramidkv", "snapkv+adakv", "full"};
#define N_RECIPES ((int)(sizeof recipes / sizeof recipes[0]))

static wnw_model *open_tiny_llama(wnw_model_info *info)
{
    wnw_model *m = test_tiny_open("llama");
    *info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(m, info));
    return m;
}

/* n greedy tokens; the logits of the last go to last[n_vocab]. */
static void generate(wnw_session *s, int32_t n, int32_t n_vocab, int32_t *out, float *last)
{
    for (int32_t i = 0; i < n; i++) {
        out[i] = test_argmax(wnw_session_logits(s), n_vocab);
        assert_ok(wnw_session_decode(s, out[i]));
    }
    memcpy(last, wnw_session_logits(s), (size_t)n_vocab * sizeof *last);
}

/* ---- Keeping everything ---- */

#define N_GREEDY 40

static void ratio_0_changes_nothing(void **state)
{
    (void)state;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    wnw_model *m = open_tiny_llama(&info);
    int32_t *tokens = test_random_tokens(150, info.n_vocab, 5);
    float *want = malloc((size_t)info.n_vocab * sizeof *want),
          *got = malloc((size_t)info.n_vocab * sizeof *got);
    assert_non_null(want);
    assert_non_null(got);
    int32_t ids_want[N_GREEDY], ids_got[N_GREEDY];
    const struct test_session how = {.attn = WNW_ATTN_OWN, .n_ctx = 256};
    wnw_session *s = test_session_new(m, &how);
    test_prefill(s, tokens, 150);
    generate(s, N_GREEDY, info.n_vocab, ids_want, want);
    wnw_session_free(s);
    for (int i = 0; i < N_RECIPES; i++) {
        wnw_policy *policy = test_policy(recipes[i]);
        const wnw_size size = {.kind = wnw_policy_is_full(policy) ? WNW_SIZE_NONE : WNW_SIZE_RATIO};
        s = test_session_read(m, &how, policy, tokens, 150);
        wnw_report report = {WNW_INIT(wnw_report)};
        assert_ok(wnw_session_compress(s, policy, &size, &report));
        assert_int_equal(report.entries_after, report.entries_before);
        assert_int_equal(report.entries_after, 150 * info.n_layer * info.n_head_kv);
        generate(s, N_GREEDY, info.n_vocab, ids_got, got);
        assert_memory_equal(ids_got, ids_want, sizeof ids_want);
        assert_memory_equal(got, want, (size_t)info.n_vocab * sizeof *want);
        wnw_session_free(s);
        wnw_policy_free(policy);
    }
    free(want);
    free(got);
    free(tokens);
    wnw_model_free(m);
}

/* ---- Bytes ---- */

static void bytes_are_bounded(void **state)
{
    (void)state;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    wnw_model *m = open_tiny_llama(&info);
    int32_t *tokens = test_random_tokens(1000, info.n_vocab, 6);
    const int64_t n_heads = (int64_t)info.n_layer * info.n_head_kv;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < N_RECIPES; i++) {
            wnw_policy *policy = test_policy(recipes[i]);
            wnw_session *s =
                test_session_new(m, &(struct test_session){.kv_type = (wnw_kv_type)k, .n_ctx = 1024});
            assert_ok(test_observe(s, (const wnw_policy *const *)&policy, 1));
            test_prefill(s, tokens, 1000);
            const bool full = wnw_policy_is_full(policy);
            const wnw_size size = {.kind = full ? WNW_SIZE_NONE : WNW_SIZE_BUDGET, .budget = 300};
            wnw_report report = {WNW_INIT(wnw_report)};
            wnw_cache_stats st = {WNW_INIT(wnw_cache_stats)};
            assert_ok(wnw_session_compress(s, policy, &size, &report));
            assert_ok(wnw_cache_get_stats(s, &st));
            const uint64_t entry = wnw_kv_entry_bytes((wnw_kv_type)k, info.n_embd_head);
            int64_t n = 0;
            for (int32_t h = 0; h < n_heads; h++)
                n += wnw_cache_n(s, h / info.n_head_kv, h % info.n_head_kv);
            /* LagKV keeps the same share of every block, so it may miss the size by less than one entry per
             * block; nobody may exceed it. */
            const int64_t want = (full ? 1000 : 300) * n_heads;
            const int64_t short_of = strcmp(recipes[i], "lagkv") == 0 ? 1000 / 128 * n_heads : 0;
            assert_in_range(n, want - short_of, want);
            assert_int_equal(st.n_entries, n);
            assert_int_equal(st.bytes_entries, (uint64_t)n * entry);
            assert_int_equal(report.entries_after, n);
            assert_int_equal(report.kv_bytes_after, st.bytes);
            assert_cmp(st.bytes, >=, st.bytes_entries);
            const double limit = 1.05 * (double)st.bytes_entries +
                                 (double)((uint64_t)n_heads * (uint64_t)st.growth * entry) +
                                 (double)(2 * (uint64_t)info.n_layer * page);
            assert_cmp((double)st.bytes, <=, limit);
            if (!full)
                assert_cmp(st.bytes, <, report.kv_bytes_before / 2);
            wnw_session_free(s);
            wnw_policy_free(policy);
        }
    free(tokens);
    wnw_model_free(m);
}

/* ---- Threads ---- */

static void threads_change_nothing(const char *name, const int32_t *tokens, int32_t n, const char *recipe)
{
    wnw_model *m = test_model_open(name);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *random = tokens ? NULL : test_random_tokens(n, info.n_vocab, 8);
    wnw_plan *plan[2] = {NULL, NULL};
    float *last[2], *first[2];
    int32_t ids[2][N_GREEDY];
    const size_t bytes = (size_t)info.n_vocab * sizeof(float);
    for (int i = 0; i < 2; i++) {
        wnw_policy *policy = test_policy(recipe);
        wnw_session *s = test_session_read(
            m, &(struct test_session){.attn = WNW_ATTN_OWN, .n_ctx = n + N_GREEDY, .n_threads = 1 + i},
            policy, tokens ? tokens : random, n);
        first[i] = malloc(bytes);
        last[i] = malloc(bytes);
        assert_non_null(first[i]);
        assert_non_null(last[i]);
        memcpy(first[i], wnw_session_logits(s), bytes);
        const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.7};
        assert_ok(wnw_session_plan(s, policy, &size, &plan[i], NULL));
        assert_ok(wnw_session_apply(s, plan[i], NULL));
        wnw_session_reset(s);
        assert_int_equal(wnw_session_n_past(s), 0);
        test_prefill(s, tokens ? tokens : random, n);
        assert_memory_equal(first[i], wnw_session_logits(s), bytes);
        assert_ok(wnw_session_apply(s, plan[i], NULL));
        generate(s, N_GREEDY, info.n_vocab, ids[i], last[i]);
        wnw_session_free(s);
        wnw_policy_free(policy);
    }
    assert_memory_equal(first[0], first[1], bytes);
    assert_same_plan(plan[0], plan[1]);
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_equal(last[0], last[1], bytes);
    for (int i = 0; i < 2; i++) {
        wnw_plan_free(plan[i]);
        free(first[i]);
        free(last[i]);
    }
    free(random);
    wnw_model_free(m);
}

static void threads_tiny(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n = test_tiny_models(names, 32);
    for (int i = 0; i < n; i++) {
        print_message("%s\n", names[i]);
        threads_change_nothing(names[i], NULL, 150, "snapkv+adakv");
    }
}

static void threads_smollm2(void **state)
{
    (void)state;
    int32_t n = 0;
    int32_t *tokens = test_golden_tokens(&n);
    threads_change_nothing("smollm2-135m.gguf", tokens, n, "snapkv+adakv");
    free(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratio_0_changes_nothing),
        cmocka_unit_test(bytes_are_bounded),
        cmocka_unit_test(threads_tiny),
        cmocka_unit_test(threads_smollm2),
    };
    return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
