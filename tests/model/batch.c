/* SPDX-License-Identifier: MIT */
/* Sessions that share an engine: decoding together is decoding alone. */
#include "helpers.h"
#include "logits.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SESSION = 5, N_STEP = 30, N_MOST = 200, ROOM = 64 };

/* Timelines of several kinds: without recorders, with one of each kind, with and without drops on the way. */
static const struct kind {
    const char *recipe; /* NULL: no rules */
    int32_t n_prompt;
    wnw_kv_type kv_type;
    double ratio;
    int32_t every;
} kinds[N_SESSION] = {
    {NULL, 150, WNW_KV_F32, 0, 0},
    {"snapkv:window=8", 37, WNW_KV_F16, 0.5, 7},
    {"h2o", 90, WNW_KV_F32, 0.25, 5},
    {"expected_attention", 61, WNW_KV_Q8_0, 0.5, 0},
    {"streaming_llm", 5, WNW_KV_F16, 0.3, 4},
};

/* The same timelines twice: on one engine, and each by itself. */
struct fixture {
    struct test_model t;
    wnw_engine_params params;
    wnw_engine *e;
    wnw_policy *p[N_SESSION];
    wnw_session *together[N_SESSION], *alone[N_SESSION];
};

/* Session i of the fixture; on no engine: with one of its own. */
static wnw_session *new_session(const struct fixture *f, wnw_engine *e, int i, wnw_kv_type kv_type)
{
    wnw_session *s;
    wnw_session_params params = wnw_session_default_params();
    params.n_ctx = N_MOST + ROOM;
    params.kv_type = kv_type;
    params.n_ubatch = f->params.n_ubatch;
    params.n_threads = f->params.n_threads;
    params.attn = f->params.attn;
    assert_ok(e ? wnw_session_new_on(&s, e, &params) : wnw_session_new(&s, f->t.m, &params));
    if (f->p[i]) {
        const wnw_run rules = {WNW_INIT(wnw_run), .policy = f->p[i], .size = size_ratio(kinds[i].ratio),
                               .every = kinds[i].every};
        assert_ok(wnw_session_begin(s, &rules));
    }
    assert_ok(wnw_session_read(s, f->t.tokens + i, kinds[i].n_prompt, NULL));
    return s;
}

/* all_f32: every cache in float32, in place of a mixture. */
static void fixture_open(struct fixture *f, const char *name, wnw_attn attn, bool all_f32)
{
    *f = (struct fixture){
        .params = {WNW_INIT(wnw_engine_params), .n_ubatch = 64, .n_threads = 2, .attn = attn}};
    test_open(&f->t, name, N_MOST + ROOM, 11);
    assert_ok(wnw_engine_new(&f->e, f->t.m, &f->params));
    for (int i = 0; i < N_SESSION; i++) {
        const wnw_kv_type type = all_f32 ? WNW_KV_F32 : kinds[i].kv_type;
        f->p[i] = kinds[i].recipe ? test_policy(kinds[i].recipe) : NULL;
        f->together[i] = new_session(f, f->e, i, type);
        f->alone[i] = new_session(f, NULL, i, type);
        assert_same_logits(f->together[i], f->alone[i]);
    }
}

static void fixture_close(struct fixture *f)
{
    for (int i = 0; i < N_SESSION; i++) {
        wnw_session_free(f->together[i]);
        wnw_session_free(f->alone[i]);
        wnw_policy_free(f->p[i]);
    }
    wnw_engine_free(f->e);
    test_close(&f->t);
}

static void next_tokens(const struct fixture *f, int step, int32_t next[N_SESSION])
{
    for (int i = 0; i < N_SESSION; i++)
        next[i] = f->t.tokens[N_MOST - N_SESSION * step + i];
}

/* ---- Together as alone ---- */

/* Normalised errors that are allowed between the logits of a row alone and of the same row in a batch. ggml sums the
 * float32 products of one row in another order than those of several. If the sum is rounded later, a difference in the last
 * bit can become a whole step of that rounding. The error over all values is then at most one step each. */
#define IN_FLOAT32 4e-9    /* a thousand units of 2^-24, squared */
#define IN_HALVES  0x1p-22 /* a unit of f16 */
#define IN_BYTES   0x1p-14 /* one of 127 steps */

