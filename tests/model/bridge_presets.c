/* SPDX-License-Identifier: MIT */
/*
 * Every preset under libllama keeps the same entries as in winnow's own session on the same prompt, and writes the same
 * values into them. Otherwise it is refused with a sentence. Policies of every kind are also run on families that use
 * libllama in both programs.
 */
#include "cuts.h"
#include "generated.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "peek_plan.h"
#include "profiles.h"
#include "rounding.h"
#include "winnow_bridge.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CELLS = 512, MAX_LAYERS = 64 };

/* What cannot be had from nodes. */
static const struct {
    uint32_t need;
    const char *says;
} missing[] = {{WNW_NEED_SECOND_PASS, "second time"},
               {WNW_NEED_PERPLEXITY, "logits of few tokens"},
               {WNW_NEED_LOOKAHEAD, "tokens to come"}};

struct fixture {
    int32_t n_ctx, n_prompt, n_first,
        budget;   /* tokens of a context, of the prompt, of its first batch, entries per head */
    bool foreign; /* sessions have no graphs of the family, and may refuse more */
    wnw_model *model;
    wnw_profile *profile;
    struct test_llama llama; /* its model */
    int32_t *tokens;
    int n_same, n_refused, n_failed;
};

/* ---- Both ways ---- */

/* Logits of the token after the prompt, in a session that has followed the plan; plan is NULL where there is none. */
static wnw_plan *in_session(struct fixture *f, const wnw_policy *policy, float *logits, int *rc)
{
    const wnw_size size = size_budget(f->budget);
    wnw_session *s = test_session_new(
        f->model, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = f->n_ctx, .n_threads = 1});
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy, .profile = f->profile};
    wnw_plan *plan = NULL;
    *rc = wnw_session_begin(s, &run);
    if (*rc != WNW_OK && f->foreign) {
        wnw_session_free(s);
        return NULL;
    }
    assert_ok(*rc);
    *rc = wnw_session_prefill(s, f->tokens, f->n_prompt, NULL, NULL);
    if (*rc != WNW_OK && f->foreign) {
        wnw_session_free(s);
        return NULL;
    }
    assert_ok(*rc);
    *rc = wnw_session_plan(s, policy, &size, &plan, NULL);
    if (*rc == WNW_OK) {
        assert_ok(wnw_session_apply(s, plan, NULL));
        assert_ok(wnw_session_decode(s, f->tokens[f->n_prompt]));
        memcpy(logits, wnw_session_logits(s), (size_t)f->llama.n_vocab * sizeof *logits);
    }
    wnw_session_free(s);
    return plan;
}

struct overlap {
    int64_t same, n;
};

/* Counts kept positions of a head that are cells of the same number: the sequence began in cell 0. */
static void compare_head(const wnw_plan *plan, const wnw_bridge *cache, int32_t i, const wnw_bridge_layer *l,
                         int32_t ih, struct overlap *o)
{
    const int32_t *want;
    int32_t cells[MAX_CELLS], n, at = 0;
    const int32_t n_want = wnw_plan_head(plan, l->layer, ih, &want);
    assert_ok(wnw_bridge_cells(cache, i, 0, ih, cells, MAX_CELLS, &n));
    for (int32_t k = 0; k < n; k++) {
        while (at < n_want && want[at] < cells[k])
            at++;
        o->same += at < n_want && want[at] == cells[k];
    }
    o->n += n > n_want ? n : n_want;
}

