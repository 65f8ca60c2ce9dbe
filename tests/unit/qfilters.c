/* SPDX-License-Identifier: MIT */
/* Q-Filters: scores by hand, in the form of the paper and in that of kvpress. */
#include "scoring.h"

#include "asserts.h"

#include <stdlib.h>

/* Two KV heads of 2 elements; the second holds one entry less. */
static const float keys[2][3][2] = {{{1, 0}, {0, 2}, {3, 4}}, {{-1, 1}, {2, 2}, {1e9f, 1e9f}}};
/* [n_layer 2][n_head_kv 2][2]; layer 1 is looked at. */
static float filters[] = {9, 9, 9, 9, 0.6f, -0.8f, 0, 1};

static wnw_observation observed(const struct score_rows *rows, const int32_t *n_entry,
                                const wnw_profile *profile)
{
    static const int32_t pos[] = {0, 1, 2, 0, 1, -1};
    return (wnw_observation){.il = 1,
                             .n_layer = 2,
                             .n_head = 4,
                             .n_head_kv = 2,
                             .n_embd_head = 2,
                             .n = 3,
                             .n_past = 3,
                             .n_entry = n_entry,
                             .pos = pos,
                             .attn_scale = 1,
                             .keys = row_keys,
                             .profile = profile,
                             .source = (void *)(uintptr_t)rows};
}

static void by_hand(void **state)
{
    (void)state;
    const struct wnw_profile profile = {.query_filter = filters};
    const struct score_rows rows = {.k = keys[0][0]};
    const int32_t n_entry[] = {3, 2};
    const wnw_observation obs = observed(&rows, n_entry, &profile);
    float got[6];
    run_scorer("qfilters", &obs, got);
    assert_values(got, 1e-6, 0.6, -1.6, -1.4, 1, 2);
    /* kvpress stores the filters negated and negates the product: -(q_filter * keys).sum(). */
    for (int32_t ih = 0; ih < 2; ih++)
        for (int32_t i = 0; i < n_entry[ih]; i++) {
            double sum = 0;
            for (int32_t c = 0; c < 2; c++)
                sum += (double)-filters[4 + 2 * ih + c] * (double)keys[ih][i][c];
            assert_near(got[3 * ih + i], -sum, 1e-6);
        }
}

static void without_filters(void **state)
{
    (void)state;
    const struct wnw_profile profile = {0};
    const struct score_rows rows = {.k = keys[0][0]};
    const int32_t n_entry[] = {3, 2};
    wnw_observation obs = observed(&rows, n_entry, &profile);
    float got[6];
    assert_error(try_scorer("qfilters", &obs, got), WNW_E_MISMATCH);
    assert_says("winnow calibrate stats");
    obs.profile = NULL;
    assert_error(try_scorer("qfilters", &obs, got), WNW_E_MISMATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand), cmocka_unit_test(without_filters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
