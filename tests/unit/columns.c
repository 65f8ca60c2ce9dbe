/* SPDX-License-Identifier: MIT */
/* Column statistics of attention against a slow double-precision version, over layers built by hand. */
#include "asserts.h"

#include "layers.h"
#include "peek_session.h"
#include "random.h"
#include "threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scores stay below 10 and are off by about 10 * 2^-24 * sqrt(d); a probability is off by that share of
 * itself. */
#define TOLERANCE 1e-5
/* See TOLERANCE_I16 in unit/attend.c; the longest rows have scores that are off by 5e-5. */
#define TOLERANCE_I16 1e-4
/* Scores from queries and keys that are rounded to bf16 are off by 10 * 2^-9 * 2 at most, and mostly far less. */
#define TOLERANCE_BF16 0.04

struct shape {
    int32_t n_head, n_head_kv, d;
    wnw_kv_type type;
    int32_t len[4]; /* stored entries of each KV head */
    int32_t n_tok;
};

struct fixture {
    struct shape s;
    struct wnw__attend_shared *shared;
    struct wnw__kv_layer layer;
    struct wnw__cache cache; /* of that layer */
    struct wnw__attend_slice slice;
    struct wnw__attend_batch batch;
    struct wnw__attend_op attend;
    int32_t i_slice;                 /* of its batch: this fixture */
    struct wnw__columns *columns[2]; /* of everything; of `only` alone */
    struct wnw__columns_want only;   /* runs in place of everything where `seen` is set */
    bool softmax_known;              /* the attention runs in front of it */
    unsigned wanted;                 /* of the attention: WNW_COLUMN_* */
    float *q, *k, *v, *out;
    double tolerance;
    size_t n_aux;    /* floats of one kind: [group][n_rows] */
    float *start[2]; /* numbers before the run */
    double *want[2];
};

static void fill_layer(struct fixture *f)
{
    const struct shape *s = &f->s;
    test_layer_init(&f->cache, &f->layer, s->type, s->n_head_kv, s->d, s->len, s->n_tok);
    for (int32_t ih = 0; ih < s->n_head_kv; ih++) {
        float *x = test_random_floats((size_t)s->len[ih] * (size_t)s->d, 11u + (uint32_t)ih, 2.0f);
        test_layer_store(&f->cache, ih, x, x);
        free(x);
    }
}

static void fixture_init(struct fixture *f, const struct shape *s, int32_t n_threads)
{
    memset(f, 0, sizeof *f);
    f->s = *s;
    f->tolerance = s->type == WNW_KV_Q8_0 || s->type == WNW_KV_Q4_0 ? TOLERANCE_I16 : TOLERANCE;
    fill_layer(f);
    const size_t row = (size_t)s->n_tok * (size_t)s->d;
    f->q = test_random_floats(row * (size_t)s->n_head, 1, 1.5f);
    f->k = test_random_floats(row * (size_t)s->n_head_kv, 2, 2.0f);
    f->v = test_random_floats(row * (size_t)s->n_head_kv, 3, 1.0f);
    f->out = calloc(row * (size_t)s->n_head, sizeof *f->out);
    assert_non_null(f->out);
    const struct wnw__attend_dims dims = {
        .model = {.n_head = s->n_head, .n_head_kv = s->n_head_kv, .d = s->d},
        .n_threads = n_threads,
        .n_ubatch = s->n_tok,
        .float32 = true};
    f->slice = (struct wnw__attend_slice){.cache = &f->cache, .n_row = s->n_tok, .n_past = 1000};
    f->batch = (struct wnw__attend_batch){.slice = &f->slice, .n_slice = 1, .n_row = s->n_tok};
    assert_int_equal(wnw__attend_shared_new(&f->shared, &dims), WNW_OK);
    assert_int_equal(wnw__attend_shared_reserve(f->shared, &f->batch, 0, 1), WNW_OK);
    assert_int_equal(wnw__attend_shared_keep_rows(f->shared, true), WNW_OK);
    f->attend =
        (struct wnw__attend_op){.shared = f->shared, .scale = 1.0f / sqrtf((float)s->d), .batch = &f->batch};
    const struct wnw__record_shape shape = {
        .model = {.n_layer = 1, .n_head = s->n_head, .n_head_kv = s->n_head_kv, .d = s->d},
        .n_ubatch = s->n_tok,
        .n_threads = n_threads};
    assert_int_equal(wnw__columns_new(&f->columns[0], &shape, NULL), WNW_OK);
    assert_int_equal(wnw__columns_new(&f->columns[1], &shape, &f->only), WNW_OK);
    f->n_aux = (size_t)(s->n_head / s->n_head_kv) * (size_t)f->layer.n_rows;
    for (int i = 0; i < 2; i++) {
        /* what earlier queries left; new entries have nothing yet */
        f->start[i] = test_random_floats(f->n_aux, 31u + (uint32_t)i, 0.01f);
        for (size_t at = 0; at < f->n_aux; at++)
            f->start[i][at] = fabsf(f->start[i][at]);
        for (int32_t ih = 0; ih < s->n_head_kv; ih++)
            for (int32_t g = 0; g < s->n_head / s->n_head_kv; g++)
                memset(f->start[i] + g * f->layer.n_rows + f->layer.off[ih] + s->len[ih], 0,
                       (size_t)s->n_tok * sizeof(float));
        f->layer.aux[i] = malloc(f->n_aux * sizeof(float));
        f->want[i] = calloc(f->n_aux, sizeof *f->want[i]);
        assert_non_null(f->layer.aux[i]);
        assert_non_null(f->want[i]);
    }
    for (int ith = 0; ith < 2; ith++)
        wnw__attend_store(&f->attend, f->k, f->v, ith, 2);
}

