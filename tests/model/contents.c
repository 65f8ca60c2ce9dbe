/* SPDX-License-Identifier: MIT */
/*
 * Merged values and pruned channels in a real cache, with every cache type and both attentions: against the
 * formulas in double precision, worked out from a copy of the session that was not compressed; decoding goes
 * on from what the cache shows; phases, new positions and sliding windows.
 */
#include "helpers.h"
#include "rounding.h"

#include "peek_session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 96, N_DECODE = 4, BUDGET = 40, MAX_D = 256 };

static wnw_session *new_session(const struct test_model *fx, wnw_kv_type type, wnw_attn attn)
{
    return test_session_new(
        fx->m, &(struct test_session){.kv_type = type, .attn = attn, .n_ctx = 256, .n_threads = 1});
}

/* Prompt read, nothing compressed. */
static wnw_session *read_prompt(const struct test_model *fx, const wnw_policy *p, wnw_kv_type type,
                                wnw_attn attn)
{
    wnw_session *s = new_session(fx, type, attn);
    assert_ok(test_observe(s, &p, 1));
    test_prefill(s, fx->tokens, N_PROMPT);
    return s;
}

static double dot(const float *a, const float *b, int32_t d)
{
    double sum = 0;
    for (int32_t i = 0; i < d; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* How far a stored number may be from its real one: one step of its type. */
static double step_of(wnw_kv_type type, const float *x, int32_t d)
{
    double most = 0;
    for (int32_t i = 0; i < d; i++)
        most = fmax(most, fabs((double)x[i]));
    static const double steps[] = {
        [WNW_KV_F16] = 1.0 / 1024, [WNW_KV_F32] = 2e-6, [WNW_KV_Q8_0] = 1.0 / 120, [WNW_KV_Q4_0] = 1.0 / 6};
    return most * test_rounding(steps[type], 2) + 1e-7; /* weights come from two products */
}

/* Fails unless row[d] is `want`, to one step of how it is stored: rotated where the cache is. `exact`: to the bit. Both are
 * overwritten. */
static void check_row(const struct wnw__cache *c, enum wnw__stored what, float *row, float *want, bool exact)
{
    wnw__hadamard(row, c->d, wnw__cache_block(c, what));
    wnw__hadamard(want, c->d, wnw__cache_block(c, what));
    const double step = exact ? 0 : step_of(c->type, want, c->d);
    for (int32_t i = 0; i < c->d; i++)
        if (!(fabs((double)row[i] - (double)want[i]) <= step))
            fail_msg("element %d: %g, expected %g within %g", i, (double)row[i], (double)want[i], step);
}

/* ---- Merging, from the formulas ---- */

struct head {
    const wnw_session *full;
    const int32_t *keep;                      /* [n_keep], entries of the full head */
    const struct wnw__plan_contents *planned; /* its merges; entry i is position i */
    int32_t il, ih, n_keep, n, d;
};

/* The number among those that stay of the entry that the plan merges entry e onto, or -1. */
static int32_t planned_target(const struct head *h, int32_t e)
{
    for (int32_t i = 0; i < h->planned->n_merge; i++)
        for (int32_t t = 0; t < h->n_keep; t++)
            if (h->planned->merges[i].from == e && h->planned->merges[i].to == h->keep[t])
                return t;
    return -1;
}

/* v[n_keep][d] after "merge" with kvpress' weights. The code compares cosines in float32: of two that are nearly equal it may
 * take the other one. So the targets are those of the plan, if their cosines are the largest but for the error of both. */
static void merge_reference(const struct head *h, double *v)
{
    const double error = test_rounding(1e-5, 1);
    double *weight = calloc((size_t)h->n_keep, sizeof *weight);
    float a[MAX_D], b[MAX_D];
    assert_non_null(weight);
    for (int32_t e = 0, t = 0; e < h->n; e++) {
        if (t < h->n_keep && h->keep[t] == e) {
            t++;
            continue;
        }
        const int32_t to = planned_target(h, e);
        double best = -2, of_target = 0;
        test_read_row(h->full, true, h->il, h->ih, e, a);
        for (int32_t c = 0; c < h->n_keep; c++) {
            test_read_row(h->full, true, h->il, h->ih, h->keep[c], b);
            const double u = dot(a, b, h->d) / sqrt(dot(a, a, h->d) * dot(b, b, h->d));
            best = fmax(best, u);
            of_target = c == to ? u : of_target;
        }
        assert_cmp(of_target, >=,
                   best - error); /* an entry without a target is like none: its cosine counts as 0 */
        if (to < 0)
            continue;
        test_read_row(h->full, false, h->il, h->ih, e, a);
        test_read_row(h->full, false, h->il, h->ih, h->keep[to], b);
        const double from = sqrt(dot(a, a, h->d)), onto = sqrt(dot(b, b, h->d));
        const double w = fmax(of_target, 0) * from / (from + onto + 1e-6);
        weight[to] += w;
        for (int32_t i = 0; i < h->d; i++)
            v[to * h->d + i] += w * (double)a[i];
    }
    for (int32_t c = 0; c < h->n_keep * h->d; c++)
        v[c] /= 1 + weight[c / h->d];
    free(weight);
}

static double received(const struct head *h, int32_t i)
{
    const struct wnw__kv_layer *l = &h->full->cache.layers[h->il];
    const int32_t group = h->full->cache.aux_planes[WNW_AUX_ATTN_SUM];
    double sum = 0;
    for (int32_t g = 0; g < group; g++)
        sum += (double)wnw__cache_aux(l, WNW_AUX_ATTN_SUM, g)[l->off[h->ih] + i] / group;
    return sum;
}

/* v[n_keep][d] after "cam" with 8 targets. */
static void cam_reference(const struct head *h, double *v)
{
    float a[MAX_D];
    for (int32_t e = 0, t = 0; e < h->n; e++) {
        if (t < h->n_keep && h->keep[t] == e) {
            t++;
            continue;
        }
        const int32_t m = h->n_keep - t < 8 ? h->n_keep - t : 8;
        double mean = 0;
        for (int32_t c = t; c < t + m; c++)
            mean += received(h, h->keep[c]) / m;
        if (m == 0 ||
            !((double)wnw__uniform(wnw__stream(0, h->il, h->ih), (uint32_t)e) * mean < received(h, e)))
            continue;
        test_read_row(h->full, false, h->il, h->ih, e, a);
        for (int32_t c = t; c < t + m; c++)
            for (int32_t i = 0; i < h->d; i++)
                v[c * h->d + i] += (double)a[i] / m;
    }
}

static int32_t check_head(const struct head *h, const wnw_session *s, bool cam)
{
    double *v = calloc((size_t)h->n_keep * (size_t)h->d + 1, sizeof *v);
    float row[MAX_D], key[MAX_D];
    int32_t n_changed = 0;
    assert_non_null(v);
    for (int32_t t = 0; t < h->n_keep; t++) {
        test_read_row(h->full, false, h->il, h->ih, h->keep[t], row);
        for (int32_t i = 0; i < h->d; i++)
            v[t * h->d + i] = (double)row[i];
    }
    (cam ? cam_reference : merge_reference)(h, v);
    for (int32_t t = 0; t < h->n_keep; t++) {
        float want[MAX_D];
        for (int32_t i = 0; i < h->d; i++)
            want[i] = (float)v[t * h->d + i];
        test_read_row(s, false, h->il, h->ih, t, row);
        check_row(&s->cache, WNW_VALUES, row, want, false);
        test_read_row(s, false, h->il, h->ih, t, row);
        test_read_row(h->full, false, h->il, h->ih, h->keep[t], key);
        n_changed += memcmp(row, key, (size_t)h->d * sizeof *row) != 0;
        test_read_row(s, true, h->il, h->ih, t, row);
        test_read_row(h->full, true, h->il, h->ih, h->keep[t], key);
        assert_memory_equal(row, key, (size_t)h->d * sizeof *row);
    }
    free(v);
    return n_changed;
}

/* A session with the same values that never merged anything decodes the same. */
static void check_decoding(const struct test_model *fx, wnw_session *s, wnw_session *plain)
{
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        const struct wnw__kv_layer *from = &s->cache.layers[il], *to = &plain->cache.layers[il];
        assert_int_equal(from->mapped_bytes, to->mapped_bytes);
        memcpy(to->v, from->v, from->mapped_bytes);
    }
    for (int i = 0; i < N_DECODE; i++) {
        assert_ok(wnw_session_decode(s, fx->tokens[N_PROMPT + i]));
        assert_ok(wnw_session_decode(plain, fx->tokens[N_PROMPT + i]));
        assert_memory_equal(wnw_session_logits(s), wnw_session_logits(plain),
                            (size_t)fx->info.n_vocab * sizeof(float));
    }
}

static void check_merging(const struct test_model *fx, const char *recipe, const char *without,
                          wnw_kv_type type, wnw_attn attn)
{
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET};
    wnw_policy *p = test_policy(recipe), *q = test_policy(without);
    wnw_session *full = read_prompt(fx, p, type, attn), *s, *plain;
    wnw_plan *plan;
    int32_t keep[N_PROMPT], n_changed = 0;
    assert_ok(wnw_session_copy(&s, full));
    assert_ok(wnw_session_copy(&plain, full));
    assert_ok(wnw_session_plan(full, p, &size, &plan, NULL));
    assert_ok(wnw_session_compress(s, p, &size, NULL));
    assert_ok(wnw_session_compress(plain, q, &size, NULL));
    assert_int_equal(wnw__cache_bytes(&s->cache), wnw__cache_bytes(&plain->cache));
    for (int32_t il = 0; il < fx->info.n_layer; il++)
        for (int32_t ih = 0; ih < fx->info.n_head_kv; ih++) {
            const int32_t *pos, n = wnw_plan_head(plan, il, ih, &pos);
            memcpy(keep, pos, (size_t)n * sizeof *pos); /* entry i is position i */
            assert_int_equal(wnw_cache_n(plain, il, ih), n);
            assert_memory_equal(wnw_cache_positions(plain, il, ih), pos, (size_t)n * sizeof *pos);
            const struct head h = {.full = full,
                                   .keep = keep,
                                   .planned = &wnw__plan_contents_of(plan, il)[ih],
                                   .il = il,
                                   .ih = ih,
                                   .n_keep = n,
                                   .n = N_PROMPT,
                                   .d = fx->info.n_embd_head};
            n_changed += check_head(&h, s, strstr(recipe, "+cam") != NULL);
        }
    assert_cmp(n_changed, >, fx->info.n_layer * fx->info.n_head_kv * BUDGET / 10);
    check_decoding(fx, s, plain);
    wnw_plan_free(plan);
    wnw_session_free(full);
    wnw_session_free(s);
    wnw_session_free(plain);
    wnw_policy_free(p);
    wnw_policy_free(q);
}

