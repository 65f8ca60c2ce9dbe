/* SPDX-License-Identifier: MIT */
/* Who may ask a server (serve/origins.c): hosts, origins and what browsers say of pages, in all the forms that reach it. */
#include "serve/origins.h"
#include "helpers.h"

#include <stdio.h>
#include <string.h>

static const struct serve_doors closed = {.names = "", .origins = "", .page = "/", .tls = false};

/* A program's request, which says of itself only which host it asks. */
static struct serve_asker program(const char *host)
{
    return (struct serve_asker){.method = "POST",
                                .path = "/completion",
                                .host = host,
                                .origin = "",
                                .n_hosts = 1,
                                .site = "",
                                .mode = ""};
}

static bool passes(const struct serve_doors *doors, struct serve_asker asker)
{
    char why[SERVE_REASON] = "";
    const bool refused = serve_refuses(doors, &asker, why);
    assert_int_equal(refused, why[0] != '\0');
    return !refused;
}

static bool passes_host(const struct serve_doors *doors, const char *host)
{
    const bool passed = passes(doors, program(host));
    print_message("%s '%s'\n", passed ? "passes" : "is refused", host);
    return passed;
}

static bool passes_origin(const struct serve_doors *doors, const char *host, const char *origin)
{
    struct serve_asker asker = program(host);
    asker.origin = origin;
    asker.n_origins = 1;
    const bool passed = passes(doors, asker);
    print_message("%s '%s' at '%s'\n", passed ? "passes" : "is refused", origin, host);
    return passed;
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const good[] = {
        "127.0.0.1",           "127.0.0.1:8080",  "127.0.0.1:",     "10.1.2.3:80",      "255.255.255.255",
        "127.0.0.1.",          "localhost",       "localhost:8080", "LocalHost:1",      "localhost.",
        "localhost.:8080",     "[::1]",           "[::1]:8080",     "[2001:DB8::1]:80", "[::ffff:1.2.3.4]",
        "[fe80::1%eth0]:8080", "[fe80::1%25eth0]"};
    static const char *const bad[] = {"",
                                      ".",
                                      ":",
                                      ":8080",
                                      "x",
                                      "evil.example",
                                      "evil.example:8080",
                                      "localhost.evil.example",
                                      "evil.localhost",
                                      "localhost..",
                                      "127.0.0.1.evil.example",
                                      "127.0.0.1..",
                                      "127.1",
                                      "0x7f.0.0.1",
                                      "2130706433",
                                      "256.0.0.1",
                                      "::1",
                                      "::1:8080",
                                      "[::1",
                                      "::1]",
                                      "[]",
                                      "[]:80",
                                      "[::1]x",
                                      "[::1]:80x",
                                      "[::1]]",
                                      "[localhost]",
                                      "[127.0.0.1]",
                                      "[%eth0]",
                                      "[::1]:99999",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "127.0.0.1:8080:1",
                                      "127.0.0.1:80 ",
                                      "127.0.0.1 evil.example",
                                      "127.0.0.1,evil.example",
                                      "user@127.0.0.1",
                                      "127.0.0.1@evil.example",
                                      "127.0.0.1/evil",
                                      "http://127.0.0.1",
                                      "localhost:00000080",
                                      "[1:2:3:4:5:6:7:8:9:10:11:12:13:14:15:16:17:18:19:20:21:22]",
                                      "xn--bcher-kva.example",
                                      "\xe2\x80\xa8"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(passes_host(&closed, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(passes_host(&closed, bad[i]));
    for (size_t n = 0; n < 3; n++) {
        struct serve_asker asker = program("localhost");
        asker.n_hosts = n;
        assert_int_equal(passes(&closed, asker), n == 1);
    }
}

static void test_own_names(void **state)
{
    (void)state;
    const struct serve_doors doors = {.names = "box.lan,Chat,", .origins = "", .page = "/"};
    static const char *const good[] = {"box.lan", "BOX.LAN:80", "box.lan.", "chat",
                                       "Chat:1",  "localhost",  "[::1]"};
    static const char *const bad[] = {"box",       "lan",       "box.lan,Chat", ",",           "a.box.lan",
                                      "box.lan..", "[box.lan]", "chat,",        "evil.example"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(passes_host(&doors, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(passes_host(&doors, bad[i]));
    assert_true(passes_origin(&doors, "box.lan:80", "http://box.lan"));
    assert_false(passes_origin(&doors, "box.lan", "http://chat"));
    assert_true(serve_is_host_name("box.lan") && serve_is_host_name("a_b-c.9") &&
                serve_is_host_name("localhost"));
    static const char *const none[] = {"",    ".",        "a.",  ".a",  "a:80", "[::1]",   "a,b",
                                       "a b", "http://a", "a/b", "a\n", "*.a",  "\xc3\xa9"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(serve_is_host_name(none[i]));
    char longest[258];
    memset(longest, 'a', sizeof longest);
    longest[255] = '\0';
    assert_true(serve_is_host_name(longest));
    longest[255] = 'a';
    longest[256] = '\0';
    assert_false(serve_is_host_name(longest));
}

static void test_origins(void **state)
{
    (void)state;
    static const char *const good[][2] = {{"127.0.0.1:8080", "http://127.0.0.1:8080"},
                                          {"localhost:8080", "http://LOCALHOST:8080"},
                                          {"LOCALHOST:8080", "HTTP://localhost:8080"},
                                          {"localhost", "http://localhost"},
                                          {"localhost:80", "http://localhost"},
                                          {"localhost", "http://localhost:80"},
                                          {"localhost.:8080", "http://localhost.:8080"},
                                          {"[::1]:8080", "http://[::1]:8080"},
                                          {"[::1]", "http://[::1]:80"}};
    static const char *const bad[][2] = {{"127.0.0.1:8080", "null"},
                                         {"127.0.0.1:8080", ""},
                                         {"127.0.0.1:8080", "http://"},
                                         {"127.0.0.1:8080", "http://evil.example"},
                                         {"127.0.0.1:8080", "http://evil.example:8080"},
                                         {"127.0.0.1:8080", "http://127.0.0.1:8081"},
                                         {"127.0.0.1:8080", "http://127.0.0.1"},
                                         {"127.0.0.1:8080", "https://127.0.0.1:8080"},
                                         {"127.0.0.1:8080", "http://localhost:8080"},
                                         {"127.0.0.1:8080", "http://127.0.0.1:8080.evil.example"},
                                         {"127.0.0.1:8080", "http://127.0.0.1:8080/"},
                                         {"127.0.0.1:8080", "http://127.0.0.1:8080@evil.example"},
                                         {"127.0.0.1:8080", "http://evil.example?http://127.0.0.1:8080"},
                                         {"127.0.0.1:8080", "http://127.0.0.1:8080 http://evil.example"},
                                         {"127.0.0.1:8080", "127.0.0.1:8080"},
                                         {"127.0.0.1:8080", "//127.0.0.1:8080"},
                                         {"127.0.0.1:8080", "file://127.0.0.1:8080"},
                                         {"127.0.0.1:8080", "chrome-extension://127.0.0.1:8080"},
                                         {"127.0.0.1:8080", "*"},
                                         {"127.0.0.1:8080", "http://127.0.0.1:808"},
                                         {"127.0.0.1:80", "https://127.0.0.1"},
                                         {"[::1]:8080", "http://[::2]:8080"},
                                         {"[::1]:8080", "http://::1:8080"},
                                         {"localhost:443", "https://localhost"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(passes_origin(&closed, good[i][0], good[i][1]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(passes_origin(&closed, bad[i][0], bad[i][1]));
    struct serve_doors tls = closed;
    tls.tls = true;
    assert_true(passes_origin(&tls, "localhost", "https://localhost:443"));
    assert_true(passes_origin(&tls, "localhost:8443", "https://localhost:8443"));
    assert_false(passes_origin(&tls, "localhost:8443", "http://localhost:8443"));
    struct serve_asker two = program("localhost");
    two.origin = "http://localhost";
    two.n_origins = 2;
    assert_false(passes(&closed, two));
}

static void test_allowed_origins(void **state)
{
    (void)state;
    struct serve_doors doors = closed;
    doors.origins = "https://chat.example, http://other.example:3000";
    assert_true(passes_origin(&doors, "localhost", "https://chat.example"));
    assert_true(passes_origin(&doors, "localhost", "http://other.example:3000"));
    assert_true(passes_origin(&doors, "localhost", "http://localhost"));
    assert_false(passes_origin(&doors, "localhost", "http://chat.example"));
    assert_false(passes_origin(&doors, "localhost", "https://chat.example.evil.example"));
    assert_false(passes_origin(&doors, "evil.example", "https://chat.example"));
    doors.origins = "localhost";
    assert_true(passes_origin(&doors, "127.0.0.1:8080", "http://localhost:3000"));
    assert_true(passes_origin(&doors, "127.0.0.1:8080", "https://[::1]"));
    assert_true(passes_origin(&doors, "127.0.0.1:8080", "http://127.0.0.1:1"));
    assert_false(passes_origin(&doors, "127.0.0.1:8080", "http://localhost.evil.example"));
    assert_false(passes_origin(&doors, "127.0.0.1:8080", "null"));
    doors.origins = "*";
    assert_true(passes_origin(&doors, "127.0.0.1:8080", "https://any.example"));
    assert_true(passes_origin(&doors, "127.0.0.1:8080", "null"));
    assert_false(passes_origin(&doors, "any.example", "https://any.example"));
}

static void test_pages_without_an_origin(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *site, *mode;
        bool passes;
    } rows[] = {{"GET", "/slots", "same-origin", "cors", true},
                {"GET", "/slots", "none", "navigate", true},
                {"GET", "/slots", "cross-site", "no-cors", false},
                {"GET", "/slots", "Cross-Site", "no-cors", false},
                {"GET", "/slots", "same-site", "no-cors", false},
                {"GET", "/slots", "cross-site", "navigate", false},
                {"GET", "/", "cross-site", "navigate", true},
                {"GET", "/", "cross-site", "no-cors", false},
                {"GET", "/", "cross-site", "", false},
                {"POST", "/", "cross-site", "navigate", false},
                {"OPTIONS", "*", "", "", true},
                {"GET", "http://127.0.0.1/slots", "", "", false},
                {"GET", "slots", "", "", false},
                {"GET", "", "", "", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct serve_asker asker = program("127.0.0.1:8080");
        asker.method = rows[i].method;
        asker.path = rows[i].path;
        asker.site = rows[i].site;
        asker.mode = rows[i].mode;
        print_message("%s %s %s\n", asker.method, asker.path, asker.site);
        assert_int_equal(passes(&closed, asker), rows[i].passes);
    }
    struct serve_doors doors = closed;
    doors.origins = "*";
    struct serve_asker asker = program("127.0.0.1:8080");
    asker.site = "cross-site";
    assert_true(passes(&doors, asker));
    doors = closed;
    doors.page = "/llm/";
    asker.method = "GET";
    asker.mode = "navigate";
    asker.path = "/llm/";
    assert_true(passes(&doors, asker));
    asker.path = "/";
    assert_false(passes(&doors, asker));
}

/* A reason shows what was sent where that can be shown, and always fits. */
static void test_reasons(void **state)
{
    (void)state;
    char why[SERVE_REASON], value[5000];
    struct serve_asker asker = program("evil.example");
    assert_true(serve_refuses(&closed, &asker, why));
    assert_non_null(strstr(why, "'evil.example'"));
    asker = program("\x1b[31mevil");
    assert_true(serve_refuses(&closed, &asker, why));
    assert_null(strchr(why, '\x1b'));
    memset(value, 'a', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    asker = program(value);
    assert_true(serve_refuses(&closed, &asker, why));
    asker = program("localhost");
    asker.origin = value;
    asker.n_origins = 1;
    assert_true(serve_refuses(&closed, &asker, why));
    assert_true(strlen(why) < SERVE_REASON - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_own_names),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_allowed_origins),
        cmocka_unit_test(test_pages_without_an_origin),
        cmocka_unit_test(test_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
