/* SPDX-License-Identifier: MIT */
/*
 * Every preset in every phase it says it works in: layer by layer gives the same entries and logits as at the
 * end, bit for bit; so does one chunk; chunks and decoding hold their size. What it says it cannot do is
 * refused with its reason.
 */
#include "helpers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_session.h"
#include "profiles.h"

enum { N = 260, N_CTX = 512 };

static wnw_session *new_session(const struct test_model *f)
{
    wnw_session_params p = wnw_session_default_params();
    wnw_session *s = NULL;
    p.n_ctx = N_CTX;
    p.n_ubatch = 64;
    p.n_threads = 1;
    assert_ok(wnw_session_new(&s, f->m, &p));
    return s;
}

static void assert_same(const struct test_model *f, const wnw_session *a, const wnw_session *b,
                        const char *name)
{
    for (int32_t il = 0; il < f->info.n_layer; il++)
        for (int32_t ih = 0; ih < f->info.n_head_kv; ih++) {
            const int32_t n = wnw_cache_n(a, il, ih);
            if (n != wnw_cache_n(b, il, ih))
                fail_msg("%s: layer %d head %d holds %d and %d entries", name, il, ih, n,
                         wnw_cache_n(b, il, ih));
            if (n > 0 && memcmp(wnw_cache_positions(a, il, ih), wnw_cache_positions(b, il, ih),
                                (size_t)n * sizeof(int32_t)) != 0)
                fail_msg("%s: layer %d head %d holds other entries", name, il, ih);
        }
    if (memcmp(wnw_session_logits(a), wnw_session_logits(b), (size_t)f->info.n_vocab * sizeof(float)) != 0)
        fail_msg("%s: other logits", name);
}

/* The next preset that works without a profile. NULL past the end. */
static wnw_policy *next_policy(int32_t *i, wnw_method_info *info)
{
    for (; wnw_method_get(*i, info); ++*i) {
        if (!strstr(info->kind, "preset"))
            continue;
        wnw_policy *p = test_policy(info->name);
        const wnw_needs needs = wnw_policy_needs(p);
        ++*i;
        if (!(needs.flags & WNW_NEED_PROFILE) || needs.profiles == 0)
            return p;
        wnw_policy_free(p);
        --*i;
    }
    return NULL;
}

static const wnw_size three_quarters = {.kind = WNW_SIZE_RATIO, .ratio = 0.25};

/* Two turns under two rules that must come to the same. */
static void compare(const struct test_model *f, const wnw_policy *p, const char *name, wnw_run rules)
{
    wnw_session *s[2];
    for (int i = 0; i < 2; i++) {
        s[i] = new_session(f);
        rules.policy = p;
        rules.size = three_quarters;
        assert_ok(wnw_session_begin(
            s[i], i ? &rules : &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = three_quarters}));
    }
    for (int turn = 0; turn < 2; turn++) {
        const int32_t n = turn ? 60 : N;
        for (int i = 0; i < 2; i++)
            if (wnw_session_read(s[i], f->tokens + turn * N, n, NULL) != WNW_OK)
                fail_msg("%s: %s", name, wnw_last_error());
        assert_same(f, s[0], s[1], name);
    }
    assert_ok(wnw_session_decode(s[0], 1));
    assert_ok(wnw_session_decode(s[1], 1));
    assert_same(f, s[0], s[1], name);
    wnw_session_free(s[0]);
    wnw_session_free(s[1]);
}

static void phase_equals_end(void **state, wnw_phase phase)
{
    const struct test_model *f = *state;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    wnw_policy *p;
    int n_done = 0;
    for (int32_t i = 0; (p = next_policy(&i, &info)) != NULL;) {
        const char *reason;
        const wnw_run rules = {WNW_INIT(wnw_run), .policy = p, .phase = phase,
                               .chunk = phase == WNW_PHASE_CHUNK ? N : 0};
        if (wnw_policy_allows(p, phase, &reason)) {
            compare(f, p, info.name, rules);
            n_done++;
        } else {
            wnw_session *s = new_session(f);
            assert_error(wnw_session_begin(s, &rules), WNW_E_ARG);
            assert_says(reason);
            wnw_session_free(s);
        }
        wnw_policy_free(p);
    }
    print_message("%d presets\n", n_done);
    assert_cmp(n_done, >, 10);
}

static void layer(void **state)
{
    phase_equals_end(state, WNW_PHASE_LAYER);
}

static void one_chunk(void **state)
{
    phase_equals_end(state, WNW_PHASE_CHUNK);
}

