/* SPDX-License-Identifier: MIT */
#include "app/automatic.h"

#include "app/console.h"
#include "winnow_method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool app_is_auto(const char *recipe)
{
    return recipe && strcmp(recipe, "auto") == 0;
}

int app_auto_choose(wnw_policy **policy, wnw_policy_choice *choice, const wnw_policy_facts *facts)
{
    *choice = wnw_policy_choice_default();
    int status = wnw_policy_choose(choice, facts);
    if (status == WNW_OK)
        status = wnw_policy_parse(policy, choice->recipe, NULL);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
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

/* The mean share of the entries that stays for the quality with a scorer; 2 where the profile does not know it. */
static double kept_by(const char *scorer, double quality, const wnw_profile *profile)
{
    enum { MOST = 64 };
    wnw_profile_table t = wnw_profile_table_default();
    double loss[MOST], kept[MOST], stays = 1;
    char name[32];
    int32_t n = 0;
    snprintf(name, sizeof name, "%s_kept", scorer);
    for (int32_t i = 0; n < 1 && wnw_profile_get_table(profile, i, &t); i++)
        n = t.kind == WNW_PROFILE_QUALITY && strcmp(t.name, scorer) == 0 ? t.shape[0] : 0;
    if (n < 1 || n > MOST || wnw_profile_get_values(loss, n, profile, scorer) != WNW_OK ||
        wnw_profile_get_values(kept, n, profile, name) != WNW_OK)
        return 2;
    for (int32_t k = 0; k < n && loss[k] <= 1 - quality; k++)
        stays = kept[k];
    return stays;
}

/* Whether gates on hidden states can be asked and speak of prompts of this length: where the choice would have them. */
static bool asks_input_gates(const wnw_policy_facts *facts)
{
    wnw_policy_facts f = *facts;
    wnw_policy_choice choice = wnw_policy_choice_default();
    wnw_policy *policy = NULL;
    f.profiles |= 1u << WNW_PROFILE_SHARES; /* which a quality needs none of */
    f.shares_least = 0;
    const bool asks = wnw_policy_choose(&choice, &f) == WNW_OK &&
                      wnw_policy_parse(&policy, choice.recipe, NULL) == WNW_OK &&
                      wnw_policy_needs(policy).profiles >> WNW_PROFILE_INPUTGATE & 1u;
    wnw_policy_free(policy);
    return asks;
}

const char *app_keep_scorer(double quality, const wnw_profile *profile, const wnw_policy_facts *facts)
{
    static const struct {
        const char *name, *recipe;
        wnw_profile_kind kind; /* that it needs */
    } all[] = {
        {"replay", "replay", WNW_PROFILE_QUALITY},
        {"kvgate", "kvgate", WNW_PROFILE_GATE},
        {"inputgate", "kvzap:recent=32", WNW_PROFILE_INPUTGATE}}; /* as calibrate/quality.c measures them */
    const char *best = all[0].recipe;
    double least = 2;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!(wnw_profile_kinds(profile) >> all[i].kind & 1u) ||
            (all[i].kind == WNW_PROFILE_INPUTGATE && !asks_input_gates(facts)))
            continue;
        const double kept = kept_by(all[i].name, quality, profile);
        best = kept < least ? all[i].recipe : best;
        least = kept < least ? kept : least;
    }
    return best;
}

void app_auto_tell(const wnw_policy_choice *choice)
{
    app_note("policy %s, because %s", choice->recipe, choice->reason);
}

json_t *app_auto_json(const wnw_policy_choice *choice)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "policy", choice->recipe, "when", choice->when, "why",
                     choice->why, "evidence", choice->evidence);
}
