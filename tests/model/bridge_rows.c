/* SPDX-License-Identifier: MIT */
/* For programs that know the sequences of their batches: where rows go, what they see, compressing and freeing named cells. */
#include "cuts.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "peek_prompt.h"
#include "winnow_bridge.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 200, OTHER = 60, N_CTX = 512, MOST_CELLS = 2048 };

/* What was told, and what the row that was asked for sees. */
struct told {
    wnw_bridge *cache;
    int32_t cell[N_CTX], n, ask, seen[N_CTX], n_seen;
    bool skip; /* queries are not kept */
};

static void keep(const int32_t *cells, int32_t n, int32_t n_cells, void *user)
{
    struct told *t = user;
    assert_int_equal(n_cells, N_CTX);
    assert_in_range(t->n + n, 1, N_CTX);
    memcpy(t->cell + t->n, cells, (size_t)n * sizeof *cells);
    t->n += n;
    for (int32_t i = 0; t->skip && i < n; i++)
        assert_ok(wnw_bridge_skip_query(t->cache, i));
    if (t->ask >= 0)
        assert_ok(wnw_bridge_seen(t->cache, t->ask, t->seen, N_CTX, &t->n_seen));
}

static void opened(struct test_llama *t, struct told *told)
{
    char path[4096];
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(t, path, &(struct test_llama_params){.ours = true, .n_ctx = N_CTX, .n_seq = 2});
    *told = (struct told){.ask = -1};
    assert_ok(wnw_bridge_find(&told->cache, llama_synchronize, t->ctx));
    assert_ok(wnw_bridge_tell_rows(told->cache, keep, told));
}

/* Decodes both sequences in one batch, rows of one between rows of the other; own[0], own[1] become their cells. */
static void read_both(struct test_llama *t, struct told *told, int32_t own[2][N])
{
    struct test_row row[N + OTHER];
    int32_t *tokens = test_random_tokens(N, 250, 5), n[2] = {0, 0};
    for (int32_t i = 0; i < N + OTHER; i++) {
        const int32_t seq = i % 2 == 1 && n[1] < OTHER ? 1 : n[0] < N ? 0 : 1;
        row[i] = (struct test_row){.token = tokens[n[seq]], .pos = n[seq], .seq = seq};
        n[seq]++;
    }
    assert_int_equal(test_llama_batch(t, row, N + OTHER, NULL), 0);
    assert_int_equal(told->n, N + OTHER);
    for (int32_t i = 0; i < N + OTHER; i++)
        own[row[i].seq][row[i].pos] = told->cell[i];
    free(tokens);
}

static bool is_among(int32_t cell, const int32_t *cells, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (cells[i] == cell)
            return true;
    return false;
}

/* Entries of all heads whose cells are among cells[n]. */
static int64_t count(const wnw_bridge *cache, const int32_t *cells, int32_t n)
{
    int64_t found = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        assert_int_equal(l.entry_bytes, 2 * 2 * 32); /* a key and a value of 32 numbers in f16 */
        for (int32_t ih = 0; ih < l.n_heads; ih++) {
            int32_t has[MOST_CELLS], n_has;
            assert_ok(wnw_bridge_cells(cache, i, 0, ih, has, MOST_CELLS, &n_has));
            for (int32_t k = 0; k < n_has; k++)
                found += is_among(has[k], cells, n);
        }
    }
    return found;
}

enum { HEADS = 4 * 2 }; /* of all layers of tiny-llama */

static void test_rows_and_what_they_see(void **state)
{
    (void)state;
    struct test_llama t;
    struct told told;
    int32_t own[2][N];
    opened(&t, &told);
    told.ask = 7; /* position 3 of the second sequence */
    read_both(&t, &told, own);
    assert_int_equal(told.n_seen, 4);
    for (int32_t i = 0; i < 4; i++)
        assert_true(is_among(own[1][i], told.seen, 4));
    assert_error(wnw_bridge_seen(told.cache, 0, told.seen, N_CTX, &told.n_seen), WNW_E_NOT_OBSERVED);
    test_llama_close(&t);
}

