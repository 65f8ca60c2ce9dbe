/* SPDX-License-Identifier: MIT */
/* How the server reads bodies (serve/): their extent, their fields, prompts, grammars and schemas. */
#include "helpers.h"
#include "serve/bodies.h"
#include "serve/grammar.h"
#include "serve/parse.h"
#include "serve/request.h"
#include "serve/schema.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CELLS = 4096, MOST_TEXT = 100000, N_SLOTS = 4 };

static struct serve_config config;

const struct serve_config *serve_settings(void)
{
    return &config;
}

int serve_check_policy(const wnw_policy *policy)
{
    return policy ? WNW_OK : WNW_E_ARG;
}

static void open_slots(uint64_t cap)
{
    config = (struct serve_config){.cap = cap};
    assert_int_equal(serve_keep_rule_set(&config.keep_rule, "keydiff", NULL), WNW_OK);
    serve_slots_open(
        N_SLOTS,
        &(struct serve_room){
            .row_bytes = 100, .row_entries = 10, .n_cells = N_CELLS, .n_vocab = 500, .most_text = MOST_TEXT},
        true);
}

/* A text of n times `one`, with other texts before and after it; to be freed. */
static char *times(const char *before, const char *one, size_t n, const char *document_plus_1)
{
    const size_t b = strlen(before), o = strlen(one), e = strlen(document_plus_1);
    char *text = malloc(b + n * o + e + 1);
    assert_non_null(text);
    memcpy(text, before, b);
    for (size_t i = 0; i < n; i++)
        memcpy(text + b + i * o, one, o);
    memcpy(text + b + n * o, document_plus_1, e + 1);
    return text;
}

/* ---- Extent ---- */

static void test_extent(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int32_t depth;
        size_t longest;
    } cases[] = {{"7", 0, 0},
                 {"[]", 1, 0},
                 {"{\"a\":[{}]}", 3, 2},
                 {"[[],[],[]]", 2, 0},
                 {"[\"[[[[\"]", 1, 5},
                 {"[\"\\\"[[\\\\\",[]]", 2, 7},
                 {"]]]][", 1, 0},
                 {"\"[", 0, 2},
                 {"\"\\", 0, 2},
                 {"", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct serve_extent e = serve_parse_extent(cases[i].body, strlen(cases[i].body));
        if (e.depth != cases[i].depth || e.longest != cases[i].longest)
            fail_msg("'%s': depth %d, longest %zu", cases[i].body, (int)e.depth, e.longest);
    }
    /* Every value costs something. */
    static const char *const values[] = {"{},",   "[],",        "1,",    "null,",
                                         "\"\",", "{\"a\":1},", "[[]],", "-1e5,"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char *text = times("[", values[i], 1000, "0]");
        assert_in_range(serve_parse_extent(text, strlen(text)).bytes, 1000 * 50, 1000 * 700);
        free(text);
    }
}

/* A status of serve_parse; *out is released. */
static int parsed(const char *body, size_t n, char *why)
{
    json_t *o;
    why[0] = '\0';
    const int status = serve_parse(&o, body, n, why);
    assert_true((status == 0) == (o != NULL));
    json_decref(o);
    return status;
}

static void test_bodies_without_end(void **state)
{
    (void)state;
    open_slots(0);
    char why[SERVE_TEXT];
    enum { MANY = 3 << 20 };
    static const char *const ones[] = {"{},", "[],", "1,", "\"\",", "{\"a\":[]},", "[[0]],", "null,"};
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        char *text = times("{\"messages\":[", ones[i], MANY, "0]}");
        assert_int_equal(parsed(text, strlen(text), why), 400);
        assert_non_null(strstr(why, "too many values"));
        free(text);
    }
    static const char *const deep[] = {"[", "{\"a\":", "[{\"b\":", "[0,"};
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++)
        for (int n = 100; n <= 100000; n *= 10) {
            char *text = times("", deep[i], (size_t)n + 1, "");
            assert_int_equal(parsed(text, strlen(text), why), 400);
            assert_non_null(strstr(why, "deep"));
            free(text);
        }
    char *text = times("[", "[", SERVE_DEPTH - 1, ""), *whole = times(text, "]", SERVE_DEPTH, "");
    assert_int_equal(parsed(whole, strlen(whole), why), 0);
    free(text);
    free(whole);
    /* A text that no context holds, but for images. */
    text = times("{\"prompt\":\"", "a", 6 * MOST_TEXT + 6, "\"}");
    assert_int_equal(parsed(text, strlen(text), why), 400);
    assert_non_null(strstr(why, "longer than any prompt"));
    config.media = true;
    assert_int_equal(parsed(text, strlen(text), why), 0);
    free(text);
    /* A hundred thousand tokens are no body without end. */
    text = times("{\"prompt\":[", "12345,", 100000, "1]}");
    assert_int_equal(parsed(text, strlen(text), why), 0);
    free(text);
}

