/* SPDX-License-Identifier: MIT */
/* Policies that look at a sample which is fed again: of what a program feeds under libllama they keep what they keep in a session, whose
 * second pass feeds the same. */
#include "cuts.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_prompt.h"
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

/* What was kept is what a session keeps. */
static void check_session(const char *name, const char *path, const wnw_policy *policy, const int32_t *tokens,
                          const struct test_cuts *kept)
{
    wnw_model *model = test_model_open(path);
    const wnw_prompt prompt = {.n_prefix = HEADER};
    test_session_keeps_as(name,
                          &(struct test_keep){.m = model,
                                              .want = {.kv_type = WNW_KV_F16, .n_ctx = N_CTX, .n_threads = 1},
                                              .run = {WNW_INIT(wnw_run), .policy = policy, .prompt = &prompt},
                                              .size = size_budget(HEADER + KEPT),
                                              .tokens = tokens,
                                              .n = N},
                          kept);
    wnw_model_free(model);
}

/* What the callback gets of the rows of each batch. */
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

/* Feeds the sample after the prompt, takes it, and removes what was fed. */
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

/* Entries of all heads of the layers that are compressed, which are those of the plan: cell i holds position i. */
struct entries {
    int64_t n;
    int32_t n_heads;
};

static struct entries entries_of(const wnw_bridge *cache, const struct test_cuts *kept)
{
    struct entries e = {0};
    int32_t k = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        const bool whole = l.ragged && l.n_cells == N_CTX; /* layers that slide have fewer cells */
        e.n_heads += whole ? l.n_heads : 0;
        for (int32_t ih = 0; whole && ih < l.n_heads; ih++) {
            int32_t has[N_CTX], want[N_CTX], n_has;
            assert_ok(wnw_bridge_cells(cache, i, 0, ih, has, N_CTX, &n_has));
            assert_int_equal(n_has, test_cuts_head(kept, k, ih, want));
            assert_memory_equal(has, want, (size_t)n_has * sizeof *has);
            e.n += n_has;
        }
        k += whole;
    }
    return e;
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
    struct test_cuts *kept = test_cuts_note();
    assert_ok(wnw_bridge_compress_cells(told.cache, &of));
    test_cuts_stop();
    const struct entries e = entries_of(told.cache, kept);
    assert_cmp(e.n_heads, >=, 2);
    assert_int_equal(e.n, e.n_heads * (HEADER + KEPT));
    check_session(row->name, row->path, policy, tokens, kept);
    test_cuts_free(kept);
    wnw_bridge_sample_free(sample);
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
    assert_cmp(far, <=, row->path == GEMMA ? test_nmse_most(1e-6) : 0);
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
