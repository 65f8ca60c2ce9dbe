/* SPDX-License-Identifier: MIT */
/* The field `winnow` of a request, and the bodies that go on to the server. */
#include "serve/documents.h"
#include "serve/serve.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that a request may answer with as far as the cap goes, where it does not say. */
enum { ANSWER = 1024 };

static int fail(char *why, const char **param, const char *name, const char *what)
{
    snprintf(why, SERVE_TEXT, "%s: %s", name, what);
    *param = name;
    return 400;
}

/* ---- The field ---- */

static int read_policy(struct serve_want *want, const json_t *v, char *why, const char **param)
{
    const char *recipe = json_string_value(v);
    if (!recipe || json_string_length(v) >= SERVE_RECIPE || strlen(recipe) != json_string_length(v))
        return fail(why, param, "winnow.policy",
                    "it is the text of a recipe, as \"keydiff\", or \"auto\" or \"full\"");
    if (strcmp(recipe, "auto") == 0)
        recipe = serve_settings()->automatic;
    if (strcmp(recipe, "full") != 0 && serve_check_recipe(recipe) != WNW_OK)
        return fail(why, param, "winnow.policy", wnw_last_error());
    strcpy(want->recipe, recipe);
    return 0;
}

static int read_budget(struct serve_want *want, const json_t *v, char *why, const char **param)
{
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX)
        return fail(why, param, "winnow.budget",
                    "it is a whole number from 1 to 2147483647: entries that a head keeps on average");
    want->size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = json_integer_value(v)};
    return 0;
}

static int read_ratio(struct serve_want *want, const json_t *v, char *why, const char **param)
{
    if (!json_is_number(v) || !(json_number_value(v) >= 0.0 && json_number_value(v) < 1.0))
        return fail(why, param, "winnow.ratio",
                    "it is a number from 0 to less than 1: the part that is removed");
    want->size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = json_number_value(v)};
    return 0;
}

static int read_reuse(struct serve_ask *ask, const json_t *v, char *why, const char **param)
{
    static const char *const names[] = {
        [SERVE_REUSE_SAME] = "same", [SERVE_REUSE_ANY] = "any", [SERVE_REUSE_NEVER] = "never"};
    for (size_t i = 0; json_is_string(v) && i < sizeof names / sizeof *names; i++)
        if (strcmp(json_string_value(v), names[i]) == 0) {
            ask->reuse = (enum serve_reuse)i;
            return 0;
        }
    return fail(why, param, "winnow.reuse", "it is \"same\", \"any\" or \"never\"");
}

/* The documents that there are, for a message. */
static void list_documents(char *line, size_t size)
{
    size_t at = 0;
    line[0] = '\0';
    for (int32_t d = 0; d < serve_documents_n() && at < size; d++)
        at += (size_t)snprintf(line + at, size - at, "%s%s", d > 0 ? ", " : "", serve_document_name(d));
}

static int read_document(struct serve_ask *ask, const json_t *v, char *why, const char **param)
{
    char what[SERVE_TEXT - 32], names[SERVE_TEXT / 2];
    const char *name = json_string_value(v);
    const int32_t d = name && strlen(name) == json_string_length(v) ? serve_documents_find(name) : -1;
    if (d >= 0) {
        ask->behind = d + 1;
        return 0;
    }
    list_documents(names, sizeof names);
    if (!name)
        snprintf(what, sizeof what, "it is the name of a document that the server was started with");
    else if (serve_documents_n() == 0)
        snprintf(what, sizeof what,
                 "this server has no documents; winnow serve --document NAME=FILE gives it some");
    else
        snprintf(what, sizeof what, "there is no '%.64s'; this server has %s", name, names);
    return fail(why, param, "winnow.document", what);
}

static int read_key(struct serve_request *r, const char *key, const json_t *v, char *why, const char **param)
{
    if (strcmp(key, "policy") == 0)
        return read_policy(&r->ask.want, v, why, param);
    if (strcmp(key, "budget") == 0)
        return read_budget(&r->ask.want, v, why, param);
    if (strcmp(key, "ratio") == 0)
        return read_ratio(&r->ask.want, v, why, param);
    if (strcmp(key, "reuse") == 0)
        return read_reuse(&r->ask, v, why, param);
    if (strcmp(key, "document") == 0)
        return read_document(&r->ask, v, why, param);
    snprintf(why, SERVE_TEXT,
             "winnow has no key '%.60s'; it has policy, budget or ratio, reuse, and document", key);
    *param = "winnow";
    return 400;
}