static void test_what_is_no_json(void **state)
{
    (void)state;
    static const struct {
        const char *body, *says;
    } cases[] = {{"", "no JSON"},
                 {"{\"a\":1,\"a\":2}", "twice"},
                 {"[{\"x\":{\"a\":1,\"a\":1}}]", "twice"},
                 {"{\"a\":1", "no JSON"},
                 {"{\"a\":1}}", "no JSON"},
                 {"{'a':1}", "no JSON"},
                 {"[01]", "no JSON"},
                 {"[NaN]", "no JSON"},
                 {"[\"\xff\"]", "no JSON"},
                 {"[\"\\ud800\"]", "no JSON"},
                 {"[18446744073709551616]", "too large"},
                 {"[1e999]", "too large"},
                 {"\xef\xbb\xbf{}", "no JSON"},
                 {"[1,]", "no JSON"},
                 {"// x\n{}", "no JSON"}};
    char why[SERVE_TEXT];
    open_slots(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (parsed(cases[i].body, strlen(cases[i].body), why) != 400 || !strstr(why, cases[i].says))
            fail_msg("'%s': %s", cases[i].body, why);
    json_t *o;
    static const char body[] = "{\"a\":null,\"b\":{\"c\":null},\"d\":[null],\"e\":null}";
    assert_int_equal(serve_parse(&o, body, sizeof body - 1, why), 0);
    char *text = json_dumps(o, JSON_COMPACT);
    assert_string_equal(text, "{\"b\":{\"c\":null},\"d\":[null]}");
    free(text);
    json_decref(o);
}

/* ---- Fields ---- */

/* Reads a body; param says which field is refused, NULL: none. */
static int read_body(struct serve_request *r, enum serve_form form, const char *body, char *why,
                     const char **param)
{
    *param = NULL;
    why[0] = '\0';
    return serve_request_read(r, form, body, strlen(body), why, param);
}

static void refuses(enum serve_form form, const char *body, const char *keep_rule)
{
    struct serve_request r;
    char why[SERVE_TEXT];
    const char *param;
    const int status = read_body(&r, form, body, why, &param);
    if (status != 400 || !param || strcmp(param, keep_rule) != 0 || strstr(why, keep_rule) == NULL)
        fail_msg("%s: status %d, field %s, not %s: %s", body, status, param ? param : "none", keep_rule, why);
    serve_request_free(&r);
}

/* What is passed on of a body, in slot 2; to be freed. */
static char *passed(enum serve_form form, const char *body)
{
    struct serve_request r;
    char why[SERVE_TEXT];
    const char *param;
    const struct serve_claim claim = {.slot = 2};
    if (read_body(&r, form, body, why, &param) != 0)
        fail_msg("%s: %s", body, why);
    char *text = serve_request_passed(&r, &claim);
    serve_request_free(&r);
    return text;
}

static void passes(enum serve_form form, const char *body, const char *keep_rule)
{
    char *text = passed(form, body);
    assert_string_equal(text, keep_rule);
    free(text);
}

#define CHAT(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" more "}"

static void test_types_of_fields(void **state)
{
    (void)state;
    open_slots(0);
    static const char *const whole[] = {"n_predict", "max_tokens",    "n",        "n_cmpl",
                                        "id_slot",   "top_k",         "n_keep",   "seed",
                                        "n_probs",   "repeat_last_n", "mirostat", "t_max_predict_ms"};
    static const char *const bad[] = {"\"3\"", "1.5", "true", "[]", "{}", "\"\"", "1e30", "-1e30"};
    char body[200];
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":%s}", whole[i], bad[k]);
            refuses(SERVE_FORM_PROMPT, body, whole[i]);
        }
    static const struct {
        const char *field, *values[5];
    } cases[] = {{"n_predict", {"-2", "4294967301", "-4294967297", "9223372036854775807"}},
                 {"n", {"0", "-1", "5", "4294967297"}},
                 {"n_cmpl", {"0", "5", "99999999999"}},
                 {"id_slot", {"-2", "4", "4294967296"}},
                 {"temperature", {"\"1\"", "true", "[]"}},
                 {"stream", {"1", "\"true\"", "{}"}},
                 {"cache_prompt", {"0", "\"no\""}},
                 {"stop", {"1", "[1]", "{}", "[[]]"}},
                 {"grammar", {"1", "[]", "{}", "\"a\\u0000\""}},
                 {"json_schema", {"1", "[]", "\"x\""}},
                 {"lora", {"{}", "1", "[1]"}},
                 {"logit_bias", {"5", "[5]", "\"x\""}},
                 {"response_fields", {"[1]", "{}"}},
                 {"chat_parser", {"\"x\"", "1", "{}"}},
                 {"grammar_triggers", {"[]", "[{\"type\":2,\"value\":\"((((a+)+)+)+)b\"}]"}},
                 {"grammar_lazy", {"true"}},
                 {"best_of", {"2"}},
                 {"suffix", {"\"x\""}},
                 {"echo", {"true", "1"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < 5 && cases[i].values[k]; k++) {
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":%s}", cases[i].field, cases[i].values[k]);
            refuses(SERVE_FORM_PROMPT, body, cases[i].field);
        }
    refuses(SERVE_FORM_CHAT, CHAT(",\"tool_choice\":{\"type\":\"function\"}"), "tool_choice");
#define TOOLS "\"tools\":[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\"}}]"
    refuses(SERVE_FORM_CHAT, CHAT("," TOOLS ",\"tool_choice\":{\"function\":{\"name\":\"h\"}}"),
            "tool_choice");
    refuses(SERVE_FORM_MESSAGES, CHAT(",\"tool_choice\":\"auto\""), "tool_choice");
    passes(SERVE_FORM_CHAT, "{\"messages\":[]," TOOLS ",\"tool_choice\":{\"function\":{\"name\":\"g\"}}}",
           "{\"messages\":[],\"tools\":[{\"function\":{\"name\":\"g\"}}],\"tool_choice\":\"required\",\"id_"
           "slot\":2}");
    passes(SERVE_FORM_CHAT, "{\"messages\":[]," TOOLS ",\"tool_choice\":\"none\"}",
           "{\"messages\":[]," TOOLS ",\"tool_choice\":\"none\",\"id_slot\":2}");
    passes(SERVE_FORM_MESSAGES,
           "{\"messages\":[],\"tools\":[{\"name\":\"f\"},{\"name\":\"g\"}],\"tool_choice\":{\"type\":"
           "\"tool\",\"name\":\"f\"}}",
           "{\"messages\":[],\"tools\":[{\"name\":\"f\"}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"},"
           "\"id_slot\":2}");
    passes(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"suffix\":\"\",\"best_of\":1}",
           "{\"prompt\":\"x\",\"suffix\":\"\",\"best_of\":1,\"id_slot\":2}");
#undef TOOLS
    refuses(SERVE_FORM_CHAT, CHAT(",\"logprobs\":3"), "logprobs");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"logprobs\":true}", "logprobs");
    refuses(SERVE_FORM_RESPONSES, "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}",
            "text");
    /* A number without a fraction is a whole one. What means nothing is left out, and what nobody knows goes on. */
    passes(
        SERVE_FORM_PROMPT,
        "{\"prompt\":\"x\",\"n_predict\":5.0,\"n\":null,\"stream\":null,\"user\":{\"a\":null},\"top_p\":1}",
        "{\"prompt\":\"x\",\"n_predict\":5,\"user\":{\"a\":null},\"top_p\":1,\"id_slot\":2}");
    /* What the sampler would keep room for is no more than there can be. */
    passes(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"repeat_last_n\":2147483647,\"dry_penalty_last_n\":5000}",
           "{\"prompt\":\"x\",\"repeat_last_n\":4096,\"dry_penalty_last_n\":4096,\"id_slot\":2}");
}

