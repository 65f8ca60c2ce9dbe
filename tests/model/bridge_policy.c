/* SPDX-License-Identifier: MIT */
/* Policies under libllama: when they act, and what is refused. What they keep: model/bridge_presets.c. */
#include "cuts.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "winnow_bridge.h"
#include "winnow_calibrate.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

/* ---- Which ---- */

static void test_refuses_what_it_cannot(void **state)
{
    static const struct {
        const char *recipe, *says;
        int code;
    } bad[] = {{"kvzip", "a second time only in sessions", WNW_E_UNSUPPORTED},
               {"kvcompose", "a second time only in sessions", WNW_E_UNSUPPORTED},
               {"compilerkv", "logits of few tokens", WNW_E_UNSUPPORTED},
               {"headkv",
                "a profile of kind heads: make it with `winnow calibrate heads`, and name its file in "
                "WINNOW_PROFILE",
                WNW_E_MISMATCH},
               {"knorm+ranks", "only sessions keep", WNW_E_UNSUPPORTED},
               {"knorm+demote", "not which ones they are", WNW_E_UNSUPPORTED},
               {"streaming_llm+rerotate", "positions", WNW_E_UNSUPPORTED},
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
        if (bad[i].code == WNW_E_ARG)
            continue;
        wnw_policy *policy = test_policy(bad[i].recipe);
        assert_error(wnw_bridge_check_policy(policy, NULL), bad[i].code); /* without a cache */
        assert_says(bad[i].says);
        wnw_policy_free(policy);
    }
    assert_error(wnw_bridge_compress(cache), WNW_E_ARG); /* nothing was set */
    assert_ok(wnw_bridge_set_policy(cache, "snapkv", NULL, false));
    assert_error(wnw_bridge_compress(cache), WNW_E_ARG); /* and nothing read */
    assert_ok(wnw_bridge_set_policy(cache, NULL, NULL, false));
    test_llama_close(&t);
}

static void test_asks_for_profiles(void **state)
{
    static const struct {
        const char *recipe;
        int alone, with;
    } rows[] = {{"h2o", WNW_OK, WNW_OK},
                {"keydiff-shares", WNW_E_MISMATCH, WNW_OK},
                {"kvgate+shares", WNW_E_MISMATCH, WNW_E_MISMATCH}, /* a gate, too */
                {"kvzip", WNW_E_UNSUPPORTED, WNW_E_UNSUPPORTED}};
    (void)state;
    wnw_profile *shares;
    assert_ok(wnw_profile_open(&shares, WNW_TEST_SOURCE_DIR "/share/profiles/smollm2-135m/shares.json"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *policy = test_policy(rows[i].recipe);
        if (wnw_bridge_check_policy(policy, NULL) != rows[i].alone ||
            wnw_bridge_check_policy(policy, shares) != rows[i].with)
            fail_msg("%s: %s", rows[i].recipe, wnw_last_error());
        wnw_policy_free(policy);
    }
    assert_error(wnw_bridge_check_policy(NULL, shares), WNW_E_ARG);
    wnw_profile_free(shares);
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

/* Two sequences in one context: one reads its prompt while the other generates. */
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

/* Tokens whose queries layers have room for: the same number in each. */
static uint64_t queries_held(wnw_bridge *cache)
{
    const struct wnw__bridge_backend *b = (const void *)cache;
    const struct wnw__bridge_layer *first = b->caches[0]->layers[0];
    const uint64_t row = (uint64_t)first->queries.n_reader * (uint64_t)first->queries.n_head *
                         (uint64_t)first->d_k * sizeof(float);
    const uint64_t bytes = wnw__bridge_queries_held(first);
    for (int32_t i = 0; i < b->caches[0]->n_layer; i++)
        assert_true(wnw__bridge_queries_held(b->caches[0]->layers[i]) == bytes);
    assert_cmp(row, >, 0);
    assert_true(bytes % row == 0);
    return bytes / row;
}

/* One sequence pays for one window of queries, also where another one took the place of the first. Two have more room. */
static void test_room_for_queries(void **state)
{
    enum { WINDOW = 8 };
    struct test_llama t;
    wnw_bridge *cache;
    int32_t cells[320];
    const wnw_size size = size_budget(50);
    (void)state;
    open_under(&t, 2, false);
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_ok(wnw_bridge_set_policy(cache, "snapkv:window=8", &size, false));
    read(&t, 0, 0, 300);
    for (int32_t i = 0; i < 20; i++)
        read(&t, 0, 300 + i, 1);
    assert_int_equal(queries_held(cache), WINDOW);
    assert_ok(wnw_bridge_compress(cache));
    assert_near(entries(&t), 50, 0.0);
    for (int32_t i = 0; i < 320; i++)
        cells[i] = i;
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, -1, -1));
    assert_ok(wnw_bridge_forget(cache, cells, 320));
    read(&t, 0, 0, 200); /* fewer cells than before */
    assert_int_equal(queries_held(cache), WINDOW);
    read(&t, 1, 0, 5); /* few new queries, and those of the first sequence stay */
    assert_cmp(queries_held(cache), >=, 2 * WINDOW);
    read(&t, 1, 5, 60);
    read(&t, 0, 200, 1);
    assert_ok(wnw_bridge_compress(cache));
    assert_near(entries(&t), 50 + 65, 0.0);
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

/* ---- As if it had not happened ---- */

enum { N_TURN = 300, N_GENERATED = 6 };

static void opened_like(struct test_llama *t, const char *recipe, int32_t n_seq)
{
    char path[4096];
    wnw_bridge *cache;
    const wnw_size size = size_budget(60);
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(t, path,
                    &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = 2048, .n_seq = n_seq});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    assert_ok(wnw_bridge_set_policy(cache, recipe, &size, true));
}

