/* SPDX-License-Identifier: MIT */
/*
 * Policies on WINNOW0, here around the CPU. Every preset keeps what it keeps in a session on the same prompt, or it is refused with a
 * sentence. Both are tried: the host reads the other device's memory, or all that it looks at is copied, as from a GPU.
 */
#include "cuts.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "peek_wrap.h"
#include "profiles.h"
#include "rounding.h"
#include "winnow_bridge.h"
#include "winnow_calibrate.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

enum { N_CTX = 512, N_PROMPT = 300, N_FIRST = 130, BUDGET = 190 };

/* ---- Another device's memory ---- */

static bool copies;
static bool strict; /* around a device with the rules of a GPU in place of the CPU */

bool __real_ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer);
bool __wrap_ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer);

bool __wrap_ggml_backend_buffer_is_host(ggml_backend_buffer_t buffer)
{
    return !copies && __real_ggml_backend_buffer_is_host(buffer);
}

/* ---- One preset ---- */

struct fixture {
    wnw_model *model;
    wnw_profile *profile;
    struct test_llama llama, there; /* its model, on WINNOW0 and on WINNOW */
    int32_t *tokens;
    int n_same, n_refused;
};

/* What cannot be had: of the backend, and of a wrapped device. */
static const char *why_missing(const wnw_policy *policy)
{
    const uint32_t flags = wnw_policy_needs(policy).flags;
    return flags & WNW_NEED_SECOND_PASS   ? "second time"
           : flags & WNW_NEED_PERPLEXITY  ? "logits of few tokens"
           : flags & WNW_NEED_LOOKAHEAD   ? "tokens to come"
           : flags & WNW_NEED_ATTN_MAX    ? "cannot be had on WINNOW0"
           : wnw_policy_rerotates(policy) ? "positions are libllama's"
                                          : NULL;
}

/* The cells that are left are what the plan keeps, head by head; layers with windows keep all. */
static void check_cells(const wnw_bridge *cache, const struct test_cuts *kept)
{
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        const int32_t k = test_cuts_number(kept, l.layer);
        for (int32_t ih = 0; ih < l.n_heads; ih++) {
            int32_t has[N_CTX], want[N_CTX], n;
            assert_ok(wnw_bridge_cells(cache, i, 0, ih, has, N_CTX, &n));
            assert_int_equal(n, k < 0 ? N_PROMPT : test_cuts_head(kept, k, ih, want));
            if (k >= 0)
                assert_memory_equal(has, want, (size_t)n * sizeof *has);
        }
    }
}

static void read_prompt(const struct fixture *f, struct test_llama *t)
{
    test_llama_decode(t, 0, 0, f->tokens, N_FIRST, NULL);
    test_llama_decode(t, 0, N_FIRST, f->tokens + N_FIRST, N_PROMPT - N_FIRST, NULL);
}

/* Gates on hidden states are products on a device with memory of its own; else the host evaluates them. */
static void check_gates(const struct wnw__bridge_backend *b)
{
    if (b->watch.policy && (b->watch.needs.flags & WNW_NEED_INPUT_GATE))
        assert_int_equal(b->wrap->gates_on_x, strict);
}

/* Logits of the token after the prompt on one of our devices, after a policy has acted; rc: whether it could. */
static struct test_cuts *compress(struct fixture *f, const char *device, const char *name, float *logits,
                                  int *rc, bool check)
{
    const wnw_size size = size_budget(BUDGET);
    struct test_llama t;
    wnw_bridge *cache;
    test_llama_share(&t, device ? &f->llama : &f->there,
                     &(struct test_llama_params){
                         .ours = true, .device = device, .flash = true, .n_ctx = N_CTX, .n_threads = 1});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    ((struct wnw__bridge_backend *)(void *)cache)->watch.profile = f->profile; /* as if from a file */
    struct test_cuts *kept = NULL;
    *rc = wnw_bridge_set_policy(cache, name, &size, false);
    if (*rc == WNW_OK) {
        read_prompt(f, &t);
        if (device)
            check_gates((const void *)cache);
        kept = test_cuts_note();
        *rc = wnw_bridge_compress(cache);
        test_cuts_stop();
        if (*rc == WNW_OK && check)
            check_cells(cache, kept);
        test_llama_decode(&t, 0, N_PROMPT, f->tokens + N_PROMPT, 1, logits);
        if (*rc == WNW_OK && check) { /* a plan that was made once more would be of other cells */
            wnw_bridge_layer l = wnw_bridge_layer_default();
            assert_ok(wnw_bridge_get_layer(cache, 0, &l));
            assert_cmp(l.n_entries, >, 0);
        }
    }
    ((struct wnw__bridge_backend *)(void *)cache)->watch.profile = NULL;
    test_llama_close_ctx(&t);
    return kept;
}

