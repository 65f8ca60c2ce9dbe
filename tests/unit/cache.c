/* SPDX-License-Identifier: MIT */
/* The cache on its own: growth, compaction, sliding windows, accounting. */
#include "asserts.h"

#include "peek_arrays.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { N_HEAD_KV = 2, D = 8 };

/* The row of head ih at position p is filled with a number that names both. */
static float mark(int32_t ih, int32_t p, bool key)
{
    return (float)(p * 10 + ih) + (key ? 0.25f : 0.5f);
}

static void append(struct wnw__cache *c, int32_t il, int32_t first, int32_t n)
{
    assert_int_equal(wnw__cache_reserve_layer(c, il, n, true), WNW_OK);
    struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t ih = 0; ih < N_HEAD_KV; ih++) {
        for (int32_t i = 0; i < n; i++) {
            const size_t row = (size_t)(l->off[ih] + l->len[ih] + i) * c->row_bytes;
            float k[D], v[D];
            for (int32_t j = 0; j < D; j++) {
                k[j] = mark(ih, first + i, true);
                v[j] = mark(ih, first + i, false);
            }
            memcpy(l->k + row, k, sizeof k);
            memcpy(l->v + row, v, sizeof v);
        }
    }
    wnw__cache_commit_layer(c, il, first, n);
}

static void assert_entry(const struct wnw__cache *c, int32_t il, int32_t ih, int32_t i, int32_t p)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    const int64_t row = l->off[ih] + i;
    float k[D], v[D];
    memcpy(k, l->k + (size_t)row * c->row_bytes, sizeof k);
    memcpy(v, l->v + (size_t)row * c->row_bytes, sizeof v);
    assert_int_equal(l->pos[row], p);
    assert_cmp(k[0], ==, mark(ih, p, true));
    assert_cmp(k[D - 1], ==, mark(ih, p, true));
    assert_cmp(v[0], ==, mark(ih, p, false));
    assert_cmp(v[D - 1], ==, mark(ih, p, false));
}

static void test_append_grows_without_losing(void **state)
{
    (void)state;
    struct wnw__cache c;
    assert_int_equal(wnw__cache_init(&c, 1, N_HEAD_KV, D, WNW_KV_F32, 4, NULL), WNW_OK);
    append(&c, 0, 0, 3);
    assert_int_equal(c.layers[0].cap[0], 4);
    append(&c, 0, 3, 9);
    assert_int_equal(c.layers[0].cap[1], 12);
    for (int32_t ih = 0; ih < N_HEAD_KV; ih++) {
        for (int32_t i = 0; i < 12; i++)
            assert_entry(&c, 0, ih, i, i);
    }
    assert_int_equal(wnw__cache_check(&c), WNW_OK);
    assert_int_equal(wnw__cache_entries(&c), 24);
    wnw__cache_free(&c);
}

static void test_decode_growth_has_slack(void **state)
{
    (void)state;
    struct wnw__cache c;
    assert_int_equal(wnw__cache_init(&c, 1, N_HEAD_KV, D, WNW_KV_F32, 4, NULL), WNW_OK);
    append(&c, 0, 0, 80);
    assert_int_equal(wnw__cache_reserve_layer(&c, 0, 1, false), WNW_OK);
    assert_int_equal(c.layers[0].cap[0], 92); /* 80 + 80/8 = 90, rounded up to blocks of 4 */
    wnw__cache_free(&c);
}

