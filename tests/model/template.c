/* SPDX-License-Identifier: MIT */
/*
 * Chat templates of every kind, those that misbehave too. The vocabulary has hardly more than bytes, so that
 * the pieces of a prompt can be written down as text.
 */
#include "helpers.h"
#include "peek_prompt.h"
#include "winnow_tools.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wnw_model *model;

/* The pieces of the prompt are these texts. */
static void assert_pieces(const wnw_prompt *p, const char *first, const char *second)
{
    int32_t *a, *b, n_a, n_b;
    assert_ok(wnw_tokenize(model, first, strlen(first), false, true, &a, &n_a));
    assert_ok(wnw_tokenize(model, second, strlen(second), false, true, &b, &n_b));
    assert_int_equal(p->n_context, n_a);
    assert_int_equal(p->n_tokens, n_a + n_b);
    assert_memory_equal(p->tokens, a, (size_t)n_a * sizeof *a);
    assert_memory_equal(p->tokens + n_a, b, (size_t)n_b * sizeof *b);
    wnw_free(a);
    wnw_free(b);
}

static wnw_prompt_params with(const char *jinja)
{
    return (wnw_prompt_params){WNW_INIT(wnw_prompt_params), .document = "ab\ncd", .question = "ef",
                               .jinja = jinja};
}

static void refused(const wnw_prompt_params *params, int code, const char *word)
{
    wnw_prompt *p = NULL;
    assert_error(wnw_prompt_build(&p, model, params), code);
    assert_null(p);
    assert_null(strchr(wnw_last_error(), '\n'));
    if (!strstr(wnw_last_error(), word))
        fail_msg("\"%s\" does not say %s", wnw_last_error(), word);
}