static const struct row {
    const char *name, *model;
    wnw_attn attn;
    bool all_f32;
    double nmse;
} rows[] = {
    {"llama", "tiny/tiny-llama.gguf", WNW_ATTN_OWN, true, IN_FLOAT32},
    {"qwen2", "tiny/tiny-qwen2-f32.gguf", WNW_ATTN_OWN, true, IN_FLOAT32},
    {"qwen3", "tiny/tiny-qwen3-f32.gguf", WNW_ATTN_OWN, true, IN_FLOAT32},
    /* Its activation function is a table over half-precision numbers. */
    {"gemma3", "tiny/tiny-gemma3-f32.gguf", WNW_ATTN_OWN, true, IN_HALVES},
    {"llama, caches of all types", "tiny/tiny-llama.gguf", WNW_ATTN_OWN, false, IN_BYTES},
    {"llama, ggml's attention", "tiny/tiny-llama.gguf", WNW_ATTN_GGML, false, IN_BYTES},
    {"gemma3, ggml's attention", "tiny/tiny-gemma3-f32.gguf", WNW_ATTN_GGML, false, IN_BYTES},
};

/* Whether the policy has seen the newest tokens, as it must for a plan. */
static bool can_plan(int i)
{
    return kinds[i].recipe && (kinds[i].every > 0 || !strstr(kinds[i].recipe, "snapkv"));
}

/* Every bit of what two sessions hold, and what their policy makes of it. */
static void assert_same_timeline(wnw_session *a, wnw_session *b, const wnw_policy *p)
{
    const struct wnw__recorder_type *type;
    assert_same_logits(a, b);
    assert_same_cache(a, b);
    for (int32_t i = 0; (type = wnw__recorder_type_at(i)); i++)
        assert_int_equal(wnw__recorders_find(&a->recorders, type) != NULL,
                         wnw__recorders_find(&b->recorders, type) != NULL);
    if (!p)
        return;
    wnw_plan *of_a, *of_b;
    assert_ok(wnw_session_plan(a, p, NULL, &of_a, NULL));
    assert_ok(wnw_session_plan(b, p, NULL, &of_b, NULL));
    assert_same_plan(of_a, of_b);
    wnw_plan_free(of_a);
    wnw_plan_free(of_b);
}

/* Whether both hold entries of the same positions. */
static bool same_entries(const wnw_session *a, const wnw_session *b)
{
    for (int32_t il = 0; il < a->cache.n_layer; il++)
        for (int32_t ih = 0; ih < a->cache.n_head_kv; ih++) {
            const int32_t n = wnw_cache_n(a, il, ih);
            if (n != wnw_cache_n(b, il, ih) ||
                memcmp(wnw_cache_positions(a, il, ih), wnw_cache_positions(b, il, ih),
                       (size_t)n * sizeof(int32_t)))
                return false;
        }
    return true;
}

/* Scores that rounding lets pass each other keep other entries, and logits are compared as long as the entries are the same. */
static void together_as_alone(void **state)
{
    const struct row *r = *state;
    struct fixture f;
    bool same[N_SESSION];
    struct test_diff diff = {0};
    fixture_open(&f, r->model, r->attn, r->all_f32);
    for (int i = 0; i < N_SESSION; i++)
        same[i] = true;
    for (int step = 0; step < N_STEP; step++) {
        int32_t next[N_SESSION];
        next_tokens(&f, step, next);
        assert_ok(wnw_decode_batch(f.e, f.together, next, N_SESSION));
        for (int i = 0; i < N_SESSION; i++) {
            assert_ok(wnw_session_decode(f.alone[i], next[i]));
            same[i] = same[i] && same_entries(f.together[i], f.alone[i]);
            if (same[i])
                test_diff_add(&diff, wnw_session_logits(f.alone[i]), wnw_session_logits(f.together[i]),
                              f.t.info.n_vocab);
            else
                assert_non_null(f.p[i]); /* a session without a policy keeps everything */
            assert_int_equal(wnw_session_n_past(f.together[i]), wnw_session_n_past(f.alone[i]));
        }
    }
    test_diff_print(r->name, &diff);
    assert_cmp(diff.n, >=, N_STEP); /* sessions without scores at least */
    assert_cmp(test_diff_nmse(&diff), <=, test_nmse_most(r->nmse));
    fixture_close(&f);
}

