/* SPDX-License-Identifier: MIT */
/* The recorder of the newest token's attention, on caches built by hand, against a softmax in double
 * precision. */
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_HEAD = 6, N_HEAD_KV = 2, GROUP = N_HEAD / N_HEAD_KV, D = 32, N_LAYER = 2, ROOM = 4, WINDOW = 50 };
static const int32_t lengths[N_LAYER][N_HEAD_KV] = {{0, 700}, {90, 13}};
static const float scale = 0.17f;

struct fixture {
    struct wnw__cache cache;
    float q[N_HEAD * D];
};

/* Positions 0, 2, 4, ...; the second layer slides. */
static void fill_layer(struct fixture *f, int32_t il)
{
    struct wnw__kv_layer *l = &f->cache.layers[il];
    uint32_t seed = 5 + (uint32_t)il;
    l->off = calloc(N_HEAD_KV, sizeof *l->off);
    l->len = calloc(N_HEAD_KV, sizeof *l->len);
    l->n_swa = il == 1 ? WINDOW : 0;
    assert_non_null(l->off);
    assert_non_null(l->len);
    for (int32_t ih = 0; ih < N_HEAD_KV; ih++) {
        l->off[ih] = l->n_rows;
        l->len[ih] = lengths[il][ih];
        l->n_rows += lengths[il][ih] + ROOM;
    }
    float *k = malloc((size_t)l->n_rows * D * sizeof *k);
    l->pos = calloc((size_t)l->n_rows, sizeof *l->pos);
    assert_non_null(k);
    assert_non_null(l->pos);
    for (int64_t i = 0; i < l->n_rows * D; i++)
        k[i] = 2 * test_signed(&seed);
    for (int32_t ih = 0; ih < N_HEAD_KV; ih++)
        for (int32_t i = 0; i < l->len[ih]; i++)
            l->pos[l->off[ih] + i] = 2 * i;
    l->k = (uint8_t *)k;
}

static void fixture_init(struct fixture *f)
{
    uint32_t seed = 3;
    *f = (struct fixture){.cache = {.n_layer = N_LAYER,
                                    .n_head_kv = N_HEAD_KV,
                                    .d = D,
                                    .type = WNW_KV_F32,
                                    .row_bytes = D * sizeof(float),
                                    .v_row_bytes = D * sizeof(float)}};
    f->cache.layers = calloc(N_LAYER, sizeof *f->cache.layers);
    assert_non_null(f->cache.layers);
    for (int32_t il = 0; il < N_LAYER; il++)
        fill_layer(f, il);
    for (int32_t i = 0; i < N_HEAD * D; i++)
        f->q[i] = 2 * test_signed(&seed);
}

static void fixture_free(struct fixture *f)
{
    for (int32_t il = 0; il < N_LAYER; il++) {
        free(f->cache.layers[il].off);
        free(f->cache.layers[il].len);
        free(f->cache.layers[il].k);
        free(f->cache.layers[il].pos);
    }
    free(f->cache.layers);
}

static void *open_recorder(int32_t n_threads)
{
    const struct wnw__record_shape shape = {
        .model = {.n_layer = N_LAYER, .n_head = N_HEAD, .n_head_kv = N_HEAD_KV, .d = D},
        .n_threads = n_threads};
    void *rec;
    assert_ok(wnw__newest_recorder.open(&rec, &shape, &(struct wnw__record_arg){0}));
    return rec;
}

static void run(const struct fixture *f, void *rec, const struct wnw__record_pass *pass, int nth)
{
    const struct wnw__attend_op attend = {.scale = scale};
    struct wnw__record_rows rows = {.pass = pass,
                                    .point = WNW_POINT_ATTENTION,
                                    .q = f->q,
                                    .token_stride = N_HEAD * D,
                                    .head_stride = D,
                                    .attend = &attend};
    assert_ok(wnw__newest_recorder.reserve(rec, pass));
    for (rows.il = pass->from; rows.il < pass->to; rows.il++)
        for (int ith = 0; ith < nth; ith++)
            if (wnw__newest_recorder.stages(rec, WNW_POINT_ATTENTION, rows.il, pass) == 1)
                wnw__newest_recorder.take(rec, &rows, ith, nth);
    wnw__newest_recorder.commit(rec, pass);
}

