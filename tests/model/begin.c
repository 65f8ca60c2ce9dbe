/* SPDX-License-Identifier: MIT */
/* wnw_session_begin: one call for policy, size, phase, prompt, tasks and profile. It equals compressing by hand, refuses
 * what makes no sense, and changes nothing when it fails. */
#include "helpers.h"
#include "peek_prompt.h"
#include "peek_session.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

enum { N = 96, N_CONTEXT = 70, N_CTX = 160 };

static const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};

#define MORE(...)                           \
    .more = &(wnw_run_more)                 \
    {                                       \
        WNW_INIT(wnw_run_more), __VA_ARGS__ \
    }

struct fixture {
    wnw_model *model;
    wnw_model_info info;
    int32_t *tokens; /* [N] */
    int32_t suffix[3];
};

/* The fixture's tokens as a prompt; borrowed. */
static wnw_prompt prompt_of(struct fixture *f)
{
    return (wnw_prompt){.tokens = f->tokens,
                        .n_tokens = N,
                        .n_context = N_CONTEXT,
                        .suffix = f->suffix,
                        .n_suffix = 3,
                        .n_prefix = 5};
}

static wnw_session *new_session(const struct fixture *f)
{
    return test_session_new(f->model, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
}

/* ---- Under rules and by hand ---- */

static void equals_compressing_by_hand(void **state)
{
    struct fixture *f = *state;
    /* The question counts (Finch), the template (KVzip), the tasks (KVCompose), nothing. */
    static const char *const recipes[] = {"finch", "kvzip", "kvcompose-aware", "snapkv+adakv",
                                          "lagkv:sink=4,lag=16"};
    const wnw_prompt prompt = prompt_of(f);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        wnw_policy *p = test_policy(recipes[i]);
        wnw_session *s = new_session(f), *by_hand = new_session(f);
        const int32_t *const question = f->tokens + N_CONTEXT, n_question = N - N_CONTEXT;
        const wnw_size size = wnw_policy_has_own_size(p) ? (wnw_size){0} : half;
        assert_ok(wnw_session_begin(
            s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = size, .prompt = &prompt}));
        assert_ok(wnw_session_read(s, f->tokens, N, NULL));

        /* Without a policy of its own the run does not know that the question is the task. */
        assert_ok(wnw_session_begin(
            by_hand, &(wnw_run){WNW_INIT(wnw_run), .prompt = &prompt,
                                MORE(.n_tasks = 1, .task_tokens = &question, .n_task_tokens = &n_question,
                                     .policies = (const wnw_policy *const *)&p, .n_policies = 1)}));
        assert_ok(wnw_session_prefill(by_hand, f->tokens, N, NULL, NULL));
        assert_ok(wnw_session_compress(by_hand, p, &size, NULL));
        assert_same_cache(s, by_hand);
        wnw_session_free(s);
        wnw_session_free(by_hand);
        wnw_policy_free(p);
    }
}

static void question_later_is_no_question(void **state)
{
    struct fixture *f = *state;
    const wnw_prompt prompt = prompt_of(f);
    wnw_session *s = new_session(f);
    assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .prompt = &prompt}));
    assert_int_equal(s->n_question, N - N_CONTEXT);
    assert_ok(
        wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .prompt = &prompt, MORE(.question_later = true)}));
    assert_int_equal(s->n_question, 0);
    assert_int_equal(s->n_prefix, 5);
    wnw_session_free(s);
}

