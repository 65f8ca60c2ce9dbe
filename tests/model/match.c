/* SPDX-License-Identifier: MIT */
/*
 * Biases and fitted values in a real cache (decision 070): the plan's numbers against the formulas in double precision with
 * every cache type and both attentions, and what the cache then holds. Timelines with biases are copied, taken back, decoded
 * together and compressed again as others are.
 */
#include "helpers.h"
#include "winnow_method.h"

#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 96, N_DECODE = 6, BUDGET = 40, MAX_D = 256, N_CTX = 512 };

static const char recipe[] = "snapkv:window=8+match:queries=64,ridge=0.01";

static struct test_model llama;

static wnw_session *read_prompt(const wnw_policy *p, const struct test_session *how)
{
    return test_session_read(llama.m, how, p, llama.tokens, N_PROMPT);
}

/* ---- The formulas ---- */

/* One head, as the rule saw it, in double: logits [m][N_PROMPT], values [N_PROMPT][d]. */
struct head {
    int32_t m, d, b;
    double *logits, *values;
    const int32_t *keep; /* [b] */
};

/* The query of head h at position t, turned `by` positions on. */
static void query(const wnw_session *s, int32_t il, int32_t h, int32_t t, int32_t by, double *out)
{
    const struct wnw__token_rows *all = wnw__recorders_find(&s->recorders, &wnw__queries_recorder);
    const struct wnw__token_rows_layer *l = &all->layers[il];
    const int32_t d = llama.info.n_embd_head;
    const struct wnw__hparams *hp = &s->m->hp;
    float theta[MAX_D];
    assert_int_equal(l->n, N_PROMPT);
    wnw__rope_theta(hp, il, s->m->w.rope_freqs ? s->m->w.rope_freqs->data : NULL, theta);
    const float *q = (const float *)wnw__token_rows_at(all, il, t) + h * d;
    for (int32_t i = 0; i < d; i++)
        out[i] = (double)q[i];
    for (int32_t i = 0; i < hp->n_rot / 2; i++) {
        const bool neox = s->m->arch->rope_type == GGML_ROPE_TYPE_NEOX;
        double *a = out + (neox ? i : 2 * i), *b = out + (neox ? i + hp->n_rot / 2 : 2 * i + 1);
        const double x = *a, y = *b, c = cos((double)by * (double)theta[i]),
                     n = sin((double)by * (double)theta[i]);
        *a = c * x - n * y;
        *b = n * x + c * y;
    }
}

static struct head head_of(const wnw_session *s, int32_t il, int32_t ih, const int32_t *keep, int32_t b)
{
    const int32_t d = llama.info.n_embd_head, group = llama.info.n_head / llama.info.n_head_kv;
    const int32_t taken = 64 / group;
    struct head h = {.m = taken * group, .d = d, .b = b, .keep = keep};
    h.logits = calloc((size_t)(h.m * N_PROMPT), sizeof *h.logits);
    h.values = calloc((size_t)(N_PROMPT * d), sizeof *h.values);
    assert_non_null(h.logits);
    assert_non_null(h.values);
    float row[MAX_D];
    for (int32_t i = 0; i < N_PROMPT; i++) {
        test_read_row(s, false, il, ih, i, row);
        for (int32_t c = 0; c < d; c++)
            h.values[i * d + c] = (double)row[c];
    }
    for (int32_t r = 0; r < h.m; r++) {
        double q[MAX_D];
        /* of the N_PROMPT queries one from the middle of every N_PROMPT / taken; nothing is known of a header */
        query(s, il, ih * group + r % group, (2 * (r / group) + 1) * N_PROMPT / (2 * taken), N_PROMPT, q);
        for (int32_t i = 0; i < N_PROMPT; i++) {
            test_read_row(s, true, il, ih, i, row);
            double sum = 0;
            for (int32_t c = 0; c < d; c++)
                sum += q[c] * (double)row[c];
            h.logits[r * N_PROMPT + i] = sum * (double)s->m->hp.attn_scale;
        }
    }
    return h;
}

/* ||E_I B - M||^2 */
static double misses(const struct head *h, const double *factor)
{
    double total = 0;
    for (int32_t r = 0; r < h->m; r++) {
        const double *s = h->logits + r * N_PROMPT;
        double top = -INFINITY, rest = 0;
        for (int32_t i = 0; i < N_PROMPT; i++)
            top = fmax(top, s[i]);
        for (int32_t i = 0; i < N_PROMPT; i++)
            rest += exp(s[i] - top);
        for (int32_t k = 0; k < h->b; k++)
            rest -= factor[k] * exp(s[h->keep[k]] - top);
        total += rest * rest;
    }
    return total;
}

