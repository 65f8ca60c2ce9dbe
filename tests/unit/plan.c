/* SPDX-License-Identifier: MIT */
/* Keep-plans, and the driver that makes them, fed from plain random arrays: sizes, errors, invariants. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fake_source.h"

/* Plans, checks and frees; returns the count per head if it is one, or -1. */
static int32_t equal_count(struct fake *f, const char *recipe, wnw_size size, wnw_report *report)
{
    wnw_plan *plan = fake_planned(f, recipe, &size, report);
    fake_check_plan(plan, f);
    int32_t n = -2;
    for (int32_t il = 0; il < f->src.shape.n_layer; il++)
        for (int32_t ih = 0; ih < f->src.shape.n_head_kv && !f->left_alone[il]; ih++)
            n = n == -2 || n == fake_kept(plan, il, ih) ? fake_kept(plan, il, ih) : -1;
    wnw_plan_free(plan);
    return n;
}

/* ---- Plans from data ---- */

static void plan_from_data(void **state)
{
    (void)state;
    const int32_t a[] = {0, 2, 5}, b[] = {1, 4};
    const int32_t n[] = {3, 2, 0, 3};
    const int32_t *const rows[] = {a, b, NULL, a};
    wnw_plan *plan = NULL;
    const int32_t *pos;
    assert_int_equal(wnw_plan_new(&plan, 2, 2, 6, n, rows), WNW_OK);
    assert_int_equal(wnw_plan_head(plan, 0, 1, &pos), 2);
    assert_int_equal(pos[1], 4);
    assert_int_equal(wnw_plan_head(plan, 1, 0, &pos), 0);
    assert_int_equal(wnw_plan_head(plan, 1, 1, &pos), 3);
    assert_memory_equal(pos, a, sizeof a);
    assert_int_equal(wnw_plan_head(plan, 2, 0, &pos), 0);
    wnw_plan_free(plan);
    assert_int_equal(wnw_plan_new(&plan, 2, 2, 5, n, rows), WNW_E_ARG); /* 5 is not below 5 */
    assert_null(plan);
    const int32_t unsorted[] = {2, 1}, twice[] = {1, 1}, negative[] = {-1, 0};
    const int32_t *const bad[] = {unsorted, twice, negative};
    const int32_t two[] = {2};
    for (int i = 0; i < 3; i++)
        assert_int_equal(wnw_plan_new(&plan, 1, 1, 6, two, &bad[i]), WNW_E_ARG);
    const int32_t many[] = {-1};
    assert_int_equal(wnw_plan_new(&plan, 1, 1, 6, many, rows), WNW_E_ARG);
    assert_int_equal(wnw_plan_new(&plan, 0, 1, 6, n, rows), WNW_E_ARG);
    wnw_plan_free(NULL);
}

/* ---- Sizes ---- */

static void sizes(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 3, 2, 2, 600, false);
    assert_int_equal(equal_count(&f, "snapkv", size_budget(100), &r), 100);
    assert_float_equal(r.kept_mean, 100, 0);
    assert_string_equal(r.warning, "");
    assert_int_equal(equal_count(&f, "snapkv", size_ratio(0.9), &r), 60);
    assert_int_equal(equal_count(&f, "kvpress-snapkv", size_ratio(0.9), &r), 59);
    assert_int_equal(equal_count(&f, "kvpress-lagkv", size_ratio(0.52), &r), 288);
    assert_int_equal(equal_count(&f, "kvpress-pyramidkv", size_ratio(0.9), &r), 60);
    /* 16 bytes an entry, 6 heads: 96 bytes for one entry everywhere */
    assert_int_equal(equal_count(&f, "snapkv", size_bytes(96 * 100 + 95), &r), 100);
    assert_int_equal(equal_count(&f, "snapkv", size_bytes(96 * 100 - 1), &r), 99);
    assert_int_equal(equal_count(&f, "snapkv", (wnw_size){.kind = WNW_SIZE_NONE}, &r), 300);
    /* no-ops do not even look at the cache */
    f.n_observed = 0;
    assert_int_equal(equal_count(&f, "snapkv", size_budget(600), &r), 600);
    assert_int_equal(equal_count(&f, "snapkv", size_budget(INT64_MAX), &r), 600);
    assert_int_equal(equal_count(&f, "snapkv", size_bytes(UINT64_MAX), &r), 600);
    assert_int_equal(equal_count(&f, "snapkv", size_ratio(0), &r), 600);
    assert_int_equal(equal_count(&f, "pyramidkv", size_budget(600), &r), 600);
    assert_int_equal(equal_count(&f, "full", (wnw_size){.kind = WNW_SIZE_NONE}, &r), 600);
    assert_string_equal(r.warning, "");
    assert_int_equal(equal_count(&f, "full", size_budget(10), &r), 600);
    assert_contains(r.warning, "full");
    assert_int_equal(f.n_observed, 0);
    fake_free(&f);
}

