/* SPDX-License-Identifier: MIT */
#include "app/automatic.h"

#include "app/console.h"
#include "winnow_method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool app_is_auto(const char *recipe)
{
    double quality;
    return wnw_automatic_is(recipe, &quality) && !(quality > 0);
}

int app_auto_check(const char *recipe)
{
    double quality;
    (void)wnw_automatic_is(recipe, &quality);
    if (!(quality > 0))
        return APP_OK;
    return app_fail(APP_BAD_INPUT, "--policy %.60s: the option for that is --keep-quality %.15g", recipe,
                    quality);
}

int app_auto_choose(wnw_policy **policy, wnw_policy_choice *choice, const wnw_policy_facts *facts)
{
    *choice = wnw_policy_choice_default();
    int status = wnw_policy_choose(choice, facts);
    if (status == WNW_OK)
        status = wnw_policy_parse(policy, choice->recipe, NULL);
    return app_status_code(status);
}

void app_auto_add_profile(wnw_policy_facts *facts, const char *path)
{
    wnw_profile *p = NULL;
    if (wnw_profile_open(&p, path) != WNW_OK)
        return;
    wnw_policy_facts_add(facts, p);
    wnw_profile_free(p);
}

int app_auto_find_profiles(wnw_policy_facts *facts, const struct app_profile_want *want)
{
    int rc = APP_OK;
    for (int32_t kind = 0; rc == APP_OK && kind < WNW_N_PROFILE_KINDS; kind++) {
        char *path = NULL;
        if (!(APP_AUTO_PROFILES >> kind & 1u))
            continue;
        rc = app_profile_find(&path, want, kind);
        if (path) { /* what is damaged is said when it is read */
            facts->profiles |= 1u << kind;
            facts->shares_least = kind == WNW_PROFILE_SHARES ? 1 : facts->shares_least;
            app_auto_add_profile(facts, path);
        }
        free(path);
    }
    return rc;
}

int app_keep_recipe(char **out, const char *recipe, double quality)
{
    if (asprintf(out, "%s+quality:q=%.15g", recipe, quality) > 0)
        return APP_OK;
    *out = NULL;
    return app_fail(APP_FAILED, "out of memory");
}

void app_auto_tell(const wnw_policy_choice *choice)
{
    app_note("policy: %.*s (%s; --policy overrides)", (int)strcspn(choice->recipe, ":+"), choice->recipe,
             choice->reason);
}

json_t *app_auto_json(const wnw_policy_choice *choice)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "policy", choice->recipe, "when", choice->when, "why",
                     choice->why, "evidence", choice->evidence);
}