/* A tight cache has the blocks that its entries need: after growth, after a few entries are dropped, and after a trim. */
static void test_tight_has_no_slack(void **state)
{
    (void)state;
    struct wnw__cache c;
    int32_t all[80];
    const int32_t *keep[N_HEAD_KV] = {all, all}, n_keep[N_HEAD_KV] = {75, 80};
    assert_int_equal(wnw__cache_init(&c, 1, N_HEAD_KV, D, WNW_KV_F32, 4, NULL), WNW_OK);
    for (int32_t i = 0; i < 80; i++)
        all[i] = i;
    c.tight = true;
    append(&c, 0, 0, 79);
    assert_int_equal(wnw__cache_reserve_layer(&c, 0, 1, false), WNW_OK);
    assert_int_equal(c.layers[0].cap[0], 80);
    append(&c, 0, 79, 1);
    assert_int_equal(wnw__cache_keep_in_place(&c, 0, keep, n_keep, 4), WNW_OK);
    assert_int_equal(c.layers[0].cap[0], 76);
    assert_int_equal(c.layers[0].cap[1], 80);
    c.tight = false;
    assert_int_equal(wnw__cache_reserve_layer(&c, 0, 2, false), WNW_OK);
    assert_int_equal(c.layers[0].cap[0], 88); /* 76 + 76/8 = 85, rounded up to blocks of 4 */
    assert_int_equal(wnw__cache_trim_layer(&c, 0), WNW_OK);
    assert_int_equal(c.layers[0].cap[0], 76);
    assert_int_equal(c.layers[0].cap[1], 80);
    for (int32_t i = 0; i < 75; i++)
        assert_entry(&c, 0, 0, i, i);
    for (int32_t i = 0; i < 80; i++)
        assert_entry(&c, 0, 1, i, i);
    assert_int_equal(wnw__cache_check(&c), WNW_OK);
    wnw__cache_free(&c);
}

/* Heads of different lengths and room keep what they hold when room is made, whether their rows move up or down. */
static void test_ragged_grows_without_losing(void **state)
{
    (void)state;
    struct wnw__cache c;
    uint32_t seed = 5;
    int32_t kept[N_HEAD_KV][600], n_kept[N_HEAD_KV] = {0}, next = 0;
    const int32_t *keep[N_HEAD_KV] = {kept[0], kept[1]};
    assert_int_equal(wnw__cache_init(&c, 1, N_HEAD_KV, D, WNW_KV_F32, 4, NULL), WNW_OK);
    assert_int_equal(wnw__cache_set_aux(&c, WNW_AUX_ATTN_SUM, 2), WNW_OK);
    struct wnw__kv_layer *l = &c.layers[0];
    for (int round = 0; round < 60; round++) {
        const int32_t n = 1 + (int32_t)(test_lcg(&seed) % 40u);
        const bool shrinks = l->len[0] + l->len[1] > 400;
        if (round % 4 == 3)
            assert_int_equal(wnw__cache_reserve_layer(&c, 0, n, false), WNW_OK);
        append(&c, 0, next, n);
        next += n;
        for (int32_t ih = 0; ih < N_HEAD_KV; ih++) {
            for (int32_t i = l->len[ih] - n; i < l->len[ih]; i++)
                for (int32_t plane = 0; plane < 2; plane++)
                    wnw__cache_aux(l, WNW_AUX_ATTN_SUM, plane)[l->off[ih] + i] =
                        mark(ih, l->pos[l->off[ih] + i], plane);
            n_kept[ih] = 0;
            for (int32_t i = 0; i < l->len[ih]; i++)
                if (test_lcg(&seed) % 8u > (uint32_t)(ih == round % 2 ? 4 : 0) || (!shrinks && ih == 0))
                    kept[ih][n_kept[ih]++] = i;
        }
        for (int32_t ih = 0; ih < N_HEAD_KV; ih++)
            for (int32_t i = 0; i < l->len[ih]; i++) {
                const int64_t row = l->off[ih] + i;
                assert_entry(&c, 0, ih, i, l->pos[row]);
                assert_true(i == 0 || l->pos[row] > l->pos[row - 1]);
                for (int32_t plane = 0; plane < 2; plane++)
                    assert_cmp(wnw__cache_aux(l, WNW_AUX_ATTN_SUM, plane)[row], ==,
                               mark(ih, l->pos[row], plane));
            }
        assert_int_equal(wnw__cache_check(&c), WNW_OK);
        assert_int_equal(wnw__cache_keep_in_place(&c, 0, keep, n_kept, 1), WNW_OK);
    }
    wnw__cache_free(&c);
}

