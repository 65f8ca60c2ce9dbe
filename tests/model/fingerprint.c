/* SPDX-License-Identifier: MIT */
/* The fingerprint names what decides a model's numbers and tokens, and no files, machines or memory layouts. */
#include "files.h"
#include "gguf_edit.h"
#include "helpers.h"
#include "winnow_store.h"
#include "winnow_tools.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_MODELS = 48 };

/* Families that libllama computes, or that nobody here does: the file decides, and not who reads it. */
static const char *const foreign[] = {"gemma3n", "gemma4", "gemma4-heads", "lfm2",    "llama4",
                                      "mamba",   "olmo2",  "bert",         "openelm", "phi3"};

struct models {
    char name[MOST_MODELS][TEST_NAME_MAX];
    int n;
};

static void find_models(struct models *all)
{
    all->n = test_tiny_models(all->name, TEST_TINY_MAX);
    assert_cmp(all->n, >=, 2);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        snprintf(all->name[all->n++], TEST_NAME_MAX, "tiny/foreign/%s.gguf", foreign[i]);
}

static void print_of(char out[WNW_FINGERPRINT_SIZE], const char *path)
{
    assert_ok(wnw_file_fingerprint(path, NULL, out));
    assert_int_equal(strlen(out), WNW_FINGERPRINT_SIZE - 1);
    assert_int_equal(strspn(out, "0123456789abcdef"), WNW_FINGERPRINT_SIZE - 1);
}

/* What a changed copy must be. */
static void compare(const char *before, const char *path, bool same, const char *model, const char *what,
                    const char *of)
{
    char after[WNW_FINGERPRINT_SIZE];
    print_of(after, path);
    if ((strcmp(before, after) == 0) != same)
        fail_msg("%s: %s %s: the fingerprint is %s", model, what, of, same ? "another" : "the same");
}

/* ---- Models ---- */

static void stable_and_different(void **state)
{
    (void)state;
    struct models all;
    char prints[MOST_MODELS][WNW_FINGERPRINT_SIZE], again[WNW_FINGERPRINT_SIZE], path[4096];
    find_models(&all);
    for (int i = 0; i < all.n; i++) {
        test_model_path(path, sizeof path, all.name[i]);
        print_of(prints[i], path);
        print_of(again, path);
        assert_string_equal(prints[i], again);
        for (int j = 0; j < i; j++)
            if (strcmp(prints[i], prints[j]) == 0)
                fail_msg("%s and %s have the same fingerprint", all.name[i], all.name[j]);
    }
}

/* Of an open model, with weights repacked and not, it is that of its file. */
static void repacking_does_not_matter(void **state)
{
    (void)state;
    char names[TEST_TINY_MAX][TEST_NAME_MAX], path[4096], open[WNW_FINGERPRINT_SIZE],
        file[WNW_FINGERPRINT_SIZE];
    const int n = test_tiny_models(names, TEST_TINY_MAX);
    uint64_t repacked = 0;
    for (int i = 0; i < n; i++) {
        test_model_path(path, sizeof path, names[i]);
        print_of(file, path);
        for (int repack = 0; repack < 2; repack++) {
            wnw_model *m;
            wnw_model_info info = {WNW_INIT(wnw_model_info)};
            assert_ok(
                wnw_model_open(&m, path, &(wnw_model_params){WNW_INIT(wnw_model_params), .repack = repack}));
            assert_ok(wnw_model_get_info(m, &info));
            repacked += info.repacked_bytes;
            wnw_model_fingerprint(m, open);
            assert_string_equal(open, file);
            wnw_model_fingerprint(m, open);
            assert_string_equal(open, file);
            wnw_model_free(m);
        }
    }
    if (repacked == 0)
        print_message("note: no tiny model has weights that this CPU repacks\n");
}

