/* SPDX-License-Identifier: MIT */
/* The data of the page of `winnow inspect`, from the command and from the server (app/inspect_data.h), and how it gets into a page. */
#include "app/inspect_data.h"
#include "app/page.h"
#include "asserts.h"

#include <stdlib.h>
#include <string.h>

struct pieces {
    const char *piece[16];
    int32_t n, fails_at; /* -1: none does */
};

static int add_piece(struct app_text *t, int32_t i, void *user)
{
    const struct pieces *p = user;
    if (i == p->fails_at)
        return WNW_E_ARG;
    return app_text_add(t, p->piece[i], strlen(p->piece[i])) ? WNW_OK : WNW_E_NOMEM;
}

static void test_texts(void **state)
{
    static const struct {
        struct pieces pieces;
        const char *texts[16];
    } rows[] = {
        {{{"a", "", " b"}, 3, -1}, {"a", "", " b"}},
        {{{"caf", "\xc3", "\xa9", "!"}, 4, -1}, {"caf", "\xc3\xa9", "", "!"}},
        {{{"\xf0", "\x9f", "\x99", "\x82", "x"}, 5, -1}, {"\xf0\x9f\x99\x82", "", "", "", "x"}},
        {{{"\xc3", "\xa9 \xc3", "\xa9"}, 3, -1}, {"\xc3\xa9 \xc3\xa9", "", ""}},
        /* Bytes that begin no character are characters of their own, and take nothing with them. */
        {{{"\x82", "good", "x"}, 3, -1}, {"\xef\xbf\xbd", "good", "x"}},
        {{{"x", "\xf0\x9f"}, 2, -1}, {"x", "\xef\xbf\xbd"}},
        {{{"a"}, 0, -1}, {NULL}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pieces p = rows[i].pieces;
        json_t *texts;
        assert_int_equal(app_inspect_texts(&texts, p.n, add_piece, &p), WNW_OK);
        assert_int_equal(json_array_size(texts), p.n);
        for (int32_t k = 0; k < p.n; k++)
            assert_string_equal(json_string_value(json_array_get(texts, (size_t)k)), rows[i].texts[k]);
        json_decref(texts);
    }
    struct pieces p = {{"a", "b", "c"}, 3, 1};
    json_t *texts;
    assert_int_equal(app_inspect_texts(&texts, p.n, add_piece, &p), WNW_E_ARG);
    json_decref(texts);
}

static void test_digits(void **state)
{
    (void)state;
    static const unsigned char kept[] = {1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1};
    static const struct {
        int32_t n;
        const char *digits;
    } rows[] = {{0, ""}, {1, "1"}, {4, "9"}, {5, "90"}, {12, "90f"}, {14, "90f2"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *o = app_inspect_digits(kept, rows[i].n);
        assert_string_equal(json_string_value(o), rows[i].digits);
        json_decref(o);
    }
}

static void test_data(void **state)
{
    (void)state;
    json_t *plans = json_array(), *layers = json_pack("[[s]]", "9");
    json_t *plan = app_inspect_plan(&(struct app_inspect_plan){
        .name = "a\xff.wkv", .model = "m", .policy = json_null(), .layers = layers, .moved = true});
    assert_int_equal(json_array_append_new(plans, plan), 0);
    json_t *o = app_inspect_data(&(struct app_inspect_data){.n = 4, .plans = plans});
    json_t *want =
        json_pack("{s:s, s:i, s:n, s:n, s:n, s:[{s:s, s:s, s:n, s:b, s:[[s]]}], s:n}", "winnow",
                  wnw_version(), "n", 4, "texts", "ids", "document", "plans", "name", "a\xef\xbf\xbd.wkv",
                  "model", "m", "policy", "moved", 1, "layers", "9", "answer");
    assert_non_null(want);
    assert_true(json_equal(o, want));
    json_decref(want);
    json_decref(o);
    o = app_inspect_data(&(struct app_inspect_data){.n = 4, .first = 1, .end = 3, .plans = plans});
    want = json_pack("[i, i]", 1, 3);
    assert_true(json_equal(json_object_get(o, "document"), want));
    json_decref(want);
    json_decref(o);
    json_decref(plans);
    assert_null(
        app_inspect_plan(&(struct app_inspect_plan){.name = "a", .model = "m", .policy = json_null()}));
}

static void test_pages(void **state)
{
    (void)state;
    static const char page[] = "<p><script type=\"application/json\" id=\"data\">null</script></p>";
    struct app_text t = {0};
    bool placed;
    json_t *data = json_pack("{s:s}", "a", "</script>&\xe2\x80\xa8");
    assert_true(app_page_fill(&t, page, strlen(page), data, &placed));
    assert_true(placed);
    assert_string_equal(
        t.s, "<p><script type=\"application/json\" id=\"data\">{\"a\":\"\\u003c/script\\u003e\\u0026"
             "\\u2028\"}</script></p>");
    assert_false(app_page_fill(&t, page, 20, data, &placed)); /* the rest is not the page's */
    assert_false(placed);
    json_decref(data);
    free(t.s);
}

/* Paths of the machine become names; what only looks like one stays. */
static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const char *word, *shown;
    } rows[] = {
        {"/home/ann/models/a.gguf", "a.gguf"},
        {"--out=/tmp/x/run 1/", "--out=run 1"},
        {"/a/b.txt,../c/d.txt,~/e", "b.txt,d.txt,e"},
        {"./run", "run"},
        {"runs/five", "runs/five"},
        {"/no_think", "/no_think"},
        {"1/2", "1/2"},
        {"snapkv:window=8", "snapkv:window=8"},
        {"https://a.example/b/c", "https://a.example/b/c"},
        {"</think>", "</think>"},
        {"", ""},
        {"/", "/"},
        {"//a//", "a"},
        {"\xc3\xa4/\xc3\xb6", "\xc3\xa4/\xc3\xb6"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *o = json_pack("{s:[s, i], s:b, s:n}", "command", rows[i].word, 7, "good", 1, "none");
        json_t *want = json_pack("{s:[s, i], s:b, s:n}", "command", rows[i].shown, 7, "good", 1, "none");
        json_t *got = app_page_without_paths(o);
        assert_non_null(want);
        if (!json_equal(got, want))
            fail_msg("'%s' became '%s'", rows[i].word,
                     json_string_value(json_array_get(json_object_get(got, "command"), 0)));
        json_decref(o);
        json_decref(want);
        json_decref(got);
    }
    json_t *o = json_string("winnow eval -m '/home/ann/a.gguf' --out /tmp/x/y"),
           *got = app_page_without_paths(o);
    assert_string_equal(json_string_value(got), "winnow eval -m 'a.gguf' --out y");
    json_decref(o);
    json_decref(got);
    got = app_page_name_of_path("/tmp/x/r\xff/");
    assert_string_equal(json_string_value(got), "r\xef\xbf\xbd");
    json_decref(got);
    got = app_page_name_of_path("runs/five");
    assert_string_equal(json_string_value(got), "five");
    json_decref(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts), cmocka_unit_test(test_digits), cmocka_unit_test(test_data),
        cmocka_unit_test(test_pages), cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
