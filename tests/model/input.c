/* SPDX-License-Identifier: MIT */
/*
 * Model files that are not what they claim to be. For any bytes, opening a file ends in a model or in
 * an error with a message. Every attempt runs in a process of its own, so that a crash or a hang is seen and
 * named. This process itself must never compute: OpenMP's threads do not survive fork().
 */
#include "child.h"
#include "files.h"
#include "gguf_edit.h"
#include "helpers.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIME_LIMIT_S 60

struct fixture {
    char source[4096]; /* the intact model */
    char path[64];     /* the damaged copy */
    uint8_t *bytes;    /* [size] of the intact model */
    size_t size;
};

/* ---- One attempt in a child process ---- */

enum outcome { OUTCOME_MODEL = 10, OUTCOME_SILENT, OUTCOME_HALF_BUILT, OUTCOME_ERROR = 32 };

/* Opens the file and, if that works, uses the model a little. The exit status tells what happened. */
static int attempt(const char *path)
{
    wnw_model *m = NULL;
    const int rc = wnw_model_open(&m, path, NULL);
    if (rc != WNW_OK) {
        if (m)
            return OUTCOME_HALF_BUILT;
        return wnw_last_error()[0] ? OUTCOME_ERROR - rc : OUTCOME_SILENT;
    }
    wnw_session_params p = wnw_session_default_params();
    p.n_ctx = 64;
    p.n_threads = 1;
    wnw_session *s = NULL;
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8};
    if (wnw_session_new(&s, m, &p) == WNW_OK && wnw_session_prefill(s, tokens, 8, NULL, NULL) == WNW_OK)
        (void)wnw_session_decode(s, 1);
    wnw_session_free(s);
    wnw_model_free(m);
    return OUTCOME_MODEL;
}

/* WNW_OK, or the error that opening returned. Fails the test for anything else. */
static int try_open(const char *path, const char *what)
{
    const pid_t child = test_child(TIME_LIMIT_S);
    if (child == 0)
        _exit(attempt(path));
    const int code = test_child_status(child, what);
    if (code == OUTCOME_MODEL)
        return WNW_OK;
    if (code <= OUTCOME_ERROR || code > OUTCOME_ERROR + 16)
        fail_msg("%s: %s (exit status %d)", what,
                 code == OUTCOME_SILENT       ? "an error without a sentence"
                 : code == OUTCOME_HALF_BUILT ? "an error and a model at once"
                                              : "the process ended itself",
                 code);
    return OUTCOME_ERROR - code;
}

