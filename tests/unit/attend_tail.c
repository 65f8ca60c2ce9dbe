/* SPDX-License-Identifier: MIT */
/*
 * The own attention over quantised caches with a tail. What a row sees of an entry, its f16 row or the quantised
 * one, depends on the row's place in the timeline; so however a timeline is cut into batches, the result is close to
 * the reference's, and between cuts that take the same path it is the same bits.
 */
#include "asserts.h"

#include "peek_session.h"
#include "random.h"
#include "threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* See unit/attend.c. */
#define TOLERANCE 3e-5 /* TOLERANCE_I16 there */

enum { N_HEAD_KV = 2, LENGTH = 490, N_LAYER = 2, N_SWA = 300 }; /* layer 1 has a window */

struct row {
    const char *name;
    wnw_kv_type type;
    int32_t d, group, n_tail;
};

static const struct row rows[] = {
    {"q8_0, heads of 64, groups of 3, tail of 128", WNW_KV_Q8_0, 64, 3, 128},
    {"q4_0, heads of 64, groups of 1, tail of 32", WNW_KV_Q4_0, 64, 1, 32},
    {"q4_0, heads of 96, groups of 7, tail of 33", WNW_KV_Q4_0, 96, 7, 33},
    {"q8_0, heads of 128, groups of 2, tail of 300", WNW_KV_Q8_0, 128, 2, 300},
    {"q4_0, heads of 256, groups of 1, tail of 100", WNW_KV_Q4_0, 256, 1, 100},
    {"q8_0, heads of 32, groups of 9, tail of 64", WNW_KV_Q8_0, 32, 9, 64},
};

static size_t number_of(const struct row *row)
{
    return (size_t)(row - rows);
}

/* A timeline of LENGTH tokens, its queries, keys and values, and what came of them. */
struct fixture {
    const struct row *row;
    struct wnw__cache c;
    struct wnw__attend_shared *shared;
    struct wnw__attend_slice slice;
    struct wnw__attend_batch batch;
    struct wnw__attend_op op;
    struct wnw__columns *columns;
    float *q, *k, *v, *out, *ref;
    size_t n_q, n_k; /* floats of one token */
    int32_t il;
};

static void init(struct fixture *f, const struct row *row, int32_t il)
{
    static const int32_t n_swa[N_LAYER] = {0, N_SWA};
    *f = (struct fixture){.row = row, .il = il};
    assert_ok(wnw__cache_init(&f->c, N_LAYER, N_HEAD_KV, row->d, row->type, WNW_CACHE_GROWTH, n_swa));
    assert_ok(wnw__cache_set_tail(&f->c, row->n_tail));
    assert_ok(wnw__cache_set_aux(&f->c, WNW_AUX_ATTN_SUM, row->group));
    assert_ok(wnw__cache_set_aux(&f->c, WNW_AUX_ATTN_MAX, row->group));
    f->n_k = (size_t)N_HEAD_KV * (size_t)row->d;
    f->n_q = f->n_k * (size_t)row->group;
    f->q = test_random_floats(LENGTH * f->n_q, 1, 1.5f);
    f->k = test_random_floats(LENGTH * f->n_k, 2, 2.0f);
    f->v = test_random_floats(LENGTH * f->n_k, 3, 1.0f);
    f->out = calloc(LENGTH * f->n_q, sizeof *f->out);
    f->ref = calloc(LENGTH * f->n_q, sizeof *f->ref);
    assert_non_null(f->out);
    assert_non_null(f->ref);
    const struct wnw__attend_dims dims = {
        .model = {.n_head = N_HEAD_KV * row->group, .n_head_kv = N_HEAD_KV, .d = row->d},
        .n_threads = 2,
        .n_ubatch = LENGTH,
        .float32 = true};
    static const bool slides[N_LAYER] = {false, true};
    const struct wnw__record_shape shape = {.model = {.n_layer = N_LAYER,
                                                      .n_head = dims.model.n_head,
                                                      .n_head_kv = N_HEAD_KV,
                                                      .d = row->d,
                                                      .left_alone = slides},
                                            .n_ubatch = LENGTH,
                                            .n_threads = 2};
    assert_ok(wnw__attend_shared_new(&f->shared, &dims));
    assert_ok(wnw__attend_shared_keep_rows(f->shared, true));
    assert_ok(wnw__columns_new(&f->columns, &shape, NULL));
    f->op = (struct wnw__attend_op){
        .shared = f->shared, .il = il, .scale = 1.0f / sqrtf((float)row->d), .batch = &f->batch};
}

