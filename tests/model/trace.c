/* SPDX-License-Identifier: MIT */
/* Attention sums and maxima over all queries, and the queries themselves, against a slow double-precision
 * softmax of the session's own cache and queries. */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* float32 dot products and exponentials of scores of a few tens */
#define TOLERANCE test_rounding(2e-5, 8)

/* The same with AVX2 and blocks of q8_0 or q4_0: see TOLERANCE_I16 in unit/columns.c. */
#define TOLERANCE_I16 test_rounding(1e-4, 8)

static int score_nothing(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    memset(score, 0, (size_t)obs->n_head_kv * (size_t)obs->n * sizeof *score);
    return WNW_OK;
}

static void needs_all(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX | WNW_NEED_QUERIES | WNW_NEED_KEYS;
}

static void needs_columns(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX;
}

static wnw_policy *watcher(void (*needs)(const void *, wnw_needs *))
{
    static wnw_scorer all = {.part = {WNW_SCORER_INIT, .name = "watch_all", .needs = needs_all}};
    static wnw_scorer columns = {.part = {WNW_SCORER_INIT, .name = "watch_columns", .needs = needs_columns}};
    wnw_scorer *scorer = needs == needs_all ? &all : &columns;
    scorer->score = score_nothing;
    return test_policy_with(&scorer->part, NULL);
}

struct setup {
    const char *arch;
    wnw_attn attn;
    wnw_kv_type kv_type;
    int32_t n_ubatch, n_threads;
};

struct run {
    wnw_model *m;
    wnw_session *s;
    wnw_policy *p;
    struct wnw__plan_source src;
    wnw_observation obs;
    int32_t *tokens;
    double tolerance;
};

static void run_open(struct run *r, const struct setup *c, void (*needs)(const void *, wnw_needs *))
{
    *r = (struct run){.tolerance = c->kv_type == WNW_KV_Q8_0 ? TOLERANCE_I16 : TOLERANCE};
    char name[TEST_NAME_MAX];
    if (strstr(c->arch, "tiny"))
        snprintf(name, sizeof name, "%s", c->arch);
    else
        test_tiny_model_of(name, c->arch);
    r->m = test_model_open(name);
    wnw_session_params params = wnw_session_default_params();
    /* Statistics are compared with float32 ones. */
    params.attn = c->attn == WNW_ATTN_OWN ? WNW_ATTN_F32 : c->attn;
    params.kv_type = c->kv_type;
    params.n_ubatch = c->n_ubatch;
    params.n_threads = c->n_threads;
    assert_ok(wnw_session_new(&r->s, r->m, &params));
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(r->m, &info));
    r->tokens = test_random_tokens(400, info.n_vocab, 7);
    r->p = watcher(needs);
    assert_ok(test_observe(r->s, (const wnw_policy *const[]){r->p}, 1));
}

static void run_close(struct run *r)
{
    wnw__source_close(&r->src);
    wnw_session_free(r->s);
    wnw_model_free(r->m);
    wnw_policy_free(r->p);
    free(r->tokens);
}

/* Observes layer il; r->obs is good until the next observation. */
static void observe(struct run *r, int32_t il, uint32_t flags)
{
    wnw__source_close(&r->src);
    assert_ok(wnw__session_source(&r->src, r->s));
    const wnw_needs needs = {.flags = flags};
    assert_ok(r->src.observe(&r->src, il, &needs, NULL, &r->obs));
}

enum { COLUMNS = WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX, ALL = COLUMNS | WNW_NEED_QUERIES | WNW_NEED_KEYS };

/* What head h's entries received from the kept queries, in double precision, added to sum[n] and max[n]. */
static void reference_head(const struct run *r, int32_t h, double *sum, double *max)
{
    const wnw_observation *o = &r->obs;
    const int32_t d = o->n_embd_head, ih = h / (o->n_head / o->n_head_kv);
    const float *keys = o->keys(o, ih);
    const int32_t *pos = o->pos + (size_t)ih * (size_t)o->n;
    double *p = malloc((size_t)o->n * sizeof *p);
    assert_non_null(p);
    for (int32_t t = 0; t < o->n_queries; t++) {
        const float *q = o->queries + ((size_t)t * (size_t)o->n_head + (size_t)h) * (size_t)d;
        double top = -INFINITY, total = 0.0;
        for (int32_t i = 0; i < o->n_entry[ih]; i++) {
            p[i] = pos[i] <= o->n_past - o->n_queries + t ? 0.0 : -INFINITY;
            for (int32_t c = 0; c < d; c++)
                p[i] +=
                    (double)q[c] * (double)keys[(size_t)i * (size_t)d + (size_t)c] * (double)o->attn_scale;
            top = fmax(top, p[i]);
        }
        for (int32_t i = 0; i < o->n_entry[ih]; i++)
            total += exp(p[i] - top);
        for (int32_t i = 0; i < o->n_entry[ih]; i++) {
            sum[i] += exp(p[i] - top) / total;
            max[i] = fmax(max[i], exp(p[i] - top) / total);
        }
    }
    free(p);
}

