/* SPDX-License-Identifier: MIT */
/*
 * LagKV's recursion in a session: lengths follow the paper's formula after every token, positions go on
 * counting, and what survives is the same however the tokens came, where keys and values are.
 */
#include "cuts.h"
#include "helpers.h"
#include "rounding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_session.h"

enum { N_CTX = 700, SINK = 8, LAG = 32, K = 8 };
#define RECIPE "lagkv:sink=8,lag=32,retain=0.25"

static wnw_session *session_with(const struct test_model *f, const wnw_policy *p, wnw_run rules,
                                 wnw_kv_type type)
{
    wnw_session *s =
        test_session_new(f->m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1, .kv_type = type});
    rules.struct_size = sizeof rules;
    rules.policy = p;
    assert_ok(wnw_session_begin(s, &rules));
    return s;
}

/* Entries per head after n tokens (eq. 12). */
static int32_t formula(int32_t n)
{
    const int32_t nb = (n - SINK) / LAG, m = (n - SINK) % LAG;
    return n < SINK + 2 * LAG ? n : SINK + K * (nb - 1) + LAG + m;
}

static void assert_lengths(const struct test_model *f, const wnw_session *s, int32_t n)
{
    for (int32_t i = 0; i < f->info.n_layer * f->info.n_head_kv; i++) {
        const int32_t il = i / f->info.n_head_kv, ih = i % f->info.n_head_kv;
        const int32_t have = wnw_cache_n(s, il, ih), *pos = wnw_cache_positions(s, il, ih);
        if (wnw_model_layer_is_swa(f->m, il))
            continue;
        if (have != formula(n))
            fail_msg("%d tokens, layer %d: %d entries, expected %d", n, il, have, formula(n));
        for (int32_t k = 0; k < SINK && k < n; k++)
            assert_int_equal(pos[k], k);
        for (int32_t k = 1; k <= LAG && k <= n; k++) /* the tail, newest first */
            assert_int_equal(pos[have - k], n - k);
    }
}

/* Reading a piece changes no logits: compression comes after the attention. */
static void first_token_is_that_of_the_full_cache(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    wnw_policy *p = test_policy(RECIPE);
    wnw_session *full = test_session_new(f->m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
    test_prefill(full, f->tokens, 400);
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_LAYER; phase++) {
        wnw_session *s =
            session_with(f, p, (wnw_run){WNW_INIT(wnw_run), .phase = (wnw_phase)phase}, WNW_KV_F16);
        assert_ok(wnw_session_read(s, f->tokens, 400, NULL));
        assert_lengths(f, s, 400);
        assert_memory_equal(wnw_session_logits(s), wnw_session_logits(full),
                            (size_t)f->info.n_vocab * sizeof(float));
        wnw_session_free(s);
    }
    wnw_session_free(full);
    wnw_policy_free(p);
}

