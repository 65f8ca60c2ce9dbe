/* SPDX-License-Identifier: MIT */
/* Attention over cells with masks (attend_cells.c) against a reference in double precision. */
#include "asserts.h"
#include "peek_arrays.h"
#include "random.h"
#include "rounding.h"
#include "threads.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_D = 80, N_CELL = 700, MAX_HEADS = 16 };

struct shape {
    const char *name;
    int32_t n_head, n_head_kv, d_k, d_v, n_row, n_stream;
    enum ggml_type type;
    float cap, max_bias;
    bool sinks, mask_f16, no_mask, v_in_keys, ragged;
    bool text; /* rows see all cells from the first on, as those of a text */
};

/* An operation with memory of its own. */
struct made {
    struct wnw__cells_op op;
    struct wnw__cache cache;
    float *q, *out, *mask;
    uint16_t *mask_f16;
    float sinks[MAX_HEADS];
};

static void fill_rows(struct made *m, const struct shape *s, uint32_t *seed)
{
    const struct wnw__kv_layer *l = &m->cache.layers[0];
    float row[MAX_D];
    for (int32_t ih = 0; ih < m->cache.n_head_kv; ih++)
        for (int64_t i = l->off[ih]; i < l->off[ih] + l->len[ih]; i++)
            for (int v = 0; v < (s->v_in_keys ? 1 : 2); v++) {
                const int32_t d = v ? s->d_v : s->d_k;
                uint8_t *to =
                    v ? l->v + (size_t)i * m->cache.v_row_bytes : l->k + (size_t)i * m->cache.row_bytes;
                for (int32_t c = 0; c < d; c++)
                    row[c] = (float)test_normal(seed);
                if (s->type == GGML_TYPE_F32)
                    memcpy(to, row, (size_t)d * sizeof *row);
                else
                    ggml_get_type_traits(s->type)->from_float_ref(row, to, d);
            }
}

/* Every head has all cells, or with `ragged` some of its own and one head none. */
static void fill_cache(struct made *m, const struct shape *s, uint32_t *seed)
{
    const int32_t n_head = s->n_stream * s->n_head_kv;
    assert_ok(wnw__cache_init_rows(&m->cache, n_head, ggml_row_size(s->type, s->d_k),
                                   s->v_in_keys ? 0 : ggml_row_size(s->type, s->d_v)));
    for (int32_t ih = 0; ih < n_head; ih++)
        for (int32_t cell = 0; cell < N_CELL; cell++)
            if (!s->ragged || (ih != 1 && test_lcg(seed) % 3 != 0))
                assert_ok(wnw__cache_place(&m->cache, 0, ih, ih + 1, &cell, 1));
    fill_rows(m, s, seed);
}

/* Rows see a stretch of cells of their own, but for some single ones; the first row of all sees nothing. With `text` they see
 * all that are not too late. */
static float mask_at(const struct shape *s, int32_t row, int32_t cell)
{
    const bool sees =
        cell < 300 + 2 * row && (s->text || (row > 0 && cell >= row / 2 && (cell * 31 + row) % 17 != 0));
    return !sees ? -INFINITY : s->max_bias > 0.0f ? -(float)abs(cell - row) / 64.0f : 0.0f;
}

static void fill_mask(struct made *m, const struct shape *s)
{
    const int32_t n_row = s->n_row * s->n_stream;
    m->mask = malloc((size_t)n_row * N_CELL * sizeof *m->mask);
    m->mask_f16 = malloc((size_t)n_row * N_CELL * sizeof *m->mask_f16);
    assert_non_null(m->mask);
    assert_non_null(m->mask_f16);
    for (int32_t i = 0; i < n_row * N_CELL; i++) {
        m->mask[i] = mask_at(s, i / N_CELL, i % N_CELL);
        m->mask_f16[i] = ggml_fp32_to_fp16(m->mask[i]);
        m->mask[i] = s->mask_f16 ? ggml_fp16_to_fp32(m->mask_f16[i]) : m->mask[i];
    }
}

