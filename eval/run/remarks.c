/* SPDX-License-Identifier: MIT */
#include "eval/run/remarks.h"

#include "app/console.h"
#include "app/json.h"
#include "eval/base/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds the notes of the study, which are lines. */
static bool add_notes(json_t **list, const struct eval_suite *suite)
{
    char *copy = suite->notes.len > 0 ? strdup(suite->notes.s) : NULL, *rest = copy;
    bool good = copy || suite->notes.len == 0;
    for (char *line; good && (line = strsep(&rest, "\n"));)
        good = *line == '\0' || app_json_append(list, app_json_text(line));
    free(copy);
    return good;
}

/* How many heads choose, as the recipe written out says it; k = 0 stands for the profile's number. */
static bool add_heads(json_t **list, const struct eval_recipe *r, int32_t n_head)
{
    static const char part[] = "+retrieval_heads:k=", named[] = ",heads=";
    char line[400];
    const char *at = strstr(wnw_policy_string(r->policy), part), *heads = at ? strstr(at, named) : NULL;
    if (!heads)
        return true;
    const long asked = strtol(at + strlen(part), NULL, 10);
    const int32_t eighth = (n_head + 4) / 8 > 1 ? (n_head + 4) / 8 : 1;
    const bool all = strncmp(heads + strlen(named), "all", 3) == 0;
    const int32_t k = all || asked > n_head ? n_head : asked > 0 ? (int32_t)asked : eighth;
    snprintf(line, sizeof line, "%.300s: %d of %d heads of a layer choose%s.", r->text, (int)k, (int)n_head,
             all || asked > 0 ? "" : ", an eighth, unless its profile says another number");
    return app_json_append(list, app_json_text(line));
}

int eval_remarks_make(json_t **out, const struct eval_args *args, const struct eval_suite *suite,
                      const struct eval_configs *c, int32_t n_head)
{
    json_t *list = json_array();
    bool good = list && (!suite || eval_replaces_study(args) || add_notes(&list, suite));
    for (int32_t i = 0; good && i < c->n_recipes; i++)
        good = add_heads(&list, &c->recipes[i], n_head);
    if (good && json_array_size(list) == 0) {
        json_decref(list);
        list = NULL;
    }
    *out = list;
    return good ? APP_OK : eval_no_memory("the remarks");
}