static int read_field(struct serve_request *r, const json_t *field, char *why, const char **param)
{
    const char *key;
    json_t *v;
    int status = 0;
    if (!json_is_object(field))
        return fail(why, param, "winnow",
                    "it is an object with policy, budget or ratio, reuse, and document");
    if (!serve_slots_by_request())
        return fail(why, param, "winnow",
                    "this model has recurrent layers: the server's own policy holds for all requests");
    if (json_object_get(field, "budget") && json_object_get(field, "ratio"))
        return fail(why, param, "winnow.ratio", "a request has a budget or a ratio, not both");
    json_object_foreach((json_t *)(uintptr_t)field, key, v)
    {
        status = status ? status : read_key(r, key, v, why, param);
    }
    return status;
}

/* ---- A request ---- */

static int64_t number_of(const json_t *body, const char *key, int64_t missing)
{
    const json_t *v = json_object_get(body, key);
    return json_is_integer(v) ? json_integer_value(v) : missing;
}

static const char *const answer_keys[] = {"n_predict", "max_tokens", "max_completion_tokens",
                                          "max_output_tokens"};
enum { N_ANSWER_KEYS = sizeof answer_keys / sizeof *answer_keys };

/* How many tokens it may answer with; -1 and what is missing mean as many as there is room for. */
static void read_answer(struct serve_request *r)
{
    int64_t n = -1;
    for (size_t i = 0; i < N_ANSWER_KEYS && n < 0; i++)
        n = number_of(r->body, answer_keys[i], -1);
    r->is_open = n < 0;
    r->ask.n_predict = n < 0 ? ANSWER : n > INT32_MAX ? INT32_MAX : n;
}

/* A copy of a string in which the character NUL is another one that takes as many tokens; to be freed. NULL: it is none. */
static char *copy_text(const json_t *string)
{
    const size_t n = json_string_length(string);
    char *copy = json_is_string(string) ? malloc(n + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, json_string_value(string), n + 1);
    for (size_t i = 0; i < n; i++)
        copy[i] = copy[i] ? copy[i] : '\1';
    return copy;
}

/* The prompt of a request that is no chat: its text, or its array as text, whose length in tokens is known then. */
static bool read_prompt(struct serve_request *r)
{
    const json_t *prompt = json_object_get(r->body, "prompt");
    if (json_is_string(prompt)) {
        r->key = copy_text(prompt);
    } else if (json_is_array(prompt)) {
        r->key = json_dumps(prompt, JSON_COMPACT);
        r->ask.n_prompt = (int64_t)json_array_size(prompt);
        for (size_t i = 0; i < json_array_size(prompt);
             i++) /* several prompts are several tasks: the server's */
            if (!json_is_integer(json_array_get(prompt, i)))
                return false;
    }
    return r->key != NULL;
}

/* Drops a body that the server is to judge. */
static void leave(struct serve_request *r)
{
    json_decref(r->body);
    json_decref(r->chat);
    r->body = r->chat = NULL;
}

int serve_request_read(struct serve_request *r, enum serve_form form, const char *body, size_t n, char *why,
                       const char **param)
{
    *r = (struct serve_request){
        .ask = {.want = serve_settings()->want, .slot = -1, .n_slots = 1, .n_prompt = -1}};
    json_error_t error;
    r->body = json_loadb(body, n, JSON_ALLOW_NUL, &error);
    if (!r->body) {
        /* What we cannot read must not go by: the server's parser takes more than ours. */
        snprintf(why, SERVE_TEXT, "the body is no JSON that this server takes: %.200s", error.text);
        return 400;
    }
    if (!json_is_object(r->body)) {
        leave(r);
        return 0;
    }
    const json_t *field = json_object_get(r->body, "winnow");
    r->has_field = field != NULL;
    if (field) {
        const int status = read_field(r, field, why, param);
        if (status)
            return status;
        json_object_del(r->body, "winnow");
    }
    if (form == SERVE_FORM_CHAT && json_is_array(json_object_get(r->body, "messages")))
        r->chat = json_incref(r->body);
    if (r->ask.behind > 0 && form == SERVE_FORM_CHAT && !r->chat)
        return fail(why, param, "winnow.document", "documents stand in front of messages, and here are none");
    r->ask.n_slots = (int32_t)number_of(r->body, "n", number_of(r->body, "n_cmpl", 1));
    r->ask.slot = (int32_t)number_of(r->body, "id_slot", -1);
    read_answer(r);
    if (r->ask.slot >= serve_slots_n()) /* the server would take another one */
        return fail(why, param, "id_slot", "there is no slot of that number");
    const bool has_prompt = form != SERVE_FORM_CHAT || r->chat || read_prompt(r);
    if (!has_prompt && json_is_array(json_object_get(r->body, "prompt")) && serve_settings()->cap > 0)
        return fail(why, param, "prompt",
                    "where memory is bounded a request has one, a text or an array of tokens");
    if (!has_prompt || r->ask.n_slots < 1 || r->ask.n_slots > serve_slots_n())
        leave(r);
    return 0;
}

