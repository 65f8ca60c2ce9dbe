/* SPDX-License-Identifier: MIT */
/* The list of kernels says of each work what is in use there. */
#include "asserts.h"
#include "winnow_study.h"

#include "peek_arrays.h"

#include <string.h>

/* The name of the kernel of a work that the list has as used, NULL if there is none. */
static const char *used(const char *work)
{
    const char *name = NULL;
    for (int32_t i = 0; i < wnw_n_kernels(); i++) {
        wnw_kernel_info k = wnw_kernel_info_default();
        assert_int_equal(wnw_kernel_get(i, &k), WNW_OK);
        if (strcmp(k.work, work) != 0 || !k.used)
            continue;
        assert_null(name); /* one of each work */
        assert_true(k.built && !k.lacks);
        name = k.name;
    }
    return name;
}

static void those_in_use(void **state)
{
    (void)state;
    assert_string_equal(used("attention"), wnw__vec_at(0)->name);
    assert_string_equal(used("weights"), wnw__matmul_at(0)->name);
    const char *prompts = used("attention of prompts"), *far = used("far scores");
    assert_int_equal(prompts != NULL, wnw__bf16_best() != NULL);
    if (prompts)
        assert_string_equal(prompts, wnw__bf16_best()->name);
    assert_int_equal(far != NULL, wnw__score8_best() != NULL);
    if (far)
        assert_string_equal(far, wnw__score8_best()->name);
}

/* What is before the one in use says why it is not. */
static void reasons(void **state)
{
    (void)state;
    const char *work = "";
    bool found = false;
    for (int32_t i = 0; i < wnw_n_kernels(); i++) {
        wnw_kernel_info k = wnw_kernel_info_default();
        assert_int_equal(wnw_kernel_get(i, &k), WNW_OK);
        found = found && strcmp(work, k.work) == 0;
        work = k.work;
        found = found || k.used;
        assert_true(found || k.lacks || !k.built);
    }
}

static void outside_of_the_list(void **state)
{
    wnw_kernel_info k = wnw_kernel_info_default();
    (void)state;
    assert_int_equal(wnw_kernel_get(-1, &k), WNW_E_ARG);
    assert_int_equal(wnw_kernel_get(wnw_n_kernels(), &k), WNW_E_ARG);
    assert_int_equal(wnw_kernel_get(0, NULL), WNW_E_ARG);
    assert_int_equal(wnw_kernel_get(0, &(wnw_kernel_info){0}), WNW_E_ARG); /* no size */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_in_use),
        cmocka_unit_test(reasons),
        cmocka_unit_test(outside_of_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
