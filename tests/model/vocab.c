/* SPDX-License-Identifier: MIT */
/*
 * Vocabularies that are damaged. libllama ends the process on some of them; here opening must end in an error
 * with a sentence. Everything is opened in a child process, so that a crash is seen and named.
 */
#include "child.h"
#include "gguf_copy.h"
#include "helpers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What opening and using the file returns; its sentence is left in text. */
static int open_in_child(const char *path, char text[512])
{
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    const pid_t child = test_child(0);
    if (child == 0) {
        wnw_model *m;
        int32_t *tokens, n;
        int rc = wnw_model_open(&m, path, NULL);
        if (rc == WNW_OK)
            rc = wnw_tokenize(m, "a\xff\n ", 4, true, true, &tokens, &n);
        char *piece = NULL;
        for (int32_t i = -1; rc == WNW_OK && i < 400; i++) {
            rc = wnw_token_piece(m, i, &piece);
            wnw_free(piece);
        }
        const char *said = rc == WNW_OK ? "" : wnw_last_error();
        _exit(write(pipe_ends[1], said, strlen(said)) < 0 ? 99 : -rc);
    }
    close(pipe_ends[1]);
    const ssize_t got = read(pipe_ends[0], text, 511);
    text[got > 0 ? got : 0] = '\0';
    close(pipe_ends[0]);
    return -test_child_status(child, path);
}

/* Writes what f became, opens it and releases f. */
static void expect(struct test_gguf_copy *f, int want, const char *word)
{
    char text[512];
    test_gguf_copy_write(f);
    const int rc = open_in_child(f->path, text);
    test_gguf_copy_remove(f);
    if (rc != want || !strstr(text, word))
        fail_msg("%d \"%s\", expected %d and \"%s\"", rc, text, want, word);
}

enum { N_VOCAB = 320 };
static const char tokens_key[] = "tokenizer.ggml.tokens";

static void set_token(struct test_gguf_copy *f, int at, const char *text)
{
    test_gguf_copy_token(f, at, text, -1);
}

static const char bpe[] = "tiny/chat/smollm2.gguf", spm[] = "tiny/chat/gemma3.gguf";

static void intact(void **state)
{
    (void)state;
    struct test_gguf_copy f = test_gguf_copy_of(bpe);
    expect(&f, WNW_OK, "");
    f = test_gguf_copy_of(spm);
    expect(&f, WNW_OK, "");
}

/* libllama: GGML_ASSERT(id_to_token.size() == token_to_id.size()). */
static void twice(void **state)
{
    (void)state;
    static const char *const models[] = {bpe, spm};
    for (int i = 0; i < 2; i++) {
        struct test_gguf_copy f = test_gguf_copy_of(models[i]);
        set_token(&f, 300, "<unused310>");
        expect(&f, WNW_E_FORMAT, "'<unused310>', is there twice");
    }
    /* An empty token is called by its number. */
    struct test_gguf_copy f = test_gguf_copy_of(bpe);
    set_token(&f, 300, "");
    expect(&f, WNW_OK, "");
    f = test_gguf_copy_of(bpe);
    set_token(&f, 300, "");
    set_token(&f, 301, "[EMPTY_300]");
    expect(&f, WNW_E_FORMAT, "is an empty token");
    f = test_gguf_copy_of(bpe);
    set_token(&f, 301, "[EMPTY_300]");
    expect(&f, WNW_OK, "");
}

/* libllama: an uncaught std::out_of_range when such a byte is tokenised. */
static void without_a_byte(void **state)
{
    (void)state;
    struct test_gguf_copy f = test_gguf_copy_of(spm);
    set_token(&f, 6 + 0xff, "<no byte>");
    const int32_t normal = 1;
    int32_t types[N_VOCAB];
    const int64_t id = gguf_find_key(f.file.g, "tokenizer.ggml.token_type");
    memcpy(types, gguf_get_arr_data(f.file.g, id), sizeof types);
    types[6 + 0xff] = normal;
    gguf_set_arr_data(f.file.g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, N_VOCAB);
    expect(&f, WNW_E_FORMAT, "no token for byte <0xFF>");
    /* A byte is also spelt by itself. */
    f = test_gguf_copy_of(spm);
    set_token(&f, 6 + 'Q', "Q");
    types[6 + 0xff] = 6;
    types[6 + 'Q'] = normal;
    gguf_set_arr_data(f.file.g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, N_VOCAB);
    expect(&f, WNW_OK, "");
    f = test_gguf_copy_of(spm);
    set_token(&f, 6 + 'Q', "<");
    expect(&f, WNW_E_FORMAT, "is no byte");
}