/* Reads tokens from..to-1 of a prompt, the same ones whenever it is read, in pieces. */
static void read_part(struct test_llama *t, int32_t seq, int32_t from, int32_t to, int32_t piece)
{
    int32_t *tokens = test_random_tokens(N_TURN, 250, 41);
    for (int32_t at = from; at < to; at += piece)
        test_llama_decode(t, seq, at, tokens + at, to - at < piece ? to - at : piece, NULL);
    free(tokens);
}

/* Feeds generated tokens at positions from `at` on; logits [N_GENERATED][n_vocab]. */
static float *go_on(struct test_llama *t, int32_t seq, int32_t at)
{
    float *logits = malloc((size_t)N_GENERATED * (size_t)t->n_vocab * sizeof *logits);
    assert_non_null(logits);
    for (int32_t i = 0; i < N_GENERATED; i++)
        test_llama_decode(t, seq, at + i, (const int32_t[]){11 + 7 * i}, 1, logits + (int64_t)i * t->n_vocab);
    return logits;
}

/* A request that is cancelled while its prompt is read: nothing of it is evicted, or left. */
static void cancelled_while_reading(struct test_llama *t)
{
    read(t, 0, 0, 170);
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 0, -1, -1));
    read_part(t, 0, 0, N_TURN, 110);
}

/* One that is cancelled between the two tokens that end its prompt. */
static void cancelled_at_the_end(struct test_llama *t)
{
    read(t, 0, 0, 170);
    read(t, 0, 170, 1);
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 0, -1, -1));
    read_part(t, 0, 0, N_TURN, 110);
}

/* One that is cancelled after it was compressed. */
static void cancelled_later(struct test_llama *t)
{
    read(t, 0, 0, 170);
    for (int32_t i = 0; i < 5; i++)
        read(t, 0, 170 + i, 1);
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 0, -1, -1));
    read_part(t, 0, 0, N_TURN, 110);
}

/* The end of the prompt is taken back and read once more. */
static void taken_back(struct test_llama *t)
{
    read_part(t, 0, 0, 200, 100);
    read(t, 0, 200, 90);
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 0, 200, -1));
    read_part(t, 0, 200, N_TURN, 100);
}

/* Another sequence reads, generates, is compressed and is removed meanwhile. */
static void beside_another(struct test_llama *t)
{
    struct test_row row[101] = {{.token = 3, .pos = 200, .seq = 1}};
    int32_t *tokens = test_random_tokens(N_TURN, 250, 41);
    read(t, 1, 0, 200);
    for (int32_t i = 0; i < 100; i++)
        row[1 + i] = (struct test_row){.token = tokens[i], .pos = i, .seq = 0};
    assert_int_equal(test_llama_batch(t, row, 101, NULL), 0);
    row[0] = (struct test_row){.token = 4, .pos = 201, .seq = 1};
    for (int32_t i = 0; i < 100; i++)
        row[1 + i] = (struct test_row){.token = tokens[100 + i], .pos = 100 + i, .seq = 0};
    assert_int_equal(test_llama_batch(t, row, 101, NULL), 0);
    assert_true(llama_memory_seq_rm(llama_get_memory(t->ctx), 1, -1, -1));
    read_part(t, 0, 200, N_TURN, 100);
    free(tokens);
}

