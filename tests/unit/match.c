/* SPDX-License-Identifier: MIT */
/* Attention Matching (decision 070): biases and values that are fitted, and attention over entries that have a bias. */
#include "asserts.h"

#include "peek_arrays.h"
#include "peek_plan.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *floats(size_t n)
{
    float *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* ---- Fitting ---- */

/* Queries see weights 1 1 1 and 2 1 1 of three entries, the first two stay. With E = exp(S - row maximum)
 *     E_I = 1 1, M = 3       B = 1, 2: beta = 0, ln 2
 *           1 .5     2
 *     X = 1/3 2/3   Y = (v0 + v1 + v2) / 3       with v = 3 6 9: Y = 6, 21/4, and X V' = Y for V' = 3, 15/2
 *         1/2 1/2       (2 v0 + v1 + v2) / 4 */
static void by_hand(void **state)
{
    (void)state;
    const float logits[] = {0, 0, 0, logf(2), 0, 0}, values[] = {3, -6, 6, -12, 9, -18};
    const int32_t keep[] = {0, 1};
    const struct wnw__match p = {
        .m = 2, .n = 3, .b = 2, .d = 2, .logits = logits, .values = values, .keep = keep, .ridge = 1e-9};
    float *scratch = floats(wnw__match_scratch(2, 3, 2, 2)), beta[2], v[4];
    wnw__match_beta(&p, beta, scratch);
    assert_near(beta[0], 0, 2e-3);
    assert_near(beta[1], log(2), 2e-3);
    const float exact[] = {0, logf(2)};
    assert_true(wnw__match_values(&p, exact, v, scratch));
    const double want[] = {3, -6, 7.5, -15};
    for (int i = 0; i < 4; i++)
        assert_near(v[i], want[i], 1e-4);
    /* A large ridge leaves them as they are. */
    struct wnw__match stiff = p;
    stiff.ridge = 1e9;
    assert_true(wnw__match_values(&stiff, exact, v, scratch));
    for (int i = 0; i < 4; i++)
        assert_near(v[i], values[i], 1e-4);
    free(scratch);
}

/* One entry replaces a hundred: its factor ends at e^3. */
static void factors_are_bounded(void **state)
{
    (void)state;
    enum { N = 100 };
    float logits[N] = {0}, values[N] = {0}, beta[1];
    const int32_t keep[] = {7};
    const struct wnw__match p = {
        .m = 1, .n = N, .b = 1, .d = 1, .logits = logits, .values = values, .keep = keep, .ridge = 1e-6};
    float *scratch = floats(wnw__match_scratch(1, N, 1, 1));
    wnw__match_beta(&p, beta, scratch);
    assert_near(beta[0], 3, 1e-5);
    free(scratch);
}

/* Any problem, with logits of about the size that they have in models. */
struct problem {
    struct wnw__match p;
    float *logits, *values, *beta, *v, *scratch;
    int32_t *keep;
};

static void make(struct problem *x, int32_t m, int32_t n, int32_t b, int32_t d)
{
    x->logits = test_random_floats((size_t)(m * n), 3, 2.0f);
    x->values = test_random_floats((size_t)(n * d), 5, 1.0f);
    x->beta = floats((size_t)b);
    x->v = floats((size_t)(b * d));
    x->keep = calloc((size_t)b, sizeof *x->keep);
    assert_non_null(x->keep);
    for (int32_t k = 0; k < b; k++)
        x->keep[k] = (int32_t)((int64_t)k * n / b);
    x->scratch = floats(wnw__match_scratch(m, n, b, d));
    x->p = (struct wnw__match){.m = m,
                               .n = n,
                               .b = b,
                               .d = d,
                               .logits = x->logits,
                               .values = x->values,
                               .keep = x->keep,
                               .ridge = 1e-3};
}

static void drop(struct problem *x)
{
    free(x->logits);
    free(x->values);
    free(x->beta);
    free(x->v);
    free(x->keep);
    free(x->scratch);
}

/* Where everything stays nothing changes, and what queries see is what they saw, to 1e-4. */
static void everything_stays(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{20, 50}, {80, 50}};
    for (int i = 0; i < 2; i++) {
        struct problem x;
        make(&x, sizes[i][0], sizes[i][1], sizes[i][1], 8);
        x.p.ridge = 1e-6;
        wnw__match_beta(&x.p, x.beta, x.scratch);
        for (int32_t k = 0; k < x.p.b; k++)
            assert_near(x.beta[k], 0, 1e-4);
        assert_true(wnw__match_values(&x.p, x.beta, x.v, x.scratch));
        for (int32_t q = 0; q < x.p.m; q++)
            for (int32_t c = 0; c < x.p.d; c++) {
                double sum[2] = {0}, all[2] = {0};
                for (int32_t k = 0; k < x.p.n; k++) {
                    const double s = (double)x.logits[q * x.p.n + k];
                    const double e[2] = {exp(s), exp(s + (double)x.beta[k])};
                    all[0] += e[0];
                    all[1] += e[1];
                    sum[0] += e[0] * (double)x.values[k * x.p.d + c];
                    sum[1] += e[1] * (double)x.v[k * x.p.d + c];
                }
                assert_near(sum[1] / all[1], sum[0] / all[0], 1e-4);
            }
        drop(&x);
    }
}