/* sum, max [n_head][n]: what was there before the kept queries, or NULL for nothing. */
static void check_observation(const struct run *r, const double *sum, const double *max)
{
    const wnw_observation *o = &r->obs;
    const size_t n = (size_t)o->n;
    double *want[2] = {malloc(n * sizeof(double)), malloc(n * sizeof(double))};
    assert_non_null(want[0]);
    assert_non_null(want[1]);
    for (int32_t h = 0; h < o->n_head; h++) {
        const int32_t n_entry = o->n_entry[h / (o->n_head / o->n_head_kv)];
        for (size_t i = 0; i < n; i++) {
            want[0][i] = sum ? sum[(size_t)h * n + i] : 0.0;
            want[1][i] = max ? max[(size_t)h * n + i] : 0.0;
        }
        reference_head(r, h, want[0], want[1]);
        for (int32_t i = 0; i < o->n; i++) {
            const float *got[2] = {o->attn_sum + (size_t)h * n, o->attn_max + (size_t)h * n};
            for (int k = 0; k < 2; k++) {
                if (i >= n_entry)
                    assert_cmp(got[k][i], ==, 0.0f);
                else if (!(fabs((double)got[k][i] - want[k][i]) <= r->tolerance * fmax(1.0, want[k][i])))
                    fail_msg("layer %d head %d entry %d: %s %g, expected %g", (int)o->il, (int)h, (int)i,
                             k ? "maximum" : "sum", (double)got[k][i], want[k][i]);
            }
            assert_cmp(got[1][i], <=, 1.0f);
        }
    }
    free(want[0]);
    free(want[1]);
}

static void check_setup(const struct setup *c)
{
    struct run r;
    run_open(&r, c, needs_all);
    test_prefill(r.s, r.tokens, 150);
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(r.m, &info));
    for (int32_t il = 0; il < info.n_layer; il++) {
        if (wnw_model_layer_is_swa(r.m, il))
            continue;
        observe(&r, il, ALL);
        assert_int_equal(r.obs.n_queries, 150);
        check_observation(&r, NULL, NULL);
    }
    run_close(&r);
}

static void test_columns_are_exact(void **state)
{
    (void)state;
    static const char *const arch[] = {"llama", "qwen2", "qwen3", "gemma3", "tiny/tiny-llama-mqa.gguf"};
    for (size_t a = 0; a < sizeof arch / sizeof *arch; a++)
        for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_GGML; attn++) {
            check_setup(&(struct setup){arch[a], (wnw_attn)attn, WNW_KV_F16, 64, 2});
            check_setup(&(struct setup){arch[a], (wnw_attn)attn, WNW_KV_F32, 512, 1});
            check_setup(&(struct setup){arch[a], (wnw_attn)attn, WNW_KV_F16, 149, 1}); /* a last one of 1 */
        }
    check_setup(&(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_Q8_0, 100, 2});
    check_setup(&(struct setup){"llama", WNW_ATTN_GGML, WNW_KV_Q8_0, 100, 2});
}

/* A second turn on a ragged cache: survivors keep what they had, new queries come on top. */
static void check_ragged(wnw_attn attn)
{
    struct run r;
    run_open(&r, &(struct setup){"llama", attn, WNW_KV_F16, 40, 2}, needs_all);
    test_prefill(r.s, r.tokens, 150);
    observe(&r, 1, ALL);
    const size_t n_head = (size_t)r.obs.n_head, n_before = (size_t)r.obs.n;
    double *before[2];
    for (int k = 0; k < 2; k++) {
        before[k] = malloc(n_head * n_before * sizeof(double));
        assert_non_null(before[k]);
        for (size_t i = 0; i < n_head * n_before; i++)
            before[k][i] = (double)(k ? r.obs.attn_max : r.obs.attn_sum)[i];
    }
    wnw_policy *small = test_policy("knorm+adakv");
    assert_ok(wnw_session_compress(r.s, small, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.6}, NULL));
    wnw_policy_free(small);
    test_prefill(r.s, r.tokens + 150, 90);
    observe(&r, 1, ALL);
    assert_int_equal(r.obs.n_queries, 90);
    bool ragged = false;
    const size_t n = (size_t)r.obs.n;
    double *start[2] = {calloc(n_head * n, sizeof(double)), calloc(n_head * n, sizeof(double))};
    assert_non_null(start[0]);
    assert_non_null(start[1]);
    for (size_t h = 0; h < n_head; h++) {
        const size_t ih = h / (n_head / (size_t)r.obs.n_head_kv);
        ragged = ragged || r.obs.n_entry[ih] != r.obs.n_entry[0];
        for (size_t i = 0; i < (size_t)r.obs.n_entry[ih]; i++)
            for (int k = 0; k < 2; k++)
                if (r.obs.pos[ih * n + i] < 150)
                    start[k][h * n + i] = before[k][h * n_before + (size_t)r.obs.pos[ih * n + i]];
    }
    assert_true(ragged);
    check_observation(&r, start[0], start[1]);
    for (int k = 0; k < 2; k++) {
        free(before[k]);
        free(start[k]);
    }
    run_close(&r);
}