/* Logits of what is generated after a fresh prompt in batches of `piece`, and what was kept of it. */
static float *generated_fresh(const char *recipe, int32_t piece, struct test_cuts **kept, int32_t *n_vocab)
{
    struct test_llama t;
    opened_like(&t, recipe, 2);
    read_part(&t, 0, 0, N_TURN, piece);
    *kept = test_cuts_note();
    float *logits = go_on(&t, 0, N_TURN);
    test_cuts_stop();
    *n_vocab = t.n_vocab;
    test_llama_close(&t);
    return logits;
}

struct fresh {
    const char *recipe;
};

/* Under libllama our attention computes with another rounding in batches of other sizes. */
static void keep_fresh(void *user, bool other)
{
    const struct fresh *f = user;
    struct test_llama t;
    opened_like(&t, f->recipe, 2);
    read_part(&t, 0, 0, N_TURN, other ? 53 : 110);
    free(go_on(&t, 0, N_TURN));
    test_llama_close(&t);
}

/* What the policy sees of a prompt, and what comes after it, is the same however the context came to it. Where rounding lets
 * it keep other entries, they lie within the error of the cut, and what comes after them is not compared. */
static void test_as_if_fresh(void **state)
{
    static const char *const recipes[] = {
        "snapkv", "h2o", "expected_attention", "replay", "lagkv:lag=32,sink=4", "criticalkv", "snapkv-merge"};
    static const struct {
        const char *name;
        void (*before)(struct test_llama *t);
        bool sums; /* over all queries are those of a fresh prompt, too */
    } ways[] = {{"cancelled while reading", cancelled_while_reading, true},
                {"cancelled at the end", cancelled_at_the_end, true},
                {"cancelled later", cancelled_later, true},
                {"taken back", taken_back, false},
                {"beside another", beside_another, true}};
    (void)state;
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
        struct test_llama t;
        struct test_cuts *fresh, *kept;
        int32_t n_vocab;
        float *want = generated_fresh(recipes[r], 110, &fresh, &n_vocab);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            if (!ways[w].sums &&
                (strcmp(recipes[r], "expected_attention") == 0 || strcmp(recipes[r], "h2o") == 0))
                continue; /* what was taken back stays in them */
            opened_like(&t, recipes[r], 2);
            ways[w].before(&t);
            kept = test_cuts_note();
            float *got = go_on(&t, 0, N_TURN);
            test_cuts_stop();
            test_llama_close(&t);
            const double d = test_nmse(got, want, (int64_t)N_GENERATED * n_vocab);
            print_message("%s, %s: %.2g\n", recipes[r], ways[w].name, d);
            if (test_cuts_same(fresh, kept))
                assert_cmp(d, <=, test_nmse_most(1e-8));
            else
                test_keeps_as(ways[w].name, &(struct test_keeper){keep_fresh, &(struct fresh){recipes[r]}},
                              kept);
            test_cuts_free(kept);
            free(got);
        }
        test_cuts_free(fresh);
        free(want);
    }
}

/* ---- Chosen ---- */

/* Entries per head in cells before `end`, which hold the first tokens of the only sequence. */
static double entries_before(wnw_bridge *cache, int32_t end)
{
    double found = 0, n_rows = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        for (int32_t ih = 0; ih < l.n_heads; ih++, n_rows++) {
            int32_t cells[2 * N_TURN], n;
            assert_ok(wnw_bridge_cells(cache, i, 0, ih, cells, 2 * N_TURN, &n));
            for (int32_t k = 0; k < n; k++)
                found += cells[k] < end;
        }
    }
    return found / n_rows;
}

