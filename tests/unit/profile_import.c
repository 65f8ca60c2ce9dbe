/* SPDX-License-Identifier: MIT */
/* Files of other programs, read as what the user says they are; tables of a profile that is looked at. */
#include "asserts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peek_plan.h"
#include "winnow_calibrate.h"

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
                                        .fingerprint = "0123456789abcdef0123456789abcdef"}));
    const char *path = file_of(text, strlen(text));
    const int rc = wnw__profile_read_as(*p, path, as);
    unlink(path);
    return rc;
}

#define SCORES                                                                                            \
    "{\"1-0\":[0,0],\"0-0\":[1,3],\"0-1\":[0,0],\"0-2\":[4,0],\"0-3\":[5,6],\"1-1\":[1,0],\"1-2\":[0,1]," \
    "\"1-3\":[8,8]}"
#define RANKS "{\"0\":[3,2,1,0],\"1\":[0,2,1,3]}"

/* One text has one shape and two meanings. Scores may be in any order. */
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
    {"unknown word", "heads2", SCORES, WNW_E_ARG, "say srh, trad, heads, duo, layers, kvzap or fastkvzip"},
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
                                         .fingerprint = "0123456789abcdef0123456789abcdef"}));
    assert_error(wnw__profile_read_as(p, file_of(text, sizeof text - 1), "duo"), WNW_E_FORMAT);
    assert_says("NUL");
    wnw_profile_free(p);
}

/* ---- Looking at a profile without its model ---- */

#define HEADS_PROFILE                                                                                       \
    "{\"format\":\"winnow-profile-1\",\"kind\":\"heads\",\"model\":{\"fingerprint\":"                       \
    "\"0123456789abcdef0123456789abcdef\","                                                                 \
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

/* ---- Gates in files of tensors ---- */

/* A file of tensors whose header has `tensors` and whose numbers are data[size]. */
static int read_tensors(wnw_profile **p, const char *tensors, const void *data, size_t size, const char *as)
{
    char text[4096];
    const size_t n = (size_t)snprintf(text + 8, sizeof text - 8, "{%s}", tensors);
    assert_true(n + 8 + size < sizeof text);
    for (int i = 0; i < 8; i++)
        text[i] = (char)(i < 2 ? n >> (8 * i) & 255 : 0);
    if (size > 0)
        memcpy(text + 8 + n, data, size);
    assert_ok(wnw__profile_new(
        p, &(struct wnw__profile_shape){.model = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .d = 2},
                                        .fingerprint = "0123456789abcdef0123456789abcdef"}));
    const char *path = file_of(text, 8 + n + size);
    const int rc = wnw__profile_read_as(*p, path, as);
    unlink(path);
    return rc;
}

#define TENSOR(name, type, shape, from, to) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void expect_numbers(wnw_profile *p, const float *want, int64_t n)
{
    assert_int_equal(wnw_profile_kinds(p), 1u << WNW_PROFILE_INPUTGATE);
    assert_int_equal(wnw__input_numbers(&p->inputs, &p->model), n);
    for (int64_t i = 0; i < n; i++)
        assert_float_equal(p->inputs.number[i], want[i], 0);
    wnw_profile_free(p);
}

/* Weights 1 to 6 and biases -1, -2, in float32; bfloat16 and half of the same in the second layer. */
static void kvzap_linear(void **state)
{
    (void)state;
    static const float numbers[8] = {1, 2, 3, 4, 5, 6, -1, -2};
    static const uint16_t more[8] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, /* bfloat16 */
                                     0xbc00, 0xc000 /* half */};
    uint8_t data[48];
    memcpy(data, numbers, 32);
    memcpy(data + 32, more, 16);
    static const char *const names[] = {"layers.", "module_list."};
    for (int i = 0; i < 2; i++) {
        char header[1024];
        wnw_profile *p;
        snprintf(header, sizeof header,
                 "\"__metadata__\":{\"format\":\"pt\"},"
                 "\"%s0.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                 "\"%s0.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]},"
                 "\"%s1.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[32,44]},"
                 "\"%s1.bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[44,48]}",
                 names[i], names[i], names[i], names[i]);
        assert_ok(read_tensors(&p, header, data, sizeof data, "kvzap"));
        assert_int_equal(p->inputs.form, WNW_INPUT_LINEAR);
        assert_int_equal(p->inputs.n_embd, 3);
        assert_true(p->inputs.there[0] && p->inputs.there[1]);
        assert_memory_equal(p->inputs.number + 8, numbers, sizeof numbers);
        expect_numbers(p, numbers, 8);
    }
}