/* Every policy can follow rules at the end of a piece, and of the next one: also those that look at the whole
 * model, read the prompt once more or want its perplexity. The first piece is what compress makes of it. */
static void turns(void **state)
{
    const struct test_model *f = *state;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    wnw_policy *p;
    for (int32_t i = 0; (p = next_policy(&i, &info)) != NULL; wnw_policy_free(p)) {
        const int32_t *task = f->tokens + 300, n_task = 8;
        const wnw_run rules = {WNW_INIT(wnw_run), .policy = p, .size = three_quarters,
                               .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1,
                                                       .task_tokens = &task, .n_task_tokens = &n_task}};
        wnw_session *s = new_session(f), *by_hand = new_session(f);
        assert_ok(wnw_session_begin(s, &rules));
        assert_ok(wnw_session_begin(
            by_hand,
            &(wnw_run){WNW_INIT(wnw_run),
                       .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1, .task_tokens = &task,
                                               .n_task_tokens = &n_task,
                                               .policies = (const wnw_policy *const *)&p, .n_policies = 1}}));
        if (wnw_session_read(s, f->tokens, N, NULL) != WNW_OK)
            fail_msg("%s: %s", info.name, wnw_last_error());
        test_prefill(by_hand, f->tokens, N);
        assert_ok(wnw_session_compress(by_hand, p, &three_quarters, NULL));
        /* Under rules too few tokens for two blocks stay whole; asked for once, their blocks shrink. */
        const wnw_blocks b = wnw__policy_blocks(p, 0);
        if (wnw__policy_is_recursive(p) && N < b.sink + 2 * b.lag)
            assert_float_equal(test_mean_entries(s), N, 0);
        else
            assert_same(f, s, by_hand, info.name);
        if (wnw_session_read(s, f->tokens + N, 60, NULL) != WNW_OK)
            fail_msg("%s, second turn: %s", info.name, wnw_last_error());
        assert_ok(wnw__cache_check(&s->cache));
        wnw_session_free(s);
        wnw_session_free(by_hand);
    }
}

/* Chunks of 48, then tokens that are dropped again: as many entries as asked for, or fewer where the method
 * says so. */
static void chunks_and_decoding(void **state)
{
    const struct test_model *f = *state;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    wnw_policy *p;
    int n_done = 0;
    for (int32_t i = 0; (p = next_policy(&i, &info)) != NULL; wnw_policy_free(p)) {
        const wnw_run rules = {
            WNW_INIT(wnw_run),        .policy = p, .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.4},
            .phase = WNW_PHASE_CHUNK, .chunk = 48, .every = 4};
        wnw_session *s = new_session(f);
        if (!wnw_policy_allows(p, WNW_PHASE_CHUNK, NULL) || !wnw_policy_allows(p, WNW_PHASE_DECODE, NULL)) {
            assert_error(wnw_session_begin(s, &rules), WNW_E_ARG);
            wnw_session_free(s);
            continue;
        }
        assert_ok(wnw_session_begin(s, &rules));
        wnw_report r = {WNW_INIT(wnw_report)};
        if (wnw_session_read(s, f->tokens, N, &r) != WNW_OK)
            fail_msg("%s: %s", info.name, wnw_last_error());
        const double after = test_mean_entries(s);
        for (int32_t k = 0; k < 40; k++)
            if (wnw_session_decode(s, f->tokens[k]) != WNW_OK)
                fail_msg("%s: %s", info.name, wnw_last_error());
        const double now = test_mean_entries(s);
        print_message("%-34s %7.2f of 156 after reading, %7.2f after 40 more\n", info.name, after, now);
        assert_ok(wnw__cache_check(&s->cache));
        assert_int_equal(wnw_session_n_past(s) + s->pos_shift, N + 40);
        /* Blocks settle by a share and skip layers; retrieval heads grow; kvpress' SimLayerKV measures before
         * it drops. */
        if (!wnw_policy_is_full(p) && !wnw__policy_is_recursive(p) && !wnw__policy_slides(p) &&
            strcmp(info.name, "kvpress-simlayerkv") != 0 && (after > 160 || now > 160))
            fail_msg("%s keeps %g, then %g", info.name, after, now);
        /* kvpress' ChunkKV keeps whole chunks of 20. */
        if (!wnw_policy_has_own_size(p) && strcmp(info.name, "kvpress-chunkkv_snapkv") != 0 &&
            (after < 154 || now < 154))
            fail_msg("%s keeps only %g, then %g", info.name, after, now);
        for (int32_t k = 0; k < f->info.n_vocab; k++)
            assert_cmp(wnw_session_logits(s)[k], ==, wnw_session_logits(s)[k]);
        n_done++;
        wnw_session_free(s);
    }
    assert_cmp(n_done, >, 10);
}