bool serve_request_set_chat(struct serve_request *r, const char *body)
{
    json_decref(r->chat);
    r->chat = json_loads(body, JSON_ALLOW_NUL, NULL);
    return json_is_array(json_object_get(r->chat, "messages"));
}

void serve_request_free(struct serve_request *r)
{
    leave(r);
    free(r->key);
    *r = (struct serve_request){0};
}

/* Where there is a cap, an answer whose length nobody said ends where its room does. */
static bool bound_answer(const struct serve_request *r, json_t *body)
{
    if (!r->is_open || serve_settings()->cap == 0)
        return true;
    for (size_t i = 0; i < N_ANSWER_KEYS; i++)
        json_object_del(body, answer_keys[i]);
    return json_object_set_new(body, "max_tokens", json_integer(ANSWER)) == 0;
}

char *serve_request_body(const struct serve_request *r)
{
    return json_dumps(r->body, JSON_COMPACT);
}

char *serve_request_passed(const struct serve_request *r, const struct serve_claim *claim)
{
    json_t *body = json_copy(claim ? r->body : r->chat);
    bool ok = body != NULL;
    if (ok && claim)
        ok = json_object_set_new(body, "id_slot", json_integer(claim->slot)) == 0 && bound_answer(r, body);
    if (ok && claim && (claim->no_reuse || r->ask.behind > 0)) /* behind a document it must be used */
        ok = json_object_set_new(body, "cache_prompt", json_boolean(!claim->no_reuse)) == 0;
    char *text = ok ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

/* ---- Documents ---- */

static bool is_role(const json_t *message, const char *role)
{
    const char *is = json_string_value(json_object_get(message, "role"));
    return is && strcmp(is, role) == 0;
}

/* The text, an empty line, and a string that may have the character NUL. */
static json_t *joined(const char *text, const json_t *string)
{
    const size_t n = strlen(text), m = json_string_length(string);
    char *both = malloc(n + m + 2);
    if (!both)
        return NULL;
    memcpy(both, text, n);
    memcpy(both + n, "\n\n", 2);
    memcpy(both + n + 2, json_string_value(string), m);
    json_t *o = json_stringn(both, n + m + 2);
    free(both);
    return o;
}

/* The text in front of a message's content that may be a string or an array of parts, of that type; *ok = false: it is neither. */
static json_t *behind_text(const char *text, const json_t *content, const char *type, bool *ok)
{
    if (!content || json_is_null(content))
        return json_string(text);
    if (json_is_string(content))
        return joined(text, content);
    json_t *parts = json_is_array(content) ? json_copy((json_t *)(uintptr_t)content) : NULL;
    if (!parts ||
        json_array_insert_new(
            parts, 0, json_pack("{s:s, s:o}", "type", type, "text", json_sprintf("%s\n\n", text))) != 0)
        *ok = false;
    return parts;
}

static bool is_system(const json_t *message)
{
    return is_role(message, "system") || is_role(message, "developer");
}

static bool put_before_messages(json_t *messages, const char *text)
{
    bool ok = true;
    json_t *first = json_array_get(messages, 0);
    if (!is_system(first))
        return json_array_insert_new(messages, 0,
                                     json_pack("{s:s, s:s}", "role", "system", "content", text)) == 0;
    json_t *content = behind_text(text, json_object_get(first, "content"), "text", &ok);
    return json_object_set_new(first, "content", content) == 0 && ok;
}

/* Puts a text in front of the first message of a user. */
static bool put_before_user(json_t *messages, const char *text, const char *type)
{
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        bool ok = true;
        if (!is_role(message, "user"))
            continue;
        json_t *content = behind_text(text, json_object_get(message, "content"), type, &ok);
        return json_object_set_new(message, "content", content) == 0 && ok;
    }
    return false;
}

