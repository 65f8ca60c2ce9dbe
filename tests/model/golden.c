/* SPDX-License-Identifier: MIT */
/*
 * Keep-sets against those of NVIDIA/kvpress on the same model, tokens and precision; tests/golden/README.md
 * says how they were made. One prefill serves every case. Both sides compute in float32, in another order, so
 * scores that are nearly equal may swap: entries that one alone keeps lie within the error of the cut (cuts.h). Numbers of
 * entries are the same, but where a threshold decides.
 */
#include "cuts.h"
#include "helpers.h"
#include "rounding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "smollm2-135m-f32.gguf"

struct golden_case {
    const char *name;
    double ratios[2]; /* 0 = no size: the press has a rule of its own */
};

/* One line each. */
/* clang-format off */
static const struct golden_case cases[] = {
    {"snapkv", {0.5, 0.9}},

    {"streaming_llm", {0.5, 0.9}},

    {"tova", {0.5, 0.9}},

    {"knorm", {0.5, 0.9}},

    {"lagkv", {0.52, 0.72}},

    {"adakv_snapkv", {0.5, 0.9}},

    {"pyramidkv", {0.5, 0.9}},

    {"criticalkv_snapkv", {0.5, 0.9}},

    {"critical_adakv_snapkv", {0.5, 0.9}},

    {"expected_attention", {0.5, 0.9}},

    {"adakv_expected_attention", {0.5, 0.9}},

    {"criticalkv_expected_attention", {0.5, 0.9}},

    {"keydiff", {0.5, 0.9}},

    {"cur", {0.5, 0.9}},

    {"chunkkv_snapkv", {0.5, 0.9}},

    {"noncausal", {0.5, 0.9}},

    {"observed_attention", {0.5, 0.9}},

    {"kvcompose", {0.5, 0.9}},

    {"kvzip", {0.5, 0.9}},

    {"capkv", {0.5, 0.9}},

    {"dms_keydiff", {0}},
};
/* clang-format on */
#define N_CASES (sizeof cases / sizeof cases[0])

struct fixture {
    wnw_model *model;
    wnw_session *session, *other; /* the other with another rounding, once it is asked for */
    int32_t *tokens;
    wnw_policy *policies[N_CASES];
    wnw_model_info info;
    int32_t n_tokens;
};

/* Shared by all tests; the state of each is its case. */
static struct fixture fixture;

/* Positions of one line "layer head: p0 p1 ...", marked in kept[n_tokens]; returns how many, -1 at the end. */
static int32_t read_head(FILE *f, int *il, int *ih, bool *kept, int32_t n_tokens)
{
    for (int c; (c = fgetc(f)) == '#';)
        while (c != '\n' && c != EOF)
            c = fgetc(f);
    if (feof(f))
        return -1;
    fseek(f, -1, SEEK_CUR);
    assert_int_equal(fscanf(f, "%d %d:", il, ih), 2);
    memset(kept, 0, (size_t)n_tokens * sizeof *kept);
    int32_t n = 0;
    for (int c; (c = fgetc(f)) == ' '; n++) {
        int pos = -1;
        if ((c = fgetc(f)) == '\n')
            break; /* a head that keeps nothing */
        ungetc(c, f);
        assert_int_equal(fscanf(f, "%d", &pos), 1);
        assert_in_range(pos, 0, n_tokens - 1);
        assert_false(kept[pos]);
        kept[pos] = true;
    }
    return n;
}

/* What kvpress keeps. */
static struct test_cuts *read_golden(const struct fixture *fx, const char *name, double ratio)
{
    char file[128], path[4096];
    if (ratio > 0)
        snprintf(file, sizeof file, "%s-r%g.txt", name, ratio);
    else
        snprintf(file, sizeof file, "%s-own.txt", name);
    test_golden_path(path, sizeof path, file);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot open %s: run the tests from the top folder of the source tree", path);
    bool *kept = malloc((size_t)fx->n_tokens * sizeof *kept);
    assert_non_null(kept);
    struct test_cuts *there = test_cuts_new(fx->info.n_layer, fx->info.n_head_kv, fx->n_tokens);
    int il = 0, ih = 0, n_heads = 0;
    for (; read_head(f, &il, &ih, kept, fx->n_tokens) >= 0; n_heads++)
        for (int32_t i = 0; i < fx->n_tokens; i++)
            if (kept[i])
                test_cuts_keep(there, il, ih, i);
    fclose(f);
    free(kept);
    assert_int_equal(n_heads, fx->info.n_layer * fx->info.n_head_kv);
    return there;
}

static wnw_size size_of(double ratio)
{
    return ratio > 0 ? size_ratio(ratio) : (wnw_size){.kind = WNW_SIZE_NONE};
}

static wnw_session *read_tokens(const struct fixture *fx, wnw_attn attn, int32_t n_ubatch)
{
    wnw_session *s = test_session_new(
        fx->model,
        &(struct test_session){.kv_type = WNW_KV_F32, .attn = attn, .n_ctx = 1024, .n_ubatch = n_ubatch});
    assert_ok(test_observe(s, (const wnw_policy *const *)fx->policies, (int32_t)N_CASES));
    test_prefill(s, fx->tokens, fx->n_tokens);
    return s;
}

struct one {
    struct fixture *fx;
    const wnw_policy *policy;
    double ratio;
};

