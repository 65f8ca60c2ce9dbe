/* SPDX-License-Identifier: MIT */
/* Files of other programs, read as what the user says they are; tables of a profile that is looked at. */
#include "asserts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peek_plan.h"

static char folder[] = "/tmp/winnow-import-XXXXXX";

static const char *file_of(const char *text, size_t len)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
    return path;
}

/* 2 layers, 4 query heads, 2 KV heads of 2. */
static int read_as(wnw_profile **p, const char *text, const char *as)
{
    assert_ok(wnw__profile_new(
        p, &(struct wnw__profile_shape){.model = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .d = 2},
                                        .fingerprint = "0123456789abcdef"}));
    const char *path = file_of(text, strlen(text));
    const int rc = wnw__profile_read_as(*p, path, as);
    unlink(path);
    return rc;
}

#define SCORES                                                                                            \
    "{\"1-0\":[0,0],\"0-0\":[1,3],\"0-1\":[0,0],\"0-2\":[4,0],\"0-3\":[5,6],\"1-1\":[1,0],\"1-2\":[0,1]," \
    "\"1-3\":[8,8]}"
#define RANKS "{\"0\":[3,2,1,0],\"1\":[0,2,1,3]}"

/* One text has one shape and two meanings. Scores may stand in any order. */
static void scores(void **state)
{
    (void)state;
    wnw_profile *p;
    assert_ok(read_as(&p, SCORES, "heads"));
    assert_int_equal(wnw_profile_kinds(p), 1u << WNW_PROFILE_HEADS);
    const double importance[] = {2, 0, 2, 5.5, 0, 0.5, 0.5, 8};
    for (int32_t i = 0; i < 8; i++)
        assert_near(p->head_score[i], importance[i], 1e-7);
    assert_null(p->trad_rank);
    wnw_profile_free(p);
    assert_ok(read_as(&p, SCORES, "srh"));
    assert_int_equal(wnw_profile_kinds(p), 1u << WNW_PROFILE_SRH);
    assert_ints(p->srh_rank, 3, 0, 2, 1, 3, 1, 2, 0);
    assert_null(p->trad_rank);
    wnw_profile_free(p);
    assert_ok(read_as(&p, SCORES, "trad"));
    assert_ints(p->trad_rank, 3, 0, 2, 1, 3, 1, 2, 0);
    assert_float_equal(p->trad_mean[3], 5.5, 1e-7);
    assert_null(p->srh_rank);
    wnw_profile_free(p);
}

static void ranks(void **state)
{
    (void)state;
    wnw_profile *p;
    assert_ok(read_as(&p, RANKS, "trad"));
    assert_ints(p->trad_rank, 3, 2, 1, 0, 0, 2, 1, 3);
    assert_null(p->srh_rank);
    wnw_profile_free(p);
}

/* DuoAttention's table: values outside 0 .. 1 are clipped; the last line may lack its end. */
static void gates(void **state)
{
    (void)state;
    static const char *const texts[] = {"0.25\t1.5\n-0.5\t1e-1\n", "0.25 1.5\r\n-0.5 .1",
                                        "\t0.25\t2\t\n -1\t0.1\n\n"};
    const double want[] = {0.25, 1, 0, 0.1};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        wnw_profile *p;
        assert_ok(read_as(&p, texts[k], "duo"));
        assert_int_equal(wnw_profile_kinds(p), 1u << WNW_PROFILE_HEADS);
        for (int32_t i = 0; i < 4; i++)
            assert_near(p->head_alpha[i], want[i], 1e-12);
        wnw_profile_free(p);
    }
}

struct refusal {
    const char *name, *as, *text;
    int rc;
    const char *says;
};