/* Layers with a sliding window hold what the model's own window leaves, in both. */
static struct overlap compare(const struct fixture *f, const wnw_plan *plan, const wnw_bridge *cache)
{
    struct overlap o = {0};
    int32_t of_session[MAX_LAYERS], n_layer = 0; /* its layers are those with a cache, in their order */
    for (int32_t il = 0; il < MAX_LAYERS; il++) {
        of_session[il] = n_layer;
        for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
            wnw_bridge_layer l = wnw_bridge_layer_default();
            assert_ok(wnw_bridge_get_layer(cache, i, &l));
            n_layer += l.layer == il;
        }
    }
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        l.layer = of_session[l.layer];
        if (wnw_model_layer_is_swa(f->model, l.layer)) {
            assert_int_equal(l.n_entries, (int64_t)l.n_heads * f->n_prompt);
            continue;
        }
        for (int32_t ih = 0; ih < l.n_heads; ih++)
            compare_head(plan, cache, i, &l, ih, &o);
    }
    return o;
}

/* ---- One preset ---- */

static const char *why_missing(const wnw_policy *policy)
{
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (wnw_policy_needs(policy).flags & missing[i].need)
            return missing[i].says;
    return wnw_policy_rerotates(policy) ? "positions are libllama's" : NULL;
}

static void read_prompt(const struct fixture *f, struct test_llama *t)
{
    test_llama_decode(t, 0, 0, f->tokens, f->n_first, NULL);
    test_llama_decode(t, 0, f->n_first, f->tokens + f->n_first, f->n_prompt - f->n_first, NULL);
}

/* The cells that are left are what the plan of the backend keeps, head by head. */
static void check_cells(const struct fixture *f, const wnw_bridge *cache, const struct test_cuts *kept)
{
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        const int32_t k = test_cuts_number(kept, l.layer);
        for (int32_t ih = 0; ih < l.n_heads; ih++) {
            int32_t has[MAX_CELLS], want[MAX_CELLS], n;
            assert_ok(wnw_bridge_cells(cache, i, 0, ih, has, MAX_CELLS, &n));
            assert_int_equal(n, k < 0 ? f->n_prompt : test_cuts_head(kept, k, ih, want));
            if (k >= 0)
                assert_memory_equal(has, want, (size_t)n * sizeof *has);
        }
    }
}

/* Compares what was kept under libllama with what a session keeps, and what comes next. */
static void check_works(struct fixture *f, const char *name, const wnw_policy *policy, struct test_llama *t,
                        wnw_bridge *cache, const wnw_plan *plan, const float *want,
                        const struct test_cuts *kept)
{
    float *got = malloc((size_t)t->n_vocab * sizeof *got);
    assert_non_null(got);
    const struct overlap o = compare(f, plan, cache);
    if (!f->foreign) /* of others, layers with a cache have numbers of their own */
        check_cells(f, cache, kept);
    test_llama_decode(t, 0, f->n_prompt, f->tokens + f->n_prompt, 1, got);
    const double d = test_nmse(got, want, t->n_vocab);
    print_message("  %s: %lld of %lld kept entries are the same, logits %.1g\n", name, (long long)o.same,
                  (long long)o.n, d);
    if (o.same == o.n)
        assert_cmp(d, <=, test_nmse_most(1e-7));
    else
        test_session_keeps_as(
            name,
            &(struct test_keep){.m = f->model,
                                .want = {.kv_type = WNW_KV_F32, .n_ctx = f->n_ctx, .n_threads = 1},
                                .run = {WNW_INIT(wnw_run), .policy = policy, .profile = f->profile},
                                .size = size_budget(f->budget),
                                .tokens = f->tokens,
                                .n = f->n_prompt},
            kept);
    f->n_same++;
    free(got);
}