/* Who computes what: columns.c everything, or only what the attention has not left. */
enum { ALONE, BEHIND_SOFTMAX, BEHIND_COLUMNS, N_WAYS };

static void set_way(struct fixture *f, int way)
{
    f->softmax_known = way != ALONE;
    f->wanted = way == BEHIND_COLUMNS ? WNW_COLUMN_SUMS | WNW_COLUMN_MAXIMA : 0;
}

static void fixture_free(struct fixture *f)
{
    wnw__attend_shared_free(f->shared);
    test_layer_free(&f->layer);
    wnw__columns_free(f->columns[0]);
    wnw__columns_free(f->columns[1]);
    for (int i = 0; i < 2; i++) {
        free(f->layer.aux[i]);
        free(f->start[i]);
        free(f->want[i]);
    }
    free(f->q);
    free(f->k);
    free(f->v);
    free(f->out);
}

static bool is_seen(const struct fixture *f, int32_t ih, int32_t i, int32_t t)
{
    if (i > f->s.len[ih] + t)
        return false;
    if (!f->only.seen)
        return true;
    bool in = i >= f->only.own[ih];
    for (int r = 0; r < WNW_COLUMN_RANGES; r++)
        in = in || (i >= f->only.seen[ih][r].from && i < f->only.seen[ih][r].to);
    return in;
}

/* want = start and the probabilities of all queries, in double precision. */
static void reference(struct fixture *f)
{
    const struct shape *s = &f->s;
    const int32_t group = s->n_head / s->n_head_kv;
    const struct wnw__kv_layer *l = &f->layer;
    const size_t d = (size_t)s->d;
    float *keys = malloc((size_t)l->n_rows * d * sizeof *keys);
    double *p = malloc((size_t)l->n_rows * sizeof *p);
    assert_non_null(keys);
    assert_non_null(p);
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < f->n_aux; at++)
            f->want[i][at] = (double)f->start[i][at];
    for (int32_t h = 0; h < s->n_head; h++) {
        const int32_t ih = h / group, n = s->len[ih] + s->n_tok;
        double *sum = f->want[0] + (h % group) * l->n_rows + l->off[ih];
        double *max = f->want[1] + (h % group) * l->n_rows + l->off[ih];
        wnw__rows_to_f32(s->type, l->k + (size_t)l->off[ih] * f->cache.row_bytes, n, s->d, keys);
        for (int32_t t = 0; t < s->n_tok; t++) {
            const float *q = f->q + ((size_t)t * (size_t)s->n_head + (size_t)h) * d;
            double top = -INFINITY, total = 0.0;
            for (int32_t i = 0; i < n; i++) {
                p[i] = -INFINITY;
                if (!is_seen(f, ih, i, t))
                    continue;
                p[i] = test_dot(q, keys + (size_t)i * d, s->d) * (double)f->attend.scale;
                top = fmax(top, p[i]);
            }
            for (int32_t i = 0; i < n; i++)
                total += p[i] = exp(p[i] - top);
            for (int32_t i = 0; i < n; i++) {
                sum[i] += p[i] / total;
                max[i] = fmax(max[i], p[i] / total);
            }
        }
    }
    free(keys);
    free(p);
}

