/* SPDX-License-Identifier: MIT */
/* The own attention against the double-precision reference, over layers built by hand. */
#include "asserts.h"

#include "layers.h"
#include "peek_arrays.h"
#include "random.h"
#include "threads.h"

#include <float.h>
#include <ggml-cpu.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Both sides start from the same stored (possibly quantised) rows, so they differ by float rounding only: a
 * score of magnitude S is off by about S * 2^-24 * sqrt(d), and so is its weight. Scores here stay below 10.
 */
#define TOLERANCE 5e-6

/* Where AVX2 multiplies few queries with blocks of q8_0 or q4_0, queries are rounded to 15 bits and a sign. */
#define TOLERANCE_I16 3e-5

/* Products in bf16 round queries, keys, weights and values by up to 2^-9 of themselves. */
#define TOLERANCE_BF16 0.02

/* Scores of far entries in bytes, compared with float32: the root mean square error is at most 0.25. */
#define TOLERANCE_BYTES 0.01

struct shape {
    int32_t n_head, n_head_kv, d;
    wnw_kv_type type;
    int32_t len[4]; /* stored entries of each KV head */
    int32_t n_past, n_tok, n_swa;
};

struct fixture {
    struct shape s;
    struct wnw__attend_shared *shared;
    struct wnw__kv_layer layer;
    struct wnw__cache cache; /* of that layer */
    struct wnw__attend_slice slice;
    struct wnw__attend_batch batch; /* of that slice */
    struct wnw__attend_op op;
    float *q, *k, *v, *out, *ref;
    size_t n_q, arena_bytes;
};

static void fill_head(struct fixture *f, int32_t ih)
{
    const struct shape *s = &f->s;
    struct wnw__kv_layer *layer = &f->layer;
    const size_t n = (size_t)s->len[ih] * (size_t)s->d;
    float *k = test_random_floats(n + 1, 11u + (uint32_t)ih, 1),
          *v = test_random_floats(n + 1, 23u + (uint32_t)ih, 1);
    for (size_t i = 0; i < n; i++)
        k[i] *= 2.0f;
    test_layer_store(&f->cache, ih, k, v);
    free(k);
    free(v);
    /* positions spread over 0 .. n_past-1 as an evicted cache has them */
    for (int32_t i = 0; i < s->len[ih]; i++)
        layer->pos[layer->off[ih] + i] = (int32_t)((int64_t)i * s->n_past / s->len[ih]);
}

static void fixture_init(struct fixture *f, const struct shape *s, int32_t n_threads)
{
    memset(f, 0, sizeof *f);
    f->s = *s;
    struct wnw__kv_layer *layer = &f->layer;
    test_layer_init(&f->cache, layer, s->type, s->n_head_kv, s->d, s->len, s->n_tok);
    layer->n_swa = s->n_swa;
    f->arena_bytes = (size_t)layer->n_rows * f->cache.row_bytes;
    memset(layer->pos, 0x7f, (size_t)layer->n_rows * sizeof *layer->pos);
    for (int32_t ih = 0; ih < s->n_head_kv; ih++)
        fill_head(f, ih);

    const size_t row = (size_t)s->n_tok * (size_t)s->d;
    f->n_q = row * (size_t)s->n_head;
    f->q = test_random_floats(f->n_q, 1, 1);
    f->k = test_random_floats(row * (size_t)s->n_head_kv, 2, 1);
    f->v = test_random_floats(row * (size_t)s->n_head_kv, 3, 1);
    f->out = calloc(f->n_q, sizeof *f->out);
    f->ref = calloc(f->n_q, sizeof *f->ref);
    assert_non_null(f->out);
    assert_non_null(f->ref);
    const struct wnw__attend_dims dims = {
        .model = {.n_head = s->n_head, .n_head_kv = s->n_head_kv, .d = s->d},
        .n_threads = n_threads,
        .n_ubatch = s->n_tok};
    f->slice = (struct wnw__attend_slice){.cache = &f->cache, .n_row = s->n_tok, .n_past = s->n_past};
    f->batch = (struct wnw__attend_batch){.slice = &f->slice, .n_slice = 1, .n_row = s->n_tok};
    assert_int_equal(wnw__attend_shared_new(&f->shared, &dims), WNW_OK);
    assert_int_equal(wnw__attend_shared_reserve(f->shared, &f->batch, 0, 1), WNW_OK);
    f->op =
        (struct wnw__attend_op){.shared = f->shared, .scale = 1.0f / sqrtf((float)s->d), .batch = &f->batch};
}

