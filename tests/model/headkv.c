/* SPDX-License-Identifier: MIT */
/* HeadKV from a profile file to a compressed cache: important heads hold more, the total is what was asked. */
#include "files.h"
#include "helpers.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 96 };

/* Query head h of layer il has score 1 + h of all heads before it. */
static void write_profile(const char *path, const wnw_model *m, const wnw_model_info *info)
{
    char fingerprint[WNW_FINGERPRINT_SIZE];
    wnw_model_fingerprint(m, fingerprint);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"format\": \"winnow-profile-1\", \"kind\": \"heads\", \"model\": {\"fingerprint\": \"%s\", "
            "\"n_layer\": %d, \"n_head\": %d, \"n_head_kv\": %d, \"n_embd_head\": %d}, \"settings\": {}, "
            "\"data\": {}, \"results\": {\"score\": [",
            fingerprint, info->n_layer, info->n_head, info->n_head_kv, info->n_embd_head);
    for (int32_t il = 0; il < info->n_layer; il++)
        for (int32_t h = 0; h < info->n_head; h++)
            fprintf(f, "%s%d%s",
                    h    ? ","
                    : il ? ",["
                         : "[",
                    il * info->n_head + h + 1, h == info->n_head - 1 ? "]" : "");
    fprintf(f, "]}}\n");
    assert_int_equal(fclose(f), 0);
}

static void counts_follow_the_profile(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX], path[] = "/tmp/winnow-heads-XXXXXX";
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    test_file_new(path);
    write_profile(path, m, &info);
    wnw_profile *profile = NULL;
    assert_ok(wnw_profile_new(&profile, m));
    assert_ok(wnw_profile_add_file(profile, path));
    remove(path);

    wnw_policy *p = test_policy("criticalkv-headkv:window=8");
    int32_t *tokens = test_random_tokens(N, info.n_vocab, 3);
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 30};
    wnw_session *s = test_session_read(
        m, &(struct test_session){.kv_type = WNW_KV_F32, .attn = WNW_ATTN_OWN, .n_ctx = 2 * N}, p, tokens, N);
    assert_error(wnw_session_compress(s, p, &size, NULL), WNW_E_MISMATCH); /* no profile yet */
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .profile = profile,
                      .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                              .policies = (const wnw_policy *const[]){p}, .n_policies = 1}}));
    assert_ok(wnw_session_compress(s, p, &size, NULL));
    int32_t total = 0, before = 0;
    for (int32_t il = 0; il < info.n_layer; il++)
        for (int32_t ih = 0; ih < info.n_head_kv; ih++) {
            const int32_t n = wnw_cache_n(s, il, ih);
            assert_cmp(n, >=, before);
            assert_cmp(n, >=, 8); /* scores ascend through the model */
            before = n;
            total += n;
        }
    assert_int_equal(total, 30 * info.n_layer * info.n_head_kv);
    assert_cmp(before, >, 30);
    assert_ok(wnw_session_decode(s, tokens[0]));
    free(tokens);
    wnw_session_free(s);
    wnw_policy_free(p);
    wnw_profile_free(profile);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_follow_the_profile)};
    return cmocka_run_group_tests_name("HeadKV", tests, NULL, NULL);
}