static void check_preset(struct fixture *f, const char *name)
{
    const wnw_size size = size_budget(f->budget);
    wnw_policy *policy = test_policy(name);
    struct test_llama t;
    wnw_bridge *cache;
    float *logits = malloc((size_t)f->llama.n_vocab * sizeof *logits);
    int rc;
    assert_non_null(logits);
    test_llama_share(
        &t, &f->llama,
        &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = f->n_ctx, .n_threads = 1});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, t.ctx));
    ((struct wnw__bridge_backend *)(void *)cache)->watch.profile = f->profile; /* as if from a file */
    const char *why = why_missing(policy);
    if (why) {
        assert_error(wnw_bridge_set_policy(cache, name, &size, false), WNW_E_UNSUPPORTED);
        assert_says(why);
        f->n_refused++;
    } else {
        wnw_plan *plan = in_session(f, policy, logits, &rc);
        assert_ok(wnw_bridge_set_policy(cache, name, &size, false));
        read_prompt(f, &t);
        char there[256];
        snprintf(there, sizeof there, "%s", rc == WNW_OK ? "works" : wnw_last_error());
        struct test_cuts *kept = test_cuts_note();
        const int here = wnw_bridge_compress(cache);
        test_cuts_stop();
        if (rc == WNW_OK && here == WNW_OK) {
            check_works(f, name, policy, &t, cache, plan, logits, kept);
        } else {
            print_message("  %s: in a session: %s; here: %s\n", name, there,
                          here == WNW_OK ? "works" : wnw_last_error());
            assert_true(here == rc || (f->foreign && (here == WNW_OK || here == WNW_E_UNSUPPORTED)));
            test_llama_decode(&t, 0, f->n_prompt, f->tokens + f->n_prompt, 1, NULL);
            f->n_failed++;
        }
        test_cuts_free(kept);
        wnw_plan_free(plan);
    }
    ((struct wnw__bridge_backend *)(void *)cache)->watch.profile = NULL;
    test_llama_close_ctx(&t);
    wnw_policy_free(policy);
    free(logits);
}

/* ---- All of them ---- */

/* Presets on every family that has winnow's own graphs: each `of`-th one from the nth on. In repetitions with other kernels it is every
 * fourth one, which are others for each of the four families. */
static void check_family(const char *model, int nth, int of)
{
    char path[4096];
    struct fixture f = {
        .n_ctx = MAX_CELLS, .n_prompt = 300, .n_first = 130, .budget = 190, .model = test_model_open(model)};
    wnw_method_info info = wnw_method_info_default();
    f.tokens = test_random_tokens(f.n_prompt + 1, 250, 3);
    f.profile = test_profile_of_all_kinds(f.model);
    test_model_path(path, sizeof path, model);
    test_llama_open(&f.llama, path, &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = 256});
    of = test_other_kernels() ? 4 : of;
    print_message("%s\n", model);
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        if ((strcmp(info.kind, "preset") == 0 || strcmp(info.kind, "parity preset") == 0) &&
            i % of == nth % of)
            check_preset(&f, info.name);
    print_message("%s: %d presets work, %d are refused, %d fail as in a session\n", model, f.n_same,
                  f.n_refused, f.n_failed);
    if (!test_other_kernels())
        assert_cmp(f.n_same, >, 2 * (f.n_refused + f.n_failed));
    test_llama_close(&f.llama);
    wnw_profile_free(f.profile);
    wnw_model_free(f.model);
    free(f.tokens);
}

/* Policies that need what graphs show, one of each kind. */
static const char *const recipes[] = {"snapkv",
                                      "h2o",
                                      "keydiff",
                                      "vatp",
                                      "lagkv:lag=16,sink=4",
                                      "criticalkv",
                                      "expected_attention",
                                      "replay",
                                      "snapkv-merge",
                                      "snapkv-think",
                                      "kvzap"};

/* A family that runs through libllama both ways; in repetitions with other kernels with every third policy, from the nth on. */
static void check_foreign(const char *path, const char *name, size_t nth)
{
    struct fixture f = {.n_ctx = 128, .n_prompt = 110, .n_first = 50, .budget = 60, .foreign = true};
    assert_ok(wnw_model_open(&f.model, path, NULL));
    f.tokens = test_random_tokens(f.n_prompt + 1, 120, 5);
    f.profile = test_profile_of_all_kinds(f.model);
    test_llama_open(&f.llama, path, &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = 256});
    print_message("%s\n", name);
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
        if (!test_other_kernels() || r % 3 == nth % 3)
            check_preset(&f, recipes[r]);
    print_message("%s: %d policies keep the same, %d do not work\n", name, f.n_same, f.n_failed);
    assert_cmp(f.n_same, >=,
               test_other_kernels() ? 1 : 4); /* what sees keys, values, the window or columns */
    test_llama_close(&f.llama);
    wnw_profile_free(f.profile);
    wnw_model_free(f.model);
    free(f.tokens);
}

