/* SPDX-License-Identifier: MIT */
/* src/store/wkv_sequence.c compiled for a libllama that saves sequences in a later version of its form: nothing is written. */
#include "asserts.h"
#include "winnow_store.h"

static void test_later(void **state)
{
    static const char stored[4096]; /* it is not looked at */
    uint8_t *bytes = (uint8_t *)(uintptr_t)1;
    size_t n = 1;
    (void)state;
    assert_error(wnw_stored_sequence((const wnw_stored *)(const void *)stored, &bytes, &n),
                 WNW_E_UNSUPPORTED);
    assert_says("saves sequences in version 4 of its form, and winnow writes version 3");
    assert_null(bytes);
    assert_int_equal(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_later)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
