/* SPDX-License-Identifier: MIT */
/* Errors of a layer on arrays: numbers by hand, the definition in double precision, and shares of layers. */
#include "asserts.h"
#include "peek_calibrate.h"
#include "peek_session.h"
#include "random.h"
#include "threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A cache of one layer with n entries in each head; k and v are [n_head_kv][n][d]. */
static void make_cache(struct wnw__cache *c, int32_t n_head_kv, int32_t n, int32_t d, const float *k,
                       const float *v)
{
    const int32_t n_swa = 0;
    assert_ok(wnw__cache_init(c, 1, n_head_kv, d, WNW_KV_F32, WNW_CACHE_GROWTH, &n_swa));
    assert_ok(wnw__cache_reserve_layer(c, 0, n, true));
    for (int32_t ih = 0; ih < n_head_kv; ih++) {
        wnw__cache_write(c, 0, WNW_KEYS, ih, 0, n, k + (int64_t)ih * n * d);
        wnw__cache_write(c, 0, WNW_VALUES, ih, 0, n, v + (int64_t)ih * n * d);
    }
    wnw__cache_commit_layer(c, 0, 0, n);
}

/* ---- By hand ---- */

/* Two query heads read one KV head of four entries; the last one was generated. Head 0 looks at all entries
 * alike: mean (3, 3). Head 1 sees entry 0 alone, (4, 0), or without it the others alike. */
static const float by_hand_k[] = {1, 0, 0, 0, 0, 0, 0, 0}, by_hand_v[] = {4, 0, 0, 4, 0, 0, 8, 8};
static const float by_hand_q[] = {0, 0, 200, 0}, by_hand_out[] = {3, 3, 4, 0};
static const float by_hand_w[] = {1, 0, 0, 0, 0, 2, 1, 0}; /* o -> (o0, 2 o1 + o2) */

static const struct hand_row {
    const char *name;
    int32_t n_keep, keep[3];
    double error;
} hand_rows[] = {
    /* Head 0: mean of (4, 0), (8, 8) = (6, 4), change (3, 1); head 1: no change. (3, 2) of (3, 10). */
    {"the entry that matters", 1, {0}, 3.6055512755 / (10.4403065090 + 1e-5)},
    /* Head 0: (4, 4), change (1, 1); head 1: (4, 4), change (0, 4). (1, 2) of (3, 10). */
    {"another entry", 1, {2}, 2.2360679775 / (10.4403065090 + 1e-5)},
    {"everything", 3, {0, 1, 2}, 0},
    /* Head 0: (8, 8), change (5, 5); head 1: (8, 8), change (4, 8). (5, 14) of (3, 10). */
    {"generated entries alone", 0, {0}, 14.8660687473 / (10.4403065090 + 1e-5)},
};

static void by_hand(void **state)
{
    const struct hand_row *row = *state;
    struct wnw__cache c;
    double error;
    make_cache(&c, 1, 4, 2, by_hand_k, by_hand_v);
    const struct wnw__proj_weight w = {
        .type = GGML_TYPE_F32, .data = by_hand_w, .n_head = 2, .n_head_kv = 1, .d = 2, .n_out = 2};
    const int32_t *keep = row->keep;
    const struct wnw__layer_token t = {.cache = &c,
                                       .scale = 1,
                                       .q = by_hand_q,
                                       .out = by_hand_out,
                                       .w = &w,
                                       .keep = &keep,
                                       .n_keep = &row->n_keep,
                                       .n_prompt = 3};
    assert_ok(wnw__layer_error(&error, &t));
    assert_near(error, row->error, 1e-6);
    wnw__cache_free(&c);
}

/* ---- Against the definition ---- */

static const struct def_row {
    const char *name;
    int32_t n_head, n_head_kv, d, n, n_prompt, n_out, threads;
    enum ggml_type type;
} def_rows[] = {
    {"one head", 1, 1, 32, 9, 8, 5, 1, GGML_TYPE_F32},
    {"groups", 6, 2, 32, 70, 61, 33, 3, GGML_TYPE_F16},
    {"quantised", 9, 3, 64, 40, 30, 47, 4, GGML_TYPE_Q8_0},
    {"more threads than rows", 2, 2, 16, 12, 5, 3, 7, GGML_TYPE_F32},
};

/* Attention of one query over the entries in double precision. */
static void attend(const float *q, const float *k, const float *v, const bool *used, int32_t n, int32_t d,
                   double scale, double *out)
{
    double sum = 0, most = -INFINITY;
    double *z = calloc((size_t)n, sizeof *z);
    memset(out, 0, (size_t)d * sizeof *out);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t c = 0; c < d; c++)
            z[i] += scale * (double)q[c] * (double)k[i * d + c];
        most = used[i] && z[i] > most ? z[i] : most;
    }
    for (int32_t i = 0; i < n; i++) {
        z[i] = used[i] ? exp(z[i] - most) : 0;
        sum += z[i];
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = 0; c < d; c++)
            out[c] += z[i] / sum * (double)v[i * d + c];
    free(z);
}

