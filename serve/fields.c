/* SPDX-License-Identifier: MIT */
#include "serve/fields.h"

#include "serve/config.h"
#include "serve/grammar.h"
#include "serve/schema.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum kind {
    WHOLE,
    NUMBER,
    BOOL,
    TEXT,
    LIST,
    OBJECT,
    TEXTS,   /* a text, or a list of texts */
    OBJECTS, /* a list of objects */
    PAIRS,   /* an object, or a list of lists */
    MIXED,   /* a text or a list */
    ANY,
    OWN,   /* the server writes it for itself, and a client must not: it is read without a check */
    NOBODY /* no route follows it, and an answer would be another one than was asked for */
};

/* Forms, a bit each. */
enum {
    P = 1 << SERVE_FORM_PROMPT,
    C = 1 << SERVE_FORM_CHAT,
    M = 1 << SERVE_FORM_MESSAGES,
    R = 1 << SERVE_FORM_RESPONSES,
    I = 1 << SERVE_FORM_INFILL,
    T = 1 << SERVE_FORM_TOKENIZE,
    D = 1 << SERVE_FORM_DETOKENIZE,
    E = 1 << SERVE_FORM_EMBEDDINGS,
    K = 1 << SERVE_FORM_RERANK,
    CR = C | R,
    ALL_BUT_M = P | C | R | I, /* of /v1/messages the server takes over a few fields alone */
    ALL = P | C | M | R | I    /* that generate */
};