static void merged_values(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "llama", N_PROMPT + N_DECODE, 21);
    for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++)
        for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_GGML; attn++) {
            check_merging(&fx, "snapkv:window=8+merge", "snapkv:window=8", (wnw_kv_type)type, (wnw_attn)attn);
            check_merging(&fx, "snapkv:window=8+cam:targets=8", "snapkv:window=8", (wnw_kv_type)type,
                          (wnw_attn)attn);
        }
    test_close(&fx);
}

/* ---- Pruned channels ---- */

/* Sets zero[d] for the channels that the plan makes 0, and fails unless they are the n_gone lowest by the formula, but for the
 * rounding of scores to float32. */
static void pruned_reference(const struct test_model *fx, const wnw_session *full, const wnw_plan *plan,
                             int32_t il, int32_t ih, int32_t w, int32_t n_gone, bool *zero)
{
    const int32_t d = fx->info.n_embd_head, n_head = fx->info.n_head, group = n_head / fx->info.n_head_kv;
    const struct wnw__window *window = wnw__recorders_find(&full->recorders, &wnw__window_recorder);
    const struct wnw__plan_contents *planned = &wnw__plan_contents_of(plan, il)[ih];
    double highest_gone = 0, lowest_left = INFINITY;
    float row[MAX_D];
    memset(zero, 0, (size_t)d * sizeof *zero);
    assert_int_equal(planned->n_channel, n_gone);
    for (int32_t i = 0; i < n_gone; i++)
        zero[planned->channels[i]] = true;
    for (int32_t c = 0; c < d; c++) {
        double q2 = 0, k2 = 0;
        for (int32_t p = N_PROMPT - w; p < N_PROMPT; p++)
            for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
                const double x = (double)wnw__window_at(window, il, p)[(size_t)h * (size_t)d + (size_t)c];
                q2 += x * x;
            }
        for (int32_t i = 0; i < N_PROMPT; i++) {
            test_read_row(full, true, il, ih, i, row);
            k2 += (double)row[c] * (double)row[c];
        }
        if (zero[c])
            highest_gone = fmax(highest_gone, q2 * k2);
        else
            lowest_left = fmin(lowest_left, q2 * k2);
    }
    assert_cmp(highest_gone, <=, lowest_left * (1 + 4 * 0x1p-24));
}

