/* SPDX-License-Identifier: MIT */
#include "serve/request.h"

#include "serve/automatic.h"
#include "serve/bodies.h"
#include "serve/documents.h"

#include <jansson.h>
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
    wnw_policy *policy = NULL;
    if (!recipe || json_string_length(v) >= SERVE_RECIPE || strlen(recipe) != json_string_length(v))
        return fail(why, param, "winnow.policy",
                    "it is the text of a recipe, as \"keydiff\", or \"auto\" or \"full\"");
    int rc = serve_want_set(want, recipe, &policy);
    if (rc != WNW_OK && strncmp(recipe, "auto", 4) == 0)
        return fail(why, param, "winnow.policy",
                    "after \"auto\" nothing follows, or \"+quality:q=Q\" with a Q above 0 and below 1");
    rc = rc == WNW_OK && policy ? serve_check_policy(policy) : rc;
    wnw_policy_free(policy);
    return rc == WNW_OK ? 0 : fail(why, param, "winnow.policy", wnw_last_error());
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
    if (!status && serve_automatic_settle(&r->ask.want) != WNW_OK)
        status = fail(why, param, "winnow.policy", wnw_last_error());
    return status;
}

/* ---- A request ---- */

/* A number that a body has; one with a fraction is cut, as the server does. */
static int64_t number_of(const json_t *body, const char *key, int64_t missing)
{
    const json_t *v = json_object_get(body, key);
    if (json_is_integer(v))
        return json_integer_value(v);
    const double x = json_is_real(v) ? json_real_value(v) : (double)missing;
    return x > -1e15 && x < 1e15 ? (int64_t)x : x > 0 ? INT64_MAX : INT64_MIN;
}

static const char *const answer_keys[] = {"n_predict", "max_tokens", "max_completion_tokens",
                                          "max_output_tokens"};
enum { N_ANSWER_KEYS = sizeof answer_keys / sizeof *answer_keys };

/* How many tokens it may answer with; -1 and what is missing mean as many as there is room for. */
static void read_answer(struct serve_request *r)
{
    int64_t n = -1;
    int32_t n_said = 0;
    for (size_t i = 0; i < N_ANSWER_KEYS; i++) {
        n_said += json_object_get(r->body, answer_keys[i]) != NULL;
        n = n < 0 ? number_of(r->body, answer_keys[i], -1) : n;
    }
    r->is_open = n < 0 || n_said > 1; /* of several the route might take another one */
    r->ask.n_predict = n < 0 ? ANSWER : n > INT32_MAX ? INT32_MAX : n;
}

/* The prompt of a request that is no chat: its text, or its array as text, whose length in tokens is known then. */
static bool read_prompt(struct serve_request *r)
{
    const json_t *prompt = json_object_get(r->body, "prompt");
    if (json_is_string(prompt)) {
        r->key = serve_text_of(prompt);
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

/* How many slots it takes, and which. */
static int read_slots(struct serve_request *r, char *why, const char **param)
{
    const char *key = json_object_get(r->body, "n") ? "n" : "n_cmpl";
    const int64_t n = number_of(r->body, key, 1), slot = number_of(r->body, "id_slot", -1);
    if (n < 1 || n > serve_slots_n())
        return fail(why, param, key, "a request has one answer to as many as there are slots");
    if (slot >= serve_slots_n()) /* the server would take another one */
        return fail(why, param, "id_slot", "there is no slot of that number");
    r->ask.n_slots = (int32_t)n;
    r->ask.slot = slot < 0 ? -1 : (int32_t)slot;
    return 0;
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
    read_answer(r);
    const int status = read_slots(r, why, param);
    if (status)
        return status;
    const bool has_prompt = form != SERVE_FORM_CHAT || r->chat || read_prompt(r);
    if (!has_prompt && json_object_get(r->body, "prompt") && serve_settings()->cap > 0)
        return fail(why, param, "prompt",
                    "where memory is bounded a request has one, a text or an array of tokens");
    if (!has_prompt)
        leave(r);
    return 0;
}

bool serve_request_set_chat(struct serve_request *r, const char *body)
{
    json_decref(r->chat);
    r->chat = json_loads(body, JSON_ALLOW_NUL, NULL);
    return json_is_array(json_object_get(r->chat, "messages"));
}

/* Tokens are no more than bytes of text, but for a few that no text stands for. */
int serve_request_bound(struct serve_request *r)
{
    enum { SPARE = 64 };
    const int64_t most = (r->ask.n_prompt > 0 ? r->ask.n_prompt : (int64_t)r->ask.key_len) + SPARE;
    r->ask.want.n_most = most > INT32_MAX || serve_request_has_media(r) ? 0 : (int32_t)most;
    return serve_automatic_settle(&r->ask.want);
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
    return json_object_set_new(body, "max_tokens", json_integer(r->ask.n_predict)) == 0;
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