static void check_preset(struct fixture *f, const char *name)
{
    wnw_policy *policy = test_policy(name);
    const char *why = why_missing(policy);
    const size_t n = (size_t)f->llama.n_vocab;
    float *got = malloc(2 * n * sizeof *got), *want = got + n;
    int rc;
    assert_non_null(got);
    struct test_cuts *kept = compress(f, "WINNOW0", name, got, &rc, true);
    char said[256];
    snprintf(said, sizeof said, "%s", wnw_last_error());
    if (why) {
        assert_error(rc, WNW_E_UNSUPPORTED);
        if (!strstr(said, why))
            fail_msg("%s: %s", name, said);
        f->n_refused++;
    } else if (rc != WNW_OK) { /* where the device WINNOW says the same */
        print_message("  %s: %s\n", name, said);
        int there;
        test_cuts_free(compress(f, NULL, name, want, &there, false));
        assert_int_equal(there, rc);
        f->n_refused++;
    } else {
        test_session_keeps_as(
            name,
            &(struct test_keep){.m = f->model,
                                .want = {.kv_type = WNW_KV_F16, .n_ctx = N_CTX, .n_threads = 1},
                                .run = {WNW_INIT(wnw_run), .policy = policy, .profile = f->profile},
                                .size = size_budget(BUDGET),
                                .tokens = f->tokens,
                                .n = N_PROMPT},
            kept);
        f->n_same++;
    }
    test_cuts_free(kept);
    wnw_policy_free(policy);
    free(got);
}

static void open_fixture(struct fixture *f, const char *model)
{
    char path[4096];
    *f = (struct fixture){.model = test_model_open(model)};
    f->tokens = test_random_tokens(N_PROMPT + 40, 250, 3);
    f->profile = test_profile_of_all_kinds(f->model);
    test_model_path(path, sizeof path, model);
    test_llama_open(
        &f->llama, path,
        &(struct test_llama_params){.ours = true, .device = "WINNOW0", .flash = true, .n_ctx = 256});
    test_llama_open(&f->there, path, &(struct test_llama_params){.ours = true, .flash = true, .n_ctx = 256});
}

static void close_fixture(struct fixture *f)
{
    test_llama_close(&f->llama);
    test_llama_close(&f->there);
    wnw_profile_free(f->profile);
    wnw_model_free(f->model);
    free(f->tokens);
}

/* Every preset with the model. In repetitions with other kernels or on another device it is every third one, which are others for each of
 * the three models: they reach all of them through the same graphs. */
static void check_presets(const char *model, int nth, bool copied)
{
    struct fixture f;
    wnw_method_info info = wnw_method_info_default();
    open_fixture(&f, model);
    const bool again = strict || test_other_kernels();
    copies = copied;
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        if ((strcmp(info.kind, "preset") == 0 || strcmp(info.kind, "parity preset") == 0) &&
            (!again || i % 3 == nth))
            check_preset(&f, info.name);
    copies = false;
    print_message("%s: %d presets work, %d do not\n", model, f.n_same, f.n_refused);
    if (!again)
        assert_cmp(f.n_same, >, f.n_refused);
    close_fixture(&f);
}

static void test_llama_family(void **state)
{
    (void)state;
    check_presets("tiny/tiny-llama.gguf", 0, false);
}

static void test_qwen3_copied(void **state)
{
    (void)state;
    check_presets("tiny/tiny-qwen3-f32.gguf", 1, true);
}

static void test_gemma3(void **state)
{
    (void)state;
    check_presets("tiny/tiny-gemma3-f32.gguf", 2, false);
}

/* ---- What is written into entries that stay ---- */

/* Logits after a preset, and whether all heads keep the same cells as `like`, which is released. */
static float *logits_after(struct fixture *f, const char *device, const char *name, struct test_cuts **like,
                           bool *same)
{
    float *logits = malloc((size_t)f->llama.n_vocab * sizeof *logits);
    int rc;
    assert_non_null(logits);
    struct test_cuts *kept = compress(f, device, name, logits, &rc, false);
    assert_ok(rc);
    *same = *like && test_cuts_same(*like, kept);
    test_cuts_free(*like);
    *like = kept;
    return logits;
}