static void fixture_free(struct fixture *f)
{
    wnw__attend_shared_free(f->shared);
    test_layer_free(&f->layer);
    free(f->q);
    free(f->k);
    free(f->v);
    free(f->out);
    free(f->ref);
}

struct run {
    struct fixture *f;
    float *out;
};

static void run_thread(void *user, int ith, int nth)
{
    const struct run *r = user;
    wnw__attend_run(&r->f->op, r->f->q, NULL, NULL, r->out, ith, nth);
}

static void run_threads(struct fixture *f, float *out, int nth)
{
    test_on_threads(nth, run_thread, &(struct run){f, out});
}

static double tolerance_of(const struct shape *s)
{
    return s->type == WNW_KV_Q8_0 || s->type == WNW_KV_Q4_0 ? TOLERANCE_I16 : TOLERANCE;
}

static double error_of(struct fixture *f)
{
    memset(f->out, 0xff, f->n_q * sizeof *f->out);
    wnw__attend_run(&f->op, f->q, NULL, NULL, f->out, 0, 1);
    return test_relative_error(f->out, f->ref, f->n_q);
}

/* Whether no panels of queries are multiplied. */
static bool is_few(const struct fixture *f)
{
    const struct shape *s = &f->s;
    return wnw__attend_is_decode(f->shared, s->n_tok) ||
           s->n_tok * (s->n_head / s->n_head_kv) <= WNW_ATTEND_NT_ROWS;
}

static void check_error(struct fixture *f, const char *what, const char *name, double most)
{
    const struct shape *s = &f->s;
    const double e = error_of(f);
    if (!(e <= most))
        fail_msg("%s, %s: error %g for %d/%d heads, d %d, type %d, %d new, %d past, window %d", what, name, e,
                 s->n_head, s->n_head_kv, s->d, (int)s->type, s->n_tok, s->n_past, s->n_swa);
}

/* Products in bf16: near the reference, and float32 where they are not used. */
static void check_bf16(struct fixture *f)
{
    f->shared->vec = wnw__vec_at(0);
    f->shared->score8 = NULL;
    for (int i = 0; wnw__bf16_at(i); i++) {
        f->shared->bf16 = wnw__bf16_at(i);
        check_error(f, "bf16", f->shared->bf16->name,
                    is_few(f) || f->s.type == WNW_KV_F32 ? tolerance_of(&f->s) : TOLERANCE_BF16);
    }
}

/* The version whose panels have `panel_rows` rows, NULL if there is none. */
static const struct wnw__score8 *score8_of(int32_t panel_rows)
{
    const struct wnw__score8 *v = NULL;
    for (int i = 0; wnw__score8_at(i); i++)
        if (wnw__score8_at(i)->panel_rows == panel_rows)
            v = wnw__score8_at(i);
    return v;
}