/* The numbers of unit/input_gate.c, where their scores are; layer 1 is not in the file. */
static void kvzap_with_hidden_units(void **state)
{
    (void)state;
    static const float numbers[14] = {1, 0, 0.5f, -1, 1, 0, 0.25f, -0.5f, 2, 1, -1, 3, 0.5f, 0};
    wnw_profile *p;
    assert_ok(read_tensors(&p,
                           TENSOR("layers.0.2.weight", "F32", "[2,2]", 32, 48) "," TENSOR(
                               "layers.0.0.weight", "F32", "[2,3]", 0,
                               24) "," TENSOR("layers.0.0.bias", "F32", "[2]", 24,
                                              32) "," TENSOR("layers.0.2.bias", "F32", "[2]", 48, 56),
                           numbers, sizeof numbers, "kvzap"));
    assert_int_equal(p->inputs.form, WNW_INPUT_MLP);
    assert_int_equal(p->inputs.n_hidden, 2);
    assert_true(p->inputs.there[0]);
    assert_false(p->inputs.there[1]);
    expect_numbers(p, numbers, 14);
}

/* 4 query heads and 2 KV heads, 1 number each, of hidden states of 1; 3 sinks. */
static void fast_kvzip(void **state)
{
    (void)state;
    float numbers[4 + 4 + 2 + 1 + 1 + 6 + 4];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = (float)i / 4 - 2;
    wnw_profile *p;
    assert_ok(read_tensors(
        &p,
        TENSOR("0.q_proj.weight", "F32", "[4,1]", 0, 16) "," TENSOR(
            "0.q_proj.bias", "F32", "[4]", 16,
            32) "," TENSOR("0.k_proj.weight", "F32", "[2,1]", 32,
                           40) "," TENSOR("0.q_norm.weight", "F32", "[1]", 40,
                                          44) "," TENSOR("0.k_norm.weight", "F32", "[1]", 44,
                                                         48) "," TENSOR("0.k_base", "F32", "[2,1,3,1]", 48,
                                                                        72) "," TENSOR("0.b", "F32",
                                                                                       "[2,1,2]", 72, 88),
        numbers, sizeof numbers, "fastkvzip"));
    assert_int_equal(p->inputs.form, WNW_INPUT_ATTENTION);
    assert_int_equal(p->inputs.n_dim, 1);
    assert_int_equal(p->inputs.n_sink, 3);
    assert_int_equal(p->inputs.n_embd, 1);
    expect_numbers(p, numbers, 22);
}

#define WEIGHT(type, shape, from, to) TENSOR("layers.0.weight", type, shape, from, to)
#define BIAS                          TENSOR("layers.0.bias", "F32", "[2]", 24, 32)

