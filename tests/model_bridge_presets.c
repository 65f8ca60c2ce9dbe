/* SPDX-License-Identifier: MIT */
/*
 * Every preset under libllama: it keeps what it keeps in a session of ours on the same prompt, and what is written into
 * entries that stay is the same, or it is refused with a sentence.
 */
#include "helpers.h"
#include "llamas.h"
#include "peek_bridge.h"
#include "peek_plan.h"
#include "profiles.h"
#include "winnow_bridge.h"

#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 300, N_FIRST = 130, MAX_CELLS = 512, BUDGET = 190 };

/* What cannot be had from nodes. */
static const struct {
    uint32_t need;
    const char *says;
} missing[] = {{WNW_NEED_SECOND_PASS, "second time"}, {WNW_NEED_PERPLEXITY, "logits of few tokens"}};

struct fixture {
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
    const wnw_size size = size_budget(BUDGET);
    wnw_session *s = test_session_new(
        f->model, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = MAX_CELLS, .n_threads = 1});
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy, .profile = f->profile};
    wnw_plan *plan = NULL;
    assert_ok(wnw_session_begin(s, &run));
    test_prefill(s, f->tokens, N_PROMPT);
    *rc = wnw_session_plan(s, policy, &size, &plan, NULL);
    if (*rc == WNW_OK) {
        assert_ok(wnw_session_apply(s, plan, NULL));
        assert_ok(wnw_session_decode(s, f->tokens[N_PROMPT]));
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
    for (int32_t i = 0; i < wnw_bridge_n_layers(cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        assert_ok(wnw_bridge_get_layer(cache, i, &l));
        if (wnw_model_layer_is_swa(f->model, l.layer)) {
            assert_int_equal(l.n_entries, (int64_t)l.n_heads * N_PROMPT);
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

static void read_prompt(struct test_llama *t, const int32_t *tokens)
{
    test_llama_decode(t, 0, 0, tokens, N_FIRST, NULL);
    test_llama_decode(t, 0, N_FIRST, tokens + N_FIRST, N_PROMPT - N_FIRST, NULL);
}

/* Compresses under libllama as the plan says, and compares what comes next. */
static void check_works(struct fixture *f, const char *name, struct test_llama *t, wnw_bridge *cache,
                        const wnw_plan *plan, const float *want)
{
    float *got = malloc((size_t)t->n_vocab * sizeof *got);
    assert_non_null(got);
    if (wnw_bridge_compress(cache) != WNW_OK)
        fail_msg("%s: %s", name, wnw_last_error());
    const struct overlap o = compare(f, plan, cache);
    test_llama_decode(t, 0, N_PROMPT, f->tokens + N_PROMPT, 1, got);
    const double d = test_nmse(got, want, t->n_vocab);
    print_message("  %s: %lld of %lld kept entries are the same, logits %.1g\n", name, (long long)o.same,
                  (long long)o.n, d);
    assert_cmp((double)o.same, >=, 0.995 * (double)o.n);
    if (o.same == o.n)
        assert_cmp(d, <=, 1e-7);
    f->n_same++;
    free(got);
}

static void check_preset(struct fixture *f, const char *name)
{
    const wnw_size size = size_budget(BUDGET);
    wnw_policy *policy = test_policy(name);
    struct test_llama t;
    wnw_bridge *cache;
    float *logits = malloc((size_t)f->llama.n_vocab * sizeof *logits);
    int rc;
    assert_non_null(logits);
    test_llama_share(
        &t, &f->llama,
        &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = MAX_CELLS, .n_threads = 1});
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
        read_prompt(&t, f->tokens);
        if (rc == WNW_OK) {
            check_works(f, name, &t, cache, plan, logits);
        } else {
            print_message("  %s: in a session: %s\n", name, wnw_last_error());
            assert_error(wnw_bridge_compress(cache), rc);
            test_llama_decode(&t, 0, N_PROMPT, f->tokens + N_PROMPT, 1, NULL);
            f->n_failed++;
        }
        wnw_plan_free(plan);
    }
    ((struct wnw__bridge_backend *)(void *)cache)->watch.profile = NULL;
    test_llama_close_ctx(&t);
    wnw_policy_free(policy);
    free(logits);
}

/* ---- All of them ---- */

static void check_family(const char *model)
{
    char path[4096];
    struct fixture f = {.model = test_model_open(model), .tokens = test_random_tokens(N_PROMPT + 1, 250, 3)};
    wnw_method_info info = wnw_method_info_default();
    f.profile = test_profile_of_all_kinds(f.model);
    test_model_path(path, sizeof path, model);
    test_llama_open(&f.llama, path, &(struct test_llama_params){.ours = true, .f32 = true, .n_ctx = 256});
    print_message("%s\n", model);
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        if (strcmp(info.kind, "preset") == 0 || strcmp(info.kind, "parity preset") == 0)
            check_preset(&f, info.name);
    print_message("%s: %d presets work, %d are refused, %d fail as in a session\n", model, f.n_same,
                  f.n_refused, f.n_failed);
    assert_cmp(f.n_same, >, 2 * (f.n_refused + f.n_failed));
    test_llama_close(&f.llama);
    wnw_profile_free(f.profile);
    wnw_model_free(f.model);
    free(f.tokens);
}

static void test_llama_family(void **state)
{
    (void)state;
    check_family("tiny/tiny-llama.gguf");
}

static void test_qwen2(void **state)
{
    (void)state;
    check_family("tiny/tiny-qwen2-f32.gguf");
}

static void test_qwen3(void **state)
{
    (void)state;
    check_family("tiny/tiny-qwen3-f32.gguf");
}

static void test_gemma3(void **state)
{
    (void)state;
    check_family("tiny/tiny-gemma3-f32.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama_family), cmocka_unit_test(test_qwen2),
                                       cmocka_unit_test(test_qwen3), cmocka_unit_test(test_gemma3)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