/* The needs of further policies are observed as if each were the only one, also in addition to rules. */
static void further_policies(void **state)
{
    struct fixture *f = *state;
    static const char *const recipes[] = {"snapkv:window=8", "h2o", "expected_attention", "kvzip"};
    enum { N_POLICY = sizeof recipes / sizeof *recipes };
    const wnw_prompt prompt = prompt_of(f);
    wnw_policy *p[N_POLICY];
    const wnw_size size[N_POLICY] = {half, half, half, half};
    wnw_plan *plan[N_POLICY], *alone;
    wnw_session *s = new_session(f), *other;
    for (int32_t i = 0; i < N_POLICY; i++)
        p[i] = test_policy(recipes[i]);
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .prompt = &prompt,
                      MORE(.n_policies = N_POLICY, .policies = (const wnw_policy *const *)p)}));
    assert_ok(wnw_session_read(s, f->tokens, N, NULL));
    assert_int_equal(wnw_cache_n(s, 0, 0), N); /* no policy is followed */
    assert_ok(wnw_session_plan_many(s, (const wnw_policy *const *)p, size, N_POLICY, plan, NULL));
    for (int32_t i = 0; i < N_POLICY; i++) {
        other = new_session(f);
        assert_ok(wnw_session_begin(
            other, &(wnw_run){WNW_INIT(wnw_run), .prompt = &prompt,
                              MORE(.n_policies = 1, .policies = (const wnw_policy *const *)&p[i])}));
        assert_ok(wnw_session_read(other, f->tokens, N, NULL));
        assert_ok(wnw_session_plan(other, p[i], &half, &alone, NULL));
        assert_same_plan(plan[i], alone);
        wnw_plan_free(alone);
        wnw_plan_free(plan[i]);
        wnw_session_free(other);
    }
    assert_ok(wnw_session_reset(s));
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .policy = p[0], .size = half,
                      MORE(.n_policies = 1, .policies = (const wnw_policy *const *)&p[1])}));
    assert_ok(wnw_session_read(s, f->tokens, N, NULL));
    assert_int_equal(wnw_cache_n(s, 0, 0), N / 2);
    assert_ok(wnw_session_plan(s, p[1], &half, &alone, NULL));
    wnw_plan_free(alone);
    for (int32_t i = 0; i < N_POLICY; i++)
        wnw_policy_free(p[i]);
    wnw_session_free(s);
}

static void further_policies_that_cannot_be(void **state)
{
    struct fixture *f = *state;
    wnw_session *s = new_session(f);
    wnw_policy *p[3] = {test_policy("expected_attention:n_sink=0"),
                        test_policy("expected_attention:n_sink=4")};
    const wnw_policy *const *list = (const wnw_policy *const *)p;
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), MORE(.policies = list, .n_policies = 2)}),
                 WNW_E_ARG);
    assert_says("cannot be gathered in one run");
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .policy = p[0],
                                                 MORE(.policies = &list[1], .n_policies = 1)}),
                 WNW_E_ARG);
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), MORE(.policies = list, .n_policies = 3)}),
                 WNW_E_ARG);
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), MORE(.n_policies = 1)}), WNW_E_ARG);
    assert_error(
        wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), MORE(.policies = list, .n_policies = -1)}),
        WNW_E_ARG);
    wnw_policy_free(p[0]);
    wnw_policy_free(p[1]);
    wnw_session_free(s);
}

/* The next begin replaces everything, also with nothing. */
static void begin_again(void **state)
{
    struct fixture *f = *state;
    const wnw_prompt prompt = prompt_of(f);
    wnw_session *s = new_session(f);
    wnw_policy *p = test_policy("h2o");
    assert_ok(wnw_session_begin(
        s, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = half, .every = 4, .prompt = &prompt}));
    assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run)}));
    assert_null(s->rules.ev.policy);
    assert_int_equal(s->token_log.n_suffix, 0);
    assert_int_equal(s->n_prefix, 0);
    assert_int_equal(s->n_question, 0);
    assert_ok(wnw_session_read(s, f->tokens, N, NULL));
    assert_int_equal(wnw_cache_n(s, 0, 0), N);
    wnw_policy_free(p);
    wnw_session_free(s);
}

/* ---- What it refuses ---- */

/* A session that was told everything; what it was told must still hold. */
static void assert_untouched(const wnw_session *s, const struct fixture *f, const wnw_policy *p)
{
    assert_ptr_equal(s->rules.ev.policy, p);
    assert_int_equal(s->rules.ev.every, 7);
    assert_int_equal(s->n_question, N - N_CONTEXT);
    assert_int_equal(s->n_prefix, 5);
    assert_int_equal(s->token_log.n_suffix, 3);
    assert_memory_equal(s->token_log.suffix, f->suffix, sizeof f->suffix);
    assert_int_equal(s->token_log.n_tasks, 1);
    assert_int_equal(s->token_log.task_n[0], 2);
    assert_memory_equal(s->token_log.task_tokens, f->tokens, 2 * sizeof(int32_t));
    assert_null(s->profile);
}