/* "auto" under a program of libllama: chosen when a sequence is compressed. */
static void test_automatic(void **state)
{
    static const char *const bad[] = {"auto+quality:q=1", "auto+quality", "automatic", "auto+shares"};
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5}, few = size_budget(60);
    struct test_llama t;
    wnw_bridge *cache;
    (void)state;
    opened_like(&t, "auto", 1);
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    read(&t, 0, 0, N_TURN);
    assert_ok(wnw_bridge_compress(cache));
    assert_near(entries(&t), 60, 0.5);
    test_llama_close(&t);

    double kept[2];
    for (int k = 0; k < 2; k++) { /* without profiles it is replay */
        opened_like(&t, "snapkv", 1);
        assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
        assert_ok(wnw_bridge_set_policy(cache, k ? "auto" : "replay", &half, false));
        read(&t, 0, 0, N_TURN);
        assert_ok(wnw_bridge_compress(cache));
        kept[k] = entries_before(cache, N_TURN / 3);
        assert_near(entries(&t), N_TURN / 2, 0.5);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            assert_error(wnw_bridge_set_policy(cache, bad[i], &few, false), WNW_E_ARG);
        assert_error(wnw_bridge_set_policy(cache, "auto+quality:q=0.9", NULL, false), WNW_E_MISMATCH);
        assert_says("winnow calibrate quality");
        read(&t, 0, N_TURN, 150); /* what was refused has changed nothing */
        assert_ok(wnw_bridge_compress(cache));
        assert_near(entries(&t), (N_TURN + 150) / 2, 0.5);
        assert_ok(wnw_bridge_set_policy(cache, NULL, NULL, false));
        assert_error(wnw_bridge_compress(cache), WNW_E_ARG);
        test_llama_close(&t);
    }
    assert_near(kept[0], kept[1], 0.0);
}

/* ---- Twice ---- */

/* A sequence that has its size already loses nothing when it is compressed again, by a recursive policy either. */
static void test_not_twice(void **state)
{
    static const char *const recipes[] = {"snapkv", "h2o", "knorm", "expected_attention",
                                          "lagkv:lag=32,sink=4"};
    (void)state;
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
        struct test_llama t;
        wnw_bridge *cache;
        opened_like(&t, recipes[r], 1);
        assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
        read_part(&t, 0, 0, N_TURN, 110);
        assert_ok(wnw_bridge_compress(cache));
        const double once = entries(&t);
        print_message("%s: %g of %d entries\n", recipes[r], once, N_TURN);
        assert_cmp(once, <, N_TURN / 2);
        assert_ok(wnw_bridge_compress(cache));
        assert_near(entries(&t), once, 0.0);
        read(&t, 0, N_TURN, 1); /* the prompt is not new any more */
        read(&t, 0, N_TURN + 1, 1);
        assert_near(entries(&t), once + 2, 0.0);
        test_llama_close(&t);
    }
}

/* A share of the scores goes once, not of what is left each time. */
static void test_share_once(void **state)
{
    static const char recipe[] = "replay+quality:dropped=0.2";
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_ok(wnw_bridge_set_policy(cache, recipe, NULL, false));
    read_part(&t, 0, 0, N_TURN, 110);
    assert_ok(wnw_bridge_compress(cache));
    const double once = entries(&t);
    assert_cmp(once, <, N_TURN);
    read(&t, 0, N_TURN, 60);
    assert_ok(wnw_bridge_compress(cache));
    assert_near(entries_before(cache, N_TURN), once, 0.0);
    assert_cmp(entries(&t), <, once + 60);
    test_llama_close(&t);
}

/* In chunks a prompt is compressed before the batch that follows one, as a program does by hand. */
static void test_chunks(void **state)
{
    static const char *const recipes[] = {"keydiff", "snapkv", "lagkv:lag=32,sink=4", "expected_attention"};
    static const wnw_size sizes[] = {{.kind = WNW_SIZE_BUDGET, .budget = 70},
                                     {.kind = WNW_SIZE_RATIO, .ratio = 0.7}};
    char path[4096];
    struct test_llama t[2];
    wnw_bridge *cache[2];
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    for (size_t i = 0; i < 2 * sizeof recipes / sizeof *recipes; i++) {
        for (int by_hand = 0; by_hand < 2; by_hand++) {
            test_llama_open(&t[by_hand], path, &(struct test_llama_params){.ours = true});
            assert_ok(wnw_bridge_find(&cache[by_hand], llama_synchronize, t[by_hand].ctx));
            const wnw_bridge_setting setting = {WNW_INIT(wnw_bridge_setting), .recipe = recipes[i / 2],
                                                .size = &sizes[i % 2], .by_itself = !by_hand, .chunk = 200};
            assert_ok(wnw_bridge_set(cache[by_hand], &setting));
            read_part(&t[by_hand], 0, 0, 220, 110);
            assert_near(entries(&t[by_hand]), 220.0, 0.0);
            if (by_hand)
                assert_ok(wnw_bridge_compress(cache[by_hand]));
            read_part(&t[by_hand], 0, 220, N_TURN, 110);
        }
        assert_cmp(entries(&t[0]), <, 170);
        for (int32_t l = 0; l < wnw_bridge_n_layers(cache[0]); l++) {
            int32_t cells[2][N_TURN], n[2];
            for (int k = 0; k < 2; k++)
                assert_ok(wnw_bridge_cells(cache[k], l, 0, 1, cells[k], N_TURN, &n[k]));
            assert_int_equal(n[0], n[1]);
            assert_memory_equal(cells[0], cells[1], (size_t)n[0] * sizeof **cells);
        }
        test_llama_close(&t[0]);
        test_llama_close(&t[1]);
    }
}