/* Scores in bytes, compared with other products in float32 and in bf16. */
static void check_score8(struct fixture *f)
{
    bool far = false;
    for (int32_t ih = 0; ih < f->s.n_head_kv; ih++)
        far = far || f->s.len[ih] + f->s.n_tok > 3 * WNW_TILE;
    far = far && !is_few(f) && f->s.type == WNW_KV_F16 && f->s.n_swa <= 0;
    for (int i = 0; wnw__vec_at(i); i++) {
        f->shared->bf16 = NULL;
        f->shared->vec = wnw__vec_at(i);
        f->shared->score8 = score8_of(f->shared->vec->panel_rows);
        if (f->shared->score8)
            check_error(f, "bytes", f->shared->score8->name, far ? TOLERANCE_BYTES : tolerance_of(&f->s));
    }
    f->shared->vec = wnw__vec_at(0);
    for (int i = 0; far && wnw__bf16_at(i); i++) {
        f->shared->bf16 = wnw__bf16_at(i);
        f->shared->score8 = score8_of(f->shared->bf16->panel_rows);
        check_error(f, "bytes and bf16", f->shared->bf16->name, TOLERANCE_BF16);
    }
}

/* Every instruction set of this machine against the reference. */
static void check_shape(const struct shape *s)
{
    struct fixture f;
    fixture_init(&f, s, 2);
    for (int ith = 0; ith < 3; ith++)
        wnw__attend_store(&f.op, f.k, f.v, ith, 3);
    wnw__attend_ref(&f.op, f.q, f.ref);
    for (int i = 0; wnw__vec_at(i); i++) {
        f.shared->vec = wnw__vec_at(i);
        f.shared->bf16 = NULL;
        f.shared->score8 = NULL;
        const double e = error_of(&f);
        if (!(e <= tolerance_of(s)))
            fail_msg("%s: error %g for %d/%d heads, d %d, type %d, %d new, %d past, window %d",
                     f.shared->vec->name, e, s->n_head, s->n_head_kv, s->d, (int)s->type, s->n_tok, s->n_past,
                     s->n_swa);
    }
    check_bf16(&f);
    check_score8(&f);
    fixture_free(&f);
}

/* 66 rows of a group of 3 are one unit of work and the fewest rows that a next one can have; of a group of 7 they are three; keys of
 * 216 entries are three tiles and a part of one. The first is far (attend_impl.h). */
static void agrees_with_reference(void **state)
{
    (void)state;
    test_has_one_thread();
    static const int32_t group[] = {1, 3, 7}, d[] = {32, 64, 80, 128, 256}, n_tok[] = {1, 2, 7, 33, 66};
    for (size_t g = 0; g < 3; g++)
        for (size_t i = 0; i < 5; i++)
            for (size_t t = 0; t < 5; t++)
                for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++) {
                    const struct shape s = {.n_head = 3 * group[g],
                                            .n_head_kv = 3,
                                            .d = d[i],
                                            .type = (wnw_kv_type)type,
                                            .len = {0, 61, 150},
                                            .n_past = 400,
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
        {.n_head = 6, .n_head_kv = 2, .d = 8, .len = {5, 70}, .n_past = 70, .n_tok = 40},
        {.n_head = 6, .n_head_kv = 2, .d = 40, .len = {5, 70}, .n_past = 70, .n_tok = 40},
        {.n_head = 2, .n_head_kv = 2, .d = 13, .len = {64, 129}, .n_past = 129, .n_tok = 1},
        {.n_head = 2, .n_head_kv = 2, .d = 13, .len = {64, 129}, .n_past = 129, .n_tok = 9},
        /* more query heads in a group than rows in a unit */
        {.n_head = 101, .n_head_kv = 1, .d = 16, .len = {300}, .n_past = 300, .n_tok = 1},
        {.n_head = 101, .n_head_kv = 1, .d = 16, .len = {300}, .n_past = 300, .n_tok = 3},
        /* empty cache */
        {.n_head = 4, .n_head_kv = 4, .d = 64, .n_tok = 1},
        {.n_head = 4, .n_head_kv = 4, .d = 64, .n_tok = 200},
        /* heads longer than 32 pieces of 256 */
        {.n_head = 4, .n_head_kv = 2, .d = 32, .len = {9000, 300}, .n_past = 20000, .n_tok = 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i]);
}