/* What a plan of 600 tokens is allocated in: heads grow in blocks of 32 entries of 16 bytes, and where there is a tail, those of the last 50
 * tokens take 40 bytes each. */
static uint64_t allocated_in(const wnw_plan *plan, const struct wnw__plan_source *src)
{
    const int32_t *pos;
    uint64_t bytes = 0;
    for (int32_t i = 0; i < src->shape.n_layer * src->shape.n_head_kv; i++) {
        uint64_t of[2] = {0, 0};
        const int32_t n = wnw_plan_head(plan, i / src->shape.n_head_kv, i % src->shape.n_head_kv, &pos);
        for (int32_t k = 0; k < n; k++)
            of[src->entry_bytes.n_f16 > 0 && pos[k] >= 550]++;
        bytes += (of[0] + 31) / 32 * 32 * 16 + of[1] * 40;
    }
    return bytes;
}

static int allocated(const struct wnw__plan_source *src, const wnw_plan *plan, uint64_t *bytes)
{
    *bytes = allocated_in(plan, src);
    return WNW_OK;
}

/* Sizes in bytes count what is allocated. By hand: 136 entries in 6 heads would be allocated as 160, so 128 stay; heads that compete
 * are of different lengths, and all of them together fit; entries of a tail are counted as they are kept, and not as the most there
 * can be; where not even a block fits, the entries are those that the bytes hold. */
static void sizes_of_what_is_allocated(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    wnw_plan *plan;
    fake_init(&f, 3, 2, 2, 600, false);
    f.src.allocated = allocated;
    assert_int_equal(equal_count(&f, "snapkv", size_bytes(96 * 136), &r), 128);
    assert_float_equal(r.kept_mean, 128, 0);
    assert_int_equal(equal_count(&f, "snapkv", size_bytes(96 * 128), &r), 128);
    assert_int_equal(equal_count(&f, "snapkv", size_bytes(96 * 640), &r), 600);
    assert_int_equal(equal_count(&f, "snapkv", size_bytes(UINT64_MAX), &r), 600);
    assert_int_equal(equal_count(&f, "knorm", size_bytes(96 * 16), &r), 16);
    for (int i = 0; i < 4; i++) {
        static const char *const recipes[] = {"snapkv+adakv", "pyramidkv", "kvcompose", "snapkv"};
        const wnw_size size = size_bytes(96 * 200);
        f.src.entry_bytes.n_f16 = i == 3 ? 100 : 0;
        f.src.entry_bytes.f16 = 40;
        plan = fake_planned(&f, recipes[i], &size, &r);
        assert_cmp(allocated_in(plan, &f.src), <=, size.bytes);
        /* a block less in every head, or a per cent */
        assert_cmp(allocated_in(plan, &f.src), >=, size.bytes - 96 * 32);
        assert_near(r.kept_mean, (double)fake_check_plan(plan, &f) / 6, 1e-9);
        wnw_plan_free(plan);
    }
    fake_free(&f);
}

static void sizes_out_of_range(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan = (wnw_plan *)&f;
    fake_init(&f, 3, 2, 2, 600, false);
    const wnw_size bad[] = {size_budget(0),  size_budget(-5),    size_ratio(-0.1), size_ratio(1),
                            size_ratio(1.5), size_ratio(NAN),    size_bytes(0),    size_bytes(96 - 1),
                            size_budget(31), size_bytes(96 * 31)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(fake_plan(&plan, &f, "snapkv", &bad[i], NULL), WNW_E_RANGE);
        assert_null(plan);
    }
    assert_says("allow at least 32");
    const wnw_size three = size_budget(3);
    assert_int_equal(fake_plan(&plan, &f, "streaming_llm", &three, NULL), WNW_E_RANGE);
    const wnw_size lag = size_budget(218); /* 16 sinks, 584 = 4 x 128 + 72: 16 + 3 + 128 + 72 = 219 */
    assert_int_equal(fake_plan(&plan, &f, "lagkv", &lag, NULL), WNW_E_RANGE);
    assert_says("allow at least 219");
    fake_free(&f);
}