/* Probabilities of head h over its KV head's entries and the new one. */
static void reference(const struct fixture *f, int32_t il, int32_t h, int32_t position, double *p)
{
    const struct wnw__kv_layer *l = &f->cache.layers[il];
    const int32_t ih = h / GROUP;
    double top = -INFINITY, sum = 0;
    for (int32_t i = 0; i <= l->len[ih]; i++) {
        const float *k = (const float *)l->k + (l->off[ih] + i) * D;
        const bool seen = i == l->len[ih] || l->n_swa == 0 || position - l->pos[l->off[ih] + i] < l->n_swa;
        p[i] = seen ? 0 : -INFINITY;
        for (int32_t c = 0; c < D; c++)
            p[i] += (double)f->q[h * D + c] * (double)k[c] * (double)scale;
        top = p[i] > top ? p[i] : top;
    }
    for (int32_t i = 0; i <= l->len[ih]; i++)
        sum += p[i] = exp(p[i] - top);
    for (int32_t i = 0; i <= l->len[ih]; i++)
        p[i] /= sum;
}

static void rows_agree_with_reference(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    const struct wnw__record_pass pass = {
        .cache = &f.cache, .to = N_LAYER, .n_past = 1400, .n = 1, .generated = true};
    void *one = open_recorder(1), *three = open_recorder(2);
    int32_t n, n3;
    assert_null(wnw__newest_rows(one, 0, &n));
    assert_int_equal(n, 0);
    run(&f, one, &pass, 1);
    run(&f, three, &pass, 3); /* more threads than there is scratch for */
    for (int32_t il = 0; il < N_LAYER; il++) {
        const float *rows = wnw__newest_rows(one, il, &n);
        const float *same = wnw__newest_rows(three, il, &n3);
        assert_non_null(rows);
        assert_int_equal(n, il == 0 ? 701 : 91);
        assert_int_equal(n3, n);
        assert_memory_equal(rows, same, (size_t)(N_HEAD * n) * sizeof *rows);
        for (int32_t h = 0; h < N_HEAD; h++) {
            double p[701];
            reference(&f, il, h, 1400, p);
            for (int32_t i = 0; i < n; i++) {
                const double want = i <= lengths[il][h / GROUP] ? p[i] : 0;
                if (!(fabs((double)rows[h * n + i] - want) <= test_rounding(2e-6, 4)))
                    fail_msg("layer %d head %d entry %d: %g, expected %g", (int)il, (int)h, (int)i,
                             (double)rows[h * n + i], want);
            }
        }
    }
    wnw__newest_recorder.free(one);
    wnw__newest_recorder.free(three);
    fixture_free(&f);
}

/* Entries of the sliding layer at positions 1 - 50 and before are not seen. */
static void sliding_window_hides(void **state)
{
    (void)state;
    struct fixture f;
    int32_t n;
    fixture_init(&f);
    const struct wnw__record_pass pass = {
        .cache = &f.cache, .to = N_LAYER, .n_past = 180, .n = 1, .generated = true};
    void *rec = open_recorder(1);
    run(&f, rec, &pass, 1);
    const float *rows = wnw__newest_rows(rec, 1, &n);
    for (int32_t i = 0; i < 90; i++)
        assert_int_equal(rows[i] > 0, 2 * i > 180 - WINDOW);
    wnw__newest_recorder.free(rec);
    fixture_free(&f);
}

static void what_is_not_the_newest_is_gone(void **state)
{
    (void)state;
    struct fixture f;
    int32_t n;
    fixture_init(&f);
    const struct wnw__record_pass token = {
        .cache = &f.cache, .to = N_LAYER, .n_past = 1400, .n = 1, .generated = true};
    struct wnw__record_pass prompt = token;
    prompt.generated = false;
    const struct wnw__record_shape shape = {
        .model = {.n_layer = N_LAYER, .n_head = N_HEAD, .n_head_kv = N_HEAD_KV, .d = D}, .n_threads = 1};
    void *rec = open_recorder(1), *copy;
    run(&f, rec, &token, 1);
    assert_ok(wnw__newest_recorder.copy(&copy, rec, &shape));
    wnw__newest_recorder.told(rec, 1, 2, WNW_EVENT_DROPPED);
    assert_non_null(wnw__newest_rows(rec, 0, &n));
    assert_null(wnw__newest_rows(rec, 1, &n));
    assert_non_null(wnw__newest_rows(copy, 1, &n));
    assert_int_equal(n, 91);
    run(&f, copy, &prompt, 1); /* a prompt is not recorded, and its last token is the newest */
    assert_null(wnw__newest_rows(copy, 0, &n));
    assert_null(wnw__newest_rows(copy, 1, &n));
    wnw__newest_recorder.free(rec);
    wnw__newest_recorder.free(copy);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_agree_with_reference),
        cmocka_unit_test(sliding_window_hides),
        cmocka_unit_test(what_is_not_the_newest_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
