/* SPDX-License-Identifier: MIT */
/* Text for needle questions: nothing in it stands twice. */
#include "asserts.h"

#include "prose.h"
#include "source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Fails if two of the n strings are equal; sorts them. */
static void all_differ(char **s, size_t n, const char *what)
{
    qsort(s, n, sizeof *s, by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(s[i - 1], s[i]) == 0)
            fail_msg("%s twice: %s", what, s[i]);
}

/* Sentences of the text as strings, owned by the caller; the text is one line per paragraph. */
static char **split(const char *text, size_t *n)
{
    char **out = NULL;
    *n = 0;
    while (*text) {
        size_t len = 0;
        while (text[len] && text[len] != '\n' &&
               !(text[len] == '.' && (text[len + 1] == ' ' || text[len + 1] == '\n')))
            len++;
        len += text[len] == '.';
        if (len > 0) {
            out = realloc(out, (*n + 1) * sizeof *out);
            assert_non_null(out);
            out[(*n)++] = strndup(text, len);
        }
        for (text += len; *text == ' ' || *text == '\n';)
            text++;
    }
    return out;
}

static void free_all(char **s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(s[i]);
    free(s);
}

/* Adds every run of PROSE_RUN words of the sentence, in lower case and without punctuation. */
static void add_runs(char ***runs, size_t *n, const char *sentence)
{
    size_t starts[256], n_words = 0, len = 0;
    char plain[1024];
    for (const char *c = sentence; *c && len + 2 < sizeof plain; c++) {
        if (isalnum((unsigned char)*c)) {
            if (len == 0 || plain[len - 1] == ' ')
                starts[n_words++] = len;
            plain[len++] = (char)tolower((unsigned char)*c);
        } else if (*c == ' ') {
            plain[len++] = ' ';
        }
    }
    plain[len] = '\0';
    for (size_t w = 0; w + PROSE_RUN <= n_words; w++) {
        const size_t end = w + PROSE_RUN < n_words ? starts[w + PROSE_RUN] - 1 : len;
        *runs = realloc(*runs, (*n + 1) * sizeof **runs);
        assert_non_null(*runs);
        (*runs)[(*n)++] = strndup(plain + starts[w], end - starts[w]);
    }
}

static char *prose_of(uint64_t seed, size_t n_bytes)
{
    struct source s;
    assert_true(source_open(&s, NULL));
    assert_cmp(n_bytes, <=, s.len);
    char *text = source_take(&s, n_bytes, seed);
    source_close(&s);
    assert_non_null(text);
    return text;
}

/* As much as every seed promises, and not less. 250,000 bytes are some 60,000 tokens of SmolLM2. */
static void nothing_is_said_twice(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        char *text = prose_of(seed * 7919, PROSE_MIN_BYTES);
        size_t n, n_runs = 0;
        assert_in_range(strlen(text), PROSE_MIN_BYTES - 300, PROSE_MIN_BYTES);
        char **sentences = split(text, &n), **runs = NULL;
        assert_cmp(n, >, 2000);
        for (size_t i = 0; i < n; i++)
            add_runs(&runs, &n_runs, sentences[i]);
        assert_cmp(n_runs, >, 10000);
        all_differ(sentences, n, "a sentence");
        all_differ(runs, n_runs, "a run of words");
        free_all(runs, n_runs);
        free_all(sentences, n);
        free(text);
    }
}

/* Slots are filled, sentences begin with a capital and end with a full stop, articles fit. */
static void sentences_are_well_formed(void **state)
{
    (void)state;
    char *text = prose_of(5, PROSE_MIN_BYTES);
    size_t n;
    char **sentences = split(text, &n);
    assert_null(strpbrk(text, "{}?"));
    assert_lacks(text, "  ");
    for (size_t i = 0; i < n; i++) {
        const char *s = sentences[i];
        const char first = s[0], last = s[strlen(s) - 1];
        if (!(isupper((unsigned char)first) || isdigit((unsigned char)first)) || last != '.')
            fail_msg("not a sentence: %s", s);
        for (const char *at = s; (at = strstr(at, " a ")) != NULL; at++)
            if (strchr("aeiou", at[3]))
                fail_msg("'a' before a vowel: %s", s);
        for (const char *at = s; (at = strstr(at, " an ")) != NULL; at++)
            if (!strchr("aeiou", at[4]))
                fail_msg("'an' before a consonant: %s", s);
    }
    free_all(sentences, n);
    free(text);
}