static void is_its_definition(void **state)
{
    const struct def_row *row = *state;
    const int32_t d = row->d, n = row->n, group = row->n_head / row->n_head_kv, size = row->n_head * d;
    float *k = test_random_floats((size_t)(row->n_head_kv * n * d), 1, 1);
    float *v = test_random_floats((size_t)(row->n_head_kv * n * d), 2, 1);
    float *q = test_random_floats((size_t)size, 3, 1),
          *w32 = test_random_floats((size_t)(row->n_out * size), 4, 1);
    float *out = calloc((size_t)size, sizeof *out);
    double *full = calloc((size_t)size, sizeof *full), *kept = calloc((size_t)size, sizeof *kept);
    bool *all = malloc((size_t)n), *used = malloc((size_t)n);
    int32_t list[8][64], n_keep[8] = {0};
    const int32_t *keep[8];
    for (int32_t h = 0; h < row->n_head; h++) {
        const int32_t ih = h / group;
        keep[ih] = list[ih];
        n_keep[ih] = 0;
        for (int32_t i = 0; i < n; i++) {
            all[i] = true;
            used[i] = i >= row->n_prompt || (i * 7 + ih) % 3 == 0;
            if (used[i] && i < row->n_prompt)
                list[ih][n_keep[ih]++] = i;
        }
        const float *kh = k + (int64_t)ih * n * d, *vh = v + (int64_t)ih * n * d;
        attend(q + h * d, kh, vh, all, n, d, 0.3, full + h * d);
        attend(q + h * d, kh, vh, used, n, d, 0.3, kept + h * d);
    }
    for (int32_t i = 0; i < size; i++)
        out[i] = (float)full[i];
    /* The weight as it is stored, and read back. */
    uint8_t *data = malloc((size_t)row->n_out * ggml_row_size(row->type, size));
    ggml_quantize_chunk(row->type, w32, data, 0, row->n_out, size, NULL);
    if (row->type != GGML_TYPE_F32)
        ggml_get_type_traits(row->type)->to_float(data, w32, (int64_t)row->n_out * size);
    double change2 = 0, full2 = 0;
    for (int32_t o = 0; o < row->n_out; o++) {
        double a = 0, b = 0;
        for (int32_t i = 0; i < size; i++) {
            a += (double)w32[o * size + i] * (kept[i] - full[i]);
            b += (double)w32[o * size + i] * full[i];
        }
        change2 += a * a;
        full2 += b * b;
    }
    struct wnw__cache c;
    double error, alone;
    make_cache(&c, row->n_head_kv, n, d, k, v);
    struct wnw__pool pool = {.n_threads = row->threads, .gather = test_gather};
    const struct wnw__proj_weight w = {.type = row->type,
                                       .data = data,
                                       .n_head = row->n_head,
                                       .n_head_kv = row->n_head_kv,
                                       .d = d,
                                       .n_out = row->n_out};
    struct wnw__layer_token t = {.cache = &c,
                                 .scale = 0.3f,
                                 .q = q,
                                 .out = out,
                                 .w = &w,
                                 .pool = &pool,
                                 .keep = keep,
                                 .n_keep = n_keep,
                                 .n_prompt = row->n_prompt};
    assert_ok(wnw__layer_error(&error, &t));
    assert_near(error, sqrt(change2) / (sqrt(full2) + 1e-5), 1e-5);
    t.pool = NULL;
    assert_ok(wnw__layer_error(&alone, &t));
    assert_memory_equal((int32_t *)&alone, (int32_t *)&error, sizeof error);
    wnw__cache_free(&c);
    free(k);
    free(v);
    free(q);
    free(w32);
    free(out);
    free(full);
    free(kept);
    free(all);
    free(used);
    free(data);
}

/* ---- Shares ---- */

static void both(const double *x, double a, double b, double tolerance)
{
    assert_near(x[0], a, tolerance);
    assert_near(x[1], b, tolerance);
}

