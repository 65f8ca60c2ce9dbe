/* SPDX-License-Identifier: MIT */
/*
 * Parts in every company: scorers, head aggregations, layer budgets, head budgets, selectors, positions, content
 * rules and cache types on a tiny random model. Recipes that parse are sampled, always the same ones, until every
 * part and every pair that can occur together has: some 500 of 170,000. This sample is what runs under sanitizers.
 * With WNW_TRIPLES in the environment every triple occurs, which CI asks for in the release build alone. Triples of scorers, budgets and
 * selectors alone are left out: unit_properties plans with all four together. With WNW_WHOLE_MATRIX all recipes run.
 * Each recipe reads a prompt, compresses at two sizes and decodes; those of triples compress at one of them in turn. Of triples and of
 * all recipes, those that need the same to be observed share a reading. Also every preset on a model with sliding windows.
 */
#include "helpers.h"
#include "profiles.h"

#include "peek_session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_PROMPT = 96,
    N_DECODE = 4,
    N_KV_TYPES = 4,
    N_KINDS = 7,
    N_FACTORS = N_KINDS + 1,
    MAX_VALUES = 64,
    MAX_RECIPE = 512
};

/* The first factors are the kinds of parts, the last one is the cache type. */
static const char *const kinds[N_KINDS] = {"scorer",   "head aggregation", "layer budget", "head budget",
                                           "selector", "position rule",    "content rule"};

struct choice {
    uint8_t value[N_FACTORS];
};

struct fixture {
    wnw_model *model;
    wnw_model_info info;
    wnw_engine *engine; /* that sessions share; NULL: each has its own */
    wnw_profile *profile;
    int32_t *tokens; /* [N_PROMPT + N_DECODE] */
    const char *names[N_KINDS][MAX_VALUES];
    int n_values[N_FACTORS];
    bool own[MAX_VALUES][MAX_VALUES]; /* the scorer takes the aggregation by itself */
    int n_decode;                     /* tokens after each compression */
    int n_recipe, n_refused;
    double worst_excess; /* of entries over the size asked for */
    char worst[MAX_RECIPE];
};

/* ---- One recipe ---- */

static void check_cache(const struct fixture *fx, const wnw_session *s, const wnw_plan *plan)
{
    assert_ok(wnw__cache_check(&s->cache));
    for (int32_t il = 0; il < fx->info.n_layer; il++)
        for (int32_t ih = 0; ih < fx->info.n_head_kv && !wnw_model_layer_is_swa(fx->model, il); ih++) {
            const int32_t *want;
            const int32_t n = wnw_plan_head(plan, il, ih, &want);
            assert_int_equal(wnw_cache_n(s, il, ih), n);
            if (n > 0)
                assert_memory_equal(wnw_cache_positions(s, il, ih), want, (size_t)n * sizeof *want);
        }
}

