/* SPDX-License-Identifier: MIT */
#include "serve/request.h"

#include "serve/automatic.h"
#include "serve/bodies.h"
#include "serve/documents.h"
#include "serve/parse.h"
#include "serve/values.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that a request may answer with as far as the cap goes, where it does not say. */
enum { ANSWER = 1024 };

static int fail(char *why, const char **param, const char *name, const char *what)
{
    snprintf(why, SERVE_TEXT, "%.80s: %.420s", name, what);
    *param = name;
    return 400;
}

/* ---- The field ---- */

static int read_policy(struct serve_keep_rule *keep_rule, const json_t *v, char *why, const char **param)
{
    const char *recipe = json_string_value(v);
    wnw_policy *policy = NULL;
    if (!recipe || json_string_length(v) >= SERVE_RECIPE || strlen(recipe) != json_string_length(v))
        return fail(why, param, "winnow.policy",
                    "it is the text of a recipe, as \"keydiff\", or \"auto\" or \"full\"");
    int rc = serve_keep_rule_set(keep_rule, recipe, &policy);
    if (rc != WNW_OK && strncmp(recipe, "auto", 4) == 0)
        return fail(why, param, "winnow.policy",
                    "after \"auto\" nothing follows, or \"+quality:q=Q\" with a Q above 0 and below 1");
    rc = rc == WNW_OK && policy ? serve_check_policy(policy) : rc;
    wnw_policy_free(policy);
    return rc == WNW_OK ? 0 : fail(why, param, "winnow.policy", wnw_last_error());
}

static int read_budget(struct serve_keep_rule *keep_rule, const json_t *v, char *why, const char **param)
{
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > INT32_MAX)
        return fail(why, param, "winnow.budget",
                    "it is a whole number from 1 to 2147483647: entries that a head keeps on average");
    keep_rule->size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = json_integer_value(v)};
    return 0;
}

static int read_ratio(struct serve_keep_rule *keep_rule, const json_t *v, char *why, const char **param)
{
    if (!json_is_number(v) || !(json_number_value(v) >= 0.0 && json_number_value(v) < 1.0))
        return fail(why, param, "winnow.ratio",
                    "it is a number from 0 to less than 1: the part that is removed");
    keep_rule->size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = json_number_value(v)};
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

/* The names of the documents, for a message. */
static void list_documents(char *line, size_t size)
{
    size_t at = 0;
    line[0] = '\0';
    for (int32_t d = 0; d < serve_documents_n() && at < size; d++)
        at += (size_t)snprintf(line + at, size - at, "%s%s", d > 0 ? ", " : "", serve_document_name(d));
}

/* The document that a member of the request names; its number, or -1 with a sentence. */
static int32_t find_document(const json_t *v, const char *key, char *why, const char **param)
{
    char what[SERVE_TEXT - 32], names[SERVE_TEXT / 2];
    const char *name = json_string_value(v);
    const int32_t d = name && strlen(name) == json_string_length(v) ? serve_documents_find(name) : -1;
    if (d >= 0)
        return d;
    list_documents(names, sizeof names);
    if (!name)
        snprintf(what, sizeof what, "it is the name of a document that the server was started with");
    else if (serve_documents_n() == 0)
        snprintf(what, sizeof what,
                 "this server has no documents; winnow serve --document NAME=FILE gives it some");
    else
        snprintf(what, sizeof what, "there is no '%.64s'; this server has %s", name, names);
    (void)fail(why, param, key, what);
    return -1;
}

static int read_document(struct serve_ask *ask, const json_t *v, char *why, const char **param)
{
    const int32_t d = find_document(v, "winnow.document", why, param);
    ask->document_plus_1 = d + 1;
    return d >= 0 ? 0 : 400;
}

/* What does not go with several documents; NULL: they can follow each other. */
static const char *misfit_of(const int32_t *documents, int32_t n)
{
    const char *system = serve_document_system(documents[0]);
    if (serve_joins_refused())
        return serve_joins_refused();
    for (int32_t i = 1; i < n; i++) {
        const char *other = serve_document_system(documents[i]);
        for (int32_t k = 0; k < i; k++)
            if (documents[k] == documents[i])
                return "a document is named twice";
        if (serve_document_is_stored(documents[i]) != serve_document_is_stored(documents[0]))
            return "texts stand in the system message and .wkv files in the user's, so all are of one kind";
        if ((system != NULL) != (other != NULL) || (system && strcmp(system, other) != 0))
            return "the .wkv files were stored with different system messages";
    }
    return NULL;
}

