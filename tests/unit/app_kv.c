/* SPDX-License-Identifier: MIT */
/* --kv-type auto: the type that is chosen for a size in bytes. */
#include "asserts.h"

#include "app/console.h"
#include "app/kv.h"

/* 2 heads of 64 in 3 of 4 layers. 100 entries of a head have room for 128, so that keys of a layer have 256 rows: of 128 bytes in f16, which
 * are 8 pages of 4096, and of 68 in q8_0, which are 4.25 and take 5. Keys and values of three layers are 48 and 30 pages. One entry has room for 32,
 * 2 pages in f16 and 12 altogether. A head of 40 is no whole number of blocks. */
static const struct row {
    int32_t d;
    int64_t n;
    uint64_t bytes;
    wnw_kv_type type;
} rows[] = {
    {64, 100, 48 * 4096, WNW_KV_F16},
    {64, 100, 48 * 4096 - 1, WNW_KV_Q8_0},
    {64, 100, 30 * 4096, WNW_KV_Q8_0},
    {64, 100, 1, WNW_KV_Q8_0},
    {64, 1, 12 * 4096, WNW_KV_F16},
    {64, 1, 12 * 4096 - 1, WNW_KV_Q8_0},
    {40, 100, 10, WNW_KV_F16},
    {40, 1, 1000000, WNW_KV_F16},
    {64, 2147483647, (uint64_t)1 << 32, WNW_KV_Q8_0},
    {64, 2147483647, UINT64_MAX, WNW_KV_F16},
};

static void by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wnw_model_info info = {WNW_INIT(wnw_model_info), .n_layer = 4, .n_layer_swa = 1, .n_head_kv = 2,
                                     .n_embd_head = rows[i].d};
        struct app_kv kv = {.type = WNW_KV_F32, .automatic = true};
        app_kv_choose(&kv, rows[i].bytes, rows[i].n, &info);
        assert_int_equal(kv.type, rows[i].type);
    }
}

static void options(void **state)
{
    (void)state;
    struct app_kv kv = {0};
    struct app_args args = {.kv_type = "auto", .kv_rotate = "on", .kv_bytes = 5000, .budget = APP_UNSET};
    assert_int_equal(app_kv_check(&kv, &args, WNW_ATTN_OWN), APP_OK);
    assert_true(kv.automatic);
    assert_false(kv.unrotated);
    args.kv_rotate = "off";
    kv = (struct app_kv){0};
    assert_int_equal(app_kv_check(&kv, &args, WNW_ATTN_OWN), APP_OK);
    assert_true(kv.unrotated);
    args.kv_tail = 64;
    assert_int_equal(app_kv_check(&kv, &args, WNW_ATTN_OWN), APP_BAD_INPUT);
    args.kv_tail = 0;
    args.kv_bytes = APP_UNSET;
    assert_int_equal(app_kv_check(&kv, &args, WNW_ATTN_OWN), APP_BAD_INPUT);
    args.kv_type = "q8_0";
    kv = (struct app_kv){0};
    assert_int_equal(app_kv_check(&kv, &args, WNW_ATTN_OWN), APP_OK);
    assert_false(kv.automatic);
    /* In a list, types are named. */
    assert_int_equal(app_kv_parse(&kv, "auto"), APP_BAD_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