static void pruned_channels(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "llama", N_PROMPT + N_DECODE, 21);
    wnw_policy *p = test_policy("full+think:ratio=0.5,window=16,recent=10");
    const int32_t d = fx.info.n_embd_head;
    for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++) {
        wnw_session *full = read_prompt(&fx, p, (wnw_kv_type)type, WNW_ATTN_OWN), *s;
        wnw_report report = {WNW_INIT(wnw_report)};
        float now[MAX_D], before[MAX_D];
        bool zero[MAX_D];
        wnw_plan *plan;
        assert_ok(wnw_session_copy(&s, full));
        assert_ok(wnw_session_plan(full, p, NULL, &plan, NULL));
        assert_ok(wnw_session_compress(s, p, NULL, &report));
        assert_string_equal(report.warning, "");
        assert_int_equal(report.kv_bytes_after, report.kv_bytes_before); /* it saves nothing, and says so */
        assert_int_equal(report.entries_after, report.entries_before);
        for (int32_t il = 0; il < fx.info.n_layer; il++)
            for (int32_t ih = 0; ih < fx.info.n_head_kv; ih++) {
                pruned_reference(&fx, full, plan, il, ih, 16, d / 2, zero);
                for (int32_t i = 0; i < N_PROMPT; i++) {
                    const bool spared = i >= N_PROMPT - 10;
                    test_read_row(s, false, il, ih, i, now);
                    test_read_row(full, false, il, ih, i, before);
                    assert_memory_equal(now, before, (size_t)d * sizeof *now);
                    test_read_row(s, true, il, ih, i, now);
                    test_read_row(full, true, il, ih, i, before);
                    for (int32_t c = 0; c < d; c++)
                        before[c] = zero[c] && !spared ? 0 : before[c];
                    check_row(&s->cache, WNW_KEYS, now, before,
                              spared || type == WNW_KV_F16 || type == WNW_KV_F32);
                }
            }
        test_decode(s, fx.tokens + N_PROMPT, N_DECODE);
        wnw_plan_free(plan);
        wnw_session_free(full);
        wnw_session_free(s);
    }
    wnw_policy_free(p);
    test_close(&fx);
}