static const struct refusal refusals[] = {
    {"unknown word", "heads2", SCORES, WNW_E_ARG, "say srh, trad, heads, duo or layers"},
    {"ranks as importance", "heads", RANKS, WNW_E_MISMATCH, "scores of 2 heads"},
    {"shares as heads", "srh", "{\"avg_score\":[1,2]}", WNW_E_FORMAT, "neither ranked heads"},
    {"scores as shares", "layers", SCORES, WNW_E_FORMAT, "avg_score"},
    {"a head that is negative", "heads",
     "{\"0-0\":[1],\"0-1\":[0],\"0-2\":[-1],\"0-3\":[0],\"1-0\":[0],\"1-1\":[0],\"1-2\":[0],\"1-3\":[0]}",
     WNW_E_FORMAT, "head 0-2"},
    {"a table as JSON", "srh", "0.5\t1\n0\t1\n", WNW_E_FORMAT, "not JSON"},
    {"JSON as a table", "duo", SCORES, WNW_E_FORMAT, "line 1: value 1 is not a number"},
    {"no gates", "duo", "", WNW_E_FORMAT, "it has 0 lines; the model has 2 layers"},
    {"a layer too few", "duo", "0\t1\n", WNW_E_FORMAT, "it has 1 lines"},
    {"a layer too many", "duo", "0\t1\n0\t1\n0\t1\n", WNW_E_FORMAT, "more than 2 lines"},
    {"a head too few", "duo", "0\t1\n0\n", WNW_E_FORMAT, "line 2: value 2 is not a number"},
    {"a head too many", "duo", "0\t1\t1\n0\t1\n", WNW_E_FORMAT, "line 1 has more than 2 numbers"},
    {"not a number", "duo", "0\tnan\n0\t1\n", WNW_E_FORMAT, "value 2 is not a number"},
    {"infinite", "duo", "0\t1e999\n0\t1\n", WNW_E_FORMAT, "value 2 is not a number"},
    {"a comma", "duo", "0,5\t1\n0\t1\n", WNW_E_FORMAT, "line 1: value 2 is not a number"},
};

static void refused(void **state)
{
    const struct refusal *r = *state;
    wnw_profile *p;
    assert_error(read_as(&p, r->text, r->as), r->rc);
    assert_says(r->says);
    wnw_profile_free(p);
}

static void a_nul(void **state)
{
    (void)state;
    static const char text[] = "0\t1\n0\t1\n\0 0";
    wnw_profile *p;
    assert_ok(wnw__profile_new(
        &p, &(struct wnw__profile_shape){.model = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .d = 2},
                                         .fingerprint = "0123456789abcdef"}));
    assert_error(wnw__profile_read_as(p, file_of(text, sizeof text - 1), "duo"), WNW_E_FORMAT);
    assert_says("NUL");
    wnw_profile_free(p);
}

/* ---- Looking at a profile without its model ---- */

#define HEADS_PROFILE                                                                                       \
    "{\"format\":\"winnow-profile-1\",\"kind\":\"heads\",\"model\":{\"fingerprint\":\"0123456789abcdef\","  \
    "\"n_layer\":2,\"n_head\":4,\"n_head_kv\":2,\"n_embd_head\":2},\"results\":{\"score\":[[1,2,3,4],[5,6," \
    "7,8]],"                                                                                                \
    "\"alpha\":[[0,1],[0.5,0.25]]}}"

static void tables(void **state)
{
    (void)state;
    wnw_profile *p;
    wnw_profile_table t = wnw_profile_table_default();
    double values[8];
    assert_ok(wnw_profile_open(&p, file_of(HEADS_PROFILE, strlen(HEADS_PROFILE))));
    assert_true(wnw_profile_get_table(p, 0, &t));
    assert_string_equal(t.name, "score");
    assert_int_equal(t.kind, WNW_PROFILE_HEADS);
    assert_int_equal(t.n_dim, 2);
    assert_ints(t.shape, 2, 4);
    assert_false(t.is_whole);
    assert_true(wnw_profile_get_table(p, 1, &t));
    assert_string_equal(t.name, "alpha");
    assert_ints(t.shape, 2, 2);
    assert_false(wnw_profile_get_table(p, 2, &t));
    assert_false(wnw_profile_get_table(NULL, 0, &t));
    assert_ok(wnw_profile_get_values(values, 8, p, "score"));
    assert_near(values[7], 8, 0);
    assert_error(wnw_profile_get_values(values, 7, p, "score"), WNW_E_ARG);
    assert_says("has 8 values, not 7");
    assert_error(wnw_profile_get_values(values, 8, p, "srh"), WNW_E_ARG);
    wnw_profile_free(p);
    assert_error(wnw_profile_open(&p, file_of(SCORES, strlen(SCORES))), WNW_E_FORMAT);
    assert_says("winnow profile import");
    assert_error(wnw_profile_open(&p, "/nonexistent"), WNW_E_IO);
    assert_null(p);
}

static int set_up(void)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/file", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores), cmocka_unit_test(ranks),
                                       cmocka_unit_test(gates), cmocka_unit_test(a_nul),
                                       cmocka_unit_test(tables)};
    if (set_up() != 0)
        return 1;
    const int failed =
        cmocka_run_group_tests_name("profile_import", tests, NULL, NULL) + run_rows(refused, refusals);
    return failed + (tear_down() != 0);
}