static const struct field {
    const char *name;
    enum kind kind;
    int forms;
    int64_t least, most; /* of whole numbers; of NOBODY the number that changes nothing, twice */
} fields[] = {
    {"prompt", ANY, P | I, 0, 0},
    {"messages", LIST, C | M, 0, 0},
    {"input", ANY, R | E, 0, 0},
    {"system", MIXED, M, 0, 0},
    {"instructions", TEXT, R, 0, 0},
    {"input_prefix", TEXT, I, 0, 0},
    {"input_suffix", TEXT, I, 0, 0},
    {"input_extra", LIST, I, 0, 0},
    {"tools", OBJECTS, C | M | R, 0, 0},
    {"tool_choice", ANY, C | M | R, 0, 0},
    {"parallel_tool_calls", BOOL, CR, 0, 0},
    {"response_format", OBJECT, CR, 0, 0},
    {"chat_template_kwargs", OBJECT, C | M | R, 0, 0},
    {"add_generation_prompt", BOOL, CR, 0, 0},
    {"reasoning_effort", TEXT, CR, 0, 0},
    {"thinking_budget_tokens", WHOLE, CR, -1, INT32_MAX},
    {"top_logprobs", WHOLE, CR, 0, INT32_MAX},
    {"stream", BOOL, ALL, 0, 0},
    {"stream_options", OBJECT, ALL_BUT_M, 0, 0},
    {"verbose", BOOL, ALL_BUT_M, 0, 0},
    {"timings_per_token", BOOL, ALL_BUT_M, 0, 0},
    {"cache_prompt", BOOL, ALL, 0, 0},
    {"return_tokens", BOOL, ALL_BUT_M, 0, 0},
    {"return_progress", BOOL, ALL_BUT_M, 0, 0},
    {"sse_ping_interval", WHOLE, ALL_BUT_M, -1, INT32_MAX},
    {"n_predict", WHOLE, ALL_BUT_M, -1, INT32_MAX},
    {"max_tokens", WHOLE, ALL, -1, INT32_MAX},
    {"max_completion_tokens", WHOLE, ALL_BUT_M, -1, INT32_MAX},
    {"max_output_tokens", WHOLE, R, -1, INT32_MAX},
    {"n_cmpl", WHOLE, ALL_BUT_M, 1, INT32_MAX},
    {"n", WHOLE, ALL_BUT_M, 1, INT32_MAX},
    {"id_slot", WHOLE, ALL, -1, INT32_MAX},
    {"n_indent", WHOLE, ALL_BUT_M, 0, INT32_MAX},
    {"n_keep", WHOLE, ALL_BUT_M, -1, INT32_MAX},
    {"n_discard", WHOLE, ALL_BUT_M, 0, INT32_MAX},
    {"n_cache_reuse", WHOLE, ALL_BUT_M, 0, INT32_MAX},
    {"t_max_predict_ms", WHOLE, ALL_BUT_M, -1, INT64_MAX},
    {"response_fields", TEXTS, ALL_BUT_M, 0, 0},
    {"top_k", WHOLE, ALL, INT32_MIN, INT32_MAX},
    {"top_p", NUMBER, ALL, 0, 0},
    {"min_p", NUMBER, ALL_BUT_M, 0, 0},
    {"top_n_sigma", NUMBER, ALL_BUT_M, 0, 0},
    {"xtc_probability", NUMBER, ALL_BUT_M, 0, 0},
    {"xtc_threshold", NUMBER, ALL_BUT_M, 0, 0},
    {"typical_p", NUMBER, ALL_BUT_M, 0, 0},
    {"temperature", NUMBER, ALL, 0, 0},
    {"dynatemp_range", NUMBER, ALL_BUT_M, 0, 0},
    {"dynatemp_exponent", NUMBER, ALL_BUT_M, 0, 0},
    {"repeat_last_n", WHOLE, ALL_BUT_M, 0, INT32_MAX},
    {"repeat_penalty", NUMBER, ALL_BUT_M, 0, 0},
    {"frequency_penalty", NUMBER, ALL_BUT_M, 0, 0},
    {"presence_penalty", NUMBER, ALL_BUT_M, 0, 0},
    {"dry_multiplier", NUMBER, ALL_BUT_M, 0, 0},
    {"dry_base", NUMBER, ALL_BUT_M, 0, 0},
    {"dry_allowed_length", WHOLE, ALL_BUT_M, 0, INT32_MAX},
    {"dry_penalty_last_n", WHOLE, ALL_BUT_M, 0, INT32_MAX},
    {"dry_sequence_breakers", TEXTS, ALL_BUT_M, 0, 0},
    {"mirostat", WHOLE, ALL_BUT_M, 0, 2},
    {"mirostat_tau", NUMBER, ALL_BUT_M, 0, 0},
    {"mirostat_eta", NUMBER, ALL_BUT_M, 0, 0},
    {"adaptive_target", NUMBER, ALL_BUT_M, 0, 0},
    {"adaptive_decay", NUMBER, ALL_BUT_M, 0, 0},
    {"seed", WHOLE, ALL_BUT_M, INT64_MIN, INT64_MAX},
    {"n_probs", WHOLE, ALL_BUT_M, 0, INT32_MAX},
    {"min_keep", WHOLE, ALL_BUT_M, 0, INT32_MAX},
    {"backend_sampling", BOOL, ALL_BUT_M, 0, 0},
    {"post_sampling_probs", BOOL, ALL_BUT_M, 0, 0},
    {"ignore_eos", BOOL, ALL_BUT_M, 0, 0},
    {"echo", BOOL, ALL_BUT_M, 0, 0},
    {"lora", OBJECTS, ALL_BUT_M, 0, 0},
    {"json_schema", OBJECT, ALL_BUT_M, 0, 0},
    {"grammar", TEXT, ALL_BUT_M, 0, 0},
    {"reasoning_format", TEXT, ALL_BUT_M, 0, 0},
    {"reasoning_control", BOOL, ALL_BUT_M, 0, 0},
    {"reasoning_budget_tokens", WHOLE, ALL_BUT_M, -1, INT32_MAX},
    {"reasoning_budget_start_tag", TEXT, ALL_BUT_M, 0, 0},
    {"reasoning_budget_end_tag", TEXT, ALL_BUT_M, 0, 0},
    {"reasoning_budget_end_tags", LIST, ALL_BUT_M, 0, 0},
    {"reasoning_budget_message", TEXT, ALL_BUT_M, 0, 0},
    {"stop", TEXTS, ALL_BUT_M, 0, 0},
    {"logit_bias", PAIRS, ALL_BUT_M, 0, 0},
    {"samplers", TEXTS, ALL_BUT_M, 0, 0},
    {"thinking", OBJECT, M, 0, 0},
    {"reasoning", OBJECT, R, 0, 0},
    {"stop_sequences", LIST, M, 0, 0},
    {"content", ANY, T | E, 0, 0},
    {"add_special", BOOL, T, 0, 0},
    {"parse_special", BOOL, T, 0, 0},
    {"with_pieces", BOOL, T, 0, 0},
    {"tokens", LIST, D, 0, 0},
    {"encoding_format", TEXT, E, 0, 0},
    {"embd_normalize", WHOLE, E, -1, INT32_MAX},
    {"query", TEXT, K, 0, 0},
    {"documents", TEXTS, K, 0, 0},
    {"texts", TEXTS, K, 0, 0},
    {"top_n", WHOLE, K, 0, INT32_MAX},
    {"return_text", BOOL, K, 0, 0},
    {"chat_format", OWN, ALL, 0, 0},
    {"chat_parser", OWN, ALL, 0, 0},
    {"generation_prompt", OWN, ALL, 0, 0},
    {"grammar_lazy", OWN, ALL, 0, 0},
    {"grammar_triggers", OWN, ALL, 0, 0},
    {"grammar_type", OWN, ALL, 0, 0},
    {"message_delimiters", OWN, ALL, 0, 0},
    {"preserved_tokens", OWN, ALL, 0, 0},
    {"best_of", NOBODY, ALL, 1, 1},
    {"function_call", NOBODY, ALL, 0, 0},
    {"functions", NOBODY, ALL, 0, 0},
    {"suffix", NOBODY, ALL, 0, 0},
    /* Of other programs that serve models. */
    {"add_special_tokens", NOBODY, ALL, 0, 0},
    {"allowed_token_ids", NOBODY, ALL, 0, 0},
    {"audio", NOBODY, ALL, 0, 0},
    {"background", NOBODY, ALL, 0, 0},
    {"bad_words", NOBODY, ALL, 0, 0},
    {"bad_words_ids", NOBODY, ALL, 0, 0},
    {"chat_template", NOBODY, ALL, 0, 0},
    {"continue_final_message", NOBODY, ALL, 0, 0},
    {"conversation", NOBODY, ALL, 0, 0},
    {"dimensions", NOBODY, ALL, 0, 0},
    {"early_stopping", NOBODY, ALL, 0, 0},
    {"epsilon_cutoff", NOBODY, ALL, 0, 0},
    {"eta_cutoff", NOBODY, ALL, 0, 0},
    {"guidance_scale", NOBODY, ALL, 1, 1},
    {"guided_choice", NOBODY, ALL, 0, 0},
    {"guided_grammar", NOBODY, ALL, 0, 0},
    {"guided_json", NOBODY, ALL, 0, 0},
    {"guided_regex", NOBODY, ALL, 0, 0},
    {"input_type", NOBODY, ALL, 0, 0},
    {"late_chunking", NOBODY, ALL, 0, 0},
    {"length_penalty", NOBODY, ALL, 1, 1},
    {"max_new_tokens", NOBODY, ALL, -1, -1},
    {"min_length", NOBODY, ALL, 0, 0},
    {"min_tokens", NOBODY, ALL, 0, 0},
    {"negative_prompt", NOBODY, ALL, 0, 0},
    {"no_repeat_ngram_size", NOBODY, ALL, 0, 0},
    {"num_beams", NOBODY, ALL, 1, 1},
    {"num_predict", NOBODY, ALL, -1, -1},
    {"options", NOBODY, ALL, 0, 0},
    {"penalty_alpha", NOBODY, ALL, 0, 0},
    {"previous_response_id", NOBODY, ALL, 0, 0},
    {"prompt_logprobs", NOBODY, ALL, 0, 0},
    {"rank_fields", NOBODY, ALL, 0, 0},
    {"repetition_penalty", NOBODY, ALL, 1, 1},
    {"return_documents", NOBODY, ALL, 0, 0},
    {"stop_token_ids", NOBODY, ALL, 0, 0},
    {"structured_outputs", NOBODY, ALL, 0, 0},
    {"tfs_z", NOBODY, ALL, 1, 1},
    {"top_a", NOBODY, ALL, 0, 0},
    {"truncate", NOBODY, ALL, 0, 0},
    {"truncate_prompt_tokens", NOBODY, ALL, -1, -1},
    {"use_beam_search", NOBODY, ALL, 0, 0},
    {"web_search_options", NOBODY, ALL, 0, 0},
};

