/* SPDX-License-Identifier: MIT */
#include "cli/serve_chunk.h"

#include "app/automatic.h"
#include "app/chunks.h"
#include "app/console.h"
#include "app/keep.h"
#include "winnow_bridge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Refuses chunks with a policy that has nothing to do in them, or that cannot compress in them. */
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
    int rc = wnw_policy_parse(&policy, recipe, NULL);
    rc = app_status_code(rc);
    if (rc == APP_OK)
        rc = app_keep_allowed(policy, rules, args->app.evict);
    const char *misfit = rc == APP_OK ? app_chunk_misfit(policy) : NULL;
    if (rc == APP_OK && args->app.kv_bytes != APP_UNSET && app_chunk_by_blocks(policy))
        misfit = "under --kv-bytes this policy reads prompts whole, because it keeps some of every block";
    if (misfit)
        rc = app_fail(APP_BAD_INPUT,
                      "--evict %s: %s; use --evict end, or keydiff, which reads in chunks with any size",
                      args->app.evict, misfit);
    wnw_policy_free(policy);
    return rc;
}

int cli_serve_chunk(char out[CLI_SERVE_CHUNK], const struct cli_args *args, const char *recipe)
{
    const char *const when = args->app.evict;
    wnw_run rules = wnw_run_default();
    *out = '\0';
    if (!when)
        return APP_OK;
    int rc = app_keep_rules(&rules, when, NULL);
    if (rc == APP_OK && rules.phase == WNW_PHASE_LAYER)
        rc = app_fail(APP_BAD_INPUT, "--evict layer: a server compresses at a prompt's end or in chunks; use "
                                     "end, chunk or chunk:C");
    if (rc == APP_OK && rules.phase == WNW_PHASE_CHUNK && rules.chunk != 0 &&
        rules.chunk < WNW_BRIDGE_LEAST_NEW)
        rc =
            app_fail(APP_BAD_INPUT, "--evict %s: a chunk has at least %d tokens", when, WNW_BRIDGE_LEAST_NEW);
    if (rc == APP_OK && rules.phase == WNW_PHASE_CHUNK)
        rc = check_recipe(args, recipe, &rules);
    int32_t chunk = 0;
    if (rules.phase == WNW_PHASE_CHUNK)
        chunk = rules.chunk > 0 ? rules.chunk : APP_CHUNK_USUAL;
    if (rc == APP_OK)
        snprintf(out, CLI_SERVE_CHUNK, "%d", (int)chunk);
    return rc;
}