static void test_llama_family(void **state)
{
    (void)state;
    check_family("tiny/tiny-llama.gguf", 0, 1);
}

/* Layers of these two are alike but for what is added to queries, or how long they are made: each preset runs with one. */
static void test_qwen2(void **state)
{
    (void)state;
    check_family("tiny/tiny-qwen2-f32.gguf", 1, 2);
}

static void test_qwen3(void **state)
{
    (void)state;
    check_family("tiny/tiny-qwen3-f32.gguf", 2, 2);
}

static void test_gemma3(void **state)
{
    (void)state;
    check_family("tiny/tiny-gemma3-f32.gguf", 3, 1);
}

/* One family of each kind in docs/reference/families.md. phi3 is left out: libllama gives the backend a longer context, in
 * which it rotates phi3's keys by other factors. */
static const char *const generated[] = {
    "qwen3moe-moe",  "internlm2-dense",  "granite-dense",      "smollm3-dense", "olmo2-dense",
    "cohere2-dense", "starcoder2-dense", "gemma2-dense",       "gpt-oss-moe",   "deepseek2-moe",
    "bloom-dense",   "qwen35-dense",     "granitehybrid-dense"};

static void test_generated(void **state)
{
    (void)state;
    struct test_generated g;
    char path[4096];
    test_generate(&g, generated, sizeof generated / sizeof *generated);
    for (size_t i = 0; i < sizeof generated / sizeof *generated; i++) {
        assert_true(test_generated_path(&g, path, sizeof path, generated[i]));
        check_foreign(path, generated[i], i);
    }
    test_generated_remove(&g);
}

/* Where layers share a cache no policy is chosen that looks with the queries of all tokens. */
static void check_automatic(const char *path, bool shares)
{
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    struct fixture f = {.n_prompt = 110, .n_first = 50};
    wnw_bridge *cache;
    f.tokens = test_random_tokens(f.n_prompt + 1, 120, 5);
    test_llama_open(&f.llama, path, &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = 256});
    assert_ok(wnw_bridge_find(&cache, llama_synchronize, f.llama.ctx));
    assert_ok(wnw_bridge_set_policy(cache, "auto", &half, false));
    read_prompt(&f, &f.llama);
    const int64_t before = test_llama_entries(&f.llama);
    assert_ok(wnw_bridge_compress(cache));
    assert_cmp(test_llama_entries(&f.llama), <, before);
    assert_ok(wnw_bridge_set_policy(cache, "replay", &half, false));
    test_llama_decode(&f.llama, 0, f.n_prompt, f.tokens, 60, NULL);
    if (shares)
        assert_error(wnw_bridge_compress(cache), WNW_E_UNSUPPORTED);
    test_llama_close(&f.llama);
    free(f.tokens);
}

/* Layers that read another layer's cache, and layers that have other heads where they slide. */
static void test_shared(void **state)
{
    static const char *const names[] = {"tiny/foreign/gemma3n.gguf", "tiny/foreign/gemma4.gguf",
                                        "tiny/foreign/gemma4-heads.gguf"};
    char path[4096];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        test_model_path(path, sizeof path, names[i]);
        check_foreign(path, names[i], i);
        check_automatic(path, i < 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama_family), cmocka_unit_test(test_qwen2),
                                       cmocka_unit_test(test_qwen3),        cmocka_unit_test(test_gemma3),
                                       cmocka_unit_test(test_generated),    cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