static void clear(struct fixture *f)
{
    wnw__attend_shared_free(f->shared);
    wnw__columns_recorder.free(f->columns);
    wnw__cache_free(&f->c);
    free(f->q);
    free(f->k);
    free(f->v);
    free(f->out);
    free(f->ref);
}

struct run {
    struct fixture *f;
    int32_t first;
    bool stores;
};

static void run_thread(void *user, int ith, int nth)
{
    const struct run *r = user;
    const struct fixture *f = r->f;
    const size_t at_q = (size_t)r->first * f->n_q, at_k = (size_t)r->first * f->n_k;
    wnw__attend_run(&f->op, f->q + at_q, r->stores ? f->k + at_k : NULL, r->stores ? f->v + at_k : NULL,
                    f->out + at_q, ith, nth);
}

/* The columns of the batch that has just run. */
static void record(struct fixture *f, int32_t first, bool softmax_known)
{
    const bool left = wnw__attend_leaves_columns(f->shared, &f->slice);
    const struct wnw__record_pass pass = {.cache = &f->c,
                                          .to = N_LAYER,
                                          .n_past = first,
                                          .n = f->slice.n_row,
                                          .softmax_known = softmax_known,
                                          .columns = left ? f->slice.columns : 0};
    struct wnw__record_rows r = {.pass = &pass,
                                 .point = WNW_POINT_ATTENTION,
                                 .il = f->il,
                                 .attend = &f->op,
                                 .q = f->q + (size_t)first * f->n_q};
    const int n = wnw__columns_recorder.stages(f->columns, WNW_POINT_ATTENTION, f->il, &pass);
    for (r.stage = 0; r.stage < n; r.stage++)
        wnw__columns_recorder.take(f->columns, &r, 0, 1);
}

struct how {
    int32_t step; /* tokens per batch */
    int nth;
    bool stores;        /* attention stores the rows itself; for small steps */
    bool softmax_known; /* to the columns */
    bool columns;       /* the attention adds them up itself where it can */
    bool ref; /* the reference is computed too, but not under AddressSanitizer: it takes most of the time */
};

/* Reads the next tokens as one batch. */
static void read_batch(struct fixture *f, int32_t first, int32_t n, const struct how *how)
{
    assert_ok(wnw__cache_reserve_layer(&f->c, f->il, n, true));
    f->slice = (struct wnw__attend_slice){
        .cache = &f->c,
        .n_row = n,
        .n_past = first,
        .columns = how->columns && f->il == 0 ? WNW_COLUMN_SUMS | WNW_COLUMN_MAXIMA : 0};
    f->batch = (struct wnw__attend_batch){.slice = &f->slice, .n_slice = 1, .n_row = n};
    assert_ok(wnw__attend_shared_reserve(f->shared, &f->batch, f->il, f->il + 1));
    for (int i = 0; !how->stores && i < how->nth; i++)
        wnw__attend_store(&f->op, f->k + (size_t)first * f->n_k, f->v + (size_t)first * f->n_k, i, how->nth);
    test_on_threads(how->nth, run_thread, &(struct run){f, first, how->stores});
    if (how->ref && !test_looks_at_memory())
        wnw__attend_ref(&f->op, f->q + (size_t)first * f->n_q, f->ref + (size_t)first * f->n_q);
    if (f->il == 0)
        record(f, first, how->softmax_known);
    wnw__cache_commit_layer(&f->c, f->il, first, n);
    assert_ok(wnw__cache_check(&f->c));
}

static void read_all(struct fixture *f, const struct how *how)
{
    for (int32_t at = 0; at < LENGTH; at += how->step)
        read_batch(f, at, LENGTH - at < how->step ? LENGTH - at : how->step, how);
}