static void templates_that_change_the_message(void **state)
{
    (void)state;
    static const struct {
        const char *jinja, *first, *second;
    } row[] = {
        {"[{{ messages[0].content }}]", "[ab\ncd", "\n\nef]"},
        {"[{{ messages[0]['content'] | trim }}]", "[ab\ncd", "\n\nef]"},
        {"[{{ messages[0].content | upper }}]", "[AB\nCD", "\n\nEF]"},
        {"[{{ messages[0].content | replace('\\n', ' ') }}]", "[ab cd", "  ef]"},
        {"[{{ messages[0].content | replace('b', 'xyz') | trim }}]", "[axyz\ncd", "\n\nef]"},
        /* A list of parts, as templates of multimodal models want it. */
        {"{{ '[' }}{% for part in messages[0].content %}{{ part.text }}{% endfor %}]", "[ab\ncd", "\n\nef]"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const wnw_prompt_params params = with(row[i].jinja);
        wnw_prompt *p = NULL;
        print_message("  %s\n", row[i].jinja);
        assert_ok(wnw_prompt_build(&p, model, &params));
        assert_pieces(p, row[i].first, row[i].second);
        assert_int_equal(p->n_prefix, 1);
        assert_int_equal(p->n_suffix, 1);
        wnw_prompt_free(p);
    }
}

static void templates_that_cannot_be_used(void **state)
{
    (void)state;
    wnw_prompt_params params = with("[{{ messages[0].content | length }}]");
    refused(&params, WNW_E_UNSUPPORTED, "does not write");
    params = with("[{{ messages[0].content }}|{{ messages[0].content }}]");
    refused(&params, WNW_E_UNSUPPORTED, "document's end");
    params = with("{% if true %}never closed");
    refused(&params, WNW_E_UNSUPPORTED, "cannot be run");
    params = with("{{ messages[0].content | no_such_filter }}");
    refused(&params, WNW_E_UNSUPPORTED, "--chat");
    params = with("{{ raise_exception('Only on Sundays') }}");
    refused(&params, WNW_E_UNSUPPORTED, "Only on Sundays");
    params = with("{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
                  "[{{ messages[0].content }}]");
    params.system = "x";
    refused(&params, WNW_E_UNSUPPORTED, "No system role");
}

/* What the user asked for must not vanish silently. */
static void system_message_left_out(void **state)
{
    (void)state;
    wnw_prompt *p = NULL;
    wnw_prompt_params params =
        with("{% for m in messages if m.role == 'user' %}[{{ m.content }}]{% endfor %}");
    assert_ok(wnw_prompt_build(&p, model, &params));
    wnw_prompt_free(p);
    params.system = "Be brief.";
    refused(&params, WNW_E_UNSUPPORTED, "system message");
    /* Changed is not left out. */
    params.jinja = "{% for m in messages %}[{{ m.content | upper }}]{% endfor %}";
    assert_ok(wnw_prompt_build(&p, model, &params));
    assert_pieces(p, "[BE BRIEF.][AB\nCD", "\n\nEF]");
    assert_int_equal(p->n_prefix, 12);
    wnw_prompt_free(p);
}

/* The head ends where the first turn's text begins, the tail is after the last one's. */
static void earlier_turns(void **state)
{
    (void)state;
    static const wnw_chat_message turns[] = {{"user", "u1"}, {"assistant", "a1"}};
    wnw_prompt_params params = with("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}</s>");
    wnw_prompt *p = NULL;
    params.messages = turns;
    params.n_messages = 2;
    assert_ok(wnw_prompt_build(&p, model, &params));
    assert_pieces(p, "<user>u1<assistant>a1<user>ab\ncd", "\n\nef</s>");
    assert_int_equal(p->n_prefix, 5); /* er is one token */
    assert_int_equal(p->n_suffix, 4);
    wnw_prompt_free(p);
    params.system = "s";
    assert_ok(wnw_prompt_build(&p, model, &params));
    assert_int_equal(p->n_prefix, 8 + 1 + 5); /* <system>s<user> */
    wnw_prompt_free(p);
}

/* Repeats `piece` n times between two ends. Released with free. */
static char *repeated(const char *before, const char *piece, int n, const char *after)
{
    const size_t len = strlen(piece);
    char *s = malloc(strlen(before) + (size_t)n * len + strlen(after) + 1);
    assert_non_null(s);
    char *at = s + sprintf(s, "%s", before);
    for (int i = 0; i < n; i++, at += len)
        memcpy(at, piece, len);
    strcpy(at, after);
    return s;
}

/* The engine recurses: a template from a hostile file must not exhaust the stack. */
static void nested_too_deeply(void **state)
{
    (void)state;
    static const struct {
        const char *before, *piece, *after;
    } row[] = {
        {"{{ ", "(", ""},          {"{{ ", "[", ""},
        {"{{ ", "not ", "x }}"},   {"{{ 1 ", "~ 1 ", "}}"},
        {"{{ ", "- ", "1 }}"},     {"{{ 1 ", "if 1 else 1 ", "}}"},
        {"", "{% if x %}", ""},    {"{% if x %}", "{% elif x %}", "{% endif %}"},
        {"{{ x", ".x", " }}"},     {"{{ x", " | trim", " }}"},
        {"{% set x = ", "(", ""},  {"", "{% for x in y %}", ""},
        {"{{ x ", "and x ", "}}"}, {"{{ ", "{'a': ", ""},
        {"{{ x", "[0]", " }}"},    {"{{ x", "()", " }}"},
        {"", "{% set x %}", ""},   {"", "{% macro x() %}", ""},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *jinja = repeated(row[i].before, row[i].piece, 20000, row[i].after);
        const wnw_prompt_params params = with(jinja);
        refused(&params, WNW_E_UNSUPPORTED, "cannot be run");
        free(jinja);
    }
    /* The longest that is let through. */
    char *jinja = repeated("{{ messages[0].content ", "~ '' ", 990, "}}");
    const wnw_prompt_params params = with(jinja);
    wnw_prompt *p = NULL;
    assert_ok(wnw_prompt_build(&p, model, &params));
    wnw_prompt_free(p);
    free(jinja);
}

/* What templates from a hostile file do to kill or hang a process, or to take all memory. All of it ends in a sentence. */
static void hostile(void **state)
{
    (void)state;
    static const struct {
        const char *jinja, *word;
    } row[] = {
        /* Depth */
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeper"},
        {"{% macro f(n) %}{% if n %}{{ f(n) ~ f(n) }}{% endif %}{% endmacro %}{{ f(1) }}", "deeper"},
        {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ g() }}", "deeper"},
        {"{% macro f() %}{% call f() %}x{% endcall %}{% endmacro %}{{ f() }}", "deeper"},
        {"{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}", "deeper"},
        {"{% macro f(x=f()) %}x{% endmacro %}{{ f() }}", "deeper"},
        {"{% macro f() %}{% for i in [1] if f() %}x{% endfor %}{% endmacro %}{{ f() }}", "deeper"},
        {"{% macro f() %}{% set x %}{{ f() }}{% endset %}{% endmacro %}{{ f() }}", "deeper"},
        {"{% macro f() %}{% filter upper %}{{ f() }}{% endfilter %}{% endmacro %}{{ f() }}", "deeper"},
        {"{% macro f() %}{{ caller() }}{% call f() %}x{% endcall %}{% endmacro %}{% call f() %}y{% endcall "
         "%}",
         "deeper"},
        {"{% for x in [1] %}{{ loop(x) }}{% endfor %}", "cannot be run"},
        /* Steps */
        {"{% for i in range(3000000000) %}{% endfor %}", "range"},
        {"{% for i in range(0, 9223372036854775807, 4611686018427387904) %}{% endfor %}", "range"},
        {"{% for i in range(9223372036854775807, 0, -1) %}{% endfor %}", "range"},
        {"{% for i in range(900000) %}{% endfor %}", "MiB"},
        {"{% for i in range(60000) %}{% for j in range(60000) %}{% endfor %}{% endfor %}", "steps"},
        {"{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}x{% endfor %}{% "
         "endfor %}{% endfor %}",
         "steps"},
        {"{% for i in range(1000) %}{% for j in range(1000) if false %}x{% endfor %}{% endfor %}", "steps"},
        {"{% macro f(n) %}{% if n < 40 %}{{ f(n + 1) }}{{ f(n + 1) }}{% endif %}{% endmacro %}{{ f(0) }}",
         "more than"},
        {"{% set range = nothing %}{% for i in range(3000000000) %}{% endfor %}", "range"},
        {"{% call range(3000000000) %}{% endcall %}", "range"},
        {"{% set f = range %}{{ f(3000000000) }}", "range"},
        /* Bytes */
        {"{{ 'x' * 8000000000 }}", "MiB"},
        {"{{ 8000000000 * 'x' }}", "MiB"},
        {"{{ '' * 8000000000 }}", "MiB"},
        {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ "
         "ns.s }}",
         "MiB"},
        {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
         "MiB"},
        {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] | join(ns.s) "
         "%}{% endfor %}",
         "MiB"},
        {"{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s | replace('x', 'xxxx') "
         "%}{% endfor %}",
         "MiB"},
        {"{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('', ns.s) %}{% "
         "endfor %}",
         "MiB"},
        {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = '{}{}{}'.format(ns.s, ns.s, "
         "ns.s) %}{% endfor "
         "%}",
         "MiB"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
         "MiB"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
         "ns.l }}",
         "MiB"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
         "ns.l | tojson }}",
         "MiB"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
         "ns.l | string }}",
         "MiB"},
        {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
         "ns.l ~ '' }}",
         "MiB"},
        {"{% set ns = namespace(l=(1, 2)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}"
         "{{ ns.l == ns.l }}",
         "MiB"},
        {"{% set ns = namespace(l=(1, 2)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor "
         "%}{{ {ns.l: 1} }}",
         "MiB"},
        {"{% set ns = namespace(l=(1, 2)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}"
         "{{ {'a': 1}[ns.l] }}",
         "MiB"},
        {"{% set ns = namespace(l=(1, 2)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}"
         "{{ [1] | select('in', ns.l) }}",
         "MiB"},
        {"{{ 'a\nb' | indent(8000000000) }}", "columns"},
        {"{{ 'a\nb' | indent(width=8000000000) }}", "columns"},
        {"{{ [1, 2] | tojson(indent=2000000000) }}", "columns"},
        {"{{ [1, 2] | tojson(true, 2000000000) }}", "columns"},
        {"{{ ('x' * 3000000).split('x') }}", "MiB"},
        {"{% set l = [] %}{% for i in range(50000) %}{% set _ = l.append('x' * 100000) %}{% endfor %}",
         "MiB"},
        /* Time */
        {"{% set s = 'a' * 1000000 %}{% set t = 'a' * 500000 ~ 'b' %}{{ t in s }}", "MiB"},
        {"{% set s = 'a' * 1000000 %}{% set t = 'a' * 500000 ~ 'b' %}{{ s | replace(t, '') }}", "MiB"},
        {"{% set s = 'a' * 1000000 %}{{ s.strip('b' * 1000000 ~ 'a') }}", "MiB"},
        {"{% set l = range(100000) %}{% for i in l %}{{ i in l }}{% endfor %}", "more than"},
        {"{% set l = [] %}{% for i in range(2000) %}{% set _ = l.append(('k' ~ i, 1)) %}{% endfor %}{{ "
         "dict(l) }}",
         "pairs"},
        /* Values that hold themselves */
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "themselves"},
        {"{% set l = [] %}{{ 'a' }}{% set _ = l.append(l) %}{{ l | string }}", "themselves"},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}", "themselves"},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ l == l }}", "themselves"},
        {"{% set l = [] %}{% set _ = l.append(l) %}{{ 1 in l }}", "themselves"},
        {"{% set l = [] %}{% set _ = l.append(l) %}{% set x %}{{ l }}{% endset %}", "themselves"},
        {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns | tojson }}", "themselves"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l "
         "}}",
         "themselves"},
        {"{% set ns = namespace(f=[].append) %}{% for i in range(9000) %}{% set ns.f = [ns.f].append %}{% "
         "endfor %}"
         "{{ [ns.f] | string }}",
         "themselves"},
        /* Arithmetic and order */
        {"{{ 1 is divisibleby(0) }}", "division"},
        {"{{ 1 is divisibleby 0 }}", "division"},
        {"{{ test_is_divisibleby(1, 0) }}", "division"},
        {"{{ [1] | select('divisibleby', 0) }}", "division"},
        {"{{ [{'a': 1}] | selectattr('a', 'divisibleby', 0) }}", "division"},
        {"{{ (-9223372036854775807 - 1) is divisibleby(-1) }}", "division"},
        {"{{ (['2', 10, '1x', none, 'a', 3] * 1) }}", "cannot be run"},
        {"{{ ['2', 10, '1x', none, 'a', 3, 4, 5, '7', 1, 8, 9, '0', 3, 5, 6, '8', 2] | sort }}", "order"},
        {"{{ {'2': 1, 10: 2, '1x': 3, 4: 4} | dictsort }}", "order"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const wnw_prompt_params params = with(row[i].jinja);
        print_message("  %s\n", row[i].jinja);
        refused(&params, WNW_E_UNSUPPORTED, row[i].word);
    }
}