static void sliding_window_agrees(void **state)
{
    (void)state;
    test_has_one_thread();
    static const int32_t n_tok[] = {1, 5, 33, 130}, n_swa[] = {1, 3, 50, 128, 1000};
    for (size_t t = 0; t < 4; t++)
        for (size_t w = 0; w < 5; w++) {
            struct shape s = {.n_head = 9,
                              .n_head_kv = 3,
                              .d = 64,
                              .len = {0, 100, 333},
                              .n_past = 333,
                              .n_tok = n_tok[t],
                              .n_swa = n_swa[w]};
            check_shape(&s);
            s.n_past = 5000;
            check_shape(&s);
        }
}

/* The window of token 0 at position 10 with n_swa 4 holds positions 7..10. */
static void window_by_hand(void **state)
{
    (void)state;
    const struct shape s = {
        .n_head = 1, .n_head_kv = 1, .d = 32, .len = {5}, .n_past = 10, .n_tok = 6, .n_swa = 4};
    struct fixture f;
    fixture_init(&f, &s, 1);
    const int32_t pos[5] = {0, 3, 6, 7, 9};
    memcpy(f.layer.pos, pos, sizeof pos);
    const struct wnw__attend_job job = wnw__attend_job_of(&f.op, 0);
    assert_int_equal(wnw__attend_first(&job, 0, 0), 3);
    assert_int_equal(wnw__attend_first(&job, 0, 1), 4);
    assert_int_equal(wnw__attend_first(&job, 0, 3), 5); /* position 13 sees 10..13: itself and new tokens */
    assert_int_equal(wnw__attend_first(&job, 0, 5), 7); /* position 15 sees 12..15: new tokens 2..5 */
    fixture_free(&f);
}

/* Scores 0 and ln 3 weigh the values 1/4 and 3/4. */
static void two_keys_by_hand(void **state)
{
    (void)state;
    const struct shape s = {
        .n_head = 1, .n_head_kv = 1, .d = 8, .type = WNW_KV_F32, .len = {1}, .n_past = 1, .n_tok = 1};
    for (int i = 0; wnw__vec_at(i); i++) {
        struct fixture f;
        fixture_init(&f, &s, 1);
        f.shared->vec = wnw__vec_at(i);
        f.op.scale = 0.5f;
        for (int c = 0; c < 8; c++) {
            f.q[c] = c == 2 ? 2.0f : 0.0f;
            f.k[c] = c == 2 ? 1.09861229f : 7.0f;
            f.v[c] = 8.0f * (float)c;
            ((float *)(void *)f.layer.k)[c] = c == 2 ? 0.0f : -5.0f;
            ((float *)(void *)f.layer.v)[c] = 4.0f;
        }
        wnw__attend_store(&f.op, f.k, f.v, 0, 1);
        wnw__attend_run(&f.op, f.q, NULL, NULL, f.out, 0, 1);
        wnw__attend_ref(&f.op, f.q, f.ref);
        for (int c = 0; c < 8; c++) {
            const float expected = 1.0f + 6.0f * (float)c;
            assert_near(f.out[c], expected, 1e-5f * expected);
            assert_near(f.ref[c], expected, 1e-5f * expected);
        }
        fixture_free(&f);
    }
}

/* One score far above the others, and scores that all underflow but one: the value itself, no NaN. */
static void extreme_scores(void **state)
{
    (void)state;
    static const int32_t n_tok[] = {1, 130};
    for (size_t t = 0; t < 2; t++) {
        const struct shape s = {.n_head = 3,
                                .n_head_kv = 1,
                                .d = 32,
                                .type = WNW_KV_F32,
                                .len = {200},
                                .n_past = 200,
                                .n_tok = n_tok[t]};
        struct fixture f;
        fixture_init(&f, &s, 1);
        f.op.scale = 1.0f;
        float *k = (float *)(void *)f.layer.k, *v = (float *)(void *)f.layer.v;
        for (size_t i = 0; i < f.n_q; i++)
            f.q[i] = 100.0f;
        for (int i = 0; i < 200 * 32; i++)
            k[i] = i / 32 == 77 ? 3.0f : -300.0f;
        for (int32_t i = 0; i < s.n_tok * 32; i++)
            f.k[i] = -300.0f;
        wnw__attend_store(&f.op, f.k, f.v, 0, 1);
        for (int i = 0; wnw__vec_at(i); i++) {
            f.shared->vec = wnw__vec_at(i);
            wnw__attend_run(&f.op, f.q, NULL, NULL, f.out, 0, 1);
            for (size_t j = 0; j < f.n_q; j++)
                assert_cmp(f.out[j], ==, v[77 * 32 + j % 32]);
        }
        fixture_free(&f);
    }
}

