/* SPDX-License-Identifier: MIT */
#include "serve/bodies.h"

#include "app/json.h"
#include "serve/config.h"
#include "serve/parse.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The body as text; it is released. */
static char *dumped(json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

/* ---- Bodies ---- */

char *serve_body_tokenize(const char *text)
{
    return dumped(json_pack("{s:s, s:b, s:b}", "content", text, "add_special", 1, "parse_special", 1));
}

char *serve_body_document(const char *text, const char *more)
{
    return dumped(json_pack("{s:[{s:s, s:o}, {s:s, s:s}]}", "messages", "role", "system", "content",
                            json_sprintf("%s%s%s", text, *text && *more ? "\n\n" : "", more), "role", "user",
                            "content", *more ? more : "?"));
}

char *serve_body_user(const char *system, const char *text, const char *more)
{
    json_t *messages = json_array();
    if (system)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "user", "content",
                                              json_sprintf("%s%s%s", text, *text ? "\n\n" : "", more)));
    return dumped(json_pack("{s:o}", "messages", messages));
}

char *serve_body_read_tokens(const int32_t *tokens, int32_t n, int32_t slot)
{
    json_t *prompt = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(prompt, json_integer(tokens[i]));
    const bool whole = json_array_size(prompt) == (size_t)n;
    char *text = dumped(json_pack("{s:o, s:i, s:i, s:b}", "prompt", prompt, "n_predict", 0, "id_slot",
                                  (int)slot, "cache_prompt", 0));
    if (whole)
        return text;
    free(text);
    return NULL;
}

char *serve_body_file(const char *file)
{
    return dumped(json_pack("{s:s}", "filename", file));
}

char *serve_body_get_file(const char *body, size_t n)
{
    char why[SERVE_TEXT];
    json_t *o;
    (void)serve_parse(&o, body, n, why);
    const json_t *name = json_object_get(o, "filename");
    const char *file = json_string_value(name);
    char *copy = file && strlen(file) == json_string_length(name) ? strdup(file) : NULL;
    json_decref(o);
    return copy;
}

/* ---- Replies ---- */

char *serve_text_of(const json_t *string)
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

char *serve_reply_prompt(const char *reply, size_t n)
{
    json_t *o = json_loadb(reply, n, JSON_ALLOW_NUL, NULL);
    char *copy = serve_text_of(json_object_get(o, "prompt"));
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

int32_t serve_reply_length(const char *reply, size_t n)
{
    json_t *o = json_loadb(reply, n, JSON_ALLOW_NUL, NULL);
    const int32_t length = json_is_array(o) ? (int32_t)json_array_size(o) : -1;
    json_decref(o);
    return length;
}

char *serve_reply_add_removed(const char *reply, size_t n, int32_t n_removed)
{
    json_t *o = json_loadb(reply, n, JSON_ALLOW_NUL, NULL), *usage = json_object_get(o, "usage");
    if (!usage) /* the last event of /v1/responses has the whole reply as a member */
        usage = json_object_get(json_object_get(o, "response"), "usage");
    const bool good =
        json_is_object(usage) &&
        json_object_set_new(usage, "winnow", json_pack("{s:i}", "removed", (int)n_removed)) == 0;
    char *text = good ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

char *serve_events_add_removed(const char *events, size_t n, int32_t n_removed)
{
    static const char field[] = "data: ";
    const size_t n_field = sizeof field - 1;
    const char *end = events + n;
    char *out = NULL;
    size_t size = 0;
    bool any = false, good;
    FILE *f = open_memstream(&out, &size);
    if (!f)
        return NULL;
    for (const char *line = events, *next; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const size_t len = (size_t)((stop ? stop : end) - line);
        const bool has_data = len > n_field && memcmp(line, field, n_field) == 0;
        char *said = has_data ? serve_reply_add_removed(line + n_field, len - n_field, n_removed) : NULL;
        next = stop ? stop + 1 : end;
        if (said)
            fprintf(f, "%s%s%s", field, said, stop ? "\n" : "");
        else
            fwrite(line, 1, (size_t)(next - line), f);
        any = any || said;
        free(said);
    }
    good = !ferror(f);
    good = fclose(f) == 0 && good && any;
    if (!good) {
        free(out);
        out = NULL;
    }
    return out;
}

/* ---- Errors ---- */

char *serve_error(int status, const char *why, const char *param)
{
    const char *type = "invalid_request_error";
    if (status == 503)
        type = "unavailable_error";
    else if (status == 500)
        type = "server_error";
    else if (status == 403)
        type = "permission_error";
    /* A sentence may show a piece of a request, cut off within a character. */
    json_t *o = json_pack("{s:{s:i, s:o, s:s, s:s?}}", "error", "code", status, "message", app_json_text(why),
                          "type", type, "param", param);
    return dumped(o);
}

char *serve_error_too_long(int64_t n_prompt, int32_t n_ctx, const char *param)
{
    char why[SERVE_TEXT];
    snprintf(why, sizeof why,
             "request (%lld tokens) exceeds the available context size (%d tokens), try increasing it",
             (long long)n_prompt, (int)n_ctx);
    return dumped(json_pack("{s:{s:i, s:s, s:s, s:s, s:I, s:i}}", "error", "code", 400, "message", why,
                            "type", "exceed_context_size_error", "param", param, "n_prompt_tokens",
                            (json_int_t)n_prompt, "n_ctx", (int)n_ctx));
}

/* Takes the marks of the JSON library, "[json.exception.type_error.302] ", out of a sentence. Whether there was one. */
static bool drop_marks(char *text)
{
    static const char mark[] = "[json.exception.";
    bool any = false;
    for (char *at = strstr(text, mark); at; at = strstr(at, mark)) {
        const size_t n = strcspn(at, "]");
        const char *rest = at + n + (at[n] != '\0');
        rest += strspn(rest, " ");
        memmove(at, rest, strlen(rest) + 1);
        any = true;
    }
    return any;
}

/* The field that a sentence begins with, "Field 'NAME': ", cut out of it; NULL: none. */
static const char *take_field(char *copy, const char **text)
{
    static const char begin[] = "Field '";
    char *end = strstr(copy, "': ");
    if (strncmp(copy, begin, sizeof begin - 1) != 0 || !end || end < copy + sizeof begin - 1)
        return NULL;
    *end = '\0';
    *text = end + 3;
    return copy + sizeof begin - 1;
}

char *serve_error_in_words(const char *reply, size_t n, bool posted, int *status)
{
    json_t *o = json_loadb(reply, n, JSON_ALLOW_NUL, NULL);
    const char *said = json_string_value(json_object_get(json_object_get(o, "error"), "message"));
    char *copy = said ? strdup(said) : NULL, line[SERVE_TEXT], *result = NULL;
    const char *text = copy;
    const bool is_mistake = *status == 500 && !posted && copy && !strstr(copy, "bad_alloc");
    if (copy && (drop_marks(copy) || is_mistake)) {
        const char *field = take_field(copy, &text);
        /* What a parser and a vector of C++ say is no sentence for people. */
        if (strstr(text, "parse error") != NULL)
            text = "the body is no JSON";
        else if (strstr(text, "_M_range_check") != NULL)
            text = "a number in it is out of range";
        snprintf(line, sizeof line, "%.80s: %.400s", field ? field : "the request cannot be read", text);
        *status = is_mistake ? 400 : *status;
        result = serve_error(*status, line, field);
    }
    free(copy);
    json_decref(o);
    return result;
}