/* The same after output that is good, so that what a template made before is dropped and nothing leaks. */
static void hostile_but_harmless(void **state)
{
    (void)state;
    static const char *const row[] = {
        "{% set l = [] %}{% set _ = l.append(l) %}",
        "{% set ns = namespace() %}{% set ns.me = ns %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l] %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(20) }}",
        "{% set f = [].append %}{% set _ = f(f) %}",
        ("{% macro f() %}{% set ns = namespace(c=caller) %}{% set ns.me = ns %}{% endmacro %}"
         "{% call f() %}x{% endcall %}"),
        "{% set range = 3 %}",
        "{% for i in range(3, 0, -1) %}{% endfor %}",
        "{% set x = [3, 1.5, 2] | sort %}{% set y = ['b', 'a'] | sort(reverse=true) %}",
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *jinja = repeated(row[i], "", 0, "[{{ messages[0].content }}]");
        const wnw_prompt_params params = with(jinja);
        wnw_prompt *p = NULL;
        print_message("  %s\n", row[i]);
        assert_ok(wnw_prompt_build(&p, model, &params));
        assert_pieces(p, "[ab\ncd", "\n\nef]");
        wnw_prompt_free(p);
        free(jinja);
    }
}

static void no_bound(const char *folder, const char *name)
{
    enum { MOST = 1 << 18, N_TURNS = 200 };
    static char source[MOST], path[4096];
    static wnw_chat_message turns[N_TURNS];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    source[fread(source, 1, sizeof source - 1, f)] = '\0';
    fclose(f);
    for (int i = 0; i < N_TURNS; i++)
        turns[i] = i % 2 ? (wnw_chat_message){"assistant", "<think>hm</think> An answer."}
                         : (wnw_chat_message){"user", "A question?"};
    char *document = repeated("", "word </think> ", 50000, "");
    wnw_prompt_params rows[] = {with(source), with(source)};
    rows[0].document = document;
    rows[1].messages = turns;
    rows[1].n_messages = N_TURNS;
    for (int i = 0; i < 2; i++) {
        wnw_prompt *p = NULL;
        const int rc = wnw_prompt_build(&p, model, &rows[i]);
        /* Some refuse the messages, or ask for tools. */
        if (rc != WNW_OK && (rc != WNW_E_UNSUPPORTED || strstr(wnw_last_error(), "no honest template")))
            fail_msg("%s: %s", name, wnw_last_error());
        wnw_prompt_free(p);
    }
    free(document);
}

