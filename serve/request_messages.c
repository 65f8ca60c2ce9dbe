/* SPDX-License-Identifier: MIT */
/* What is done to a request's messages: their parts are looked at, a document is put in front of them, and its header is cut off. */
#include "serve/documents.h"
#include "serve/request.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool is_role(const json_t *message, const char *role)
{
    const char *is = json_string_value(json_object_get(message, "role"));
    return is && strcmp(is, role) == 0;
}

static bool is_system(const json_t *message)
{
    return is_role(message, "system") || is_role(message, "developer");
}

/* ---- Parts ---- */

bool serve_request_has_media(const struct serve_request *r)
{
    const json_t *messages = json_object_get(r->chat, "messages"), *message, *part;
    size_t i, k;
    json_array_foreach((json_t *)(uintptr_t)messages, i, message)
    {
        const json_t *content = json_object_get(message, "content");
        json_array_foreach((json_t *)(uintptr_t)content, k, part)
        {
            const char *type = json_string_value(json_object_get(part, "type"));
            if (!type || strcmp(type, "text") != 0)
                return true;
        }
    }
    return false;
}

/* ---- Documents ---- */

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

bool serve_request_put_document(struct serve_request *r)
{
    const enum serve_form form = r->form;
    const char *text = serve_document_text(r->ask.document_plus_1 - 1);
    if (serve_document_is_stored(r->ask.document_plus_1 - 1))
        return put_stored(r->body, form, r->ask.document_plus_1 - 1);
    if (form == SERVE_FORM_CHAT)
        return put_before_messages(json_object_get(r->body, "messages"), text);
    const char *key = form == SERVE_FORM_MESSAGES ? "system" : "instructions";
    bool ok = true;
    json_t *content = behind_text(text, json_object_get(r->body, key), "text", &ok);
    return json_object_set_new(r->body, key, content) == 0 && ok;
}

/* ---- The header ---- */

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