static void test_contents(void **state)
{
    static const char *const names[] = {"snapkv-merge", "snapkv-think"};
    (void)state;
    struct fixture f;
    open_fixture(&f, "tiny/tiny-llama.gguf");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct test_cuts *kept = NULL;
        bool same;
        float *plain = logits_after(&f, "WINNOW0", "snapkv", &kept, &same);
        float *written = logits_after(&f, "WINNOW0", names[i], &kept, &same);
        assert_true(same);
        float *there = logits_after(&f, NULL, names[i], &kept, &same);
        assert_cmp(test_nmse(written, plain, f.llama.n_vocab), >, 0.0);
        if (same)
            assert_cmp(test_nmse(written, there, f.llama.n_vocab), <=, test_nmse_most(1e-4));
        test_cuts_free(kept);
        free(plain);
        free(written);
        free(there);
    }
    close_fixture(&f);
}

/* ---- When ---- */

static int64_t entries_of_head(struct test_llama *t)
{
    wnw_bridge *cache;
    wnw_bridge_layer l = wnw_bridge_layer_default();
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    assert_ok(wnw_bridge_get_layer(cache, 0, &l));
    return l.n_entries / l.n_heads;
}

/* By itself, when a prompt has ended; again when a second prompt came after it; and of one sequence of two alone. */
static void by_itself(const char *recipe, bool streams)
{
    char path[4096];
    struct test_llama t;
    int32_t *tokens = test_random_tokens(1024, 250, 9);
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    setenv("WINNOW_POLICY", recipe, 1);
    setenv("WINNOW_BUDGET", "80", 1);
    test_llama_open(
        &t, path,
        &(struct test_llama_params){
            .ours = true, .device = "WINNOW0", .flash = true, .n_ctx = 2048, .n_seq = 2, .streams = streams});
    unsetenv("WINNOW_POLICY");
    unsetenv("WINNOW_BUDGET");
    test_llama_decode(&t, 0, 0, tokens, 300, NULL);
    assert_int_equal(entries_of_head(&t), 300);
    test_llama_decode(&t, 0, 300, tokens + 300, 1, NULL);
    assert_int_equal(entries_of_head(&t), 301);
    test_llama_decode(&t, 0, 301, tokens + 301, 1, NULL);
    const int64_t once = entries_of_head(&t);
    assert_cmp(once, <=, 80 + 2);
    test_llama_decode(&t, 1, 0, tokens, 40, NULL); /* too short to be compressed */
    test_llama_decode(&t, 1, 40, tokens + 40, 1, NULL);
    test_llama_decode(&t, 1, 41, tokens + 41, 1, NULL);
    assert_int_equal(entries_of_head(&t), once + 42);
    test_llama_decode(&t, 0, 302, tokens + 302, 200, NULL);
    test_llama_decode(&t, 0, 502, tokens + 502, 1, NULL);
    test_llama_decode(&t, 0, 503, tokens + 503, 1, NULL);
    assert_cmp(entries_of_head(&t), <=, 80 + 2 + 42);
    llama_memory_clear(llama_get_memory(t.ctx), true);
    assert_int_equal(entries_of_head(&t), 0);
    test_llama_close(&t);
    free(tokens);
}

static void test_by_itself(void **state)
{
    static const char *const recipes[] = {"snapkv", "keydiff", "expected_attention"};
    (void)state;
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
            copies = round % 2;
            by_itself(recipes[i], round >= 2);
            copies = false;
        }
}