static int read_documents(struct serve_request *r, const json_t *v, char *why, const char **param)
{
    const size_t n = json_array_size(v);
    if (n < 1 || n > SERVE_JOINED)
        return fail(why, param, "winnow.documents", "it is a list of 1 to 8 names of documents");
    for (size_t i = 0; i < n; i++) {
        const int32_t d = find_document(json_array_get(v, i), "winnow.documents", why, param);
        if (d < 0)
            return 400;
        r->documents[i] = d;
    }
    r->n_documents = (int32_t)n;
    r->ask.document_plus_1 = r->documents[0] + 1;
    const char *misfit = n > 1 ? misfit_of(r->documents, (int32_t)n) : NULL;
    return misfit ? fail(why, param, "winnow.documents", misfit) : 0;
}

static int read_again(double *again, const json_t *v, char *why, const char **param)
{
    const double share = json_number_value(v);
    if (!json_is_number(v) || share < 0.0 || share > 1.0)
        return fail(why, param, "winnow.reread", "it is a share from 0 to 1");
    *again = share;
    return 0;
}

void serve_request_set_documents(struct serve_request *r, int32_t d)
{
    r->ask.document_plus_1 = d + 1;
}

static int read_full(enum serve_full *full, const json_t *v, char *why, const char **param)
{
    const char *text = json_is_string(v) ? json_string_value(v) : "";
    if (strcmp(text, "compress") != 0 && strcmp(text, "refuse") != 0)
        return fail(why, param, "winnow.full", "it is \"compress\" or \"refuse\"");
    *full = *text == 'c' ? SERVE_FULL_COMPRESS : SERVE_FULL_REFUSE;
    return 0;
}

static int read_key(struct serve_request *r, const char *key, const json_t *v, char *why, const char **param)
{
    if (strcmp(key, "policy") == 0)
        return read_policy(&r->ask.keep_rule, v, why, param);
    if (strcmp(key, "budget") == 0)
        return read_budget(&r->ask.keep_rule, v, why, param);
    if (strcmp(key, "ratio") == 0)
        return read_ratio(&r->ask.keep_rule, v, why, param);
    if (strcmp(key, "reuse") == 0)
        return read_reuse(&r->ask, v, why, param);
    if (strcmp(key, "document") == 0)
        return read_document(&r->ask, v, why, param);
    if (strcmp(key, "documents") == 0)
        return read_documents(r, v, why, param);
    if (strcmp(key, "reread") == 0)
        return read_again(&r->again, v, why, param);
    if (strcmp(key, "full") == 0)
        return read_full(&r->full, v, why, param);
    snprintf(
        why, SERVE_TEXT,
        "winnow has no key '%.60s'; it has policy, budget or ratio, reuse, full, document, documents, and "
        "reread",
        key);
    *param = "winnow";
    return 400;
}

/* A size that the field gives, where everything is kept; NULL: there is none. */
static const char *idle_size(const struct serve_request *r, const json_t *field)
{
    if (!serve_keeps_all(&r->ask.keep_rule))
        return NULL;
    if (json_object_get(field, "budget"))
        return "winnow.budget";
    return json_object_get(field, "ratio") ? "winnow.ratio" : NULL;
}