/* Embeddings after those of the vocabulary's tokens are cut off when a model is opened, and not in its file. */
static void padding_of_the_vocabulary(void **state)
{
    (void)state;
    struct test_gguf f;
    char name[TEST_NAME_MAX], path[4096], copy[] = "/tmp/winnow-fingerprint-XXXXXX",
                                          open[WNW_FINGERPRINT_SIZE];
    wnw_model *m;
    test_tiny_model_of(name, "llama");
    test_model_path(path, sizeof path, name);
    test_gguf_read(&f, path);
    for (int i = 0; i < 2; i++) {
        const int32_t at = test_gguf_find(&f, i ? "output.weight" : "token_embd.weight");
        if (at < 0)
            continue;
        const struct ggml_tensor *t = f.tensor[at];
        const int64_t ne0 = t->ne[0], ne1 = t->ne[1];
        char of[GGML_MAX_NAME];
        snprintf(of, sizeof of, "%s", t->name);
        test_gguf_remove(&f, at);
        test_gguf_add(&f, of, ne0, ne1 + 32, 0, 1);
    }
    test_file_new(copy);
    test_gguf_write(&f, copy);
    assert_ok(wnw_model_open(&m, copy, NULL));
    wnw_model_fingerprint(m, open);
    compare(open, copy, true, name, "with", "padding");
    wnw_model_free(m);
    test_gguf_free(&f);
    unlink(copy);
}

static void *ask(void *out)
{
    wnw_model_fingerprint(((void **)out)[0], ((void **)out)[1]);
    return NULL;
}

static void threads_ask_at_once(void **state)
{
    (void)state;
    enum { N = 8 };
    char text[N][WNW_FINGERPRINT_SIZE], name[TEST_NAME_MAX], path[4096];
    pthread_t thread[N];
    void *arg[N][2];
    test_tiny_model_of(name, "llama");
    test_model_path(path, sizeof path, name);
    for (int round = 0; round < 4; round++) {
        wnw_model *m = test_model_open(name);
        for (int i = 0; i < N; i++) {
            arg[i][0] = m;
            arg[i][1] = text[i];
            assert_int_equal(pthread_create(&thread[i], NULL, ask, arg[i]), 0);
        }
        for (int i = 0; i < N; i++) {
            pthread_join(thread[i], NULL);
            assert_string_equal(text[i], text[0]);
        }
        compare(text[0], path, true, name, "asked by", "threads");
        wnw_model_free(m);
    }
}

/* ---- Keys ---- */