static void test_names_of_one_field(void **state)
{
    (void)state;
    static const char *const answer[] = {"n_predict", "max_tokens", "max_completion_tokens"};
    char body[200];
    struct serve_request r;
    char why[SERVE_TEXT];
    const char *param;
    open_slots(5000);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            if (i == k)
                continue;
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":7,\"%s\":8}", answer[i], answer[k]);
            refuses(SERVE_FORM_PROMPT, body, answer[i > k ? i : k]);
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":7,\"%s\":-1}", answer[i], answer[k]);
            refuses(SERVE_FORM_PROMPT, body, answer[i > k ? i : k]);
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":7,\"%s\":7.0,\"n\":2,\"n_cmpl\":2}",
                     answer[i], answer[k]);
            assert_int_equal(read_body(&r, SERVE_FORM_PROMPT, body, why, &param), 0);
            assert_int_equal(r.ask.n_predict, 7);
            assert_int_equal(r.ask.n_slots, 2);
            assert_int_equal(json_object_size(r.body), 3); /* a prompt, one length, one number of answers */
            serve_request_free(&r);
        }
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"n_cmpl\":4,\"n\":1}", "n");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"n\":1,\"n_cmpl\":4}", "n");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"n_probs\":1,\"logprobs\":2}", "logprobs");
    refuses(SERVE_FORM_RESPONSES, "{\"input\":\"x\",\"max_output_tokens\":1,\"max_tokens\":2}",
            "max_output_tokens");
    refuses(SERVE_FORM_CHAT, CHAT(",\"reasoning_budget_tokens\":1,\"thinking_budget_tokens\":2"),
            "thinking_budget_tokens");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"grammar\":\"root ::= .\",\"json_schema\":{}}", "grammar");
    refuses(SERVE_FORM_CHAT,
            CHAT(",\"grammar\":\"root ::= .\",\"response_format\":{\"type\":\"json_object\"}"),
            "response_format");
    passes(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"n\":null,\"n_cmpl\":3}",
           "{\"prompt\":\"x\",\"n_cmpl\":3,\"id_slot\":2,\"n_predict\":1024}");
}

/* Members of lists and objects that the server would pass over. */
static void test_values_of_fields(void **state)
{
    (void)state;
    static const struct {
        enum serve_form form;
        const char *field, *bad[8], *good[5];
    } cases[] = {
        {SERVE_FORM_PROMPT,
         "samplers",
         {"[\"nosuch\"]", "[\"top_k\",\"\"]", "\"kz\"", "\"K\"", "\" k\"", "[\"typical\"]", "\"k\\u0000\""},
         {"[\"top_k\",\"temperature\"]", "\"edskypmtxai\"", "[]", "\"\"", "[\"Top_P\"]"}},
        {SERVE_FORM_PROMPT,
         "logit_bias",
         {"[[1]]", "[[]]", "[[1,2,3]]", "[[-1,1]]", "[[500,1]]", "[[1,\"x\"]]", "[[\"\",1]]", "[[1,true]]"},
         {"[[1,-2.5],[\"ab\",false]]", "{\"499\":1,\"ab\":false}", "[]", "{}"}},
        {SERVE_FORM_CHAT,
         "logit_bias",
         {"{\"500\":1}", "{\"-1\":1}", "{\"\":1}", "{\"1\":null}", "{\"1\":\"2\"}",
          "{\"99999999999999999999\":1}", "[[1.5,1]]", "[[null,1]]"},
         {"{\"5 \":1}"}},
        {SERVE_FORM_PROMPT, "mirostat", {"3", "-1"}, {"0", "2"}},
        {SERVE_FORM_PROMPT,
         "lora",
         {"[{}]", "[{\"id\":0}]", "[{\"id\":-1,\"scale\":1}]", "[{\"id\":\"a\",\"scale\":1}]",
          "[{\"scale\":1}]", "[{\"id\":0,\"scale\":\"1\"}]"},
         {"[]", "[{\"id\":0,\"scale\":0.5}]"}},
        {SERVE_FORM_CHAT,
         "response_format",
         {"{}", "{\"type\":5}", "{\"type\":\"json_schema\"}", "{\"type\":\"json_schema\",\"json_schema\":5}",
          "{\"type\":\"json_schema\",\"schema\":{\"type\":\"boolean\"}}",
          "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":5}}",
          "{\"type\":\"text\",\"schema\":{\"type\":\"boolean\"}}",
          "{\"type\":\"json_object\",\"json_schema\":{\"schema\":{}}}"},
         {"{\"type\":\"text\"}", "{\"type\":\"json_object\",\"schema\":{\"type\":\"boolean\"}}",
          "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":\"boolean\"}}}"}},
        {SERVE_FORM_CHAT,
         "tools",
         {"[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":5}}]",
          "[{\"function\":{\"name\":\"f\",\"parameters\":[]}}]"},
         {"[{\"function\":{\"name\":\"f\",\"parameters\":{}}}]"}},
        {SERVE_FORM_MESSAGES,
         "tools",
         {"[{\"name\":\"f\",\"input_schema\":\"x\"}]"},
         {"[{\"name\":\"f\",\"input_schema\":{}}]"}},
        {SERVE_FORM_CHAT,
         "modalities",
         {"[\"audio\"]", "[\"text\",\"audio\"]", "\"text\"", "[5]"},
         {"[\"text\"]"}},
        {SERVE_FORM_MESSAGES,
         "thinking",
         {"{}", "{\"type\":\"x\"}", "{\"type\":\"enabled\",\"budget_tokens\":\"9\"}",
          "{\"type\":\"enabled\",\"budget_tokens\":-1}"},
         {"{\"type\":\"disabled\"}", "{\"type\":\"enabled\",\"budget_tokens\":9}"}},
        {SERVE_FORM_MESSAGES,
         "system",
         {"[{\"type\":\"text\"}]", "[5]", "[{\"type\":\"image\"}]"},
         {"[{\"type\":\"text\",\"text\":\"x\"}]", "\"x\""}},
        {SERVE_FORM_CHAT, "echo", {"true"}, {"false"}},
        {SERVE_FORM_CHAT,
         "reasoning_format",
         {"\"\"", "\"x\\u001b\"", "\"NONE\"", "\"none \""},
         {"\"none\"", "\"deepseek-legacy\""}},
        {SERVE_FORM_CHAT, "guided_json", {"{\"type\":\"string\"}"}, {"{}", "null"}},
        {SERVE_FORM_CHAT, "min_tokens", {"5", "1", "-1"}, {"0"}},
        {SERVE_FORM_CHAT, "repetition_penalty", {"1.5", "0"}, {"1", "1.0"}},
        {SERVE_FORM_CHAT, "num_predict", {"1", "0"}, {"-1"}},
        {SERVE_FORM_CHAT, "continue_final_message", {"true"}, {"false"}},
    };
    char body[400];
    open_slots(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *begin = cases[i].form == SERVE_FORM_PROMPT ? "\"prompt\":\"x\"" : "\"messages\":[]";
        for (size_t k = 0; k < 8 && cases[i].bad[k]; k++) {
            snprintf(body, sizeof body, "{%s,\"%s\":%s}", begin, cases[i].field, cases[i].bad[k]);
            refuses(cases[i].form, body, cases[i].field);
        }
        for (size_t k = 0; k < 5 && cases[i].good[k]; k++) {
            snprintf(body, sizeof body, "{%s,\"%s\":%s}", begin, cases[i].field, cases[i].good[k]);
            free(passed(cases[i].form, body));
        }
    }
    static const char *const parts[] = {"{\"type\":\"document\"}", "{}", "5", "{\"type\":\"text\"}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":[%s]}]}", parts[i]);
        refuses(SERVE_FORM_MESSAGES, body, "messages");
    }
    refuses(SERVE_FORM_RESPONSES, "{\"input\":\"x\",\"text\":5}", "text");
    refuses(SERVE_FORM_RESPONSES, "{\"input\":\"x\",\"previous_response_id\":\"r\"}", "previous_response_id");
    refuses(SERVE_FORM_RESPONSES, "{\"input\":\"x\",\"conversation\":\"c\"}", "conversation");
    refuses(SERVE_FORM_RESPONSES, "{\"input\":\"x\",\"background\":true}", "background");
}

