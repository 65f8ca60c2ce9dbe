/* SPDX-License-Identifier: MIT */
/*
 * What proves compaction right: a cache from which entries were removed must behave like a full cache in
 * which the same entries are hidden by a mask. The reference is a session with ggml's attention that keeps
 * everything and hides (hiding.h); the subject has applied the plan and holds only what is kept.
 *
 * With ggml's attention on both sides the same rows meet the same arithmetic: normalised square error of the
 * logits below 1e-9. Our own attention keeps queries and sums in float32, ggml rounds the query to the type
 * of the keys (f16, or 8 bits for quantised keys). How much the two differ by that alone is measured on the
 * full cache, where nothing was removed, and compaction must not add to it: at most 4 times as much, as fewer
 * entries average out less of the rounding. An f32 cache has no such rounding, so that there a single wrong
 * entry shows. Every comparison also proves that it can see removed entries at all: without the mask the
 * error must be at least 3 times the tolerance.
 */
#include "helpers.h"
#include "hiding.h"
#include "winnow_tools.h"

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

/* A prompt that sessions of both kinds have read; every comparison goes on with copies of them. */
struct trial {
    const wnw_model *model;
    const int32_t *tokens; /* [n_prompt + N_AFTER] */
    int32_t n_prompt;
    wnw_kv_type kv_type;
    wnw_attn attn; /* of the session that compacts */
    wnw_session *reference, *subject;
    float *full; /* logits of the reference with everything it holds */
    double tolerance;
};

static wnw_session *read_prompt(const struct trial *t, wnw_attn attn, const wnw_policy *observe)
{
    return test_session_read(
        t->model, &(struct test_session){.kv_type = t->kv_type, .attn = attn, .n_ctx = t->n_prompt + N_AFTER},
        observe, t->tokens, t->n_prompt);
}

static wnw_session *copy_of(const wnw_session *s)
{
    wnw_session *copy;
    assert_ok(wnw_session_copy(&copy, s));
    return copy;
}

/* ---- Two sessions side by side ---- */

struct block {
    float *logits; /* [N_BLOCK][n_vocab] */
    size_t n_vocab;
};

static bool keep_logits(int32_t i, const float *logits, void *user)
{
    const struct block *b = user;
    memcpy(b->logits + (size_t)i * b->n_vocab, logits, b->n_vocab * sizeof *logits);
    return true;
}

/* Decodes n tokens one by one; returns where the logits after theirs go. */
static float *decode(wnw_session *s, const int32_t *tokens, int n, size_t n_vocab, float *logits)
{
    for (int i = 0; i < n; i++, logits += n_vocab) {
        assert_ok(wnw_session_decode(s, tokens[i]));
        memcpy(logits, wnw_session_logits(s), n_vocab * sizeof *logits);
    }
    return logits;
}

static size_t vocabulary(const struct trial *t)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(t->model, &info));
    return (size_t)info.n_vocab;
}

/* Feeds the tokens after the prompt; logits of all of them, [N_AFTER][n_vocab]. */
static float *go_on(const struct trial *t, wnw_session *s)
{
    const size_t n_vocab = vocabulary(t);
    const int32_t *next = t->tokens + t->n_prompt;
    float *logits = malloc(N_AFTER * n_vocab * sizeof *logits);
    assert_non_null(logits);
    struct block b = {decode(s, next, N_FIRST, n_vocab, logits), n_vocab};
    assert_ok(wnw_session_prefill(s, next + N_FIRST, N_BLOCK, keep_logits, &b));
    decode(s, next + N_FIRST + N_BLOCK, N_LAST, n_vocab, b.logits + N_BLOCK * n_vocab);
    assert_int_equal(wnw_session_n_past(s), t->n_prompt + N_AFTER);
    return logits;
}

static struct test_diff compare(const struct trial *t, const float *want, const float *got)
{
    const size_t n_vocab = vocabulary(t);
    struct test_diff d = {0};
    for (size_t i = 0; i < N_AFTER; i++)
        test_diff_add(&d, want + i * n_vocab, got + i * n_vocab, (int32_t)n_vocab);
    return d;
}

/* The difference of the two kinds of attention on a full cache decides how far compaction may differ. */
static double tolerance_of(const struct trial *t)
{
    if (t->attn == WNW_ATTN_GGML)
        return NMSE_SAME_ARITHMETIC;
    wnw_session *s = copy_of(t->subject);
    float *got = go_on(t, s);
    const struct test_diff noise = compare(t, t->full, got);
    const double tol = NOISE_FACTOR * test_diff_nmse(&noise);
    wnw_session_free(s);
    free(got);
    return tol > NMSE_SAME_ARITHMETIC ? tol : NMSE_SAME_ARITHMETIC;
}

