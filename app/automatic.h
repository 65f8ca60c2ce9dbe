/* SPDX-License-Identifier: MIT */
/* The policy that is chosen from what is known: `--policy auto`. */
#ifndef WNW_APP_AUTOMATIC_H
#define WNW_APP_AUTOMATIC_H

#include "app/profiles.h"
#include "winnow.h"
#include "winnow_calibrate.h"
#include "winnow_tools.h"

#include <jansson.h>

/* The kinds of profiles that the choice looks at. */
#define APP_AUTO_PROFILES (1u << WNW_PROFILE_SHARES | 1u << WNW_PROFILE_GATE | 1u << WNW_PROFILE_INPUTGATE)
/* Profiles of the scorers that a quality can be kept with. `replay` can too, and needs no profile. */
#define APP_KEEP_PROFILES (1u << WNW_PROFILE_GATE | 1u << WNW_PROFILE_INPUTGATE)

/* Whether a recipe asks for the choice. */
bool app_is_auto(const char *recipe);
/* Refuses the recipe that requests and the environment of other programs have for a quality: commands have an option. Returns an exit code. */
int app_auto_check(const char *recipe);
/* Chooses by the facts and parses the recipe. Returns an exit code. */
int app_auto_choose(wnw_policy **policy, wnw_policy_choice *choice, const wnw_policy_facts *facts);
/* The recipe for a quality to keep: `recipe` with the head budget that looks for it. *out is released with free. Returns an
 * exit code. */
int app_keep_recipe(char **out, const char *recipe, double quality);
/* Adds what a file of profiles has to the facts; nothing where it cannot be read. */
void app_auto_add_profile(wnw_policy_facts *facts, const char *path);
/* Adds the profiles that would be found for a model to the facts. Returns an exit code. */
int app_auto_find_profiles(wnw_policy_facts *facts, const struct app_profile_want *want);
/* Prints one line on stderr: the first name of the recipe, and the reason. --json has the whole recipe. */
void app_auto_tell(const wnw_policy_choice *choice);
/* {"policy", "when", "why", "evidence"}; NULL without memory. */
json_t *app_auto_json(const wnw_policy_choice *choice);

#endif