/* What another route would follow, and this one would not. */
static void test_fields_of_other_routes(void **state)
{
    (void)state;
    open_slots(0);
    refuses(SERVE_FORM_PROMPT, CHAT(",\"prompt\":\"x\""), "messages");
    refuses(SERVE_FORM_CHAT, CHAT(",\"prompt\":\"x\""), "prompt");
    refuses(SERVE_FORM_CHAT, CHAT(",\"input\":\"x\""), "input");
    refuses(SERVE_FORM_RESPONSES, CHAT(",\"input\":\"x\""), "messages");
    refuses(SERVE_FORM_MESSAGES, CHAT(",\"prompt\":[1]"), "prompt");
    refuses(SERVE_FORM_MESSAGES, CHAT(",\"n\":2"), "n");
    refuses(SERVE_FORM_MESSAGES, CHAT(",\"n_predict\":2"), "n_predict");
    refuses(SERVE_FORM_MESSAGES, CHAT(",\"json_schema\":{}"), "json_schema");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"tools\":[]}", "tools");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"response_format\":{\"type\":\"json_object\"}}",
            "response_format");
    refuses(SERVE_FORM_CHAT, CHAT(",\"system\":\"x\""), "system");
    refuses(SERVE_FORM_PROMPT, "{}", "prompt");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":null}", "prompt");
    refuses(SERVE_FORM_CHAT, "{\"messages\":null}", "messages");
    refuses(SERVE_FORM_CHAT, "{\"messages\":{}}", "messages");
    refuses(SERVE_FORM_MESSAGES, "{}", "messages");
    refuses(SERVE_FORM_RESPONSES, "{\"model\":\"x\"}", "input");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"winnow\":{\"ratio\":0.5,\"document\":\"d\"}}",
            "winnow.document");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"winnow\":{\"policies\":1}}", "winnow");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"winnow\":[]}", "winnow");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"winnow\":{\"policy\":null}}", "winnow.policy");
    passes(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"winnow\":null}", "{\"prompt\":\"x\",\"id_slot\":2}");
    struct serve_request r;
    char why[SERVE_TEXT];
    const char *param;
    assert_int_equal(read_body(&r, SERVE_FORM_PROMPT, "[1]", why, &param), 400);
    assert_non_null(strstr(why, "no object"));
    serve_request_free(&r);
    json_t *o = json_pack("{s:{s:i}}", "winnow", "budget", 9);
    assert_int_equal(serve_request_check_other(o, -1, why, &param), 400);
    assert_string_equal(param, "winnow");
    json_decref(o);
    o = json_pack("{s:s}", "content", "x");
    assert_int_equal(serve_request_check_other(o, -1, why, &param), 0);
    json_decref(o);
}

/* Reads a body of a route that generates no text; want: the field that is refused, "" if there is none to name, NULL: it passes. */
static void other(int form, const char *body, const char *keep_rule)
{
    char why[SERVE_TEXT] = "";
    const char *param = NULL;
    json_t *o = json_loads(body, JSON_DECODE_ANY, NULL);
    assert_non_null(o);
    const int status = serve_request_check_other(o, form, why, &param);
    if (status != (keep_rule ? 400 : 0) || (keep_rule && strcmp(param ? param : "", keep_rule) != 0))
        fail_msg("%s: status %d, field %s, not %s: %s", body, status, param ? param : "none",
                 keep_rule ? keep_rule : "none", why);
    json_decref(o);
}

