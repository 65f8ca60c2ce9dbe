/* SPDX-License-Identifier: MIT */
/* A quantised cache with a tail on its own: which entries are quantised, when, and what moves with them. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { N_HEAD_KV = 2, MOST = 1200, FIRST = WNW_CACHE_FIRST, BLOCK = WNW_CACHE_BLOCK };

struct row {
    const char *name;
    wnw_kv_type type;
    int32_t d, n_tail;
};

static const struct row rows[] = {
    {"q8_0, heads of 64, tail of 128", WNW_KV_Q8_0, 64, 128},
    {"q4_0, heads of 64, tail of 128", WNW_KV_Q4_0, 64, 128},
    {"q4_0, heads of 32, tail of 32", WNW_KV_Q4_0, 32, 32},
    {"q8_0, heads of 288, tail of 33", WNW_KV_Q8_0, 288, 33},
    {"q4_0, heads of 96, tail of 500", WNW_KV_Q4_0, 96, 500},
};

struct fixture {
    const struct row *row;
    struct wnw__cache c;
    float *x; /* [MOST][N_HEAD_KV][2][d] key and value of each position */
};

static const float *source(const struct fixture *f, int32_t pos, int32_t ih, bool key)
{
    return f->x + ((int64_t)(pos * N_HEAD_KV + ih) * 2 + !key) * f->row->d;
}

static void init(struct fixture *f, const struct row *row)
{
    const int32_t n_swa[2] = {0, 200};
    *f = (struct fixture){.row = row};
    assert_ok(wnw__cache_init(&f->c, 2, N_HEAD_KV, row->d, row->type, 32, n_swa));
    assert_ok(wnw__cache_set_tail(&f->c, row->n_tail));
    f->x = test_random_floats((size_t)MOST * N_HEAD_KV * 2 * (size_t)row->d, 5, 2.0f);
}

static void clear(struct fixture *f)
{
    wnw__cache_free(&f->c);
    free(f->x);
}

/* What the attention does: f16 rows after the entries, and quantised ones of those that the last of n tokens finds
 * quantised. */
static void append(struct fixture *f, int32_t il, int32_t first, int32_t n)
{
    assert_ok(wnw__cache_reserve_layer(&f->c, il, n, true));
    struct wnw__kv_layer *l = &f->c.layers[il];
    for (int32_t ih = 0; ih < N_HEAD_KV; ih++) {
        for (int32_t t = 0; t < n; t++) {
            const struct wnw__kv_rows to = wnw__cache_rows(&f->c, l, ih, l->len[ih] + t, l->len[ih] + t + 1);
            assert_int_equal(to.type, WNW_KV_F16);
            wnw__rows_from_f32(to.type, source(f, first + t, ih, true), 1, f->row->d, to.k);
            wnw__rows_from_f32(to.type, source(f, first + t, ih, false), 1, f->row->d, to.v);
        }
        wnw__cache_quantise(&f->c, l, ih, wnw__cache_quantised_to(&f->c, l, ih, 0),
                            wnw__cache_quantised_to(&f->c, l, ih, n - 1));
    }
    wnw__cache_commit_layer(&f->c, il, first, n);
    assert_ok(wnw__cache_check(&f->c));
}

/* The bytes that key or value of a position have in f16 (quantised: in the cache's type, made from those). */
static size_t expect(const struct fixture *f, int32_t pos, int32_t ih, bool key, bool quantised, uint8_t *out)
{
    const int32_t d = f->row->d;
    uint8_t half[1024];
    float back[512];
    wnw__rows_from_f32(WNW_KV_F16, source(f, pos, ih, key), 1, d, half);
    wnw__rows_to_f32(WNW_KV_F16, half, 1, d, back);
    wnw__rows_from_f32(quantised ? f->row->type : WNW_KV_F16, back, 1, d, out);
    return wnw__row_bytes(quantised ? f->row->type : WNW_KV_F16, d);
}