static void test_named_cells_are_compressed_and_freed(void **state)
{
    (void)state;
    enum { HEADER = 20, KEPT = 30 };
    struct test_llama t;
    struct told told;
    int32_t own[2][N];
    const wnw_size size = size_budget(KEPT);
    wnw_policy *policy = test_policy("snapkv:window=16");
    opened(&t, &told);
    assert_ok(wnw_bridge_observe(told.cache, "keydiff"));
    assert_ok(wnw_bridge_observe(told.cache, "snapkv:window=16")); /* as well */
    read_both(&t, &told, own);
    const wnw_bridge_cells_of rest = {WNW_INIT(wnw_bridge_cells_of), .n_cells = N - HEADER,
                                      .cells = own[0] + HEADER, .policy = policy, .size = &size};
    assert_ok(wnw_bridge_compress_cells(told.cache, &rest));
    assert_int_equal(count(told.cache, own[0], HEADER), HEADS * HEADER);
    assert_int_equal(count(told.cache, own[0] + HEADER, N - HEADER), HEADS * KEPT);
    assert_int_equal(count(told.cache, own[1], OTHER), HEADS * OTHER);

    /* The first sequence goes on as it would have without the second one, whose cells are freed. */
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 1, -1, -1));
    assert_ok(wnw_bridge_forget(told.cache, own[1], OTHER));
    assert_int_equal(count(told.cache, own[1], OTHER), 0);
    assert_int_equal(count(told.cache, own[0], N), HEADS * (HEADER + KEPT));
    float *logits = malloc((size_t)t.n_vocab * sizeof *logits);
    test_llama_decode(&t, 0, N, (const int32_t[]){9}, 1, logits);
    assert_true(logits[0] - logits[0] == 0.0f); /* finite */
    free(logits);
    /* All of it. */
    assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, -1, -1));
    assert_ok(wnw_bridge_forget(told.cache, told.cell, told.n));
    assert_int_equal(count(told.cache, told.cell, told.n), 0);
    wnw_policy_free(policy);
    test_llama_close(&t);
}

/* Bytes of a layer beyond what its entries need, less the growth blocks and pages that a tight cache may have. */
static int64_t loose_bytes(const wnw_bridge *cache)
{
    int64_t most = INT64_MIN;
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        const int64_t blocks = (int64_t)l.n_streams * l.n_heads * (l.room_entries - 1);
        const int64_t beside =
            (int64_t)l.bytes - (l.n_entries + blocks) * l.entry_bytes - 2 * sysconf(_SC_PAGESIZE);
        most = beside > most ? beside : most;
    }
    return most;
}

/* Of a tight cache nothing is mapped beyond blocks and pages after any change, and the logits are those of any other. */
static void test_tight(void **state)
{
    (void)state;
    enum { MORE = 60, LONG = N + MORE };
    float *at_end[2];
    int32_t n_vocab = 0;
    for (int tight = 0; tight < 2; tight++) {
        struct test_llama t;
        struct told told;
        int32_t *tokens = test_random_tokens(LONG, 250, 5);
        opened(&t, &told);
        n_vocab = t.n_vocab;
        at_end[tight] = calloc((size_t)n_vocab, sizeof *at_end[tight]);
        assert_non_null(at_end[tight]);
        assert_ok(wnw_bridge_set_tight(told.cache, tight));
        test_llama_decode(&t, 0, 0, tokens, N, NULL);
        for (int32_t i = N; i < LONG - 20; i++) {
            test_llama_decode(&t, 0, i, tokens + i, 1, NULL);
            assert_true(!tight || loose_bytes(told.cache) <= 0);
        }
        /* A few are dropped of each head: less than an eighth. */
        for (int32_t i = 0; i < wnw_bridge_n_layers(told.cache); i++)
            assert_ok(wnw_bridge_drop(told.cache, i, 0, 0, told.cell + 50, 25));
        assert_true(!tight || loose_bytes(told.cache) <= 0);
        /* A state comes back row by row. */
        size_t bytes;
        uint8_t *saved = test_llama_state(&t, &bytes);
        assert_int_equal(llama_state_seq_set_data(t.ctx, saved, bytes, 1), bytes);
        assert_true(!tight || loose_bytes(told.cache) <= 0);
        told.n = 0;
        for (int32_t i = LONG - 20; i < LONG; i++) {
            test_llama_decode(&t, 1, i, tokens + i, 1, i == LONG - 1 ? at_end[tight] : NULL);
            assert_true(!tight || loose_bytes(told.cache) <= 0);
        }
        /* One that has been loose is tight at once. */
        assert_ok(wnw_bridge_set_tight(told.cache, true));
        assert_true(loose_bytes(told.cache) <= 0);
        free(saved);
        free(tokens);
        test_llama_close(&t);
    }
    assert_memory_equal(at_end[0], at_end[1], (size_t)n_vocab * sizeof **at_end);
    free(at_end[0]);
    free(at_end[1]);
}