static void make(struct made *m, const struct shape *s)
{
    uint32_t seed = 7;
    const size_t f = sizeof(float), n_row = (size_t)s->n_row, n_head = (size_t)s->n_head;
    *m = (struct made){0};
    fill_cache(m, s, &seed);
    fill_mask(m, s);
    m->q = test_random_floats(n_row * (size_t)s->n_stream * n_head * (size_t)s->d_k, 3, 2.0f);
    m->out = calloc(n_row * (size_t)s->n_stream * n_head * (size_t)s->d_v, f);
    assert_non_null(m->out);
    for (int32_t h = 0; h < MAX_HEADS; h++)
        m->sinks[h] = (float)test_normal(&seed);
    const size_t element = s->mask_f16 ? sizeof *m->mask_f16 : f;
    m->op = (struct wnw__cells_op){
        .n_head = s->n_head,
        .n_head_kv = s->n_head_kv,
        .d_k = s->d_k,
        .d_v = s->d_v,
        .n_row = s->n_row,
        .n_stream = s->n_stream,
        .n_cell = N_CELL - 20, /* the last entries have no column */
        .scale = 0.3f,
        .cap = s->cap,
        .max_bias = s->max_bias,
        .sinks = s->sinks ? m->sinks : NULL,
        .cache = &m->cache,
        .k_type = s->type,
        .v_type = s->type,
        .v_in_keys = s->v_in_keys,
        .q = (const char *)m->q,
        .q_head = (size_t)s->d_k * f,
        .q_row = n_head * (size_t)s->d_k * f,
        .q_stream = n_row * n_head * (size_t)s->d_k * f,
        .mask = s->no_mask    ? NULL
                : s->mask_f16 ? (const char *)m->mask_f16
                              : (const char *)m->mask,
        .mask_f16 = s->mask_f16,
        .mask_row = N_CELL * element,
        .mask_stream = n_row * N_CELL * element,
        .out = (char *)m->out,
        .out_head = (size_t)s->d_v * f,
        .out_row = n_head * (size_t)s->d_v * f,
        .out_stream = n_row * n_head * (size_t)s->d_v * f,
    };
}

static void release(struct made *m)
{
    wnw__cache_free(&m->cache);
    free(m->q);
    free(m->out);
    free(m->mask);
    free(m->mask_f16);
}

/* ---- The reference ---- */

/* Every entry's key and value in float32. */
struct entries {
    float *k, *v; /* [n_rows][d_k], [n_rows][d_v] */
};

static void unpack(const struct shape *s, const uint8_t *row, int32_t d, float *x)
{
    if (s->type == GGML_TYPE_F32)
        memcpy(x, row, (size_t)d * sizeof *x);
    else
        ggml_get_type_traits(s->type)->to_float(row, x, d);
}

static struct entries unpack_entries(const struct made *m, const struct shape *s)
{
    const struct wnw__kv_layer *l = &m->cache.layers[0];
    struct entries e = {.k = calloc((size_t)l->n_rows * (size_t)s->d_k, sizeof *e.k),
                        .v = calloc((size_t)l->n_rows * (size_t)s->d_v, sizeof *e.v)};
    assert_non_null(e.k);
    assert_non_null(e.v);
    for (int32_t ih = 0; ih < m->cache.n_head_kv; ih++)
        for (int64_t i = l->off[ih]; i < l->off[ih] + l->len[ih]; i++) {
            float *k = e.k + i * s->d_k, *v = e.v + i * s->d_v;
            unpack(s, l->k + (size_t)i * m->cache.row_bytes, s->d_k, k);
            if (s->v_in_keys)
                memcpy(v, k, (size_t)s->d_v * sizeof *v);
            else
                unpack(s, l->v + (size_t)i * m->cache.v_row_bytes, s->d_v, v);
        }
    return e;
}

static void release_entries(struct entries *e)
{
    free(e->k);
    free(e->v);
}

/* As the paper on ALiBi has it for powers of two, and ggml for other numbers of heads. */
static double slope(const struct shape *s, int32_t h)
{
    if (s->max_bias <= 0.0f)
        return 1.0;
    const double n = exp2(floor(log2(s->n_head)));
    return h < n ? pow(2.0, -(double)s->max_bias * (h + 1) / n)
                 : pow(2.0, -(double)s->max_bias / 2.0 * (2.0 * (h - n) + 1.0) / n);
}