/* Numbers that bf16 holds exactly: each query finds the one key that is like it, and its output is that value. A query
 * that looks at a key of its own time or before it gets it; the keys of stored entries are the other way round. */
static void bf16_is_exact_where_it_can_be(void **state)
{
    (void)state;
    static const wnw_kv_type types[] = {WNW_KV_F16, WNW_KV_Q8_0};
    enum { D = 96, TOK = 70 };
    for (int k = 0; wnw__bf16_at(k / 2); k++) {
        const struct shape s = {.n_head = 4,
                                .n_head_kv = 2,
                                .d = D,
                                .type = types[k % 2],
                                .len = {D, 65},
                                .n_past = 200,
                                .n_tok = TOK};
        struct fixture f;
        fixture_init(&f, &s, 1);
        f.shared->bf16 = wnw__bf16_at(k / 2);
        f.op.scale = 1.0f;
        for (int ih = 0; ih < 2; ih++) {
            float rows[D * D] = {0}, values[D * D];
            for (int i = 0; i < D * D; i++)
                values[i] = (float)(i % D < 32   ? i / D
                                    : i % D < 64 ? i % D - 64
                                                 : 127 - i / D); /* 127 at most */
            for (int i = 0; i < s.len[ih]; i++) {
                rows[i * D + i] = 127; /* entry i is about element i */
                values[i * D] = values[i * D + 32] = values[i * D + 64] = 127; /* the scale of q8_0 is 1 */
            }
            test_layer_store(&f.cache, ih, rows, values);
        }
        memset(f.k, 0, (size_t)TOK * 2 * D * sizeof *f.k);
        memset(f.q, 0, f.n_q * sizeof *f.q);
        for (int t = 0; t < TOK; t++)
            for (int h = 0; h < 4; h++)
                f.q[(t * 4 + h) * D + (t * 5 + h) % 65] = 2;
        wnw__attend_store(&f.op, f.k, f.v, 0, 1);
        wnw__attend_ref(&f.op, f.q, f.ref);
        wnw__attend_run(&f.op, f.q, NULL, NULL, f.out, 0, 1);
        for (int t = 0; t < TOK; t++)
            for (int h = 0; h < 4; h++)
                for (int c = 0; c < D; c++) {
                    const int i = (t * 5 + h) % 65;
                    const float want = (float)(c % 32 == 0 ? 127 : c < 32 ? i : c < 64 ? c - 64 : 127 - i);
                    assert_near(f.ref[(t * 4 + h) * D + c], want, 1e-4);
                    assert_cmp(f.out[(t * 4 + h) * D + c], ==, want);
                }
        fixture_free(&f);
    }
}

/* Runs with and without scores in bytes; sets differs[ih] if that changes an output of KV head ih. */
static void compare_score8(struct fixture *f, bool differs[3])
{
    const struct shape *s = &f->s;
    float *without = malloc(f->n_q * sizeof *without);
    assert_non_null(without);
    f->shared->score8 = NULL;
    wnw__attend_run(&f->op, f->q, NULL, NULL, without, 0, 1);
    f->shared->score8 = score8_of(f->shared->bf16 ? f->shared->bf16->panel_rows : f->shared->vec->panel_rows);
    assert_non_null(f->shared->score8);
    wnw__attend_run(&f->op, f->q, NULL, NULL, f->out, 0, 1);
    for (int32_t h = 0; h < s->n_head; h++)
        for (int32_t t = 0; t < s->n_tok; t++) {
            const size_t at = ((size_t)t * (size_t)s->n_head + (size_t)h) * (size_t)s->d;
            if (memcmp(f->out + at, without + at, (size_t)s->d * sizeof *without) != 0)
                differs[h / (s->n_head / s->n_head_kv)] = true;
        }
    free(without);
}

