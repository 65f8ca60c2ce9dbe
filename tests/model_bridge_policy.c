/* SPDX-License-Identifier: MIT */
/* Policies under libllama: what they keep beside what they keep in a session of ours, and when they act. */
#include "helpers.h"
#include "llamas.h"
#include "winnow_bridge.h"

#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 300, MAX_CELLS = 4096 };

/* ---- What is kept ---- */

struct overlap {
    int64_t same, n;
};

/* Counts kept positions of a head that are cells of the same number, of a cache whose first sequence began in cell 0. */
static void compare_head(const wnw_plan *plan, const wnw_bridge *cache, int32_t i, const wnw_bridge_layer *l,
                         int32_t ih, struct overlap *o)
{
    const int32_t *want;
    int32_t cells[MAX_CELLS], n, at = 0;
    const int32_t n_want = wnw_plan_head(plan, l->layer, ih, &want);
    assert_ok(wnw_bridge_cells(cache, i, 0, ih, cells, MAX_CELLS, &n));
    assert_int_equal(n, n_want);
    for (int32_t k = 0; k < n; k++) {
        while (at < n_want && want[at] < cells[k])
            at++;
        o->same += at < n_want && want[at] == cells[k];
    }
    o->n += n;
}

/* Layers whose entries the policy has thinned, by name of the family: gemma3 has sliding ones. */
static int32_t compare_layers(const wnw_plan *plan, const wnw_bridge *cache, struct overlap *o)
{
    int32_t compared = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        if (l.n_entries == (int64_t)l.n_heads * N_PROMPT)
            continue; /* sliding, or this policy thins other layers alone */
        for (int32_t ih = 0; ih < l.n_heads; ih++)
            compare_head(plan, cache, i, &l, ih, o);
        compared++;
    }
    return compared;
}

struct family {
    const char *model;
    bool sliding; /* some layers */
};
static const struct family families[] = {{"tiny/tiny-llama.gguf", false},
                                         {"tiny/tiny-qwen2-f32.gguf", false},
                                         {"tiny/tiny-qwen3-f32.gguf", false},
                                         {"tiny/tiny-gemma3-f32.gguf", true}};
static const char *const recipes[] = {"streaming_llm", "snapkv", "snapkv+adakv", "tova",
                                      "keydiff",       "knorm",  "lagkv",        "pyramidkv"};

static wnw_plan *own_plan(const char *model, const char *recipe, const wnw_size *size, const int32_t *tokens)
{
    wnw_model *m = test_model_open(model);
    wnw_policy *policy = test_policy(recipe);
    wnw_session *s = test_session_new(m, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = 1024});
    wnw_plan *plan;
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy};
    assert_ok(wnw_session_begin(s, &run));
    test_prefill(s, tokens, N_PROMPT);
    assert_ok(wnw_session_plan(s, policy, size, &plan, NULL));
    wnw_session_free(s);
    wnw_policy_free(policy);
    wnw_model_free(m);
    return plan;
}

static void check_recipe(const struct family *f, const char *recipe, const int32_t *tokens)
{
    const wnw_size size = size_budget(190);
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    struct overlap o = {0};
    wnw_plan *plan = own_plan(f->model, recipe, &size, tokens);
    test_model_path(path, sizeof path, f->model);
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = 1024});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_ok(wnw_bridge_set_policy(cache, recipe, &size, false));
    test_llama_decode(&t, 0, 0, tokens, 200, NULL);
    test_llama_decode(&t, 0, 200, tokens + 200, N_PROMPT - 200, NULL);
    assert_ok(wnw_bridge_compress(cache));
    assert_cmp(compare_layers(plan, cache, &o), >, 0);
    print_message("%s, %s: %lld of %lld kept entries are the same\n", f->model, recipe, (long long)o.same,
                  (long long)o.n);
    assert_cmp((double)o.same, >=, 0.995 * (double)o.n);
    wnw_plan_free(plan);
    test_llama_close(&t);
}