static void misuse_changes_nothing(void **state)
{
    struct fixture *f = *state;
    const int32_t beyond = f->info.n_vocab, *const two = f->tokens, *const bad_task = &beyond, n_two = 2,
                  n_one = 1, n_none = 0;
    const int32_t *const hole = NULL;
    wnw_policy *h2o = test_policy("h2o"), *kvzip = test_policy("kvzip"), *heads = test_policy("headkv"),
               *snapkv = test_policy("snapkv"), *recursive = test_policy("lagkv");
    const wnw_prompt good = prompt_of(f);
    wnw_prompt negative = good, split = good, no_tokens = good, bad_suffix = good, no_suffix = good,
               long_suffix = good;
    int32_t strange[3] = {0, -1, 0};
    negative.n_prefix = -1;
    split.n_context = N + 1;
    no_tokens.tokens = NULL;
    bad_suffix.suffix = strange;
    no_suffix.suffix = NULL;
    long_suffix.n_suffix = f->info.n_ctx_train + 1;
#define RUN(...)                       \
    {                                  \
        WNW_INIT(wnw_run), __VA_ARGS__ \
    }
    const struct {
        wnw_run run;
        int want;
    } rows[] = {
        {{.struct_size = 0, .policy = h2o}, WNW_E_ARG},
        {{.struct_size = sizeof(wnw_run) + 8, .policy = h2o}, WNW_E_ARG},
        {RUN(.size = half), WNW_E_ARG},
        {RUN(.every = 3), WNW_E_ARG},
        {RUN(.chunk = 3), WNW_E_ARG},
        {RUN(.target = 3), WNW_E_ARG},
        {RUN(.phase = WNW_PHASE_LAYER), WNW_E_ARG},
        {RUN(.policy = h2o, .phase = WNW_PHASE_DECODE), WNW_E_ARG},
        {RUN(.policy = h2o, .phase = (wnw_phase)9), WNW_E_ARG},
        {RUN(.policy = kvzip, .phase = WNW_PHASE_LAYER), WNW_E_ARG},
        {RUN(.policy = kvzip, .every = 4), WNW_E_ARG},
        {RUN(.policy = h2o, .chunk = -1), WNW_E_RANGE},
        {RUN(.policy = h2o, .every = -1), WNW_E_RANGE},
        {RUN(.policy = h2o, .target = -1), WNW_E_RANGE},
        {RUN(.policy = snapkv, .every = 4, .target = 31), WNW_E_RANGE},
        {RUN(.policy = heads, .size = half), WNW_E_MISMATCH},
        {RUN(.policy = h2o, .prompt = &negative), WNW_E_RANGE},
        {RUN(.policy = h2o, .prompt = &split), WNW_E_RANGE},
        {RUN(.policy = h2o, .prompt = &no_tokens), WNW_E_RANGE},
        {RUN(.policy = h2o, .prompt = &bad_suffix), WNW_E_RANGE},
        {RUN(.policy = h2o, .prompt = &no_suffix), WNW_E_ARG},
        {RUN(.policy = h2o, .prompt = &long_suffix), WNW_E_FULL},
        {RUN(.policy = h2o, MORE(.n_tasks = -1)), WNW_E_ARG},
        {RUN(.policy = h2o, MORE(.n_tasks = 1)), WNW_E_ARG},
        {RUN(.policy = h2o, MORE(.n_tasks = 1, .task_tokens = &two)), WNW_E_ARG},
        {RUN(.policy = h2o, MORE(.n_tasks = 1, .task_tokens = &hole, .n_task_tokens = &n_two)), WNW_E_ARG},
        {RUN(.policy = h2o, MORE(.n_tasks = 1, .task_tokens = &two, .n_task_tokens = &n_none)), WNW_E_ARG},
        {RUN(.policy = h2o, MORE(.n_tasks = 1, .task_tokens = &bad_task, .n_task_tokens = &n_one)),
         WNW_E_RANGE},
    };
    wnw_session *s = new_session(f), *same = new_session(f);
    const wnw_run told = RUN(.policy = recursive, .every = 7, .prompt = &good,
                             MORE(.n_tasks = 1, .task_tokens = &two, .n_task_tokens = &n_two));
    assert_ok(wnw_session_begin(s, &told));
    assert_ok(wnw_session_begin(same, &told));
    assert_ok(wnw_session_read(s, f->tokens, N / 2, NULL));
    assert_ok(wnw_session_read(same, f->tokens, N / 2, NULL));
    assert_error(wnw_session_begin(s, NULL), WNW_E_ARG);
    assert_error(wnw_session_begin(NULL, &told), WNW_E_ARG);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int rc = wnw_session_begin(s, &rows[i].run);
        if (rc != rows[i].want)
            fail_msg("row %zu: %d, expected %d (%s)", i, rc, rows[i].want, wnw_last_error());
        assert_string_not_equal(wnw_last_error(), "");
        assert_untouched(s, f, recursive);
    }
    /* It goes on as one that was never disturbed. */
    assert_ok(wnw_session_read(s, f->tokens + N / 2, N / 2, NULL));
    assert_ok(wnw_session_read(same, f->tokens + N / 2, N / 2, NULL));
    assert_same_cache(s, same);
    wnw_session_free(s);
    wnw_session_free(same);
    wnw_policy_free(h2o);
    wnw_policy_free(kvzip);
    wnw_policy_free(heads);
    wnw_policy_free(snapkv);
    wnw_policy_free(recursive);
}

