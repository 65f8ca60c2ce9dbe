/* SPDX-License-Identifier: MIT */
/* The choice of a policy: every row of its table by hand, and every combination of facts against what recipes can do. */
#include "asserts.h"
#include "peek_plan.h"
#include "winnow_calibrate.h"
#include "winnow_method.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SHARES = 1 << WNW_PROFILE_SHARES,
    GATE = 1 << WNW_PROFILE_GATE,
    INPUTS = 1 << WNW_PROFILE_INPUTGATE,
    STATS = 1 << WNW_PROFILE_STATS
};

/* What stays where the question is known. */
#define LAST        ":last=32,room=0.3"
#define LAST_OF_FEW ":last=32,room=0.5"

static const struct {
    wnw_policy_facts facts;
    const char *recipe;
} rows[] = {
    {{.phase = WNW_PHASE_CHUNK, .n_tokens = 9000, .n_ctx_train = 8192}, "streaming_llm-rerotated"},
    {{.question_known = true, .profiles = SHARES, .shares_least = 0.03, .kept = 0.03},
     "keydiff-values-shares" LAST_OF_FEW},
    {{.question_known = true, .profiles = SHARES, .shares_least = 0.03, .kept = 0.249},
     "keydiff-values-shares" LAST_OF_FEW},
    {{.question_known = true, .profiles = SHARES, .shares_least = 0.03, .kept = 0.25}, "keydiff-shares" LAST},
    {{.question_known = true, .profiles = SHARES | GATE, .shares_least = 0.03, .kept = 0.05},
     "kvgate+shares" LAST},
    {{.question_known = true, .profiles = SHARES | INPUTS, .kept = 0.125, .n_tokens = 1024},
     "kvzap:recent=32,room=0.3+shares"},
    {{.question_known = true,
      .more_questions = true,
      .profiles = SHARES | INPUTS,
      .kept = 0.125,
      .n_tokens = 1024},
     "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | INPUTS, .kept = 0.125, .n_tokens = 1024}, "kvzap:recent=0+shares"},
    {{.question_known = true, .n_tokens = 100, .n_ctx_train = 8192}, "replay"},
    {{.question_known = true, .profiles = GATE, .n_tokens = 9000, .n_ctx_train = 8192}, "snapkv:kernel=31"},
    {{.profiles = SHARES | GATE, .shares_least = 0.03, .kept = 0.125}, "kvgate+shares"},
    {{.profiles = SHARES | GATE, .shares_least = 0.03, .kept = 0.25}, "kvgate+shares"},
    {{.profiles = SHARES | GATE, .gate_least = 0.75, .kept = 0.75}, "kvgate+shares"},
    {{.profiles = SHARES | GATE, .gate_least = 0.75, .kept = 0.7}, "keydiff-shares"},
    {{.profiles = SHARES | GATE, .gate_least = 0.75}, "keydiff-shares"},
    {{.profiles = SHARES | GATE, .gate_least = 0.25, .kept = 0.2}, "keydiff-values-shares"},
    {{.profiles = GATE, .gate_least = 0.75, .kept = 0.5}, "replay"}, /* no head budgets */
    {{.profiles = SHARES | GATE | INPUTS, .gate_least = 0.75, .kept = 0.125, .n_tokens = 2001},
     "kvzap:recent=32,room=0.3+shares"}, /* nothing is better later */
    {{.profiles = SHARES | GATE, .rope_unknown = true}, "keydiff-shares"},
    {{.profiles = SHARES | GATE | INPUTS, .shares_least = 0.03, .kept = 0.125}, "kvzap:recent=0+shares"},
    {{.profiles = SHARES | GATE | INPUTS, .kept = 0.125, .n_tokens = 2001}, "kvgate+shares"},
    {{.profiles = SHARES | GATE | INPUTS, .kept = 0.125, .n_tokens = 2000},
     "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | GATE | INPUTS, .kept = 0.125, .n_tokens = 6000, .gate_reach = 6000},
     "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | GATE | INPUTS, .kept = 0.125, .n_tokens = 6001, .gate_reach = 6000},
     "kvgate+shares"},
    {{.profiles = SHARES | GATE | INPUTS, .n_tokens = 4000, .decodes = true},
     "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | GATE | INPUTS, .n_tokens = 4000, .phase = WNW_PHASE_LAYER},
     "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | INPUTS, .kept = 0.125, .n_tokens = 4000}, "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | INPUTS, .kept = 0.125, .n_tokens = 1439}, "kvzap:recent=0+shares"},
    {{.profiles = SHARES | INPUTS, .kept = 0.125, .n_tokens = 1440}, "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | INPUTS, .kept = 0.5, .n_tokens = 300}, "kvzap:recent=0+shares"},
    {{.question_known = true, .profiles = SHARES | INPUTS, .phase = WNW_PHASE_LAYER, .kept = 0.5},
     "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | INPUTS, .decodes = true, .rope_unknown = true}, "kvzap:recent=32,room=0.3+shares"},
    {{.profiles = SHARES | GATE | INPUTS, .was_read = true}, "kvgate+shares"},
    {{.profiles = SHARES | GATE | INPUTS, .shares_least = 0.03, .kept = 0.02}, "replay"},
    {{.profiles = GATE | INPUTS, .kept = 0.5}, "replay"},
    {{.profiles = SHARES, .phase = WNW_PHASE_LAYER, .kept = 0.1}, "keydiff-values-shares"},
    {{.profiles = SHARES | STATS, .decodes = true}, "keydiff-shares"},
    {{.profiles = SHARES | GATE, .shares_least = 0.03, .kept = 0.01}, "replay"},
    {{.profiles = GATE, .kept = 0.5}, "replay"},
    {{.n_tokens = 8192, .n_ctx_train = 8192}, "replay"},
    {{.feeds_again = true}, "keydiff-sampled"}, /* half stays, where nothing is said */
    {{.feeds_again = true, .kept = 0.5}, "keydiff-sampled"},
    {{.feeds_again = true, .kept = 0.74}, "keydiff-sampled"},
    {{.feeds_again = true, .kept = 0.75}, "replay"},
    {{.feeds_again = true, .kept = 0.5, .question_known = true}, "keydiff-sampled" LAST},
    {{.feeds_again = true, .kept = 0.8, .question_known = true}, "replay"},
    {{.feeds_again = true, .kept = 0.5, .n_tokens = 8152, .n_ctx_train = 8192}, "keydiff-sampled"},
    {{.feeds_again = true, .kept = 0.5, .n_tokens = 8153, .n_ctx_train = 8192}, "replay"},
    {{.feeds_again = true, .kept = 0.5, .profiles = SHARES}, "keydiff-shares"},
    {{.feeds_again = true, .kept = 0.5, .profiles = GATE}, "keydiff-sampled"},
    {{.feeds_again = true, .kept = 0.49}, "keydiff-sampled"},
    {{.feeds_again = true, .kept = 0.25}, "keydiff-sampled"},
    {{.feeds_again = true, .kept = 0.249}, "keydiff-values-sampled"},
    {{.feeds_again = true, .question_known = true, .kept = 0.3, .n_tokens = 100, .n_ctx_train = 8192},
     "keydiff-sampled" LAST},
    {{.feeds_again = true, .kept = 0.3, .n_tokens = 8152, .n_ctx_train = 8192}, "keydiff-sampled"},
    {{.feeds_again = true, .kept = 0.3, .n_tokens = 8153, .n_ctx_train = 8192}, "replay"},
    {{.feeds_again = true, .kept = 0.2, .n_tokens = 8152, .n_ctx_train = 8192}, "keydiff-values-sampled"},
    {{.feeds_again = true, .kept = 0.2, .n_tokens = 8153, .n_ctx_train = 8192}, "replay"},
    {{.feeds_again = true, .kept = 0.2, .queries_unknown = true}, "keydiff-values-sampled"},
    {{.feeds_again = true, .rope_unknown = true}, "keydiff-sampled"},
    {{.feeds_again = true, .queries_unknown = true, .question_known = true}, "keydiff-sampled" LAST},
    {{.queries_unknown = true}, "keydiff"},
    {{.queries_unknown = true, .profiles = SHARES}, "keydiff-shares"},
    {{.feeds_again = true, .decodes = true}, "keydiff"},
    {{.feeds_again = true, .phase = WNW_PHASE_LAYER}, "keydiff"},
    {{.feeds_again = true, .profiles = SHARES, .shares_least = 0.03, .kept = 0.02}, "keydiff-values-sampled"},
    {{.feeds_again = true, .profiles = SHARES, .shares_least = 0.03, .kept = 0.03}, "keydiff-values-shares"},
    {{.feeds_again = true, .profiles = SHARES, .shares_least = 0.03, .kept = 0.3}, "keydiff-shares"},
    {{.profiles = SHARES, .shares_least = 0.03, .kept = 0.02}, "replay"},
    {{.profiles = GATE, .rope_unknown = true}, "keydiff"},
    {{.question_known = true, .profiles = GATE | STATS, .phase = WNW_PHASE_LAYER}, "snapkv:kernel=31"},
    {{.question_known = true,
      .profiles = SHARES,
      .shares_least = 0.03,
      .kept = 0.02,
      .phase = WNW_PHASE_CHUNK},
     "keydiff"}, /* the end of a chunk is no question */
    {{.question_known = true, .profiles = STATS, .decodes = true}, "snapkv:kernel=31"},
    {{.question_known = true, .more_questions = true, .phase = WNW_PHASE_LAYER}, "keydiff"},
    {{.question_known = true, .more_questions = true, .profiles = STATS, .decodes = true}, "keydiff"},
    {{.question_known = true, .more_questions = true, .profiles = GATE}, "replay"},
    {{.question_known = true, .more_questions = true, .profiles = SHARES}, "keydiff-shares" LAST},
    {{.question_known = true, .more_questions = true, .feeds_again = true, .kept = 0.1},
     "keydiff-values-sampled" LAST_OF_FEW},
    {{.question_known = true, .profiles = SHARES | GATE, .decodes = true}, "kvgate+shares" LAST},
    {{.more_questions = true, .phase = WNW_PHASE_LAYER}, "keydiff"}, /* none is known */
    {{.profiles = STATS, .decodes = true}, "keydiff"},
    {{.profiles = STATS, .decodes = true, .rope_unknown = true}, "keydiff"},
    {{.phase = WNW_PHASE_CHUNK}, "keydiff"},
    {{.phase = WNW_PHASE_LAYER}, "keydiff"},
    {{.n_tokens = 9000, .n_ctx_train = 8192}, "keydiff"},
};

static void by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy_facts facts = rows[i].facts;
        wnw_policy_choice choice = wnw_policy_choice_default();
        facts.struct_size = sizeof facts;
        assert_ok(wnw_policy_choose(&choice, &facts));
        if (strcmp(choice.recipe, rows[i].recipe) != 0)
            fail_msg("case %zu: %s (%s), not %s", i, choice.recipe, choice.when, rows[i].recipe);
    }
}