/* The least there is, by going from factor to factor. */
static double least_misses(const struct head *h)
{
    double factor[BUDGET], *e = calloc((size_t)(h->m * h->b), sizeof *e),
                           *rest = calloc((size_t)h->m, sizeof *rest);
    assert_non_null(e);
    assert_non_null(rest);
    for (int32_t r = 0; r < h->m; r++) {
        const double *s = h->logits + r * N_PROMPT;
        double top = -INFINITY;
        for (int32_t i = 0; i < N_PROMPT; i++)
            top = fmax(top, s[i]);
        for (int32_t i = 0; i < N_PROMPT; i++)
            rest[r] += exp(s[i] - top);
        for (int32_t k = 0; k < h->b; k++) {
            e[r * h->b + k] = exp(s[h->keep[k]] - top);
            rest[r] -= e[r * h->b + k];
            factor[k] = 1;
        }
    }
    for (int sweep = 0; sweep < 500; sweep++)
        for (int32_t k = 0; k < h->b; k++) {
            double up = 0, square = 0;
            for (int32_t r = 0; r < h->m; r++) {
                up += e[r * h->b + k] * rest[r];
                square += e[r * h->b + k] * e[r * h->b + k];
            }
            const double next = fmin(fmax(factor[k] + up / (square + 1e-300), exp(-3.0)), exp(3.0));
            for (int32_t r = 0; r < h->m; r++)
                rest[r] -= e[r * h->b + k] * (next - factor[k]);
            factor[k] = next;
        }
    free(e);
    free(rest);
    return misses(h, factor);
}

/* ||X V' - Y||^2 + ridge tr(X^T X) / b ||V' - V_I||^2, and with `bend` != 0 the same for values moved by so much in
 * another direction each. */
static double lost(const struct head *h, const float *beta, const float *v, double bend)
{
    double total = 0, trace = 0, moved = 0;
    for (int32_t r = 0; r < h->m; r++) {
        const double *s = h->logits + r * N_PROMPT;
        double all = 0, kept = 0, x[BUDGET];
        for (int32_t i = 0; i < N_PROMPT; i++)
            all += exp(s[i]);
        for (int32_t k = 0; k < h->b; k++)
            kept += x[k] = exp(s[h->keep[k]] + (double)beta[k]);
        for (int32_t k = 0; k < h->b; k++)
            trace += x[k] / kept * (x[k] / kept);
        for (int32_t c = 0; c < h->d; c++) {
            double miss = 0;
            for (int32_t k = 0; k < h->b; k++)
                miss += x[k] / kept * ((double)v[k * h->d + c] + bend * sin((double)(7 * k + 3 * c)));
            for (int32_t i = 0; i < N_PROMPT; i++)
                miss -= exp(s[i]) / all * h->values[i * h->d + c];
            total += miss * miss;
        }
    }
    for (int32_t k = 0; k < h->b; k++)
        for (int32_t c = 0; c < h->d; c++) {
            const double by = (double)v[k * h->d + c] + bend * sin((double)(7 * k + 3 * c)) -
                              h->values[h->keep[k] * h->d + c];
            moved += by * by;
        }
    return total + 0.01 * trace / h->b * moved;
}

static void check_formulas(const wnw_session *full, int32_t il, int32_t ih, const int32_t *keep,
                           const wnw_fitted *f)
{
    struct head h = head_of(full, il, ih, keep, f->n);
    double factor[BUDGET], one[BUDGET];
    for (int32_t k = 0; k < f->n; k++) {
        factor[k] = exp((double)f->bias[k]);
        one[k] = 1;
    }
    const double most = misses(&h, one), least = least_misses(&h), is = misses(&h, factor);
    assert_cmp(is, >=, least * (1 - 1e-6) - 1e-9 * most);
    assert_cmp(is, <=, least + 0.01 * most);
    /* A quadratic form is least where it grows alike in both directions. */
    const double at = lost(&h, f->bias, f->values, 0), step = 0.05;
    const double there = lost(&h, f->bias, f->values, step) - at,
                 back = lost(&h, f->bias, f->values, -step) - at;
    assert_cmp(there, >, 0);
    assert_cmp(back, >, 0);
    assert_near(there / back, 1, 0.05);
    free(h.logits);
    free(h.values);
}

