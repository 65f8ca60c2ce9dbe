/* SPDX-License-Identifier: MIT */
/*
 * Weights that a model cannot be run with, in files that are in order otherwise: types that ggml has no
 * matrix product for are refused when the model is opened, values that are not numbers when the first logits
 * are.
 */
#include "files.h"
#include "gguf_edit.h"
#include "helpers.h"
#include "peek_session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "tiny/tiny-llama3.gguf" /* rows of 256, which every type's blocks divide; tied embeddings */

struct fixture {
    char source[4096], path[64];
};

/* Writes the model with another type of one tensor, whose values are zero bytes. */
static void write_with_type(const struct fixture *fx, const char *name, enum ggml_type type)
{
    struct test_gguf f;
    test_gguf_read(&f, fx->source);
    const int32_t i = test_gguf_find(&f, name);
    assert_cmp(i, >=, 0);
    if (f.tensor[i]->type != type)
        test_gguf_replace(&f, i, type);
    test_gguf_write(&f, fx->path);
    test_gguf_free(&f);
}

/* Writes the model with another first value of one tensor. */
static void write_with_value(const struct fixture *fx, const char *name, float value)
{
    struct test_gguf f;
    test_gguf_read(&f, fx->source);
    struct ggml_tensor *t = test_gguf_tensor(&f, name);
    assert_non_null(t);
    if (t->type == GGML_TYPE_F32)
        *(float *)t->data = value;
    else if (t->type == GGML_TYPE_F16)
        *(ggml_fp16_t *)t->data = ggml_fp32_to_fp16(value);
    else
        fail_msg("%s is of type %s", name, ggml_type_name(t->type));
    test_gguf_write(&f, fx->path);
    test_gguf_free(&f);
}

/* ---- Types ---- */

static int read_and_decode(const wnw_model *m, const wnw_policy *policy)
{
    static const int32_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    wnw_session_params p = wnw_session_default_params();
    wnw_session *s;
    p.n_ctx = 64;
    p.n_threads = 1;
    assert_ok(wnw_session_new(&s, m, &p));
    assert_ok(test_observe(s, &policy, policy ? 1 : 0));
    int rc = wnw_session_prefill(s, tokens, 12, NULL, NULL);
    assert_cmp((rc == WNW_OK), ==, (wnw_session_logits(s) != NULL));
    if (rc == WNW_OK && policy)
        rc = wnw_session_compress(s, policy, NULL, NULL);
    if (rc == WNW_OK)
        rc = wnw_session_decode(s, 1);
    wnw_session_free(s);
    return rc;
}

/* A model in which one tensor has each type in turn either works or is refused by that tensor's name. */
static void every_type(void **state)
{
    const struct fixture *fx = *state;
    static const char *const names[] = {"token_embd.weight", "blk.1.attn_output.weight",
                                        "blk.0.ffn_up.weight", "blk.0.attn_norm.weight"};
    wnw_policy *policy = test_policy("criticalkv:window=4"); /* reads the output projection by itself */
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        int n_used = 0, n_refused = 0;
        for (int type = 0; type < GGML_TYPE_COUNT; type++) {
            const int64_t block = ggml_blck_size((enum ggml_type)type);
            wnw_model *m;
            if (block == 0 || 256 % block != 0)
                continue; /* not a type any more */
            write_with_type(fx, names[k], (enum ggml_type)type);
            const int rc = wnw_model_open(&m, fx->path, NULL);
            if (rc == WNW_OK) {
                assert_ok(read_and_decode(m, policy));
                wnw_model_free(m);
                n_used++;
                continue;
            }
            assert_int_equal(rc, WNW_E_UNSUPPORTED);
            assert_says(names[k]);
            assert_says(ggml_type_name((enum ggml_type)type));
            n_refused++;
        }
        print_message("%s: %d types work, %d are refused\n", names[k], n_used, n_refused);
        assert_cmp(n_used, >=, (k < 3 ? 15 : 1));
        assert_cmp(n_refused, >=, 4); /* i8, i16, q8_1, q8_K, ... */
    }
    wnw_policy_free(policy);
}