/* Bytes are for what is far: the last row of head 0 has a tile of that kind, in head 1 it lacks one entry. Head 2 has
 * several, but in each a key with one large element, or one that is not a number. */
static void near_entries_have_no_bytes(void **state)
{
    (void)state;
    for (int i = 0; wnw__bf16_at(i); i++) {
        const struct shape s = {.n_head = 9,
                                .n_head_kv = 3,
                                .d = 64,
                                .len = {3 * WNW_TILE - 39, 3 * WNW_TILE - 40, 700},
                                .n_past = 900,
                                .n_tok = 40};
        struct fixture f;
        bool differs[3] = {false};
        fixture_init(&f, &s, 1);
        for (int32_t j = 0; j < 700; j += WNW_TILE / 2) {
            uint16_t *key = (uint16_t *)(void *)(f.layer.k + (size_t)(f.layer.off[2] + j) * 128);
            key[j % 64] = j % 128 < 64 ? 0x7000 /* 8192 */ : 0x7e00;
        }
        f.shared->bf16 = wnw__bf16_at(i);
        wnw__attend_store(&f.op, f.k, f.v, 0, 1);
        compare_score8(&f, differs);
        assert_true(differs[0]);
        assert_false(differs[1]);
        assert_false(differs[2]);
        fixture_free(&f);
    }
}

/* Any number of threads, also more than there is scratch for, and any interleaving: the same bits. */
static void check_threads(struct fixture *f)
{
    const size_t bytes = f->n_q * sizeof *f->out;
    wnw__attend_run(&f->op, f->q, NULL, NULL, f->ref, 0, 1);
    for (int nth = 1; nth <= 5; nth++) {
        for (int i = 0; i < (nth > 1 ? 5 : 1); i++) {
            memset(f->out, 0xff, bytes);
            run_threads(f, f->out, nth);
            assert_memory_equal(f->out, f->ref, bytes);
        }
        memset(f->out, 0xff, bytes);
        for (int ith = nth - 1; ith >= 0; ith--)
            wnw__attend_run(&f->op, f->q, NULL, NULL, f->out, ith, nth);
        assert_memory_equal(f->out, f->ref, bytes);
    }
}

/* With the default kernels of this CPU, and with every instruction set that it has. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        /* 7 pieces of the longest head */
        {.n_head = 9, .n_head_kv = 3, .d = 64, .len = {1800, 17, 700}, .n_past = 4000, .n_tok = 1},
        {.n_head = 9, .n_head_kv = 3, .d = 64, .len = {1800, 17, 700}, .n_past = 4000, .n_tok = 6},
        /* one unit of each head, and three units, the last one short */
        {.n_head = 9, .n_head_kv = 3, .d = 64, .len = {500, 17, 200}, .n_past = 4000, .n_tok = 33},
        {.n_head = 9, .n_head_kv = 3, .d = 64, .len = {300, 17, 120}, .n_past = 4000, .n_tok = 140},
    };
    for (size_t t = 0; t < sizeof shapes / sizeof *shapes; t++) {
        const struct shape s = shapes[t];
        struct fixture f;
        fixture_init(&f, &s, 2);
        wnw__attend_store(&f.op, f.k, f.v, 0, 1);
        check_threads(&f);
#ifndef __SANITIZE_THREAD__ /* which looks at who takes what: no instruction set changes that */
        f.shared->bf16 = NULL;
        f.shared->score8 = NULL;
        for (int i = 0; wnw__vec_at(i); i++) {
            f.shared->vec = wnw__vec_at(i);
            check_threads(&f);
        }
#endif
        fixture_free(&f);
    }
}