static void test_keeps_what_a_session_keeps(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        int32_t *tokens = test_random_tokens(N_PROMPT, 250, 3 + f);
        for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
            check_recipe(&families[f], recipes[r], tokens);
        free(tokens);
    }
}

static void test_refuses_what_it_cannot(void **state)
{
    static const struct {
        const char *recipe, *says;
        int code;
    } bad[] = {{"h2o", "does not observe", WNW_E_UNSUPPORTED},
               {"kvzip", "does not observe", WNW_E_UNSUPPORTED},
               {"expected_attention", "query statistics", WNW_E_UNSUPPORTED},
               {"streaming_llm+rerotate", "positions", WNW_E_UNSUPPORTED},
               {"snapkv-merge", "writes into entries", WNW_E_UNSUPPORTED},
               {"snapvk", "snapkv", WNW_E_ARG}};
    (void)state;
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_error(wnw_bridge_set_policy(cache, bad[i].recipe, NULL, true), bad[i].code);
        assert_says(bad[i].says);
    }
    assert_error(wnw_bridge_compress(cache), WNW_E_ARG); /* nothing was set */
    assert_ok(wnw_bridge_set_policy(cache, "snapkv", NULL, false));
    assert_error(wnw_bridge_compress(cache), WNW_E_ARG); /* and nothing read */
    assert_ok(wnw_bridge_set_policy(cache, NULL, NULL, false));
    test_llama_close(&t);
}

/* ---- When ---- */

/* Opens the tiny model under a policy of the environment that keeps 50 entries a head. */
static void open_under(struct test_llama *t, int32_t n_seq, bool streams)
{
    char path[4096];
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    setenv("WINNOW_POLICY", "snapkv", 1);
    setenv("WINNOW_BUDGET", "50", 1);
    test_llama_open(t, path,
                    &(struct test_llama_params){
                        .ours = true, .flash = true, .n_ctx = 4096, .n_seq = n_seq, .streams = streams});
    unsetenv("WINNOW_POLICY");
    unsetenv("WINNOW_BUDGET");
}

/* Entries per head, in the mean over layers, heads and streams' sums. */
static double entries(struct test_llama *t)
{
    wnw_bridge *cache;
    double n = 0;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    const int32_t n_layers = wnw_bridge_n_layers(cache);
    for (int32_t i = 0; i < n_layers; i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        n += (double)l.n_entries / l.n_heads / n_layers;
    }
    return n;
}

static void read(struct test_llama *t, int32_t seq, int32_t pos, int32_t n)
{
    int32_t *tokens = test_random_tokens(n, 250, (uint64_t)(7 + seq * 1000 + pos));
    test_llama_decode(t, seq, pos, tokens, n, NULL);
    free(tokens);
}

/* Prompts of any length and in any pieces are whole when they are compressed, that is before the second token that comes
 * alone. */
static void test_prompts(void **state)
{
    static const int32_t piece[] = {512, 60, 100, 200};
    static const int32_t length[] = {200, 513, 512, 601, 1025};
    (void)state;
    for (size_t p = 0; p < sizeof piece / sizeof *piece; p++)
        for (size_t k = 0; k < sizeof length / sizeof *length; k++) {
            struct test_llama t;
            const int32_t n = length[k];
            open_under(&t, 1, false);
            for (int32_t at = 0; at < n; at += piece[p]) {
                read(&t, 0, at, n - at < piece[p] ? n - at : piece[p]);
                assert_near(entries(&t), at + (n - at < piece[p] ? n - at : piece[p]), 0.0);
            }
            const bool last_alone = n % piece[p] == 1;
            if (!last_alone) {
                read(&t, 0, n, 1); /* the first generated token looks like the last of such a prompt */
                assert_near(entries(&t), n + 1, 0.0);
            }
            const int32_t next = last_alone ? n : n + 1;
            read(&t, 0, next, 1);
            assert_near(entries(&t), 50 + 1, 1.0);
            for (int32_t i = 1; i < 200; i++)
                read(&t, 0, next + i, 1);
            assert_near(entries(&t), 50 + 200, 1.0); /* what is generated stays */
            test_llama_close(&t);
        }
}

