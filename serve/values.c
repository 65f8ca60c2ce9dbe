/* SPDX-License-Identifier: MIT */
#include "serve/values.h"

#include "serve/config.h"

#include <float.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct check {
    const json_t *body;
    enum serve_form form;
    int32_t n_vocab;
    char *why;
    const char **param;
};

static int fail(const struct check *c, const char *name, const char *what)
{
    snprintf(c->why, SERVE_TEXT, "%.80s: %.420s", name, what);
    *c->param = name;
    return 400;
}

static const json_t *field_of(const struct check *c, const char *name)
{
    return json_object_get(c->body, name);
}

static const char *text_in(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Whether a text is one of a list that ends with NULL. */
static bool is_one_of(const char *text, const char *const *list)
{
    while (*list && strcasecmp(text, *list) != 0)
        list++;
    return *list != NULL;
}

/* ---- Samplers ---- */

/* The letters and names by which the server knows its samplers (0.3.36: common/sampling.cpp). */
static const char letters[] = "edskypmtxai";
static const char *const samplers[] = {
    "penalties", "dry",        "top_n_sigma", "top_k", "typ_p",   "top_p", "min_p", "temperature", "xtc",
    "infill",    "adaptive_p", "top-k",       "top-p", "nucleus", "typ-p", "min-p", "temp",        NULL};

static int check_samplers(const struct check *c)
{
    const json_t *v = field_of(c, "samplers"), *one;
    const char *text = json_string_value(v);
    char what[200];
    size_t i;
    if (text && strspn(text, letters) != json_string_length(v)) {
        snprintf(what, sizeof what,
                 "a text has letters of samplers, each one of '%s'; a list has their names", letters);
        return fail(c, "samplers", what);
    }
    json_array_foreach((json_t *)(uintptr_t)v, i, one)
    {
        if (is_one_of(json_string_value(one), samplers))
            continue;
        snprintf(what, sizeof what, "there is no sampler '%.40s'", json_string_value(one));
        return fail(c, "samplers", what);
    }
    return 0;
}

/* ---- Tokens that are preferred ---- */

static bool is_bias(const json_t *v)
{
    return json_is_number(v) || json_is_false(v);
}

/* A token by its number, or texts whose tokens are meant. */
static bool is_token(const struct check *c, const json_t *v)
{
    if (json_is_string(v))
        return json_string_length(v) > 0;
    const json_int_t id = json_integer_value(v), n = c->n_vocab > 0 ? c->n_vocab : INT32_MAX;
    return json_is_integer(v) && id >= 0 && id < n;
}

/* Keys of an object are texts; one that is a whole number is that token. */
static bool is_token_key(const struct check *c, const char *key)
{
    char *end;
    const long long id = strtoll(key, &end, 10);
    if (!*key || *end || end == key)
        return *key != '\0';
    return id >= 0 && id < (c->n_vocab > 0 ? c->n_vocab : INT32_MAX);
}

static int check_bias(const struct check *c)
{
    json_t *v = json_object_get(c->body, "logit_bias"), *one;
    const char *key;
    bool good = true;
    size_t i;
    json_array_foreach(v, i, one)
    {
        good = good && json_array_size(one) == 2 && is_token(c, json_array_get(one, 0)) &&
               is_bias(json_array_get(one, 1));
    }
    if (json_is_object(v))
        json_object_foreach(v, key, one)
        {
            good = good && is_token_key(c, key) && is_bias(one);
        }
    return good ? 0
                : fail(c, "logit_bias",
                       "each member has a token of the vocabulary, or a text, and a number or false");
}

/* ---- Forms of answers ---- */

/* Whether a schema may be missing, or is what a schema can be. */
static bool may_be_schema(const json_t *v)
{
    return !v || json_is_object(v) || json_is_boolean(v);
}

static int check_format(const struct check *c)
{
    const json_t *v = field_of(c, "response_format"), *own = json_object_get(v, "schema"),
                 *named = json_object_get(v, "json_schema");
    const char *type = text_in(v, "type");
    if (!v)
        return 0;
    if (!type)
        return fail(c, "response_format", "its type is \"text\", \"json_object\" or \"json_schema\"");
    if (strcmp(type, "json_schema") == 0 && (!json_is_object(named) || own))
        return fail(c, "response_format",
                    "with \"json_schema\" it has a member json_schema, an object, which has the schema");
    if (strcmp(type, "json_schema") != 0 && named)
        return fail(c, "response_format", "json_schema would not be followed with this type");
    if (strcmp(type, "text") == 0 && own)
        return fail(c, "response_format", "schema would not be followed with this type");
    if (!may_be_schema(own) || !may_be_schema(json_object_get(named, "schema")))
        return fail(c, "response_format", "a schema is an object");
    return 0;
}

static int check_tools(const struct check *c)
{
    json_t *v = json_object_get(c->body, "tools"), *tool;
    size_t i;
    json_array_foreach(v, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        if (!may_be_schema(json_object_get(function, "parameters")) ||
            !may_be_schema(json_object_get(tool, "parameters")) ||
            !may_be_schema(json_object_get(tool, "input_schema")))
            return fail(c, "tools", "the parameters of a tool are a JSON schema, which is an object");
    }
    return 0;
}

/* The server knows these forms of reasoning (0.3.36: common/chat.cpp), and writes what it does not know into its log. */
static int check_reasoning(const struct check *c)
{
    static const char *const formats[] = {"none", "auto", "deepseek", "deepseek-legacy", NULL};
    const char *text = text_in(c->body, "reasoning_format");
    for (size_t i = 0; text && formats[i]; i++)
        if (strcmp(text, formats[i]) == 0)
            return 0;
    return text ? fail(c, "reasoning_format", "it is \"none\", \"auto\", \"deepseek\" or \"deepseek-legacy\"")
                : 0;
}

/* ---- Fields of one form ---- */

static int check_thinking(const struct check *c)
{
    static const char *const types[] = {"enabled", "disabled", "adaptive", NULL};
    const json_t *v = field_of(c, "thinking"), *budget = json_object_get(v, "budget_tokens");
    const char *type = text_in(v, "type");
    if (!v)
        return 0;
    if (!type || !is_one_of(type, types))
        return fail(c, "thinking", "its type is \"enabled\", \"disabled\" or \"adaptive\"");
    return !budget || (json_is_integer(budget) && json_integer_value(budget) >= 0)
               ? 0
               : fail(c, "thinking", "budget_tokens is a whole number from 0");
}

/* Parts of messages that the server reads in bodies for /v1/messages; it would pass over others. */
static int check_parts(const struct check *c, const char *name, const json_t *list, const char *const *types)
{
    json_t *part;
    char what[200];
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, part)
    {
        const char *type = text_in(part, "type");
        if (type && is_one_of(type, types) &&
            (strcmp(type, "text") != 0 || json_is_string(json_object_get(part, "text"))))
            continue;
        snprintf(what, sizeof what,
                 "this route would not read a part of type '%.40s' that has no such content",
                 type ? type : "");
        return fail(c, name, what);
    }
    return 0;
}