struct run {
    const struct fixture *f;
    int step;
};

/* Thread ith of nth in a stage of the recorder; false where it has no such stage. */
static bool take(const struct fixture *f, int stage, int ith, int nth)
{
    const struct wnw__attend_slice *slice = &f->attend.batch->slice[f->i_slice];
    const struct wnw__record_pass pass = {
        .cache = &f->cache,
        .to = 1,
        .n_past = 1000,
        .n = f->s.n_tok,
        .softmax_known = f->softmax_known,
        .columns = wnw__attend_leaves_columns(f->attend.shared, slice) ? slice->columns : 0};
    const struct wnw__record_rows rows = {.pass = &pass,
                                          .point = WNW_POINT_ATTENTION,
                                          .stage = stage,
                                          .q = f->q,
                                          .token_stride = (size_t)f->s.n_head * (size_t)f->s.d,
                                          .head_stride = (size_t)f->s.d,
                                          .out = f->out,
                                          .attend = &f->attend,
                                          .i_slice = f->i_slice};
    struct wnw__columns *c = f->columns[f->only.seen != NULL];
    if (stage >= wnw__columns_recorder.stages(c, WNW_POINT_ATTENTION, 0, &pass))
        return false;
    if (nth > 0)
        wnw__columns_recorder.take(c, &rows, ith, nth);
    return true;
}

static void run_thread(void *user, int ith, int nth)
{
    const struct run *r = user;
    const struct fixture *f = r->f;
    if (r->step == 0)
        wnw__attend_run(&f->attend, f->q, NULL, NULL, f->out, ith, nth);
    else
        take(f, r->step - 1, ith, nth);
}

/* The steps one after the other, as a graph runs them. */
static void run(struct fixture *f, int nth)
{
    f->slice.columns = f->wanted;
    assert_int_equal(wnw__attend_shared_reserve(f->shared, &f->batch, 0, 1), WNW_OK);
    for (int i = 0; i < 2; i++)
        memcpy(f->layer.aux[i], f->start[i], f->n_aux * sizeof(float));
    for (int step = f->softmax_known ? 0 : 1; step == 0 || take(f, step - 1, 0, 0); step++)
        test_on_threads(nth, run_thread, &(struct run){f, step});
}

static void compare(const struct fixture *f)
{
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at < f->n_aux; at++) {
            const double want = f->want[i][at], got = (double)f->layer.aux[i][at];
            if (!(fabs(got - want) <= f->tolerance * fmax(want, 1e-3)))
                fail_msg("%s, %s: %g, expected %g (%d/%d heads, d %d, type %d, %d new, row %d)",
                         f->shared->vec->name, i ? "maximum" : "sum", got, want, f->s.n_head, f->s.n_head_kv,
                         f->s.d, (int)f->s.type, f->s.n_tok, (int)(at % (size_t)f->layer.n_rows));
            if (i == 1 && got > 1.0)
                fail_msg("maximum %.9g > 1", got);
        }
}

/* Sums over the entries: every query gives 1 in all. */
static void check_total(const struct fixture *f)
{
    const struct shape *s = &f->s;
    const int32_t group = s->n_head / s->n_head_kv;
    for (int32_t h = 0; h < s->n_head; h++) {
        const size_t at = (size_t)(h % group) * (size_t)f->layer.n_rows + (size_t)f->layer.off[h / group];
        double total = 0.0;
        for (int32_t i = 0; i < s->len[h / group] + s->n_tok; i++)
            total += (double)f->layer.aux[0][at + (size_t)i] - (double)f->start[0][at + (size_t)i];
        if (fabs(total - s->n_tok) > f->tolerance * s->n_tok)
            fail_msg("head %d: %g in all from %d queries", h, total, s->n_tok);
    }
}