/* What the cache holds of a head after the plan: the biases to the bit, the values to a step of its type. */
static void check_cache(const wnw_session *s, int32_t il, int32_t ih, const wnw_fitted *f)
{
    static const double steps[] = {
        [WNW_KV_F16] = 1.0 / 1024, [WNW_KV_F32] = 1e-6, [WNW_KV_Q8_0] = 1.0 / 120, [WNW_KV_Q4_0] = 1.0 / 6};
    const struct wnw__cache *c = &s->cache;
    float row[MAX_D], want[MAX_D];
    assert_int_equal(c->layers[il].len[ih], f->n);
    assert_memory_equal(wnw__cache_bias(&c->layers[il], ih), f->bias, (size_t)f->n * sizeof(float));
    for (int32_t k = 0; k < f->n; k++) {
        double most = 0;
        test_read_row(s, false, il, ih, k, row);
        memcpy(want, f->values + (size_t)(k * c->d), (size_t)c->d * sizeof *want);
        wnw__hadamard(row, c->d, c->v_block);
        wnw__hadamard(want, c->d, c->v_block);
        for (int32_t i = 0; i < c->d; i++)
            most = fmax(most, fabs((double)want[i]));
        for (int32_t i = 0; i < c->d; i++)
            assert_near(row[i], want[i], most * steps[c->type] + 1e-6);
    }
}

static void plans_and_caches(void **state)
{
    (void)state;
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET};
    wnw_policy *p = test_policy(recipe);
    for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++)
        for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_F32; attn++) {
            const struct test_session how = {
                .kv_type = (wnw_kv_type)type, .attn = (wnw_attn)attn, .n_ctx = N_CTX, .n_threads = 1};
            wnw_session *full = read_prompt(p, &how), *s;
            wnw_plan *plan;
            assert_ok(wnw_session_copy(&s, full));
            assert_ok(wnw_session_plan(full, p, &size, &plan, NULL));
            assert_ok(wnw_session_apply(s, plan, NULL));
            assert_ok(wnw__cache_check(&s->cache));
            for (int32_t il = 0; il < llama.info.n_layer; il++)
                for (int32_t ih = 0; ih < llama.info.n_head_kv; ih++) {
                    const int32_t *keep;
                    const wnw_fitted f = wnw_plan_fitted(plan, il, ih);
                    assert_int_equal(wnw_plan_head(plan, il, ih, &keep), BUDGET);
                    assert_int_equal(f.n, BUDGET);
                    assert_int_equal(f.n_embd_head, llama.info.n_embd_head);
                    check_formulas(full, il, ih, keep, &f);
                    check_cache(s, il, ih, &f);
                }
            test_decode(s, llama.tokens + N_PROMPT, N_DECODE);
            assert_all_finite(wnw_session_logits(s), llama.info.n_vocab);
            wnw_plan_free(plan);
            wnw_session_free(full);
            wnw_session_free(s);
        }
    wnw_policy_free(p);
}

/* ---- Sessions ---- */

static wnw_session *compressed(const wnw_policy *p, const struct test_session *how, wnw_phase phase)
{
    wnw_session *s = test_session_new(llama.m, how);
    const wnw_run run = {WNW_INIT(wnw_run), .policy = p, .size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET},
                         .phase = phase, .chunk = 48};
    assert_ok(wnw_session_begin(s, &run));
    assert_ok(wnw_session_read(s, llama.tokens, N_PROMPT, NULL));
    return s;
}

static void decode(wnw_session *s, int32_t from)
{
    test_decode(s, llama.tokens + from, N_DECODE);
}

static void assert_same_biases(const wnw_session *a, const wnw_session *b)
{
    for (int32_t il = 0; il < a->cache.n_layer; il++)
        for (int32_t ih = 0; ih < a->cache.n_head_kv; ih++)
            assert_memory_equal(wnw__cache_bias(&a->cache.layers[il], ih),
                                wnw__cache_bias(&b->cache.layers[il], ih),
                                (size_t)a->cache.layers[il].len[ih] * sizeof(float));
}

