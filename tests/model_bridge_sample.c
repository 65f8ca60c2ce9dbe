/* SPDX-License-Identifier: MIT */
/* Policies that look at a sample which is fed again: of what a program feeds under libllama they keep what they keep in a session, whose
 * second pass feeds the same. */
#include "helpers.h"
#include "llamas.h"
#include "winnow_bridge.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

enum { N = 300, HEADER = 20, KEPT = 100, N_CTX = 2048 };
static const char LLAMA[] = "tiny/tiny-llama.gguf", GEMMA[] = "tiny/tiny-gemma3.gguf";

/* What a session's second pass feeds of what follows the header. */
struct fed {
    int32_t token[N], n, n_places;
    wnw_sample_place place[WNW_SAMPLE_PLACES];
};

static struct fed fed_of(const char *recipe, const int32_t *tokens)
{
    struct fed f = {.n = 0};
    wnw_policy *policy = test_policy(recipe);
    const wnw_needs needs = wnw_policy_needs(policy);
    f.n_places = wnw_sample_places(&needs.sample, HEADER, N, f.place);
    for (int32_t k = 0; k < f.n_places; k++)
        for (int32_t t = f.place[k].lead; t < f.place[k].to; t++)
            f.token[f.n++] = tokens[t];
    wnw_policy_free(policy);
    return f;
}

static wnw_plan *in_session(const char *path, const char *recipe, const int32_t *tokens)
{
    wnw_model *model = test_model_open(path);
    wnw_policy *policy = test_policy(recipe);
    const wnw_size size = size_budget(HEADER + KEPT);
    const wnw_prompt prompt = {WNW_INIT(wnw_prompt), .n_prefix = HEADER};
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy, .prompt = &prompt};
    wnw_session *s = test_session_new(
        model, &(struct test_session){.kv_type = WNW_KV_F16, .n_ctx = N_CTX, .n_threads = 1});
    wnw_plan *plan = NULL;
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_prefill(s, tokens, N, NULL, NULL));
    assert_ok(wnw_session_plan(s, policy, &size, &plan, NULL));
    wnw_session_free(s);
    wnw_policy_free(policy);
    wnw_model_free(model);
    return plan;
}

/* What is told of the rows of each batch. */
struct told {
    wnw_bridge *cache;
    int32_t cell[N_CTX], n;
    bool skip;
};

static void keep(const int32_t *cells, int32_t n, int32_t n_cells, void *user)
{
    struct told *t = user;
    (void)n_cells;
    assert_in_range(t->n + n, 1, N_CTX);
    memcpy(t->cell + t->n, cells, (size_t)n * sizeof *cells);
    t->n += n;
    for (int32_t i = 0; t->skip && i < n; i++)
        assert_ok(wnw_bridge_skip_query(t->cache, i));
}

static void opened(struct test_llama *t, struct told *told, const char *name, const char *recipe)
{
    char path[4096];
    test_model_path(path, sizeof path, name);
    test_llama_open(t, path,
                    &(struct test_llama_params){.ours = true, .windows = true, .n_ctx = N_CTX, .n_seq = 2});
    *told = (struct told){.skip = false};
    assert_ok(wnw_bridge_find(&told->cache, llama_synchronize, t->ctx));
    assert_ok(wnw_bridge_tell_rows(told->cache, keep, told));
    assert_ok(wnw_bridge_observe(told->cache, recipe));
}

/* Feeds the sample behind the prompt, takes it, and removes what was fed. */
static wnw_bridge_sample *sampled(struct test_llama *t, struct told *told, const struct fed *fed)
{
    wnw_bridge_sample *sample;
    test_llama_decode(t, 0, N, fed->token, fed->n, NULL);
    const wnw_bridge_sample_of of = {
        WNW_INIT(wnw_bridge_sample_of), .n_cells = N + fed->n,    .cells = told->cell, .n_fed = fed->n,
        .places = fed->place,           .n_places = fed->n_places};
    assert_ok(wnw_bridge_sample_new(&sample, told->cache, &of));
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 0, N, -1));
    assert_ok(wnw_bridge_forget(told->cache, told->cell + N, fed->n));
    told->n = N;
    return sample;
}

static bool is_among(int32_t cell, const int32_t *cells, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (cells[i] == cell)
            return true;
    return false;
}

/* Entries of all heads that hold what they keep, and those that the plan has, too, where cell i holds position i; the largest difference of a head's count. */
struct same {
    int64_t n, same;
    int32_t n_heads, most;
};