/* Rows that are not needed may be left out; those that are have the bits that they have among all. */
static void partial_rows(void **state)
{
    (void)state;
    const struct shape s = {
        .n_head = 9, .n_head_kv = 3, .d = 64, .len = {100, 17, 300}, .n_past = 400, .n_tok = 200};
    enum { FIRST = 150, ROW = 9 * 64 };
    struct fixture f;
    fixture_init(&f, &s, 1);
    wnw__attend_store(&f.op, f.k, f.v, 0, 1);
    wnw__attend_run(&f.op, f.q, NULL, NULL, f.ref, 0, 1);
    f.op.partial = true;
    f.slice.first_out = FIRST;
    memset(f.out, 0xff, f.n_q * sizeof *f.out);
    wnw__attend_run(&f.op, f.q, NULL, NULL, f.out, 0, 1);
    assert_memory_equal(f.out + FIRST * ROW, f.ref + FIRST * ROW, (f.n_q - FIRST * ROW) * sizeof *f.out);
    assert_true(isnan(f.out[0]));
    f.slice.first_out = s.n_tok; /* none is */
    memset(f.out, 0xff, f.n_q * sizeof *f.out);
    wnw__attend_run(&f.op, f.q, NULL, NULL, f.out, 0, 1);
    assert_true(isnan(f.out[f.n_q - 1]));
    fixture_free(&f);
}

/* Store writes exactly the new rows, in the cache's type, for any number of threads. */
static void store_writes_new_rows_only(void **state)
{
    (void)state;
    for (int type = WNW_KV_F16; type <= WNW_KV_Q4_0; type++) {
        const struct shape s = {.n_head = 2,
                                .n_head_kv = 2,
                                .d = 64,
                                .type = (wnw_kv_type)type,
                                .len = {3, 0},
                                .n_past = 9,
                                .n_tok = 5};
        struct fixture f;
        fixture_init(&f, &s, 1);
        const size_t row = wnw__row_bytes(s.type, s.d);
        uint8_t *expected = malloc(f.arena_bytes);
        assert_non_null(expected);
        memcpy(expected, f.layer.v, f.arena_bytes);
        for (int32_t ih = 0; ih < 2; ih++)
            for (int32_t t = 0; t < 5; t++)
                wnw__rows_from_f32(s.type, f.v + (t * 2 + ih) * 64, 1, 64,
                                   expected + (size_t)(f.layer.off[ih] + s.len[ih] + t) * row);
        for (int ith = 0; ith < 4; ith++)
            wnw__attend_store(&f.op, f.k, f.v, ith, 4);
        assert_memory_equal(f.layer.v, expected, f.arena_bytes);
        free(expected);
        fixture_free(&f);
    }
}

/* q, k and v as views into one fused [d * (n_head + 2 n_head_kv), n_tok] tensor, as some models have them. */
struct graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *gf;
    struct ggml_tensor *fused, *out;
};

static void graph_init(struct graph *g, struct fixture *f)
{
    const struct shape *s = &f->s;
    const int64_t width = (int64_t)s->d * (s->n_head + 2 * s->n_head_kv);
    const size_t row = (size_t)s->d * sizeof(float), nb2 = (size_t)width * sizeof(float);
    g->ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t)16 << 20});
    assert_non_null(g->ctx);
    g->fused = ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, width, s->n_tok);
    struct ggml_tensor *q = ggml_view_3d(g->ctx, g->fused, s->d, s->n_head, s->n_tok, row, nb2, 0);
    struct ggml_tensor *k =
        ggml_view_3d(g->ctx, g->fused, s->d, s->n_head_kv, s->n_tok, row, nb2, (size_t)s->n_head * row);
    struct ggml_tensor *v = ggml_view_3d(g->ctx, g->fused, s->d, s->n_head_kv, s->n_tok, row, nb2,
                                         (size_t)(s->n_head + s->n_head_kv) * row);
    g->out = wnw__attend_own(g->ctx, &f->op, q, k, v);
    assert_int_equal(g->out->ne[0], (int64_t)s->d * s->n_head);
    assert_int_equal(g->out->ne[1], s->n_tok);
    g->gf = ggml_new_graph(g->ctx);
    ggml_build_forward_expand(g->gf, g->out);
    float *x = g->fused->data;
    const size_t nq = (size_t)(s->d * s->n_head), nk = (size_t)(s->d * s->n_head_kv);
    for (size_t t = 0; t < (size_t)s->n_tok; t++, x += width) {
        memcpy(x, f->q + t * nq, nq * sizeof *x);
        memcpy(x + nq, f->k + t * nk, nk * sizeof *x);
        memcpy(x + nq + nk, f->v + t * nk, nk * sizeof *x);
    }
}