static void wrong_lists(void **state)
{
    (void)state;
    static float scores[N_VOCAB];
    static int32_t types[N_VOCAB];
    const char *one[] = {"a"};
    struct test_gguf_copy f = test_gguf_copy_of(spm);
    gguf_set_arr_data(f.file.g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, N_VOCAB - 1);
    expect(&f, WNW_E_FORMAT, "319 entries for 320 tokens");
    f = test_gguf_copy_of(spm);
    scores[7] = NAN;
    gguf_set_arr_data(f.file.g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, N_VOCAB);
    expect(&f, WNW_E_FORMAT, "number 7 is not a number");
    f = test_gguf_copy_of(spm);
    gguf_set_arr_str(f.file.g, "tokenizer.ggml.scores", one, 1);
    expect(&f, WNW_E_FORMAT, "scores");
    f = test_gguf_copy_of(bpe);
    gguf_set_arr_data(f.file.g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, 3);
    expect(&f, WNW_E_FORMAT, "3 entries for 320 tokens");
    f = test_gguf_copy_of(bpe);
    gguf_set_arr_data(f.file.g, "tokenizer.ggml.token_type", GGUF_TYPE_UINT8, types, N_VOCAB);
    expect(&f, WNW_E_FORMAT, "token_type");
    f = test_gguf_copy_of(bpe);
    gguf_set_val_str(f.file.g, "tokenizer.ggml.merges", "a b");
    expect(&f, WNW_E_FORMAT, "merges is not a list");
    f = test_gguf_copy_of(bpe);
    gguf_remove_key(f.file.g, "tokenizer.ggml.merges");
    expect(&f, WNW_E_FORMAT, "merges");
    f = test_gguf_copy_of(bpe);
    gguf_set_arr_data(f.file.g, tokens_key, GGUF_TYPE_INT32, types, N_VOCAB);
    expect(&f, WNW_E_FORMAT, "no list of texts");
    f = test_gguf_copy_of(bpe);
    gguf_set_arr_str(f.file.g, tokens_key, one, 0);
    expect(&f, WNW_E_FORMAT, "no list of texts");
}