/* The state of a sequence that a policy has compressed, as libllama saves it: what is kept and what it holds. */
static uint8_t *kept_by(const char *recipe, int32_t n_threads, size_t *bytes)
{
    enum { LONG = 1300, BATCH = 325, KEPT = 200 };
    struct test_llama t;
    char path[4096];
    const wnw_size size = size_budget(KEPT);
    wnw_policy *policy = test_policy(recipe);
    int32_t *tokens = test_random_tokens(LONG, 250, 6), cell[LONG];
    wnw_bridge *cache;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(
        &t, path,
        &(struct test_llama_params){.ours = true, .n_ctx = 2048, .n_batch = BATCH, .n_threads = n_threads});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_ok(wnw_bridge_observe(cache, recipe));
    for (int32_t i = 0; i < LONG; i += BATCH)
        test_llama_decode(&t, 0, i, tokens + i, BATCH, NULL);
    for (int32_t i = 0; i < LONG; i++)
        cell[i] = i; /* nothing else is in the cache */
    assert_ok(wnw_bridge_compress_cells(cache, &(wnw_bridge_cells_of){WNW_INIT(wnw_bridge_cells_of),
                                                                      .n_cells = LONG, .cells = cell,
                                                                      .policy = policy, .size = &size}));
    assert_int_equal(count(cache, cell, LONG), HEADS * KEPT);
    uint8_t *saved = test_llama_state(&t, bytes);
    free(tokens);
    wnw_policy_free(policy);
    test_llama_close(&t);
    return saved;
}

/* Layers, and pieces of the entries of a head, are shared out to threads; which takes what changes nothing. */
static void test_threads_change_nothing(void **state)
{
    static const char *const recipes[] = {"keydiff", "snapkv:window=16+adakv", "snapkv:window=16+merge",
                                          "streaming_llm"};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        size_t n_one, n_many;
        uint8_t *one = kept_by(recipes[i], 1, &n_one), *many = kept_by(recipes[i], 3, &n_many);
        assert_int_equal(n_one, n_many);
        assert_memory_equal(one, many, n_one);
        free(one);
        free(many);
    }
}

/* ---- Policies that look with the queries of all tokens ---- */

enum { N_LONG = 300, N_HEADER = 20, N_KEPT = 100 };

/* What replay keeps of the tokens in a session that knows of the header is what was kept. */
static void check_session(const char *recipe, const int32_t *tokens, const struct test_cuts *kept)
{
    wnw_model *model = test_model_open("tiny/tiny-llama.gguf");
    wnw_policy *policy = test_policy(recipe);
    const wnw_prompt prompt = {.n_prefix = N_HEADER};
    test_session_keeps_as(recipe,
                          &(struct test_keep){.m = model,
                                              .want = {.kv_type = WNW_KV_F16, .n_ctx = N_CTX, .n_threads = 1},
                                              .run = {WNW_INIT(wnw_run), .policy = policy, .prompt = &prompt},
                                              .size = size_budget(N_HEADER + N_KEPT),
                                              .tokens = tokens,
                                              .n = N_LONG},
                          kept);
    wnw_policy_free(policy);
    wnw_model_free(model);
}