static void assert_close(const struct fixture *f, const float *ref, int32_t step)
{
    const double e = test_relative_error(f->out, ref, LENGTH * f->n_q);
    if (!(e <= TOLERANCE))
        fail_msg("layer %d, %d at a time: error %g", f->il, step, e);
}

/* Every query gives 1 in total, and every entry has as much as with tokens read one by one. */
static void assert_columns(const struct fixture *f, const struct fixture *one_by_one)
{
    const struct wnw__kv_layer *l = &f->c.layers[0], *m = &one_by_one->c.layers[0];
    for (int kind = WNW_AUX_ATTN_SUM; kind <= WNW_AUX_ATTN_MAX; kind++)
        for (int32_t ih = 0; ih < N_HEAD_KV; ih++)
            for (int32_t g = 0; g < f->row->group; g++) {
                const float *got = wnw__cache_aux(l, (enum wnw__aux)kind, g) + l->off[ih];
                const float *want = wnw__cache_aux(m, (enum wnw__aux)kind, g) + m->off[ih];
                double sum = 0;
                for (int32_t i = 0; i < LENGTH; i++) {
                    assert_near(got[i], want[i], 2e-5 * fmax(1.0, (double)want[i]));
                    sum += (double)got[i];
                }
                if (kind == WNW_AUX_ATTN_SUM)
                    assert_near(sum, LENGTH, 1e-2);
            }
}

/* Batches of any size agree with the reference for tokens one by one, where each sees every entry in one form
 * only; so does the reference for batches, which knows what each row sees by definition; and columns agree with
 * those of tokens one by one. */
static void agrees_with_reference(void **state)
{
    static const struct how hows[] = {
        {.step = 1, .nth = 2, .stores = true, .softmax_known = true, .ref = true},
        {.step = 5, .nth = 2, .stores = true, .softmax_known = true},
        {.step = 90, .nth = 2, .softmax_known = false, .ref = true},
        {.step = LENGTH, .nth = 1, .softmax_known = true},
        {.step = LENGTH, .nth = 2, .softmax_known = true, .columns = true},
        {.step = 77, .nth = 1, .softmax_known = true, .columns = true},
    };
    const bool compares = !test_looks_at_memory();
    for (int32_t il = 0; il < N_LAYER; il++) {
        struct fixture one, other;
        for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
            struct fixture *f = i == 0 ? &one : &other;
            if (!test_takes_sizes(number_of(*state) + (size_t)il + i))
                continue;
            init(f, *state, il);
            read_all(f, &hows[i]);
            if (compares)
                assert_close(f, one.ref, hows[i].step);
            if (hows[i].ref && compares)
                assert_close(f, f->ref, hows[i].step);
            if (il == 0 && compares)
                assert_columns(f, &one);
            if (i > 0 || !compares)
                clear(f);
        }
        if (compares)
            clear(&one);
    }
}

/* In bf16 results are further off, but entries that leave the tail are seen in the same forms. */
static void bf16_agrees(void **state)
{
    for (int i = 0; wnw__bf16_at(i); i++) {
        struct fixture f, strict;
        init(&f, *state, 0);
        init(&strict, *state, 0);
        f.shared->bf16 = wnw__bf16_at(i);
        read_all(&f, &(struct how){.step = 112, .nth = 2, .softmax_known = true, .columns = true});
        read_all(&strict, &(struct how){.step = 112, .nth = 2, .softmax_known = true, .columns = true});
        const double e = test_relative_error(f.out, strict.out, LENGTH * f.n_q);
        if (!(e > 0 && e <= 0.02))
            fail_msg("%s: %g away from float32", wnw__bf16_at(i)->name, e);
        for (int32_t g = 0; g < f.row->group; g++)
            for (int32_t k = 0; k < 200; k++) {
                const float got = wnw__cache_aux(f.c.layers, WNW_AUX_ATTN_SUM, g)[k],
                            want = wnw__cache_aux(strict.c.layers, WNW_AUX_ATTN_SUM, g)[k];
                assert_near(got, want, 0.02 * fmax(1.0, (double)want));
            }
        clear(&f);
        clear(&strict);
    }
}