static void ids_out_of_range(void **state)
{
    (void)state;
    static const char *const roles[] = {"bos", "eos", "eot", "eom", "unknown", "padding"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", roles[i]);
        struct test_gguf_copy f = test_gguf_copy_of(bpe);
        gguf_set_val_u32(f.file.g, key, N_VOCAB);
        expect(&f, WNW_E_FORMAT, key);
        f = test_gguf_copy_of(bpe);
        gguf_set_val_str(f.file.g, key, "1");
        expect(&f, WNW_E_FORMAT, key);
        f = test_gguf_copy_of(bpe);
        gguf_set_val_u32(f.file.g, key, N_VOCAB - 1);
        expect(&f, WNW_OK, "");
    }
    /* libllama: GGML_ASSERT when a BOS is to be added and there is none. */
    struct test_gguf_copy f = test_gguf_copy_of(bpe);
    gguf_set_val_u32(f.file.g, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    expect(&f, WNW_OK, "");
}

static void other_tokenizers(void **state)
{
    (void)state;
    static const char *const names[] = {"bert",      "t5",         "rwkv", "plamo2", "test",
                                        "hybriddna", "whitespace", "",     "x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct test_gguf_copy f = test_gguf_copy_of(spm);
        gguf_set_val_str(f.file.g, "tokenizer.ggml.model", names[i]);
        expect(&f, WNW_E_UNSUPPORTED, "gpt2 and llama are");
    }
    struct test_gguf_copy f = test_gguf_copy_of(bpe);
    gguf_set_val_u32(f.file.g, "tokenizer.ggml.model", 1);
    expect(&f, WNW_E_FORMAT, "tokenizer.ggml.model");
    /* No vocabulary at all is fine, for token ids; libllama would make up as many tokens as are asked for. */
    f = test_gguf_copy_of(bpe);
    gguf_set_val_str(f.file.g, "tokenizer.ggml.model", "none");
    expect(&f, WNW_E_UNSUPPORTED, "no tokenizer");
    f = test_gguf_copy_of(bpe);
    gguf_set_val_str(f.file.g, "tokenizer.ggml.model", "none");
    gguf_set_val_u32(f.file.g, "llama.vocab_size", 2000000000);
    expect(&f, WNW_E_FORMAT, "vocab_size");
}

/* Sets an array of numbers of four bytes to its first n. */
static void shorten(struct test_gguf_copy *f, const char *key, enum gguf_type type, size_t n)
{
    uint32_t numbers[N_VOCAB];
    const int64_t id = gguf_find_key(f->file.g, key);
    if (id < 0)
        return;
    memcpy(numbers, gguf_get_arr_data(f->file.g, id), n * sizeof *numbers);
    gguf_set_arr_data(f->file.g, key, type, numbers, n);
}

/* All logits after a few tokens, which the caller releases; *n: how many. */
static float *logits_of(const char *path, int32_t *n)
{
    static const int32_t tokens[] = {7, 100, 250, 31};
    wnw_model_info info = wnw_model_info_default();
    wnw_model *m;
    wnw_session *s;
    assert_ok(wnw_model_open(&m, path, NULL));
    assert_ok(wnw_model_get_info(m, &info));
    assert_ok(wnw_session_new(&s, m, NULL));
    assert_error(wnw_session_prefill(s, &info.n_vocab, 1, NULL, NULL), WNW_E_RANGE);
    assert_ok(wnw_session_prefill(s, tokens, 4, NULL, NULL));
    float *copy = malloc((size_t)info.n_vocab * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, wnw_session_logits(s), (size_t)info.n_vocab * sizeof *copy);
    *n = info.n_vocab;
    wnw_session_free(s);
    wnw_model_free(m);
    return copy;
}

/* Rows of embeddings after the last token fill up a matrix. They are no tokens: nothing generates them, and all others have the same
 * logits. */
static void padded_rows(void **state)
{
    (void)state;
    enum { N = 303 };
    static const char *const models[] = {bpe, spm};
    for (int i = 0; i < 2; i++) {
        struct test_gguf_copy f = test_gguf_copy_of(models[i]);
        const char *names[N];
        char *copies[N];
        const int64_t id = gguf_find_key(f.file.g, tokens_key);
        for (size_t k = 0; k < N; k++)
            names[k] = copies[k] = strdup(gguf_get_arr_str(f.file.g, id, k));
        test_gguf_copy_write(&f);
        int32_t n_whole, n;
        float *whole = logits_of(f.path, &n_whole);
        test_gguf_copy_remove(&f);
        f = test_gguf_copy_of(models[i]);
        gguf_set_arr_str(f.file.g, tokens_key, names, N);
        shorten(&f, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, N);
        shorten(&f, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, N);
        test_gguf_copy_write(&f);
        float *padded = logits_of(f.path, &n);
        test_gguf_copy_remove(&f);
        assert_int_equal(n_whole, N_VOCAB);
        assert_int_equal(n, N);
        assert_memory_equal(whole, padded, N * sizeof *padded);
        for (size_t k = 0; k < N; k++)
            free(copies[k]);
        free(whole);
        free(padded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intact),           cmocka_unit_test(twice),
        cmocka_unit_test(without_a_byte),   cmocka_unit_test(wrong_lists),
        cmocka_unit_test(ids_out_of_range), cmocka_unit_test(other_tokenizers),
        cmocka_unit_test(padded_rows),
    };
    return cmocka_run_group_tests_name("damaged vocabularies", tests, NULL, NULL);
}