/* A policy that keeps headers sees one, and keeps of the rest what it keeps in a session; from others it is hidden. */
static void test_header(void **state)
{
    (void)state;
    struct test_llama t;
    struct told told;
    int32_t *tokens = test_random_tokens(N_LONG, 250, 8);
    static const struct {
        const char *recipe;
        wnw_size size;
    } rows[] = {{"replay", {.kind = WNW_SIZE_BUDGET, .budget = N_KEPT}},
                {"replay", {.kind = WNW_SIZE_RATIO, .ratio = 1 - (double)N_KEPT / (N_LONG - N_HEADER)}},
                {"keydiff", {.kind = WNW_SIZE_BUDGET, .budget = N_KEPT}},
                {"keydiff", {.kind = WNW_SIZE_RATIO, .ratio = 1 - (double)N_KEPT / (N_LONG - N_HEADER)}}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        wnw_policy *policy = test_policy(rows[r].recipe);
        opened(&t, &told);
        assert_ok(wnw_bridge_observe(told.cache, rows[r].recipe));
        test_llama_decode(&t, 0, 0, tokens, N_LONG, NULL);
        const wnw_bridge_cells_of of = {
            WNW_INIT(wnw_bridge_cells_of), .n_cells = N_LONG,   .cells = told.cell, .policy = policy,
            .size = &rows[r].size,         .n_prefix = N_HEADER};
        struct test_cuts *kept = test_cuts_note();
        assert_ok(wnw_bridge_compress_cells(told.cache, &of));
        test_cuts_stop();
        const int64_t n = count(told.cache, told.cell, N_LONG);
        assert_int_equal(count(told.cache, told.cell, N_HEADER), HEADS * N_HEADER);
        assert_int_equal(n, HEADS * (N_HEADER + N_KEPT));
        if (r < 2)
            check_session(rows[r].recipe, tokens, kept);
        test_cuts_free(kept);
        wnw_policy_free(policy);
        test_llama_close(&t);
    }
    free(tokens);
}

/* The state after the tokens from N_FROM on were compressed as a part after a header: one list of cells has both, or each has its own. */
static uint8_t *state_of_part(const char *recipe, bool apart, size_t *n_bytes)
{
    enum { N_FROM = 90 };
    struct test_llama t;
    struct told told;
    int32_t *tokens = test_random_tokens(N_LONG, 250, 8), both[N_HEADER + N_LONG - N_FROM];
    wnw_policy *policy = test_policy(recipe);
    const wnw_size size = size_budget(N_KEPT);
    opened(&t, &told);
    assert_ok(wnw_bridge_observe(told.cache, recipe));
    test_llama_decode(&t, 0, 0, tokens, N_LONG, NULL);
    memcpy(both, told.cell, N_HEADER * sizeof *both);
    memcpy(both + N_HEADER, told.cell + N_FROM, (N_LONG - N_FROM) * sizeof *both);
    wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of), .policy = policy, .size = &size,
                              .n_prefix = N_HEADER};
    of.cells = apart ? told.cell + N_FROM : both;
    of.n_cells = apart ? N_LONG - N_FROM : N_HEADER + N_LONG - N_FROM;
    of.prefix = apart ? told.cell : NULL;
    assert_ok(wnw_bridge_compress_cells(told.cache, &of));
    assert_int_equal(count(told.cache, told.cell, N_FROM), HEADS * N_FROM);
    assert_int_equal(count(told.cache, told.cell + N_FROM, N_LONG - N_FROM), HEADS * N_KEPT);
    uint8_t *state = test_llama_state(&t, n_bytes);
    free(tokens);
    wnw_policy_free(policy);
    test_llama_close(&t);
    return state;
}

/* A header may have a list of its own; policies that see it, and those that do not, keep the same. */
static void test_header_apart(void **state)
{
    static const char *const recipes[] = {"replay", "keydiff"};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        size_t n_joined, n_apart;
        uint8_t *joined = state_of_part(recipes[i], false, &n_joined),
                *apart = state_of_part(recipes[i], true, &n_apart);
        assert_int_equal(n_joined, n_apart);
        assert_memory_equal(joined, apart, n_joined);
        free(joined);
        free(apart);
    }
}