/* ggml multiplies one row with repacked weights; winnow's kernels multiply several. Both round the row to 8 bits, at
 * different places, and random weights amplify the difference beyond what float32 explains. The batch must be as close to
 * the result of float32 weights as the single row is, up to a factor of 2. */
static void together_as_true_as_alone(void **state)
{
    (void)state;
    struct test_model t;
    wnw_model *exact;
    wnw_engine *e;
    wnw_session *together[N_SESSION], *alone[N_SESSION], *truth[N_SESSION];
    struct test_diff of_together = {0}, of_alone = {0};
    const struct test_session want = {.kv_type = WNW_KV_F32, .attn = WNW_ATTN_F32, .n_ctx = N_MOST + ROOM};
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = 2, .attn = WNW_ATTN_F32};
    const wnw_session_params like = {WNW_INIT(wnw_session_params), .n_ctx = want.n_ctx,
                                     .kv_type = want.kv_type};
    char path[4096];
    test_open(&t, "tiny/tiny-llama-q4_0.gguf", N_MOST + ROOM, 11);
    test_float32_copy(path, sizeof path, "tiny/tiny-llama-q4_0.gguf");
    assert_ok(wnw_model_open(&exact, path, NULL));
    unlink(path);
    assert_ok(wnw_engine_new(&e, t.m, &params));
    for (int i = 0; i < N_SESSION; i++) {
        assert_ok(wnw_session_new_on(&together[i], e, &like));
        alone[i] = test_session_new(t.m, &want);
        truth[i] = test_session_new(exact, &want);
        wnw_session *const all[] = {together[i], alone[i], truth[i]};
        for (int k = 0; k < 3; k++)
            test_prefill(all[k], t.tokens + i, kinds[i].n_prompt);
    }
    for (int step = 0; step < N_STEP; step++) {
        int32_t next[N_SESSION];
        for (int i = 0; i < N_SESSION; i++)
            next[i] = t.tokens[N_MOST - N_SESSION * step + i];
        assert_ok(wnw_decode_batch(e, together, next, N_SESSION));
        for (int i = 0; i < N_SESSION; i++) {
            assert_ok(wnw_session_decode(alone[i], next[i]));
            assert_ok(wnw_session_decode(truth[i], next[i]));
            const float *want_logits = wnw_session_logits(truth[i]);
            test_diff_add(&of_together, want_logits, wnw_session_logits(together[i]), t.info.n_vocab);
            test_diff_add(&of_alone, want_logits, wnw_session_logits(alone[i]), t.info.n_vocab);
        }
    }
    test_diff_print("q4_0 from float32, together", &of_together);
    test_diff_print("q4_0 from float32, alone", &of_alone);
    assert_cmp(test_diff_nmse(&of_together), <=, test_nmse_most(2 * test_diff_nmse(&of_alone)));
    for (int i = 0; i < N_SESSION; i++) {
        wnw_session_free(together[i]);
        wnw_session_free(alone[i]);
        wnw_session_free(truth[i]);
    }
    wnw_engine_free(e);
    wnw_model_free(exact);
    test_close(&t);
}

/* ---- Who shares ---- */

/* The same steps in batches of five, and of two and three in another order: from two rows on products are the same
 * for any number of them. */
static void who_shares_does_not_matter(void **state)
{
    struct fixture f;
    wnw_session *copy[N_SESSION];
    struct test_diff diff = {0};
    fixture_open(&f, *state, WNW_ATTN_OWN, false);
    for (int i = 0; i < N_SESSION; i++) {
        assert_ok(wnw_session_copy(&copy[i], f.together[i]));
        assert_ptr_equal(copy[i]->engine, f.e); /* a copy shares the engine */
        assert_ok(wnw__session_record(f.together[i], "newest", true));
    }
    for (int step = 0; step < N_STEP; step++) {
        int32_t next[N_SESSION];
        next_tokens(&f, step, next);
        assert_ok(wnw_decode_batch(f.e, f.together, next, N_SESSION));
        assert_ok(wnw_decode_batch(f.e, (wnw_session *const[]){copy[4], copy[1]},
                                   (const int32_t[]){next[4], next[1]}, 2));
        assert_ok(wnw_decode_batch(f.e, (wnw_session *const[]){copy[0], copy[3], copy[2]},
                                   (const int32_t[]){next[0], next[3], next[2]}, 3));
        for (int i = 0; i < N_SESSION; i++)
            if (same_entries(f.together[i], copy[i]))
                test_diff_add(&diff, wnw_session_logits(f.together[i]), wnw_session_logits(copy[i]),
                              f.t.info.n_vocab);
    }
    /* ggml's products may add up in another order for other numbers of rows; ours do not. */
    assert_cmp(test_diff_nmse(&diff), <=, test_nmse_most(IN_BYTES));
    for (int i = 0; i < N_SESSION; i++) {
        assert_ok(wnw__session_record(f.together[i], "newest", false));
        if (diff.identical == (int64_t)N_STEP * N_SESSION)
            assert_same_timeline(f.together[i], copy[i], can_plan(i) ? f.p[i] : NULL);
        wnw_session_free(copy[i]);
    }
    fixture_close(&f);
}