/* Published templates, where there is a folder of them. */
static void honest(void **state)
{
    (void)state;
    const char *folder = getenv("WNW_TEMPLATES");
    DIR *dir = folder ? opendir(folder) : NULL;
    int n = 0;
    if (!dir)
        skip();
    for (struct dirent *e; (e = readdir(dir));)
        if (strstr(e->d_name, ".jinja")) {
            print_message("  %s\n", e->d_name);
            no_bound(folder, e->d_name);
            n++;
        }
    closedir(dir);
    assert_cmp(n, >, 0);
}

/* A source that is too long, and one whose line ends the engine would take minutes for. */
static void long_sources(void **state)
{
    (void)state;
    char *jinja = repeated("", "{# #}", 100000, "[{{ messages[0].content }}]");
    wnw_prompt_params params = with(jinja);
    refused(&params, WNW_E_UNSUPPORTED, "bytes");
    free(jinja);
    jinja = repeated("", "\r\n", 100000, "[{{ messages[0].content }}]");
    params.jinja = jinja;
    wnw_prompt *p = NULL;
    assert_ok(wnw_prompt_build(&p, model, &params));
    assert_null(strchr(p->text, '\r'));
    wnw_prompt_free(p);
    free(jinja);
}

/* A BOS that the vocabulary asks for is there once, whether the template writes it or not. */
static void one_bos(void **state)
{
    (void)state;
    wnw_model *gemma = test_model_open("tiny/chat/gemma3.gguf");
    static const char *const templates[] = {"[{{ messages[0].content }}]",
                                            "{{ bos_token }}[{{ messages[0].content }}]"};
    for (int i = 0; i < 2; i++) {
        const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = "ab",
                                          .jinja = templates[i]};
        wnw_prompt *p = NULL;
        assert_ok(wnw_prompt_build(&p, gemma, &params));
        assert_int_equal(p->tokens[0], 2);
        assert_int_equal(p->n_tokens, 5); /* <bos> [ a b ] */
        assert_int_equal(p->n_prefix, 2);
        wnw_prompt_free(p);
    }
    wnw_model_free(gemma);
}

