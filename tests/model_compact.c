/* SPDX-License-Identifier: MIT */
/*
 * What proves compaction right: a cache from which entries were removed must behave like a full cache in
 * which the same entries are hidden by a mask. The reference is a session with ggml's attention that keeps
 * everything and hides (hiding.h); the subject has applied the plan and holds only what is kept.
 *
 * With ggml's attention on both sides the same rows meet the same arithmetic: normalised square error of the
 * logits below 1e-9. Our own attention keeps queries and sums in float32, ggml rounds the query to the type
 * of the keys (f16, or 8 bits for quantised keys). How far that alone sets the two apart is measured on the
 * full cache, where nothing was removed, and compaction must not add to it: at most 4 times as much, as fewer
 * entries average out less of the rounding. An f32 cache has no such rounding, so that there a single wrong
 * entry shows. Every comparison also proves that it can see removed entries at all: without the mask the
 * error must be at least 3 times the tolerance.
 */
#include "helpers.h"
#include "hiding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PROMPT 200
#define N_FIRST  4  /* tokens decoded one by one */
#define N_BLOCK  40 /* then as one prompt, more than a growth block of the cache */
#define N_LAST   2
#define N_AFTER  (N_FIRST + N_BLOCK + N_LAST)

static const wnw_kv_type kv_types[] = {WNW_KV_F32, WNW_KV_F16, WNW_KV_Q8_0, WNW_KV_Q4_0};
#define N_KV_TYPES           (sizeof kv_types / sizeof kv_types[0])
#define NMSE_SAME_ARITHMETIC 1e-9
#define NOISE_FACTOR         4.0

/* One recipe per layout that a plan can have. */
static const struct layout_case {
    const char *layout, *recipe;
} layouts[] = {
    {"uniform", "streaming_llm"},        {"layer", "tova"},          {"composite", "snapkv"},
    {"composite, pyramid", "pyramidkv"}, {"ragged", "snapkv+adakv"},
};
#define N_LAYOUTS ((int)(sizeof layouts / sizeof layouts[0]))

struct trial {
    const wnw_model *model;
    const int32_t *tokens; /* [n_prompt + N_AFTER] */
    int32_t n_prompt;
    wnw_kv_type kv_type;
    wnw_attn attn; /* of the session that compacts */
};

static wnw_session *trial_session(const struct trial *t, wnw_attn attn, const wnw_policy *observe)
{
    wnw_session *s = test_session_new(
        t->model,
        &(struct test_session){.kv_type = t->kv_type, .attn = attn, .n_ctx = t->n_prompt + N_AFTER});
    if (observe)
        assert_ok(test_observe(s, &observe, 1));
    test_prefill(s, t->tokens, t->n_prompt);
    return s;
}

/* ---- Two sessions side by side ---- */

struct block {
    float *logits; /* [N_BLOCK][n_vocab] */
    int32_t n_vocab;
};

static bool keep_logits(int32_t i, const float *logits, void *user)
{
    const struct block *b = user;
    memcpy(b->logits + (size_t)i * (size_t)b->n_vocab, logits, (size_t)b->n_vocab * sizeof *logits);
    return true;
}

static void decode_both(wnw_session *ref, wnw_session *s, const int32_t *tokens, int n, int32_t n_vocab,
                        struct test_diff *d)
{
    for (int i = 0; i < n; i++) {
        assert_ok(wnw_session_decode(ref, tokens[i]));
        assert_ok(wnw_session_decode(s, tokens[i]));
        test_diff_add(d, wnw_session_logits(ref), wnw_session_logits(s), n_vocab);
    }
}

/* Feeds the tokens after the prompt to both and compares all logits. */
static struct test_diff continue_both(const struct trial *t, wnw_session *ref, wnw_session *s)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(t->model, &info));
    const size_t bytes = (size_t)N_BLOCK * (size_t)info.n_vocab * sizeof(float);
    struct block a = {malloc(bytes), info.n_vocab}, b = {malloc(bytes), info.n_vocab};
    assert_non_null(a.logits);
    assert_non_null(b.logits);
    const int32_t *next = t->tokens + t->n_prompt;
    struct test_diff d = {0};
    decode_both(ref, s, next, N_FIRST, info.n_vocab, &d);
    assert_ok(wnw_session_prefill(ref, next + N_FIRST, N_BLOCK, keep_logits, &a));
    assert_ok(wnw_session_prefill(s, next + N_FIRST, N_BLOCK, keep_logits, &b));
    for (size_t i = 0; i < N_BLOCK; i++)
        test_diff_add(&d, a.logits + i * (size_t)info.n_vocab, b.logits + i * (size_t)info.n_vocab,
                      info.n_vocab);
    decode_both(ref, s, next + N_FIRST + N_BLOCK, N_LAST, info.n_vocab, &d);
    free(a.logits);
    free(b.logits);
    assert_int_equal(wnw_session_n_past(s), t->n_prompt + N_AFTER);
    return d;
}

