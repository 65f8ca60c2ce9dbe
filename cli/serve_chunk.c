/* SPDX-License-Identifier: MIT */
#include "cli/serve_chunk.h"

#include "app/automatic.h"
#include "app/chunks.h"
#include "app/console.h"
#include "app/keep.h"
#include "base/err.h"
#include "winnow_tools.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Refuses chunks with a policy that cannot compress in them. */
static int check_policy(const struct cli_args *args, const wnw_policy *policy, const wnw_run *rules)
{
    WNW_TRY(app_keep_allowed(policy, rules, args->app.evict));
    const char *misfit = app_chunk_misfit(policy);
    if (args->app.kv_bytes != APP_UNSET && app_chunk_by_blocks(policy))
        misfit = "under --kv-bytes this policy reads prompts whole, because it keeps some of every block";
    if (!misfit)
        return APP_OK;
    return app_fail(APP_BAD_INPUT,
                    "--evict %s: %s; use --evict end, or keydiff, which reads in chunks with any size",
                    args->app.evict, misfit);
}

/* The same with one that has nothing to do in them. */
static int check_recipe(const struct cli_args *args, const char *recipe, const wnw_run *rules)
{
    wnw_policy *policy = NULL;
    if (strcmp(recipe, "full") == 0)
        return app_fail(APP_BAD_INPUT, "--evict %s: the policy full removes nothing; give another --policy",
                        args->app.evict);
    if (!isnan(args->app.keep_quality))
        return app_fail(APP_BAD_INPUT,
                        "--evict %s: --keep-quality judges whole prompts; use --evict end, or give a size",
                        args->app.evict);
    if (app_is_auto(args->app.policy)) /* it takes one that can */
        return APP_OK;
    WNW_TRY(app_status_code(wnw_policy_parse(&policy, recipe, NULL)));
    const int rc = check_policy(args, policy, rules);
    wnw_policy_free(policy);
    return rc;
}

int cli_serve_chunk(char out[CLI_SERVE_CHUNK], const struct cli_args *args, const char *recipe)
{
    const char *const when = args->app.evict;
    wnw_run rules = wnw_run_default();
    int32_t chunk = 0;
    *out = '\0';
    if (!when)
        return APP_OK;
    WNW_TRY(app_keep_rules(&rules, when, NULL));
    if (rules.phase == WNW_PHASE_LAYER)
        return app_fail(APP_BAD_INPUT,
                        "--evict layer: a server compresses at a prompt's end or in chunks; use "
                        "end, chunk or chunk:C");
    if (rules.phase == WNW_PHASE_CHUNK) {
        if (rules.chunk != 0 && rules.chunk < WNW_TURNS_LEAST_NEW)
            return app_fail(APP_BAD_INPUT, "--evict %s: a chunk has at least %d tokens", when,
                            WNW_TURNS_LEAST_NEW);
        WNW_TRY(check_recipe(args, recipe, &rules));
        chunk = rules.chunk > 0 ? rules.chunk : APP_CHUNK_USUAL;
    }
    snprintf(out, CLI_SERVE_CHUNK, "%d", (int)chunk);
    return APP_OK;
}