/* Where everything stays nothing is written: the same session as without the rule. */
static void everything_stays(void **state)
{
    (void)state;
    wnw_policy *p = test_policy(recipe), *q = test_policy("snapkv:window=8");
    const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = N_PROMPT};
    const struct test_session how = {.n_ctx = N_CTX};
    wnw_session *a = read_prompt(p, &how), *b = read_prompt(q, &how);
    assert_ok(wnw_session_compress(a, p, &size, NULL));
    assert_ok(wnw_session_compress(b, q, &size, NULL));
    assert_null(wnw__cache_bias(&a->cache.layers[0], 0));
    decode(a, N_PROMPT);
    decode(b, N_PROMPT);
    assert_same_cache(a, b);
    assert_same_logits(a, b);
    wnw_session_free(a);
    wnw_session_free(b);
    wnw_policy_free(p);
    wnw_policy_free(q);
}

/* At the end and layer by layer, with one thread and two, on a copy and after going back: the same bits. */
static void same_bits(void **state)
{
    (void)state;
    wnw_policy *p = test_policy(recipe);
    for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++) {
        const struct test_session one = {.kv_type = (wnw_kv_type)type, .n_ctx = N_CTX, .n_threads = 1},
                                  two = {.kv_type = (wnw_kv_type)type, .n_ctx = N_CTX, .n_threads = 2};
        wnw_session *a = compressed(p, &one, WNW_PHASE_END), *b = compressed(p, &two, WNW_PHASE_LAYER), *copy;
        assert_same_biases(a, b);
        assert_ok(wnw_session_copy(&copy, a));
        assert_same_biases(a, copy);
        decode(copy, 3);
        assert_ok(wnw_session_rewind(copy, N_PROMPT));
        decode(a, N_PROMPT);
        decode(b, N_PROMPT);
        decode(copy, N_PROMPT);
        assert_same_cache(a, b);
        assert_same_logits(a, b);
        assert_same_cache(a, copy);
        assert_same_logits(a, copy);
        wnw_session_free(a);
        wnw_session_free(b);
        wnw_session_free(copy);
    }
    wnw_policy_free(p);
}

/* A session with biases and one without, in one batch, are as alone. */
static void batches(void **state)
{
    (void)state;
    wnw_policy *p[2] = {test_policy(recipe), test_policy("snapkv:window=8")};
    const wnw_engine_params ep = {WNW_INIT(wnw_engine_params), .n_ubatch = 64, .n_threads = 2};
    wnw_engine *e;
    wnw_session *s[2];
    assert_ok(wnw_engine_new(&e, llama.m, &ep));
    for (int i = 0; i < 2; i++) {
        const wnw_session_params sp = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX, .kv_type = WNW_KV_F32};
        const wnw_size size = {.kind = WNW_SIZE_BUDGET, .budget = BUDGET};
        const wnw_policy *policy = p[i];
        assert_ok(wnw_session_new_on(&s[i], e, &sp));
        assert_ok(test_observe(s[i], &policy, 1));
        test_prefill(s[i], llama.tokens, N_PROMPT);
        assert_ok(wnw_session_compress(s[i], policy, &size, NULL));
    }
    test_batches(e, s, 2, llama.tokens, N_DECODE, test_nmse_most(1e-6));
    for (int i = 0; i < 2; i++) {
        wnw_session_free(s[i]);
        wnw_policy_free(p[i]);
    }
    wnw_engine_free(e);
}

/* Both attentions add biases: the logits of ggml's are near to ours. */
static void both_attentions(void **state)
{
    (void)state;
    wnw_policy *p = test_policy(recipe), *q = test_policy("snapkv:window=8");
    struct test_diff same = {0}, other = {0};
    wnw_session *s[3];
    for (int i = 0; i < 3; i++)
        s[i] = compressed(i == 2 ? q : p,
                          &(struct test_session){.kv_type = WNW_KV_F32,
                                                 .attn = i == 1 ? WNW_ATTN_GGML : WNW_ATTN_F32,
                                                 .n_ctx = N_CTX},
                          WNW_PHASE_END);
    for (int k = 0; k < N_DECODE; k++) {
        for (int i = 0; i < 3; i++)
            assert_ok(wnw_session_decode(s[i], llama.tokens[N_PROMPT + k]));
        test_diff_add(&same, wnw_session_logits(s[0]), wnw_session_logits(s[1]), llama.info.n_vocab);
        test_diff_add(&other, wnw_session_logits(s[0]), wnw_session_logits(s[2]), llama.info.n_vocab);
    }
    assert_cmp(test_diff_nmse(&same), <, test_rounding(1e-3, 8)); /* least squares amplify */
    assert_cmp(test_diff_nmse(&same), <, (test_noise() > 0 ? 1 : 0.1) * test_diff_nmse(&other));
    for (int i = 0; i < 3; i++)
        wnw_session_free(s[i]);
    wnw_policy_free(p);
    wnw_policy_free(q);
}

