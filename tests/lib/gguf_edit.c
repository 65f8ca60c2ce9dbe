/* SPDX-License-Identifier: MIT */
#include "gguf_edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

void test_gguf_read(struct test_gguf *f, const char *path)
{
    *f = (struct test_gguf){0};
    f->g = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = false, .ctx = &f->read});
    if (!f->g)
        fail_msg("cannot read %s", path);
    f->n_tensor = (int32_t)gguf_get_n_tensors(f->g);
    f->tensor = calloc((size_t)f->n_tensor + 1, sizeof *f->tensor);
    assert_non_null(f->tensor);
    /* In the file's order, after one of all data. To find each by its name takes as many steps as there are before it. */
    int32_t n = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(f->read); t; t = ggml_get_next_tensor(f->read, t))
        if (n < f->n_tensor && strcmp(t->name, gguf_get_tensor_name(f->g, n)) == 0)
            f->tensor[n++] = t;
    assert_int_equal(n, f->n_tensor);
}

void test_gguf_free(struct test_gguf *f)
{
    ggml_free(f->read);
    for (int32_t i = 0; i < f->n_added; i++)
        ggml_free(f->added[i]);
    free(f->added);
    gguf_free(f->g);
    free(f->tensor);
    *f = (struct test_gguf){0};
}

int32_t test_gguf_find(const struct test_gguf *f, const char *name)
{
    for (int32_t i = 0; i < f->n_tensor; i++)
        if (strcmp(f->tensor[i]->name, name) == 0)
            return i;
    return -1;
}

struct ggml_tensor *test_gguf_tensor(const struct test_gguf *f, const char *name)
{
    const int32_t i = test_gguf_find(f, name);
    return i < 0 ? NULL : f->tensor[i];
}

/* A tensor of zero bytes. Each has memory of its own, as there is no bound on what a test adds. */
static struct ggml_tensor *new_tensor(struct test_gguf *f, const char *name, enum ggml_type type,
                                      const int64_t *ne)
{
    const size_t bytes = ggml_row_size(type, ne[0]) * (size_t)(ne[1] * ne[2] * ne[3]);
    f->added = realloc(f->added, (size_t)(f->n_added + 1) * sizeof(struct ggml_context *));
    assert_non_null(f->added);
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){.mem_size = ggml_tensor_overhead() + bytes + GGML_MEM_ALIGN});
    assert_non_null(ctx);
    f->added[f->n_added++] = ctx;
    struct ggml_tensor *t = ggml_new_tensor(ctx, type, GGML_MAX_DIMS, ne);
    ggml_set_name(t, name);
    memset(t->data, 0, bytes);
    return t;
}

void test_gguf_add(struct test_gguf *f, const char *name, int64_t ne0, int64_t ne1, float mean, float spread)
{
    struct ggml_tensor *t =
        new_tensor(f, name, GGML_TYPE_F32, (const int64_t[GGML_MAX_DIMS]){ne0, ne1, 1, 1});
    assert_cmp(test_gguf_find(f, name), <, 0);
    uint32_t state = (uint32_t)f->n_tensor;
    for (int64_t i = 0; i < ne0 * ne1; i++)
        ((float *)t->data)[i] = mean + spread * (float)test_normal(&state);
    f->tensor = realloc(f->tensor, (size_t)(f->n_tensor + 1) * sizeof(struct ggml_tensor *));
    assert_non_null(f->tensor);
    f->tensor[f->n_tensor++] = t;
}

void test_gguf_remove(struct test_gguf *f, int32_t i)
{
    memmove(f->tensor + i, f->tensor + i + 1, (size_t)(--f->n_tensor - i) * sizeof(struct ggml_tensor *));
}

struct ggml_tensor *test_gguf_replace(struct test_gguf *f, int32_t i, enum ggml_type type)
{
    assert_in_range(i, 0, f->n_tensor - 1);
    return f->tensor[i] = new_tensor(f, f->tensor[i]->name, type, f->tensor[i]->ne);
}

void test_gguf_quantize(struct test_gguf *f, int32_t i, enum ggml_type type)
{
    const struct ggml_tensor *from = f->tensor[i];
    assert_int_equal(from->type, GGML_TYPE_F32);
    ggml_quantize_chunk(type, from->data, test_gguf_replace(f, i, type)->data, 0, ggml_nrows(from),
                        from->ne[0], NULL);
}

void test_gguf_float32(struct test_gguf *f, int32_t i)
{
    const struct ggml_tensor *from = f->tensor[i];
    if (from->type != GGML_TYPE_F32)
        ggml_get_type_traits(from->type)
            ->to_float(from->data, test_gguf_replace(f, i, GGML_TYPE_F32)->data, ggml_nelements(from));
}

uint32_t test_gguf_u32(const struct test_gguf *f, const char *suffix, uint32_t def)
{
    char key[128];
    const int64_t arch = gguf_find_key(f->g, "general.architecture");
    snprintf(key, sizeof key, "%s%s", gguf_get_val_str(f->g, arch), suffix);
    const int64_t id = gguf_find_key(f->g, key);
    return id < 0 ? def : gguf_get_val_u32(f->g, id);
}

void test_gguf_write(const struct test_gguf *f, const char *path)
{
    struct gguf_context *out = gguf_init_empty();
    gguf_set_kv(out, f->g);
    for (int32_t i = 0; i < f->n_tensor; i++)
        gguf_add_tensor(out, f->tensor[i]);
    if (!gguf_write_to_file(out, path, false))
        fail_msg("cannot write %s", path);
    gguf_free(out);
}

void test_gguf_part_path(char *out, size_t cap, const char *stem, int32_t i, int32_t n_part)
{
    const int n = snprintf(out, cap, "%s-%05d-of-%05d.gguf", stem, (int)i + 1, (int)n_part);
    assert_in_range(n, 1, cap - 1);
}

void test_gguf_write_parts(const struct test_gguf *f, const char *stem, int32_t n_part, const int32_t *first)
{
    char path[4096];
    for (int32_t p = 0; p < n_part; p++) {
        struct gguf_context *out = gguf_init_empty();
        if (p == 0)
            gguf_set_kv(out, f->g);
        gguf_set_val_u16(out, "split.no", (uint16_t)p);
        gguf_set_val_u16(out, "split.count", (uint16_t)n_part);
        gguf_set_val_i32(out, "split.tensors.count", f->n_tensor);
        for (int32_t i = first[p]; i < first[p + 1]; i++)
            gguf_add_tensor(out, f->tensor[i]);
        test_gguf_part_path(path, sizeof path, stem, p, n_part);
        if (!gguf_write_to_file(out, path, false))
            fail_msg("cannot write %s", path);
        gguf_free(out);
    }
}
