/* SPDX-License-Identifier: MIT */
/* Prompts that are no chat: a text, a list of tokens and texts, an object with such a prompt and images, or a list of these. */
#include "serve/bodies.h"
#include "serve/request.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum shape { NONE, TEXT, TOKENS, MIXED, MEDIA };

/* Whether it is a list of tokens, or of tokens and texts: texts alone are several prompts. */
static enum shape shape_of_list(const json_t *list)
{
    size_t i, n_tokens = 0, n_texts = 0;
    const json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        const json_int_t id = json_integer_value(one);
        n_tokens += json_is_integer(one) && id >= 0 && id <= INT32_MAX;
        n_texts += json_is_string(one);
    }
    if (n_tokens == 0 || n_tokens + n_texts < json_array_size(list))
        return NONE;
    return n_texts > 0 ? MIXED : TOKENS;
}

/* One prompt; *p becomes what an object holds that has nothing else. */
static enum shape shape_of(const json_t **p)
{
    if (json_is_object(*p) && json_object_get(*p, "multimodal_data"))
        return json_is_string(json_object_get(*p, "prompt_string")) ? MEDIA : NONE;
    if (json_is_object(*p))
        *p = json_object_get(*p, "prompt_string");
    return json_is_string(*p) ? TEXT : shape_of_list(*p);
}

static int fail(char *why, const char **param)
{
    snprintf(
        why, SERVE_TEXT,
        "prompt: it is a text, a list of tokens (whole numbers from 0) and texts, or a list of such prompts");
    *param = "prompt";
    return 400;
}

/* Takes one prompt in place of what the body says. */
static int take_one(struct serve_request *r, const json_t *p, enum shape shape)
{
    json_t *one = json_incref((json_t *)(uintptr_t)p);
    r->has_media = shape == MEDIA;
    if (shape == TOKENS)
        r->ask.n_prompt = (int64_t)json_array_size(one);
    r->key = shape == TEXT ? serve_text_of(one) : json_dumps(one, JSON_COMPACT);
    if (r->key && (shape == TOKENS || shape == MIXED)) /* a longer list begins with it */
        r->key[strlen(r->key) - 1] = ',';
    return r->key && json_object_set_new(r->body, "prompt", one) == 0 ? 0 : 500;
}

/* Takes several prompts, each as it is. */
static int take_several(struct serve_request *r, const json_t *list, char *why, const char **param)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        const json_t *p = one;
        const enum shape shape = shape_of(&p);
        if (shape == NONE)
            return fail(why, param);
        r->has_media = r->has_media || shape == MEDIA;
    }
    r->n_prompts = (int32_t)json_array_size(list);
    r->key = json_dumps(list, JSON_COMPACT);
    /* The second one must not begin with what was dropped for the first. */
    if (r->ask.reuse == SERVE_REUSE_SAME)
        r->ask.reuse = SERVE_REUSE_NEVER;
    return r->key ? 0 : 500;
}

int serve_request_set_prompt(struct serve_request *r, char *why, const char **param)
{
    const json_t *p = json_object_get(r->body, "prompt");
    enum shape shape = shape_of(&p);
    int status = 0;
    if (shape == NONE && json_array_size(p) == 1) {
        p = json_array_get(p, 0);
        shape = shape_of(&p);
    }
    if (shape != NONE)
        status = take_one(r, p, shape);
    else if (json_array_size(p) < 2)
        return fail(why, param);
    else if (serve_settings()->cap > 0) {
        snprintf(why, SERVE_TEXT,
                 "prompt: where memory is bounded (--kv-bytes) a request has one, not a list of them");
        *param = "prompt";
        return 400;
    } else
        status = take_several(r, p, why, param);
    if (status == 500)
        snprintf(why, SERVE_TEXT, "out of memory");
    return status;
}

char *serve_request_tokenize(const struct serve_request *r)
{
    const json_t *prompt = r->chat ? NULL : json_object_get(r->body, "prompt");
    json_t *content = json_is_array(prompt) ? json_incref((json_t *)(uintptr_t)prompt) : json_string(r->key);
    json_t *body = json_pack("{s:o, s:b, s:b}", "content", content, "add_special", 1, "parse_special", 1);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

/* ---- Length ---- */

/* Bytes of all texts in what may be a text, a list, or objects with a text. */
static uint64_t bytes_of(const json_t *v)
{
    uint64_t n = json_string_length(v);
    size_t i;
    const json_t *one;
    json_array_foreach((json_t *)(uintptr_t)v, i, one)
    {
        n += bytes_of(one);
    }
    n += json_is_object(v) ? bytes_of(json_object_get(v, "content")) + bytes_of(json_object_get(v, "text")) +
                                 bytes_of(json_object_get(v, "prompt_string"))
                           : 0;
    return n;
}

bool serve_request_is_long(const json_t *body, int32_t times, const char **param)
{
    static const char *const keys[] = {"prompt",       "messages",     "input",        "content",    "system",
                                       "instructions", "input_prefix", "input_suffix", "input_extra"};
    const uint64_t one = serve_slots_most_text(),
                   most = one > UINT64_MAX / (uint64_t)times ? UINT64_MAX : one * (uint64_t)times;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (bytes_of(json_object_get(body, keys[i])) > most) {
            *param = keys[i];
            return true;
        }
    return false;
}