/* Entry i is the token at `pos`, stored as it should be. */
static void assert_entry(const struct fixture *f, int32_t il, int32_t ih, int32_t i, int32_t pos,
                         bool quantised)
{
    const struct wnw__kv_layer *l = &f->c.layers[il];
    const struct wnw__kv_rows run = wnw__cache_rows(&f->c, l, ih, i, i + 1);
    uint8_t want[1024];
    assert_int_equal(l->pos[l->off[ih] + i], pos);
    if (run.type != (quantised ? f->row->type : WNW_KV_F16))
        fail_msg("layer %d, head %d: entry %d, position %d, has type %d", il, ih, i, pos, (int)run.type);
    assert_memory_equal(run.k, want, expect(f, pos, ih, true, quantised, want));
    assert_memory_equal(run.v, want, expect(f, pos, ih, false, quantised, want));
}

/* Number of quantised entries among n, none dropped, from the definition: blocks leave one by one. */
static int32_t quantised_of(const struct fixture *f, int32_t n, int32_t n_first)
{
    int32_t quantised = 0;
    while (n - n_first - quantised - BLOCK >= f->row->n_tail)
        quantised += BLOCK;
    return quantised;
}

static void assert_whole(const struct fixture *f, int32_t il, int32_t n, int32_t n_first)
{
    for (int32_t ih = 0; ih < N_HEAD_KV; ih++) {
        assert_int_equal(f->c.layers[il].len[ih], n);
        for (int32_t i = 0; i < n; i++)
            assert_entry(f, il, ih, i, i, i >= n_first && i < n_first + quantised_of(f, n, n_first));
    }
}

/* However many tokens come at once, the same entries are quantised, with the same bytes. */
static void any_split_is_the_same(void **state)
{
    static const int32_t step[] = {1, 7, 64, 200, MOST};
    for (int i = 0; i < 5; i++) {
        struct fixture f;
        init(&f, *state);
        for (int32_t at = 0; at < MOST; at += step[i])
            append(&f, 0, at, MOST - at < step[i] ? MOST - at : step[i]);
        assert_whole(&f, 0, MOST, FIRST);
        for (int32_t at = 0; at < 190; at += step[i])
            append(&f, 1, at, 190 - at < step[i] ? 190 - at : step[i]);
        assert_whole(&f, 1, 190, 0); /* a sliding window has no first entries */
        clear(&f);
    }
}

/* What tokens find quantised, one by one and at once. */
static void the_border_counts_tokens_before(void **state)
{
    struct fixture f;
    init(&f, *state);
    append(&f, 0, 0, 100);
    for (int32_t t = 0; t < MOST - 100; t++)
        assert_int_equal(wnw__cache_quantised_to(&f.c, f.c.layers, 0, t),
                         FIRST + quantised_of(&f, 100 + t, FIRST));
    clear(&f);
}

/* Every third entry of one head and a few of the other; then more tokens. */
static void compaction_keeps_bytes(void **state)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        struct fixture f;
        init(&f, *state);
        const int32_t n = 900, border = FIRST + quantised_of(&f, n, FIRST);
        int32_t a[MOST], b[4] = {3, FIRST, 600, 899}, n_keep[2] = {0, 4}, n_quantised = 0;
        const int32_t *keep[2] = {a, b};
        for (int32_t i = 0; i < n; i += 3) {
            a[n_keep[0]++] = i;
            n_quantised += i >= FIRST && i < border;
        }
        append(&f, 0, 0, n);
        assert_ok(in_place ? wnw__cache_keep_in_place(&f.c, 0, keep, n_keep, 5)
                           : wnw__cache_keep_layer(&f.c, 0, keep, n_keep));
        assert_ok(wnw__cache_check(&f.c));
        const struct wnw__kv_layer *l = &f.c.layers[0];
        assert_int_equal(l->tail.n_quantised[0], n_quantised);
        assert_int_equal(l->tail.n_first[0], (FIRST + 2) / 3);
        assert_int_equal(l->tail.n_first[1], 1);
        for (int32_t i = 0; i < n_keep[0]; i++)
            assert_entry(&f, 0, 0, i, a[i], a[i] >= FIRST && a[i] < border);
        for (int32_t i = 0; i < n_keep[1]; i++)
            assert_entry(&f, 0, 1, i, b[i], b[i] >= FIRST && b[i] < border);
        append(&f, 0, n, 300);
        for (int32_t ih = 0; ih < N_HEAD_KV; ih++)
            for (int32_t i = 0; i < f.c.layers[0].len[ih]; i++) {
                const bool kept = i < n_keep[ih];
                const int32_t from = l->tail.n_first[ih], to = from + l->tail.n_quantised[ih];
                assert_entry(&f, 0, ih, i, kept ? keep[ih][i] : n + i - n_keep[ih], i >= from && i < to);
            }
        clear(&f);
    }
}

