/* SPDX-License-Identifier: MIT */
#include "models.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "gguf_edit.h"
#include "random.h"

/* Tests run in the top folder of the source tree unless the build says where the data is. */
#ifndef WNW_TEST_GOLDEN_DIR
#define WNW_TEST_GOLDEN_DIR "tests/golden"
#endif

static void models_dir(char *out, size_t cap)
{
    const char *cache = getenv("WINNOW_CACHE");
    const char *home = getenv("HOME");
    if (cache && cache[0])
        snprintf(out, cap, "%s/models", cache);
    else
        snprintf(out, cap, "%s/.cache/winnow/models", home ? home : "");
}

static const char *maker_of(const char *name)
{
    if (strncmp(name, "tiny", 4) == 0)
        return "scripts/make_tiny_models.py";
    return strstr(name, "-f32") ? "scripts/dequantize_gguf.py" : "the model script in scripts/";
}

bool test_has_model(char *out, size_t cap, const char *name)
{
    char dir[2048];
    models_dir(dir, sizeof dir);
    const int n = snprintf(out, cap, "%s/%s", dir, name);
    assert_cmp(n, >, 0);
    assert_cmp((size_t)n, <, cap);
    return access(out, R_OK) == 0;
}

void test_model_path(char *out, size_t cap, const char *name)
{
    if (!test_has_model(out, cap, name))
        fail_msg("%s is missing: run `make test`, which makes it with %s", out, maker_of(name));
}

wnw_model *test_model_open(const char *name)
{
    char path[4096];
    test_model_path(path, sizeof path, name);
    wnw_model *m = NULL;
    assert_ok(wnw_model_open(&m, path, NULL));
    assert_non_null(m);
    return m;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

int test_tiny_models(char (*names)[TEST_NAME_MAX], int cap)
{
    char dir[2048], path[2080];
    models_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/tiny", dir);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e = NULL; d && (e = readdir(d)) != NULL;) {
        const size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".gguf") != 0)
            continue;
        assert_cmp(n, <, cap);
        assert_cmp(len + 6, <=, TEST_NAME_MAX);
        snprintf(names[n++], TEST_NAME_MAX, "tiny/%.80s", e->d_name);
    }
    if (d)
        closedir(d);
    if (n == 0)
        fail_msg("no models in %s: run `make test`, which makes them with %s", path, maker_of("tiny"));
    qsort(names, (size_t)n, sizeof names[0], by_name);
    return n;
}

static struct gguf_context *open_gguf(const char *path)
{
    struct gguf_context *g = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    assert_non_null(g);
    return g;
}

static bool all_of(const struct gguf_context *g, enum ggml_type a, enum ggml_type b)
{
    bool all = true;
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++)
        all = all && (gguf_get_tensor_type(g, i) == a || gguf_get_tensor_type(g, i) == b);
    return all;
}

bool test_all_float(const char *path)
{
    struct gguf_context *g = open_gguf(path);
    const bool all = all_of(g, GGML_TYPE_F32, GGML_TYPE_F16);
    gguf_free(g);
    return all;
}

void test_float32_copy(char *out, size_t cap, const char *name)
{
    char path[4096];
    struct test_gguf f;
    const char *folder = getenv("TMPDIR");
    test_model_path(path, sizeof path, name);
    test_gguf_read(&f, path);
    for (int32_t i = 0; i < f.n_tensor; i++)
        test_gguf_float32(&f, i);
    snprintf(out, cap, "%s/winnow-float32-XXXXXX", folder && folder[0] ? folder : "/tmp");
    test_file_new(out);
    test_gguf_write(&f, out);
    test_gguf_free(&f);
}

/* KV heads of a model of that architecture whose weights are all float32; 0 for any other. Of the file only its header is read: most
 * tests ask this of every tiny model. */
static int32_t heads_of(const char *path, const char *arch)
{
    struct gguf_context *g = open_gguf(path);
    char name[128];
    const int64_t is = gguf_find_key(g, "general.architecture");
    snprintf(name, sizeof name, "%.80s.attention.head_count_kv", arch);
    const int64_t heads = gguf_find_key(g, name);
    const bool right = is >= 0 && heads >= 0 && strcmp(gguf_get_val_str(g, is), arch) == 0 &&
                       all_of(g, GGML_TYPE_F32, GGML_TYPE_F32);
    const int32_t n = right ? (int32_t)gguf_get_val_u32(g, heads) : 0;
    gguf_free(g);
    return n;
}

void test_tiny_model_of(char name[TEST_NAME_MAX], const char *arch)
{
    char names[TEST_TINY_MAX][TEST_NAME_MAX], path[4096];
    const int n = test_tiny_models(names, TEST_TINY_MAX);
    int32_t best = 0;
    for (int i = 0; i < n; i++) {
        test_model_path(path, sizeof path, names[i]);
        const int32_t heads = heads_of(path, arch);
        if (heads > best)
            memcpy(name, names[i], TEST_NAME_MAX);
        best = heads > best ? heads : best;
    }
    if (best == 0)
        fail_msg("no tiny model of architecture %s with float32 weights: see %s", arch, maker_of("tiny"));
}

void test_open(struct test_model *t, const char *name, int32_t n_tokens, uint64_t seed)
{
    *t = (struct test_model){.m = test_model_open(name)};
    t->info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(t->m, &t->info));
    t->tokens = test_random_tokens(n_tokens, t->info.n_vocab, seed);
}

wnw_model *test_tiny_open(const char *arch)
{
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, arch);
    return test_model_open(name);
}

void test_open_tiny(struct test_model *t, const char *arch, int32_t n_tokens, uint64_t seed)
{
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, arch);
    test_open(t, name, n_tokens, seed);
}

void test_close(struct test_model *t)
{
    free(t->tokens);
    wnw_model_free(t->m);
    *t = (struct test_model){0};
}

int test_set_up(void **state, struct test_model *t, const char *name, int32_t n_tokens, uint64_t seed)
{
    test_open(t, name, n_tokens, seed);
    *state = t;
    return 0;
}

int test_set_up_tiny(void **state, struct test_model *t, const char *arch, int32_t n_tokens, uint64_t seed)
{
    test_open_tiny(t, arch, n_tokens, seed);
    *state = t;
    return 0;
}

int test_tear_down(void **state)
{
    test_close(*state);
    return 0;
}

void test_golden_path(char *out, size_t cap, const char *name)
{
    const int n = snprintf(out, cap, "%s/%s", WNW_TEST_GOLDEN_DIR, name);
    assert_cmp(n, >, 0);
    assert_cmp((size_t)n, <, cap);
}

int32_t *test_golden_tokens(int32_t *n)
{
    char path[4096];
    test_golden_path(path, sizeof path, "tokens.txt");
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot open %s: run the tests from the top folder of the source tree", path);
    int32_t *ids = NULL, cap = 0;
    *n = 0;
    for (long id = 0; fscanf(f, "%ld", &id) == 1;) {
        if (*n == cap) {
            cap = cap ? cap * 2 : 1024;
            ids = realloc(ids, (size_t)cap * sizeof *ids);
            assert_non_null(ids);
        }
        ids[(*n)++] = (int32_t)id;
    }
    fclose(f);
    assert_cmp(*n, >, 0);
    return ids;
}