static void test_chunks_refused(void **state)
{
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    const wnw_size size = size_budget(60);
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    wnw_bridge_setting setting = {WNW_INIT(wnw_bridge_setting), .chunk = 127};
    assert_error(wnw_bridge_set(cache, &setting), WNW_E_RANGE);
    setting.chunk = -1;
    assert_error(wnw_bridge_set(cache, &setting), WNW_E_RANGE);
    setting.chunk = 128;
    assert_ok(wnw_bridge_set(cache, &setting));
    assert_error(wnw_bridge_set_policy(cache, "replay+quality:dropped=0.2", NULL, true), WNW_E_UNSUPPORTED);
    assert_says("cannot compress while a prompt is read");
    assert_ok(wnw_bridge_set_policy(cache, "auto", &size, true));
    read_part(&t, 0, 0, N_TURN, 150);
    assert_near(entries(&t), 210.0, 0.0);
    setting.chunk = 0;
    assert_ok(wnw_bridge_set(cache, &setting));
    assert_ok(wnw_bridge_set_policy(cache, "replay+quality:dropped=0.2", NULL, true));
    test_llama_close(&t);
}

static int score_first(const void *opts, const wnw_observation *o, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t h = 0; h < o->n_head_kv; h++)
        for (int32_t i = 0; i < o->n; i++)
            score[(int64_t)h * o->n + i] = (float)-i;
    return WNW_OK;
}

static int score_nothing(const void *opts, const wnw_observation *o, float *score, float *scratch)
{
    (void)opts;
    (void)o;
    (void)score;
    (void)scratch;
    return WNW_E_ARG;
}

/* Recipes name scorers of the program while it has added them. One that fails leaves the sequence whole. */
static void test_parts_of_the_program(void **state)
{
    static const wnw_scorer first = {.part = {WNW_SCORER_INIT, .name = "of_the_test"}, .score = score_first};
    static const wnw_scorer fails = {.part = {WNW_SCORER_INIT, .name = "that_fails"}, .score = score_nothing};
    static const wnw_part *const parts[] = {&first.part, &fails.part}, *const twice[] = {&first.part,
                                                                                         &first.part};
    const wnw_size size = size_budget(60);
    wnw_bridge_setting setting = {WNW_INIT(wnw_bridge_setting), .n_parts = 2, .parts = twice};
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    int32_t cells[N_TURN], n;
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_error(wnw_bridge_set_policy(cache, "of_the_test", &size, false), WNW_E_ARG);
    assert_error(wnw_bridge_set(cache, &setting), WNW_E_ARG);
    assert_says("the name \"of_the_test\" is taken");
    setting.parts = parts;
    assert_ok(wnw_bridge_set(cache, &setting));
    assert_ok(wnw_bridge_set_policy(cache, "that_fails", &size, false));
    read_part(&t, 0, 0, N_TURN, 110);
    assert_error(wnw_bridge_compress(cache), WNW_E_ARG);
    assert_ok(wnw_bridge_cells(cache, 0, 0, 0, cells, N_TURN, &n));
    assert_int_equal(n, N_TURN);
    assert_ok(wnw_bridge_set_policy(cache, "of_the_test", &size, false));
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, -1, -1));
    read_part(&t, 0, 0, N_TURN, 110);
    assert_ok(wnw_bridge_compress(cache));
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        assert_ok(wnw_bridge_cells(cache, i, 0, 0, cells, N_TURN, &n));
        assert_int_equal(n, 60);
        for (int32_t k = 0; k < n; k++)
            assert_int_equal(cells[k], k);
    }
    assert_ok(wnw_bridge_set(cache, &(wnw_bridge_setting){WNW_INIT(wnw_bridge_setting)}));
    assert_error(wnw_bridge_set_policy(cache, "of_the_test", &size, false), WNW_E_ARG);
    test_llama_close(&t);
}

