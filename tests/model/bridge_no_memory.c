/* SPDX-License-Identifier: MIT */
/*
 * Memory that runs out under libllama at every single allocation of winnow, addresses of a context among them, one run each.
 * libllama says that it cannot, or the sequence stays whole, and nothing leaks. What comes afterwards is as if it had not
 * happened.
 */
#include "failing_alloc.h"
#include "helpers.h"
#include "llamas.h"
#include "winnow_bridge.h"

#include <stdlib.h>
#include <string.h>

enum { N_VOCAB = 256, N_PROMPT = 200, BUDGET = 60, MOST_RUNS = 100000, N_NOTED = 120 };

static int n_addresses,
    n_plain; /* how often it was said that none exist; and no memory for a layer's entries */

static void hear(wnw_log_level level, const char *line, void *user)
{
    (void)level;
    (void)user;
    n_plain += strstr(line, "stays as libllama has it, and whole: no memory") != NULL;
    n_addresses += strstr(line, "no addresses for") && strstr(line, "a smaller context needs fewer") &&
                   strstr(line, "vm.overcommit_memory");
}

struct outcome {
    bool context, read, compressed, decoded, plain; /* plain: a layer stayed as libllama has it */
    float logits[N_VOCAB];                          /* after the last token */
};

static bool decode(struct llama_context *ctx, const int32_t *tokens, int32_t n)
{
    return llama_decode(ctx, llama_batch_get_one((int32_t *)(uintptr_t)tokens, n)) == 0;
}

/* A life of a context: a prompt is read under a policy, compressed and continued. It allocates nothing itself. */
static void live(struct llama_model *model, const char *recipe, const int32_t *tokens, struct outcome *o)
{
    struct llama_context_params c = llama_context_default_params();
    const wnw_size size = size_budget(BUDGET);
    wnw_bridge *cache;
    c.n_ctx = 512;
    c.n_batch = c.n_ubatch = 128;
    c.n_threads = c.n_threads_batch = 2;
    c.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    struct llama_context *ctx = llama_init_from_model(model, c);
    *o = (struct outcome){.context = ctx != NULL};
    if (ctx && wnw_bridge_find(&cache, llama_synchronize, ctx) == WNW_OK &&
        wnw_bridge_set_policy(cache, recipe, &size, false) == WNW_OK) {
        o->read = decode(ctx, tokens, 128) && decode(ctx, tokens + 128, N_PROMPT - 128);
        o->compressed = o->read && wnw_bridge_compress(cache) == WNW_OK;
        o->decoded = o->read && decode(ctx, tokens + N_PROMPT, 1);
    }
    if (o->decoded)
        memcpy(o->logits, llama_get_logits_ith(ctx, 0), sizeof o->logits);
    for (int32_t i = 0; o->decoded && i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        o->plain = o->plain || !l.ragged;
    }
    llama_free(ctx);
}

static void check_recipe(struct llama_model *model, const char *recipe)
{
    int32_t *tokens = test_random_tokens(N_PROMPT + 1, 250, 4);
    struct outcome good, o;
    assert_cmp(llama_vocab_n_tokens(llama_model_get_vocab(model)), >=, N_VOCAB);
    live(model, recipe, tokens, &good);
    int n_no_context = 0, n_unread = 0, n_whole = 0, n_run = 0;
    assert_true(good.compressed && good.decoded);
    n_addresses = n_plain = 0;
    bool more = true;
    for (int64_t n = 1; more; n += n < N_NOTED ? 1 : 1 + n / 16, n_run++) {
        const int64_t before = alloc_live();
        assert_cmp(n, <, MOST_RUNS);
        alloc_arm(n, n % 2 == 0);
        live(model, recipe, tokens, &o);
        const int64_t seen = alloc_disarm();
        more = seen >= n;
        n_no_context += !o.context;
        n_unread += o.context && !o.read;
        n_whole += o.read && !o.compressed;
        if (o.compressed && o.decoded && !o.plain && !(test_nmse(o.logits, good.logits, N_VOCAB) < 1e-8))
            fail_msg("%s, allocation %d of %d fails%s, and what comes is another: %s", recipe, (int)n,
                     (int)seen, n % 2 == 0 ? " and all after it" : "", wnw_last_error());
        if (alloc_live() > before)
            fail_msg("%s, allocation %d of %d fails: %d blocks are left", recipe, (int)n, (int)seen,
                     (int)(alloc_live() - before));
    }
    print_message("%s: of %d runs %d had no context, %d did not read, %d kept all\n", recipe, n_run,
                  n_no_context, n_unread, n_whole);
    assert_cmp(n_no_context, >, 0);
    assert_cmp(n_addresses, >, 0);
    assert_cmp(n_plain, >, 0);
    assert_cmp(n_unread, >, 0);
    assert_cmp(n_whole, >, 0);
    live(model, recipe, tokens, &o);
    assert_true(o.compressed && o.decoded);
    assert_cmp(test_nmse(o.logits, good.logits, N_VOCAB), <, 1e-8);
    free(tokens);
}

static void test_every_allocation(void **state)
{
    static const char *const recipes[] = {"snapkv", "h2o+merge", "expected_attention", "replay"};
    char path[4096];
    struct test_llama t;
    (void)state;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_llama_open(&t, path, &(struct test_llama_params){.ours = true, .n_ctx = 256});
    wnw_set_log(hear, NULL);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        check_recipe(t.model, recipes[i]);
    test_llama_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
