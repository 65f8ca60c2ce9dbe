/* SPDX-License-Identifier: MIT */
#include "gguf_files.h"

#include "asserts.h"
#include "models.h"

#include <ggml.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct test_gguf test_gguf_load(const char *name)
{
    struct test_gguf f = {.path = "/tmp/winnow-test-XXXXXX"};
    char source[4096];
    test_model_path(source, sizeof source, name);
    struct gguf_context *src = gguf_init_from_file(source, (struct gguf_init_params){.ctx = &f.tensors});
    f.gguf = gguf_init_empty();
    assert_non_null(src);
    assert_non_null(f.gguf);
    assert_non_null(f.tensors);
    gguf_set_kv(f.gguf, src);
    for (int64_t i = 0; i < gguf_get_n_tensors(src); i++)
        gguf_add_tensor(f.gguf, ggml_get_tensor(f.tensors, gguf_get_tensor_name(src, i)));
    gguf_free(src);
    const int fd = mkstemp(f.path);
    assert_cmp(fd, >=, 0);
    close(fd);
    return f;
}

void test_gguf_set_token(struct test_gguf *f, int at, const char *text, int type)
{
    static const char key[] = "tokenizer.ggml.tokens", types_key[] = "tokenizer.ggml.token_type";
    const int64_t id = gguf_find_key(f->gguf, key), types_id = gguf_find_key(f->gguf, types_key);
    const size_t n = gguf_get_arr_n(f->gguf, id);
    assert_cmp((size_t)at, <, n);
    const char **tokens = calloc(n, sizeof *tokens);
    char **copies = calloc(n, sizeof *copies);
    int32_t *types = calloc(n, sizeof *types);
    assert_true(tokens && copies && types);
    for (size_t i = 0; i < n; i++)
        tokens[i] = copies[i] = strdup(i == (size_t)at ? text : gguf_get_arr_str(f->gguf, id, i));
    memcpy(types, gguf_get_arr_data(f->gguf, types_id), n * sizeof *types);
    if (type >= 0)
        types[at] = type;
    gguf_set_arr_str(f->gguf, key, tokens, n);
    gguf_set_arr_data(f->gguf, types_key, GGUF_TYPE_INT32, types, n);
    for (size_t i = 0; i < n; i++)
        free(copies[i]);
    free(copies);
    free((void *)tokens);
    free(types);
}

void test_gguf_write(struct test_gguf *f)
{
    assert_true(gguf_write_to_file(f->gguf, f->path, false));
}

void test_gguf_clear(struct test_gguf *f)
{
    unlink(f->path);
    gguf_free(f->gguf);
    ggml_free(f->tensors);
}