/* Two prompts of one table must not share their text; the same seed gives the same on every machine. */
static void seeds_differ_and_are_repeatable(void **state)
{
    (void)state;
    char *a = prose_of(1, 20000), *b = prose_of(2, 20000), *again = prose_of(1, 20000);
    assert_string_equal(a, again);
    size_t n_a, n_b, common = 0;
    char **x = split(a, &n_a), **y = split(b, &n_b);
    for (size_t i = 0; i < n_a; i++)
        for (size_t j = 0; j < n_b; j++)
            common += strcmp(x[i], y[j]) == 0;
    assert_int_equal(common, 0);
    uint32_t sum = 1; /* of the bytes, changes with every one of them */
    for (const char *c = a; *c; c++)
        sum = sum * 31 + (unsigned char)*c;
    assert_int_equal(sum, 0xe8f67a7f);
    free_all(x, n_a);
    free_all(y, n_b);
    free(a);
    free(b);
    free(again);
}

/* ---- Files ---- */

static void write_file(char path[32], const char *text)
{
    snprintf(path, 32, "/tmp/unit_prose_XXXXXX");
    const int fd = mkstemp(path);
    assert_cmp(fd, >=, 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* "Dr." ends no sentence; a title is a line of its own; empty lines do not pile up where text was left out. */
static void a_file_is_told_once(void **state)
{
    (void)state;
    static const char written[] =
        "Title\n\nOne two three four. Dr. Five six seven eight. One two three four. "
        "Nine ten eleven twelve.\n\nTitle\n\nNine ten eleven twelve. \n\nThe end\n";
    static const char once[] = "Title\n\nOne two three four. Dr. Five six seven eight. "
                               "Nine ten eleven twelve.\n\nThe end\n";
    char path[32];
    struct source s;
    write_file(path, written);
    assert_true(source_open(&s, path));
    assert_string_equal(s.text, once);
    assert_int_equal(s.len, sizeof once - 1);
    char *all = source_take(&s, s.len, 12345);
    assert_string_equal(all, once);
    free(all);
    source_close(&s);
    unlink(path);
}

/* For every seed the text that is taken is one piece of the file: it does not wrap around at the end. */
static void a_file_does_not_wrap_around(void **state)
{
    (void)state;
    char path[32], text[4096] = "", line[64];
    struct source s;
    for (int i = 0; i < 60; i++) {
        snprintf(line, sizeof line, "Line number %d of this file. It has sentence %d too.\n", i, i);
        strcat(text, line);
    }
    write_file(path, text);
    assert_true(source_open(&s, path));
    assert_int_equal(s.len, strlen(text));
    int beginnings = 0;
    for (uint64_t seed = 0; seed < 4000; seed += 7) {
        char *piece = source_take(&s, 1000, seed);
        assert_non_null(piece);
        assert_in_range(strlen(piece), 940, 1000);
        const char *at = strstr(text, piece);
        assert_non_null(at);
        beginnings += at == text;
        free(piece);
    }
    assert_in_range(beginnings, 1, 100); /* and not always at the beginning */
    source_close(&s);
    unlink(path);
}

static void nothing_comes_of_nothing(void **state)
{
    (void)state;
    char path[32];
    struct source s;
    assert_false(source_open(&s, "/nonexistent/text"));
    source_close(&s);
    write_file(path, "");
    assert_false(source_open(&s, path));
    source_close(&s);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_said_twice),           cmocka_unit_test(sentences_are_well_formed),
        cmocka_unit_test(seeds_differ_and_are_repeatable), cmocka_unit_test(a_file_is_told_once),
        cmocka_unit_test(a_file_does_not_wrap_around),     cmocka_unit_test(nothing_comes_of_nothing),
    };
    return cmocka_run_group_tests_name("text that does not repeat itself", tests, NULL, NULL);
}
