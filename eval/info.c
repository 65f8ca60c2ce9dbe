/* SPDX-License-Identifier: MIT */
#include "eval/info.h"

#include <stdint.h>
#include <string.h>

/* Fields that may differ where a run goes on (of_parts), and those that may differ between its shards: how the work was
 * cut up, where and when it was done. Answers do not depend on the number of threads; on the library's version they may. Times
 * depend on the machine, so that a run stays on one, and the times of shards are those of several. */
static const struct {
    const char *name;
    bool of_parts;
} free_fields[] = {{"command", true}, {"threads", true},  {"stand_ins", true},   {"too_long", true},
                   {"shard", false},  {"backend", false}, {"device", false},     {"host", false},
                   {"out", false},    {"ended", false},   {"calibration", true}, {"started", false},
                   {NULL, false}};

static bool is_free(const char *field, bool shards)
{
    for (int i = 0; free_fields[i].name; i++)
        if ((shards || free_fields[i].of_parts) && strcmp(free_fields[i].name, field) == 0)
            return true;
    return false;
}

const char *eval_info_difference(const json_t *a, const json_t *b, bool shards)
{
    const char *key;
    json_t *value;
    /* The loops change nothing, but their macro takes a pointer to an object that is not const. */
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
    {
        if (!is_free(key, shards) && !json_equal(value, json_object_get(b, key)))
            return key;
    }
    json_object_foreach((json_t *)(uintptr_t)b, key, value)
    {
        if (!is_free(key, shards) && !json_object_get(a, key))
            return key;
    }
    return NULL;
}