static void check_ways(struct fixture *f)
{
    const size_t bytes = (size_t)f->s.n_tok * (size_t)f->s.n_head * (size_t)f->s.d * sizeof *f->out;
    float *out = malloc(bytes);
    assert_non_null(out);
    for (int way = 0; way < N_WAYS; way++) {
        set_way(f, way);
        run(f, 1);
        compare(f);
        check_total(f);
        if (way == BEHIND_SOFTMAX)
            memcpy(out, f->out, bytes);
        if (way == BEHIND_COLUMNS) /* who looks changes nothing */
            assert_memory_equal(f->out, out, bytes);
    }
    free(out);
}

static void check_shape(const struct shape *s)
{
    struct fixture f;
    fixture_init(&f, s, 3);
    reference(&f);
    for (int i = 0; wnw__vec_at(i); i++) {
        f.shared->vec = wnw__vec_at(i);
        check_ways(&f);
    }
    f.shared->vec = wnw__vec_at(0);
    f.tolerance = s->type == WNW_KV_F32 ? TOLERANCE : TOLERANCE_BF16;
    for (int i = 0; wnw__bf16_at(i); i++) {
        f.shared->bf16 = wnw__bf16_at(i);
        f.shared->score8 = NULL;
        check_ways(&f);
        f.shared->score8 = f.shared->bf16 == wnw__bf16_best() ? wnw__score8_best() : wnw__score8_scalar();
        check_ways(&f);
    }
    fixture_free(&f);
}

/* 66 rows of a group of 3 are one unit of work and the fewest rows that a next one can have; of a group of 7 they are three; keys of
 * 216 entries are three tiles and a part of one. The first is far (attend_impl.h). */
static void agrees_with_reference(void **state)
{
    (void)state;
    test_has_one_thread();
    static const int32_t group[] = {1, 3, 7}, d[] = {32, 64, 80}, n_tok[] = {1, 2, 7, 33, 66};
    for (size_t g = 0; g < 3; g++)
        for (size_t i = 0; i < 3; i++)
            for (size_t t = 0; t < 5; t++)
                for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++) {
                    const struct shape s = {.n_head = 3 * group[g],
                                            .n_head_kv = 3,
                                            .d = d[i],
                                            .type = (wnw_kv_type)type,
                                            .len = {0, 61, 150},
                                            .n_tok = n_tok[t]};
                    if (wnw__row_bytes(s.type, s.d) && test_takes_sizes(g + i + t + (size_t)type))
                        check_shape(&s);
                }
}

static void odd_sizes_agree(void **state)
{
    (void)state;
    test_has_one_thread();
    static const struct shape shapes[] = {
        {.n_head = 5, .n_head_kv = 1, .d = 64, .len = {129}, .n_tok = 1},
        {.n_head = 5, .n_head_kv = 1, .d = 13, .len = {64}, .n_tok = 97},
        {.n_head = 5, .n_head_kv = 1, .d = 64, .len = {0}, .n_tok = 1},
        {.n_head = 4, .n_head_kv = 4, .d = 32, .len = {1, 63, 64, 65}, .n_tok = 192},
        {.n_head = 101, .n_head_kv = 1, .d = 16, .len = {300}, .n_tok = 3},
        /* tiles of a run of rows that are kept in several parts; the last is not full */
        {.n_head = 6, .n_head_kv = 2, .d = 32, .len = {3000, 9}, .n_tok = 81},
        {.n_head = 1, .n_head_kv = 1, .d = 32, .len = {6000}, .n_tok = 49},
        {.n_head = 101, .n_head_kv = 1, .d = 16, .len = {30}, .n_tok = 9},
        /* more entries than a unit of work of few rows */
        {.n_head = 4, .n_head_kv = 2, .d = 32, .len = {1500, 300}, .n_tok = 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i]);
}