static void drop_moves_all_parts(void **state)
{
    struct fixture f;
    init(&f, *state);
    const int32_t n = 900, border = FIRST + quantised_of(&f, n, FIRST);
    append(&f, 0, 0, n);
    wnw__cache_drop(&f.c, 0, 1, FIRST - 3, 10);
    wnw__cache_drop(&f.c, 0, 1, border - 20,
                    15); /* counted after the first drop: over the border to the tail */
    assert_ok(wnw__cache_check(&f.c));
    for (int32_t i = 0; i < n - 25; i++) {
        const int32_t pos = i < FIRST - 3 ? i : i < border - 20 ? i + 10 : i + 25;
        assert_entry(&f, 0, 1, i, pos, pos >= FIRST && pos < border);
    }
    assert_int_equal(f.c.layers[0].len[0], n);
    clear(&f);
}

/* Reading on and going back leaves no trace, even where the tail at the mark was quantised meanwhile. */
static void marks_restore_tails(void **state)
{
    static const int32_t n_before[] = {1, 40, 300, 700};
    for (int i = 0; i < 4; i++) {
        struct fixture f;
        struct wnw__cache_mark *mark;
        init(&f, *state);
        append(&f, 0, 0, n_before[i]);
        const uint64_t bytes = wnw__cache_bytes(&f.c);
        assert_ok(wnw__cache_mark_new(&mark, &f.c));
        for (int times = 0; times < 2; times++) {
            append(&f, 0, n_before[i], 400);
            append(&f, 0, n_before[i] + 400, 1);
            wnw__cache_mark_rewind(&f.c, mark);
            assert_ok(wnw__cache_check(&f.c));
            assert_whole(&f, 0, n_before[i], FIRST);
        }
        assert_ok(wnw__cache_mark_release(&f.c, mark));
        assert_int_equal(wnw__cache_bytes(&f.c), bytes);
        assert_whole(&f, 0, n_before[i], FIRST);
        wnw__cache_mark_free(mark);
        clear(&f);
    }
}

static void copy_and_clear(void **state)
{
    struct fixture f, g;
    init(&f, *state);
    init(&g, *state);
    append(&f, 0, 0, 700);
    assert_ok(wnw__cache_copy(&g.c, &f.c));
    append(&g, 0, 700, 100);
    assert_whole(&g, 0, 800, FIRST);
    assert_whole(&f, 0, 700, FIRST);
    wnw__cache_clear(&g.c);
    assert_int_equal(wnw__cache_bytes(&g.c), 0);
    append(&g, 0, 0, 500);
    assert_whole(&g, 0, 500, FIRST);
    clear(&f);
    clear(&g);
}