/* All is set at once, or nothing. */
static void test_set_at_once(void **state)
{
    static const wnw_scorer first = {.part = {WNW_SCORER_INIT, .name = "of_the_test"}, .score = score_first};
    static const wnw_scorer fails = {.part = {WNW_SCORER_INIT, .name = "that_fails"}, .score = score_nothing};
    static const wnw_part *const parts[] = {&first.part, &fails.part}, *const twice[] = {&first.part,
                                                                                         &first.part};
    static const char *const profiles[] = {"/nosuch/profile.json"};
    const wnw_size size = size_budget(60);
    const wnw_bridge_setting good = {WNW_INIT(wnw_bridge_setting),
                                     .recipe = "of_the_test",
                                     .size = &size,
                                     .by_itself = true,
                                     .chunk = 128,
                                     .n_parts = 2,
                                     .parts = parts};
    wnw_bridge_setting bad[8];
    static const int codes[8] = {WNW_E_RANGE, WNW_E_ARG, WNW_E_IO,    WNW_E_ARG,
                                 WNW_E_ARG,   WNW_E_ARG, WNW_E_RANGE, WNW_E_UNSUPPORTED};
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    (void)state;
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].chunk = 100;
    bad[1].parts = twice;
    bad[2].profiles = profiles;
    bad[2].n_profiles = 1;
    bad[3].recipe = "nonsense";
    bad[4].parts = NULL;
    bad[5].n_parts = 0; /* the recipe has a part that would be gone */
    bad[6].n_profiles = -1;
    bad[7].recipe = "replay+quality:dropped=0.2"; /* not while a prompt is read */
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_ok(wnw_bridge_set(cache, &good));
    for (int i = 0; i < 8; i++)
        assert_error(wnw_bridge_set(cache, &bad[i]), codes[i]);
    read_part(&t, 0, 0, N_TURN, 150);
    assert_near(entries(&t), 210.0, 0.0);
    assert_ok(wnw_bridge_set_policy(cache, "that_fails", &size, false)); /* the parts are there still */
    assert_ok(wnw_bridge_set(cache, &(wnw_bridge_setting){WNW_INIT(wnw_bridge_setting)}));
    assert_error(wnw_bridge_set_policy(cache, "that_fails", &size, false), WNW_E_ARG);
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, -1, -1));
    read_part(&t, 0, 0, N_TURN, 150);
    assert_near(entries(&t), N_TURN, 0.0);
    test_llama_close(&t);
}

/* Layers whose number of heads differs are planned separately: each keeps its size in every head. Sessions refuse them. */
static void test_other_heads(void **state)
{
    static const char *const recipes[] = {"snapkv", "h2o", "keydiff", "expected_attention"};
    enum { ONE_SHAPE = 3 }; /* statistics of queries are of layers of one shape */
    static const wnw_size sizes[] = {{.kind = WNW_SIZE_BUDGET, .budget = 60},
                                     {.kind = WNW_SIZE_RATIO, .ratio = 0.7}};
    char path[4096];
    int32_t *tokens = test_random_tokens(201, 250, 9);
    wnw_model *m;
    (void)state;
    test_model_path(path, sizeof path, "tiny/foreign/openelm.gguf");
    assert_error(wnw_model_open(&m, path, NULL), WNW_E_UNSUPPORTED);
    assert_says(
        "have other heads or factors: sessions take layers that are alike; programs of llama.cpp can run it");
    for (size_t i = 0; i < 2 * sizeof recipes / sizeof *recipes; i++) {
        struct test_llama t;
        wnw_bridge *cache;
        test_llama_open(&t, path, &(struct test_llama_params){.ours = true, .flash = true, .n_ctx = 256});
        assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
        assert_ok(wnw_bridge_set_policy(cache, recipes[i / 2], &sizes[i % 2], false));
        test_llama_decode(&t, 0, 0, tokens, 200, NULL);
        if (i / 2 == ONE_SHAPE) {
            assert_error(wnw_bridge_compress(cache), WNW_E_UNSUPPORTED);
            assert_says("of layers with one shape");
        } else {
            assert_ok(wnw_bridge_compress(cache));
        }
        for (int32_t k = 0; k < wnw_bridge_n_layers(cache); k++) {
            wnw_bridge_layer l = wnw_bridge_layer_default();
            assert_ok(wnw_bridge_get_layer(cache, k, &l));
            assert_int_equal(l.n_heads, k == 0 ? 1 : 2);
            assert_int_equal(l.n_entries, (i / 2 == ONE_SHAPE ? 200 : 60) * l.n_heads);
        }
        test_llama_decode(&t, 0, 200, tokens + 200, 1, NULL);
        test_llama_close(&t);
    }
    free(tokens);
}

