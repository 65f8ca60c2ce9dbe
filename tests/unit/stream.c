/* SPDX-License-Identifier: MIT */
/* Text of generated tokens: characters cut at any byte, bytes that are no text, stop strings over borders. */
#include "asserts.h"

#include "peek_text.h"

#include <string.h>

static struct wnw__stream new_stream(const char *const *stop, int32_t n_stop)
{
    return (struct wnw__stream){.stop = stop, .n_stop = n_stop};
}

static void add(struct wnw__stream *st, const char *s)
{
    assert_ok(wnw__stream_add(st, s, strlen(s)));
}

static void assert_text(struct wnw__stream *st, const char *want)
{
    assert_ok(wnw__stream_end(st));
    assert_string_equal(st->text ? st->text : "", want);
    assert_int_equal(st->n, strlen(want));
    assert_int_equal(st->ready, st->n);
    wnw__stream_free(st);
}

/* One byte, two, three and four bytes. */
static const char letters[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";

static void every_cut(void **state)
{
    (void)state;
    const size_t n = strlen(letters);
    for (size_t i = 0; i <= n; i++)
        for (size_t k = i; k <= n; k++) {
            struct wnw__stream st = new_stream(NULL, 0);
            assert_ok(wnw__stream_add(&st, letters, i));
            assert_ok(wnw__stream_add(&st, letters + i, k - i));
            /* What is there is the whole characters of what came. */
            assert_int_equal(st.n, wnw__utf8_end(letters, k));
            assert_int_equal(st.ready, st.n);
            assert_ok(wnw__stream_add(&st, letters + k, n - k));
            assert_text(&st, letters);
        }
}

static void byte_by_byte(void **state)
{
    (void)state;
    static const size_t want[] = {1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};
    struct wnw__stream st = new_stream(NULL, 0);
    for (size_t i = 0; i < strlen(letters); i++) {
        assert_ok(wnw__stream_add(&st, letters + i, 1));
        assert_int_equal(st.n, want[i]);
    }
    assert_text(&st, letters);
}

#define BAD "\xef\xbf\xbd"

static void bytes_that_are_no_text(void **state)
{
    (void)state;
    static const struct {
        const char *one, *two, *want;
    } rows[] = {
        {"\x80", "a", BAD "a"},                   /* continues nothing */
        {"\xc3", "(", BAD "("},                   /* not continued */
        {"\xe2\x82", "\xc3\xa9", BAD "\xc3\xa9"}, /* cut off by another character */
        {"\xc0\xaf", "", BAD BAD},                /* overlong */
        {"\xed\xa0", "\x80", BAD BAD BAD},        /* a surrogate */
        {"\xf5", "x", BAD "x"},
        {"x\xf0\x9f\x98", "", "x" BAD}, /* the end comes within a character */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wnw__stream st = new_stream(NULL, 0);
        add(&st, rows[i].one);
        add(&st, rows[i].two);
        assert_text(&st, rows[i].want);
    }
    struct wnw__stream st = new_stream(NULL, 0);
    assert_ok(wnw__stream_add(&st, "a\0b", 3));
    assert_text(&st, "a" BAD "b");
}

static void stop_over_borders(void **state)
{
    (void)state;
    static const char *const stop[] = {"\nUser:", "\xe2\x82\xac!"};
    static const char *const texts[] = {"It is red.\nUser: what", "It is red.\xe2\x82\xac! what"};
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i <= strlen(texts[t]); i++) {
            struct wnw__stream st = new_stream(stop, 2);
            assert_ok(wnw__stream_add(&st, texts[t], i));
            assert_true(st.ready <= strlen("It is red."));
            assert_memory_equal(st.ready > 0 ? st.text : "", texts[t], st.ready);
            add(&st, texts[t] + i);
            assert_true(st.stopped);
            add(&st, "more");
            assert_text(&st, "It is red.");
        }
}

/* What may be a stop string waits, and no longer than that. */
static void held_back(void **state)
{
    (void)state;
    static const char *const stop[] = {"END", "NDX"};
    static const struct {
        const char *piece;
        size_t ready;
    } steps[] = {{"aE", 1}, {"E", 2}, {"N", 2}, {"-", 5}, {"EN", 5}, {"EN", 7}, {"DX", 7}};
    struct wnw__stream st = new_stream(stop, 2);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        add(&st, steps[i].piece);
        assert_int_equal(st.ready, steps[i].ready);
        assert_int_equal(st.stopped, i == 6);
    }
    assert_text(&st, "aEEN-EN"); /* END begins before NDX does */
    st = new_stream(stop, 2);
    add(&st, "the EN");
    assert_int_equal(st.ready, 4);
    assert_text(&st, "the EN");
}

static void nothing(void **state)
{
    (void)state;
    struct wnw__stream st = new_stream(NULL, 0);
    add(&st, "");
    assert_null(st.text);
    assert_text(&st, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_cut),
                                       cmocka_unit_test(byte_by_byte),
                                       cmocka_unit_test(bytes_that_are_no_text),
                                       cmocka_unit_test(stop_over_borders),
                                       cmocka_unit_test(held_back),
                                       cmocka_unit_test(nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