static void check_size(struct fixture *fx, wnw_session *s, const char *recipe, const wnw_policy *policy,
                       wnw_size size)
{
    wnw_plan *plan;
    wnw_report report = {WNW_INIT(wnw_report)};
    if (wnw_policy_is_full(policy))
        size = (wnw_size){.kind = WNW_SIZE_NONE};
    const int rc = wnw_session_plan(s, policy, &size, &plan, &report);
    if (rc == WNW_E_RANGE && size.kind == WNW_SIZE_BUDGET) {
        fx->n_refused++; /* what it always keeps is more than that; a ratio shrinks it */
        return;
    }
    if (rc != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
    const double asked = size.kind == WNW_SIZE_BUDGET  ? (double)size.budget
                         : size.kind == WNW_SIZE_RATIO ? N_PROMPT * (1 - size.ratio)
                                                       : N_PROMPT;
    if (report.kept_mean - asked > fx->worst_excess) {
        fx->worst_excess = report.kept_mean - asked;
        snprintf(fx->worst, sizeof fx->worst, "%s", recipe);
    }
    assert_ok(wnw_session_apply(s, plan, NULL));
    check_cache(fx, s, plan);
    if (wnw_policy_rerotates(policy) && fx->info.n_layer_swa > 0)
        assert_error(wnw_session_renumber(s), WNW_E_UNSUPPORTED);
    else if (wnw_policy_rerotates(policy) && wnw_session_renumber(s) != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
    for (int i = 0; i < fx->n_decode; i++) {
        assert_ok(wnw_session_decode(s, fx->tokens[N_PROMPT + i]));
        const float *logits = wnw_session_logits(s);
        for (int32_t k = 0; k < fx->info.n_vocab; k++)
            if (!isfinite(logits[k]))
                fail_msg("%s: logit %d of token %d is %g", recipe, k, i, (double)logits[k]);
    }
    assert_ok(wnw__cache_check(&s->cache));
    wnw_plan_free(plan);
}

/* A session that has read the prompt and observed for the policy. */
static wnw_session *read_prompt(const struct fixture *fx, const char *recipe, const wnw_policy *policy,
                                wnw_kv_type type)
{
    wnw_session *s = test_session_new(
        fx->model,
        &(struct test_session){.kv_type = type, .n_ctx = 256, .n_threads = 1, .engine = fx->engine});
    const int32_t *const task = fx->tokens + 5; /* an expected question */
    const wnw_run run = {WNW_INIT(wnw_run), .profile = fx->profile,
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1, .task_tokens = &task,
                                                 .n_task_tokens = (const int32_t[]){12}, .policies = &policy,
                                                 .n_policies = 1}};
    if (wnw_session_begin(s, &run) != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
    test_prefill(s, fx->tokens, N_PROMPT);
    return s;
}

static const wnw_size budget = {.kind = WNW_SIZE_BUDGET, .budget = 48},
                      ratio = {.kind = WNW_SIZE_RATIO, .ratio = 0.75};

static void check_copy(struct fixture *fx, const wnw_session *read, const char *recipe,
                       const wnw_policy *policy, wnw_size size)
{
    wnw_session *s;
    assert_ok(wnw_session_copy(&s, read));
    check_size(fx, s, recipe, policy, size);
    wnw_session_free(s);
}

/* AddressSanitizer looks at memory, and sees each part at both sizes: there a recipe has one, the other one of the recipe before it. */
static void check_recipe(struct fixture *fx, const char *recipe, const wnw_policy *policy, wnw_kv_type type)
{
    wnw_session *s = read_prompt(fx, recipe, policy, type);
    fx->n_recipe++;
    if (!test_looks_at_memory() || fx->n_recipe % 2)
        check_copy(fx, s, recipe, policy, ratio);
    if (!test_looks_at_memory() || fx->n_recipe % 2 == 0)
        check_size(fx, s, recipe, policy, budget);
    wnw_session_free(s);
}

/* ---- Which recipes ---- */

static void list_parts(struct fixture *fx)
{
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        for (int k = 0; k < N_KINDS; k++)
            if (strcmp(info.kind, kinds[k]) == 0) {
                assert_cmp(fx->n_values[k], <, MAX_VALUES);
                fx->names[k][fx->n_values[k]++] = info.name;
            }
    fx->n_values[N_KINDS] = N_KV_TYPES;
}

static void list_own_aggregations(struct fixture *fx)
{
    for (int s = 0; s < fx->n_values[0]; s++) {
        wnw_policy *policy;
        assert_ok(wnw__policy_parse_parts(&policy, fx->names[0][s]));
        for (int a = 0; a < fx->n_values[1]; a++)
            fx->own[s][a] = strcmp(policy->part[WNW_PART_AGGREGATION].head.name, fx->names[1][a]) == 0;
        wnw_policy_free(policy);
    }
}

/* The policy of a choice; NULL where the parts do not go together. */
static wnw_policy *parse_choice(const struct fixture *fx, const struct choice *c, char recipe[MAX_RECIPE])
{
    wnw_policy *policy = NULL;
    const char *scorer = fx->names[0][c->value[0]];
    /* Blocks must fit into the prompt several times. */
    snprintf(recipe, MAX_RECIPE, "%s%s+%s+%s+%s+%s+%s+%s", scorer,
             strcmp(scorer, "lagkv") == 0 ? ":lag=16,sink=4" : "", fx->names[1][c->value[1]],
             fx->names[2][c->value[2]], fx->names[3][c->value[3]], fx->names[4][c->value[4]],
             fx->names[5][c->value[5]], fx->names[6][c->value[6]]);
    return wnw__policy_parse_parts(&policy, recipe) == WNW_OK ? policy : NULL;
}

/* All recipes that parse, in an order that is random but always the same. They are the same for every model, so that those of
 * the first are kept. */
static struct {
    struct choice *all;
    int n;
} choices;

/* The value of a kind that goes with every other part that goes with anything. */
static int plainest(const struct fixture *fx, int kind)
{
    static const char *const names[N_KINDS] = {NULL, NULL, "uniform", "equal", "topk", "original", "plain"};
    for (int v = 0; names[kind] && v < fx->n_values[kind]; v++)
        if (strcmp(fx->names[kind][v], names[kind]) == 0)
            return v;
    return 0;
}

/* Adds to choices.all[] those that begin as c, whose first n values are set and the others the plainest. Parts that do not go together
 * with the plainest ones do so with no others, so that nothing more is tried with them; of all recipes this is looked at. */
static void add_choices(const struct fixture *fx, struct choice *c, int n)
{
    char recipe[MAX_RECIPE];
    wnw_policy *policy = n < 2 ? NULL : parse_choice(fx, c, recipe); /* a scorer has its own aggregation */
    const bool fits = n < 2 || policy;
    wnw_policy_free(policy);
    if (!fits)
        return;
    if (n == N_KINDS) {
        if ((choices.n & (choices.n - 1)) == 0) /* 0, or a power of two: room for as many again */
            choices.all = realloc(choices.all, (2 * (size_t)choices.n + 1) * sizeof *choices.all);
        assert_non_null(choices.all);
        choices.all[choices.n++] = *c;
        return;
    }
    for (int v = 0; v < fx->n_values[n]; v++) {
        c->value[n] = (uint8_t)v;
        add_choices(fx, c, n + 1);
    }
    c->value[n] = (uint8_t)plainest(fx, n);
}

static const struct choice *list_choices(const struct fixture *fx, int *n)
{
    uint64_t state = 1;
    if (!choices.all) {
        struct choice c = {{0}};
        for (int k = 0; k < N_KINDS; k++)
            c.value[k] = (uint8_t)plainest(fx, k);
        add_choices(fx, &c, 0);
        for (int i = choices.n - 1; i > 0; i--) {
            const int k = (int)(test_random(&state) % (uint64_t)(i + 1));
            const struct choice at = choices.all[i];
            choices.all[i] = choices.all[k];
            choices.all[k] = at;
        }
    }
    *n = choices.n;
    return choices.all;
}

/* The number of a choice of the kinds among all that can be written, and the choice of a number. */
static int number_of(const struct fixture *fx, const struct choice *c)
{
    int at = 0;
    for (int k = N_KINDS; k-- > 0;)
        at = at * fx->n_values[k] + c->value[k];
    return at;
}

static struct choice choice_of(const struct fixture *fx, int at)
{
    struct choice c = {{0}};
    for (int k = 0; k < N_KINDS; at /= fx->n_values[k++])
        c.value[k] = (uint8_t)(at % fx->n_values[k]);
    return c;
}

/* Whether those recipes are listed that parse: tries all, or every 67th, for two parts that go together and not with the plainest ones are in
 * hundreds of recipes. A prime above MAX_VALUES leaves no part out. */
static void check_list(const struct fixture *fx, bool whole)
{
    int n_all = 1;
    for (int k = 0; k < N_KINDS; k++)
        n_all *= fx->n_values[k];
    bool *listed = calloc((size_t)n_all, sizeof *listed);
    assert_non_null(listed);
    for (int i = 0; i < choices.n; i++)
        listed[number_of(fx, &choices.all[i])] = true;
    for (int i = 0; i < n_all; i += whole ? 1 : 67) {
        char recipe[MAX_RECIPE];
        const struct choice c = choice_of(fx, i);
        wnw_policy *policy = parse_choice(fx, &c, recipe);
        if ((policy != NULL) != listed[i])
            fail_msg("%s: %s", recipe,
                     policy ? "it parses and is not listed" : "it is listed and does not parse");
        wnw_policy_free(policy);
    }
    free(listed);
}

/* Pairs of the choice that did not occur so far; with `take` they have from now on. */
static int new_pairs(bool seen[N_FACTORS][MAX_VALUES][N_FACTORS][MAX_VALUES], const struct choice *c,
                     bool take)
{
    int n = 0;
    for (int a = 0; a < N_FACTORS; a++)
        for (int b = a + 1; b < N_FACTORS; b++) {
            bool *cell = &seen[a][c->value[a]][b][c->value[b]];
            n += !*cell;
            *cell = *cell || take;
        }
    return n;
}

static void open_fixture(struct fixture *fx, const char *family, uint64_t seed)
{
    char name[TEST_NAME_MAX];
    *fx = (struct fixture){.n_decode = N_DECODE};
    test_tiny_model_of(name, family);
    fx->model = test_model_open(name);
    fx->info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(fx->model, &fx->info));
    fx->profile = test_profile_of_all_kinds(fx->model);
    fx->tokens = test_random_tokens(N_PROMPT + N_DECODE, fx->info.n_vocab, seed);
    list_parts(fx);
    list_own_aggregations(fx);
}

static void close_fixture(struct fixture *fx)
{
    free(fx->tokens);
    wnw_profile_free(fx->profile);
    wnw_engine_free(fx->engine);
    wnw_model_free(fx->model);
}

static void check_choice(struct fixture *fx, const struct choice *c)
{
    char recipe[MAX_RECIPE];
    wnw_policy *policy = parse_choice(fx, c, recipe);
    check_recipe(fx, recipe, policy, (wnw_kv_type)c->value[N_KINDS]);
    wnw_policy_free(policy);
}

static void report(const struct fixture *fx, int n_run, int n)
{
    print_message(
        "%d recipes run of %d and %d cache types, %d refused a budget; most entries over the size asked for: "
        "%.2f (%s)\n",
        n_run, n, N_KV_TYPES, fx->n_refused, fx->worst_excess, fx->worst);
    assert_cmp(fx->n_refused, <, n_run / 4);
}

/* Fails if some part or cache type was in no recipe. */
static void check_all_seen(const struct fixture *fx, bool seen[N_FACTORS][MAX_VALUES][N_FACTORS][MAX_VALUES])
{
    for (int a = 0; a < N_FACTORS; a++)
        for (int v = 0; v < fx->n_values[a]; v++) {
            const int b = a == 0 ? 1 : 0; /* any other factor: each recipe has a value of each */
            bool found = false;
            for (int w = 0; w < fx->n_values[b]; w++)
                found = found || (a < b ? seen[a][v][b][w] : seen[b][w][a][v]);
            if (!found)
                fail_msg("no recipe has value %d of %s", v,
                         a < N_KINDS ? fx->names[a][v] : "the cache types");
        }
}

static void every_pair_of_parts(void **state)
{
    (void)state;
    static bool seen[N_FACTORS][MAX_VALUES][N_FACTORS][MAX_VALUES];
    struct fixture fx;
    int n, n_run = 0;
    open_fixture(&fx, "llama", 3);
    const struct choice *all = list_choices(&fx, &n);
    assert_cmp(n, >, 100);
    /* Recipes with many new pairs first: fewer of them cover all. How many a recipe has only falls, so that few are counted again. */
    uint8_t *most = malloc((size_t)n * N_KV_TYPES);
    assert_non_null(most);
    memset(most, N_FACTORS * (N_FACTORS - 1) / 2, (size_t)n * N_KV_TYPES);
    for (int least = N_FACTORS * (N_FACTORS - 1) / 2; least > 0; least--)
        for (int i = 0; i < n * N_KV_TYPES; i++) {
            struct choice c = all[i / N_KV_TYPES];
            c.value[N_KINDS] = (uint8_t)((i / N_KV_TYPES + i) % N_KV_TYPES);
            if (most[i] < least)
                continue;
            most[i] = (uint8_t)new_pairs(seen, &c, false);
            if (most[i] < least)
                continue;
            new_pairs(seen, &c, true);
            check_choice(&fx, &c);
            n_run++;
        }
    free(most);
    check_all_seen(&fx, seen);
    report(&fx, n_run, n);
    close_fixture(&fx);
}

/* Contents do not depend on how counts were found: one layer budget and the scorer's own aggregation will do. */
static bool is_worth_it(const struct fixture *fx, const struct choice *c)
{
    return strcmp(fx->names[6][c->value[6]], "plain") == 0 ||
           (strcmp(fx->names[2][c->value[2]], "uniform") == 0 && fx->own[c->value[0]][c->value[1]]);
}

/* A recipe with a cache type, and what it needs to be observed. */
struct reading {
    struct choice choice;
    wnw_needs needs;
};

static int by_needs(const void *a, const void *b)
{
    const struct reading *x = a, *y = b;
    const int types = (int)x->choice.value[N_KINDS] - (int)y->choice.value[N_KINDS];
    const int needs = types ? types : memcmp(&x->needs, &y->needs, sizeof x->needs);
    return needs ? needs : memcmp(&x->choice, &y->choice, sizeof x->choice);
}

/* Scorer, layer budget, head budget, selector. */
static bool is_of_plans(int factor)
{
    return factor == 0 || (factor >= 2 && factor <= 4);
}

/* Three factors with their values occur in a recipe that was taken; a < b < c. All four of plans together are unit_properties', which
 * makes every plan of them. */
static bool triples[N_FACTORS][N_FACTORS][N_FACTORS][MAX_VALUES][MAX_VALUES][MAX_VALUES];

/* Triples of the choice that did not occur so far; with `take` they have from now on. */
static int new_triples(const struct choice *choice, bool take)
{
    const uint8_t *v = choice->value;
    int n = 0;
    for (int a = 0; a < N_FACTORS; a++)
        for (int b = a + 1; b < N_FACTORS; b++)
            for (int c = b + 1; c < N_FACTORS; c++) {
                if (is_of_plans(a) && is_of_plans(b) && is_of_plans(c))
                    continue;
                bool *seen = &triples[a][b][c][v[a]][v[b]][v[c]];
                n += !*seen;
                *seen = *seen || take;
            }
    return n;
}

/* Keeps in all[n] recipes with every triple that occurs there, those with many first. Returns their number. */
static int keep_triples(struct reading *all, int n)
{
    static const int least[] = {28, 14, 7, 3, 1};
    int n_kept = 0;
    for (size_t k = 0; k < sizeof least / sizeof *least; k++)
        for (int i = n_kept; i < n; i++)
            if (new_triples(&all[i].choice, false) >= least[k]) {
                const struct reading taken = all[i];
                new_triples(&taken.choice, true);
                all[i] = all[n_kept];
                all[n_kept++] = taken;
            }
    for (int i = n_kept; i < n; i++)
        assert_int_equal(new_triples(&all[i].choice, false), 0);
    return n_kept;
}

/* Recipes that parse: with every cache type where the aggregation is the scorer's own, else with one
 * cache type after the other. All of them, or enough that every triple occurs. */
static struct reading *list_readings(const struct fixture *fx, bool whole, int *n_all, int *n)
{
    const struct choice *all = list_choices(fx, n_all);
    struct reading *out = calloc((size_t)*n_all * N_KV_TYPES, sizeof *out);
    char recipe[MAX_RECIPE];
    assert_non_null(out);
    *n = 0;
    for (int i = 0; i < *n_all; i++) {
        if (!is_worth_it(fx, &all[i]))
            continue;
        wnw_policy *policy = parse_choice(fx, &all[i], recipe);
        const int n_types = fx->own[all[i].value[0]][all[i].value[1]] ? N_KV_TYPES : 1;
        for (int k = 0; k < n_types; k++) {
            out[*n] = (struct reading){.choice = all[i], .needs = wnw_policy_needs(policy)};
            out[(*n)++].choice.value[N_KINDS] = (uint8_t)((i + k) % N_KV_TYPES);
        }
        wnw_policy_free(policy);
    }
    if (!whole)
        *n = keep_triples(out, *n);
    qsort(out, (size_t)*n, sizeof *out, by_needs);
    return out;
}

static bool share_reading(const struct reading *a, const struct reading *b)
{
    return a->choice.value[N_KINDS] == b->choice.value[N_KINDS] &&
           memcmp(&a->needs, &b->needs, sizeof a->needs) == 0;
}

/* Minutes, hence only where it is asked for. */
static void every_triple_or_recipe(void **state)
{
    (void)state;
    struct fixture fx;
    wnw_session *read = NULL;
    int n_all, n;
    const bool whole = getenv("WNW_WHOLE_MATRIX");
    if (!whole && !getenv("WNW_TRIPLES"))
        skip();
    open_fixture(&fx, "llama", 5);
    fx.n_decode = 2; /* one that reads what was kept, and one after a token that was added to it */
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params),
                                      .n_ubatch = wnw_session_default_params().n_ubatch, .n_threads = 1};
    assert_ok(wnw_engine_new(&fx.engine, fx.model, &params));
    struct reading *all = list_readings(&fx, whole, &n_all, &n);
    check_list(&fx, whole);
    for (int i = 0; i < n; i++) {
        char recipe[MAX_RECIPE];
        wnw_policy *policy = parse_choice(&fx, &all[i].choice, recipe);
        if (!read || !share_reading(&all[i - 1], &all[i])) {
            wnw_session_free(read);
            read = read_prompt(&fx, recipe, policy, (wnw_kv_type)all[i].choice.value[N_KINDS]);
        }
        if (whole || i % 2 == 0)
            check_copy(&fx, read, recipe, policy, budget);
        if (whole || i % 2 == 1)
            check_copy(&fx, read, recipe, policy, ratio);
        wnw_policy_free(policy);
    }
    report(&fx, n, n_all);
    wnw_session_free(read);
    free(all);
    close_fixture(&fx);
}

static void presets_beside_sliding_windows(void **state)
{
    (void)state;
    struct fixture fx;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    open_fixture(&fx, "gemma3", 4);
    for (int32_t i = 0; wnw_method_get(i, &info); i++) {
        wnw_policy *policy;
        if (!strstr(info.kind, "preset"))
            continue;
        policy = test_policy(info.name);
        check_recipe(&fx, info.name, policy, (wnw_kv_type)(i % N_KV_TYPES));
        wnw_policy_free(policy);
    }
    close_fixture(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_parts),
        cmocka_unit_test(every_triple_or_recipe),
        cmocka_unit_test(presets_beside_sliding_windows),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(choices.all);
    return failed;
}