/* Names of one field: if several are there they agree. The first one is passed on. */
static const struct {
    const char *names[4];
    int forms;
} same[] = {{{"n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens"}, ALL},
            {{"n_cmpl", "n"}, ALL},
            {{"n_probs", "logprobs"}, P | I},
            {{"reasoning_budget_tokens", "thinking_budget_tokens"}, CR},
            {{"reasoning_budget_end_tags", "reasoning_budget_end_tag"}, ALL}};

static int fail(char *why, const char **param, const char *name, const char *what)
{
    snprintf(why, SERVE_TEXT, "%.80s: %.420s", name, what);
    *param = name;
    return 400;
}

/* ---- Types ---- */

/* Has a number without a fraction be a whole one: some programs write 5.0. False: it has one, or is none. */
static bool make_whole(json_t *body, const char *name, json_t **v)
{
    if (json_is_integer(*v))
        return true;
    const double x = json_is_real(*v) ? json_real_value(*v) : 0.5;
    if (!(x > -1e15 && x < 1e15) || (double)(int64_t)x < x || (double)(int64_t)x > x)
        return false;
    *v = json_integer((int64_t)x);
    return json_object_set_new(body, name, *v) == 0;
}

/* Whether all members of a list have a type; true for what is no list. */
static bool are_all(const json_t *v, json_type type)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)v, i, one)
    {
        if (json_typeof(one) != type)
            return false;
    }
    return true;
}