/* The output of a query head of a row where `out` is not NULL, and the probability p[entry] that it gives to every entry. */
static void expect(const struct made *m, const struct shape *s, const struct entries *e, int32_t stream,
                   int32_t row, int32_t h, double *out, double p[N_CELL])
{
    const struct wnw__kv_layer *l = &m->cache.layers[0];
    const int32_t ih = stream * s->n_head_kv + h / (s->n_head / s->n_head_kv), at = stream * s->n_row + row;
    const float *q = m->q + ((int64_t)at * s->n_head + h) * s->d_k;
    double sum, top = s->sinks ? (double)m->sinks[h] : -1e30, score[N_CELL];
    memset(p, 0, N_CELL * sizeof *p);
    for (int32_t i = 0; i < l->len[ih]; i++) {
        const int32_t cell = l->pos[l->off[ih] + i];
        const double bias = s->no_mask ? 0.0 : (double)m->mask[(int64_t)at * N_CELL + cell];
        score[i] = -INFINITY;
        if (cell >= m->op.n_cell || bias == -INFINITY)
            continue;
        score[i] = test_dot(q, e->k + (l->off[ih] + i) * s->d_k, s->d_k) * (double)m->op.scale;
        score[i] = s->cap > 0.0f ? (double)s->cap * tanh(score[i]) : score[i];
        score[i] += slope(s, h) * bias;
        top = fmax(top, score[i]);
    }
    sum = s->sinks ? exp((double)m->sinks[h] - top) : 0.0;
    for (int32_t i = 0; i < l->len[ih]; i++) {
        if (score[i] == -INFINITY)
            continue;
        sum += p[i] = exp(score[i] - top);
        const float *v = e->v + (l->off[ih] + i) * s->d_v;
        for (int32_t c = 0; out && c < s->d_v; c++)
            out[c] += p[i] * (double)v[c];
    }
    for (int32_t c = 0; out && c < s->d_v; c++)
        out[c] = sum > 0.0 ? out[c] / sum : 0.0;
    for (int32_t i = 0; i < N_CELL; i++)
        p[i] = sum > 0.0 ? p[i] / sum : 0.0;
}

/* ---- Running ---- */

struct share {
    struct wnw__cells_shared *sh;
    const struct wnw__cells_op *op;
    int nth;
};

static void run_share(int32_t i, void *user)
{
    const struct share *s = user;
    wnw__cells_run(s->sh, s->op, i, s->nth);
}

static void run_columns(int32_t i, void *user)
{
    const struct share *s = user;
    wnw__cells_columns_run(s->sh, s->op, i, s->nth);
}

/* Twice, so that counters which are not reset show. */
static void run(const struct made *m, int n_threads)
{
    struct wnw__cells_shared *sh;
    struct wnw__pool pool = {.n_threads = n_threads, .gather = test_gather};
    assert_ok(wnw__cells_shared_new(&sh, n_threads));
    assert_ok(wnw__cells_reserve(sh, &m->op));
    for (int i = 0; i < 2; i++)
        wnw__parallel(&pool, n_threads, run_share, &(struct share){.sh = sh, .op = &m->op, .nth = n_threads});
    if (m->op.columns)
        wnw__parallel(&pool, n_threads, run_columns,
                      &(struct share){.sh = sh, .op = &m->op, .nth = n_threads});
    wnw__cells_shared_free(sh);
}

