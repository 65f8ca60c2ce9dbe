/* SPDX-License-Identifier: MIT */
/* Sessions that go back: read again in the same pieces they are those that read straight on, bit for bit; and where that
 * cannot be they refuse and stay as they are. */
#include "helpers.h"

#include "peek_session.h"
#include "winnow_chat.h"

#include <string.h>

enum { FIRST = 90, SECOND = 37, ANSWER = 9, OTHER = 23, ALL = FIRST + SECOND + ANSWER + OTHER };

static void assert_same(const wnw_session *a, const wnw_session *b)
{
    assert_int_equal(wnw_session_n_past(a), wnw_session_n_past(b));
    assert_same_cache(a, b);
    assert_same_logits(a, b);
}

static void read_piece(wnw_session *s, const int32_t *tokens, int32_t n)
{
    assert_ok(wnw_session_read(s, tokens, n, NULL));
}

/* What both sessions do after the place that one of them went back to. */
static void go_on(wnw_session *s, const struct test_model *fx)
{
    read_piece(s, fx->tokens + FIRST, SECOND);
    test_decode(s, fx->tokens + FIRST + SECOND, ANSWER);
}

static void check_plain(const struct test_model *fx, const struct test_session *how)
{
    wnw_session *straight = test_session_new(fx->m, how), *s = test_session_new(fx->m, how), *copy = NULL;
    read_piece(straight, fx->tokens, FIRST);
    read_piece(s, fx->tokens, FIRST);
    read_piece(s, fx->tokens + 11, OTHER);
    test_decode(s, fx->tokens, ANSWER);
    assert_ok(wnw_session_copy(&copy, s));
    assert_ok(wnw_session_rewind(s, FIRST));
    assert_int_equal(wnw_session_n_past(s), FIRST);
    assert_null(wnw_session_logits(s));
    assert_same_entries(s, straight);
    assert_ok(wnw_session_rewind(copy, FIRST));
    go_on(straight, fx);
    go_on(s, fx);
    go_on(copy, fx);
    assert_same(s, straight);
    assert_same(copy, straight);
    /* To the beginning, and nowhere. */
    assert_ok(wnw_session_rewind(s, wnw_session_n_past(s)));
    assert_same(s, straight);
    assert_ok(wnw_session_rewind(s, 0));
    read_piece(s, fx->tokens, FIRST);
    go_on(s, fx);
    assert_same(s, straight);
    wnw_session_free(copy);
    wnw_session_free(s);
    wnw_session_free(straight);
}

static void reads_again(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct test_model fx;
        test_open_tiny(&fx, archs[i], ALL, 5);
        for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_F32; attn++)
            check_plain(&fx, &(struct test_session){.attn = (wnw_attn)attn, .n_ctx = 256});
        check_plain(&fx, &(struct test_session){.kv_type = WNW_KV_Q8_0, .n_ctx = 256});
        test_close(&fx);
    }
}

static wnw_session *under_rules(const struct test_model *fx, const wnw_run *run)
{
    wnw_session *s = test_session_new(fx->m, &(struct test_session){.n_ctx = 256});
    assert_ok(wnw_session_begin(s, run));
    read_piece(s, fx->tokens, FIRST);
    return s;
}

/* After the compression of a prompt, an answer is taken back and the next turn is compressed too. */
static void check_rules(const struct test_model *fx, const wnw_run *run)
{
    wnw_session *straight = under_rules(fx, run), *s = under_rules(fx, run);
    test_decode(straight, fx->tokens + 3, 2);
    test_decode(s, fx->tokens + 3, 2);
    test_decode(s, fx->tokens + 50, 4);
    assert_ok(wnw_session_rewind(s, FIRST + 2));
    go_on(straight, fx);
    go_on(s, fx);
    assert_same(s, straight);
    wnw_session_free(s);
    wnw_session_free(straight);
}

static void under_the_rules(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        wnw_phase phase;
        int32_t every;
    } rows[] = {{"snapkv:window=8+adakv", WNW_PHASE_END, 0},
                {"snapkv:window=8", WNW_PHASE_LAYER, 0},
                {"streaming_llm", WNW_PHASE_CHUNK, 7},
                {"keydiff", WNW_PHASE_END, 7},
                {"full", WNW_PHASE_END, 0}};
    struct test_model fx;
    test_open_tiny(&fx, "llama", ALL, 6);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *policy = test_policy(rows[i].recipe);
        const wnw_run run = {WNW_INIT(wnw_run), .phase = rows[i].phase, .policy = policy,
                             .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5}, .every = rows[i].every};
        print_message("  %s\n", rows[i].recipe);
        check_rules(&fx, &run);
        wnw_policy_free(policy);
    }
    test_close(&fx);
}

/* A refusal changes nothing. */
static void assert_refused(wnw_session *s, int32_t n_past, const char *why)
{
    wnw_session *before = NULL;
    assert_ok(wnw_session_copy(&before, s));
    assert_int_equal(wnw_session_rewind(s, n_past), WNW_E_UNSUPPORTED);
    assert_non_null(strstr(wnw_last_error(), why));
    assert_same(s, before);
    wnw_session_free(before);
}

