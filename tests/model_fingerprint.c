/* SPDX-License-Identifier: MIT */
/* The fingerprint names weights, not files, machines or memory layouts. */
#include "files.h"
#include "helpers.h"

#include <gguf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the data of a layer's tensor begins in the file. */
static long tensor_offset(const char *path, int32_t il, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", (int)il, suffix);
    struct gguf_context *g = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    assert_non_null(g);
    const int64_t id = gguf_find_tensor(g, name);
    assert_cmp(id, >=, 0);
    const size_t at = gguf_get_data_offset(g) + gguf_get_tensor_offset(g, id);
    gguf_free(g);
    return (long)at;
}

static void stable_and_different(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX], prints[32][WNW_FINGERPRINT_SIZE], again[WNW_FINGERPRINT_SIZE];
    const int n = test_tiny_models(names, 32);
    assert_cmp(n, >=, 2);
    for (int i = 0; i < n; i++) {
        wnw_model *m = test_model_open(names[i]);
        wnw_model_fingerprint(m, prints[i]);
        wnw_model_fingerprint(m, again);
        wnw_model_free(m);
        assert_string_equal(prints[i], again);
        assert_int_equal(strlen(prints[i]), 16);
        assert_int_equal(strspn(prints[i], "0123456789abcdef"), 16);
        for (int j = 0; j < i; j++)
            if (strcmp(prints[i], prints[j]) == 0)
                fail_msg("%s and %s have the same fingerprint", names[i], names[j]);
    }
}

static void repacking_does_not_matter(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX], path[4096], with[WNW_FINGERPRINT_SIZE], without[WNW_FINGERPRINT_SIZE];
    const int n = test_tiny_models(names, 32);
    uint64_t repacked = 0;
    for (int i = 0; i < n; i++) {
        test_model_path(path, sizeof path, names[i]);
        for (int repack = 0; repack < 2; repack++) {
            wnw_model *m;
            wnw_model_info info = {WNW_INIT(wnw_model_info)};
            assert_ok(
                wnw_model_open(&m, path, &(wnw_model_params){WNW_INIT(wnw_model_params), .repack = repack}));
            assert_ok(wnw_model_get_info(m, &info));
            repacked += info.repacked_bytes;
            wnw_model_fingerprint(m, repack ? with : without);
            wnw_model_free(m);
        }
        assert_string_equal(with, without);
    }
    if (repacked == 0)
        print_message("note: no tiny model has weights that this CPU repacks\n");
}

/* One changed bit of a key weight of the last layer is seen. */
static void weights_matter(void **state)
{
    (void)state;
    char name[TEST_NAME_MAX], path[4096], copy[] = "/tmp/winnow-fingerprint-XXXXXX",
                                          before[WNW_FINGERPRINT_SIZE], after[WNW_FINGERPRINT_SIZE];
    test_tiny_model_of(name, "llama");
    test_model_path(path, sizeof path, name);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    test_file_new(copy);
    FILE *out = fopen(copy, "wb");
    assert_non_null(out);
    wnw_model *m;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_open(&m, path, NULL));
    assert_ok(wnw_model_get_info(m, &info));
    wnw_model_fingerprint(m, before);
    wnw_model_free(m);
    const long at = tensor_offset(path, info.n_layer - 1, "attn_k.weight");
    for (long i = 0;; i++) {
        const int c = fgetc(in);
        if (c == EOF)
            break;
        fputc(i == at ? c ^ 1 : c, out);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
    assert_ok(wnw_model_open(&m, copy, NULL));
    wnw_model_fingerprint(m, after);
    wnw_model_free(m);
    remove(copy);
    assert_string_not_equal(before, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stable_and_different),
        cmocka_unit_test(repacking_does_not_matter),
        cmocka_unit_test(weights_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