static int check_messages(const struct check *c)
{
    static const char *const types[] = {"text",        "image",    "tool_use",
                                        "tool_result", "thinking", "redacted_thinking",
                                        NULL},
                             *const texts[] = {"text", NULL};
    json_t *messages = json_object_get(c->body, "messages"), *message;
    int status = check_parts(c, "system", field_of(c, "system"), texts);
    size_t i;
    json_array_foreach(messages, i, message)
    {
        status = status ? status : check_parts(c, "messages", json_object_get(message, "content"), types);
    }
    return status ? status : check_thinking(c);
}

static int check_modalities(const struct check *c)
{
    const json_t *v = field_of(c, "modalities"), *one;
    bool good = !v || json_is_array(v);
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)v, i, one)
    {
        good = good && json_is_string(one) && strcmp(json_string_value(one), "text") == 0;
    }
    return good ? 0 : fail(c, "modalities", "answers are text: [\"text\"]");
}

/* ---- Adapters ---- */

static bool is_adapter_twice(const json_t *list, size_t at, json_int_t id)
{
    size_t i = 0;
    while (i < at && json_integer_value(json_object_get(json_array_get(list, i), "id")) != id)
        i++;
    return i < at;
}

static int check_adapter(const json_t *list, size_t at, int32_t n, const char **member, char *what,
                         size_t size)
{
    const json_t *one = json_array_get(list, at), *id = json_object_get(one, "id"),
                 *scale = json_object_get(one, "scale");
    const double x = json_number_value(scale);
    *member = "id";
    if (!json_is_object(one) || !json_is_integer(id) || json_integer_value(id) < 0)
        snprintf(what, size, "each member has the id of an adapter, a whole number from 0, and a scale");
    else if (n == 0)
        snprintf(what, size, "this server has no adapters; winnow serve ... -- --lora FILE gives it one");
    else if (n > 0 && json_integer_value(id) >= n)
        snprintf(what, size, "there is no adapter %lld; this server has %d, numbered from 0",
                 (long long)json_integer_value(id), (int)n);
    else if (is_adapter_twice(list, at, json_integer_value(id)))
        snprintf(what, size, "adapter %lld is named twice", (long long)json_integer_value(id));
    else if (!json_is_number(scale) || !(x >= -FLT_MAX && x <= FLT_MAX)) {
        *member = "scale";
        snprintf(what, size, "each member has the scale of its adapter, a number");
    } else
        return 0;
    return 400;
}