/* An older program's struct ends before the prompt: nothing is known of it then. */
static void an_older_program(void **state)
{
    struct fixture *f = *state;
    wnw_policy *p = test_policy("knorm");
    wnw_session *s = new_session(f);
    wnw_run run = {WNW_INIT(wnw_run), .policy = p, .size = half};
    run.struct_size = (uint32_t)offsetof(wnw_run, profile);
    run.prompt = (const wnw_prompt *)(const void *)"not to be read";
    run.more = (const wnw_run_more *)(const void *)"not to be read";
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, f->tokens, N, NULL));
    assert_int_equal(wnw_cache_n(s, 0, 0), N / 2);
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* ---- A recipe in place of a policy ---- */

/* The recipe that the table gives for a run of the fixture's model by half. */
static char *chosen_for(struct fixture *f, const wnw_run *run)
{
    wnw_policy_facts facts = wnw_policy_facts_default();
    wnw_policy_choice choice = wnw_policy_choice_default();
    assert_ok(wnw_policy_facts_of(&facts, f->model, run));
    facts.kept = 0.5;
    assert_ok(wnw_policy_choose(&choice, &facts));
    wnw_policy *p = test_policy(choice.recipe);
    char *text = strdup(wnw_policy_string(p));
    wnw_policy_free(p);
    return text;
}

static void a_recipe_is_a_policy(void **state)
{
    struct fixture *f = *state;
    static const char *const recipes[] = {"snapkv+adakv", "knorm"};
    const wnw_prompt prompt = prompt_of(f);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        wnw_policy *p = test_policy(recipes[i]);
        wnw_session *s = new_session(f), *other = new_session(f);
        assert_null(wnw_session_policy(s));
        assert_ok(wnw_session_begin(
            s, &(wnw_run){WNW_INIT(wnw_run), .recipe = recipes[i], .size = half, .prompt = &prompt}));
        assert_ok(wnw_session_begin(
            other, &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = half, .prompt = &prompt}));
        assert_string_equal(wnw_policy_string(wnw_session_policy(s)), wnw_policy_string(p));
        assert_ptr_equal(wnw_session_policy(other), p);
        assert_ok(wnw_session_read(s, f->tokens, N, NULL));
        assert_ok(wnw_session_read(other, f->tokens, N, NULL));
        assert_same_cache(s, other);
        assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run)}));
        assert_null(wnw_session_policy(s));
        wnw_session_free(s);
        wnw_session_free(other);
        wnw_policy_free(p);
    }
    assert_null(wnw_session_policy(NULL));
}