static const struct shape shapes[] = {
    {"decode", 9, 3, 64, 64, 1, 1, GGML_TYPE_F16, .cap = 0.0f, .mask_f16 = true},
    {"prefill", 9, 3, 64, 64, 150, 1, GGML_TYPE_F16, .cap = 0.0f, .mask_f16 = true},
    {"few rows", 4, 2, 32, 32, 5, 1, GGML_TYPE_F16, .cap = 0.0f},
    {"text, decode", 9, 3, 64, 64, 1, 1, GGML_TYPE_F16, .mask_f16 = true, .ragged = true, .text = true},
    {"text, few rows", 9, 3, 64, 64, 3, 1, GGML_TYPE_F16, .ragged = true, .text = true},
    {"text, streams", 4, 2, 32, 32, 2, 3, GGML_TYPE_F16, .mask_f16 = true, .ragged = true, .text = true},
    {"ragged decode", 8, 4, 64, 64, 2, 1, GGML_TYPE_F16, .cap = 0.0f, .mask_f16 = true, .ragged = true},
    {"ragged prefill", 8, 4, 64, 64, 70, 1, GGML_TYPE_F16, .ragged = true},
    {"streams", 4, 2, 32, 32, 40, 3, GGML_TYPE_F16, .cap = 0.0f, .mask_f16 = true, .ragged = true},
    {"streams, decode", 4, 2, 32, 32, 1, 3, GGML_TYPE_F16, .ragged = true},
    {"sizes that are no tiles", 6, 2, 40, 24, 33, 1, GGML_TYPE_F16, .cap = 0.0f},
    {"keys longer than values", 4, 4, 80, 64, 3, 1, GGML_TYPE_F32, .cap = 0.0f},
    {"values in keys", 16, 1, 80, 64, 30, 1, GGML_TYPE_F16, .v_in_keys = true, .ragged = false},
    {"values in keys, decode", 16, 1, 64, 32, 1, 1, GGML_TYPE_Q8_0, .v_in_keys = true},
    {"cap", 4, 2, 64, 64, 20, 1, GGML_TYPE_F16, .cap = 5.0f},
    {"sinks", 4, 2, 64, 64, 20, 1, GGML_TYPE_F16, .sinks = true, .ragged = true},
    {"sinks, decode", 4, 2, 64, 64, 1, 1, GGML_TYPE_F16, .sinks = true, .mask_f16 = true},
    {"ALiBi", 12, 12, 32, 32, 20, 1, GGML_TYPE_F16, .max_bias = 8.0f, .mask_f16 = true},
    {"no mask", 4, 2, 32, 32, 20, 1, GGML_TYPE_F16, .no_mask = true},
    {"q8_0", 4, 2, 64, 64, 20, 1, GGML_TYPE_Q8_0, .cap = 0.0f},
    {"q8_0, decode", 4, 2, 64, 64, 1, 1, GGML_TYPE_Q8_0, .cap = 0.0f},
    {"q4_0", 4, 2, 64, 64, 90, 1, GGML_TYPE_Q4_0, .cap = 0.0f},
    {"bf16", 4, 2, 64, 64, 20, 1, GGML_TYPE_BF16, .cap = 0.0f},
    {"bf16, decode", 4, 2, 64, 64, 1, 1, GGML_TYPE_BF16, .ragged = true},
    {"q5_1", 4, 2, 64, 64, 20, 1, GGML_TYPE_Q5_1, .cap = 0.0f},
    {"iq4_nl, decode", 4, 2, 64, 64, 2, 1, GGML_TYPE_IQ4_NL, .cap = 0.0f},
    {"f32", 4, 2, 64, 64, 90, 1, GGML_TYPE_F32, .cap = 0.0f},
};

static void test_is_the_reference(void **state)
{
    const struct shape *s = *state;
    struct made m;
    make(&m, s);
    run(&m, 3);
    struct entries e = unpack_entries(&m, s);
    for (int32_t stream = 0; stream < s->n_stream && !test_looks_at_memory(); stream++)
        for (int32_t row = 0; row < s->n_row; row++)
            for (int32_t h = 0; h < s->n_head; h++) {
                double want[MAX_D] = {0}, p[N_CELL];
                expect(&m, s, &e, stream, row, h, want, p);
                const int64_t at = ((int64_t)(stream * s->n_row + row) * s->n_head + h) * s->d_v;
                assert_floats_near(m.out + at, want, s->d_v, test_rounding(2e-5, 4));
            }
    release_entries(&e);
    release(&m);
}