/* In chunks on wrapped devices, from the environment: two sequences in turn, so that their batches do not follow each other. */
static void test_chunks(void **state)
{
    static const char *const recipes[] = {"snapkv", "keydiff", "lagkv:lag=16,sink=4"};
    char path[4096];
    int32_t *tokens = test_random_tokens(1024, 250, 9);
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    for (size_t i = 0; i < 2 * sizeof recipes / sizeof *recipes; i++) {
        struct test_llama t;
        copies = i % 2;
        setenv("WINNOW_POLICY", recipes[i / 2], 1);
        setenv("WINNOW_BUDGET", "80", 1);
        setenv("WINNOW_EVICT", "chunk:200", 1);
        test_llama_open(&t, path,
                        &(struct test_llama_params){
                            .ours = true, .device = "WINNOW0", .flash = true, .n_ctx = 2048, .n_seq = 2});
        unsetenv("WINNOW_POLICY");
        unsetenv("WINNOW_BUDGET");
        unsetenv("WINNOW_EVICT");
        for (int32_t at = 0; at < 600; at += 100) {
            test_llama_decode(&t, 0, at, tokens + at, 100, NULL);
            test_llama_decode(&t, 1, at, tokens + 300 + at % 300, 100, NULL);
            assert_cmp(entries_of_head(&t), <=, 2 * (80 + 200 + 2 * 16)); /* lagkv keeps two blocks more */
        }
        assert_cmp(entries_of_head(&t), >, 2 * 60);
        test_llama_close(&t);
        copies = false;
    }
    free(tokens);
}

/* A recursive policy notes what it has settled: a second turn leaves that alone. */
static void test_settled(void **state)
{
    (void)state;
    char path[4096];
    struct test_llama t;
    wnw_bridge *cache;
    int32_t *tokens = test_random_tokens(1024, 250, 9), before[1024], after[1024], n_before, n_after;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(
        &t, path,
        &(struct test_llama_params){.ours = true, .device = "WINNOW0", .flash = true, .n_ctx = 2048});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    assert_ok(wnw_bridge_set_policy(cache, "lagkv:lag=32,sink=4", &half, false));
    test_llama_decode(&t, 0, 0, tokens, 260, NULL);
    assert_ok(wnw_bridge_compress(cache));
    assert_ok(wnw_bridge_cells(cache, 0, 0, 0, before, 1024, &n_before));
    assert_cmp(n_before, <, 200);
    test_llama_decode(&t, 0, 260, tokens + 260, 200, NULL);
    assert_ok(wnw_bridge_compress(cache));
    assert_ok(wnw_bridge_cells(cache, 0, 0, 0, after, 1024, &n_after));
    assert_cmp(n_after, <, n_before + 200);
    /* All but the last two blocks of the first turn were settled. */
    const int32_t settled = n_before - 2 * 32 - 4;
    assert_cmp(settled, >, 32);
    assert_memory_equal(before, after, (size_t)settled * sizeof *before);
    test_llama_close(&t);
    free(tokens);
}

/* ---- Sums of attention ---- */

enum { N_SUM = 40 };

/* The last layer that sees the whole text. */
static int32_t whole_layer(const wnw_bridge *cache, const struct wnw__bridge_layer **out)
{
    const struct wnw__bridge_backend *b = (const struct wnw__bridge_backend *)(const void *)cache;
    int32_t i = 0, found = -1;
    for (int32_t c = 0; c < b->n_cache; c++)
        for (int32_t k = 0; k < b->caches[c]->n_layer; k++, i++) {
            wnw_bridge_layer l = wnw_bridge_layer_default();
            assert_ok(wnw_bridge_get_layer(cache, i, &l));
            if (l.sliding)
                continue;
            found = i;
            *out = b->caches[c]->layers[k];
        }
    assert_true(found >= 0);
    return found;
}

/* What a head's entries of a stream have received, by their cells. */
static void sums_of(const struct test_llama *t, bool wrapped, int32_t stream, int32_t head, float *sum)
{
    wnw_bridge *cache;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    const struct wnw__bridge_layer *l = NULL;
    (void)whole_layer(cache, &l);
    const int32_t group = l->info.n_head / l->n_head, own = stream * l->n_head + head / group;
    const struct wnw__kv_layer *kv = l->wrap ? NULL : &l->rows.layers[0];
    assert_true(!l->wrap == !wrapped);
    memset(sum, 0, N_CTX * sizeof *sum);
    for (int32_t e = 0; kv && e < kv->len[own]; e++)
        sum[kv->pos[kv->off[own] + e]] = wnw__cache_aux(kv, WNW_AUX_ATTN_SUM, head % group)[kv->off[own] + e];
    if (kv)
        return;
    const struct wnw__wrap_head *h = &l->wrap->heads[own];
    assert_non_null(l->wrap->sums);
    for (int32_t e = 0; e < h->n; e++)
        sum[h->cell[e]] = l->wrap->sums[((int64_t)stream * l->k.n_cell + h->cell[e]) * l->info.n_head + head];
}