/* ||E_I B - M||^2 in double. */
static double misses(const struct wnw__match *p, const double *factor)
{
    double sum = 0;
    for (int32_t i = 0; i < p->m; i++) {
        const float *s = p->logits + (int64_t)i * p->n;
        double top = -INFINITY, mass = 0, kept = 0;
        for (int32_t c = 0; c < p->n; c++)
            top = fmax(top, (double)s[c]);
        for (int32_t c = 0; c < p->n; c++)
            mass += exp((double)s[c] - top);
        for (int32_t k = 0; k < p->b; k++)
            kept += factor[k] * exp((double)s[p->keep[k]] - top);
        sum += (kept - mass) * (kept - mass);
    }
    return sum;
}

/* As near to the least as makes no difference: no single factor can be moved so that much is gained. */
static void factors_are_the_best(void **state)
{
    (void)state;
    struct problem x;
    make(&x, 96, 200, 30, 4);
    wnw__match_beta(&x.p, x.beta, x.scratch);
    double factor[30], one[30];
    for (int k = 0; k < 30; k++) {
        factor[k] = exp((double)x.beta[k]);
        one[k] = 1;
        assert_cmp(factor[k], >, exp(-3.0) * 0.999);
        assert_cmp(factor[k], <, exp(3.0) * 1.001);
    }
    const double is = misses(&x.p, factor);
    assert_cmp(is, <, 0.2 * misses(&x.p, one));
    for (int k = 0; k < 30; k++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const double was = factor[k];
            factor[k] = fmin(fmax(was * (1 + 0.02 * sign), exp(-3.0)), exp(3.0));
            assert_cmp(misses(&x.p, factor), >, is * 0.999);
            factor[k] = was;
        }
    drop(&x);
}

/* The normal equations in double by elimination, which both forms of the solution must fulfil. */
static void values_in_double(const struct wnw__match *p, const float *beta, double *v)
{
    const int32_t m = p->m, n = p->n, b = p->b, d = p->d, w = b + d;
    double *x = calloc((size_t)(m * b), sizeof *x), *a = calloc((size_t)(b * w), sizeof *a), trace = 0;
    assert_non_null(x);
    assert_non_null(a);
    for (int32_t i = 0; i < m; i++) {
        const float *s = p->logits + (int64_t)i * n;
        double all = 0, kept = 0, rest[64] = {0};
        for (int32_t c = 0; c < n; c++)
            all += exp((double)s[c]);
        for (int32_t k = 0; k < b; k++)
            kept += x[i * b + k] = exp((double)s[p->keep[k]] + (double)beta[k]);
        for (int32_t k = 0; k < b; k++)
            x[i * b + k] /= kept;
        for (int32_t e = 0; e < d; e++) {
            for (int32_t c = 0; c < n; c++)
                rest[e] += exp((double)s[c]) / all * (double)p->values[c * d + e];
            for (int32_t k = 0; k < b; k++)
                rest[e] -= x[i * b + k] * (double)p->values[p->keep[k] * d + e];
        }
        for (int32_t k = 0; k < b; k++) {
            for (int32_t l = 0; l < b; l++)
                a[k * w + l] += x[i * b + k] * x[i * b + l];
            for (int32_t e = 0; e < d; e++)
                a[k * w + b + e] += x[i * b + k] * rest[e];
            trace += x[i * b + k] * x[i * b + k];
        }
    }
    for (int32_t k = 0; k < b; k++)
        a[k * w + k] += p->ridge * trace / b;
    for (int32_t k = 0; k < b; k++) /* Gauss and Jordan; the matrix is positive definite */
        for (int32_t l = 0; l < b; l++) {
            const double f = l == k ? 0 : a[l * w + k] / a[k * w + k];
            for (int32_t c = 0; f != 0 && c < w; c++)
                a[l * w + c] -= f * a[k * w + c];
        }
    for (int32_t k = 0; k < b; k++)
        for (int32_t e = 0; e < d; e++)
            v[k * d + e] = (double)p->values[p->keep[k] * d + e] + a[k * w + b + e] / a[k * w + k];
    free(x);
    free(a);
}