static void auto_is_chosen(void **state)
{
    struct fixture *f = *state;
    const wnw_prompt prompt = prompt_of(f);
    const wnw_size sizes[] = {half, {.kind = WNW_SIZE_BUDGET, .budget = N / 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const wnw_run run = {WNW_INIT(wnw_run), .recipe = "auto", .size = sizes[i], .prompt = &prompt};
        char *want = chosen_for(f, &run);
        wnw_session *s = new_session(f), *copy;
        assert_ok(wnw_session_begin(s, &run));
        assert_string_equal(wnw_policy_string(wnw_session_policy(s)), want);
        /* A copy has a policy of its own. */
        assert_ok(wnw_session_copy(&copy, s));
        wnw_session_free(s);
        assert_string_equal(wnw_policy_string(wnw_session_policy(copy)), want);
        assert_ok(wnw_session_reset(copy));
        assert_string_equal(wnw_policy_string(wnw_session_policy(copy)), want);
        /* The policy may be given back, and the rules that it came from end. */
        assert_ok(wnw_session_begin(
            copy, &(wnw_run){WNW_INIT(wnw_run), .policy = wnw_session_policy(copy), .size = half}));
        assert_ok(wnw_session_read(copy, f->tokens, N, NULL));
        assert_float_equal(test_mean_entries(copy), N / 2, 1);
        wnw_session_free(copy);
        free(want);
    }
}

static void recipes_are_refused(void **state)
{
    struct fixture *f = *state;
    wnw_policy *p = test_policy("knorm");
    wnw_session *s = new_session(f);
    assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .recipe = "knorm", .size = half}));
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .recipe = "auto", .policy = p}),
                 WNW_E_ARG);
    assert_says("give one of the two");
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .recipe = "snapvk"}), WNW_E_ARG);
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .recipe = "auto+quality:q=2"}),
                 WNW_E_ARG);
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .recipe = "auto+quality:q=0.9"}),
                 WNW_E_MISMATCH);
    assert_string_equal(wnw_policy_string(wnw_session_policy(s)),
                        wnw_policy_string(p)); /* that of before goes on */
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* ---- Set-up ---- */

/* ---- One piece ---- */

static bool keeps_sums(const wnw_session *s)
{
    return s->cache.aux_planes[WNW_AUX_ATTN_SUM] > 0;
}

/* With `once` the first piece is what it is without. What is read later stays, nothing is observed any more, and the next
 * prompt needs a new run. */
static void one_piece_is_compressed(void **state)
{
    struct fixture *f = *state;
    wnw_policy *p = test_policy("observed_attention");
    wnw_session *s = new_session(f), *other = new_session(f);
    const wnw_run often = {WNW_INIT(wnw_run), .policy = p, .size = half};
    wnw_run once = often;
    once.more = &(wnw_run_more){WNW_INIT(wnw_run_more), .once = true};
    assert_error(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), MORE(.once = true)}), WNW_E_ARG);
    assert_says("`once` need a policy");
    assert_ok(wnw_session_begin(s, &once));
    assert_ok(wnw_session_begin(other, &often));
    assert_ok(wnw_session_read(s, f->tokens, 60, NULL));
    assert_ok(wnw_session_read(other, f->tokens, 60, NULL));
    assert_same_cache(s, other);
    assert_false(keeps_sums(s));
    assert_true(keeps_sums(other));
    assert_ok(wnw_session_read(s, f->tokens + 60, 20, NULL));
    assert_float_equal(test_mean_entries(s), 30 + 20, 1e-9);
    assert_ok(wnw_session_decode(s, f->tokens[80]));
    assert_float_equal(test_mean_entries(s), 30 + 21, 1e-9);

    assert_ok(wnw_session_reset(s));
    assert_error(wnw_session_read(s, f->tokens, 60, NULL), WNW_E_NOT_OBSERVED);
    assert_ok(wnw_session_reset(s));
    assert_ok(wnw_session_begin(s, &once));
    assert_ok(wnw_session_read(s, f->tokens, 60, NULL));
    assert_same_cache(s, other);

    /* Compressions of decoded tokens need what is observed. */
    once.every = 8;
    assert_ok(wnw_session_reset(s));
    assert_ok(wnw_session_begin(s, &once));
    assert_ok(wnw_session_read(s, f->tokens, 60, NULL));
    assert_true(keeps_sums(s));
    test_decode(s, f->tokens + 60, 8);
    assert_cmp(test_mean_entries(s), <, 30 + 8);
    wnw_session_free(s);
    wnw_session_free(other);
    wnw_policy_free(p);
}