static void every_token_follows_the_formula(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    wnw_policy *p = test_policy(RECIPE);
    wnw_session *s = session_with(f, p, (wnw_run){WNW_INIT(wnw_run)}, WNW_KV_F16), *copy = NULL;
    assert_ok(wnw_session_read(s, f->tokens, 50, NULL));
    for (int32_t n = 50; n < 300; n++) {
        assert_ok(wnw_session_decode(s, f->tokens[n]));
        assert_lengths(f, s, n + 1);
        if (n == 250)
            assert_ok(wnw_session_copy(&copy, s));
        else if (copy)
            assert_ok(wnw_session_decode(copy, f->tokens[n]));
    }
    /* A copy knows what is settled. */
    assert_lengths(f, copy, 300);
    assert_memory_equal(wnw_session_logits(s), wnw_session_logits(copy),
                        (size_t)f->info.n_vocab * sizeof(float));
    /* The second turn continues the first. */
    assert_ok(wnw_session_read(s, f->tokens + 300, 111, NULL));
    assert_lengths(f, s, 411);
    wnw_session_free(copy);
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* The method's own chunks: S + 2 L first, then L; never more than S + k thinned + 2 L entries. */
static void own_chunks_bound_the_cache(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    wnw_policy *p = test_policy(RECIPE);
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_session *s = session_with(f, p, (wnw_run){WNW_INIT(wnw_run), .phase = WNW_PHASE_CHUNK}, WNW_KV_F16);
    assert_ok(wnw_session_read(s, f->tokens, 500, &r));
    assert_lengths(f, s, 500);
    assert_int_equal(r.entries_before, 500 * f->info.n_layer * f->info.n_head_kv);
    /* 15 blocks, 13 thinned before the last chunk, whose 12 tokens are the remainder. */
    assert_cmp(r.kv_bytes_before, <=, wnw__cache_bytes_for(&s->cache, SINK + 14 * K + 2 * LAG + 32));
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* Keys and values of layer 0 depend on token and position alone, so its survivors must not depend on the
 * schedule. */
static void survivors_of_layer_0(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    wnw_policy *p = test_policy(RECIPE);
    wnw_session *s[4];
    const wnw_run rules[4] = {{WNW_INIT(wnw_run), .phase = WNW_PHASE_END},
                              {WNW_INIT(wnw_run), .phase = WNW_PHASE_CHUNK},
                              {WNW_INIT(wnw_run), .phase = WNW_PHASE_CHUNK, .chunk = 150},
                              {WNW_INIT(wnw_run)}};
    for (int i = 0; i < 4; i++) {
        s[i] = session_with(f, p, rules[i], WNW_KV_F32);
        const int32_t n = i == 3 ? 10 : 333;
        assert_ok(wnw_session_read(s[i], f->tokens, n, NULL));
        test_decode(s[i], f->tokens + n, 333 - n);
        assert_lengths(f, s[i], 333);
        for (int32_t ih = 0; i > 0 && ih < f->info.n_head_kv; ih++)
            assert_memory_equal(wnw_cache_positions(s[i], 0, ih), wnw_cache_positions(s[0], 0, ih),
                                (size_t)formula(333) * sizeof(int32_t));
    }
    for (int i = 0; i < 4; i++)
        wnw_session_free(s[i]);
    wnw_policy_free(p);
}

/* A size decides k: of a prompt's blocks so that all comes to it, of a block that decoding completes as its
 * share. */
static void share_of_a_size(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    wnw_policy *p = test_policy("lagkv:sink=8,lag=32");
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    wnw_report r = {WNW_INIT(wnw_report)};
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_CHUNK; phase++) {
        wnw_session *s = session_with(
            f, p, (wnw_run){WNW_INIT(wnw_run), .size = half, .phase = (wnw_phase)phase}, WNW_KV_F16);
        /* 400 = 8 + 12 x 32 + 8: k = (200 - 8 - 32 - 8) / 11 = 13 */
        assert_ok(wnw_session_read(s, f->tokens, 400, &r));
        assert_float_equal(r.kept_mean, 8 + 11 * 13 + 32 + 8, 1e-9);
        test_decode(s, f->tokens + 400, 80);
        /* 480 = 8 + 14 x 32 + 24: half of each of two more blocks */
        assert_int_equal(wnw_cache_n(s, 1, 0), 8 + 11 * 13 + 2 * 16 + 32 + 24);
        wnw_session_free(s);
    }
    /* A budget that holds the prompt bites when it is reached. */
    wnw_session *s = session_with(
        f, p, (wnw_run){WNW_INIT(wnw_run), .size = {.kind = WNW_SIZE_BUDGET, .budget = 150}}, WNW_KV_F16);
    assert_ok(wnw_session_read(s, f->tokens, 100, &r));
    assert_float_equal(r.kept_mean, 100, 0);
    test_decode(s, f->tokens + 100, 160);
    /* At 151 = 8 + 4 x 32 + 15 entries k = (150 - 8 - 32 - 15) / 3 = 31: 148 stay. At 165 = 101 + 2 x 32
     * k = 150 - 101 - 32 = 17; from then on the budget is full and a block leaves one entry, last at token
     * 232. */
    assert_int_equal(wnw_cache_n(s, 1, 0), 8 + 3 * 31 + 17 + 2 + 32 + 28);
    wnw_session_free(s);
    /* A budget that cannot hold this prompt's sinks, tail and one entry of each of 11 blocks is refused before
     * anything is read; one that no prompt fits into, when the rules begin. */
    for (int64_t budget = 58; budget <= 59; budget++) {
        const wnw_size small = {.kind = WNW_SIZE_BUDGET, .budget = budget};
        s = session_with(f, p, (wnw_run){WNW_INIT(wnw_run), .size = small}, WNW_KV_F16);
        if (budget == 59) {
            assert_ok(wnw_session_read(s, f->tokens, 400, &r));
            assert_float_equal(r.kept_mean, 8 + 11 + 32 + 8, 1e-9);
            assert_string_equal(r.warning, "");
        } else {
            assert_error(wnw_session_read(s, f->tokens, 400, &r), WNW_E_RANGE);
            assert_says("allow at least 59");
            assert_int_equal(wnw_session_n_past(s), 0);
        }
        wnw_session_free(s);
    }
    s = test_session_new(f->m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
    const wnw_run never = {WNW_INIT(wnw_run), .policy = p,
                           .size = {.kind = WNW_SIZE_BUDGET, .budget = SINK + LAG}};
    assert_error(wnw_session_begin(s, &never), WNW_E_RANGE);
    assert_says("allow at least 41");
    wnw_session_free(s);
    /* In a context that has no room for two blocks nothing is ever thinned. */
    s = test_session_new(f->m, &(struct test_session){.n_ctx = SINK + 2 * LAG - 1, .n_threads = 1});
    assert_ok(wnw_session_begin(s, &never));
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* ---- No block loses everything ---- */

/* Every complete block of the n tokens read holds some of them, and the last one all. */
static void assert_no_block_is_empty(const struct test_model *f, const wnw_session *s, int32_t n,
                                     const char *what)
{
    for (int32_t il = 0; il < f->info.n_layer; il++) {
        const int32_t have = wnw_cache_n(s, il, 0), *pos = wnw_cache_positions(s, il, 0);
        int32_t count[N_CTX / LAG + 1] = {0};
        if (wnw_model_layer_is_swa(f->m, il))
            continue;
        for (int32_t i = 0; i < have; i++)
            if (pos[i] >= SINK)
                count[(pos[i] - SINK) / LAG]++;
        for (int32_t b = 0; SINK + (b + 1) * LAG <= n; b++)
            if (count[b] < 1)
                fail_msg("%s: %d tokens, layer %d: nothing stays of block %d", what, n, il, b);
    }
}

/* Counts the warnings of the log. */
static void count_warning(wnw_log_level level, const char *text, void *user)
{
    if (level == WNW_LOG_WARN && strstr(text, "while decoding: "))
        ++*(int *)user;
}

/* Sizes from comfortable to impossible, over turns and while decoding: a size is refused when the rules begin, or
 * with the first piece before it is read, or every block keeps something. What is promised is kept or said. */
static void no_block_loses_everything(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    static const int32_t turns[][3] = {
        {400, 0, 0}, {60, 340, 0}, {136, 41, 300}, {71, 1, 72}, {200, 200, 200}};
    static const double sizes[] = {0.3, 0.5, 0.8, 0.9, 0.97, 0.99, 40, 41, 42, 58, 59, 72, 100, 150, 300};
    wnw_policy *p = test_policy("lagkv:sink=8,lag=32");
    int n_refused = 0, n_said = 0, n_f16 = 0, n_decoded_over = 0;
    for (size_t t = 0; t < sizeof turns / sizeof *turns; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_CHUNK; phase++) {
                const bool is_ratio = sizes[i] < 1;
                const wnw_size size = is_ratio
                                          ? (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = sizes[i]}
                                          : (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = (int64_t)sizes[i]};
                const wnw_run run = {WNW_INIT(wnw_run), .policy = p, .size = size, .phase = (wnw_phase)phase};
                char what[80];
                int32_t n = 0;
                int n_warnings = 0;
                bool refused = false;
                snprintf(what, sizeof what, "turns %zu, size %g, phase %d", t, sizes[i], phase);
                wnw_session *s =
                    test_session_new(f->m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
                const int rc = wnw_session_begin(s, &run);
                assert_int_equal(rc, !is_ratio && size.budget <= SINK + LAG ? WNW_E_RANGE : WNW_OK);
                refused = rc != WNW_OK;
                for (int k = 0; k < 3 && turns[t][k] > 0 && !refused; k++) {
                    wnw_report r = {WNW_INIT(wnw_report)};
                    const int read = wnw_session_read(s, f->tokens + n, turns[t][k], &r);
                    if (read != WNW_OK && (k > 0 || is_ratio || read != WNW_E_RANGE))
                        fail_msg("%s, turn %d: %s", what, k, wnw_last_error());
                    refused = read != WNW_OK;
                    n += refused ? 0 : turns[t][k];
                    if (refused)
                        continue;
                    assert_no_block_is_empty(f, s, n, what);
                    const int32_t asked =
                        is_ratio ? (int32_t)(n * (1 - size.ratio) + 1e-6) : (int32_t)size.budget;
                    if (wnw_cache_n(s, f->info.n_layer - 1, 0) > asked && !r.warning[0])
                        fail_msg("%s, turn %d: %d entries, and no warning", what, k, wnw_cache_n(s, 0, 0));
                    n_said += r.warning[0] != '\0';
                    n_f16 += r.warning[0] == '\0';
                }
                n_refused += refused;
                wnw_set_log(count_warning, &n_warnings);
                for (int32_t end = n + 80; n < end && !refused && phase == WNW_PHASE_END; n++) {
                    assert_ok(wnw_session_decode(s, f->tokens[n]));
                    assert_no_block_is_empty(f, s, n + 1, what);
                }
                wnw_set_log(NULL, NULL);
                assert_cmp(n_warnings, <=, is_ratio ? 0 : 1); /* once, not for every block */
                n_decoded_over += n_warnings;
                wnw_session_free(s);
            }
    assert_cmp(n_refused, >, 10);
    assert_cmp(n_said, >, 10);
    assert_cmp(n_f16, >, 10);
    assert_cmp(n_decoded_over, >, 5);
    wnw_policy_free(p);
}

/* A first turn too short for two blocks leaves no trace: the second one comes to the size all the same. */
static void short_first_turn(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    wnw_policy *p = test_policy("lagkv:sink=8,lag=32");
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    wnw_report r = {WNW_INIT(wnw_report)};
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_CHUNK; phase++) {
        wnw_session *s = session_with(
            f, p, (wnw_run){WNW_INIT(wnw_run), .size = half, .phase = (wnw_phase)phase}, WNW_KV_F16);
        assert_ok(wnw_session_read(s, f->tokens, 60, &r)); /* 8 + 2 x 32 = 72 */
        assert_float_equal(r.kept_mean, 60, 0);
        assert_contains(r.warning, "keeps all 60");
        assert_int_equal(s->cache.layers[1].n_settled, 0);
        /* 600 = 8 + 18 x 32 + 16: k = (300 - 8 - 32 - 16) / 17 = 14 */
        assert_ok(wnw_session_read(s, f->tokens + 60, 540, &r));
        assert_float_equal(r.kept_mean, 8 + 17 * 14 + 32 + 16, 1e-9);
        assert_string_equal(r.warning, "");
        wnw_session_free(s);
    }
    /* The same while decoding: half of every block. 300 = 8 + 9 x 32 + 4. */
    wnw_session *s = session_with(f, p, (wnw_run){WNW_INIT(wnw_run), .size = half}, WNW_KV_F16);
    assert_ok(wnw_session_read(s, f->tokens, 60, &r));
    test_decode(s, f->tokens + 60, 240);
    assert_int_equal(wnw_cache_n(s, 1, 0), 8 + 8 * 16 + 32 + 4);
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* What a turn settled stays; the next turn's blocks bring all together to the size. */
static void turns_come_to_the_ratio(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    wnw_policy *p = test_policy("lagkv:sink=8,lag=32");
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_session *s = session_with(f, p, (wnw_run){WNW_INIT(wnw_run), .size = half}, WNW_KV_F16);
    assert_ok(wnw_session_read(s, f->tokens, 400, &r)); /* k = 13, 8 + 11 x 13 = 151 are settled */
    int32_t *settled = malloc(151 * sizeof *settled);
    assert_non_null(settled);
    memcpy(settled, wnw_cache_positions(s, 1, 0), 151 * sizeof *settled);
    assert_int_equal(s->cache.layers[1].n_settled, 151);
    /* 291 = 151 + 4 x 32 + 12 of 500: k = (250 - 151 - 32 - 12) / 3 = 18 */
    assert_ok(wnw_session_read(s, f->tokens + 400, 100, &r));
    assert_float_equal(r.kept_mean, 151 + 3 * 18 + 32 + 12, 1e-9);
    assert_memory_equal(settled, wnw_cache_positions(s, 1, 0), 151 * sizeof *settled);
    free(settled);
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* A size that what is settled does not fit into is not reached by dropping it. */
static void second_compress_keeps_what_is_settled(void **state)
{
    test_not_with_noise();
    const struct test_model *f = *state;
    wnw_policy *p = test_policy(RECIPE);
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_session *s = test_session_new(f->m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
    test_prefill(s, f->tokens, 400); /* 8 + 12 x 32 + 8 */
    assert_ok(wnw_session_compress(s, p, NULL, &r));
    const int32_t n = formula(400), n_settled = SINK + 11 * K;
    assert_int_equal(wnw_cache_n(s, 1, 0), n);
    for (int i = 0; i < 2; i++) {
        const wnw_size size = {.kind = i ? WNW_SIZE_BUDGET : WNW_SIZE_RATIO, .ratio = 0.5, .budget = 50};
        assert_ok(wnw_session_compress(s, p, &size, &r));
        assert_int_equal(wnw_cache_n(s, 1, 0), n); /* 40 after what is settled: no second block */
        assert_int_equal(s->cache.layers[1].n_settled, n_settled);
        assert_contains(r.warning, "nothing can be thinned");
    }
    /* 40 + 60 = 3 x 32 + 4: two blocks can, k = (150 - 96 - 32 - 4) / 2 = 9. */
    test_prefill(s, f->tokens + 400, 60);
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = 150};
    assert_ok(wnw_session_compress(s, p, &size, &r));
    assert_int_equal(wnw_cache_n(s, 1, 0), 96 + 2 * 9 + 32 + 4);
    assert_int_equal(s->cache.layers[1].n_settled, 96 + 2 * 9);
    assert_string_equal(r.warning, "");
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* Sliding layers are bounded already. */
static void sliding_layers_are_left_alone(void **state)
{
    test_not_with_noise();
    (void)state;
    struct test_model f;
    f.m = test_tiny_open("gemma3");
    f.info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(f.m, &f.info));
    f.tokens = test_random_tokens(N_CTX, f.info.n_vocab, 3);
    wnw_policy *p = test_policy(RECIPE);
    wnw_session *full = test_session_new(f.m, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
    test_prefill(full, f.tokens, 300);
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_LAYER; phase++) {
        wnw_session *s =
            session_with(&f, p, (wnw_run){WNW_INIT(wnw_run), .phase = (wnw_phase)phase}, WNW_KV_F16);
        assert_ok(wnw_session_read(s, f.tokens, 300, NULL));
        assert_lengths(&f, s, 300);
        for (int32_t il = 0; il < f.info.n_layer; il++)
            if (wnw_model_layer_is_swa(f.m, il))
                assert_int_equal(wnw_cache_n(s, il, 0), wnw_cache_n(full, il, 0));
        wnw_session_free(s);
    }
    wnw_session_free(full);
    wnw_policy_free(p);
    free(f.tokens);
    wnw_model_free(f.m);
}

/* A session that is planned again and again. */
struct planned {
    wnw_session *s;
    const wnw_policy *p;
};

static void plan(void *user, bool other)
{
    const struct planned *of = user;
    wnw_plan *made;
    (void)other; /* nothing is computed but what is stored: there is no other rounding */
    assert_ok(wnw_session_plan(of->s, of->p, NULL, &made, NULL));
    wnw_plan_free(made);
}

/* Writes what `from` has stored, as numbers, into the rows of a float32 cache of the same entries. */
static void write_rows(wnw_session *s, const wnw_session *from)
{
    const struct wnw__cache *c = &s->cache;
    assert_int_equal(c->type, WNW_KV_F32);
    for (int32_t il = 0; il < c->n_layer; il++)
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            for (int32_t i = 0; i < wnw_cache_n(s, il, ih); i++) {
                const size_t at = (size_t)(c->layers[il].off[ih] + i) * (size_t)c->d * sizeof(float);
                test_read_row(from, true, il, ih, i, (float *)(void *)(c->layers[il].k + at));
                test_read_row(from, false, il, ih, i, (float *)(void *)(c->layers[il].v + at));
            }
}

/* Caches of every type are scored as they are stored: what is kept is what is kept of the same numbers in float32. */
static void caches_are_scored_as_stored(void **state)
{
    (void)state;
    struct test_model f;
    int32_t n = 0;
    f.tokens = test_golden_tokens(&n);
    f.m = test_model_open("smollm2-135m.gguf");
    f.info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(f.m, &f.info));
    wnw_policy *p = test_policy("lagkv:sink=16,lag=128,retain=0.25");
    wnw_session *plain = NULL;
    static const wnw_kv_type types[] = {WNW_KV_F32, WNW_KV_F16, WNW_KV_Q8_0, WNW_KV_Q4_0};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct planned stored = {test_session_read(f.m,
                                                   &(struct test_session){
                                                       .n_ctx = N_CTX, .n_threads = 1, .kv_type = types[t]},
                                                   p, f.tokens, n),
                                 p},
                       same = {plain ? plain : stored.s, p};
        if (plain)
            write_rows(plain, stored.s);
        struct test_cuts *kept = test_cuts_note();
        plan(&stored, false);
        test_cuts_stop();
        test_keeps_as(wnw_kv_type_name(types[t]), &(struct test_keeper){plan, &same}, kept);
        test_cuts_free(kept);
        if (plain)
            wnw_session_free(stored.s);
        else
            plain = stored.s;
    }
    wnw_session_free(plain);
    wnw_policy_free(p);
    free(f.tokens);
    wnw_model_free(f.m);
}

static int set_up(void **state)
{
    static struct test_model f;
    return test_set_up_tiny(state, &f, "llama", N_CTX, 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_token_is_that_of_the_full_cache),
        cmocka_unit_test(every_token_follows_the_formula),
        cmocka_unit_test(own_chunks_bound_the_cache),
        cmocka_unit_test(survivors_of_layer_0),
        cmocka_unit_test(share_of_a_size),
        cmocka_unit_test(no_block_loses_everything),
        cmocka_unit_test(short_first_turn),
        cmocka_unit_test(turns_come_to_the_ratio),
        cmocka_unit_test(second_compress_keeps_what_is_settled),
        cmocka_unit_test(sliding_layers_are_left_alone),
        cmocka_unit_test(caches_are_scored_as_stored),
    };
    return cmocka_run_group_tests_name("LagKV in sessions", tests, set_up, test_tear_down);
}