/* For each length up to which a row holds, the next one, until it holds for all; and no other row between. */
static void rows_by_length(void **state)
{
    (void)state;
    static const struct {
        wnw_policy_facts facts;
        struct {
            int32_t until;
            const char *recipe;
        } rows[4];
    } cases[] = {
        {{.profiles = SHARES | GATE | INPUTS, .kept = 0.25},
         {{719, "kvzap:recent=0+shares"},
          {2000, "kvzap:recent=32,room=0.3+shares"},
          {INT32_MAX, "kvgate+shares"}}},
        {{.profiles = SHARES | GATE | INPUTS, .kept = 0.01}, /* 2000 comes before 18000 entries */
         {{2000, "kvzap:recent=0+shares"}, {INT32_MAX, "kvgate+shares"}}},
        {{.profiles = SHARES | GATE | INPUTS, .kept = 0.25, .gate_reach = 3000},
         {{719, "kvzap:recent=0+shares"},
          {3000, "kvzap:recent=32,room=0.3+shares"},
          {INT32_MAX, "kvgate+shares"}}},
        {{.profiles = SHARES | GATE | INPUTS, .kept = 1, .gate_reach = INT32_MAX},
         {{179, "kvzap:recent=0+shares"}, {INT32_MAX, "kvzap:recent=32,room=0.3+shares"}}},
        {{.profiles = SHARES | INPUTS}, /* a half is taken to stay */
         {{359, "kvzap:recent=0+shares"}, {INT32_MAX, "kvzap:recent=32,room=0.3+shares"}}},
        {{.n_ctx_train = 512}, {{512, "replay"}, {INT32_MAX, "keydiff"}}},
        {{.n_ctx_train = 512, .feeds_again = true, .kept = 0.3},
         {{472, "keydiff-sampled"}, {512, "replay"}, {INT32_MAX, "keydiff"}}},
        {{.n_ctx_train = 2600, .feeds_again = true, .kept = 0.3},
         {{2560, "keydiff-sampled"}, {2600, "replay"}, {INT32_MAX, "keydiff"}}},
        {{.n_ctx_train = 512, .phase = WNW_PHASE_CHUNK},
         {{512, "keydiff"}, {INT32_MAX, "streaming_llm-rerotated"}}},
        {{.profiles = SHARES, .n_ctx_train = INT32_MAX, .kept = 1e-12},
         {{INT32_MAX, "keydiff-values-shares"}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wnw_policy_facts f = cases[i].facts;
        int32_t n = 0;
        f.struct_size = sizeof f;
        for (int32_t k = 0; n < INT32_MAX; k++) {
            wnw_policy_choice choice = wnw_policy_choice_default();
            const int32_t first = n + 1, until = cases[i].rows[k].until;
            for (int32_t at = first; at > 0 && at <= until && at < 3000; at++) {
                f.n_tokens = at;
                assert_ok(wnw_policy_choose(&choice, &f));
                assert_string_equal(choice.recipe, cases[i].rows[k].recipe);
                assert_int_equal(choice.until_tokens, until);
            }
            n = until;
        }
    }
}

/* Chunks are for long prompts of models with head budgets, and the policy then works in chunks. */
static void chunks_of_long_prompts(void **state)
{
    (void)state;
    const struct {
        wnw_policy_facts facts;
        int32_t chunk;
    } cases[] = {
        {{.profiles = SHARES, .n_tokens = 8193}, 2048},
        {{.profiles = SHARES, .n_tokens = 8192}, 0},
        {{.profiles = SHARES}, 0}, /* no length is known */
        {{.profiles = GATE, .n_tokens = 9000}, 0},
        {{.profiles = SHARES | GATE, .n_tokens = 9000, .n_ctx_train = 9000, .kept = 0.25}, 2048},
        {{.profiles = SHARES, .n_tokens = 9001, .n_ctx_train = 9000}, 0},
        {{.profiles = SHARES, .n_tokens = 9000, .shares_least = 0.3, .kept = 0.25}, 0},
        {{.profiles = SHARES, .n_tokens = 9000, .decodes = true}, 0},
        {{.profiles = SHARES, .n_tokens = 9000, .phase = WNW_PHASE_LAYER}, 0},
        {{.profiles = SHARES, .n_tokens = 9000, .phase = WNW_PHASE_CHUNK}, 0}, /* it is said already */
        {{.profiles = SHARES, .n_tokens = 9000, .kept = NAN}, 0},
    };
    assert_int_equal(wnw_policy_chunk(NULL), 0);
    assert_int_equal(wnw_automatic_chunk(NULL, 9000), 0);
    wnw_policy_facts shares = {.struct_size = sizeof shares, .profiles = SHARES, .shares_least = 0.2};
    wnw_automatic a = {.struct_size = sizeof a,
                       .recipe = "auto",
                       .facts = &shares,
                       .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.75}};
    assert_int_equal(wnw_automatic_chunk(&a, 9000), 2048);
    assert_int_equal(wnw_automatic_chunk(&a, 8192), 0);
    assert_int_equal(wnw_automatic_chunk(&a, 0), 0);
    a.size.ratio = 0; /* nothing is dropped */
    assert_int_equal(wnw_automatic_chunk(&a, 9000), 0);
    a.size.ratio = 0.9; /* more than the heads' budgets were measured for */
    assert_int_equal(wnw_automatic_chunk(&a, 9000), 0);
    a.recipe = "auto+quality:q=0.9";
    assert_int_equal(wnw_automatic_chunk(&a, 9000), 0);
    a.recipe = "snapkv";
    assert_int_equal(wnw_automatic_chunk(&a, 9000), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wnw_policy_facts f = cases[i].facts;
        f.struct_size = sizeof f;
        assert_int_equal(wnw_policy_chunk(&f), cases[i].chunk);
    }
}

/* Whether the recipe works where it was chosen. */
static void check(const wnw_policy_facts *f, const wnw_policy_choice *choice)
{
    wnw_policy *p;
    const char *reason;
    assert_ok(wnw_policy_parse(&p, choice->recipe, NULL));
    const wnw_needs needs = wnw_policy_needs(p);
    if (!wnw_policy_allows(p, f->phase, &reason))
        fail_msg("%s in phase %d: %s", choice->recipe, (int)f->phase, reason);
    if (f->decodes && !wnw_policy_allows(p, WNW_PHASE_DECODE, &reason))
        fail_msg("%s while decoding: %s", choice->recipe, reason);
    if (needs.profiles & ~f->profiles)
        fail_msg("%s needs profiles 0x%x, there are 0x%x", choice->recipe, needs.profiles, f->profiles);
    if (f->rope_unknown && needs.flags & WNW_NEED_ROPE)
        fail_msg("%s needs to know how keys turn", choice->recipe);
    if (needs.profiles & SHARES)
        assert_true((f->kept > 0 ? f->kept : 0.5) >= f->shares_least);
    if (needs.flags & WNW_NEED_EVERY_QUERY)
        assert_false(f->n_ctx_train > 0 && f->n_tokens > f->n_ctx_train);
    assert_false(needs.flags & WNW_NEED_PERPLEXITY);
    assert_false(!f->feeds_again && needs.flags & WNW_NEED_SECOND_PASS);
    if (needs.flags & WNW_NEED_SECOND_PASS && f->n_ctx_train > 0) {
        const int32_t n = f->n_tokens, ctx = f->n_ctx_train;
        assert_cmp(n + wnw_sample_fed(&needs.sample, n), <=,
                   ctx); /* the longest of what is chosen for, too */
        if (choice->until_tokens < ctx)
            assert_cmp(choice->until_tokens + wnw_sample_fed(&needs.sample, choice->until_tokens), <=, ctx);
    }
    assert_false(f->was_read && needs.flags & WNW_NEED_INPUT_GATE);
    assert_false(wnw_policy_is_full(p) || wnw_policy_has_own_size(p));
    wnw_policy_free(p);
}

static void every_combination(void **state)
{
    (void)state;
    static const double kept[] = {0, 0.01, 0.0625, 0.125, 0.3, 1};
    static const int32_t lengths[] = {0, 1000, 5000};
    bool reached[64] = {false};
    int32_t n_rule = 0;
    wnw_policy_choice rule = wnw_policy_choice_default();
    while (wnw_policy_rule(n_rule, &rule))
        n_rule++;
    assert_in_range(n_rule, 5, 63);
    for (uint32_t bits = 0; bits < 1024; bits++)
        for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_CHUNK; phase++)
            for (size_t k = 0; k < 6 * 3; k++) {
                const wnw_policy_facts f = {WNW_INIT(wnw_policy_facts),
                                            .phase = (wnw_phase)phase,
                                            .decodes = bits & 1,
                                            .question_known = bits & 2,
                                            .rope_unknown = bits & 4,
                                            .profiles = (bits & 8 ? SHARES : 0u) | (bits & 16 ? GATE : 0u) |
                                                        (bits & 32 ? STATS : 0u) | (bits & 64 ? INPUTS : 0u),
                                            .was_read = bits & 128,
                                            .feeds_again = bits & 256,
                                            .more_questions = bits & 512,
                                            .shares_least = 0.03125,
                                            .kept = kept[k / 3],
                                            .n_tokens = lengths[k % 3],
                                            .n_ctx_train = 4096};
                wnw_policy_choice choice = wnw_policy_choice_default();
                assert_ok(wnw_policy_choose(&choice, &f));
                check(&f, &choice);
                for (int32_t i = 0; wnw_policy_rule(i, &rule); i++)
                    reached[i] = reached[i] || strcmp(rule.when, choice.when) == 0;
            }
    for (int32_t i = 0; i < n_rule; i++)
        assert_true(reached[i]);
}