static void test_routes_without_answers(void **state)
{
    (void)state;
    open_slots(0);
    static const struct {
        int form;
        const char *body, *refused;
    } cases[] = {
        {SERVE_FORM_TOKENIZE, "{\"content\":\"x\",\"add_special\":true,\"model\":\"m\"}", NULL},
        {SERVE_FORM_TOKENIZE, "{\"content\":[\"x\",5,\"\",499],\"with_pieces\":false}", NULL},
        {SERVE_FORM_TOKENIZE, "{}", "content"},
        {SERVE_FORM_TOKENIZE, "{\"content\":{\"a\":1}}", "content"},
        {SERVE_FORM_TOKENIZE, "{\"content\":[1.5]}", "content"},
        {SERVE_FORM_TOKENIZE, "{\"content\":[500]}", "content"},
        {SERVE_FORM_TOKENIZE, "{\"content\":[-1]}", "content"},
        {SERVE_FORM_TOKENIZE, "{\"content\":[[1]]}", "content"},
        {SERVE_FORM_TOKENIZE, "{\"content\":\"x\",\"with_pieces\":\"yes\"}", "with_pieces"},
        {SERVE_FORM_TOKENIZE, "{\"content\":\"x\",\"parse_special\":1}", "parse_special"},
        {SERVE_FORM_TOKENIZE, "{\"content\":\"x\",\"prompt\":\"y\"}", "prompt"},
        {SERVE_FORM_TOKENIZE, "{\"content\":\"x\",\"add_special_tokens\":true}", "add_special_tokens"},
        {SERVE_FORM_TOKENIZE, "[]", ""},
        {SERVE_FORM_DETOKENIZE, "{\"tokens\":[0,499]}", NULL},
        {SERVE_FORM_DETOKENIZE, "{\"tokens\":[]}", NULL},
        {SERVE_FORM_DETOKENIZE, "{}", "tokens"},
        {SERVE_FORM_DETOKENIZE, "{\"tokens\":[0,500]}", "tokens"},
        {SERVE_FORM_DETOKENIZE, "{\"tokens\":[0,1.0]}", "tokens"},
        {SERVE_FORM_DETOKENIZE, "{\"tokens\":[\"x\"]}", "tokens"},
        {SERVE_FORM_DETOKENIZE, "{\"tokens\":5}", "tokens"},
        {SERVE_FORM_DETOKENIZE, "{\"tokens\":[1],\"content\":\"x\"}", "content"},
        {SERVE_FORM_EMBEDDINGS, "{\"input\":[\"x\",[1,2]],\"encoding_format\":\"float\",\"model\":\"m\"}",
         NULL},
        {SERVE_FORM_EMBEDDINGS, "{\"input\":\"x\",\"content\":\"y\"}", "content"},
        {SERVE_FORM_EMBEDDINGS, "{\"input\":\"x\",\"dimensions\":64}", "dimensions"},
        {SERVE_FORM_EMBEDDINGS, "{\"input\":\"x\",\"embd_normalize\":\"2\"}", "embd_normalize"},
        {SERVE_FORM_EMBEDDINGS, "{\"input\":\"x\",\"temperature\":0}", "temperature"},
        {SERVE_FORM_RERANK, "{\"query\":\"x\",\"documents\":[\"y\"],\"top_n\":1}", NULL},
        {SERVE_FORM_RERANK, "{\"query\":\"x\",\"texts\":[\"y\"],\"return_text\":true}", NULL},
        {SERVE_FORM_RERANK, "{\"query\":\"x\",\"documents\":[\"y\"],\"top_n\":-1}", "top_n"},
        {SERVE_FORM_RERANK, "{\"query\":\"x\",\"documents\":[{\"text\":\"y\"}]}", "documents"},
        {SERVE_FORM_RERANK, "{\"query\":\"x\",\"documents\":[\"y\"],\"texts\":[\"y\"]}", "texts"},
        {SERVE_FORM_RERANK, "{\"query\":\"x\",\"documents\":[\"y\"],\"return_text\":true}", "return_text"},
        {SERVE_FORM_RERANK, "{\"query\":\"x\",\"documents\":[\"y\"],\"return_documents\":true}",
         "return_documents"},
        {SERVE_FORM_CHAT, "{\"messages\":[],\"documents\":[\"y\"]}", "documents"},
        {-1, "[]", NULL},
        {-1, "7", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        other(cases[i].form, cases[i].body, cases[i].refused);
}

/* ---- Adapters ---- */

/* Reads a body, with adapters as the server says them; want: the field that is refused, NULL: none. The mark of the scales. */
static uint64_t adapt(enum serve_form form, const char *body, const char *said, const char *lora,
                      const char *keep_rule)
{
    struct serve_request r;
    char why[SERVE_TEXT];
    const char *param;
    assert_int_equal(read_body(&r, form, body, why, &param), 0);
    const int status = serve_request_set_adapters(&r, said, strlen(said), why, &param);
    if (status != (keep_rule ? 400 : 0) || (keep_rule && (!param || strcmp(param, keep_rule) != 0)))
        fail_msg("%s: status %d, field %s: %s", body, status, param ? param : "none", why);
    char *text = json_dumps(json_object_get(r.body, "lora"), JSON_COMPACT);
    if (lora && (!text || strcmp(text, lora) != 0))
        fail_msg("%s: adapters %s, not %s", body, text ? text : "none", lora);
    free(text);
    const uint64_t mark = r.ask.keep_rule.adapters;
    serve_request_free(&r);
    return mark;
}

static void test_adapters(void **state)
{
    (void)state;
#define PROMPT(more)   "{\"prompt\":\"x\"" more "}"
#define ONE(id, scale) "{\"id\":" id ",\"scale\":" scale "}"
#define LORA(list)     PROMPT(",\"lora\":[" list "]")
    static const char two[] = "[" ONE("0", "1.0") "," ONE("1", "0.0") "]";
    open_slots(0);
    /* A server without adapters. */
    assert_true(adapt(SERVE_FORM_PROMPT, PROMPT(""), "[]", NULL, NULL) == 0);
    adapt(SERVE_FORM_PROMPT, LORA(""), "[]", NULL, NULL);
    adapt(SERVE_FORM_PROMPT, LORA(ONE("0", "1")), "[]", NULL, "lora");
    /* One with two: what is not listed is not applied, and what is not said is as the server has it. */
    const uint64_t own = adapt(SERVE_FORM_PROMPT, PROMPT(""), two, two, NULL),
                   none = adapt(SERVE_FORM_PROMPT, LORA(""), two, "[" ONE("0", "0.0") "," ONE("1", "0.0") "]",
                                NULL),
                   second = adapt(SERVE_FORM_INFILL, "{\"lora\":[" ONE("1", "0.5") "]}", two,
                                  "[" ONE("0", "0.0") "," ONE("1", "0.5") "]", NULL);
    assert_true(own != 0 && none != 0 && second != 0 && own != none && own != second && none != second);
    assert_true(adapt(SERVE_FORM_CHAT, CHAT(",\"lora\":[" ONE("1", "0") "," ONE("0", "1") "]"), two, two,
                      NULL) == own);
    assert_true(adapt(SERVE_FORM_MESSAGES, CHAT(""), two, NULL, NULL) == own);
    adapt(SERVE_FORM_PROMPT, LORA(ONE("2", "1")), two, NULL, "lora");
    adapt(SERVE_FORM_PROMPT, LORA(ONE("4294967296", "1")), two, NULL, "lora");
    refuses(SERVE_FORM_PROMPT, LORA(ONE("1", "1") "," ONE("1", "2")), "lora");
    refuses(SERVE_FORM_PROMPT, LORA(ONE("1", "1e300")), "lora");
    /* The same prompt, read with other adapters, is another one, also for "any". */
    for (int reuse = SERVE_REUSE_SAME; reuse <= SERVE_REUSE_ANY; reuse++) {
        struct serve_keep_rule read = config.keep_rule;
        struct serve_ask ask = {
            .keep_rule = config.keep_rule, .key = "x", .key_len = 1, .reuse = (enum serve_reuse)reuse};
        const struct serve_prefix prefix = {.key = "x", .key_len = 1, .keep_rule = &read};
        read.adapters = own;
        ask.keep_rule.adapters = own;
        const bool same = serve_may_reuse(&prefix, &ask);
        ask.keep_rule.adapters = none;
        assert_true(same == (reuse == SERVE_REUSE_SAME || reuse == SERVE_REUSE_ANY));
        assert_false(serve_may_reuse(&prefix, &ask));
    }
#undef LORA
#undef ONE
#undef PROMPT
}

/* ---- Prompts ---- */

static void test_prompts(void **state)
{
    static const struct {
        const char *prompt, *passed;
        int64_t n_prompt;
        int32_t n_prompts;
    } cases[] = {{"\"text\"", "\"text\"", -1, 1},
                 {"[\"text\"]", "\"text\"", -1, 1},
                 {"[1,2,3]", "[1,2,3]", 3, 1},
                 {"[[1,2,3]]", "[1,2,3]", 3, 1},
                 {"[1,\"text\",2]", "[1,\"text\",2]", -1, 1},
                 {"[[\"text\",1]]", "[\"text\",1]", -1, 1},
                 {"{\"prompt_string\":\"text\"}", "\"text\"", -1, 1},
                 {"[{\"prompt_string\":[1,\"a\"]}]", "[1,\"a\"]", -1, 1},
                 {"[\"a\",\"b\"]", "[\"a\",\"b\"]", -1, 2},
                 {"[[1],\"b\",[1,\"c\"]]", "[[1],\"b\",[1,\"c\"]]", -1, 3}};
    static const char *const bad[] = {"1",
                                      "true",
                                      "[]",
                                      "[[]]",
                                      "{}",
                                      "[1.5]",
                                      "[-1]",
                                      "[1,null]",
                                      "[1,[2]]",
                                      "[{}]",
                                      "[4294967296]",
                                      "[\"a\",[]]",
                                      "[true]",
                                      "[1,2.0]",
                                      "[\"a\",1.5]",
                                      "[[[1]]]",
                                      "{\"multimodal_data\":[]}",
                                      "{\"prompt_string\":{}}"};
    (void)state;
    char body[120];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct serve_request r;
        char why[SERVE_TEXT];
        const char *param;
        open_slots(0);
        snprintf(body, sizeof body, "{\"prompt\":%s}", cases[i].prompt);
        assert_int_equal(read_body(&r, SERVE_FORM_PROMPT, body, why, &param), 0);
        char *text = json_dumps(json_object_get(r.body, "prompt"), JSON_COMPACT | JSON_ENCODE_ANY);
        assert_string_equal(text, cases[i].passed);
        assert_int_equal(r.ask.n_prompt, cases[i].n_prompt);
        assert_int_equal(r.n_prompts, cases[i].n_prompts);
        assert_int_equal(r.ask.reuse, cases[i].n_prompts > 1 ? SERVE_REUSE_NEVER : SERVE_REUSE_SAME);
        assert_non_null(r.key);
        free(text);
        serve_request_free(&r);
        open_slots(1000000);
        if (cases[i].n_prompts > 1)
            refuses(SERVE_FORM_PROMPT, body, "prompt");
    }
    open_slots(0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, "{\"prompt\":%s}", bad[i]);
        refuses(SERVE_FORM_PROMPT, body, "prompt");
    }
    /* Where no projector is known texts have an end, wherever they are. */
    static const char *const long_ones[] = {"{\"prompt\":\"", "{\"prompt\":[1,\"", "{\"prompt\":[[1],\""};
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++) {
        char *text = times(long_ones[i], "a", MOST_TEXT + 1, i == 0 ? "\"}" : "\"]}");
        refuses(SERVE_FORM_PROMPT, text, "prompt");
        free(text);
    }
    char *text = times("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"", "a",
                       MOST_TEXT + 1, "\"}]}]}");
    refuses(SERVE_FORM_CHAT, text, "messages");
    free(text);
}