/* Columns of attention have biases in them: what every query gives adds up to 1. */
static void columns_add_up(void **state)
{
    (void)state;
    wnw_policy *p = test_policy("h2o+match:queries=64");
    const int32_t group = llama.info.n_head / llama.info.n_head_kv;
    wnw_session *s =
        compressed(p, &(struct test_session){.kv_type = WNW_KV_F32, .n_ctx = N_CTX}, WNW_PHASE_END);
    const struct wnw__kv_layer *l = &s->cache.layers[1];
    double before[8] = {0}, after[8] = {0};
    assert_cmp(group, <=, 8);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t g = 0; g < group; g++)
            for (int32_t i = 0; i < l->len[0]; i++)
                (pass ? after : before)[g] += (double)wnw__cache_aux(l, WNW_AUX_ATTN_SUM, g)[l->off[0] + i];
        if (pass == 0) {
            decode(s, N_PROMPT);                                             /* few rows */
            assert_ok(wnw_session_prefill(s, llama.tokens, 70, NULL, NULL)); /* many rows */
        }
    }
    for (int32_t g = 0; g < group; g++)
        assert_near(after[g] - before[g], N_DECODE + 70, 0.02 * (N_DECODE + 70));
    wnw_session_free(s);
    wnw_policy_free(p);
}

/* Compressed again, chunk after chunk, biases are in what is matched; with new positions, on ragged heads and on
 * those of the papers' systems that need no profile. */
static const struct system_row {
    const char *name, *recipe;
    wnw_phase phase;
    int32_t kv_tail;
} system_rows[] = {
    {"chunks", "snapkv:window=8+match", WNW_PHASE_CHUNK, 0},
    {"new positions", "streaming_llm+rerotate+match", WNW_PHASE_CHUNK, 0},
    {"ragged heads", "snapkv:window=8+adakv+match", WNW_PHASE_LAYER, 0},
    {"a tail", "snapkv:window=8+match", WNW_PHASE_END, 32},
    {"fewer entries in some layers", "snapkv:window=8+pyramid+match", WNW_PHASE_END, 0},
    {"kvcompose", "kvcompose+match", WNW_PHASE_END, 0},
    {"kvzip", "kvzip+match", WNW_PHASE_END, 0},
    {"lagkv", "lagkv:lag=16,sink=4+match", WNW_PHASE_END, 0},
    {"criticalkv", "criticalkv:window=8+match", WNW_PHASE_END, 0},
};

static void systems(void **state)
{
    const struct system_row *row = *state;
    wnw_policy *p = test_policy(row->recipe);
    const struct test_session how = {
        .kv_type = row->kv_tail ? WNW_KV_Q8_0 : WNW_KV_F16, .kv_tail = row->kv_tail, .n_ctx = N_CTX};
    wnw_session *s = compressed(p, &how, row->phase), *copy;
    assert_non_null(wnw__cache_bias(&s->cache.layers[0], 0));
    double most = 0;
    for (int32_t i = 0; i < s->cache.layers[0].len[0]; i++)
        most = fmax(most, fabs((double)wnw__cache_bias(&s->cache.layers[0], 0)[i]));
    assert_cmp(most, >, 0);
    assert_ok(wnw_session_copy(&copy, s));
    decode(s, N_PROMPT);
    decode(copy, N_PROMPT);
    assert_same_logits(s, copy);
    assert_all_finite(wnw_session_logits(s), llama.info.n_vocab);
    assert_ok(wnw__cache_check(&s->cache));
    /* A session after a reset has no biases. */
    assert_ok(wnw_session_reset(copy));
    assert_null(wnw__cache_bias(&copy->cache.layers[0], 0));
    wnw_session_free(copy);
    wnw_session_free(s);
    wnw_policy_free(p);
}

static int set_up(void **state)
{
    return test_set_up_tiny(state, &llama, "llama", N_CTX, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_and_caches), cmocka_unit_test(everything_stays),
        cmocka_unit_test(same_bits),        cmocka_unit_test(batches),
        cmocka_unit_test(both_attentions),  cmocka_unit_test(columns_add_up),
    };
    return cmocka_run_group_tests(tests, set_up, test_tear_down) +
           run_rows_with(systems, system_rows, set_up, test_tear_down);
}