/* ---- Phases, positions, sliding windows ---- */

static wnw_session *read_by(const struct test_model *fx, const wnw_policy *p, wnw_phase phase, int32_t every)
{
    wnw_session *s = new_session(fx, WNW_KV_F16, WNW_ATTN_OWN);
    const wnw_run ev = {WNW_INIT(wnw_run), .policy = p, .size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET},
                        .phase = phase,    .chunk = 24, .every = every};
    assert_ok(wnw_session_begin(s, &ev));
    assert_ok(wnw_session_read(s, fx->tokens, N_PROMPT, NULL));
    test_decode(s, fx->tokens + N_PROMPT, N_DECODE);
    assert_ok(wnw__cache_check(&s->cache));
    return s;
}

static void layer_by_layer_is_the_same(void **state)
{
    test_not_with_noise();
    (void)state;
    static const char *const recipes[] = {"snapkv:window=8+merge", "snapkv:window=8+cam",
                                          "snapkv:window=8+think", "full+think",
                                          "knorm+adakv+merge:weight=exp,gate=mean"};
    struct test_model fx;
    test_open_tiny(&fx, "llama", N_PROMPT + N_DECODE, 21);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        wnw_policy *p = test_policy(recipes[i]);
        wnw_session *a = read_by(&fx, p, WNW_PHASE_END, 0), *b = read_by(&fx, p, WNW_PHASE_LAYER, 0);
        assert_same_cache(a, b);
        assert_memory_equal(wnw_session_logits(a), wnw_session_logits(b),
                            (size_t)fx.info.n_vocab * sizeof(float));
        wnw_session_free(a);
        wnw_session_free(b);
        wnw_policy_free(p);
    }
    test_close(&fx);
}