/* ---- Grammars ---- */

static void test_grammars(void **state)
{
    static const char *const good[] = {"root ::= \"a\"",
                                       "root ::= (\"a\" | [b-d] . <[5]> !<x>)* # c\n",
                                       "root ::= x{2} x{3,} x{0,7} x+ x? x*\nx ::= [^\"\\]\\\\]\r\n",
                                       "root ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}",
                                       "root ::=\n  a |\n b\na ::= (\n \"x\"\n |\n \"y\" )\nb ::= a",
                                       "root ::= (\"a\"?){0,2000}",
                                       "root ::= \"a\"{2000}",
                                       "root ::= \"\\\"\" [\\]] \"]\" root?"};
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"root ::= \"a\"{2001}", "2000 times"},
        {"root ::= \"a\"{0,999999999999}", "2000 times"},
        {"root ::= \"a\"{3,2}", "above the most"},
        {"root ::= \"a\"{2", "no }"},
        {"root ::= \"a\"{}", "missing"},
        {"root ::= \"abc", "does not end"},
        {"root ::= [abc", "does not end"},
        {"root ::= \"\\", "does not end"},
        {"root ::= <x", "does not end"},
        {"root ::= !x", "< is missing"},
        {"root ::= (\"a\"", ") is missing"},
        {"root = x", "::= is missing"},
        {"::= x", "name of a rule"},
        {"root ::= \"a\" )", "new line"},
        {"root ::= root \"a\"", "begins with itself"},
        {"root ::= a\na ::= \"x\"? b\nb ::= a", "begins with itself"},
        {"root ::= (\"a\"*)*", NULL},
        {"root ::= ((((\"aaaaaaaaaa\"{2000}){3}){2000}){3}){2000} \"aaaaaaaaaaaaaaaaaaaaaaaaaa\"{2000} "
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaa\"{0,2000}",
         NULL}};
    char why[SERVE_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!serve_grammar_check(good[i], why))
            fail_msg("'%s': %s", good[i], why);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const bool taken = serve_grammar_check(bad[i].text, why);
        if (bad[i].says && (taken || !strstr(why, bad[i].says)))
            fail_msg("'%s': %s", bad[i].text, why);
    }
}