/* What a policy does while decoding goes on: LagKV's blocks. */
static void rules_outlive_the_piece(void **state)
{
    struct fixture *f = *state;
    wnw_policy *p = test_policy("lagkv:sink=4,lag=8");
    wnw_session *s[2];
    for (int k = 0; k < 2; k++) {
        s[k] = new_session(f);
        assert_ok(wnw_session_begin(
            s[k], &(wnw_run){WNW_INIT(wnw_run), .policy = p, .size = half, MORE(.once = k == 0)}));
        assert_ok(wnw_session_read(s[k], f->tokens, 40, NULL));
    }
    for (int i = 40; i < N; i++)
        for (int k = 0; k < 2; k++)
            assert_ok(wnw_session_decode(s[k], f->tokens[i]));
    assert_same_cache(s[0], s[1]);
    assert_cmp(test_mean_entries(s[0]), <, 0.8 * N);
    wnw_session_free(s[0]);
    wnw_session_free(s[1]);
    wnw_policy_free(p);
}

/* New rules continue the counts if asked to, even if there were no rules in between; else they count the existing entries. */
static void counts_go_on(void **state)
{
    struct fixture *f = *state;
    wnw_policy *p = test_policy("knorm"), *slides = test_policy("streaming_llm");
    for (int k = 0; k < 2; k++) {
        wnw_session *s = new_session(f);
        wnw_run run = {WNW_INIT(wnw_run), .policy = slides, .size = half};
        assert_ok(wnw_session_begin(s, &run));
        assert_ok(wnw_session_read(s, f->tokens, 60, NULL));
        assert_float_equal(test_mean_entries(s), 30, 1e-9);
        assert_ok(wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), MORE(.goes_on = k == 0)}));
        assert_ok(wnw_session_read(s, f->tokens + 60, 10, NULL));
        assert_float_equal(test_mean_entries(s), 40, 1e-9);
        run.policy = p;
        run.more = &(wnw_run_more){WNW_INIT(wnw_run_more), .goes_on = k == 0};
        assert_ok(wnw_session_begin(s, &run));
        assert_ok(wnw_session_read(s, f->tokens + 70, 10, NULL));
        assert_float_equal(test_mean_entries(s), k == 0 ? 40 : 25, 1e-9);
        wnw_session_free(s);
    }
    wnw_policy_free(p);
    wnw_policy_free(slides);
}

static int set_up(void **state)
{
    static struct fixture f;
    f.model = test_model_open("tiny/tiny-llama.gguf");
    f.info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(f.model, &f.info));
    f.tokens = test_random_tokens(N, f.info.n_vocab, 11);
    for (int i = 0; i < 3; i++)
        f.suffix[i] = f.tokens[40 + i];
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    wnw_model_free(f->model);
    free(f->tokens);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_compressing_by_hand),
        cmocka_unit_test(question_later_is_no_question),
        cmocka_unit_test(begin_again),
        cmocka_unit_test(misuse_changes_nothing),
        cmocka_unit_test(an_older_program),
        cmocka_unit_test(further_policies),
        cmocka_unit_test(further_policies_that_cannot_be),
        cmocka_unit_test(one_piece_is_compressed),
        cmocka_unit_test(rules_outlive_the_piece),
        cmocka_unit_test(counts_go_on),
        cmocka_unit_test(a_recipe_is_a_policy),
        cmocka_unit_test(auto_is_chosen),
        cmocka_unit_test(recipes_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