/* Pages that the queries of all layers have. */
static int64_t count_pages(const wnw_bridge *cache)
{
    const struct wnw__bridge_backend *b = (const struct wnw__bridge_backend *)(const void *)cache;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int64_t n = 0;
    for (int32_t i = 0; i < b->caches[0]->n_layer; i++) {
        const struct wnw__bridge_queries *q = &b->caches[0]->layers[i]->queries;
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        const uintptr_t from = ((uintptr_t)q->q + page - 1) / page * page,
                        to = ((uintptr_t)q->q + (size_t)q->room * (size_t)l.query_bytes) / page * page;
        unsigned char *in = calloc((to - from) / page + 1, 1);
        assert_non_null(in);
        if (q->q && from < to)
            assert_int_equal(mincore((void *)from, to - from, in), 0);
        for (size_t k = 0; k < (to - from) / page; k++)
            n += in[k] & 1;
        free(in);
    }
    return n;
}

/* Queries that no policy will see any more take no memory, also where their tokens are gone. */
static void test_queries_go(void **state)
{
    (void)state;
    struct test_llama t;
    struct told told;
    int32_t *tokens = test_random_tokens(N_LONG, 250, 8);
    wnw_policy *policy = test_policy("replay");
    const wnw_size size = size_budget(N_KEPT);
    opened(&t, &told);
    assert_ok(wnw_bridge_observe(told.cache, "replay"));
    for (int turn = 0; turn < 3; turn++) {
        told.n = 0;
        test_llama_decode(&t, 0, 0, tokens, N_LONG, NULL);
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(told.cache, 0, &l));
        assert_int_equal(l.query_bytes, 4 * 32 * 2); /* f16 */
        assert_cmp((double)count_pages(told.cache), >, 20.0);
        if (turn == 0)
            assert_ok(wnw_bridge_compress_cells(
                told.cache, &(wnw_bridge_cells_of){WNW_INIT(wnw_bridge_cells_of), .n_cells = N_LONG,
                                                   .cells = told.cell, .policy = policy, .size = &size}));
        else if (turn == 1)
            assert_ok(wnw_bridge_forget_queries(told.cache, told.cell, N_LONG));
        assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, -1, -1));
        assert_ok(turn == 2 ? wnw_bridge_forget(told.cache, told.cell, N_LONG) : WNW_OK);
        assert_int_equal(count_pages(told.cache), 0);
    }
    /* And those that are not kept take none from the start; the policy says so, and others go on. */
    told.skip = true;
    told.n = 0;
    test_llama_decode(&t, 0, 0, tokens, N_LONG, NULL);
    assert_int_equal(count_pages(told.cache), 0);
    wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of), .n_cells = N_LONG, .cells = told.cell,
                              .policy = policy, .size = &size};
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_NOT_OBSERVED);
    wnw_policy_free(policy);
    of.policy = policy = test_policy("keydiff");
    assert_ok(wnw_bridge_compress_cells(told.cache, &of));
    assert_int_equal(count(told.cache, told.cell, N_LONG), HEADS * N_KEPT);
    wnw_policy_free(policy);
    free(tokens);
    test_llama_close(&t);
}

/* A part that wants queries as they are, or a window, gets none that were rounded. */
static void test_rounded_queries_are_for_who_takes_them(void **state)
{
    static const char *const others[] = {"compactor", "snapkv:window=16"};
    (void)state;
    struct test_llama t;
    struct told told;
    int32_t *tokens = test_random_tokens(N_LONG, 250, 8);
    const wnw_size size = size_budget(N_KEPT);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (int asked = 0; asked < 2; asked++) {
            wnw_policy *policy = test_policy(others[i]);
            opened(&t, &told);
            assert_ok(wnw_bridge_observe(told.cache, "replay"));
            if (asked)
                assert_ok(wnw_bridge_observe(told.cache, others[i]));
            test_llama_decode(&t, 0, 0, tokens, N_LONG, NULL);
            const wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of), .n_cells = N_LONG,
                                            .cells = told.cell, .policy = policy, .size = &size};
            assert_int_equal(wnw_bridge_compress_cells(told.cache, &of), asked ? WNW_OK : WNW_E_NOT_OBSERVED);
            wnw_policy_free(policy);
            test_llama_close(&t);
        }
    free(tokens);
}