static void test_grammars_without_end(void **state)
{
    char why[SERVE_TEXT], line[64];
    (void)state;
    static const struct {
        const char *before, *one, *document_plus_1, *says;
        size_t n;
    } cases[] = {{"root ::= ", "(", "\"a\"", "deep", 60000},
                 {"root ::= ", "(", "", "deep", 129},
                 {"root ::= ", "\"a\" | ", "\"b\"", "ways", 50000},
                 {"root ::= ", "(\"a\") ", "", "20000 rules", 30000},
                 {"root ::= ", "\"a\"{0,2000} ", "", "50000 rules", 30},
                 {"root ::= ", "\"aaaaaaaaaa\"{2000} ", "", "2000000 elements", 110},
                 {"root ::= \"a\"", "{100}", "", "elements", 8},
                 {"root ::= \"a\"", "{0,2000}", "", "50000", 40},
                 {"root ::= ", "#", "", NULL, 2000000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = times(cases[i].before, cases[i].one, cases[i].n, cases[i].document_plus_1);
        if (serve_grammar_check(text, why) || (cases[i].says && !strstr(why, cases[i].says)))
            fail_msg("%zu times '%s': %s", cases[i].n, cases[i].one, why);
        free(text);
    }
    /* Ten rules whose ways multiply. */
    char *text = strdup("");
    for (int i = 0; i < 10; i++) {
        snprintf(line, sizeof line, "%s ::= ", i == 0 ? "root" : (char[]){'r', (char)('0' + i), '\0'});
        char *next = times(text, "", 0, line);
        free(text);
        text = next;
        snprintf(line, sizeof line, "r%d? ", i + 1);
        next = times(text, i < 9 ? line : "\"a\"? ", 10, "\n");
        free(text);
        text = next;
    }
    assert_false(serve_grammar_check(text, why));
    assert_non_null(strstr(why, "4096 ways"));
    free(text);
    /* A long chain of rules is no way into a stack of calls. */
    const size_t room = 20000 * 24;
    text = malloc(room);
    size_t n = (size_t)snprintf(text, room, "root ::= r0\n");
    for (int i = 0; i < 15000; i++)
        n += (size_t)snprintf(text + n, room - n, "r%d ::= r%d\n", i, i + 1);
    snprintf(text + n, room - n, "r15000 ::= \"a\"");
    assert_true(serve_grammar_check(text, why));
    free(text);
}

/* ---- Schemas ---- */

static bool takes(const char *schema, char *why)
{
    json_t *o = json_loads(schema, JSON_DECODE_ANY, NULL);
    double work = 0;
    assert_non_null(o);
    const bool taken = serve_schema_check(o, &work, why);
    json_decref(o);
    return taken;
}

static void test_schemas(void **state)
{
    static const char of_two[] = "{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"properties\":{\"y\":{}}}],"
                                 "\"$defs\":{\"a\":{\"properties\":{\"x\":{}}}}}";
    static const char *const good[] = {
        "{}",
        "true",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"string\",\"null\"],\"maxLength\":2000}}}",
        "{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"left\":{\"$ref\":\"#/$defs/node\"},"
        "\"right\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/node\"}]}}}},\"$ref\":\"#/$defs/"
        "node\"}",
        "{\"properties\":{\"minLength\":{\"type\":\"integer\"},\"properties\":{\"type\":\"object\"}}}",
        "{\"items\":{\"enum\":[1,2,3]},\"minItems\":0,\"maxItems\":5}",
        "{\"$ref\":\"#/nowhere/at/all\"}",
        of_two};
    static const struct {
        const char *schema, *says;
    } bad[] = {
        {"{\"minLength\":1000000000}", "minLength"},
        {"{\"items\":{\"maxItems\":1000000000}}", "maxItems"},
        {"{\"properties\":{\"a\":{\"maxLength\":2001}}}", "maxLength"},
        {"{\"minItems\":-1}", "minItems"},
        {"{\"maxItems\":1e300}", "maxItems"},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
         "itself"},
        {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}}}",
         "itself"},
        {"{\"properties\":{\"p\":{\"$ref\":\"#/properties/p\"}}}", "itself"}};
    char why[SERVE_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!takes(good[i], why))
            fail_msg("%s: %s", good[i], why);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (takes(bad[i].schema, why) || !strstr(why, bad[i].says))
            fail_msg("%s: %s", bad[i].schema, why);
}

