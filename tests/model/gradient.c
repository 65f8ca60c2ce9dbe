/* SPDX-License-Identifier: MIT */
/* Factors of layers, from differences along random directions, against the gradient by one coordinate after the other. */
#include "helpers.h"
#include "peek_calibrate.h"
#include "rounding.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 12 };

static const char text[] = "A tide gauge";

/* Notes the squared lengths of the hidden states after the last layer. */
struct ends {
    int32_t n_layer, n_embd;
    double phi;
};
static struct ends seen;

static int open_ends(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    (void)arg;
    seen = (struct ends){.n_layer = shape->model.n_layer, .n_embd = shape->n_embd};
    *rec = &seen;
    return WNW_OK;
}

static void close_ends(void *rec)
{
    (void)rec;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)pass;
    return point == WNW_POINT_STATE && il == seen.n_layer - 1;
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    (void)rec;
    (void)nth;
    if (ith != 0)
        return;
    seen.phi = 0;
    for (int64_t i = 0; i < (int64_t)r->pass->n * seen.n_embd; i++)
        seen.phi += (double)r->q[i] * (double)r->q[i];
}

static const struct wnw__recorder_type recorder = {
    .name = "test", .open = open_ends, .free = close_ends, .stages = stages, .take = take};

/* Takes the rows from the layer to the end, and gives Phi. */
static double phi_from(wnw_session *s, int32_t il, const int32_t *tokens, const float *x, size_t row)
{
    float *copy = malloc(row * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, x, row * sizeof *copy);
    assert_ok(wnw__feed_span(
        s,
        &(struct wnw__span){
            .from = il, .to = s->m->hp.n_layer, .tokens = tokens, .x = copy, .n = LENGTH, .n_out = LENGTH}));
    wnw__cache_rewind(&s->cache, s->n_past);
    free(copy);
    return seen.phi;
}

/* The root of the mean over tokens of the squared gradient by what enters the last layer, over that by what leaves it. */
static double ratio_by_coordinates(const wnw_model *m, const int32_t *tokens)
{
    const size_t row = (size_t)LENGTH * (size_t)m->hp.n_embd;
    const int32_t last = m->hp.n_layer - 1;
    float *x = calloc(row, sizeof *x);
    double sum = 0;
    int32_t *bos = NULL, n_bos = 0;
    assert_non_null(x);
    assert_ok(wnw_tokenize(m, "", 0, true, false, &bos, &n_bos));
    wnw_session *s = test_session_new(m, &(struct test_session){.n_ctx = n_bos + 2 * LENGTH, .n_threads = 1});
    if (n_bos > 0)
        test_prefill(s, bos, n_bos);
    test_prefill(s, tokens, LENGTH);
    assert_ok(wnw__recorders_open(&s->recorders, &recorder, &(struct wnw__record_arg){0}, &s->shape));
    assert_ok(wnw__feed_span(
        s, &(struct wnw__span){.to = last, .tokens = tokens, .x = x, .n = LENGTH, .n_out = LENGTH}));
    wnw__cache_rewind(&s->cache, s->n_past);
    const double phi = phi_from(s, last, tokens, x, row);
    for (size_t i = 0; i < row; i++) {
        const float at = x[i], by = 0.02f;
        x[i] = at + by;
        const double up = phi_from(s, last, tokens, x, row);
        x[i] = at - by;
        const double down = phi_from(s, last, tokens, x, row);
        x[i] = at;
        const double d = (up - down) / (2 * (double)by);
        sum += d * d;
    }
    wnw_session_free(s);
    wnw_free(bos);
    free(x);
    return sqrt(sum / (4 * phi));
}

static void factors_are_gradients(void **state)
{
    (void)state;
    if (test_noise() > 0) /* a coordinate changes Phi by less than that */
        skip();
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    wnw_model *m = test_model_open(name);
    int32_t *tokens, n;
    assert_ok(wnw_tokenize(m, text, strlen(text), false, false, &tokens, &n));
    assert_int_equal(n, LENGTH); /* one piece, and so the same one */
    wnw_calibration_text texts[] = {{"some.txt", text, strlen(text)}};
    wnw_calibrate_params p = wnw_calibrate_default_params();
    p.options = "pieces=1,length=12,draws=200";
    p.texts = texts;
    p.n_texts = 1;
    p.n_threads = 1;
    wnw_calibration *c;
    assert_ok(wnw_calibrate(&c, m, "gradient", &p));
    json_t *o = json_loads(wnw_calibration_profile(c, 0, NULL), 0, NULL);
    const json_t *g = json_object_get(json_object_get(o, "results"), "gradient");
    const int32_t n_layer = m->hp.n_layer;
    assert_int_equal(json_array_size(g), n_layer);
    const double measured = json_number_value(json_array_get(g, (size_t)n_layer - 2)) /
                            json_number_value(json_array_get(g, (size_t)n_layer - 1));
    const double exact = ratio_by_coordinates(m, tokens);
    /* The relative deviation of 200 draws is about 5 %. */
    assert_near(measured, exact, 0.25 * exact);
    json_decref(o);
    wnw_calibration_free(c);
    wnw_free(tokens);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(factors_are_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