/* Bytes are those of both kinds of rows, and a prompt in ubatches leaves no more than a formula says. */
static void bytes_count_both_kinds(void **state)
{
    struct fixture f;
    init(&f, *state);
    const size_t each = 2 * wnw__row_bytes(f.row->type, f.row->d), f16 = 4 * (size_t)f.row->d;
    for (int32_t il = 0; il < 2; il++) {
        const int32_t n = il ? 200 : 1000;
        assert_ok(wnw__cache_expect_layer(&f.c, il, n, 100));
        for (int32_t at = 0; at < n; at += 100)
            append(&f, il, at, 100);
        assert_ok(wnw__cache_release_tail(&f.c, il));
        assert_whole(&f, il, n, il ? 0 : FIRST);
    }
    assert_int_equal(wnw__cache_bytes(&f.c), wnw__cache_bytes_for(&f.c, 1000));
    const int32_t quantised = quantised_of(&f, 1000, FIRST), quantised_sliding = quantised_of(&f, 200, 0);
    assert_int_equal(wnw__cache_entry_bytes(&f.c),
                     N_HEAD_KV * ((size_t)(quantised + quantised_sliding) * each +
                                  (size_t)(1200 - quantised - quantised_sliding) * f16));
    assert_int_equal(wnw__cache_f16_after(&f.c, 0), 1000 - quantised);
    assert_int_equal(wnw__cache_f16_after(&f.c, 64), 1000 - quantised); /* a block comes, a block leaves */
    assert_cmp(1000 - quantised, <=, wnw__cache_most_f16(&f.c));
    clear(&f);
}

/* Reading and writing floats goes through both kinds of rows. */
static void read_and_write(void **state)
{
    struct fixture f;
    init(&f, *state);
    const int32_t n = 600, d = f.row->d;
    float *x = malloc((size_t)n * (size_t)d * sizeof *x), *y = malloc((size_t)n * (size_t)d * sizeof *y);
    assert_non_null(x);
    assert_non_null(y);
    append(&f, 0, 0, n);
    wnw__cache_read(&f.c, 0, WNW_VALUES, 1, 0, n, x);
    for (int32_t i = 0; i < n; i++)
        assert_near(x[(int64_t)i * d + 1], source(&f, i, 1, false)[1],
                    f.row->type == WNW_KV_Q4_0 ? 0.3 : 0.02);
    for (int64_t i = 0; i < (int64_t)n * d; i++)
        x[i] = -x[i];
    wnw__cache_write(&f.c, 0, WNW_VALUES, 1, 0, n, x);
    wnw__cache_read(&f.c, 0, WNW_VALUES, 1, 0, n, y);
    for (int64_t i = 0; i < (int64_t)n * d; i++)
        assert_near(y[i], x[i], f.row->type == WNW_KV_Q4_0 ? 0.3 : 0.02);
    assert_whole(&f, 1, 0, 0);
    wnw__cache_read(&f.c, 0, WNW_KEYS, 1, 100, 1, y); /* keys stay */
    assert_near(y[0], source(&f, 100, 1, true)[0], f.row->type == WNW_KV_Q4_0 ? 0.3 : 0.02);
    free(x);
    free(y);
    clear(&f);
}

static void sliding_windows_are_trimmed(void **state)
{
    struct fixture f;
    init(&f, *state);
    for (int32_t at = 0; at < 1000; at += 50) {
        append(&f, 1, at, 50);
        assert_ok(wnw__cache_drop_unseen(&f.c, 1, at + 50));
        assert_ok(wnw__cache_check(&f.c));
    }
    const struct wnw__kv_layer *l = &f.c.layers[1];
    assert_in_range(l->len[0], 199, 231);
    for (int32_t i = 0; i < l->len[0]; i++)
        assert_entry(&f, 1, 0, i, 1000 - l->len[0] + i, i < l->tail.n_quantised[0]);
    assert_cmp(l->len[0] - l->tail.n_quantised[0], <, f.row->n_tail + BLOCK);
    clear(&f);
}

int main(void)
{
    return run_rows(any_split_is_the_same, rows) + run_rows(the_border_counts_tokens_before, rows) +
           run_rows(compaction_keeps_bytes, rows) + run_rows(drop_moves_all_parts, rows) +
           run_rows(marks_restore_tails, rows) + run_rows(copy_and_clear, rows) +
           run_rows(bytes_count_both_kinds, rows) + run_rows(read_and_write, rows) +
           run_rows(sliding_windows_are_trimmed, rows);
}