static void test_schemas_without_end(void **state)
{
    static const struct {
        const char *before, *one, *document_plus_1, *says;
        size_t n;
    } cases[] = {{"{\"enum\":[", "1,", "1]}", "1000 values", 2000},
                 {"{\"anyOf\":[", "{},", "{}]}", "1000 values", 1500},
                 {"{\"pattern\":\"", "a", "\"}", "1000 bytes", 2000},
                 {"{\"properties\":{\"", "\xc3\xa9", "\":{}}}", "1000 bytes", 1000},
                 {"{\"$ref\":\"#/", "a", "\"}", "1000 bytes", 2000}};
    char why[SERVE_TEXT], key[64];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = times(cases[i].before, cases[i].one, cases[i].n, cases[i].document_plus_1);
        if (takes(text, why) || !strstr(why, cases[i].says))
            fail_msg("%zu times '%s': %s", cases[i].n, cases[i].one, why);
        free(text);
    }
    /* Deep ones, where each level may be built twice, and ones with long chains of references. */
    json_t *deep = json_object(), *wide = json_object(), *defs = json_object(), *all = json_object();
    double work = 0;
    for (int i = 0; i < 40; i++)
        deep = json_pack("{s:{s:o}}", "properties", "a", deep);
    assert_false(serve_schema_check(deep, &work, why));
    assert_non_null(strstr(why, "32 deep"));
    for (int i = 0; i < 20; i++)
        wide = json_pack("{s:[s,s], s:{s:o}}", "type", "object", "array", "properties", "a", wide);
    assert_false(serve_schema_check(wide, &work, why));
    assert_non_null(strstr(why, "several types"));
    for (int i = 0; i < 100; i++) {
        char ref[64];
        snprintf(key, sizeof key, "d%d", i);
        snprintf(ref, sizeof ref, "#/$defs/d%d", i + 1);
        json_object_set_new(defs, key, json_pack("{s:{s:{s:s}}}", "properties", "x", "$ref", ref));
        json_object_set_new(all, key, json_pack("{s:[{s:s},{s:s}]}", "anyOf", "$ref", ref, "$ref", ref));
    }
    json_t *chain = json_pack("{s:o, s:s}", "$defs", defs, "$ref", "#/$defs/d0");
    assert_false(serve_schema_check(chain, &work, why));
    assert_non_null(strstr(why, "32 deep"));
    json_t *doubled = json_pack("{s:o, s:s}", "$defs", all, "$ref", "#/$defs/d0");
    assert_false(serve_schema_check(doubled, &work, why));
    assert_non_null(strstr(why, "lead on too far"));
    json_decref(deep);
    json_decref(wide);
    json_decref(chain);
    json_decref(doubled);
    /* Many properties, in one schema or in many tools. */
    json_t *many = json_object(), *tools = json_array();
    for (int i = 0; i < 600; i++) {
        snprintf(key, sizeof key, "p%d", i);
        json_object_set_new(many, key, json_object());
    }
    json_t *one = json_pack("{s:o}", "properties", many);
    assert_false(serve_schema_check(one, &work, why));
    assert_non_null(strstr(why, "properties"));
    for (int i = 200; i < 600; i++) {
        snprintf(key, sizeof key, "p%d", i);
        json_object_del(many, key);
    }
    work = 0;
    assert_true(serve_schema_check(one, &work, why));
    for (int i = 0; i < 50; i++)
        json_array_append_new(tools, json_pack("{s:s, s:{s:s, s:O}}", "type", "function", "function", "name",
                                               "f", "parameters", one));
    json_t *body = json_pack("{s:o}", "tools", tools);
    const char *param = NULL;
    assert_int_equal(serve_fields_check_grammars(body, why, &param), 400);
    assert_string_equal(param, "tools");
    json_decref(one);
    json_decref(body);
}

/* Schemas and grammars are found wherever a body may have them. */
static void test_where_schemas_are(void **state)
{
#define DEEP "{\"minLength\":1000000000}"
    (void)state;
    open_slots(0);
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"json_schema\":" DEEP "}", "json_schema");
    refuses(SERVE_FORM_CHAT, CHAT(",\"json_schema\":" DEEP), "json_schema");
    refuses(SERVE_FORM_CHAT, CHAT(",\"response_format\":{\"type\":\"json_object\",\"schema\":" DEEP "}"),
            "response_format");
    refuses(SERVE_FORM_CHAT,
            CHAT(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":" DEEP "}}"),
            "response_format");
    refuses(SERVE_FORM_CHAT,
            CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"parameters\":" DEEP "}}]"), "tools");
    refuses(SERVE_FORM_MESSAGES, CHAT(",\"tools\":[{\"name\":\"f\",\"input_schema\":" DEEP "}]"), "tools");
    refuses(SERVE_FORM_RESPONSES,
            "{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"parameters\":" DEEP "}]}", "tools");
    refuses(SERVE_FORM_PROMPT, "{\"prompt\":\"x\",\"grammar\":\"root ::= \\\"a\\\"{5000}\"}", "grammar");
    refuses(SERVE_FORM_INFILL, "{\"input_prefix\":\"x\",\"grammar\":\"root ::= \\\"a\\\"{5000}\"}",
            "grammar");
#undef DEEP
}

/* ---- Errors of the server's ---- */

static void test_errors_in_our_words(void **state)
{
    static const struct {
        const char *message, *says, *param;
        int status, becomes;
        bool posted;
    } cases[] = {
        {"[json.exception.type_error.302] type must be string, but is number", "type must be string", NULL,
         500, 400, false},
        {"Field 'top_p': [json.exception.type_error.302] type must be number, but is string",
         "top_p: type must be", "top_p", 400, 400, false},
        {"[json.exception.out_of_range.403] key 'filename' not found", "key 'filename' not found", NULL, 500,
         400, false},
        {"JSON schema error at #: unrecognized type x", "unrecognized type x", NULL, 500, 400, false},
        {"got exception: x", NULL, NULL, 500, 500, true},
        {"std::bad_alloc", NULL, NULL, 500, 500, false},
        {"parse error at line 1, column 1: x", "is no JSON", NULL, 500, 400, false},
        {"vector::_M_range_check: __n (which is 9) >= this->size() (which is 3)", "out of range", NULL, 500,
         400, false},
        {"no model is loaded", NULL, NULL, 503, 503, false},
        {"Field 'a", "cannot be read: Field 'a", NULL, 500, 400, false},
        {"[json.exception.", "cannot be read", NULL, 400, 400, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *o = json_pack("{s:{s:i, s:s, s:s}}", "error", "code", cases[i].status, "message",
                              cases[i].message, "type", "server_error");
        char *reply = json_dumps(o, 0);
        int status = cases[i].status;
        char *said = serve_error_in_words(reply, strlen(reply), cases[i].posted, &status);
        assert_int_equal(status, cases[i].becomes);
        assert_true((said != NULL) == (cases[i].says != NULL));
        if (said) {
            json_t *error = json_loads(said, 0, NULL);
            const char *message =
                json_string_value(json_object_get(json_object_get(error, "error"), "message"));
            const char *param = json_string_value(json_object_get(json_object_get(error, "error"), "param"));
            assert_non_null(strstr(message, cases[i].says));
            assert_null(strstr(message, "json.exception"));
            if (cases[i].param)
                assert_string_equal(param, cases[i].param);
            json_decref(error);
        }
        free(said);
        free(reply);
        json_decref(o);
    }
    int status = 500;
    assert_null(serve_error_in_words("no JSON", 7, false, &status));
    assert_null(serve_error_in_words("{\"error\":5}", 11, false, &status));
    assert_int_equal(status, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extent),
        cmocka_unit_test(test_bodies_without_end),
        cmocka_unit_test(test_what_is_no_json),
        cmocka_unit_test(test_types_of_fields),
        cmocka_unit_test(test_names_of_one_field),
        cmocka_unit_test(test_values_of_fields),
        cmocka_unit_test(test_fields_of_other_routes),
        cmocka_unit_test(test_routes_without_answers),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_grammars_without_end),
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_schemas_without_end),
        cmocka_unit_test(test_where_schemas_are),
        cmocka_unit_test(test_errors_in_our_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