/* With a ratio the window gives way, with a warning. */
static void ratio_shrinks_the_window(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 2, 2, 1, 100, false);
    assert_int_equal(equal_count(&f, "snapkv", size_ratio(0.8), &r), 20);
    assert_contains(r.warning, "last 8");
    assert_int_equal(equal_count(&f, "snapkv", size_ratio(0.99), &r), 1);
    assert_int_equal(equal_count(&f, "snapkv", size_ratio(0.9999), &r), 1);
    assert_cmp(r.warning[0], !=, '\0');
    assert_int_equal(equal_count(&f, "streaming_llm", size_ratio(0.97), &r), 3);
    assert_int_equal(equal_count(&f, "adakv:alpha_safeguard=1", size_ratio(0.8), &r), 20);
    /* lagkv at 100 tokens: its blocks shrink from 128 until the tail fits into 50 */
    assert_in_range(equal_count(&f, "lagkv", size_ratio(0.5), &r), 30, 50);
    assert_contains(r.warning, "blocks shrink");
    fake_free(&f);
}

/* Where a layer's share rounds to nothing, a warning says so: with 12 entries and no window PyramidKV's last layer gets
 * floor(12 / 20) = 0, with 20 entries 1. */
static void empty_layers_are_named(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    fake_init(&f, 4, 2, 2, 300, false);
    for (int32_t budget = 12; budget <= 20; budget += 8) {
        wnw_report r = {WNW_INIT(wnw_report)};
        const wnw_size size = size_budget(budget);
        const int32_t *pos;
        plan = fake_planned(&f, "knorm+pyramid", &size, &r);
        assert_int_equal(wnw_plan_head(plan, 3, 0, &pos), budget / 20);
        if (budget < 20)
            assert_string_equal(r.warning,
                                "layer 3 keeps nothing: its share of 12 entries per head comes to 0");
        else
            assert_string_equal(r.warning, "");
        wnw_plan_free(plan);
    }
    fake_free(&f);
}

static void lagkv_own_size(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    fake_init(&f, 1, 2, 1, 1000, false);
    assert_int_equal(equal_count(&f, "lagkv:sink=16,lag=64,retain=0.25", none, &r), 328);
    assert_int_equal(equal_count(&f, "lagkv:sink=16,lag=492,retain=0.5", none, &r), 16 + 246 + 492);
    assert_int_equal(equal_count(&f, "lagkv:sink=16,lag=493", none, &r), 1000); /* n < S + 2 L */
    assert_string_equal(r.warning, "");
    /* A size: k per block is floored, so up to N - 2 entries are left over. */
    assert_int_equal(equal_count(&f, "lagkv:sink=16,lag=64", size_budget(500), &r), 16 + 64 + 24 + 14 * 28);
    fake_free(&f);
}

static void edge_shapes(void **state)
{
    (void)state;
    static const char *const recipes[] = {"snapkv",         "tova",          "knorm",
                                          "lagkv",          "adakv",         "pyramidkv",
                                          "kvpress-snapkv", "kvpress-lagkv", "kvpress-pyramidkv",
                                          "streaming_llm",  "paper-adakv"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int32_t n = 0; n <= 40; n += n < 5 ? 1 : 7) {
            struct fake f;
            wnw_report r = {WNW_INIT(wnw_report)};
            wnw_plan *plan;
            fake_init(&f, 2, 1, 7, n, false);
            const wnw_size half = size_ratio(0.5);
            plan = fake_planned(&f, recipes[i], &half, &r);
            const int64_t sum = fake_check_plan(plan, &f);
            assert_cmp(sum, >=, n > 0);
            if (!strstr(r.warning, "even with blocks")) /* lagkv's warning that blocks keep more */
                assert_cmp(sum, <=, 2 * ((n + 1) / 2));
            wnw_plan_free(plan);
            fake_free(&f);
        }
}

static void skipped_layers_stay(void **state)
{
    (void)state;
    struct fake f;
    wnw_report r = {WNW_INIT(wnw_report)};
    fake_init(&f, 6, 2, 2, 200, false);
    fake_leave_alone(&f, 0x2d); /* layers 1 and 4 take part */
    const wnw_size size = size_budget(50);
    wnw_plan *plan = fake_planned(&f, "pyramidkv", &size, &r);
    assert_int_equal(fake_check_plan(plan, &f), 2 * 2 * 50);
    assert_float_equal(r.kept_mean, 50, 0);
    assert_int_equal(f.n_observed, 2);
    assert_cmp(fake_kept(plan, 1, 0), >, fake_kept(plan, 4, 0));
    wnw_plan_free(plan);
    assert_int_equal(equal_count(&f, "snapkv", size_bytes(16 * 4 * 50), &r), 50);
    fake_leave_alone(&f, 0x3f);
    plan = fake_planned(&f, "snapkv", &size, &r);
    assert_int_equal(fake_check_plan(plan, &f), 0);
    wnw_plan_free(plan);
    fake_free(&f);
}

