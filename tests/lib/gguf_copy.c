/* SPDX-License-Identifier: MIT */
#include "gguf_copy.h"

#include "files.h"
#include "models.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct test_gguf_copy test_gguf_copy_of(const char *name)
{
    struct test_gguf_copy c = {.path = "/tmp/winnow-test-XXXXXX"};
    char source[4096];
    test_model_path(source, sizeof source, name);
    test_gguf_read(&c.file, source);
    test_file_new(c.path);
    return c;
}

void test_gguf_copy_token(struct test_gguf_copy *c, int at, const char *text, int type)
{
    static const char key[] = "tokenizer.ggml.tokens", types_key[] = "tokenizer.ggml.token_type";
    const int64_t id = gguf_find_key(c->file.g, key), types_id = gguf_find_key(c->file.g, types_key);
    const size_t n = gguf_get_arr_n(c->file.g, id);
    assert_cmp((size_t)at, <, n);
    const char **tokens = calloc(n, sizeof *tokens);
    char **copies = calloc(n, sizeof *copies);
    int32_t *types = calloc(n, sizeof *types);
    assert_true(tokens && copies && types);
    for (size_t i = 0; i < n; i++)
        tokens[i] = copies[i] = strdup(i == (size_t)at ? text : gguf_get_arr_str(c->file.g, id, i));
    memcpy(types, gguf_get_arr_data(c->file.g, types_id), n * sizeof *types);
    if (type >= 0)
        types[at] = type;
    gguf_set_arr_str(c->file.g, key, tokens, n);
    gguf_set_arr_data(c->file.g, types_key, GGUF_TYPE_INT32, types, n);
    for (size_t i = 0; i < n; i++)
        free(copies[i]);
    free(copies);
    free((void *)tokens);
    free(types);
}

void test_gguf_copy_write(const struct test_gguf_copy *c)
{
    test_gguf_write(&c->file, c->path);
}

void test_gguf_copy_remove(struct test_gguf_copy *c)
{
    unlink(c->path);
    test_gguf_free(&c->file);
}