static void types_of_intermediate_results(void **state)
{
    const struct fixture *fx = *state;
    static const enum ggml_type types[] = {GGML_TYPE_Q8_K, GGML_TYPE_Q8_1, GGML_TYPE_I32};
    for (size_t i = 0; i < 3; i++) {
        wnw_model *m;
        write_with_type(fx, "blk.0.attn_q.weight", types[i]);
        assert_error(wnw_model_open(&m, fx->path, NULL), WNW_E_UNSUPPORTED);
        assert_null(m);
        assert_says("blk.0.attn_q.weight");
        write_with_type(fx, "token_embd.weight", types[i]);
        assert_error(wnw_model_open(&m, fx->path, NULL), WNW_E_UNSUPPORTED);
    }
}

/* ---- Values ---- */

static void values_that_are_not_numbers(void **state)
{
    const struct fixture *fx = *state;
    static const char *const names[] = {"token_embd.weight",     "blk.0.attn_q.weight",
                                        "blk.1.attn_v.weight",   "blk.2.ffn_down.weight",
                                        "blk.0.ffn_norm.weight", "output_norm.weight"};
    static const float values[] = {NAN, INFINITY};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (int i = 0; i < 2; i++) {
            wnw_model *m;
            write_with_value(fx, names[k], values[i]);
            assert_ok(wnw_model_open(&m, fx->path, NULL));
            assert_error(read_and_decode(m, NULL), WNW_E_NOT_FINITE);
            wnw_model_free(m);
        }
}

/* Layer by layer the policy meets the values before any logits do. */
static void scores_that_are_not_numbers(void **state)
{
    const struct fixture *fx = *state;
    static const int32_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    wnw_policy *policy = test_policy("knorm");
    wnw_model *m;
    write_with_value(fx, "blk.1.attn_k.weight", NAN);
    assert_ok(wnw_model_open(&m, fx->path, NULL));
    wnw_session *s = test_session_new(m, &(struct test_session){.n_ctx = 64, .n_threads = 1});
    assert_ok(
        wnw_session_begin(s, &(wnw_run){WNW_INIT(wnw_run), .policy = policy, .phase = WNW_PHASE_LAYER}));
    assert_error(wnw_session_read(s, tokens, 12, NULL), WNW_E_NOT_FINITE);
    assert_says("knorm");
    wnw_session_free(s);
    wnw_model_free(m);
    wnw_policy_free(policy);
}

/* Every row that is handed out is looked at, the first bad one ends the call. */
static bool count(int32_t i, const float *logits, void *user)
{
    (void)logits;
    *(int32_t *)user = i + 1;
    return true;
}

static void rows_that_are_not_numbers(void **state)
{
    const struct fixture *fx = *state;
    static const int32_t tokens[] = {4, 5, 6, 0, 7, 8};
    int32_t n = 0;
    wnw_model *m;
    /* The embedding of token 0, which is its row of the output too, so that every logit of it is a NaN. */
    write_with_value(fx, "token_embd.weight", NAN);
    assert_ok(wnw_model_open(&m, fx->path, NULL));
    wnw_session *s = test_session_new(m, &(struct test_session){.n_ctx = 64, .n_threads = 1});
    assert_error(wnw_session_prefill(s, tokens, 6, count, &n), WNW_E_NOT_FINITE);
    assert_int_equal(n, 0);
    assert_null(wnw_session_logits(s));
    wnw_session_free(s);
    wnw_model_free(m);
}

/* ---- Set-up ---- */

static int set_up(void **state)
{
    static struct fixture fx = {.path = "/tmp/winnow-test-XXXXXX"};
    test_model_path(fx.source, sizeof fx.source, MODEL);
    test_file_new(fx.path);
    *state = &fx;
    return 0;
}

static int tear_down(void **state)
{
    const struct fixture *fx = *state;
    return unlink(fx->path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(types_of_intermediate_results),
        cmocka_unit_test(values_that_are_not_numbers),
        cmocka_unit_test(scores_that_are_not_numbers),
        cmocka_unit_test(rows_that_are_not_numbers),
    };
    return cmocka_run_group_tests_name("weights that cannot be used", tests, set_up, tear_down);
}