/* What is observed from then on is all: what only others had noted takes no memory, and they say that it is gone. */
static void test_what_is_observed_no_more(void **state)
{
    static const char *const others[] = {"replay", "h2o", "expected_attention", "snapkv:window=16"};
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct test_llama t;
        struct told told;
        int32_t *tokens = test_random_tokens(N_LONG, 250, 8);
        wnw_policy *policy = test_policy(others[i]), *keydiff = test_policy("keydiff");
        const wnw_size size = size_budget(N_KEPT);
        opened(&t, &told);
        assert_ok(wnw_bridge_observe(told.cache, "keydiff"));
        assert_ok(wnw_bridge_observe(told.cache, others[i]));
        test_llama_decode(&t, 0, 0, tokens, N_LONG, NULL);
        assert_ok(wnw_bridge_unobserve(told.cache));
        assert_ok(wnw_bridge_observe(told.cache, "keydiff"));
        test_llama_decode(&t, 0, N_LONG, tokens, 1, NULL);
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(told.cache, 0, &l));
        assert_int_equal(l.query_bytes, 0);
        assert_int_equal(l.query_numbers, 4 * 32);
        assert_int_equal(count_pages(told.cache), 0);
        wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of), .n_cells = N_LONG, .cells = told.cell,
                                  .policy = policy, .size = &size};
        assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_NOT_OBSERVED);
        of.policy = keydiff;
        assert_ok(wnw_bridge_compress_cells(told.cache, &of));
        /* A prompt that is read once it is observed again is judged by it. */
        assert_ok(wnw_bridge_observe(told.cache, others[i]));
        assert_true(llama_memory_seq_rm(llama_get_memory(t.ctx), 0, -1, -1));
        assert_ok(wnw_bridge_forget(told.cache, told.cell, told.n));
        told.n = 0;
        test_llama_decode(&t, 1, 0, tokens, N_LONG - 20, NULL);
        of.policy = policy;
        of.n_cells = N_LONG - 20;
        assert_ok(wnw_bridge_compress_cells(told.cache, &of));
        wnw_policy_free(policy);
        wnw_policy_free(keydiff);
        free(tokens);
        test_llama_close(&t);
    }
}

/* Entries of all layers of the cache with windows, or of the other one. */
static int64_t count_all(const wnw_bridge *cache, bool sliding)
{
    int64_t n = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        n += (l.sliding != 0) == sliding ? l.n_entries : 0;
    }
    return n;
}

/* Layers with windows give back what they hold of tokens whose cells are freed, wherever it lies; what came from a state goes with the
 * last token. */
