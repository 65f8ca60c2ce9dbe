/* SPDX-License-Identifier: MIT */
#include "serve/parse.h"

#include "serve/config.h"
#include "serve/slots.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- Before anything is built ---- */

/* Bytes of jansson's values with what allocation adds, rounded up. nlohmann's, which llama.cpp's server builds once these are gone, take
 * less. */
enum { OF_OBJECT = 256, OF_ARRAY = 160, OF_VALUE = 56, OF_TEXT = 64, OF_KEY = 104 };

/* The end of the text that begins at body[i]: its last quote, or n. */
static size_t end_of_text(const char *body, size_t n, size_t i)
{
    for (i++; i < n && body[i] != '"'; i++)
        i += body[i] == '\\';
    return i < n ? i : n;
}

struct serve_extent serve_parse_extent(const char *body, size_t n)
{
    struct serve_extent e = {0};
    int32_t depth = 0;
    size_t end;
    for (size_t i = 0; i < n; i++)
        switch (body[i]) {
        case '"':
            e.bytes += OF_TEXT;
            end = end_of_text(body, n, i);
            e.longest = end - i > e.longest ? end - i : e.longest;
            i = end;
            break;
        case '{':
        case '[':
            e.bytes += body[i] == '{' ? OF_OBJECT : OF_ARRAY;
            depth += depth < INT32_MAX;
            e.depth = depth > e.depth ? depth : e.depth;
            break;
        case '}':
        case ']':
            depth -= depth > 0;
            break;
        case ',':
            e.bytes += OF_VALUE;
            break;
        case ':':
            e.bytes += OF_KEY;
            break;
        default:
            break;
        }
    return e;
}

static int check_extent(const char *body, size_t n, char *why)
{
    const struct serve_extent e = serve_parse_extent(body, n);
    const uint64_t most = n > SERVE_LEAST_TREE ? n : SERVE_LEAST_TREE;
    if (e.depth > SERVE_DEPTH)
        snprintf(why, SERVE_TEXT, "the body has arrays and objects in each other, %d deep; %d is the most",
                 (int)e.depth, (int)SERVE_DEPTH);
    else if (e.bytes > most)
        snprintf(
            why, SERVE_TEXT,
            "the body has too many values for its %zu bytes: they would take %.0f MiB of memory, and %.0f "
            "is the most",
            n, (double)e.bytes / 0x1p20, (double)most / 0x1p20);
    else if (!serve_settings()->media && e.longest / 6 > serve_slots_most_text()) /* \u0041 is one byte */
        snprintf(why, SERVE_TEXT,
                 "the body has a text of %zu bytes, which is longer than any prompt that the "
                 "context holds",
                 e.longest);
    else
        return 0;
    return 400;
}

/* ---- Reading ---- */

static void say_fault(char *why, const json_error_t *error)
{
    switch (json_error_code(error)) {
    case json_error_duplicate_key:
        snprintf(why, SERVE_TEXT, "the body has a key twice in one object: %.160s", error->text);
        break;
    case json_error_numeric_overflow:
        snprintf(why, SERVE_TEXT,
                 "the body has a number that is too large: %.160s; whole numbers are from -2^63 to 2^63-1",
                 error->text);
        break;
    default:
        snprintf(why, SERVE_TEXT, "the body is no JSON that this server takes: line %d, column %d: %.160s",
                 error->line, error->column, error->text);
    }
}

static void drop_nulls(json_t *o)
{
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(o, next, key, v)
    {
        if (json_is_null(v))
            json_object_del(o, key);
    }
}

int serve_parse(json_t **out, const char *body, size_t n, char *why)
{
    json_error_t error;
    *out = NULL;
    const int status = check_extent(body, n, why);
    if (status)
        return status;
    *out = json_loadb(body, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!*out) {
        say_fault(why, &error);
        return json_error_code(&error) == json_error_out_of_memory ? 500 : 400;
    }
    if (json_is_object(*out))
        drop_nulls(*out);
    return 0;
}