/* Prompts, second passes and compressions of one session on the engine leave the others alone. */
static void turns_in_between(void **state)
{
    (void)state;
    struct fixture f;
    struct test_diff diff = {0};
    fixture_open(&f, "tiny/tiny-llama.gguf", WNW_ATTN_OWN, true);
    wnw_policy *kvzip = test_policy("kvzip");
    for (int step = 0; step < 6; step++) {
        int32_t next[N_SESSION];
        next_tokens(&f, step, next);
        assert_ok(wnw_decode_batch(f.e, f.together, next, N_SESSION));
        for (int i = 0; i < N_SESSION; i++)
            assert_ok(wnw_session_decode(f.alone[i], next[i]));
        for (int k = 0; k < 2; k++) {
            wnw_session **s = k ? f.alone : f.together;
            assert_ok(wnw_session_read(s[step % N_SESSION], f.t.tokens + step, 9, NULL));
            if (step == 3)
                assert_ok(wnw_session_compress(s[0], kvzip, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5},
                                               NULL));
        }
    }
    for (int i = 0; i < N_SESSION; i++) {
        if (!same_entries(f.together[i], f.alone[i]))
            continue;
        test_diff_add(&diff, wnw_session_logits(f.alone[i]), wnw_session_logits(f.together[i]),
                      f.t.info.n_vocab);
    }
    assert_cmp(test_diff_nmse(&diff), <=, test_nmse_most(IN_FLOAT32)); /* as above, one row and several */
    wnw_policy_free(kvzip);
    fixture_close(&f);
}

/* ---- Misuse and failure ---- */

static void what_cannot_be_decoded_is_said(void **state)
{
    (void)state;
    struct fixture f;
    wnw_session *none = NULL, *other;
    fixture_open(&f, "tiny/tiny-llama.gguf", WNW_ATTN_OWN, true);
    wnw_session **s = f.together;
    const int32_t next[N_SESSION] = {1, 2, 3, 4, 5}, n_vocab = f.t.info.n_vocab;
    assert_error(wnw_decode_batch(f.e, s, next, 0), WNW_E_RANGE);
    assert_error(wnw_decode_batch(f.e, s, next, -1), WNW_E_RANGE);
    assert_error(wnw_decode_batch(f.e, s, next, 65), WNW_E_RANGE); /* before a session is looked at */
    assert_error(wnw_decode_batch(f.e, (wnw_session *const[]){s[0], none}, next, 2), WNW_E_ARG);
    assert_says("session 1 of the batch is NULL");
    assert_error(wnw_decode_batch(f.e, (wnw_session *const[]){s[0], s[1], s[0]}, next, 3), WNW_E_ARG);
    assert_says("session 2 of the batch is in it twice");
    assert_error(wnw_decode_batch(f.e, (wnw_session *const[]){s[0], f.alone[1]}, next, 2), WNW_E_ARG);
    assert_says("session 1 of the batch uses another engine");
    assert_error(wnw_decode_batch(f.e, s, (const int32_t[]){0, n_vocab, 0}, 3), WNW_E_RANGE);
    assert_says("session 1 of the batch: ");
    assert_error(wnw_decode_batch(f.e, s, (const int32_t[]){0, 0, -1}, 3), WNW_E_RANGE);
    const wnw_session_params tight = {WNW_INIT(wnw_session_params), .n_ctx = 3, .kv_type = WNW_KV_F16};
    assert_ok(wnw_session_new_on(&other, f.e, &tight));
    test_prefill(other, f.t.tokens, 3);
    assert_error(wnw_decode_batch(f.e, (wnw_session *const[]){s[0], other}, next, 2), WNW_E_FULL);
    assert_says("session 1 of the batch: ");
    for (int i = 0; i < N_SESSION; i++)
        assert_same_timeline(s[i], f.alone[i], NULL); /* nothing was read */
    assert_ok(wnw_decode_batch(f.e, s, next, N_SESSION));
    for (int i = 0; i < N_SESSION; i++)
        assert_int_equal(wnw_session_n_past(s[i]), kinds[i].n_prompt + 1);
    wnw_session_free(other);
    fixture_close(&f);
}