/* Drops some entries of one head, and others of the next one. */
static void drop_some(const struct test_llama *t, int32_t n_stream)
{
    wnw_bridge *cache;
    const struct wnw__bridge_layer *l = NULL;
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t->ctx));
    const int32_t i_layer = whole_layer(cache, &l), n_head = l->n_head < 2 ? l->n_head : 2;
    for (int32_t stream = 0; stream < n_stream; stream++)
        for (int32_t head = 0; head < n_head; head++) {
            int32_t out[30];
            for (int32_t i = 0; i < 30; i++)
                out[i] = 10 + head + 3 * i;
            assert_ok(wnw_bridge_drop(cache, i_layer, stream, head, out, 30 - 7 * head));
        }
}

/* A prompt for each of two sequences, and tokens one by one for both at once, before and after entries were dropped. */
static float *sums_after(struct fixture *f, const char *device, bool streams, int32_t *n_head)
{
    const wnw_size size = size_budget(BUDGET);
    struct test_llama t;
    wnw_bridge *cache;
    test_llama_share(&t, device ? &f->llama : &f->there,
                     &(struct test_llama_params){.ours = true,
                                                 .device = device,
                                                 .flash = true,
                                                 .n_ctx = streams ? 2 * N_CTX : N_CTX,
                                                 .n_seq = 2,
                                                 .streams = streams,
                                                 .n_threads = 1});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    assert_ok(wnw_bridge_set_policy(cache, "h2o", &size, false));
    test_llama_decode(&t, 0, 0, f->tokens, N_FIRST, NULL);
    test_llama_decode(&t, 1, 0, f->tokens + 7, 90, NULL);
    for (int32_t i = 0; i < 10; i++) {
        test_llama_decode(&t, 0, N_FIRST + i, f->tokens + N_FIRST + i, 1, NULL);
        test_llama_decode(&t, 1, 90 + i, f->tokens + 90 + i, 1, NULL);
    }
    drop_some(&t, streams ? 2 : 1);
    for (int32_t i = 0; i < 10; i++)
        test_llama_decode(&t, 0, N_FIRST + 10 + i, f->tokens + i, 1, NULL);
    test_llama_decode(&t, 1, 100, f->tokens, N_SUM, NULL);
    const int32_t n_stream = streams ? 2 : 1;
    const struct wnw__bridge_layer *l = NULL;
    (void)whole_layer(cache, &l);
    *n_head = l->info.n_head;
    float *sum = malloc((size_t)n_stream * (size_t)*n_head * N_CTX * sizeof *sum);
    assert_non_null(sum);
    for (int32_t i = 0; i < n_stream * *n_head; i++)
        sums_of(&t, device != NULL, i / *n_head, i % *n_head, sum + (size_t)i * N_CTX);
    test_llama_close_ctx(&t);
    return sum;
}

/* They are those of the device WINNOW, but for rounding: a row of queries that is left out is a hundredth of them. */
static void test_sums(void **state)
{
    static const char *const models[] = {"tiny/tiny-llama.gguf", "tiny/tiny-qwen3-f32.gguf",
                                         "tiny/tiny-gemma3-f32.gguf"};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof models / sizeof *models; i++) {
        struct fixture f;
        int32_t n_head;
        open_fixture(&f, models[i / 2]);
        float *want = sums_after(&f, NULL, i % 2, &n_head);
        copies = i % 2;
        float *got = sums_after(&f, "WINNOW0", i % 2, &n_head);
        copies = false;
        const int32_t n = (i % 2 ? 2 : 1) * n_head * N_CTX;
        double all = 0.0;
        for (int32_t k = 0; k < n; k++)
            all += (double)want[k];
        assert_true(all > 10.0 * n_head);
        const double error = test_nmse(got, want, n);
        print_message("%s: sums of attention, NMSE %.1e\n", models[i / 2], error);
        assert_cmp(error, <=, test_nmse_most(1e-3));
        free(want);
        free(got);
        close_fixture(&f);
    }
}

int main(int argc, char **argv)
{
    strict = argc > 1 && strcmp(argv[1], "strict") == 0;
    setenv("WINNOW_GGML_MODULES", strict ? WNW_TEST_STRICT_DEVICE : "", 1);
    assert_ok(wnw_bridge_wrap(strict ? "STRICT0" : "CPU"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_family), cmocka_unit_test(test_qwen3_copied),
        cmocka_unit_test(test_gemma3),       cmocka_unit_test(test_contents),
        cmocka_unit_test(test_by_itself),    cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_settled),      cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