/* Cuts into prompts' batches (one of which the reference has confirmed) and numbers of threads do not change a bit, of results and of the cache. (No batch ends
 * with a unit of so few queries that another kernel takes them.) */
static void cuts_and_threads_do_not_matter(void **state)
{
    static const struct how hows[] = {{.step = 112, .nth = 2},
                                      {.step = 330, .nth = 3},
                                      {.step = 168, .nth = 1},
                                      {.step = 330, .nth = 2, .softmax_known = true, .columns = true}};
    struct fixture whole;
    init(&whole, *state, 0);
    read_all(&whole, &(struct how){.step = LENGTH, .nth = 1});
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        struct fixture f;
        if (!test_takes_sizes(number_of(*state) + i))
            continue;
        init(&f, *state, 0);
        read_all(&f, &hows[i]);
        assert_memory_equal(f.out, whole.out, LENGTH * f.n_q * sizeof *f.out);
        for (int32_t ih = 0; ih < N_HEAD_KV; ih++)
            for (int32_t at = 0; at < LENGTH;) {
                const struct wnw__kv_rows a = wnw__cache_rows(&f.c, f.c.layers, ih, at, LENGTH),
                                          b = wnw__cache_rows(&whole.c, whole.c.layers, ih, at, LENGTH);
                assert_int_equal(a.n, b.n);
                assert_memory_equal(a.k, b.k, (size_t)a.n * a.row_bytes);
                assert_memory_equal(a.v, b.v, (size_t)a.n * a.row_bytes);
                at += a.n;
            }
        clear(&f);
    }
    clear(&whole);
}

/* A tail that holds everything is an f16 cache, bit for bit. */
static void long_tail_is_f16(void **state)
{
    static const struct how hows[] = {{.step = 6, .nth = 1, .stores = true}, {.step = 200, .nth = 2}};
    struct row long_tail = *(const struct row *)*state, plain = long_tail;
    long_tail.n_tail = LENGTH;
    plain.type = WNW_KV_F16;
    for (int i = 0; i < 2; i++) {
        struct fixture a, b;
        if (!test_takes_sizes(number_of(*state) + (size_t)i))
            continue;
        init(&a, &long_tail, 0);
        init(&b, &plain, 0);
        b.c.n_tail = 0;
        for (int32_t il = 0; il < N_LAYER; il++)
            assert_null(b.c.layers[il].tail.k);
        read_all(&a, &hows[i]);
        read_all(&b, &hows[i]);
        assert_memory_equal(a.out, b.out, LENGTH * a.n_q * sizeof *a.out);
        clear(&a);
        clear(&b);
    }
}

/* Compacted heads of different lengths go on the same way. */
static void ragged_heads_agree(void **state)
{
    const struct how how = {.nth = 2, .ref = true};
    struct fixture f;
    init(&f, *state, 0);
    read_batch(&f, 0, 400, &how);
    int32_t a[400], b[400], n_keep[2] = {0, 0};
    const int32_t *keep[2] = {a, b};
    for (int32_t i = 0; i < 400; i++) {
        if (i % 3 == 0 && i != 99)
            a[n_keep[0]++] = i;
        if (i < 5 || i > 380)
            b[n_keep[1]++] = i;
    }
    assert_ok(wnw__cache_keep_layer(&f.c, 0, keep, n_keep));
    read_batch(&f, 400, 60, &how);
    for (int32_t at = 460; at < LENGTH; at++)
        read_batch(&f, at, 1, &(struct how){.nth = 1, .stores = true, .ref = true});
    if (!test_looks_at_memory())
        assert_cmp(test_relative_error(f.out, f.ref, LENGTH * f.n_q), <=, TOLERANCE);
    clear(&f);
}

int main(void)
{
    return run_rows(agrees_with_reference, rows) + run_rows(cuts_and_threads_do_not_matter, rows) +
           run_rows(long_tail_is_f16, rows) + run_rows(ragged_heads_agree, rows) +
           run_rows(bf16_agrees, rows);
}
