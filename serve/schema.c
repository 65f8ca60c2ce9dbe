/* SPDX-License-Identifier: MIT */
#include "serve/schema.h"

#include "serve/config.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A reference that is being followed, on the way from the root. */
struct way {
    const json_t *target;
    const struct way *before;
};

struct check {
    const json_t *root;
    json_t *seen; /* references that were followed */
    int64_t n_values, n_built, n_followed;
    double *work; /* of optional properties: llama.cpp's goes with the third power of their number */
    char *why;
};

static bool complain(const struct check *c, const char *what)
{
    snprintf(c->why, SERVE_TEXT, "%s", what);
    return false;
}

/* ---- All values ---- */

/* Keys whose values say how often something is repeated. */
static bool counts(const char *key)
{
    static const char *const keys[] = {"minItems", "maxItems", "minLength", "maxLength"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* What a member may be in a schema. Below "properties" the same words are names, whose values are objects, so that they
 * pass. */
static bool check_member(struct check *c, const char *key, const json_t *v)
{
    if (strlen(key) > SERVE_SCHEMA_NAME)
        return complain(c, "a key has more than 1000 bytes");
    if (counts(key) && json_is_number(v) &&
        !(json_number_value(v) >= 0 && json_number_value(v) <= SERVE_SCHEMA_TIMES)) {
        snprintf(c->why, SERVE_TEXT, "%s is %.0f: a grammar counts from 0 to %d", key, json_number_value(v),
                 (int)SERVE_SCHEMA_TIMES);
        return false;
    }
    if ((strcmp(key, "$ref") == 0 || strcmp(key, "pattern") == 0) &&
        json_string_length(v) > SERVE_SCHEMA_NAME)
        return complain(c, "a reference or a pattern has more than 1000 bytes");
    if (strcmp(key, "properties") == 0 && json_is_object(v)) {
        const double n = (double)json_object_size(v);
        *c->work += n * n * n;
        if (*c->work > 1e8)
            return complain(c, "its objects have too many properties: 400 in one are about the most");
    }
    return true;
}

static bool check_values(struct check *c, const json_t *v)
{
    const char *key;
    json_t *member;
    size_t i;
    if (++c->n_values > SERVE_SCHEMA_NODES)
        return complain(c, "it has more than 20000 values");
    if (json_is_array(v) && json_array_size(v) > SERVE_SCHEMA_CHOICES)
        return complain(c, "it has an array of more than 1000 values");
    json_array_foreach((json_t *)(uintptr_t)v, i, member)
    {
        if (!check_values(c, member))
            return false;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        if (!check_member(c, key, member) || !check_values(c, member))
            return false;
    }
    return true;
}

/* ---- References ---- */

/* What a reference within the schema names; NULL: nothing, which llama.cpp says. */
static const json_t *target_of(const struct check *c, const json_t *ref)
{
    const char *at = json_string_value(ref);
    const json_t *v = c->root;
    char name[SERVE_SCHEMA_NAME + 1];
    if (!at || strncmp(at, "#/", 2) != 0)
        return NULL;
    for (at += 2; v; at++) {
        const size_t n = strcspn(at, "/");
        memcpy(name, at, n); /* no longer than the reference, which was checked */
        name[n] = '\0';
        v = json_is_array(v) ? json_array_get(v, strtoul(name, NULL, 10)) : json_object_get(v, name);
        at += n;
        if (*at == '\0')
            break;
    }
    return v;
}

static bool is_on(const struct way *way, const json_t *target)
{
    for (; way; way = way->before)
        if (way->target == target)
            return true;
    return false;
}

static const char *const alternatives[] = {"oneOf", "anyOf", "allOf"};
enum { N_ALTERNATIVES = sizeof alternatives / sizeof *alternatives };

/* What a value may be is asked through references and alternatives, each time again. */
static bool follow(struct check *c, const json_t *schema, const struct way *way, int32_t depth)
{
    const json_t *target = target_of(c, json_object_get(schema, "$ref")), *one;
    size_t k;
    if (++c->n_followed > 10 * SERVE_SCHEMA_NODES || depth > SERVE_SCHEMA_DEPTH)
        return complain(c, "its references and alternatives lead on too far: 32 of them, or 200000 ways");
    if (target && is_on(way, target))
        return complain(c, "a $ref leads to itself, with nothing between");
    if (target)
        return follow(c, target, &(struct way){target, way}, depth + 1);
    for (int i = 0; i < N_ALTERNATIVES; i++)
        json_array_foreach(json_object_get(schema, alternatives[i]), k, one)
        {
            if (!follow(c, one, way, depth + 1))
                return false;
        }
    return true;
}

/* ---- What is built ---- */

static bool build(struct check *c, const json_t *schema, int64_t times, int32_t depth);

static bool build_each(struct check *c, const json_t *list, int64_t times, int32_t depth)
{
    const char *key;
    json_t *one;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
    {
        if (!build(c, one, times, depth))
            return false;
    }
    json_object_foreach((json_t *)(uintptr_t)list, key, one)
    {
        if (!build(c, one, times, depth))
            return false;
    }
    return true;
}

/* A schema, as often as it is built: once for each of its types, and those in it as often. What a reference names is built once. */
static bool build(struct check *c, const json_t *schema, int64_t times, int32_t depth)
{
    const json_t *ref = json_object_get(schema, "$ref"), *type = json_object_get(schema, "type");
    const json_t *items = json_object_get(schema, "items");
    if (depth > SERVE_SCHEMA_DEPTH)
        return complain(c, "it has schemas in each other, more than 32 deep");
    c->n_built += times;
    if (c->n_built > SERVE_SCHEMA_NODES)
        return complain(
            c, "more than 20000 schemas would be built of it: one with several types is built for each");
    if (!json_is_object(schema))
        return true;
    if (!follow(c, schema, NULL, 0))
        return false;
    if (json_is_string(ref)) {
        if (json_object_get(c->seen, json_string_value(ref)))
            return true;
        if (json_object_set_new(c->seen, json_string_value(ref), json_true()) != 0)
            return complain(c, "out of memory");
        return build(c, target_of(c, ref), 1, depth + 1);
    }
    if (json_array_size(type) > 1)
        times *= (int64_t)json_array_size(type);
    for (int i = 0; i < N_ALTERNATIVES; i++)
        if (!build_each(c, json_object_get(schema, alternatives[i]), times, depth + 1))
            return false;
    return build_each(c, json_object_get(schema, "properties"), times, depth + 1) &&
           build_each(c, json_object_get(schema, "prefixItems"), times, depth + 1) &&
           (json_is_array(items) ? build_each(c, items, times, depth + 1)
                                 : !items || build(c, items, times, depth + 1)) &&
           (!json_is_object(json_object_get(schema, "additionalProperties")) ||
            build(c, json_object_get(schema, "additionalProperties"), times, depth + 1));
}

bool serve_schema_check(const json_t *schema, double *work, char *why)
{
    struct check c = {.root = schema, .seen = json_object(), .work = work, .why = why};
    why[0] = '\0';
    const bool good = (c.seen != NULL || complain(&c, "out of memory")) && check_values(&c, schema) &&
                      build(&c, schema, 1, 0);
    json_decref(c.seen);
    return good;
}