/* Sums and maxima of what entries receive from all rows of their stream. */
static void test_columns(void **state)
{
    const struct shape *s = *state;
    const int32_t group = s->n_head / s->n_head_kv;
    struct made m;
    make(&m, s);
    const struct wnw__kv_layer *l = &m.cache.layers[0];
    assert_ok(wnw__cache_set_aux(&m.cache, WNW_AUX_ATTN_SUM, group));
    assert_ok(wnw__cache_set_aux(&m.cache, WNW_AUX_ATTN_MAX, group));
    m.op.columns = true;
    run(&m, 3);
    struct entries e = unpack_entries(&m, s);
    for (int32_t stream = 0; stream < s->n_stream && !test_looks_at_memory(); stream++)
        for (int32_t h = 0; h < s->n_head; h++) {
            const int32_t ih = stream * s->n_head_kv + h / group;
            double sum[N_CELL] = {0}, max[N_CELL] = {0};
            for (int32_t row = 0; row < s->n_row; row++) {
                double p[N_CELL];
                expect(&m, s, &e, stream, row, h, NULL, p);
                for (int32_t i = 0; i < l->len[ih]; i++) {
                    sum[i] += p[i];
                    max[i] = fmax(max[i], p[i]);
                }
            }
            const int64_t at = l->off[ih];
            assert_floats_near(wnw__cache_aux(l, WNW_AUX_ATTN_SUM, h % group) + at, sum, l->len[ih],
                               test_rounding(1e-4, 4));
            assert_floats_near(wnw__cache_aux(l, WNW_AUX_ATTN_MAX, h % group) + at, max, l->len[ih],
                               test_rounding(2e-5, 4));
        }
    release_entries(&e);
    release(&m);
}

static void test_any_number_of_threads(void **state)
{
    const struct shape *s = *state;
    struct made m;
    make(&m, s);
    const size_t bytes =
        (size_t)s->n_stream * (size_t)s->n_row * (size_t)s->n_head * (size_t)s->d_v * sizeof(float);
    float *first = malloc(bytes);
    assert_non_null(first);
    run(&m, 1);
    memcpy(first, m.out, bytes);
    run(&m, 4);
    assert_memory_equal(m.out, first, bytes);
    free(first);
    release(&m);
}

/* ---- Entries that are written by the operation ---- */

/* Keys and values of a cache, and how often each entry was written. */
struct writer {
    uint8_t *k, *v;
    atomic_int *n;
};

static void write_entries(const struct wnw__cells_op *op, int32_t head, int32_t from, int32_t to)
{
    const struct writer *w = op->written_from;
    const struct wnw__kv_layer *l = &op->cache->layers[0];
    for (int64_t i = l->off[head] + from; i < l->off[head] + to; i++) {
        const size_t k = op->cache->row_bytes, v = op->cache->v_row_bytes;
        memcpy(l->k + (size_t)i * k, w->k + (size_t)i * k, k);
        if (v > 0)
            memcpy(l->v + (size_t)i * v, w->v + (size_t)i * v, v);
        atomic_fetch_add(&w->n[i], 1);
    }
}

/* Every entry that is read is written once, and before: the cache holds something else until then. */
static void test_written_by_the_operation(void **state)
{
    const struct shape *s = *state;
    struct made m;
    make(&m, s);
    if (!wnw__cells_is_few(&m.op)) {
        release(&m);
        return;
    }
    const struct wnw__kv_layer *l = &m.cache.layers[0];
    const size_t n = (size_t)l->n_rows, k = n * m.cache.row_bytes, v = n * m.cache.v_row_bytes,
                 out = (size_t)s->n_stream * (size_t)s->n_row * (size_t)s->n_head * (size_t)s->d_v *
                       sizeof(float);
    struct writer w = {.k = malloc(k), .v = malloc(v + 1), .n = calloc(n, sizeof *w.n)};
    float *want = malloc(out);
    assert_true(w.k && w.v && w.n && want);
    run(&m, 3);
    memcpy(want, m.out, out);
    memcpy(w.k, l->k, k);
    m.op.write = write_entries;
    m.op.written_from = &w;
    memset(l->k, 0xff, k);
    if (v > 0) {
        memcpy(w.v, l->v, v);
        memset(l->v, 0xff, v);
    }
    run(&m, 3); /* twice */
    assert_memory_equal(m.out, want, out);
    for (int32_t ih = 0; ih < m.cache.n_head_kv; ih++)
        for (int32_t i = 0; i < l->len[ih]; i++)
            assert_int_equal(w.n[l->off[ih] + i], l->pos[l->off[ih] + i] < m.op.n_cell ? 2 : 0);
    free(w.k);
    free(w.v);
    free(w.n);
    free(want);
    release(&m);
}

int main(void)
{
    return run_rows(test_is_the_reference, shapes) + run_rows(test_columns, shapes) +
           run_rows(test_any_number_of_threads, shapes) + run_rows(test_written_by_the_operation, shapes);
}