static int read_field(struct serve_request *r, const json_t *field, char *why, const char **param)
{
    const char *key;
    json_t *v;
    int status = 0;
    if (!json_is_object(field))
        return fail(
            why, param, "winnow",
            "it is an object with policy, budget or ratio, reuse, full, document, documents, and reread");
    if (!serve_slots_by_request())
        return fail(why, param, "winnow",
                    "this model has recurrent layers: the server's own policy holds for all requests");
    if (json_object_get(field, "budget") && json_object_get(field, "ratio"))
        return fail(why, param, "winnow.ratio", "a request has a budget or a ratio, not both");
    if (json_object_get(field, "document") && json_object_get(field, "documents"))
        return fail(why, param, "winnow.documents", "a request has a document or a list of them, not both");
    if (json_object_get(field, "reread") && json_array_size(json_object_get(field, "documents")) < 2)
        return fail(why, param, "winnow.reread", "it is for several documents, which winnow.documents lists");
    json_object_foreach((json_t *)(uintptr_t)field, key, v)
    {
        status = status ? status : read_key(r, key, v, why, param);
    }
    const char *idle = status ? NULL : idle_size(r, field);
    if (idle)
        status =
            fail(why, param, idle,
                 "the policy keeps everything, the given size has no effect; leave it out, or name another "
                 "policy, such as \"auto\"");
    if (!status && serve_automatic_settle(&r->ask.keep_rule) != WNW_OK)
        status = fail(why, param, "winnow.policy", wnw_last_error());
    return status;
}

/* ---- A request ---- */

static int check_fields(json_t *body, enum serve_form form, char *why, const char **param)
{
    const int status = serve_fields_check(body, form, serve_slots_n_cells(), why, param);
    return status ? status : serve_values_check(body, form, serve_slots_n_vocab(), why, param);
}

static const char *const answer_keys[] = {"n_predict", "max_tokens", "max_completion_tokens",
                                          "max_output_tokens"};
enum { N_ANSWER_KEYS = sizeof answer_keys / sizeof *answer_keys };

/* A whole number that a body has; its type was checked. */
static int64_t number_of(const json_t *body, const char *key, int64_t missing)
{
    const json_t *v = json_object_get(body, key);
    return v ? json_integer_value(v) : missing;
}

/* How many tokens it may answer with; -1 and what is missing mean as many as there is room for. Of several names one is left. */
static void read_answer(struct serve_request *r)
{
    int64_t n = -1;
    for (size_t i = 0; i < N_ANSWER_KEYS; i++)
        n = number_of(r->body, answer_keys[i], n);
    r->is_open = n < 0;
    r->ask.n_predict = n < 0 ? ANSWER : n;
}

/* How many slots it takes, and which. */
static int read_slots(struct serve_request *r, char *why, const char **param)
{
    const char *key = json_object_get(r->body, "n") ? "n" : "n_cmpl";
    const int64_t n = number_of(r->body, key, 1), slot = number_of(r->body, "id_slot", -1);
    if (n > serve_slots_n())
        return fail(why, param, key, "a request has one answer to as many as there are slots");
    if (slot >= serve_slots_n()) /* the server would take another one */
        return fail(why, param, "id_slot", "there is no slot of that number");
    r->ask.n_slots = (int32_t)n;
    r->ask.slot = (int32_t)slot;
    return 0;
}

/* What each form makes its prompt of. */
static int read_content(struct serve_request *r, char *why, const char **param)
{
    static const char *const keys[] = {[SERVE_FORM_PROMPT] = "prompt",
                                       [SERVE_FORM_CHAT] = "messages",
                                       [SERVE_FORM_MESSAGES] = "messages",
                                       [SERVE_FORM_RESPONSES] = "input"};
    if (r->form == SERVE_FORM_INFILL)
        return 0;
    if (!json_object_get(r->body, keys[r->form]))
        return fail(why, param, keys[r->form], "it is missing");
    if (r->form == SERVE_FORM_PROMPT)
        return serve_request_set_prompt(r, why, param);
    if (r->form == SERVE_FORM_CHAT)
        r->chat = json_incref(r->body);
    return 0;
}

/* What does not go with a document. */
static int check_document(const struct serve_request *r, char *why, const char **param)
{
    if (r->ask.document_plus_1 == 0)
        return 0;
    if (r->form == SERVE_FORM_PROMPT)
        return fail(why, param, "winnow.document",
                    "documents stand in front of messages, which this route does not read; "
                    "/v1/chat/completions does");
    if (json_is_false(json_object_get(r->body, "cache_prompt")))
        return fail(why, param, "cache_prompt", "a request with a document begins with what is kept of it");
    return 0;
}