static void test_windows_are_freed(void **state)
{
    (void)state;
    for (int windows = 0; windows < 2; windows++) {
        struct test_llama t;
        struct told told = {.ask = -1};
        char path[4096];
        int32_t own[2][N], *tokens = test_random_tokens(N, 250, 5);
        test_model_path(path, sizeof path, "tiny/tiny-gemma3.gguf");
        test_llama_open(
            &t, path,
            &(struct test_llama_params){.ours = true, .n_ctx = N_CTX, .n_seq = 2, .windows = windows != 0});
        assert_ok(wnw_bridge_find(&told.cache, llama_synchronize, t.ctx));
        assert_ok(wnw_bridge_tell_rows(told.cache, keep, &told));
        llama_memory_t mem = llama_get_memory(t.ctx);
        read_both(&t, &told, own);
        const int64_t both = count_all(told.cache, true), each = count_all(told.cache, false) / (N + OTHER);
        assert_true(both > 0 && each > 0);
        assert_true(llama_memory_seq_rm(mem, 1, -1, -1));
        assert_ok(wnw_bridge_forget(told.cache, own[1], OTHER));
        const int64_t one = count_all(told.cache, true);
        assert_int_equal(count_all(told.cache, false), each * N);
        assert_true(one < both);
        /* The first sequence comes back from a state, after which nobody knows where its tokens are; others are freed without it. */
        size_t bytes;
        uint8_t *saved = test_llama_state(&t, &bytes);
        assert_true(llama_memory_seq_rm(mem, 0, -1, -1));
        assert_ok(wnw_bridge_forget(told.cache, own[0], N));
        assert_int_equal(count_all(told.cache, true) + count_all(told.cache, false), 0);
        assert_int_equal(llama_state_seq_set_data(t.ctx, saved, bytes, 0), bytes);
        const int64_t loaded = count_all(told.cache, true);
        told.n = 0;
        test_llama_decode(&t, 1, 0, tokens, 30, NULL);
        assert_true(count_all(told.cache, true) > loaded);
        assert_true(llama_memory_seq_rm(mem, 1, -1, -1));
        assert_ok(wnw_bridge_forget(told.cache, told.cell, 30));
        assert_int_equal(count_all(told.cache, true), loaded);
        float *logits = malloc((size_t)t.n_vocab * sizeof *logits);
        assert_non_null(logits);
        test_llama_decode(&t, 0, N, tokens, 1, logits);
        assert_true(logits[0] - logits[0] == 0.0f);
        assert_true(llama_memory_seq_rm(mem, 0, -1, -1));
        int32_t all[N_CTX];
        for (int32_t i = 0; i < N_CTX; i++)
            all[i] = i;
        assert_ok(wnw_bridge_forget(told.cache, all, N_CTX));
        assert_int_equal(count_all(told.cache, true) + count_all(told.cache, false), 0);
        free(logits);
        free(saved);
        free(tokens);
        test_llama_close(&t);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    struct test_llama t;
    struct told told;
    const int32_t beyond = N_CTX;
    wnw_policy *policy = test_policy("keydiff");
    opened(&t, &told);
    wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of), .n_cells = 1, .cells = &beyond,
                              .policy = policy};
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_RANGE);
    assert_says("cell 512 of a cache with 512");
    assert_error(wnw_bridge_forget(told.cache, &beyond, 1), WNW_E_RANGE);
    assert_error(wnw_bridge_forget_queries(told.cache, &beyond, 1), WNW_E_RANGE);
    assert_error(wnw_bridge_forget_queries(NULL, &beyond, 1), WNW_E_ARG);
    assert_error(wnw_bridge_skip_query(NULL, 0), WNW_E_ARG);
    assert_ok(wnw_bridge_skip_query(told.cache, 7)); /* of no graph: nothing */
    of.n_cells = of.n_prefix = 1;
    of.cells = &(int32_t){0};
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_ARG);
    assert_says("1 of them of a header");
    of.n_prefix = 0;
    of.n_cells = 0;
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_ARG);
    of.prefix = of.cells;
    of.n_prefix = 1;
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_ARG);
    assert_says("0 cells are named, and 1 others of a header");
    of.n_cells = 1;
    of.n_prefix = -1;
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_ARG);
    of.n_prefix = INT32_MAX;
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_ARG);
    of.n_prefix = 1;
    of.prefix = &beyond;
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_RANGE);
    of.policy = NULL;
    assert_error(wnw_bridge_compress_cells(told.cache, &of), WNW_E_ARG);
    assert_error(wnw_bridge_observe(NULL, "keydiff"), WNW_E_ARG);
    assert_error(wnw_bridge_unobserve(NULL), WNW_E_ARG);
    assert_error(wnw_bridge_observe(told.cache, "kvzip"), WNW_E_UNSUPPORTED);
    assert_error(wnw_bridge_observe(told.cache, "snapvk"), WNW_E_ARG);
    assert_error(wnw_bridge_observe(told.cache, NULL), WNW_E_ARG);
    assert_error(wnw_bridge_tell_rows(NULL, keep, NULL), WNW_E_ARG);
    assert_error(wnw_bridge_forget(NULL, &beyond, 1), WNW_E_ARG);
    wnw_policy_free(policy);
    test_llama_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_and_what_they_see),
        cmocka_unit_test(test_named_cells_are_compressed_and_freed),
        cmocka_unit_test(test_tight),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_header_apart),
        cmocka_unit_test(test_queries_go),
        cmocka_unit_test(test_rounded_queries_are_for_who_takes_them),
        cmocka_unit_test(test_what_is_observed_no_more),
        cmocka_unit_test(test_windows_are_freed),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
