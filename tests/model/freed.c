/* SPDX-License-Identifier: MIT */
/* The memory of entries that a session drops goes back to the system. */
#include "helpers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Anonymous resident memory of this process; mapped weights are not in it. */
static int64_t rss_anon(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    char line[256];
    long kib = -1;
    while (kib < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, "RssAnon:", 8) == 0)
            kib = strtol(line + 8, NULL, 10);
    fclose(f);
    assert_cmp(kib, >, 0);
    return (int64_t)kib * 1024;
}

static void memory_returns_to_the_system(void **state)
{
    (void)state;
    enum { N = 2000 };
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(N, info.n_vocab, 7);
    wnw_policy *policy = test_policy("streaming_llm");
    wnw_session *s = test_session_read(m, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = N + 16},
                                       policy, tokens, N);
    const int64_t before = rss_anon();
    wnw_report report = {WNW_INIT(wnw_report)};
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.9};
    assert_ok(wnw_session_compress(s, policy, &size, &report));
    const int64_t after = rss_anon();
    const int64_t freed = (int64_t)report.kv_bytes_before - (int64_t)report.kv_bytes_after;
    print_message("RssAnon %.1f -> %.1f MiB; the cache says it freed %.1f MiB\n", (double)before / 0x1p20,
                  (double)after / 0x1p20, (double)freed / 0x1p20);
    /* 2000 entries of 30 layers and 3 heads, 512 bytes each; nine tenths are removed. */
    assert_cmp(freed, >, 70 * 1024 * 1024);
    assert_cmp(before - after, >=, freed / 10 * 8);
    assert_ok(wnw_session_decode(s, tokens[0]));
    assert_cmp(before - rss_anon(), >=, freed / 10 * 8);
    wnw_session_free(s);
    wnw_policy_free(policy);
    free(tokens);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_returns_to_the_system)};
    return cmocka_run_group_tests_name("memory of sessions", tests, NULL, NULL);
}