static void expect(const char *path, const char *what, int want, int or_want)
{
    const int rc = try_open(path, what);
    if (rc != want && rc != or_want)
        fail_msg("%s: %s, expected %s", what, wnw_strerror(rc), wnw_strerror(want));
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- Whole files ---- */

static void not_a_gguf(void **state)
{
    struct fixture *fx = *state;
    expect("/nonexistent/model.gguf", "a path that does not exist", WNW_E_IO, WNW_E_IO);
    expect("/", "a folder", WNW_E_IO, WNW_E_FORMAT);
    expect("", "an empty path", WNW_E_IO, WNW_E_IO);
    write_file(fx->path, "", 0);
    expect(fx->path, "an empty file", WNW_E_FORMAT, WNW_E_FORMAT);
    write_file(fx->path, "GGUF", 4);
    expect(fx->path, "the magic alone", WNW_E_FORMAT, WNW_E_FORMAT);
    char text[4096];
    memset(text, 'x', sizeof text);
    write_file(fx->path, text, sizeof text);
    expect(fx->path, "a text", WNW_E_FORMAT, WNW_E_FORMAT);
    memcpy(text, "GGUF", 4);
    write_file(fx->path, text, sizeof text);
    expect(fx->path, "a text that begins with the magic", WNW_E_FORMAT, WNW_E_FORMAT);
    write_file(fx->path, fx->bytes, fx->size);
    expect(fx->path, "the intact model", WNW_OK, WNW_OK);
}

static void truncated(void **state)
{
    struct fixture *fx = *state;
    char what[64];
    struct gguf_context *g = gguf_init_from_file(fx->source, (struct gguf_init_params){.no_alloc = true});
    assert_non_null(g);
    const size_t data = gguf_get_data_offset(g);
    gguf_free(g);
    write_file(fx->path, fx->bytes, fx->size);
    /* From the end, so that one file serves all lengths: 20 in the weights, 60 in the metadata, and every
     * third byte of the header and the first key. */
    const size_t last = fx->size - 1;
    for (size_t len = last, i = 0; len > 0; i++) {
        assert_int_equal(truncate(fx->path, (off_t)len), 0);
        snprintf(what, sizeof what, "cut to %zu of %zu bytes", len, fx->size);
        expect(fx->path, what, WNW_E_FORMAT, WNW_E_FORMAT);
        const size_t step = len > data ? (last - data) / 20 + 1 : len > 96 ? data / 60 + 1 : 3;
        len = len > step ? len - step : 0;
    }
}

/* ---- Bytes changed at random ---- */

static void random_damage(void **state)
{
    struct fixture *fx = *state;
    const size_t area = fx->size < 65536 ? fx->size : 65536;
    uint8_t *copy = malloc(fx->size);
    assert_non_null(copy);
    uint64_t seed = 9;
    int refused = 0;
    for (int i = 0; i < 240; i++) {
        char what[96];
        memcpy(copy, fx->bytes, fx->size);
        const size_t n = i % 3 == 0 ? 1 : 1 + test_random(&seed) % 16;
        /* A third of the damage near the start: there a byte decides about all the rest. */
        const size_t within = i % 3 == 1 ? 2048 : area;
        const size_t at = test_random(&seed) % (within - n);
        for (size_t k = 0; k < n; k++)
            copy[at + k] = i % 5 == 0 ? 0xff : (uint8_t)test_random(&seed);
        write_file(fx->path, copy, fx->size);
        snprintf(what, sizeof what, "damage %d: %zu bytes at offset %zu", i, n, at);
        refused += try_open(fx->path, what) != WNW_OK;
    }
    free(copy);
    print_message("%d of 240 damaged files were refused, the others still are models\n", refused);
    assert_cmp(refused, >, 20);
}

/* ---- Wrong and contradictory metadata ---- */

enum edit_type { SET_U32, SET_F32, SET_STR, REMOVE_KEY, REMOVE_TENSOR, CUT_TENSOR };

struct edit {
    enum edit_type type;
    const char *key;
    uint32_t u32;
    float f32;
    const char *str;
};

#define U32(name, value)                               \
    {                                                  \
        .type = SET_U32, .key = (name), .u32 = (value) \
    }
#define F32(name, value)                               \
    {                                                  \
        .type = SET_F32, .key = (name), .f32 = (value) \
    }
#define STR(name, value)                               \
    {                                                  \
        .type = SET_STR, .key = (name), .str = (value) \
    }

static const struct edit edits[] = {
    STR("llama.block_count", "two"),
    U32("llama.block_count", 0),
    U32("llama.block_count", 77), /* more than there are tensors for */
    U32("llama.block_count", 4000000000U),
    {.type = REMOVE_KEY, .key = "llama.block_count"},
    STR("llama.embedding_length", "64"),
    U32("llama.embedding_length", 0),
    U32("llama.embedding_length", 1),
    U32("llama.embedding_length", UINT32_MAX),
    {.type = REMOVE_KEY, .key = "llama.embedding_length"},
    U32("llama.feed_forward_length", 0),
    U32("llama.feed_forward_length", 5),
    F32("llama.feed_forward_length", 1e30F),
    STR("llama.context_length", ""),
    U32("llama.context_length", 0),
    U32("llama.attention.head_count", 0),
    U32("llama.attention.head_count", 7),
    U32("llama.attention.head_count", INT32_MAX),
    STR("llama.attention.head_count", "4"),
    {.type = REMOVE_KEY, .key = "llama.attention.head_count"},
    U32("llama.attention.head_count_kv", 0),
    U32("llama.attention.head_count_kv", 3),
    U32("llama.attention.head_count_kv", 1000),
    STR("llama.attention.head_count_kv", "2"),
    U32("llama.attention.key_length", 0),
    U32("llama.attention.key_length", 24),
    U32("llama.attention.value_length", 24),
    F32("llama.attention.layer_norm_rms_epsilon", -1.0F),
    F32("llama.attention.layer_norm_rms_epsilon", NAN),
    STR("llama.attention.layer_norm_rms_epsilon", "1e-5"),
    U32("llama.rope.dimension_count", 1),
    U32("llama.rope.dimension_count", 100000),
    STR("llama.rope.dimension_count", "16"),
    F32("llama.rope.freq_base", -1.0F),
    F32("llama.rope.freq_base", NAN),
    STR("llama.rope.freq_base", "10000"),
    STR("llama.rope.scaling.type", "no-such-scaling"),
    U32("general.architecture", 1),
    {.type = REMOVE_KEY, .key = "general.architecture"},
    {.type = REMOVE_KEY, .key = "tokenizer.ggml.tokens"},
    {.type = REMOVE_KEY, .key = "tokenizer.ggml.model"},
    STR("tokenizer.ggml.tokens", "a"),
    {.type = REMOVE_TENSOR, .key = "token_embd.weight"},
    {.type = REMOVE_TENSOR, .key = "output_norm.weight"},
    {.type = REMOVE_TENSOR, .key = "blk.0.attn_q.weight"},
    {.type = REMOVE_TENSOR, .key = "blk.1.ffn_down.weight"},
    {.type = CUT_TENSOR, .key = "token_embd.weight"}, /* fewer rows than tokens in the vocabulary */
    {.type = CUT_TENSOR, .key = "blk.0.attn_k.weight"},
    {.type = CUT_TENSOR, .key = "blk.1.ffn_up.weight"},
};

/* Writes the model with one thing changed. */
static void write_edited(const struct fixture *fx, const struct edit *e)
{
    struct test_gguf f;
    test_gguf_read(&f, fx->source);
    const int32_t i = test_gguf_find(&f, e->key);
    if (e->type >= REMOVE_TENSOR && i < 0)
        fail_msg("the tiny model has no tensor %s", e->key);
    if (e->type == SET_U32)
        gguf_set_val_u32(f.g, e->key, e->u32);
    else if (e->type == SET_F32)
        gguf_set_val_f32(f.g, e->key, e->f32);
    else if (e->type == SET_STR)
        gguf_set_val_str(f.g, e->key, e->str);
    else if (e->type == REMOVE_KEY)
        assert_cmp(gguf_remove_key(f.g, e->key), >=, 0);
    else if (e->type == REMOVE_TENSOR)
        test_gguf_remove(&f, i);
    else
        f.tensor[i]->ne[1] -= 8;
    test_gguf_write(&f, fx->path);
    test_gguf_free(&f);
}

static void wrong_metadata(void **state)
{
    struct fixture *fx = *state;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        char what[128];
        snprintf(what, sizeof what, "edit %zu of %s", i, edits[i].key);
        write_edited(fx, &edits[i]);
        expect(fx->path, what, WNW_E_FORMAT, WNW_E_UNSUPPORTED);
    }
}

