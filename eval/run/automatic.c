/* SPDX-License-Identifier: MIT */
#include "eval/run/automatic.h"

#include "app/automatic.h"
#include "app/console.h"
#include "app/models.h"

#include <stdlib.h>

/* Smaller than any size that profiles are measured at. */
#define LITTLE 1e-9

int eval_auto(wnw_policy_choice *choice, const struct eval_args *args, const wnw_run *rules,
              enum eval_mode mode, const wnw_size *size)
{
    wnw_policy_facts facts = wnw_policy_facts_default();
    char *path = NULL;
    facts.phase = rules->phase;
    facts.decodes = rules->every > 0;
    facts.question_known = mode == EVAL_AWARE || mode == EVAL_AWARE_FULL;
    facts.kept = size->kind == WNW_SIZE_RATIO ? 1 - size->ratio : size->kind == WNW_SIZE_NONE ? 0 : LITTLE;
    int rc = app_model_path(&path, args->app.model);
    if (rc == APP_OK)
        rc = app_auto_find_profiles(&facts, &(struct app_profile_want){.given = args->app.profile,
                                                                       .model = args->app.model,
                                                                       .model_path = path});
    free(path);
    if (rc != APP_OK)
        return rc;
    *choice = wnw_policy_choice_default();
    const int status = wnw_policy_choose(choice, &facts);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}