static void shares_by_hand(void **state)
{
    (void)state;
    const double a[] = {1, 3, -1, -1, 3, 1}, b[] = {4, 0}, dropped[] = {-1, -1};
    double mean[2] = {0}, sum[2] = {0}, none[2] = {0}, share[2] = {0};
    assert_true(wnw__layer_add_sample(a, 3, 2, true, mean)); /* two steps left: (2, 2) */
    assert_true(wnw__layer_add_sample(b, 1, 2, true, mean));
    both(mean, 6, 2, 1e-12);
    assert_true(wnw__layer_add_sample(a, 3, 2, false, sum));
    assert_true(wnw__layer_add_sample(b, 1, 2, false, sum));
    both(sum, 8, 4, 1e-12);
    assert_false(wnw__layer_add_sample(dropped, 1, 2, true, none));
    assert_false(wnw__layer_add_sample(a, 0, 2, true, none));
    both(none, 0, 0, 0);
    /* Texts have equal weight, however long their samples are. */
    assert_true(wnw__layer_add_set(mean, 2, share));
    both(share, 0.75, 0.25, 1e-12);
    assert_false(wnw__layer_add_set(none, 2, share));
    assert_true(wnw__layer_add_set((const double[]){10, 30}, 2, share));
    both(share, 1, 1, 1e-12);
    wnw__layer_normalise(share, 2);
    both(share, 0.5, 0.5, 1e-11);
    /* 1/4 + 1/4 + 1/8 + 1/8; layers 0 and 2 differ by 1/4 each. */
    const double one[] = {0.5, 0.25, 0.125, 0.125}, other[] = {0.25, 0.25, 0.375, 0.125};
    int32_t most;
    assert_near(wnw__layer_overlap(one, other, 4, &most), 0.75, 0);
    assert_int_equal(most, 0);
    assert_near(wnw__layer_overlap(share, share, 2, &most), 1, 1e-11);
}

/* ---- The recorder ---- */

/* Only the rows of the newest generated token are there, and only while its entries stay. */
static void outputs_of_the_newest_token(void **state)
{
    (void)state;
    enum { N_LAYER = 2, N_HEAD = 3, D = 4, ROW = N_HEAD * D };
    const struct wnw__record_shape shape = {
        .model = {.n_layer = N_LAYER, .n_head = N_HEAD, .n_head_kv = 1, .d = D},
        .n_ctx = 9,
        .n_ubatch = 9,
        .n_threads = 2};
    struct wnw__recorders r = {0}, copy = {0};
    const struct wnw__record_arg arg = {0};
    const float *out;
    assert_ok(wnw__recorders_open(&r, &wnw__outputs_recorder, &arg, &shape));
    const struct wnw__outputs *w = wnw__recorders_find(&r, &wnw__outputs_recorder);
    for (int generated = 0; generated < 2; generated++) {
        const struct wnw__record_pass pass = {
            .to = N_LAYER, .n_past = generated, .n = 1, .generated = generated};
        assert_ok(wnw__recorders_reserve(&r, &pass));
        for (int32_t il = 0; il < N_LAYER; il++) {
            float q[ROW], o[ROW];
            for (int i = 0; i < ROW; i++) {
                q[i] = (float)(100 * il + i);
                o[i] = -q[i];
            }
            const int n_stage = wnw__recorders_stages(&r, WNW_POINT_ATTENTION, il, &pass);
            assert_int_equal(n_stage, generated);
            assert_int_equal(wnw__recorders_stages(&r, WNW_POINT_QUERIES, il, &pass), 0);
            const struct wnw__record_rows rows = {.pass = &pass,
                                                  .point = WNW_POINT_ATTENTION,
                                                  .il = il,
                                                  .q = q,
                                                  .token_stride = ROW,
                                                  .head_stride = D,
                                                  .out = o};
            for (int ith = 0; ith < 2 && n_stage; ith++)
                wnw__recorders_take(&r, &rows, ith, 2);
        }
        assert_null(wnw__outputs_of(w, 1, &out)); /* not before the pass has succeeded */
        wnw__recorders_commit(&r, &pass);
        const float *q = wnw__outputs_of(w, 1, &out);
        assert_int_equal(q != NULL, generated);
        if (generated) {
            assert_near(q[ROW - 1], 111, 0);
            assert_near(out[0], -100, 0);
        }
    }
    assert_ok(wnw__recorders_copy(&copy, &r, &shape));
    wnw__recorders_tell(&r, 0, 1, WNW_EVENT_DROPPED);
    assert_null(wnw__outputs_of(w, 0, &out));
    assert_non_null(wnw__outputs_of(w, 1, &out));
    assert_non_null(wnw__outputs_of(wnw__recorders_find(&copy, &wnw__outputs_recorder), 0, &out));
    wnw__recorders_free(&r);
    wnw__recorders_free(&copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_by_hand),
        cmocka_unit_test(outputs_of_the_newest_token),
    };
    return run_rows(by_hand, hand_rows) + run_rows(is_its_definition, def_rows) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
