/* SPDX-License-Identifier: MIT */
/* Calls of tools: the first JSON object of a text, {"name": "...", "arguments": {...}}. What is before and after it does not count:
 * models put calls into fences. */
#include "eval/metrics/metric.h"

#include <stdlib.h>
#include <string.h>

/* Appends a code point as UTF-8, and returns how many bytes that are. */
static size_t encode(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    const size_t n = c < 0x800 ? 2 : 3 + (c >= 0x10000);
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    to[0] = (char)(first[n] | c);
    return n;
}

/* The object that begins at the first brace, NULL where none does. false: out of memory. */
static bool first_object(json_t **out, const struct eval_chars *text)
{
    char *bytes = malloc(4 * text->n + 1), *end = bytes;
    *out = NULL;
    if (!bytes)
        return false;
    for (size_t i = 0; i < text->n; i++)
        end += encode(end, text->at[i]);
    const char *begin = memchr(bytes, '{', (size_t)(end - bytes));
    if (begin)
        *out = json_loadb(begin, (size_t)(end - begin), JSON_DISABLE_EOF_CHECK, NULL);
    free(bytes);
    return true;
}

static bool is_call(const json_t *o)
{
    return json_is_string(json_object_get(o, "name")) && json_is_object(json_object_get(o, "arguments"));
}

/* Of the name and the arguments that a call should have, the share that it has; arguments too many count against it. */
static double share_of(const json_t *call, const json_t *wanted)
{
    const json_t *given = json_object_get(call, "arguments"), *asked = json_object_get(wanted, "arguments");
    size_t right = json_equal(json_object_get(call, "name"), json_object_get(wanted, "name")) ? 1 : 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)asked, key, value)
    {
        right += json_equal(json_object_get(given, key), value) ? 1 : 0;
    }
    const size_t n =
        json_object_size(given) > json_object_size(asked) ? json_object_size(given) : json_object_size(asked);
    return (double)right / (double)(1 + n);
}

bool eval_score_call(double *out, const struct eval_case *c, const struct eval_chars *ref, int variant)
{
    json_t *call, *wanted = NULL;
    const bool good = first_object(&call, &c->pred) && first_object(&wanted, ref);
    const bool valid = good && is_call(call);
    *out = valid && variant == EVAL_CALL_RIGHT ? share_of(call, wanted) : valid;
    json_decref(call);
    json_decref(wanted);
    return good;
}