/* Has a request that brings no system message have the one that the document was stored with. */
static bool put_system(json_t *body, enum serve_form form, const char *system)
{
    const char *key = form == SERVE_FORM_MESSAGES ? "system" : "instructions";
    json_t *messages = json_object_get(body, "messages");
    if (!system)
        return true;
    if (form != SERVE_FORM_CHAT)
        return json_object_get(body, key) || json_object_set_new(body, key, json_string(system)) == 0;
    return is_system(json_array_get(messages, 0)) ||
           json_array_insert_new(messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", system)) ==
               0;
}

static bool put_stored(json_t *body, enum serve_form form, int32_t d)
{
    const char *text = serve_document_text(d);
    json_t *input = json_object_get(body, "input");
    if (!put_system(body, form, serve_document_system(d)))
        return false;
    if (form == SERVE_FORM_RESPONSES && json_is_string(input))
        return json_object_set_new(body, "input", joined(text, input)) == 0;
    if (form == SERVE_FORM_RESPONSES)
        return put_before_user(input, text, "input_text");
    return put_before_user(json_object_get(body, "messages"), text, "text");
}

bool serve_request_put_document(struct serve_request *r, enum serve_form form)
{
    const char *text = serve_document_text(r->ask.behind - 1);
    if (serve_document_is_stored(r->ask.behind - 1))
        return put_stored(r->body, form, r->ask.behind - 1);
    if (form == SERVE_FORM_CHAT)
        return put_before_messages(json_object_get(r->body, "messages"), text);
    const char *key = form == SERVE_FORM_MESSAGES ? "system" : "instructions";
    bool ok = true;
    json_t *content = behind_text(text, json_object_get(r->body, key), "text", &ok);
    return json_object_set_new(r->body, key, content) == 0 && ok;
}

char *serve_request_document(const char *text, const char *more)
{
    json_t *body = json_pack("{s:[{s:s, s:o}, {s:s, s:s}]}", "messages", "role", "system", "content",
                             json_sprintf("%s%s%s", text, *text && *more ? "\n\n" : "", more), "role", "user",
                             "content", *more ? more : "?");
    char *dumped = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return dumped;
}

char *serve_request_user(const char *system, const char *text, const char *more)
{
    json_t *messages = json_array();
    if (system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "user", "content",
                                              json_sprintf("%s%s%s", text, *text ? "\n\n" : "", more)));
    json_t *body = json_pack("{s:o}", "messages", messages);
    char *dumped = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return dumped;
}

char *serve_request_read_tokens(const int32_t *tokens, int32_t n, const struct serve_claim *claim)
{
    json_t *prompt = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(prompt, json_integer(tokens[i]));
    json_t *body = json_pack("{s:o, s:i, s:i, s:b}", "prompt", prompt, "n_predict", 0, "id_slot",
                             (int)claim->slot, "cache_prompt", 0);
    char *dumped = body && json_array_size(prompt) == (size_t)n ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return dumped;
}

char *serve_request_restore(const char *file)
{
    json_t *body = json_pack("{s:s}", "filename", file);
    char *dumped = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return dumped;
}

/* The messages up to the first one of a user. */
static json_t *header_of(const json_t *messages, const char *text)
{
    json_t *header = json_array(), *message;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)messages, i, message)
    {
        if (!is_system(message))
            break;
        json_array_append(header, message);
    }
    json_array_append_new(header, json_pack("{s:s, s:s}", "role", "user", "content", text));
    return header;
}

char *serve_request_header(const struct serve_request *r, const char *text)
{
    const json_t *messages = json_object_get(r->chat, "messages");
    json_t *body = json_is_array(messages) ? json_copy(r->chat) : NULL;
    char *dumped = NULL;
    if (body && json_object_set_new(body, "messages", header_of(messages, text)) == 0)
        dumped = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return dumped;
}

char *serve_request_tokenize(const char *text)
{
    json_t *body = json_pack("{s:s, s:b, s:b}", "content", text, "add_special", 1, "parse_special", 1);
    char *dumped = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return dumped;
}

/* ---- Replies ---- */

char *serve_reply_prompt(const char *reply, size_t n)
{
    json_t *o = json_loadb(reply, n, JSON_ALLOW_NUL, NULL);
    char *copy = copy_text(json_object_get(o, "prompt"));
    json_decref(o);
    return copy;
}

int32_t *serve_reply_tokens(const char *reply, size_t n, int32_t *n_tokens)
{
    json_t *o = json_loadb(reply, n, 0, NULL);
    const json_t *list = json_object_get(o, "tokens");
    const size_t size = json_array_size(list);
    int32_t *tokens = json_is_array(list) ? malloc((size + 1) * sizeof *tokens) : NULL;
    for (size_t i = 0; tokens && i < size; i++)
        tokens[i] = (int32_t)json_integer_value(json_array_get(list, i));
    *n_tokens = tokens ? (int32_t)size : 0;
    json_decref(o);
    return tokens;
}

char *serve_error(int status, const char *why, const char *param)
{
    const char *type = status == 503   ? "unavailable_error"
                       : status == 500 ? "server_error"
                                       : "invalid_request_error";
    json_t *o = json_pack("{s:{s:i, s:s, s:s, s:s?}}", "error", "code", status, "message", why, "type", type,
                          "param", param);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}
