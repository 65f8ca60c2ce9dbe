/* SPDX-License-Identifier: MIT */
#include "app/plan_file.h"

#include "app/console.h"
#include "app/files.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* Positions of a head, ascending ones of a text of n tokens. */
static bool are_positions(const json_t *head, json_int_t n)
{
    json_int_t last = -1;
    size_t i;
    const json_t *x;
    json_array_foreach(head, i, x)
    {
        if (!json_is_integer(x) || json_integer_value(x) <= last || json_integer_value(x) >= n)
            return false;
        last = json_integer_value(x);
    }
    return json_is_array(head);
}

/* Whether there are layers, all with as many heads. */
static bool are_layers(const json_t *layers)
{
    const size_t n_head = json_array_size(json_object_get(json_array_get(layers, 0), "heads"));
    const json_t *layer;
    size_t il;
    json_array_foreach(layers, il, layer)
    {
        if (json_array_size(json_object_get(layer, "heads")) != n_head)
            return false;
    }
    return n_head > 0;
}

/* The ids of n tokens; an older plan has none. */
static bool are_tokens(const json_t *tokens, json_int_t n)
{
    size_t i;
    const json_t *x;
    json_array_foreach(tokens, i, x)
    {
        if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > INT32_MAX)
            return false;
    }
    return !tokens || (json_is_array(tokens) && json_array_size(tokens) == (size_t)n);
}

/* What is wrong with a plan, NULL = nothing. */
static const char *plan_fault(const json_t *o)
{
    static const char positions[] =
        "is damaged: its \"layers\" have \"heads\", lists of positions of its text, ascending";
    const json_t *layers = json_object_get(o, "layers"), *layer, *head;
    const char *format = json_string_value(json_object_get(o, "format"));
    const json_int_t n = json_integer_value(json_object_get(o, "n_tokens"));
    size_t il, ih;
    if (!format || strcmp(format, "winnow-plan-1") != 0)
        return "is neither a stored document nor a keep-plan";
    if (n < 1 || n > INT32_MAX || !json_is_string(json_object_get(o, "policy")))
        return "is damaged: it says a \"policy\", and \"n_tokens\" from 1 to 2147483647";
    json_array_foreach(layers, il, layer)
    {
        const json_t *heads = json_object_get(layer, "heads");
        json_array_foreach(heads, ih, head) if (!are_positions(head, n)) return positions;
        if (!json_is_array(heads))
            return positions;
    }
    if (!json_is_array(layers))
        return positions;
    if (!are_layers(layers))
        return "is damaged: it has no layers, or they differ in heads";
    return are_tokens(json_object_get(o, "tokens"), n)
               ? NULL
               : "is damaged: its tokens are not \"n_tokens\" numbers from 0 on";
}

int app_plan_read(json_t **o, const char *path)
{
    struct app_text text, remarks = {0};
    const char *fault;
    int rc = app_read_text(&text, path, &remarks);
    if (rc == APP_OK) {
        const int status = wnw__json_parse(o, text.s, text.len);
        if (status == WNW_E_NOMEM)
            rc = app_fail_status(status);
        else if ((fault = *o ? plan_fault(*o) : "is neither a stored document nor a keep-plan"))
            rc = app_fail(APP_BAD_INPUT, "'%s' %s", path, fault);
    }
    free(text.s);
    free(remarks.s);
    return rc;
}

/* ---- The plan itself ---- */

/* Positions of all heads in one array, with where each begins. */
struct positions {
    int32_t *all, *n;
    const int32_t **head;
};

static int fill_positions(struct positions *p, const json_t *layers, size_t n_head)
{
    const json_t *layer, *head, *x;
    size_t il, ih, i, at = 0, n_all = 0;
    json_array_foreach(layers, il, layer)
    {
        json_array_foreach(json_object_get(layer, "heads"), ih, head) n_all += json_array_size(head);
    }
    p->all = calloc(n_all + 1, sizeof *p->all);
    p->n = calloc(json_array_size(layers) * n_head, sizeof *p->n);
    p->head = calloc(json_array_size(layers) * n_head, sizeof *p->head);
    if (!p->all || !p->n || !p->head)
        return app_fail(APP_FAILED, "out of memory for a plan");
    json_array_foreach(layers, il, layer)
    {
        json_array_foreach(json_object_get(layer, "heads"), ih, head)
        {
            p->head[il * n_head + ih] = p->all + at;
            p->n[il * n_head + ih] = (int32_t)json_array_size(head);
            json_array_foreach(head, i, x) p->all[at++] = (int32_t)json_integer_value(x);
        }
    }
    return APP_OK;
}

int app_plan_make(wnw_plan **out, const json_t *o, const char *path)
{
    static const char *const more[] = {"merges", "channels", "bias", "values"};
    const json_t *layers = json_object_get(o, "layers"), *layer;
    const size_t n_head = json_array_size(json_object_get(json_array_get(layers, 0), "heads"));
    struct positions p = {0};
    size_t il;
    *out = NULL;
    json_array_foreach(layers, il, layer) for (size_t i = 0; i < sizeof more / sizeof *more; i++)
    {
        if (json_object_get(layer, more[i]))
            return app_fail(
                APP_BAD_INPUT,
                "'%s' changes entries (\"%s\" in layer %zu); only plans that keep or drop can be applied",
                path, more[i], il);
    }
    int rc = fill_positions(&p, layers, n_head);
    if (rc == APP_OK) {
        const int status =
            wnw_plan_new(out, (int32_t)json_array_size(layers), (int32_t)n_head,
                         (int32_t)json_integer_value(json_object_get(o, "n_tokens")), p.n, p.head);
        rc = app_status_code(status);
    }
    free(p.all);
    free(p.n);
    free(p.head);
    return rc;
}