static void engines_are_checked(void **state)
{
    (void)state;
    struct test_model t;
    wnw_engine *e;
    wnw_session *s;
    test_open(&t, "tiny/tiny-llama.gguf", 8, 1);
    assert_error(wnw_engine_new(&e, t.m, &(wnw_engine_params){WNW_INIT(wnw_engine_params), .n_ubatch = -1}),
                 WNW_E_RANGE);
    assert_error(wnw_engine_new(&e, t.m, &(wnw_engine_params){WNW_INIT(wnw_engine_params), .n_threads = 513}),
                 WNW_E_RANGE);
    assert_error(
        wnw_engine_new(&e, t.m, &(wnw_engine_params){WNW_INIT(wnw_engine_params), .attn = (wnw_attn)7}),
        WNW_E_ARG);
    assert_ok(wnw_engine_new(&e, t.m, NULL));
    assert_error(wnw_session_new_on(&s, e, &(wnw_session_params){WNW_INIT(wnw_session_params), .n_ctx = -1}),
                 WNW_E_RANGE);
    assert_error(wnw_session_new_on(
                     &s, e, &(wnw_session_params){WNW_INIT(wnw_session_params), .kv_type = (wnw_kv_type)9}),
                 WNW_E_ARG);
    assert_null(s);
    assert_ok(wnw_session_new_on(&s, e, NULL));
    test_prefill(s, t.tokens, 8);
    wnw_session_free(s);
    wnw_engine_free(e);
    test_close(&t);
}

/* Values that are no numbers in one cache: its session has no logits, the others go on. */
static void failures_stay_with_their_session(void **state)
{
    (void)state;
    struct fixture f;
    wnw_session *copy[N_SESSION];
    int32_t next[N_SESSION];
    fixture_open(&f, "tiny/tiny-llama.gguf", WNW_ATTN_OWN, true);
    for (int i = 0; i < N_SESSION; i++)
        assert_ok(wnw_session_copy(&copy[i], f.together[i]));
    const struct wnw__kv_layer *l = &f.together[2]->cache.layers[0];
    ((float *)(void *)(l->v + (size_t)l->off[0] * f.together[2]->cache.row_bytes))[0] = NAN;
    next_tokens(&f, 0, next);
    assert_error(wnw_decode_batch(f.e, f.together, next, N_SESSION), WNW_E_NOT_FINITE);
    assert_says("session 2 of the batch: ");
    assert_ok(wnw_decode_batch(f.e, copy, next, N_SESSION));
    for (int i = 0; i < N_SESSION; i++) {
        assert_int_equal(wnw_session_n_past(f.together[i]), kinds[i].n_prompt + 1);
        if (i != 2)
            assert_same_timeline(f.together[i], copy[i], NULL);
        wnw_session_free(copy[i]);
    }
    assert_null(wnw_session_logits(f.together[2]));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"who shares does not matter: f32 weights", who_shares_does_not_matter, NULL, NULL,
         (void *)(uintptr_t) "tiny/tiny-llama.gguf"},
        {"who shares does not matter: q4_0 weights", who_shares_does_not_matter, NULL, NULL,
         (void *)(uintptr_t) "tiny/tiny-llama-q4_0.gguf"},
        cmocka_unit_test(together_as_true_as_alone),
        cmocka_unit_test(turns_in_between),
        cmocka_unit_test(what_cannot_be_decoded_is_said),
        cmocka_unit_test(engines_are_checked),
        cmocka_unit_test(failures_stay_with_their_session),
    };
    return run_rows(together_as_alone, rows) + cmocka_run_group_tests(tests, NULL, NULL);
}