/* A softmax over parts of the cache, and the columns of one part only, as KVzip wants them. */
static void restricted_softmax_agrees(void **state)
{
    (void)state;
    test_has_one_thread();
    static const int32_t n_tok[] = {1, 9, 130};
    for (size_t i = 0; i < 3; i++) {
        const struct shape s = {
            .n_head = 6, .n_head_kv = 2, .d = 64, .type = WNW_KV_F16, .len = {150, 90}, .n_tok = n_tok[i]};
        struct fixture f;
        fixture_init(&f, &s, 2);
        const struct wnw__range seen[2][WNW_COLUMN_RANGES] = {{{0, 4}, {20, 101}}, {{0, 0}, {0, 64}}};
        const struct wnw__range columns[2] = {{20, 101}, {0, 64}};
        const int32_t own[2] = {140, 90};
        float *sum = calloc(6 * 150, sizeof *sum), *max = calloc(6 * 150, sizeof *max);
        assert_non_null(sum);
        assert_non_null(max);
        for (int k = 0; k < 2; k++)
            memset(f.start[k], 0, f.n_aux * sizeof(float));
        f.softmax_known = true;
        f.only.seen = seen;
        f.only.own = own;
        reference(&f);
        f.only.columns = columns;
        f.only.sum = sum;
        f.only.max = max;
        f.only.n = 150;
        run(&f, 1);
        for (size_t at = 0; at < f.n_aux; at++) { /* the entries' own numbers are not touched */
            assert_cmp(f.layer.aux[0][at], ==, 0.0f);
            assert_cmp(f.layer.aux[1][at], ==, 0.0f);
        }
        for (int32_t h = 0; h < 6; h++)
            for (int32_t c = 0; c < 150; c++) {
                const size_t at = (size_t)(h % 3) * (size_t)f.layer.n_rows + (size_t)(f.layer.off[h / 3] + c);
                const bool wanted = c >= columns[h / 3].from && c < columns[h / 3].to;
                const double want_sum = wanted ? f.want[0][at] : 0, want_max = wanted ? f.want[1][at] : 0;
                assert_near(sum[h * 150 + c], want_sum, TOLERANCE * fmax(want_sum, 1e-3));
                assert_near(max[h * 150 + c], want_max, TOLERANCE * fmax(want_max, 1e-3));
            }
        free(sum);
        free(max);
        fixture_free(&f);
    }
}

/* Two sequences in one batch, each with a recorder of its own after the attention of both. */
static void slices_of_a_batch(void **state)
{
    (void)state;
    static const int32_t n_tok[][2] = {{1, 1}, {1, 130}, {9, 2}};
    for (size_t i = 0; i < 3; i++) {
        const struct shape s[2] = {
            {.n_head = 6, .n_head_kv = 2, .d = 64, .len = {150, 90}, .n_tok = n_tok[i][0]},
            {.n_head = 6,
             .n_head_kv = 2,
             .d = 64,
             .type = WNW_KV_Q8_0,
             .len = {7, 300},
             .n_tok = n_tok[i][1]}};
        struct fixture f[2];
        const int32_t n_row = s[0].n_tok + s[1].n_tok;
        const size_t row = 6 * 64, n_first = (size_t)s[0].n_tok * row, n = (size_t)n_row * row;
        const struct wnw__attend_dims dims = {.model = {.n_head = 6, .n_head_kv = 2, .d = 64},
                                              .n_threads = 1,
                                              .n_ubatch = n_row,
                                              .float32 = true};
        struct wnw__attend_op attend = {.scale = 0.125f};
        float *q = malloc(n * sizeof *q), *out = malloc(n * sizeof *out);
        assert_non_null(q);
        assert_non_null(out);
        fixture_init(&f[0], &s[0], 1);
        fixture_init(&f[1], &s[1], 1);
        memcpy(q, f[0].q, n_first * sizeof *q);
        memcpy(q + n_first, f[1].q, (n - n_first) * sizeof *q);
        struct wnw__attend_slice slices[2] = {f[0].slice, f[1].slice};
        slices[1].first_row = s[0].n_tok;
        const struct wnw__attend_batch batch = {.slice = slices, .n_slice = 2, .n_row = n_row};
        attend.batch = &batch;
        assert_int_equal(wnw__attend_shared_new(&attend.shared, &dims), WNW_OK);
        assert_int_equal(wnw__attend_shared_reserve(attend.shared, &batch, 0, 1), WNW_OK);
        assert_int_equal(wnw__attend_shared_keep_rows(attend.shared, true), WNW_OK);
        for (int32_t k = 0; k < 2; k++)
            reference(&f[k]);
        for (int32_t run = 0; run < 8; run++) { /* statistics that the attention leaves of each slice */
            const int32_t k = run % 2;
            slices[0].columns = run & 2 ? WNW_COLUMN_SUMS | WNW_COLUMN_MAXIMA : 0;
            slices[1].columns = run & 4 ? WNW_COLUMN_SUMS | WNW_COLUMN_MAXIMA : 0;
            assert_int_equal(wnw__attend_shared_reserve(attend.shared, &batch, 0, 1), WNW_OK);
            wnw__attend_run(&attend, q, NULL, NULL, out, 0, 1);
            f[k].attend = attend;
            f[k].i_slice = k;
            f[k].softmax_known = true;
            for (int kind = 0; kind < 2; kind++)
                memcpy(f[k].layer.aux[kind], f[k].start[kind], f[k].n_aux * sizeof(float));
            for (int stage = 0; take(&f[k], stage, 0, 1); stage++)
                ;
            compare(&f[k]);
        }
        wnw__attend_shared_free(attend.shared);
        free(q);
        free(out);
        fixture_free(&f[0]);
        fixture_free(&f[1]);
    }
}