/* ---- Reports ---- */

/* Of two compressions of one read: times add up, the first warning and the highest peak stay, the last one's protection. */
static void reports_add_up(void **state)
{
    (void)state;
    wnw_report sum = {WNW_INIT(wnw_report)};
    const wnw_report one = {WNW_INIT(wnw_report), .observe_ms = 1,      .score_ms = 2,
                            .select_ms = 4,       .compact_ms = 8,      .kv_bytes_before = 300,
                            .warning = "first",   .protected_first = 4, .protected_last = 9};
    const wnw_report two = {WNW_INIT(wnw_report), .observe_ms = 16,     .score_ms = 32,
                            .select_ms = 64,      .compact_ms = 128,    .kv_bytes_before = 200,
                            .warning = "second",  .protected_first = 6, .protected_last = 7};
    wnw__report_add(&sum, &one);
    wnw__report_add(&sum, &two);
    assert_float_equal(sum.observe_ms, 17, 0);
    assert_float_equal(sum.score_ms, 34, 0);
    assert_float_equal(sum.select_ms, 68, 0);
    assert_float_equal(sum.compact_ms, 136, 0);
    assert_int_equal(sum.kv_bytes_before, 300);
    assert_string_equal(sum.warning, "first");
    assert_int_equal(sum.protected_first, 6);
    assert_int_equal(sum.protected_last, 7);
}

/* ---- Failing on the way ---- */