int serve_values_check_adapters(const json_t *list, const char *name, int32_t n, char *why,
                                const char **param)
{
    char what[200];
    const char *member;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (check_adapter(list, i, n, &member, what, sizeof what) == 0)
            continue;
        *param = name ? name : member;
        snprintf(why, SERVE_TEXT, "%.80s: %.200s", *param, what);
        return 400;
    }
    return 0;
}

static int check_adapters(const struct check *c)
{
    return serve_values_check_adapters(field_of(c, "lora"), "lora", -1, c->why, c->param);
}

/* ---- Bodies of routes that generate no text ---- */

/* The server would take a number with a fraction, and one that is no token, and leave the rest to chance. */
static bool are_tokens(const struct check *c, const json_t *list, bool with_texts)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        if (json_is_string(one) ? !with_texts : !is_token(c, one))
            return false;
    }
    return json_is_array(list);
}

static int check_tokenize(const struct check *c)
{
    const json_t *v = field_of(c, "content");
    if (!v)
        return fail(c, "content", "it is missing");
    return json_is_string(v) || are_tokens(c, v, true)
               ? 0
               : fail(c, "content", "it is a text, or a list of texts and tokens of the vocabulary");
}

static int check_detokenize(const struct check *c)
{
    const json_t *v = field_of(c, "tokens");
    if (!v)
        return fail(c, "tokens", "it is missing");
    return are_tokens(c, v, false)
               ? 0
               : fail(c, "tokens", "it is a list of tokens, whole numbers from 0 that the vocabulary has");
}

static int check_embeddings(const struct check *c)
{
    return field_of(c, "input") && field_of(c, "content")
               ? fail(c, "content", "a request has this or input, not both")
               : 0;
}

static int check_rerank(const struct check *c)
{
    if (field_of(c, "documents") && field_of(c, "texts"))
        return fail(c, "texts", "a request has this or documents, not both");
    return json_is_true(field_of(c, "return_text")) && !field_of(c, "texts")
               ? fail(c, "return_text", "it is followed with texts, and not with documents")
               : 0;
}

int serve_values_check(const json_t *body, enum serve_form form, int32_t n_vocab, char *why,
                       const char **param)
{
    static int (*const all[])(const struct check *c) = {check_samplers, check_bias,       check_format,
                                                        check_tools,    check_modalities, check_adapters,
                                                        check_reasoning},
                                                 (*const of_form[])(const struct check *c) = {
                                                     [SERVE_FORM_MESSAGES] = check_messages,
                                                     [SERVE_FORM_TOKENIZE] = check_tokenize,
                                                     [SERVE_FORM_DETOKENIZE] = check_detokenize,
                                                     [SERVE_FORM_EMBEDDINGS] = check_embeddings,
                                                     [SERVE_FORM_RERANK] = check_rerank};
    const struct check c = {.body = body, .form = form, .n_vocab = n_vocab, .why = why, .param = param};
    const json_t *text = json_object_get(body, "text");
    int status = 0;
    for (size_t i = 0; !status && i < sizeof all / sizeof *all; i++)
        status = all[i](&c);
    if (!status && of_form[form])
        status = of_form[form](&c);
    if (!status && form == SERVE_FORM_RESPONSES && text && !json_is_object(text))
        status = fail(&c, "text", "it is an object with a format");
    return status;
}