static void bad_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *tensors, *as;
        int status;
        const char *says;
    } rows[] = {
        {"", "kvzap", WNW_E_FORMAT, "no gates of KVzap"},
        {"\"a\":1", "fastkvzip", WNW_E_FORMAT, "no gates of Fast KVzip"},
        {"\"a\":", "kvzap", WNW_E_FORMAT, "its header is no JSON"},
        {WEIGHT("F32", "[2,3]", 0, 24), "kvzap", WNW_E_FORMAT, "there is no tensor layers.0.bias"},
        {WEIGHT("F32", "[2,3]", 0, 24) "," BIAS "," WEIGHT("F32", "[2,3]", 0, 24), "kvzap", WNW_E_FORMAT,
         "no JSON"},
        {WEIGHT("I8", "[2,3]", 0, 6) "," BIAS, "kvzap", WNW_E_FORMAT, "is of type I8"},
        {WEIGHT("F32", "[3,3]", 0, 36) "," BIAS, "kvzap", WNW_E_MISMATCH, "6 are expected"},
        {WEIGHT("F32", "[2,3]", 12, 36) "," BIAS, "kvzap", WNW_E_FORMAT, "does not lie in the file"},
        {WEIGHT("F32", "[2,3]", -4, 20) "," BIAS, "kvzap", WNW_E_FORMAT, "does not lie in the file"},
        {WEIGHT("F32", "[2,3]", 0, 20) "," BIAS, "kvzap", WNW_E_FORMAT, "does not lie in the file"},
        {WEIGHT("F32", "[2,3]", 24, 0) "," BIAS, "kvzap", WNW_E_FORMAT, "does not lie in the file"},
        {WEIGHT("F32", "[2,90000]", 0, 24) "," BIAS, "kvzap", WNW_E_FORMAT, "too short for a layer's gates"},
        {WEIGHT("F32", "[2,3000000000]", 0, 24) "," BIAS, "kvzap", WNW_E_FORMAT, "no number below 2^31"},
        {WEIGHT("F32", "[2,\"3\"]", 0, 24) "," BIAS, "kvzap", WNW_E_FORMAT, "no number below 2^31"},
        {WEIGHT("F32", "3", 0, 24) "," BIAS, "kvzap", WNW_E_FORMAT, "has no shape"},
        {WEIGHT("F32", "[2,0]", 0, 0) "," BIAS, "kvzap", WNW_E_MISMATCH, "1 to 131072"},
        {TENSOR("layers.2.weight", "F32", "[2,3]", 0, 24) "," WEIGHT("F32", "[2,3]", 0, 24) "," BIAS, "kvzap",
         WNW_E_MISMATCH, "the model has 2 layers"},
    };
    static const float numbers[8] = {1, 2, 3, 4, 5, 6, -1, -2}, odd[8] = {1, 2, NAN, 4, 5, 6, -1, -2};
    wnw_profile *p;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (read_tensors(&p, rows[i].tensors, numbers, sizeof numbers, rows[i].as) != rows[i].status)
            fail_msg("%s: %s", rows[i].tensors, wnw_last_error());
        assert_says(rows[i].says);
        assert_int_equal(wnw_profile_kinds(p), 0);
        wnw_profile_free(p);
    }
    assert_error(read_tensors(&p, WEIGHT("F32", "[2,3]", 0, 24) "," BIAS, odd, sizeof odd, "kvzap"),
                 WNW_E_FORMAT);
    assert_says("number 2 of tensor layers.0.weight is not finite");
    wnw_profile_free(p);
    static const char *const short_files[] = {"", "abc", "\x10\0\0\0\0\0\0\0{}",
                                              "\xff\xff\xff\xff\xff\xff\xff\xff{}"};
    static const size_t lengths[] = {0, 3, 10, 10};
    for (int i = 0; i < 4; i++) {
        assert_ok(wnw__profile_new(
            &p, &(struct wnw__profile_shape){.model = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .d = 2},
                                             .fingerprint = "0123456789abcdef0123456789abcdef"}));
        assert_error(wnw__profile_read_as(p, file_of(short_files[i], lengths[i]), "kvzap"), WNW_E_FORMAT);
        assert_says("safetensors");
        wnw_profile_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores),
                                       cmocka_unit_test(kvzap_linear),
                                       cmocka_unit_test(kvzap_with_hidden_units),
                                       cmocka_unit_test(fast_kvzip),
                                       cmocka_unit_test(bad_tensors),
                                       cmocka_unit_test(ranks),
                                       cmocka_unit_test(gates),
                                       cmocka_unit_test(a_nul),
                                       cmocka_unit_test(tables)};
    if (set_up() != 0)
        return 1;
    const int failed =
        cmocka_run_group_tests_name("profile_import", tests, NULL, NULL) + run_rows(refused, refusals);
    return failed + (tear_down() != 0);
}
