/* SPDX-License-Identifier: MIT */
#include "serve/request.h"

#include "serve/values.h"

#include <jansson.h>
#include <stdio.h>
#include <xxhash.h>

/* The scale of an adapter in a list; what is not listed is not applied. */
static double scale_of(const json_t *list, json_int_t id)
{
    size_t i;
    const json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        if (json_integer_value(json_object_get(one, "id")) == id)
            return json_number_value(json_object_get(one, "scale"));
    }
    return 0.0;
}

/* The scales of all n adapters, written out; NULL: no memory. *mark: two lists with one mark have the same scales. */
static json_t *write_out(const json_t *list, size_t n, uint64_t *mark)
{
    json_t *all = json_array();
    bool good = all != NULL;
    *mark = n;
    for (size_t i = 0; good && i < n; i++) {
        const float scale = (float)scale_of(list, (json_int_t)i);
        *mark = XXH3_64bits_withSeed(&scale, sizeof scale, *mark);
        good = json_array_append_new(
                   all, json_pack("{s:I,s:f}", "id", (json_int_t)i, "scale", (double)scale)) == 0;
    }
    if (good)
        return all;
    json_decref(all);
    return NULL;
}

static int set(struct serve_request *r, const json_t *has, char *why, const char **param)
{
    const json_t *asked = json_object_get(r->body, "lora");
    const size_t n = json_array_size(has);
    uint64_t now = 0, mark = 0;
    const int status = serve_values_check_adapters(asked, "lora", (int32_t)n, why, param);
    if (status || n == 0)
        return status;
    json_t *of_server = write_out(has, n, &now), *own = write_out(asked ? asked : has, n, &mark);
    bool good = of_server && own;
    if (good && r->form != SERVE_FORM_MESSAGES) /* the server reads a few fields of that form alone */
        good = json_object_set(r->body, "lora", own) == 0;
    if (good && r->form == SERVE_FORM_INFILL) /* nobody notes with which scales its slot was filled */
        good = json_object_set_new(r->body, "cache_prompt", json_false()) == 0;
    json_decref(of_server);
    json_decref(own);
    r->ask.keep_rule.adapters = mark;
    if (!good) {
        snprintf(why, SERVE_TEXT, "out of memory");
        return 500;
    }
    if (r->ask.document_plus_1 == 0 || mark == now)
        return 0;
    snprintf(why, SERVE_TEXT, "lora: the document was read with the adapters' scales of the server");
    *param = "lora";
    return 400;
}

int serve_request_set_adapters(struct serve_request *r, const char *all, size_t n, char *why,
                               const char **param)
{
    json_t *has = json_loadb(all, n, JSON_ALLOW_NUL, NULL);
    int status = 503;
    if (json_is_array(has))
        status = set(r, has, why, param);
    else
        snprintf(why, SERVE_TEXT, "the server does not say which adapters it has; ask again later");
    json_decref(has);
    return status;
}
