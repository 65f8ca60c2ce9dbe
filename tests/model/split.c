/* SPDX-License-Identifier: MIT */
/* Models in several files, and GGUF files that are no models. */
#include "files.h"
#include "gguf_edit.h"
#include "helpers.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PART = 3, N_TOKENS = 40 };

/* A model, whole and in parts, in a folder of its own. */
struct split {
    char whole[4096], dir[64], stem[128], part[N_PART][256];
    struct test_gguf f;
};

static void remove_parts(struct split *s)
{
    for (int32_t i = 0; i < N_PART; i++)
        if (s->part[i][0])
            unlink(s->part[i]);
    memset(s->part, 0, sizeof s->part);
}

/* In place of those before. first: see test_gguf_write_parts. */
static void write_parts(struct split *s, int32_t n_part, const int32_t *first)
{
    remove_parts(s);
    test_gguf_write_parts(&s->f, s->stem, n_part, first);
    for (int32_t i = 0; i < n_part; i++)
        test_gguf_part_path(s->part[i], sizeof s->part[i], s->stem, i, n_part);
}

static void open_split(struct split *s, const char *name)
{
    memset(s, 0, sizeof *s);
    test_model_path(s->whole, sizeof s->whole, name);
    test_gguf_read(&s->f, s->whole);
    snprintf(s->dir, sizeof s->dir, "/tmp/winnow-split-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->stem, sizeof s->stem, "%s/model", s->dir);
}

static void close_split(struct split *s)
{
    remove_parts(s);
    assert_int_equal(rmdir(s->dir), 0);
    test_gguf_free(&s->f);
}

/* Three parts of about a third of the tensors. */
static void write_thirds(struct split *s)
{
    const int32_t n = s->f.n_tensor;
    write_parts(s, N_PART, (const int32_t[]){0, n / 3, 2 * n / 3, n});
}

static void same_model(const char *whole, const char *parts)
{
    wnw_model *m[2] = {NULL, NULL};
    wnw_session *s[2];
    wnw_model_info info[2] = {{WNW_INIT(wnw_model_info)}, {WNW_INIT(wnw_model_info)}};
    char print[2][WNW_FINGERPRINT_SIZE];
    for (int i = 0; i < 2; i++) {
        int32_t *tokens = NULL, n = 0;
        assert_ok(wnw_model_open(&m[i], i ? parts : whole, NULL));
        assert_ok(wnw_model_get_info(m[i], &info[i]));
        wnw_model_fingerprint(m[i], print[i]);
        s[i] = test_session_new(m[i], &(struct test_session){.n_ctx = 64, .n_threads = 1});
        assert_ok(wnw_tokenize(m[i], "then in the end", 15, true, true, &tokens, &n));
        test_prefill(s[i], tokens, n);
        wnw_free(tokens);
        tokens = test_random_tokens(N_TOKENS, info[i].n_vocab, 1);
        test_prefill(s[i], tokens, N_TOKENS);
        assert_ok(wnw_session_decode(s[i], tokens[0]));
        free(tokens);
    }
    assert_same_logits(s[0], s[1]);
    assert_same_cache(s[0], s[1]);
    assert_string_equal(print[0], print[1]);
    assert_int_equal(info[0].weight_bytes, info[1].weight_bytes);
    assert_int_equal(info[0].repacked_bytes, info[1].repacked_bytes);
    for (int i = 0; i < 2; i++) {
        wnw_session_free(s[i]);
        wnw_model_free(m[i]);
    }
}

static void parts_are_the_whole(void **state)
{
    (void)state;
    char names[32][TEST_NAME_MAX];
    const int n_model = test_tiny_models(names, 32);
    for (int i = 0; i < n_model; i++) {
        struct split s;
        open_split(&s, names[i]);
        const int32_t n = s.f.n_tensor;
        write_parts(&s, 2, (const int32_t[]){0, n / 2, n});
        same_model(s.whole, s.part[0]);
        write_thirds(&s);
        same_model(s.whole, s.part[0]);
        /* Tools can leave the first part without tensors. */
        write_parts(&s, N_PART, (const int32_t[]){0, 0, 1, n});
        same_model(s.whole, s.part[0]);
        close_split(&s);
    }
}

static void refused(const char *path, const char *says)
{
    wnw_model *m = NULL;
    const int rc = wnw_model_open(&m, path, NULL);
    assert_null(m);
    if (rc != WNW_E_FORMAT && rc != WNW_E_UNSUPPORTED && rc != WNW_E_IO)
        fail_msg("%s: status %d, \"%s\"", path, rc, wnw_last_error());
    assert_says(says);
}

static void copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    char bytes[4096];
    assert_non_null(in);
    assert_non_null(out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void parts_that_are_missing_or_misplaced(void **state)
{
    (void)state;
    struct split s;
    char moved[256];
    open_split(&s, "tiny/tiny-llama.gguf");
    write_thirds(&s);
    refused(s.part[1], "is file 2 of 3 of a model; give file 1");
    refused(s.part[2], "is file 3 of 3 of a model; give file 1");
    snprintf(moved, sizeof moved, "%s/other.gguf", s.dir);
    copy_file(s.part[0], moved);
    refused(moved, "must be called NAME-00001-of-00003.gguf");
    copy_file(s.part[1], moved);
    refused(moved, "is file 2 of 3");
    assert_int_equal(truncate(s.part[2], 2000), 0);
    refused(s.part[0], "00003-of-00003.gguf");
    unlink(s.part[2]);
    refused(s.part[0], "file 3 of 3");
    copy_file(s.part[1], s.part[2]);
    refused(s.part[0], "should be file 3 of 3 but says that it is file 2 of 3");
    unlink(s.part[1]);
    refused(s.part[0], "file 2 of 3");
    unlink(moved);
    close_split(&s);
}

static void put_back(struct split *s, const char *with)
{
    write_thirds(s);
    if (with)
        copy_file(with, s->part[1]);
}

static void parts_of_other_models(void **state)
{
    (void)state;
    struct split s, other;
    open_split(&s, "tiny/tiny-llama.gguf");
    /* Another model with other tensors, cut into as many parts. */
    open_split(&other, "tiny/tiny-qwen3.gguf");
    write_thirds(&other);
    put_back(&s, other.part[1]);
    refused(s.part[0], "is a file of another model");
    close_split(&other);
    /* The same tensors, cut elsewhere: some are there twice or not at all. */
    open_split(&other, "tiny/tiny-llama.gguf");
    const int32_t n = other.f.n_tensor;
    write_parts(&other, N_PART, (const int32_t[]){0, 2, 2 * n / 3, n});
    put_back(&s, other.part[1]);
    refused(s.part[0], "an earlier file holds tensor");
    write_parts(&other, N_PART, (const int32_t[]){0, n / 2, 2 * n / 3, n});
    put_back(&s, other.part[1]);
    refused(s.part[0], "and should hold");
    /* As many parts, one too many. */
    write_parts(&other, 2, (const int32_t[]){0, n / 3, n});
    put_back(&s, other.part[1]);
    refused(s.part[0], "should be file 2 of 3 but says that it is file 2 of 2");
    copy_file(s.whole, s.part[1]);
    refused(s.part[0], "should be file 2 of 3 but says that it is file 1 of 1");
    close_split(&other);
    close_split(&s);
}

/* libllama ends the process for some of these. */
static void keys_of_parts_are_checked(void **state)
{
    (void)state;
    struct split s;
    open_split(&s, "tiny/tiny-llama.gguf");
    test_gguf_part_path(s.part[0], sizeof s.part[0], s.stem, 0, 2);
    gguf_set_val_u32(s.f.g, "split.count", 2);
    test_gguf_write(&s.f, s.part[0]);
    refused(s.part[0], "split.count has type u32");
    gguf_set_val_u16(s.f.g, "split.count", 2);
    gguf_set_val_str(s.f.g, "split.no", "first");
    test_gguf_write(&s.f, s.part[0]);
    refused(s.part[0], "split.no has type str");
    gguf_set_val_u16(s.f.g, "split.no", 7);
    test_gguf_write(&s.f, s.part[0]);
    refused(s.part[0], "file 8 of 2");
    gguf_set_val_u16(s.f.g, "split.no", 0);
    test_gguf_write(&s.f, s.part[0]);
    refused(s.part[0], "file 2 of 2");
    /* One part is the whole. */
    gguf_set_val_u16(s.f.g, "split.count", 1);
    test_gguf_write(&s.f, s.part[0]);
    same_model(s.whole, s.part[0]);
    close_split(&s);
}

/* ---- Files that are no models ---- */

struct other {
    const char *key, *value, *says;
};

static const struct other others[] = {
    {"general.type", "adapter", "is no model but an adapter"},
    {"general.type", "mmproj", "is no model but a projector"},
    {"general.type", "imatrix", "is no model but an importance matrix"},
    {"general.type", "diffusion", "of type 'diffusion'"},
    {"general.architecture", "clip", "is no model but a projector"},
    {"general.architecture", "controlvector", "is no model but a control vector"},
};

static void other_kinds_of_gguf(void **state)
{
    (void)state;
    struct test_gguf f;
    char path[4096], copy[] = "/tmp/winnow-other-XXXXXX";
    test_file_new(copy);
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        test_gguf_read(&f, path);
        gguf_set_val_str(f.g, others[i].key, others[i].value);
        test_gguf_write(&f, copy);
        test_gguf_free(&f);
        refused(copy, others[i].says);
    }
    test_gguf_read(&f, path);
    f.n_tensor = 0;
    test_gguf_write(&f, copy);
    refused(copy, "a vocabulary alone");
    test_gguf_free(&f);
    unlink(copy);
}

static void other_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *head, *says; /* 8 bytes */
    } rows[] = {
        {"GGUF\0\0\0\3", "of the other byte order (big-endian)"},
        {"GGUF\0\0\0\2", "of the other byte order (big-endian)"},
        {"lmgg\1\0\0\0", "a format older than GGUF"},
        {"tjgg\3\0\0\0", "a format older than GGUF"},
        {"PK\3\4\0\0\0\0", "is not a GGUF file"},
        {"GGUF\1\0\0\0", "is a damaged GGUF file"},
        {"GGUF\0\0\0\0", "is a damaged GGUF file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[] = "/tmp/winnow-bytes-XXXXXX", bytes[64] = {0};
        memcpy(bytes, rows[i].head, 8);
        test_file_of(path, bytes, sizeof bytes);
        refused(path, rows[i].says);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_whole),   cmocka_unit_test(parts_that_are_missing_or_misplaced),
        cmocka_unit_test(parts_of_other_models), cmocka_unit_test(keys_of_parts_are_checked),
        cmocka_unit_test(other_kinds_of_gguf),   cmocka_unit_test(other_bytes),
    };
    return cmocka_run_group_tests_name("models in several files", tests, NULL, NULL);
}