static void graph_operation(void **state)
{
    (void)state;
    static const int32_t n_tok[] = {1, 4, 33};
    test_has_one_thread(); /* winnow's own; OpenMP's barriers are not visible to it */
    const int n_threads = 2;
    for (size_t t = 0; t < 3; t++) {
        const struct shape s = {.n_head = 6,
                                .n_head_kv = 2,
                                .d = 64,
                                .type = WNW_KV_Q8_0,
                                .len = {250, 510},
                                .n_past = 600,
                                .n_tok = n_tok[t]};
        struct fixture f;
        struct graph g;
        fixture_init(&f, &s, 2);
        f.shared->bf16 = NULL;
        f.shared->score8 = NULL;
        graph_init(&g, &f);
        assert_int_equal(ggml_graph_compute_with_ctx(g.ctx, g.gf, n_threads), GGML_STATUS_SUCCESS);
        wnw__attend_ref(&f.op, f.q, f.ref);
        assert_cmp(test_relative_error(g.out->data, f.ref, f.n_q), <=, TOLERANCE_I16);
        /* the same graph after the cache has changed */
        f.layer.len[0] = 7;
        f.layer.len[1] += 1;
        f.layer.pos[f.layer.off[1] + 510] = 600;
        f.slice.n_past++;
        assert_int_equal(ggml_graph_compute_with_ctx(g.ctx, g.gf, n_threads), GGML_STATUS_SUCCESS);
        wnw__attend_ref(&f.op, f.q, f.ref);
        assert_cmp(test_relative_error(g.out->data, f.ref, f.n_q), <=, TOLERANCE_I16);
        ggml_free(g.ctx);
        fixture_free(&f);
    }
}

static void bad_dimensions_are_refused(void **state)
{
    (void)state;
    const struct wnw__attend_dims good = {
        .model = {.n_head = 4, .n_head_kv = 2, .d = 64}, .n_threads = 1, .n_ubatch = 1};
    struct wnw__attend_shared *sh = NULL;
    struct wnw__attend_dims dims = good;
    dims.model.n_head = 5;
    assert_int_equal(wnw__attend_shared_new(&sh, &dims), WNW_E_ARG);
    dims = good;
    dims.model.d = 0;
    assert_int_equal(wnw__attend_shared_new(&sh, &dims), WNW_E_ARG);
    dims = good;
    dims.n_threads = 0;
    assert_int_equal(wnw__attend_shared_new(&sh, &dims), WNW_E_ARG);
    assert_null(sh);
    wnw__attend_shared_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_reference),
        cmocka_unit_test(odd_sizes_agree),
        cmocka_unit_test(sliding_window_agrees),
        cmocka_unit_test(window_by_hand),
        cmocka_unit_test(two_keys_by_hand),
        cmocka_unit_test(extreme_scores),
        cmocka_unit_test(bf16_is_exact_where_it_can_be),
        cmocka_unit_test(near_entries_have_no_bytes),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(partial_rows),
        cmocka_unit_test(store_writes_new_rows_only),
        cmocka_unit_test(graph_operation),
        cmocka_unit_test(bad_dimensions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
