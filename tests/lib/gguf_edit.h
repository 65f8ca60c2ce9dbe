/* SPDX-License-Identifier: MIT */
/* GGUF files with changes: a file is read whole, keys and tensors are changed, and it is written elsewhere, in one piece or in
 * parts. */
#ifndef WNW_TESTS_GGUF_EDIT_H
#define WNW_TESTS_GGUF_EDIT_H

#include "asserts.h"

#include <ggml.h>
#include <gguf.h>

struct test_gguf {
    struct gguf_context *g;      /* its keys, to be changed with gguf_set_* and gguf_remove_key */
    struct ggml_context *read;   /* the file's tensors */
    struct ggml_context **added; /* [n_added], each with a tensor that was added or put in place of another */
    int32_t n_added, n_tensor;
    struct ggml_tensor **tensor; /* [n_tensor], in the file's order; ownership is the contexts' */
};

void test_gguf_read(struct test_gguf *f, const char *path);
void test_gguf_free(struct test_gguf *f);

/* Where the tensor of that name is in f->tensor; -1 = nowhere. */
int32_t test_gguf_find(const struct test_gguf *f, const char *name);
/* The tensor of that name; NULL = there is none. */
struct ggml_tensor *test_gguf_tensor(const struct test_gguf *f, const char *name);
/* A new float32 tensor [ne0, ne1] of random numbers around `mean`. */
void test_gguf_add(struct test_gguf *f, const char *name, int64_t ne0, int64_t ne1, float mean, float spread);
void test_gguf_remove(struct test_gguf *f, int32_t i);
/* Puts a tensor of zero bytes in place of tensor i, with its name and shape and any type whose blocks divide its rows. Returns it;
 * what it replaces stays readable. */
struct ggml_tensor *test_gguf_replace(struct test_gguf *f, int32_t i, enum ggml_type type);
/* Puts another type in place of a float32 tensor's. */
void test_gguf_quantize(struct test_gguf *f, int32_t i, enum ggml_type type);
/* Puts float32 in place of any type. */
void test_gguf_float32(struct test_gguf *f, int32_t i);

/* The value of an integer key of the architecture (".block_count"); def where it is absent. */
uint32_t test_gguf_u32(const struct test_gguf *f, const char *suffix, uint32_t def);

void test_gguf_write(const struct test_gguf *f, const char *path);
/* Writes STEM-00001-of-0000N.gguf and so on. Part i gets tensors first[i] to first[i + 1] - 1; first[n_part] is n_tensor. */
void test_gguf_write_parts(const struct test_gguf *f, const char *stem, int32_t n_part, const int32_t *first);
/* The path of part i of such a model. */
void test_gguf_part_path(char *out, size_t cap, const char *stem, int32_t i, int32_t n_part);

#endif
