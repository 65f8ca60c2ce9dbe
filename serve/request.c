/* SPDX-License-Identifier: MIT */
/* The field `winnow` of a request, and the bodies that go on to the server. */
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
        return fail(why, param, "winnow.policy", "it is the text of a recipe, as \"keydiff\" or \"full\"");
    if (strcmp(recipe, "full") != 0 && wnw_bridge_observe(NULL, recipe) != WNW_OK)
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

static int read_field(struct serve_request *r, const json_t *field, char *why, const char **param)
{
    const char *key;
    json_t *v;
    int status = 0;
    if (!json_is_object(field))
        return fail(why, param, "winnow", "it is an object with policy, budget or ratio, and reuse");
    if (!serve_slots_by_request())
        return fail(why, param, "winnow",
                    "this model has recurrent layers: the server's own policy holds for all requests");
    if (json_object_get(field, "budget") && json_object_get(field, "ratio"))
        return fail(why, param, "winnow.ratio", "a request has a budget or a ratio, not both");
    json_object_foreach((json_t *)(uintptr_t)field, key, v)
    {
        if (strcmp(key, "policy") == 0)
            status = read_policy(&r->ask.want, v, why, param);
        else if (strcmp(key, "budget") == 0)
            status = read_budget(&r->ask.want, v, why, param);
        else if (strcmp(key, "ratio") == 0)
            status = read_ratio(&r->ask.want, v, why, param);
        else if (strcmp(key, "reuse") == 0)
            status = read_reuse(&r->ask, v, why, param);
        else {
            snprintf(why, SERVE_TEXT, "winnow has no key '%.60s'; it has policy, budget or ratio, and reuse",
                     key);
            *param = "winnow";
            status = 400;
        }
        if (status)
            return status;
    }
    return 0;
}

/* ---- A request ---- */

static int64_t number_of(const json_t *body, const char *key, int64_t missing)
{
    const json_t *v = json_object_get(body, key);
    return json_is_integer(v) ? json_integer_value(v) : missing;
}

/* How many tokens it may answer with; -1 and what is missing mean as many as there is room for. */
static int64_t answer_of(const json_t *body)
{
    static const char *const keys[] = {"n_predict", "max_tokens", "max_completion_tokens",
                                       "max_output_tokens"};
    int64_t n = -1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && n < 0; i++)
        n = number_of(body, keys[i], -1);
    return n < 0 ? ANSWER : n > INT32_MAX ? INT32_MAX : n;
}

/* The prompt of a request that is no chat: its text, or its array as text, whose length in tokens is known then. */
static bool read_prompt(struct serve_request *r)
{
    const json_t *prompt = json_object_get(r->body, "prompt");
    if (json_is_string(prompt)) {
        r->key = strdup(json_string_value(prompt));
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

int serve_request_read(struct serve_request *r, const char *body, size_t n, char *why, const char **param)
{
    *r = (struct serve_request){
        .ask = {.want = serve_settings()->want, .slot = -1, .n_slots = 1, .n_prompt = -1}};
    r->body = json_loadb(body, n, 0, NULL);
    if (!json_is_object(r->body)) {
        json_decref(r->body);
        r->body = NULL;
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
    r->is_chat = json_is_array(json_object_get(r->body, "messages"));
    r->ask.n_slots = (int32_t)number_of(r->body, "n", number_of(r->body, "n_cmpl", 1));
    r->ask.slot = (int32_t)number_of(r->body, "id_slot", -1);
    r->ask.n_predict = answer_of(r->body);
    if ((!r->is_chat && !read_prompt(r)) || r->ask.n_slots < 1 || r->ask.n_slots > serve_slots_n() ||
        r->ask.slot >= serve_slots_n()) {
        json_decref(r->body);
        r->body = NULL;
    }
    return 0;
}

void serve_request_free(struct serve_request *r)
{
    json_decref(r->body);
    free(r->key);
    *r = (struct serve_request){0};
}

char *serve_request_passed(const struct serve_request *r, const struct serve_claim *claim)
{
    json_t *body = json_copy(r->body);
    char *text = NULL;
    if (body && (!claim || json_object_set_new(body, "id_slot", json_integer(claim->slot)) == 0) &&
        (!claim || !claim->no_reuse || json_object_set_new(body, "cache_prompt", json_false()) == 0))
        text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

static bool is_role(const json_t *message, const char *role)
{
    const char *is = json_string_value(json_object_get(message, "role"));
    return is && strcmp(is, role) == 0;
}

/* The messages up to the first one of a user. */
static json_t *header_of(const json_t *messages, const char *text)
{
    json_t *header = json_array(), *message;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)messages, i, message)
    {
        if (!is_role(message, "system") && !is_role(message, "developer"))
            break;
        json_array_append(header, message);
    }
    json_array_append_new(header, json_pack("{s:s, s:s}", "role", "user", "content", text));
    return header;
}

char *serve_request_header(const struct serve_request *r, const char *text)
{
    const json_t *messages = json_object_get(r->body, "messages");
    json_t *body = json_is_array(messages) ? json_copy(r->body) : NULL;
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
    const char *text = json_string_value(json_object_get(o, "prompt"));
    char *copy = text ? strdup(text) : NULL;
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