static void assert_holds_plan(const wnw_session *s, const wnw_plan *plan)
{
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++) {
            const int32_t *want = NULL;
            const int32_t n = wnw_plan_head(plan, il, ih, &want);
            assert_int_equal(wnw_cache_n(s, il, ih), n);
            if (n)
                assert_memory_equal(wnw_cache_positions(s, il, ih), want, (size_t)n * sizeof *want);
        }
}

/* Masked and compacted session for one plan; the plan is kept by the caller. */
static struct test_diff run_plan(const struct trial *t, wnw_session *masked, const wnw_plan *plan)
{
    wnw_session *s = trial_session(t, t->attn, NULL);
    assert_ok(wnw_session_apply(s, plan, NULL));
    assert_holds_plan(s, plan);
    assert_int_equal(wnw_session_n_past(s), t->n_prompt);
    test_hide_dropped(masked, plan);
    const struct test_diff d = continue_both(t, masked, s);
    test_hide_end();
    wnw_session_free(s);
    return d;
}

/* The plan of a session like the one that will apply it: which entries a sliding-window layer still holds
 * depends on the attention, and a plan lists them. */
static wnw_plan *make_plan(const struct trial *t, const wnw_policy *policy, double ratio)
{
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = ratio};
    wnw_session *s = trial_session(t, t->attn, policy);
    wnw_plan *plan = NULL;
    assert_ok(wnw_session_plan(s, policy, &size, &plan, NULL));
    wnw_session_free(s);
    return plan;
}

/* Continues a full cache with ggml's attention and a second session that has applied the plan, if any. */
static struct test_diff against_full(const struct trial *t, const wnw_plan *plan)
{
    wnw_session *full = trial_session(t, WNW_ATTN_GGML, NULL), *s = trial_session(t, t->attn, NULL);
    if (plan)
        assert_ok(wnw_session_apply(s, plan, NULL));
    const struct test_diff d = continue_both(t, full, s);
    wnw_session_free(full);
    wnw_session_free(s);
    return d;
}

static double nmse_tolerance(const struct trial *t)
{
    if (t->attn == WNW_ATTN_GGML)
        return NMSE_SAME_ARITHMETIC;
    const struct test_diff noise = against_full(t, NULL);
    const double tol = NOISE_FACTOR * test_diff_nmse(&noise);
    return tol > NMSE_SAME_ARITHMETIC ? tol : NMSE_SAME_ARITHMETIC;
}

/* Both halves of the proof for one plan: equal with the mask, not equal without. 1 if one fails. */
static int check_plan(const char *what, const struct trial *t, wnw_session *masked, const wnw_plan *plan,
                      double tolerance)
{
    const struct test_diff d = run_plan(t, masked, plan), unmasked = against_full(t, plan);
    test_diff_print(what, &d);
    if (d.n != N_AFTER || test_diff_nmse(&d) > tolerance) {
        print_error("%s: normalised error above %g\n", what, tolerance);
        return 1;
    }
    if (test_diff_nmse(&unmasked) < 3 * tolerance) {
        print_error("%s: removing entries changes so little (%g, tolerance %g) that nothing is proved\n",
                    what, test_diff_nmse(&unmasked), tolerance);
        return 1;
    }
    return 0;
}

static int compare_layouts(const wnw_model *m, const int32_t *tokens, wnw_kv_type type, wnw_attn attn)
{
    int bad = 0;
    const struct trial t = {m, tokens, N_PROMPT, type, attn};
    const double tolerance = nmse_tolerance(&t);
    for (int i = 0; i < N_LAYOUTS; i++) {
        char what[128];
        wnw_policy *policy = test_policy(layouts[i].recipe);
        wnw_session *masked = trial_session(&t, WNW_ATTN_GGML, NULL);
        wnw_plan *plan = make_plan(&t, policy, 0.75);
        snprintf(what, sizeof what, "%s %s %s", layouts[i].layout, wnw_kv_type_name(type),
                 attn == WNW_ATTN_OWN ? "own" : "ggml");
        bad += check_plan(what, &t, masked, plan, tolerance);
        wnw_session_free(masked);
        wnw_plan_free(plan);
        wnw_policy_free(policy);
    }
    return bad;
}

