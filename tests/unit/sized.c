/* SPDX-License-Identifier: MIT */
/* Structs that begin with struct_size: an older program's end earlier, and no other size is taken. */
#include "helpers.h"
#include "peek_arrays.h"
#include "winnow_method.h"

#include <stddef.h>
#include <string.h>

/* Sizes a program may state for sampler parameters, whose top_p is refused where it is read. */
static void only_what_the_size_covers_is_read(void **state)
{
    (void)state;
    wnw_sampler *sp;
    wnw_sampler_params p = wnw_sampler_default_params();
    p.top_p = -1.0f;
    assert_error(wnw_sampler_new(&sp, &p), WNW_E_RANGE);
    p.struct_size = (uint32_t)offsetof(wnw_sampler_params, top_p);
    assert_ok(wnw_sampler_new(&sp, &p));
    wnw_sampler_free(sp);
    p.struct_size = (uint32_t)sizeof p.struct_size;
    assert_ok(wnw_sampler_new(&sp, &p));
    wnw_sampler_free(sp);
}

static void other_sizes_are_refused(void **state)
{
    (void)state;
    const struct {
        uint32_t size;
        const char *says;
    } rows[] = {
        {0, "struct_size of wnw_sampler_params is 0; begin it with WNW_INIT(wnw_sampler_params), or with its "
            "default function"},
        {sizeof(wnw_sampler_params) + 4, "set it with WNW_INIT(wnw_sampler_params), or use the library that"},
        {UINT32_MAX, "is 4294967295 and this library, " WNW_VERSION_STRING ", knows"},
        {2, "is 2, which no version had"},
        {7, "is 7, which no version had"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_sampler *sp = (wnw_sampler *)(void *)&sp;
        const wnw_sampler_params p = {.struct_size = rows[i].size, .temp = 1, .top_k = 1, .top_p = 1};
        assert_error(wnw_sampler_new(&sp, &p), WNW_E_ARG);
        assert_null(sp);
        if (!strstr(wnw_last_error(), rows[i].says))
            fail_msg("size %u: %s", (unsigned)rows[i].size, wnw_last_error());
    }
}

static void only_what_the_size_covers_is_written(void **state)
{
    (void)state;
    wnw_policy *p = test_policy("snapkv:window=24");
    const wnw_needs all = wnw_policy_needs(p);
    assert_int_equal(all.window, 24);
    assert_int_equal(all.struct_size, sizeof all);
    for (uint32_t size = sizeof(uint32_t); size <= sizeof all; size += sizeof(uint32_t)) {
        wnw_needs got, want = all;
        memset(&got, 0x5a, sizeof got);
        memset((char *)&want + size, 0x5a, sizeof want - size);
        got.struct_size = want.struct_size = size;
        assert_ok(wnw_policy_get_needs(p, &got));
        assert_memory_equal(&got, &want, sizeof got);
    }
    wnw_needs no = {.struct_size = 0, .window = 3};
    assert_error(wnw_policy_get_needs(p, &no), WNW_E_ARG);
    assert_int_equal(no.window, 3);
    wnw_policy_free(p);
}

/* A list that answers false for its end and for a size that was forgotten. */
static void the_catalogue_says_why(void **state)
{
    (void)state;
    wnw_method_info info = {.struct_size = 0};
    assert_false(wnw_method_get(0, &info));
    assert_non_null(strstr(wnw_last_error(), "WNW_INIT(wnw_method_info)"));
    info.struct_size = (uint32_t)offsetof(wnw_method_info, kind);
    info.kind = "mine";
    assert_true(wnw_method_get(0, &info));
    assert_string_equal(info.name, "full");
    assert_string_equal(info.kind, "mine");
}

struct grown {
    uint32_t struct_size;
    int32_t old;
    double added;
};

static void defaults_stay_behind_an_older_struct(void **state)
{
    (void)state;
    const struct {
        uint32_t struct_size;
        int32_t old;
    } theirs = {.struct_size = sizeof theirs, .old = 9};
    struct grown own = {WNW_INIT(struct grown), .old = 1, .added = 2.5};
    assert_ok(WNW_SIZED_TAKE(struct grown, &own, &theirs));
    assert_int_equal(own.old, 9);
    assert_true(own.added == 2.5);
    assert_int_equal(own.struct_size, sizeof own);
    assert_ok(WNW_SIZED_TAKE(struct grown, &own, NULL));
    assert_int_equal(own.old, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_the_size_covers_is_read),    cmocka_unit_test(other_sizes_are_refused),
        cmocka_unit_test(only_what_the_size_covers_is_written), cmocka_unit_test(the_catalogue_says_why),
        cmocka_unit_test(defaults_stay_behind_an_older_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