static long faults(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return u.ru_minflt;
}

/* Rows stay in the pages that they have: new ones would have to be cleared first. */
static void test_growth_takes_few_pages(void **state)
{
    enum { N = 1 << 16 };
    (void)state;
    struct wnw__cache c;
    assert_int_equal(wnw__cache_init(&c, 1, N_HEAD_KV, 64, WNW_KV_F16, 32, NULL), WNW_OK);
    assert_int_equal(wnw__cache_reserve_layer(&c, 0, N, true), WNW_OK);
    memset(c.layers[0].k, 1, c.layers[0].mapped_bytes);
    memset(c.layers[0].v, 2, c.layers[0].v_mapped_bytes);
    wnw__cache_commit_layer(&c, 0, 0, N);
    const size_t bytes = c.layers[0].mapped_bytes;
    const long before = faults();
    assert_int_equal(wnw__cache_reserve_layer(&c, 0, 1, false), WNW_OK);
    const size_t pages = 2 * bytes / (size_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(c.layers[0].cap[1], N + N / 8);
    assert_int_equal(c.layers[0].mapped_bytes, bytes + bytes / 8);
    assert_true((size_t)(faults() - before) < pages / 2);
    assert_int_equal(wnw__cache_bytes(&c), 2 * (bytes + bytes / 8));
    for (size_t i = 0; i < N * c.row_bytes; i += 4093) {
        const size_t at = (size_t)c.layers[0].off[1] * c.row_bytes + i;
        assert_int_equal(c.layers[0].k[at], 1);
        assert_int_equal(c.layers[0].v[at], 2);
    }
    wnw__cache_free(&c);
}

static void test_keep_ragged(void **state)
{
    (void)state;
    struct wnw__cache c;
    assert_int_equal(wnw__cache_init(&c, 2, N_HEAD_KV, D, WNW_KV_F32, 4, NULL), WNW_OK);
    append(&c, 0, 0, 10);
    append(&c, 1, 0, 10);
    const int32_t a[] = {0, 1, 2, 7, 9}, b[] = {4};
    const int32_t *keep[] = {a, b};
    const int32_t n_keep[] = {5, 1};
    assert_int_equal(wnw__cache_keep_layer(&c, 1, keep, n_keep), WNW_OK);
    assert_int_equal(wnw__cache_check(&c), WNW_OK);
    const struct wnw__kv_layer *l = &c.layers[1];
    assert_int_equal(l->len[0], 5);
    assert_int_equal(l->len[1], 1);
    assert_int_equal(l->cap[0], 8);
    assert_int_equal(l->cap[1], 4);
    for (int32_t i = 0; i < 5; i++)
        assert_entry(&c, 1, 0, i, a[i]);
    assert_entry(&c, 1, 1, 0, 4);
    assert_entry(&c, 0, 1, 9, 9); /* the other layer is untouched */
    append(&c, 1, 10, 5);         /* appending continues after the last entry of each head */
    assert_entry(&c, 1, 0, 9, 14);
    assert_entry(&c, 1, 1, 5, 14);
    assert_int_equal(wnw__cache_check(&c), WNW_OK);
    wnw__cache_free(&c);
}

/* Small evictions move rows down and keep the storage; the numbers of the entries come along. */
static void test_thin_in_place(void **state)
{
    (void)state;
    struct wnw__cache c;
    assert_int_equal(wnw__cache_init(&c, 1, N_HEAD_KV, D, WNW_KV_F32, 4, NULL), WNW_OK);
    assert_int_equal(wnw__cache_set_aux(&c, WNW_AUX_ATTN_SUM, 2), WNW_OK);
    append(&c, 0, 0, 80);
    struct wnw__kv_layer *l = &c.layers[0];
    for (int32_t plane = 0; plane < 2; plane++)
        for (int32_t r = 0; r < 160; r++)
            wnw__cache_aux(l, WNW_AUX_ATTN_SUM, plane)[r] = (float)(1000 * plane + r);
    int32_t a[80], b[80], n_keep[] = {0, 0};
    const int32_t *keep[] = {a, b};
    for (int32_t i = 0; i < 80; i++) {
        if (i != 0 && i != 7 && i != 79)
            a[n_keep[0]++] = i;
        if (i != 30)
            b[n_keep[1]++] = i;
    }
    const uint8_t *k = l->k;
    l->n_settled = 5;
    assert_int_equal(wnw__cache_keep_in_place(&c, 0, keep, n_keep, 1), WNW_OK);
    assert_ptr_equal(l->k, k);
    assert_int_equal(l->len[0], 77);
    assert_int_equal(l->len[1], 79);
    for (int32_t i = 0; i < 77; i++) {
        assert_entry(&c, 0, 0, i, a[i]);
        assert_cmp(wnw__cache_aux(l, WNW_AUX_ATTN_SUM, 1)[l->off[0] + i], ==, (float)(1000 + a[i]));
    }
    for (int32_t i = 0; i < 79; i++) {
        assert_entry(&c, 0, 1, i, b[i]);
        assert_cmp(wnw__cache_aux(l, WNW_AUX_ATTN_SUM, 0)[l->off[1] + i], ==, (float)(80 + b[i]));
    }
    assert_int_equal(wnw__cache_check(&c), WNW_OK);
    /* An eighth: 160 rows with 72 + 4 and 64 + 4 asked for frees 16 and stays; one block more comes free. */
    n_keep[0] = 72;
    n_keep[1] = 64;
    for (int32_t i = 0; i < 80; i++)
        a[i] = b[i] = i;
    assert_int_equal(wnw__cache_keep_in_place(&c, 0, keep, n_keep, 8), WNW_OK);
    assert_ptr_equal(l->k, k);
    assert_int_equal(wnw__cache_keep_in_place(&c, 0, keep, n_keep, 0), WNW_OK);
    assert_int_equal(l->cap[0], 72);
    assert_int_equal(l->cap[1], 64);
    assert_entry(&c, 0, 1, 63, 64);
    assert_int_equal(wnw__cache_check(&c), WNW_OK);
    append(&c, 0, 80, 3);
    assert_entry(&c, 0, 1, 66, 82);
    wnw__cache_free(&c);
}

static void test_keep_nothing(void **state)
{
    (void)state;
    struct wnw__cache c;
    assert_int_equal(wnw__cache_init(&c, 1, N_HEAD_KV, D, WNW_KV_F32, 4, NULL), WNW_OK);
    append(&c, 0, 0, 6);
    const int32_t *keep[] = {NULL, NULL};
    const int32_t n_keep[] = {0, 0};
    assert_int_equal(wnw__cache_keep_layer(&c, 0, keep, n_keep), WNW_OK);
    assert_int_equal(wnw__cache_bytes(&c), 0);
    append(&c, 0, 6, 2);
    assert_entry(&c, 0, 1, 1, 7);
    wnw__cache_free(&c);
}

static void test_swa_trim(void **state)
{
    (void)state;
    struct wnw__cache c;
    const int32_t n_swa[] = {8, 0};
    assert_int_equal(wnw__cache_init(&c, 2, N_HEAD_KV, D, WNW_KV_F32, 4, n_swa), WNW_OK);
    append(&c, 0, 0, 30);
    append(&c, 1, 0, 30);
    assert_int_equal(wnw__cache_drop_unseen(&c, 0, 30), WNW_OK);
    /* A token at 30 sees 23 .. 30: entries up to 22 go. */
    assert_int_equal(c.layers[0].len[0], 7);
    assert_entry(&c, 0, 1, 0, 23);
    assert_int_equal(wnw__cache_drop_unseen(&c, 1, 30), WNW_OK); /* no window */
    assert_int_equal(c.layers[1].len[0], 30);
    append(&c, 0, 30, 1);
    assert_int_equal(wnw__cache_drop_unseen(&c, 0, 31), WNW_OK); /* one entry is not worth a copy */
    assert_int_equal(c.layers[0].len[0], 8);
    wnw__cache_free(&c);
}

static void test_bytes(void **state)
{
    (void)state;
    struct wnw__cache c;
    assert_int_equal(wnw__cache_init(&c, 3, N_HEAD_KV, 64, WNW_KV_F16, 32, NULL), WNW_OK);
    assert_int_equal(wnw__cache_bytes(&c), 0);
    for (int32_t il = 0; il < 3; il++)
        assert_int_equal(wnw__cache_reserve_layer(&c, il, 1000, true), WNW_OK);
    /* 1000 entries take 1024 rows; 1024 x 2 heads x 128 bytes are whole pages of 4 KiB. */
    assert_int_equal(wnw__cache_bytes(&c), 3 * 2 * 1024 * 2 * 128);
    assert_int_equal(wnw__cache_bytes(&c), wnw__cache_bytes_for(&c, 1000));
    /* Each row has a position, and each number that is kept with it. */
    assert_int_equal(wnw__cache_meta_bytes(&c), 3 * 1024 * 2 * 4);
    assert_int_equal(wnw__cache_set_aux(&c, WNW_AUX_ATTN_SUM, 3), WNW_OK);
    assert_int_equal(wnw__cache_meta_bytes(&c), 3 * 1024 * 2 * (4 + 3 * 4));
    wnw__cache_free(&c);
}

static void test_refuses_odd_heads_when_quantised(void **state)
{
    (void)state;
    struct wnw__cache c;
    assert_int_equal(wnw__cache_init(&c, 1, 1, 40, WNW_KV_Q8_0, 32, NULL), WNW_E_UNSUPPORTED);
    assert_says("40");
}

/* Rows of sizes of their own, entries between others: what wnw__cache_init_rows and wnw__cache_place are for. */
static void assert_bytes(const struct wnw__cache *c, int32_t ih, const int32_t *pos, int32_t n)
{
    const struct wnw__kv_layer *l = &c->layers[0];
    assert_int_equal(l->len[ih], n);
    for (int32_t i = 0; i < n; i++) {
        const int64_t row = l->off[ih] + i;
        assert_int_equal(l->pos[row], pos[i]);
        assert_int_equal(l->k[(size_t)row * c->row_bytes + c->row_bytes - 1], pos[i] + ih);
        assert_int_equal(l->v[(size_t)row * c->v_row_bytes], 100 + pos[i] + ih);
        assert_int_equal(wnw__cache_find(l, ih, pos[i]), i);
        assert_cmp(wnw__cache_aux(l, WNW_AUX_ATTN_SUM, 0)[row], ==, (float)pos[i]);
    }
    assert_int_equal(wnw__cache_find(l, ih, pos[n - 1] + 1), n);
}

/* Sets the row of a position. */
static void mark_bytes(const struct wnw__cache *c, int32_t ih, int32_t pos)
{
    const struct wnw__kv_layer *l = &c->layers[0];
    const int64_t row = l->off[ih] + wnw__cache_find(l, ih, pos);
    memset(l->k + (size_t)row * c->row_bytes, pos + ih, c->row_bytes);
    memset(l->v + (size_t)row * c->v_row_bytes, 100 + pos + ih, c->v_row_bytes);
    assert_cmp(wnw__cache_aux(l, WNW_AUX_ATTN_SUM, 0)[row], ==, 0.0f); /* a new entry has no number yet */
    wnw__cache_aux(l, WNW_AUX_ATTN_SUM, 0)[row] = (float)pos;
}

static void test_place_between(void **state)
{
    (void)state;
    struct wnw__cache c;
    assert_ok(wnw__cache_init_rows(&c, 2, 5, 3));
    assert_ok(wnw__cache_set_aux(&c, WNW_AUX_ATTN_SUM, 1));
    assert_ok(wnw__cache_place(&c, 0, 0, 2, (const int32_t[]){3, 9, 20}, 3));
    for (int32_t ih = 0; ih < 2; ih++)
        for (int32_t i = 0; i < 3; i++)
            mark_bytes(&c, ih, (const int32_t[]){3, 9, 20}[i]);
    /* Before, between, at and after entries that are there; head 1 alone. */
    assert_ok(wnw__cache_place(&c, 0, 1, 2, (const int32_t[]){0, 1, 4, 9, 21}, 5));
    for (int32_t i = 0; i < 4; i++)
        mark_bytes(&c, 1, (const int32_t[]){0, 1, 4, 21}[i]);
    assert_bytes(&c, 0, (const int32_t[]){3, 9, 20}, 3);
    assert_bytes(&c, 1, (const int32_t[]){0, 1, 3, 4, 9, 20, 21}, 7);
    wnw__cache_drop(&c, 0, 1, 2, 3);
    assert_bytes(&c, 1, (const int32_t[]){0, 1, 20, 21}, 4);
    const int32_t *keep[] = {(const int32_t[]){1}, (const int32_t[]){0, 3}};
    assert_ok(wnw__cache_keep_layer(&c, 0, keep, (const int32_t[]){1, 2}));
    assert_bytes(&c, 0, (const int32_t[]){9}, 1);
    assert_bytes(&c, 1, (const int32_t[]){0, 21}, 2);
    assert_ok(wnw__cache_check(&c));
    assert_int_equal(wnw__cache_entry_bytes(&c), 3 * 8);
    wnw__cache_free(&c);
}

/* The same entries come of placing many at random, in any pieces. */
static void test_place_at_random(void **state)
{
    (void)state;
    struct wnw__cache c;
    uint32_t seed = 11;
    bool there[200] = {false};
    assert_ok(wnw__cache_init_rows(&c, 1, 4, 0));
    for (int round = 0; round < 100; round++) {
        int32_t some[200], n = 0, at = (int32_t)(test_lcg(&seed) % 200u);
        for (; at < 200 && n < 9; at += 1 + (int32_t)(test_lcg(&seed) % 30u))
            some[n++] = at;
        assert_ok(wnw__cache_place(&c, 0, 0, 1, some, n));
        for (int32_t i = 0; i < n; i++) {
            const struct wnw__kv_layer *l = &c.layers[0];
            memcpy(l->k + (size_t)(l->off[0] + wnw__cache_find(l, 0, some[i])) * 4, &some[i], 4);
            there[some[i]] = true;
        }
    }
    int32_t n = 0;
    for (int32_t pos = 0; pos < 200; pos++) {
        if (!there[pos])
            continue;
        int32_t row;
        memcpy(&row, c.layers[0].k + (size_t)(c.layers[0].off[0] + n) * 4, 4);
        assert_int_equal(c.layers[0].pos[c.layers[0].off[0] + n], pos);
        assert_int_equal(row, pos);
        n++;
    }
    assert_int_equal(c.layers[0].len[0], n);
    assert_null(c.layers[0].v);
    assert_ok(wnw__cache_check(&c));
    wnw__cache_clear(&c);
    assert_int_equal(wnw__cache_find(&c.layers[0], 0, 0), 0);
    wnw__cache_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_grows_without_losing),
        cmocka_unit_test(test_decode_growth_has_slack),
        cmocka_unit_test(test_tight_has_no_slack),
        cmocka_unit_test(test_ragged_grows_without_losing),
        cmocka_unit_test(test_growth_takes_few_pages),
        cmocka_unit_test(test_keep_ragged),
        cmocka_unit_test(test_thin_in_place),
        cmocka_unit_test(test_keep_nothing),
        cmocka_unit_test(test_swa_trim),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_place_between),
        cmocka_unit_test(test_place_at_random),
        cmocka_unit_test(test_refuses_odd_heads_when_quantised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