/* A quality in place of a size: of the scorers that can work by the facts, the one with which fewest entries stay. */
static void quality_by_hand(void **state)
{
    (void)state;
    double dropped[] = {0.01, 0.1}, loss[] = {0.04, 0.1}, all[] = {0.9, 0.6}, some[] = {0.8, 0.5},
           few[] = {0.7, 0.4};
    const wnw_profile every = {
        .n_quality = 2,
        .quality_dropped = dropped,
        .quality_loss = {loss, loss, loss},
        .quality_kept = {
            [WNW_QUALITY_REPLAY] = all, [WNW_QUALITY_KVGATE] = some, [WNW_QUALITY_INPUTGATE] = few}};
    wnw_profile one = every, none = {0};
    one.quality_loss[WNW_QUALITY_REPLAY] = one.quality_loss[WNW_QUALITY_INPUTGATE] = NULL;
    const struct {
        wnw_policy_facts facts;
        const wnw_profile *profile;
        double quality;
        const char *recipe;
        int32_t until; /* 0: no prompt is asked for */
    } cases[] = {
        {{.profiles = GATE | INPUTS}, &every, 0.9, "kvzap:recent=32", 0},
        {{.profiles = GATE | INPUTS, .n_tokens = 1}, &every, 0.9, "kvzap:recent=32", 2000},
        {{.profiles = GATE | INPUTS, .n_tokens = 2000}, &every, 0.95, "kvzap:recent=32", 2000},
        {{.profiles = GATE | INPUTS, .n_tokens = 2001}, &every, 0.9, "kvgate", INT32_MAX},
        {{.profiles = GATE | INPUTS, .n_tokens = 2001, .gate_reach = 2500},
         &every,
         0.9,
         "kvzap:recent=32",
         2500},
        {{.profiles = INPUTS, .n_tokens = 9000}, &every, 0.9, "kvzap:recent=32", INT32_MAX},
        /* Beyond the trained context `replay` is what refuses in place of all. */
        {{.profiles = 0, .n_tokens = 100, .n_ctx_train = 512}, &every, 0.9, "replay", INT32_MAX},
        {{.profiles = GATE | INPUTS, .n_tokens = 100, .n_ctx_train = 512}, &one, 0.9, "kvgate", INT32_MAX},
        {{.profiles = GATE | INPUTS, .was_read = true}, &every, 0.9, "kvgate", 0},
        {{.profiles = GATE | INPUTS, .was_read = true, .rope_unknown = true}, &every, 0.9, "replay", 0},
        {{.profiles = INPUTS, .rope_unknown = true}, &every, 0.9, "kvzap:recent=32", 0},
        {{.profiles = GATE}, &every, 0.9, "kvgate", 0},
        {{.profiles = 0}, &every, 0.9, "replay", 0},
        {{.profiles = GATE, .phase = WNW_PHASE_LAYER}, &every, 0.9, "replay", 0}, /* refused as such */
        {{.profiles = GATE | INPUTS}, &every, 0.99, "replay", 0}, /* where all stays, the one without gates */
        {{.profiles = GATE | INPUTS}, &one, 0.9, "kvgate", 0},
        {{.profiles = INPUTS}, &one, 0.9, "replay", 0},
        {{.profiles = GATE | INPUTS}, &none, 0.9, "replay", 0},
        {{.profiles = GATE | INPUTS}, NULL, 0.9, "replay", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wnw_policy_facts facts = cases[i].facts;
        wnw_policy_choice choice = wnw_policy_choice_default();
        facts.struct_size = sizeof facts;
        assert_ok(wnw_policy_choose_quality(&choice, &facts, cases[i].profile, cases[i].quality));
        if (strcmp(choice.recipe, cases[i].recipe) != 0)
            fail_msg("case %zu: %s, not %s", i, choice.recipe, cases[i].recipe);
        assert_int_equal(choice.until_tokens, cases[i].until);
        assert_cmp(strlen(choice.reason), >, 20);
        assert_cmp(strlen(choice.evidence), >, 20);
    }
}

static void quality_refused(void **state)
{
    (void)state;
    static const double bad[] = {0, 1, -0.5, 1.5, (double)NAN};
    const wnw_policy_facts facts = wnw_policy_facts_default();
    wnw_policy_choice choice = wnw_policy_choice_default();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_error(wnw_policy_choose_quality(&choice, &facts, NULL, bad[i]), WNW_E_RANGE);
    assert_error(wnw_policy_choose_quality(NULL, &facts, NULL, 0.9), WNW_E_ARG);
    assert_error(wnw_policy_choose_quality(&choice, NULL, NULL, 0.9), WNW_E_ARG);
    choice.struct_size = 0;
    assert_error(wnw_policy_choose_quality(&choice, &facts, NULL, 0.9), WNW_E_ARG);
}

/* Whether a line is a heading that a page's link of this name leads to: lower case, "-" for blanks, nothing else but letters, digits and "_". */
static bool is_heading(const char *line, const char *name)
{
    const size_t level = strspn(line, "#");
    if (level == 0 || line[level] != ' ')
        return false;
    for (line += level + 1; *line && *line != '\n'; line++) {
        const char c = *line == ' ' ? '-' : (char)tolower((unsigned char)*line);
        if (!isalnum((unsigned char)c) && c != '-' && c != '_')
            continue;
        if (c != *name++)
            return false;
    }
    return *name == '\0';
}

static bool test_markdown_has(const char *page, const char *heading)
{
    char path[1024], line[4096];
    bool found = false;
    snprintf(path, sizeof path, "%s/%s", WNW_TEST_SOURCE_DIR, page);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s: there is no such page", path);
    while (!found && fgets(line, sizeof line, f))
        found = is_heading(line, heading);
    fclose(f);
    return found;
}

static int words_of(const char *text)
{
    int n = 0;
    for (; *text; text += strcspn(text, " "), text += strspn(text, " "))
        n++;
    return n;
}

/* Every row says when and why, shortly and without a number that was measured, and links to headings that exist. */
static void every_row_has_its_evidence(void **state)
{
    (void)state;
    wnw_policy_choice rule = wnw_policy_choice_default();
    for (int32_t i = 0; wnw_policy_rule(i, &rule); i++) {
        assert_in_range(words_of(rule.reason), 3, 10);
        assert_in_range(words_of(rule.when), 2, 20);
        assert_in_range(words_of(rule.why), 5, 20);
        if (strcmp(rule.evidence, "none") == 0)
            continue;
        char links[512], *rest = links, *link;
        snprintf(links, sizeof links, "%s", rule.evidence);
        while ((link = strsep(&rest, " "))) {
            char *heading = strchr(link, '#');
            assert_non_null(heading);
            *heading++ = '\0';
            if (!test_markdown_has(link, heading))
                fail_msg("row %d (%s): %s has no heading %s", (int)i, rule.recipe, link, heading);
        }
    }
}

static void refused(void **state)
{
    (void)state;
    wnw_policy_choice choice = wnw_policy_choice_default();
    const wnw_policy_facts good = wnw_policy_facts_default();
    wnw_policy_facts f = good;
    assert_error(wnw_policy_choose(NULL, &f), WNW_E_ARG);
    assert_error(wnw_policy_choose(&choice, NULL), WNW_E_ARG);
    f.phase = WNW_PHASE_DECODE;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_RANGE);
    f = good;
    f.n_tokens = -1;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_RANGE);
    f = good;
    f.kept = (double)NAN;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_RANGE);
    f.kept = 1.5;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_RANGE);
    f = good;
    f.shares_least = -0.1;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_RANGE);
    f = good;
    f.gate_least = 1.5;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_RANGE);
    f.gate_least = (double)NAN;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_RANGE);
    f = good;
    f.gate_reach = -1;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_RANGE);
    f = good;
    f.struct_size = 0;
    assert_error(wnw_policy_choose(&choice, &f), WNW_E_ARG);
    choice.struct_size = 0;
    assert_error(wnw_policy_choose(&choice, &good), WNW_E_ARG);
    assert_false(wnw_policy_rule(0, &choice));
    assert_false(wnw_policy_rule(0, NULL));
    choice = wnw_policy_choice_default();
    assert_false(wnw_policy_rule(-1, &choice));
    assert_false(wnw_policy_rule(1000, &choice));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(rows_by_length),
        cmocka_unit_test(chunks_of_long_prompts),
        cmocka_unit_test(every_combination),
        cmocka_unit_test(every_row_has_its_evidence),
        cmocka_unit_test(quality_by_hand),
        cmocka_unit_test(quality_refused),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