static struct same compared(const wnw_bridge *cache, const wnw_plan *plan)
{
    struct same c = {0};
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        const bool whole = l.ragged && l.n_cells == N_CTX; /* layers that slide have fewer cells */
        c.n_heads += whole ? l.n_heads : 0;
        for (int32_t ih = 0; whole && ih < l.n_heads; ih++) {
            const int32_t *want;
            int32_t has[N_CTX], n_has;
            const int32_t n_want = wnw_plan_head(plan, l.layer, ih, &want);
            assert_ok(wnw_bridge_cells(cache, i, 0, ih, has, N_CTX, &n_has));
            c.most = abs(n_has - n_want) > c.most ? abs(n_has - n_want) : c.most;
            c.n += n_has;
            for (int32_t k = 0; k < n_has; k++)
                c.same += is_among(has[k], want, n_want);
        }
    }
    return c;
}

static const struct session_row {
    const char *name, *recipe, *path;
    int32_t n_places;
} session_rows[] = {{"keydiff-values-sampled", "keydiff-values-sampled", LLAMA, 1},
                    {"replay-sampled", "replay-sampled", LLAMA, 1},
                    {"keydiff-sampled", "keydiff-sampled", LLAMA, 1},
                    {"several places", "keydiff-sampled:sample=50,place=16", LLAMA, 3},
                    {"layers that slide", "keydiff-sampled", GEMMA, 1},
                    {"several places where layers slide", "keydiff-sampled:sample=50,place=16", GEMMA, 3}};

static void as_in_a_session(void **state)
{
    const struct session_row *row = *state;
    const char *recipe = row->recipe;
    struct test_llama t;
    struct told told;
    int32_t *tokens = test_random_tokens(N, 250, 8);
    const wnw_size size = size_budget(KEPT);
    wnw_policy *policy = test_policy(recipe);
    wnw_plan *plan = in_session(row->path, recipe, tokens);
    opened(&t, &told, row->path, recipe);
    test_llama_decode(&t, 0, 0, tokens, N, NULL);
    const struct fed fed = fed_of(recipe, tokens);
    assert_int_equal(fed.n_places, row->n_places);
    wnw_bridge_sample *sample = sampled(&t, &told, &fed);
    const wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of),
                                    .n_cells = N,
                                    .cells = told.cell,
                                    .policy = policy,
                                    .size = &size,
                                    .n_prefix = HEADER,
                                    .sample = sample};
    assert_ok(wnw_bridge_compress_cells(told.cache, &of));
    const struct same c = compared(told.cache, plan);
    print_message("%s: %lld entries, %lld as in a session; counts differ by %d at most\n", row->name,
                  (long long)c.n, (long long)c.same, (int)c.most);
    assert_cmp(c.n_heads, >=, 2);
    assert_int_equal(c.n, c.n_heads * (HEADER + KEPT));
    assert_cmp((double)c.same, >=, 0.98 * (double)c.n); /* keys and queries are rounded by other sums */
    assert_cmp(c.most, <=, 3);
    wnw_bridge_sample_free(sample);
    wnw_plan_free(plan);
    wnw_policy_free(policy);
    free(tokens);
    test_llama_close(&t);
}

/* What is fed and taken away changes nothing of what follows, and where layers slide not what the window still has. */
static const struct goes_on_row {
    const char *name, *path;
    int32_t n; /* tokens before the sample */
} goes_on_rows[] = {{"every layer sees all", LLAMA, N},
                    {"layers that slide", GEMMA, N},
                    {"and whose cells are full", GEMMA, 3 * N},
                    {"and were written over", GEMMA, 5 * N}};

static void read_in_batches(struct test_llama *t, const int32_t *tokens, int32_t n)
{
    for (int32_t at = 0, m; at < n; at += m) {
        m = n - at < N ? n - at : N;
        test_llama_decode(t, 0, at, tokens + at, m, NULL);
    }
}

static void goes_on_as_without(void **state)
{
    enum { AGAIN = 150, MORE = 40 };
    const struct goes_on_row *row = *state;
    struct test_llama t;
    struct told told;
    int32_t *tokens = test_random_tokens(row->n + AGAIN + MORE, 250, 8);
    float *logits[2];
    for (int k = 0; k < 2; k++) {
        opened(&t, &told, row->path, "keydiff-sampled");
        read_in_batches(&t, tokens, row->n);
        if (k) {
            test_llama_decode(&t, 0, row->n, tokens + row->n, AGAIN, NULL);
            assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, row->n, -1));
            assert_ok(wnw_bridge_forget(told.cache, told.cell + row->n, AGAIN));
        }
        logits[k] = malloc((size_t)t.n_vocab * MORE * sizeof **logits);
        assert_non_null(logits[k]);
        test_llama_decode(&t, 0, row->n, tokens + row->n + AGAIN, MORE, logits[k]);
        test_llama_close(&t);
    }
    const double far = test_nmse(logits[1], logits[0], (int64_t)t.n_vocab * MORE);
    print_message("%s: logits differ by %g\n", row->name, far);
    /* Cells of a window may be others, whose sums round otherwise. */
    assert_cmp(far, <=, row->path == GEMMA ? 1e-6 : 0);
    free(logits[0]);
    free(logits[1]);
    free(tokens);
}