static void values_solve_the_equations(void **state)
{
    (void)state;
    static const int32_t sizes[][4] = {{96, 200, 30, 4}, {20, 100, 30, 8}, {30, 60, 30, 5}, {1, 9, 3, 2}};
    for (int i = 0; i < 4; i++) {
        struct problem x;
        make(&x, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
        double *want = calloc((size_t)(x.p.b * x.p.d), sizeof *want);
        assert_non_null(want);
        wnw__match_beta(&x.p, x.beta, x.scratch);
        assert_true(wnw__match_values(&x.p, x.beta, x.v, x.scratch));
        values_in_double(&x.p, x.beta, want);
        for (int32_t k = 0; k < x.p.b * x.p.d; k++)
            assert_near(x.v[k], want[k], 2e-3 * (1 + fabs(want[k])));
        free(want);
        drop(&x);
    }
}

/* ---- Attention ---- */

enum { HEADS = 4, HEADS_KV = 2, LEN = 210, D = 64 };

static void fill(struct wnw__cache *c, wnw_kv_type type, int32_t n_tail, int32_t n_row, bool biased)
{
    float *row = test_random_floats((size_t)(LEN * D), 3, 1.0f), *bias = test_random_floats(LEN, 8, 2.0f);
    assert_ok(wnw__cache_init(c, 1, HEADS_KV, D, type, WNW_CACHE_GROWTH, NULL));
    if (n_tail > 0)
        assert_ok(wnw__cache_set_tail(c, n_tail));
    assert_ok(wnw__cache_expect_layer(c, 0, LEN, LEN));
    for (int32_t i = 0; i < LEN; i += 30) {
        assert_ok(wnw__cache_reserve_layer(c, 0, 30, true));
        for (int32_t ih = 0; ih < HEADS_KV; ih++) {
            wnw__cache_write(c, 0, WNW_KEYS, ih, i, 30, row + i * D);
            wnw__cache_write(c, 0, WNW_VALUES, ih, i, 30, row + i * D);
            const int32_t from = wnw__cache_quantised_to(c, c->layers, ih, 0),
                          to = wnw__cache_quantised_to(c, c->layers, ih, 29);
            if (n_tail > 0 && from < to)
                wnw__cache_quantise(c, c->layers, ih, from, to);
        }
        wnw__cache_commit_layer(c, 0, i, 30);
    }
    if (biased) {
        assert_ok(wnw__cache_set_aux(c, WNW_AUX_BIAS, 1));
        for (int32_t ih = 0; ih < HEADS_KV; ih++)
            memcpy(wnw__cache_aux(c->layers, WNW_AUX_BIAS, 0) + c->layers[0].off[ih], bias,
                   LEN * sizeof *bias);
    }
    assert_ok(wnw__cache_reserve_layer(c, 0, n_row, true));
    free(row);
    free(bias);
}

static const struct attend_row {
    const char *name;
    int32_t n_row, n_tail;
    wnw_kv_type type;
} attend_rows[] = {
    {"one query, f16", 1, 0, WNW_KV_F16},
    {"a few, f32", 5, 0, WNW_KV_F32},
    {"one query, q4_0 with a tail", 1, 64, WNW_KV_Q4_0},
    {"many, f32", 70, 0, WNW_KV_F32},
    {"many, f16", 70, 0, WNW_KV_F16},
    {"many, q8_0", 70, 0, WNW_KV_Q8_0},
    {"many, q8_0 with a tail", 70, 64, WNW_KV_Q8_0},
};

static void attention_adds_biases(void **state)
{
    const struct attend_row *row = *state;
    const size_t n_q = (size_t)(row->n_row * HEADS * D), n_k = (size_t)(row->n_row * HEADS_KV * D);
    float *q = test_random_floats(n_q, 1, 1.0f), *k = test_random_floats(n_k, 2, 1.0f), *out = floats(n_q),
          *ref = floats(n_q), *without = floats(n_q);
    for (int biased = 0; biased < 2; biased++) {
        struct wnw__cache c;
        struct wnw__attend_shared *sh;
        fill(&c, row->type, row->n_tail, row->n_row, biased);
        struct wnw__attend_slice slice = {.cache = &c, .n_row = row->n_row, .n_past = LEN};
        struct wnw__attend_batch batch = {.slice = &slice, .n_slice = 1, .n_row = row->n_row};
        const struct wnw__attend_dims dims = {
            .model = {.n_layer = 1, .n_head = HEADS, .n_head_kv = HEADS_KV, .d = D},
            .n_threads = 1,
            .n_ubatch = row->n_row};
        assert_ok(wnw__attend_shared_new(&sh, &dims));
        assert_ok(wnw__attend_shared_reserve(sh, &batch, 0, 1));
        struct wnw__attend_op op = {.shared = sh, .scale = 1.0f / sqrtf((float)D), .batch = &batch};
        wnw__attend_store(&op, k, k, 0, 1);
        wnw__attend_ref(&op, q, biased ? ref : without);
        if (biased) {
            assert_cmp(test_relative_error(ref, without, n_q), >, 0.05); /* it makes a difference */
            sh->score8 = NULL;
            sh->bf16 = NULL;
            for (int t = 0; wnw__vec_at(t); t++) {
                sh->vec = wnw__vec_at(t);
                wnw__attend_run(&op, q, NULL, NULL, out, 0, 1);
                assert_cmp(test_relative_error(out, ref, n_q), <, 3e-5);
            }
            sh->vec = wnw__vec_at(0);
            for (int t = 0; wnw__bf16_at(t); t++) {
                sh->bf16 = wnw__bf16_at(t);
                wnw__attend_run(&op, q, NULL, NULL, out, 0, 1);
                assert_cmp(test_relative_error(out, ref, n_q), <, 0.02);
            }
        }
        wnw__attend_shared_free(sh);
        wnw__cache_free(&c);
    }
    free(q);
    free(k);
    free(out);
    free(ref);
    free(without);
}

/* Biases are dropped, moved and copied with their entries, and new entries have none. */
static void biases_travel(void **state)
{
    (void)state;
    struct wnw__cache c, copy;
    fill(&c, WNW_KV_F16, 0, 8, true);
    float want[LEN];
    memcpy(want, wnw__cache_bias(c.layers, 1), sizeof want);
    const int32_t a[] = {0, 3, 4, 100}, b[] = {7, 200}, n_keep[] = {4, 2}, *const keep[] = {a, b};
    assert_ok(wnw__cache_keep_layer(&c, 0, keep, n_keep));
    assert_ok(wnw__cache_init(&copy, 1, HEADS_KV, D, WNW_KV_F16, WNW_CACHE_GROWTH, NULL));
    assert_ok(wnw__cache_copy(&copy, &c));
    assert_ok(wnw__cache_reserve_layer(&copy, 0, 1, false));
    for (int i = 0; i < 4; i++)
        assert_cmp(wnw__cache_bias(copy.layers, 0)[i], ==, want[a[i]]);
    for (int i = 0; i < 2; i++)
        assert_cmp(wnw__cache_bias(copy.layers, 1)[i], ==, want[b[i]]);
    assert_cmp(wnw__cache_bias(copy.layers, 1)[2], ==, 0.0f);
    wnw__cache_clear(&copy);
    assert_null(wnw__cache_bias(copy.layers, 0));
    wnw__cache_free(&c);
    wnw__cache_free(&copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(factors_are_bounded),
        cmocka_unit_test(everything_stays),
        cmocka_unit_test(factors_are_the_best),
        cmocka_unit_test(values_solve_the_equations),
        cmocka_unit_test(biases_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) + run_rows(attention_adds_biases, attend_rows);
}