static int check_whole(json_t *body, const struct field *f, json_t *v, char *why, const char **param)
{
    char what[120];
    if (make_whole(body, f->name, &v) && json_integer_value(v) >= f->least &&
        json_integer_value(v) <= f->most)
        return 0;
    snprintf(what, sizeof what, "it is a whole number from %lld to %lld", (long long)f->least,
             (long long)f->most);
    return fail(why, param, f->name, what);
}

/* What a client sends that always sends a field: the number that changes nothing, an empty suffix, no functions. */
static bool says_nothing(const struct field *f, const json_t *v)
{
    const double x = json_number_value(v), none = (double)f->least;
    if (json_is_number(v))
        return !(x < none) && !(x > none);
    return json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0);
}

static int check_type(json_t *body, const struct field *f, json_t *v, char *why, const char **param)
{
    switch (f->kind) {
    case WHOLE:
        return check_whole(body, f, v, why, param);
    case NUMBER:
        return json_is_number(v) ? 0 : fail(why, param, f->name, "it is a number");
    case BOOL:
        return json_is_boolean(v) ? 0 : fail(why, param, f->name, "it is true or false");
    case TEXT:
        return json_is_string(v) ? 0 : fail(why, param, f->name, "it is a text");
    case LIST:
        return json_is_array(v) ? 0 : fail(why, param, f->name, "it is a list");
    case OBJECT:
        return json_is_object(v) ? 0 : fail(why, param, f->name, "it is an object");
    case TEXTS:
        return (json_is_array(v) || json_is_string(v)) && are_all(v, JSON_STRING)
                   ? 0
                   : fail(why, param, f->name, "it is a text or a list of texts");
    case OBJECTS:
        return json_is_array(v) && are_all(v, JSON_OBJECT)
                   ? 0
                   : fail(why, param, f->name, "it is a list of objects");
    case PAIRS:
        return json_is_object(v) || (json_is_array(v) && are_all(v, JSON_ARRAY))
                   ? 0
                   : fail(why, param, f->name, "it is an object, or a list of pairs");
    case MIXED:
        return json_is_array(v) || json_is_string(v) ? 0
                                                     : fail(why, param, f->name, "it is a text or a list");
    case OWN:
        return fail(why, param, f->name, "the server sets it by itself, and takes it from nobody");
    case NOBODY:
        return says_nothing(f, v) ? 0 : fail(why, param, f->name, "no route of this server follows it");
    case ANY:
        break;
    }
    return 0;
}

/* What this form of bodies has no use for, though another one has. */
static int check_form(const struct field *f, enum serve_form form, char *why, const char **param)
{
    char what[200];
    static const char *const routes[] = {[SERVE_FORM_PROMPT] = "/completion and /v1/completions",
                                         [SERVE_FORM_CHAT] = "/v1/chat/completions",
                                         [SERVE_FORM_MESSAGES] = "/v1/messages",
                                         [SERVE_FORM_RESPONSES] = "/v1/responses",
                                         [SERVE_FORM_INFILL] = "/infill",
                                         [SERVE_FORM_TOKENIZE] = "/tokenize",
                                         [SERVE_FORM_DETOKENIZE] = "/detokenize",
                                         [SERVE_FORM_EMBEDDINGS] = "/embeddings",
                                         [SERVE_FORM_RERANK] = "/rerank"};
    if (f->forms >> form & 1)
        return 0;
    int other = 0;
    while (!(f->forms >> other & 1))
        other++;
    snprintf(what, sizeof what, "%s would not follow it; %s would", routes[form], routes[other]);
    return fail(why, param, f->name, what);
}

/* ---- Several names ---- */

