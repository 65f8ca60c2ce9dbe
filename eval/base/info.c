/* SPDX-License-Identifier: MIT */
#include "eval/base/info.h"

#include <stdio.h>
#include <string.h>

void eval_hash_text(char out[17], uint64_t hash)
{
    snprintf(out, 17, "%016llx", (unsigned long long)hash);
}

/* Fields that may differ where a run goes on (of_parts), and those that may differ between its shards: how the work was
 * cut up, where and when it was done. Answers do not depend on the number of threads; on the library's version they may. Times
 * depend on the machine, so that a run stays on one, and the times of shards are those of several. */
static const struct {
    const char *name;
    bool of_parts;
} free_fields[] = {{"command", true},     {"threads", true},  {"recipes", true},  {"stand_ins", true},
                   {"too_long", true},    {"unmade", true},   {"shard", false},   {"backend", false},
                   {"device", false},     {"host", false},    {"out", false},     {"ended", false},
                   {"calibration", true}, {"started", false}, {"remarks", false}, {NULL, false}};

static bool is_free(const char *field, bool shards)
{
    for (int i = 0; free_fields[i].name; i++)
        if ((shards || free_fields[i].of_parts) && strcmp(free_fields[i].name, field) == 0)
            return true;
    return false;
}

/* Whether --time-budget decided how many samples there are, which follows from the machine. */
static bool has_budget(const json_t *info)
{
    const char *budget = json_string_value(json_object_get(info, "time_budget"));
    return budget && *budget;
}

/* Whether two lists of tasks differ in nothing but the numbers of samples. */
static bool same_but_numbers(const json_t *a, const json_t *b)
{
    json_t *lists[2] = {json_deep_copy(a), json_deep_copy(b)};
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < json_array_size(lists[i]); k++) {
            json_object_del(json_array_get(lists[i], k), "n");
            json_object_del(json_array_get(lists[i], k), "probes");
        }
    const bool same = lists[0] && json_equal(lists[0], lists[1]);
    json_decref(lists[0]);
    json_decref(lists[1]);
    return same;
}

/* Whether a member may have both values. Shards of a run with a budget of time have the numbers of samples that their
 * machines had time for. The budgets themselves are compared as any member is. */
static bool may_be(const char *field, const json_t *a, const json_t *b, bool shards, bool budget)
{
    return is_free(field, shards) || json_equal(a, b) ||
           (shards && budget && strcmp(field, "tasks") == 0 && same_but_numbers(a, b));
}

const char *eval_info_difference(const json_t *a, const json_t *b, bool shards)
{
    const char *key;
    json_t *value;
    /* The loops change nothing, but their macro takes a pointer to an object that is not const. */
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
    {
        if (!may_be(key, value, json_object_get(b, key), shards, has_budget(a)))
            return key;
    }
    json_object_foreach((json_t *)(uintptr_t)b, key, value)
    {
        if (!is_free(key, shards) && !json_object_get(a, key))
            return key;
    }
    return NULL;
}