/* Sequences beside each other, one of which reads its prompt while the other generates. */
static void test_two_sequences(void **state)
{
    (void)state;
    for (int streams = 0; streams < 2; streams++) {
        struct test_llama t;
        open_under(&t, 2, streams);
        read(&t, 0, 0, 300);
        read(&t, 1, 0, 400);
        assert_near(entries(&t), 700, 0.0);
        for (int32_t i = 0; i < 2; i++)
            assert_int_equal(
                test_llama_batch(&t,
                                 (const struct test_row[]){{.token = 5, .pos = 300 + i, .seq = 0},
                                                           {.token = 6, .pos = 400 + i, .seq = 1}},
                                 2, NULL),
                0);
        assert_near(entries(&t), 2 * 50 + 2, 2.0);
        test_llama_close(&t);
    }
    struct test_llama t;
    struct test_row row[101] = {{.token = 9, .pos = 301, .seq = 0}};
    open_under(&t, 2, false);
    read(&t, 0, 0, 300);
    read(&t, 0, 300, 1);
    for (int32_t i = 0; i < 100; i++)
        row[1 + i] = (struct test_row){.token = 1 + i, .pos = i, .seq = 1};
    assert_int_equal(test_llama_batch(&t, row, 101, NULL), 0);
    assert_near(entries(&t), 50 + 1 + 100, 1.0); /* the first alone, the second still reading */
    test_llama_close(&t);
}

/* A second question: what it adds is too little to be compressed, or enough. */
static void test_turns(void **state)
{
    (void)state;
    struct test_llama t;
    open_under(&t, 1, false);
    read(&t, 0, 0, 300);
    read(&t, 0, 300, 1);
    read(&t, 0, 301, 1);
    const double after = entries(&t);
    assert_near(after, 51, 1.0);
    read(&t, 0, 302, 40); /* a short turn stays whole */
    read(&t, 0, 342, 1);
    read(&t, 0, 343, 1);
    assert_near(entries(&t), after + 42, 0.0);
    read(&t, 0, 344, 200); /* a long one does not */
    read(&t, 0, 544, 1);
    read(&t, 0, 545, 1);
    assert_near(entries(&t), 51, 1.0);
    /* The prompt again from its middle: a prefix that is used again keeps what was kept of it. */
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, 400, -1));
    read(&t, 0, 400, 20);
    read(&t, 0, 420, 1);
    read(&t, 0, 421, 1);
    assert_cmp(entries(&t), <, 51 + 200);
    test_llama_close(&t);
}

static void test_bad_environment(void **state)
{
    static const struct {
        const char *variable, *value;
    } bad[] = {{"WINNOW_BUDGET", "many"}, {"WINNOW_BUDGET", "0"},  {"WINNOW_RATIO", "1"},
               {"WINNOW_RATIO", "0.5x"},  {"WINNOW_RATIO", "nan"}, {"WINNOW_KV_BYTES", "-1"}};
    (void)state;
    char path[4096];
    struct test_llama t;
    const struct test_llama_params p = {.ours = true};
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &p);
    setenv("WINNOW_POLICY", "snapkv", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct test_llama other;
        wnw_bridge *cache;
        setenv(bad[i].variable, bad[i].value, 1);
        assert_error(wnw_bridge_register(), WNW_E_ARG);
        assert_says(bad[i].variable);
        test_llama_share(&other, &t, &p); /* a program that does not ask goes on without a policy */
        assert_ok(wnw_bridge_find(&cache, llama_synchronize, other.ctx));
        assert_error(wnw_bridge_compress(cache), WNW_E_ARG);
        read(&other, 0, 0, 20);
        test_llama_close_ctx(&other);
        unsetenv(bad[i].variable);
    }
    unsetenv("WINNOW_POLICY");
    assert_ok(wnw_bridge_register());
    test_llama_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keeps_what_a_session_keeps),
                                       cmocka_unit_test(test_refuses_what_it_cannot),
                                       cmocka_unit_test(test_prompts),
                                       cmocka_unit_test(test_two_sequences),
                                       cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_bad_environment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