/* What predicts a second reading, from a profile: with a chunk as long as the piece the same as at the end, and while decoding
 * what compressing by hand after as many tokens gives. Both need what the cache holds and what is gathered of queries. */
static void gates(void **state)
{
    enum { EVERY = 4, TARGET = 90, STEPS = 3 };
    static const char *const recipes[] = {"kvgate", "kvgate+equal", "kvgate+shares",
                                          "kvgate+threshold:tau=0.5"};
    const struct test_model *f = *state;
    wnw_profile *profile = test_profile_of_all_kinds(f->m);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        wnw_policy *p = test_policy(recipes[i]);
        const wnw_size target = {.kind = WNW_SIZE_BUDGET, .budget = TARGET};
        const bool own = wnw_policy_has_own_size(p);
        const wnw_run chunks = {WNW_INIT(wnw_run),
                                .policy = p,
                                .size = own ? (wnw_size){0} : three_quarters,
                                .profile = profile,
                                .phase = WNW_PHASE_CHUNK,
                                .chunk = N,
                                .every = EVERY,
                                .target = own ? 0 : TARGET},
                      by_hand = {WNW_INIT(wnw_run), .profile = profile,
                                 .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                                         .policies = (const wnw_policy *const *)&p,
                                                         .n_policies = 1}};
        wnw_session *s = new_session(f), *hand = new_session(f);
        assert_ok(wnw_session_begin(s, &chunks));
        assert_ok(wnw_session_begin(hand, &by_hand));
        assert_ok(wnw_session_read(s, f->tokens, N, NULL));
        test_prefill(hand, f->tokens, N);
        assert_ok(wnw_session_compress(hand, p, &chunks.size, NULL));
        assert_same(f, s, hand, recipes[i]);
        assert_cmp(test_mean_entries(s), <, N);
        for (int32_t k = 0; k < STEPS * EVERY; k++) {
            assert_ok(wnw_session_decode(s, f->tokens[k]));
            assert_ok(wnw_session_decode(hand, f->tokens[k]));
            if (k % EVERY == EVERY - 1)
                assert_ok(wnw_session_compress(hand, p, own ? NULL : &target, NULL));
            assert_same(f, s, hand, recipes[i]);
        }
        if (!own)
            assert_cmp(test_mean_entries(s), <=, TARGET);
        wnw_session_free(s);
        wnw_session_free(hand);
        wnw_policy_free(p);
    }
    wnw_profile_free(profile);
}

/* Heads and layers that share one budget hold their size in chunks, although each chunk finds heads of other lengths: what short ones
 * leave, others keep. */
static void shared_budgets(void **state)
{
    static const char *const recipes[] = {
        "keydiff+global", "adakv+global",          "keydiff+headkv",       "keydiff+lukv", "keydiff+shares",
        "kvgate",         "snapkv+adakv+zigzagkv", "snapkv+adakv+pyramid", "keydiff+duo",
    };
    const struct test_model *f = *state;
    wnw_profile *profile = test_profile_of_all_kinds(f->m);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int32_t chunk = 16; chunk <= 64; chunk += 48) {
            wnw_policy *p = test_policy(recipes[i]);
            const wnw_run rules = {
                WNW_INIT(wnw_run),        .policy = p,    .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.4},
                .phase = WNW_PHASE_CHUNK, .chunk = chunk, .profile = profile};
            wnw_session *s = new_session(f);
            if (wnw_session_begin(s, &rules) != WNW_OK || wnw_session_read(s, f->tokens, N, NULL) != WNW_OK)
                fail_msg("%s: %s", recipes[i], wnw_last_error());
            const double kept = test_mean_entries(s);
            if (kept < 155 || kept > 156)
                fail_msg("%s in chunks of %d keeps %g of 156", recipes[i], (int)chunk, kept);
            wnw_session_free(s);
            wnw_policy_free(p);
        }
    wnw_profile_free(profile);
}

static int set_up(void **state)
{
    static struct test_model f;
    return test_set_up_tiny(state, &f, "llama", N_CTX, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer), cmocka_unit_test(one_chunk),
        cmocka_unit_test(turns), cmocka_unit_test(chunks_and_decoding),
        cmocka_unit_test(gates), cmocka_unit_test(shared_budgets),
    };
    return cmocka_run_group_tests_name("phases of every preset", tests, set_up, test_tear_down);
}