static int check_same(json_t *body, enum serve_form form, size_t k, char *why, const char **param)
{
    const char *first = NULL;
    char what[120];
    for (int i = 0; i < 4 && same[k].names[i]; i++) {
        const char *name = same[k].names[i];
        json_t *v = json_object_get(body, name);
        if (!v || !(same[k].forms >> form & 1))
            continue;
        if (first && !json_equal(json_object_get(body, first), v)) {
            snprintf(what, sizeof what, "it is another name of %s, which has another value", first);
            return fail(why, param, name, what);
        }
        if (first)
            json_object_del(body, name);
        else
            first = name;
    }
    return 0;
}

const char *serve_fields_answer(enum serve_form form)
{
    return form == SERVE_FORM_MESSAGES || form == SERVE_FORM_RESPONSES ? "max_tokens" : "n_predict";
}

/* ---- What several fields say together ---- */

static const char *text_in(const json_t *body, const char *key)
{
    const char *text = json_string_value(json_object_get(body, key));
    return text ? text : "";
}

/* A body has one rule for the form of its answer. */
static int check_one_grammar(const json_t *body, char *why, const char **param)
{
    const char *type = text_in(json_object_get(body, "response_format"), "type");
    const bool has_schema = json_object_get(body, "json_schema") != NULL,
               has_grammar = *text_in(body, "grammar") != '\0',
               has_format = strcmp(type, "json_schema") == 0 || strcmp(type, "json_object") == 0;
    if (has_format && (has_schema || has_grammar))
        return fail(why, param, "response_format", "a request has this, a json_schema or a grammar, not two");
    if (has_schema && has_grammar)
        return fail(why, param, "grammar", "a request has a json_schema or a grammar, not both");
    return 0;
}

static const char *name_of_tool(const json_t *tool)
{
    const char *name = text_in(json_object_get(tool, "function"), "name");
    return *name ? name : text_in(tool, "name");
}

/* One tool that is named: the server knows "required" alone, so that it gets that tool and no other one. */
static int follow_name(json_t *body, enum serve_form form, const char *name, char *why, const char **param)
{
    json_t *tool;
    size_t i;
    json_array_foreach(json_object_get(body, "tools"), i, tool)
    {
        if (strcmp(name_of_tool(tool), name) != 0)
            continue;
        json_t *one = json_pack("[O]", tool);
        bool good = one && json_object_set_new(body, "tools", one) == 0;
        if (form != SERVE_FORM_MESSAGES)
            good = good && json_object_set_new(body, "tool_choice", json_string("required")) == 0;
        if (!good)
            snprintf(why, SERVE_TEXT, "out of memory");
        return good ? 0 : 500;
    }
    return fail(why, param, "tool_choice", "tools has none of that name");
}

static int follow_choice(json_t *body, enum serve_form form, const json_t *choice, char *why,
                         const char **param)
{
    const char *type = text_in(choice, "type");
    if (form == SERVE_FORM_MESSAGES && json_is_object(choice) && strcmp(type, "tool") != 0)
        return 0;
    if (form != SERVE_FORM_MESSAGES && json_is_string(choice))
        return 0;
    if (json_is_object(choice) && *name_of_tool(choice))
        return follow_name(body, form, name_of_tool(choice), why, param);
    return fail(why, param, "tool_choice",
                form == SERVE_FORM_MESSAGES
                    ? "it is an object with a type"
                    : "it is \"auto\", \"none\", \"required\", or an object with the name of a function");
}

/* Fields whose type depends on the form. */
static int check_of_form(json_t *body, enum serve_form form, char *why, const char **param)
{
    const json_t *choice = json_object_get(body, "tool_choice"),
                 *logprobs = json_object_get(body, "logprobs"), *input = json_object_get(body, "input"),
                 *format = json_object_get(json_object_get(body, "text"), "format");
    const int status = choice ? follow_choice(body, form, choice, why, param) : 0;
    if (status)
        return status;
    if (logprobs && (form == SERVE_FORM_CHAT || form == SERVE_FORM_RESPONSES) && !json_is_boolean(logprobs))
        return fail(why, param, "logprobs", "it is true or false; top_logprobs says how many");
    if (logprobs && (form == SERVE_FORM_PROMPT || form == SERVE_FORM_INFILL)) {
        static const struct field number = {"logprobs", WHOLE, ALL, 0, INT32_MAX};
        return check_whole(body, &number, json_object_get(body, "logprobs"), why, param);
    }
    if (input && form == SERVE_FORM_RESPONSES && !json_is_array(input) && !json_is_string(input))
        return fail(why, param, "input", "it is a text or a list");
    if (json_is_true(json_object_get(body, "echo")))
        return fail(why, param, "echo", "this route shows no prompt");
    if (form == SERVE_FORM_RESPONSES && format && strcmp(text_in(format, "type"), "text") != 0)
        return fail(why, param, "text",
                    "this route follows no format but text; response_format is one that it follows");
    return 0;
}