static void test_refuses(void **state)
{
    (void)state;
    struct test_llama t;
    struct told told;
    int32_t *tokens = test_random_tokens(N, 250, 8);
    const wnw_size size = size_budget(KEPT);
    wnw_policy *policy = test_policy("keydiff-sampled");
    wnw_bridge_sample *sample = NULL, *other;
    opened(&t, &told, LLAMA, "keydiff-sampled");
    assert_error(wnw_bridge_set_policy(told.cache, "keydiff-sampled", NULL, true), WNW_E_UNSUPPORTED);
    assert_says("a second time");
    told.skip = true;
    test_llama_decode(&t, 0, 0, tokens, N, NULL);
    wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of), .n_cells = N, .cells = told.cell,
                              .policy = policy, .size = &size};
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_NOT_OBSERVED);
    assert_says("no sample of this prompt was fed");
    /* Queries that were skipped, and numbers that are none. */
    static const struct {
        int32_t n_cells, n_fed, n_places;
        wnw_sample_place place[2];
        int status;
    } bad[] = {{N, 50, 1, {{2, 10, 30}}, WNW_E_NOT_OBSERVED},
               {N, 50, 2, {{2, 10, 30}, {30, 38, 60}}, WNW_E_NOT_OBSERVED},
               {N, 0, 1, {{2, 10, 30}}, WNW_E_ARG},
               {N, 50, 1, {{-1, -1, 19}}, WNW_E_ARG},
               {N, 50, 1, {{2, 10, 10}}, WNW_E_ARG},
               {N, 50, 1, {{223, 231, 251}}, WNW_E_ARG},
               {N, N, 1, {{0, 0, 1}}, WNW_E_ARG},
               {0, 1, 1, {{0, 0, 1}}, WNW_E_ARG},
               {N, 50, 2, {{2, 10, 30}, {12, 20, 40}}, WNW_E_ARG},
               {N, 50, 2, {{12, 20, 40}, {2, 10, 15}}, WNW_E_ARG},
               {N, 50, 0, {{2, 10, 30}}, WNW_E_ARG},
               {N, 50, WNW_SAMPLE_PLACES + 1, {{2, 10, 30}}, WNW_E_ARG},
               {N, 50, 1, {{2, 10, 251}}, WNW_E_ARG}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const wnw_bridge_sample_of from = {
            WNW_INIT(wnw_bridge_sample_of), .n_cells = bad[i].n_cells, .cells = told.cell,
            .n_fed = bad[i].n_fed,          .places = bad[i].place,    .n_places = bad[i].n_places};
        assert_error(wnw_bridge_sample_new(&sample, told.cache, &from), bad[i].status);
        assert_null(sample);
    }
    const int32_t beyond[] = {0, 1, N_CTX};
    const wnw_sample_place place = {.to = 1};
    wnw_bridge_sample_of from = {WNW_INIT(wnw_bridge_sample_of),
                                 .n_cells = 3,
                                 .cells = beyond,
                                 .n_fed = 1,
                                 .places = &place,
                                 .n_places = 1};
    assert_error(wnw_bridge_sample_new(&sample, told.cache, &from), WNW_E_RANGE);
    from.places = NULL;
    from.cells = told.cell;
    assert_error(wnw_bridge_sample_new(&sample, told.cache, &from), WNW_E_ARG);
    from.places = &place;
    from.cells = NULL;
    assert_error(wnw_bridge_sample_new(&sample, told.cache, &from), WNW_E_ARG);
    assert_error(wnw_bridge_sample_new(NULL, told.cache, &from), WNW_E_ARG);
    wnw_bridge_sample_free(NULL);
    /* A sample of tokens that are gone: others were written where they were. */
    told.skip = false;
    const struct fed fed = fed_of("keydiff-sampled", tokens);
    other = sampled(&t, &told, &fed);
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, -1, -1));
    assert_ok(wnw_bridge_forget(told.cache, told.cell, N));
    told.n = 0;
    test_llama_decode(&t, 0, 0, tokens, N, NULL);
    of.sample = other;
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_NOT_OBSERVED);
    assert_says("of other tokens");
    wnw_bridge_sample_free(other);
    wnw_policy_free(policy);
    free(tokens);
    test_llama_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL) + run_rows(goes_on_as_without, goes_on_rows) +
           run_rows(as_in_a_session, session_rows);
}