static void refuses_what_went(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "llama", ALL, 7);
    wnw_policy *policy = test_policy("keydiff"), *turned = test_policy("streaming_llm+rerotate");
    wnw_run run = {WNW_INIT(wnw_run), .policy = policy, .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5}};
    wnw_session *s = under_rules(&fx, &run);
    test_decode(s, fx.tokens, 3);
    assert_refused(s, FIRST - 1, "compressed together");
    assert_ok(wnw_session_rewind(s, FIRST));
    wnw_session_free(s);
    /* Entries with new positions count from these on. */
    run.policy = turned;
    s = under_rules(&fx, &run);
    assert_int_equal(wnw_session_n_past(s), FIRST / 2);
    test_decode(s, fx.tokens, 3);
    assert_refused(s, FIRST / 2 - 1, "compressed together");
    assert_ok(wnw_session_rewind(s, FIRST / 2 + 1));
    wnw_session_free(s);
    wnw_policy_free(turned);
    wnw_policy_free(policy);
    test_close(&fx);
}

static void refuses_sums(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *why;
    } rows[] = {{"h2o", "adds up the attention"},
                {"expected_attention", "query statistics"},
                {"snapkv:window=8", "window"}};
    struct test_model fx;
    test_open_tiny(&fx, "llama", ALL, 8);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *policy = test_policy(rows[i].recipe);
        wnw_session *s =
            test_session_read(fx.m, &(struct test_session){.n_ctx = 256}, policy, fx.tokens, FIRST);
        assert_refused(s, FIRST - 5, rows[i].why);
        assert_ok(test_observe(s, NULL, 0));
        assert_ok(wnw_session_rewind(s, FIRST - 5));
        wnw_session_free(s);
        wnw_policy_free(policy);
    }
    test_close(&fx);
}

/* A short ring has all queries still: the plan is that of a session that read straight on. */
static void keeps_what_it_noted(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "llama", ALL, 9);
    wnw_policy *policy = test_policy("snapkv:window=64");
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 70};
    wnw_session *s[2];
    for (int i = 0; i < 2; i++) {
        s[i] = test_session_read(fx.m, &(struct test_session){.n_ctx = 256}, policy, fx.tokens, 30);
        if (i == 0) {
            test_prefill(s[i], fx.tokens + 40, 20);
            assert_ok(wnw_session_rewind(s[i], 30));
        }
        test_prefill(s[i], fx.tokens + 30, 60);
        assert_ok(wnw_session_compress(s[i], policy, &size, NULL));
    }
    assert_same(s[0], s[1]);
    wnw_session_free(s[0]);
    wnw_session_free(s[1]);
    wnw_policy_free(policy);
    test_close(&fx);
}

/* gemma3's windows of 16 tokens drop entries as tokens are read, 32 or more at a time. */
static void windows(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "gemma3", 512, 10);
    const struct test_session how = {.n_ctx = 512};
    wnw_session *s = test_session_new(fx.m, &how), *straight = test_session_new(fx.m, &how);
    assert_int_equal(fx.info.n_swa, 16);
    test_prefill(s, fx.tokens, 30);
    test_prefill(straight, fx.tokens, 30);
    test_prefill(s, fx.tokens + 100, 10); /* 25 entries of each window are past it, and all are there */
    assert_ok(wnw_session_rewind(s, 30));
    test_prefill(s, fx.tokens + 30, 170);
    test_prefill(straight, fx.tokens + 30, 170);
    assert_same(s, straight);
    assert_refused(s, 199, "sliding window"); /* a token at 199 sees 184, and 185 is the first */
    test_decode(s, fx.tokens + 300, 3);
    test_decode(straight, fx.tokens + 300, 2);
    assert_ok(wnw_session_rewind(s, 201));
    assert_ok(wnw_session_decode(s, fx.tokens[301]));
    assert_same(s, straight);
    assert_int_equal(wnw_session_rewind(s, 203), WNW_E_RANGE);
    assert_int_equal(wnw_session_rewind(s, -1), WNW_E_RANGE);
    wnw_session_free(straight);
    wnw_session_free(s);
    test_close(&fx);
}

static void refuses_tails(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "llama", 512, 11);
    const struct test_session how = {.n_ctx = 512, .kv_type = WNW_KV_Q8_0, .kv_tail = 32};
    wnw_session *straight = test_session_new(fx.m, &how), *s = test_session_new(fx.m, &how);
    test_prefill(s, fx.tokens, 180); /* 64 sinks and a tail of 32 + 20 after a block of 64 */
    assert_refused(s, 159, "quantised since");
    test_prefill(straight, fx.tokens, 180);
    assert_ok(wnw_session_rewind(s, 160));
    test_prefill(s, fx.tokens + 160, 20);
    assert_same_entries(s, straight);
    wnw_session_free(s);
    wnw_session_free(straight);
    test_close(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_again),         cmocka_unit_test(under_the_rules),
        cmocka_unit_test(refuses_what_went),   cmocka_unit_test(refuses_sums),
        cmocka_unit_test(keeps_what_it_noted), cmocka_unit_test(windows),
        cmocka_unit_test(refuses_tails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