static void check_threads(struct fixture *f)
{
    float *first[2];
    run(f, 1);
    for (int k = 0; k < 2; k++) {
        first[k] = malloc(f->n_aux * sizeof(float));
        assert_non_null(first[k]);
        memcpy(first[k], f->layer.aux[k], f->n_aux * sizeof(float));
    }
    for (int nth = 2; nth <= 5; nth++) {
        run(f, nth);
        for (int k = 0; k < 2; k++)
            assert_memory_equal(first[k], f->layer.aux[k], f->n_aux * sizeof(float));
    }
    free(first[0]);
    free(first[1]);
}

/* With every instruction set that this CPU has. */
static void threads_give_the_same_bits(void **state)
{
    (void)state;
    static const int32_t n_tok[] = {1, 2, 200};
    for (size_t i = 0; i < 3; i++)
        for (int way = 0; way < N_WAYS; way++) {
            const struct shape s = {
                .n_head = 9, .n_head_kv = 3, .d = 64, .len = {700, 61, 150}, .n_tok = n_tok[i]};
            struct fixture f;
            fixture_init(&f, &s, 5);
            set_way(&f, way);
#ifdef __SANITIZE_THREAD__ /* which looks at who takes what: no instruction set changes that */
            check_threads(&f);
#else
            for (int k = 0; wnw__vec_at(k); k++) {
                f.shared->vec = wnw__vec_at(k);
                check_threads(&f);
            }
#endif
            fixture_free(&f);
        }
}

/* One kind alone is possible; the other's planes do not exist. */
static void one_kind_alone(void **state)
{
    (void)state;
    const struct shape s = {.n_head = 2, .n_head_kv = 1, .d = 32, .len = {40}, .n_tok = 12};
    struct fixture f;
    fixture_init(&f, &s, 1);
    reference(&f);
    for (int kind = 0; kind < 2; kind++)
        for (int left = 0; left < 2; left++) {
            float *other = f.layer.aux[1 - kind];
            memcpy(f.layer.aux[kind], f.start[kind], f.n_aux * sizeof(float));
            f.layer.aux[1 - kind] = NULL;
            f.softmax_known = left;
            f.slice.columns = !left ? 0 : kind == WNW_AUX_ATTN_SUM ? WNW_COLUMN_SUMS : WNW_COLUMN_MAXIMA;
            assert_int_equal(wnw__attend_shared_reserve(f.shared, &f.batch, 0, 1), WNW_OK);
            if (left)
                wnw__attend_run(&f.attend, f.q, NULL, NULL, f.out, 0, 1);
            for (int stage = 0; take(&f, stage, 0, 1); stage++)
                ;
            for (size_t at = 0; at < f.n_aux; at++)
                assert_near(f.layer.aux[kind][at], f.want[kind][at], TOLERANCE);
            f.layer.aux[1 - kind] = other;
        }
    fixture_free(&f);
}