static void open_trial(struct trial *t)
{
    t->reference = read_prompt(t, WNW_ATTN_GGML, NULL);
    t->subject = read_prompt(t, t->attn, NULL);
    wnw_session *full = copy_of(t->reference);
    t->full = go_on(t, full);
    wnw_session_free(full);
    t->tolerance = tolerance_of(t);
}

static void close_trial(struct trial *t)
{
    wnw_session_free(t->reference);
    wnw_session_free(t->subject);
    free(t->full);
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

/* What comes of hiding what the plan drops. */
static float *go_on_hidden(const struct trial *t, const wnw_plan *plan)
{
    wnw_session *s = copy_of(t->reference);
    test_hide_dropped(s, plan);
    float *logits = go_on(t, s);
    test_hide_end();
    wnw_session_free(s);
    return logits;
}

/* What comes of dropping it from a session that has read the prompt. */
static float *go_on_without(const struct trial *t, wnw_session *s, const wnw_plan *plan)
{
    assert_ok(wnw_session_apply(s, plan, NULL));
    assert_holds_plan(s, plan);
    assert_int_equal(wnw_session_n_past(s), t->n_prompt);
    return go_on(t, s);
}

/* Both halves of the proof for one plan, which s applies: equal with the mask, not equal without. 1 if one fails. */
static int check_plan(const char *what, const struct trial *t, wnw_session *s, const wnw_plan *plan)
{
    float *hidden = go_on_hidden(t, plan), *without = go_on_without(t, s, plan);
    const struct test_diff d = compare(t, hidden, without), unmasked = compare(t, t->full, without);
    free(hidden);
    free(without);
    test_diff_print(what, &d);
    if (d.n != N_AFTER || test_diff_nmse(&d) > t->tolerance) {
        print_error("%s: normalised error above %g\n", what, t->tolerance);
        return 1;
    }
    if (test_diff_nmse(&unmasked) < 3 * t->tolerance) {
        print_error("%s: removing entries changes so little (%g, tolerance %g) that nothing is proved\n",
                    what, test_diff_nmse(&unmasked), t->tolerance);
        return 1;
    }
    return 0;
}

/* The same for the plan of a recipe, made by the session that applies it: which entries a sliding-window layer still holds
 * depends on the attention, and a plan lists them. */
static int check_recipe(const char *what, const struct trial *t, const char *recipe)
{
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.75};
    wnw_policy *policy = test_policy(recipe);
    wnw_session *s = read_prompt(t, t->attn, policy);
    wnw_plan *plan = NULL;
    assert_ok(wnw_session_plan(s, policy, &size, &plan, NULL));
    const int bad = check_plan(what, t, s, plan);
    wnw_plan_free(plan);
    wnw_session_free(s);
    wnw_policy_free(policy);
    return bad;
}

static int compare_layouts(const wnw_model *m, const int32_t *tokens, wnw_kv_type type, wnw_attn attn)
{
    int bad = 0;
    struct trial t = {.model = m, .tokens = tokens, .n_prompt = N_PROMPT, .kv_type = type, .attn = attn};
    open_trial(&t);
    for (int i = 0; i < N_LAYOUTS; i++) {
        char what[128];
        snprintf(what, sizeof what, "%s %s %s", layouts[i].layout, wnw_kv_type_name(type),
                 attn == WNW_ATTN_OWN ? "own" : "ggml");
        bad += check_recipe(what, &t, layouts[i].recipe);
    }
    close_trial(&t);
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

/* Layers with a sliding window are unchanged, and one layer is compacted. Its share in the logits
 * is too small to be visible above the rounding of quantised keys. */
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
            struct trial t = {.model = m,
                              .tokens = tokens,
                              .n_prompt = N_PROMPT,
                              .kv_type = kv_types[i],
                              .attn = a ? WNW_ATTN_GGML : WNW_ATTN_OWN};
            char what[64];
            open_trial(&t);
            snprintf(what, sizeof what, "random ragged %s %s", wnw_kv_type_name(t.kv_type),
                     a ? "ggml" : "own");
            wnw_session *s = copy_of(t.subject);
            bad += check_plan(what, &t, s, plan);
            wnw_session_free(s);
            close_trial(&t);
        }
    wnw_plan_free(plan);
    free(tokens);
    wnw_model_free(m);
    assert_int_equal(bad, 0);
}

/* ---- A real model, quantised weights ---- */

/* Their 8-bit activations amplify any rounding (model/parity.c), here as in the noise it is compared with. */
static void smollm2_real_text(void **state)
{
    (void)state;
    int32_t n = 0;
    int32_t *tokens = test_golden_tokens(&n);
    assert_cmp(n, >=, 400 + N_AFTER);
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    struct trial t = {
        .model = m, .tokens = tokens, .n_prompt = 400, .kv_type = WNW_KV_F16, .attn = WNW_ATTN_OWN};
    open_trial(&t);
    const int bad = check_recipe("smollm2 ragged f16 own", &t, "snapkv+adakv");
    close_trial(&t);
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