static void bad_arguments(void **state)
{
    (void)state;
    static const wnw_chat_message system[] = {{"system", "s"}}, broken[] = {{"user", NULL}};
    const wnw_prompt_params row[] = {
        {.question = "q", .raw = true, .system = "s"},
        {.question = "q", .raw = true, .messages = system, .n_messages = 1},
        {.question = "q", .raw = true, .chat = "chatml"},
        {.question = "q", .jinja = "x", .chat = "chatml"},
        {.question = "q", .chat = "no-such-template"},
        {.question = "q", .chat = "<|im_start|>"}, /* a template, not a name */
        {.question = "q", .messages = NULL, .n_messages = 1},
        {.question = "q", .messages = system, .n_messages = -1},
        {.question = "q", .messages = broken, .n_messages = 1},
        {.question = "q", .messages = system, .n_messages = 1, .system = "t"},
        {.question = "", .document = ""},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        refused(&row[i], WNW_E_ARG, "");
}

static int set_up(void **state)
{
    (void)state;
    model = test_model_open("tiny/chat/smollm2.gguf");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wnw_model_free(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_that_change_the_message),
        cmocka_unit_test(templates_that_cannot_be_used),
        cmocka_unit_test(system_message_left_out),
        cmocka_unit_test(earlier_turns),
        cmocka_unit_test(nested_too_deeply),
        cmocka_unit_test(hostile),
        cmocka_unit_test(hostile_but_harmless),
        cmocka_unit_test(long_sources),
        cmocka_unit_test(honest),
        cmocka_unit_test(one_bos),
        cmocka_unit_test(bad_arguments),
    };
    if (!wnw_has_jinja())
        return 77; /* what ctest shows as skipped */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
