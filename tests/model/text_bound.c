/* SPDX-License-Identifier: MIT */
/* The lower bound of a text's tokens: never above what the tokenizer makes, on texts chosen to be as cheap in
 * tokens as can be. */
#include "helpers.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"smollm2-135m.gguf", "qwen2.5-coder-0.5b.gguf", "gemma-3-270m.gguf",
                                    "tiny/tiny-llama.gguf", "tiny/tiny-gemma3.gguf"};
enum { N_NAMES = sizeof names / sizeof *names, LEN = 1200 };

static int32_t count(const wnw_model *m, const char *text, size_t len)
{
    int32_t *tokens, n;
    assert_int_equal(wnw_tokenize(m, text, len, false, true, &tokens, &n), WNW_OK);
    wnw_free(tokens);
    return n;
}

/* With as many tokens as it has the text never exceeds; *cost is how near the bound comes to them. */
static void check(const wnw_model *m, const char *text, size_t len)
{
    const int32_t n = count(m, text, len);
    size_t n_bytes = 0;
    assert_false(wnw_text_exceeds(m, text, len, n, &n_bytes));
    assert_int_equal(n_bytes, len);
    for (int32_t most = n / 2; most > n / 20; most /= 3)
        if (wnw_text_exceeds(m, text, len, most, &n_bytes)) {
            assert_in_range(n_bytes, 1, len);
            /* The beginning alone has them. */
            assert_cmp(count(m, text, n_bytes), >, most);
        }
}

/* The same piece again and again. */
static void check_repeated(const wnw_model *m, const char *piece, size_t n)
{
    char *text = malloc(LEN + n + 1);
    size_t len = 0;
    assert_non_null(text);
    for (; len < LEN && n > 0; len += n)
        memcpy(text + len, piece, n);
    if (len > 0)
        check(m, text, len);
    free(text);
}

static void check_tokens(const wnw_model *m, int32_t n_vocab)
{
    /* All short vocabularies; of long ones a part, and every token that is long. */
    for (int32_t id = 0; id < n_vocab; id++) {
        char *piece;
        assert_int_equal(wnw_detokenize(m, &id, 1, &piece), WNW_OK);
        const size_t n = strlen(piece);
        if (n > 80 || (id % (n_vocab / 60 + 1)) == 0)
            check_repeated(m, piece, n);
        wnw_free(piece);
    }
}

/* Four bytes that begin with one of these are beyond Unicode, which libllama does not take at all. */
static unsigned within_unicode(unsigned c)
{
    return c >= 0xf4 && c <= 0xf7 ? 0xf3 : c;
}

static void check_bytes(const wnw_model *m)
{
    char text[LEN];
    uint32_t seed = 1;
    for (int round = 0; round < 20; round++) {
        const unsigned first = round % 4 == 0 ? 1 : round % 4 == 1 ? 0x80 : round % 4 == 2 ? 0xc0 : 0xf0;
        for (size_t i = 0; i < LEN; i++) {
            text[i] = (char)within_unicode(first + (test_lcg(&seed) >> 8) % (256 - first));
        }
        check(m, text, LEN);
    }
    for (unsigned c = 1; c < 256; c += 3) {
        memset(text, (int)within_unicode(c), LEN);
        check(m, text, LEN);
        memset(text, ' ', LEN / 3);
        memset(text + 2 * LEN / 3, '\n', LEN / 3);
        check(m, text, LEN);
    }
}

static void test_never_more_than_there_are(void **state)
{
    (void)state;
    int n_models = 0;
    for (int i = 0; i < N_NAMES; i++) {
        char path[512];
        wnw_model *m;
        wnw_model_info info = {WNW_INIT(wnw_model_info)};
        const wnw_model_params params = {WNW_INIT(wnw_model_params), .repack = false};
        if (!test_has_model(path, sizeof path, names[i])) {
            print_message("skipped: %s is not there\n", names[i]);
            continue;
        }
        assert_int_equal(wnw_model_open(&m, path, &params), WNW_OK);
        assert_ok(wnw_model_get_info(m, &info));
        check_tokens(m, info.n_vocab);
        check_bytes(m);
        wnw_model_free(m);
        n_models++;
    }
    assert_cmp(n_models, >, 0);
}

/* Ordinary text is refused as too long when it is some dozens of times the context. */
static void test_long_texts_are_told(void **state)
{
    (void)state;
    char path[512];
    wnw_model *m;
    const wnw_model_params params = {WNW_INIT(wnw_model_params), .repack = false};
    test_model_path(path, sizeof path, "tiny/tiny-llama.gguf");
    assert_int_equal(wnw_model_open(&m, path, &params), WNW_OK);
    /* Its longest token, <|endoftext|>, has 13 letters: 14 of them are more than one token. */
    assert_false(wnw_text_exceeds(m, "abcdefghijklm", 13, 1, NULL));
    assert_true(wnw_text_exceeds(m, "abcdefghijklmn", 14, 1, NULL));
    /* Blanks count between letters, not at the ends. */
    assert_true(wnw_text_exceeds(m, "a            b", 14, 1, NULL));
    assert_false(wnw_text_exceeds(m, " abcdefghijklm\n\n\n\n", 18, 1, NULL));
    assert_true(wnw_text_exceeds(m, "a", 1, 0, NULL));
    assert_false(wnw_text_exceeds(m, "", 0, 0, NULL));
    assert_false(wnw_text_exceeds(m, "abcdefghijklmn", 14, -1, NULL));
    assert_false(wnw_text_exceeds(NULL, "abcdefghijklmn", 14, 1, NULL));
    assert_false(wnw_text_exceeds(m, NULL, 14, 1, NULL));
    size_t n_bytes;
    assert_true(wnw_text_exceeds(m, "abcdefghijklmnopqrstuvwxyz", 26, 1, &n_bytes));
    assert_int_equal(n_bytes, 14);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_more_than_there_are),
        cmocka_unit_test(test_long_texts_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