/* All that may be changed without a change of a number or a token. */
static bool is_remark(const char *key)
{
    static const char *const exact[] = {
        "general.name",     "general.basename",     "general.finetune", "general.size_label",
        "general.version",  "general.organization", "general.author",   "general.description",
        "general.license",  "general.quantized_by", "general.url",      "general.doi",
        "general.uuid",     "general.repo_url",     "general.tags",     "general.languages",
        "general.datasets", "general.file_type",    "general.alignment"};
    static const char *const prefixes[] = {"general.license.", "general.source.", "general.base_model.",
                                           "general.dataset.", "split.",          "quantize.imatrix."};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (strcmp(key, exact[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(key, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* Changes the lowest bit of the last element of a list. */
static void change_list(struct gguf_context *g, const char *key, int64_t id)
{
    const enum gguf_type type = gguf_get_arr_type(g, id);
    const size_t n = gguf_get_arr_n(g, id);
    if (type == GGUF_TYPE_STRING) {
        char **text = calloc(n + 1, sizeof *text);
        assert_non_null(text);
        for (size_t i = 0; i < n; i++) {
            const int len = asprintf(&text[i], "%s%s", gguf_get_arr_str(g, id, i), i + 1 == n ? "~" : "");
            assert_cmp(len, >=, 0);
        }
        gguf_set_arr_str(g, key, (const char **)text, n);
        for (size_t i = 0; i < n; i++)
            free(text[i]);
        free(text);
        return;
    }
    static const size_t size[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint8_t *copy = calloc(n + 1, size[type]);
    assert_non_null(copy);
    memcpy(copy, gguf_get_arr_data(g, id), n * size[type]);
    copy[n > 0 ? (n - 1) * size[type] : 0] ^= 1;
    gguf_set_arr_data(g, key, type, copy, n > 0 ? n : 1);
    free(copy);
}

/* Makes the smallest change to a key that its type has. */
static void change_key(struct gguf_context *g, const char *key)
{
    const int64_t id = gguf_find_key(g, key);
    char *text = NULL;
    switch (gguf_get_kv_type(g, id)) {
#define WNW_X(type, suffix, ctype)                      \
    case GGUF_TYPE_##type: {                            \
        ctype x;                                        \
        memcpy(&x, gguf_get_val_data(g, id), sizeof x); \
        *(uint8_t *)&x ^= 1;                            \
        gguf_set_val_##suffix(g, key, x);               \
        break;                                          \
    }
        WNW_X(UINT8, u8, uint8_t)
        WNW_X(INT8, i8, int8_t)
        WNW_X(UINT16, u16, uint16_t)
        WNW_X(INT16, i16, int16_t)
        WNW_X(UINT32, u32, uint32_t)
        WNW_X(INT32, i32, int32_t)
        WNW_X(UINT64, u64, uint64_t)
        WNW_X(INT64, i64, int64_t)
        WNW_X(FLOAT32, f32, float)
        WNW_X(FLOAT64, f64, double)
#undef WNW_X
    case GGUF_TYPE_BOOL:
        gguf_set_val_bool(g, key, !gguf_get_val_bool(g, id));
        break;
    case GGUF_TYPE_STRING:
        assert_cmp(asprintf(&text, "%s~", gguf_get_val_str(g, id)), >=, 0);
        gguf_set_val_str(g, key, text);
        free(text);
        break;
    case GGUF_TYPE_ARRAY:
        change_list(g, key, id);
        break;
    case GGUF_TYPE_COUNT:
        fail_msg("%s has no type", key);
    }
}

/* A copy of the model with its keys and the smallest of its tensors. */
static void read_keys(struct test_gguf *f, const char *path)
{
    test_gguf_read(f, path);
    int32_t least = 0;
    for (int32_t i = 0; i < f->n_tensor; i++)
        if (ggml_nbytes(f->tensor[i]) < ggml_nbytes(f->tensor[least]))
            least = i;
    f->tensor[0] = f->tensor[least];
    f->n_tensor = 1;
}

static void keys_of(const char *name)
{
    struct test_gguf f;
    char path[4096], copy[] = "/tmp/winnow-fingerprint-XXXXXX", before[WNW_FINGERPRINT_SIZE], key[256];
    test_model_path(path, sizeof path, name);
    test_file_new(copy);
    read_keys(&f, path);
    test_gguf_write(&f, copy);
    print_of(before, copy);
    const int64_t n = gguf_get_n_kv(f.g);
    test_gguf_free(&f);
    for (int64_t id = 0; id < n; id++)
        for (int removed = 0; removed < 2; removed++) {
            read_keys(&f, path);
            snprintf(key, sizeof key, "%s", gguf_get_key(f.g, id));
            if (removed)
                gguf_remove_key(f.g, key);
            else
                change_key(f.g, key);
            test_gguf_write(&f, copy);
            test_gguf_free(&f);
            /* Another type is another kind of file, and that a file which names no architecture is refused is another
             * test's matter. */
            if (strcmp(key, "general.type") != 0 && strcmp(key, "general.alignment") != 0)
                compare(before, copy, is_remark(key), name, removed ? "without" : "with another", key);
        }
    unlink(copy);
}

static void every_key_counts(void **state)
{
    (void)state;
    struct models all;
    find_models(&all);
    for (int i = 0; i < all.n; i++)
        keys_of(all.name[i]);
}

static void set_text(struct gguf_context *g, const char *key)
{
    gguf_set_val_str(g, key, "something else");
}
static void set_list(struct gguf_context *g, const char *key)
{
    gguf_set_arr_str(g, key, (const char *[]){"one", "two"}, 2);
}
static void set_number(struct gguf_context *g, const char *key)
{
    gguf_set_val_u32(g, key, 64);
}
static void set_name(struct gguf_context *g, const char *name)
{
    gguf_set_val_str(g, "general.name", name);
}

static const struct {
    void (*set)(struct gguf_context *g, const char *key);
    const char *key;
    bool same;
} additions[] = {
    {set_text, "general.name", true},
    {set_text, "general.description", true},
    {set_text, "general.author", true},
    {set_text, "general.url", true},
    {set_text, "general.license", true},
    {set_text, "general.license.link", true},
    {set_text, "general.quantized_by", true},
    {set_text, "general.source.huggingface.repository", true},
    {set_text, "general.base_model.0.name", true},
    {set_number, "general.base_model.count", true},
    {set_list, "general.tags", true},
    {set_list, "general.languages", true},
    {set_number, "general.file_type", true},
    {set_number, "general.alignment", true}, /* tensors lie elsewhere then */
    {set_number, "split.tensors.count", true},
    {set_text, "quantize.imatrix.file", true},
    /* libllama knows a model by its name and reads blanks otherwise. */
    {set_name, "Phi-3 mini", false},
    {set_name, "my-PHI3", false},
    {set_name, "modern-bert", false},
    /* Any unknown key may decide. */
    {set_text, "general.names", false},
    {set_text, "general.licenses", false},
    {set_number, "general.sampling.top_k", false},
    {set_number, "general.quantization_version", false},
    {set_number, "llama.expert_count", false},
    {set_number, "llama.rope.scaling.factor", false},
    {set_text, "tokenizer.chat_template", false},
    {set_text, "tokenizer.chat_template.tool_use", false},
    {set_text, "tokenizer.ggml.pre", false},
    {set_number, "tokenizer.ggml.padding_token_id", false},
    {set_list, "tokenizer.ggml.merges", false},
    {set_number, "a.new.key", false},
    {set_number, "splitting", false},
};

static void keys_that_are_added(void **state)
{
    (void)state;
    struct test_gguf f;
    char name[TEST_NAME_MAX], path[4096], copy[] = "/tmp/winnow-fingerprint-XXXXXX",
                                          before[WNW_FINGERPRINT_SIZE];
    test_tiny_model_of(name, "llama");
    test_model_path(path, sizeof path, name);
    print_of(before, path);
    test_file_new(copy);
    for (size_t i = 0; i < sizeof additions / sizeof *additions; i++) {
        test_gguf_read(&f, path);
        additions[i].set(f.g, additions[i].key);
        test_gguf_write(&f, copy);
        test_gguf_free(&f);
        compare(before, copy, additions[i].same, name, "with", additions[i].key);
    }
    unlink(copy);
}

/* The same number as another type, and one that moves from one key to another. */
static void types_and_names_of_keys(void **state)
{
    (void)state;
    struct test_gguf f;
    char name[TEST_NAME_MAX], path[4096], copy[] = "/tmp/winnow-fingerprint-XXXXXX",
                                          one[WNW_FINGERPRINT_SIZE];
    test_tiny_model_of(name, "llama");
    test_model_path(path, sizeof path, name);
    test_file_new(copy);
    test_gguf_read(&f, path);
    gguf_set_val_u32(f.g, "a.key", 7);
    gguf_set_val_u32(f.g, "b.key", 8);
    test_gguf_write(&f, copy);
    print_of(one, copy);
    gguf_set_val_i32(f.g, "a.key", 7);
    test_gguf_write(&f, copy);
    compare(one, copy, false, name, "another type of", "a.key");
    gguf_set_arr_data(f.g, "a.key", GGUF_TYPE_UINT32, (const uint32_t[]){7}, 1);
    test_gguf_write(&f, copy);
    compare(one, copy, false, name, "a list of", "a.key");
    gguf_set_val_u32(f.g, "a.key", 8);
    gguf_set_val_u32(f.g, "b.key", 7);
    test_gguf_write(&f, copy);
    compare(one, copy, false, name, "exchanged values of", "a.key and b.key");
    gguf_set_val_u32(f.g, "b.key", 8);
    gguf_set_val_u32(f.g, "a.key", 7); /* the keys are in another order now */
    test_gguf_write(&f, copy);
    compare(one, copy, true, name, "another order of", "a.key and b.key");
    /* Borders of texts count. */
    gguf_set_arr_str(f.g, "a.key", (const char *[]){"ab", "c"}, 2);
    test_gguf_write(&f, copy);
    print_of(one, copy);
    gguf_set_arr_str(f.g, "a.key", (const char *[]){"a", "bc"}, 2);
    test_gguf_write(&f, copy);
    compare(one, copy, false, name, "other borders in", "a.key");
    test_gguf_free(&f);
    unlink(copy);
}

/* ---- Tensors ---- */

/* A copy of a model's file that is changed in place and set back. */
struct patched {
    const char *name;
    char path[64], before[WNW_FINGERPRINT_SIZE];
    int fd;
};

static void open_patched(struct patched *p, const char *name, const char *path)
{
    char bytes[65536];
    *p = (struct patched){.name = name, .path = "/tmp/winnow-fingerprint-XXXXXX"};
    test_file_new(p->path);
    FILE *in = fopen(path, "rb"), *out = fopen(p->path, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    p->fd = open(p->path, O_RDWR | O_CLOEXEC);
    assert_cmp(p->fd, >=, 0);
    print_of(p->before, p->path);
}

static void close_patched(struct patched *p)
{
    char after[WNW_FINGERPRINT_SIZE];
    print_of(after, p->path);
    assert_string_equal(after, p->before); /* all changes were set back */
    close(p->fd);
    unlink(p->path);
}

/* Changes the bits of n bytes at a place, looks and sets them back. */
static void change_bytes(struct patched *p, size_t at, size_t n, const char *what, const char *of)
{
    uint8_t *was = malloc(n), *now = malloc(n);
    assert_non_null(was);
    assert_non_null(now);
    assert_int_equal(pread(p->fd, was, n, (off_t)at), n);
    for (size_t i = 0; i < n; i++)
        now[i] = was[i] ^ 1;
    assert_int_equal(pwrite(p->fd, now, n, (off_t)at), n);
    compare(p->before, p->path, false, p->name, what, of);
    assert_int_equal(pwrite(p->fd, was, n, (off_t)at), n);
    free(was);
    free(now);
}

static void tensors_of(const char *name)
{
    struct test_gguf f;
    struct patched p;
    char path[4096];
    uint32_t seed = 1;
    test_model_path(path, sizeof path, name);
    test_gguf_read(&f, path);
    open_patched(&p, name, path);
    for (int32_t i = 0; i < f.n_tensor; i++) {
        const struct ggml_tensor *t = f.tensor[i];
        const size_t at = gguf_get_data_offset(f.g) + gguf_get_tensor_offset(f.g, i), n = ggml_nbytes(t),
                     row = ggml_row_size(t->type, t->ne[0]), n_row = n / row;
        seed = seed * 1664525 + 1013904223;
        change_bytes(&p, at + seed % n, 1, "one bit of", t->name);
        change_bytes(&p, at + seed % n_row * row, row, "one row of", t->name);
        change_bytes(&p, at + n - 1, 1, "the last bit of", t->name);
        change_bytes(&p, at, n, "all of", t->name);
    }
    close_patched(&p);
    test_gguf_free(&f);
}

static void every_tensor_counts(void **state)
{
    (void)state;
    struct models all;
    find_models(&all);
    for (int i = 0; i < all.n; i++)
        tensors_of(all.name[i]);
}

/* Writes the model with its tensors as they are now. */
static void compare_edited(const char *before, const struct test_gguf *f, bool same, const char *name,
                           const char *what)
{
    char copy[] = "/tmp/winnow-fingerprint-XXXXXX";
    test_file_new(copy);
    test_gguf_write(f, copy);
    compare(before, copy, same, name, what, "");
    unlink(copy);
}

/* Writes the model with gaps between its tensors. ggml takes over the alignment of a file that it has read. */
static void aligned(const char *before, const struct test_gguf *f, const char *name)
{
    char copy[] = "/tmp/winnow-fingerprint-XXXXXX";
    struct gguf_context *g = gguf_init_empty();
    test_file_new(copy);
    gguf_set_val_u32(g, "general.alignment", 4096);
    assert_true(gguf_write_to_file(g, copy, false));
    gguf_free(g);
    g = gguf_init_from_file(copy, (struct gguf_init_params){.no_alloc = true});
    assert_non_null(g);
    gguf_set_kv(g, f->g);
    for (int32_t i = 0; i < f->n_tensor; i++)
        gguf_add_tensor(g, f->tensor[i]);
    assert_true(gguf_write_to_file(g, copy, false));
    gguf_free(g);
    compare(before, copy, true, name, "with gaps between tensors", "");
    unlink(copy);
}

static void headers_of_tensors(const char *name)
{
    struct test_gguf f;
    char path[4096], before[WNW_FINGERPRINT_SIZE];
    test_model_path(path, sizeof path, name);
    print_of(before, path);
    test_gguf_read(&f, path);
    const int32_t n = f.n_tensor;
    for (int32_t i = 0; i < n / 2; i++) {
        struct ggml_tensor *t = f.tensor[i];
        f.tensor[i] = f.tensor[n - 1 - i];
        f.tensor[n - 1 - i] = t;
    }
    compare_edited(before, &f, true, name, "another order of tensors");
    aligned(before, &f, name);
    struct ggml_tensor *t = f.tensor[n / 2], was = *t;
    ggml_format_name(t, "%.40s.new", was.name);
    compare_edited(before, &f, false, name, "a renamed tensor");
    *t = was;
    /* The same bytes in another shape. */
    for (int32_t i = 0; i < n; i++) {
        t = f.tensor[i];
        if (t->type != GGML_TYPE_F32 || t->ne[0] == t->ne[1] || t->ne[2] > 1)
            continue;
        was = *t;
        t->ne[0] = was.ne[1];
        t->ne[1] = was.ne[0];
        t->nb[1] = t->nb[0] * (size_t)t->ne[0];
        compare_edited(before, &f, false, name, "a transposed shape");
        *t = was;
        t->type = GGML_TYPE_I32;
        compare_edited(before, &f, false, name, "another type of the same bytes");
        *t = was;
        break;
    }
    /* Two tensors of the same shape that change places. */
    for (int32_t i = 1; i < n; i++) {
        struct ggml_tensor *a = f.tensor[i - 1], *b = NULL;
        for (int32_t k = i; k < n && !b; k++)
            if (ggml_are_same_shape(a, f.tensor[k]) && a->type == f.tensor[k]->type &&
                memcmp(a->data, f.tensor[k]->data, ggml_nbytes(a)) != 0)
                b = f.tensor[k];
        if (!b)
            continue;
        void *data = a->data;
        a->data = b->data;
        b->data = data;
        compare_edited(before, &f, false, name, "two tensors that changed places");
        break;
    }
    test_gguf_remove(&f, n / 2);
    compare_edited(before, &f, false, name, "without a tensor");
    test_gguf_free(&f);
}

static void names_shapes_and_places_of_tensors(void **state)
{
    (void)state;
    struct models all;
    find_models(&all);
    for (int i = 0; i < all.n; i++)
        headers_of_tensors(all.name[i]);
}

/* ---- Files that have none ---- */

static void what_is_no_model(void **state)
{
    (void)state;
    char out[WNW_FINGERPRINT_SIZE] = "x", path[] = "/tmp/winnow-fingerprint-XXXXXX", model[4096];
    struct test_gguf f;
    assert_int_equal(wnw_file_fingerprint(NULL, NULL, out), WNW_E_ARG);
    assert_int_equal(wnw_file_fingerprint("/nonexistent", NULL, out), WNW_E_IO);
    assert_string_equal(out, "");
    assert_int_equal(wnw_file_fingerprint("/nonexistent", NULL, NULL), WNW_E_ARG);
    test_file_of(path, "no model", 8);
    assert_int_equal(wnw_file_fingerprint(path, NULL, out), WNW_E_FORMAT);
    test_model_path(model, sizeof model, "tiny/tiny-llama.gguf");
    test_gguf_read(&f, model);
    test_gguf_write(&f, path);
    test_gguf_free(&f);
    assert_int_equal(truncate(path, 100000), 0);
    assert_int_equal(wnw_file_fingerprint(path, NULL, out), WNW_E_FORMAT);
    assert_string_equal(out, "");
    unlink(path);
    wnw_model_fingerprint(NULL, out);
    assert_string_equal(out, "");
}

/* ---- Digests that are kept (see unit_digests) ---- */

static void kept_digests_change_nothing(void **state)
{
    (void)state;
    char path[4096], without[WNW_FINGERPRINT_SIZE], with[WNW_FINGERPRINT_SIZE],
        dir[] = "/tmp/winnow-digests-XXXXXX", command[128];
    if (!test_has_model(path, sizeof path, "smollm2-135m.gguf"))
        skip();
    assert_non_null(mkdtemp(dir));
    print_of(without, path);
    for (int i = 0; i < 2; i++) {
        wnw_model_params params = wnw_model_default_params();
        params.digests = dir;
        assert_ok(wnw_file_fingerprint(path, &params, with));
        assert_string_equal(with, without);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* ---- Files that are overwritten while a model is open ---- */

/* Changes one byte of a file, or appends it. */
static void write_byte(const char *path, off_t at)
{
    const int fd = open(path, O_RDWR);
    char byte = 0;
    assert_true(fd >= 0);
    assert_true(pread(fd, &byte, 1, at) >= 0);
    byte = (char)(byte + 1);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t size_of_file(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void overwrite_within(const char *path)
{
    write_byte(path, size_of_file(path) - 1);
}

static void overwrite_longer(const char *path)
{
    write_byte(path, size_of_file(path));
}

static void replace(const char *path)
{
    char other[4200];
    snprintf(other, sizeof other, "%s.XXXXXX", path);
    test_file_of(other, "another file", 12);
    assert_int_equal(rename(other, path), 0);
}

static void take_away(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static const struct {
    const char *name;
    void (*act)(const char *path);
    bool kept;
} acts[] = {{"overwritten in the same size", overwrite_within, false},
            {"overwritten and longer", overwrite_longer, false},
            {"replaced by another file", replace, true},
            {"removed", take_away, true}};

/* The last of n_part files meets the act; one file where n_part is 1. */
static void overwritten(const struct test_gguf *f, int32_t n_part, size_t act)
{
    char dir[] = "/tmp/winnow-overwritten-XXXXXX", stem[64], path[2][128], print[WNW_FINGERPRINT_SIZE],
         command[128], stored[64];
    const int32_t first[] = {0, f->n_tensor / 2, f->n_tensor};
    const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    wnw_model *m;
    assert_non_null(mkdtemp(dir));
    snprintf(stem, sizeof stem, "%s/model", dir);
    snprintf(path[0], sizeof path[0], "%s.gguf", stem);
    snprintf(stored, sizeof stored, "%s/a.wkv", dir);
    if (n_part == 1)
        test_gguf_write(f, path[0]);
    else
        test_gguf_write_parts(f, stem, n_part, first);
    for (int32_t i = 0; n_part > 1 && i < n_part; i++)
        test_gguf_part_path(path[i], sizeof path[i], stem, i, n_part);
    for (int32_t i = 0; i < n_part; i++) /* clocks of file systems go in steps */
        assert_int_equal(utimensat(AT_FDCWD, path[i], long_ago, 0), 0);
    assert_ok(wnw_model_open(&m, path[0], NULL));
    struct test_session how = {.n_ctx = 64};
    wnw_session *s = test_session_new(m, &how);
    test_prefill(s, (const int32_t[]){5, 6, 7, 8, 9, 10}, 6);
    assert_ok(wnw_model_check_files(m));
    wnw_model_fingerprint(m, print);
    acts[act].act(path[n_part - 1]);
    const int status = wnw_model_check_files(m), store = wnw_session_store(s, stored, NULL);
    if (status != (acts[act].kept ? WNW_OK : WNW_E_MISMATCH) || store != status)
        fail_msg("%d files, %s: %d and %d", (int)n_part, acts[act].name, status, store);
    if (!acts[act].kept)
        assert_non_null(strstr(wnw_last_error(), "was overwritten while it was in use"));
    assert_int_equal(access(stored, F_OK) == 0, acts[act].kept);
    wnw_session_free(s);
    wnw_model_free(m);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void files_that_are_overwritten(void **state)
{
    (void)state;
    char path[4096];
    struct test_gguf f;
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    test_gguf_read(&f, path);
    for (int32_t n_part = 1; n_part <= 2; n_part++)
        for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
            overwritten(&f, n_part, i);
    test_gguf_free(&f);
    assert_int_equal(wnw_model_check_files(NULL), WNW_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stable_and_different),
        cmocka_unit_test(repacking_does_not_matter),
        cmocka_unit_test(padding_of_the_vocabulary),
        cmocka_unit_test(threads_ask_at_once),
        cmocka_unit_test(every_key_counts),
        cmocka_unit_test(keys_that_are_added),
        cmocka_unit_test(types_and_names_of_keys),
        cmocka_unit_test(every_tensor_counts),
        cmocka_unit_test(names_shapes_and_places_of_tensors),
        cmocka_unit_test(what_is_no_model),
        cmocka_unit_test(kept_digests_change_nothing),
        cmocka_unit_test(files_that_are_overwritten),
    };
    return cmocka_run_group_tests_name("fingerprints of models", tests, NULL, NULL);
}