static void plan_one(void *user, bool other)
{
    const struct one *one = user;
    const wnw_size size = size_of(one->ratio);
    wnw_plan *plan;
    if (other && !one->fx->other)
        one->fx->other = read_tokens(one->fx, WNW_ATTN_GGML, 53);
    assert_ok(wnw_session_plan(other ? one->fx->other : one->fx->session, one->policy, &size, &plan, NULL));
    wnw_plan_free(plan);
}

static void compare_case(struct fixture *fx, const struct golden_case *c, double ratio, const wnw_plan *plan)
{
    struct test_cuts *there = read_golden(fx, c->name, ratio);
    int32_t *theirs = malloc((size_t)fx->n_tokens * sizeof *theirs);
    int64_t ours = 0, both = 0;
    assert_non_null(theirs);
    for (int32_t il = 0; il < fx->info.n_layer; il++)
        for (int32_t ih = 0; ih < fx->info.n_head_kv; ih++) {
            const int32_t *pos = NULL;
            const int32_t n_ours = wnw_plan_head(plan, il, ih, &pos),
                          n_theirs = test_cuts_head(there, il, ih, theirs);
            for (int32_t i = 0, k = 0; i < n_ours; i++) {
                assert_cmp(pos[i], >=, 0);
                assert_cmp(pos[i], <, fx->n_tokens);
                if (i > 0)
                    assert_cmp(pos[i], >, pos[i - 1]);
                while (k < n_theirs && theirs[k] < pos[i])
                    k++;
                both += k < n_theirs && theirs[k] == pos[i];
            }
            ours += n_ours;
        }
    free(theirs);
    const int64_t n = test_cuts_kept(there);
    print_message("kvpress-%-14s ratio %-4g overlap %.5f of %lld entries (ours %lld)\n", c->name, ratio,
                  (double)both / (double)n, (long long)n, (long long)ours);
    if (ratio > 0) /* where a threshold decides, numbers follow from scores */
        assert_int_equal(ours, n);
    if (both != n || ours != n) {
        char name[128];
        snprintf(name, sizeof name, "kvpress-%s at %g", c->name, ratio);
        struct one one = {fx, fx->policies[c - cases], ratio};
        test_keeps_as(name, &(struct test_keeper){plan_one, &one}, there);
    }
    test_cuts_free(there);
}

static void run_case(void **state)
{
    struct fixture *fx = &fixture;
    const struct golden_case *c = *state;
    const size_t i = (size_t)(c - cases);
    /* With noise every case differs, and what differs is planned three times more: each is compared at one ratio, every other one at the
     * larger. Plans with a second pass read the prompt again each time, so that with noise one such policy is compared. */
    if (test_noise() > 0 && strcmp(c->name, "kvzip") == 0)
        skip();
    /* Both ratios from one look at the cache: a second pass is the dear part. */
    const wnw_policy *const policies[] = {fx->policies[i], fx->policies[i]};
    wnw_size sizes[2];
    wnw_plan *plans[2] = {NULL, NULL};
    for (int r = 0; r < 2; r++)
        sizes[r] = size_of(c->ratios[r]);
    assert_ok(wnw_session_plan_many(fx->session, policies, sizes, 2, plans, NULL));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(wnw_plan_n_layer(plans[r]), fx->info.n_layer);
        assert_int_equal(wnw_plan_n_head_kv(plans[r]), fx->info.n_head_kv);
        assert_int_equal(wnw_plan_n_tokens(plans[r]), fx->n_tokens);
    }
    for (int r = 0; r < 2; r++) {
        if (test_noise() == 0 || r == (int)(i % 2))
            compare_case(fx, c, c->ratios[r], plans[r]);
        wnw_plan_free(plans[r]);
    }
}

/* Planning must not touch the cache: it holds everything after all cases have run. */
static void cache_is_untouched(void **state)
{
    const struct fixture *fx = &fixture;
    (void)state;
    for (int32_t il = 0; il < fx->info.n_layer; il++)
        for (int32_t ih = 0; ih < fx->info.n_head_kv; ih++)
            assert_int_equal(wnw_cache_n(fx->session, il, ih), fx->n_tokens);
}

static int set_up(void **state)
{
    struct fixture *fx = &fixture;
    (void)state;
    fx->model = test_model_open(MODEL);
    fx->info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(fx->model, &fx->info));
    fx->tokens = test_golden_tokens(&fx->n_tokens);
    for (size_t i = 0; i < N_CASES; i++) {
        char recipe[64];
        snprintf(recipe, sizeof recipe, "kvpress-%s", cases[i].name);
        fx->policies[i] = test_policy(recipe);
    }
    fx->session = read_tokens(fx, WNW_ATTN_OWN, 0);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fx = &fixture;
    (void)state;
    wnw_session_free(fx->session);
    wnw_session_free(fx->other);
    free(fx->tokens);
    for (size_t i = 0; i < N_CASES; i++)
        wnw_policy_free(fx->policies[i]);
    wnw_model_free(fx->model);
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[N_CASES + 1];
    for (size_t i = 0; i < N_CASES; i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = run_case, .initial_state = (void *)(uintptr_t)&cases[i]};
    tests[N_CASES] = (struct CMUnitTest)cmocka_unit_test(cache_is_untouched);
    return cmocka_run_group_tests_name("keep-sets against kvpress", tests, set_up, tear_down);
}