/* Every instruction set: exp(s - m) norm, hidden columns exactly 0, added to what is there. */
static void kernel_adds_columns(void **state)
{
    (void)state;
    enum { ROWS = 37 };
    const double rounding = 1.5e-6; /* half a unit in the last place of a difference of 20 is 1e-6 */
    static float s[ROWS * WNW_TILE], m[ROWS], norm[ROWS];
    uint32_t seed = 5;
    for (int r = 0; r < ROWS; r++) {
        m[r] = (float)test_lcg(&seed) / 1048576.0f - 8.0f; /* -8 .. 8 */
        norm[r] = 1.0f / (1.0f + (float)(test_lcg(&seed) % 100));
        for (int c = 0; c < WNW_TILE; c++)
            s[r * WNW_TILE + c] = c % 7 == 6 ? -INFINITY : m[r] - (float)test_lcg(&seed) / 838860.0f;
    }
    for (int i = 0; wnw__vec_at(i); i++)
        for (int rows = 0; rows <= ROWS; rows += rows < 4 ? 1 : 11) {
            float sum[WNW_TILE], max[WNW_TILE];
            for (int c = 0; c < WNW_TILE; c++) {
                sum[c] = 0.5f;
                max[c] = (float)c / 256.0f;
            }
            wnw__vec_at(i)->column_tile(s, rows, m, norm, sum, max);
            for (int c = 0; c < WNW_TILE; c++) {
                double want_sum = 0.5, want_max = (double)c / 256.0;
                for (int r = 0; r < rows; r++) {
                    const double p = exp((double)s[r * WNW_TILE + c] - (double)m[r]) * (double)norm[r];
                    want_sum += p;
                    want_max = fmax(want_max, p);
                }
                assert_near(sum[c], want_sum, rounding * want_sum);
                assert_near(max[c], want_max, rounding * want_max);
                if (c % 7 == 6) {
                    assert_cmp(sum[c], ==, 0.5f);
                    assert_cmp(max[c], ==, (float)c / 256.0f);
                }
            }
        }
}

/* Every instruction set, by hand: rows 0 and 2 of one head, 1 and 3 of the other. */
static void kernel_takes_tiles_to_probabilities(void **state)
{
    (void)state;
    static float p[4 * WNW_TILE];
    float then[16] = {1, -3, 2, 0}, m[16] = {1, 0, 3, 200}, norm[16] = {0.5f, 1, 0.25f, 1}, factor[16];
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < WNW_TILE; c++)
            p[r * WNW_TILE + c] = c % 2 ? 0.0f : (float)(r + 1) / 4.0f;
    for (int i = 0; wnw__vec_at(i); i++) {
        const struct wnw__vec *vec = wnw__vec_at(i);
        vec->row_factors(then, m, norm, 4, factor);
        const double want[] = {0.5, exp(-3), exp(-1) / 4, 0}; /* exp(-200) is 0 */
        for (int r = 0; r < 4; r++)
            assert_near(factor[r], want[r], 1e-7);
        for (int g = 0; g < 2; g++) {
            float sum[WNW_TILE] = {0}, max[WNW_TILE] = {0}, alone[WNW_TILE] = {0};
            vec->add_columns(p + g * WNW_TILE, 2, 2, factor + g, sum, max);
            vec->add_columns(p + g * WNW_TILE, 2, 2, factor + g, alone, NULL);
            const double first = want[g] * (g + 1) / 4, second = want[g + 2] * (g + 3) / 4;
            for (int c = 0; c < WNW_TILE; c++) {
                assert_near(sum[c], c % 2 ? 0 : first + second, 1e-7);
                assert_near(max[c], c % 2 ? 0 : fmax(first, second), 1e-7);
                assert_cmp(alone[c], ==, sum[c]);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel_adds_columns), cmocka_unit_test(agrees_with_reference),
        cmocka_unit_test(odd_sizes_agree),     cmocka_unit_test(restricted_softmax_agrees),
        cmocka_unit_test(slices_of_a_batch),   cmocka_unit_test(threads_give_the_same_bits),
        cmocka_unit_test(one_kind_alone),      cmocka_unit_test(kernel_takes_tiles_to_probabilities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