static void failures(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    const wnw_size size = size_budget(50);
    fake_init(&f, 3, 2, 2, 200, false);
    f.poison = true;
    assert_int_equal(fake_plan(&plan, &f, "snapkv", &size, NULL), WNW_E_NOT_FINITE);
    assert_says("snapkv");
    assert_null(plan);
    f.poison = false;
    f.unobserved = true;
    static const char *const recipes[] = {"snapkv", "tova", "knorm", "lagkv:sink=4,lag=8"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(fake_plan(&plan, &f, recipes[i], &size, NULL), WNW_E_NOT_OBSERVED);
    f.unobserved = false;
    f.cancel_after = 1;
    assert_int_equal(fake_plan(&plan, &f, "snapkv", &size, NULL), WNW_E_CANCELLED);
    assert_null(plan);
    fake_free(&f);
}

/* ---- Properties over many shapes ---- */

static void totals_are_exact(void **state)
{
    (void)state;
    static const char *const recipes[] = {"snapkv:window=8",
                                          "streaming_llm",
                                          "tova",
                                          "knorm",
                                          "adakv:window=8",
                                          "pyramidkv",
                                          "snapkv:window=8+pyramid+adakv",
                                          "tova+adakv:mode=floor",
                                          "lagkv:lag=8,sink=2+topk",
                                          "kvpress-snapkv:window=8"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int32_t shape = 0; shape < 12; shape++) {
            struct fake f;
            const int32_t n_layer = 1 + shape % 5, n_head = 1 + shape % 4, n = 30 + 23 * shape;
            fake_init(&f, n_layer, n_head, 1 + shape % 3, n, false);
            for (int32_t b = 18; b < n; b += 1 + n / 6) {
                const wnw_size size = size_budget(b);
                wnw_plan *plan, *again;
                if (fake_plan(&plan, &f, recipes[i], &size, NULL) != WNW_OK)
                    fail_msg("%s n %d budget %d: %s", recipes[i], n, b, wnw_last_error());
                assert_int_equal(fake_check_plan(plan, &f), (int64_t)b * n_layer * n_head);
                again = fake_planned(&f, recipes[i], &size, NULL);
                for (int32_t il = 0; il < n_layer; il++)
                    for (int32_t ih = 0; ih < n_head; ih++) {
                        const int32_t *p, *q;
                        const int32_t np = wnw_plan_head(plan, il, ih, &p);
                        assert_int_equal(np, wnw_plan_head(again, il, ih, &q));
                        assert_memory_equal(p, q, (size_t)np * sizeof *p);
                        if (strstr(recipes[i], "window=8"))
                            for (int32_t k = n - 8; k < n; k++)
                                assert_true(fake_holds(plan, il, ih, k));
                        if (i == 1)
                            for (int32_t k = 0; k < 4; k++)
                                assert_true(fake_holds(plan, il, ih, k));
                    }
                wnw_plan_free(plan);
                wnw_plan_free(again);
            }
            fake_free(&f);
        }
}

/* A cache that was compressed before: heads of different lengths and tokens. */
static void ragged_caches(void **state)
{
    (void)state;
    static const char *const recipes[] = {
        "snapkv:window=4",   "streaming_llm",       "tova",        "knorm",
        "adakv:window=4",    "pyramidkv",           "lagkv:lag=8", "kvpress-lagkv",
        "kvpress-pyramidkv", "paper-adakv:window=4"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int32_t n = 20; n < 200; n += 31) {
            struct fake f;
            fake_init(&f, 4, 3, 2, n, true);
            int64_t have = 0;
            for (int32_t k = 0; k < 12; k++)
                have += f.n_entry[k / 3][k % 3];
            for (int32_t t = 0; t < 9; t++) {
                const wnw_size size = size_ratio(0.1 * t);
                wnw_plan *plan = fake_planned(&f, recipes[i], &size, NULL);
                const int64_t sum = fake_check_plan(plan, &f);
                if (t == 0)
                    assert_int_equal(sum, have);
                if (i < 5 && t > 0) /* never more than asked, one entry a head less at most */
                    assert_cmp((double)sum, <=, (double)have * (1 - 0.1 * t) + 1e-6);
                if (i == 4 && t > 0)
                    assert_cmp((double)sum, >, (double)have * (1 - 0.1 * t) - 12);
                wnw_plan_free(plan);
            }
            fake_free(&f);
        }
}

/* Heads of 900 and 100 entries at a half keep 500 together, however they share them; also in two layers, where
 * one is shorter. */
static void ratio_of_uneven_heads(void **state)
{
    (void)state;
    static const char *const recipes[] = {"snapkv", "adakv", "snapkv+adakv:alpha_safeguard=0.9",
                                          "snapkv+adakv:mode=floor", "knorm+adakv:mode=floor"};
    const wnw_size half = size_ratio(0.5);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int32_t n_layer = 1; n_layer <= 2; n_layer++) {
            struct fake f;
            wnw_plan *plan;
            fake_init(&f, n_layer, 2, 1, 900, false);
            const int32_t n_entry[2][2] = {{900, 100}, {200, 200}};
            for (int32_t k = 0; k < 2 * n_layer; k++) {
                f.n_entry[k / 2][k % 2] = n_entry[k / 2][k % 2];
                for (int32_t e = n_entry[k / 2][k % 2]; e < f.n; e++)
                    f.pos[k * f.n + e] = -1;
            }
            plan = fake_planned(&f, recipes[i], &half, NULL);
            const int64_t sum = fake_check_plan(plan, &f);
            /* One layer: 2 x 250, or 400 + 100. Two of 700: 4 x 175, or 200 + 100 + 200 + 200. */
            if (sum != (n_layer == 1 ? 500 : 700))
                fail_msg("%s keeps %d", recipes[i], (int)sum);
            wnw_plan_free(plan);
            fake_free(&f);
        }
}

/* TOVA: one list of tokens for all heads of a layer. */
static void tova_keeps_the_same_tokens(void **state)
{
    (void)state;
    struct fake f;
    wnw_plan *plan;
    fake_init(&f, 2, 3, 2, 90, false);
    const wnw_size size = size_budget(30);
    plan = fake_planned(&f, "tova", &size, NULL);
    for (int32_t il = 0; il < 2; il++) {
        const int32_t *first, *pos;
        wnw_plan_head(plan, il, 0, &first);
        for (int32_t ih = 1; ih < 3; ih++) {
            assert_int_equal(wnw_plan_head(plan, il, ih, &pos), 30);
            assert_memory_equal(first, pos, 30 * sizeof *pos);
        }
    }
    wnw_plan_free(plan);
    fake_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_from_data),
        cmocka_unit_test(sizes),
        cmocka_unit_test(sizes_of_what_is_allocated),
        cmocka_unit_test(sizes_out_of_range),
        cmocka_unit_test(ratio_shrinks_the_window),
        cmocka_unit_test(empty_layers_are_named),
        cmocka_unit_test(lagkv_own_size),
        cmocka_unit_test(edge_shapes),
        cmocka_unit_test(skipped_layers_stay),
        cmocka_unit_test(reports_add_up),
        cmocka_unit_test(failures),
        cmocka_unit_test(totals_are_exact),
        cmocka_unit_test(ragged_caches),
        cmocka_unit_test(ratio_of_uneven_heads),
        cmocka_unit_test(tova_keeps_the_same_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