/* Has the sampler keep as many tokens as there can be, and no more: it takes room for all of them at once. */
static bool cut_lists(json_t *body, int32_t n_cells)
{
    static const char *const lists[] = {"repeat_last_n", "dry_penalty_last_n", "dry_allowed_length",
                                        "min_keep"};
    bool good = true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (json_integer_value(json_object_get(body, lists[i])) > n_cells)
            good = json_object_set_new(body, lists[i], json_integer(n_cells)) == 0 && good;
    return good;
}

int serve_fields_check(json_t *body, enum serve_form form, int32_t n_cells, char *why, const char **param)
{
    int status = 0;
    for (size_t i = 0; !status && i < sizeof fields / sizeof *fields; i++) {
        json_t *v = json_object_get(body, fields[i].name);
        if (v)
            status = check_type(body, &fields[i], v, why, param);
        if (v && !status)
            status = check_form(&fields[i], form, why, param);
    }
    status = status ? status : check_of_form(body, form, why, param);
    for (size_t k = 0; !status && k < sizeof same / sizeof *same; k++)
        status = check_same(body, form, k, why, param);
    status = status ? status : check_one_grammar(body, why, param);
    status = status ? status : serve_fields_check_grammars(body, why, param);
    if (!status && !cut_lists(body, n_cells)) {
        snprintf(why, SERVE_TEXT, "out of memory");
        return 500;
    }
    return status;
}

/* ---- Grammars ---- */

static int check_schema(const json_t *schema, const char *name, double *work, char *why, const char **param)
{
    char what[SERVE_TEXT], line[SERVE_TEXT];
    if (!schema || serve_schema_check(schema, work, what))
        return 0;
    snprintf(line, sizeof line, "the JSON schema cannot be taken: %.400s", what);
    return fail(why, param, name, line);
}

/* The schema of a tool lies elsewhere in each form. */
static int check_tool(const json_t *tool, double *work, char *why, const char **param)
{
    const json_t *function = json_object_get(tool, "function");
    const char *names[] = {text_in(tool, "name"), text_in(function, "name")};
    const json_t *schemas[] = {json_object_get(function, "parameters"), json_object_get(tool, "parameters"),
                               json_object_get(tool, "input_schema")};
    int status = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) > SERVE_SCHEMA_NAME)
            return fail(why, param, "tools", "the name of a tool has more than 1000 bytes");
    for (size_t i = 0; !status && i < sizeof schemas / sizeof *schemas; i++)
        status = check_schema(schemas[i], "tools", work, why, param);
    return status;
}

int serve_fields_check_grammars(const json_t *body, char *why, const char **param)
{
    const json_t *format = json_object_get(body, "response_format"), *tools = json_object_get(body, "tools");
    char what[SERVE_TEXT], line[SERVE_TEXT];
    double work = 0;
    json_t *tool;
    size_t i;
    if (json_array_size(tools) > SERVE_SCHEMA_CHOICES)
        return fail(why, param, "tools", "a request has 1000 tools at most");
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool)
    {
        const int status = check_tool(tool, &work, why, param);
        if (status)
            return status;
    }
    int status = check_schema(json_object_get(body, "json_schema"), "json_schema", &work, why, param);
    status = status ? status
                    : check_schema(json_object_get(format, "schema"), "response_format", &work, why, param);
    status = status ? status
                    : check_schema(json_object_get(json_object_get(format, "json_schema"), "schema"),
                                   "response_format", &work, why, param);
    const json_t *grammar = json_object_get(body, "grammar");
    if (!status && strlen(text_in(body, "grammar")) != json_string_length(grammar))
        return fail(why, param, "grammar", "it is a text without the character NUL");
    if (status || !*text_in(body, "grammar") || serve_grammar_check(text_in(body, "grammar"), what))
        return status;
    snprintf(line, sizeof line, "the grammar cannot be taken: %.400s", what);
    return fail(why, param, "grammar", line);
}