/* Values that look strange and are fine: the edits above must not be refused for the editing itself. */
static void harmless_metadata(void **state)
{
    struct fixture *fx = *state;
    static const struct edit harmless[] = {
        STR("general.name", ""),
        U32("general.nobody_knows_this", 1),
        U32("llama.context_length", 100),
        F32("llama.rope.freq_base", 500000.0F),
    };
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        write_edited(fx, &harmless[i]);
        expect(fx->path, harmless[i].key, WNW_OK, WNW_OK);
    }
}

static void unsupported_architecture(void **state)
{
    struct fixture *fx = *state;
    const struct edit e = STR("general.architecture", "nofamily");
    write_edited(fx, &e);
    wnw_model *m = NULL;
    assert_error(wnw_model_open(&m, fx->path, NULL), WNW_E_UNSUPPORTED);
    assert_null(m);
    assert_says("nofamily");
}

/* ---- Set-up ---- */

static int set_up(void **state)
{
    static struct fixture fx;
    char name[TEST_NAME_MAX];
    test_tiny_model_of(name, "llama");
    test_model_path(fx.source, sizeof fx.source, name);
    strcpy(fx.path, "/tmp/winnow-test-XXXXXX");
    test_file_new(fx.path);
    FILE *f = fopen(fx.source, "rb");
    struct stat st;
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    fx.size = (size_t)st.st_size;
    fx.bytes = malloc(fx.size);
    assert_non_null(fx.bytes);
    assert_int_equal(fread(fx.bytes, 1, fx.size, f), fx.size);
    fclose(f);
    *state = &fx;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fx = *state;
    free(fx->bytes);
    return unlink(fx->path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_a_gguf),        cmocka_unit_test(truncated),
        cmocka_unit_test(random_damage),     cmocka_unit_test(wrong_metadata),
        cmocka_unit_test(harmless_metadata), cmocka_unit_test(unsupported_architecture),
    };
    return cmocka_run_group_tests_name("damaged model files", tests, set_up, tear_down);
}