/* By chunk and at every token values go on being merged: another cache than without, of the same size. */
static void chunks_and_decoding(void **state)
{
    (void)state;
    static const char *const recipes[] = {"knorm+merge", "h2o+cam", "knorm+merge+rerotate"};
    struct test_model fx;
    test_open_tiny(&fx, "llama", N_PROMPT + N_DECODE, 21);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        char without[64];
        wnw_policy *p = test_policy(recipes[i]), *q;
        const size_t cut = strcspn(recipes[i], "+");
        snprintf(without, sizeof without, "%.*s%s", (int)cut, recipes[i],
                 strstr(recipes[i], "+rerotate") ? "+rerotate" : "");
        q = test_policy(without);
        wnw_session *a = read_by(&fx, p, WNW_PHASE_CHUNK, 1), *b = read_by(&fx, q, WNW_PHASE_CHUNK, 1);
        assert_int_equal(wnw__cache_entries(&a->cache), wnw__cache_entries(&b->cache));
        assert_int_equal(wnw__cache_bytes(&a->cache), wnw__cache_bytes(&b->cache));
        assert_memory_not_equal(wnw_session_logits(a), wnw_session_logits(b),
                                (size_t)fx.info.n_vocab * sizeof(float));
        assert_all_finite(wnw_session_logits(a), fx.info.n_vocab);
        wnw_session_free(a);
        wnw_session_free(b);
        wnw_policy_free(p);
        wnw_policy_free(q);
    }
    test_close(&fx);
}

/* Layers with a sliding window are left alone, contents too. */
static void sliding_windows(void **state)
{
    (void)state;
    static const char *const recipes[] = {"knorm+merge", "snapkv:window=8+think"};
    struct test_model fx;
    test_open_tiny(&fx, "gemma3", N_PROMPT + N_DECODE, 21);
    assert_cmp(fx.info.n_layer_swa, >, 0);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET};
        wnw_policy *p = test_policy(recipes[i]);
        wnw_session *full = read_prompt(&fx, p, WNW_KV_F16, WNW_ATTN_OWN), *s;
        assert_ok(wnw_session_copy(&s, full));
        assert_ok(wnw_session_compress(s, p, &size, NULL));
        for (int32_t il = 0; il < fx.info.n_layer; il++) {
            const struct wnw__kv_layer *a = &full->cache.layers[il], *b = &s->cache.layers[il];
            if (!wnw_model_layer_is_swa(fx.m, il)) {
                assert_int_equal(b->len[0], BUDGET);
                continue;
            }
            assert_int_equal(a->mapped_bytes, b->mapped_bytes);
            assert_memory_equal(a->k, b->k, (size_t)a->n_rows * full->cache.row_bytes);
            assert_memory_equal(a->v, b->v, (size_t)a->n_rows * full->cache.row_bytes);
        }
        wnw_session_free(full);
        wnw_session_free(s);
        wnw_policy_free(p);
    }
    test_close(&fx);
}

/* A plan that merges what the cache does not hold is refused, and nothing changes. */
static void plans_are_checked(void **state)
{
    (void)state;
    struct test_model fx;
    test_open_tiny(&fx, "llama", N_PROMPT + N_DECODE, 21);
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET};
    wnw_policy *p = test_policy("knorm+merge");
    wnw_session *full = read_prompt(&fx, p, WNW_KV_F16, WNW_ATTN_OWN), *s;
    wnw_plan *plan;
    assert_ok(wnw_session_copy(&s, full));
    assert_ok(wnw_session_plan(s, p, &size, &plan, NULL));
    assert_ok(wnw_session_apply(s, plan, NULL));
    wnw_session_free(full);
    assert_ok(wnw_session_copy(&full, s));
    assert_error(wnw_session_apply(s, plan, NULL), WNW_E_MISMATCH); /* the merged entries are gone */
    assert_same_cache(full, s);
    wnw_plan_free(plan);
    wnw_session_free(full);
    wnw_session_free(s);
    wnw_policy_free(p);
    test_close(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_values),
        cmocka_unit_test(pruned_channels),
        cmocka_unit_test(layer_by_layer_is_the_same),
        cmocka_unit_test(chunks_and_decoding),
        cmocka_unit_test(sliding_windows),
        cmocka_unit_test(plans_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