/* A prompt that fails half-way because cells run out: what was read of it stays as it was. */
static void test_no_room(void **state)
{
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    const wnw_size size = size_budget(60);
    int32_t *tokens = test_random_tokens(300, 250, 9);
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = 256});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_ok(wnw_bridge_set_policy(cache, "h2o", &size, true));
    test_llama_decode(&t, 0, 0, tokens, 200, NULL);
    assert_int_not_equal(test_llama_try(&t, 0, 200, tokens + 200, 100, NULL), 0);
    assert_near(entries(&t), 200, 0.0);
    test_llama_decode(&t, 0, 200, tokens + 200, 1, NULL);
    test_llama_decode(&t, 0, 201, tokens + 201, 1, NULL);
    assert_near(entries(&t), 60 + 1, 1.0);
    test_llama_close(&t);
    free(tokens);
}

static void test_bad_environment(void **state)
{
    static const struct {
        const char *variable, *value;
    } bad[] = {{"WINNOW_BUDGET", "many"},
               {"WINNOW_BUDGET", "0"},
               {"WINNOW_RATIO", "1"},
               {"WINNOW_RATIO", "0.5x"},
               {"WINNOW_RATIO", "nan"},
               {"WINNOW_KV_BYTES", "-1"},
               {"WINNOW_BUDGET", "20.5"},
               {"WINNOW_BUDGET", "0x20"},
               {"WINNOW_BUDGET", "1K"},
               {"WINNOW_RATIO", " 0.5"},
               {"WINNOW_KV_BYTES", "1.5K"},
               {"WINNOW_KV_BYTES", "64KB"},
               {"WINNOW_KV_BYTES", "9999999G"},
               {"WINNOW_EVICT", "layer"},
               {"WINNOW_EVICT", "chunk:"},
               {"WINNOW_EVICT", "chunk:127"},
               {"WINNOW_EVICT", "chunk:1e3"},
               {"WINNOW_EVICT", "chunk: 512"},
               {"WINNOW_EVICT", "chunk:2147483648"}},
      good[] = {{"WINNOW_BUDGET", "20"},    {"WINNOW_RATIO", "5e-1"},      {"WINNOW_KV_BYTES", "65536"},
                {"WINNOW_KV_BYTES", "64K"}, {"WINNOW_KV_BYTES", "1G"},     {"WINNOW_EVICT", "end"},
                {"WINNOW_EVICT", "chunk"},  {"WINNOW_EVICT", "chunk:2048"}};
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
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) { /* as the command's options */
        setenv(good[i].variable, good[i].value, 1);
        assert_ok(wnw_bridge_register());
        unsetenv(good[i].variable);
    }
    unsetenv("WINNOW_POLICY");
    assert_ok(wnw_bridge_register());
    test_llama_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses_what_it_cannot),
                                       cmocka_unit_test(test_asks_for_profiles),
                                       cmocka_unit_test(test_prompts),
                                       cmocka_unit_test(test_two_sequences),
                                       cmocka_unit_test(test_room_for_queries),
                                       cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_as_if_fresh),
                                       cmocka_unit_test(test_automatic),
                                       cmocka_unit_test(test_not_twice),
                                       cmocka_unit_test(test_share_once),
                                       cmocka_unit_test(test_chunks),
                                       cmocka_unit_test(test_chunks_refused),
                                       cmocka_unit_test(test_parts_of_the_program),
                                       cmocka_unit_test(test_set_at_once),
                                       cmocka_unit_test(test_other_heads),
                                       cmocka_unit_test(test_no_room),
                                       cmocka_unit_test(test_bad_environment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