/* The contexts that it may be long: more than one, if room is made for it (generate.cpp). */
static int32_t times_of(const struct serve_request *r)
{
    const bool refuses = r->full == SERVE_FULL_REFUSE || serve_keeps_all(&r->ask.keep_rule) ||
                         (r->full == SERVE_FULL_UNSAID && r->form == SERVE_FORM_PROMPT);
    return refuses ? 1 : serve_slots_times();
}

static int read_object(struct serve_request *r, char *why, const char **param)
{
    json_t *field = json_incref(json_object_get(r->body, "winnow"));
    r->has_field = field != NULL;
    json_object_del(r->body, "winnow");
    int status = check_fields(r->body, r->form, why, param);
    if (!status && field)
        status = read_field(r, field, why, param);
    json_decref(field);
    if (!status && serve_request_is_long(r->body, times_of(r), param))
        status = fail(why, param, *param, "it is longer than any prompt that the context holds");
    read_answer(r);
    status = status ? status : read_slots(r, why, param);
    status = status ? status : read_content(r, why, param);
    return status ? status : check_document(r, why, param);
}

int serve_request_read(struct serve_request *r, enum serve_form form, const char *body, size_t n, char *why,
                       const char **param)
{
    *r = (struct serve_request){
        .form = form,
        .n_prompts = 1,
        .again = APP_JOIN_SHARE,
        .ask = {.keep_rule = serve_settings()->keep_rule, .slot = -1, .n_slots = 1, .n_prompt = -1}};
    const int status = serve_parse(&r->body, body, n, why);
    if (status)
        return status;
    if (!json_is_object(r->body)) {
        snprintf(why, SERVE_TEXT, "the body is no object in JSON");
        return 400;
    }
    return read_object(r, why, param);
}

int serve_request_check_other(json_t *body, int form, char *why, const char **param)
{
    if (!json_is_object(body) &&
        (form >= 0 || !json_is_array(body))) { /* actions on slots say what they need */
        snprintf(why, SERVE_TEXT, "the body is no object in JSON");
        return 400;
    }
    if (json_object_get(body, "winnow"))
        return fail(why, param, "winnow",
                    "this route would not follow it; /v1/chat/completions and /v1/completions would");
    if (serve_request_is_long(body, 1, param))
        return fail(why, param, *param, "it is longer than any prompt that the context holds");
    if (form >= 0)
        return check_fields(body, (enum serve_form)form, why, param);
    return serve_fields_check_grammars(body, why, param);
}

bool serve_request_set_chat(struct serve_request *r, const char *body)
{
    json_decref(r->chat);
    r->chat = json_loads(body, JSON_ALLOW_NUL, NULL);
    return json_is_array(json_object_get(r->chat, "messages"));
}

/* A text has at most as many tokens as bytes, plus a few tokens that come from no text. */
int serve_request_bound(struct serve_request *r)
{
    enum { SPARE = 64 };
    const int64_t most = (r->ask.n_prompt > 0 ? r->ask.n_prompt : (int64_t)r->ask.key_len) + SPARE;
    r->ask.keep_rule.n_most =
        most > INT32_MAX || r->has_media || serve_request_has_media(r) ? 0 : (int32_t)most;
    return serve_automatic_settle(&r->ask.keep_rule);
}

void serve_request_free(struct serve_request *r)
{
    json_decref(r->body);
    json_decref(r->chat);
    free(r->key);
    *r = (struct serve_request){0};
}

/* An answer ends where its room does: that of the cap, where nobody said its length, and that of the context. */
static bool bound_answer(const struct serve_request *r, json_t *body)
{
    int64_t n = r->is_open && serve_settings()->cap == 0 ? INT64_MAX : r->ask.n_predict;
    if (r->most_answer > 0 && n > r->most_answer)
        n = r->most_answer;
    else if (!r->is_open || serve_settings()->cap == 0)
        return true;
    for (size_t i = 0; i < N_ANSWER_KEYS; i++)
        json_object_del(body, answer_keys[i]);
    return json_object_set_new(body, serve_fields_answer(r->form), json_integer(n)) == 0;
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
    if (ok && claim &&
        (claim->no_reuse || r->ask.document_plus_1 > 0)) /* with a document, the cached prompt must be used */
        ok = json_object_set_new(body, "cache_prompt", json_boolean(!claim->no_reuse)) == 0;
    char *text = ok ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}