static void compaction_equals_masking(const char *arch, wnw_attn attn, size_t n_types)
{
    wnw_model *m = test_tiny_open(arch);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(N_PROMPT + N_AFTER, info.n_vocab, 2);
    int bad = 0;
    for (size_t i = 0; i < n_types; i++)
        bad += compare_layouts(m, tokens, kv_types[i], attn);
    free(tokens);
    wnw_model_free(m);
    assert_int_equal(bad, 0);
}

static void llama_own(void **state)
{
    (void)state;
    compaction_equals_masking("llama", WNW_ATTN_OWN, N_KV_TYPES);
}

static void llama_ggml(void **state)
{
    (void)state;
    compaction_equals_masking("llama", WNW_ATTN_GGML, N_KV_TYPES);
}

/* Layers with a sliding window are left alone beside the one layer that is compacted; its share in the logits
 * is too small to stand out from the rounding of quantised keys. */
static void gemma3_own(void **state)
{
    (void)state;
    compaction_equals_masking("gemma3", WNW_ATTN_OWN, 2);
}

/* ---- A plan that no policy would make ---- */

/* Every head keeps another share of its entries at random: the first none, the last all. */
static wnw_plan *random_plan(const wnw_model_info *info, int32_t n_tokens, uint64_t seed)
{
    const int32_t n_heads = info->n_layer * info->n_head_kv;
    int32_t *n = calloc((size_t)n_heads, sizeof *n);
    int32_t **pos = calloc((size_t)n_heads, sizeof *pos);
    assert_non_null(n);
    assert_non_null(pos);
    for (int32_t h = 0; h < n_heads; h++) {
        const double share = (double)h / (double)(n_heads - 1);
        pos[h] = malloc((size_t)n_tokens * sizeof **pos);
        assert_non_null(pos[h]);
        for (int32_t p = 0; p < n_tokens; p++)
            if ((double)(test_random(&seed) >> 11) * 0x1p-53 < share)
                pos[h][n[h]++] = p;
    }
    wnw_plan *plan = NULL;
    assert_ok(wnw_plan_new(&plan, info->n_layer, info->n_head_kv, n_tokens, n, (const int32_t *const *)pos));
    for (int32_t h = 0; h < n_heads; h++)
        free(pos[h]);
    free(pos);
    free(n);
    return plan;
}

static void random_ragged_plan(void **state)
{
    (void)state;
    wnw_model *m = test_tiny_open("llama");
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    int32_t *tokens = test_random_tokens(N_PROMPT + N_AFTER, info.n_vocab, 3);
    wnw_plan *plan = random_plan(&info, N_PROMPT, 4);
    int bad = 0;
    for (size_t i = 0; i < N_KV_TYPES; i++)
        for (int a = 0; a < 2; a++) {
            const struct trial t = {m, tokens, N_PROMPT, kv_types[i], a ? WNW_ATTN_GGML : WNW_ATTN_OWN};
            char what[64];
            wnw_session *masked = trial_session(&t, WNW_ATTN_GGML, NULL);
            snprintf(what, sizeof what, "random ragged %s %s", wnw_kv_type_name(t.kv_type),
                     a ? "ggml" : "own");
            bad += check_plan(what, &t, masked, plan, nmse_tolerance(&t));
            wnw_session_free(masked);
        }
    wnw_plan_free(plan);
    free(tokens);
    wnw_model_free(m);
    assert_int_equal(bad, 0);
}

/* ---- A real model, quantised weights ---- */

/* Their 8-bit activations amplify any rounding (model_parity.c), here as in the noise it is compared with. */
static void smollm2_real_text(void **state)
{
    (void)state;
    char path[4096];
    int32_t n = 0;
    test_golden_path(path, sizeof path, "tokens.txt");
    int32_t *tokens = test_read_tokens(path, &n);
    assert_cmp(n, >=, 400 + N_AFTER);
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    const struct trial t = {m, tokens, 400, WNW_KV_F16, WNW_ATTN_OWN};
    wnw_policy *policy = test_policy("snapkv+adakv");
    wnw_session *masked = trial_session(&t, WNW_ATTN_GGML, NULL);
    wnw_plan *plan = make_plan(&t, policy, 0.75);
    const int bad = check_plan("smollm2 ragged f16 own", &t, masked, plan, nmse_tolerance(&t));
    wnw_session_free(masked);
    wnw_plan_free(plan);
    wnw_policy_free(policy);
    wnw_model_free(m);
    free(tokens);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_own),         cmocka_unit_test(llama_ggml),
        cmocka_unit_test(gemma3_own),        cmocka_unit_test(random_ragged_plan),
        cmocka_unit_test(smollm2_real_text),
    };
    return cmocka_run_group_tests_name("compaction equals masking", tests, NULL, NULL);
}
