/* SPDX-License-Identifier: MIT */
/*
 * Keep-sets against those of NVIDIA/kvpress on the same model, tokens and precision; tests/golden/README.md
 * says how they were made. One prefill serves every case. Both sides compute in float32, in another order, so
 * scores that are nearly equal may swap: at least 99.5 % of the entries must be the same, and the counts
 * exactly but where a threshold decides.
 */
#include "helpers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL       "smollm2-135m-f32.gguf"
#define MIN_OVERLAP 0.995

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
    wnw_session *session;
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

static bool compare_case(const struct fixture *fx, const char *name, double ratio, const wnw_plan *plan)
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
    int64_t theirs = 0, ours = 0, both = 0, bad_heads = 0;
    int il = 0, ih = 0, n_heads = 0;
    for (int32_t n; (n = read_head(f, &il, &ih, kept, fx->n_tokens)) >= 0; n_heads++) {
        const int32_t *pos = NULL;
        const int32_t n_ours = wnw_plan_head(plan, il, ih, &pos);
        for (int32_t i = 0; i < n_ours; i++) {
            assert_cmp(pos[i], >=, 0);
            assert_cmp(pos[i], <, fx->n_tokens);
            if (i > 0)
                assert_cmp(pos[i], >, pos[i - 1]);
            both += kept[pos[i]];
        }
        theirs += n;
        ours += n_ours;
        bad_heads += n_ours != n;
    }
    fclose(f);
    free(kept);
    assert_int_equal(n_heads, fx->info.n_layer * fx->info.n_head_kv);
    const double overlap = (double)both / (double)theirs;
    print_message(
        "kvpress-%-14s ratio %-4g overlap %.5f of %lld entries (ours %lld, heads with another count %lld)\n",
        name, ratio, overlap, (long long)theirs, (long long)ours, (long long)bad_heads);
    /* Where a threshold decides, rounding may change the count as well. */
    return overlap >= MIN_OVERLAP &&
           (ratio > 0 ? ours == theirs : (double)llabs((long long)(ours - theirs)) <= 1e-3 * (double)theirs);
}

static void run_case(void **state)
{
    const struct fixture *fx = &fixture;
    const struct golden_case *c = *state;
    const size_t i = (size_t)(c - cases);
    /* Both ratios from one look at the cache: a second pass is the dear part. */
    const wnw_policy *const policies[] = {fx->policies[i], fx->policies[i]};
    wnw_size sizes[2];
    wnw_plan *plans[2] = {NULL, NULL};
    bool ok = true;
    for (int r = 0; r < 2; r++)
        sizes[r] = c->ratios[r] > 0 ? (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = c->ratios[r]}
                                    : (wnw_size){.kind = WNW_SIZE_NONE};
    assert_ok(wnw_session_plan_many(fx->session, policies, sizes, 2, plans, NULL));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(wnw_plan_n_layer(plans[r]), fx->info.n_layer);
        assert_int_equal(wnw_plan_n_head_kv(plans[r]), fx->info.n_head_kv);
        assert_int_equal(wnw_plan_n_tokens(plans[r]), fx->n_tokens);
        ok = compare_case(fx, c->name, c->ratios[r], plans[r]) && ok;
        wnw_plan_free(plans[r]);
    }
    if (!ok)
        fail_msg("kvpress-%s keeps other entries than kvpress", c->name);
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
    int32_t *tokens = test_golden_tokens(&fx->n_tokens);
    fx->session = test_session_new(
        fx->model, &(struct test_session){.kv_type = WNW_KV_F32, .attn = WNW_ATTN_OWN, .n_ctx = 1024});
    for (size_t i = 0; i < N_CASES; i++) {
        char recipe[64];
        snprintf(recipe, sizeof recipe, "kvpress-%s", cases[i].name);
        fx->policies[i] = test_policy(recipe);
    }
    assert_ok(test_observe(fx->session, (const wnw_policy *const *)fx->policies, (int32_t)N_CASES));
    test_prefill(fx->session, tokens, fx->n_tokens);
    free(tokens);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fx = &fixture;
    (void)state;
    wnw_session_free(fx->session);
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