static void test_ragged_cache(void **state)
{
    (void)state;
    check_ragged(WNW_ATTN_OWN);
    check_ragged(WNW_ATTN_GGML);
}

static double total(const wnw_observation *o, int32_t h)
{
    double sum = 0.0;
    for (int32_t i = 0; i < o->n; i++)
        sum += (double)o->attn_sum[(size_t)h * (size_t)o->n + (size_t)i];
    return sum;
}

/* Decoded tokens count like those of a prompt. */
static void check_decode(wnw_attn attn)
{
    struct run all, some;
    const struct setup c = {"qwen3", attn, WNW_KV_F32, 512, 1};
    run_open(&all, &c, needs_columns);
    run_open(&some, &c, needs_columns);
    test_prefill(all.s, all.tokens, 75);
    test_prefill(some.s, some.tokens, 70);
    test_decode(some.s, some.tokens + 70, 5);
    for (int32_t il = 0; il < 2; il++) {
        observe(&all, il, COLUMNS);
        observe(&some, il, COLUMNS);
        for (int32_t i = 0; i < all.obs.n_head * all.obs.n; i++) {
            assert_near(all.obs.attn_sum[i], some.obs.attn_sum[i],
                        test_rounding(1e-4, 8) * fmax(1, (double)some.obs.attn_sum[i]));
            assert_near(all.obs.attn_max[i], some.obs.attn_max[i], test_rounding(1e-4, 8));
        }
        assert_near(total(&some.obs, 0), 75.0, 75 * test_rounding(1e-3 / 75, 1));
    }
    run_close(&all);
    run_close(&some);
}

static void test_decoded_tokens_count(void **state)
{
    (void)state;
    check_decode(WNW_ATTN_OWN);
    check_decode(WNW_ATTN_GGML);
}

/* Observing late: earlier queries are missing, and nothing else is. Declaring once more changes nothing. */
static void test_observing_begins_when_declared(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, &(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F16, 32, 1}, needs_all);
    assert_ok(test_observe(r.s, NULL, 0));
    test_prefill(r.s, r.tokens, 50);
    assert_ok(wnw_session_decode(r.s, r.tokens[50])); /* a graph that is kept */
    assert_ok(test_observe(r.s, (const wnw_policy *const[]){r.p}, 1));
    test_prefill(r.s, r.tokens + 51, 40);
    assert_ok(test_observe(r.s, (const wnw_policy *const[]){r.p}, 1));
    observe(&r, 1, ALL);
    assert_int_equal(r.obs.n_queries, 40);
    check_observation(&r, NULL, NULL);
    assert_ok(wnw_session_decode(r.s, r.tokens[91]));
    observe(&r, 1, COLUMNS);
    assert_near(total(&r.obs, 1), 41.0, 41 * test_rounding(1e-3 / 41, 1));
    const wnw_needs needs = {.flags = WNW_NEED_QUERIES};
    assert_error(r.src.observe(&r.src, 1, &needs, NULL, &r.obs),
                 WNW_E_NOT_OBSERVED); /* they end before the last token */
    test_prefill(r.s, r.tokens + 92, 9);
    observe(&r, 1, ALL);
    assert_int_equal(r.obs.n_queries, 9);
    assert_ok(test_observe(r.s, NULL, 0));
    observe(&r, 1, COLUMNS);
    assert_null(r.obs.attn_sum);
    assert_null(r.obs.attn_max);
    run_close(&r);
}

static void test_threads_give_the_same_bits(void **state)
{
    (void)state;
    struct run one, two;
    run_open(&one, &(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F16, 64, 1}, needs_columns);
    run_open(&two, &(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F16, 64, 2}, needs_columns);
    test_prefill(one.s, one.tokens, 200);
    test_prefill(two.s, two.tokens, 200);
    observe(&one, 1, COLUMNS);
    observe(&two, 1, COLUMNS);
    const size_t bytes = (size_t)one.obs.n_head * (size_t)one.obs.n * sizeof(float);
    assert_memory_equal(one.obs.attn_sum, two.obs.attn_sum, bytes);
    assert_memory_equal(one.obs.attn_max, two.obs.attn_max, bytes);
    run_close(&one);
    run_close(&two);
}

/* A copy keeps observing. */
static void test_copy_observes(void **state)
{
    (void)state;
    struct run r;
    run_open(&r, &(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F16, 64, 1}, needs_all);
    test_prefill(r.s, r.tokens, 80);
    wnw_session *copy;
    assert_ok(wnw_session_copy(&copy, r.s));
    wnw_session_free(r.s);
    r.s = copy;
    test_prefill(r.s, r.tokens + 80, 70);
    observe(&r, 1, ALL);
    assert_int_equal(r.obs.n_queries, 150);
    check_observation(&r, NULL, NULL);
    run_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_exact),
        cmocka_unit_test(test_ragged_cache),
        cmocka_unit_test(test_decoded_tokens_count),
        cmocka_unit_test(test_observing_begins_when_declared),
        cmocka_unit_test(test_threads_give_the_same_bits),
        cmocka_unit_test(test_copy_observes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
